//! What threads count for `stats`. Each has its own counts, so that none waits for another's cache line; `stats` adds up.

use std::sync::atomic::{AtomicU64, Ordering};

use ground::window::Outcome;
use memcached::Verb;

use crate::request::Request;

/// What is counted, with the names that memcached has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// Requests that the protocol does not have, or that were malformed.
    Refused,
    /// Requests whose reply is an error of a server or of the proxy. They count as nothing else.
    Failed,
    /// Bytes of replies.
    BytesWritten,
    /// Keys of gets.
    Get,
    GetHit,
    GetMiss,
    /// Requests that bring a value, whether it was stored or not.
    Set,
    TouchHit,
    TouchMiss,
    DeleteHit,
    DeleteMiss,
    IncrHit,
    IncrMiss,
    DecrHit,
    DecrMiss,
    Flush,
}

/// How many kinds there are.
const COUNTS: usize = Count::Flush as usize + 1;

/// The counts of a thread, which alone increases them.
#[derive(Default)]
pub(crate) struct Counters([AtomicU64; COUNTS]);

/// The counts of all threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals([u64; COUNTS]);

impl Totals {
    pub(crate) fn get(&self, count: Count) -> u64 {
        self.0.get(count as usize).copied().unwrap_or(0)
    }

    pub(crate) fn add(&mut self, counters: &Counters) {
        for (sum, count) in self.0.iter_mut().zip(&counters.0) {
            *sum = sum.wrapping_add(count.load(Ordering::Relaxed));
        }
    }

    pub(crate) fn since(mut self, before: &Totals) -> Totals {
        for (sum, before) in self.0.iter_mut().zip(before.0) {
            *sum = sum.saturating_sub(before);
        }
        self
    }
}

impl Counters {
    pub(crate) fn add(&self, count: Count, more: u64) {
        let count = &self.0[count as usize];
        // One writer: a locked addition is not needed.
        count.store(count.load(Ordering::Relaxed) + more, Ordering::Relaxed);
    }

    /// Counts a request that has its reply, of so many bytes.
    pub(crate) fn finish(&self, request: &Request, bytes: usize) {
        self.add(Count::BytesWritten, bytes as u64);
        if request.outcome == Outcome::Error {
            return self.add(Count::Failed, 1);
        }
        let by_outcome = |hit, miss| if request.outcome == Outcome::Miss { miss } else { hit };
        let count = match request.verb {
            Verb::Get | Verb::Gets | Verb::Gat | Verb::Gats | Verb::MetaGet => {
                // By key, as memcached counts: hits and misses add up to them.
                let keys = request.keys.len() as u64;
                let hits = u64::from(request.hits).min(keys);
                self.add(Count::Get, keys);
                self.add(Count::GetHit, hits);
                return self.add(Count::GetMiss, keys - hits);
            }
            Verb::Touch => by_outcome(Count::TouchHit, Count::TouchMiss),
            Verb::Delete | Verb::MetaDelete => by_outcome(Count::DeleteHit, Count::DeleteMiss),
            Verb::Decr => by_outcome(Count::DecrHit, Count::DecrMiss),
            Verb::MetaArithmetic if counts_down(request) => {
                by_outcome(Count::DecrHit, Count::DecrMiss)
            }
            Verb::Incr | Verb::MetaArithmetic => by_outcome(Count::IncrHit, Count::IncrMiss),
            Verb::FlushAll => Count::Flush,
            verb if verb.has_value() => Count::Set,
            _ => return,
        };
        self.add(count, 1);
    }
}

/// Whether an `ma` has the mode that subtracts.
fn counts_down(request: &Request) -> bool {
    let mut words = request.command.split(|byte| matches!(byte, b' ' | b'\r' | b'\n'));
    words.any(|word| matches!(word, b"MD" | b"M-"))
}
