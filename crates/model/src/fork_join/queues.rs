//! Fork-join of equal M/G/1 queues.

use std::sync::Arc;

use statrs::function::erf::{erfc, erfc_inv};

use crate::distribution::{AnyLaw, Atom, Empirical, ServiceTime, kronrod};
use crate::error::{Error, check};
use crate::queue::{Md1, Mg1};

use super::mm1::WAYS_MAX;
use super::order::binomial_tail;

/// The common factor is averaged over, in standard deviations, from minus to plus this.
const FACTOR_REACH: f64 = 8.0;
/// In steps of this, or of half the width of what is averaged where that is less.
const FACTOR_STEP: f64 = 0.25;
/// Above this correlation parts are taken for alike.
const CORRELATION_MAX: f64 = 0.98;
/// g at ρ → 1 for two parts with exponential service: what the exact mean 11/8 of one part's means.
const SATURATED: f64 = 0.447_094_943;
/// How much the correlation rises from two parts to many, fitted to simulations with SCV 0.25 and 1.
const MANY: f64 = 0.11;

/// A request whose parts go to `ways` of `servers` equal queues at the same moment, chosen at random for
/// each request, and which is answered when its parts are.
///
/// Each server is an M/G/1 queue of its own (rate λ·ways/servers), so one part's law is exact. The parts'
/// waits are dependent, because their queues had common arrivals. What is exact, what not:
///
/// - The **mean** of the slowest is Varma's and Makowski's interpolation for general service: exact for two
///   M/M/1 queues; between the slowest of `ways` bare services at ρ → 0 and the heavy-traffic limit
///   λ(σ_a² + σ_s²)/2·F(β), with β = 1/(1 + SCV) the part of the variance that is common and F the parabola
///   through Hₙ at 0, Vₙ at 1/2 and 1 at 1. Source: S. Varma, A. M. Makowski, Performance Evaluation 20
///   (1994). With parts on some of the servers only, two queues share (ways − 1)/(servers − 1) of their
///   arrivals, and the mean is that part of the way from independence to the full fork (our own rule).
/// - The **distribution** is the one-factor Gaussian copula of the exact marginals whose correlation gives
///   that mean (our own choice): conditionally on the arrivals, the parts are independent and alike, and
///   in the far tail they are asymptotically independent, as the copula's are.
///
/// Against simulation (utilisation 0.3 to 0.9, SCV 0 to 4, 2 to 16 ways): see this module's tests and
/// `docs/models.md`. Always between one part's mean and that of independent parts.
/// Wrong where the service times of one request's parts are alike (one size), or servers differ.
/// Cost: some 2,000 values of one part's CDF to make, one for each CDF.
///
/// ```
/// use model::{distribution::Exponential, fork_join::ForkJoin};
/// use std::sync::Arc;
/// let get = ForkJoin::new(0.7, Arc::new(Exponential::new(1.0)?), 2, 2)?;
/// assert!((get.mean() - 4.708_333).abs() < 1e-5);
/// let p99 = get.quantile(0.99)?;
/// assert!((p99 / 17.55 - 1.0).abs() < 0.07);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone)]
pub struct ForkJoin {
    part: Arc<dyn Fn(f64) -> f64 + Send + Sync>,
    part_mean: f64,
    ways: u32,
    /// Of the common factor with each part, 0 to 1.
    correlation: f64,
    mean: f64,
    independent_mean: f64,
}

impl ForkJoin {
    /// Of requests per second, the law of one part's service, the number of servers (1 to 10,000) and of
    /// parts of a request (1 to all servers). [`Error::Unstable`] where a server is always busy.
    pub fn new(arrival_rate: f64, service: AnyLaw, servers: u32, ways: u32) -> Result<Self, Error> {
        let most = f64::from(WAYS_MAX);
        check("the number of servers", f64::from(servers), 1.0..=most, "1 to 10,000")?;
        let must = "from 1 to the number of servers";
        check("the number of parts", f64::from(ways), 1.0..=f64::from(servers), must)?;
        let rate = arrival_rate * f64::from(ways) / f64::from(servers);
        let atoms = service.atoms();
        let queue = Mg1::new(rate, service.clone())?;
        let (part_mean, rho) = (queue.response_mean(), queue.utilisation());
        let part: Arc<dyn Fn(f64) -> f64 + Send + Sync> = match atoms[..] {
            [Atom { at, share }] if share >= 1.0 => {
                let constant = Md1::new(rate, at)?;
                Arc::new(move |t| constant.response_cdf(t))
            }
            _ => Arc::new(move |t| queue.response_cdf(t)),
        };
        let nodes = Nodes::new(part_mean, &atoms, part.as_ref());
        let independent_mean = nodes.mean(0.0, ways);
        let common = f64::from(ways - 1) / f64::from((servers - 1).max(1));
        let correlation = correlation(&Tail::of(&service, &atoms), &service, rho, common, ways);
        let mean = nodes.mean(correlation, ways);
        Ok(ForkJoin { part, part_mean, ways, correlation, mean, independent_mean })
    }

