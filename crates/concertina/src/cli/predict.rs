//! `concertina predict`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use ground::window::Operation;
use model::queue::ArrivalLaw;
use model::storage::WORKERS_MAX;
use model::what_if::{self, AtLoad as Found};
use model::{Limits, MixShare, Model, Parameter, Prediction};

use super::load_values;
use super::model::Published;
use super::predict_cluster;
use super::predict_several::{self, Several};
use super::predict_sizes;
use super::predict_what_if::{self, arrivals_text};
use crate::cli::output::{out, outln};
use configuration::Size;
use ground::number::exact;
use report::compare::{LargestRate, warnings_of};
use report::grid::{Grid, printable};
use report::imbalance::Placement;
use report::objective::{digits, time};
use report::ranges::{Counts, Loads};
use report::table::{
    MARK_TEXT, grouped, limits_text, mark, no_interval_text, past_limit_text, percent, rate_text,
    tenths, trust_text, warnings_text, with_interval,
};
use report::{self, Objective, figures, objective, svg};

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina predict model.toml --rate 500,1000,1500
  concertina predict model.toml --rate 12000 --servers 17 --within 20ms,50ms,100ms
  concertina predict model.toml --rate 12000 --servers 17 --popularity zipf:0.8:1000000
  concertina predict model.toml --rate 1k/s..20k/s --servers 25
  concertina predict model.toml --rate 12k/s --servers 12..52
  concertina predict --published 150,6,0.815,0.000501 --servers 12..52
  concertina predict model.toml --objective \"99% within 50ms\" --plot predicted.svg
  concertina predict model.toml --objective \"p99 < 50ms\"
  concertina predict model.toml --rate 1000 --json
  concertina predict model.toml --link 1Gbit/s --reply-bytes 80kB --workers 64
  concertina predict model.toml --mix \"get 4KiB=70%, get 64KiB=10%, put=20%\"
  concertina predict model.toml --rate 12000 --servers 17 --lost 1 --memory 2 --speed 0.5
  concertina predict model.toml --rate 2000 --devices bulk_device=8
  concertina predict model.toml --rate 5000 --arrivals renewal:0
  concertina predict model.toml --rate 5000 --arrivals bursts:0.25:0.5
  concertina predict model.toml --rate 5000 --servers 20 --fan-out 10
  concertina predict --cluster cluster.toml --rate 5000 --fan-out 3:2
  concertina predict --cluster cluster.toml --rate 5000 --hedge 30ms
  concertina predict --cluster cluster.toml --rate 5000 --without b
  concertina predict --cluster cluster.toml --rate 5000 --without b --popularity zipf:0.8:1000000
  concertina predict --node a.model.toml:0.5 --node b.model.toml:0.5 --speed b=0.5 --memory a=2

A prediction past the loads at which the model was checked against measurements is marked `?`: it is
extrapolated. Loads past the confidence limit (the mean number of requests at a device is 1) are named. A load
past saturation has no prediction, because queues would grow without bound.")]
pub struct Args {
    /// The model file, from `concertina fit`
    #[arg(required_unless_present_any = ["cluster", "node", "published"])]
    model: Option<PathBuf>,
    /// A server of the published Spotify model in the place of a model file: rate of a disk (1/s), disks, q0, alpha (s)
    #[arg(long, value_name = "MU_D,N_D,Q0,ALPHA", conflicts_with_all = ["model", "cluster", "node"])]
    published: Option<Published>,
    #[command(flatten)]
    cluster: predict_what_if::Args,
    /// Loads on all servers: requests/s, or with units (500/s, 30/min, 12k/s), as a list or a range FROM..TO[:STEP] or
    /// FROM..TO:Npoints [default: 10 to 90 % of saturation]
    #[arg(long, value_name = "RATES", allow_negative_numbers = true)]
    rate: Vec<Loads>,
    /// Number of servers like the fitted one, which share the load equally; several, as a list or a range: a row for each
    #[arg(long, default_value = "1", value_name = "N", conflicts_with_all = ["cluster", "node"])]
    servers: Counts,
    /// What if all replies of a server shared a link of this bandwidth, like 1Gbit/s or 40MB/s
    #[arg(long, value_name = "RATE", conflicts_with_all = ["cluster", "node"], value_parser = objective::bytes_per_s)]
    link: Option<f64>,
    /// What if replies had this many bytes on average, for the link
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["cluster", "node"], value_parser = load_values::bytes)]
    reply_bytes: Option<u64>,
    /// What if requests were of this mix: OPERATION=SHARE or "OPERATION SIZE=SHARE", with commas between; of the
    /// kinds that the fit found
    #[arg(long, value_name = "MIX", conflicts_with_all = ["cluster", "node"], value_parser = mix)]
    mix: Option<Mix>,
    /// What if a server answered at most this many requests concurrently, each for its whole
    /// response time
    #[arg(long, value_name = "N", conflicts_with_all = ["cluster", "node"], value_parser = clap::value_parser!(u32).range(1..=i64::from(WORKERS_MAX)))]
    workers: Option<u32>,
    /// What if requests came to each server by another law than in the fitted loads: poisson, bursts:C2:RATE (the rate's
    /// squared coefficient of variation, and its changes per second), or renewal:SCV (independent times between arrivals
    /// of this squared coefficient of variation; 0: paced, above 1: in clumps)
    #[arg(long, value_name = "LAW")]
    arrivals: Option<ArrivalLaw>,
    #[command(flatten)]
    several: predict_several::Args,
    /// Response times
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "TIME",
        default_value = "20ms,50ms,100ms",
        value_parser = objective::seconds
    )]
    within: Vec<f64>,
    /// An objective, like "99% within 50ms": compute the largest load that meets it
    #[arg(long, value_name = "OBJECTIVE")]
    objective: Vec<Objective>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write a plot of the fractions within each time against load
    #[arg(long, value_name = "FILE.svg", conflicts_with_all = ["cluster", "node"])]
    plot: Option<PathBuf>,
}

