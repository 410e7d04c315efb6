//! A shard's throughput curve as it is measured, and the marks that follow from it.
//!
//! While a shard holds some bytes of layers, its services are counted together with the time they took.
//! Two footprints that have both been measured give the *gain* of the layer between them: the factor by
//! which it shortens a service. The marks are utilisations: a queue of length h (M/M/1) is a utilisation
//! of h / (1 + h), and losing a layer multiplies it by the gain. So a layer that gains more is given up
//! later, and one that gains less sooner. Where nothing was measured the gain is taken to be
//! [`GAIN_UNKNOWN`], for which [`super::Settings::low`] is meant.

use std::collections::BTreeMap;

use ground::window::{Nanos, SECOND};

/// The gain of a layer that was not measured.
pub const GAIN_UNKNOWN: f64 = 2.0;
/// A layer that is known to gain less is not added.
const GAIN_MIN: f64 = 1.1;
/// Limits of a gain in the marks.
const GAINS: (f64, f64) = (1.2, 16.0);
/// The fewest services of a footprint.
const COUNT_MIN: f64 = 50.0;
/// Sums are halved at this number, so that the newest services count most.
const COUNT_MAX: f64 = 4000.0;
/// A layer that gained little so long ago may be tried again: other queries may have come.
const AGE_MAX: Nanos = 600 * SECOND;
/// Footprints that are remembered.
const FOOTPRINTS_MAX: usize = 16;

#[derive(Clone, Copy, Debug, Default)]
struct Point {
    count: f64,
    busy_s: f64,
    at: Nanos,
}

/// Mean service times by bytes held.
#[derive(Clone, Debug, Default)]
pub struct Curve(BTreeMap<u64, Point>);

impl Curve {
    /// Adds services of a footprint.
    pub fn add(&mut self, now: Nanos, held_bytes: u64, count: u64, busy_s: f64) {
        if count == 0 || !busy_s.is_finite() || busy_s <= 0.0 {
            return;
        }
        if !self.0.contains_key(&held_bytes) && self.0.len() >= FOOTPRINTS_MAX {
            let oldest = self.0.iter().min_by_key(|(_, point)| point.at).map(|(held, _)| *held);
            oldest.map(|held| self.0.remove(&held));
        }
        let point = self.0.entry(held_bytes).or_default();
        if now.saturating_sub(point.at) > AGE_MAX {
            *point = Point::default();
        }
        point.at = now;
        point.count += count as f64;
        point.busy_s += busy_s;
        if point.count > COUNT_MAX {
            (point.count, point.busy_s) = (point.count / 2.0, point.busy_s / 2.0);
        }
    }

    /// Mean service time of a footprint, seconds.
    fn service_s(&self, held_bytes: u64) -> Option<f64> {
        let point = self.0.get(&held_bytes)?;
        (point.count >= COUNT_MIN).then(|| point.busy_s / point.count)
    }

    /// The factor by which services are shorter with `more` bytes than with `less`; `None` if either was
    /// not measured.
    pub fn gain(&self, less: u64, more: u64) -> Option<f64> {
        Some(self.service_s(less)? / self.service_s(more)?)
    }

    /// Whether the layer between them is known, not long ago, to gain too little.
    pub fn is_poor(&self, now: Nanos, less: u64, more: u64) -> bool {
        let is_new = |point: &Point| now.saturating_sub(point.at) <= AGE_MAX;
        self.0.get(&more).is_some_and(is_new)
            && self.gain(less, more).is_some_and(|gain| gain < GAIN_MIN)
    }
}

/// The length at which a shard (M/M/1) has `1 / factor` of the utilisation that it has at `length`, and at most 0.99.
pub fn relieved(length: f64, factor: f64) -> f64 {
    let utilisation = (length / (1.0 + length) / factor).min(0.99);
    utilisation / (1.0 - utilisation)
}

/// The marks of a shard whose lowest layer has this gain, from those for a gain of
/// [`GAIN_UNKNOWN`]: the low mark, and the length below which it may lose a layer.
pub fn marks(low: f64, high: f64, gain: Option<f64>) -> (f64, f64) {
    let gain = gain.unwrap_or(GAIN_UNKNOWN).clamp(GAINS.0, GAINS.1);
    if gain == GAIN_UNKNOWN {
        return (low, high / (high + 2.0));
    }
    (relieved(low, gain / GAIN_UNKNOWN), relieved(high, gain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_follow_the_gain() {
        assert_eq!(marks(0.25, 4.0, None), (0.25, 4.0 / 6.0));
        assert_eq!(marks(0.25, 4.0, Some(2.0)), (0.25, 4.0 / 6.0));
        let (low, spare) = marks(0.25, 4.0, Some(4.0));
        // Utilisations of 0.1 and 0.2: four times as much is 0.4 and 0.8.
        assert!((low - 0.1 / 0.9).abs() < 1e-12 && (spare - 0.25).abs() < 1e-12);
        for gain in [1.0, 1.3, 2.0, 3.0, 8.0, 100.0] {
            let (low, spare) = marks(0.25, 4.0, Some(gain));
            assert!(low < spare, "a shard that grew would fold at once at a gain of {gain}");
        }
    }

    #[test]
    fn a_curve_is_of_the_newest_services_and_grows_old() {
        let mut curve = Curve::default();
        curve.add(0, 100, 1000, 10.0);
        curve.add(0, 300, 49, 0.1);
        assert_eq!((curve.service_s(100), curve.service_s(300)), (Some(0.01), None));
        curve.add(SECOND, 300, 951, 4.9);
        assert_eq!(curve.gain(100, 300), Some(2.0));
        curve.add(SECOND, 700, 1000, 4.9);
        assert!(curve.is_poor(2 * SECOND, 300, 700) && !curve.is_poor(2 * SECOND, 100, 300));
        assert!(!curve.is_poor(602 * SECOND, 300, 700), "that was long ago");
        for _ in 0..20 {
            curve.add(2 * SECOND, 100, 1000, 20.0);
        }
        assert!(curve.service_s(100).unwrap() > 0.0195);
        (0..100).for_each(|held| curve.add(3 * SECOND, held, 1, 1.0));
        assert!(curve.0.len() <= FOOTPRINTS_MAX);
    }
}
