//! M/Hₖ/m: Poisson arrivals, hyperexponential service, several servers: the exact law of the
//! waiting time.
//!
//! With all m servers busy, the number waiting and the branches that are served form a random walk
//! whose stationary law is Σ bᵢxᵢwᵢⁿ for n waiting: a wait is a mixture of exponential times, one
//! for each way to spread m servers over k branches. Source: J. de Smit, "A numerical solution for
//! the multi-server queue with hyper-exponential service times", Operations Research Letters 2
//! (1983); D. Bertsimas, "An exact FCFS waiting-time analysis for a general class of G/G/s queueing
//! systems" (1987), whose root equation this is for Poisson arrivals: with u = 1/w and θⱼ(u) the
//! root of E\[e^(−θS)\] = u beside the j-th pole, λ(u − 1) + Σ iⱼθⱼ(u) = 0 for servers i₁ + … +
//! iₖ = m. Each equation has one root above 1, found between bounds; its vector is a product of k
//! known ones. The boundary, the levels with a free server, is solved by elimination from the empty
//! level upwards.
//!
//! Cost with d = C(m + k − 1, k − 1): d³ operations for the roots' weights, and twice the sum of
//! the cubes of the lower levels' states: some milliseconds for two branches and 64 servers, or
//! three and 16. A value of the law takes d exponentials. Exact; shares may have both signs in
//! theory, none was seen to lose digits by that.

use crate::distribution::Complex64;
use crate::error::{Error, check};

use super::erlang::servers_count;
use super::levels::{Level, singular};
use super::matrix::Matrix;
use super::measures::stable;

/// Largest number of states with all servers busy.
pub(super) const STATES_MAX: usize = 600;

/// P(T > t) = Σ share·exp(−rate·t), for t at least 0.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Exponentials {
    /// Share, rate per second.
    terms: Vec<(f64, f64)>,
}

impl Exponentials {
    /// P(T > 0).
    pub(super) fn above_zero(&self) -> f64 {
        self.terms.iter().map(|(share, _)| share).sum()
    }

    /// Mean and second moment.
    pub(super) fn moments(&self) -> (f64, f64) {
        let add = |(one, two): (f64, f64), (share, rate): &(f64, f64)| {
            (one + share / rate, two + 2.0 * share / (rate * rate))
        };
        self.terms.iter().fold((0.0, 0.0), add)
    }

    /// P(T > t), `t` at least 0.
    #[cfg(test)]
    pub(super) fn above(&self, t: f64) -> f64 {
        self.terms.iter().map(|(share, rate)| share * (-rate * t).exp()).sum()
    }

    /// Adds `factor` times the transform of the part above 0 at `re` + i·k·`step`.
    pub(super) fn add_line(&self, re: f64, step: f64, factor: f64, out: &mut [Complex64]) {
        for &(share, rate) in &self.terms {
            let (size, real) = (factor * share * rate, rate + re);
            for (k, value) in out.iter_mut().enumerate() {
                let im = step * k as f64;
                let scale = size / (real * real + im * im);
                value.re += scale * real;
                value.im -= scale * im;
            }
        }
    }
}

/// The law of the waiting time, from arrivals per second, the number of servers, and branches
/// (probability, mean in seconds) with different means. [`Error::Unstable`] at utilisation 1 or
/// more; [`Error::Invalid`] for more than 600 states.
pub(super) fn waiting_law(
    rate: f64,
    servers: u32,
    branches: &[(f64, f64)],
) -> Result<Exponentials, Error> {
    let mut branches: Vec<(f64, f64)> = branches.iter().copied().filter(|b| b.0 > 0.0).collect();
    branches.sort_by(|a, b| b.1.total_cmp(&a.1));
    let m = f64::from(servers_count(servers)?);
    let mean: f64 = branches.iter().map(|(p, x)| p * x).sum();
    let rate = stable(rate, m / mean)?;
    if rate <= 0.0 {
        return Ok(Exponentials { terms: Vec::new() });
    }
    let k = branches.len();
    let states = (1..k).fold(1.0, |n, i| n * (m + i as f64) / i as f64);
    check("the number of states", states, 1.0..=STATES_MAX as f64, "at most 600")?;
    // In units of the mean service time.
    let service = Branches {
        start: branches.iter().map(|b| b.0).collect(),
        rates: branches.iter().map(|b| mean / b.1).collect(),
    };
    let terms = service.solve(rate * mean, servers)?;
    Ok(Exponentials { terms: terms.into_iter().map(|(share, r)| (share, r / mean)).collect() })
}

