//! The whole loop on one machine, in a few minutes: start, load, fit, predict, compare, report.
//!
//! The node is real, but its devices are emulated: each read of a real file is held for a randomly
//! drawn service time, because no laptop has the disks whose response times are worth predicting.
//! The fit never sees the emulation profile, only the records of the node and of the load
//! generator.

mod catalogue;

use std::cell::Cell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;

use crate::lab::{self, Server};
use catalogue::Catalogue;
use configuration::{Config, Size};
use record::{Host, HostSampler, RunFolder};
use report::{self, Comparison, Objective, Observed, Page, Selection, StepChoice};

/// Devices of the node.
const DEVICES: u32 = 8;

/// Mean service time of a device in milliseconds where the processors keep up, and the squared coefficient
/// of variation of its law.
const SERVICE_MS_MIN: f64 = 2.0;
const SERVICE_SCV: f64 = 2.0;

/// Share of the requests that memory should answer, approximately. The rest queues at the devices.
const HIT_RATIO: f64 = 0.6;

/// Loads as shares of the load that saturates the devices, in the order in which they run, and whether the
/// model is fitted to them. It is judged on the others, which lie between and beyond those: its errors there
/// are its bias, from which follows the load up to which it is trusted. Fitted and judged loads alternate, and
/// loads do not grow with time, so that a drift in time is not taken for an effect of the load.
///
/// The share that memory answers differs by some per cent between parts of a trace. Six fitted loads average over
/// it, and measure it: intervals of what will be measured rest on their differences. The lightest has short
/// queues, and shows what is neither memory nor device.
const SWEEP: [(f64, bool); 11] = [
    (0.60, true),
    (0.50, false),
    (0.20, true),
    (0.80, false),
    (0.72, true),
    (0.40, false),
    (0.66, true),
    (0.35, true),
    (0.86, false),
    (0.48, true),
    (0.64, false),
];

/// Requests of the probe.
const PROBE_ROWS: usize = 12_000;

/// Seconds of load before each step. Each goes on in the trace where the one before ended, a repeated one too, so that
/// it meets requests that no other step met, and the popularity of keys drifts as it does in life.
const WARMUP_S: f64 = 1.25;

/// Rows of the trace for all steps and their warm-ups, at the largest load that the devices serve.
const ROWS: usize = 500_000;

/// Length of a step, and of the windows that it is recorded in, seconds. Intervals come from the windows of a
/// step, so it needs eight at least.
const STEP_S: u32 = 6;
const WINDOW_S: f64 = 0.5;

/// Largest share of the processors that the largest load may take, and the share that is used in any case
/// where other programs take most.
const PROCESSOR_SHARE_MAX: f64 = 0.40;
const PROCESSOR_SHARE_MIN: f64 = 0.15;

/// Load of the probe that measures what a request costs, requests/s.
const PROBE_RATE: f64 = 2_000.0;

/// Share of the processors that other guests of the hypervisor may take during a step before the step is
/// repeated.
const STOLEN_MAX: f64 = 0.03;

/// How late emulated reads may complete in the mean, as a share of their mean service time, before the step is
/// repeated: then the real disk was slower than the devices that are emulated on it.
const LATE_MAX: f64 = 0.03;

/// The options of a demo.
pub struct Plan {
    /// Folder for all output; new or empty.
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

impl Finished {
    /// Writes the model and the report into the folder of the demo.
    fn write(plan: &Plan, model: model::Model, comparison: Comparison) -> anyhow::Result<Finished> {
        let model_file = plan.dir.join("model.toml");
        report::write_new(&model_file, &model.to_toml()?)?;
        let report = plan.dir.join("report.html");
        let page =
            Page { title: "Demo".to_owned(), commands: vec![plan.command()], embedded: None };
        report::write_new(&report, &report::html(&comparison, &page))?;
        Ok(Finished { comparison, model, report, model_file })
    }
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
    make_empty(&plan.dir)?;
    let catalogue = match &plan.trace {
        Some(trace) => Catalogue::of_trace(trace, ROWS)?,
        None => Catalogue::generated(&plan.dir.join("trace.csv"), ROWS)?,
    };
    say(format!("1/5  {}", catalogue.description));
    settle(&plan.dir)?;
    let memory_bytes = catalogue.memory_for(HIT_RATIO);
    let miss_ratio = (1.0 - catalogue.hit_ratio(memory_bytes)).max(0.05);
    let (rows, trace) = (catalogue.rows(), catalogue.path.display().to_string());
    let sweep = Sweep { dir: &plan.dir, trace: &trace, quiet: plan.quiet, vain: Cell::new(false) };

