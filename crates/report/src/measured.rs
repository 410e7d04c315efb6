//! The measured figures of a step, each with its uncertainty.
//!
//! Shares within a time are of all reads that arrived: a read that ended in an error, that was dropped
//! or not answered counts as late at every time. Means and quantiles are of the reads that were answered without
//! an error, as those that the load generator prints: an error that comes at once would make a service that fails
//! faster. The other shares are of all that were answered, errors included. Their 95 % half widths come from the means of 20
//! batches of successive windows (Student's t), because successive requests wait for one another
//! and are not independent. If a share is 0 or 1 in every batch, the half width is 3/n (the "rule
//! of three").

use ground::window::{Dispersion, Histogram, Operation, Outcome, QueueName, Window};
use model::laws::{Check, TOLERANCE};
use model::statistics::batch_means;
use serde::Serialize;

use super::laws::{advice, laws};
use super::objective::time;
use super::steps::ObservedStep;
use record::Host;

/// Number of batches behind an interval.
const BATCHES: usize = 20;

/// A measured number with the half width of its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The number.
    pub value: f64,
    /// Half the width of its 95 % interval; `None` if there are too few windows.
    pub half_width: Option<f64>,
    /// Number of batches behind the interval.
    pub batches: usize,
}

/// The share of arrivals answered within a time without an error.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Within {
    /// The time, seconds.
    pub t_s: f64,
    /// The share.
    pub share: Estimate,
    /// Whether the share was counted exactly. Otherwise it is read from a histogram, whose buckets
    /// are 0.8 % wide.
    pub exact: bool,
}

/// The host's resource use during a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostUse {
    /// The run that recorded it.
    pub run: String,
    /// Mean share of all cores in use.
    pub cpu_mean: f64,
    /// Largest share of all cores in use during one second.
    pub cpu_max: f64,
    /// Mean share of processor time that the hypervisor gave to other guests.
    pub cpu_stolen: f64,
    /// Mean utilisation of the busiest disk.
    pub disk_mean: f64,
}

/// The measured figures of a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepFigures {
    /// The queue that represents the clients: `load` if it records which component answered, else
    /// `gateway` or `node`.
    pub client_queue: String,
    /// Seconds of windows.
    pub seconds: f64,
    /// Reads that were answered.
    pub requests: u64,
    /// Arrivals per second.
    pub rate: f64,
    /// Completions per second.
    pub throughput: f64,
    /// Index of dispersion of arrivals in 1/16 of a window: 1 for Poisson.
    pub dispersion: Option<f64>,
    /// Share answered within each time.
    pub within: Vec<Within>,
    /// Mean response, seconds.
    pub response_mean: Estimate,
    /// The 99th percentile of the response time, seconds, within the width of a histogram bucket.
    pub response_p99: f64,
    /// Share answered from memory.
    pub hit_ratio: Estimate,
    /// Share of each outcome.
    pub outcomes: Vec<(String, f64)>,
    /// Error replies.
    pub errors: u64,
    /// Refused requests.
    pub refusals: u64,
    /// Mean utilisation of the devices.
    pub utilisation_mean: f64,
    /// Utilisation of the busiest device.
    pub utilisation_max: f64,
    /// Mean number of requests at a device.
    pub device_length_mean: f64,
    /// The checked operational laws and their deviations.
    pub laws: Vec<Check>,
    /// Resource use of the hosts.
    pub hosts: Vec<HostUse>,
    /// Disturbances by the generator or its machine for which the step's figures are marked.
    pub marks: Vec<String>,
    /// Possible bottlenecks besides the devices, and other reasons to doubt the step.
    pub hints: Vec<String>,
    /// Response times of the reads that were answered without an error.
    #[serde(skip)]
    pub responses: Histogram,
}

/// A ratio of sums over windows, with its interval.
fn ratio(windows: &[(f64, f64)]) -> Estimate {
    let sum = |w: &[(f64, f64)]| w.iter().fold((0.0, 0.0), |s, x| (s.0 + x.0, s.1 + x.1));
    let over = |(a, b): (f64, f64)| if b > 0.0 { a / b } else { 0.0 };
    let total = sum(windows);
    let size = (windows.len() / BATCHES).max(1);
    // The oldest windows, which do not fill a batch, contribute to the value only.
    let batches: Vec<f64> = windows
        .rchunks_exact(size)
        .take(BATCHES)
        .map(sum)
        .filter(|s| s.1 > 0.0)
        .map(over)
        .collect();
    let found = batch_means(&batches);
    Estimate { value: over(total), half_width: found.map(|e| e.half_width), batches: batches.len() }
}

