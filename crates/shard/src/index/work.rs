//! How much work queries were, in steps along Ψ: what layers would save of it, or save.
//!
//! Each query counts for itself and adds its counts once, at its end, so that the cost is some atomic
//! additions a query.

use std::sync::atomic::{AtomicU64, Ordering};

/// Work of queries. A step is one look-up in Ψ; steps of all kinds take about the same time.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Work {
    /// Rows whose offsets were located.
    pub located: u64,
    /// Steps from these rows to rows of known offsets: what layers of the suffix array save.
    pub located_steps: u64,
    /// Ranges of the text that were read by walks from known positions.
    pub ranges: u64,
    /// Steps from these positions to the bytes that were asked for: what layers of the inverse save.
    pub skipped_steps: u64,
    /// Bytes that were read by a step each: these and skipped steps a text layer saves.
    pub walked_bytes: u64,
    /// Ranges that a text layer answered.
    pub decoded_ranges: u64,
    /// Their bytes.
    pub decoded_bytes: u64,
}

impl Work {
    /// All steps.
    pub fn steps(&self) -> u64 {
        self.located_steps + self.skipped_steps + self.walked_bytes
    }
}

/// The sums of all queries of an index.
#[derive(Debug, Default)]
pub(super) struct Sums([AtomicU64; 7]);

impl Sums {
    pub(super) fn add(&self, work: &Work) {
        let Work { located, located_steps, ranges, skipped_steps, .. } = *work;
        let Work { walked_bytes, decoded_ranges, decoded_bytes, .. } = *work;
        let counts = [
            located,
            located_steps,
            ranges,
            skipped_steps,
            walked_bytes,
            decoded_ranges,
            decoded_bytes,
        ];
        for (sum, count) in self.0.iter().zip(counts) {
            if count > 0 {
                sum.fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn read(&self) -> Work {
        let mut sums = [0; 7];
        sums.iter_mut().zip(&self.0).for_each(|(to, sum)| *to = sum.load(Ordering::Relaxed));
        let [
            located,
            located_steps,
            ranges,
            skipped_steps,
            walked_bytes,
            decoded_ranges,
            decoded_bytes,
        ] = sums;
        Work {
            located,
            located_steps,
            ranges,
            skipped_steps,
            walked_bytes,
            decoded_ranges,
            decoded_bytes,
        }
    }
}
