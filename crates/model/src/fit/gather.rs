//! Sums of windows: for each step, in blocks of a few seconds; for all steps, histograms.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::window::{Dispersion, Histogram, Operation, Outcome, Window};

use super::saturated::{SaturatedStep, saturated_devices};
use super::{Options, Step};

/// Sums of the services of one class of devices.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClassSums {
    /// Services, sum of their times (s) and of the squares.
    pub n: f64,
    pub sum: f64,
    pub squares: f64,
    /// What the kernel saw beside the reads: writes, seconds that a device was busy beyond its reads, and the
    /// seconds that writes may have been it at most (by their share of all I/Os); over so many seconds.
    pub other_n: f64,
    pub other_s: f64,
    pub other_most_s: f64,
    pub watched_s: f64,
}

/// Scales of time at which arrivals are counted: sub-intervals of windows, windows, blocks.
pub(super) const SCALES: usize = 3;
/// Sub-intervals of a window, by [`Window::dispersion`].
const SUB_INTERVALS: f64 = 16.0;

/// Counts of arrivals in intervals of one length.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Intervals, and their length together in seconds.
    pub n: f64,
    pub seconds: f64,
    /// Sum of the counts and of their squares.
    pub sum: f64,
    pub squares: f64,
}

impl Counts {
    fn add(&mut self, o: &Counts, weight: f64) {
        self.n += weight * o.n;
        self.seconds += weight * o.seconds;
        self.sum += weight * o.sum;
        self.squares += weight * o.squares;
    }

    /// One interval.
    fn one(seconds: f64, count: f64) -> Counts {
        Counts { n: 1.0, seconds, sum: count, squares: count * count }
    }
}

/// Sums over a stretch of time, of all that parameters are estimated from.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    /// Client side: seconds, arrivals.
    pub time: f64,
    pub arrivals: f64,
    /// Answered reads: all, from memory, by neither memory nor devices, under 1 ms.
    pub requests: f64,
    pub memory: f64,
    pub other: f64,
    pub fast: f64,
    /// Reads answered by devices, as clients see them: count and sum of responses, and of their squares.
    pub client_device_n: f64,
    pub client_device_s: f64,
    pub client_device_squares: f64,
    /// Replies: how many, their bytes, and the squares of these.
    pub replies: f64,
    pub bytes: f64,
    pub bytes_squared: f64,
    /// Reads joined to others, and seconds of the node's windows.
    pub joined: f64,
    pub node_time: f64,
    /// Device queues: seconds × devices, integral of lengths, arrivals, responses, busy time.
    pub device_time: f64,
    pub length_integral: f64,
    pub reads: f64,
    pub response_n: f64,
    pub response_s: f64,
    pub response_squares: f64,
    pub busy: f64,
    pub completions: f64,
    pub classes: Vec<ClassSums>,
    /// Responses that clients had within each of [`Gathered::edges_s`].
    pub within: Vec<f64>,
    /// Arrivals at the client side, at each scale of time.
    pub counts: [Counts; SCALES],
}

impl Sums {
    pub fn new(classes: usize) -> Self {
        Sums { classes: vec![ClassSums::default(); classes], ..Sums::default() }
    }

    /// Adds all of another.
    pub fn add(&mut self, o: &Sums) {
        self.add_weighted(o, 1.0);
    }

    /// Adds all of another as if it had been `weight` times as long.
    pub fn add_weighted(&mut self, o: &Sums, weight: f64) {
        self.time += weight * o.time;
        self.arrivals += weight * o.arrivals;
        self.requests += weight * o.requests;
        self.memory += weight * o.memory;
        self.other += weight * o.other;
        self.fast += weight * o.fast;
        self.client_device_n += weight * o.client_device_n;
        self.client_device_s += weight * o.client_device_s;
        self.client_device_squares += weight * o.client_device_squares;
        self.replies += weight * o.replies;
        self.bytes += weight * o.bytes;
        self.bytes_squared += weight * o.bytes_squared;
        self.joined += weight * o.joined;
        self.node_time += weight * o.node_time;
        self.device_time += weight * o.device_time;
        self.length_integral += weight * o.length_integral;
        self.reads += weight * o.reads;
        self.response_n += weight * o.response_n;
        self.response_s += weight * o.response_s;
        self.response_squares += weight * o.response_squares;
        self.busy += weight * o.busy;
        self.completions += weight * o.completions;
        for (mine, theirs) in self.classes.iter_mut().zip(&o.classes) {
            mine.n += weight * theirs.n;
            mine.sum += weight * theirs.sum;
            mine.squares += weight * theirs.squares;
            mine.other_n += weight * theirs.other_n;
            mine.other_s += weight * theirs.other_s;
            mine.other_most_s += weight * theirs.other_most_s;
            mine.watched_s += weight * theirs.watched_s;
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&o.counts) {
            mine.add(theirs, weight);
        }
        self.within.resize(self.within.len().max(o.within.len()), 0.0);
        for (mine, theirs) in self.within.iter_mut().zip(&o.within) {
            *mine += weight * theirs;
        }
    }