/// Like [`ratio`], with an interval no narrower than the number of requests allows.
fn share(windows: &[(f64, f64)]) -> Estimate {
    let mut estimate = ratio(windows);
    let n: f64 = windows.iter().map(|w| w.1).sum();
    if n > 0.0 && estimate.half_width == Some(0.0) {
        estimate.half_width = Some((3.0 / n).min(1.0));
    }
    estimate
}

/// The windows that describe what clients experienced: those nearest to the client that record
/// which component answered, by the same rule as a fit.
pub(crate) fn client_side(step: &model::fit::Step) -> (QueueName<'static>, &[Window]) {
    let [load, gateway, node] = QueueName::REQUESTS;
    let sides = [(load, &step.load), (gateway, &step.gateway), (node, &step.node)];
    let counts = |windows: &[Window]| {
        let (mut known, mut all) = (0, 0);
        for times in reads(windows) {
            all += times.response.count();
            known += if times.outcome == Outcome::Unknown { 0 } else { times.response.count() };
        }
        (known, all)
    };
    let knows = |w: &[Window]| matches!(counts(w), (known, all) if all > 0 && 2 * known >= all);
    let side =
        sides.iter().find(|s| knows(s.1)).or_else(|| sides.iter().find(|s| counts(s.1).1 > 0));
    side.map_or((load, &step.load), |(name, windows)| (*name, windows.as_slice()))
}

fn reads(windows: &[Window]) -> impl Iterator<Item = &ground::window::Times> {
    windows.iter().flat_map(|w| &w.times).filter(|t| t.operation == Operation::Get)
}

/// Measures a step: the share answered within each of `within_s` seconds, and all other figures.
pub fn measure(observed: &ObservedStep, within_s: &[f64]) -> StepFigures {
    let step = &observed.windows;
    let (client_queue, client) = client_side(step);
    let seconds: f64 = client.iter().map(|w| w.length_s).sum();
    let per_s = |n: u64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
    let arrivals: u64 = client.iter().map(|w| w.arrivals).sum();
    let completions: u64 = client.iter().map(|w| w.completions).sum();
    let (mut responses, mut requests) = (Histogram::default(), 0);
    let mut dispersion = Dispersion::default();
    let mut outcomes: Vec<(Outcome, u64)> = Vec::new();
    for times in reads(client) {
        requests += times.response.count();
        if times.outcome != Outcome::Error {
            responses.merge(&times.response);
        }
        match outcomes.iter_mut().find(|o| o.0 == times.outcome) {
            Some(outcome) => outcome.1 += times.response.count(),
            None => outcomes.push((times.outcome, times.response.count())),
        }
    }
    client.iter().for_each(|w| dispersion.merge(&w.dispersion));
    outcomes.sort();
    let of_all = |n: u64| n as f64 / requests.max(1) as f64;
    let sums = |f: &dyn Fn(&ground::window::Times) -> f64| -> Vec<(f64, f64)> {
        let window = |w: &Window| {
            reads(std::slice::from_ref(w))
                .fold((0.0, 0.0), |s, t| (s.0 + f(t), s.1 + t.response.count() as f64))
        };
        client.iter().map(window).collect()
    };
    let memory = |t: &ground::window::Times| {
        if t.outcome == Outcome::Memory { t.response.count() as f64 } else { 0.0 }
    };
    let devices = device_figures(step);
    let hosts = observed.hosts.iter().map(|(run, host)| host_use(run, host)).collect();
    let mut measured = StepFigures {
        client_queue: client_queue.to_string(),
        seconds,
        requests,
        rate: per_s(arrivals),
        throughput: per_s(completions),
        dispersion: dispersion.index(),
        within: within_s.iter().map(|&t_s| share_within(client, t_s)).collect(),
        response_mean: mean(client),
        response_p99: responses.quantile_s(0.99).unwrap_or(f64::NAN),
        hit_ratio: share(&sums(&memory)),
        outcomes: outcomes.iter().map(|(o, n)| (o.as_str().to_owned(), of_all(*n))).collect(),
        errors: client.iter().map(|w| w.errors).sum(),
        refusals: client.iter().map(|w| w.refusals).sum(),
        utilisation_mean: devices.0,
        utilisation_max: devices.1,
        device_length_mean: devices.2,
        laws: Vec::new(),
        hosts,
        marks: Vec::new(),
        hints: Vec::new(),
        responses,
    };
    measured.marks = marks(observed, &measured);
    measured.laws = laws(observed, false, TOLERANCE);
    measured.hints = hints(observed, &measured);
    measured
}

