//! The service times of an emulated device: how long it holds each read.

use ground::window::Nanos;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp, Gamma, LogNormal};

use crate::error::Error;
use configuration::{Kind, Service};

enum Shape {
    Exponential(Exp<f64>),
    Gamma(Gamma<f64>),
    Lognormal(LogNormal<f64>),
    Empirical(Vec<f64>),
}

/// Draws service times.
pub struct Profile {
    shape: Shape,
    random: SmallRng,
    bytes_per_s: f64,
}

impl Profile {
    /// The profile of the device at `index` of its group, which determines its random seed.
    ///
    /// # Errors
    ///
    /// If a parameter of the distribution is invalid, or those of [`empirical`].
    pub fn new(service: &Service, index: u64) -> Result<Profile, Error> {
        let (mean, scv) = (service.mean_ms, service.scv);
        let shape = match service.kind {
            Kind::Exponential => Shape::Exponential(Exp::new(1.0 / mean).map_err(invalid)?),
            Kind::Gamma => Shape::Gamma(Gamma::new(1.0 / scv, mean * scv).map_err(invalid)?),
            Kind::Lognormal => {
                let variance = (1.0 + scv).ln();
                let law = LogNormal::new(mean.ln() - variance / 2.0, variance.sqrt());
                Shape::Lognormal(law.map_err(invalid)?)
            }
            Kind::Empirical => Shape::Empirical(empirical(service)?),
        };
        let random = SmallRng::seed_from_u64(service.seed.wrapping_add(index));
        Ok(Profile { shape, random, bytes_per_s: service.bytes_per_s.0 as f64 })
    }

    /// The time that so many bytes take in addition.
    pub fn transfer(&self, bytes: u64) -> Nanos {
        if self.bytes_per_s > 0.0 { (bytes as f64 / self.bytes_per_s * 1e9) as Nanos } else { 0 }
    }

    /// The next service time, for any number of bytes.
    pub fn draw(&mut self) -> Nanos {
        let random = &mut self.random;
        let ms = match &self.shape {
            Shape::Exponential(shape) => shape.sample(random),
            Shape::Gamma(shape) => shape.sample(random),
            Shape::Lognormal(shape) => shape.sample(random),
            Shape::Empirical(times) => times[random.random_range(0..times.len())],
        };
        (ms * 1e6) as Nanos
    }
}

fn invalid(error: impl std::error::Error) -> Error {
    Error::Distribution(error.to_string())
}

/// Reads the service times of an empirical profile, in milliseconds, one per line. If `mean_ms` is
/// positive, scales them to that mean.
///
/// # Errors
/// If no file is configured, it cannot be read, a line is not a time, or there are no times.
pub fn empirical(service: &Service) -> Result<Vec<f64>, Error> {
    let path = service.file.as_deref().ok_or(Error::NoServiceTimesFile)?;
    let unread = |source| Error::Read { path: path.to_owned(), source };
    let text = record::file::read_text(path).map_err(unread)?;
    let mut times = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let ms = line.trim().parse::<f64>().ok().filter(|ms| ms.is_finite() && *ms >= 0.0);
        times.push(ms.ok_or_else(|| Error::ServiceTime {
            path: path.to_owned(),
            line: number + 1,
            text: line.to_owned(),
        })?);
    }
    if times.is_empty() {
        return Err(Error::NoServiceTimes(path.to_owned()));
    }
    if service.mean_ms > 0.0 {
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        times.iter_mut().for_each(|time| *time *= service.mean_ms / mean);
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_have_the_configured_mean_and_variation() {
        for (kind, scv) in [(Kind::Exponential, 1.0), (Kind::Gamma, 0.2), (Kind::Lognormal, 4.0)] {
            let service = Service { kind, mean_ms: 10.0, scv, ..Service::default() };
            let mut profile = Profile::new(&service, 3).unwrap();
            let times: Vec<f64> = (0..400_000).map(|_| profile.draw() as f64 * 1e-6).collect();
            let n = times.len() as f64;
            let mean = times.iter().sum::<f64>() / n;
            let variance = times.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / n;
            assert!((mean / 10.0 - 1.0).abs() < 0.02, "{kind:?}: mean {mean}");
            let measured = variance / mean / mean;
            assert!((measured / scv - 1.0).abs() < 0.15, "{kind:?}: SCV {measured}");
        }
    }
}
