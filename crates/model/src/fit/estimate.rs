//! Parameters from sums.

use crate::error::Error;

use super::gather::Sums;

/// What a fit estimates from sums.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Estimates {
    pub q0: f64,
    pub alpha: f64,
    pub other_share: f64,
    pub delay: f64,
    pub reads_per_miss: f64,
    pub joining: f64,
    pub spotify_q0: f64,
    pub spotify_alpha: f64,
    pub spotify_mu_d: f64,
    /// Mean (s) and SCV of each class.
    pub classes: Vec<(f64, f64)>,
}

impl Estimates {
    /// As a row of [`crate::model_file::Replicates`].
    pub fn row(&self, scv_within: &[f64]) -> Vec<f64> {
        let mut row = vec![
            self.q0,
            self.alpha,
            self.other_share,
            self.delay,
            self.reads_per_miss,
            self.joining,
            self.spotify_q0,
            self.spotify_alpha,
            self.spotify_mu_d,
        ];
        for ((mean, scv), within) in self.classes.iter().zip(scv_within) {
            row.extend([*mean, scv * within]);
        }
        row
    }
}

/// Whether the loads of the steps differ enough (5 %) to say how q depends on load.
pub(super) fn spread_enough(steps: &[Sums]) -> bool {
    let low = steps.iter().map(Sums::rate).fold(f64::INFINITY, f64::min);
    let high = steps.iter().map(Sums::rate).fold(0.0, f64::max);
    high > 1.05 * low
}

/// A line share = q0 − alpha·rate through (rate, share, observations), by weighted least squares.
/// `shrink`: pull alpha towards 0 by as much as chance could have made of it (positive-part James and
/// Stein), because a slope is extended to loads several times the fitted ones.
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
    // Of one observation: at least binomial, more if the points scatter more.
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

/// Regression through the origin of joined shares on the number in the device queues.
fn through_origin(points: &[(f64, f64, f64)]) -> f64 {
    let xx: f64 = points.iter().map(|p| p.2 * p.0 * p.0).sum();
    let xy: f64 = points.iter().map(|p| p.2 * p.0 * p.1).sum();
    if xx > 0.0 { (xy / xx).max(0.0) } else { 0.0 }
}

/// What a step says of reads per second: at the devices, joined, and missed at the client side. Rates,
/// not counts, because the queues' windows need not cover the same seconds.
struct Reads {
    length: f64,
    started: f64,
    joined: f64,
    misses: f64,
    weight: f64,
}

fn reads(s: &Sums, devices: usize) -> Reads {
    let over = |x: f64, time: f64| if time > 0.0 { x / time } else { 0.0 };
    Reads {
        length: over(s.length_integral, s.device_time) * devices as f64,
        started: over(s.reads, s.device_time) * devices as f64,
        joined: over(s.joined, s.node_time),
        misses: over(s.client_device_n, s.time),
        weight: s.time,
    }
}

/// Reads per miss, and the share joined for each read in the queues.
fn joining(steps: &[Sums], devices: usize) -> (f64, f64) {
    let all: Vec<Reads> = steps.iter().map(|s| reads(s, devices)).collect();
    let all: Vec<Reads> = all.into_iter().filter(|r| r.misses > 0.0 && r.started > 0.0).collect();
    let sum = |f: &dyn Fn(&Reads) -> f64| all.iter().map(|r| r.weight * f(r)).sum::<f64>();
    let (started, joined) = (sum(&|r| r.started), sum(&|r| r.joined));
    let misses = sum(&|r| r.misses);
    if misses <= 0.0 {
        return (1.0, 0.0);
    }
    // A read is counted when it starts, a miss when it is answered: what is in flight at the ends of a
    // step is counted once. A ratio that differs from 1 by no more than that is 1.
    let in_flight: f64 = all.iter().map(|r| r.length + 3.0 * (2.0 * r.length).sqrt()).sum();
    let snapped = |ratio: f64| if (ratio - 1.0).abs() * misses <= in_flight { 1.0 } else { ratio };
    if joined > 0.0 {
        let point = |r: &Reads| {
            let both = r.started + r.joined;
            (r.length, r.joined / both, r.weight * both)
        };
        let points: Vec<_> = all.iter().map(point).collect();
        return (snapped((started + joined) / misses), through_origin(&points));
    }
    // Nobody counted joins. Fewer reads than misses may be joins (more of them at longer queues) or a
    // constant ratio: take what fits the steps better; one step can't tell.
    let constant = snapped(started / misses);
    let point = |r: &Reads| (r.length, 1.0 - r.started / r.misses, r.weight * r.misses);
    let points: Vec<_> = all.iter().map(point).collect();
    let slope = through_origin(&points);
    let square = |f: &dyn Fn(f64) -> f64| -> f64 {
        points.iter().map(|p| p.2 * (p.1 - f(p.0)).powi(2)).sum()
    };
    let by_length = square(&|l| slope * l);
    let by_constant = square(&|_| 1.0 - constant);
    if constant != 1.0 && points.len() >= 2 && slope > 0.0 && by_length < by_constant {
        (1.0, slope)
    } else {
        (constant, 0.0)
    }
}

/// All parameters. `client_queue` is only for the message if nothing was answered.
pub(super) fn estimate(
    steps: &[Sums],
    devices: usize,
    client_queue: &str,
) -> Result<Estimates, Error> {
    let requests: f64 = steps.iter().map(|s| s.requests).sum();
    if requests <= 0.0 {
        return Err(Error::NoClientWindows { step: client_queue.to_owned() });
    }
    let share = |f: &dyn Fn(&Sums) -> f64| -> Vec<(f64, f64, f64)> {
        let seen = steps.iter().filter(|s| s.requests > 0.0);
        seen.map(|s| (s.rate(), f(s) / s.requests, s.requests)).collect()
    };
    let (q0, alpha) = line(&share(&|s| s.memory), true);
    let (spotify_q0, spotify_alpha) = line(&share(&|s| s.fast), false);
    let other_share = steps.iter().map(|s| s.other).sum::<f64>() / requests;
    let (reads_per_miss, joining) = joining(steps, devices);
    let (mut delay, mut weight) = (0.0, 0.0);
    for s in steps.iter().filter(|s| s.client_device_n > 0.0 && s.response_n > 0.0) {
        let n = s.client_device_n;
        delay += n * (s.client_device_s / n - s.response_s / s.response_n);
        weight += n;
    }
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
        delay: if weight > 0.0 { (delay / weight).max(0.0) } else { 0.0 },
        reads_per_miss,
        joining,
        spotify_q0,
        spotify_alpha,
        spotify_mu_d: completions / busy,
        classes: moments,
    })
}
