//! How much the mean work differs between steps: from run to run, and with the load.
//!
//! Real services do both: caches, frequencies and neighbours differ from run to run, and works follow
//! the load a little even under the right hypothesis (processors that sleep longer wake more slowly; what
//! is done for many at once costs each less). A prediction is of a run of its own, so it carries the first in
//! full. Where works follow the load beyond chance, the model has the work of the heaviest fitted load, because
//! those that are asked for are heavier still, and the interval reaches to where the line is at half as much
//! load again; not where a closed loop tells the work at full load ([`super::full`]). A drift of the machine in time looks the same unless loads are measured twice, before and
//! after the others.

use rand::rngs::StdRng;
use statrs::distribution::{ChiSquared, ContinuousCDF};

use crate::statistics::student_95;

use super::judge::Sums;
use super::moments::{moments, normal, rate, sum};
use super::search::Search;

/// A step's difference is beyond chance if a sum of squares as large has this probability.
const CHANCE: f64 = 0.1;
/// The fewest steps that show that works follow the load.
const STEPS: usize = 4;
/// How far past the heaviest fitted load the interval looks, as a part of it.
const FURTHER: f64 = 0.5;

/// How much the mean work of a run differs from what was fitted, as a share of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Between {
    /// Its standard deviation at the fitted loads.
    pub deviation: f64,
    /// That of the loads beyond them, where works follow the load.
    pub further: f64,
    /// What the mean of all is multiplied by: 1, or the work of the heaviest load over it.
    pub shift: f64,
    /// How much more work the heaviest load has than the lightest, as a share; 0 if chance.
    trend: f64,
}

/// A step: its load, requests/s, its mean work over that of all, and the variance of that by chance.
type StepWork = (f64, f64, f64);

impl Between {
    /// Between the steps of a search, of which the last `imagined` were not measured. Those have the works of the
    /// fit, so that what one of them differs by is the chance of one draw; they make the spread of the others
    /// better known.
    pub fn from_search(found: &Search, blur: f64, imagined: usize) -> Between {
        let all = moments(sum(found.best.blocks.iter().flatten()), blur).0;
        let steps = found.lines.iter().zip(&found.best.blocks);
        let steps = steps.take(found.lines.len().saturating_sub(imagined));
        let each = steps.filter_map(|(line, b)| of_step(b, all).map(|(m, v)| (rate(line), m, v)));
        let each: Vec<StepWork> = each.collect();
        if all > 0.0 { of_steps(&each, imagined) } else { of_steps(&[], 0) }
    }

    /// What a run's mean work is multiplied by.
    pub fn factor(self, random: &mut StdRng) -> f64 {
        self.shift * (self.deviation * normal(random)).exp()
    }

    /// That works follow the load.
    pub fn warning(self) -> Option<String> {
        (self.trend != 0.0).then(|| {
            format!(
                "The mean work follows the load: at the heaviest fitted load it is {:.1} % {} than at the lightest. \
                 The model has that of the heaviest.",
                100.0 * self.trend.abs(),
                if self.trend > 0.0 { "more" } else { "less" }
            )
        })
    }
}

/// `more`: steps that are not among them, but will be known.
fn of_steps(each: &[StepWork], more: usize) -> Between {
    let none = Between { deviation: 0.0, further: 0.0, shift: 1.0, trend: 0.0 };
    if each.len() < 2 {
        return none;
    }
    let degrees = (each.len() - 1) as f64;
    let weight: f64 = each.iter().map(|(_, _, v)| 1.0 / v).sum();
    let mean = each.iter().map(|(_, m, v)| m / v).sum::<f64>() / weight;
    let q: f64 = each.iter().map(|(_, m, v)| (m - mean).powi(2) / v).sum();
    let beyond = ChiSquared::new(degrees).is_ok_and(|law| law.sf(q) < CHANCE);
    if !beyond {
        return none;
    }
    if let Some(found) = trend(each) {
        return found;
    }
    let n = each.len() as f64;
    let plain = each.iter().map(|(_, m, _)| m).sum::<f64>() / n;
    let spread = each.iter().map(|(_, m, _)| (m - plain).powi(2)).sum::<f64>() / degrees;
    let chance = each.iter().map(|(_, _, v)| v).sum::<f64>() / n;
    let known = each.len() + more;
    let deviation = (spread - chance).max(0.0).sqrt() * (1.0 + 1.0 / known as f64).sqrt();
    Between { deviation: deviation * student_95(known - 1) / 1.96, ..none }
}

