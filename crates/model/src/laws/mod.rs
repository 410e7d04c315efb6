//! Operational laws, which hold for every measured system.
//!
//! They follow from counting alone (Denning, Buzen: "The Operational Analysis of Queueing Network
//! Models", ACM Computing Surveys 10(3), 1978; Lazowska, Zahorjan, Graham, Sevcik: "Quantitative
//! System Performance", 1984, chapter 3) and assume nothing about distributions or independence.
//! They therefore predict little but verify measurements: a deviation shows an error of measurement
//! or an interval that was not steady (requests that arrived in it did not complete in it).
//!
//! | law | formula | function |
//! |---|---|---|
//! | Little | L = X·W | [`little`] |
//! | utilisation | U = X·S / m | [`utilisation`] |
//! | interactive response time | R = N/X − Z | [`interactive`] |
//! | forced flow | X_k = V_k·X | [`forced_flow`] |
//! | service demand bound | X ≤ 1 / max_k D_k, D_k = V_k·S_k / m_k | [`demand_bound`] |
//!
//! L is the mean number in a queue, X its throughput (requests/s), W and R mean response times (s),
//! U the busy share of m servers, S the mean service time (s), N clients that think for Z seconds,
//! V_k visits of queue k for each request of the system.
//!
//! Each function takes the [`Quantities`] of successive windows and returns a [`Check`]: both sides
//! of the law, the deviation in percent, the half width of its 95 % interval, and a [`Verdict`].
//! The sides are sums over all windows. The interval is that of a ratio of sums over at most 20
//! batches of windows ([`ratio_of_sums`]), so that requests that waited for one another do not
//! count as independent. With fewer than five windows it is an allowance for Poisson counts and for
//! 2(1 + √L) of the longest responses, cut by the ends of the interval. Cost: one pass.
//!
//! If the interval is short compared with response times, the requests in progress at its ends
//! cause a deviation of about W divided by its length.
//!
//! [`mser`] and [`steady`] find the steady part of a run; [`knee`] and [`saturation_clients`] find
//! the bend of a measured curve.
//!
//! ```
//! use model::laws::{Quantities, TOLERANCE, Verdict, interactive, little};
//! // One window of 10 s: 8 clients that think 0.1 s made 200 requests of 0.3 s each.
//! let window = Quantities {
//!     seconds: 10.0,
//!     completions: 200.0,
//!     length_integral_s: 60.0,
//!     response_s: 60.0,
//!     ..Quantities::default()
//! };
//! let law = interactive("load", 8, 0.1, &[window], TOLERANCE)?;
//! assert!((law.measured - 0.3).abs() < 1e-12 && (law.expected - 0.3).abs() < 1e-12);
//! assert_eq!(law.verdict, Verdict::Holds);
//! assert_eq!(little("load", &[window], TOLERANCE)?.measured, 6.0);
//! # Ok::<(), model::Error>(())
//! ```

mod knee;
mod steady;

use serde::{Deserialize, Serialize};

use crate::error::{Error, check, not_negative, positive};
use crate::statistics::ratio_of_sums;
use ground::window::{Operation, Window};

pub use knee::{knee, saturation_clients};
pub use steady::{Steady, Truncation, mser, steady};

/// The default deviation up to which a law holds: 2 %.
pub const TOLERANCE: f64 = 0.02;

/// Number of batches of an interval, and the smallest number of windows that give an interval.
const BATCHES: usize = 20;
const BATCHES_MIN: usize = 5;