/// The value of `--mix`.
#[derive(Clone)]
struct Mix(Vec<MixShare>);

fn mix(text: &str) -> Result<Mix, String> {
    let part = |part: &str| {
        let wrong =
            || format!("invalid part `{}`: write it like `get 4KiB=70%` or `put=0.3`", part.trim());
        let (of, share) = part.split_once('=').ok_or_else(wrong)?;
        let mut words = of.split_whitespace();
        let name = words.next().ok_or_else(wrong)?;
        let operation = Operation::parse(name).ok_or_else(|| {
            let all = Operation::ALL.map(Operation::as_str).join(", ");
            format!("unknown operation `{name}`: one of {all}")
        })?;
        let bytes = words.next().map(|size| size.parse::<Size>().map(|size| size.0)).transpose()?;
        let (share, unit) = match share.trim().strip_suffix('%') {
            Some(share) => (share.trim(), 0.01),
            None => (share.trim(), 1.0),
        };
        let share = share.parse::<f64>().ok().filter(|share| (0.0..=1e6).contains(share));
        let share = share.ok_or_else(wrong)? * unit;
        if words.next().is_some() { Err(wrong()) } else { Ok(MixShare { operation, bytes, share }) }
    };
    let parts: Vec<MixShare> = text.split(',').map(part).collect::<Result<_, String>>()?;
    let sum: f64 = parts.iter().map(|part| part.share).sum();
    if (sum - 1.0).abs() > 1e-6 {
        return Err(format!("the shares add up to {}, not to 1 (100 %)", exact(sum)));
    }
    Ok(Mix(parts))
}

/// The largest number of servers.
const SERVERS_MAX: u32 = 1_000_000;

