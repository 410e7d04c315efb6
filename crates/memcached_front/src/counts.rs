//! What connections count for `stats`. Each thread counts for itself, so that none waits for another's cache line; `stats` adds up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use ground::window::Nanos;
use memcached::{Request, Verb};
use record::clock;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    Connection,
    BytesRead,
    BytesWritten,
    Set,
    Flush,
    Meta,
    GetHit,
    GetMiss,
    TouchHit,
    TouchMiss,
    DeleteHit,
    DeleteMiss,
    IncrHit,
    IncrMiss,
    DecrHit,
    DecrMiss,
    CasHit,
    CasMiss,
    CasBad,
    Error,
}

/// How many kinds there are.
const COUNTS: usize = Count::Error as usize + 1;

/// The counts of a thread. On cache lines of its own, which the neighbours' counts do not share.
#[derive(Default)]
#[repr(align(128))]
struct Counts([AtomicU64; COUNTS]);

/// Sums over the threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals([u64; COUNTS]);

impl Totals {
    pub(super) fn get(&self, count: Count) -> u64 {
        self.0.get(count as usize).copied().unwrap_or(0)
    }
}

/// What all threads have counted.
pub(super) struct Stats {
    threads: Vec<Counts>,
    /// The sums at the last `stats reset`.
    baseline: Mutex<Totals>,
    pub(super) start: Nanos,
}

impl Stats {
    pub(super) fn new(threads: usize) -> Stats {
        let threads = (0..threads.max(1)).map(|_| Counts::default()).collect();
        Stats { threads, baseline: Mutex::default(), start: clock::now() }
    }

    pub(super) fn add(&self, thread: usize, count: Count, more: u64) {
        if let Some(counts) = self.threads.get(thread) {
            counts.0[count as usize].fetch_add(more, Ordering::Relaxed);
        }
    }

    fn sums(&self) -> Totals {
        let mut sums = Totals::default();
        for counts in &self.threads {
            for (sum, count) in sums.0.iter_mut().zip(&counts.0) {
                *sum += count.load(Ordering::Relaxed);
            }
        }
        sums
    }