/// The sums over one queue and one interval from which the laws are computed. They are sums so that
/// intervals can be added (Denning, Buzen 1978). Means are ratios of sums: W = `response_s` /
/// `completions`, X = `completions` / `seconds`.
///
/// ```
/// use model::laws::Quantities;
/// use ground::window::{Operation, Outcome, Window};
/// let mut window = Window::new("device/0", 0, 1, &[]);
/// (window.length_s, window.completions, window.busy_s) = (1.0, 1, 0.005);
/// window.times_mut(Operation::Get, Outcome::BulkDevice).service.record(5_000_000);
/// let sums = Quantities::of_window(&window);
/// assert_eq!((sums.completions, sums.servers), (1.0, 1.0));
/// assert!((sums.busy_s - sums.service_s).abs() < 1e-12);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Quantities {
    /// Length of the interval, seconds.
    pub seconds: f64,
    /// Number of requests that the queue serves concurrently; 0 if unlimited.
    pub servers: f64,
    /// Requests that completed.
    pub completions: f64,
    /// Integral of the number waiting and in service, request-seconds.
    pub length_integral_s: f64,
    /// Integral of the number in service, server-seconds.
    pub busy_s: f64,
    /// Sum of the response times of the completed requests, seconds.
    pub response_s: f64,
    /// Sum of their service times, seconds.
    pub service_s: f64,
    /// The longest response time, seconds; 0 if unknown.
    pub response_max_s: f64,
}

impl Quantities {
    /// The sums of a window, over all operations.
    pub fn of_window(window: &Window) -> Quantities {
        Quantities {
            seconds: window.length_s,
            servers: f64::from(window.servers),
            completions: window.completions as f64,
            length_integral_s: window.length_integral_s,
            busy_s: window.busy_s,
            response_s: window.times.iter().map(|t| t.response.sum_s()).sum(),
            service_s: window.times.iter().map(|t| t.service.sum_s()).sum(),
            response_max_s: window.times.iter().map(|t| t.response.max_s()).fold(0.0, f64::max),
        }
    }

    /// The flow of one operation: its completions and times, without the integrals, which windows
    /// hold for all operations together. For [`forced_flow`] between two queues of which one
    /// receives only reads.
    pub fn of_operation(window: &Window, operation: Operation) -> Quantities {
        let times = || window.times.iter().filter(|t| t.operation == operation);
        Quantities {
            seconds: window.length_s,
            servers: f64::from(window.servers),
            completions: times().map(|t| t.response.count() as f64).sum(),
            response_s: times().map(|t| t.response.sum_s()).sum(),
            service_s: times().map(|t| t.service.sum_s()).sum(),
            ..Quantities::default()
        }
    }

    /// Adds the sums of another queue over the same interval, so that both become one queue with
    /// the servers of both.
    pub fn beside(&mut self, other: &Quantities) {
        self.seconds = self.seconds.max(other.seconds);
        self.servers += other.servers;
        self.add_counts(other);
    }

    fn add_counts(&mut self, other: &Quantities) {
        self.completions += other.completions;
        self.length_integral_s += other.length_integral_s;
        self.busy_s += other.busy_s;
        self.response_s += other.response_s;
        self.service_s += other.service_s;
        self.response_max_s = self.response_max_s.max(other.response_max_s);
    }

    /// The sum over successive intervals of one queue.
    fn total(windows: &[Quantities]) -> Result<Quantities, Error> {
        let mut sum = Quantities::default();
        for window in windows {
            not_negative("the length of a window, s", window.seconds)?;
            not_negative("the servers of a queue", window.servers)?;
            not_negative("the completions of a window", window.completions)?;
            not_negative("the integral of a queue's length", window.length_integral_s)?;
            not_negative("the busy time of a queue", window.busy_s)?;
            not_negative("the sum of response times", window.response_s)?;
            not_negative("the sum of service times", window.service_s)?;
            not_negative("the longest response time", window.response_max_s)?;
            sum.seconds += window.seconds;
            sum.servers = sum.servers.max(window.servers);
            sum.add_counts(window);
        }
        positive("the time that windows cover, s", sum.seconds)?;
        let must = "at least 1: measure longer, or at a higher load";
        check("the number of completions", sum.completions, 1.0..=f64::MAX, must)?;
        Ok(sum)
    }
}

