//! What is refused before it runs: a load that no queue survives, and a run that is too large for this machine.

use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use configuration::Config;
use engine::gateway::Spread;
use engine::route::Member;
use engine::sim::Law;
use ground::number::{digits, percent, time};
use ground::window::Outcome;
use load::Popularity;
use model::storage::Node;
use node::settings::settings_of;

use super::drawn::{check_plan, window_s};
use super::plan::{DrawnHits, Plan};
use super::server::DeviceLoad;

/// Utilisation up to which a load is proposed.
const BUSY: f64 = 0.95;
/// The longest run, seconds.
const LONGEST_S: f64 = 86_400.0;

/// The runs of a plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Runs {
    /// How many there are, at least.
    pub count: usize,
    /// How many go on side by side.
    pub at_once: usize,
}

impl Runs {
    /// A single run.
    pub const ONE: Runs = Runs { count: 1, at_once: 1 };

    /// How many follow each other.
    fn in_turn(self) -> f64 {
        self.count.div_ceil(self.at_once.max(1)).max(1) as f64
    }
}

/// Refuses an unstable step, and runs that need more memory, time or room on disk than there is.
pub(super) fn check(plan: &Plan, config: &Config, laws: &[Law], runs: Runs) -> anyhow::Result<()> {
    let threads = runs.at_once;
    if plan.drawn.is_some() {
        check_plan(plan, config, laws)?;
    }
    let needs = Needs::estimate(plan, config);
    let bytes = needs.bytes * threads as f64;
    if let Some(free) = free_bytes().filter(|free| bytes >= *free) {
        let gib = |bytes: f64| format!("{} GiB", digits(bytes / f64::from(1 << 30), 2));
        let keys = f64::from(plan.keys) - (bytes - free) / threads as f64 / KEY_BYTES;
        let fits = match plan.drawn {
            None if keys > 1.0 => format!("about {} keys fit", digits(keys, 2)),
            None if threads > 1 => "fewer --threads fit".to_owned(),
            None => "fewer nodes fit, and drawn hits (--keys drawn)".to_owned(),
            Some(_) => "fewer nodes or fewer --threads fit".to_owned(),
        };
        bail!(
            "the simulation needs about {} of memory for {} nodes, {threads} run(s) at once, and {} are free: {fits}",
            gib(bytes),
            config.members.len(),
            gib(free),
        );
    }
    let seconds = needs.seconds * runs.in_turn();
    if seconds > LONGEST_S {
        let sooner = match plan.drawn {
            None => "; drawn hits (--keys drawn) are several times as fast",
            Some(_) => "",
        };
        bail!(
            "the simulation would take about {}: {} fits in a day{sooner}",
            time(seconds),
            what_fits(plan, runs, LONGEST_S / seconds)
        );
    }
    let bytes = needs.disk_bytes * runs.count as f64;
    if let Some(free) = free_disk_bytes(&plan.out).filter(|free| bytes >= *free) {
        let gib = |bytes: f64| digits(bytes / f64::from(1 << 30), 2);
        bail!(
            "the run folder would take about {} GiB, and {} are free where {} is: {} fits, or longer windows \
             (--set observe.window_s=60)",
            gib(bytes),
            gib(free),
            plan.out.display(),
            what_fits(plan, runs, free / bytes)
        );
    }
    if plan.unstable { Ok(()) } else { check_stable(plan, config, laws) }
}

/// A shorter simulation is not worth a proposal.
const SPAN_LEAST_S: f64 = 1e-3;

/// What is `part` of all runs.
fn what_fits(plan: &Plan, runs: Runs, part: f64) -> String {
    let span_s = (plan.warmup_s + plan.duration_s) * part;
    if span_s < SPAN_LEAST_S {
        return "a smaller --rate".to_owned();
    }
    match runs.in_turn() {
        several if several * part >= 1.0 => {
            format!("about {} of the runs", digits(several * part, 2))
        }
        _ if span_s > plan.warmup_s => format!("a --duration of {}", time(span_s - plan.warmup_s)),
        _ => format!("a --warmup and --duration of {} together", time(span_s)),
    }
}

