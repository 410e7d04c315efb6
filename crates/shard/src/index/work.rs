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

/// All counts: the one place that lists them for [`Sums`].
const COUNTS: [fn(&mut Work) -> &mut u64; 7] = [
    |work| &mut work.located,
    |work| &mut work.located_steps,
    |work| &mut work.ranges,
    |work| &mut work.skipped_steps,
    |work| &mut work.walked_bytes,
    |work| &mut work.decoded_ranges,
    |work| &mut work.decoded_bytes,
];

/// The sums of all queries of an index.
#[derive(Debug, Default)]
pub(super) struct Sums([AtomicU64; COUNTS.len()]);

impl Sums {
    pub(super) fn add(&self, work: &Work) {
        let mut work = *work;
        for (sum, of) in self.0.iter().zip(COUNTS) {
            let count = *of(&mut work);
            if count > 0 {
                sum.fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn read(&self) -> Work {
        let mut work = Work::default();
        for (sum, of) in self.0.iter().zip(COUNTS) {
            *of(&mut work) = sum.load(Ordering::Relaxed);
        }
        work
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_is_summed() {
        let work = Work {
            located: 1,
            located_steps: 20,
            ranges: 300,
            skipped_steps: 4_000,
            walked_bytes: 50_000,
            decoded_ranges: 600_000,
            decoded_bytes: 7_000_000,
        };
        let sums = Sums::default();
        sums.add(&work);
        assert_eq!(sums.read(), work);
        sums.add(&Work { located: 1, ..Work::default() });
        assert_eq!(sums.read(), Work { located: 2, ..work });
    }
}
