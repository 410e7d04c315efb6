//! Laws with a formula: for checks, what-if questions and published models.

use statrs::function::erf::erfc;
use statrs::function::gamma::gamma_lr;

use crate::error::{Error, check, time};

use super::{Atom, Complex64, Empirical, Piece, ServiceTime};

/// The exponential law: what M/M/1 and the Spotify model assume.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exponential {
    mean: f64,
}

impl Exponential {
    /// With a mean in seconds; an error unless it is finite and above 0.
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

/// The gamma law: shape 1/SCV; Erlang where that is whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gamma {
    mean: f64,
    scv: f64,
}

impl Gamma {
    /// With a mean in seconds and a squared coefficient of variation, both above 0.
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

/// A constant service time. Its M/G/1 queue is [`crate::queue::Md1`], in closed form.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Deterministic {
    value: f64,
}

impl Deterministic {
    /// Of a value in seconds, above 0.
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

/// A choice between exponential laws.
#[derive(Clone, Debug, PartialEq)]
pub struct Hyperexponential {
    branches: Vec<(f64, f64)>,
}

impl Hyperexponential {
    /// Of branches (probability, mean in seconds); probabilities must add to 1 within 1e-9.
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

    /// Two branches with balanced means (each carries half of the work) for a mean and an SCV above 1.
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

/// The lognormal law: a heavy tail with all moments. Its transform has no formula: the law is cut into
/// 400 pieces of equal width in the logarithm, each with its own exact mean (see [`Empirical`]).
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
            // What carries nothing of mass or variance costs as much as the rest.
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