/// An operational law, named by a [`Check`]; the module's page has the formulas and sources.
///
/// ```
/// use model::laws::Law;
/// assert_eq!((Law::Little.formula(), Law::Interactive.unit()), ("L = X·W", "s"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Law {
    /// L = X·W.
    Little,
    /// U = X·S/m.
    Utilisation,
    /// R = N/X − Z.
    Interactive,
    /// X_k = V_k·X.
    ForcedFlow,
    /// X ≤ 1/max D.
    DemandBound,
}

impl Law {
    /// The law's name.
    pub fn name(self) -> &'static str {
        match self {
            Law::Little => "Little",
            Law::Utilisation => "Utilisation",
            Law::Interactive => "Interactive",
            Law::ForcedFlow => "Forced flow",
            Law::DemandBound => "Demand bound",
        }
    }

    /// The law's formula.
    pub fn formula(self) -> &'static str {
        match self {
            Law::Little => "L = X·W",
            Law::Utilisation => "U = X·S/m",
            Law::Interactive => "R = N/X − Z",
            Law::ForcedFlow => "X_k = V_k·X",
            Law::DemandBound => "X ≤ 1/max D",
        }
    }

    /// The unit of both sides: `1` for numbers and shares.
    pub fn unit(self) -> &'static str {
        match self {
            Law::Little | Law::Utilisation => "1",
            Law::Interactive => "s",
            Law::ForcedFlow | Law::DemandBound => "1/s",
        }
    }
}

/// The result of a [`Check`] with deviation d, half width h of its interval and tolerance τ: the
/// law holds if |d| ≤ τ, is unsure if |d| − h ≤ τ, and is broken otherwise. Of several laws at 95 %
/// some are unsure or broken by chance.
/// by chance.
///
/// ```
/// assert_eq!(model::laws::Verdict::Broken.as_str(), "BROKEN");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The deviation is within the tolerance.
    Holds,
    /// The deviation exceeds the tolerance, but its interval reaches into it, so chance may be the
    /// cause. Measure longer.
    Unsure,
    /// The deviation exceeds the tolerance, and so does its whole interval (if there is one).
    Broken,
}

impl Verdict {
    /// The verdict's label in tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::Unsure => "unsure",
            Verdict::Broken => "BROKEN",
        }
    }
}

/// A law checked at a queue: the result of [`little`] and the other laws' functions, which have
/// examples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// The law.
    pub law: Law,
    /// The queue at which it was checked.
    pub queue: String,
    /// The left side, as measured; in [`Law::unit`].
    pub measured: f64,
    /// The right side, from other measurements.
    pub expected: f64,
    /// measured / expected − 1, percent. (If the expected value is not positive, as N/X − Z may be
    /// for inconsistent measurements: their difference relative to the measured value.)
    pub deviation_percent: f64,
    /// Half the width of the deviation's 95 % interval, in percentage points. Below five windows it
    /// is an allowance for chance and for the ends of the interval, and `None` if that is unknown
    /// too.
    pub half_width_percent: Option<f64>,
    /// Number of batches of the interval; 0 below five windows.
    pub batches: usize,
    /// The deviation up to which the law holds, percent.
    pub tolerance_percent: f64,
    /// The verdict.
    pub verdict: Verdict,
}

impl Check {
    /// `Little, L = X·W: device/0`.
    pub fn title(&self) -> String {
        format!("{}, {}: {}", self.law.name(), self.law.formula(), self.queue)
    }
}

/// The two sides of a law.
struct Sides {
    measured: f64,
    expected: f64,
}

