//! Exact solution of closed networks of several classes with stations of any speeds: the
//! convolution of `convolution`, over all populations.
//!
//! Reiser and Kobayashi, IBM J. R&D 19 (1975). All terms are positive, and tilted by the
//! throughputs z of an approximation as in `convolution`. With S = Π(N_c + 1) populations, a queue
//! of constant speed costs S × classes, a delay S × ΣN, a station of other rates up to S².

use super::convolution::Failure;
use super::station::Law;

/// A station: demand of each class, and its α.
pub(crate) struct Server<'a> {
    pub(crate) demands: Vec<f64>,
    pub(crate) law: &'a Law,
}

/// The solution of a network.
pub(crate) struct Solved {
    pub(crate) throughput: Vec<f64>,
    /// `[class][station]`.
    pub(crate) numbers: Vec<Vec<f64>>,
    /// P(n customers of all classes) at stations whose speed changes; empty for others.
    pub(crate) totals: Vec<Vec<f64>>,
}

/// Largest number of steps.
pub(crate) const WORK_MAX: f64 = 3e9;

/// All populations, the first class varying fastest.
struct Lattice {
    customers: Vec<usize>,
    strides: Vec<usize>,
    size: usize,
    /// Number of each class in each population, and their sum.
    counts: Vec<Vec<usize>>,
    totals: Vec<usize>,
}

/// Values over the lattice, times 2^scale.
#[derive(Clone)]
struct Grid {
    values: Vec<f64>,
    scale: i64,
}

impl Grid {
    fn normalise(&mut self) {
        let max = self.values.iter().copied().fold(0.0, f64::max);
        if max > 0.0 && max.is_finite() {
            let exponent = max.log2().floor().clamp(-1000.0, 1000.0) as i32;
            let factor = 2f64.powi(-exponent);
            self.values.iter_mut().for_each(|v| *v *= factor);
            self.scale += i64::from(exponent);
        }
    }
}

/// Number of steps of [`solve`].
pub(crate) fn work(servers: &[Server<'_>], customers: &[u32]) -> f64 {
    let size: f64 = customers.iter().map(|n| f64::from(*n) + 1.0).product();
    let sum: f64 = customers.iter().map(|n| f64::from(*n)).sum();
    let halves = 2f64.powi(customers.len() as i32);
    let each = |s: &Server<'_>| match s.law {
        Law::Delay => 3.0 * size * sum,
        Law::Rates(rates) if rates.len() == 1 => 5.0 * size * customers.len() as f64,
        Law::Rates(_) => 3.0 * size * size / halves,
    };
    // Memory too: some 300 MB.
    servers.iter().map(each).sum::<f64>() + 150.0 * size * servers.len() as f64
}

impl Lattice {
    fn new(customers: &[u32]) -> Lattice {
        let customers: Vec<usize> = customers.iter().map(|n| *n as usize).collect();
        let mut strides = Vec::new();
        let mut size = 1;
        for n in &customers {
            strides.push(size);
            size *= n + 1;
        }
        let digit = |i: usize, c: usize| i / strides[c] % (customers[c] + 1);
        let classes = customers.len();
        let counts: Vec<Vec<usize>> =
            (0..classes).map(|c| (0..size).map(|i| digit(i, c)).collect()).collect();
        let totals = (0..size).map(|i| counts.iter().map(|n| n[i]).sum()).collect();
        Lattice { customers, strides, size, counts, totals }
    }

    fn unit(&self) -> Grid {
        let mut values = vec![0.0; self.size];
        values[0] = 1.0;
        Grid { values, scale: 0 }
    }

    /// Convolution with a queue of constant speed: out(n) = g(n) + Σ_c D_c·out(n − e_c).
    fn queue(&self, g: &Grid, demands: &[f64]) -> Grid {
        let mut out = g.clone();
        for i in 0..self.size {
            for (c, d) in demands.iter().enumerate() {
                if self.counts[c][i] > 0 {
                    out.values[i] += d * out.values[i - self.strides[c]];
                }
            }
        }
        out.normalise();
        out
    }

    /// Convolution with a delay: class by class, out(n) = Σ_j D^j/j!·g(n − j·e_c).
    fn delay(&self, g: &Grid, demands: &[f64]) -> Grid {
        let mut out = g.clone();
        for (c, d) in demands.iter().enumerate().filter(|(_, d)| **d > 0.0) {
            for i in (0..self.size).rev() {
                let (mut weight, mut sum) = (1.0, out.values[i]);
                for j in 1..=self.counts[c][i] {
                    weight *= d / j as f64;
                    sum += weight * out.values[i - j * self.strides[c]];
                }
                out.values[i] = sum;
            }
        }
        out.normalise();
        out
    }

    /// Weights |n|!/Π n_c! · Π D_c^n_c / (α(1)…α(|n|)), the largest near 1.
    fn weights(&self, demands: &[f64], law: &Law) -> Grid {
        let most: usize = self.customers.iter().sum();
        let mut factorial = vec![0.0f64];
        let mut by_total = vec![0.0f64];
        for n in 1..=most {
            factorial.push(factorial[n - 1] + (n as f64).ln());
            by_total.push(by_total[n - 1] + (n as f64 / law.alpha(n)).ln());
        }
        let mut logs = vec![0.0; self.size];
        for (i, log) in logs.iter_mut().enumerate() {
            *log = by_total[self.totals[i]];
            for (c, d) in demands.iter().enumerate() {
                let n = self.counts[c][i];
                if n > 0 {
                    *log += n as f64 * d.ln() - factorial[n];
                }
            }
        }
        let max = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let scale = (max / 2f64.ln()).floor();
        let values = logs.iter().map(|log| (log - scale * 2f64.ln()).exp()).collect();
        Grid { values, scale: scale as i64 }
    }

