//! `concertina fit`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::ensure;
use ground::window::Window;
use model::Model;
use model::fit::{ClosedAt, ClosedLoop, Worked};

use crate::cli::output::{out, outln};
use record::RunFolder;
use report::cluster::ClusterRuns;
use report::compare::{parameters, warnings_of};
use report::grid::{Grid, printable};
use report::objective::digits;
use report::table::{cluster_limits_text, delay_text, percent};
use report::{self, Observed, Selection, ServiceFacts, StepChoice, cluster_file, popularity};

/// What the throughput of a closed loop is uncertain by, as a share: speeds differ from run to run.
const DEVIATION: f64 = 0.02;
/// The most hypotheses that are shown.
const HYPOTHESES: usize = 4;

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina fit runs/load runs/server                     fit all steps, write model.toml
  concertina fit runs/load runs/server --steps 0,1,2       fit the lowest three rates only
  concertina fit runs/load runs/server --steps 500/s,900/s --out light.toml
  concertina fit runs/load runs/server --hold-out 3,4      fit the others, judge the model on these
  concertina fit runs/load --node a=runs/a --node b=runs/b --out cluster.toml
  concertina fit runs/imported --servers 8                 a service with response times only
  concertina fit runs/imported --servers auto --hold-out 3
  concertina fit runs/imported --servers auto --no-hits    no cache answers in front of the servers
  concertina fit runs/imported --servers auto --closed-loop 1=114,8=121,64=72

With --node, a cluster is fitted: each node from its own run, and the delay between the nodes and the
clients. Each node's model is written beside the cluster file as NAME.model.toml. If the load
generator's run has samples, the cluster file refers to it for the popularity of keys
(`predict --popularity`).

With --servers, only the clients' side is needed (an imported access log, or a load generator's run of
any service). Where the run has the times of single requests, the work of each follows from them: the
fit finds whether servers are given in turn or shared, with auto how many there are, and the time spent
outside of them, and shows how well each possibility agrees. Without, it finds the number of servers and
the law of service that best explain the response times at all loads. Give two loads or more, the
largest well above half of what the service can do.

The load generator's run records when it measured at which rate; the server's run has the windows of
its queues. Two or three loads at modest utilisation suffice; the others can then be predicted, and
`concertina report` compares predictions with measurements. A step past saturation (more offered than
was completed, or many clients of a closed loop) is not fitted as a load, but its throughput measures
the devices' capacity and contributes to the service times; the output lists the evidence for each
parameter. Steps at the same load are repetitions, and intervals come from their differences. The
model's errors on held-out loads are stored in it, and determine the load up to which it is trusted.")]
pub struct Args {
    /// Run folders: the load generator's and the server's
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// A node of a cluster and its run folder; once for each node, the RUNs being the load
    /// generator's
    #[arg(long, value_name = "NAME=RUN", value_parser = named)]
    node: Vec<(String, PathBuf)>,
    /// The model file to write; with --node, the cluster file
    #[arg(long, short, default_value = "model.toml", value_name = "FILE")]
    out: PathBuf,
    /// Steps to fit: numbers (0,2 or 0-3) or rates (1500/s) [default: all]
    #[arg(long, value_delimiter = ',', value_name = "STEP")]
    steps: Vec<StepChoice>,
    /// Steps to hold out of the fit and judge the model on: numbers or rates, as for --steps
    #[arg(long, value_delimiter = ',', value_name = "STEP")]
    hold_out: Vec<StepChoice>,
    /// Fit a service of which only response times are known: the number of requests it serves
    /// concurrently, or auto
    #[arg(long, value_name = "N", value_parser = servers, conflicts_with = "node")]
    servers: Option<Servers>,
    /// Requests/s that a closed loop of enough clients got answered: where works change with the load, the loads between
    /// are interpolated. Or CLIENTS=RATE of several loops (1=114,8=121,64=72): where more clients carry less, the fit says at
    /// which load the service tips over
    #[arg(long, value_name = "RATE", value_delimiter = ',', value_parser = closed, requires = "servers")]
    closed_loop: Vec<(Option<u32>, f64)>,
    /// No cache answers in front of the servers: fast requests had little work
    #[arg(long, requires = "servers")]
    no_hits: bool,
    /// A title for the model [default: the names of the runs]
    #[arg(long)]
    title: Option<String>,
    /// Combine runs of different machines, whose clocks agree
    #[arg(long)]
    across_machines: bool,
    /// Print the fit as JSON
    #[arg(long)]
    json: bool,
}

