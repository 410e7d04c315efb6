//! The Spotify storage model, exactly as published: the baseline of every report. [`Spotify`] has
//! the source, the formula and its misprint.

use serde::{Deserialize, Serialize};

use crate::bisection::bisect;
use crate::error::{Error, check, is_stable, not_negative, positive};

use super::hit_ratio::HitRatio;

/// β of the balls-into-bins bound ([`balls_into_bins_limit`]) that reproduces the paper's numbers;
/// the paper does not print it. The bound holds with probability tending to 1 for any β above 1.
pub const BETA: f64 = 2.0;

/// A storage server, exactly as published: memory answers a share q(λ) in no time, and each of
/// `n_d` disks is an M/M/1 queue.
///
/// P(T ≤ t) = q + (1−q)(1 − e^(−µ_d(1 − ρ)t)), ρ = (1−q)λ/(µ_d n_d) the utilisation of a disk.
/// Source: R. Yanggratoke, G. Kreitz, M. Goldmann, R. Stadler, "Predicting response times for the
/// Source: R. Yanggratoke, G. Kreitz, M. Goldmann, R. Stadler, "Predicting response times for the
/// Spotify backend", CNSM 2012: equations 1 and 2, Table II. Misprint: the cluster's quadratic is
/// printed with + 2λ_L/|S|, which has no real root; its derivation gives −, which (with the natural
/// logarithm, β = 2 and the smaller root) reproduces every number of the paper. The linear q is
/// clamped to 0 to 1, which the paper does not state. Cost: nanoseconds.
///
/// Assumptions: Poisson arrivals, exponential service, equally loaded disks, memory that takes no
/// time, and no delay between client and disk. Errors up to 11 % in the publication, below the
/// confidence limit; larger above it, and for service that is not exponential. [`super::Node`]
/// assumes less.
///
/// ```
/// use model::storage::{HitRatio, Spotify};
/// let server = Spotify::new(HitRatio::new(0.815, 0.000_501)?, 150.0, 6.0)?; // Table II, "Spotify"
/// assert!((server.confidence_limit() - 780.92).abs() < 0.01);
/// assert!((server.saturation() - 1168.3).abs() < 0.1);
/// assert_eq!(server.cluster_confidence_limit(25).round(), 17_904.0);
/// assert_eq!(server.servers_for(12_000.0)?, 17);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spotify {
    hit_ratio: HitRatio,
    mu_d: f64,
    n_d: f64,
}

impl Spotify {
    /// Creates a server from q(λ), the service rate µ_d of a disk (1/s) and the number n_d of
    /// disks.
    pub fn new(hit_ratio: HitRatio, mu_d: f64, n_d: f64) -> Result<Self, Error> {
        positive("the service rate µ_d", mu_d)?;
        check("the number of disks n_d", n_d, 1.0..=1e6, "1 to 1,000,000")?;
        Ok(Spotify { hit_ratio, mu_d, n_d })
    }

    /// q(λ).
    pub fn hit_ratio(&self) -> HitRatio {
        self.hit_ratio
    }

    /// The same server with another q(λ).
    pub(crate) fn with_hit_ratio(&self, hit_ratio: HitRatio) -> Result<Self, Error> {
        Spotify::new(hit_ratio, self.mu_d, self.n_d)
    }

    /// µ_d, 1/s.
    pub(crate) fn service_rate(&self) -> f64 {
        self.mu_d
    }

    /// n_d.
    pub fn disks(&self) -> f64 {
        self.n_d
    }

    /// Utilisation of a disk at `rate` requests/s.
    pub fn utilisation(&self, rate: f64) -> f64 {
        (1.0 - self.hit_ratio.at_rate(rate)) * rate / (self.mu_d * self.n_d)
    }

    /// Equation 1: P(T ≤ t) = q + (1−q)(1 − exp(−µ_d(1 − (1−q)λ/(µ_d n_d)) t)) at `rate`
    /// requests/s, `t` in seconds. [`Error::Unstable`] past saturation.
    pub fn cdf(&self, rate: f64, t: f64) -> Result<f64, Error> {
        not_negative("the request rate", rate)?;
        let rho = self.utilisation(rate);
        if !is_stable(rho, 1.0) {
            return Err(Error::Unstable { rate, saturation: self.saturation() });
        }
        if t.is_nan() || t < 0.0 {
            return Ok(0.0);
        }
        let q = self.hit_ratio.at_rate(rate);
        Ok((q - (1.0 - q) * (-self.mu_d * (1.0 - rho) * t).exp_m1()).clamp(0.0, 1.0))
    }

    /// The confidence limit: load in requests/s at which the mean number waiting and in service at
    /// a disk is 1, that is, at disk utilisation ½: the positive root of αλ² + (1−q₀)λ − µ_d n_d/2
    /// = 0. Infinite if memory answers all.
    pub fn confidence_limit(&self) -> f64 {
        self.hit_ratio.rate_for_misses(self.mu_d * self.n_d / 2.0)
    }

