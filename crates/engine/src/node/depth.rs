//! How many reads a device is given at once: the fewest with which it serves nearly as many a second
//! as with any number.
//!
//! Only time in which more reads wait counts: then as many are in service as may be, and the number
//! that ends in a second is the device's throughput at that depth, whatever its law of service. A
//! device that is never so busy keeps its depth; it limits nothing.
//!
//! A round measures the present depth, the next larger and the next smaller of [`DEPTHS`], each in
//! several slices in turn, so that a change of the load meets all three alike. The depth goes up if
//! that brings more than [`GAIN`], and down if it costs less than [`LOSS`] of the best throughput that
//! is known; the two differ, so that chance does not move it up and down. After a round without a
//! change the next comes later, up to [`REST_MAX`]. So a device spends little time at depths that are
//! not its best.
//!
//! There is no clock here. Cost: a few additions for a read.

use ground::window::{Nanos, SECOND};
use serde::{Deserialize, Serialize};

/// Depths that are tried: each at most half more than the one before.
const DEPTHS: [u32; 16] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256];
/// The part by which throughput must grow for a larger depth.
const GAIN: f64 = 0.06;
/// The part of the best throughput that a smaller depth may cost.
const LOSS: f64 = 0.03;
/// Slices of a round: the present depth, the larger, the present, the smaller, and so on.
const SLICES: u32 = 32;
/// Reads of a slice. A round counts 8,000 of the present depth and 4,000 of each other: of exponential
/// service, the ratio of two throughputs has a standard error of 1.9 %, so that one round in a thousand
/// raises the depth by chance.
const READS: u64 = 500;
/// Time after a round without a change until the next; it doubles each time.
const REST: Nanos = 30 * SECOND;
/// The longest time between two rounds.
const REST_MAX: Nanos = 30 * 60 * SECOND;

/// Reads that ended and the time in which they did.
#[derive(Clone, Copy, Debug, Default)]
struct Measurement {
    reads: u64,
    time: Nanos,
}

impl Measurement {
    /// Reads a second.
    fn throughput(&self) -> f64 {
        self.reads as f64 / (self.time.max(1) as f64 / SECOND as f64)
    }
}

/// Why a device has its depth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// The depth.
    pub depth: u32,
    /// Reads a second with it, as last measured.
    pub reads_per_s: f64,
    /// The next smaller depth that was measured beside it, and its reads a second.
    pub smaller: Option<(u32, f64)>,
    /// The next larger one.
    pub larger: Option<(u32, f64)>,
    /// Changes since the start.
    pub changes: u64,
}

/// What is tried in a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slice {
    Present,
    Larger,
    Smaller,
}

/// The depth of one device.
pub struct Depth {
    /// Index in [`DEPTHS`].
    at: usize,
    /// The largest index.
    most: usize,
    /// The slices of this round that were begun; 0 between two rounds.
    slice: u32,
    /// Reads to leave out, which began at another depth.
    skip: u64,
    present: Measurement,
    larger: Measurement,
    smaller: Measurement,
    this: Measurement,
    /// Throughput at each depth as last measured; 0 if it never was.
    known: [f64; DEPTHS.len()],
    /// When the last read ended, while more waited.
    busy_since: Option<Nanos>,
    rest: Nanos,
    next_round: Nanos,
    /// Changes since the start.
    pub changes: u64,
    reason: Option<Reason>,
}

impl Depth {
    /// A device that begins with `depth`, or the next smaller that is tried, and gets at most `most`.
    pub fn new(depth: u32, most: u32) -> Depth {
        let index = |depth| DEPTHS.iter().rposition(|&d| d <= depth).unwrap_or(0);
        Depth {
            at: index(depth.min(most)),
            most: index(most),
            slice: 0,
            skip: 0,
            present: Measurement::default(),
            larger: Measurement::default(),
            smaller: Measurement::default(),
            this: Measurement::default(),
            known: [0.0; DEPTHS.len()],
            busy_since: None,
            rest: REST,
            next_round: 0,
            changes: 0,
            reason: None,
        }
    }

    /// The depth that is best as far as is known.
    #[cfg(test)]
    fn settled(&self) -> u32 {
        DEPTHS[self.at]
    }

