//! When a node copies what is read often to its hot devices by itself, and when that is a change that is asked for.
//!
//! Single copies are too many for a journal, and each is small. So copies are free while the hot devices hold nearly what they should:
//! they follow slow changes of what is popular. Where a placement by the counts has a copy for `APART` more of the devices' reads than
//! now (after a start with empty hot devices, after a shift of popularity), filling the hot devices is one change:
//! [`Copies::look`] proposes it, and nothing is copied until [`Copies::decided`] says that it is made. It ends when the two shares are
//! nearer than half of that.
//!
//! There is no clock here. Cost: a few additions for a look.

use super::{Effect, Knob, Proposal};

/// The target of its proposals.
pub const TARGET: &str = "hot devices";
/// Shares of the reads that are this far apart call for a change.
const APART: f64 = 0.1;
/// What a look leaves of the counts before it.
const KEPT: f64 = 0.95;
/// The fewest reads, with their weights, that say something.
const READS_MIN: f64 = 100.0;

/// What a node has seen, since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// Reads of devices.
    pub reads: u64,
    /// Reads of objects that had a copy on a hot device, whichever was read.
    pub with_copy: u64,
    /// The share of the reads that would be such with a placement by the counts; `None` before it is known.
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
/// use engine::act::copies::{Copies, Seen};
///
/// let mut copies = Copies::new();
/// assert!(copies.look(Seen { reads: 100, with_copy: 70, best: Some(0.75) }).is_none());
/// assert!(copies.may_copy(), "it is near the best placement");
/// let asked = copies.look(Seen { reads: 1000, with_copy: 70, best: Some(0.75) });
/// assert!(asked.is_some() && !copies.may_copy());
/// copies.decided(true);
/// assert!(copies.may_copy());
/// ```
#[derive(Clone, Debug)]
pub struct Copies {
    phase: Phase,
    before: Seen,
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
        Copies { phase: Phase::Near, before: Seen::default(), reads: 0.0, with_copy: 0.0 }
    }

    /// The share of recent reads whose object has a copy on a hot device; `None` while there are too few.
    pub fn share(&self) -> Option<f64> {
        (self.reads >= READS_MIN).then(|| self.with_copy / self.reads)
    }

    /// Takes what was seen until now, and returns the change that is to be asked for. Answer with [`Copies::decided`].
    pub fn look(&mut self, seen: Seen) -> Option<Proposal> {
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

    /// Whether copies may be made.
    pub fn may_copy(&self) -> bool {
        self.phase != Phase::Asking
    }
}
