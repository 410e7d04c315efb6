//! Fork-join of equal M/G/1 queues.

use std::sync::Arc;

use statrs::function::erf::{erfc, erfc_inv};

use crate::bisection::quantile;
use crate::distribution::{AnyLaw, Atom, ServiceTime, kronrod};
use crate::error::{Error, check};
use crate::queue::{Md1, Mg1};

use super::fan_out::{PARTS_MAX, binomial_tail};

/// Range of the common factor over which means are computed, in standard deviations on both sides.
const FACTOR_REACH: f64 = 8.0;
/// Step of the factor, or half the width of the integrand if that is smaller.
const FACTOR_STEP: f64 = 0.25;
/// The largest correlation of waits that are not equal.
const CORRELATION_MAX: f64 = 0.98;
/// Number of cells of an interval of waits.
const CELLS: usize = 16;
/// The correlation of two waits in M/M/1 queues at utilisations 0, 0.05², 0.1² … 1, for which the
/// mean of the slower of two is the exact (12 − ρ)/8 of one's. The ends are extrapolated.
const EXPONENTIAL: [f64; 21] = [
    0.80, 0.752_285, 0.694_580, 0.649_108, 0.610_277, 0.576_137, 0.545_855, 0.518_886, 0.494_945,
    0.473_830, 0.455_358, 0.439_403, 0.426_021, 0.415_268, 0.407_184, 0.402_076, 0.400_651,
    0.403_425, 0.412_910, 0.432_250, 0.476,
];

/// A request whose parts go to `ways` of `servers` equal queues at the same moment, chosen at
/// random for each request. It is answered when all its parts are.
///
/// Each server is an M/G/1 queue of its own (rate λ·ways/servers), so the law of one part is exact.
/// The waits of the parts are dependent, because their queues had common arrivals; given all
/// arrivals, the parts would be independent with equal laws. They are modelled that way (our own
/// construction):
///
/// - a part takes W + S: the waits of a request's parts each have the exact law of W, and jointly
///   the one-factor Gaussian copula; services are independent. Given the factor z, P(part ≤ t | z)
///   = ∫P(S ≤ t − w) dP(W ≤ w | z), and P(all ≤ t) is the mean over z of its n-th power;
/// - the copula's correlation is b^p. b goes linearly in ρ from the correlation of waits behind one
///   common earlier request (ρ → 0) to that of the inputs of Brownian queues, 1/(1 + SCV) (ρ → 1).
///   With parts on some of the servers only, it is multiplied by (ways − 1)/(servers − 1), the part
///   of the arrivals that two servers share. p(ρ) makes the mean of two M/M/1 queues the exact one,
///   (12 − ρ)/8 of one queue's (to 0.1 %; L. Flatto, S. Hahn, SIAM Journal on Applied Mathematics 44 (1984)).
///
/// Constant service on all servers is exact: the parts have equal waits. Otherwise, against
/// simulations at utilisations 0.3 to 0.8, the mean is within 1.5 % for SCV up to 1 (2 to 16 ways,
/// all servers or some), within 3 % for SCV 2 and 4 up to eight ways, and up to 5 % low for SCV 2
/// and sixteen; quantiles from 0.5 to 0.99 are within 2.5 % for SCV up to 1, otherwise within 7 %.
/// The interpolations of the literature (S. Varma, A. M. Makowski, Performance Evaluation 20 (1994)) are as accurate for
/// exponential service, and for general service up to 20 % low. The result always lies between one
/// part's mean and that of independent parts. Wrong if the service times of one request's parts are
/// alike (one size), or servers differ. Cost: some 300 CDFs of waiting and of response to create,
/// and a million multiplications; 200 CDFs of service and ten thousand multiplications for each
/// CDF.
///
/// ```
/// use model::{distribution::Exponential, fork_join::ForkJoin};
/// use std::sync::Arc;
/// let get = ForkJoin::new(0.7, Arc::new(Exponential::new(1.0)?), 2, 2)?;
/// assert!((get.mean() / 4.708_333 - 1.0).abs() < 1e-3);
/// let p99 = get.kth_quantile(2, 0.99)?;
/// assert!((p99 / 17.55 - 1.0).abs() < 0.07);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone)]
pub struct ForkJoin {
    part: Cdf,
    part_mean: f64,
    ways: u32,
    /// `None` for a single part, and for constant service on all servers, whose parts have equal
    /// waits.
    joint: Option<Joint>,
    /// Intervals of times over which the CDF is integrated.
    cuts: Vec<f64>,
    mean: f64,
    independent_mean: f64,
}

