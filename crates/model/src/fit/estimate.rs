//! Computes the parameters of a model from sums over windows.

use crate::error::Error;
use crate::storage::SCV_MAX;
use ground::window::QueueName;

use super::sums::Sums;

/// The parameters that a fit estimates from sums.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Estimates {
    pub q0: f64,
    pub alpha: f64,
    pub other_share: f64,
    pub delay: f64,
    /// SCV of the delay.
    pub delay_scv: f64,
    pub joining: f64,
    pub joining_knee: f64,
    pub spotify_q0: f64,
    pub spotify_alpha: f64,
    pub spotify_mu_d: f64,
    /// Mean (s) and SCV of each class.
    pub classes: Vec<(f64, f64)>,
    /// For each class: operations of other work per second at a device, and the mean time of one
    /// (s); 0 if none was seen.
    pub others: Vec<(f64, f64)>,
    /// Bytes of a reply: mean and SCV.
    pub bytes: (f64, f64),
}

/// Whether the loads of the steps differ enough (5 %) to determine how q depends on load.
pub(super) fn spread_enough(steps: &[Sums]) -> bool {
    let low = steps.iter().map(Sums::rate).fold(f64::INFINITY, f64::min);
    let high = steps.iter().map(Sums::rate).fold(0.0, f64::max);
    high > 1.05 * low
}

/// The line share = q0 − alpha·rate through (rate, share, observations), by weighted least squares.
/// With `shrink`, alpha is moved towards 0 by as much as chance could have caused (positive-part
/// James and Stein), because the slope is extrapolated to loads several times the fitted ones.
fn line(points: &[(f64, f64, f64)], shrink: bool) -> (f64, f64) {
    let n: f64 = points.iter().map(|p| p.2).sum();
    if n <= 0.0 {
        return (0.0, 0.0);
    }
    let rate = points.iter().map(|p| p.0 * p.2).sum::<f64>() / n;
    let share = points.iter().map(|p| p.1 * p.2).sum::<f64>() / n;
    let xx: f64 = points.iter().map(|p| p.2 * (p.0 - rate).powi(2)).sum();
    let xy: f64 = points.iter().map(|p| p.2 * (p.0 - rate) * (p.1 - share)).sum();
    let (low, high) =
        points.iter().fold((f64::INFINITY, 0.0f64), |(l, h), p| (l.min(p.0), h.max(p.0)));
    if xx <= 0.0 || high <= 1.05 * low {
        return (share, 0.0);
    }
    let slope = xy / xx;
    let residuals: f64 =
        points.iter().map(|p| p.2 * (p.1 - share - slope * (p.0 - rate)).powi(2)).sum();
    let binomial = share * (1.0 - share);
    let free = points.len().saturating_sub(2);
    // Variance of one observation: at least binomial, more if the points scatter more.
    let variance = if free > 0 { binomial.max(residuals / free as f64) } else { binomial };
    let keep = if !shrink {
        1.0
    } else if slope == 0.0 {
        0.0
    } else {
        (1.0 - variance / xx / (slope * slope)).max(0.0)
    };
    let slope = slope * keep;
    // Adding 0 makes a negative zero positive.
    (share - slope * rate, 0.0 - slope)
}

/// The value that represents no knee: joins are then proportional to the reads in the queues.
pub(crate) const NO_KNEE: f64 = 1e9;

/// Device reads caused by the requests of a step. Computed from rates instead of counts, because
/// the queues' windows need not cover the same seconds.
fn reads_of(s: &Sums, devices: usize) -> f64 {
    let rate = if s.device_time > 0.0 { s.reads / s.device_time * devices as f64 } else { 0.0 };
    (rate * s.time).min(s.requests - s.other).max(0.0)
}

