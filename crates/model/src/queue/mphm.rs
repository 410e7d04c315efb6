//! M/PH/m: Poisson arrivals, phase-type service, several servers: the exact solution.

use std::collections::HashMap;

use crate::error::{Error, check, time};

use super::erlang::servers_count;
use super::matrix::Matrix;
use super::uniformised::Uniformised;
use super::{Queue, stable};

/// States of all busy servers that are solved for.
const STATES_MAX: usize = 500;

/// Steps after which the tail of the waiting time is taken for geometric, if it is not before.
const STEPS_MAX: usize = 200_000;

/// The M/PH/m queue, solved exactly: what approximations of M/G/m are checked against.
///
/// A service time is a walk through k phases, each exponential, until it ends. A state is how many of the
/// busy servers are in each phase: with all busy there are C(m + k − 1, k − 1) of them, and the number
/// waiting falls geometrically with a matrix R (M. Neuts, "Matrix-Geometric Solutions in Stochastic
/// Models", 1981), found by logarithmic reduction (G. Latouche, V. Ramaswami, Journal of Applied
/// Probability 30 (1993)); below, level by level. Waiting times by uniformisation; moments
/// from E\[L(L−1)…\] = λʲE\[Wʲ\] of the number waiting L. Cost: about 150 d³ operations for d states (at most
/// 500), and d³ for each step of the waiting time's tail: milliseconds for 2 phases and 30 servers,
/// seconds for 200 states.
///
/// It assumes Poisson arrivals, equal servers, first come first served, and a law that is phase-type: an SCV below
/// 1/k needs more than k phases, a lognormal tail more than any. For any other law use [`super::Mgm`].
///
/// ```
/// use model::queue::{Mphm, Queue};
/// // Two servers; 9 of 10 requests take 5 ms, the others 55 ms, each exponentially.
/// let queue = Mphm::new(150.0, 2, &[0.9, 0.1], &[&[-200.0, 0.0], &[0.0, -1.0 / 0.055]])?;
/// assert!((queue.utilisation() - 0.75).abs() < 1e-12);
/// assert!(queue.waiting_mean() > 0.02 && queue.response_cdf(0.3) < 1.0);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Mphm {
    arrival_rate: f64,
    servers: u32,
    service_mean: f64,
    service_variance: f64,
    waits: f64,
    waiting_mean: f64,
    waiting_variance: f64,
    waiting: Uniformised,
    response: Uniformised,
}

/// A phase-type law: where it starts, its generator, and the rates at which it ends.
struct Phases<'a> {
    start: &'a [f64],
    generator: &'a [&'a [f64]],
    ends: Vec<f64>,
    mean: f64,
    variance: f64,
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
        let second = spent.before(&first);
        let dot = |v: &[f64]| start.iter().zip(v).map(|(a, b)| a * b).sum::<f64>();
        let mean = time("the mean of a phase-type law", dot(&first))?;
        Ok(Phases { start, generator, ends, mean, variance: 2.0 * dot(&second) - mean * mean })
    }
}

/// All ways to have `busy` servers in `phases` phases.
fn occupancies(phases: usize, busy: u32) -> Vec<Vec<u32>> {
    if phases == 1 {
        return vec![vec![busy]];
    }
    let with = |n: u32| {
        let rest = occupancies(phases - 1, busy - n);
        rest.into_iter().map(move |mut state| {
            state.push(n);
            state
        })
    };
    (0..=busy).flat_map(with).collect()
}

/// The states of one number of busy servers.
pub(super) struct Level {
    pub(super) states: Vec<Vec<u32>>,
    index: HashMap<Vec<u32>, usize>,
}

impl Level {
    pub(super) fn new(phases: usize, busy: u32) -> Self {
        let states = occupancies(phases, busy);
        let index = states.iter().cloned().enumerate().map(|(i, s)| (s, i)).collect();
        Level { states, index }
    }