    /// Load in requests/s at which the disks are always busy, with q clamped to [0, 1]: the limit
    /// of [`Spotify::cdf`]. Infinite if memory answers all.
    pub fn saturation(&self) -> f64 {
        self.hit_ratio.rate_for_misses(self.mu_d * self.n_d)
    }

    /// The saturation as published, with the line of q not clamped: the positive root of αλ² +
    /// (1−q₀)λ − µ_d n_d = 0. It differs if the line is below 0 there: for Table II's small server
    /// 80.4 requests/s (q = −0.16) against 93. `None` if there is no such root.
    pub fn saturation_published(&self) -> Option<f64> {
        self.hit_ratio.rate_for_misses_unclamped(self.mu_d * self.n_d)
    }

    /// The largest load in requests/s at which a share `share` of requests is answered within
    /// `within_s` seconds. [`Error::Unattainable`] if even an idle server does not; infinite if
    /// memory answers all.
    pub fn largest_rate(&self, within_s: f64, share: f64) -> Result<f64, Error> {
        not_negative("the time of an objective", within_s)?;
        check("the share of an objective", share, 0.0..=1.0, "0 to 1")?;
        let holds = |rate: f64| self.cdf(rate, within_s).is_ok_and(|p| p >= share);
        if !holds(0.0) {
            let best = self.cdf(0.0, within_s).unwrap_or(0.0);
            return Err(Error::Unattainable { share, within_s, best });
        }
        let saturation = self.saturation();
        Ok(if saturation.is_infinite() { saturation } else { bisect(saturation, holds) })
    }

    /// Equation 2: a cluster of equal servers with perfectly balanced load. The mean over servers
    /// at λ_c/|S| equals the CDF of one server. For unequal servers see [`cluster_cdf`].
    pub fn cluster_cdf(&self, rate: f64, servers: u32, t: f64) -> Result<f64, Error> {
        let servers = positive("the number of servers", f64::from(servers))?;
        self.cdf(rate / servers, t)
    }

    /// Load in requests/s on a cluster of `servers` servers up to which, with high probability,
    /// every server is within its own confidence limit: balls into bins ([`balls_into_bins_limit`],
    /// β = 2).
    pub fn cluster_confidence_limit(&self, servers: u32) -> f64 {
        balls_into_bins_limit(self.confidence_limit(), servers, BETA)
    }

    /// The smallest number of servers whose cluster confidence limit is at least `rate` requests/s.
    pub fn servers_for(&self, rate: f64) -> Result<u32, Error> {
        not_negative("the request rate", rate)?;
        servers_for(rate, |n| self.cluster_confidence_limit(n))
    }
}

/// Equation 2 of the paper ([`Spotify`]) for unequal servers: the mean of their CDFs (equation 1)
/// at `rate`/|S| each, `rate` in requests/s on the cluster, `t` in seconds.
///
/// It assumes a perfectly balanced load, which is optimistic, since the fullest server answers more
/// than its part ([`super::Imbalance`]); [`super::Cluster`] takes any shares. [`Error::Unstable`]
/// if one server is past saturation. Cost: nanoseconds for each server.
///
/// ```
/// use model::storage::{HitRatio, Spotify, cluster_cdf};
/// let half = HitRatio::new(0.5, 0.0)?;
/// let (small, large) = (Spotify::new(half, 100.0, 1.0)?, Spotify::new(half, 100.0, 4.0)?);
/// let both = cluster_cdf(&[small, large], 200.0, 0.050)?;
/// assert_eq!(both, (small.cdf(100.0, 0.050)? + large.cdf(100.0, 0.050)?) / 2.0);
/// # Ok::<(), model::Error>(())
/// ```
pub fn cluster_cdf(servers: &[Spotify], rate: f64, t: f64) -> Result<f64, Error> {
    let n = positive("the number of servers", servers.len() as f64)?;
    let mut sum = 0.0;
    for server in servers {
        sum += server.cdf(rate / n, t)?;
    }
    Ok(sum / n)
}

/// 2·K·ln n with K = 1 − ln ln n / (2β ln n): the factor of the bound of Raab and Steger ("Balls
/// into bins: a simple and tight analysis", 1998): m balls in n bins, the fullest holds at most
/// m/n + √(m/n · 2K ln n) with high probability. 0 for one bin.
pub(super) fn spread(servers: u32, beta: f64) -> f64 {
    let ln_n = f64::from(servers.max(1)).ln();
    if servers < 2 { 0.0 } else { (2.0 * ln_n - ln_n.ln() / beta).max(0.0) }
}

