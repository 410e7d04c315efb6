//! The settings of a run whose keys are tracked.

use anyhow::{Context, bail, ensure};
use configuration::{Config, Kind, Service};
use device::disk::empirical;
use engine::route::Ring;
use engine::sim::{Clients, Fault, FaultKind, Law, Network, Origin, Process, Settings};
use ground::window::{self, Nanos};
use load::Popularity;
use node::settings::{place_of, settings_of};
use origin::{Attributes, Metadata, VersionHasher};

use super::chance::Outage;
use super::plan::{DrawnHits, Plan};
use super::time::nanos;

/// The service-time law of each device, as far as the configuration has it and not a model.
pub(super) fn laws(plan: &Plan, config: &Config) -> anyhow::Result<Vec<Law>> {
    let mut laws = Vec::new();
    if let Some(DrawnHits::Fitted(_)) = plan.drawn {
        return Ok(laws);
    }
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

/// The settings of one step with keys.
pub(super) fn settings(
    plan: &Plan,
    config: &Config,
    laws: &[Law],
    rate: f64,
    windows: window::Settings,
) -> anyhow::Result<Settings> {
    let ring = config.ring().context("cannot make a ring of these members")?;
    let several = ring.members().len() > 1;
    let mut nodes = Vec::new();
    for member in ring.members() {
        let mut own = config.clone();
        own.cluster.name = Some(member.name.clone());
        // One ring for all: each has some kilobytes for each member, and there would be as many as members.
        let me = own.me().filter(|_| several);
        let cluster = me.map(|me| place_of(&own, ring.clone(), me, 0));
        nodes.push(settings_of(&own, cluster, windows.clone()));
    }
    let gateways = if several { plan.gateways } else { 0 };
    let faults = all_faults(plan, &ring, gateways as usize)?;
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
            course: plan.course.arrivals(plan.span(), rate),
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

/// What is to fail, of the schedule and drawn, in order of time.
fn all_faults(plan: &Plan, ring: &Ring, gateways: usize) -> anyhow::Result<Vec<Fault>> {
    let mut faults = faults(plan, ring, gateways)?;
    let Some(chance) = &plan.chance else { return Ok(faults) };
    ensure!(
        chance.device.is_none(),
        "--disk-mttf needs --keys drawn: with keys, devices that fail are those of --fault wipe"
    );
    let names: Vec<&str> = ring.members().iter().map(|member| &*member.name).collect();
    let outages = chance.outages(plan.seed, plan.span(), &names);
    faults.extend(outages.iter().map(of_outage));
    faults.sort_by_key(|fault| fault.at);
    Ok(faults)
}

/// What is to fail by the schedule, in order of time.
pub(super) fn faults(plan: &Plan, ring: &Ring, gateways: usize) -> anyhow::Result<Vec<Fault>> {
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
        faults.extend(fault.faults(&names, gateways, plan.warmup_s)?);
    }
    faults.sort_by_key(|fault| fault.at);
    Ok(faults)
}

/// A drawn outage of a node: it is killed, and restarted with what its devices hold.
fn of_outage(outage: &Outage) -> Fault {
    let clock = engine::sim::Clock::default();
    let (process, down) = (outage.node as Process, outage.until - outage.at);
    Fault { at: outage.at, kind: FaultKind::Kill { process, down, devices_lost: false, clock } }
}

/// Size of the metadata of an object that `concertina load` stores, bytes.
fn metadata_bytes() -> u64 {
    let attributes =
        Attributes { content_type: Some("application/octet-stream".to_owned()), user: Vec::new() };
    let etag = VersionHasher::default().finish(&attributes);
    let metadata = Metadata { size: 0, etag, modified_unix_us: 0, attributes };
    metadata.encode().len() as u64
}
