//! The times of a window while it is open: [`super::Recorder`] counts into these and makes the sparse [`super::Times`] at the
//! window's end.
//!
//! Times are collected in a list, and counted into dense arrays whenever it is full. Of a cluster that is simulated, each of
//! thousands of queues has a few requests a second: counted one at a time, each would miss the processor's caches some ten times,
//! and a window whose times all fit in the list needs no arrays, which take 150 MB of a thousand nodes.

use super::finished::Finished;
use super::histogram::{Histogram, SUB, bucket_of};
use super::operation::{Operation, Outcome};
use super::time::Nanos;
use super::times::Times;

/// A histogram that is being filled: counts by octave, of which only those that occur have memory
/// (1 KiB each, kept for the next window). Recording is one addition in an array.
#[derive(Clone, Debug, Default)]
struct Dense {
    octaves: Vec<Octave>,
    count: u64,
    sum_ns: u64,
    sum_of_squares_s2: f64,
    max_ns: Nanos,
}

/// The counts of an octave.
#[derive(Clone, Debug, Default)]
struct Octave {
    counts: Option<Box<[u64; SUB as usize]>>,
    /// A bit for each count above 0: most windows of most queues have a few, and the end of a window would look at thousands.
    used: u128,
}

const _: () = assert!(SUB as u32 == u128::BITS);

impl Octave {
    /// The places and counts that are above 0; nothing is left.
    fn take(&mut self) -> impl Iterator<Item = (u32, u64)> + '_ {
        let mut used = std::mem::take(&mut self.used);
        let mut counts = self.counts.as_deref_mut();
        std::iter::from_fn(move || {
            if used == 0 {
                return None;
            }
            let at = used.trailing_zeros();
            used &= used - 1;
            Some((at, std::mem::take(&mut counts.as_mut()?[at as usize])))
        })
    }
}

impl Dense {
    fn record(&mut self, value: Nanos) {
        let bucket = bucket_of(value) as usize;
        let (octave, at) = (bucket / SUB as usize, bucket % SUB as usize);
        if octave >= self.octaves.len() {
            self.octaves.resize_with(octave + 1, Octave::default);
        }
        let octave = &mut self.octaves[octave];
        octave.counts.get_or_insert_with(|| Box::new([0; SUB as usize]))[at] += 1;
        octave.used |= 1 << at;
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(value);
        let seconds = value as f64 * 1e-9;
        self.sum_of_squares_s2 += seconds * seconds;
        self.max_ns = self.max_ns.max(value);
    }

    /// What was recorded; nothing is left.
    fn take(&mut self) -> Histogram {
        let counts = (0..).zip(&mut self.octaves).flat_map(|(octave, counts)| {
            counts.take().map(move |(at, count)| (octave * SUB as u32 + at, count))
        });
        let counts = counts.collect();
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
    /// The times of the last requests, fewer than [`FEW`], that are not yet counted.
    few: Vec<RequestTimes>,
    waiting: Dense,
    service: Dense,
    response: Dense,
    within: Vec<u64>,
}

/// Requests whose times are counted together.
const FEW: usize = 64;

/// The times of a request.
#[derive(Clone, Copy, Debug)]
struct RequestTimes {
    waiting: Nanos,
    service: Nanos,
    response: Nanos,
}

impl DenseTimes {
    fn new(operation: Operation, outcome: Outcome, objectives: usize) -> DenseTimes {
        DenseTimes {
            operation,
            outcome,
            few: Vec::new(),
            waiting: Dense::default(),
            service: Dense::default(),
            response: Dense::default(),
            within: vec![0; objectives],
        }
    }

    fn record(&mut self, times: RequestTimes, objectives_ms: &[f64]) {
        self.few.push(times);
        if self.few.len() >= FEW {
            self.count(objectives_ms);
        }
    }

    /// Counts the list, in the order in which requests came: sums of floating-point numbers depend on it.
    fn count(&mut self, objectives_ms: &[f64]) {
        for times in &self.few {
            self.waiting.record(times.waiting);
            self.service.record(times.service);
            self.response.record(times.response);
            times.count_within(objectives_ms, &mut self.within);
        }
        self.few.clear();
    }

    fn is_empty(&self) -> bool {
        self.response.count == 0 && self.few.is_empty()
    }

    /// What was recorded; nothing is left.
    fn take(&mut self, objectives_ms: &[f64]) -> Times {
        let mut times = Times::new(self.operation, self.outcome, 0);
        if self.response.count > 0 {
            self.count(objectives_ms);
            times.waiting = self.waiting.take();
            times.service = self.service.take();
            times.response = self.response.take();
        }
        for few in self.few.drain(..) {
            times.waiting.record(few.waiting);
            times.service.record(few.service);
            times.response.record(few.response);
            few.count_within(objectives_ms, &mut self.within);
        }
        times.within = std::mem::replace(&mut self.within, vec![0; objectives_ms.len()]);
        times
    }
}

impl RequestTimes {
    fn count_within(&self, objectives_ms: &[f64], within: &mut [u64]) {
        let response_ms = self.response as f64 * 1e-6;
        for (count, &objective) in within.iter_mut().zip(objectives_ms) {
            *count += u64::from(response_ms <= objective);
        }
    }
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
            self.all.push(DenseTimes::new(operation, outcome, objectives_ms.len()));
            self.all.len() - 1
        });
        self.all[at].record(RequestTimes { waiting, service, response }, objectives_ms);
    }

    /// What was recorded; nothing is left.
    pub(super) fn take(&mut self, objectives_ms: &[f64]) -> Vec<Times> {
        let used = self.all.iter_mut().filter(|times| !times.is_empty());
        used.map(|times| times.take(objectives_ms)).collect()
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
    fn few_and_many_are_counted_alike() {
        for requests in [1, FEW - 1, FEW, FEW + 1, 3 * FEW, 3 * FEW + 1] {
            let (mut times, mut sparse) = (
                DenseTimes::new(Operation::Get, Outcome::Memory, 1),
                [0; 3].map(|_| Histogram::default()),
            );
            for _ in 0..2 {
                let mut within = 0;
                for at in 0..requests as u64 {
                    let all = [at, at * 7919, at * at * 104_729];
                    let [waiting, service, response] = all;
                    times.record(RequestTimes { waiting, service, response }, &[100.0]);
                    within += u64::from(response <= 100_000_000);
                    sparse.iter_mut().zip(all).for_each(|(sparse, time)| sparse.record(time));
                }
                let taken = times.take(&[100.0]);
                assert_eq!(taken.within, [within]);
                assert_eq!([taken.waiting, taken.service, taken.response], sparse);
                sparse.fill(Histogram::default());
                assert!(times.is_empty());
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
        let times = open.take(&[20.0, 50.0]);
        let of: Vec<_> =
            times.iter().map(|t| (t.operation, t.response.count(), &*t.within)).collect();
        assert_eq!(of, [(Operation::Get, 1, &[0, 1][..]), (Operation::Put, 1, &[1, 1])]);
        open.record(&finished(Operation::Put, 10_000_000), &[20.0, 50.0]);
        let times = open.take(&[20.0, 50.0]);
        assert_eq!(
            (times.len(), times[0].operation, times[0].waiting.count()),
            (1, Operation::Put, 1)
        );
        assert!(open.take(&[20.0, 50.0]).is_empty());
    }
}
