//! Summary statistics of response times, and how a table shows them.

use ground::window::Histogram;
use serde::Serialize;

/// Summary statistics of a distribution, ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90 %.
    pub p90: f64,
    /// 99 %.
    pub p99: f64,
    /// 99.9 %.
    pub p999: f64,
    /// Largest.
    pub max: f64,
}

impl Quantiles {
    /// The statistics of a histogram; not a number (`null` in JSON) if it is empty.
    pub fn from_histogram(histogram: &Histogram) -> Quantiles {
        let at = |p| histogram.quantile_s(p).unwrap_or(f64::NAN) * 1e3;
        if histogram.quantile_s(0.5).is_none() {
            let none = f64::NAN;
            return Quantiles {
                mean: none,
                p50: none,
                p90: none,
                p99: none,
                p999: none,
                max: none,
            };
        }
        Quantiles {
            mean: histogram.mean_s() * 1e3,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: histogram.max_s() * 1e3,
        }
    }
}

/// A time of the table, ms.
pub(super) fn time(ms: f64) -> String {
    if ms.is_nan() { "–".to_owned() } else { format!("{ms:.3}") }
}
