//! Runs a configuration in virtual time with the code that serves, and writes a run folder like
//! that of a measurement.
//!
//! The members of the configuration become nodes of [`engine::sim`], behind gateways if there are
//! several nodes. Devices take the times of their emulation profiles. `docs/simulate.md` lists what
//! the simulation leaves out.

mod faults;

pub use faults::{AskedFault, Messages};

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use engine::route::Ring;
use engine::sim::{Clients, Fault, FaultKind, Law, Network, Origin, Process, Settings, Simulation};
use ground::window::{self, Nanos, SECOND, Window};
use serde::Serialize;

use configuration::{Config, Kind, Member, Service};
use device::disk::empirical;
use load::{Popularity, Summary, simulated_step};
use node::settings::{cluster_of, settings_of};
use origin::{Attributes, Metadata, VersionHasher};
use record::clock;
use record::{self, Generator, Machine, Run, RunWriter, Step};

/// The parameters of a simulation.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The configuration of the simulated servers.
    pub config: Config,
    /// Requests/s of each step.
    pub rates: Vec<f64>,
    /// Length of each step, seconds.
    pub duration_s: f64,
    /// Time before each step that is not counted, seconds.
    pub warmup_s: f64,
    /// Number of distinct keys.
    pub keys: u32,
    /// Popularity of the keys.
    pub popularity: Popularity,
    /// Smallest and largest object, bytes.
    pub bytes: (u64, u64),
    /// Share of requests that are reads.
    pub read_share: f64,
    /// One-way delay of a message, seconds.
    pub network_s: f64,
    /// Mean response time of the origin, seconds.
    pub origin_s: f64,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Number of identical nodes that replace the configuration's members.
    pub nodes: Option<u32>,
    /// Members that are down from the start.
    pub lost: Vec<String>,
    /// Members whose devices run at a multiple of their speed.
    pub slow: Vec<(String, f64)>,
    /// Number of gateways, if there are several nodes.
    pub gateways: u32,
    /// Faults of messages.
    pub messages: Messages,
    /// Faults of processes and devices, timed from the end of each step's warm-up.
    pub faults: Vec<AskedFault>,
    /// Clocks run alternately fast and slow by this many millionths.
    pub drift_ppm: i32,
    /// Whether the history of reads and writes is checked.
    pub check: bool,
    /// The run folder.
    pub out: PathBuf,
}

/// The result of a simulation.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The summary, as the load generator prints it for a real server.
    #[serde(flatten)]
    pub summary: Summary,
    /// Simulated requests, including warm-ups.
    pub simulated_requests: u64,
    /// Real time that the simulation took, seconds.
    pub seconds: f64,
    /// Descriptions of consistency violations; `None` if the history was not checked.
    pub violations: Option<Vec<String>>,
}

impl Outcome {
    /// The speed of the simulation, requests per second of real time.
    pub fn speed(&self) -> f64 {
        self.simulated_requests as f64 / self.seconds.max(1e-9)
    }
}

/// Runs a simulation. `progress` receives the current stage and its completed share, 0 to 1; `stop`
/// ends the run early.
///
/// # Errors
/// If the plan is invalid, or the run folder cannot be written.
pub fn run(
    plan: &Plan,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str, f64),
) -> anyhow::Result<Outcome> {
    let config = members(plan)?;
    let laws = laws(&config)?;
    let unix = clock::unix_offset_ns() + i128::from(clock::now());
    let description = Run {
        format: record::FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kind: "simulate".to_owned(),
        start_unix_us: (unix / 1000).max(0) as u64,
        laboratory: Some("a simulation in virtual time: nothing was measured".to_owned()),
        machine: Machine::describe(),
        asked: parameters_table(plan, &config),
    };
    let mut writer = RunWriter::create(&plan.out, &description)?;
    let mut outcome = Outcome {
        summary: Summary { dir: plan.out.clone(), ..Summary::default() },
        simulated_requests: 0,
        seconds: 0.0,
        violations: plan.check.then(Vec::new),
    };
    let begun = Instant::now();
    let mut offset = unix;
    for (index, &rate) in plan.rates.iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let settings = settings(plan, &config, &laws, rate, offset)?;
        let names: Vec<String> =
            settings.ring.members().iter().map(|member| member.name.clone()).collect();
        let mut simulation = Simulation::new(settings);
        simulation.preload(false);
        let stage = format!("step {} of {}: {rate}/s", index + 1, plan.rates.len());
        let mut run = StepRun { plan, names, total: None, rate, index, offset };
        run.go(&mut simulation, &mut writer, stop, &mut |done| progress(&stage, done))?;
        outcome.simulated_requests += simulation.counts().requests;
        if let Some(violations) = &mut outcome.violations {
            simulation.check_at_the_end();
            let left = VIOLATIONS_MAX.saturating_sub(violations.len());
            let found = simulation.violations().iter().take(left);
            violations.extend(found.map(|v| format!("at {rate} requests/s: {v}")));
        }
        offset += i128::from(simulation.now());
        if let Some(total) = run.total.take().filter(|_| !stop.load(Ordering::Relaxed)) {
            let step = run.step();
            writer.step(&step)?;
            outcome.summary.steps.push(simulated_step(step, &total));
        }
    }
    writer.flush()?;
    outcome.seconds = begun.elapsed().as_secs_f64();
    outcome.summary.interrupted = stop.load(Ordering::Relaxed);
    Ok(outcome)
}