    /// Mean response time of a request in seconds.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Mean response time of one part in seconds: exact, and less than that of a request.
    pub fn part_mean(&self) -> f64 {
        self.part_mean
    }

    /// Mean of the slowest if the parts were independent, in seconds: never less than that of a request,
    /// because parts that arrive together are associated (Nelson and Tantawi 1988, section III).
    pub fn independent_mean(&self) -> f64 {
        self.independent_mean
    }

    /// P(all parts have answered within t seconds).
    pub fn cdf(&self, t: f64) -> f64 {
        self.kth_cdf(self.ways, t)
    }

    /// P(at least k parts have answered within t seconds): a request that needs any k of its parts, whose
    /// others are served all the same. 0 for a `k` above the number of parts.
    pub fn kth_cdf(&self, k: u32, t: f64) -> f64 {
        if t.is_nan() || t < 0.0 || k > self.ways {
            return 0.0;
        }
        together(normal_quantile((self.part)(t)), self.correlation, self.ways, k)
    }

    /// The time in seconds within which a share `p` (0 ≤ p < 1) of the requests is answered.
    pub fn quantile(&self, p: f64) -> Result<f64, Error> {
        crate::queue::quantile(p, self.mean, |t| self.cdf(t))
    }

    /// As a law with a transform, for sums: 400 pieces ([`Empirical::from_cdf`]).
    pub fn law(&self) -> Result<Empirical, Error> {
        Empirical::from_cdf(self.mean, &[], |t| self.cdf(t))
    }
}

/// The correlation of two parts' times.
///
/// A part's response is W + S; the W of two parts are dependent, the S are not, so the correlation is
/// Var W/(Var W + Var S) times that of the waits, g. At ρ → 0 two parts wait for the same earlier request:
/// g₀ = ∫E\[(S − t)⁺\]²dt / ∫E\[((S − t)⁺)²\]dt. At ρ → 1 the queues are Brownian motions whose inputs have the
/// correlation common/(1 + SCV). Between, the way from one to the other is that of exponential service,
/// which the exact mean of two parts gives.
fn correlation(tail: &Tail, service: &AnyLaw, rho: f64, common: f64, ways: u32) -> f64 {
    let (mean, scv) = (service.mean(), service.scv());
    let busy = rho.max(1e-3);
    let exponential = of_exponential(busy) / (busy * (2.0 - busy));
    let way = ((exponential - 0.25) / (SATURATED - 0.25)).clamp(0.0, 1.0);
    let input = common / (1.0 + scv);
    let limit = input.powf(-SATURATED.log2());
    let empty = common * tail.together / (tail.third / 3.0);
    let waiting = rho * mean * (1.0 + scv) / 2.0 / (1.0 - rho);
    let spread = waiting * waiting + rho / mean * tail.third / 3.0 / (1.0 - rho);
    let share = spread / (spread + scv * mean * mean);
    let two = (share * (empty + (limit - empty) * way)).clamp(0.0, 1.0);
    let many = 1.0 - 2.0 / f64::from(ways.max(2));
    two * (1.0 + MANY * (1.0 - two) * many)
}

/// The correlation of two parts' times in M/M/1 queues: what the exact mean, (12 − ρ)/8 of one part's, means.
pub(super) fn of_exponential(rho: f64) -> f64 {
    let nodes = Nodes::new(1.0, &[], &|t: f64| -(-t).exp_m1());
    nodes.correlation((12.0 - rho) / 8.0, 2)
}

/// What the correlation wants to know of a service law.
struct Tail {
    /// E\[S³\].
    third: f64,
    /// ∫E\[(S − t)⁺\]²dt.
    together: f64,
}

