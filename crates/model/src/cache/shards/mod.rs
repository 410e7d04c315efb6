//! SHARDS: the miss-ratio curve of a stream of keys from a sample of its keys.

mod curve;
mod recency;

pub use curve::{Curve, CurvePoint, Share};

use std::collections::BTreeMap;

use crate::error::{Error, check, not_negative, positive};

use curve::Tally;
use recency::{PARTS, Recency};

/// The smallest number of sampled keys of a curve with an interval.
const KEYS_MIN: f64 = 16.0;

/// A sampler of reuse distances. Push every request, then compute the curve, at any time.
///
/// A least-recently-used memory of M bytes finds an object if the object and all objects requested
/// since its last request have at most M bytes together: the *reuse distance* (Mattson and others,
/// "Evaluation techniques for storage hierarchies", IBM Systems Journal 9, 1970). One pass gives
/// the hit ratio of every size of memory. SHARDS does this only for keys whose hash is below a
/// threshold, a part R of all keys, and divides distances by R: a sampled request represents 1/R
/// requests. Source: C. Waldspurger, N. Park, A. Garthwaite, I. Ahmad, "Efficient MRC construction
/// with SHARDS", FAST 2015: fixed rate; fixed size, where the threshold falls so that at most s_max
/// keys are held; and the correction SHARDS-adj.
///
/// Here a request of size b adds b, so distances are in bytes (with b = 1, in objects). The
/// object's own bytes are not a sample, so they are not divided by R. SHARDS-adj counts the
/// difference between the known number of requests and the number that the sample represents as
/// hits of the smallest memory. Equivalently, and computed here: the hit ratio is 1 − (misses that
/// the sample represents) / (requests).
///
/// The interval (95 %) is a jackknife over 8 parts of the sampled keys. It covers the choice of the
/// sampled keys, in counts and in distances, but not the difference between one hour of the stream
/// and another.
///
/// Do not use it for first-in-first-out or random eviction (they have no reuse distance), with
/// objects larger than a hundredth of the memory in question, or if fewer than some hundred sampled
/// keys would fit in that memory.
///
/// Cost: some nanoseconds for a request that is not sampled, a microsecond for one that is. Memory:
/// some 250 bytes for each sampled key, at most s_max of them if the size is fixed, and 1 MB for
/// histograms.
///
/// ```
/// use model::cache::Shards;
/// let mut shards = Shards::fixed_size(1_000)?;
/// for i in 0..200_000u64 {
///     // Two of three requests for one of 500 hot keys, the others for one of 20,000 in turn.
///     let key = if i % 3 == 0 { 1_000 + i / 3 % 20_000 } else { i * 7919 % 500 };
///     shards.push(key, 4_096);
/// }
/// let curve = shards.curve()?;
/// let at = curve.point(8e6)?; // 8 MB hold the hot keys with room to spare, and not the others
/// assert!((at.hit_ratio.value - 0.66).abs() < 0.03, "{at:?}");
/// assert!(at.hit_ratio.low <= at.hit_ratio.value && at.hit_ratio.value <= at.hit_ratio.high);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Shards {
    /// Keys with a hash of at most this are sampled.
    threshold: u64,
    keys_max: usize,
    /// The part of the keys that is pushed.
    pushed: f64,
    /// The sampled keys by hash; the largest hash is removed first.
    keys: BTreeMap<u64, Key>,
    recency: Recency,
    requests: f64,
    bytes: f64,
    all: Tally,
    without: [Tally; PARTS],
}

/// A sampled key.
#[derive(Clone, Copy, Debug)]
struct Key {
    /// Its place in the order of last requests.
    at: usize,
    bytes: f64,
}

impl Shards {
    /// Samples every key: the exact curve, without an interval. Memory grows with the number of
    /// keys.
    pub fn exact() -> Self {
        Self::with(u64::MAX, usize::MAX)
    }

    /// Samples a share `rate` (0 < rate ≤ 1) of the keys, whatever their number; memory grows with
    /// it.
    pub fn fixed_rate(rate: f64) -> Result<Self, Error> {
        check("the sampling rate", rate, 1e-9..=1.0, "1e-9 to 1")?;
        // At rate 1 the conversion saturates at the largest hash.
        Ok(Self::with((rate * 2f64.powi(64)) as u64, usize::MAX))
    }

    /// Samples at most `keys_max` keys (64 or more): at first all keys, then a smaller part of the
    /// hash space whenever there are more. With 8,192 keys the curve of two million requests of a
    /// Twitter cluster is within 2 points from 1 % of its objects' bytes on, and within 0.3 from 10
    /// % on.
    pub fn fixed_size(keys_max: usize) -> Result<Self, Error> {
        check("the number of sampled keys", keys_max as f64, 64.0..=1e9, "64 to 1e9")?;
        Ok(Self::with(u64::MAX, keys_max))
    }

    /// For a stream of which only a part `rate` of the *keys* is pushed, such as
    /// [`ground::window::Sample`]s (1/64 of the keys). Pass the number of requests to
    /// [`Shards::curve_of`].
    pub fn sampled_before(mut self, rate: f64) -> Result<Self, Error> {
        self.pushed = check("the part of the keys that is pushed", rate, 1e-9..=1.0, "1e-9 to 1")?;
        Ok(self)
    }

    fn with(threshold: u64, keys_max: usize) -> Self {
        Shards {
            threshold,
            keys_max,
            pushed: 1.0,
            keys: BTreeMap::new(),
            recency: Recency::default(),
            requests: 0.0,
            bytes: 0.0,
            all: Tally::default(),
            without: std::array::from_fn(|_| Tally::default()),
        }
    }