/// Makes a check from the two sides of a law.
fn judge(
    law: Law,
    queue: &str,
    sides: Sides,
    interval: Option<(f64, usize)>,
    tolerance: f64,
) -> Result<Check, Error> {
    let Sides { measured, expected } = sides;
    let must = "a share of at least 0 and at most 1, like 0.02 for 2 %";
    check("the tolerance of a law", tolerance, 0.0..=1.0, must)?;
    check("the left side of a law", measured, 0.0..=f64::MAX, "a finite number, at least 0")?;
    check("the right side of a law", expected, f64::MIN..=f64::MAX, "a finite number")?;
    let base = if expected > 0.0 { expected } else { measured };
    // Both sides 0 agree.
    let deviation = if base > 0.0 { (measured - expected) / base } else { 0.0 };
    check("the deviation from a law", deviation, -1e300..=1e300, "a finite number")?;
    let off = if law == Law::DemandBound { deviation.max(0.0) } else { deviation.abs() };
    let interval = interval.filter(|i| (i.0 * 100.0).is_finite());
    // Rounding must not break a law at a tolerance of 0.
    let verdict = if off <= tolerance + 1e-9 {
        Verdict::Holds
    } else if off - interval.map_or(0.0, |i| i.0) <= tolerance {
        Verdict::Unsure
    } else {
        Verdict::Broken
    };
    Ok(Check {
        law,
        queue: queue.to_owned(),
        measured,
        expected,
        deviation_percent: deviation * 100.0,
        half_width_percent: interval.map(|i| i.0 * 100.0),
        batches: interval.map_or(0, |i| i.1),
        tolerance_percent: tolerance * 100.0,
        verdict,
    })
}

/// Half width and batches of Σa/Σb over windows. Below five windows, instead of that, the possible
/// effect of the requests cut by the ends of the interval on a sum of times (`sum_s`, of a
/// `total`): 2(1 + √L) times the longest response.
fn interval(
    pairs: impl Iterator<Item = (f64, f64)>,
    total: &Quantities,
    sum_s: f64,
) -> Option<(f64, usize)> {
    if let Some(found) = batched(pairs) {
        return Some(found);
    }
    let cut = 2.0 * (1.0 + (sum_s / total.seconds).sqrt()) * total.response_max_s;
    (cut > 0.0 && sum_s > 0.0).then_some((cut / sum_s, 0))
}

/// Half width and batches of Σa/Σb over windows; `None` below five windows or if b sums to 0.
fn batched(pairs: impl Iterator<Item = (f64, f64)>) -> Option<(f64, usize)> {
    let pairs: Vec<(f64, f64)> = pairs.collect();
    let batches = pairs.len().min(BATCHES);
    let found = ratio_of_sums(&pairs, batches).filter(|_| batches >= BATCHES_MIN)?;
    Some((found.half_width, found.batches))
}

/// Little's law L = X·W: the mean number in a queue by its integral over time, against throughput
/// times mean response time (Little: "A Proof for the Queuing Formula L = λW", Operations Research
/// 9(3), 1961).
///
/// It holds for any queue and any part of a system, whatever the order of service. A deviation
/// shows that requests leave unrecorded, that the number grows or falls over the interval, or that
/// clocks differ.
///
/// # Errors
/// [`Error::Invalid`] if nothing completed, a number is negative or not finite, or the tolerance is
/// not within 0 to 1.
///
/// ```
/// use model::laws::{Quantities, Verdict, little};
/// let window = Quantities {
///     seconds: 1.0, completions: 100.0, length_integral_s: 2.5, response_s: 2.0, ..Quantities::default()
/// };
/// let law = little("node", &[window; 10], 0.02)?;
/// assert!((law.deviation_percent - 25.0).abs() < 1e-9);
/// assert_eq!(law.verdict, Verdict::Broken);
/// # Ok::<(), model::Error>(())
/// ```
pub fn little(queue: &str, windows: &[Quantities], tolerance: f64) -> Result<Check, Error> {
    let total = Quantities::total(windows)?;
    let sides = Sides {
        measured: total.length_integral_s / total.seconds,
        expected: total.response_s / total.seconds,
    };
    let pairs = windows.iter().map(|w| (w.length_integral_s, w.response_s));
    let of = interval(pairs, &total, total.response_s);
    judge(Law::Little, queue, sides, of, tolerance)
}