/// The mean response of the reads that were answered without an error; not a number if none was.
fn mean(client: &[Window]) -> Estimate {
    let sums = |window: &Window| {
        let answered = reads(std::slice::from_ref(window)).filter(|t| t.outcome != Outcome::Error);
        answered.fold((0.0, 0.0), |sum, t| {
            (sum.0 + t.response.sum_s(), sum.1 + t.response.count() as f64)
        })
    };
    let sums: Vec<(f64, f64)> = client.iter().map(sums).collect();
    let estimate = ratio(&sums);
    let is_none = sums.iter().all(|sum| sum.1 == 0.0);
    if is_none { Estimate { value: f64::NAN, ..estimate } } else { estimate }
}

/// The reads of each window that arrived and never completed.
///
/// Windows count arrivals of all operations, so reads have their share of what is missing. A request
/// may arrive in one window and complete in another, so the step's total is spread over the windows
/// with more arrivals than completions.
fn unanswered(client: &[Window]) -> Vec<f64> {
    let sum = |of: fn(&Window) -> u64| client.iter().map(of).sum::<u64>();
    let (arrivals, completions) = (sum(|w| w.arrivals), sum(|w| w.completions));
    let missing = arrivals.saturating_sub(completions) as f64;
    let answered: u64 = reads(client).map(|times| times.response.count()).sum();
    let of_reads = if completions > 0 { answered as f64 / completions as f64 } else { 1.0 };
    let more = |w: &Window| w.arrivals.saturating_sub(w.completions) as f64;
    let all: f64 = client.iter().map(more).sum();
    let each = if all > 0.0 { missing * of_reads / all } else { 0.0 };
    client.iter().map(|w| more(w) * each).collect()
}

/// The share within `t_s`, exact if the windows counted at that time.
fn share_within(client: &[Window], t_s: f64) -> Within {
    let mut exact = true;
    let mut sums = Vec::with_capacity(client.len());
    for (window, unanswered) in client.iter().zip(unanswered(client)) {
        let counted =
            window.objectives_ms.iter().position(|ms| (ms * 1e-3 / t_s - 1.0).abs() < 1e-9);
        exact &= counted.is_some();
        let mut sum = (0.0, unanswered);
        for times in reads(std::slice::from_ref(window)) {
            let n = times.response.count() as f64;
            sum.1 += n;
            if times.outcome == Outcome::Error {
                continue;
            }
            sum.0 += match counted.and_then(|i| times.within.get(i)) {
                Some(&within) => within as f64,
                None => times.response.share_within(t_s).unwrap_or(0.0) * n,
            };
        }
        sums.push(sum);
    }
    Within { t_s, share: share(&sums), exact }
}

/// Mean utilisation of the devices, utilisation of the busiest, and the mean number at a device.
fn device_figures(step: &model::fit::Step) -> (f64, f64, f64) {
    let (mut total, mut busiest, mut length) = (0.0, 0.0f64, 0.0);
    for windows in &step.devices {
        let capacity: f64 = windows.iter().map(|w| w.length_s * f64::from(w.servers.max(1))).sum();
        let seconds: f64 = windows.iter().map(|w| w.length_s).sum();
        let busy: f64 = windows.iter().map(|w| w.busy_s).sum();
        let utilisation = if capacity > 0.0 { busy / capacity } else { 0.0 };
        total += utilisation;
        busiest = busiest.max(utilisation);
        let integral: f64 = windows.iter().map(|w| w.length_integral_s).sum();
        length += if seconds > 0.0 { integral / seconds } else { 0.0 };
    }
    let n = step.devices.len().max(1) as f64;
    (total / n, busiest, length / n)
}

