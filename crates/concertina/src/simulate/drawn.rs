//! The settings of a run whose hits are drawn.

use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use engine::gateway::Spread;
use engine::route::{self, Ring};
use engine::sim::drawn::{DeviceSettings, Hits, NodeFault, NodeFaultKind, Settings};
use engine::sim::{Arrivals, Fault, FaultKind, Law};
use ground::window::{self, Outcome, SECOND};

use super::keyed::faults as scheduled_faults;
use super::plan::{DrawnHits, Plan};
use super::server::Server;
use super::time::nanos;
use configuration::{Config, Kind, Member};
use node::settings::settings_of;

/// The most windows of a run of drawn hits, of all queues together: some hundred megabytes of a run folder.
const WINDOWS_MAX: f64 = 200_000.0;

/// The length of a run's windows, seconds: the configured length, or a longer one where a run of drawn hits would have too many
/// windows.
pub(super) fn window_s(plan: &Plan, config: &Config) -> f64 {
    let configured_s = config.observe.window_s;
    if plan.drawn.is_none() {
        return configured_s;
    }
    let devices: u32 = config.devices.iter().map(|group| group.count).sum();
    let queues = 1.0 + config.members.len() as f64 * (2.0 + f64::from(devices));
    let shortest_s = (plan.warmup_s + plan.duration_s) * queues / WINDOWS_MAX;
    configured_s.max(shortest_s)
}

/// Reads per second of a node that works, in the mean over those that have keys of their own: the load that a fitted node sees.
pub(super) fn node_rate(plan: &Plan, members: &[route::Member], rate: f64) -> f64 {
    let is_live = |member: &&route::Member| !member.hot && !plan.lost.contains(&member.name);
    plan.read_share * rate / members.iter().filter(is_live).count().max(1) as f64
}

/// How nodes answer at a load, and when requests come.
struct Behaviour {
    devices: Vec<DeviceSettings>,
    hits: Hits,
    memory: Law,
    delay: Law,
    arrivals: Arrivals,
}

/// How nodes answer when `rate` requests/s come to all of them: as the model says, or as the configuration's devices do.
fn behaviour(
    plan: &Plan,
    ring: &Ring,
    laws: &[Law],
    rate: f64,
    configured: &[engine::node::DeviceSettings],
) -> anyhow::Result<Behaviour> {
    let course = plan.course.arrivals(plan.span(), rate);
    match &plan.drawn {
        None => bail!("the shares of hits are missing"),
        Some(DrawnHits::Fitted(model)) => {
            let server = Server::new(model, node_rate(plan, ring.members(), rate))
                .context("cannot simulate the model")?;
            ensure!(
                !server.has_bursts() || plan.course.is_steady() || plan.course.times.is_some(),
                "arrivals of the model come in bursts, and those of --daily, --growth and --burst do not: leave these out, \
                 or remove [arrivals] from the model file"
            );
            let arrivals = course.unwrap_or_else(|| server.arrivals(rate));
            let Server { devices, hits, memory, delay, .. } = server;
            Ok(Behaviour { devices, hits, memory, delay, arrivals })
        }
        Some(DrawnHits::Stated(hits)) => {
            let devices = configured.iter().zip(laws).map(|(device, law)| DeviceSettings {
                name: device.name.clone(),
                outcome: device.outcome,
                servers: device.servers,
                queue_length_max: device.queue_length_max,
                law: law.clone(),
                weight: 1.0,
            });
            Ok(Behaviour {
                devices: devices.collect(),
                hits: *hits,
                memory: Law::constant(0.0),
                delay: Law::constant(0.0),
                arrivals: course.unwrap_or(Arrivals::Poisson(rate)),
            })
        }
    }
}

/// The settings of one step.
pub(super) fn settings(
    plan: &Plan,
    config: &Config,
    ring: &Arc<Ring>,
    laws: &[Law],
    rate: f64,
    windows: window::Settings,
) -> anyhow::Result<Settings> {
    let own = settings_of(config, None, windows.clone());
    let Behaviour { devices, hits, memory, delay, arrivals } =
        behaviour(plan, ring, laws, rate, &own.devices)?;
    check(plan, config, &hits, &devices)?;
    let gateway = config.gateway.settings(ring.clone(), windows.clone(), plan.seed);
    let mut faults = node_faults(&scheduled_faults(plan, ring, 0)?)?;
    if let Some(chance) = &plan.chance {
        let names: Vec<&str> = ring.members().iter().map(|member| &*member.name).collect();
        faults.extend(chance.node_faults(plan.seed, plan.span(), &names, devices.len()));
    }
    faults.sort_by_key(|fault| fault.at);
    Ok(Settings {
        seed: plan.seed,
        ring: ring.clone(),
        devices,
        origin: own.origin,
        origin_half: Law::exponential(plan.origin_s / 2.0),
        hits,
        memory,
        delay,
        arrivals,
        until: nanos(plan.warmup_s + plan.duration_s),
        write_share: 1.0 - plan.read_share,
        bytes: plan.bytes.0.midpoint(plan.bytes.1),
        network: (plan.network_s * SECOND as f64) as window::Nanos,
        gateways: plan.gateways as usize,
        spread: gateway.spread,
        policy: gateway.policy,
        ping_interval: gateway.ping_interval,
        faults,
        windows,
    })
}

