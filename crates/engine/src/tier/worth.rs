//! What a byte on a hot device is worth: the objects by their benefit per byte, from a sample of the
//! keys.
//!
//! Keys are sampled by their hashes: all keys at first, and a smaller part of the hash space
//! whenever there are more than fit. Each sampled key has its decayed counts of reads and its bytes,
//! so sorting the sample by benefit gives the bytes and reads of the best placement of any budget:
//! from which benefit on objects fit ([`Placement::level`]), and what other budgets would serve
//! ([`Placement::share`]). A sample of 8,192 keys of which a tenth fit knows the bytes above a benefit
//! within some 3.5 % (1/√819).
//!
//! *How long a read should count* depends on the load: at a steady one, long counts tell objects apart
//! that short ones take for equal; after a change they are wrong for long. So each key has counts of
//! several mean lives, [`SCALES`] times the one that is asked for. Each read of a sampled key tests
//! them: would a placement by the counts of this mean life have held the object, just before this read
//! counted? The mean life that was right most often lately is used ([`Worth::scale`]); of those that
//! are nearly as good, the longest, since it moves least.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use ground::window::Nanos;

const EXPONENT_MAX: f64 = 200.0;
/// A sampled key with fewer decayed reads is dropped when there is no room.
const COUNT_MIN: f64 = 0.1;
/// The mean lives of counts, as multiples of the one that is asked for.
pub const SCALES: [f64; 5] = [1.0 / 16.0, 1.0 / 4.0, 1.0, 4.0, 16.0];
const N: usize = SCALES.len();
/// The mean life that is used until something is known.
const FIRST: usize = 2;
/// Reads of sampled keys over which the mean lives are compared: an older one counts less than 1/e.
const COMPARED: f64 = 2048.0;
/// Mean lives whose shares differ by less are taken for equally good.
const EQUAL: f64 = 0.005;

/// The mean lives of counts for one that is asked for.
pub fn mean_lives(mean_life: Nanos) -> [Nanos; N] {
    SCALES.map(|scale| ((mean_life as f64 * scale) as Nanos).max(1))
}

#[derive(Clone, Copy)]
struct Sampled {
    /// In units of the weights.
    counts: [f64; N],
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

/// The sample. Counts decay exponentially, as those of [`super::Popularity`] do. Memory: some 100
/// bytes × `keys_max`.
pub struct Worth {
    /// By hash: in an order that does not depend on the process.
    sampled: BTreeMap<u64, Sampled>,
    keys_max: usize,
    threshold: u64,
    /// All reads, sampled or not.
    totals: [f64; N],
    mean_lives: [f64; N],
    base: Nanos,
    /// As of the last look.
    saved: Saved,
    levels: [f64; N],
    /// Recent reads of sampled keys that a placement by each mean life would have held.
    held: [f64; N],
    compared: f64,
    scale: usize,
}

impl Worth {
    /// Nothing read so far. `mean_life` is multiplied with [`SCALES`]; at most `keys_max` keys are
    /// sampled, at least 64.
    pub fn new(keys_max: usize, mean_life: Nanos, now: Nanos) -> Worth {
        Worth {
            sampled: BTreeMap::new(),
            keys_max: keys_max.max(64),
            threshold: u64::MAX,
            totals: [0.0; N],
            mean_lives: mean_lives(mean_life).map(|life| life as f64),
            base: now,
            saved: Saved::default(),
            levels: [0.0; N],
            held: [0.0; N],
            compared: 0.0,
            scale: FIRST,
        }
    }

    /// Adds a read of an object of `bytes` bytes that is on a device.
    pub fn add(&mut self, key: &[u8], bytes: u64, now: Nanos) {
        self.count(key, bytes, now, true);
    }

    /// Adds the read that brought an object to the devices: no placement could have held it.
    pub fn add_first(&mut self, key: &[u8], bytes: u64, now: Nanos) {
        self.count(key, bytes, now, false);
    }

    fn count(&mut self, key: &[u8], bytes: u64, now: Nanos, compare: bool) {
        let weights = self.weights(now);
        self.totals.iter_mut().zip(weights).for_each(|(total, weight)| *total += weight);
        let mut hasher = std::hash::DefaultHasher::new();
        key.hash(&mut hasher);
        // Another hash than that of the sketch's places.
        let hash = hasher.finish().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if hash > self.threshold {
            return;
        }
        let sampled = self.sampled.entry(hash).or_insert(Sampled { counts: [0.0; N], bytes });
        sampled.bytes = bytes;
        if compare {
            let worth = self.saved.of_s(bytes) / bytes.max(1) as f64;
            self.compared += 1.0 - self.compared / COMPARED;
            for (n, weight) in weights.iter().enumerate() {
                let count = sampled.counts[n] / weight;
                let holds = count > 0.0 && count * worth >= self.levels[n];
                self.held[n] += f64::from(u8::from(holds)) - self.held[n] / COMPARED;
            }
        }
        sampled.counts.iter_mut().zip(weights).for_each(|(count, weight)| *count += weight);
        if self.sampled.len() > self.keys_max {
            let least = COUNT_MIN * weights[N - 1];
            self.sampled.retain(|_, sampled| sampled.counts[N - 1] >= least);
            while self.sampled.len() > self.keys_max {
                self.threshold /= 2;
                self.sampled.split_off(&(self.threshold + 1));
            }
        }
    }