/// The number of requests that a service serves concurrently.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Servers {
    Given(u32),
    /// Estimate it from the responses.
    Auto,
}

/// A kind of request without the shape of its law.
fn kind_json(kind: &model::RequestKind) -> serde_json::Value {
    let mean = &kind.work.mean;
    serde_json::json!({
        "operation": kind.operation,
        "bytes": kind.bytes,
        "share": kind.share,
        "mean_s": mean.value,
        "half_width_s": (mean.high - mean.low) / 2.0,
        "scv": kind.work.scv.value,
    })
}

fn servers(text: &str) -> Result<Servers, String> {
    match text.parse::<u32>() {
        _ if text == "auto" => Ok(Servers::Auto),
        Ok(n @ 1..=10_000) => Ok(Servers::Given(n)),
        _ => Err(format!(
            "invalid number of servers `{text}`: write a number from 1 to 10,000, or auto"
        )),
    }
}

/// Reads what a closed loop carried, with the number of its clients if that is given.
fn closed(text: &str) -> Result<(Option<u32>, f64), String> {
    let Some((clients, carried)) = text.split_once('=') else { return Ok((None, rate(text)?)) };
    let number = clients.trim().parse::<u32>().ok().filter(|n| (1..=1_000_000).contains(n));
    let wrong =
        || format!("invalid clients `{clients}` in `{text}`: write CLIENTS=RATE, like `64=72/s`");
    Ok((Some(number.ok_or_else(wrong)?), rate(carried)?))
}

/// Reads `9500/s` or `9500`.
fn rate(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix("/s").unwrap_or(text).trim().parse::<f64>().ok();
    let wrong = || format!("invalid rate `{text}`: write requests/s, like `9500/s`");
    number.filter(|rate| *rate > 0.0 && *rate < 1e12).ok_or_else(wrong)
}

fn named(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, run))
            if !name.is_empty() && !run.is_empty() && !name.contains(['/', char::from(0)]) =>
        {
            Ok((name.to_owned(), run.into()))
        }
        _ => Err(format!(
            "invalid node `{text}`: write a node's name and its run folder, like `a=runs/a`"
        )),
    }
}

/// The evidence for the mean service times.
fn evidence_text(model: &Model) -> String {
    if model.evidence.is_empty() {
        return String::new();
    }
    let head = ["evidence for service times", "class", "mean ms", "± %", "counts %"];
    let mut grid = Grid::new("llrrr", &head);
    for evidence in &model.evidence {
        let mean = &evidence.mean;
        grid.row([
            evidence.source.title().to_owned(),
            printable(&evidence.class),
            digits(mean.value * 1e3, 5),
            digits((mean.high - mean.low) / mean.value * 50.0, 2),
            format!("{:.0}", evidence.weight * 100.0),
        ]);
    }
    format!("\n{}", grid.text())
}

/// The path, relative to the cluster file, of the first generator's run whose samples show the
/// popularity of keys.
fn popularity_of(args: &Args) -> Option<String> {
    let beside = args.out.parent().is_none_or(|folder| folder.as_os_str().is_empty());
    args.runs.iter().find_map(|run| {
        let path = if beside { run.clone() } else { run.canonicalize().ok()? };
        let text = path.to_str()?;
        // Prefix ./ so that a folder named 0.8 is not read as an exponent.
        let text = if path.is_absolute() { text.to_owned() } else { format!("./{text}") };
        popularity::read(&text, Path::new("")).ok().map(|_| text)
    })
}

