//! What a byte on a hot device is worth: the objects by their benefit per byte, from a sample of the
//! keys.
//!
//! Keys are sampled by their hashes: all keys at first, and a smaller part of the hash space
//! whenever there are more than fit. Each sampled key has its decayed count of reads and its bytes,
//! so sorting the sample by benefit gives the bytes and reads of the best placement of any budget:
//! from which benefit on objects fit ([`Placement::level`]), and what other budgets would serve
//! ([`Placement::share`]). A sample of 8,192 keys of which a tenth fit knows the bytes above a benefit
//! within some 3.5 % (1/√819).

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use model::window::Nanos;

const EXPONENT_MAX: f64 = 200.0;
/// A sampled key with fewer decayed reads is dropped when there is no room.
const COUNT_MIN: f64 = 0.1;

#[derive(Clone, Copy)]
struct Sampled {
    /// In units of the weight.
    count: f64,
    bytes: u64,
}

/// The time that a copy of an object saves at each read, seconds: a line over its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Saved {
    /// Of an object without bytes.
    pub fixed_s: f64,
    /// For each byte.
    pub per_byte_s: f64,
}

impl Saved {
    /// For an object of `bytes` bytes; not negative.
    pub fn of_s(&self, bytes: u64) -> f64 {
        (self.fixed_s + self.per_byte_s * bytes as f64).max(0.0)
    }
}

/// The sample. Counts decay exponentially, as those of [`super::Popularity`] do. Memory: some 50
/// bytes × `keys_max`.
pub struct Worth {
    /// By hash: in an order that does not depend on the process.
    sampled: BTreeMap<u64, Sampled>,
    keys_max: usize,
    threshold: u64,
    total: f64,
    mean_life: f64,
    base: Nanos,
}

impl Worth {
    /// Nothing read so far. `mean_life` should be that of the counts; at most `keys_max` keys are
    /// sampled, at least 64.
    pub fn new(keys_max: usize, mean_life: Nanos, now: Nanos) -> Worth {
        Worth {
            sampled: BTreeMap::new(),
            keys_max: keys_max.max(64),
            threshold: u64::MAX,
            total: 0.0,
            mean_life: mean_life.max(1) as f64,
            base: now,
        }
    }

    /// Adds a read of an object of `bytes` bytes.
    pub fn add(&mut self, key: &[u8], bytes: u64, now: Nanos) {
        let exponent = now.saturating_sub(self.base) as f64 / self.mean_life;
        let mut weight = exponent.exp();
        if exponent > EXPONENT_MAX {
            self.sampled.values_mut().for_each(|sampled| sampled.count /= weight);
            self.total /= weight;
            (self.base, weight) = (now, 1.0);
        }
        self.total += weight;
        let mut hasher = std::hash::DefaultHasher::new();
        key.hash(&mut hasher);
        // Another hash than that of the sketch's places.
        let hash = hasher.finish().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if hash > self.threshold {
            return;
        }
        let sampled = self.sampled.entry(hash).or_insert(Sampled { count: 0.0, bytes });
        (sampled.count, sampled.bytes) = (sampled.count + weight, bytes);
        if self.sampled.len() > self.keys_max {
            self.sampled.retain(|_, sampled| sampled.count >= COUNT_MIN * weight);
            while self.sampled.len() > self.keys_max {
                self.threshold /= 2;
                self.sampled.split_off(&(self.threshold + 1));
            }
        }
    }

    /// The best placement of every budget. Cost: sorts the sample, some 0.5 ms for 8,192 keys.
    pub fn placement(&self, saved: Saved, now: Nanos) -> Placement {
        Placement { sorted: self.sorted(saved, now), part: self.part(), total: self.total }
    }

    /// The sampled part of all keys.
    fn part(&self) -> f64 {
        (self.threshold as f64 + 1.0) / 2f64.powi(64)
    }

    /// The sample by benefit, the greatest first.
    fn sorted(&self, saved: Saved, now: Nanos) -> Vec<(f64, Sampled)> {
        let weight = (now.saturating_sub(self.base) as f64 / self.mean_life).min(500.0).exp();
        let benefit = |sampled: &Sampled| {
            let benefit = sampled.count / weight * saved.of_s(sampled.bytes);
            (benefit / sampled.bytes.max(1) as f64, *sampled)
        };
        let mut sorted: Vec<(f64, Sampled)> = self.sampled.values().map(benefit).collect();
        sorted.sort_by(|a, b| b.0.total_cmp(&a.0));
        sorted
    }
}

