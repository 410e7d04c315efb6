//! What is refused before it runs: a load that no queue survives, and a run that is too large for this machine.

use std::path::Path;

use anyhow::{bail, ensure};
use configuration::Config;
use engine::sim::Law;
use ground::number::{digits, percent, time};
use ground::window::Outcome;
use load::Popularity;
use node::settings::settings_of;

use super::drawn::{check_plan, window_s};
use super::plan::Plan;

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

/// What is `part` of all runs.
fn what_fits(plan: &Plan, runs: Runs, part: f64) -> String {
    let span_s = (plan.warmup_s + plan.duration_s) * part;
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
    for &rate in &plan.rates {
        let peak = rate * plan.course.peak(plan.span());
        let (busy, class) = utilisation(plan, config, laws, peak);
        ensure!(
            busy < 1.0,
            "{peak:.0} requests/s would keep the {class} devices busy for {} of the time, so that their queues only grow; \
             up to about {} requests/s fit: lower --rate, add nodes, devices or memory, or see it with --unstable",
            percent(busy, 0),
            digits(rate * BUSY / busy, 3)
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

/// At least so much of the time the busiest class of devices is busy, on the mean of all nodes, and which that is. With keys this
/// is a bound from below: memory is taken to hold what is read most, and no key to be read twice at once.
fn utilisation(plan: &Plan, config: &Config, laws: &[Law], rate: f64) -> (f64, &'static str) {
    let nodes = config.members.len().max(1) as f64;
    let devices = settings_of(config, None, ground::window::Settings::default()).devices;
    let capacity = |class: Option<Outcome>| -> f64 {
        let of = devices
            .iter()
            .zip(laws)
            .filter(|(device, _)| class.is_none_or(|c| c == device.outcome));
        let parallel = |servers: u32, most: u32| f64::from(servers.max(most));
        let each = of.map(|(device, law)| {
            parallel(device.servers, device.servers_max) / law.mean_s().max(1e-12)
        });
        nodes * each.sum::<f64>()
    };
    let reads = rate * plan.read_share;
    match plan.drawn {
        Some(hits) => {
            let bulk = (1.0 - hits.memory - hits.hot - hits.origin).max(0.0);
            let busy = |share: f64, class| match share * reads {
                0.0 => 0.0,
                reads => reads / capacity(Some(class)),
            };
            let (bulk, hot) = (busy(bulk, Outcome::BulkDevice), busy(hits.hot, Outcome::HotDevice));
            if hot > bulk { (hot, "hot") } else { (bulk, "bulk") }
        }
        None => (least_device_reads(plan, config, laws, reads) / capacity(None), "node's"),
    }
}

/// Reads/s of all devices, at least.
fn least_device_reads(plan: &Plan, config: &Config, laws: &[Law], reads: f64) -> f64 {
    let nodes = config.members.len().max(1) as f64;
    let memory = nodes * config.node.memory_bytes.0 as f64;
    let held = (memory / (plan.bytes.0 as f64 + 1.0)).min(f64::from(plan.keys)) as u32;
    let exponent = match plan.popularity {
        Popularity::Uniform => 0.0,
        Popularity::Zipf(s) => s,
    };
    let weight = |rank: u32| f64::from(rank).powf(-exponent);
    let sum = over_ranks(0, plan.keys, weight);
    // Readers of a key share a read that is under way.
    let fastest = laws.iter().map(Law::mean_s).fold(f64::INFINITY, f64::min).max(1e-12);
    over_ranks(held, plan.keys, |rank| (reads * weight(rank) / sum).min(1.0 / fastest))
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
