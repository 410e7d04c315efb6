//! What the memory tier would be worth with other bytes: the hit ratios of other sizes from sampled reuse
//! distances, and the service time that a hit saves.
//!
//! The distances are those of least-recently-used memory. S3-FIFO keeps other objects, but as many or more
//! of those that are read again, so that the slope of the curve says what further bytes are worth; it does
//! not say the tier's own hit ratio to the point.
//!
//! Cost: some 30 ns for a read, a microsecond for one of a sampled key, 3 MB of memory.

use std::hash::{Hash, Hasher};

use ground::window::{Nanos, SECOND};
use model::cache::Shards;

use super::device::Service;
use crate::tier::ENTRY_OVERHEAD_BYTES;

/// Reads before this time count 1/e of what newer ones count.
const MEAN_LIFE_S: f64 = 120.0;
/// Time between two weighings of what was counted.
const FADE: Nanos = 5 * SECOND;

/// The reads of a node that the memory tier answered or could have answered.
pub(super) struct Reuse {
    pub(super) shards: Shards,
    pub(super) reads: u64,
    pub(super) faded: Nanos,
    /// What the reads that memory did not answer took to retrieve.
    pub(super) retrievals: Service,
    pub(super) retrieved_s: f64,
}

impl Reuse {
    pub(super) fn add(&mut self, key: &[u8], bytes: u64, now: Nanos) {
        let passed = now.saturating_sub(self.faded);
        if passed >= FADE {
            self.shards.fade((-(passed as f64) / SECOND as f64 / MEAN_LIFE_S).exp());
            self.faded = now;
        }
        let mut hasher = std::hash::DefaultHasher::new();
        key.hash(&mut hasher);
        self.shards.push(hasher.finish(), bytes + key.len() as u64 + ENTRY_OVERHEAD_BYTES);
        self.reads += 1;
    }
}