    let probe = sweep.probe(memory_bytes)?;
    let rate_max = probe.rate_max().min(rate_of_rows(rows));
    let largest = SWEEP.iter().map(|(share, _)| *share).fold(0.0, f64::max);
    let saturation =
        (rate_max / largest).min(f64::from(DEVICES) * 1000.0 / SERVICE_MS_MIN / miss_ratio);
    let service_ms = f64::from(DEVICES) * 1000.0 / saturation / miss_ratio;
    say(format!(
        "2/5  a request costs {:.0} µs of {} processors here: loads up to {:.0} requests/s, so that they \
         stay below {:.0} % busy",
        probe.cost_s * 1e6,
        probe.cores,
        largest * saturation,
        PROCESSOR_SHARE_MAX * 100.0,
    ));

    let config = plan.dir.join("concertina.toml");
    let server_run = plan.dir.join("server");
    lab::write_config(
        &config,
        &server_config(&plan.dir, Some(&server_run), memory_bytes, service_ms)?,
    )?;
    let server = Server::start(&config, &plan.dir.join("server.log"))?;
    say(format!(
        "3/5  a node serves at {}: {:.1} MiB of memory, {DEVICES} emulated devices that hold each read \
         for {service_ms:.1} ms on average; filling it",
        server.url(),
        memory_bytes as f64 / f64::from(1 << 20),
    ));
    sweep.fill(server.url(), rows, "fill")?;
    settle(&plan.dir)?;
    let mut cursor = TraceCursor { next: 0, rows };
    let warmup = cursor.take(catalogue.warmup_rows(memory_bytes));
    sweep.warm(server.url(), largest * saturation, warmup)?;

    let (fitted, judged) = (sweep_rates(saturation, true), sweep_rates(saturation, false));
    let text = |rates: &[f64]| rates.iter().map(f64::to_string).collect::<Vec<_>>().join(", ");
    say(format!(
        "4/5  loading it: {} requests/s to fit a model, {} to judge it",
        text(&fitted),
        text(&judged)
    ));
    let mut runs = Vec::new();
    for (share, _) in SWEEP {
        runs.push(sweep.step(&server, service_ms, (share * saturation).round(), &mut cursor)?);
    }
    server.stop()?;
    runs.push(RunFolder::read(&server_run)?);

