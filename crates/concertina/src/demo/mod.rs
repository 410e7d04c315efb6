//! The whole loop on one machine, in a few minutes: start, load, fit, predict, compare, report.
//!
//! The node is real, its devices are laboratory devices: each read of a real file is held for a drawn
//! service time, because no laptop has the disks whose response times are worth predicting. The fit
//! never sees the profile; it sees what the node and the load generator recorded.

mod catalogue;

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::config::{Config, Size};
use crate::experiment::lab::{self, Server};
use crate::record::RunFolder;
use crate::report::{self, Comparison, Objective, Observed, Page, Selection};
use catalogue::Catalogue;

/// Devices of the node.
const DEVICES: u32 = 8;

/// Mean service time of a device, milliseconds, and its squared coefficient of variation.
const SERVICE_MS: f64 = 2.0;
const SERVICE_SCV: f64 = 2.0;

/// Share of requests that memory is to answer, about: the rest makes the disks' queues.
const HIT_RATIO: f64 = 0.6;

/// Loads of the sweep as shares of what saturates the devices, and whether the fit sees them. Those
/// that it does not see lie between and beyond those that it does.
const SWEEP: [(f64, bool); 7] = [
    (0.30, true),
    (0.40, false),
    (0.50, true),
    (0.60, false),
    (0.70, true),
    (0.80, false),
    (0.90, false),
];

/// Requests before each step that are not measured, and requests of each step: the same at every rate.
const WARMUP_REQUESTS: usize = 30_000;
const STEP_REQUESTS: usize = 150_000;

/// What to do.
pub struct Plan {
    /// Where everything goes; must not exist yet.
    pub dir: PathBuf,
    /// A trace to replay; otherwise one with published statistics is made.
    pub trace: Option<PathBuf>,
    /// Shows no progress.
    pub quiet: bool,
}

impl Plan {
    /// The command that does it again.
    fn command(&self) -> String {
        let trace = self.trace.as_ref().map(|trace| format!(" --trace {}", trace.display()));
        format!("concertina demo{}", trace.unwrap_or_default())
    }
}

/// What came of it.
pub struct Finished {
    /// Measured and predicted, side by side.
    pub comparison: Comparison,
    /// The fitted model.
    pub model: model::Model,
    /// Where the report is.
    pub report: PathBuf,
    /// Where the model file is.
    pub model_file: PathBuf,
}

/// Runs the demo.
///
/// # Errors
/// If the trace cannot be read, the folder cannot be written, or a process does not start.
pub fn run(plan: &Plan) -> anyhow::Result<Finished> {
    let say = |what: String| {
        if !plan.quiet {
            eprintln!("{what}");
        }
    };
    std::fs::create_dir_all(&plan.dir)
        .with_context(|| format!("cannot make the folder {}", plan.dir.display()))?;
    let rows = WARMUP_REQUESTS + STEP_REQUESTS;
    let catalogue = match &plan.trace {
        Some(trace) => Catalogue::of_trace(trace, rows)?,
        None => Catalogue::generated(&plan.dir.join("trace.csv"), rows)?,
    };
    say(format!("1/5  {}", catalogue.description));
    let memory_bytes = catalogue.memory_for(HIT_RATIO, WARMUP_REQUESTS);
    let miss_ratio = 1.0 - catalogue.hit_ratio(memory_bytes, WARMUP_REQUESTS);
    let saturation = f64::from(DEVICES) * 1000.0 / SERVICE_MS / miss_ratio.max(0.05);

    let config = plan.dir.join("concertina.toml");
    let server_run = plan.dir.join("server");
    lab::write_config(&config, &server_config(&plan.dir, &server_run, memory_bytes)?)?;
    let server = Server::start(&config, &plan.dir.join("server.log"))?;
    say(format!(
        "2/5  a node serves at {}: {:.1} MiB of memory, {DEVICES} laboratory devices that hold each read \
         for {SERVICE_MS} ms on average; filling it",
        server.url(),
        memory_bytes as f64 / f64::from(1 << 20),
    ));
    let trace = catalogue.path.display().to_string();
    let slice = format!("0..{rows}");
    let arguments = |rest: &[&str]| -> Vec<String> {
        let fixed = ["--trace", &trace];
        fixed.iter().chain(rest).map(|&argument| argument.to_owned()).collect()
    };
    let fill = arguments(&["--fill", "--slice", &slice]);
    lab::load(server.url(), &fill, &plan.dir.join("fill"), plan.quiet)?;

    let rates: Vec<String> =
        SWEEP.iter().map(|(share, _)| format!("{:.0}", share * saturation)).collect();
    say(format!("3/5  loading it at {} requests/s, Poisson arrivals", rates.join(", ")));
    let sweep = arguments(&[
        "--rate",
        &rates.join(","),
        "--warmup-requests",
        &WARMUP_REQUESTS.to_string(),
        "--warmup-slice",
        &format!("0..{WARMUP_REQUESTS}"),
        "--slice",
        &format!("{WARMUP_REQUESTS}..{rows}"),
    ]);
    let load_run = lab::load(server.url(), &sweep, &plan.dir.join("load"), plan.quiet)?;
    server.stop()?;
    let runs = vec![load_run, RunFolder::read(&server_run)?];

    let seen: Vec<usize> = (0..SWEEP.len()).filter(|&i| SWEEP[i].1).collect();
    say(format!("4/5  fitting a model to the loads {}", list(&seen, &rates)));
    let selection = Selection { indices: seen, ..Selection::default() };
    let model = report::fit(&Observed::new(runs.clone(), &selection)?, "demo")?;
    let model_file = plan.dir.join("model.toml");
    write(&model_file, &model.to_toml()?)?;

    say("5/5  predicting the others, and comparing".to_owned());
    let observed = Observed::new(runs, &Selection::default())?;
    let objective = Objective { share: 0.99, within_s: 0.050 };
    let comparison = Comparison::new(&observed, &model, &[], &[objective])?;
    let report_file = plan.dir.join("report.html");
    let page = Page { title: "Demo".to_owned(), commands: vec![plan.command()] };
    write(&report_file, &report::html(&comparison, &page))?;
    Ok(Finished { comparison, model, report: report_file, model_file })
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn list(indexes: &[usize], rates: &[String]) -> String {
    indexes.iter().map(|&i| rates[i].as_str()).collect::<Vec<_>>().join(", ")
}

fn server_config(dir: &Path, run_dir: &Path, memory_bytes: u64) -> anyhow::Result<Config> {
    let service = lab::service("lognormal", 1000.0 / SERVICE_MS, SERVICE_SCV)?;
    let mut devices = lab::disks(&dir.join("device"), DEVICES, Some(service));
    devices.iter_mut().for_each(|device| device.bytes = Size(256 << 20));
    let mut config = lab::server(memory_bytes, devices, &dir.join("origin"));
    config.observe.run_dir = Some(run_dir.to_owned());
    Ok(config)
}
