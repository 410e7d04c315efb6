//! Sums the windows of each step in blocks of a few seconds, and the histograms of all steps.

use std::collections::BTreeMap;

use crate::error::Error;
use ground::window::{Dispersion, Histogram, Operation, Outcome, QueueName, Window};

use super::data::{
    ClassData, DeviceData, Gathered, SaturatedStep, StalledStep, StepData, block_index, blocks_of,
};
use super::input::{Options, Step};
use super::saturated::saturated_devices;
use super::sums::{ClassSums, Counts, Sums};

/// Quantiles of the responses that become edges, plus one.
const EDGES: usize = 24;

/// The windows of the client side: those nearest to the clients that record at least half of the
/// outcomes; if there are none, those nearest to the clients that have answered reads.
pub(super) fn client_side(step: &Step) -> Result<(QueueName<'static>, &[Window]), Error> {
    let sides = [
        (QueueName::Load, &step.load),
        (QueueName::Gateway, &step.gateway),
        (QueueName::Node, &step.node),
    ];
    let counts = |windows: &[Window]| {
        let (mut known, mut all) = (0.0, 0.0);
        for times in windows.iter().flat_map(|w| &w.times) {
            if times.operation == Operation::Get {
                let count = times.response.count() as f64;
                all += count;
                known += if times.outcome == Outcome::Unknown { 0.0 } else { count };
            }
        }
        (known, all)
    };
    let knows =
        |w: &Vec<Window>| matches!(counts(w), (known, all) if all > 0.0 && 2.0 * known >= all);
    let side = sides.iter().find(|(_, w)| knows(w));
    let side = side.or_else(|| sides.iter().find(|(_, w)| counts(w).1 > 0.0));
    side.map(|(name, w)| (*name, w.as_slice()))
        .ok_or_else(|| Error::NoClientWindows { step: step.name.clone() })
}

/// Sums all windows. Cost: one pass.
pub(super) fn gather(steps: &[Step], options: &Options) -> Result<Gathered, Error> {
    let first = steps.first().ok_or(Error::NoSteps)?;
    let expected = first.devices.len();
    for step in steps {
        if step.devices.iter().all(Vec::is_empty) {
            return Err(Error::NoDeviceWindows { step: step.name.clone() });
        }
        let got = step.devices.len();
        if got != expected {
            return Err(Error::DeviceCount { step: step.name.clone(), expected, got });
        }
    }
    let (classes, mut devices) = classify(steps)?;
    let mut gathered = Gathered {
        steps: Vec::new(),
        saturated: Vec::new(),
        stalled: Vec::new(),
        classes,
        devices: Vec::new(),
        memory: Histogram::default(),
        other: Histogram::default(),
        client_queue: QueueName::Load,
        edges_s: Vec::new(),
    };
    let mut steady = Vec::new();
    for step in steps {
        let saturated = saturated_devices(step, &devices, &gathered.classes, options);
        if !saturated.is_empty() {
            let name = step.name.clone();
            gathered.saturated.push(SaturatedStep { name, devices: saturated });
            continue;
        }
        let (queue, client) = client_side(step)?;
        if busiest(step) < BUSY_MAX && stalls(client) {
            let (start, block_us) = blocks_of(client.iter(), options);
            let mut blocks: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
            for window in client {
                let block = blocks.entry(block_index(window, start, block_us)).or_default();
                block.0 += window.bytes as f64;
                block.1 += window.length_s;
            }
            let (name, blocks) = (step.name.clone(), blocks.into_values().collect());
            gathered.stalled.push(StalledStep { name, blocks });
            continue;
        }
        gathered.client_queue = queue;
        for times in client.iter().flat_map(|w| &w.times) {
            if times.operation != Operation::Get || times.outcome.is_device() {
                continue;
            }
            let memory = times.outcome == Outcome::Memory;
            let into = if memory { &mut gathered.memory } else { &mut gathered.other };
            into.merge(&times.response);
        }
        let data = gather_step(step, client, &mut devices, gathered.classes.len(), options);
        if data.utilisation_max > 0.995 {
            let utilisation = data.utilisation_max;
            return Err(Error::Overloaded { step: step.name.clone(), utilisation });
        }
        gathered.steps.push(data);
        steady.push(client);
    }
    if gathered.steps.is_empty() {
        if let Some(step) = gathered.saturated.first() {
            return Err(Error::Overloaded { step: step.name.clone(), utilisation: 1.0 });
        }
        if let Some(step) = gathered.stalled.first() {
            return Err(Error::Stalled { step: step.name.clone() });
        }
    }
    gathered.devices = devices;
    count_responses(&mut gathered, &steady);
    Ok(gathered)
}