/// The utilisation law U = X·S/m: the busy share of m servers by its integral over time, against
/// throughput times mean service time. If the number of servers is unlimited (m = 0), both sides
/// are numbers in service.
///
/// It is Little's law of the servers alone. A deviation shows that service times include time
/// without a server (waiting, transfer), or that a server counts as busy between two services.
///
/// # Errors
/// As [`little`].
///
/// ```
/// use model::laws::{Quantities, utilisation};
/// let window = Quantities {
///     seconds: 1.0, servers: 2.0, completions: 100.0, busy_s: 0.8, service_s: 0.8, ..Quantities::default()
/// };
/// let law = utilisation("device/0", &[window], 0.02)?;
/// assert_eq!((law.measured, law.deviation_percent), (0.4, 0.0));
/// # Ok::<(), model::Error>(())
/// ```
pub fn utilisation(queue: &str, windows: &[Quantities], tolerance: f64) -> Result<Check, Error> {
    let total = Quantities::total(windows)?;
    let capacity = total.seconds * total.servers.max(1.0);
    let sides = Sides { measured: total.busy_s / capacity, expected: total.service_s / capacity };
    let of = interval(windows.iter().map(|w| (w.busy_s, w.service_s)), &total, total.service_s);
    judge(Law::Utilisation, queue, sides, of, tolerance)
}

/// The interactive response-time law R = N/X − Z of a closed loop: N clients that wait for each
/// reply and then think for Z seconds on average.
///
/// It is Little's law of the whole loop. With Z much above R the right side is a small difference
/// of large numbers, which the interval shows. A deviation shows that clients did something else as
/// well (paused after errors, started late), that think times differed from the configured ones, or
/// that the interval contains a ramp.
///
/// # Errors
/// As [`little`], and if there are no clients or the think time is negative.
///
/// ```
/// use model::laws::{Quantities, interactive};
/// let window = Quantities { seconds: 2.0, completions: 40.0, response_s: 4.0, ..Quantities::default() };
/// let law = interactive("load", 6, 0.2, &[window], 0.02)?;
/// assert!((law.expected - 0.1).abs() < 1e-12 && law.deviation_percent.abs() < 1e-9);
/// # Ok::<(), model::Error>(())
/// ```
pub fn interactive(
    queue: &str,
    clients: u64,
    think_s: f64,
    windows: &[Quantities],
    tolerance: f64,
) -> Result<Check, Error> {
    let total = Quantities::total(windows)?;
    let clients = positive("the number of clients", clients as f64)?;
    not_negative("the mean think time, s", think_s)?;
    let expected = clients * total.seconds / total.completions - think_s;
    let sides = Sides { measured: total.response_s / total.completions, expected };
    let pair = |w: &Quantities| (w.response_s, clients * w.seconds - think_s * w.completions);
    let of = interval(windows.iter().map(pair), &total, total.response_s);
    let of = of.filter(|_| expected > 0.0);
    judge(Law::Interactive, queue, sides, of, tolerance)
}

