//! One disk: a queue with one server, and the counters that a kernel would keep of it.
//!
//! Reads are served one at a time in the order in which they came, so when a read comes its end is
//! known: the service starts when the read comes or when the one before it ends, whichever is later, to
//! the nanosecond. The code is given the time and never asks for it; whoever owns the disk waits for
//! the ends.

use std::collections::VecDeque;

use ground::window::{Histogram, Nanos};
use serde::Serialize;

use crate::law::Law;

/// What was counted of a disk since it was asked last.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counters {
    /// Reads that came.
    pub arrivals: u64,
    /// Reads that ended.
    pub reads: u64,
    /// Bytes of these.
    pub read_bytes: u64,
    /// Sum of the numbers of reads that each arrival met, waiting and in service.
    pub met: u64,
    /// Seconds in which something was being read.
    pub busy_s: f64,
    /// Integral of the number of reads waiting and in service, seconds.
    pub queue_s: f64,
    /// Times in the queue of the reads that ended.
    pub waiting: Histogram,
    /// Their times in service.
    pub service: Histogram,
    /// Their times in both.
    pub response: Histogram,
}

/// A read that has not ended.
struct Read {
    came: Nanos,
    starts: Nanos,
    ends: Nanos,
    bytes: u64,
}

/// A disk with one server, first in, first out.
pub struct Disk {
    law: Law,
    reads: VecDeque<Read>,
    /// When the last read that came ends.
    free_at: Nanos,
    counted_to: Nanos,
    counters: Counters,
}

impl Disk {
    /// An idle disk.
    pub fn new(law: Law, now: Nanos) -> Disk {
        Disk {
            law,
            reads: VecDeque::new(),
            free_at: now,
            counted_to: now,
            counters: Counters::default(),
        }
    }

    /// Reads waiting and in service.
    pub fn length(&mut self, now: Nanos) -> usize {
        self.advance(now);
        self.reads.len()
    }

    /// A read comes; returns when it will have ended.
    pub fn read(&mut self, now: Nanos, bytes: u64) -> Nanos {
        self.advance(now);
        self.counters.arrivals += 1;
        self.counters.met += self.reads.len() as u64;
        let starts = self.free_at.max(now);
        let ends = starts.saturating_add(self.law.draw());
        self.free_at = ends;
        self.reads.push_back(Read { came: now, starts, ends, bytes });
        ends
    }

    /// What was counted since this was asked last, up to `now`.
    pub fn take_counters(&mut self, now: Nanos) -> Counters {
        self.advance(now);
        std::mem::take(&mut self.counters)
    }

    fn advance(&mut self, now: Nanos) {
        while self.reads.front().is_some_and(|read| read.ends <= now) {
            let length = self.reads.len();
            let Some(read) = self.reads.pop_front() else { break };
            self.integrate(read.ends, length);
            let counters = &mut self.counters;
            counters.reads += 1;
            counters.read_bytes += read.bytes;
            counters.waiting.record(read.starts - read.came);
            counters.service.record(read.ends - read.starts);
            counters.response.record(read.ends - read.came);
        }
        self.integrate(now, self.reads.len());
    }

    fn integrate(&mut self, to: Nanos, length: usize) {
        let seconds = to.saturating_sub(self.counted_to) as f64 * 1e-9;
        self.counters.queue_s += length as f64 * seconds;
        self.counters.busy_s += if length > 0 { seconds } else { 0.0 };
        self.counted_to = self.counted_to.max(to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::law::Kind;

    const MS: Nanos = 1_000_000;

    fn disk(kind: Kind, mean_ms: f64, scv: f64) -> Disk {
        Disk::new(Law::new(kind, mean_ms, scv, 7).unwrap(), 0)
    }

    #[test]
    fn a_service_starts_when_the_one_before_it_ends() {
        let mut disk = disk(Kind::Gamma, 10.0, 0.5);
        let mut twin = Law::new(Kind::Gamma, 10.0, 0.5, 7).unwrap();
        let first = disk.read(5, 4096);
        assert_eq!(first, 5 + twin.draw());
        let second = disk.read(6, 4096);
        assert_eq!(second, first + twin.draw());
        assert_eq!(disk.length(first - 1), 2);
        assert_eq!(disk.length(first), 1);
        // Idle in between: the next starts when it comes.
        let third = disk.read(second + MS, 4096);
        assert_eq!(third, second + MS + twin.draw());
        let counters = disk.take_counters(third);
        assert_eq!((counters.arrivals, counters.reads, counters.met), (3, 3, 1));
        assert_eq!(counters.read_bytes, 3 * 4096);
        assert!((counters.busy_s - (third - 5 - MS) as f64 * 1e-9).abs() < 1e-12);
        assert!((counters.queue_s - counters.response.sum_s()).abs() < 1e-12);
        assert_eq!(disk.take_counters(third).reads, 0);
    }

    #[test]
    fn counters_are_the_same_however_often_they_are_asked() {
        let (mut often, mut once) =
            (disk(Kind::Exponential, 2.0, 1.0), disk(Kind::Exponential, 2.0, 1.0));
        let (mut busy_s, mut queue_s, mut reads) = (0.0, 0.0, 0);
        for step in 0..5_000 {
            let now = step * MS;
            if step % 3 == 0 {
                often.read(now, 1);
                once.read(now, 1);
            }
            let counters = often.take_counters(now);
            (busy_s, queue_s) = (busy_s + counters.busy_s, queue_s + counters.queue_s);
            reads += counters.reads;
        }
        let counters = once.take_counters(4_999 * MS);
        assert_eq!(counters.reads, reads);
        assert!((counters.busy_s - busy_s).abs() < 1e-6);
        assert!((counters.queue_s - queue_s).abs() < 1e-6);
    }

    /// M/M/1 and M/G/1: mean wait ρ/(1 − ρ) · s̄ · (1 + SCV)/2 (Pollaczek and Khinchine).
    #[test]
    fn poisson_arrivals_wait_as_theory_says() {
        for (kind, scv) in [(Kind::Exponential, 1.0), (Kind::Gamma, 0.2), (Kind::Lognormal, 2.0)] {
            let (mean_ms, utilisation) = (10.0, 0.7);
            let mut disk = disk(kind, mean_ms, scv);
            let gap_ms = mean_ms / utilisation;
            let mut gaps = Law::new(Kind::Exponential, gap_ms, 1.0, 99).unwrap();
            let mut now = 0;
            for _ in 0..2_000_000 {
                now += gaps.draw();
                disk.read(now, 1);
            }
            let counters = disk.take_counters(now);
            let expected = utilisation / (1.0 - utilisation) * mean_ms * (1.0 + scv) / 2.0;
            let waited = counters.waiting.mean_s() * 1e3;
            assert!((waited / expected - 1.0).abs() < 0.03, "{kind:?}: {waited} for {expected} ms");
            let busy = counters.busy_s / (now as f64 * 1e-9);
            assert!((busy - utilisation).abs() < 0.01, "{kind:?}: busy {busy}");
            let variation = counters.service.variance_s2() / counters.service.mean_s().powi(2);
            assert!((variation / scv - 1.0).abs() < 0.1, "{kind:?}: SCV {variation}");
        }
    }
}