    /// Arrivals per second.
    pub fn rate(&self) -> f64 {
        if self.time > 0.0 { self.arrivals / self.time } else { 0.0 }
    }

    fn add_client(&mut self, window: &Window) {
        self.time += window.length_s;
        self.arrivals += window.arrivals as f64;
        self.replies += window.completions as f64;
        self.bytes += window.bytes as f64;
        self.bytes_squared += window.bytes_squared;
        let dispersion = &window.dispersion;
        let n = dispersion.intervals as f64;
        let sub_intervals = Counts {
            n,
            seconds: n * window.length_s / SUB_INTERVALS,
            sum: dispersion.sum as f64,
            squares: dispersion.sum_of_squares as f64,
        };
        self.counts[0].add(&sub_intervals, 1.0);
        for times in window.times.iter().filter(|t| t.operation == Operation::Get) {
            let (n, sum) = (times.response.count() as f64, times.response.sum_s());
            let squares = sum_of_squares(&times.response);
            self.requests += n;
            self.fast += n * times.response.share_within(1e-3).unwrap_or(0.0);
            if times.outcome == Outcome::Memory {
                self.memory += n;
            } else if times.outcome.is_device() {
                self.client_device_n += n;
                self.client_device_s += sum;
                self.client_device_squares += squares;
            } else {
                self.other += n;
            }
        }
    }

    fn add_device(&mut self, window: &Window, class: usize) {
        self.device_time += window.length_s;
        self.length_integral += window.length_integral_s;
        self.reads += (window.arrivals - window.refusals.min(window.arrivals)) as f64;
        self.busy += window.busy_s;
        self.completions += window.completions as f64;
        for times in &window.times {
            self.response_n += times.response.count() as f64;
            self.response_s += times.response.sum_s();
            self.response_squares += sum_of_squares(&times.response);
            let sums = &mut self.classes[class];
            add_service(sums, &times.service);
        }
        if let (Some(kernel), Some(sums)) = (&window.kernel, self.classes.get_mut(class)) {
            // Reads side by side keep a device busy for no longer than one after the other. Signed: what one
            // window has too much, for its counters are read at another instant, the next has too little.
            let busy_s = kernel.utilisation.clamp(0.0, 1.0) * window.length_s;
            let (reads, writes) = (kernel.reads as f64, kernel.writes as f64);
            sums.other_n += writes;
            sums.other_s += busy_s - window.busy_s;
            sums.other_most_s += busy_s * writes / (reads + writes).max(1.0);
            sums.watched_s += window.length_s;
        }
    }
}

/// Adds the times of a histogram, by its exact sums.
fn add_service(sums: &mut ClassSums, times: &Histogram) {
    sums.n += times.count() as f64;
    sums.sum += times.sum_s();
    sums.squares += sum_of_squares(times);
}

fn sum_of_squares(times: &Histogram) -> f64 {
    let (n, mean) = (times.count() as f64, times.mean_s());
    times.variance_s2() * (n - 1.0).max(0.0) + n * mean * mean
}

/// A class of devices, over all steps.
#[derive(Clone, Debug)]
pub(super) struct ClassData {
    pub name: String,
    pub servers: u32,
    pub service: Histogram,
}

/// A device, over all steps.
#[derive(Clone, Debug, Default)]
pub(super) struct DeviceData {
    pub class: usize,
    pub reads: f64,
    pub service: ClassSums,
}

/// A step, gathered.
#[derive(Clone, Debug)]
pub(super) struct StepData {
    pub name: String,
    pub blocks: Vec<Sums>,
    pub total: Sums,
    /// Responses of all reads that clients had answered.
    pub responses: Histogram,
    /// Objectives in seconds and how many were within each.
    pub within: Vec<(f64, u64)>,
    pub dispersion: Dispersion,
    pub device_dispersion: Dispersion,
    /// Mean time in seconds by which the load generator sent late.
    pub lateness_s: f64,
    /// Arrivals, refusals, errors at the client side; answered requests that were no reads.
    pub refusals: u64,
    pub errors: u64,
    pub not_reads: u64,
    pub utilisation_max: f64,
    /// Where blocks begin and how long they are, microseconds.
    start_us: u64,
    block_us: f64,
    /// The numbers of the blocks, ascending.
    block_numbers: Vec<u64>,
}