/// The forced-flow law X_k = V_k·X: the throughput of a queue against that of the system times the
/// visits that a request of the system makes to the queue.
///
/// `visits` must not come from the counts of `part`, but from what the system reports about each
/// request (which part answered it), or from its structure (1 for a part that every request
/// passes). The two sides may be measured over windows with different starts, so the interval is
/// that of two independent rates: too wide if both contain the same requests. A deviation shows
/// that others use the queue too, or that requests are lost on the way, retried, or answered
/// without the queue.
///
/// # Errors
/// As [`little`], and for visits that are negative or not finite.
///
/// ```
/// use model::laws::{Quantities, forced_flow};
/// let flow = |completions| Quantities { seconds: 1.0, completions, ..Quantities::default() };
/// // A memory answers 60 %, a device the rest.
/// let law = forced_flow("device/0", 0.4, &[flow(1000.0)], &[flow(400.0)], 0.02)?;
/// assert_eq!((law.measured, law.expected), (400.0, 400.0));
/// # Ok::<(), model::Error>(())
/// ```
pub fn forced_flow(
    queue: &str,
    visits: f64,
    whole: &[Quantities],
    part: &[Quantities],
    tolerance: f64,
) -> Result<Check, Error> {
    not_negative("the visits of a request to a queue", visits)?;
    let (all, own) = (Quantities::total(whole)?, Quantities::total(part)?);
    let (x, x_k) = (all.completions / all.seconds, own.completions / own.seconds);
    let relative = |windows: &[Quantities], total: &Quantities| {
        let of = batched(windows.iter().map(|w| (w.completions, w.seconds)));
        // With fewer windows: counts, taken as Poisson.
        let poisson = (1.96 / total.completions.sqrt(), 0);
        of.map_or(poisson, |(half, n)| (half * total.seconds / total.completions, n))
    };
    let ((a, n), (b, m)) = (relative(whole, &all), relative(part, &own));
    let of = Some((a.hypot(b), n.min(m)));
    judge(Law::ForcedFlow, queue, Sides { measured: x_k, expected: visits * x }, of, tolerance)
}

/// The service demand bound X ≤ 1/max D: no system completes more than its busiest queue can serve.
/// D_k is the service per request of the system at each server of queue k, in seconds.
///
/// The expected value is the bound, so the deviation is the negated reserve: −40 % means that the
/// bottleneck was 60 % busy. The law can be broken only from above, if throughput and service times
/// come from different intervals, or clocks differ. The check's queue is the bottleneck. Queues
/// with an unlimited number of servers bound nothing.
///
/// # Errors
/// As [`little`], and if no queue has both a limited number of servers and completions.
///
/// ```
/// use model::laws::{Quantities, demand_bound};
/// let system = Quantities { seconds: 1.0, completions: 100.0, ..Quantities::default() };
/// let device = |service_s| Quantities {
///     seconds: 1.0, servers: 1.0, completions: 40.0, service_s, ..Quantities::default()
/// };
/// let law = demand_bound(
///     &[system], &[("device/0", &[device(0.2)][..]), ("device/1", &[device(0.5)][..])], 0.02)?;
/// assert_eq!((law.queue.as_str(), law.expected), ("device/1", 200.0));
/// # Ok::<(), model::Error>(())
/// ```
pub fn demand_bound(
    system: &[Quantities],
    queues: &[(&str, &[Quantities])],
    tolerance: f64,
) -> Result<Check, Error> {
    let total = Quantities::total(system)?;
    let throughput = total.completions / total.seconds;
    let mut busiest: Option<(f64, usize, Quantities)> = None;
    for (i, (_, windows)) in queues.iter().enumerate() {
        if !windows.iter().any(|w| w.servers > 0.0 && w.completions > 0.0) {
            continue;
        }
        let own = Quantities::total(windows)?;
        let busy = own.service_s / (own.seconds * own.servers);
        if busy > 0.0 && busiest.is_none_or(|(most, ..)| busy > most) {
            busiest = Some((busy, i, own));
        }
    }
    let Some((busy, i, own)) = busiest else {
        return Err(Error::Invalid {
            what: "the number of queues with servers that served",
            value: 0.0,
            must: "at least 1: record the device queues of the server",
        });
    };
    let (queue, windows) = queues[i];
    let pairs = windows.iter().map(|w| (w.service_s, w.seconds * w.servers));
    let of = interval(pairs, &own, own.service_s);
    judge(
        Law::DemandBound,
        queue,
        Sides { measured: throughput, expected: throughput / busy },
        of,
        tolerance,
    )
}

#[cfg(test)]
mod tests;