/// Hyperexponential service of mean 1, slowest branch first.
struct Branches {
    start: Vec<f64>,
    rates: Vec<f64>,
}

/// The effect of the levels with a free server on the level at which the last one became busy.
struct Boundary {
    /// For each level below the last: the state that an arrival leads to, by state and branch.
    arrivals: Vec<Vec<Vec<usize>>>,
    /// The states with all servers busy.
    full: Vec<Vec<u32>>,
    /// λ times this is the rate of leaving the last level downwards and returning, by states.
    back: Matrix,
    /// Time spent below per unit of time in each state.
    below: Vec<f64>,
}

impl Branches {
    fn boundary(&self, rate: f64, servers: u32) -> Result<Boundary, Error> {
        let k = self.start.len();
        let mut lower = Level::new(k, 0);
        // Time in a level's states, before the next arrival that raises it for the first time.
        let mut times = Matrix::identity(1).scaled(1.0 / rate);
        let mut total = vec![1.0];
        let mut arrivals = Vec::with_capacity(servers as usize);
        for busy in 1..=servers {
            let level = Level::new(k, busy);
            let n = level.states.len();
            let mut down = Matrix::zero(n, lower.states.len());
            for (at, state) in level.states.iter().enumerate() {
                for (i, &count) in state.iter().enumerate().filter(|s| *s.1 > 0) {
                    let to = lower.moved(state, Some(i), None);
                    down[(at, to)] += f64::from(count) * self.rates[i];
                }
            }
            let to = |state: &Vec<u32>| -> Vec<usize> {
                (0..k).map(|j| level.moved(state, None, Some(j))).collect()
            };
            let up: Vec<Vec<usize>> = lower.states.iter().map(to).collect();
            let reach = down.times(&times);
            let mut back = Matrix::zero(n, n);
            for at in 0..n {
                for (state, to) in up.iter().enumerate() {
                    for (&to, p) in to.iter().zip(&self.start) {
                        back[(at, to)] += reach[(at, state)] * p;
                    }
                }
            }
            let below = reach.before(&total);
            arrivals.push(up);
            if busy == servers {
                return Ok(Boundary { arrivals, full: level.states, back, below });
            }
            let mut leave = back.scaled(-rate);
            for (at, state) in level.states.iter().enumerate() {
                let ends = state.iter().zip(&self.rates).map(|(&c, r)| f64::from(c) * r);
                leave[(at, at)] += rate + ends.sum::<f64>();
            }
            times = leave.inverse().ok_or_else(singular)?;
            total = below.iter().map(|t| 1.0 + t).collect();
            lower = level;
        }
        Err(singular())
    }

    /// Shares and rates of the exponential waits.
    fn solve(&self, rate: f64, servers: u32) -> Result<Vec<(f64, f64)>, Error> {
        let Boundary { arrivals, full, back, below } = self.boundary(rate, servers)?;
        let n = full.len();
        let mut vectors = Matrix::zero(n, n);
        let mut roots = Vec::with_capacity(n);
        for (row, spread) in full.iter().enumerate() {
            let (more, poles) = self.root(rate, spread);
            let (vector, sum) = self.vector(spread, &poles, more, &arrivals);
            vector.iter().enumerate().for_each(|(j, x)| vectors[(row, j)] = *x);
            roots.push((more, sum));
        }
        // Σ bᵢ(uᵢxᵢ − xᵢ·back) = 0. One equation follows from the others, and is replaced by the
        // sum of all probabilities being 1.
        let mut equations = vectors.times(&back).scaled(-1.0);
        for (i, (more, sum)) in roots.iter().enumerate() {
            (0..n).for_each(|j| equations[(i, j)] += (1.0 + more) * vectors[(i, j)]);
            let free: f64 = (0..n).map(|j| vectors[(i, j)] * below[j]).sum();
            equations[(i, n - 1)] = free + sum * (1.0 + more) / more;
        }
        let mut right = vec![0.0; n];
        right[n - 1] = 1.0;
        let weights = equations.transposed().solve(right).ok_or_else(singular)?;
        let term =
            |(b, (more, sum)): (&f64, &(f64, f64))| (b * sum * (1.0 + more) / more, rate * more);
        Ok(weights.iter().zip(&roots).map(term).collect())
    }