fn host_use(run: &str, host: &[Host]) -> HostUse {
    let mean = |f: fn(&Host) -> f64| host.iter().map(f).sum::<f64>() / host.len().max(1) as f64;
    let cpu = |h: &Host| h.cpu_user + h.cpu_system;
    HostUse {
        run: run.to_owned(),
        cpu_mean: mean(cpu),
        cpu_max: host.iter().map(cpu).fold(0.0, f64::max),
        cpu_stolen: mean(|h| h.cpu_stolen),
        disk_mean: mean(|h| h.disk_utilisation_max),
    }
}

/// Lateness of the generator above this share of the smallest time marks a step.
const LATENESS_SHARE_MAX: f64 = 0.1;
/// A busier processor marks a step, as a share of all cores.
const CPU_MAX: f64 = 0.8;
/// More processor time taken by other guests marks a step.
const STOLEN_MAX: f64 = 0.02;

/// The reasons why the generator or a machine may have distorted a step.
fn marks(observed: &ObservedStep, measured: &StepFigures) -> Vec<String> {
    let generator = &observed.step.generator;
    let mut marks = generator.complaints.clone();
    let smallest_s = measured.within.iter().map(|w| w.t_s).fold(f64::INFINITY, f64::min);
    let lateness_s = generator.lateness_us_p99 * 1e-6;
    if lateness_s > LATENESS_SHARE_MAX * smallest_s {
        marks.push(format!(
            "1 % of requests were sent at least {} late, against {} that are judged",
            time(lateness_s),
            time(smallest_s)
        ));
    }
    for host in &measured.hosts {
        if host.cpu_mean > CPU_MAX {
            let busy = host.cpu_mean * 100.0;
            marks.push(format!("the processor was {busy:.0} % busy ({})", host.run));
        }
        if host.cpu_stolen > STOLEN_MAX {
            let stolen = host.cpu_stolen * 100.0;
            marks.push(format!("other guests took {stolen:.0} % of the processor ({})", host.run));
        }
    }
    marks
}

