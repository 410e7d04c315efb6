//! The probabilities of the states of M/PH/m: Poisson arrivals, phase-type service, several
//! servers.
//!
//! A service time is a walk through k phases, each exponential, until it ends. A state is the
//! number of busy servers in each phase: with all servers busy there are C(m + k − 1, k − 1)
//! states, and the number waiting falls geometrically with a matrix R (M. Neuts, "Matrix-Geometric
//! Solutions in Stochastic Models", 1981). R is found by logarithmic reduction (G. Latouche, V.
//! Ramaswami, Journal of Applied Probability 30, 1993), and the states with idle servers level by
//! level. Cost: about 150 d³ operations for d states (at most 500): milliseconds for 2 phases and
//! 30 servers.

use crate::error::{Error, check, time};

use super::erlang::servers_count;
use super::levels::{Level, singular};
use super::matrix::Matrix;
use super::measures::stable;

/// Largest number of states with all servers busy.
const STATES_MAX: usize = 500;

/// A phase-type law: the probabilities of its first phase, its generator, and the rates at which it
/// ends.
pub(super) struct Phases<'a> {
    pub(super) start: &'a [f64],
    pub(super) generator: &'a [&'a [f64]],
    pub(super) ends: Vec<f64>,
    pub(super) mean: f64,
    #[cfg(test)]
    pub(super) variance: f64,
}

impl<'a> Phases<'a> {
    fn new(start: &'a [f64], generator: &'a [&'a [f64]]) -> Result<Self, Error> {
        let k = start.len();
        check("the number of phases", k as f64, 1.0..=STATES_MAX as f64, "1 to 500")?;
        for &p in start {
            check("the probability of a first phase", p, 0.0..=1.0, "0 to 1")?;
        }
        let total: f64 = start.iter().sum();
        check("the sum of the first phases' probabilities", total, 1.0 - 1e-9..=1.0 + 1e-9, "1")?;
        let must = "as many as phases";
        check("the rows of a generator", generator.len() as f64, k as f64..=k as f64, must)?;
        let mut negated = Matrix::zero(k, k);
        let mut ends = Vec::with_capacity(k);
        for (i, row) in generator.iter().enumerate() {
            check("the columns of a generator", row.len() as f64, k as f64..=k as f64, must)?;
            let mut end = 0.0;
            for (j, &rate) in row.iter().enumerate() {
                let out = if i == j { -rate } else { rate };
                check(
                    "a rate between phases",
                    out,
                    0.0..=1e12,
                    "0 to 1e12, the diagonal negative",
                )?;
                negated[(i, j)] = -rate;
                end -= rate;
            }
            let rounding = 1e-12 * row[i].abs();
            check("the rate at which a phase ends", end, -rounding..=1e12, "at least 0")?;
            ends.push(end.max(0.0));
        }
        let endless = Error::Invalid {
            what: "the service time of a phase-type law",
            value: f64::INFINITY,
            must: "finite: give every phase a way to the end",
        };
        let spent = negated.inverse().ok_or(endless)?;
        let first = spent.before(&vec![1.0; k]);
        let dot = |v: &[f64]| start.iter().zip(v).map(|(a, b)| a * b).sum::<f64>();
        let mean = time("the mean of a phase-type law", dot(&first))?;
        Ok(Phases {
            start,
            generator,
            ends,
            mean,
            #[cfg(test)]
            variance: 2.0 * dot(&spent.before(&first)) - mean * mean,
        })
    }
}

impl Phases<'_> {
    /// Rates within a level: transitions between phases, and minus all departures on the diagonal.
    fn within(&self, level: &Level) -> Matrix {
        let mut out = Matrix::zero(level.states.len(), level.states.len());
        for (at, state) in level.states.iter().enumerate() {
            for (i, &n) in state.iter().enumerate().filter(|s| *s.1 > 0) {
                for (j, &rate) in self.generator[i].iter().enumerate() {
                    let to = if i == j { at } else { level.moved(state, Some(i), Some(j)) };
                    out[(at, to)] += f64::from(n) * rate;
                }
            }
        }
        out
    }

    /// Rates of ends, to the level below, if no request waits.
    fn down(&self, level: &Level, below: &Level) -> Matrix {
        let mut out = Matrix::zero(level.states.len(), below.states.len());
        for (at, state) in level.states.iter().enumerate() {
            for (i, &n) in state.iter().enumerate().filter(|s| *s.1 > 0) {
                out[(at, below.moved(state, Some(i), None))] += f64::from(n) * self.ends[i];
            }
        }
        out
    }

    /// Rates of ends after which a waiting request begins its first phase.
    fn replaced(&self, level: &Level) -> Matrix {
        let mut out = Matrix::zero(level.states.len(), level.states.len());
        for (at, state) in level.states.iter().enumerate() {
            for (i, &n) in state.iter().enumerate().filter(|s| *s.1 > 0) {
                for (j, &p) in self.start.iter().enumerate() {
                    let to = level.moved(state, Some(i), Some(j));
                    out[(at, to)] += f64::from(n) * self.ends[i] * p;
                }
            }
        }
        out
    }

    /// Probabilities of the states that an arrival brings.
    fn up(&self, level: &Level, above: &Level) -> Matrix {
        let mut out = Matrix::zero(level.states.len(), above.states.len());
        for (at, state) in level.states.iter().enumerate() {
            for (j, &p) in self.start.iter().enumerate() {
                out[(at, above.moved(state, None, Some(j)))] += p;
            }
        }
        out
    }
}