    /// u − 1 for the root u above 1 with the given number of servers at each branch, and the
    /// distance of each θⱼ from its pole.
    fn root(&self, rate: f64, spread: &[u32]) -> (f64, Vec<f64>) {
        let k = self.rates.len();
        let at = |more: f64| -> (f64, f64) {
            let mut sum = (rate * more, rate);
            for (j, &count) in spread.iter().enumerate().filter(|s| *s.1 > 0) {
                let (off, slope) = self.beside(j, more);
                sum.0 += f64::from(count) * (off - self.rates[j]);
                sum.1 += f64::from(count) / slope;
            }
            sum
        };
        let ends: f64 = spread.iter().zip(&self.rates).map(|(&c, r)| f64::from(c) * r).sum();
        let high = ends / rate;
        // 1 itself is a root if all servers are at the slowest branch.
        let mut low = high;
        while at(low).0 >= 0.0 && low > 1e-13 * high {
            low *= 0.5;
        }
        let more = rising_root(low, (2.0 * low).min(high), at);
        (more, (0..k).map(|j| self.beside(j, more).0).collect())
    }

    /// ε and the slope of E\[e^(−θS)\] there, for θ = ε − µⱼ between the poles −µⱼ and −µⱼ₋₁ (or 0)
    /// at which the transform is 1 + `more`.
    fn beside(&self, j: usize, more: f64) -> (f64, f64) {
        let high = if j == 0 { self.rates[0] } else { self.rates[j] - self.rates[j - 1] };
        let slope = |off: f64| -> f64 {
            let terms = self.start.iter().zip(&self.rates);
            terms.map(|(p, r)| -p * r / (r - self.rates[j] + off).powi(2)).sum()
        };
        // Multiplied by ε/u, which removes the lower pole, and negated.
        let at = |off: f64| -> (f64, f64) {
            let terms = self.start.iter().zip(&self.rates);
            let value: f64 = terms.map(|(p, r)| p * r / (r - self.rates[j] + off)).sum();
            let off_by = value - 1.0 - more;
            (-off * off_by, -off_by - off * slope(off))
        };
        let off = rising_root(0.0, high, at);
        (off, slope(off))
    }

    /// The vector of a root, its largest entry 1, and the sum of its entries: coefficients of
    /// Π (Σₗ ψⱼₗyₗ)^iⱼ with ψⱼₗ = pₗ/(θⱼ + µₗ).
    fn vector(
        &self,
        spread: &[u32],
        poles: &[f64],
        more: f64,
        arrivals: &[Vec<Vec<usize>>],
    ) -> (Vec<f64>, f64) {
        let (mut vector, mut sum) = (vec![1.0], 1.0);
        let mut level = 0;
        for (j, &count) in spread.iter().enumerate() {
            let own = self.rates[j];
            let terms = self.start.iter().zip(&self.rates);
            let form: Vec<f64> = terms.map(|(p, r)| p / (r - own + poles[j])).collect();
            let whole = if j == 0 { form.iter().sum() } else { more / (own - poles[j]) };
            for _ in 0..count {
                let up = &arrivals[level];
                let states = up.iter().flatten().max().map_or(1, |last| last + 1);
                let mut next = vec![0.0; states];
                for (x, to) in vector.iter().zip(up) {
                    to.iter().zip(&form).for_each(|(&to, f)| next[to] += x * f);
                }
                let largest = next.iter().fold(0.0f64, |a, x| a.max(x.abs()));
                next.iter_mut().for_each(|x| *x /= largest);
                sum *= whole / largest;
                (vector, level) = (next, level + 1);
            }
        }
        (vector, sum)
    }
}

