//! `concertina predict --cluster`: a cluster of fitted nodes, and what-ifs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context, bail};
use model::queue::ArrivalLaw;
use model::storage::{Change, Popularity};
use model::what_if::WhatIf;
use model::{ClusterLimits, ClusterPrediction, Model, Parameter};

use super::predict;
use super::predict_several::{self, Several};
use crate::cli::output::{out, outln};
use report::Objective;
use report::cluster::largest_rate_text;
use report::cluster_file::ClusterFile;
use report::grid::{Grid, printable};
use report::objective::{digits, time};
use report::popularity::{self, Law};
use report::table::{
    MARK_TEXT, cluster_limits_text, mark, no_interval_text, past_limit_text, percent, tenths,
    with_interval,
};

/// The cluster, and the changes to it.
#[derive(clap::Args)]
#[group(skip)]
#[command(group = clap::ArgGroup::new("is_cluster").args(["cluster", "node"]))]
pub struct Args {
    /// A cluster file: fitted nodes and their shares (docs/models.md)
    #[arg(long, value_name = "FILE", conflicts_with = "model")]
    cluster: Option<PathBuf>,
    /// A node of a cluster: its model file and its share of the requests; once for each node
    #[arg(long, value_name = "MODEL:SHARE", conflicts_with = "model")]
    node: Vec<String>,
    /// What if this node is lost, and its replicas have been filled
    #[arg(long, value_name = "NAME", requires = "is_cluster")]
    without: Option<String>,
    /// What if this number of the --servers were lost, after the others had filled their replicas
    #[arg(long, value_name = "N", conflicts_with = "is_cluster")]
    lost: Option<u32>,
    /// What if devices had another speed: 0.5 is half as fast; of all servers, or of the named node of a cluster
    #[arg(long, value_name = "[NAME=]FACTOR")]
    speed: Vec<Factor>,
    /// What if servers had this multiple of their memory; all of them, or the named node of a cluster
    #[arg(long, value_name = "[NAME=]FACTOR")]
    memory: Vec<Factor>,
    /// What if each server had this number of devices of a class; with more hot devices, more of the often-read objects are on them
    #[arg(long, value_name = "CLASS=N", conflicts_with = "is_cluster", value_parser = devices)]
    devices: Vec<(String, u32)>,
    /// What if the nodes (those that are left) had these shares of the requests, in their order
    #[arg(long, value_delimiter = ',', value_name = "SHARE", requires = "is_cluster")]
    shares: Vec<f64>,
    /// How the hit ratio of each object depends on memory: 1 if all are equally popular, 1 − s for
    /// Zipf's s < 1
    #[arg(long, value_name = "EXPONENT")]
    memory_exponent: Option<f64>,
    /// The same by Che's approximation, zipf:S:OBJECTS, or from a trace or the samples of a run
    /// folder [default: the cluster file's, or equally popular objects]. With --servers: how
    /// unevenly the objects of zipf:S:OBJECTS or of a trace load them
    #[arg(long, value_name = "LAW", conflicts_with = "memory_exponent")]
    popularity: Option<String>,
}

/// `NAME=FACTOR`, or `FACTOR` for all.
#[derive(Clone, Debug, PartialEq)]
struct Factor {
    name: Option<String>,
    factor: f64,
}

/// The value of `--devices`.
fn devices(text: &str) -> Result<(String, u32), String> {
    let parts = text.rsplit_once('=').filter(|(class, _)| !class.is_empty());
    let parts = parts.and_then(|(class, count)| Some((class.to_owned(), count.parse().ok()?)));
    parts.ok_or_else(|| {
        format!("invalid devices `{text}`: write a class and a number, like `bulk_device=8`")
    })
}

impl FromStr for Factor {
    type Err = String;

    fn from_str(text: &str) -> Result<Factor, String> {
        let (name, factor) = match text.rsplit_once('=') {
            Some((name, factor)) => (Some(name.to_owned()), factor),
            None => (None, text),
        };
        // 200 % is twice as much.
        let (number, unit) = match factor.trim().strip_suffix('%') {
            Some(percent) => (percent.trim_end(), 0.01),
            None => (factor, 1.0),
        };
        match number.parse::<f64>().map(|factor| factor * unit) {
            Ok(factor)
                if factor.is_finite()
                    && factor > 0.0
                    && name.as_ref().is_none_or(|name| !name.is_empty()) =>
            {
                Ok(Factor { name, factor })
            }
            _ => Err(format!(
                "invalid factor `{text}`: write a factor above 0, like `0.5` or `50%`, after a node's name if only that one is \
                 meant, like `b=0.5`"
            )),
        }
    }
}

