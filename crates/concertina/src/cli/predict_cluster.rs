//! `concertina predict --cluster`: a cluster of fitted nodes, and what-ifs.

use std::process::ExitCode;

use anyhow::bail;
use model::queue::ArrivalLaw;
use model::storage::Change;
use model::{ClusterLimits, ClusterPrediction, Parameter};

use super::predict_several::{self, Several};
use super::predict_what_if::{Args, arrivals_text, law_text};
use crate::cli::output::{out, outln};
use report::Objective;
use report::cluster::largest_rate_text;
use report::cluster_file::ClusterFile;
use report::grid::{Grid, printable};
use report::objective::{digits, time};
use report::table::{
    MARK_TEXT, cluster_limits_text, mark, no_interval_text, past_limit_text, percent, tenths,
    with_interval,
};

/// The requested predictions.
pub struct Questions<'a> {
    /// Loads in requests/s; if empty, 10 to 90 % of saturation.
    pub rate: &'a [f64],
    /// Response times, seconds.
    pub within_s: &'a [f64],
    /// Objectives whose largest load is computed.
    pub objectives: &'a [Objective],
    /// A law of arrivals at each node in place of the fitted ones.
    pub arrivals: Option<ArrivalLaw>,
    /// Requests that consist of several.
    pub several: &'a predict_several::Args,
    /// Print JSON.
    pub json: bool,
}

/// The changes to the cluster, as described in answers.
struct ChangedCluster {
    changes: Vec<Change>,
    /// How hit ratios follow memory.
    hits: String,
}

/// The prediction at one load, or the reason why there is none.
struct AtLoad {
    rate: f64,
    found: Result<ClusterPrediction, String>,
    /// The 99th percentile of the response time; `None` where there is no prediction.
    p99: Option<Parameter>,
    several: Several,
}

/// Runs the command.
pub fn run(args: &Args, asked: &Questions) -> anyhow::Result<ExitCode> {
    let mut file = match &args.cluster {
        Some(path) => ClusterFile::read(path)?,
        None => ClusterFile::of_arguments(&args.node)?,
    };
    if let Some(law) = asked.arrivals {
        file.nodes.iter_mut().for_each(|node| node.model = node.model.with_arrivals(law));
    }
    let law = args.law(&file)?;
    let mut model = file.model()?;
    let changes = args.changes(&file)?;
    for change in &changes {
        model = model.changed(change, &law)?;
    }
    let limits = model.limits();
    let rates = match (asked.rate.is_empty(), limits.saturation.is_finite()) {
        (false, _) => asked.rate.to_vec(),
        (true, true) => [0.1, 0.3, 0.5, 0.7, 0.9].map(|x| x * limits.saturation).to_vec(),
        (true, false) => {
            bail!("memory answers everything, so there are no default loads: add --rate")
        }
    };
    let mut answers = Vec::new();
    for rate in rates {
        let found = match model.predict(rate, asked.within_s) {
            Ok(prediction) => Ok(prediction),
            Err(error @ model::Error::Unstable { .. }) => Err(error.to_string()),
            Err(error) => return Err(error.into()),
        };
        let several = match &found {
            Ok(single) => asked.several.predict(
                |fan_out| model.predict_fan_out(single, fan_out),
                |hedge| model.predict_hedged(single, hedge),
            )?,
            Err(_) => Several::default(),
        };
        let p99 =
            found.as_ref().ok().map(|_| model.quantile_with_interval(rate, 0.99)).transpose()?;
        answers.push(AtLoad { rate, found, p99, several });
    }
    let mut statements = Vec::new();
    for objective in asked.objectives {
        statements.push(largest_rate_text(&model, &limits, *objective)?);
    }
    let what_if = ChangedCluster { changes, hits: law_text(&law) };
    if asked.json {
        outln!("{:#}", json(&limits, &what_if, &answers, &statements, asked)?);
    } else {
        out!("{}", text(&limits, &what_if, &answers, &statements, asked));
    }
    Ok(ExitCode::SUCCESS)
}

/// Describes a change.
fn change_text(change: &Change) -> String {
    let list = |shares: &[f64]| {
        shares.iter().map(|s| format!("{} %", tenths(*s))).collect::<Vec<_>>().join(", ")
    };
    match change {
        Change::Without { name, shares_after } => {
            format!("without {name}; shares of the others {}", list(shares_after))
        }
        Change::Shares(shares) => format!("shares {}", list(shares)),
        Change::Speed { name, factor } => {
            format!("devices of {name} at {} times their speed", digits(*factor, 4))
        }
        Change::Memory { name, factor } => {
            format!("{name} with {} times its memory", digits(*factor, 4))
        }
    }
}