/// Fits a cluster and writes its file and its nodes' models.
fn cluster(args: &Args, selection: &Selection) -> anyhow::Result<ExitCode> {
    let read = |path: &PathBuf| RunFolder::read(path);
    let load = args.runs.iter().map(read).collect::<Result<_, _>>()?;
    let mut nodes = Vec::new();
    for (name, path) in &args.node {
        nodes.push((name.clone(), read(path)?));
    }
    let title = args.title.clone().unwrap_or_else(|| "Fit of a cluster".to_owned());
    let mut fitted = report::cluster::fit(&ClusterRuns { load, nodes }, selection, &title)?;
    fitted.popularity = popularity_of(args);
    // Detect duplicate names before writing anything.
    let model = fitted.model()?;
    let file = |name: &str| PathBuf::from(format!("{name}.model.toml"));
    for node in &fitted.nodes {
        let ours = |old: &str| Model::from_toml(old).is_ok();
        report::write_whole(
            &args.out.with_file_name(file(&node.name)),
            &node.model.to_toml()?,
            ours,
        )?;
    }
    let ours = |old: &str| old.starts_with(cluster_file::HEAD);
    report::write_whole(&args.out, &cluster_file::text(&fitted, file)?, ours)?;
    if args.json {
        let nodes = fitted.nodes.iter().map(|node| {
            serde_json::json!({
                "name": node.name,
                "share": node.share,
                "parameters": parameters(&node.model),
                "warnings": warnings_of(&node.model),
                "held_out": node.model.held_out,
            })
        });
        let json = serde_json::json!({
            "out": args.out.display().to_string(),
            "delay": fitted.delay,
            "popularity": fitted.popularity,
            "limits": model.limits(),
            "nodes": nodes.collect::<Vec<_>>(),
        });
        outln!("{json:#}");
        return Ok(ExitCode::SUCCESS);
    }
    for node in &fitted.nodes {
        outln!("Node {}, {} % of the requests", printable(&node.name), percent(node.share));
        outln!("{}{}", report::model_text(&node.model), evidence_text(&node.model));
    }
    out!("{}", delay_text(&fitted.delay));
    out!("{}", cluster_limits_text(&model.limits()));
    match &fitted.popularity {
        Some(run) => outln!("Popularity of keys: from the samples of {}.", printable(run)),
        None => outln!("Popularity of keys: unknown, because the runs have no samples of keys."),
    }
    outln!("\nWrote {}.", args.out.display());
    Ok(ExitCode::SUCCESS)
}

/// A load that a service carried is larger than what a closed loop measured by at most this factor: both are measured.
const CLOSED_LOOP_OFF: f64 = 1.1;

/// The requests/s that a step's clients saw completed.
fn carried(step: &model::fit::Step) -> f64 {
    let sides = [&step.load, &step.gateway, &step.node];
    let of = |windows: &Vec<Window>| {
        let seconds: f64 = windows.iter().map(|window| window.length_s).sum();
        let completed: u64 =
            windows.iter().map(|w| w.completions - w.errors.min(w.completions)).sum();
        if seconds > 0.0 { completed as f64 / seconds } else { 0.0 }
    };
    sides.into_iter().map(of).fold(0.0, f64::max)
}

/// Fits a service of which only response times are known.
fn black_box(args: &Args, selection: &Selection, servers: Servers) -> anyhow::Result<ExitCode> {
    let observed = Observed::read(&args.runs, selection)?;
    let title = args.title.clone().unwrap_or_else(|| "Fit of response times".to_owned());
    let given = match servers {
        Servers::Given(n) => Some(n),
        Servers::Auto => None,
    };
    let most = args.closed_loop.iter().map(|at| at.1).reduce(f64::max);
    let carried = observed.steps.iter().map(|step| carried(&step.windows)).fold(0.0, f64::max);
    ensure!(
        most.is_none_or(|most| most * CLOSED_LOOP_OFF >= carried),
        "--closed-loop: {} requests/s are fewer than the {} that a load of these runs carried: is it of another service, or of too few clients \
         to keep the servers busy?",
        digits(most.unwrap_or(0.0), 4),
        digits(carried, 4)
    );
    let closed_loop = most.map(|throughput| ClosedLoop { throughput, deviation: DEVIATION });
    let each = args.closed_loop.iter().filter_map(|(clients, throughput)| {
        let (think_s, throughput) = (0.0, *throughput);
        clients.map(|clients| ClosedAt { clients, think_s, throughput })
    });
    let closed_loops: Vec<ClosedAt> = each.collect();
    let facts = ServiceFacts { servers: given, closed_loop, closed_loops, no_hits: args.no_hits };
    let fitted = report::fit_service(&observed, &title, facts)?;
    let model = &fitted.model;
    let ours = |old: &str| Model::from_toml(old).is_ok();
    report::write_whole(&args.out, &model.to_toml()?, ours)?;
    if args.json {
        let json = serde_json::json!({
            "out": args.out.display().to_string(),
            "laboratory": model.about.laboratory,
            "runs": model.about.runs,
            "servers": fitted.servers,
            "hypotheses": fitted.worked.as_ref().map(|w| &w.hypotheses),
            "misfit": fitted.worked.as_ref().and_then(|w| w.misfit.as_ref()),
            "known": fitted.worked.as_ref().map(|w| w.known),
            "kinds": model.kinds.iter().map(kind_json).collect::<Vec<_>>(),
            "rates": model.rates,
            "parameters": parameters(model),
            "limits": model.limits()?,
            "tipping": model.tipping()?,
            "unknown_beyond": model.unknown_beyond,
            "fitted": model.fitted,
            "held_out": model.held_out,
            "trust": model.trust()?,
            "warnings": warnings_of(model),
        });
        outln!("{json:#}");
        return Ok(ExitCode::SUCCESS);
    }
    let shown = |n: Option<u32>| n.map_or("no limit".to_owned(), |n| n.to_string());
    let found = &fitted.servers;
    if found.given {
        outln!("Servers: {}, as given.", shown(found.likeliest));
    } else {
        let (low, high) = (shown(found.low), shown(found.high));
        outln!("Servers: {} (95 % interval {low} to {high}).", shown(found.likeliest));
    }
    if let Some(worked) = &fitted.worked {
        out!("{}", hypotheses_text(worked));
    }
    out!("{}", report::model_text(model));
    outln!("\nWrote {}.", args.out.display());
    Ok(ExitCode::SUCCESS)
}