    /// Index of a state with one server less in phase `from` and one more in phase `to`.
    pub(super) fn moved(&self, state: &[u32], from: Option<usize>, to: Option<usize>) -> usize {
        let mut state = state.to_vec();
        if let Some(i) = from {
            state[i] -= 1;
        }
        if let Some(j) = to {
            state[j] += 1;
        }
        self.index.get(&state).copied().unwrap_or(0)
    }
}

impl Phases<'_> {
    /// Rates within a level: phases that follow each other; and minus what leaves on the diagonal.
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

    /// Rates of ends, to the level below: nobody waits.
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

/// What cannot happen to a generator: a matrix that must have an inverse has none.
pub(super) fn singular() -> Error {
    let must = "less extreme: the equations cannot be solved in 64-bit numbers";
    Error::Invalid { what: "a rate of the M/PH/m queue", value: f64::NAN, must }
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

impl Mphm {
    /// With arrivals per second, servers, and the law of service: the probabilities of the first phase, and
    /// the generator, whose row i has the rates from phase i to each other one and, on the diagonal,
    /// minus the rate of leaving i; what a row lacks to 0 is the rate at which service ends there.
    /// [`Error::Unstable`] at utilisation 1 or more; [`Error::Invalid`] for more than 500 states.
    pub fn new(
        arrival_rate: f64,
        servers: u32,
        start: &[f64],
        generator: &[&[f64]],
    ) -> Result<Self, Error> {
        let solved = Solved::new(arrival_rate, servers, start, generator)?;
        let (waits, waiting_mean) = solved.waiting();
        let square = solved.waiting_square();
        let (waiting, response) = solved.times();
        Ok(Mphm {
            arrival_rate,
            servers,
            service_mean: solved.phases.mean,
            service_variance: solved.phases.variance.max(0.0),
            waits,
            waiting_mean,
            waiting_variance: (square - waiting_mean * waiting_mean).max(0.0),
            waiting,
            response,
        })
    }

    /// The probability that a request waits.
    pub fn waiting_probability(&self) -> f64 {
        self.waits
    }
}

/// The probabilities of the states.
pub(super) struct Solved<'a> {
    rate: f64,
    phases: Phases<'a>,
    /// Rates between the states with all busy: no end (D₀), an end and a new start (D₁).
    within: Matrix,
    replaced: Matrix,
    /// R, (I − R)⁻¹, and the probabilities of all busy and none waiting.
    r: Matrix,
    sums: Matrix,
    all_busy: Vec<f64>,
}

impl<'a> Solved<'a> {
    /// As [`Mphm::new`].
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
    pub(super) fn waiting(&self) -> (f64, f64) {
        let first = self.sums.before(&vec![1.0; self.r.rows()]);
        let number = self.r.before(&self.sums.before(&first));
        let mean = if self.rate > 0.0 { self.total(&number) / self.rate } else { 0.0 };
        (self.total(&first).clamp(0.0, 1.0), mean)
    }

    /// The second moment of the waiting time.
    fn waiting_square(&self) -> f64 {
        let mut pairs = vec![1.0; self.r.rows()];
        (0..3).for_each(|_| pairs = self.sums.before(&pairs));
        (0..2).for_each(|_| pairs = self.r.before(&pairs));
        if self.rate > 0.0 { 2.0 * self.total(&pairs) / self.rate.powi(2) } else { 0.0 }
    }

    fn total(&self, of: &[f64]) -> f64 {
        self.all_busy.iter().zip(of).map(|(a, b)| a * b).sum()
    }

