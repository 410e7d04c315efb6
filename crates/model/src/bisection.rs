//! Numerical searches by bisection: quantiles of laws, and the end of a range in which something holds.

use crate::error::{Error, check};

/// The smallest t with cdf(t) ≥ p, by bracketing from `scale` and bisection to 1e-12 of t or 1e-18
/// s.
///
/// Returns an error if p is below 0, at least 1, or above every value of the CDF. The result never
/// falls with p, even if rounding makes the CDF fall a little: the points of the search do not
/// depend on p. Cost: about 60 evaluations.
pub(crate) fn quantile(p: f64, scale: f64, cdf: impl Fn(f64) -> f64) -> Result<f64, Error> {
    quantile_to(1e-12, p, scale, cdf)
}

/// [`quantile`] to `tolerance` of t in place of 1e-12. Cost: four evaluations for each decimal.
pub(crate) fn quantile_to(
    tolerance: f64,
    p: f64,
    scale: f64,
    cdf: impl Fn(f64) -> f64,
) -> Result<f64, Error> {
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
    if high >= 1e18 {
        let must = "a share that the CDF reaches within its accuracy: choose a smaller share";
        return Err(Error::Invalid { what: "the share of a quantile", value: p, must });
    }
    // A time of 0 has no relative accuracy: for p near 0 only the absolute bound ends the loop.
    while high - low > tolerance * high && high > 1e-18 {
        let middle = 0.5 * (low + high);
        if cdf(middle) < p {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(high)
}

/// The largest x in `0..high` with `holds(x)`, to 1e-12 of x. `holds` must be true below some point
/// and false above it.
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
