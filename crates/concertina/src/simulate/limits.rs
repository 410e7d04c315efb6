//! What is refused before it runs: a load that no queue survives, and a run that is too large for this machine.

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

/// Refuses an unstable step and a run that needs more memory or time than there is; `threads` runs go on side by side.
pub(super) fn check(
    plan: &Plan,
    config: &Config,
    laws: &[Law],
    threads: usize,
) -> anyhow::Result<()> {
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
    if needs.seconds > LONGEST_S {
        let sooner = match plan.drawn {
            None => "; drawn hits (--keys drawn) are several times as fast",
            Some(_) => "",
        };
        bail!(
            "the simulation would take about {} on one processor: a --duration of {} fits in a day{sooner}",
            time(needs.seconds),
            time(plan.duration_s * LONGEST_S / needs.seconds),
        );
    }
    if plan.unstable { Ok(()) } else { check_stable(plan, config, laws) }
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

/// What a run takes, roughly: measured with `cargo bench -p engine --bench simulator` on two busy processors (2026-11-29, docs/simulate.md).
struct Needs {
    bytes: f64,
    seconds: f64,
}

impl Needs {
    fn estimate(plan: &Plan, config: &Config) -> Needs {
        let nodes = config.members.len().max(1) as f64;
        let span_s = plan.warmup_s + plan.duration_s;
        let requests: f64 = plan.rates.iter().map(|rate| rate * span_s).sum();
        let devices: u32 = config.devices.iter().map(|group| group.count).sum();
        let windows = plan.rates.len() as f64 * span_s / window_s(plan, config)
            * nodes
            * (3.0 + f64::from(devices));
        let trace = plan.course.times.as_ref().map_or(0.0, |_| 8.0 * requests);
        let own = nodes * NODE_BYTES + trace + 20e6;
        if plan.drawn.is_some() {
            return Needs { bytes: own, seconds: requests * 0.5e-6 + windows * 20e-6 };
        }
        let faulty = !plan.faults.is_empty() || plan.chance.is_some() || !plan.lost.is_empty();
        // With faults each node asks each other for its lease several times in its term.
        let asks = if faulty { 3.3 / config.cluster.lease_s.max(1e-3) } else { 0.0 };
        let leases = nodes * nodes * asks * span_s * plan.rates.len() as f64;
        let each_s = if nodes > 1.0 { 5e-6 } else { 2e-6 };
        Needs {
            bytes: own + f64::from(plan.keys) * KEY_BYTES + nodes * nodes * PAIR_BYTES,
            seconds: requests * each_s + windows * 10e-6 + leases * 60e-9,
        }
    }
}

/// Memory that is available within the limits of this process's control groups, bytes; `None` where the system does not say it.
fn free_bytes() -> Option<f64> {
    Some(dataset::Machine::current().ok()?.memory_bytes as f64)
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
}
