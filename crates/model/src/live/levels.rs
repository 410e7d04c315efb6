//! Splits a window into parts of constant load.
//!
//! A fit assumes that the load is constant within a step. A change of the load within a step would count as
//! bursts, which the model would then expect at every load, so that it would predict too little of
//! every higher one. Each part of a window becomes a step of its own. The window is cut where a cut
//! explains the counts best, if chance cannot explain as much (a likelihood ratio, divided by the dispersion of
//! successive counts). Both halves are then cut in the same way. Bursts of a second or two stay bursts.

use crate::fit::Step;
use crate::statistics::quantile;
use ground::window::Window;

use super::client::client_of;

/// Likelihood ratio of a cut, twice its logarithm over the dispersion: 4.5 standard errors.
const CERTAIN: f64 = 20.0;
/// The smallest number of windows of a part, and of a fitted part. Shorter parts are transitions between
/// loads, and are fitted only if no part is longer.
const WINDOWS_MIN: usize = 2;
const FITTED_MIN: usize = 5;

/// The arrivals and the seconds of windows.
fn sums(windows: &[Window]) -> (f64, f64) {
    windows.iter().fold((0.0, 0.0), |(n, s), w| (n + w.arrivals as f64, s + w.length_s))
}

/// n ln(n/t), the likelihood of counts at their own rate.
fn likelihood(count: f64, seconds: f64) -> f64 {
    if count > 0.0 && seconds > 0.0 { count * (count / seconds).ln() } else { 0.0 }
}

/// Variance over mean of counts, from the median of their successive differences: a few changes of the load have
/// no effect on it.
fn dispersion(windows: &[Window]) -> f64 {
    let pairs = windows.iter().zip(windows.iter().skip(1));
    let differences: Vec<f64> =
        pairs.map(|(a, b)| (b.arrivals as f64 - a.arrivals as f64).abs()).collect();
    let mean = sums(windows).0 / windows.len().max(1) as f64;
    // The median size of a difference of two normal deviates is 0.954.
    let deviation = quantile(&differences, 0.5).unwrap_or(0.0) / 0.954;
    if mean > 0.0 { (deviation * deviation / mean).max(1.0) } else { 1.0 }
}

/// The ends of the parts of constant load, as indices into windows in the order of time, ascending. The last
/// one is the number of windows.
fn ends(windows: &[Window]) -> Vec<usize> {
    let least = CERTAIN * dispersion(windows);
    let (mut found, mut open) = (Vec::new(), vec![(0, windows.len())]);
    while let Some((from, to)) = open.pop() {
        let part = windows.get(from..to).unwrap_or_default();
        let (count, seconds) = sums(part);
        let whole = likelihood(count, seconds);
        let (mut left, mut best) = ((0.0, 0.0), (least, None));
        for (index, window) in part.iter().enumerate() {
            if index >= WINDOWS_MIN && index + WINDOWS_MIN <= part.len() {
                let right = likelihood(count - left.0, seconds - left.1);
                let ratio = 2.0 * (likelihood(left.0, left.1) + right - whole);
                if ratio > best.0 {
                    best = (ratio, Some(from + index));
                }
            }
            left = (left.0 + window.arrivals as f64, left.1 + window.length_s);
        }
        match best.1 {
            Some(cut) => open.extend([(cut, to), (from, cut)]),
            None => found.push(to),
        }
    }
    found
}

/// The parts of a step in which the load was constant. Short parts are left out, unless all are short: a load
/// that changes fast must not be fitted as one step either.
pub(super) fn split(step: &Step) -> Vec<Step> {
    let client = client_of(step);
    let ends = ends(client);
    for least in [FITTED_MIN, WINDOWS_MIN] {
        let parts = parts(step, client, &ends, least);
        if !parts.is_empty() {
            return parts;
        }
    }
    vec![step.clone()]
}

/// The parts between these ends that have `least` windows or more, and requests.
fn parts(step: &Step, client: &[Window], ends: &[usize], least: usize) -> Vec<Step> {
    let mut parts = Vec::new();
    let mut from = 0;
    for &to in ends {
        let windows = client.get(from..to).unwrap_or_default();
        from = to;
        let (Some(first), Some(last)) = (windows.first(), windows.last()) else { continue };
        if windows.len() < least || sums(windows).0 < 1.0 {
            continue;
        }
        let (start, end) = (first.start_unix_us, last.end_unix_us());
        let of = |all: &[Window]| -> Vec<Window> {
            let is_in =
                |w: &&Window| w.start_unix_us + 1000 >= start && w.end_unix_us() <= end + 1000;
            all.iter().filter(is_in).cloned().collect()
        };
        parts.push(Step {
            name: format!("part {} of the last minute", parts.len() + 1),
            gateway: of(&step.gateway),
            node: of(&step.node),
            devices: step.devices.iter().map(|device| of(device)).collect(),
            ..Step::default()
        });
    }
    parts
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use rand_distr::{Distribution, Poisson};

    use super::*;
    use ground::window::QueueName;

    fn windows(rates: &[f64], seed: u64) -> Vec<Window> {
        let mut random = StdRng::seed_from_u64(seed);
        let window = |(second, rate): (usize, &f64)| {
            let name = QueueName::Gateway.to_string();
            let mut window = Window::new(&name, second as u64 * 1_000_000, 0, &[]);
            window.length_s = 1.0;
            window.arrivals = if *rate > 0.0 {
                Poisson::new(*rate).unwrap().sample(&mut random) as u64
            } else {
                0
            };
            window
        };
        rates.iter().enumerate().map(window).collect()
    }

    #[test]
    fn a_load_is_cut_where_it_changed_and_only_there() {
        let mut cut = 0;
        for seed in 0..200 {
            cut += ends(&windows(&[300.0; 60], seed)).len() - 1;
        }
        assert!(cut <= 2, "{cut} cuts of 200 level minutes");
        let mut rates = vec![200.0; 25];
        rates.extend([800.0; 20]);
        rates.extend([0.0; 3]);
        assert_eq!(ends(&windows(&rates, 7)), [25, 45, 48]);
        let step = Step { gateway: windows(&rates, 7), ..Step::default() };
        let lengths: Vec<usize> = split(&step).iter().map(|part| part.gateway.len()).collect();
        assert_eq!(lengths, [25, 20], "silence is not fitted");
        // A load that changes every four seconds has no longer part.
        let fast: Vec<f64> = [200.0, 800.0, 400.0].map(|rate| [rate; 4]).concat();
        let step = Step { gateway: windows(&fast, 7), ..Step::default() };
        let lengths: Vec<usize> = split(&step).iter().map(|part| part.gateway.len()).collect();
        assert_eq!(lengths, [4, 4, 4]);
        // Bursts of a second are no changes of the load.
        let bursts: Vec<f64> =
            (0..60).map(|second| if second % 2 == 0 { 200.0 } else { 500.0 }).collect();
        assert_eq!(ends(&windows(&bursts, 3)), [60]);
        assert_eq!(ends(&[]), [0]);
        assert_eq!(split(&Step::default()).len(), 1);
    }
}