/// Refuses a step whose queues only grow.
fn check_stable(plan: &Plan, config: &Config, laws: &[Law]) -> anyhow::Result<()> {
    let cluster = Cluster::new(plan, config, laws)?;
    for &rate in &plan.rates {
        let course = plan.course.peak(plan.span());
        let Busiest { share, devices } = cluster.busiest(rate * course);
        ensure!(
            share < 1.0,
            "{:.0} requests/s would keep {devices} busy for {} of the time, so that their queues only grow; \
             up to about {} requests/s fit: lower --rate, add nodes, devices or memory, or see it with --unstable",
            rate * course,
            percent(share, 0),
            digits(cluster.fitting_rate(rate * course) / course, 3)
        );
    }
    Ok(())
}

/// Bytes of a key with its object: its name, its version in the origin, its record, and the entries of indexes and memory.
const KEY_BYTES: f64 = 400.0;
/// Of a node, above all what its windows count.
const NODE_BYTES: f64 = 200e3;
/// Of what two nodes know of each other.
const PAIR_BYTES: f64 = 70.0;

/// Of a window of a queue in the run folder: 400 where nothing happened, 1,000 and more where much did.
const WINDOW_BYTES: f64 = 400.0;
/// Of a drawn failure: its begin and its end.
const FAILURE_BYTES: f64 = 150.0;
/// Time to kill and restart a node with keys, seconds: a tenth of a millisecond without objects.
const RESTART_S: f64 = 1e-4;

/// What a run takes, roughly: measured with `cargo bench -p engine --bench simulator` on two busy processors (2026-11-29, docs/simulate.md).
struct Needs {
    bytes: f64,
    seconds: f64,
    /// Of the run folder.
    disk_bytes: f64,
}

impl Needs {
    fn estimate(plan: &Plan, config: &Config) -> Needs {
        let nodes = config.members.len().max(1) as f64;
        let span_s = plan.warmup_s + plan.duration_s;
        let requests: f64 = plan.rates.iter().map(|rate| rate * span_s).sum();
        let requests = requests * plan.course.mean(plan.span());
        let failures = plan.chance.as_ref().map_or(0.0, |chance| {
            let names: Vec<&str> = config.members.iter().map(|m| m.name.as_str()).collect();
            let devices: u32 = config.devices.iter().map(|group| group.count).sum();
            plan.rates.len() as f64 * chance.failures(plan.span(), &names, devices as usize)
        });
        let devices: u32 = config.devices.iter().map(|group| group.count).sum();
        let windows = plan.rates.len() as f64 * span_s / window_s(plan, config)
            * nodes
            * (3.0 + f64::from(devices));
        let trace = plan.course.times.as_ref().map_or(0.0, |_| 8.0 * requests);
        let own = nodes * NODE_BYTES + trace + failures * FAILURE_BYTES + 20e6;
        let disk_bytes = windows * WINDOW_BYTES;
        if plan.drawn.is_some() {
            let seconds = requests * 0.5e-6 + windows * 20e-6 + failures * 1e-6;
            return Needs { bytes: own, seconds, disk_bytes };
        }
        let faulty = !plan.faults.is_empty() || plan.chance.is_some() || !plan.lost.is_empty();
        // With faults each node asks each other for its lease several times in its term.
        let asks = if faulty { 3.3 / config.cluster.lease_s.max(1e-3) } else { 0.0 };
        let leases = nodes * nodes * asks * span_s * plan.rates.len() as f64;
        let each_s = if nodes > 1.0 { 5e-6 } else { 2e-6 };
        Needs {
            bytes: own + f64::from(plan.keys) * KEY_BYTES + nodes * nodes * PAIR_BYTES,
            seconds: requests * each_s + windows * 10e-6 + leases * 60e-9 + failures * RESTART_S,
            disk_bytes,
        }
    }
}

/// Memory that is available within the limits of this process's control groups, bytes; `None` where the system does not say it.
fn free_bytes() -> Option<f64> {
    Some(dataset::Machine::current().ok()?.memory_bytes as f64)
}

/// Room where a folder is or will be, bytes; `None` where the system does not say it.
fn free_disk_bytes(folder: &Path) -> Option<f64> {
    let folder = std::path::absolute(folder).ok()?;
    let there = folder.ancestors().find(|path| path.exists())?;
    let room = rustix::fs::statvfs(there).ok()?;
    Some(room.f_bavail as f64 * room.f_frsize as f64)
}