/// A straight line through the mean works by the load; `None` if its slope may be chance.
fn trend(each: &[StepWork]) -> Option<Between> {
    if each.len() < STEPS {
        return None;
    }
    let n = each.len() as f64;
    let (x, y) = each.iter().fold((0.0, 0.0), |s, e| (s.0 + e.0 / n, s.1 + e.1 / n));
    let square: f64 = each.iter().map(|e| (e.0 - x).powi(2)).sum();
    let slope = each.iter().map(|e| (e.0 - x) * (e.1 - y)).sum::<f64>() / square;
    let left: f64 = each.iter().map(|e| (e.1 - y - slope * (e.0 - x)).powi(2)).sum();
    let variance = left / (n - 2.0);
    let student = student_95(each.len() - 2);
    let beyond = slope.abs() > student * (variance / square).sqrt();
    if !beyond || !slope.is_finite() {
        return None;
    }
    let loads = || each.iter().map(|e| e.0);
    let (low, high) = (loads().fold(f64::INFINITY, f64::min), loads().fold(0.0, f64::max));
    let shift = y + slope * (high - x);
    if shift <= 0.1 {
        return None;
    }
    let own = (variance * (1.0 + 1.0 / n + (high - x).powi(2) / square)).sqrt() * student / 1.96;
    let further = slope.abs() * FURTHER * high / 1.96;
    let trend = shift / (y + slope * (low - x)).max(0.1) - 1.0;
    Some(Between { deviation: own / shift, further: further / shift, shift, trend })
}

/// Mean work of a step over that of all, and the variance of that by its blocks.
fn of_step(blocks: &[Sums], all: f64) -> Option<(f64, f64)> {
    let (n, work, _) = sum(blocks.iter());
    let used: Vec<&Sums> = blocks.iter().filter(|b| b.0 > 0.0).collect();
    if used.len() < 4 || n <= 0.0 {
        return None;
    }
    let mean = work / n;
    let off = used.iter().map(|b| (b.1 - mean * b.0).powi(2)).sum::<f64>();
    let variance = off / (n * n) * used.len() as f64 / (used.len() - 1) as f64;
    Some((mean / all, (variance / (all * all)).max(1e-12)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn works_that_follow_the_load_are_those_of_the_heaviest_load() {
        let of = |works: [f64; 6]| {
            let loads = [30.0, 45.0, 60.0, 60.0, 45.0, 30.0];
            let each: Vec<StepWork> =
                loads.into_iter().zip(works).map(|(r, w)| (r, w, 1e-6)).collect();
            of_steps(&each, 0)
        };
        // Falling with the load by 10 %, the same before and after.
        let found = of([1.05, 1.001, 0.95, 0.951, 0.999, 1.049]);
        assert!((found.shift - 0.95).abs() < 0.002, "{found:?}");
        assert!((found.trend + 0.095).abs() < 0.003, "{found:?}");
        assert!(found.warning().unwrap().contains("9.4 % less"), "{found:?}");
        // As far again: 10 % less, within two deviations.
        assert!((0.05..0.06).contains(&found.deviation.hypot(found.further)), "{found:?}");
        // As much, but in time: no line by the load. The interval has it.
        let drift = of([1.05, 1.03, 1.01, 0.99, 0.97, 0.95]);
        assert_eq!((drift.shift, drift.trend), (1.0, 0.0));
        assert!(drift.deviation > 0.04 && drift.warning().is_none(), "{drift:?}");
        // Nothing beyond chance.
        let same = of([1.0005, 1.0, 1.0, 0.9995, 1.0, 1.0]);
        assert_eq!((same.deviation, same.shift), (0.0, 1.0));
        // A seventh step like these makes their spread better known, and no more.
        let loads = [30.0, 45.0, 60.0, 60.0, 45.0, 30.0];
        let works = [1.05, 1.03, 1.01, 0.99, 0.97, 0.95];
        let each: Vec<StepWork> = loads.into_iter().zip(works).map(|(r, w)| (r, w, 1e-6)).collect();
        let more = of_steps(&each, 1);
        let ratio = more.deviation / drift.deviation;
        assert!((0.9..0.99).contains(&ratio) && more.shift == 1.0, "{more:?} {drift:?}");
    }
}