/// What was assumed of the service, the likeliest first, and what is known then.
fn hypotheses_text(worked: &Worked) -> String {
    let head = ["the service may be", "score", "weight %", "mean work ms", "outside ms"];
    let mut grid = Grid::new("lrrrr", &head);
    for found in worked.hypotheses.iter().take(HYPOTHESES) {
        grid.row([
            found.title(),
            digits(found.score, 3),
            format!("{:.0}", found.weight * 100.0),
            digits(found.work.value * 1e3, 4),
            digits(found.outside.value * 1e3, 3),
        ]);
    }
    let mut text = grid.text();
    text += match &worked.misfit {
        None => {
            "A score is about 1 if the work of requests does not depend on how many others they \
                 met.\n"
        }
        Some(_) => "No hypothesis fits: see the warnings.\n",
    };
    if worked.model.kinds.len() > 1 {
        let mut grid = Grid::new("lrrrr", &["requests", "share %", "mean work ms", "±", "SCV"]);
        for kind in &worked.model.kinds {
            let mean = &kind.work.mean;
            grid.row([
                kind.title(),
                digits(kind.share * 100.0, 3),
                digits(mean.value * 1e3, 4),
                digits((mean.high - mean.low) * 5e2, 2),
                digits(kind.work.scv.value, 3),
            ]);
        }
        text += &grid.text();
    }
    let known = &worked.known;
    if known.half_width_points > 0.0 {
        let (half, n) = (digits(known.half_width_points, 2), known.requests);
        text += &format!("{n} requests: shares at 80 % of saturation are known to ± {half} points");
        text += &match known.requests_for_2_points {
            wanted if wanted > n => format!("; some {wanted} are needed for ± 2.\n"),
            _ => ".\n".to_owned(),
        };
    }
    text
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let hold_out = args.hold_out.clone();
    let selection = Selection { hold_out, ..Selection::new(&args.steps, args.across_machines) };
    if !args.node.is_empty() {
        return cluster(&args, &selection);
    }
    if let Some(servers) = args.servers {
        return black_box(&args, &Selection { any_queues: true, ..selection }, servers);
    }
    let observed = Observed::read(&args.runs, &selection)?;
    let names = || observed.runs.iter().map(report::steps::run_name).collect::<Vec<_>>().join(", ");
    let title = args.title.clone().unwrap_or_else(|| format!("Fit of {}", names()));
    let model = report::fit(&observed, &title)?;
    let ours = |old: &str| Model::from_toml(old).is_ok();
    report::write_whole(&args.out, &model.to_toml()?, ours)?;
    if args.json {
        let json = serde_json::json!({
            "out": args.out.display().to_string(),
            "laboratory": model.about.laboratory,
            "runs": model.about.runs,
            "parameters": parameters(&model),
            "limits": model.limits()?,
            "evidence": model.evidence,
            "fitted": model.fitted,
            "held_out": model.held_out,
            "trust": model.trust()?,
            "warnings": warnings_of(&model),
        });
        outln!("{json:#}");
    } else {
        out!("{}{}", report::model_text(&model), evidence_text(&model));
        outln!("\nWrote {}.", args.out.display());
    }
    Ok(ExitCode::SUCCESS)
}