/// The largest number of violations that are listed.
const VIOLATIONS_MAX: usize = 100;

/// A step while it runs.
struct StepRun<'a> {
    plan: &'a Plan,
    names: Vec<String>,
    /// The clients' windows that are counted.
    total: Option<Window>,
    rate: f64,
    index: usize,
    /// The start of virtual time, nanoseconds since 1970.
    offset: i128,
}

impl StepRun<'_> {
    fn go(
        &mut self,
        simulation: &mut Simulation,
        writer: &mut RunWriter,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(f64),
    ) -> anyhow::Result<()> {
        let warmup = nanos(self.plan.warmup_s);
        let end = warmup + nanos(self.plan.duration_s);
        // End a window together with the warm-up, so that no window contains a part of both.
        let mut at = 0;
        while at < end && !stop.load(Ordering::Relaxed) {
            let border = if at < warmup { warmup } else { end };
            at = (at + nanos(self.plan.config.observe.window_s)).min(border);
            simulation.run_to(at);
            self.record(simulation.windows(at == border), at > warmup, writer)?;
            progress(at as f64 / end as f64);
        }
        Ok(())
    }

    fn record(
        &mut self,
        windows: Vec<Vec<Window>>,
        counts: bool,
        writer: &mut RunWriter,
    ) -> anyhow::Result<()> {
        let gateways = windows.len() - 1 - self.names.len();
        for (who, mut windows) in windows.into_iter().enumerate() {
            if let (Some(node), true) = (who.checked_sub(1 + gateways), self.names.len() > 1) {
                let name = &self.names[node];
                windows.iter_mut().for_each(|w| w.queue = format!("{name}/{}", w.queue));
            }
            writer.windows(&windows)?;
            if who == 0 && counts {
                for window in windows {
                    match &mut self.total {
                        Some(total) => total.merge(&window, false),
                        None => self.total = Some(window),
                    }
                }
            }
        }
        Ok(writer.flush()?)
    }

    fn step(&self) -> Step {
        let unix_us = |at: Nanos| ((self.offset + i128::from(at)) / 1000).max(0) as u64;
        let warmup = nanos(self.plan.warmup_s);
        Step {
            index: self.index,
            rate: Some(self.rate),
            clients: None,
            start_unix_us: unix_us(warmup),
            end_unix_us: unix_us(warmup + nanos(self.plan.duration_s)),
            generator: Generator::default(),
        }
    }
}

fn nanos(seconds: f64) -> Nanos {
    (seconds * SECOND as f64) as Nanos
}

