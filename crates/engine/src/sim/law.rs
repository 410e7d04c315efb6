//! Distributions from which times and keys are drawn.

use ground::window::Nanos;
use rand::RngExt;
use rand::rngs::SmallRng;
use rand_distr::{Distribution, Exp1, Gamma, LogNormal, Zipf};

/// A distribution of times.
#[derive(Clone, Debug)]
pub struct Law {
    shape: Shape,
    mean_s: f64,
}

#[derive(Clone, Debug)]
enum Shape {
    Constant(f64),
    Exponential(f64),
    Gamma(Gamma<f64>),
    Lognormal(LogNormal<f64>),
    Empirical(std::sync::Arc<[f64]>),
}

/// Invalid parameters of a law.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("a {kind} law cannot have mean {mean_s} s and squared coefficient of variation {scv}")]
pub struct LawError {
    kind: &'static str,
    mean_s: f64,
    scv: f64,
}

impl Law {
    /// Always the same time.
    pub fn constant(seconds: f64) -> Law {
        Law { shape: Shape::Constant(seconds * 1e9), mean_s: seconds }
    }

    /// The exponential law with a mean.
    pub fn exponential(mean_s: f64) -> Law {
        Law { shape: Shape::Exponential(mean_s * 1e9), mean_s }
    }

    /// The gamma law with a mean and a squared coefficient of variation.
    ///
    /// # Errors
    /// If either is not positive.
    pub fn gamma(mean_s: f64, scv: f64) -> Result<Law, LawError> {
        let shape = Gamma::new(1.0 / scv, mean_s * 1e9 * scv);
        let shape = shape.map_err(|_| LawError { kind: "gamma", mean_s, scv })?;
        Ok(Law { shape: Shape::Gamma(shape), mean_s })
    }

    /// The lognormal law with a mean and a squared coefficient of variation.
    ///
    /// # Errors
    /// If either is not positive.
    pub fn lognormal(mean_s: f64, scv: f64) -> Result<Law, LawError> {
        let variance = scv.ln_1p();
        let shape = LogNormal::new((mean_s * 1e9).ln() - variance / 2.0, variance.sqrt());
        let shape = shape.map_err(|_| LawError { kind: "lognormal", mean_s, scv })?;
        Ok(Law { shape: Shape::Lognormal(shape), mean_s })
    }

    /// Measured times, drawn with replacement; always 0 if there are none.
    pub fn empirical(seconds: &[f64]) -> Law {
        let times: Vec<f64> = seconds.iter().map(|s| s * 1e9).collect();
        let shape = match times.is_empty() {
            true => Shape::Constant(0.0),
            false => Shape::Empirical(times.into()),
        };
        let mean_s = seconds.iter().sum::<f64>() / seconds.len().max(1) as f64;
        Law { shape, mean_s }
    }

    /// The mean, seconds.
    pub fn mean_s(&self) -> f64 {
        self.mean_s
    }

    /// The time, if it is always the same.
    pub(super) fn constant_ns(&self) -> Option<Nanos> {
        match self.shape {
            Shape::Constant(ns) => Some(ns as Nanos),
            _ => None,
        }
    }

    /// Draws a time.
    pub fn draw(&self, random: &mut SmallRng) -> Nanos {
        let ns = match &self.shape {
            Shape::Constant(ns) => *ns,
            Shape::Exponential(mean) => {
                let unit: f64 = Exp1.sample(random);
                mean * unit
            }
            Shape::Gamma(law) => law.sample(random),
            Shape::Lognormal(law) => law.sample(random),
            Shape::Empirical(times) => times[random.random_range(0..times.len())],
        };
        ns as Nanos
    }
}

/// A service time of a device that takes a multiple of its time. At most 146 years, which no run reaches, so that the end of
/// a service is a time.
pub(super) fn slowed(service: Nanos, factor: f64) -> Nanos {
    ((service as f64 * factor) as Nanos).min(Nanos::MAX / 4)
}

/// The popularity of keys.
#[derive(Clone, Debug)]
pub enum Popularity {
    /// All keys are equally popular.
    Uniform,
    /// The popularity of the i-th key is proportional to i^−s.
    Zipf(f64),
}

/// Draws keys.
pub(super) enum Keys {
    Uniform(u32),
    Zipf(Zipf<f64>),
}

impl Keys {
    pub fn new(popularity: &Popularity, count: u32) -> Keys {
        match *popularity {
            Popularity::Zipf(s) => match Zipf::new(f64::from(count), s) {
                Ok(zipf) => Keys::Zipf(zipf),
                Err(_) => Keys::Uniform(count),
            },
            Popularity::Uniform => Keys::Uniform(count),
        }
    }

    pub fn draw(&self, random: &mut SmallRng) -> u32 {
        match self {
            Keys::Uniform(count) => random.random_range(0..*count),
            Keys::Zipf(zipf) => zipf.sample(random) as u32 - 1,
        }
    }
}
