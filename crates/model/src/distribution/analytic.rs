//! Laws with a formula: for checks, what-if questions and published models.

use statrs::function::erf::erfc;
use statrs::function::gamma::gamma_lr;

use crate::error::{Error, check, time};

use num_complex::Complex64;

use super::empirical::{Empirical, Piece};
use super::law::{Atom, ServiceTime};

/// The exponential law, which M/M/1 and the Spotify model assume.
///
/// P(T ≤ t) = 1 − e^(−t/b), transform 1/(1 + s·b), SCV 1, with b the mean in seconds. It is the
/// only law without memory: the rest of a service has the law of the whole, however long it has
/// lasted. Source: R. Jain, "The Art of Computer Systems Performance Analysis" (1991), chapter 29.
/// Exact. Cost: nanoseconds.
///
/// Most devices are not exponential. For an SCV of 0.25, as of some disks, the mean wait would be
/// (1 + 1)/(1 + 0.25) = 1.6 times too long (use [`Gamma`] or [`Empirical`]). For hits and misses
/// together it would be too short (use [`Hyperexponential`]).
///
/// ```
/// use model::distribution::{Exponential, ServiceTime};
/// let law = Exponential::new(0.010)?;
/// assert_eq!((law.mean(), law.scv()), (0.010, 1.0));
/// assert!((law.cdf(0.010) - (1.0 - (-1.0f64).exp())).abs() < 1e-12);
/// // 99 of 100 take at most ln 100 = 4.6 means.
/// assert!((law.quantile(0.99)? - 0.010 * 100.0f64.ln()).abs() < 1e-9);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exponential {
    mean: f64,
}

impl Exponential {
    /// Creates the law from its mean in seconds. Returns an error unless the mean is finite and
    /// above 0.
    pub fn new(mean: f64) -> Result<Self, Error> {
        Ok(Exponential { mean: time("the mean of an exponential law", mean)? })
    }
}

impl ServiceTime for Exponential {
    fn mean(&self) -> f64 {
        self.mean
    }
    fn scv(&self) -> f64 {
        1.0
    }
    fn transform(&self, s: Complex64) -> Complex64 {
        1.0 / (1.0 + s * self.mean)
    }
    fn cdf(&self, t: f64) -> f64 {
        if t > 0.0 { -(-t / self.mean).exp_m1() } else { 0.0 }
    }
}

/// The gamma law: any mean and any SCV. Erlang's where the shape k = 1/SCV is whole.
///
/// The density goes with t^(k−1)·e^(−k·t/b), b the mean in seconds; P(T ≤ t) = P(k, k·t/b) with P
/// the regularised lower incomplete gamma function; transform (1 + s·b/k)^(−k). Source: R. Jain,
/// "The Art of Computer Systems Performance Analysis" (1991), chapter 29. Exact to some 1e-14.
/// Cost: a CDF below a microsecond; a transform some ten nanoseconds.
///
/// The density has one peak (SCV below 1) or falls from the start; the tail is exponential. Do not
/// use it for two peaks, such as hits and misses together, for a heavier tail ([`Lognormal`]), or
/// for times whose minimum is far above 0. Two moments determine a mean wait but not its quantiles.
///
/// ```
/// use model::distribution::{Gamma, ServiceTime};
/// // SCV 0.5: two exponential phases of half the mean each.
/// let law = Gamma::new(0.010, 0.5)?;
/// assert!((law.cdf(0.010) - (1.0 - 3.0 * (-2.0f64).exp())).abs() < 1e-12);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gamma {
    mean: f64,
    scv: f64,
}

impl Gamma {
    /// Creates the law from its mean in seconds and its squared coefficient of variation, both
    /// above 0.
    pub fn new(mean: f64, scv: f64) -> Result<Self, Error> {
        Ok(Gamma {
            mean: time("the mean of a gamma law", mean)?,
            scv: check("the SCV of a gamma law", scv, 1e-6..=1e6, "0.000001 to 1,000,000")?,
        })
    }
}

