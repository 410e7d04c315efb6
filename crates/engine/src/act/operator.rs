//! What an operator decides on a single change that was advised, or not made: it is made once, in whatever mode and although
//! changes are held, or left alone for a while.
//!
//! An approval does not carry the change out by itself: its numbers may be old, and only the part of the system that proposed it
//! knows how to make it. So the approval waits until that part proposes a change of the same kind again, which it does at every
//! look while the reason holds, and lapses after [`APPROVED_FOR`] without one. A dismissal keeps changes of the same kind from
//! being made or written for [`DISMISSED_FOR`]. Changes are of the same kind if knob, target and [`super::Proposal::kind`] are equal:
//! their sizes follow what is measured.
//!
//! Neither outlives the process. Cost: a scan of at most [`ORDERS_MAX`] orders for each proposal.

use std::fmt;

use ground::window::{Nanos, SECOND};
use serde::{Deserialize, Serialize};

/// How long an approval waits for its change to be proposed again. Weights are proposed once a minute.
pub const APPROVED_FOR: Nanos = 300 * SECOND;
/// How long a dismissed change is left alone.
pub const DISMISSED_FOR: Nanos = 3600 * SECOND;
/// Orders at a time; a further one ends the oldest.
pub const ORDERS_MAX: usize = 64;

/// Who caused a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The process, by itself.
    #[default]
    Process,
    /// An operator, who approved it.
    Operator,
}

/// A decision on one change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is to be made once.
    Apply,
    /// It is to be left alone for a while.
    Dismiss,
}

/// Why an operator's decision is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotDecided {
    /// The journal in memory has no such entry.
    Unknown(u64),
    /// The change was made.
    Made(u64),
    /// The entry was decided on before.
    Decided(u64),
    /// The knob of this name is off, so that nothing proposes the change.
    Off(&'static str),
}

impl fmt::Display for NotDecided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotDecided::Unknown(id) => {
                write!(f, "the journal has no entry {id}; GET /actions lists the last 256")
            }
            NotDecided::Made(id) => {
                write!(f, "the change of entry {id} was made; there is nothing to decide")
            }
            NotDecided::Decided(id) => write!(
                f,
                "entry {id} was decided on before; if the change is still wanted, a newer entry proposes it"
            ),
            NotDecided::Off(knob) => write!(
                f,
                "act.{knob} is \"off\", so nothing proposes this change: set it to \"advise\" and start again"
            ),
        }
    }
}

impl std::error::Error for NotDecided {}

/// What changes of the same kind have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChangeKind {
    /// The name of the knob.
    pub knob: &'static str,
    /// Of which queue.
    pub target: String,
    /// What tells it from other changes of the same target.
    pub kind: String,
}

/// A decision that is in force.
#[derive(Clone, Debug)]
pub(super) struct Order {
    /// The entry that it is on.
    pub id: u64,
    /// The changes that it is about.
    pub of: ChangeKind,
    /// What was decided.
    pub verdict: Verdict,
    /// Until when it is in force.
    pub until: Nanos,
}