    /// The current sampling rate over all keys.
    pub fn rate(&self) -> f64 {
        self.pushed * ((self.threshold as f64 + 1.0) / 2f64.powi(64)).min(1.0)
    }

    /// Number of keys held.
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// Adds a request for a key, given as a number: an id, or a hash of 64 bits.
    pub fn push(&mut self, key: u64, bytes: u64) {
        let bytes = bytes.min(1 << 53) as f64;
        self.requests += 1.0;
        self.bytes += bytes;
        // Mixed again, so that ids need not be random, and so that a stream sampled by its hashes
        // (see `sampled_before`) is uniform again.
        let hash = mixed(key);
        if hash <= self.threshold {
            self.sampled(hash, bytes);
        }
    }

    fn sampled(&mut self, hash: u64, bytes: f64) {
        let part = (hash % PARTS as u64) as usize;
        let rate = self.rate();
        // Removed from both, so that a renumbering below does not include it.
        let known = self.keys.remove(&hash);
        let newer = known.map(|key| {
            let newer = self.recency.newer_than(key.at);
            self.recency.remove(key.at, part, key.bytes);
            newer
        });
        // Sampled distances divided by the sampled part: for all keys, and for all but one part.
        let sum: f64 = newer.map_or(0.0, |n| n.iter().sum());
        let distance = |others: f64, rate: f64| newer.map(|_| others / rate + bytes);
        self.all.add(distance(sum, rate), bytes, 1.0 / rate);
        if rate < 1.0 || self.keys_max < usize::MAX {
            let rate = rate * (PARTS - 1) as f64 / PARTS as f64;
            for (i, tally) in self.without.iter_mut().enumerate().filter(|(i, _)| *i != part) {
                let others = sum - newer.map_or(0.0, |n| n[i]);
                tally.add(distance(others.max(0.0), rate), bytes, 1.0 / rate);
            }
        }
        if self.recency.is_full() {
            self.renumber();
        }
        let at = self.recency.push(part, bytes);
        self.keys.insert(hash, Key { at, bytes });
        while self.keys.len() > self.keys_max
            && let Some((hash, key)) = self.keys.pop_last()
        {
            self.recency.remove(key.at, (hash % PARTS as u64) as usize, key.bytes);
            self.threshold = hash.saturating_sub(1);
        }
    }

    /// Renumbers the keys in the order of their last requests when the numbers are used up: once
    /// for as many requests as there are keys.
    fn renumber(&mut self) {
        let mut order: Vec<(usize, u64)> =
            self.keys.iter().map(|(hash, key)| (key.at, *hash)).collect();
        order.sort_unstable();
        self.recency = Recency::for_keys(order.len());
        for (_, hash) in order {
            if let Some(key) = self.keys.get_mut(&hash) {
                key.at = self.recency.push((hash % PARTS as u64) as usize, key.bytes);
            }
        }
    }

    /// The curve of all requests pushed so far. For a stream that was [`Shards::sampled_before`],
    /// the number of requests is unknown and SHARDS-adj is left out. If a few keys have many of the
    /// requests, the choice of sampled keys then moves the curve by more than its interval (10
    /// points for one key in 16 of a Zipf law); use [`Shards::curve_of`] if the number is known. An
    /// error if nothing was pushed, or fewer than 16 of more keys were sampled. Cost: some 0.1 ms.
    pub fn curve(&self) -> Result<Curve, Error> {
        positive("the number of requests", self.requests)?;
        let totals = (self.pushed == 1.0).then_some([self.requests, self.bytes]);
        self.curve_with(totals)
    }

    /// Lets what was counted so far weigh `kept` (0 to 1) of what it weighed, so that a curve of a stream that
    /// changes is one of its last requests. Which keys are sampled, and their order, stay as they are.
    /// Cost: some 0.05 ms.
    pub fn fade(&mut self, kept: f64) {
        let kept = if kept.is_finite() { kept.clamp(0.0, 1.0) } else { 0.0 };
        self.requests *= kept;
        self.bytes *= kept;
        self.all.fade(kept);
        self.without.iter_mut().for_each(|tally| tally.fade(kept));
    }

    /// The hit ratios of memories of these bytes, as those of [`Shards::curve`] without intervals; 0 if nothing
    /// was pushed. Cost: some 0.01 ms.
    pub fn hit_ratios(&self, memory_bytes: &[u64]) -> Vec<f64> {
        let misses = self.all.misses();
        let totals = (self.pushed == 1.0).then_some(self.requests);
        let total = totals.or(misses.first().map(|m| m[0])).unwrap_or(0.0);
        let ratio = |bytes: &u64| curve::hits(&misses, total, *bytes, 0).clamp(0.0, 1.0);
        memory_bytes.iter().map(ratio).collect()
    }

    /// The curve, given the total number of requests and of requested bytes.
    pub fn curve_of(&self, requests: f64, bytes: f64) -> Result<Curve, Error> {
        positive("the number of requests", requests)?;
        not_negative("the bytes asked for", bytes)?;
        self.curve_with(Some([requests, bytes]))
    }

    fn curve_with(&self, totals: Option<[f64; 2]>) -> Result<Curve, Error> {
        if self.rate() < 1.0 {
            check(
                "the number of sampled keys",
                self.keys.len() as f64,
                KEYS_MIN..=f64::MAX,
                "16 or more: raise the sampling rate, or push more",
            )?;
        }
        Ok(Curve::new(&self.all, &self.without, totals, self.rate(), self.keys.len()))
    }
}

/// A pseudo-random bijection of 64 bits: the finaliser of SplitMix64 (Steele, Lea, Flood 2014).
fn mixed(key: u64) -> u64 {
    let key = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let key = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let key = (key ^ (key >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ (key >> 31)
}

#[cfg(test)]
mod tests;
