//! A CDF at many times from few evaluations.
//!
//! Source: interpolation at Chebyshev's points (L. N. Trefethen, "Approximation Theory and
//! Approximation Practice", 2013), in √t. The law of requests that do not wait may have kinks or
//! jumps but is cheap, so it is evaluated directly. The law of requests that wait is expensive but
//! is a convolution and therefore smoother, so it is interpolated. The error estimate fails if a
//! law changes within the distance of two nodes and the last coefficients do not show it.

/// Number of Chebyshev nodes of the first attempt, and of the last before an interval is halved.
const NODES_FIRST: usize = 16;
const NODES_LAST: usize = 64;

/// Coefficients below this are negligible.
const NEGLIGIBLE: f64 = 1e-6;

/// Accepted size of the last coefficients with 65 nodes: the kinks of a measured law, and the error
/// of the inversion at them, are as large.
const ACCEPTED: f64 = 1e-5;

/// Number of times at which a series is summed in parallel.
const LANES: usize = 8;

/// `at_once` + `delayed` at all `times`, in their order; within [0, 1] and never falling with time.
///
/// Both are interpolated over the span of the times: a smooth function takes some 17 to 65
/// evaluations whatever the number of times. If the last coefficients of `delayed` are not small,
/// the span is halved, and an interval of few times is evaluated directly; `at_once`, which is
/// cheap, is then evaluated at all times. The error is below 1e-5 for smooth laws and some 1e-4
/// (0.01 points) for laws with kinks.
pub(super) fn cdfs(
    times: &[f64],
    at_once: impl Fn(f64) -> f64,
    delayed: impl Fn(f64) -> f64,
) -> Vec<f64> {
    let mut out = vec![0.0; times.len()];
    let usual = |t: f64| t > 0.0 && t < 1e15;
    let mut order: Vec<usize> = (0..times.len()).collect();
    order.sort_unstable_by(|&i, &j| times[i].total_cmp(&times[j]));
    for &i in order.iter().filter(|i| !usual(times[**i])) {
        out[i] = at_once(times[i]) + delayed(times[i]);
    }
    let inside: Vec<usize> = order.iter().copied().filter(|&i| usual(times[i])).collect();
    let ascending: Vec<f64> = inside.iter().map(|&i| times[i]).collect();
    let mut values = vec![0.0; ascending.len()];
    add(&ascending, &mut values, &at_once, false);
    add(&ascending, &mut values, &delayed, true);
    for (&i, &value) in inside.iter().zip(&values) {
        out[i] = value;
    }
    // Errors of interpolation and inversion must not make a CDF decrease.
    let mut reached = 0.0f64;
    for &i in order.iter().filter(|i| !times[**i].is_nan()) {
        reached = reached.max(out[i]).min(1.0);
        out[i] = reached;
    }
    out
}

/// Adds `f` to the value of each time; times are in ascending order.
fn add(times: &[f64], values: &mut [f64], f: &impl Fn(f64) -> f64, halve: bool) {
    let (Some(low), Some(high)) = (times.first(), times.last()) else { return };
    let (low, high) = (low.sqrt(), high.sqrt());
    let worth = times.len() > NODES_LAST && high > low;
    let found = if worth { series(low, high, |root| f(root * root)) } else { None };
    if let Some(series) = found {
        let place = |t: f64| (2.0 * t.sqrt() - low - high) / (high - low);
        for (times, values) in times.chunks(LANES).zip(values.chunks_mut(LANES)) {
            let mut x = [0.0; LANES];
            x.iter_mut().zip(times).for_each(|(x, &t)| *x = place(t));
            values.iter_mut().zip(clenshaw(&series, x)).for_each(|(value, sum)| *value += sum);
        }
    } else if worth && halve {
        // Each side gets at least one time, even if none lies between `low` and `high`.
        let middle = 0.5 * (low + high);
        let at = times.partition_point(|t| t.sqrt() < middle).clamp(1, times.len() - 1);
        let (left, right) = values.split_at_mut(at);
        add(&times[..at], left, f, halve);
        add(&times[at..], right, f, halve);
    } else {
        values.iter_mut().zip(times).for_each(|(value, &t)| *value += f(t));
    }
}

/// Chebyshev coefficients of `f` on [low, high]; `None` if 65 nodes are not enough.
fn series(low: f64, high: f64, f: impl Fn(f64) -> f64) -> Option<Vec<f64>> {
    let node = |j: usize, n: usize| {
        let x = (std::f64::consts::PI * j as f64 / n as f64).cos();
        f(0.5 * (low + high) + 0.5 * (high - low) * x)
    };
    let mut n = NODES_FIRST;
    let mut values: Vec<f64> = (0..=n).map(|j| node(j, n)).collect();
    loop {
        let mut coefficients = coefficients(&values);
        let tail = coefficients.iter().rev().take(n / 8).fold(0.0f64, |m, c| m.max(c.abs()));
        if tail < if n < NODES_LAST { NEGLIGIBLE } else { ACCEPTED } {
            let kept = coefficients.iter().rposition(|c| c.abs() > 0.01 * NEGLIGIBLE);
            coefficients.truncate(kept.unwrap_or(0) + 1);
            return Some(coefficients);
        }
        if n >= NODES_LAST {
            return None;
        }
        // The old nodes are every second one of the new.
        n *= 2;
        values = (0..=n).map(|j| if j % 2 == 0 { values[j / 2] } else { node(j, n) }).collect();
    }
}

/// From values at cos(πj/n), n a power of two: the discrete cosine transform, as it is defined.
fn coefficients(values: &[f64]) -> Vec<f64> {
    let n = values.len() - 1;
    let cosines: Vec<f64> =
        (0..2 * n).map(|j| (std::f64::consts::PI * j as f64 / n as f64).cos()).collect();
    let half = |j: usize| if j == 0 || j == n { 0.5 } else { 1.0 };
    (0..=n)
        .map(|k| {
            let terms = values
                .iter()
                .enumerate()
                .map(|(j, v)| half(j) * v * cosines[(j * k) & (2 * n - 1)]);
            half(k) * 2.0 / n as f64 * terms.sum::<f64>()
        })
        .collect()
}

/// Σ cₖTₖ(x) by Clenshaw's recurrence, at several x.
fn clenshaw(series: &[f64], x: [f64; LANES]) -> [f64; LANES] {
    let (mut one, mut two) = ([0.0; LANES], [0.0; LANES]);
    for c in series.iter().skip(1).rev() {
        for lane in 0..LANES {
            let next = c + 2.0 * x[lane] * one[lane] - two[lane];
            (two[lane], one[lane]) = (one[lane], next);
        }
    }
    std::array::from_fn(|lane| series[0] + x[lane] * one[lane] - two[lane])
}