impl ForkJoin {
    /// Creates it from requests per second, the law of one part's service, the number of servers (1
    /// to 10,000) and of parts of a request (1 to all servers). [`Error::Unstable`] if a server is
    /// always busy.
    pub fn new(arrival_rate: f64, service: AnyLaw, servers: u32, ways: u32) -> Result<Self, Error> {
        let most = f64::from(PARTS_MAX);
        check("the number of servers", f64::from(servers), 1.0..=most, "1 to 10,000")?;
        let must = "from 1 to the number of servers";
        check("the number of parts", f64::from(ways), 1.0..=f64::from(servers), must)?;
        let rate = arrival_rate * f64::from(ways) / f64::from(servers);
        let atoms = service.atoms();
        let queue = Arc::new(Mg1::new(rate, service.clone())?);
        let (part_mean, rho) = (queue.response_mean(), queue.utilisation());
        let (part, waiting): (Cdf, Cdf) = match atoms[..] {
            [Atom { at, share }] if share >= 1.0 => {
                let constant = Arc::new(Md1::new(rate, at)?);
                let same = constant.clone();
                (
                    Arc::new(move |t| constant.response_cdf(t)),
                    Arc::new(move |t| same.waiting_cdf(t)),
                )
            }
            _ => {
                let same = queue.clone();
                (Arc::new(move |t| queue.response_cdf(t)), Arc::new(move |t| same.waiting_cdf(t)))
            }
        };
        let cuts = panels(part_mean, &atoms, part.as_ref());
        let independent_mean = integral(&cuts, |t| 1.0 - part(t).powf(f64::from(ways)));
        let common = f64::from(ways - 1) / f64::from((servers - 1).max(1));
        let alike = ways == 1 || (service.scv() == 0.0 && common >= 1.0);
        let joint = (!alike).then(|| {
            let correlation = correlation(&service, &atoms, rho, common);
            Joint::new(service, waiting.as_ref(), correlation)
        });
        let mean = match &joint {
            None => part_mean,
            Some(joint) => {
                integral(&cuts, |t| 1.0 - joint.kth_cdf(ways, ways, t)).min(independent_mean)
            }
        };
        Ok(ForkJoin { part, part_mean, ways, joint, cuts, mean, independent_mean })
    }

    /// Mean response time of a request in seconds.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Mean response time of one part in seconds: exact, and at most that of a request.
    pub fn part_mean(&self) -> f64 {
        self.part_mean
    }

    /// Mean of the slowest part if the parts were independent, in seconds: at least that of a
    /// request, because parts that arrive together are associated (Nelson and Tantawi 1988, section
    /// III).
    pub fn independent_mean(&self) -> f64 {
        self.independent_mean
    }

    /// P(all parts have answered within t seconds).
    pub fn cdf(&self, t: f64) -> f64 {
        self.kth_cdf(self.ways, t)
    }

    /// P(at least k parts have answered within t seconds): for a request that needs any k of its
    /// parts, while the others are still served. 0 for a `k` above the number of parts.
    pub fn kth_cdf(&self, k: u32, t: f64) -> f64 {
        if t.is_nan() || t < 0.0 || k > self.ways {
            return 0.0;
        }
        match &self.joint {
            None => (self.part)(t),
            Some(_) if k == 0 => 1.0,
            Some(joint) => joint.kth_cdf(self.ways, k, t),
        }
    }

