//! What is simulated.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::ensure;
use configuration::{Config, Device, Member};
use engine::sim::drawn::Hits;
use ground::number::time;
use load::Popularity;
use model::Model;

use super::chance::Chance;
use super::course::{LoadBurst, LoadCourse};
use super::faults::{AskedFault, Messages};
use super::time::Span;

/// What answers reads where no key is tracked.
#[derive(Clone, Debug)]
pub enum DrawnHits {
    /// By these shares, and the configuration's devices.
    Stated(Hits),
    /// As a fitted node answers them: its devices, and the shares at its load.
    Fitted(Arc<Model>),
}

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
    /// Number of distinct keys, where hits are not drawn.
    pub keys: u32,
    /// What answers reads, if hits are drawn and keys are not tracked.
    pub drawn: Option<DrawnHits>,
    /// How the load changes within a step.
    pub course: LoadCourse,
    /// Faults that are drawn.
    pub chance: Option<Chance>,
    /// Whether a load is simulated that the devices cannot serve.
    pub unstable: bool,
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

impl Plan {
    /// The time of each step.
    pub(super) fn span(&self) -> Span {
        Span { warmup_s: self.warmup_s, duration_s: self.duration_s }
    }
}

/// The configuration with its members replaced as requested; one without members has one node.
pub(super) fn members(plan: &Plan) -> anyhow::Result<Config> {
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
    if let Some(DrawnHits::Fitted(model)) = &plan.drawn {
        config.devices = devices_of(model, &config)?;
    }
    ensure!(!plan.rates.is_empty(), "no load given: add --rate R requests/s, or a list");
    for &rate in &plan.rates {
        ensure!(rate.is_finite() && rate > 0.0, "--rate must be positive, not {rate}");
    }
    ensure!(plan.duration_s > 0.0, "--duration must be more than 0");
    ensure!(plan.keys > 0, "--keys must be at least 1");
    plan.course.check()?;
    if let Some(chance) = &plan.chance {
        let names: Vec<&str> = config.members.iter().map(|member| member.name.as_str()).collect();
        let devices: u32 = config.devices.iter().map(|group| group.count).sum();
        chance.check(plan.span(), &names, devices as usize)?;
    }
    check_times(plan)?;
    let (min, max) = plan.bytes;
    ensure!(min <= max, "--size must not run from {min} down to {max}");
    ensure!((0.0..=1.0).contains(&plan.read_share), "--read-share must be 0 to 1");
    ensure!((1..=64).contains(&plan.gateways), "--gateways must be 1 to 64, not {}", plan.gateways);
    ensure!(
        plan.gateways == 1 || config.members.len() > 1,
        "--gateways {}: clients ask a single node itself; give several [[member]]s, or --nodes",
        plan.gateways
    );
    check_network(plan, config.members.len() > 1)?;
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

/// The devices of a fitted node as groups of the configuration, which must not contradict them.
fn devices_of(model: &Model, config: &Config) -> anyhow::Result<Vec<Device>> {
    let fitted: u32 = model.devices.iter().map(|devices| devices.count).sum();
    let configured: u32 = config.devices.iter().map(|group| group.count).sum();
    // A file that names no device has the default one.
    let is_stated = config.devices != [Device::default()];
    ensure!(
        !is_stated || configured == fitted,
        "the configuration has {configured} devices, the model {fitted}: --model takes all of a node's devices from the \
         model; leave [[device]] out, or simulate with [[device]].service and without --model"
    );
    ensure!(
        config.devices.iter().all(|group| group.service.is_none()),
        "[[device]].service and --model both state how long a read takes: leave one out"
    );
    Ok(vec![Device { count: fitted, ..Device::default() }])
}

/// Refuses a network on which no reply comes before the end of a step.
fn check_network(plan: &Plan, has_gateways: bool) -> anyhow::Result<()> {
    // To a gateway, to a node, and back.
    let messages = if has_gateways { 4.0 } else { 2.0 };
    let (fits_s, given_s) = (plan.duration_s / messages, plan.network_s);
    ensure!(
        given_s < fits_s,
        "--network {}: a request and its reply take {messages} such delays, and a step {} in all; below {} fits",
        time(given_s),
        time(plan.duration_s),
        time(fits_s)
    );
    Ok(())
}

/// Refuses what would begin after the end of a step, and so never.
fn check_times(plan: &Plan) -> anyhow::Result<()> {
    let end = plan.duration_s;
    for fault in &plan.faults {
        ensure!(
            fault.at_s < end,
            "--fault {fault} begins after the end: a step takes {end} s after the warm-up"
        );
    }
    for LoadBurst { factor, at_s, .. } in &plan.course.bursts {
        ensure!(
            *at_s < end,
            "--burst {factor}x@{at_s}s begins after the end: a step takes {end} s after the warm-up"
        );
    }
    Ok(())
}

/// The parameters that are recorded in the run folder.
pub(super) fn parameters_table(plan: &Plan, config: &Config) -> toml::Table {
    let mut asked = toml::Table::new();
    let names: Vec<&str> = config.members.iter().map(|m| m.name.as_str()).collect();
    let slow: Vec<String> =
        plan.slow.iter().map(|(name, speed)| format!("{name}:{speed}")).collect();
    asked.insert("rates".to_owned(), plan.rates.clone().into());
    asked.insert("duration_s".to_owned(), plan.duration_s.into());
    asked.insert("warmup_s".to_owned(), plan.warmup_s.into());
    match &plan.drawn {
        None => asked.insert("keys".to_owned(), i64::from(plan.keys).into()),
        Some(DrawnHits::Fitted(model)) => {
            asked.insert("keys".to_owned(), "drawn".into());
            asked.insert("model".to_owned(), model.about.title.clone().into())
        }
        Some(DrawnHits::Stated(Hits { memory, hot, origin })) => {
            asked.insert("keys".to_owned(), "drawn".into());
            asked.insert("hit_ratio".to_owned(), (*memory).into());
            asked.insert("hot_ratio".to_owned(), (*hot).into());
            asked.insert("origin_ratio".to_owned(), (*origin).into())
        }
    };
    if plan.course != LoadCourse::default() {
        asked.insert("course".to_owned(), plan.course.to_string().into());
    }
    if let Some(chance) = &plan.chance {
        asked.insert("chance".to_owned(), format!("{chance:?}").into());
    }
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