/// If the busiest device of a step has at least this utilisation, it may be the reason why replies
/// fell behind.
const BUSY_MAX: f64 = 0.9;

/// Utilisation of the busiest device of a step.
fn busiest(step: &Step) -> f64 {
    let of = |windows: &Vec<Window>| {
        let busy: f64 = windows.iter().map(|w| w.busy_s).sum();
        let time: f64 = windows.iter().map(|w| w.length_s * f64::from(w.servers.max(1))).sum();
        if time > 0.0 { busy / time } else { 0.0 }
    };
    step.devices.iter().map(of).fold(0.0, f64::max)
}

/// Smallest share of a step's arrivals without a reply that counts as falling behind.
const PILE_MIN: f64 = 0.03;

/// Whether the replies of a step fell behind its arrivals, so that something before the devices
/// limits it.
///
/// The number of missing replies must exceed what the end of a step can cut off by chance. They
/// must also have accumulated: in the last quarter of the step the mean number outstanding is at
/// least half of it.
fn stalls(client: &[Window]) -> bool {
    let count = |f: &dyn Fn(&Window) -> u64| client.iter().map(|w| f(w) as f64).sum::<f64>();
    let (arrivals, answered) = (count(&|w| w.arrivals), count(&|w| w.completions));
    let behind = arrivals - answered - count(&|w| w.refusals);
    let last = client.get(client.len() - client.len().div_ceil(4)..).unwrap_or_default();
    let outstanding =
        |w: &Window| if w.length_s > 0.0 { w.length_integral_s / w.length_s } else { 0.0 };
    let piled = last.iter().map(outstanding).sum::<f64>() / last.len().max(1) as f64;
    behind > PILE_MIN * arrivals && behind > 6.0 * arrivals.sqrt() && piled > 0.5 * behind
}

/// Chooses the edges, and counts the clients' responses within each edge in every block.
fn count_responses(gathered: &mut Gathered, clients: &[&[Window]]) {
    let mut all = Histogram::default();
    gathered.steps.iter().for_each(|step| all.merge(&step.responses));
    // The top of the bucket that holds the quantile, so that no bucket is split between two counts.
    let edge = |i: usize| Some(all.quantile_s(i as f64 / EDGES as f64)? * (1.0 + 1.0 / 128.0));
    let mut edges: Vec<f64> = (1..EDGES).filter_map(edge).filter(|t| *t > 0.0).collect();
    edges.dedup_by(|a, b| *a <= *b * (1.0 + 1.0 / 64.0));
    for (step, client) in gathered.steps.iter_mut().zip(clients) {
        step.blocks.iter_mut().for_each(|block| block.within = vec![0.0; edges.len()]);
        for window in *client {
            let index = block_index(window, step.start_us, step.block_us);
            let found = step.block_numbers.binary_search(&index).ok();
            let Some(block) = found.and_then(|i| step.blocks.get_mut(i)) else { continue };
            for times in window.times.iter().filter(|t| t.operation == Operation::Get) {
                let n = times.response.count() as f64;
                for (count, edge) in block.within.iter_mut().zip(&edges) {
                    *count += n * times.response.share_within(*edge).unwrap_or(0.0);
                }
            }
        }
        step.total.within = vec![0.0; edges.len()];
        for block in &step.blocks {
            let counts = step.total.within.iter_mut().zip(&block.within);
            counts.for_each(|(total, count)| *total += count);
        }
    }
    gathered.edges_s = edges;
}

