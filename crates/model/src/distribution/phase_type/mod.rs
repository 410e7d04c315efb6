//! Phase-type laws: the time until a Markov chain with exponential phases is absorbed.
//!
//! The page of [`PhaseType`] has formulas, source and cost.

mod erlang;
mod fit;
mod moments;

pub use erlang::{Erlang, ErlangBranch, HyperErlang};
pub use fit::HyperErlangFit;

use statrs::function::gamma::ln_gamma;

use crate::error::{Error, check, time};

use super::{Atom, Complex64, ServiceTime};

/// The largest number of phases.
const PHASES_MAX: usize = 1_000;

/// Up to this many expected steps a CDF is a sum over them; beyond, powers of a matrix are squared.
const STEPS_MAX: f64 = 20_000.0;

/// A phase-type law, the time until a Markov chain is absorbed: initial probabilities α and a generator T
/// among the phases.
///
/// Such laws are dense among those on (0, ∞), closed under sums, mixtures, maxima and minima, and have a
/// CDF, a transform and moments by linear algebra alone: the way to put a measured law into a queue
/// that wants exponential steps ([`crate::queue::Mphm`]). [`PhaseType::from_two_moments`] and
/// [`PhaseType::from_three_moments`] fit moments, [`HyperErlang::fit`] fits samples. Source: M. F. Neuts,
/// "Matrix-Geometric Solutions in Stochastic Models" (1981), chapter 2. Wrong for a tail heavier than
/// exponential, and dear for what is nearly constant: an SCV of c² takes at least 1/c² phases.
///
/// P(X ≤ t) = 1 − α·exp(Tt)·1, E\[e^(−sX)\] = 1 − α1 + α(sI − T)⁻¹(−T1), E\[X^k\] = k!·α(−T)^(−k)·1. What
/// is missing of α1 to 1 is an atom at 0. Linear systems are solved by elimination without subtractions
/// (A. S. Alfa, J. Xue, Q. Ye, Mathematics of Computation 71, 2002), so that moments keep all digits
/// even where rates differ by twelve orders. The CDF is by uniformisation, all of whose terms are
/// positive: error about 1e-14, or 1e-16·(largest rate)·t where that is more.
/// Cost with n phases: a transform n operations for a chain (a triangular generator costs its entries),
/// n³/3 in general; a CDF (largest rate)·t times the generator's entries, n³·log₂(rate·t) for more than
/// 20,000 steps.
///
/// ```
/// use model::distribution::{PhaseType, ServiceTime};
/// // One phase of 2 ms, then with probability 0.3 a second of 10 ms.
/// let law = PhaseType::new(&[1.0, 0.0], &[vec![-500.0, 150.0], vec![0.0, -100.0]])?;
/// assert!((law.mean() - 0.005).abs() < 1e-15);
/// let above = (-2.5f64).exp() + 0.375 * ((-0.5f64).exp() - (-2.5f64).exp());
/// assert!((law.cdf(0.005) - (1.0 - above)).abs() < 1e-12);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseType {
    initial: Vec<f64>,
    /// From each phase: to which others, at which rates.
    moves: Vec<Vec<(usize, f64)>>,
    /// Rate of absorption from each phase.
    exits: Vec<f64>,
    /// Rate out of each phase.
    totals: Vec<f64>,
    mean: f64,
    scv: f64,
}

impl PhaseType {
    /// Of initial probabilities (which add to at most 1) and the generator's rows: rates off the
    /// diagonal, on it minus the rate out. An error if a row adds to more than 0, if absorption is
    /// impossible from a phase, or with more than 1,000 phases.
    pub fn new(initial: &[f64], generator: &[Vec<f64>]) -> Result<Self, Error> {
        let n = initial.len();
        check(
            "the number of rows of a generator",
            generator.len() as f64,
            n as f64..=n as f64,
            "the number of phases",
        )?;
        let (mut moves, mut exits) = (Vec::with_capacity(n), Vec::with_capacity(n));
        for (i, row) in generator.iter().enumerate() {
            check(
                "the length of a generator's row",
                row.len() as f64,
                n as f64..=n as f64,
                "the number of phases",
            )?;
            let mut to = Vec::new();
            for (j, &rate) in row.iter().enumerate() {
                if j != i && rate != 0.0 {
                    check("a rate between phases", rate, 0.0..=1e12, "0 to 1e12 per second")?;
                    to.push((j, rate));
                }
            }
            let out = check(
                "the rate out of a phase",
                -row[i],
                1e-12..=1e12,
                "1e-12 to 1e12 per second",
            )?;
            let exit = out - to.iter().map(|m| m.1).sum::<f64>();
            let must = "at least 0: a row must not add to more than 0";
            exits.push(
                check("the rate of absorption from a phase", exit, -1e-9 * out..=f64::MAX, must)?
                    .max(0.0),
            );
            moves.push(to);
        }
        Self::from_rates(initial.to_vec(), moves, exits)
    }