/// The devices that are busy for most of the time.
struct Busiest {
    /// For which part of it; above 1 where they cannot serve what is asked.
    share: f64,
    /// Which they are.
    devices: String,
}

/// What the devices of the nodes that work can serve.
struct Cluster<'a> {
    plan: &'a Plan,
    /// The memory of a node.
    memory_bytes: f64,
    /// The mean read of the fastest device, seconds.
    fastest_s: f64,
    /// Reads/s of a node's devices: all of them, bulk and hot ones.
    capacity: [f64; 3],
    nodes: Vec<LiveNode>,
    /// Whether each read goes to the first live node of its key, however busy that is.
    is_first: bool,
    /// What `--model` says of each node.
    fitted: Option<Node>,
}

/// A node that works.
struct LiveNode {
    name: String,
    /// The speed of its devices.
    speed: f64,
    /// The part of the keys whose first live node it is.
    share: f64,
}

impl<'a> Cluster<'a> {
    fn new(plan: &'a Plan, config: &Config, laws: &[Law]) -> anyhow::Result<Cluster<'a>> {
        let ring = config.ring().context("cannot make a ring of these members")?;
        let is_live = |name: &str| !plan.lost.iter().any(|lost| lost == name);
        let live: Vec<bool> = ring.members().iter().map(|member| is_live(&member.name)).collect();
        let speed = |name: &str| {
            let slow = plan.slow.iter().rfind(|(slow, _)| slow == name);
            slow.map_or(1.0, |(_, speed)| *speed)
        };
        // Hot nodes have no keys of their own.
        let weight = |member: &Member| if member.hot { 0.0 } else { member.weight };
        let weights: f64 = ring.members().iter().map(weight).sum();
        // Looking up all keys of a large ring takes seconds, and matters where the nodes differ.
        let shares = match plan.lost.is_empty() && plan.slow.is_empty() {
            true => ring.members().iter().map(|member| weight(member) / weights).collect(),
            false => ring.shares_of(&live),
        };
        let nodes = ring.members().iter().zip(shares).filter(|(member, _)| is_live(&member.name));
        let nodes = nodes.map(|(member, share)| LiveNode {
            name: member.name.clone(),
            speed: speed(&member.name),
            share,
        });
        let devices = settings_of(config, None, ground::window::Settings::default()).devices;
        let capacity = |class: Option<Outcome>| -> f64 {
            let of = devices.iter().zip(laws);
            let of = of.filter(|(device, _)| class.is_none_or(|c| c == device.outcome));
            of.map(|(device, law)| {
                f64::from(device.servers.max(device.servers_max)) / law.mean_s().max(1e-12)
            })
            .sum()
        };
        let (bulk, hot) = (Some(Outcome::BulkDevice), Some(Outcome::HotDevice));
        let fitted = match &plan.drawn {
            Some(DrawnHits::Fitted(model)) => Some(model.node()?),
            _ => None,
        };
        Ok(Cluster {
            plan,
            fitted,
            memory_bytes: config.node.memory_bytes.0 as f64,
            fastest_s: laws.iter().map(Law::mean_s).fold(f64::INFINITY, f64::min).max(1e-12),
            capacity: [None, bulk, hot].map(capacity),
            is_first: plan.drawn.is_some() && config.gateway.spread != Spread::All,
            nodes: nodes.collect(),
        })
    }

    /// How busy devices are at a load, at least. With keys this is a bound from below: memory is taken to hold what is read
    /// most, no key to be read twice at once, and reads to go where devices are free.
    fn busiest(&self, rate: f64) -> Busiest {
        let reads = rate * self.plan.read_share;
        let [all, bulk, hot] = self.capacity;
        if let Some(node) = &self.fitted {
            let count = self.nodes.iter().filter(|node| node.share > 0.0).count().max(1) as f64;
            let load = DeviceLoad::new(node, reads / count);
            return self.of_class(count * load.reads, load.reads / load.busiest, "");
        }
        let Some(DrawnHits::Stated(hits)) = &self.plan.drawn else {
            return self.of_class(self.least_device_reads(reads), all, "");
        };
        let to_bulk = (1.0 - hits.memory - hits.hot - hits.origin).max(0.0) * reads;
        let of_bulk = self.of_class(to_bulk, bulk, "bulk ");
        let of_hot = self.of_class(hits.hot * reads, hot, "hot ");
        if of_hot.share > of_bulk.share { of_hot } else { of_bulk }
    }

    /// The same of devices that serve `capacity` reads/s in each node and are asked for `reads` in all.
    fn of_class(&self, reads: f64, capacity: f64, class: &str) -> Busiest {
        let of_all = || format!("the nodes' {class}devices");
        if reads == 0.0 || self.nodes.is_empty() {
            return Busiest { share: 0.0, devices: of_all() };
        }
        if !self.is_first {
            let speeds: f64 = self.nodes.iter().map(|node| node.speed).sum();
            return Busiest { share: reads / (capacity * speeds), devices: of_all() };
        }
        let busy = |node: &LiveNode| reads * node.share / (capacity * node.speed);
        let shares: Vec<f64> = self.nodes.iter().map(busy).collect();
        let most = shares.iter().copied().fold(0.0, f64::max);
        let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
        let is_one = most >= 1.0 && least < 1.0;
        let names = self.nodes.iter().zip(&shares).filter(|(_, share)| **share == most);
        let name = names.map(|(node, _)| node.name.as_str()).next().unwrap_or_default();
        let devices = if is_one { format!("the {class}devices of {name}") } else { of_all() };
        Busiest { share: most, devices }
    }

    /// The largest load up to one that keeps devices busy for [`BUSY`] of the time at most.
    fn fitting_rate(&self, rate: f64) -> f64 {
        const HALVINGS: u32 = 60;
        let (mut fits, mut too_much) = (0.0, rate);
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(fits, too_much);
            if self.busiest(middle).share <= BUSY { fits = middle } else { too_much = middle }
        }
        fits
    }

