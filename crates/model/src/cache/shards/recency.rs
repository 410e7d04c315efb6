//! The order of the last requests for each key, with the bytes in front of each key: a Fenwick
//! tree.

/// Number of parts of the sampled keys, for the interval.
pub(super) const PARTS: usize = 8;

/// Bytes of the keys at their places, the newest last, for each part of the keys. A Fenwick tree
/// (binary indexed tree): prefix sums in log n steps, each of one cache line.
#[derive(Clone, Debug, Default)]
pub(super) struct Recency {
    /// `sums[i]` is the sum over the places (i − 2^z, i], counted from 1, with z the number of
    /// trailing zeros of i.
    sums: Vec<[f64; PARTS]>,
    total: [f64; PARTS],
    used: usize,
}

impl Recency {
    /// Creates a tree for a number of keys, with room for as many requests (and some more).
    pub fn for_keys(keys: usize) -> Self {
        let places = 2 * keys.max(512);
        Recency { sums: vec![[0.0; PARTS]; places + 1], total: [0.0; PARTS], used: 0 }
    }

    /// Whether no place is left for [`Recency::push`].
    pub fn is_full(&self) -> bool {
        self.used + 1 >= self.sums.len()
    }

    /// Puts a key at the newest place, and returns that place.
    pub fn push(&mut self, part: usize, bytes: f64) -> usize {
        self.used += 1;
        self.add(self.used, part, bytes);
        self.used
    }

    /// Removes a key from its place.
    pub fn remove(&mut self, at: usize, part: usize, bytes: f64) {
        self.add(at, part, -bytes);
    }

    fn add(&mut self, at: usize, part: usize, bytes: f64) {
        self.total[part] += bytes;
        let mut i = at;
        while let Some(sums) = self.sums.get_mut(i) {
            sums[part] += bytes;
            i += i & i.wrapping_neg();
        }
    }

    /// Bytes of the keys newer than the one at a place.
    pub fn newer_than(&self, at: usize) -> [f64; PARTS] {
        let mut newer = self.total;
        let mut i = at;
        while i > 0 {
            for (newer, sum) in newer.iter_mut().zip(&self.sums[i]) {
                *newer -= sum;
            }
            i &= i - 1;
        }
        newer.map(|bytes| bytes.max(0.0))
    }
}
