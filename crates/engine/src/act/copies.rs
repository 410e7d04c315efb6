//! Decides when a node may copy frequently read objects to its hot devices, and when that needs a decision.
//!
//! Single copies are small and too many for a journal. While the hot devices are close to the best placement, copies that follow
//! slow changes of popularity need no decision. If a placement by read counts would serve a share of the devices' reads from copies that
//! is larger by `APART` than the present one (at a start with empty hot devices, or after a shift of popularity), filling the hot
//! devices is one change. [`Copies::look`] proposes it, and nothing is copied until [`Copies::decided`] reports that it was made.
//! The change ends when the shares differ by less than half of `APART`.
//!
//! This module has no clock. Cost: a few additions for a look.

use super::{Effect, Knob, Proposal};

/// The target of its proposals.
pub const TARGET: &str = "hot devices";
/// The difference between the shares from which on a change is proposed.
const APART: f64 = 0.1;
/// Factor of the earlier counts at each look.
const KEPT: f64 = 0.95;
/// The smallest weighted number of reads from which a share is computed.
const READS_MIN: f64 = 100.0;

/// The counts of a node since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReadCounts {
    /// Reads of devices.
    pub reads: u64,
    /// Reads of objects that had a copy on a hot device, whether or not the copy was read.
    pub with_copy: u64,
    /// The share of such reads with a placement by read counts; `None` before it is known.
    pub best: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Near,
    Asking,
    Filling,
}

/// Whether a node copies.
///
/// ```
/// use engine::act::copies::{Copies, ReadCounts};
///
/// let mut copies = Copies::new();
/// assert!(copies.look(ReadCounts { reads: 100, with_copy: 70, best: Some(0.75) }).is_none());
/// assert!(copies.may_copy(), "it is near the best placement");
/// let asked = copies.look(ReadCounts { reads: 1000, with_copy: 70, best: Some(0.75) });
/// assert!(asked.is_some() && !copies.may_copy());
/// copies.decided(true);
/// assert!(copies.may_copy());
/// ```
#[derive(Clone, Debug)]
pub struct Copies {
    phase: Phase,
    before: ReadCounts,
    reads: f64,
    with_copy: f64,
}

impl Default for Copies {
    fn default() -> Self {
        Copies::new()
    }
}

impl Copies {
    /// Of a node that has read nothing.
    pub fn new() -> Copies {
        Copies { phase: Phase::Near, before: ReadCounts::default(), reads: 0.0, with_copy: 0.0 }
    }

    /// The share of recent reads whose object has a copy on a hot device; `None` while there are too few.
    pub fn share(&self) -> Option<f64> {
        (self.reads >= READS_MIN).then(|| self.with_copy / self.reads)
    }

    /// Takes what was seen until now, and returns the change that is to be asked for. Answer with [`Copies::decided`].
    pub fn look(&mut self, seen: ReadCounts) -> Option<Proposal> {
        let since = |now: u64, before: u64| now.saturating_sub(before) as f64;
        self.reads = self.reads * KEPT + since(seen.reads, self.before.reads);
        self.with_copy = self.with_copy * KEPT + since(seen.with_copy, self.before.with_copy);
        self.before = seen;
        let (share, best) = (self.share()?, seen.best?);
        if best - share < APART / 2.0 {
            self.phase = Phase::Near;
        } else if best - share >= APART && self.phase == Phase::Near {
            self.phase = Phase::Asking;
        }
        (self.phase == Phase::Asking).then(|| Proposal {
            knob: Knob::Hot,
            target: TARGET.to_owned(),
            kind: "fill".to_owned(),
            change: "copies what is read often to them".to_owned(),
            reason: format!(
                "{:.0} % of the devices' reads are of objects with a copy on a hot device, and {:.0} % would be \
                 with a placement by the counts of reads",
                100.0 * share,
                100.0 * best
            ),
            expected: Effect {
                quantity: "share of the devices' reads with a copy on a hot device".to_owned(),
                before: share,
                after: best,
            },
            must: false,
        })
    }

