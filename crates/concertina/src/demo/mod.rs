//! The whole loop on one machine, in a few minutes: start, load, fit, predict, compare, report.
//!
//! The node is real, but its devices are emulated: each read of a real file is held for a randomly
//! drawn service time, because no laptop has the disks whose response times are worth predicting.
//! The fit never sees the emulation profile, only the records of the node and of the load
//! generator.

mod catalogue;

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::lab::{self, Server};
use catalogue::Catalogue;
use record::RunFolder;
use report::{self, Comparison, Objective, Observed, Page, Selection, StepChoice};
use serve::config::{Config, Size};

/// Devices of the node.
const DEVICES: u32 = 8;

/// Mean service time of an emulated device in milliseconds, and its squared coefficient of
/// variation.
const SERVICE_MS: f64 = 2.0;
const SERVICE_SCV: f64 = 2.0;

/// Approximate hit ratio of the memory. The other requests make the queues of the disks.
const HIT_RATIO: f64 = 0.6;

/// Loads of the sweep, relative to the saturation of the devices, and whether the fit uses them.
/// The held-out loads lie between and beyond the fitted ones: the model's errors there are its
/// bias, which determines the load up to which it is trusted.
const SWEEP: [(f64, bool); 7] = [
    (0.30, true),
    (0.40, false),
    (0.50, true),
    (0.60, false),
    (0.70, true),
    (0.80, false),
    (0.90, false),
];

/// Requests of the warm-up before each step, and of each step: the same at every rate.
const WARMUP_REQUESTS: usize = 30_000;
const STEP_REQUESTS: usize = 150_000;

/// The options of a demo.
pub struct Plan {
    /// Folder for all output; must not exist yet.
    pub dir: PathBuf,
    /// A trace to replay; `None` generates one with published statistics.
    pub trace: Option<PathBuf>,
    /// Whether to hide progress.
    pub quiet: bool,
}

impl Plan {
    /// The command that repeats the demo.
    fn command(&self) -> String {
        let trace = self.trace.as_ref().map(|trace| format!(" --trace {}", trace.display()));
        format!("concertina demo{}", trace.unwrap_or_default())
    }
}

/// The result of a demo.
pub struct Finished {
    /// The comparison of measurement and prediction.
    pub comparison: Comparison,
    /// The fitted model.
    pub model: model::Model,
    /// The path of the report.
    pub report: PathBuf,
    /// The path of the model file.
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
        "2/5  a node serves at {}: {:.1} MiB of memory, {DEVICES} emulated devices that hold each read \
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

    let of = |seen| list((0..SWEEP.len()).filter(|&i| SWEEP[i].1 == seen), &rates);
    say(format!("4/5  fitting a model to the loads {}, and judging it on {}", of(true), of(false)));
    let (model, comparison) = judge(runs)?;
    let model_file = plan.dir.join("model.toml");
    write(&model_file, &model.to_toml()?)?;

    say("5/5  comparing predictions with measurements".to_owned());
    let report_file = plan.dir.join("report.html");
    let page = Page { title: "Demo".to_owned(), commands: vec![plan.command()] };
    write(&report_file, &report::html(&comparison, &page))?;
    Ok(Finished { comparison, model, report: report_file, model_file })
}

/// The held-out steps of the sweep.
fn held_out() -> Vec<StepChoice> {
    let unseen = SWEEP.iter().enumerate().filter(|(_, (_, seen))| !seen);
    unseen.map(|(index, _)| StepChoice::Indices(index..=index)).collect()
}

/// Fits a model to the fitted steps of the sweep, judges it on the others, so that it carries its
/// bias, and compares it with all steps.
fn judge(runs: Vec<RunFolder>) -> Result<(model::Model, Comparison), report::Error> {
    let selection = Selection { hold_out: held_out(), ..Selection::default() };
    let observed = Observed::new(runs, &selection)?;
    let model = report::fit(&observed, "demo")?;
    let objective = Objective { share: 0.99, within_s: 0.050 };
    let comparison = Comparison::new(&observed, &model, &[], &[objective])?;
    Ok((model, comparison))
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn list(indexes: impl Iterator<Item = usize>, rates: &[String]) -> String {
    indexes.map(|i| rates[i].as_str()).collect::<Vec<_>>().join(", ")
}

fn server_config(dir: &Path, run_dir: &Path, memory_bytes: u64) -> anyhow::Result<Config> {
    let service = lab::service("lognormal", 1000.0 / SERVICE_MS, SERVICE_SCV)?;
    let mut devices = lab::disks(&dir.join("device"), DEVICES, Some(service));
    devices.iter_mut().for_each(|device| device.bytes = Size(256 << 20));
    let mut config = lab::server(memory_bytes, devices, &dir.join("origin"));
    config.observe.run_dir = Some(run_dir.to_owned());
    Ok(config)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::simulate;
    use load::Popularity;

    /// Simulates the demo's node and sweep in virtual time, without memory hits, so that no trace
    /// is needed.
    #[test]
    fn the_model_carries_its_bias_and_every_output_says_what_is_not_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let saturation = f64::from(DEVICES) * 1000.0 / SERVICE_MS;
        let plan = simulate::Plan {
            config: server_config(dir.path(), &dir.path().join("server"), 0).unwrap(),
            rates: SWEEP.iter().map(|(share, _)| share * saturation).collect(),
            duration_s: 8.0,
            warmup_s: 1.0,
            keys: 20_000,
            popularity: Popularity::Uniform,
            bytes: (100, 100),
            read_share: 1.0,
            network_s: 0.0,
            origin_s: 0.001,
            seed: 1,
            nodes: None,
            lost: Vec::new(),
            slow: Vec::new(),
            gateways: 1,
            messages: simulate::Messages::default(),
            faults: Vec::new(),
            drift_ppm: 0,
            check: false,
            out: dir.path().join("run"),
        };
        simulate::run(&plan, &AtomicBool::new(false), &mut |_, _| ()).unwrap();
        let (model, comparison) = judge(vec![RunFolder::read(&plan.out).unwrap()]).unwrap();
        let unseen = SWEEP.iter().filter(|(_, seen)| !seen).count();
        assert_eq!(model.fitted.len(), SWEEP.len() - unseen);
        assert_eq!(model.held_out.len(), unseen * comparison.within_s.len());
        // The text about trust follows the model file.
        let again = model::Model::from_toml(&model.to_toml().unwrap()).unwrap();
        let trust = again.trust().unwrap();
        assert!(trust.bias_points.is_some() && trust.misfit_points.is_some(), "{trust:?}");
        assert!((trust.limit / comparison.trust.limit - 1.0).abs() < 1e-6);
        for row in &comparison.rows {
            assert_eq!(row.beyond_trust, row.rate > comparison.trust.limit, "{row:?}");
        }
        let (text, html) =
            (report::table(&comparison), report::html(&comparison, &Page::default()));
        assert!(text.contains("Trusted up to") && !text.contains("bias is NOT KNOWN"), "{text}");
        assert!(html.contains("trusted up to "), "the plots draw it");
        let marked = comparison.rows.iter().any(|row| row.beyond_trust);
        assert_eq!(html.contains("untrusted\">"), marked, "the table shades what is past it");
        assert_eq!(html.contains(", not trusted"), marked, "so do the distributions");
    }
}