    /// Convolution with any weights: out(n) = Σ f(j)·g(n − j), row by row of the first class.
    fn product(&self, f: &Grid, g: &Grid) -> Grid {
        let mut out = vec![0.0; self.size];
        let row = self.customers[0] + 1;
        let fits = |a: usize, b: usize| {
            (1..self.customers.len())
                .all(|c| self.counts[c][a] + self.counts[c][b] <= self.customers[c])
        };
        for f_row in (0..self.size).step_by(row) {
            for g_row in (0..self.size).step_by(row) {
                if !fits(f_row, g_row) {
                    continue;
                }
                let target = &mut out[f_row + g_row..f_row + g_row + row];
                for j in 0..row {
                    let weight = f.values[f_row + j];
                    if weight > 0.0 {
                        let from = &g.values[g_row..g_row + row - j];
                        target[j..].iter_mut().zip(from).for_each(|(t, v)| *t += weight * v);
                    }
                }
            }
        }
        let mut out = Grid { values: out, scale: f.scale + g.scale };
        out.normalise();
        out
    }

    /// Σ a(i)·b(t − i).
    fn meet(&self, a: &Grid, b: &Grid, target: usize) -> f64 {
        let below = |i: &usize| self.counts.iter().all(|n| n[*i] <= n[target]);
        (0..=target).filter(below).map(|i| a.values[i] * b.values[target - i]).sum()
    }

    fn with(&self, g: &Grid, server: &Server<'_>) -> Grid {
        match server.law {
            Law::Delay => self.delay(g, &server.demands),
            Law::Rates(rates) if rates.len() == 1 => {
                let demands: Vec<f64> = server.demands.iter().map(|d| d / rates[0]).collect();
                self.queue(g, &demands)
            }
            law => self.product(&self.weights(&server.demands, law), g),
        }
    }
}

/// Solves a closed network whose classes all have customers; `tilt` is close to the throughputs.
pub(crate) fn solve(
    servers: &[Server<'_>],
    customers: &[u32],
    tilt: &[f64],
) -> Result<Solved, Failure> {
    let steps = work(servers, customers);
    if steps > WORK_MAX {
        return Err(Failure::Work(steps));
    }
    let lattice = Lattice::new(customers);
    let tilted: Vec<Server<'_>> = servers
        .iter()
        .map(|s| Server {
            demands: s.demands.iter().zip(tilt).map(|(d, z)| d * z).collect(),
            law: s.law,
        })
        .collect();
    let count = tilted.len();
    let mut left = vec![lattice.unit()];
    for (k, server) in tilted.iter().enumerate() {
        left.push(lattice.with(&left[k], server));
    }
    let mut right = vec![lattice.unit()];
    for (done, server) in tilted.iter().skip(1).rev().enumerate() {
        right.push(lattice.with(&right[done], server));
    }
    right.reverse(); // right[k]: of the stations after k
    let full = lattice.size - 1;
    let all = &left[count];
    let constant = all.values[full];
    if !(constant > 1e-200 && all.values.iter().all(|v| v.is_finite())) {
        return Err(Failure::Range);
    }
    let classes = customers.len();
    let throughput: Vec<f64> = (0..classes)
        .map(|c| tilt[c] * (all.values[full - lattice.strides[c]] / constant))
        .collect();
    let over = |value: f64, scale: i64| {
        value / constant * 2f64.powi((scale - all.scale).clamp(-2000, 2000) as i32)
    };
    let mut solved = Solved {
        throughput,
        numbers: vec![vec![0.0; count]; classes],
        totals: vec![vec![]; count],
    };
    for (k, server) in tilted.iter().enumerate() {
        match server.law {
            Law::Delay => {
                for c in 0..classes {
                    solved.numbers[c][k] = solved.throughput[c] * servers[k].demands[c];
                }
            }
            Law::Rates(rates) if rates.len() == 1 => {
                // D ∂F/∂D of F = 1/(1 − ΣDz) is D·F·F, one customer of the class ahead.
                let twice = lattice.with(&left[k + 1], server);
                for c in 0..classes {
                    let met = lattice.meet(&twice, &right[k], full - lattice.strides[c]);
                    let demand = server.demands[c] / rates[0];
                    solved.numbers[c][k] = over(demand * met, twice.scale + right[k].scale);
                }
            }
            law => {
                let weights = lattice.weights(&server.demands, law);
                let others = lattice.product(&left[k], &right[k]);
                let most: usize = lattice.customers.iter().sum();
                let mut totals = vec![0.0; most + 1];
                for i in 0..lattice.size {
                    let value = weights.values[i] * others.values[full - i];
                    let share = over(value, weights.scale + others.scale);
                    totals[lattice.totals[i]] += share;
                    for c in 0..classes {
                        solved.numbers[c][k] += lattice.counts[c][i] as f64 * share;
                    }
                }
                solved.totals[k] = totals;
            }
        }
    }
    Ok(solved)
}
