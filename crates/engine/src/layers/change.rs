//! What a [`Manager`](super::Manager) orders, and why.

use std::fmt;

use ground::number::exact;
use serde::{Deserialize, Serialize};

use super::shard::ShardId;

/// A change for the driver to make. The driver starts it before it calls [`Manager::observe`](super::Manager::observe)
/// again. A change that it cannot make it skips; the manager orders it again after
/// [`Settings::settle`](super::Settings::settle) if it is still needed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Add the next layer to a shard.
    Grow {
        /// The shard.
        shard: ShardId,
        /// Bytes granted: the shard's `next_bytes`.
        bytes: u64,
        /// The reason.
        why: Why,
    },
    /// Drop the lowest layer of a shard, or abandon the layer that is being filled.
    Fold {
        /// The shard.
        shard: ShardId,
        /// Bytes that this is expected to free: the shard's `lowest_bytes`.
        bytes: u64,
        /// The reason.
        why: Why,
    },
}

impl Change {
    /// The shard that changes.
    pub fn shard(&self) -> ShardId {
        match *self {
            Change::Grow { shard, .. } | Change::Fold { shard, .. } => shard,
        }
    }

    /// The reason.
    pub fn why(&self) -> &Why {
        match self {
            Change::Grow { why, .. } | Change::Fold { why, .. } => why,
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, bytes) = match self {
            Change::Grow { bytes, .. } => ("grows", bytes),
            Change::Fold { bytes, .. } => ("folds", bytes),
        };
        write!(f, "shard {} {what} by {bytes} bytes: {}", self.shard(), self.why())
    }
}

/// Why a shard changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Its queue is above the high mark.
    Busy {
        /// Average length of its queue.
        average: f64,
        /// The mark.
        high: f64,
    },
    /// Its queue is expected to be above the high mark.
    Ahead {
        /// Average length of its queue.
        average: f64,
        /// The expected length.
        expected: f64,
        /// The mark.
        high: f64,
    },
    /// Its queue is below the low mark.
    Idle {
        /// Average length of its queue.
        average: f64,
        /// The mark.
        low: f64,
    },
    /// A hot shard needs the memory, and this shard is the coldest that can spare it.
    Taken {
        /// Average length of its own queue.
        average: f64,
        /// The shard that gets the memory.
        by: ShardId,
    },
    /// The layers exceed the budget, and this shard is the coldest that has a layer.
    OverBudget {
        /// The excess in bytes, after the changes already ordered.
        over_bytes: u64,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Busy { average, high } => {
                write!(
                    f,
                    "its queue is {average:.2} on average, above the mark of {}",
                    exact(*high)
                )
            }
            Why::Ahead { average, expected, high } => {
                write!(
                    f,
                    "its queue is {average:.2} on average and expected to be {expected:.2}, above the \
                     mark of {}",
                    exact(*high)
                )
            }
            Why::Idle { average, low } => {
                write!(f, "its queue is {average:.2} on average, below the mark of {}", exact(*low))
            }
            Why::Taken { average, by } => {
                write!(
                    f,
                    "shard {by} needs the memory, and its own queue is {average:.2} on average"
                )
            }
            Why::OverBudget { over_bytes } => {
                write!(f, "the layers take {over_bytes} bytes more than their budget")
            }
        }
    }
}