    say("5/5  fitting, predicting, and comparing with the measurements".to_owned());
    let (model, comparison) = judge(runs, &judged)?;
    Finished::write(plan, model, comparison)
}

/// The loads of the sweep that are fitted, or those that are not, requests/s.
fn sweep_rates(saturation: f64, fitted: bool) -> Vec<f64> {
    let own = SWEEP.iter().filter(|(_, is_fitted)| *is_fitted == fitted);
    own.map(|(share, _)| (share * saturation).round()).collect()
}

/// The rows of a trace, handed out in their order.
struct TraceCursor {
    next: usize,
    rows: usize,
}

impl TraceCursor {
    /// The next `count` rows. A trace that is too short for a fast machine begins anew.
    fn take(&mut self, count: usize) -> std::ops::Range<usize> {
        if self.next + count > self.rows {
            self.next = 0;
        }
        let taken = self.next..self.next + count;
        self.next = taken.end;
        taken
    }
}

/// Rows of a step at `rate` requests/s: a few more than come, for chance.
fn step_rows(rate: f64) -> usize {
    (rate * f64::from(STEP_S) * 1.05) as usize
}

/// The largest load of which a step and its warm-up are within a trace of `rows` rows, requests/s.
fn rate_of_rows(rows: usize) -> f64 {
    rows as f64 / (f64::from(STEP_S) * 1.05 + WARMUP_S)
}

/// What a request costs on this machine.
struct Probe {
    /// Processor time of one request, server and load generator together, seconds.
    cost_s: f64,
    /// Share of the processors that was busy before.
    busy: f64,
    /// Processors.
    cores: u32,
}

impl Probe {
    /// The largest load that leaves the processors idle enough.
    fn rate_max(&self) -> f64 {
        let share = (PROCESSOR_SHARE_MAX - self.busy).max(PROCESSOR_SHARE_MIN);
        share * f64::from(self.cores) / self.cost_s
    }
}

/// How the demo loads its node.
struct Sweep<'a> {
    dir: &'a Path,
    trace: &'a str,
    quiet: bool,
    /// A step was repeated, and the repetition was disturbed nearly as much: no further one is.
    vain: Cell<bool>,
}

impl Sweep<'_> {
    fn arguments(&self, rest: &[&str]) -> Vec<String> {
        ["--trace", self.trace].iter().chain(rest).map(|&argument| argument.to_owned()).collect()
    }

    /// Stores the objects of the first `rows` rows.
    fn fill(&self, url: &str, rows: usize, name: &str) -> anyhow::Result<()> {
        let fill = self.arguments(&["--fill", "--slice", &format!("0..{rows}")]);
        lab::load(url, &fill, &self.dir.join(name), true).map(|_| ())
    }

    /// Measures what a request costs, on a server of its own.
    fn probe(&self, memory_bytes: u64) -> anyhow::Result<Probe> {
        let dir = self.dir.join("probe");
        std::fs::create_dir_all(&dir)?;
        let mut sampler = HostSampler::start();
        std::thread::sleep(Duration::from_secs(1));
        let idle = sampler.sample();
        let config = dir.join("concertina.toml");
        lab::write_config(&config, &server_config(&dir, None, memory_bytes, SERVICE_MS_MIN)?)?;
        let server = Server::start(&config, &dir.join("server.log"))?;
        self.fill(server.url(), PROBE_ROWS, "probe/fill")?;
        let slice = format!("0..{PROBE_ROWS}");
        let rate = PROBE_RATE.to_string();
        let load = self.arguments(&[
            "--rate",
            &rate,
            "--warmup",
            "1s",
            "--duration",
            "3s",
            "--slice",
            &slice,
        ]);
        let run = lab::load(server.url(), &load, &dir.join("load"), true)?;
        server.stop()?;
        let busy = |host: &Host| host.cpu_user + host.cpu_system;
        // The first second is the warm-up's, the last one is not whole.
        let hosts: Vec<f64> = run.host.iter().skip(1).map(busy).collect();
        let hosts = &hosts[..hosts.len().saturating_sub(1).max(1).min(hosts.len())];
        let before = busy(&idle);
        let loaded = hosts.iter().sum::<f64>() / hosts.len().max(1) as f64;
        let cores = run.run.machine.cores.max(1) as u32;
        // At least the time that an empty loop would take.
        let cost_s = ((loaded - before) * f64::from(cores) / PROBE_RATE).max(5e-6);
        Ok(Probe { cost_s, busy: before, cores })
    }

    /// Asks for each of `rows` once, and judges nothing: the first step would be fitted with the misses of a memory that
    /// has not seen yet which objects are asked for again. (After 12,000 requests 49 % missed, after 75,000 41 %.)
    fn warm(&self, url: &str, rate: f64, rows: std::ops::Range<usize>) -> anyhow::Result<()> {
        if !self.quiet {
            let count = rows.len();
            eprintln!(
                "     asking it for {count} objects, until memory answers as many as it will"
            );
        }
        let (slice, rate_text) =
            (format!("{}..{}", rows.start, rows.end), rate.round().to_string());
        let length = format!("{}s", (rows.len() as f64 / rate).ceil());
        let load =
            self.arguments(&["--rate", &rate_text, "--slice", &slice, "--duration", &length]);
        lab::load(url, &load, &self.dir.join("warm"), self.quiet).map(|_| ())
    }

    /// Runs one load over the next part of the trace. A step that others on this machine or beside it disturbed is
    /// repeated once, and the quieter one is kept. The repetition goes on in the trace: memory knows the requests of the
    /// first one.
    fn step(
        &self,
        server: &Server,
        service_ms: f64,
        rate: f64,
        cursor: &mut TraceCursor,
    ) -> anyhow::Result<RunFolder> {
        let (rate_text, length) = (rate.to_string(), format!("{STEP_S}s"));
        let window = format!("{WINDOW_S}s");
        let name = format!("load-{rate_text}");
        let mut measured = |name: &str| -> anyhow::Result<(RunFolder, Disturbed)> {
            let before = cursor.take((rate * WARMUP_S) as usize);
            let rows = cursor.take(step_rows(rate));
            let load = self.arguments(&[
                "--rate",
                &rate_text,
                "--warmup-requests",
                &before.len().to_string(),
                "--warmup-slice",
                &format!("{}..{}", before.start, before.end),
                "--slice",
                &format!("{}..{}", rows.start, rows.end),
                "--duration",
                &length,
                "--window",
                &window,
            ]);
            server.device_lateness_s()?;
            let run = lab::load(server.url(), &load, &self.dir.join(name), self.quiet)?;
            let late = server.device_lateness_s()? / (service_ms / 1000.0);
            let disturbed = Disturbed { stolen: stolen(&run), late };
            Ok((run, disturbed))
        };
        let (first, disturbed) = measured(&name)?;
        if disturbed.ratio() <= 1.0 || self.vain.get() {
            return Ok(first);
        }
        if !self.quiet {
            eprintln!("     {disturbed}: once more");
        }
        let (second, still) = measured(&(name + "-again"))?;
        self.vain.set(still.ratio() > disturbed.ratio() / 2.0);
        Ok(if still.ratio() < disturbed.ratio() { second } else { first })
    }
}