    /// The weights of a read now; scales the counts if one has grown too large.
    fn weights(&mut self, now: Nanos) -> [f64; N] {
        let past = now.saturating_sub(self.base) as f64;
        // The first is the shortest.
        if past / self.mean_lives[0] > EXPONENT_MAX {
            let scales = self.mean_lives.map(|mean_life| (-past / mean_life).exp());
            let scale = |counts: &mut [f64; N]| {
                counts.iter_mut().zip(scales).for_each(|(count, scale)| *count *= scale);
            };
            self.sampled.values_mut().for_each(|sampled| scale(&mut sampled.counts));
            scale(&mut self.totals);
            self.base = now;
            return [1.0; N];
        }
        self.mean_lives.map(|mean_life| (past / mean_life).exp())
    }

    /// Computes the levels of `budget` bytes anew, and which mean life is used. Cost: sorts the sample
    /// for each, some 2 ms for 8,192 keys.
    pub fn look(&mut self, saved: Saved, budget: f64, now: Nanos) {
        self.saved = saved;
        for n in 0..N {
            self.levels[n] = self.placement_by(n, saved, now).level(budget);
        }
        let most = self.held.iter().copied().fold(0.0, f64::max);
        let nearly = |n: &usize| self.held[*n] >= most - EQUAL * self.compared;
        if self.compared > 0.0 {
            self.scale = (0..N).rfind(nearly).unwrap_or(FIRST);
        }
    }

    /// Which of [`SCALES`] is used.
    pub fn scale(&self) -> usize {
        self.scale
    }

    /// The level of the last look, by the counts of the mean life that is used.
    pub fn level(&self) -> f64 {
        self.levels[self.scale]
    }

    /// The share of recent reads of objects on devices that a placement by these counts, within the last
    /// look's budget, would have held: of reads that it did not know. `None` before the first.
    pub fn held_share(&self) -> Option<f64> {
        (self.compared > 0.0).then(|| self.held[self.scale] / self.compared)
    }

    /// The best placement of every budget, by the counts of the mean life that is used. Cost: sorts the
    /// sample, some 0.5 ms for 8,192 keys.
    pub fn placement(&self, saved: Saved, now: Nanos) -> Placement {
        self.placement_by(self.scale, saved, now)
    }

    fn placement_by(&self, n: usize, saved: Saved, now: Nanos) -> Placement {
        let past = now.saturating_sub(self.base) as f64;
        let weight = (past / self.mean_lives[n]).min(500.0).exp();
        let benefit = |sampled: &Sampled| {
            let benefit = sampled.counts[n] / weight * saved.of_s(sampled.bytes);
            (benefit / sampled.bytes.max(1) as f64, sampled.bytes, sampled.counts[n])
        };
        let mut sorted: Vec<(f64, u64, f64)> = self.sampled.values().map(benefit).collect();
        sorted.sort_by(|a, b| b.0.total_cmp(&a.0));
        Placement { sorted, part: self.part(), total: self.totals[n] }
    }

    /// The sampled part of all keys.
    fn part(&self) -> f64 {
        (self.threshold as f64 + 1.0) / 2f64.powi(64)
    }
}

/// The sample by benefit: which objects the best placement of a budget holds.
pub struct Placement {
    /// Benefit per byte, bytes, and count.
    sorted: Vec<(f64, u64, f64)>,
    part: f64,
    total: f64,
}

impl Placement {
    /// The least benefit per byte (reads in the remembered time × seconds saved ÷ bytes) from which
    /// on all objects fit into `budget` bytes; 0 if all objects fit.
    pub fn level(&self, budget: f64) -> f64 {
        let mut bytes = 0.0;
        for (benefit, of_key, _) in &self.sorted {
            bytes += *of_key as f64 / self.part;
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
        for (_, of_key, count) in &self.sorted {
            bytes += *of_key as f64 / self.part;
            if bytes > budget {
                below += count / self.part;
            }
        }
        // What is below are many objects with few reads each, so a sample knows it well; it knows
        // little of the few that have most of the reads.
        (self.total > 0.0).then(|| (1.0 - below / self.total).clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use ground::window::SECOND;
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

    /// Reads of a catalogue of 400 objects in turn but for 40 that have half of the reads; which 40 changes
    /// every `change` reads. A tenth fits.
    fn scale_after(change: u64, reads: u64) -> (usize, f64) {
        let mut random = SmallRng::seed_from_u64(11);
        let mut worth = Worth::new(8192, 100 * SECOND, 0);
        let saved = Saved { fixed_s: 0.01, per_byte_s: 0.0 };
        for read in 0..reads {
            let now = read * SECOND / 100;
            let first = read / change * 40;
            let object = match random.random_range(0..2) {
                0 => first + random.random_range(0..40u64),
                _ => random.random_range(0..400),
            };
            worth.add(&(object % 400).to_le_bytes(), 1000, now);
            if read % 100 == 0 {
                worth.look(saved, 40_000.0, now);
            }
        }
        (worth.scale(), worth.held_share().unwrap())
    }

    #[test]
    fn a_steady_load_is_remembered_for_long_and_a_changing_one_is_not() {
        let steady = scale_after(u64::MAX, 60_000);
        assert_eq!(steady.0, N - 1, "{steady:?}");
        assert!((steady.1 - 0.55).abs() < 0.03, "{steady:?}");
        // A change each 20 s.
        let changing = scale_after(2_000, 60_000);
        assert!(changing.0 < FIRST && changing.1 > 0.3, "{changing:?}");
        assert_eq!(Worth::new(64, SECOND, 0).held_share(), None);
    }

    #[test]
    fn what_is_read_no_more_makes_room() {
        let mut worth = Worth::new(64, SECOND, 0);
        for key in 0..10_000u64 {
            worth.add(&key.to_le_bytes(), 100, key * SECOND);
        }
        // Of the longest mean life, 16 seconds, three of one read a second.
        assert!(worth.sampled.len() <= 65 && worth.part() == 1.0, "{}", worth.part());
    }
}