    /// Of rates between phases and rates of absorption.
    fn from_rates(
        mut initial: Vec<f64>,
        moves: Vec<Vec<(usize, f64)>>,
        exits: Vec<f64>,
    ) -> Result<Self, Error> {
        let n = initial.len();
        check("the number of phases", n as f64, 1.0..=PHASES_MAX as f64, "1 to 1,000")?;
        for &p in &initial {
            check("an initial probability", p, 0.0..=1.0 + 1e-9, "0 to 1")?;
        }
        let start: f64 = initial.iter().sum();
        check(
            "the sum of the initial probabilities",
            start,
            1e-12..=1.0 + 1e-9,
            "above 0, at most 1",
        )?;
        if start > 1.0 - 1e-9 {
            // No atom at 0 of rounding's making.
            initial.iter_mut().for_each(|p| *p /= start);
        }
        let totals =
            moves.iter().zip(&exits).map(|(m, e)| e + m.iter().map(|x| x.1).sum::<f64>()).collect();
        let mut law = PhaseType { initial, moves, exits, totals, mean: 0.0, scv: 0.0 };
        law.mean = time("the mean of a phase-type law", law.moment(1))?;
        let scv = law.moment(2) / (law.mean * law.mean) - 1.0;
        law.scv = check("the SCV of a phase-type law", scv, -1e-9..=1e12, "0 to 1e12")?.max(0.0);
        Ok(law)
    }

    /// A chain: phases with their rates (per second) one after the other, and the probabilities to
    /// start at each (what they miss of 1 is an atom at 0). Its generator is bidiagonal, so a transform
    /// costs a multiplication a phase.
    ///
    /// ```
    /// use model::distribution::{PhaseType, ServiceTime};
    /// let law = PhaseType::chain(&[0.4, 0.6], &[100.0, 100.0])?;
    /// assert!((law.mean() - 0.014).abs() < 1e-15);
    /// # Ok::<(), model::Error>(())
    /// ```
    pub fn chain(initial: &[f64], rates: &[f64]) -> Result<Self, Error> {
        let n = rates.len();
        check(
            "the number of initial probabilities",
            initial.len() as f64,
            n as f64..=n as f64,
            "the number of phases",
        )?;
        for &rate in rates {
            check("the rate of a phase", rate, 1e-12..=1e12, "1e-12 to 1e12 per second")?;
        }
        let last = n.saturating_sub(1);
        let moves = rates.iter().enumerate();
        let moves = moves.map(|(i, &r)| if i < last { vec![(i + 1, r)] } else { Vec::new() });
        let exits = (0..n).map(|i| if i == last { rates[i] } else { 0.0 }).collect();
        Self::from_rates(initial.to_vec(), moves.collect(), exits)
    }

    /// Probability to start at each phase.
    pub fn initial(&self) -> &[f64] {
        &self.initial
    }

    /// The generator's rows, as [`PhaseType::new`] takes them.
    pub fn generator(&self) -> Vec<Vec<f64>> {
        let n = self.initial.len();
        let mut rows = vec![vec![0.0; n]; n];
        for (i, row) in rows.iter_mut().enumerate() {
            row[i] = -self.totals[i];
            for &(j, rate) in &self.moves[i] {
                row[j] += rate;
            }
        }
        rows
    }

    /// Rate of absorption from each phase, per second.
    pub fn exits(&self) -> &[f64] {
        &self.exits
    }

    /// E\[X^k\] in seconds^k. Infinite only where that does not fit a number.
    pub fn moment(&self, k: u32) -> f64 {
        let mut x = vec![Complex64::ONE; self.initial.len()];
        let mut factorial = 1.0;
        for i in 1..=k {
            x = self.solve(Complex64::ZERO, x);
            factorial *= f64::from(i);
        }
        factorial * self.initial.iter().zip(&x).map(|(p, x)| p * x.re).sum::<f64>()
    }

    /// (sI − T)⁻¹·b.
    fn solve(&self, s: Complex64, mut b: Vec<Complex64>) -> Vec<Complex64> {
        let n = b.len();
        if self.moves.iter().enumerate().all(|(i, m)| m.iter().all(|&(j, _)| j > i)) {
            for i in (0..n).rev() {
                let ahead: Complex64 = self.moves[i].iter().map(|&(j, r)| b[j] * r).sum();
                b[i] = (b[i] + ahead) / (s + self.totals[i]);
            }
            return b;
        }
        // Row i of the matrix is Σⱼ rateᵢⱼ + leaveᵢ on the diagonal and −rateᵢⱼ off it; eliminating a
        // phase adds to rates and leaves, so nothing is ever subtracted.
        let mut rates = vec![vec![Complex64::ZERO; n]; n];
        for (i, row) in rates.iter_mut().enumerate() {
            self.moves[i].iter().for_each(|&(j, r)| row[j] += r);
        }
        let mut leaves: Vec<Complex64> = self.exits.iter().map(|e| s + e).collect();
        let mut pivots = vec![Complex64::ZERO; n];
        for k in 0..n {
            let (done, rest) = rates.split_at_mut(k + 1);
            let row = &done[k][k + 1..];
            pivots[k] = leaves[k] + row.iter().sum::<Complex64>();
            for (i, other) in rest.iter_mut().enumerate() {
                if other[k] == Complex64::ZERO {
                    continue;
                }
                let (i, share) = (k + 1 + i, other[k] / pivots[k]);
                for (x, y) in other[k + 1..].iter_mut().zip(row) {
                    *x += share * y;
                }
                other[i] = Complex64::ZERO;
                let leave = share * leaves[k];
                leaves[i] += leave;
                let add = share * b[k];
                b[i] += add;
            }
        }
        for k in (0..n).rev() {
            let ahead: Complex64 =
                rates[k][k + 1..].iter().zip(&b[k + 1..]).map(|(r, x)| r * x).sum();
            b[k] = (b[k] + ahead) / pivots[k];
        }
        b
    }