    /// Reads/s of all devices, at least.
    fn least_device_reads(&self, reads: f64) -> f64 {
        let plan = self.plan;
        let memory = self.nodes.len() as f64 * self.memory_bytes;
        let held = (memory / (plan.bytes.0 as f64 + 1.0)).min(f64::from(plan.keys)) as u32;
        let exponent = match plan.popularity {
            Popularity::Uniform => 0.0,
            Popularity::Zipf(s) => s,
        };
        let weight = |rank: u32| f64::from(rank).powf(-exponent);
        let sum = over_ranks(0, plan.keys, weight);
        // Readers of a key share a read that is under way.
        let most = 1.0 / self.fastest_s;
        over_ranks(held, plan.keys, |rank| (reads * weight(rank) / sum).min(most))
    }
}

/// The sum of a function over the ranks above `from` up to `to`; of later ones, where it changes little, one of each hundredth.
fn over_ranks(from: u32, to: u32, of: impl Fn(u32) -> f64) -> f64 {
    let (mut rank, mut sum) = (from, 0.0);
    while rank < to {
        let block = (rank / 100).clamp(1, to - rank);
        sum += f64::from(block) * of(rank + block.div_ceil(2));
        rank += block;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_over_ranks_is_that_of_all() {
        for exponent in [0.0, 0.9, 1.2] {
            let of = |rank: u32| f64::from(rank).powf(-exponent);
            let exact: f64 = (71..=100_000).map(of).sum();
            let sum = over_ranks(70, 100_000, of);
            assert!((sum / exact - 1.0).abs() < 0.01, "{exponent}: {sum}, {exact}");
        }
    }

    #[test]
    fn runs_follow_each_other_where_they_do_not_go_side_by_side() {
        for (count, at_once, expected) in [(1, 1, 1.0), (8, 2, 4.0), (9, 2, 5.0), (2, 8, 1.0)] {
            assert_eq!(Runs { count, at_once }.in_turn(), expected);
        }
    }

    #[test]
    fn room_on_disk_is_that_of_the_folder_that_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let room = free_disk_bytes(&dir.path().join("not/yet/there"));
        assert!(room.is_some_and(|bytes| bytes > 0.0));
    }
}
