//! Forecasts an arrival rate, with an interval from the errors of earlier forecasts.
//!
//! The forecast is the mean rate of the newer half of the window, moved towards the extrapolation of a line
//! through the whole window. How far it is moved is learnt from past forecasts: the lower end of the interval of a
//! regression of the rates that came on those that lines had predicted, both as logarithms of ratios to the mean,
//! with weights that decay by 3 % at each forecast. So the forecast follows a load that rises for minutes, and ignores a single
//! steep rise, which does not show where it ends. On the days of a web site's traffic, a line that always counts fully errs by
//! up to 100 points of the share within an objective; the mean errs by at most 9.
//!
//! The interval has the size that 95 % of the errors of the last [`ERRORS`] forecasts did not exceed (conformal
//! prediction), so that no law of the load's changes is assumed. Errors are differences of square roots of rates, because the variance of the square root of
//! a Poisson count does not depend on its mean. Until there are enough errors, the interval is at least a factor of [`FACTOR`] wide in both
//! directions.
//!
//! Cost: a pass over the window for each forecast.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// The line's forecast differs from the mean rate at most by this factor.
const FACTOR: f64 = 1.5;
/// Errors of which the interval is a quantile.
const ERRORS: usize = 60;
/// The share of rates that the interval should contain.
const HELD: f64 = 0.95;
/// The largest number of forecasts that wait for their time; further ones are not compared.
const WAITING_MAX: usize = 64;
/// Factor of the weights of earlier forecasts at each new one.
const DECAY: f64 = 0.97;
/// The number of standard errors by which lines must have reduced the error before they count.
const SIGNIFICANT: f64 = 2.0;
/// Added to the sum of squares of the lines' predictions, so that the first correct ones do not count fully.
const PRIOR: f64 = 0.5;
/// The fewest rates of a line.
const RATES_MIN: usize = 8;
/// Two ends of windows that differ by less are the same, seconds.
const SAME_S: f64 = 1e-3;

/// The forecast of a rate, 1/s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// The mean of the newer half of the window.
    pub now: f64,
    /// The expected rate.
    pub rate: f64,
    /// The lower end of its 95 % interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// A forecast that waits for its time.
#[derive(Clone, Copy, Debug)]
struct PendingForecast {
    at_s: f64,
    now: f64,
    line: f64,
    rate: f64,
}

/// Forecasts of one rate, each judged when its time has come.
#[derive(Clone, Debug, Default)]
pub struct Forecaster {
    waiting: VecDeque<PendingForecast>,
    /// Sizes of past errors, of square roots of rates.
    errors: VecDeque<f64>,
    /// Weighted sums of the logarithms x of what the line said and y of what came, over the mean rate.
    count: f64,
    xx: f64,
    xy: f64,
    yy: f64,
}