/// The published limit of a cluster of `servers` servers, each with limit λ_L requests/s: the
/// smaller root λ of λ²/|S|² − (2λ_L/|S| + 2K ln|S|/|S|) λ + λ_L² = 0, at which the fullest server
/// has the load λ_L; K = 1 − ln ln|S| / (2β ln|S|), β = 2 in the paper ([`BETA`]). In requests/s on
/// the cluster.
///
/// Source: R. Yanggratoke and others, CNSM 2012 (with a misprint: [`Spotify`]), after M. Raab, A.
/// Steger, "Balls into bins: a simple and tight analysis", RANDOM 1998: of m balls in n bins the
/// fullest has at most m/n + √(2K·ln n·m/n) with probability tending to 1, for m far above n(ln
/// n)³. It assumes equal servers, and that each request chooses its server at random. Cost:
/// nanoseconds.
///
/// Limitation: its balls are the requests of one second. The result therefore depends on the unit
/// of time (limits in requests/minute are nearer to |S|·λ_L), although a ring places objects, once,
/// and not requests. [`weighted_limit`] and [`super::Imbalance`] count objects.
///
/// ```
/// use model::storage::{BETA, balls_into_bins_limit};
/// let limit = balls_into_bins_limit(100.0, 25, BETA);
/// assert!((limit - 1963.920).abs() < 0.001);
/// // The same servers, by the minute.
/// assert!((balls_into_bins_limit(6000.0, 25, BETA) / 60.0 - 2423.126).abs() < 0.001);
/// assert_eq!(balls_into_bins_limit(100.0, 1, BETA), 100.0);
/// ```
pub fn balls_into_bins_limit(limit: f64, servers: u32, beta: f64) -> f64 {
    if !limit.is_finite() || limit <= 0.0 {
        return limit.max(0.0);
    }
    // With x = λ/|S|: (λ_L − x)² = c·x.
    let c = spread(servers, beta);
    let b = 2.0 * limit + c;
    let x = 2.0 * limit * limit / (b + (b * b - 4.0 * limit * limit).max(0.0).sqrt());
    x * f64::from(servers.max(1))
}

/// [`balls_into_bins_limit`] without a unit of time: the balls are *objects*, placed at random, and
/// an object of popularity w brings the load λ·w. `effective_objects` = (Σw)²/Σw²
/// ([`effective_objects`]), the number of objects if all are equally popular. The fullest server
/// has λ/|S| · (1 + √(c·|S|/objects)), c = 2K ln |S|, so the limit is |S|·λ_L / (1 +
/// √(c·|S|/objects)) requests/s.
///
/// Source: the bound of Raab and Steger as above; treating unequal balls by their effective number
/// is ours, and correct for the variance of a server's share. The bound is for many objects on each
/// server. A single object with more than 1/|S| of the load violates it, and needs replicas instead
/// of a formula. Skewed popularity exceeds it often; [`super::Imbalance`] is more accurate. Cost:
/// nanoseconds.
///
/// ```
/// use model::storage::weighted_limit;
/// // 25 servers of 100 requests/s: a million equally popular objects cost 1.2 %, ten thousand 11 %.
/// assert!((weighted_limit(100.0, 25, 1e6)? - 2470.120).abs() < 0.001);
/// assert!((weighted_limit(100.0, 25, 1e4)? - 2230.217).abs() < 0.001);
/// # Ok::<(), model::Error>(())
/// ```
pub fn weighted_limit(limit: f64, servers: u32, effective_objects: f64) -> Result<f64, Error> {
    positive("the effective number of objects", effective_objects)?;
    check("the limit of a server", limit, 0.0..=f64::MAX, "a finite number, at least 0")?;
    let n = f64::from(servers.max(1));
    Ok(n * limit / (1.0 + (spread(servers, BETA) * n / effective_objects).sqrt()))
}

/// The effective number of objects (Σw)²/Σw² of popularity weights; `None` unless some weight is
/// positive and all are finite and at least 0.
///
/// This number of equally popular objects would make the shares of servers vary as much: for
/// objects each on one of |S| servers at random, the variance of a sum over objects is proportional
/// to Σw². Also known as the inverse of Herfindahl's or Simpson's index. Wrong for the extremes: if
/// few objects have much of the load, they decide the fullest server, not a variance. Cost: one
/// pass.
///
/// ```
/// use model::storage::effective_objects;
/// assert_eq!(effective_objects(&[2.0; 50]), Some(50.0));
/// assert_eq!(effective_objects(&[3.0, 1.0, 1.0, 1.0]), Some(3.0));
/// ```
pub fn effective_objects(weights: &[f64]) -> Option<f64> {
    if weights.iter().any(|w| !w.is_finite() || *w < 0.0) {
        return None;
    }
    let (sum, squares) = weights.iter().fold((0.0, 0.0), |(s, q), w| (s + w, q + w * w));
    Some(sum * sum / squares).filter(|n| n.is_finite() && *n > 0.0)
}

/// The smallest number of servers whose limit is at least `rate`, for limits that grow with
/// servers.
fn servers_for(rate: f64, limit: impl Fn(u32) -> f64) -> Result<u32, Error> {
    const MOST: u32 = 1 << 24;
    let mut high = 1;
    while limit(high) < rate {
        if high >= MOST {
            return Err(Error::Invalid {
                what: "the request rate",
                value: rate,
                must: "one that 16 million servers can hold within the confidence limit",
            });
        }
        high *= 2;
    }
    let mut low = high / 2;
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if limit(middle) >= rate {
            high = middle;
        } else {
            low = middle;
        }
    }
    Ok(high)
}
