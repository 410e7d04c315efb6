//! How often each key is read, in bounded memory: a count-min sketch whose counts decay.
//!
//! Four rows of counters; a read raises the smallest of the key's four counters and no other
//! (*conservative update*), so an estimate is never below the key's own count. Counts decay
//! exponentially: a read of time *t* counts exp(−(now − t)/T). Instead of lowering all counters
//! again and again, reads are added with the growing weight exp((t − t₀)/T) (*forward decay*), and
//! all counters are scaled once in 40 T.
//!
//! A counter may hold counts of several T at once, side by side: a longer T tells more keys apart, a
//! shorter one follows changes sooner ([`super::Worth`] says which is right at the moment).
//!
//! The sketch is of our own because libraries age by halving all counters after a number of reads,
//! which gives no rate per second. Its tests compare it with exact counts.

use std::hash::{Hash, Hasher};

use ground::window::{Nanos, SECOND};

const ROWS: usize = 4;

/// Scale all counters when the exponent of a weight exceeds this: far below the largest `f32`.
const EXPONENT_MAX: f64 = 40.0;

/// The decayed counts of reads by key, for `N` mean lives. Memory: 16 bytes × N × the width.
pub struct Popularity<const N: usize = 1> {
    counters: Vec<[f32; N]>,
    /// Counters in a row, a power of two.
    width: usize,
    mean_lives: [f64; N],
    start: Nanos,
    /// When the weights were 1.
    base: Nanos,
}

impl<const N: usize> Popularity<N> {
    /// No reads so far. `width` is the number of counters in each of four rows, rounded up to a
    /// power of two: four times the number of keys that matter keeps the error small. `mean_lives`
    /// are the T.
    pub fn with_lives(width: usize, mean_lives: [Nanos; N], now: Nanos) -> Popularity<N> {
        let width = width.clamp(16, 1 << 28).next_power_of_two();
        let mean_lives = mean_lives.map(|mean_life| mean_life.max(1) as f64);
        Popularity {
            counters: vec![[0.0; N]; ROWS * width],
            width,
            mean_lives,
            start: now,
            base: now,
        }
    }

    /// Counts so many reads of this moment; returns the key's decayed counts, each at least as many.
    /// Cost: a hash and four counters; a sweep over all counters once in 40 of the shortest mean life.
    pub fn raise(&mut self, key: &[u8], reads: u32, now: Nanos) -> [f64; N] {
        let weights = self.weights(now);
        let places = self.places(key);
        let mut raised = self.smallest(places);
        for (raised, weight) in raised.iter_mut().zip(weights) {
            *raised += weight as f32 * reads as f32;
        }
        for place in places {
            for (counter, raised) in self.counters[place].iter_mut().zip(raised) {
                *counter = counter.max(raised);
            }
        }
        let count = |n: usize| (f64::from(raised[n]) / weights[n]).max(f64::from(reads));
        std::array::from_fn(count)
    }

    /// The key's decayed counts: never below the true ones, but for rounding.
    pub fn counts(&mut self, key: &[u8], now: Nanos) -> [f64; N] {
        let weights = self.weights(now);
        let smallest = self.smallest(self.places(key));
        std::array::from_fn(|n| f64::from(smallest[n]) / weights[n])
    }

    /// Reads per second that a decayed count of the `n`-th mean life stands for.
    pub fn rate_of(&self, n: usize, count: f64, now: Nanos) -> f64 {
        // In the first T, the counts have not yet had the time to become complete.
        let age = now.saturating_sub(self.start) as f64 / self.mean_lives[n];
        let complete = (1.0 - (-age).exp()).max(0.01);
        count / (complete * self.mean_lives[n] / SECOND as f64)
    }

    fn smallest(&self, places: [usize; ROWS]) -> [f32; N] {
        let mut smallest = [f32::INFINITY; N];
        for place in places {
            for (smallest, counter) in smallest.iter_mut().zip(self.counters[place]) {
                *smallest = smallest.min(counter);
            }
        }
        smallest
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

    /// The weights of a read now; scales the counters if one has grown too large.
    fn weights(&mut self, now: Nanos) -> [f64; N] {
        let past = now.saturating_sub(self.base) as f64;
        if self.mean_lives.iter().all(|mean_life| past / mean_life <= EXPONENT_MAX) {
            return self.mean_lives.map(|mean_life| (past / mean_life).exp());
        }
        let scales = self.mean_lives.map(|mean_life| (-past / mean_life).exp() as f32);
        for counter in &mut self.counters {
            counter.iter_mut().zip(scales).for_each(|(counter, scale)| *counter *= scale);
        }
        self.base = now;
        [1.0; N]
    }
}

impl Popularity<1> {
    /// [`Popularity::with_lives`] of one mean life.
    pub fn new(width: usize, mean_life: Nanos, now: Nanos) -> Popularity {
        Popularity::with_lives(width, [mean_life], now)
    }

    /// Counts a read; returns the key's decayed count, at least 1.
    pub fn add(&mut self, key: &[u8], now: Nanos) -> f64 {
        self.add_many(key, 1, now)
    }

    /// Counts so many reads of this moment; returns the key's decayed count, at least as many.
    pub fn add_many(&mut self, key: &[u8], reads: u32, now: Nanos) -> f64 {
        self.raise(key, reads, now)[0]
    }

    /// The key's decayed count: never below the true one, but for rounding.
    pub fn count(&mut self, key: &[u8], now: Nanos) -> f64 {
        self.counts(key, now)[0]
    }

    /// Reads per second that a decayed count stands for.
    pub fn rate(&self, count: f64, now: Nanos) -> f64 {
        self.rate_of(0, count, now)
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

    /// Several mean lives are several sketches, through any number of sweeps.
    #[test]
    fn counts_of_several_mean_lives_are_those_of_each_alone() {
        let lives = [SECOND, 7 * SECOND, 90 * SECOND];
        let mut together = Popularity::with_lives(256, lives, 0);
        let mut alone = lives.map(|life| Popularity::new(256, life, 0));
        for read in 0..3_000u64 {
            let (key, now) = ((read * read % 101).to_le_bytes(), read * SECOND / 9);
            let counts = together.raise(&key, 1, now);
            for (n, alone) in alone.iter_mut().enumerate() {
                let count = alone.add(&key, now);
                assert!((counts[n] / count - 1.0).abs() < 1e-4, "{n}: {counts:?}, {count}");
                let (a, b) = (together.rate_of(n, count, now), alone.rate(count, now));
                assert!((a - b).abs() < 1e-9 * a.max(1.0), "{a}, {b}");
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