/// j and k of J(L) = j·k·ln(1 + L/k) by least squares over the steps: the share that memory would
/// have answered without reads in progress, less the share that it answered, against the number in
/// the device queues. The knee is searched on a grid, and used only if it improves the fit by more
/// than chance does.
fn joining(steps: &[Sums], devices: usize, q0: f64, alpha: f64) -> (f64, f64) {
    let point = |s: &Sums| {
        let length = s.length_integral / s.device_time * devices as f64;
        let counted = s.joined / s.node_time * s.time / s.requests;
        let at_once = q0 - alpha * s.rate();
        let inferred = at_once - s.memory / s.requests;
        let share = if s.joined > 0.0 && s.node_time > 0.0 { counted } else { inferred };
        (length, share, s.requests)
    };
    let seen = steps.iter().filter(|s| s.requests > 0.0 && s.device_time > 0.0);
    let points: Vec<_> = seen.map(point).filter(|p| p.0 > 0.0 && p.1.is_finite()).collect();
    // For a given knee: the best slope, and its weighted sum of squares.
    let fitted = |knee: f64| {
        let shape = |length: f64| knee * (length / knee).ln_1p();
        let xx: f64 = points.iter().map(|p| p.2 * shape(p.0).powi(2)).sum();
        let xy: f64 = points.iter().map(|p| p.2 * shape(p.0) * p.1).sum();
        let slope = if xx > 0.0 { (xy / xx).max(0.0) } else { 0.0 };
        let squares: f64 = points.iter().map(|p| p.2 * (p.1 - slope * shape(p.0)).powi(2)).sum();
        (slope, squares)
    };
    let (slope, squares) = fitted(NO_KNEE);
    let longest = points.iter().map(|p| p.0).fold(0.0, f64::max);
    let requests: f64 = points.iter().map(|p| p.2).sum();
    let share = points.iter().map(|p| p.1 * p.2).sum::<f64>() / requests.max(1.0);
    // Binomial variance of one request (joined or not). An estimate below twice its error counts as
    // 0.
    let binomial = (share * (1.0 - share)).max(1e-12);
    if slope <= 0.0 || share <= 2.0 * (binomial / requests.max(1.0)).sqrt() {
        return (0.0, NO_KNEE);
    }
    let grid = (0..=60).map(|i| longest * 10f64.powf(f64::from(i) / 20.0 - 2.0));
    let best = grid.map(|knee| (knee, fitted(knee))).min_by(|a, b| a.1.1.total_cmp(&b.1.1));
    match best {
        Some((knee, (bent, left))) if points.len() > 1 && squares - left > 9.0 * binomial => {
            (bent, knee)
        }
        _ => (slope, NO_KNEE),
    }
}

/// Mean and SCV of δ: the excess of the devices' responses at the clients over those at the
/// devices, in mean and in variance. (δ comes before the device, so it is independent of the
/// device's time.)
///
/// The two sides' windows do not cover the same reads, so the excess of a step varies with its
/// responses: at a high load by milliseconds, which would hide a δ of a tenth of one. A step
/// therefore counts by the precision of its mean response, up to a factor that all steps share: reads
/// over the variance of a response, divided by the queue's correlation time, 1/(1 − ρ)².
fn delay(steps: &[Sums]) -> (f64, f64) {
    let (mut mean, mut variance, mut weight) = (0.0, 0.0, 0.0);
    for s in steps.iter().filter(|s| s.client_device_n > 0.0 && s.response_n > 0.0) {
        let n = s.client_device_n;
        let (client, device) = (s.client_device_s / n, s.response_s / s.response_n);
        let of_device = (s.response_squares / s.response_n - device * device).max(0.0);
        let idle = (1.0 - s.busy / s.device_time).max(IDLE_MIN);
        let weighs = n * idle * idle / (of_device + DELAY_LEAST_S * DELAY_LEAST_S);
        mean += weighs * (client - device);
        let client = s.client_device_squares / n - client * client;
        variance += weighs * (client - of_device);
        weight += weighs;
    }
    let mean = if weight > 0.0 { (mean / weight).max(0.0) } else { 0.0 };
    let scv =
        if mean > 0.0 { (variance / weight / (mean * mean)).clamp(0.0, SCV_MAX) } else { 0.0 };
    (mean, scv)
}

