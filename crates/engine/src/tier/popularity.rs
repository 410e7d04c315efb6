//! How often each key is read, in bounded memory: a count-min sketch whose counts decay.
//!
//! Four rows of counters; a read raises the smallest of the key's four counters and no other
//! (*conservative update*), so an estimate is never below the key's own count. Counts decay
//! exponentially: a read of time *t* counts exp(−(now − t)/T). Instead of lowering all counters
//! again and again, reads are added with the growing weight exp((t − t₀)/T) (*forward decay*), and
//! all counters are scaled once in 40 T.
//!
//! The sketch is of our own because libraries age by halving all counters after a number of reads,
//! which gives no rate per second. Its tests compare it with exact counts.

use std::hash::{Hash, Hasher};

use model::window::{Nanos, SECOND};

const ROWS: usize = 4;

/// Scale all counters when the exponent of the weight exceeds this: far below the largest `f32`.
const EXPONENT_MAX: f64 = 40.0;

/// The decayed counts of reads by key. Memory: 16 bytes × the width.
pub struct Popularity {
    counters: Vec<f32>,
    /// Counters in a row, a power of two.
    width: usize,
    mean_life: f64,
    start: Nanos,
    /// When the weight was 1.
    base: Nanos,
}

impl Popularity {
    /// No reads so far. `width` is the number of counters in each of four rows, rounded up to a
    /// power of two: four times the number of keys that matter keeps the error small. `mean_life`
    /// is T.
    pub fn new(width: usize, mean_life: Nanos, now: Nanos) -> Popularity {
        let width = width.clamp(16, 1 << 28).next_power_of_two();
        let mean_life = mean_life.max(1) as f64;
        Popularity { counters: vec![0.0; ROWS * width], width, mean_life, start: now, base: now }
    }

    /// Counts a read; returns the key's decayed count, at least 1. Cost: a hash and four counters;
    /// a sweep over all counters once in 40 T.
    pub fn add(&mut self, key: &[u8], now: Nanos) -> f64 {
        self.add_many(key, 1, now)
    }

    /// Counts so many reads of this moment; returns the key's decayed count, at least as many.
    pub fn add_many(&mut self, key: &[u8], reads: u32, now: Nanos) -> f64 {
        let weight = self.weight(now);
        let places = self.places(key);
        let raised = self.smallest(places) + weight as f32 * reads as f32;
        for place in places {
            let counter = &mut self.counters[place];
            *counter = counter.max(raised);
        }
        (f64::from(raised) / weight).max(f64::from(reads))
    }

    /// The key's decayed count: never below the true one, but for rounding.
    pub fn count(&mut self, key: &[u8], now: Nanos) -> f64 {
        let weight = self.weight(now);
        f64::from(self.smallest(self.places(key))) / weight
    }

    /// Reads per second that a decayed count stands for.
    pub fn rate(&self, count: f64, now: Nanos) -> f64 {
        // In the first T, the counts have not yet had the time to become complete.
        let age = now.saturating_sub(self.start) as f64 / self.mean_life;
        let complete = (1.0 - (-age).exp()).max(0.01);
        count / (complete * self.mean_life / SECOND as f64)
    }

    fn smallest(&self, places: [usize; ROWS]) -> f32 {
        places.iter().map(|&place| self.counters[place]).fold(f32::INFINITY, f32::min)
    }

    fn places(&self, key: &[u8]) -> [usize; ROWS] {
        // Fixed keys, so that a replay takes the same steps.
        let mut hasher = std::hash::DefaultHasher::new();
        key.hash(&mut hasher);
        let hash = hasher.finish();
        let (first, step) = (hash as usize, (hash >> 32) as usize | 1);
        std::array::from_fn(|row| {
            row * self.width + (first.wrapping_add(row.wrapping_mul(step)) & (self.width - 1))
        })
    }

    /// The weight of a read now; scales the counters if it has grown too large.
    fn weight(&mut self, now: Nanos) -> f64 {
        let exponent = now.saturating_sub(self.base) as f64 / self.mean_life;
        if exponent <= EXPONENT_MAX {
            return exponent.exp();
        }
        let scale = (-exponent).exp() as f32;
        self.counters.iter_mut().for_each(|counter| *counter *= scale);
        self.base = now;
        1.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    /// The naive twin: every read with its time.
    #[derive(Default)]
    struct Naive(HashMap<u8, Vec<Nanos>>);

    impl Naive {
        fn count(&self, key: u8, now: Nanos, mean_life: f64) -> f64 {
            let times = self.0.get(&key).into_iter().flatten();
            times.map(|&t| (-((now - t) as f64) / mean_life).exp()).sum()
        }
    }

    proptest! {
        #[test]
        fn is_never_below_and_seldom_above_the_exact_count(
            reads in prop::collection::vec((0u8..60, 0u64..3 * SECOND), 1..400),
        ) {
            let mean_life = 10 * SECOND;
            let mut sketch = Popularity::new(512, mean_life, 0);
            let (mut naive, mut now) = (Naive::default(), 0);
            for (key, after) in reads {
                now += after;
                sketch.add(&[key], now);
                naive.0.entry(key).or_default().push(now);
            }
            for key in 0..60 {
                let exact = naive.count(key, now, mean_life as f64);
                let count = sketch.count(&[key], now);
                prop_assert!(count > exact * 0.9999 - 1e-6, "{count} below {exact}");
                // 60 keys in 512 counters: two of them share all four places almost never.
                prop_assert!(count < exact * 1.0001 + 1e-6, "{count} above {exact}");
            }
        }
    }

    #[test]
    fn many_keys_in_a_narrow_sketch_are_overestimated_by_little() {
        let mut sketch = Popularity::new(1024, 1000 * SECOND, 0);
        for read in 0..20_000u64 {
            sketch.add(&(read % 1000).to_le_bytes(), read * SECOND / 1000);
        }
        let now = 20 * SECOND;
        let over = |key: u64| sketch.count(&key.to_le_bytes(), now) / 20.0;
        let mean = (0..1000).map(over).sum::<f64>() / 1000.0;
        assert!((0.97..1.2).contains(&mean), "{mean}");
    }

    #[test]
    fn a_rate_is_the_rate_early_and_late() {
        let mut sketch = Popularity::new(64, 10 * SECOND, 0);
        let mut count = 0.0;
        for read in 1..=2000u64 {
            let now = read * SECOND / 5;
            count = sketch.add(b"k", now);
            if read == 25 || read == 2000 {
                let rate = sketch.rate(count, now);
                assert!((rate - 5.0).abs() < 0.3, "{rate} at read {read}");
            }
        }
        assert!(count > 49.0);
        // Long after, nothing is left, and the sweep has not made nonsense of the counters.
        assert!(sketch.count(b"k", 900_000 * SECOND) < 1e-9);
        assert!((sketch.add(b"k", 900_001 * SECOND) - 1.0).abs() < 1e-6);
    }
}