impl ServiceTime for Gamma {
    fn mean(&self) -> f64 {
        self.mean
    }
    fn scv(&self) -> f64 {
        self.scv
    }
    fn transform(&self, s: Complex64) -> Complex64 {
        let (z, shape) = (1.0 + s * self.mean * self.scv, 1.0 / self.scv);
        // Erlang's: some multiplications.
        if shape.round() <= 64.0 && (shape - shape.round()).abs() <= 1e-15 * shape {
            return z.inv().powu(shape.round() as u32);
        }
        let size = (-0.5 * shape * z.norm_sqr().ln()).exp();
        Complex64::from_polar(size, -shape * z.im.atan2(z.re))
    }
    fn cdf(&self, t: f64) -> f64 {
        let x = t / (self.mean * self.scv);
        if x > 0.0 && x < 1e12 {
            gamma_lr(1.0 / self.scv, x).clamp(0.0, 1.0)
        } else {
            f64::from(x > 0.0)
        }
    }
}

/// A constant service time d: P(T ≤ t) is 0 below d and 1 from d on, transform e^(−s·d), SCV 0.
///
/// [`crate::queue::Md1`] is its M/G/1 queue, in closed form; mean waits are half of those of
/// exponential service. The law is an atom, so its transform must not be inverted
/// ([`super::inversion`]). Exact. Cost: nanoseconds. Do not use it if times vary because of sizes,
/// seeks or other tenants.
///
/// ```
/// use model::distribution::{Deterministic, ServiceTime};
/// let law = Deterministic::new(0.004)?;
/// assert_eq!((law.cdf(0.0039), law.cdf(0.004), law.scv()), (0.0, 1.0, 0.0));
/// assert_eq!(law.atoms()[0].at, 0.004);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Deterministic {
    value: f64,
}

impl Deterministic {
    /// Creates the law from its value in seconds, above 0.
    pub fn new(value: f64) -> Result<Self, Error> {
        Ok(Deterministic { value: time("a constant service time", value)? })
    }
}

impl ServiceTime for Deterministic {
    fn mean(&self) -> f64 {
        self.value
    }
    fn scv(&self) -> f64 {
        0.0
    }
    fn transform(&self, s: Complex64) -> Complex64 {
        (-s * self.value).exp()
    }
    fn atoms(&self) -> Vec<Atom> {
        vec![Atom { at: self.value, share: 1.0 }]
    }
    fn cdf(&self, t: f64) -> f64 {
        f64::from(t >= self.value)
    }
}

/// A mixture of exponential laws: P(T ≤ t) = Σ pᵢ(1 − e^(−t/bᵢ)), SCV at least 1.
///
/// Transform Σ pᵢ/(1 + s·bᵢ), mean Σ pᵢbᵢ, SCV 2Σ pᵢbᵢ²/(Σ pᵢbᵢ)² − 1. Source: L. Kleinrock,
/// "Queueing Systems" I (1975), section 4.7 (stages in parallel); the balanced means of
/// [`Hyperexponential::balanced`]: W. Whitt, "Approximating a point process by a renewal process",
/// Operations Research 30 (1982). Exact. Cost: nanoseconds for each branch.
///
/// It describes several kinds of requests, each with exponential times, drawn independently. Its
/// density falls from the start: do not use it if almost all times exceed some minimum, or if
/// requests of one kind come in runs. Two moments do not determine the tail: if there are samples,
/// use [`Empirical`].
///
/// ```
/// use model::distribution::{Hyperexponential, ServiceTime};
/// // Nine of ten take 1 ms, the tenth 11 ms.
/// let law = Hyperexponential::new(&[(0.9, 0.001), (0.1, 0.011)])?;
/// assert!((law.mean() - 0.002).abs() < 1e-12 && (law.scv() - 5.5).abs() < 1e-9);
/// let balanced = Hyperexponential::balanced(0.010, 4.0)?;
/// assert!((balanced.mean() - 0.010).abs() < 1e-12 && (balanced.scv() - 4.0).abs() < 1e-9);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Hyperexponential {
    branches: Vec<(f64, f64)>,
}

impl Hyperexponential {
    /// Creates the law from its branches (probability, mean in seconds). The probabilities must add
    /// to 1 within 1e-9.
    pub fn new(branches: &[(f64, f64)]) -> Result<Self, Error> {
        for &(p, mean) in branches {
            check("the probability of a branch", p, 0.0..=1.0, "0 to 1")?;
            time("the mean of a branch", mean)?;
        }
        let total: f64 = branches.iter().map(|b| b.0).sum();
        check("the sum of the branches' probabilities", total, 1.0 - 1e-9..=1.0 + 1e-9, "1")?;
        Ok(Hyperexponential { branches: branches.to_vec() })
    }