/// The root between bounds of a function that is negative at the lower and positive at the upper
/// one, from its value and slope: Newton's steps, replaced by bisection if they leave the bounds or
/// are more than half as long as the last but one.
fn rising_root(mut low: f64, mut high: f64, at: impl Fn(f64) -> (f64, f64)) -> f64 {
    let mut x = 0.5 * (low + high);
    let (mut before, mut last) = (high - low, high - low);
    for _ in 0..200 {
        let (value, slope) = at(x);
        if value > 0.0 {
            high = x;
        } else {
            low = x;
        }
        let newton = x - value / slope;
        if value == 0.0 || (newton - x).abs() <= 2e-16 * x {
            return x;
        }
        let good = newton > low && newton < high && (newton - x).abs() < 0.5 * before;
        let next = if good { newton } else { 0.5 * (low + high) };
        (before, last) = (last, (next - x).abs());
        x = next;
        if high - low <= 2e-16 * x {
            break;
        }
    }
    x
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::Mphm;
    use super::super::{Queue, erlang_c};
    use super::*;

    /// The other exact solution, by matrices.
    fn exact(rate: f64, servers: u32, branches: &[(f64, f64)]) -> Mphm {
        let start: Vec<f64> = branches.iter().map(|b| b.0).collect();
        let row = |i: usize| {
            (0..branches.len()).map(move |j| if i == j { -1.0 / branches[i].1 } else { 0.0 })
        };
        let rows: Vec<Vec<f64>> = (0..branches.len()).map(|i| row(i).collect()).collect();
        let rows: Vec<&[f64]> = rows.iter().map(Vec::as_slice).collect();
        Mphm::new(rate, servers, &start, &rows).unwrap()
    }

    #[test]
    fn roots_and_matrices_agree() {
        let cases: [(u32, &[(f64, f64)]); 6] = [
            (1, &[(0.9, 0.5), (0.1, 5.5)]),
            (7, &[(0.3, 0.1), (0.7, 1.0)]),
            (20, &[(0.887, 0.5637), (0.113, 4.425)]),
            (3, &[(0.5, 0.2), (0.4, 1.0), (0.1, 9.0)]),
            (9, &[(0.68, 0.38), (0.315, 2.1), (0.005, 15.0)]),
            (4, &[(0.5, 0.2), (0.25, 1.0), (0.2, 1.1), (0.05, 9.0)]),
        ];
        for (servers, branches) in cases {
            let mean: f64 = branches.iter().map(|(p, x)| p * x).sum();
            for rho in [0.2, 0.7, 0.95] {
                let rate = rho * f64::from(servers) / mean;
                let found = waiting_law(rate, servers, branches).unwrap();
                let truth = exact(rate, servers, branches);
                let off = |a: f64, b: f64| (a - b).abs() < 1e-9;
                assert!(off(found.above_zero(), truth.waiting_probability()), "{servers} {rho}");
                let (one, two) = found.moments();
                assert!(
                    (one / truth.waiting_mean() - 1.0).abs() < 1e-8,
                    "{servers} {rho} {one} {}",
                    truth.waiting_mean()
                );
                let variance = two - one * one;
                assert!(
                    (variance / truth.waiting_variance() - 1.0).abs() < 1e-7,
                    "{servers} {rho} {variance} {}",
                    truth.waiting_variance()
                );
                for t in [0.01, 0.1, 1.0, 5.0, 30.0] {
                    let (a, b) = (found.above(t * mean), 1.0 - truth.waiting_cdf(t * mean));
                    assert!(off(a, b), "{servers} {rho} {t}: {a} {b}");
                }
            }
        }
    }

    #[test]
    fn one_branch_is_erlangs_queue_and_no_load_no_wait() {
        let found = waiting_law(3.4, 4, &[(1.0, 1.0)]).unwrap();
        assert!((found.above_zero() - erlang_c(4, 0.85)).abs() < 1e-12);
        assert!((found.above(2.0) / found.above_zero() - (-1.2f64).exp()).abs() < 1e-12);
        assert_eq!(waiting_law(0.0, 4, &[(0.5, 1.0), (0.5, 3.0)]).unwrap().above_zero(), 0.0);
        let full = waiting_law(4.0, 4, &[(0.5, 0.5), (0.5, 1.5)]);
        assert!(matches!(full, Err(Error::Unstable { .. })), "{full:?}");
        let many = waiting_law(40.0, 60, &[(0.5, 0.5), (0.3, 1.0), (0.2, 1.5)]);
        assert!(matches!(many, Err(Error::Invalid { .. })), "{many:?}");
    }

    proptest! {
        /// By any parameters: a law, and moments that are those of M/G/1 where one server is asked
        /// for.
        #[test]
        fn any_branches_give_a_law(
            p in 0.01f64..0.99, apart in 1.01f64..100.0, rho in 0.05f64..0.98, servers in 1u32..12,
        ) {
            let mean = p + (1.0 - p) * apart;
            let branches = [(p, 1.0 / mean), (1.0 - p, apart / mean)];
            let found = waiting_law(rho * f64::from(servers), servers, &branches).unwrap();
            let mut last = found.above_zero();
            prop_assert!((0.0..1.0).contains(&last), "{}", last);
            for t in [0.1, 0.5, 2.0, 10.0, 50.0] {
                let next = found.above(t);
                prop_assert!(next <= last + 1e-12 && next >= -1e-12, "{} {}", last, next);
                last = next;
            }
            if servers == 1 {
                let second = 2.0 * (p + (1.0 - p) * apart * apart) / (mean * mean);
                let expected = rho * second / (2.0 * (1.0 - rho));
                prop_assert!((found.moments().0 / expected - 1.0).abs() < 1e-9);
            }
        }
    }
}
