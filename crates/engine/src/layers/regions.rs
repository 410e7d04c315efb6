//! Which regions of a shard's text are read most, for a text layer that does not hold all of it.
//!
//! The shard counts the bytes that queries extract of each region of its text (at most 4,096, so the counts are bounded). Here
//! they decay with `MEAN_LIFE_S`: longer than that of the mix of queries, because a text layer takes seconds to build and is
//! worth it only for what is read for longer. A layer is *proposed* for the hottest regions that together are read for
//! `COVERED` of all bytes; where these are most of the text, for all of it.
//!
//! **Cost.** A pass over the regions for each observation, and sorting them for a proposal: 0.2 ms for 4,096.
//! **Limits.** Reads that are spread evenly over the text have no hot regions, and a layer smaller than the text then helps in
//! proportion. A region is 4 KiB, or a 4,096th of the text: records that are read often but lie apart need one region each.

use ground::window::{Nanos, SECOND};

/// Reads before this time count 1/e.
const MEAN_LIFE_S: f64 = 120.0;
/// The share of the bytes read that a proposed layer would answer.
const COVERED: f64 = 0.9;
/// A proposal of more than this share of the regions is one of all.
const NEARLY_ALL: f64 = 0.75;
/// A layer that is held is replaced only where a new one would answer this share more of what is read.
const BETTER: f64 = 0.25;

/// Decayed counts of the bytes read of each region.
#[derive(Clone, Debug, Default)]
pub struct Heat {
    counts: Vec<f64>,
    at: Nanos,
}

/// Regions for a text layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// The regions, the hottest first; all of them, those that nobody reads last, for a layer of the whole text.
    pub order: Vec<u32>,
    /// The share of the regions that these are.
    pub part: f64,
    /// The share of the bytes read that they answer.
    pub covered: f64,
}

impl Heat {
    /// Adds the bytes that were read of each region by `now`. Counts of another number of regions are forgotten.
    pub fn add(&mut self, now: Nanos, bytes: &[u64]) {
        if self.counts.len() != bytes.len() {
            self.counts = vec![0.0; bytes.len()];
        }
        let passed_s = now.saturating_sub(self.at) as f64 / SECOND as f64;
        let kept = (-passed_s / MEAN_LIFE_S).exp();
        self.at = self.at.max(now);
        for (count, more) in self.counts.iter_mut().zip(bytes) {
            *count = *count * kept + *more as f64;
        }
    }

    fn sum(&self) -> f64 {
        self.counts.iter().sum()
    }

    /// The share of the bytes read that these regions answer; 0 if nothing was read.
    pub fn share(&self, regions: &[u32]) -> f64 {
        let of: f64 = regions.iter().filter_map(|region| self.counts.get(*region as usize)).sum();
        let all = self.sum();
        if all > 0.0 { of / all } else { 0.0 }
    }