/// The prediction at one load and its 99th percentile, or the saturation where there is none.
struct AtLoad {
    rate: f64,
    found: Result<(Prediction, Parameter), (String, f64)>,
    several: Several,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Some(servers) = args.servers.0.first().copied() else { bail!("--servers: give a number") };
    if let Some(n) = args.servers.0.iter().find(|n| !(1..=SERVERS_MAX).contains(*n)) {
        bail!("invalid --servers {n}: from 1 to {SERVERS_MAX} servers");
    }
    let rates: Vec<f64> = args.rate.iter().flat_map(|loads| loads.0.clone()).collect();
    if args.published.is_none() && args.model.is_none() {
        let questions = predict_cluster::Questions {
            rate: &rates,
            within_s: &args.within,
            objectives: &args.objective,
            arrivals: args.arrivals,
            several: &args.several,
            json: args.json,
        };
        return predict_cluster::run(&args.cluster, &questions);
    }
    let model = asked_model(&args, servers)?;
    let servers = servers - args.cluster.lost();
    if let [_, _, ..] = args.servers.0[..] {
        if args.plot.is_some() || !args.objective.is_empty() || args.cluster.popularity().is_some()
        {
            bail!(
                "--plot, --objective and --popularity are for one number of servers: give one to --servers"
            );
        }
        if args.cluster.lost() > 0 {
            bail!("--lost is of one number of servers: give one to --servers");
        }
        return predict_sizes::run(&model, &args.servers.0, &rates, &args.within, args.json);
    }
    let limits = model.limits()?;
    let spread = match args.cluster.popularity() {
        Some(law) => Some(Placement::read(law, servers, limits.mg1.value)?),
        None => None,
    };
    let args = OneSize { servers, args: &args };
    let n = f64::from(servers);
    let rates = match (rates.is_empty(), limits.saturation.value.is_finite()) {
        (false, _) => rates,
        (true, true) => [0.1, 0.3, 0.5, 0.7, 0.9].map(|x| x * limits.saturation.value * n).to_vec(),
        (true, false) => vec![model.requests.rate_high * n],
    };
    let mut answers = Vec::new();
    for rate in rates {
        answers.push(answer(&model, rate, &args)?);
    }
    let objectives = args.objective.iter().map(|&o| report::largest_rate(&model, o, servers));
    let objectives = objectives.collect::<Result<Vec<_>, _>>()?;
    if let Some(path) = &args.plot {
        let text = plot(&model, &limits, &args, &answers);
        report::write_whole(path, &text, svg::is_plot)?;
    }
    if args.json {
        outln!("{:#}", json(&model, &limits, &args, &answers, &objectives, spread.as_ref())?);
        return Ok(ExitCode::SUCCESS);
    }
    out!("{}", text(&model, &limits, &args, &answers, &objectives, spread.as_ref())?);
    if let Some(path) = &args.plot {
        outln!("\nWrote {}.", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// The arguments, of which `--servers` is one number.
struct OneSize<'a> {
    servers: u32,
    args: &'a Args,
}

impl std::ops::Deref for OneSize<'_> {
    type Target = Args;

    fn deref(&self) -> &Args {
        self.args
    }
}

/// The model with the changes that options ask for.
fn asked_model(args: &Args, servers: u32) -> anyhow::Result<Model> {
    let mut model = match (&args.model, &args.published) {
        (Some(path), _) => report::read_model(path)?,
        (None, Some(published)) => published.model()?,
        (None, None) => bail!("give a model file, or --published"),
    };
    if let Some(Mix(mix)) = &args.mix {
        let file = args.model.as_ref().map_or("--published".into(), |path| path.to_string_lossy());
        model = model.with_mix(mix).with_context(|| format!("--mix and {file}"))?;
    }
    model = args.cluster.what_if(servers)?.changed(&model)?;
    if args.link.is_some() || args.reply_bytes.is_some() || args.workers.is_some() {
        let bytes = args.reply_bytes.map(|bytes| bytes as f64);
        model = model
            .with_front(args.link, bytes, args.workers)
            .context("invalid --link, --reply-bytes or --workers")?;
    }
    if let Some(law) = args.arrivals {
        model = model.with_arrivals(law);
    }
    Ok(model)
}

fn answer(model: &Model, rate: f64, args: &OneSize) -> anyhow::Result<AtLoad> {
    let found = match what_if::at_load(model, rate, args.servers, &args.within)? {
        Found::Stable { prediction, p99 } => Ok((*prediction, p99)),
        Found::Saturated { statement, saturation } => Err((statement, saturation)),
    };
    let several = match &found {
        Ok((single, _)) => args.several.predict(
            |fan_out| model.predict_fan_out(single, fan_out),
            |hedge| model.predict_hedged(single, hedge),
        )?,
        Err(_) => Several::default(),
    };
    Ok(AtLoad { rate, found, several })
}

fn text(
    model: &Model,
    limits: &Limits,
    args: &OneSize,
    answers: &[AtLoad],
    objectives: &[LargestRate],
    spread: Option<&Placement>,
) -> anyhow::Result<String> {
    let mut out = String::new();
    if let Some(note) = &model.about.laboratory {
        out += &format!("EMULATED: {}\n\n", printable(note));
    }
    if let Some(law) = args.arrivals {
        out += &arrivals_text(law);
    }
    out += &args.cluster.memory_text(model);
    out += &grid(args, answers).text();
    let found = || answers.iter().filter_map(|a| a.found.as_ref().ok());
    let values = found().flat_map(|(p, p99)| p.points.iter().map(|x| &x.concertina).chain([p99]));
    out += no_interval_text(values);
    if found().any(|(p, _)| p.beyond_trust) {
        out += MARK_TEXT;
    }
    out += &past_limit_text(found().filter(|(p, _)| p.beyond_limit).map(|(p, _)| p.rate));
    for answer in answers {
        if let Err((why, _)) = &answer.found {
            out += &format!("{}\n", why.trim_end());
        }
    }
    let several: Vec<&Several> = answers.iter().map(|a| &a.several).collect();
    out += &args.several.text(&args.within, &several);
    out.push('\n');
    if args.servers > 1 {
        let all = what_if::cluster_limits(limits, args.servers);
        out += &format!(
            "Confidence limit of {} servers (balls into bins): {}; Spotify model: {}; \
             saturation {}.\n",
            args.servers,
            rate_text(&all.mg1, 1.0),
            rate_text(&all.spotify_single, 1.0),
            rate_text(&all.saturation, 1.0)
        );
        out += &spread.map_or_else(String::new, Placement::text);
    } else {
        out += &limits_text(limits);
    }
    out += &trust_text(&model.trust()?);
    for objective in objectives {
        out += &format!("{}\n", objective.statement);
    }
    out += &warnings_text(&grouped(&warnings_of(model), model.fitted.len()));
    Ok(out)
}

fn grid(args: &OneSize, answers: &[AtLoad]) -> Grid {
    let mut head: Vec<String> = ["rate/s", "busy %", "memory %"].map(String::from).to_vec();
    for &t in &args.within {
        head.push(format!("≤ {} % [95 %]", time(t)));
        head.push("Spotify".to_owned());
    }
    head.extend(["mean", "p99 [95 %]", ""].map(String::from));
    // Text is allowed in the last column only; there are eight columns and two for each time.
    let mut grid = Grid { head, align: "", rows: Vec::new() };
    for answer in answers {
        let Ok((p, p99)) = &answer.found else {
            grid.row([digits(answer.rate, 4), "unstable".to_owned()]);
            continue;
        };
        let busy = tenths(p.utilisation_max.value);
        let mut cells = vec![digits(p.rate, 4), busy, tenths(p.hit_ratio.value)];
        for point in &p.points {
            cells.push(with_interval(&point.concertina, percent));
            cells.push(point.spotify.as_ref().map_or("unstable".to_owned(), |s| percent(s.value)));
        }
        let marks = mark(p.beyond_trust).to_owned();
        cells.extend([time(p.response_mean.value), with_interval(p99, time), marks]);
        grid.row(cells);
    }
    grid
}

fn json(
    model: &Model,
    limits: &Limits,
    args: &OneSize,
    answers: &[AtLoad],
    objectives: &[LargestRate],
    spread: Option<&Placement>,
) -> anyhow::Result<serde_json::Value> {
    let n = f64::from(args.servers);
    let all = what_if::cluster_limits(limits, args.servers);
    let mut predictions = Vec::new();
    for answer in answers {
        predictions.push(match &answer.found {
            Ok((prediction, p99)) => {
                let mut value = serde_json::to_value(prediction)?;
                value["stable"] = true.into();
                value["response_p99"] = serde_json::to_value(p99)?;
                answer.several.add_to(&mut value)?;
                value
            }
            Err((why, saturation)) => serde_json::json!({
                "rate": answer.rate,
                "servers": args.servers,
                "stable": false,
                "saturation": saturation,
                "statement": why,
            }),
        });
    }
    Ok(serde_json::json!({
        "model": model.about.title,
        "runs": model.about.runs,
        "laboratory": model.about.laboratory,
        "servers": args.servers,
        "arrivals": args.arrivals.map(|law| law.to_string()),
        "within_s": args.within,
        "tipping": model.tipping()?,
        "unknown_beyond": model.unknown_beyond.map(|_| model.known_to()),
        "confidence_limit": all.mg1.value,
        "confidence_limit_95": [all.mg1.low, all.mg1.high],
        "confidence_limit_spotify": all.spotify_single.value,
        "imbalance": spread,
        "trust": model.trust()?,
        "trust_limit": model.trust()?.limit * n,
        "saturation": all.saturation.value,
        "saturation_95": [all.saturation.low, all.saturation.high],
        "breaks_first": limits.breaks_first,
        "predictions": predictions,
        "objectives": objectives,
        "warnings": warnings_of(model),
    }))
}

fn plot(model: &Model, limits: &Limits, args: &OneSize, answers: &[AtLoad]) -> String {
    let found = answers.iter().filter_map(|a| a.found.as_ref().ok());
    let asked: Vec<Prediction> = found.map(|(p, _)| p.clone()).collect();
    let plots = figures::predictions(model, limits, &args.within, args.servers, &asked);
    let mut notes = Vec::new();
    if let Some(note) = &model.about.laboratory {
        notes.push(format!("Emulated: {note}"));
    }
    notes.push(
        "Shaded: past the loads at which the model was checked. Band: 95 % interval of Concertina's \
         model."
            .to_owned(),
    );
    notes.extend(answers.iter().filter_map(|a| Some(a.found.as_ref().err()?.0.clone())));
    svg::standalone(&plots, &notes)
}