/// R: the smallest solution of λ + R(D₀ − λ) + R²D₁ = 0, by logarithmic reduction for G.
fn rate_matrix(rate: f64, within: &Matrix, replaced: &Matrix) -> Result<Matrix, Error> {
    let n = within.rows();
    let one = Matrix::identity(n);
    let local = within.plus(-rate, &one);
    let inverse = Matrix::zero(n, n).plus(-1.0, &local).inverse().ok_or_else(singular)?;
    let mut up = Matrix::zero(n, n).plus(rate, &inverse);
    let mut down = inverse.times(replaced);
    let (mut g, mut reach) = (down.clone(), up.clone());
    for _ in 0..60 {
        let both = up.times(&down).plus(1.0, &down.times(&up));
        let inverse = one.plus(-1.0, &both).inverse().ok_or_else(singular)?;
        up = inverse.times(&up.times(&up));
        down = inverse.times(&down.times(&down));
        g = g.plus(1.0, &reach.times(&down));
        reach = reach.times(&up);
        let missing = g.before(&vec![1.0; n]).iter().map(|x| (1.0 - x).abs()).fold(0.0, f64::max);
        if missing < 1e-14 || reach.before(&vec![1.0; n]).iter().all(|x| *x < 1e-16) {
            break;
        }
    }
    let taboo = Matrix::zero(n, n).plus(-1.0, &local).plus(-rate, &g);
    let inverse = taboo.inverse().ok_or_else(singular)?;
    Ok(Matrix::zero(n, n).plus(rate, &inverse))
}

/// The probabilities of the states.
pub(super) struct Solved<'a> {
    pub(super) rate: f64,
    pub(super) phases: Phases<'a>,
    /// Rates between the states with all busy: no end (D₀), an end and a new start (D₁).
    pub(super) within: Matrix,
    pub(super) replaced: Matrix,
    /// R, (I − R)⁻¹, and the probabilities of all busy and none waiting.
    pub(super) r: Matrix,
    pub(super) sums: Matrix,
    pub(super) all_busy: Vec<f64>,
}

impl<'a> Solved<'a> {
    /// The arguments are arrivals per second, servers, and the law of service: the probabilities of
    /// the first phase, and the generator, whose row i has the rates from phase i to each other one
    /// and, on the diagonal, minus the rate of leaving i; what a row lacks to 0 is the rate at
    /// which service ends there. [`Error::Unstable`] at utilisation 1 or more; [`Error::Invalid`]
    /// for more than 500 states.
    pub(super) fn new(
        arrival_rate: f64,
        servers: u32,
        start: &'a [f64],
        generator: &'a [&'a [f64]],
    ) -> Result<Self, Error> {
        let phases = Phases::new(start, generator)?;
        let m = f64::from(servers_count(servers)?);
        let rate = stable(arrival_rate, m / phases.mean)?;
        let k = start.len();
        // C(m + k − 1, k − 1).
        let states = (1..k).fold(1.0, |n, i| n * (m + i as f64) / i as f64);
        check("the number of states", states, 1.0..=STATES_MAX as f64, "at most 500: use Mgm")?;
        let full = Level::new(k, servers);
        let (within, replaced) = (phases.within(&full), phases.replaced(&full));
        let r = rate_matrix(rate, &within, &replaced)?;
        let one = Matrix::identity(r.rows());
        let sums = one.plus(-1.0, &r).inverse().ok_or_else(singular)?;
        let mut solved = Solved { rate, phases, within, replaced, r, sums, all_busy: Vec::new() };
        solved.all_busy = solved.boundary(servers)?;
        Ok(solved)
    }

    /// The probability that a request waits, and the mean wait of all.
    pub(super) fn wait_and_mean(&self) -> (f64, f64) {
        let first = self.sums.before(&vec![1.0; self.r.rows()]);
        let number = self.r.before(&self.sums.before(&first));
        let mean = if self.rate > 0.0 { self.total(&number) / self.rate } else { 0.0 };
        (self.total(&first).clamp(0.0, 1.0), mean)
    }

    pub(super) fn total(&self, of: &[f64]) -> f64 {
        self.all_busy.iter().zip(of).map(|(a, b)| a * b).sum()
    }

    /// Probabilities of the states with all servers busy and nobody waiting: from the top level
    /// downwards each level is a multiple of the one below it, πₙ = πₙ₋₁Sₙ; then upwards from the
    /// empty system.
    fn boundary(&self, servers: u32) -> Result<Vec<f64>, Error> {
        let (phases, rate, r) = (&self.phases, self.rate, &self.r);
        let k = phases.start.len();
        let mut above = Level::new(k, servers);
        let mut local = self
            .within
            .plus(-rate, &Matrix::identity(r.rows()))
            .plus(1.0, &r.times(&self.replaced));
        let mut steps = Vec::with_capacity(servers as usize);
        for busy in (0..servers).rev() {
            let level = Level::new(k, busy);
            let negated = Matrix::zero(local.rows(), local.rows()).plus(-1.0, &local);
            let inverse = negated.inverse().ok_or_else(singular)?;
            let up = phases.up(&level, &above);
            let step = Matrix::zero(up.rows(), inverse.rows()).plus(rate, &up.times(&inverse));
            local = phases
                .within(&level)
                .plus(-rate, &Matrix::identity(level.states.len()))
                .plus(1.0, &step.times(&phases.down(&above, &level)));
            steps.push(step);
            above = level;
        }
        let mut state = vec![1.0];
        let mut total = 0.0;
        for step in steps.iter().rev() {
            total += state.iter().sum::<f64>();
            state = step.after(&state);
            // Relative to the empty system they may overflow, so the sum is kept at 1.
            let scale = 1.0 / (total + state.iter().sum::<f64>());
            total *= scale;
            state.iter_mut().for_each(|p| *p *= scale);
        }
        total += self.sums.after(&state).iter().sum::<f64>();
        state.iter_mut().for_each(|p| *p /= total);
        Ok(state)
    }
}