    /// Mean time in seconds until `k` parts (1 to all) have answered. Cost: some 300 CDFs.
    pub fn kth_mean(&self, k: u32) -> f64 {
        if k == self.ways { self.mean } else { integral(&self.cuts, |t| 1.0 - self.kth_cdf(k, t)) }
    }

    /// The time in seconds within which a share `p` (0 ≤ p < 1) of the requests has the answers of `k` parts.
    pub fn kth_quantile(&self, k: u32, p: f64) -> Result<f64, Error> {
        quantile(p, self.mean, |t| self.kth_cdf(k, t))
    }
}

/// The integral over the panels between `cuts`.
fn integral(cuts: &[f64], above: impl Fn(f64) -> f64) -> f64 {
    let nodes = cuts.windows(2).flat_map(|pair| kronrod(pair[0], pair[1]));
    nodes.map(|(t, weight)| weight * above(t)).sum()
}

/// A CDF that can be shared.
type Cdf = Arc<dyn Fn(f64) -> f64 + Send + Sync>;

/// The correlation of two parts' waits.
///
/// At ρ → 0 two parts wait for the same earlier request, and their correlation is ∫E\[(S − t)⁺\]²dt
/// / ∫E\[((S − t)⁺)²\]dt; at ρ → 1 the queues are Brownian motions whose inputs have the
/// correlation 1/(1 + SCV); both are multiplied by the common part of the arrivals. In between: the
/// straight line between the two, raised to the power that is correct for exponential service.
fn correlation(service: &AnyLaw, atoms: &[Atom], rho: f64, common: f64) -> f64 {
    let tail = Tail::new(service, atoms);
    let empty = tail.together / (tail.third / 3.0);
    let line = |empty: f64, full: f64| empty + (full - empty) * rho;
    let exponential = of_exponential(rho);
    let power = exponential.ln() / line(0.25, 0.5).ln();
    let input = common * line(empty, 1.0 / (1.0 + service.scv()));
    input.clamp(0.0, 1.0).powf(power).min(CORRELATION_MAX)
}

/// [`EXPONENTIAL`] at a utilisation: the parabola through the three nearest entries.
pub(super) fn of_exponential(rho: f64) -> f64 {
    let at = 20.0 * rho.clamp(0.0, 1.0).sqrt();
    let middle = (at.round() as usize).clamp(1, 19);
    let x = at - middle as f64;
    let [a, b, c] = [middle - 1, middle, middle + 1].map(|i| EXPONENTIAL[i]);
    b + x * (0.5 * (c - a) + x * (0.5 * (a + c) - b))
}

/// The parts' times given a common factor z: W has the conditional law of a Gaussian copula, S its
/// own.
#[derive(Clone)]
struct Joint {
    service: AnyLaw,
    /// Ends of the cells of the waits, in seconds, the first 0.
    waits: Vec<f64>,
    /// For each z its weight and P(W ≤ end | z) at the cells' ends.
    given: Vec<(f64, Vec<f64>)>,
}

impl Joint {
    fn new(service: AnyLaw, waiting: &dyn Fn(f64) -> f64, correlation: f64) -> Self {
        let cuts = panels(4.0 * service.mean(), &[], waiting);
        let mut waits = vec![0.0];
        for pair in cuts.windows(2) {
            let width = (pair[1] - pair[0]) / CELLS as f64;
            waits.extend((1..=CELLS).map(|i| pair[0] + width * i as f64));
        }
        let quantiles: Vec<f64> = waits.iter().map(|&w| normal_quantile(waiting(w))).collect();
        let (common, own) = (correlation.sqrt(), (1.0 - correlation).sqrt());
        let step =
            if correlation > 0.0 { FACTOR_STEP.min(0.5 * own / common) } else { FACTOR_STEP };
        let points = (FACTOR_REACH / step) as i32;
        let mut total = 0.0;
        let mut given: Vec<(f64, Vec<f64>)> = (-points..=points)
            .map(|i| {
                let z = step * f64::from(i);
                let below = quantiles.iter().map(|q| normal_cdf((q - common * z) / own));
                let weight = (-0.5 * z * z).exp();
                total += weight;
                (weight, below.collect())
            })
            .collect();
        given.iter_mut().for_each(|g| g.0 /= total);
        Joint { service, waits, given }
    }