/// A step that stood still before the devices: it says how much went through, and nothing else.
#[derive(Clone, Debug)]
pub(super) struct StalledStep {
    pub name: String,
    /// Bytes of replies and seconds, of each block.
    pub blocks: Vec<(f64, f64)>,
}

/// All steps, gathered.
#[derive(Clone, Debug)]
pub(super) struct Gathered {
    /// Steady steps.
    pub steps: Vec<StepData>,
    /// Steps at or past saturation.
    pub saturated: Vec<SaturatedStep>,
    /// Steps that stood still before the devices.
    pub stalled: Vec<StalledStep>,
    pub classes: Vec<ClassData>,
    pub devices: Vec<DeviceData>,
    pub memory: Histogram,
    pub other: Histogram,
    /// Which queue was taken for the client side.
    pub client_queue: String,
    /// Times at which the clients' responses are counted in each block, seconds, ascending.
    pub edges_s: Vec<f64>,
}

/// How many times responses are counted at.
const EDGES: usize = 24;
/// The windows that say what clients saw: those nearest to the client that know who answered.
pub(super) fn client_side(step: &Step) -> Result<(&'static str, &[Window]), Error> {
    let sides = [("load", &step.load), ("gateway", &step.gateway), ("node", &step.node)];
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
        client_queue: String::new(),
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
        gathered.client_queue = queue.to_owned();
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

/// Utilisation of a step's busiest device from which on it may be to blame for what falls behind.
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

/// Share of the arrivals that are not answered within a step by which it is known that they pile up.
const PILE_MIN: f64 = 0.03;

/// Whether replies of a step fell behind its arrivals, while no device was to blame: something before the devices
/// lets no more through. It is more than an end of a step can cut off by chance, and it piles up: in the last
/// quarter of the step there are as many outstanding, for the most part.
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

/// Counts what clients had answered within each of some times, in every block.
fn count_responses(gathered: &mut Gathered, clients: &[&[Window]]) {
    let mut all = Histogram::default();
    gathered.steps.iter().for_each(|step| all.merge(&step.responses));
    // At the top of the bucket that holds the quantile, so that a bucket is not cut.
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

/// The number of the block that a window begins in.
pub(super) fn block_index(window: &Window, start_us: u64, block_us: f64) -> u64 {
    (window.start_unix_us.saturating_sub(start_us) as f64 / block_us) as u64
}

/// Where the windows of a step begin, and how long its blocks are, microseconds.
pub(super) fn blocks_of<'a>(
    windows: impl Iterator<Item = &'a Window> + Clone,
    options: &Options,
) -> (u64, f64) {
    let start = windows.clone().map(|w| w.start_unix_us).min().unwrap_or(0);
    let end = windows.map(Window::end_unix_us).max().unwrap_or(start);
    let span = end.saturating_sub(start) as f64 * 1e-6;
    let wanted = if options.block_s > 0.0 { options.block_s } else { f64::INFINITY };
    (start, (wanted.min(span / 8.0) * 1e6).max(1.0))
}

/// The classes of the devices, by the outcome that most of their services had, and their services.
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
        // A device that served nothing is counted with the first class.
        let name = outcome.map(Outcome::as_str);
        let known = name.and_then(|name| classes.iter().position(|c| c.name == name));
        let class = known.unwrap_or_else(|| match name {
            None => 0,
            Some(name) => {
                let (name, service) = (name.to_owned(), Histogram::default());
                classes.push(ClassData { name, servers: 0, service });
                classes.len() - 1
            }
        });
        if let Some(data) = classes.get_mut(class) {
            data.servers = data.servers.max(servers);
            data.service.merge(&service);
        }
        let mut sums = ClassSums::default();
        add_service(&mut sums, &service);
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
    // Counts of intervals of another length would differ by that alone.
    let window_s = client.first().map_or(0.0, |w| w.length_s);
    for window in client {
        block(window, &mut |sums| {
            sums.add_client(window);
            if (window.length_s - window_s).abs() <= 0.01 * window_s {
                sums.counts[1].add(&Counts::one(window.length_s, window.arrivals as f64), 1.0);
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
        block.counts[2] = Counts::one(block.time, block.arrivals);
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