fn hints(observed: &ObservedStep, measured: &StepFigures) -> Vec<String> {
    let mut hints = Vec::new();
    for host in &measured.hosts {
        if host.cpu_mean > 0.85 {
            hints.push(format!(
                "the processor was {:.0} % busy ({}): it, not the devices, may be the bottleneck",
                host.cpu_mean * 100.0,
                host.run
            ));
        }
        if host.cpu_stolen > STOLEN_MAX {
            hints.push(format!(
                "other guests of the hypervisor took {:.0} % of the processor ({})",
                host.cpu_stolen * 100.0,
                host.run
            ));
        }
        if host.disk_mean > 0.9 {
            hints.push(format!(
                "a disk of the host was {:.0} % busy ({})",
                host.disk_mean * 100.0,
                host.run
            ));
        }
    }
    if observed.disturbed_s > 0.0 {
        hints.push(format!(
            "{:.0} s of {:.0} s are excluded: other guests of the hypervisor used more of the processor \
             then than in the rest",
            observed.disturbed_s,
            observed.disturbed_s + measured.seconds
        ));
    }
    // Several runs on one host report the same figures.
    hints.sort();
    for law in &measured.laws {
        if let Some(advice) = advice(law) {
            hints.push(format!("{} is {:+.1} % off: {advice}", law.title(), law.deviation_percent));
        }
    }
    if measured.errors > 0 {
        hints.push(format!("{} replies were errors; they count as late", measured.errors));
    }
    if measured.refusals > 0 {
        hints.push(format!("{} requests were refused", measured.refusals));
    }
    if let Some(rate) = observed.step.rate {
        let off = measured.rate / rate - 1.0;
        // The standard deviation of a Poisson count is its square root.
        let chance = 4.0 / (measured.rate * measured.seconds).max(1.0).sqrt();
        if off.abs() > chance.max(0.02) {
            hints.push(format!(
                "the offered rate was {rate}/s, the measured rate {:.1}/s ({:+.1} %)",
                measured.rate,
                off * 100.0
            ));
        }
    }
    hints.extend(observed.step.generator.complaints.iter().cloned());
    hints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_that_of_all_windows_with_the_interval_of_batches() {
        // 40 windows of two: batches alternate 0.5 and 0.7, each 20 windows' mean known by hand.
        let windows: Vec<(f64, f64)> =
            (0..40).map(|i| if i / 2 % 2 == 0 { (50.0, 100.0) } else { (70.0, 100.0) }).collect();
        let estimate = share(&windows);
        assert!((estimate.value - 0.6).abs() < 1e-12);
        assert_eq!(estimate.batches, 20);
        let deviation = 0.1 * (20.0f64 / 19.0).sqrt();
        let half = model::statistics::student_95(19) * deviation / 20f64.sqrt();
        assert!((estimate.half_width.unwrap() - half).abs() < 1e-9);
    }

    #[test]
    fn a_share_of_all_is_as_sure_as_its_count() {
        assert_eq!(share(&[(10.0, 10.0); 30]).half_width, Some(0.01));
        assert_eq!(share(&[(10.0, 10.0)]).half_width, None);
        assert_eq!(share(&[]).value, 0.0);
    }

    #[test]
    fn errors_and_unanswered_reads_are_late() {
        use ground::window::Times;
        // Ten requests arrive in each window; eight are answered within 1 ms, two of these by errors.
        let windows: Vec<Window> = (0..4u64)
            .map(|i| {
                let mut window = Window::new("load", i * 1_000_000, 0, &[50.0]);
                (window.length_s, window.arrivals, window.completions) = (1.0, 10, 8);
                for (outcome, count) in [(Outcome::Memory, 6), (Outcome::Error, 2)] {
                    let mut times = Times::new(Operation::Get, outcome, 1);
                    (0..count).for_each(|_| times.response.record(1_000_000));
                    times.within = vec![count];
                    window.times.push(times);
                }
                window
            })
            .collect();
        for t_s in [0.050, 0.010] {
            let within = share_within(&windows, t_s);
            assert!((within.share.value - 0.6).abs() < 1e-12, "{within:?}");
            assert_eq!(within.exact, t_s == 0.050);
        }
        // One window's requests completed in the next one: nothing is missing.
        let mut shifted = windows[..2].to_vec();
        (shifted[0].arrivals, shifted[1].arrivals) = (12, 4);
        assert_eq!(unanswered(&shifted), [0.0, 0.0]);
        assert!((share_within(&shifted, 0.050).share.value - 0.75).abs() < 1e-12);
    }

    #[test]
    fn laws_are_checked_and_what_breaks_them_is_named() {
        use ground::window::Times;
        let mut window = Window::new("load", 0, 0, &[50.0]);
        (window.length_s, window.arrivals, window.completions) = (10.0, 100, 100);
        // Ten clients that think for 0.2 s: R = 10/10 − 0.2 = 0.8 s, L = 10 × 0.8.
        let mut times = Times::new(Operation::Get, Outcome::Memory, 1);
        (0..100).for_each(|_| times.response.record(800_000_000));
        window.times.push(times);
        window.length_integral_s = 60.0;
        let step = record::Step {
            index: 0,
            rate: None,
            clients: Some(10),
            start_unix_us: 0,
            end_unix_us: 10_000_000,
            generator: record::Generator::default(),
        };
        let windows = model::fit::Step { load: vec![window], ..model::fit::Step::default() };
        let origin = Vec::new();
        let observed = ObservedStep {
            step,
            run: 0,
            windows,
            origin,
            hosts: Vec::new(),
            think_s: 0.2,
            alone: false,
            held_out: false,
            disturbed_s: 0.0,
        };
        let measured = measure(&observed, &[0.05, 1.0]);
        let laws: Vec<(f64, f64)> =
            measured.laws.iter().map(|l| (l.measured, l.expected)).collect();
        assert_eq!(laws.len(), 2);
        assert!(measured.laws[0].deviation_percent.abs() < 1e-9, "interactive: {laws:?}");
        assert!(
            (laws[1].0 - 6.0).abs() < 1e-9 && (laws[1].1 - 8.0).abs() < 1e-9,
            "Little: {laws:?}"
        );
        assert_eq!(measured.hints.len(), 1, "{:?}", measured.hints);
        assert!(measured.hints[0].contains("Little") && measured.hints[0].contains("-25.0 %"));
        let within: Vec<(f64, bool)> =
            measured.within.iter().map(|w| (w.share.value, w.exact)).collect();
        assert_eq!(within, [(0.0, true), (1.0, false)]);
    }
}