    /// Probabilities of the states with all servers busy and nobody waiting: from the top level downwards
    /// each level is a multiple of the one below it, πₙ = πₙ₋₁Sₙ; then upwards from the empty system.
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
            // Relative to the empty system they may grow past all bounds: keep the sum at 1.
            let scale = 1.0 / (total + state.iter().sum::<f64>());
            total *= scale;
            state.iter_mut().for_each(|p| *p *= scale);
        }
        total += self.sums.after(&state).iter().sum::<f64>();
        state.iter_mut().for_each(|p| *p /= total);
        Ok(state)
    }

    /// The laws of waiting and response times. With Z₀ = (I − R)⁻¹ and Zᵢ₊₁ = ZᵢP₀ + RZᵢP₁ (no end, an end in
    /// the next event of rate Λ), a request still waits after i events with probability πZᵢ1.
    pub(super) fn times(&self) -> (Uniformised, Uniformised) {
        let (phases, n) = (&self.phases, self.r.rows());
        let waits = self.waiting().0;
        let one = Matrix::identity(n);
        let rate = (0..n).map(|i| -self.within[(i, i)]).fold(0.0, f64::max);
        // Transposed, so that the sparse factors stand on the left.
        let stay = one.plus(1.0 / rate, &self.within).transposed();
        let end = Matrix::zero(n, n).plus(1.0 / rate, &self.replaced).transposed();
        let r = self.r.transposed();
        let k = phases.start.len();
        // One's own service at the same events.
        let mut own = Matrix::identity(k);
        for i in 0..k {
            for j in 0..k {
                own[(i, j)] += phases.generator[i][j] / rate;
            }
        }
        let mut serving: Vec<f64> = phases.start.iter().map(|p| p * (1.0 - waits)).collect();
        let mut z = self.sums.transposed();
        let still = |z: &Matrix| z.before(&self.all_busy).iter().sum::<f64>();
        let mut left = still(&z);
        let (mut waiting, mut response) = (Vec::new(), Vec::new());
        let mut ratio = (0.0f64, 0usize);
        while left > 1e-18 && waiting.len() < STEPS_MAX && ratio.1 < 5 {
            waiting.push(left);
            response.push(left + serving.iter().sum::<f64>());
            z = stay.times(&z).plus(1.0, &end.times(&z).times(&r));
            let next = still(&z).clamp(0.0, left);
            serving = own.after(&serving);
            serving.iter_mut().zip(phases.start).for_each(|(s, p)| *s += p * (left - next));
            let now = next / left;
            ratio = if (now - ratio.0).abs() < 1e-13 { (now, ratio.1 + 1) } else { (now, 0) };
            left = next;
        }
        // From here on it falls by the same ratio; the response goes on until it does so too.
        let decay = if ratio.1 >= 5 { ratio.0 } else { 0.0 };
        let mut fall = (0.0f64, 0usize);
        let mut total = left + serving.iter().sum::<f64>();
        while total > 1e-18 && response.len() < STEPS_MAX && fall.1 < 5 {
            response.push(total);
            serving = own.after(&serving);
            let next = left * decay;
            serving.iter_mut().zip(phases.start).for_each(|(s, p)| *s += p * (left - next));
            left = next;
            let after = (left + serving.iter().sum::<f64>()).min(total);
            let now = after / total;
            fall = if (now - fall.0).abs() < 1e-13 { (now, fall.1 + 1) } else { (now, 0) };
            total = after;
        }
        let slow = if fall.1 >= 5 { fall.0 } else { 0.0 };
        (Uniformised::new(rate, waiting, decay), Uniformised::new(rate, response, slow))
    }
}

impl Queue for Mphm {
    fn throughput(&self) -> f64 {
        self.arrival_rate
    }
    fn utilisation(&self) -> f64 {
        self.arrival_rate * self.service_mean / f64::from(self.servers)
    }
    fn waiting_mean(&self) -> f64 {
        self.waiting_mean
    }
    fn waiting_variance(&self) -> f64 {
        self.waiting_variance
    }
    fn response_mean(&self) -> f64 {
        self.waiting_mean + self.service_mean
    }
    fn response_variance(&self) -> f64 {
        self.waiting_variance + self.service_variance
    }
    fn waiting_cdf(&self, t: f64) -> f64 {
        self.waiting.cdf(t)
    }
    fn response_cdf(&self, t: f64) -> f64 {
        self.response.cdf(t)
    }
}