/// The classes of the devices and the service times of each device. The class of a device is the
/// most frequent outcome of its services.
fn classify(steps: &[Step]) -> Result<(Vec<ClassData>, Vec<DeviceData>), Error> {
    let mut classes: Vec<ClassData> = Vec::new();
    let mut devices = Vec::new();
    for device in 0..steps.first().map_or(0, |s| s.devices.len()) {
        let windows = || steps.iter().flat_map(|s| &s.devices[device]);
        let mut outcomes: BTreeMap<Outcome, u64> = BTreeMap::new();
        let mut service = Histogram::default();
        for times in windows().flat_map(|w| &w.times) {
            let count = outcomes.entry(times.outcome).or_insert(0);
            *count = count.saturating_add(times.service.count());
            service.merge(&times.service);
        }
        let outcome = outcomes.iter().max_by_key(|(_, n)| **n).map(|(o, _)| *o);
        let servers = windows().map(|w| w.servers).max().unwrap_or(0);
        if let Some(unlimited) = windows().find(|w| w.servers == 0) {
            return Err(Error::Unlimited { queue: unlimited.queue.clone() });
        }
        // A device that served nothing belongs to the first class, and says nothing of its servers.
        let name = outcome.map(Outcome::as_str);
        let known = name.and_then(|name| classes.iter().position(|c| c.name == name));
        let class = known.unwrap_or_else(|| match name {
            None => 0,
            Some(name) => {
                let (name, service) = (name.to_owned(), Histogram::default());
                classes.push(ClassData { name, servers, servers_max: servers, service });
                classes.len() - 1
            }
        });
        if let Some(data) = classes.get_mut(class).filter(|_| name.is_some()) {
            data.servers = data.servers.min(servers);
            data.servers_max = data.servers_max.max(servers);
            data.service.merge(&service);
        }
        let mut sums = ClassSums::default();
        sums.add_services(&service);
        devices.push(DeviceData { class, reads: 0.0, service: sums });
    }
    if classes.iter().any(|c| c.service.mean_s() <= 0.0) || classes.is_empty() {
        return Err(Error::NoCompletions);
    }
    Ok((classes, devices))
}

fn gather_step(
    step: &Step,
    client: &[Window],
    devices: &mut [DeviceData],
    classes: usize,
    options: &Options,
) -> StepData {
    let all = client.iter().chain(&step.node).chain(step.devices.iter().flatten());
    let (start, block_us) = blocks_of(all, options);
    let mut blocks: BTreeMap<u64, Sums> = BTreeMap::new();
    let mut block = |window: &Window, add: &mut dyn FnMut(&mut Sums)| {
        let index = block_index(window, start, block_us);
        add(blocks.entry(index).or_insert_with(|| Sums::new(classes)));
    };
    let mut merged = Window::new("", start, 0, client.first().map_or(&[], |w| &w.objectives_ms));
    // Windows of another length are left out: their counts would vary with the length.
    let window_s = client.first().map_or(0.0, |w| w.length_s);
    for window in client {
        block(window, &mut |sums| {
            sums.add_client(window);
            if (window.length_s - window_s).abs() <= 0.01 * window_s {
                sums.counts[1]
                    .add(&Counts::from_interval(window.length_s, window.arrivals as f64), 1.0);
            }
        });
        if window.objectives_ms == merged.objectives_ms {
            merged.merge(window, false);
        }
    }
    for window in &step.node {
        block(window, &mut |sums| {
            sums.joined += window.joined as f64;
            sums.node_time += window.length_s;
        });
    }
    let mut utilisation_max = 0.0f64;
    let mut device_dispersion = Dispersion::default();
    for (windows, device) in step.devices.iter().zip(devices.iter_mut()) {
        let (mut busy, mut time) = (0.0, 0.0);
        for window in windows {
            block(window, &mut |sums| sums.add_device(window, device.class));
            device.reads += window.arrivals as f64;
            busy += window.busy_s;
            time += window.length_s * f64::from(window.servers);
            device_dispersion.merge(&window.dispersion);
        }
        utilisation_max = utilisation_max.max(if time > 0.0 { busy / time } else { 0.0 });
    }
    let (block_numbers, mut blocks): (Vec<u64>, Vec<Sums>) = blocks.into_iter().unzip();
    let longest = blocks.iter().map(|b| b.time).fold(0.0, f64::max);
    for block in blocks.iter_mut().filter(|b| b.time >= 0.99 * longest) {
        block.counts[2] = Counts::from_interval(block.time, block.arrivals);
    }
    let mut total = Sums::new(classes);
    blocks.iter().for_each(|b| total.add(b));
    let mut responses = Histogram::default();
    let mut within: Vec<(f64, u64)> =
        merged.objectives_ms.iter().map(|ms| (ms * 1e-3, 0)).collect();
    let (mut late, mut answered) = (0.0, 0u64);
    for times in &merged.times {
        answered = answered.saturating_add(times.response.count());
        late += times.waiting.sum_s();
        if times.operation == Operation::Get {
            responses.merge(&times.response);
            let within = within.iter_mut().zip(&times.within);
            within.for_each(|(w, n)| w.1 = w.1.saturating_add(*n));
        }
    }
    StepData {
        name: step.name.clone(),
        blocks,
        total,
        within,
        dispersion: merged.dispersion,
        device_dispersion,
        lateness_s: late / answered.max(1) as f64,
        refusals: merged.refusals,
        errors: merged.errors,
        not_reads: answered.saturating_sub(responses.count()),
        responses,
        utilisation_max,
        start_us: start,
        block_us,
        block_numbers,
    }
}
