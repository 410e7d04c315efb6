//! A node's settings.

use std::sync::Arc;

use model::window::{self, Nanos, Outcome};
use serde::{Deserialize, Serialize};

use crate::route::{NodeId, Ring};

/// What a node has and what bounds it. Nothing grows past these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Bytes of the memory tier, overhead included.
    pub memory_bytes_max: u64,
    /// Objects larger than this are not kept in any tier: they are streamed from the origin.
    pub object_bytes_max: u64,
    /// An object that was not compared with the origin for so long is, before it is served. `None`:
    /// only after a restart. It bounds how long a write made behind the node's back stays unseen.
    pub revalidate: Option<Nanos>,
    /// While the origin cannot be had, objects whose time to be compared has come are served for so
    /// much longer, as long as no write through Concertina was missed.
    pub stale_if_error: Nanos,
    /// The devices.
    pub devices: Vec<DeviceSettings>,
    /// The origin.
    pub origin: OriginSettings,
    /// Bytes that may be on their way to the devices at once; past it, fills are left out.
    pub appends_bytes_max: u64,
    /// Writes that may wait for their turn, over all keys; past it they are refused.
    pub writes_waiting_max: u32,
    /// The cluster that the node is part of.
    pub cluster: Option<ClusterSettings>,
    /// How windows are cut.
    #[serde(skip)]
    pub windows: window::Settings,
}

/// A node's place among others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterSettings {
    /// Where keys belong: the same for all.
    pub ring: Arc<Ring>,
    /// Which of its members this node is.
    pub me: NodeId,
    /// How long a lease lasts that a key's primary grants to the others. It bounds how long a write
    /// waits for a node that died; a node that heard nothing for so long asks the origin about each
    /// read.
    pub lease: Nanos,
    /// How long after a change of the view some may still act on the older one: for so long this
    /// node orders no writes and serves nothing that it has not compared with the origin. 0 where
    /// the membership is static.
    pub view_lag: Nanos,
    /// Requests to peers for objects.
    pub peers: OriginSettings,
    /// Bytes each second that may be offered to further replicas on a second hit; 0: none are.
    pub replicate_bytes_per_s: u64,
}

impl ClusterSettings {
    /// How often [`super::Event::Tick`] must be told.
    pub fn tick(&self) -> Nanos {
        (self.lease / 10).max(1)
    }

    /// What a lease is held longer by who granted it than by who holds it, so that clocks whose
    /// rates differ by a sixteenth do no harm.
    pub fn margin(&self) -> Nanos {
        self.lease / 16
    }
}

/// One device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceSettings {
    /// Its queue's name, `device/0` …
    pub name: String,
    /// What its reads are called: [`Outcome::HotDevice`] or [`Outcome::BulkDevice`].
    pub outcome: Outcome,
    /// Reads that it serves at once.
    pub servers: u32,
    /// Reads waiting and in service; past it, requests are refused.
    pub queue_length_max: u32,
    /// Bytes that it may hold.
    pub bytes_max: u64,
    /// Bytes of a segment.
    pub segment_bytes: u64,
}

/// The origin, or the peers, as a queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OriginSettings {
    /// Requests to it at once.
    pub servers: u32,
    /// Requests waiting and in service; past it, requests are refused.
    pub queue_length_max: u32,
}