impl Tail {
    fn of(service: &AnyLaw, atoms: &[Atom]) -> Self {
        let above = |t: f64| (1.0 - service.cdf(t)).clamp(0.0, 1.0);
        let mut cuts = panels(service.mean(), atoms, |t| service.cdf(t));
        cuts.reverse();
        let (mut third, mut together, mut beyond) = (0.0, 0.0, 0.0);
        for pair in cuts.windows(2) {
            let (low, high) = (pair[1], pair[0]);
            let area = |from: f64| kronrod(from, high).map(|(t, w)| w * above(t)).sum::<f64>();
            for (t, weight) in kronrod(low, high) {
                third += weight * 3.0 * t * t * above(t);
                together += weight * (beyond + area(t)).powi(2);
            }
            beyond += area(low);
        }
        Tail { third, together }
    }
}

/// Intervals that double, cut at the atoms, until the CDF is 1: their ends, ascending.
fn panels(scale: f64, atoms: &[Atom], cdf: impl Fn(f64) -> f64) -> Vec<f64> {
    let (mut low, mut high) = (0.0, scale / 16.0);
    let mut cuts = vec![0.0];
    for _ in 0..80 {
        cuts.extend(atoms.iter().map(|a| a.at).filter(|&t| t > low && t < high));
        cuts.push(high);
        if 1.0 - cdf(high) < 1e-9 {
            break;
        }
        (low, high) = (high, 2.0 * high);
    }
    cuts.sort_by(f64::total_cmp);
    cuts.dedup();
    cuts
}

/// One part's CDF at the nodes of a quadrature over time.
pub(super) struct Nodes {
    /// Weight in seconds, and the normal quantile of the CDF there.
    points: Vec<(f64, f64)>,
}

impl Nodes {
    pub(super) fn new(scale: f64, atoms: &[Atom], cdf: &dyn Fn(f64) -> f64) -> Self {
        let cuts = panels(scale, atoms, cdf);
        let nodes = cuts.windows(2).flat_map(|pair| kronrod(pair[0], pair[1]));
        Nodes { points: nodes.map(|(t, weight)| (weight, normal_quantile(cdf(t)))).collect() }
    }

    /// Mean of the slowest of so many parts, in seconds.
    fn mean(&self, correlation: f64, ways: u32) -> f64 {
        let above = |q: f64| 1.0 - together(q, correlation, ways, ways);
        self.points.iter().map(|&(weight, q)| weight * above(q)).sum()
    }

    /// The correlation that gives a mean, by bisection: the mean falls as it rises.
    pub(super) fn correlation(&self, mean: f64, ways: u32) -> f64 {
        if ways == 1 {
            return 0.0;
        }
        let (mut low, mut high) = (0.0, CORRELATION_MAX);
        while high - low > 1e-9 {
            let middle = 0.5 * (low + high);
            if self.mean(middle, ways) > mean {
                low = middle;
            } else {
                high = middle;
            }
        }
        high
    }
}

/// The x below which a normal variable is with probability `p`; infinite at 0 and 1.
fn normal_quantile(p: f64) -> f64 {
    -std::f64::consts::SQRT_2 * erfc_inv(2.0 * p)
}

/// P(at least k of `ways` equicorrelated normal variables are below q): an average over their common
/// factor, given which they are independent. The trapezoidal rule is good to 1e-9.
fn together(q: f64, correlation: f64, ways: u32, k: u32) -> f64 {
    if q == f64::INFINITY || q == f64::NEG_INFINITY || q.is_nan() {
        return f64::from(q == f64::INFINITY);
    }
    let below = |x: f64| 0.5 * erfc(-x / std::f64::consts::SQRT_2);
    if correlation > CORRELATION_MAX {
        return below(q);
    }
    if correlation <= 0.0 {
        return binomial_tail(ways, k, below(q));
    }
    let (common, own) = (correlation.sqrt(), (1.0 - correlation).sqrt());
    let (mut total, mut weights) = (0.0, 0.0);
    let step = FACTOR_STEP.min(0.5 * own / common);
    let points = (FACTOR_REACH / step) as i32;
    for i in -points..=points {
        let z = step * f64::from(i);
        let weight = (-0.5 * z * z).exp();
        total += weight * binomial_tail(ways, k, below((q - common * z) / own));
        weights += weight;
    }
    total / weights
}

impl std::fmt::Debug for ForkJoin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ForkJoin")
            .field("ways", &self.ways)
            .field("mean", &self.mean)
            .field("part_mean", &self.part_mean)
            .field("independent_mean", &self.independent_mean)
            .field("correlation", &self.correlation)
            .finish_non_exhaustive()
    }
}
