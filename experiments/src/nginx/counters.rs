//! From what a disk counted and what a client timed to windows that a fit reads.
//!
//! A service that is not ours says of no reply who answered it. The paper takes what came within a
//! millisecond for answered by memory; here the disks' counters say *how many* requests made a read, and
//! the slowest so many are taken for them. The paper's own threshold stays what its model is fitted by.

use ground::window::{
    Histogram, KernelDevice, Operation, Outcome, QueueName, ServiceByNumber, Times, Window,
};
use serde::Deserialize;

use record::RunFolder;

/// A line of `slowdisk`.
#[derive(Debug, Deserialize)]
pub(super) struct Line {
    start_unix_us: u64,
    length_s: f64,
    disks: Vec<Counters>,
}

/// What one of its disks counted.
#[derive(Debug, Deserialize)]
struct Counters {
    arrivals: u64,
    reads: u64,
    read_bytes: u64,
    met: u64,
    busy_s: f64,
    queue_s: f64,
    waiting: Histogram,
    service: Histogram,
    response: Histogram,
}

/// The windows of the disks' queues that a line stands for.
pub(super) fn windows(line: Line) -> Vec<Window> {
    let (start, length_s) = (line.start_unix_us, line.length_s);
    let of_disk = |(number, disk): (usize, Counters)| {
        let mut window = Window::new(&QueueName::of_device(number), start, 1, &[]);
        window.length_s = length_s;
        window.arrivals = disk.arrivals;
        window.completions = disk.reads;
        window.bytes = disk.read_bytes;
        window.length_met_sum = disk.met;
        window.length_integral_s = disk.queue_s;
        window.busy_s = disk.busy_s;
        window.kernel = Some(KernelDevice {
            reads: disk.reads,
            writes: 0,
            await_ms: disk.response.mean_s() * 1e3,
            utilisation: if length_s > 0.0 { disk.busy_s / length_s } else { 0.0 },
        });
        if disk.reads > 0 {
            let (count, sum_s) = (disk.reads, disk.service.sum_s());
            window.service_by_number.push(ServiceByNumber { number: 1, count, sum_s });
            let mut times = Times::new(Operation::Get, Outcome::BulkDevice, 0);
            times.waiting = disk.waiting;
            times.service = disk.service;
            times.response = disk.response;
            window.times.push(times);
        }
        window
    };
    line.disks.into_iter().enumerate().map(of_disk).collect()
}

/// Reads and requests of a run's one step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shares {
    /// Reads of all disks for each request.
    pub reads: f64,
    /// Share of the responses under a millisecond: the paper's hit ratio.
    pub fast: f64,
    /// Share of requests that failed.
    pub failed: f64,
    /// Requests.
    pub requests: u64,
}

/// Puts what the disks counted beside a client's windows, and divides each of these into what memory
/// answered and what a disk did.
///
/// The longest responses, as many as there were reads, are the disks'. A response of the disks that is
/// quicker than one of memory is taken for that one, and that one for it: which changes neither's number,
/// and hardly their times.
pub(super) fn join(run: &mut RunFolder, disks: Vec<Window>) -> Shares {
    let mut responses = Histogram::default();
    let (mut length_s, mut completions, mut errors) = (0.0, 0, 0);
    let mut shortest_ms = f64::INFINITY;
    for window in run.windows.iter().filter(|w| w.is_of(QueueName::Load)) {
        length_s += window.length_s;
        completions += window.completions;
        errors += window.errors;
        for times in window.times.iter().filter(|t| t.outcome == Outcome::Unknown) {
            responses.merge(&times.response);
        }
        shortest_ms = window.objectives_ms.iter().fold(shortest_ms, |a, b| a.min(*b));
    }
    let inside = |w: &&Window| {
        run.steps
            .iter()
            .any(|s| w.start_unix_us >= s.start_unix_us && w.end_unix_us() <= s.end_unix_us)
    };
    let mut rates = std::collections::BTreeMap::<&str, (f64, f64)>::new();
    for window in disks.iter().filter(inside) {
        let rate = rates.entry(&window.queue).or_default();
        *rate = (rate.0 + window.completions as f64, rate.1 + window.length_s);
    }
    let reads: f64 = rates.values().filter(|r| r.1 > 0.0).map(|r| r.0 / r.1).sum();
    let rate = if length_s > 0.0 { completions as f64 / length_s } else { 0.0 };
    let reads = if rate > 0.0 { (reads / rate).min(1.0) } else { 0.0 };
    let threshold_s = responses.quantile_s(1.0 - reads).unwrap_or(1e-3);
    // Below every objective, so that counts at them stay exact.
    let threshold_s = threshold_s.min(shortest_ms * 0.9e-3);
    run.windows.iter_mut().for_each(|window| divide(window, threshold_s));
    run.windows.extend(disks);
    Shares {
        reads,
        fast: responses.share_within(1e-3).unwrap_or(0.0),
        failed: errors as f64 / completions.max(1) as f64,
        requests: completions,
    }
}