/// The configuration with its members replaced as requested; one without members has one node.
fn members(plan: &Plan) -> anyhow::Result<Config> {
    let mut config = plan.config.clone();
    if let Some(nodes) = plan.nodes {
        ensure!((1..=4096).contains(&nodes), "--nodes must be 1 to 4096, not {nodes}");
        let member = |i: u32| Member { name: format!("node-{i:04}"), ..Member::default() };
        config.members = (0..nodes).map(member).collect();
    }
    let alone = config.members.is_empty();
    if alone {
        config.members.push(Member { name: "node".to_owned(), ..Member::default() });
        config.cluster.replicas = 1;
    }
    ensure!(!plan.rates.is_empty(), "no load given: add --rate R requests/s, or a list");
    for &rate in &plan.rates {
        ensure!(rate.is_finite() && rate > 0.0, "--rate must be positive, not {rate}");
    }
    ensure!(plan.duration_s > 0.0, "--duration must be more than 0");
    ensure!(plan.keys > 0, "--keys must be at least 1");
    let (min, max) = plan.bytes;
    ensure!(min <= max, "--size must not run from {min} down to {max}");
    ensure!((0.0..=1.0).contains(&plan.read_share), "--read-share must be 0 to 1");
    ensure!((1..=64).contains(&plan.gateways), "--gateways must be 1 to 64, not {}", plan.gateways);
    let drift = plan.drift_ppm;
    ensure!((0..=50_000).contains(&drift), "--drift must be 0 to 50000 millionths, not {drift}");
    let named = plan.lost.iter().chain(plan.slow.iter().map(|(name, _)| name));
    for name in named {
        let names: Vec<&str> = config.members.iter().map(|m| m.name.as_str()).collect();
        ensure!(
            names.contains(&name.as_str()),
            "unknown member {name:?}; the members are {names:?}"
        );
    }
    Ok(config)
}

/// The service-time law of each device.
fn laws(config: &Config) -> anyhow::Result<Vec<Law>> {
    let mut laws = Vec::new();
    for (index, group) in config.devices.iter().enumerate() {
        let Some(service) = &group.service else {
            bail!(
                "device {index} has no `service` profile, so its service time is unknown: give it \
                 one, e.g. service = {{ kind = \"exponential\", mean_ms = 10.0 }}"
            );
        };
        let law = law(service).with_context(|| format!("device {index}"))?;
        laws.extend(std::iter::repeat_n(law, group.count as usize));
    }
    Ok(laws)
}

fn law(service: &Service) -> anyhow::Result<Law> {
    let (mean_s, scv) = (service.mean_ms * 1e-3, service.scv);
    Ok(match service.kind {
        Kind::Exponential => Law::exponential(mean_s),
        Kind::Gamma => Law::gamma(mean_s, scv)?,
        Kind::Lognormal => Law::lognormal(mean_s, scv)?,
        Kind::Empirical => {
            let times: Vec<f64> = empirical(service)?.iter().map(|ms| ms * 1e-3).collect();
            Law::empirical(&times)
        }
    })
}

fn settings(
    plan: &Plan,
    config: &Config,
    laws: &[Law],
    rate: f64,
    offset: i128,
) -> anyhow::Result<Settings> {
    let ring = config.ring().context("cannot make a ring of these members")?;
    let windows = window::Settings {
        window_ns: nanos(config.observe.window_s),
        objectives_ms: config.observe.objectives_ms.clone(),
        unix_offset_ns: offset,
    };
    let several = ring.members().len() > 1;
    let mut nodes = Vec::new();
    for member in ring.members() {
        let mut own = config.clone();
        own.cluster.name = Some(member.name.clone());
        let cluster = if several { cluster_of(&own) } else { None };
        nodes.push(settings_of(&own, cluster, windows.clone()));
    }
    let gateways = if several { plan.gateways } else { 0 };
    let faults = faults(plan, &ring, gateways as usize)?;
    let clock = |process: u32| engine::sim::Clock {
        ppm: if process.is_multiple_of(2) { plan.drift_ppm } else { -plan.drift_ppm },
        ..engine::sim::Clock::default()
    };
    let processes = nodes.len() as u32 + gateways;
    let gateway = |i: u32| {
        config.gateway.settings(ring.clone(), windows.clone(), plan.seed.wrapping_add(u64::from(i)))
    };
    Ok(Settings {
        seed: plan.seed,
        devices: vec![laws.to_vec(); nodes.len()],
        gateways: (0..gateways).map(gateway).collect(),
        clocks: if plan.drift_ppm == 0 { Vec::new() } else { (0..processes).map(clock).collect() },
        ring,
        nodes,
        clients: Clients {
            rate,
            until: nanos(plan.warmup_s + plan.duration_s),
            keys: plan.keys,
            popularity: match plan.popularity {
                Popularity::Uniform => engine::sim::Popularity::Uniform,
                Popularity::Zipf(s) => engine::sim::Popularity::Zipf(s),
            },
            write_share: 1.0 - plan.read_share,
            delete_share: 0.0,
            bytes: plan.bytes,
            deadline: nanos(config.gateway.deadline_s),
            any_node: 0.0,
        },
        network: plan
            .messages
            .network(Network { delay: Law::constant(plan.network_s), ..Network::default() }),
        origin: Origin {
            half: Law::exponential(plan.origin_s / 2.0),
            timeout: nanos(config.origin.timeout_s),
            metadata_bytes: metadata_bytes(),
            ..Origin::default()
        },
        membership: None,
        device_faults: engine::sim::DeviceFaults::default(),
        faults,
        breakage: None,
        check: plan.check,
        windows,
    })
}