/// Refuses a plan that a run without keys cannot carry out.
pub(super) fn check_plan(plan: &Plan, config: &Config, laws: &[Law]) -> anyhow::Result<()> {
    let ring = config.ring().context("cannot make a ring of these members")?;
    let rate = plan.rates.first().copied().unwrap_or(1.0);
    settings(plan, config, &ring, laws, rate, window::Settings::default()).map(drop)
}

/// Refuses ratios, devices and faults that contradict each other.
fn check(
    plan: &Plan,
    config: &Config,
    hits: &Hits,
    devices: &[DeviceSettings],
) -> anyhow::Result<()> {
    let shares = [hits.memory, hits.hot, hits.origin];
    let sum: f64 = shares.iter().sum();
    ensure!(
        shares.iter().all(|share| (0.0..=1.0).contains(share)) && sum <= 1.0 + 1e-9,
        "--hit-ratio, --hot-ratio and --origin-ratio must be 0 to 1 and together at most 1, not {sum}"
    );
    let has = |class: Outcome| devices.iter().any(|device| device.outcome == class);
    ensure!(
        hits.hot == 0.0 || has(Outcome::HotDevice),
        "--hot-ratio {}: the configuration has no device of class `hot`",
        hits.hot
    );
    ensure!(
        sum > 1.0 - 1e-9 || has(Outcome::BulkDevice),
        "{:.3} of the reads would go to bulk devices, and the configuration has none",
        1.0 - sum
    );
    let sizes = config.devices.iter().flat_map(|group| &group.service);
    ensure!(
        sizes.clone().all(|service| service.bytes_per_s.0 == 0 || service.kind == Kind::Empirical),
        "`bytes_per_s` of a device's `service` needs keys with sizes: leave --keys drawn out"
    );
    let is_live = |member: &Member| !plan.lost.contains(&member.name);
    ensure!(
        config.members.iter().any(is_live),
        "every member is --lost, so that no request is answered; with --keys N the gateways ask the origin"
    );
    ensure!(!plan.check, "--check judges versions of keys: it needs --keys N");
    let messages = &plan.messages;
    ensure!(
        messages.loss == 0.0
            && messages.late == 0.0
            && messages.duplicates == 0.0
            && plan.drift_ppm == 0,
        "--loss, --late, --duplicates and --drift need --keys N: a run of drawn hits has no faults of messages and clocks"
    );
    Ok(())
}

/// Faults of a schedule, as far as a run without keys knows them.
fn node_faults(faults: &[Fault]) -> anyhow::Result<Vec<NodeFault>> {
    let of = |fault: &Fault| {
        let (node, time, kind) = match &fault.kind {
            FaultKind::Kill { process, down, .. } => (*process, *down, NodeFaultKind::Down),
            FaultKind::Slow { process, factor, time } => {
                (*process, *time, NodeFaultKind::Slow(*factor))
            }
            _ => bail!("with --keys drawn, faults are kill, wipe and slow of members"),
        };
        let until = fault.at.saturating_add(time);
        Ok(NodeFault { at: fault.at, until, node: usize::from(node), kind })
    };
    faults.iter().map(of).collect()
}

/// What a user is told of a run of drawn hits: of gateways that would choose warm replicas, and of a model whose reads join others.
pub fn notes(plan: &Plan) -> Vec<&'static str> {
    let config = &plan.config;
    let mut notes = Vec::new();
    if plan.drawn.is_some() && config.members.len() > 1 && config.gateway.spread == Spread::Warm {
        notes.push(
            "drawn hits: each read goes to the first live node of its key; `gateway.spread = \"all\"` lets gateways choose",
        );
    }
    if let Some(DrawnHits::Fitted(model)) = &plan.drawn
        && model.requests.joining.value > 0.0
    {
        notes.push(
            "the model's requests that join a read in progress are simulated as reads of their own: devices are busier than predicted",
        );
    }
    notes
}
