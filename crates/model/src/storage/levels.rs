//! Devices of a class at one time, where their service times change with the load.

use super::by_load::ByLoad;
use super::class::Class;
use super::delay::Delay;
use super::several::ClassAt;

/// Devices of a class at one time: P(T ≤ t) at any load.
///
/// A queue with service times k times as long at rate λ equals one at kλ with the time divided by k. So where works change with the
/// load, the queue is taken at several divided times, each at the utilisation of the load, and
/// interpolated. Cost: that of [`ClassAt`] for each.
#[derive(Clone, Debug)]
pub(super) struct Levels {
    by_load: Option<ByLoad>,
    /// Of devices `factor` times as slow as the class.
    factor: f64,
    each: Vec<(f64, ClassAt)>,
}

impl Levels {
    /// At `t` seconds, behind a delay, for devices `factor` times as slow as the class; `other` as in
    /// [`ClassAt::after`].
    pub fn new(
        class: &Class,
        t: f64,
        delay: &Delay,
        factor: f64,
        other: Option<&Levels>,
    ) -> Levels {
        let levels = class.by_load.map_or_else(|| vec![1.0], ByLoad::levels);
        let of = |(k, level): (usize, f64)| {
            let own = factor * level;
            let beside = other.and_then(|o| o.each.get(k).or(o.each.last())).map(|l| &l.1);
            (level, ClassAt::after(class, t / own, &delay.over(own), own, beside))
        };
        let each = levels.into_iter().enumerate().map(of).collect();
        Levels { by_load: class.by_load, factor, each }
    }

    /// P(response time ≤ t) at an arrival rate per second of a device; 0 at or past saturation.
    pub fn response_cdf(&self, rate: f64) -> f64 {
        let level = self.by_load.map_or(1.0, |by_load| by_load.factor_at(rate));
        let alike = rate * self.factor * level;
        let cdf = |k: usize| self.each.get(k).map_or(0.0, |(_, at)| at.response_cdf(alike));
        // Factors ascend or descend from 1.
        let away = level.ln().abs();
        let next = self.each.partition_point(|(f, _)| f.ln().abs() <= away);
        let (Some(before), Some(after)) =
            (next.checked_sub(1).and_then(|k| self.each.get(k)), self.each.get(next))
        else {
            return cdf(next.saturating_sub(1));
        };
        let part = (level - before.0) / (after.0 - before.0);
        (1.0 - part) * cdf(next - 1) + part * cdf(next)
    }
}