/// What disturbed a step.
#[derive(Clone, Copy)]
struct Disturbed {
    /// Share of the processors that other guests of the hypervisor had.
    stolen: f64,
    /// How late emulated reads completed in the mean, in their mean service times.
    late: f64,
}

impl Disturbed {
    /// More than one if the step is to be repeated.
    fn ratio(self) -> f64 {
        (self.stolen / STOLEN_MAX).max(self.late / LATE_MAX)
    }
}

impl std::fmt::Display for Disturbed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (stolen, late) = (self.stolen * 100.0, self.late * 100.0);
        if self.stolen / STOLEN_MAX > self.late / LATE_MAX {
            write!(f, "other guests of the hypervisor had {stolen:.0} % of the processors")
        } else {
            write!(
                f,
                "the disk was busy with something else, and reads took {late:.0} % longer than emulated"
            )
        }
    }
}

/// Waits until what was written to the disk before (by a build, or by filling the node) is on it: reads would have to
/// wait for those writes.
fn settle(dir: &Path) -> anyhow::Result<()> {
    let folder = File::open(dir).with_context(|| format!("cannot open {}", dir.display()))?;
    rustix::fs::syncfs(folder).with_context(|| format!("cannot write out {}", dir.display()))
}

/// Share of the processors that other guests of the hypervisor had during a run.
fn stolen(run: &RunFolder) -> f64 {
    let sum: f64 = run.host.iter().map(|host| host.cpu_stolen).sum();
    sum / run.host.len().max(1) as f64
}