/// What is to fail, in order of time.
fn faults(plan: &Plan, ring: &Ring, gateways: usize) -> anyhow::Result<Vec<Fault>> {
    let find = |name: &str| ring.find(name).unwrap_or(0) as Process;
    let mut faults: Vec<Fault> = Vec::new();
    for name in &plan.lost {
        let clock = engine::sim::Clock::default();
        let (process, down) = (find(name), Nanos::MAX);
        let kind = FaultKind::Kill { process, down, devices_lost: true, clock };
        faults.push(Fault { at: 1, kind });
    }
    for (name, speed) in &plan.slow {
        ensure!(*speed > 0.0, "--slow {name}: the speed must be positive, not {speed}");
        let (process, factor, time) = (find(name), 1.0 / speed, Nanos::MAX);
        faults.push(Fault { at: 1, kind: FaultKind::Slow { process, factor, time } });
    }
    let names: Vec<&str> = ring.members().iter().map(|member| member.name.as_str()).collect();
    for fault in &plan.faults {
        faults.push(fault.fault(&names, gateways, plan.warmup_s)?);
    }
    faults.sort_by_key(|fault| fault.at);
    Ok(faults)
}

/// Size of the metadata of an object that `concertina load` stores, bytes.
fn metadata_bytes() -> u64 {
    let attributes =
        Attributes { content_type: Some("application/octet-stream".to_owned()), user: Vec::new() };
    let etag = VersionHasher::default().finish(&attributes);
    let metadata = Metadata { size: 0, etag, modified_unix_us: 0, attributes };
    metadata.encode().len() as u64
}

/// The parameters that are recorded in the run folder.
fn parameters_table(plan: &Plan, config: &Config) -> toml::Table {
    let mut asked = toml::Table::new();
    let names: Vec<&str> = config.members.iter().map(|m| m.name.as_str()).collect();
    let slow: Vec<String> =
        plan.slow.iter().map(|(name, speed)| format!("{name}:{speed}")).collect();
    asked.insert("rates".to_owned(), plan.rates.clone().into());
    asked.insert("duration_s".to_owned(), plan.duration_s.into());
    asked.insert("warmup_s".to_owned(), plan.warmup_s.into());
    asked.insert("keys".to_owned(), i64::from(plan.keys).into());
    asked.insert("popularity".to_owned(), format!("{:?}", plan.popularity).into());
    asked.insert("read_share".to_owned(), plan.read_share.into());
    asked.insert("network_s".to_owned(), plan.network_s.into());
    asked.insert("origin_s".to_owned(), plan.origin_s.into());
    asked.insert("seed".to_owned(), (plan.seed as i64).into());
    asked.insert("members".to_owned(), toml::Value::try_from(names).unwrap_or(0.into()));
    asked.insert("lost".to_owned(), plan.lost.clone().into());
    asked.insert("slow".to_owned(), slow.into());
    let faults: Vec<String> = plan.faults.iter().map(ToString::to_string).collect();
    asked.insert("gateways".to_owned(), i64::from(plan.gateways).into());
    asked.insert("messages".to_owned(), format!("{:?}", plan.messages).into());
    asked.insert("faults".to_owned(), faults.into());
    asked.insert("drift_ppm".to_owned(), i64::from(plan.drift_ppm).into());
    asked
}