fn text(
    limits: &ClusterLimits,
    what_if: &ChangedCluster,
    answers: &[AtLoad],
    statements: &[String],
    asked: &Questions,
) -> String {
    let found = || answers.iter().filter_map(|a| a.found.as_ref().ok());
    let mut out = String::new();
    for note in found().next().iter().flat_map(|p| &p.laboratory) {
        out += &format!("EMULATED: {}\n", printable(note));
    }
    for change in &what_if.changes {
        out += &format!("What if: {}\n", printable(&change_text(change)));
    }
    // The speed of devices does not change the hit ratio.
    if what_if.changes.iter().any(|change| !matches!(change, Change::Speed { .. })) {
        out += &format!("The hit ratio of each object depends on memory {}.\n", what_if.hits);
    }
    if let Some(law) = asked.arrivals {
        out += &arrivals_text(law);
    }
    out += &grid(answers, asked.within_s).text();
    let values = found().flat_map(|p| p.points.iter().map(|point| &point.concertina));
    out += no_interval_text(values);
    if found().any(|p| p.beyond_trust) {
        out += MARK_TEXT;
    }
    out += &past_limit_text(found().filter(|p| p.beyond_limit).map(|p| p.rate));
    for answer in answers {
        if let Err(why) = &answer.found {
            out += &format!("{}\n", why.trim_end());
        }
    }
    let several: Vec<&Several> = answers.iter().map(|a| &a.several).collect();
    out += &asked.several.text(asked.within_s, &several);
    out += &format!("\n{}", nodes_grid(answers).text());
    out += &format!("\n{}", cluster_limits_text(limits));
    for statement in statements {
        out += &format!("{statement}\n");
    }
    out
}

fn grid(answers: &[AtLoad], within_s: &[f64]) -> Grid {
    let mut head: Vec<String> = ["rate/s", "busiest %", "memory %"].map(String::from).to_vec();
    for &t in within_s {
        head.push(format!("≤ {} % [95 %]", time(t)));
        head.push("Spotify".to_owned());
    }
    head.extend(["mean", "p99 [95 %]", ""].map(String::from));
    let mut grid = Grid { head, align: "", rows: Vec::new() };
    for answer in answers {
        let Ok(p) = &answer.found else {
            grid.row([digits(answer.rate, 4), "unstable".to_owned()]);
            continue;
        };
        let busy = tenths(p.utilisation_max);
        let mut cells = vec![digits(p.rate, 4), busy, tenths(p.hit_ratio.value)];
        for point in &p.points {
            cells.push(with_interval(&point.concertina, percent));
            cells.push(point.spotify.as_ref().map_or("unstable".to_owned(), |s| percent(s.value)));
        }
        let marks = mark(p.beyond_trust).to_owned();
        let p99 = answer.p99.as_ref().map_or(String::new(), |p99| with_interval(p99, time));
        cells.extend([time(p.response_mean.value), p99, marks]);
        grid.row(cells);
    }
    grid
}

/// The nodes at the largest stable load.
fn nodes_grid(answers: &[AtLoad]) -> Grid {
    let head = ["node", "share %", "rate/s", "busy %", "memory %", "number at a device", ""];
    let mut grid = Grid::new("lrrrrrl", &head);
    let stable = answers.iter().filter_map(|a| a.found.as_ref().ok());
    let largest = stable.max_by(|a, b| a.rate.total_cmp(&b.rate));
    for node in largest.iter().flat_map(|p| &p.nodes) {
        grid.row([
            node.name.clone(),
            percent(node.share),
            digits(node.rate, 4),
            tenths(node.utilisation_mean),
            tenths(node.hit_ratio),
            digits(node.device_queue_length_mean, 3),
            mark(node.beyond_trust).to_owned(),
        ]);
    }
    grid
}

fn json(
    limits: &ClusterLimits,
    what_if: &ChangedCluster,
    answers: &[AtLoad],
    statements: &[String],
    asked: &Questions,
) -> anyhow::Result<serde_json::Value> {
    let mut predictions = Vec::new();
    for answer in answers {
        predictions.push(match &answer.found {
            Ok(prediction) => {
                let mut value = serde_json::to_value(prediction)?;
                value["stable"] = true.into();
                value["response_p99"] = serde_json::to_value(&answer.p99)?;
                answer.several.add_to(&mut value)?;
                value
            }
            Err(why) => serde_json::json!({
                "rate": answer.rate, "stable": false, "statement": why,
            }),
        });
    }
    Ok(serde_json::json!({
        "what_if": what_if.changes.iter().map(change_text).collect::<Vec<_>>(),
        "arrivals": asked.arrivals.map(|law| law.to_string()),
        "hits_follow_memory": what_if.hits,
        "limits": limits,
        "predictions": predictions,
        "objectives": statements,
    }))
}