/// The sample by benefit: which objects the best placement of a budget holds.
pub struct Placement {
    sorted: Vec<(f64, Sampled)>,
    part: f64,
    total: f64,
}

impl Placement {
    /// The least benefit per byte (reads in the remembered time × seconds saved ÷ bytes) from which
    /// on all objects fit into `budget` bytes; 0 if all objects fit.
    pub fn level(&self, budget: f64) -> f64 {
        let mut bytes = 0.0;
        for (benefit, sampled) in &self.sorted {
            bytes += sampled.bytes as f64 / self.part;
            if bytes > budget {
                return *benefit;
            }
        }
        0.0
    }

    /// The share of reads that the best placement of `budget` bytes serves; `None` if nothing was
    /// read.
    pub fn share(&self, budget: f64) -> Option<f64> {
        let (mut bytes, mut below) = (0.0, 0.0);
        for (_, sampled) in &self.sorted {
            bytes += sampled.bytes as f64 / self.part;
            if bytes > budget {
                below += sampled.count / self.part;
            }
        }
        // What is below are many objects with few reads each, so a sample knows it well; it knows
        // little of the few that have most of the reads.
        (self.total > 0.0).then(|| (1.0 - below / self.total).clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use model::window::SECOND;
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    /// A catalogue of which all rates are known: the level and the share are those of sorting it,
    /// exactly if all keys are sampled and nearly if one in eight is.
    #[test]
    fn level_and_share_are_those_of_the_sorted_catalogue() {
        let mut random = SmallRng::seed_from_u64(7);
        let objects: Vec<(f64, u64)> = (1..=4000)
            .map(|rank| (1.0 / f64::from(rank), random.random_range(1000u64..20_000)))
            .collect();
        let mut sums: Vec<f64> = Vec::new();
        objects.iter().for_each(|o| sums.push(sums.last().unwrap_or(&0.0) + o.0));
        let total = sums[sums.len() - 1];
        let mean_life = 4000 * SECOND;
        let mut all = Worth::new(1 << 16, mean_life, 0);
        let mut some = Worth::new(600, mean_life, 0);
        let mut now = 0;
        for _ in 0..400_000 {
            let drawn = random.random_range(0.0..total);
            let object = sums.partition_point(|sum| *sum <= drawn);
            now += SECOND / 50;
            all.add(&object.to_le_bytes(), objects[object].1, now);
            some.add(&object.to_le_bytes(), objects[object].1, now);
        }
        assert!(some.sampled.len() <= 600 && some.part() < 0.2, "{}", some.part());
        let mut sorted = objects.clone();
        sorted.sort_by(|a, b| (b.0 / b.1 as f64).total_cmp(&(a.0 / a.1 as f64)));
        let saved = Saved { fixed_s: 0.01, per_byte_s: 0.0 };
        for part in [0.05, 0.1, 0.3] {
            let budget = part * objects.iter().map(|o| o.1).sum::<u64>() as f64;
            let (mut bytes, mut served, mut least) = (0.0, 0.0, 0.0);
            for (rate, size) in &sorted {
                if bytes + *size as f64 > budget {
                    break;
                }
                bytes += *size as f64;
                served += rate / total;
                least = 50.0 * 4000.0 * rate / total * 0.01 / *size as f64;
            }
            // Counts of the first two mean lives are not complete: 1 − e⁻².
            let least = least * (1.0 - (-2.0f64).exp());
            for (worth, points, factor) in [(&all, 0.01, 1.1), (&some, 0.03, 1.5)] {
                let placement = worth.placement(saved, now);
                let share = placement.share(budget).unwrap();
                assert!(
                    (share - served).abs() < points,
                    "{part}: {share} estimated, {served} sorted"
                );
                let level = placement.level(budget);
                let ratio = (level / least).max(least / level);
                assert!(ratio < factor, "{part}: {level} estimated, {least} sorted");
            }
        }
        assert_eq!(all.placement(saved, now).level(1e12), 0.0);
        assert_eq!(Worth::new(1, 1, 0).placement(saved, 5).share(1.0), None);
    }

    #[test]
    fn what_is_read_no_more_makes_room() {
        let mut worth = Worth::new(64, SECOND, 0);
        for key in 0..10_000u64 {
            worth.add(&key.to_le_bytes(), 100, key * SECOND);
        }
        // Three mean lives of one read a second.
        assert!(worth.sampled.len() <= 65 && worth.part() == 1.0, "{}", worth.part());
    }
}