/// Divides what was answered by nobody knows whom, at a response time. What a request waited in the
/// generator is not divided: it stays with memory's.
fn divide(window: &mut Window, threshold_s: f64) {
    let all = std::mem::take(&mut window.times);
    for times in all {
        if times.outcome != Outcome::Unknown {
            window.times.push(times);
            continue;
        }
        let (quick, slow) = times.response.split_at(threshold_s);
        let count = quick.count();
        let into = |outcome, response, within: Vec<u64>| Times {
            within,
            response,
            ..Times::new(times.operation, outcome, 0)
        };
        let rest = times.within.iter().map(|n| n.saturating_sub(count)).collect();
        let disk = into(Outcome::BulkDevice, slow, rest);
        let mut memory = into(Outcome::Memory, quick, vec![count; times.within.len()]);
        memory.waiting = times.waiting;
        memory.service = times.service;
        window.times.extend([memory, disk].into_iter().filter(|t| !t.response.is_empty()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::{FORMAT, Generator, Machine, Run, Step};

    const LINE: &str = r#"{"start_unix_us":2000000,"length_s":0.5,"disks":[
        {"arrivals":3,"reads":2,"read_bytes":8192,"met":4,"busy_s":0.25,"queue_s":0.75,
         "waiting":{"n":2,"sum_ns":100,"sum_squares_s2":0.0,"max_ns":50,"buckets":[50,2]},
         "service":{"n":2,"sum_ns":200,"sum_squares_s2":0.0,"max_ns":100,"buckets":[100,2]},
         "response":{"n":2,"sum_ns":240,"sum_squares_s2":0.0,"max_ns":120,"buckets":[120,2]}},
        {"arrivals":0,"reads":0,"read_bytes":0,"met":0,"busy_s":0,"queue_s":0,
         "waiting":{"n":0,"sum_ns":0,"sum_squares_s2":0.0,"max_ns":0,"buckets":[]},
         "service":{"n":0,"sum_ns":0,"sum_squares_s2":0.0,"max_ns":0,"buckets":[]},
         "response":{"n":0,"sum_ns":0,"sum_squares_s2":0.0,"max_ns":0,"buckets":[]}}],
        "late_us_mean":1.0,"late_us_max":2.0}"#;

    #[test]
    fn counters_become_the_windows_of_queues_with_one_server() {
        let windows = windows(serde_json::from_str(LINE).unwrap());
        let names: Vec<&str> = windows.iter().map(|w| w.queue.as_str()).collect();
        assert_eq!(names, ["device/0", "device/1"]);
        let busy = &windows[0];
        assert_eq!((busy.start_unix_us, busy.end_unix_us()), (2_000_000, 2_500_000));
        assert_eq!((busy.arrivals, busy.completions, busy.length_met_sum), (3, 2, 4));
        assert_eq!((busy.utilisation(), busy.length_mean()), (Some(0.5), 1.5));
        assert_eq!(busy.times.len(), 1);
        assert_eq!(busy.times[0].service.sum_s(), 200.0 * 1e-9);
        assert_eq!(busy.times[0].response.count(), 2);
        assert_eq!(busy.kernel.map(|k| (k.reads, k.utilisation)), Some((2, 0.5)));
        assert_eq!((windows[1].completions, windows[1].times.len()), (0, 0));
    }

    /// 6 quick responses of 100 µs, 4 slow ones from 5 to 200 ms; the disks counted 4 reads.
    #[test]
    fn the_slowest_are_the_disks() {
        let mut window = Window::new("load", 1_000_000, 0, &[20.0, 100.0]);
        (window.length_s, window.arrivals, window.completions) = (1.0, 10, 10);
        let times = window.times_mut(Operation::Get, Outcome::Unknown);
        for us in [90, 95, 100, 105, 110, 120, 5_000, 15_000, 60_000, 200_000u64] {
            times.response.record(us * 1000);
            times.waiting.record(10);
        }
        times.within = vec![8, 9];
        let mut disk = Window::new("device/0", 1_100_000, 1, &[]);
        (disk.length_s, disk.completions) = (0.5, 2);
        let outside = Window { start_unix_us: 3_000_000, completions: 500, ..disk.clone() };
        let step = Step {
            index: 0,
            rate: Some(10.0),
            clients: None,
            start_unix_us: 1_000_000,
            end_unix_us: 2_000_000,
            generator: Generator::default(),
        };
        let mut run = RunFolder {
            dir: "run".into(),
            run: Run {
                format: FORMAT,
                version: String::new(),
                kind: "load".to_owned(),
                start_unix_us: 0,
                laboratory: None,
                machine: Machine::default(),
                asked: toml::Table::new(),
            },
            windows: vec![window],
            samples: Vec::new(),
            times: Vec::new(),
            host: Vec::new(),
            steps: vec![step],
        };
        let shares = join(&mut run, vec![disk, outside]);
        assert!((shares.reads - 0.4).abs() < 1e-9 && (shares.fast - 0.6).abs() < 1e-9);
        assert_eq!((shares.failed, shares.requests), (0.0, 10));
        let times = &run.windows[0].times;
        let seen: Vec<_> =
            times.iter().map(|t| (t.outcome, t.response.count(), t.within.clone())).collect();
        let expected = [(Outcome::Memory, 6, vec![6, 6]), (Outcome::BulkDevice, 4, vec![2, 3])];
        assert_eq!(seen, expected);
        assert_eq!(run.windows.len(), 3);
    }
}
