//! A CDF at many times from few evaluations.

/// Chebyshev nodes of a first try, and of the last one before an interval is halved.
const NODES_FIRST: usize = 16;
const NODES_LAST: usize = 64;

/// Coefficients below this are nothing.
const NEGLIGIBLE: f64 = 1e-6;

/// What is accepted of 65 nodes: a measured law's kinks, and the inversion's error at them, are as large.
const ACCEPTED: f64 = 1e-5;

/// `cdf` at all `times`, in their order; within [0, 1] and never falling with time.
///
/// Chebyshev interpolation in √t over the span of the times: a smooth law takes some 17 to 65 evaluations
/// whatever the number of times. The last coefficients are looked at: where they have not died out the span is
/// halved, and an interval of few times is evaluated directly. The error is below 1e-5 for smooth laws and
/// some 1e-4 (0.01 points) for laws with kinks.
pub(super) fn cdfs(times: &[f64], cdf: impl Fn(f64) -> f64) -> Vec<f64> {
    let mut out = vec![0.0; times.len()];
    let usual = |t: f64| t > 0.0 && t < 1e15;
    let mut order: Vec<usize> = (0..times.len()).collect();
    order.sort_by(|&i, &j| times[i].total_cmp(&times[j]));
    let inside: Vec<usize> = order.iter().copied().filter(|&i| usual(times[i])).collect();
    for &i in order.iter().filter(|i| !usual(times[**i])) {
        out[i] = cdf(times[i]);
    }
    let mut parts: Vec<&[usize]> = vec![&inside];
    while let Some(part) = parts.pop() {
        let (Some(&first), Some(&last)) = (part.first(), part.last()) else { continue };
        let (low, high) = (times[first].sqrt(), times[last].sqrt());
        let series = if part.len() > NODES_LAST && high > low {
            series(low, high, |root| cdf(root * root))
        } else {
            part.iter().for_each(|&i| out[i] = cdf(times[i]));
            continue;
        };
        match series {
            Some(series) => {
                for &i in part {
                    let x = (2.0 * times[i].sqrt() - low - high) / (high - low);
                    out[i] = clenshaw(&series, x);
                }
            }
            None => {
                let middle = 0.5 * (low + high);
                let at = part.partition_point(|&i| times[i].sqrt() < middle);
                parts.extend([&part[..at], &part[at..]]);
            }
        }
    }
    // What interpolation and inversion lose must not make a CDF fall.
    let mut reached = 0.0f64;
    for &i in order.iter().filter(|i| !times[**i].is_nan()) {
        reached = reached.max(out[i]).min(1.0);
        out[i] = reached;
    }
    out
}

/// Chebyshev coefficients of `f` on [low, high]; `None` if 65 nodes do not do.
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

/// From values at cos(πj/n): the discrete cosine transform, as it is defined.
fn coefficients(values: &[f64]) -> Vec<f64> {
    let n = values.len() - 1;
    let cosines: Vec<f64> =
        (0..2 * n).map(|j| (std::f64::consts::PI * j as f64 / n as f64).cos()).collect();
    let half = |j: usize| if j == 0 || j == n { 0.5 } else { 1.0 };
    (0..=n)
        .map(|k| {
            let terms =
                values.iter().enumerate().map(|(j, v)| half(j) * v * cosines[j * k % (2 * n)]);
            half(k) * 2.0 / n as f64 * terms.sum::<f64>()
        })
        .collect()
}

/// Σ cₖTₖ(x).
fn clenshaw(series: &[f64], x: f64) -> f64 {
    let (mut one, mut two) = (0.0, 0.0);
    for c in series.iter().skip(1).rev() {
        (one, two) = (c + 2.0 * x * one - two, one);
    }
    series[0] + x * one - two
}
