//! The loads at which a service is judged, and how far off its predictions were at each.

use std::collections::BTreeMap;

use report::Row;
use serde::Serialize;

/// Above this share of the capacity the larger goal holds.
const HIGH: f64 = 0.85;

/// The judged loads.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Loads {
    /// Requests/s of which they are shares.
    pub capacity: f64,
    /// Requests/s, ascending.
    pub rates: Vec<f64>,
}

impl Loads {
    pub fn new(capacity: f64, shares: &[f64]) -> Loads {
        Loads { capacity, rates: shares.iter().map(|share| share * capacity).collect() }
    }

    /// Whether the goal of 90 % is for it.
    fn is_high(&self, rate: f64) -> bool {
        rate > HIGH * self.capacity
    }

    /// Errors by the load and the time they are for, of all rounds.
    pub fn errors(&self, errors: impl Iterator<Item = OneError>) -> Vec<MeanError> {
        let mut all: BTreeMap<(usize, u64), Vec<OneError>> = BTreeMap::new();
        for error in errors {
            let off = |i: &usize| (self.rates[*i] - error.rate).abs();
            let load = (0..self.rates.len()).min_by(|a, b| off(a).total_cmp(&off(b)));
            let time = (error.within_s * 1e9).round() as u64;
            all.entry((load.unwrap_or(0), time)).or_default().push(error);
        }
        all.into_values().map(|errors| self.mean(&errors)).collect()
    }

    pub fn mean(&self, errors: &[OneError]) -> MeanError {
        let n = errors.len() as f64;
        let rate = errors.iter().map(|e| e.rate).sum::<f64>() / n;
        let squares: f64 = errors.iter().map(|e| e.half_points.powi(2)).sum();
        MeanError {
            high: self.is_high(rate),
            points: (errors.iter().map(|e| e.points).sum::<f64>() / n).abs(),
            half_points: squares.sqrt() / n,
            requests: errors.iter().map(|e| e.requests).sum(),
        }
    }

    /// The errors of rows.
    pub fn of_rows<'a>(&self, rows: impl Iterator<Item = &'a Row>) -> Vec<MeanError> {
        self.errors(rows.map(|row| OneError {
            rate: row.rate,
            within_s: row.within_s,
            // Past the saturation of a model nobody is answered in time for long.
            points: row.concertina_error_points.unwrap_or(-100.0 * row.measured.value),
            half_points: row.measured.half_width.map_or(f64::NAN, |h| 100.0 * h),
            requests: row.requests,
        }))
    }
}

/// How far off a prediction was in one round, with its sign.
pub(super) struct OneError {
    pub rate: f64,
    pub within_s: f64,
    pub points: f64,
    /// Half the width of the measurement's interval.
    pub half_points: f64,
    pub requests: u64,
}

/// The mean of all rounds at a load and a time, without its sign.
#[derive(Debug)]
pub(super) struct MeanError {
    pub high: bool,
    pub points: f64,
    pub half_points: f64,
    pub requests: u64,
}

/// The worst up to 80 % and above, points.
pub(super) fn worst(errors: &[MeanError]) -> [f64; 2] {
    [false, true]
        .map(|high| errors.iter().filter(|e| e.high == high).map(|e| e.points).fold(0.0, f64::max))
}
