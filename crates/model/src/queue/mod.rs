//! One queue: from an arrival rate and a law of service times to waiting and response times.
//!
//! Arrivals are Poisson, the discipline is first come, first served. [`Mm1`] has exponential service
//! and closed formulas; [`Mg1`] takes any law; [`Md1`] is its case of constant service, in closed form,
//! because there the inversion of transforms rings.

mod md1;
mod mg1;
mod mm1;

pub use md1::Md1;
pub(crate) use mg1::waiting_mean;
pub use mg1::{Evaluated, Mg1, erlang_c};
pub use mm1::Mm1;

use crate::error::{Error, check, not_negative};

/// Checks an arrival rate against the rate at which the queue is always busy.
pub(crate) fn stable(rate: f64, saturation: f64) -> Result<f64, Error> {
    not_negative("the arrival rate", rate)?;
    if rate < saturation { Ok(rate) } else { Err(Error::Unstable { rate, saturation }) }
}

/// The smallest t with cdf(t) ≥ p, by bracketing from `scale` and bisection to 1e-12 of t; some 60
/// evaluations. The CDF must reach p somewhere; p must be at least 0 and below 1.
pub(crate) fn quantile(p: f64, scale: f64, cdf: impl Fn(f64) -> f64) -> Result<f64, Error> {
    check("the share of a quantile", p, 0.0..=1.0 - 1e-9, "at least 0 and below 1")?;
    if p <= cdf(0.0) {
        return Ok(0.0);
    }
    let mut high = scale.max(1e-12);
    let mut low = 0.0;
    while cdf(high) < p && high < 1e18 {
        low = high;
        high *= 2.0;
    }
    while high - low > 1e-12 * high {
        let middle = 0.5 * (low + high);
        if cdf(middle) < p {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(high)
}

/// The largest x in `0..high` with `holds(x)`, for a property that holds below a point and not above,
/// to 1e-12 of x.
pub(crate) fn bisect(high: f64, holds: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, high);
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if holds(middle) {
            low = middle;
        } else {
            high = middle;
        }
        if high - low <= 1e-12 * high {
            break;
        }
    }
    low
}

#[cfg(test)]
mod tests;