    /// The branches: probability and mean in seconds.
    pub fn branches(&self) -> &[(f64, f64)] {
        &self.branches
    }

    /// Two branches with balanced means (each contributes half of the mean), from a mean and an SCV
    /// above 1.
    pub fn balanced(mean: f64, scv: f64) -> Result<Self, Error> {
        check("the SCV of a hyperexponential law", scv, 1.0..=1e6, "1 to 1,000,000")?;
        let p = 0.5 * (1.0 + ((scv - 1.0) / (scv + 1.0)).sqrt());
        Self::new(&[(p, mean / (2.0 * p)), (1.0 - p, mean / (2.0 * (1.0 - p)))])
    }
}

impl ServiceTime for Hyperexponential {
    fn mean(&self) -> f64 {
        self.branches.iter().map(|(p, m)| p * m).sum()
    }
    fn scv(&self) -> f64 {
        let second: f64 = self.branches.iter().map(|(p, m)| 2.0 * p * m * m).sum();
        second / self.mean().powi(2) - 1.0
    }
    fn transform(&self, s: Complex64) -> Complex64 {
        self.branches.iter().map(|&(p, m)| p / (1.0 + s * m)).sum()
    }
    fn cdf(&self, t: f64) -> f64 {
        let t = t.max(0.0);
        self.branches.iter().map(|(p, m)| -p * (-t / m).exp_m1()).sum::<f64>().clamp(0.0, 1.0)
    }
}

/// A disk-like law: a uniform part (seek and rotation), a constant (transfer) and an exponential.
///
/// With u the width of the uniform part, c the constant, e the exponential's mean, all in seconds:
/// P(T ≤ t) = (G(t − c) − G(t − c − u))/u, G(x) = x − e(1 − e^(−x/e)) for x above 0 and else 0;
/// transform (1 − e^(−su))/(su) · e^(−sc)/(1 + se); mean u/2 + c + e, variance u²/12 + e². Exact; a
/// convolution. That rotation is uniform is in C. Ruemmler, J. Wilkes, "An introduction to disk
/// drive modeling", IEEE Computer 27 (1994); the rest of the shape is ours. Cost: nanoseconds.
///
/// It assumes that the parts are independent and that each request is for a random position. For
/// sequential reads, disks that reorder their queue, and solid-state devices, measure the law
/// instead ([`Empirical`]). The density has a kink at c and at c + u, where inversions are accurate
/// to 1e-5.
///
/// ```
/// use model::distribution::{ServiceTime, UniformPlusExponential};
/// let disk = UniformPlusExponential::new(0.012, 0.001, 0.003)?;
/// assert!((disk.mean() - 0.010).abs() < 1e-12 && (disk.scv() - 0.21).abs() < 1e-9);
/// assert_eq!(disk.cdf(0.001), 0.0);
/// // At the end of the uniform part: 1 − (e/u)(1 − e^(−u/e)).
/// assert!((disk.cdf(0.013) - (1.0 - 0.25 * (1.0 - (-4.0f64).exp()))).abs() < 1e-9);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UniformPlusExponential {
    uniform: f64,
    constant: f64,
    exponential: f64,
}

impl UniformPlusExponential {
    /// Uniform on (0, `uniform`), plus `constant`, plus exponential of mean `exponential`; all in
    /// seconds, above 0 (the constant may be 0).
    pub fn new(uniform: f64, constant: f64, exponential: f64) -> Result<Self, Error> {
        Ok(UniformPlusExponential {
            uniform: time("the uniform part of a law", uniform)?,
            constant: crate::error::not_negative("the constant part of a law", constant)?,
            exponential: time("the exponential part of a law", exponential)?,
        })
    }
}