    /// The sums since the last `stats reset`.
    pub(super) fn totals(&self) -> Totals {
        // The lock first: a reset between the sums and the lock would have a baseline above these sums.
        let baseline = self.lock();
        let mut sums = self.sums();
        for (sum, before) in sums.0.iter_mut().zip(baseline.0) {
            *sum -= before;
        }
        sums
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Totals> {
        self.baseline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn reset(&self) {
        // Under the lock, so that a sum never falls below the baseline.
        let mut baseline = self.lock();
        *baseline = self.sums();
    }
}

/// What a request for one key counts for, by its reply.
pub(super) fn counts_of(request: &Request<'_>, reply: &[u8]) -> impl Iterator<Item = Count> {
    let word = reply.split(|byte| matches!(byte, b' ' | b'\r')).next().unwrap_or_default();
    let is_error = word == b"ERROR" || word.ends_with(b"_ERROR");
    let is_done = matches!(word, b"STORED" | b"DELETED" | b"TOUCHED" | b"OK" | b"HD" | b"VA")
        || word.first().is_some_and(u8::is_ascii_digit);
    let is_other = matches!(word, b"EXISTS" | b"EX");
    let hit = |hit, miss| Some(if is_done { hit } else { miss });
    let is_compared =
        request.verb == Verb::Cas || (request.verb == Verb::MetaSet && request.has_any_flag(b"C"));
    let counted_down =
        request.verb == Verb::Decr || request.flags().any(|flag| matches!(flag, b"MD" | b"M-"));
    let outcome = match request.verb {
        _ if is_error => Some(Count::Error),
        Verb::Cas | Verb::MetaSet if is_compared && is_other => Some(Count::CasBad),
        Verb::Cas | Verb::MetaSet if is_compared => hit(Count::CasHit, Count::CasMiss),
        Verb::MetaGet => hit(Count::GetHit, Count::GetMiss),
        Verb::Delete | Verb::MetaDelete => hit(Count::DeleteHit, Count::DeleteMiss),
        Verb::Touch => hit(Count::TouchHit, Count::TouchMiss),
        Verb::Incr | Verb::Decr | Verb::MetaArithmetic if counted_down => {
            hit(Count::DecrHit, Count::DecrMiss)
        }
        Verb::Incr | Verb::MetaArithmetic => hit(Count::IncrHit, Count::IncrMiss),
        Verb::FlushAll => Some(Count::Flush),
        _ => None,
    };
    let is_touched = request.verb == Verb::MetaGet && request.has_any_flag(b"T") && !is_error;
    let touched = is_touched.then(|| hit(Count::TouchHit, Count::TouchMiss)).flatten();
    let set = (request.verb.has_value() && !is_error).then_some(Count::Set);
    [outcome, touched, set].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use memcached::{Limits, Parsed, parse};

    use super::{Count, Stats, counts_of};

    fn check(request: &[u8], reply: &[u8], expected: &[Count]) {
        let Parsed::Request(request) = parse(request, &Limits::default()) else { panic!() };
        assert_eq!(counts_of(&request, reply).collect::<Vec<_>>(), expected, "{request:?}");
    }

    /// In a build that checks, a sum below the baseline is a panic.
    #[test]
    fn totals_are_never_below_a_reset_that_happens_beside() {
        let stats = Stats::new(1);
        std::thread::scope(|scope| {
            scope.spawn(|| (0..20_000).for_each(|_| stats.add(0, Count::Set, 1)));
            scope.spawn(|| (0..2_000).for_each(|_| stats.reset()));
            scope.spawn(|| (0..2_000).for_each(|_| _ = stats.totals()));
        });
    }

    #[test]
    fn a_reply_says_what_is_counted() {
        check(b"set k 0 0 1\r\na\r\n", b"STORED\r\n", &[Count::Set]);
        check(b"set k 0 0 1\r\na\r\n", b"SERVER_ERROR full\r\n", &[Count::Error]);
        check(b"cas k 0 0 1 5\r\na\r\n", b"STORED\r\n", &[Count::CasHit, Count::Set]);
        check(b"cas k 0 0 1 5\r\na\r\n", b"EXISTS\r\n", &[Count::CasBad, Count::Set]);
        check(b"cas k 0 0 1 5\r\na\r\n", b"NOT_FOUND\r\n", &[Count::CasMiss, Count::Set]);
        check(b"ms k 1 C5\r\na\r\n", b"EX\r\n", &[Count::CasBad, Count::Set]);
        check(b"mg k v\r\n", b"EN\r\n", &[Count::GetMiss]);
        check(b"mg k v T5\r\n", b"VA 1\r\na\r\n", &[Count::GetHit, Count::TouchHit]);
        check(b"delete k\r\n", b"NOT_FOUND\r\n", &[Count::DeleteMiss]);
        check(b"incr k 1\r\n", b"42\r\n", &[Count::IncrHit]);
        check(b"decr k 1\r\n", b"NOT_FOUND\r\n", &[Count::DecrMiss]);
        check(b"ma k MD\r\n", b"HD\r\n", &[Count::DecrHit]);
        check(b"ma k\r\n", b"NF\r\n", &[Count::IncrMiss]);
        check(b"touch k 5\r\n", b"TOUCHED\r\n", &[Count::TouchHit]);
        check(b"flush_all\r\n", b"OK\r\n", &[Count::Flush]);
        check(b"mn\r\n", b"MN\r\n", &[]);
    }

    #[test]
    fn a_reset_begins_anew_and_loses_nothing_of_what_follows() {
        let stats = Stats::new(2);
        stats.add(0, Count::GetHit, 3);
        stats.add(1, Count::GetHit, 4);
        assert_eq!(stats.totals().get(Count::GetHit), 7);
        stats.reset();
        assert_eq!(stats.totals(), super::Totals::default());
        stats.add(1, Count::GetHit, 2);
        assert_eq!(stats.totals().get(Count::GetHit), 2);
        assert_eq!(stats.totals().get(Count::GetMiss), 0);
    }
}