/// The mean of some rates; `None` without any.
fn mean(rates: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = rates.fold((0.0, 0), |(sum, count), rate| (sum + rate, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// The logarithm of a ratio of rates. One per second more, so that it is of some size only where requests come.
fn log_ratio(rate: f64, to: f64) -> f64 {
    ((rate + 1.0) / (to + 1.0)).ln()
}

/// The least-squares line at a time, at most a factor of [`FACTOR`] from its mean.
fn line_at(rates: &[(f64, f64)], at_s: f64) -> Option<f64> {
    let time = mean(rates.iter().map(|r| r.0))?;
    let rate = mean(rates.iter().map(|r| r.1))?;
    let spread: f64 = rates.iter().map(|r| (r.0 - time).powi(2)).sum();
    if rates.len() < RATES_MIN || spread <= 0.0 {
        return None;
    }
    let slope = rates.iter().map(|r| (r.0 - time) * (r.1 - rate)).sum::<f64>() / spread;
    Some((rate + slope * (at_s - time)).clamp(rate / FACTOR, rate * FACTOR))
}

impl Forecaster {
    /// Judges the forecasts whose time has come by the rates of recent intervals, `(end in seconds, 1/s)` in the
    /// order of time, and forecasts the mean rate of the `scored_s` seconds that end `ahead_s` after them.
    pub fn next(&mut self, rates: &[(f64, f64)], ahead_s: f64, scored_s: f64) -> Forecast {
        let (Some(first), Some(last)) = (rates.first(), rates.last()) else {
            return Forecast::default();
        };
        let is_due = |due: &PendingForecast| due.at_s <= last.0 + SAME_S;
        while let Some(due) = self.waiting.front().copied().filter(is_due) {
            self.waiting.pop_front();
            let of =
                |r: &&(f64, f64)| r.0 > due.at_s - scored_s + SAME_S && r.0 <= due.at_s + SAME_S;
            if let Some(came) = mean(rates.iter().filter(of).map(|r| r.1)) {
                self.learn(&due, came);
            }
        }
        let half_s = (first.0 + last.0) / 2.0;
        let newer = rates.iter().filter(|r| r.0 >= half_s).map(|r| r.1);
        let now = mean(newer).unwrap_or(last.1);
        let at_s = last.0 + ahead_s;
        let line = line_at(rates, at_s).unwrap_or(now);
        let rate = ((now + 1.0) * (self.trust() * log_ratio(line, now)).exp() - 1.0).max(0.0);
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back(PendingForecast { at_s, now, line, rate });
        }
        let (root, miss) = (rate.sqrt(), self.miss(rate));
        let (low, high) = ((root - miss).max(0.0).powi(2), (root + miss).powi(2));
        Forecast { now, rate, low, high }
    }

    fn learn(&mut self, due: &PendingForecast, came: f64) {
        if self.errors.len() >= ERRORS {
            self.errors.pop_front();
        }
        self.errors.push_back((came.sqrt() - due.rate.sqrt()).abs());
        let (x, y) = (log_ratio(due.line, due.now), log_ratio(came, due.now));
        self.count = self.count * DECAY + 1.0;
        self.xx = self.xx * DECAY + x * x;
        self.xy = self.xy * DECAY + x * y;
        self.yy = self.yy * DECAY + y * y;
    }

    /// The share of what the line says that is believed.
    fn trust(&self) -> f64 {
        if self.count <= 2.0 || self.xx <= 0.0 {
            return 0.0;
        }
        let unexplained = (self.yy - self.xy * self.xy / self.xx).max(0.0) / (self.count - 1.0);
        let error = (unexplained / self.xx).sqrt();
        (self.xy / (self.xx + PRIOR) - SIGNIFICANT * error).clamp(0.0, 1.0)
    }

    /// By how much the square root of the rate may be missed.
    fn miss(&self, rate: f64) -> f64 {
        let mut errors: Vec<f64> = self.errors.iter().copied().collect();
        errors.sort_by(f64::total_cmp);
        let rank = ((errors.len() + 1) as f64 * HELD).ceil() as usize;
        match errors.get(rank - 1) {
            Some(error) => *error,
            None => {
                let least = rate.sqrt() * (FACTOR.sqrt() - 1.0);
                errors.last().map_or(least, |error| error.max(least))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Forecasts a minute ahead every ten seconds; each with the rate that then comes.
    fn forecasts(rate: impl Fn(f64) -> f64, seconds: i32) -> Vec<(Forecast, f64)> {
        let mut forecaster = Forecaster::default();
        let each = (10..seconds).step_by(10).map(|end| {
            let rates: Vec<(f64, f64)> =
                ((end - 60).max(0)..end).map(f64::from).map(|t| (t, rate(t))).collect();
            let came = mean((end + 50..end + 60).map(|t| rate(f64::from(t)))).unwrap();
            (forecaster.next(&rates, 60.0, 10.0), came)
        });
        each.collect()
    }

    /// Deviations of rates, in no order: -5 to 5.
    fn noise(t: f64) -> f64 {
        f64::from(t as i32 * 37 % 11 - 5)
    }

    #[test]
    fn a_long_rise_is_followed_and_noise_is_not() {
        let rising = forecasts(|t| 200.0 + t + noise(t), 600);
        let (early, came) = rising[3];
        assert!((early.rate - early.now).abs() < 1.0 && came > early.rate, "{early:?}");
        let (late, came) = rising.last().unwrap();
        let (missed, without) = (came - late.rate, came - late.now);
        assert!(missed.abs() < 0.6 * without, "{late:?}, and {came} came");
        for (forecast, came) in forecasts(|t| 100.0 + 3.0 * noise(t), 600) {
            assert!((forecast.rate - 100.0).abs() < 5.0, "{forecast:?}");
            assert!(forecast.low <= came && came <= forecast.high, "{forecast:?}, and {came} came");
        }
    }

    #[test]
    fn a_steep_rise_is_not_carried_on() {
        let rise = |t: f64| 300.0 + ((t - 285.0) * 40.0).clamp(0.0, 600.0) + noise(t);
        let all = forecasts(rise, 600);
        for (forecast, _) in &all {
            assert!(forecast.rate < 950.0, "{forecast:?}");
        }
        // What was missed then widens the interval of what follows.
        let (before, after) = (all[25].0, all[40].0);
        assert!(before.high < 1.3 * before.rate, "{before:?}");
        assert!(after.low < 400.0 && after.high > 1200.0, "{after:?}");
    }

    #[test]
    fn nothing_panics_and_nothing_grows() {
        let mut forecaster = Forecaster::default();
        assert_eq!(forecaster.next(&[], 60.0, 10.0), Forecast::default());
        let silent = forecaster.next(&[(1.0, 0.0)], 60.0, 10.0);
        assert_eq!((silent.rate, silent.high), (0.0, 0.0));
        for second in 0..5000 {
            let rates = [(f64::from(second), 1e9), (f64::from(second) + 0.5, 0.0)];
            let forecast = forecaster.next(&rates, 3600.0, 1e-9);
            assert!(forecast.rate.is_finite() && forecast.low <= forecast.high);
        }
        assert!(forecaster.waiting.len() <= WAITING_MAX && forecaster.errors.len() <= ERRORS);
    }
}
