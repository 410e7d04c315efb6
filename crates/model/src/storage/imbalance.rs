//! How unevenly objects load the nodes on which they are placed: balls into bins, without a unit of
//! time.

use rand::{Rng, RngExt};
use rand_distr::{Distribution, StandardNormal};
use statrs::function::erf::{erfc, erfc_inv};

use crate::cache::{Catalogue, Group};
use crate::error::{Error, check, not_negative};

use super::spotify::{BETA, spread};

/// Number of objects that [`Imbalance::sample_shares`] places one by one; the others enter by mean and
/// variance.
const PLACED: f64 = 2_000.0;

/// The share of the requests at the fullest of several nodes, if objects are placed on them at
/// random, each with equal probability.
///
/// The published bound takes requests per second as balls ([`super::balls_into_bins_limit`]), so
/// its limit depends on the unit of time. Here the balls are objects, because a ring places
/// objects. A node's share is a sum over objects, of mean 1/S and variance Σw²·(1/S)(1 − 1/S), with
/// w the shares of the objects: the variance for 1/Σw² equally popular objects, the *effective
/// number of objects*. There are three estimates:
///
/// - [`Imbalance::share_max_bound`]: the bound of Raab and Steger ("Balls into bins: a simple and
///   tight analysis", 1998) that the paper uses, with effective objects as balls. It holds in the
///   limit; with tens of servers about one placement in five exceeds it, and with skewed popularity
///   most do.
/// - [`Imbalance::share_max_mean`] and [`Imbalance::share_max_quantile`]: the nodes' shares as
///   normal variables (which many small objects make them), corrected for skewness. The mean is
///   never below the share that the most popular object alone brings to its node. Within 1 % of
///   placements if no object has more than a tenth of a node's share, and within 3 % for any Zipf
///   law. The quantile is an error if an object has more than a quarter of a node's share, because
///   it then depends on where *that* object falls.
/// - [`Imbalance::sample_shares`]: random placements from a seeded generator, for any law of popularity.
///
/// Wrong if nodes have different weights, if a hot object is read from several replicas, and if
/// popularity moves: each new set of hot objects is another placement. Cost: see the methods.
///
/// ```
/// use model::{cache::Catalogue, storage::{HitRatio, Imbalance, Spotify}};
/// // 25 servers, a million equally popular objects: the fullest gets 1 % more than its part.
/// let even = Imbalance::new(25, &Catalogue::zipf(1_000_000, 0.0)?)?;
/// assert!((25.0 * even.share_max_mean() - 1.0098).abs() < 1e-4);
/// // Popularity as of a music service makes it a third.
/// let music = Imbalance::new(25, &Catalogue::zipf(1_000_000, 0.8)?)?;
/// assert!((25.0 * music.share_max_mean() - 1.32).abs() < 0.01);
/// assert!(music.share_max_quantile(0.95).is_err(), "draw it");
/// // Beside the published limit, which is 17,904 requests/s whatever the objects:
/// let server = Spotify::new(HitRatio::new(0.815, 0.000_501)?, 150.0, 6.0)?;
/// assert_eq!(server.cluster_confidence_limit(25).round(), 17_904.0);
/// assert!(even.limit(server.confidence_limit(), 0.95)? > 19_000.0);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Imbalance {
    servers: u32,
    groups: Vec<Group>,
    /// Σw², Σw³.
    squares: f64,
    cubes: f64,
    /// The most popular object's share of the requests.
    top: f64,
}

impl Imbalance {
    /// The objects of a catalogue on `servers` nodes. For n equally popular objects use
    /// [`Catalogue::zipf`]`(n, 0.0)`, for counted ones [`Catalogue::from_counts`].
    pub fn new(servers: u32, catalogue: &Catalogue) -> Result<Self, Error> {
        check("the number of servers", f64::from(servers), 1.0..=1e7, "1 to 10,000,000")?;
        Ok(Imbalance {
            servers,
            groups: catalogue.groups().to_vec(),
            squares: 1.0 / catalogue.effective_objects(),
            cubes: catalogue.groups().iter().map(|g| g.objects * g.popularity.powi(3)).sum(),
            top: catalogue.groups().first().map_or(0.0, |g| g.popularity),
        })
    }

    /// 1/Σw².
    pub fn effective_objects(&self) -> f64 {
        1.0 / self.squares
    }

    fn n(&self) -> f64 {
        f64::from(self.servers)
    }

    /// The expected share of the node that has the most popular object, a lower bound of the mean
    /// maximum.
    fn top_share(&self) -> f64 {
        self.top + (1.0 - self.top) / self.n()
    }

    /// 1/S·(1 + √(2K ln S·S·Σw²)), K = 1 − ln ln S/(4 ln S): see [`super::weighted_limit`]. At
    /// most 1.
    pub fn share_max_bound(&self) -> f64 {
        (((spread(self.servers, BETA) * self.n() * self.squares).sqrt() + 1.0) / self.n()).min(1.0)
    }

    /// A sixth of the skewness of a node's share: the correction of Cornish and Fisher for a normal
    /// deviation z is this times z² − 1.
    fn skew(&self) -> f64 {
        let (p, squares) = (1.0 / self.n(), self.squares);
        let variance = squares * p * (1.0 - p);
        let third = self.cubes * p * (1.0 - p) * (1.0 - 2.0 * p);
        if variance > 0.0 { third / variance.powf(1.5) / 6.0 } else { 0.0 }
    }