impl ServiceTime for UniformPlusExponential {
    fn mean(&self) -> f64 {
        self.uniform / 2.0 + self.constant + self.exponential
    }
    fn scv(&self) -> f64 {
        (self.uniform.powi(2) / 12.0 + self.exponential.powi(2)) / self.mean().powi(2)
    }
    fn transform(&self, s: Complex64) -> Complex64 {
        let z = s * self.uniform;
        let uniform = if z.norm() < 1e-5 { 1.0 - z / 2.0 } else { (1.0 - (-z).exp()) / z };
        uniform * (-s * self.constant).exp() / (1.0 + s * self.exponential)
    }
    fn cdf(&self, t: f64) -> f64 {
        // ∫ of the exponential's CDF over the uniform part.
        let integral = |x: f64| {
            let x = x.max(0.0);
            x + self.exponential * (-x / self.exponential).exp_m1()
        };
        let t = t - self.constant;
        ((integral(t) - integral(t - self.uniform)) / self.uniform).clamp(0.0, 1.0)
    }
}

/// The lognormal law: a heavy tail with all moments. ln T is normal.
///
/// P(T ≤ t) = Φ((ln t − μ)/σ) with σ² = ln(1 + SCV) and μ = ln b − σ²/2, b the mean in seconds; the
/// median is b/√(1 + SCV). Source: R. Jain, "The Art of Computer Systems Performance Analysis"
/// (1991), its chapter 29. The CDF is exact. The transform has no formula: for it the law is cut
/// into 400 pieces of equal width in the logarithm, each with its own exact mean (see
/// [`Empirical`]), so inverted CDFs are off by up to 2e-4 at an SCV of 4. Cost: 400 pieces once; a
/// CDF some ten nanoseconds, transforms as [`Empirical`]'s.
///
/// It describes times that are products of many independent factors. It overstates the tail of
/// times that are cut by a timeout, and understates tails that fall as a power (file sizes), since
/// all its moments are finite.
///
/// ```
/// use model::distribution::{Lognormal, ServiceTime};
/// let law = Lognormal::new(0.010, 3.0)?;
/// // Half of the times are below half of the mean.
/// assert!((law.cdf(0.005) - 0.5).abs() < 1e-9);
/// assert!((law.mean() / 0.010 - 1.0).abs() < 1e-9);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Lognormal {
    mu: f64,
    sigma: f64,
    pieces: Empirical,
}

fn normal_cdf(x: f64) -> f64 {
    0.5 * erfc(-x / std::f64::consts::SQRT_2)
}

impl Lognormal {
    /// With a mean in seconds and a squared coefficient of variation from 0.0001 to 100.
    pub fn new(mean: f64, scv: f64) -> Result<Self, Error> {
        time("the mean of a lognormal law", mean)?;
        check("the SCV of a lognormal law", scv, 1e-4..=100.0, "0.0001 to 100")?;
        let variance = scv.ln_1p();
        let (mu, sigma) = (mean.ln() - variance / 2.0, variance.sqrt());
        let (span, steps) = (9.0, 400);
        let mut pieces = Vec::with_capacity(steps);
        for i in 0..steps {
            let at = |i: usize| -span + (2.0 * span + 2.0 * sigma) * i as f64 / steps as f64;
            let (a, b) = (at(i), at(i + 1));
            let share = normal_cdf(b) - normal_cdf(a);
            // E[X; a < Z < b] = mean · P(a − σ < Z < b − σ).
            let part = normal_cdf(b - sigma) - normal_cdf(a - sigma);
            // Pieces without mass or variance would cost as much as the others.
            let x = part / share.max(1e-300);
            if share * (1.0 + x * x) > 1e-15 {
                let (low, high) = ((mu + sigma * a).exp(), (mu + sigma * b).exp());
                let centre = (mean * part / share).clamp(low, high);
                pieces.push(Piece { centre, half_width: 0.5 * (high - low), share });
            }
        }
        let pieces = Empirical::from_pieces(pieces)?.with_moments(mean, scv)?;
        Ok(Lognormal { mu, sigma, pieces })
    }
}

impl ServiceTime for Lognormal {
    fn mean(&self) -> f64 {
        self.pieces.mean()
    }
    fn scv(&self) -> f64 {
        self.pieces.scv()
    }
    fn transform(&self, s: Complex64) -> Complex64 {
        self.pieces.transform(s)
    }
    fn cdf(&self, t: f64) -> f64 {
        if t > 0.0 { normal_cdf((t.ln() - self.mu) / self.sigma) } else { 0.0 }
    }
    fn transform_line(&self, re: f64, step: f64, out: &mut [Complex64]) {
        self.pieces.transform_line(re, step, out);
    }
}