/// Fits a model to the steps that are not `judged`, records its errors on the others in it, and compares it
/// with all of them.
fn judge(
    runs: Vec<RunFolder>,
    judged: &[f64],
) -> Result<(model::Model, Comparison), report::Error> {
    let hold_out = judged.iter().map(|rate| StepChoice::Rate(*rate)).collect();
    let selection = Selection { hold_out, ..Selection::default() };
    let observed = Observed::new(runs, &selection)?;
    let model = report::fit(&observed, "demo")?;
    let objective = Objective { share: 0.99, within_s: 0.050 };
    let comparison = Comparison::new(&observed, &model, &[], &[objective])?;
    Ok((model, comparison))
}

/// Makes the folder of a demo. One that is not empty is refused, be it another demo's: run folders in it are never
/// overwritten, and files of the demo's names may be another's.
fn make_empty(folder: &Path) -> anyhow::Result<()> {
    let shown = folder.display();
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {shown}"))?;
    let mut entries =
        std::fs::read_dir(folder).with_context(|| format!("cannot list the folder {shown}"))?;
    if let Some(entry) = entries.next().transpose()? {
        let name = entry.file_name();
        anyhow::bail!("{shown} holds {name:?}; name an empty or a new folder for the demo (--dir)");
    }
    Ok(())
}

fn server_config(
    dir: &Path,
    run_dir: Option<&Path>,
    memory_bytes: u64,
    service_ms: f64,
) -> anyhow::Result<Config> {
    let service = lab::service("lognormal", 1000.0 / service_ms, SERVICE_SCV)?;
    let mut devices = lab::disks(&dir.join("device"), DEVICES, Some(service));
    devices.iter_mut().for_each(|device| device.bytes = Size(256 << 20));
    let mut config = lab::server(memory_bytes, devices, &dir.join("origin"));
    config.observe.run_dir = run_dir.map(Path::to_owned);
    config.observe.window_s = WINDOW_S;
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
        let saturation = f64::from(DEVICES) * 1000.0 / SERVICE_MS_MIN;
        let unseen = SWEEP.iter().filter(|(_, fitted)| !fitted);
        let judged: Vec<f64> = unseen.map(|(share, _)| share * saturation).collect();
        let plan = simulate::Plan {
            config: server_config(dir.path(), Some(&dir.path().join("server")), 0, SERVICE_MS_MIN)
                .unwrap(),
            rates: SWEEP.iter().map(|(share, _)| share * saturation).collect(),
            duration_s: 8.0,
            warmup_s: 1.0,
            keys: 20_000,
            drawn: None,
            course: simulate::LoadCourse::default(),
            chance: None,
            unstable: true,
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
        let (model, comparison) =
            judge(vec![RunFolder::read(&plan.out).unwrap()], &judged).unwrap();
        let unseen = judged.len();
        assert_eq!(model.fitted.len(), SWEEP.len() - unseen);
        assert_eq!(model.held_out.len(), unseen * comparison.within_s.len());
        // The text about trust follows the model file.
        let again = model::Model::from_toml(&model.to_toml().unwrap()).unwrap();
        let trust = again.trust().unwrap();
        assert!(trust.bias_points.is_some() && trust.misfit_points.is_some(), "{trust:?}");
        assert!((trust.limit / comparison.trust.limit - 1.0).abs() < 1e-6);
        for row in &comparison.rows {
            assert_eq!(row.beyond_trust, !comparison.trust.covers(row.rate), "{row:?}");
        }
        let (text, html) =
            (report::table(&comparison), report::html(&comparison, &Page::default()));
        assert!(text.contains("Checked up to") && !text.contains("fitted loads alone"), "{text}");
        assert!(html.contains("checked up to "), "the plots draw it");
        let marked = comparison.rows.iter().any(|row| row.beyond_trust);
        assert_eq!(html.contains("untrusted\">"), marked, "the table shades what is past it");
        assert_eq!(html.contains(", extrapolated"), marked, "so do the distributions");
    }
}