    /// P(at least k of `ways` parts within t): given z they are independent and alike.
    fn kth_cdf(&self, ways: u32, k: u32, t: f64) -> f64 {
        let served: Vec<f64> =
            self.waits.iter().take_while(|w| **w <= t).map(|w| self.service.cdf(t - w)).collect();
        // Service within t − W, with W in a cell replaced by the mean of both ends: as weights of
        // the CDF of W.
        let n = served.len();
        let cell = |j: usize| match j {
            0 => served[0],
            _ if j < n => 0.5 * (served[j] + served[j - 1]),
            // The cell that contains t: the part of it before t.
            _ if j == n && n < self.waits.len() => {
                let part = (t - self.waits[n - 1]) / (self.waits[n] - self.waits[n - 1]);
                0.5 * part * served[n - 1]
            }
            _ => 0.0,
        };
        let used = (n + 1).min(self.waits.len());
        let weights: Vec<f64> = (0..used).map(|j| cell(j) - cell(j + 1)).collect();
        let mut total = 0.0;
        for (weight, below) in &self.given {
            let within: f64 = below.iter().zip(&weights).map(|(b, w)| b * w).sum();
            total += weight * binomial_tail(ways, k, within.clamp(0.0, 1.0));
        }
        total.clamp(0.0, 1.0)
    }
}

/// The moments of a service law that the correlation needs.
struct Tail {
    /// E\[S³\].
    third: f64,
    /// ∫E\[(S − t)⁺\]²dt.
    together: f64,
}

impl Tail {
    fn new(service: &AnyLaw, atoms: &[Atom]) -> Self {
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

/// Intervals that double, split at the atoms, until the CDF is 1: their ends, ascending.
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

/// The `p`-quantile of a standard normal variable; infinite at 0 and 1.
fn normal_quantile(p: f64) -> f64 {
    -std::f64::consts::SQRT_2 * erfc_inv(2.0 * p)
}

fn normal_cdf(x: f64) -> f64 {
    0.5 * erfc(-x / std::f64::consts::SQRT_2)
}

/// Computes the correlation of waits for which the mean of the slower of two M/M/1 queues is exact;
/// [`EXPONENTIAL`] was computed by it.
#[cfg(test)]
pub(super) fn calibrated(rho: f64) -> f64 {
    use crate::distribution::Exponential;
    let service: AnyLaw = Arc::new(Exponential::new(1.0).expect("a valid mean"));
    let response = 1.0 / (1.0 - rho);
    let waiting = |t: f64| 1.0 - rho * (-t / response).exp();
    let cuts = panels(response, &[], |t| -(-t / response).exp_m1());
    let (mut low, mut high) = (0.0, CORRELATION_MAX);
    while high - low > 1e-6 {
        let middle = 0.5 * (low + high);
        let joint = Joint::new(service.clone(), &waiting, middle);
        let nodes = cuts.windows(2).flat_map(|pair| kronrod(pair[0], pair[1]));
        let mean: f64 = nodes.map(|(t, w)| w * (1.0 - joint.kth_cdf(2, 2, t))).sum();
        if mean > (12.0 - rho) / 8.0 * response { low = middle } else { high = middle }
    }
    high
}

impl std::fmt::Debug for ForkJoin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ForkJoin")
            .field("ways", &self.ways)
            .field("mean", &self.mean)
            .field("part_mean", &self.part_mean)
            .field("independent_mean", &self.independent_mean)
            .finish_non_exhaustive()
    }
}