impl Args {
    /// The changes, in the order in which they apply.
    fn changes(&self, file: &ClusterFile) -> Vec<Change> {
        let all: Vec<&str> = file.nodes.iter().map(|node| node.name.as_str()).collect();
        let own = |f: &Factor| {
            let names = f.name.as_deref().map_or(all.clone(), |name| vec![name]);
            let factor = f.factor;
            names.into_iter().map(|name| (name.to_owned(), factor)).collect::<Vec<_>>()
        };
        let memory = self.memory.iter().flat_map(own);
        let mut changes: Vec<Change> =
            memory.map(|(name, factor)| Change::Memory { name, factor }).collect();
        let speed = self.speed.iter().flat_map(own);
        changes.extend(speed.map(|(name, factor)| Change::Speed { name, factor }));
        if let Some(name) = &self.without {
            let shares_after = match self.shares.is_empty() {
                true => file.shares_without(name),
                false => self.shares.clone(),
            };
            changes.push(Change::Without { name: name.clone(), shares_after });
        } else if !self.shares.is_empty() {
            changes.push(Change::Shares(self.shares.clone()));
        }
        changes
    }
}

impl Args {
    /// Lost servers.
    pub fn lost(&self) -> u32 {
        self.lost.unwrap_or(0)
    }

    /// What is different of `servers` servers like one that was fitted.
    pub fn what_if(&self, servers: u32) -> anyhow::Result<WhatIf> {
        let factor = |option: &str, of: &[Factor]| {
            if let Some(name) = of.iter().find_map(|factor| factor.name.as_deref()) {
                bail!(
                    "--{option} {name}=…: a model file is of one server; give the factor without a name"
                );
            }
            Ok(of.iter().map(|factor| factor.factor).product())
        };
        if self.memory_exponent.is_some() && self.memory.is_empty() && self.lost() == 0 {
            bail!(
                "--memory-exponent says how hits follow memory, which stays as it is: add --memory, or --lost"
            );
        }
        Ok(WhatIf {
            servers,
            lost: self.lost(),
            memory: factor("memory", &self.memory)?,
            memory_exponent: self.memory_exponent.unwrap_or(1.0),
            speed: factor("speed", &self.speed)?,
            devices: self.devices.iter().cloned().collect(),
            ..WhatIf::default()
        })
    }

    /// That more or less memory changes nothing, of a model with no requests that memory answers; empty otherwise.
    pub fn memory_text(&self, model: &Model) -> String {
        let requests = &model.requests;
        match !self.memory.is_empty() && requests.q0.value <= 0.0 {
            true => {
                "! --memory changes nothing: memory answers no requests in this model.\n".to_owned()
            }
            false => String::new(),
        }
    }

    /// The popularity argument, as given.
    pub fn popularity(&self) -> Option<&str> {
        self.popularity.as_deref()
    }

    /// How the hit ratio depends on memory: by the command line, else the cluster file, else for
    /// equally popular objects.
    fn law(&self, file: &ClusterFile) -> anyhow::Result<Law> {
        match (&self.popularity, self.memory_exponent) {
            (Some(text), _) => popularity::read(text, Path::new("")).context("--popularity"),
            (None, Some(exponent)) => {
                Ok(Law::Power(Popularity::new(exponent).context("--memory-exponent")?))
            }
            (None, None) => Ok(file.popularity.clone().unwrap_or(Law::Power(Popularity::EQUAL))),
        }
    }
}

/// Describes a law.
fn law_text(law: &Law) -> String {
    match law {
        Law::Power(p) if *p == Popularity::EQUAL => {
            "as if all objects were equally popular (change with --popularity)".to_owned()
        }
        Law::Power(_) => "by the given exponent".to_owned(),
        Law::Catalogue(_) => "by Che's approximation for the given popularity".to_owned(),
        Law::Stream(_) => "as on the given stream of keys".to_owned(),
    }
}

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
    let changes = args.changes(&file);
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
        out += &predict::arrivals_text(law);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_read() {
        let factor = |name: Option<&str>| Factor { name: name.map(str::to_owned), factor: 0.5 };
        assert_eq!("b=0.5".parse(), Ok(factor(Some("b"))));
        assert_eq!("0.5".parse(), Ok(factor(None)));
        assert_eq!("50%".parse(), Ok(factor(None)));
        assert_eq!("b=50%".parse(), Ok(factor(Some("b"))));
        assert_eq!("200 %".parse::<Factor>().map(|twice| twice.factor), Ok(2.0));
        for bad in
            ["", "b", "b=", "=1", "b=0", "b=-1", "b=NaN", "b=x", "0", "-1", "%", "0%", "b=%", "inf"]
        {
            assert!(bad.parse::<Factor>().is_err(), "{bad}");
        }
        assert_eq!(devices("hot_device=2"), Ok(("hot_device".to_owned(), 2)));
        for bad in ["", "2", "=2", "hot_device=", "hot_device=-1", "hot_device=x"] {
            assert!(devices(bad).is_err(), "{bad}");
        }
    }
}