    /// Probabilities of the phases after a step of the uniformised chain (at rate `q`).
    fn step(&self, at: &[f64], q: f64) -> Vec<f64> {
        let mut next: Vec<f64> =
            at.iter().zip(&self.totals).map(|(p, total)| p * (1.0 - total / q).max(0.0)).collect();
        for (p, moves) in at.iter().zip(&self.moves) {
            for &(j, rate) in moves {
                next[j] += p * rate / q;
            }
        }
        next
    }

    /// P(X > t) for t > 0.
    fn above(&self, t: f64) -> f64 {
        let q = self.totals.iter().copied().fold(0.0, f64::max);
        let steps = q * t;
        if steps.is_nan() || steps > 1e18 {
            return 0.0;
        }
        if steps <= STEPS_MAX {
            return self.above_by_steps(q, steps);
        }
        // exp(Tt) = exp(Tt/2^k)^(2^k), the root by few steps from each phase.
        let halvings = (steps / 4.0).log2().ceil() as i32;
        let n = self.initial.len();
        let small = steps / f64::from(halvings).exp2();
        let mut power: Vec<Vec<f64>> = (0..n)
            .map(|i| {
                let mut at = vec![0.0; n];
                at[i] = 1.0;
                let (mut weight, mut total) = ((-small).exp(), vec![0.0; n]);
                for k in 1..60 {
                    total.iter_mut().zip(&at).for_each(|(x, p)| *x += weight * p);
                    at = self.step(&at, q);
                    weight *= small / f64::from(k);
                }
                total
            })
            .collect();
        for _ in 0..halvings {
            let mut square = vec![vec![0.0; n]; n];
            for (row, out) in power.iter().zip(square.iter_mut()) {
                for (x, from) in row.iter().zip(&power).filter(|(x, _)| **x > 0.0) {
                    out.iter_mut().zip(from).for_each(|(o, y)| *o += x * y);
                }
            }
            power = square;
        }
        self.initial.iter().zip(&power).map(|(p, row)| p * row.iter().sum::<f64>()).sum()
    }

    /// Σ Poisson(steps; k)·P(not absorbed after k steps), from where the weights begin to count.
    fn above_by_steps(&self, q: f64, steps: f64) -> f64 {
        let reach = 8.0 * steps.sqrt() + 20.0;
        let mut at = self.initial.clone();
        let (mut total, mut weights) = (0.0, 0.0);
        // Weights relative to the mode's, because e^(−steps) underflows; each is the last one times steps/k.
        let mode = steps.floor();
        let log_mode = mode * steps.max(1e-300).ln() - ln_gamma(mode + 1.0);
        let first = (steps - reach).floor().max(0.0);
        for _ in 0..first as u64 {
            at = self.step(&at, q);
        }
        let log = first * steps.max(1e-300).ln() - ln_gamma(first + 1.0);
        let (mut k, mut weight) = (first, (log - log_mode).exp());
        while k <= steps + reach {
            total += weight * at.iter().sum::<f64>();
            weights += weight;
            at = self.step(&at, q);
            k += 1.0;
            weight *= steps / k;
        }
        total / weights
    }
}

impl ServiceTime for PhaseType {
    fn mean(&self) -> f64 {
        self.mean
    }
    fn scv(&self) -> f64 {
        self.scv
    }
    fn transform(&self, s: Complex64) -> Complex64 {
        let exits = self.exits.iter().map(|&e| Complex64::from(e)).collect();
        let x = self.solve(s, exits);
        let started: Complex64 = self.initial.iter().zip(&x).map(|(p, x)| x * p).sum();
        started + self.at_zero()
    }
    fn cdf(&self, t: f64) -> f64 {
        if t.is_nan() || t < 0.0 {
            return 0.0;
        }
        (1.0 - self.above(t)).clamp(0.0, 1.0)
    }
    fn atoms(&self) -> Vec<Atom> {
        let share = self.at_zero();
        if share > 0.0 { vec![Atom { at: 0.0, share }] } else { Vec::new() }
    }
}

impl PhaseType {
    fn at_zero(&self) -> f64 {
        let missing = 1.0 - self.initial.iter().sum::<f64>();
        if missing > 1e-12 { missing } else { 0.0 }
    }
}

#[cfg(test)]
mod tests;
