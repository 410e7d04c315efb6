//! What a manager of layers is told of a shard.

use serde::{Deserialize, Serialize};

/// Identifies a shard to its manager; unique within the node.
pub type ShardId = u64;

/// An observation of a shard at the end of an interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shard {
    /// The shard.
    pub id: ShardId,
    /// Requests waiting and in service: preferably the mean over the interval, otherwise the
    /// present number. A negative value counts as 0; a value that is not finite counts as not
    /// observed.
    pub queue_length: f64,
    /// Bytes of its layers. A layer that is being filled counts in full; a dropped layer counts
    /// until no query reads it any more.
    pub held_bytes: u64,
    /// Bytes of its next layer; `None` if it cannot have another.
    pub next_bytes: Option<u64>,
    /// Bytes that are freed when it drops its lowest layer, or abandons the layer that is being
    /// filled; `None` if it has no layer to drop.
    pub lowest_bytes: Option<u64>,
    /// Whether one of its layers is being filled.
    pub growing: bool,
}