    /// Whether the change that was asked for is made.
    pub fn decided(&mut self, made: bool) {
        if made && self.phase == Phase::Asking {
            self.phase = Phase::Filling;
        }
    }

    /// Whether the hot devices are being filled.
    pub fn is_filling(&self) -> bool {
        self.phase == Phase::Filling
    }

    /// Whether copies may be made.
    pub fn may_copy(&self) -> bool {
        self.phase != Phase::Asking
    }
}

#[cfg(test)]
mod weeks {
    //! Weeks of looks at a node under adversarial popularity: the hot devices hold a set that follows what is popular
    //! only while copies may be made.

    use super::*;

    /// Looks in a day: one a second.
    const DAY: u64 = 86_400;

    /// A hot class of fixed size whose best placement holds 0.8 of the reads.
    struct Class {
        copies: Copies,
        seen: ReadCounts,
        /// The share of the reads that what it holds now answers.
        share: f64,
        asked: usize,
        changes: usize,
    }

    impl Class {
        fn new() -> Class {
            let copies = Copies::new();
            Class { copies, seen: ReadCounts::default(), share: 0.0, asked: 0, changes: 0 }
        }

        /// A second with this many reads; a part of what is missing is copied if it may be.
        fn second(&mut self, reads: u64, best: Option<f64>, allowed: bool) {
            self.seen.reads += reads;
            self.seen.with_copy += (reads as f64 * self.share) as u64;
            self.seen.best = best;
            if self.copies.look(self.seen).is_some() {
                self.asked += 1;
                if allowed {
                    self.copies.decided(true);
                    self.changes += 1;
                }
            }
            if self.copies.may_copy() && reads > 0 && allowed {
                self.share += 0.02 * (best.unwrap_or(0.0) - self.share);
            }
            assert!((0.0..=1.0).contains(&self.share), "more than all reads");
        }
    }

    #[test]
    fn a_constant_popularity_is_asked_for_once() {
        let mut class = Class::new();
        (0..DAY).for_each(|_| class.second(200, Some(0.8), true));
        assert_eq!(class.changes, 1);
        assert!(class.share > 0.79);
        // Nobody reads for a day: nothing changes, and nothing is asked for.
        (0..DAY).for_each(|_| class.second(0, Some(0.8), true));
        assert_eq!(class.changes, 1);
    }

    #[test]
    fn shifts_at_any_period_cause_one_change_each_at_most() {
        for period in [2, 10, 20, 40, 90, 600, 7200] {
            let mut class = Class::new();
            for second in 0..7 * DAY {
                if second % period == 0 {
                    // What is popular is another set: what is held answers nothing of it.
                    class.share = 0.0;
                }
                class.second(200, Some(0.8), true);
            }
            let most = (7 * DAY / period) as usize + 1;
            assert!(class.changes <= most, "{} changes at {period} s", class.changes);
            // Shifts faster than counts fade are one change that does not end.
            assert!(period > 20 || class.changes <= 2, "{} changes at {period} s", class.changes);
        }
    }

    #[test]
    fn one_hot_key_and_a_lie_about_the_best_do_no_harm() {
        // One object is nearly all reads: it is copied, and that is the one change.
        let mut class = Class::new();
        (0..DAY).for_each(|_| class.second(1000, Some(0.99), true));
        assert_eq!(class.changes, 1);
        // The sketch of popularity promises what no placement gives, then knows nothing, then says that nothing helps.
        let mut class = Class::new();
        for second in 0..7 * DAY {
            let best = [Some(0.8), Some(1.0), None, Some(0.0)][(second / 300 % 4) as usize];
            class.second(200, best, true);
        }
        assert!(class.changes <= (7 * DAY / 600) as usize, "{} changes", class.changes);
    }

    #[test]
    fn while_it_is_refused_nothing_is_copied_and_asking_costs_nothing() {
        let mut class = Class::new();
        (0..DAY).for_each(|_| class.second(200, Some(0.8), false));
        assert_eq!((class.share, class.changes), (0.0, 0));
        assert!(class.asked > 0, "the governor writes it once in its own time");
        assert!(!class.copies.may_copy());
    }
}