    /// The expected share of the fullest node: 1/S + √(Σw²/S)·(e₁ + γ/6·(e₂ − 1)), with e₁ and e₂
    /// the mean and mean square of the largest of S standard normal variables, γ the skewness of a
    /// node's share. (That the shares add to 1 makes their deviations those of S independent ones
    /// from their own mean.) Cost: 4,000 steps of a quadrature.
    pub fn share_max_mean(&self) -> f64 {
        let [first, second] = normal_max(self.servers);
        let deviations = first + self.skew() * (second - 1.0);
        let normal = 1.0 / self.n() + (self.squares / self.n()).sqrt() * deviations;
        normal.max(self.top_share()).min(1.0)
    }

    /// The share that the fullest node exceeds with probability 1 − `p` (0 < p < 1): the quantile
    /// of one node's share at the S-th root of p, with nodes taken as independent. They are not, so
    /// the true value is slightly larger for small S (S = 2 and p = 0.95: by 0.3 % of the
    /// deviation). An error if an object has more than a quarter of a node's share.
    pub fn share_max_quantile(&self, p: f64) -> Result<f64, Error> {
        check("the share of a quantile", p, 1e-9..=1.0 - 1e-9, "above 0 and below 1")?;
        if self.servers == 1 {
            return Ok(1.0);
        }
        check(
            "the share of the most popular object over that of a node",
            self.top * self.n(),
            0.0..=0.25,
            "at most a quarter, for shares of nodes to be normal: draw placements instead",
        )?;
        // The probability 1 − p^(1/S) with which one node exceeds the result.
        let above = -(p.ln() / self.n()).exp_m1();
        let normal = std::f64::consts::SQRT_2 * erfc_inv(2.0 * above);
        let deviations = normal + self.skew() * (normal * normal - 1.0);
        let one = (self.squares / self.n() * (1.0 - 1.0 / self.n())).sqrt();
        Ok((1.0 / self.n() + one * deviations).max(1.0 / self.n()).min(1.0))
    }

    /// Load in requests/s on the cluster up to which, with probability `p`, every node is within
    /// its own limit of `server_limit` requests/s. An error where [`Imbalance::share_max_quantile`]
    /// is one.
    pub fn limit(&self, server_limit: f64, p: f64) -> Result<f64, Error> {
        not_negative("the limit of a server", server_limit)?;
        Ok(server_limit / self.share_max_quantile(p)?)
    }

    /// The fullest node's share in each of `placements` (1 to 100,000) random placements,
    /// ascending; mean and quantiles are unbiased up to chance. The 2,000 most popular objects are
    /// placed one by one, the others together by mean and variance, which is exact in the limit of
    /// many small ones. Cost: 2,000 + S draws for each placement; an error beyond 10⁹ draws.
    pub fn sample_shares(&self, placements: u32, rng: &mut impl Rng) -> Result<Vec<f64>, Error> {
        check("the number of placements", f64::from(placements), 1.0..=1e5, "1 to 100,000")?;
        let draws = f64::from(placements) * (PLACED + self.n());
        check("the draws of all placements", draws, 1.0..=1e9, "at most 1e9: fewer placements")?;
        let mut placed: Vec<f64> = Vec::new();
        let (mut rest, mut rest_squares) = (0.0, 0.0);
        for group in &self.groups {
            let whole = if group.objects.fract() == 0.0 { group.objects } else { 0.0 };
            let one_by_one = whole.min(PLACED - placed.len() as f64);
            placed.extend(std::iter::repeat_n(group.popularity, one_by_one as usize));
            let left = group.objects - one_by_one;
            rest += left * group.popularity;
            rest_squares += left * group.popularity * group.popularity;
        }
        let deviation = (rest_squares / self.n()).sqrt();
        let mut shares = vec![0.0f64; self.servers as usize];
        let mut largest: Vec<f64> = (0..placements)
            .map(|_| {
                let mut sum = 0.0;
                for share in &mut shares {
                    let z: f64 = StandardNormal.sample(rng);
                    *share = rest / self.n() + deviation * z;
                    sum += deviation * z;
                }
                // The excess of the drawn total is subtracted equally from all nodes.
                let mean = sum / self.n();
                for &popularity in &placed {
                    let node = rng.random_range(0..shares.len());
                    shares[node] += popularity;
                }
                let max = shares.iter().copied().fold(0.0, f64::max);
                (max - mean).clamp(1.0 / self.n(), 1.0)
            })
            .collect();
        largest.sort_by(f64::total_cmp);
        Ok(largest)
    }
}

/// Mean and mean square of the largest of n standard normal variables: a + ∫ (1 − Φ(x)ⁿ) dx and
/// a² + ∫ 2x(1 − Φ(x)ⁿ) dx from a = −9, where Φⁿ vanishes, to 12, where it is 1. By the trapezoidal
/// rule.
fn normal_max(n: u32) -> [f64; 2] {
    const STEPS: u32 = 4_200;
    let (low, high) = (-9.0f64, 12.0f64);
    let step = (high - low) / f64::from(STEPS);
    // The rule overestimates the integral of the ramp 2x, which ends inside, by step²/6.
    let (mut first, mut second) = (low, low * low + step * step / 6.0);
    for i in 0..=STEPS {
        let x = low + step * f64::from(i);
        let beyond = 0.5 * erfc(x / std::f64::consts::SQRT_2);
        let above = -(f64::from(n) * (-beyond).ln_1p()).exp_m1();
        let width = if i == 0 || i == STEPS { 0.5 * step } else { step };
        first += width * above;
        second += width * 2.0 * x * above;
    }
    [first, second]
}

#[cfg(test)]
mod tests;