/// A deviation of responses below which a step does not count for more, seconds.
const DELAY_LEAST_S: f64 = 1e-6;
/// An idle share of the devices below which a step does not count for less.
const IDLE_MIN: f64 = 0.02;

/// Busy share of a device by other work below which that work is ignored.
const OTHER_MIN: f64 = 1e-3;

/// The work of a class of devices besides the reads.
fn other_work(steps: &[Sums], class: usize) -> (f64, f64) {
    let (mut n, mut busy, mut most, mut seconds) = (0.0, 0.0, 0.0, 0.0);
    for sums in steps.iter().filter_map(|s| s.classes.get(class)) {
        n += sums.other_n;
        busy += sums.other_s;
        most += sums.other_most_s;
        seconds += sums.watched_s;
    }
    let busy = f64::min(busy, most);
    if n <= 0.0 || busy <= OTHER_MIN * seconds {
        return (0.0, 0.0);
    }
    (n / seconds, busy / n)
}

/// Mean and SCV of the bytes of a reply.
fn bytes(steps: &[Sums]) -> (f64, f64) {
    let sum = |f: &dyn Fn(&Sums) -> f64| steps.iter().map(f).sum::<f64>();
    let (n, bytes, squares) = (sum(&|s| s.replies), sum(&|s| s.bytes), sum(&|s| s.bytes_squared));
    if n <= 0.0 || bytes <= 0.0 {
        return (0.0, 0.0);
    }
    let mean = bytes / n;
    (mean, (squares / n / (mean * mean) - 1.0).max(0.0))
}

/// Estimates all parameters. `client_queue` is used only in the error if nothing was answered.
pub(super) fn estimate(
    steps: &[Sums],
    devices: usize,
    client_queue: QueueName<'_>,
) -> Result<Estimates, Error> {
    let requests: f64 = steps.iter().map(|s| s.requests).sum();
    if requests <= 0.0 {
        return Err(Error::NoClientWindows { step: client_queue.to_string() });
    }
    let share = |f: &dyn Fn(&Sums) -> f64| -> Vec<(f64, f64, f64)> {
        let seen = steps.iter().filter(|s| s.requests > 0.0);
        seen.map(|s| (s.rate(), f(s) / s.requests, s.requests)).collect()
    };
    // The requests that memory would answer if reads took no time: all except reads and other
    // answers.
    let at_once = |s: &Sums| s.requests - s.other - reads_of(s, devices);
    let (q0, alpha) = line(&share(&at_once), true);
    let (spotify_q0, spotify_alpha) = line(&share(&|s| s.fast), false);
    let other_share = steps.iter().map(|s| s.other).sum::<f64>() / requests;
    let (joining, joining_knee) = joining(steps, devices, q0, alpha);
    let (delay, delay_scv) = delay(steps);
    let (busy, completions) =
        steps.iter().fold((0.0, 0.0), |(b, c), s| (b + s.busy, c + s.completions));
    let classes = steps.first().map_or(0, |s| s.classes.len());
    let mut moments = Vec::with_capacity(classes);
    for i in 0..classes {
        let (mut n, mut sum, mut squares) = (0.0, 0.0, 0.0);
        for class in steps.iter().filter_map(|s| s.classes.get(i)) {
            n += class.n;
            sum += class.sum;
            squares += class.squares;
        }
        if n <= 0.0 || sum <= 0.0 {
            return Err(Error::NoCompletions);
        }
        let mean = sum / n;
        moments.push((mean, (squares / n / (mean * mean) - 1.0).max(0.0)));
    }
    if busy <= 0.0 || completions <= 0.0 {
        return Err(Error::NoCompletions);
    }
    Ok(Estimates {
        q0,
        alpha,
        other_share,
        delay,
        delay_scv,
        joining,
        joining_knee,
        spotify_q0,
        spotify_alpha,
        spotify_mu_d: completions / busy,
        classes: moments,
        others: (0..classes).map(|i| other_work(steps, i)).collect(),
        bytes: bytes(steps),
    })
}