    /// The depth now, which in a round may be another.
    pub fn now(&self) -> u32 {
        match self.kind() {
            Slice::Larger => DEPTHS[self.at + 1],
            Slice::Smaller => DEPTHS[self.at - 1],
            Slice::Present => DEPTHS[self.at],
        }
    }

    /// Why the depth is what it is; `None` before the first round has ended.
    pub fn reason(&self) -> Option<Reason> {
        self.reason
    }

    fn kind(&self) -> Slice {
        match self.slice % 4 {
            2 if self.at < self.most => Slice::Larger,
            0 if self.slice > 0 && self.at > 0 => Slice::Smaller,
            _ => Slice::Present,
        }
    }

    /// A read came and waits, because as many are in service as may be.
    pub fn waits(&mut self, now: Nanos) {
        self.busy_since.get_or_insert(now);
    }

    /// A read left the device; `more`: another waited for its place. Returns whether the depth
    /// changed, for a while or for good.
    pub fn ended(&mut self, more: bool, now: Nanos) -> bool {
        let since = self.busy_since.take();
        self.busy_since = more.then_some(now);
        let (Some(since), true) = (since, more) else { return false };
        let before = self.now();
        if self.slice == 0 {
            if now < self.next_round {
                return false;
            }
            self.begin(1);
            return before != self.now();
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        self.this.reads += 1;
        self.this.time += now.saturating_sub(since);
        if self.this.reads < READS {
            return false;
        }
        let sum = match self.kind() {
            Slice::Present => &mut self.present,
            Slice::Larger => &mut self.larger,
            Slice::Smaller => &mut self.smaller,
        };
        sum.reads += self.this.reads;
        sum.time += self.this.time;
        if self.slice < SLICES {
            self.begin(self.slice + 1);
        } else {
            self.decide(now);
        }
        before != self.now()
    }

    fn begin(&mut self, slice: u32) {
        let before = self.now();
        self.slice = slice;
        self.this = Measurement::default();
        // Those in service, and as many that the device has in a queue of its own.
        self.skip = 2 * u64::from(before.max(self.now()));
    }

    fn decide(&mut self, now: Nanos) {
        let neighbour = |measured: &Measurement, index: Option<usize>| {
            let index = index.filter(|_| measured.reads > 0)?;
            Some((index, measured.throughput()))
        };
        let present = self.present.throughput();
        let larger = neighbour(&self.larger, Some(self.at + 1));
        let smaller = neighbour(&self.smaller, self.at.checked_sub(1));
        self.known[self.at] = present;
        for (index, throughput) in larger.into_iter().chain(smaller) {
            self.known[index] = throughput;
        }
        let best = self.known.iter().copied().fold(0.0, f64::max);
        let at = match (larger, smaller) {
            (Some((index, more)), _) if more > (1.0 + GAIN) * present => index,
            (_, Some((index, less))) if less >= (1.0 - LOSS) * present.max(best) => index,
            _ => self.at,
        };
        let depths = |neighbour: Option<(usize, f64)>| neighbour.map(|(i, x)| (DEPTHS[i], x));
        let (smaller, larger) = (depths(smaller), depths(larger));
        let changes = self.changes + u64::from(at != self.at);
        self.reason = Some(Reason {
            depth: DEPTHS[at],
            reads_per_s: self.known[at],
            smaller,
            larger,
            changes,
        });
        if at == self.at {
            self.next_round = now + self.rest;
            self.rest = (2 * self.rest).min(REST_MAX);
            // What was known of other depths was of another time.
            let (low, high) = (at.saturating_sub(1), at + 1);
            let far = self.known.iter_mut().enumerate().filter(|(i, _)| *i < low || *i > high);
            far.for_each(|(_, throughput)| *throughput = 0.0);
        } else {
            (self.rest, self.next_round) = (REST, now);
        }
        (self.at, self.changes) = (at, changes);
        (self.present, self.larger, self.smaller) = Default::default();
        self.begin(0);
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    /// A device of which the reads in service leave at a rate that depends on their number.
    struct Model {
        rate: fn(f64) -> f64,
        random: SmallRng,
        now: f64,
    }

    impl Model {
        fn new(rate: fn(f64) -> f64, seed: u64) -> Model {
            Model { rate, random: SmallRng::seed_from_u64(seed), now: 0.0 }
        }

        /// Runs with more reads than the device serves, or with so many a second, and returns the
        /// depths at which it was settled in the last quarter.
        fn settles(&mut self, depth: &mut Depth, seconds: f64, arrivals: Option<f64>) -> Vec<u32> {
            let (end, late) = (self.now + seconds, self.now + 0.75 * seconds);
            let (mut waiting, mut in_service) = (0u32, 0u32);
            let mut settled = Vec::new();
            while self.now < end {
                if arrivals.is_none() {
                    waiting = 1_000;
                }
                while in_service < depth.now() && waiting > 0 {
                    (waiting, in_service) = (waiting - 1, in_service + 1);
                }
                let ends = if in_service > 0 { (self.rate)(f64::from(in_service)) } else { 0.0 };
                let comes = arrivals.unwrap_or(0.0);
                let drawn: f64 = self.random.random_range(f64::MIN_POSITIVE..1.0);
                self.now -= drawn.ln() / (ends + comes);
                let now = (self.now * SECOND as f64) as Nanos;
                if self.random.random_range(0.0..ends + comes) < comes {
                    waiting += 1;
                    if in_service >= depth.now() {
                        depth.waits(now);
                    }
                } else {
                    in_service -= 1;
                    depth.ended(waiting > 0 && in_service + 1 >= depth.now(), now);
                }
                if self.now > late && settled.last() != Some(&depth.settled()) {
                    settled.push(depth.settled());
                }
            }
            settled
        }
    }

    fn arm(_: f64) -> f64 {
        150.0
    }

    fn channels(n: f64) -> f64 {
        1_000.0 * n.min(8.0)
    }

    fn worse_above_4(n: f64) -> f64 {
        1_000.0 * n.min(4.0) * (4.0 / n.max(4.0)).sqrt()
    }

    #[test]
    fn the_fewest_reads_that_are_enough() {
        for seed in 0..10 {
            for start in [1, 8, 64] {
                let settled = |rate, seconds| {
                    let mut depth = Depth::new(start, 64);
                    let settled = Model::new(rate, seed).settles(&mut depth, seconds, None);
                    (settled, depth.changes)
                };
                // A round takes 16,000 reads, and between 1 and 64 are 11 of them.
                let (depths, changes) = settled(arm, 4_000.0);
                assert_eq!(depths, [1], "one arm, from {start}, seed {seed}");
                assert!(changes <= 15, "{changes} changes");
                let (depths, changes) = settled(channels, 120.0);
                assert_eq!(depths, [8], "8 channels, from {start}, seed {seed}");
                assert!(changes <= 15, "{changes} changes");
                let (depths, changes) = settled(worse_above_4, 300.0);
                assert_eq!(depths, [4], "worse above 4, from {start}, seed {seed}");
                assert!(changes <= 15, "{changes} changes");
            }
        }
    }

    #[test]
    fn a_device_that_is_not_busy_keeps_its_depth() {
        let mut depth = Depth::new(8, 64);
        let settled = Model::new(channels, 1).settles(&mut depth, 60.0, Some(500.0));
        assert_eq!((settled, depth.changes), (vec![8], 0));
    }

    #[test]
    fn a_device_that_changes_is_followed_and_little_time_goes_into_rounds() {
        let mut depth = Depth::new(8, 64);
        let mut model = Model::new(channels, 2);
        assert_eq!(model.settles(&mut depth, 60.0, None), [8]);
        model.rate = worse_above_4;
        assert_eq!(model.settles(&mut depth, 600.0, None), [4]);
        model.rate = channels;
        assert_eq!(model.settles(&mut depth, 1_500.0, None), [8]);
        assert!(depth.changes < 12, "{} changes", depth.changes);
    }

    #[test]
    fn the_bounds_hold() {
        for most in [1, 5, 8] {
            let mut depth = Depth::new(8, most);
            let mut model = Model::new(|n| 1_000.0 * n, 3);
            model.settles(&mut depth, 100.0, None);
            assert_eq!(depth.settled(), DEPTHS.into_iter().rfind(|&d| d <= most).unwrap());
        }
    }
}
