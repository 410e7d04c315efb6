//! The times of a window while it is open, in dense arrays: [`super::Recorder`] counts into these
//! and makes the sparse [`super::Times`] at the window's end.

use super::histogram::{SUB, bucket_of};
use super::recorder::Finished;
use super::{Histogram, Nanos, Operation, Outcome, Times};

/// A histogram that is being filled: counts by octave, of which only those that occur have memory
/// (1 KiB each, kept for the next window). Recording is one addition in an array.
#[derive(Clone, Debug, Default)]
struct Dense {
    octaves: Vec<Option<Box<[u64; SUB as usize]>>>,
    count: u64,
    sum_ns: u64,
    sum_of_squares_s2: f64,
    max_ns: Nanos,
}

impl Dense {
    fn record(&mut self, value: Nanos) {
        let bucket = bucket_of(value) as usize;
        let octave = bucket / SUB as usize;
        if octave >= self.octaves.len() {
            self.octaves.resize_with(octave + 1, || None);
        }
        let counts = self.octaves[octave].get_or_insert_with(|| Box::new([0; SUB as usize]));
        counts[bucket % SUB as usize] += 1;
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(value);
        let seconds = value as f64 * 1e-9;
        self.sum_of_squares_s2 += seconds * seconds;
        self.max_ns = self.max_ns.max(value);
    }

    /// What was recorded; nothing is left.
    fn take(&mut self) -> Histogram {
        let counts = self.octaves.iter_mut().enumerate().flat_map(|(octave, counts)| {
            let first = (octave * SUB as usize) as u32;
            let counts =
                counts.as_mut().map(|counts| std::mem::replace(&mut **counts, [0; SUB as usize]));
            let counts = counts.into_iter().flatten();
            counts.enumerate().map(move |(at, count)| (first + at as u32, count))
        });
        let counts = counts.filter(|(_, count)| *count > 0).collect();
        let (sum_ns, max_ns) = (std::mem::take(&mut self.sum_ns), std::mem::take(&mut self.max_ns));
        let squares = std::mem::take(&mut self.sum_of_squares_s2);
        Histogram::from_buckets(counts, std::mem::take(&mut self.count), sum_ns, squares, max_ns)
    }
}

/// The times of one operation and outcome.
#[derive(Clone, Debug)]
struct DenseTimes {
    operation: Operation,
    outcome: Outcome,
    waiting: Dense,
    service: Dense,
    response: Dense,
    within: Vec<u64>,
}

/// The times of the open window.
#[derive(Clone, Debug, Default)]
pub(super) struct Open {
    all: Vec<DenseTimes>,
}

impl Open {
    pub(super) fn record(&mut self, finished: &Finished, objectives_ms: &[f64]) {
        let Finished { operation, outcome, waiting, service, response, bytes: _ } = *finished;
        let is = |times: &DenseTimes| times.operation == operation && times.outcome == outcome;
        let at = self.all.iter().position(is).unwrap_or_else(|| {
            self.all.push(DenseTimes {
                operation,
                outcome,
                waiting: Dense::default(),
                service: Dense::default(),
                response: Dense::default(),
                within: vec![0; objectives_ms.len()],
            });
            self.all.len() - 1
        });
        let times = &mut self.all[at];
        times.waiting.record(waiting);
        times.service.record(service);
        times.response.record(response);
        let response_ms = response as f64 * 1e-6;
        for (count, &objective) in times.within.iter_mut().zip(objectives_ms) {
            *count += u64::from(response_ms <= objective);
        }
    }

    /// What was recorded; nothing is left.
    pub(super) fn take(&mut self) -> Vec<Times> {
        let used = self.all.iter_mut().filter(|times| times.response.count > 0);
        let take = |times: &mut DenseTimes| {
            let objectives = times.within.len();
            Times {
                operation: times.operation,
                outcome: times.outcome,
                waiting: times.waiting.take(),
                service: times.service.take(),
                response: times.response.take(),
                within: std::mem::replace(&mut times.within, vec![0; objectives]),
            }
        };
        used.map(take).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_same_as_a_sparse_histogram(
            windows in prop::collection::vec(prop::collection::vec(0_u32..64, 0..50), 1..4),
        ) {
            let mut dense = Dense::default();
            for shifts in windows {
                let mut sparse = Histogram::default();
                for (at, shift) in shifts.into_iter().enumerate() {
                    let value = (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> shift;
                    dense.record(value);
                    sparse.record(value);
                }
                prop_assert_eq!(dense.take(), sparse);
            }
        }
    }

    #[test]
    fn operations_and_outcomes_are_apart_and_windows_empty_them() {
        let mut open = Open::default();
        let finished = |operation, response| Finished {
            operation,
            outcome: Outcome::Memory,
            waiting: 1,
            service: 2,
            response,
            bytes: 0,
        };
        open.record(&finished(Operation::Get, 30_000_000), &[20.0, 50.0]);
        open.record(&finished(Operation::Put, 10_000_000), &[20.0, 50.0]);
        let times = open.take();
        let of: Vec<_> =
            times.iter().map(|t| (t.operation, t.response.count(), &*t.within)).collect();
        assert_eq!(of, [(Operation::Get, 1, &[0, 1][..]), (Operation::Put, 1, &[1, 1])]);
        open.record(&finished(Operation::Put, 10_000_000), &[20.0, 50.0]);
        let times = open.take();
        assert_eq!(
            (times.len(), times[0].operation, times[0].waiting.count()),
            (1, Operation::Put, 1)
        );
        assert!(open.take().is_empty());
    }
}