    /// All regions, the hottest first; those that are read alike in the order of the text.
    pub fn order(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.counts.len() as u32).collect();
        let count = |region: &u32| self.counts.get(*region as usize).copied().unwrap_or(0.0);
        order.sort_by(|a, b| count(b).total_cmp(&count(a)));
        order
    }

    /// The regions that a text layer should hold; `None` if nothing was read.
    pub fn choose(&self) -> Option<Chosen> {
        let all = self.sum();
        if all <= 0.0 {
            return None;
        }
        let mut order = self.order();
        let (mut sum, mut most) = (0.0, order.len());
        for (place, region) in order.iter().enumerate() {
            sum += self.counts.get(*region as usize).copied().unwrap_or(0.0);
            if sum >= COVERED * all {
                most = place + 1;
                break;
            }
        }
        let part = most as f64 / order.len() as f64;
        if part > NEARLY_ALL {
            return Some(Chosen { order, part: 1.0, covered: 1.0 });
        }
        order.truncate(most);
        Some(Chosen { covered: sum / all, order, part })
    }

    /// The regions with which a layer that holds `held` should be replaced; `None` while it answers nearly as much as
    /// another would. Of those that are chosen a layer holds the first `fits`, as the text compresses: what hardly does
    /// would be replaced by as little again and again.
    pub fn replace(&self, held: &[u32], fits: impl Fn(&Chosen) -> usize) -> Option<Chosen> {
        let chosen = self.choose()?;
        let covered = match chosen.order.get(..fits(&chosen)) {
            Some(first) => self.share(first),
            None => chosen.covered,
        };
        (covered - self.share(held) > BETTER).then_some(Chosen { covered, ..chosen })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The naive twin keeps every read, and tries regions one after the other.
    struct Naive(Vec<(Nanos, Vec<u64>)>);

    impl Naive {
        fn count(&self, now: Nanos, region: usize) -> f64 {
            let of = |(at, bytes): &(Nanos, Vec<u64>)| {
                let passed_s = (now - at) as f64 / SECOND as f64;
                bytes[region] as f64 * (-passed_s / MEAN_LIFE_S).exp()
            };
            self.0.iter().map(of).sum()
        }

        /// The fewest regions that answer the share, by taking the hottest of the rest each time.
        fn fewest(&self, now: Nanos, regions: usize) -> usize {
            let mut rest: Vec<f64> = (0..regions).map(|region| self.count(now, region)).collect();
            let wanted = COVERED * rest.iter().sum::<f64>();
            let mut sum = 0.0;
            for taken in 1..=regions {
                let (place, most) =
                    rest.iter().copied().enumerate().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
                sum += most;
                rest[place] = -1.0;
                if sum >= wanted * (1.0 - 1e-9) {
                    return taken;
                }
            }
            regions
        }
    }

    proptest! {
        #[test]
        fn the_hottest_regions_are_those_of_all_reads(
            reads in prop::collection::vec((0u64..200, prop::collection::vec(0u64..1000, 12)), 1..20),
        ) {
            let (mut heat, mut naive, mut now) = (Heat::default(), Naive(Vec::new()), 0);
            for (passed, bytes) in reads {
                now += passed * SECOND;
                // Powers, so that some regions are much hotter than others.
                let bytes: Vec<u64> = bytes.iter().map(|b| b * b * b / 1_000_000).collect();
                heat.add(now, &bytes);
                naive.0.push((now, bytes));
            }
            let all: f64 = (0..12).map(|region| naive.count(now, region)).sum();
            prop_assert_eq!(heat.choose().is_none(), all <= 0.0);
            let Some(chosen) = heat.choose() else { return Ok(()) };
            let of: f64 = chosen.order.iter().map(|region| naive.count(now, *region as usize)).sum();
            prop_assert!((of / all - chosen.covered).abs() < 1e-6);
            prop_assert!(chosen.covered >= COVERED - 1e-6);
            let fewest = naive.fewest(now, 12);
            let all_of_them = fewest as f64 / 12.0 > NEARLY_ALL;
            prop_assert_eq!(chosen.order.len(), if all_of_them { 12 } else { fewest });
            prop_assert!((heat.share(&chosen.order) - chosen.covered).abs() < 1e-6);
        }
    }

    #[test]
    fn a_layer_is_replaced_once_other_regions_are_read() {
        let mut heat = Heat::default();
        assert_eq!((heat.choose(), heat.share(&[0])), (None, 0.0));
        let at =
            |region: usize| (0..100).map(|r| u64::from(r == region) * 1000).collect::<Vec<_>>();
        heat.add(SECOND, &at(70));
        let held = heat.choose().unwrap();
        let all = |chosen: &Chosen| chosen.order.len();
        assert_eq!((&held.order[..], held.part, held.covered), (&[70][..], 0.01, 1.0));
        assert_eq!(heat.replace(&held.order, all), None);
        // A tenth elsewhere is not worth another layer; a third of what counts is.
        heat.add(SECOND, &at(3).iter().map(|bytes| bytes / 10).collect::<Vec<_>>());
        assert_eq!(heat.replace(&held.order, all), None);
        heat.add(SECOND, &at(3));
        assert_eq!(heat.replace(&held.order, all).unwrap().order, [3, 70]);
        // After many mean lives the old region counts for nothing.
        heat.add(2000 * SECOND, &at(3));
        assert_eq!(heat.choose().unwrap().order, [3]);
        heat.add(Nanos::MAX, &[1, 2]);
        assert_eq!(heat.order(), [1, 0], "another shard's counts replace it");
    }

    #[test]
    fn a_layer_that_holds_what_fits_is_not_replaced_by_as_little() {
        let mut heat = Heat::default();
        heat.add(0, &[100; 100]);
        let held: Vec<u32> = (0..40).collect();
        assert_eq!(heat.replace(&held, |_| 45), None);
        let more = heat.replace(&held, |_| 70).unwrap();
        assert!((more.covered - 0.7).abs() < 1e-9 && more.order.len() == 100, "{more:?}");
        assert_eq!(heat.replace(&held, |chosen| chosen.order.len()).unwrap().covered, 1.0);
    }

    #[test]
    fn reads_spread_evenly_want_the_whole_text() {
        let mut heat = Heat::default();
        heat.add(0, &[100; 64]);
        let chosen = heat.choose().unwrap();
        assert_eq!((chosen.order.len(), chosen.part, chosen.covered), (64, 1.0, 1.0));
    }
}
