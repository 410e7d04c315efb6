//! The speeds of servers by the number of requests inside, from the equations of blocks of requests ([`super::full`] has the
//! method).

use crate::queue::Slowdown;

/// What throughputs of closed loops of some seconds are uncertain by, as a share.
const CLOSED_DEVIATION: f64 = 0.03;
/// A number of which the speeds beyond it say how the speed falls on: this part of the last.
const FALLING_FROM: f64 = 0.25;
/// The steepest fall that is thought of.
const TAIL_MAX: f64 = 2.0;

/// The equations of a block of requests: for each pair of numbers the time at the second of those that began with the first, and how
/// many began so.
#[derive(Clone, Debug, Default)]
pub(super) struct Equations {
    pub times: Vec<f64>,
    pub begun: Vec<f64>,
}

impl Equations {
    pub fn new(numbers: usize) -> Equations {
        Equations { times: vec![0.0; numbers * numbers], begun: vec![0.0; numbers] }
    }

    pub fn add(&mut self, other: &Equations, weight: f64) {
        self.times.iter_mut().zip(&other.times).for_each(|(sum, x)| *sum += weight * x);
        self.begun.iter_mut().zip(&other.begun).for_each(|(sum, x)| *sum += weight * x);
    }

    /// The speeds, in works of mean 1 per second; `None` if the equations have no solution above 0. Gauss's elimination with pivots.
    pub fn speeds(&self) -> Option<Vec<f64>> {
        let n = self.begun.len();
        let (mut a, mut b) = (self.times.clone(), self.begun.clone());
        for column in 0..n {
            let size = |row: &usize| a[row * n + column].abs();
            let pivot = (column..n).max_by(|x, y| size(x).total_cmp(&size(y)))?;
            if a[pivot * n + column].abs() < 1e-300 {
                return None;
            }
            for k in 0..n {
                a.swap(pivot * n + k, column * n + k);
            }
            b.swap(pivot, column);
            for row in column + 1..n {
                let factor = a[row * n + column] / a[column * n + column];
                for k in column..n {
                    a[row * n + k] -= factor * a[column * n + k];
                }
                b[row] -= factor * b[column];
            }
        }
        for row in (0..n).rev() {
            let known: f64 = (row + 1..n).map(|k| a[row * n + k] * b[k]).sum();
            b[row] = (b[row] - known) / a[row * n + row];
        }
        b.iter().all(|speed| speed.is_finite() && *speed > 0.0).then_some(b)
    }
}

/// What a closed loop tells of the speed beyond the numbers that were met.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beyond {
    pub number: f64,
    /// Works of mean 1 per second of each server.
    pub speed: f64,
}

/// Speeds that were drawn or fitted.
#[derive(Clone, Debug)]
pub(super) struct Speeds {
    /// Over the first.
    pub relative: Vec<f64>,
    /// The mean work at the first, seconds.
    pub mean: f64,
    /// How the speed falls beyond the last number if it does so as over the last ones.
    pub falls: f64,
}

/// A service whose speed depends on the number inside.
#[derive(Clone, Debug)]
pub(super) struct Congestion {
    /// The fitted speeds.
    pub slowdown: Slowdown,
    /// Of the fitted speeds: how they fall on.
    pub falls: f64,
    /// Numbers of the speeds, those of closed loops included.
    pub numbers: Vec<f64>,
    /// What closed loops tell.
    pub beyond: Vec<Beyond>,
    /// For each point of the search, step and block.
    pub points: Vec<Vec<Vec<Equations>>>,
}

impl Congestion {
    /// Equations without a request.
    pub fn none(&self) -> Equations {
        Equations::new(self.numbers.len() - self.beyond.len())
    }

    /// Seconds and departures with each number inside up to one, of ten million departures: what the speeds amount to for exponential works.
    pub fn rates(&self, servers: u32, mean: f64, most: usize) -> Vec<(f64, f64)> {
        let rate = |n: usize| {
            let inside = n as u32;
            f64::from(inside.min(servers)) * self.slowdown.speed(f64::from(inside.max(1))) / mean
        };
        (0..=most).map(|n| (1e7 / rate(n.max(1)), 1e7)).collect()
    }

    /// Adds drawn blocks of a step under a point of the search.
    pub fn add(
        &self,
        to: &mut Equations,
        point: usize,
        step: usize,
        blocks: &[usize],
        weight: f64,
    ) {
        let own = &self.points[point][step];
        blocks.iter().filter_map(|b| own.get(*b)).for_each(|block| to.add(block, weight));
    }

    /// The speeds of drawn blocks; `off` gives what the throughput of each closed loop is multiplied by.
    pub fn speeds(&self, drawn: &Equations, mut off: impl FnMut() -> f64) -> Option<Speeds> {
        let mut all = drawn.speeds()?;
        all.extend(self.beyond.iter().map(|b| b.speed * (CLOSED_DEVIATION * off()).exp()));
        Some(Speeds::new(&self.numbers, all))
    }
}

impl Speeds {
    pub fn new(numbers: &[f64], all: Vec<f64>) -> Speeds {
        let first = all.first().copied().unwrap_or(1.0);
        let relative: Vec<f64> = all.iter().map(|speed| speed / first).collect();
        Speeds { falls: falls(numbers, &relative), relative, mean: 1.0 / first }
    }

    pub fn slowdown(&self, numbers: &[f64], tail: f64) -> Option<Slowdown> {
        Slowdown::new(numbers.to_vec(), self.relative.clone(), tail).ok()
    }
}

/// The power by which speeds fall over the last numbers: least squares of their logarithms. 0 if they rise.
fn falls(numbers: &[f64], speeds: &[f64]) -> f64 {
    let last = numbers.last().copied().unwrap_or(1.0);
    let mut from = numbers.partition_point(|n| *n < FALLING_FROM * last);
    from = from.min(numbers.len().saturating_sub(2));
    let each = || numbers.iter().zip(speeds).skip(from).map(|(n, s)| (n.ln(), s.ln()));
    let n = each().count() as f64;
    let (x, y) = each().fold((0.0, 0.0), |sum, e| (sum.0 + e.0 / n, sum.1 + e.1 / n));
    let square: f64 = each().map(|e| (e.0 - x).powi(2)).sum();
    let slope = each().map(|e| (e.0 - x) * (e.1 - y)).sum::<f64>() / square;
    if slope.is_finite() { (-slope).clamp(0.0, TAIL_MAX) } else { 0.0 }
}

/// The part of each of some numbers that a number is made of: linear between them in the logarithm, as [`Slowdown::speed`].
pub(super) fn hats(numbers: &[f64], number: f64) -> [(usize, f64); 2] {
    let last = numbers.len() - 1;
    match numbers.partition_point(|known| *known < number) {
        0 => [(0, 1.0), (0, 0.0)],
        next if next > last => [(last, 1.0), (last, 0.0)],
        next => {
            let (low, high) = (numbers[next - 1], numbers[next]);
            let part = (number / low).ln() / (high / low).ln();
            [(next - 1, 1.0 - part), (next, part)]
        }
    }
}
