//! The arrival rate some time ahead, by a line through the rates of recent intervals.
//!
//! The slope counts only if chance explains it badly: extrapolating the slope of noise a minute
//! ahead doubles the error of the forecast, and most traffic is level within a minute. Its standard
//! error is from the residuals, so it contains the bursts of arrivals. Cost: one pass.

use serde::{Deserialize, Serialize};

/// A slope counts from this many standard errors on.
const SIGNIFICANT: f64 = 4.0;
/// The forecast changes the rate at most by this factor: a line through a sudden rise says nothing
/// of where it ends.
const FACTOR_MAX: f64 = 2.0;

/// A line through recent rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// Mean rate, 1/s.
    pub rate: f64,
    /// Change per second, 1/s²; 0 where chance explains it.
    pub slope: f64,
    /// Seconds from the middle of the data to its end.
    half_s: f64,
}

impl Forecast {
    /// The line through rates by time, `(seconds, 1/s)`.
    pub fn of(rates: &[(f64, f64)]) -> Forecast {
        let n = rates.len() as f64;
        if rates.is_empty() {
            return Forecast::default();
        }
        let time = rates.iter().map(|r| r.0).sum::<f64>() / n;
        let rate = rates.iter().map(|r| r.1).sum::<f64>() / n;
        let end = rates.iter().map(|r| r.0).fold(f64::NEG_INFINITY, f64::max);
        let spread: f64 = rates.iter().map(|r| (r.0 - time).powi(2)).sum();
        let level = Forecast { rate, slope: 0.0, half_s: end - time };
        if rates.len() < 8 || spread <= 0.0 {
            return level;
        }
        let slope = rates.iter().map(|r| (r.0 - time) * (r.1 - rate)).sum::<f64>() / spread;
        let residuals = rates.iter().map(|r| (r.1 - rate - slope * (r.0 - time)).powi(2));
        let error = (residuals.sum::<f64>() / (n - 2.0) / spread).sqrt();
        if slope.abs() > SIGNIFICANT * error { Forecast { slope, ..level } } else { level }
    }

    /// The rate `ahead_s` seconds after the end of the data.
    pub fn at(&self, ahead_s: f64) -> f64 {
        let line = self.rate + self.slope * (self.half_s + ahead_s);
        line.clamp(self.rate / FACTOR_MAX, self.rate * FACTOR_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slope_is_followed_and_noise_is_not() {
        let line = |slope: f64, noise: f64| -> Vec<(f64, f64)> {
            let at = |i: i32| 100.0 + slope * f64::from(i) + noise * f64::from(i * 37 % 11 - 5);
            (0..60).map(|i| (f64::from(i), at(i))).collect()
        };
        let rising = Forecast::of(&line(1.0, 1.0));
        assert!((rising.at(60.0) - 219.0).abs() < 3.0, "{rising:?}");
        let noisy = Forecast::of(&line(0.0, 3.0));
        assert!(noisy.slope == 0.0 && (noisy.at(60.0) - 100.0).abs() < 1.0, "{noisy:?}");
        let steep = Forecast::of(&line(10.0, 0.0));
        assert_eq!(steep.at(60.0), steep.rate * FACTOR_MAX);
        assert_eq!(Forecast::of(&[]).at(60.0), 0.0);
    }
}
