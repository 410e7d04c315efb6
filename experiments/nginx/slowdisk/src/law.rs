//! How long a disk takes for a read.

use anyhow::{Context, ensure};
use ground::window::Nanos;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand_distr::{Distribution, Exp, Gamma, LogNormal};

/// The kind of a law.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// Squared coefficient of variation 1.
    Exponential,
    /// Any SCV above 0; below 1 it resembles the seeks and turns of a disk.
    Gamma,
    /// Any SCV above 0, with a heavy tail.
    Lognormal,
}

enum Shape {
    Exponential(Exp<f64>),
    Gamma(Gamma<f64>),
    Lognormal(LogNormal<f64>),
}

/// Draws service times.
pub struct Law {
    shape: Shape,
    random: SmallRng,
}

impl Law {
    /// A law with a mean in milliseconds and a squared coefficient of variation (which an exponential
    /// law does not ask for). The same seed draws the same times.
    ///
    /// # Errors
    /// If the mean or the SCV is not a positive number.
    pub fn new(kind: Kind, mean_ms: f64, scv: f64, seed: u64) -> anyhow::Result<Law> {
        ensure!(mean_ms > 0.0 && mean_ms <= 1e6, "a mean of {mean_ms} ms is none: 0 … 1,000,000");
        ensure!(scv > 0.0 && scv <= 1e4, "an SCV of {scv} is none: above 0, at most 10,000");
        let shape = match kind {
            Kind::Exponential => Exp::new(1.0 / mean_ms).map(Shape::Exponential).ok(),
            Kind::Gamma => Gamma::new(1.0 / scv, mean_ms * scv).map(Shape::Gamma).ok(),
            Kind::Lognormal => {
                let variance = (1.0 + scv).ln();
                let law = LogNormal::new(mean_ms.ln() - variance / 2.0, variance.sqrt());
                law.map(Shape::Lognormal).ok()
            }
        };
        let shape = shape.with_context(|| format!("no law has mean {mean_ms} ms, SCV {scv}"))?;
        Ok(Law { shape, random: SmallRng::seed_from_u64(seed) })
    }

    /// The next service time.
    pub fn draw(&mut self) -> Nanos {
        let random = &mut self.random;
        let ms = match &self.shape {
            Shape::Exponential(law) => law.sample(random),
            Shape::Gamma(law) => law.sample(random),
            Shape::Lognormal(law) => law.sample(random),
        };
        (ms * 1e6) as Nanos
    }
}
