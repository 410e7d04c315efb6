//! A node's settings.

use model::window::{self, Nanos, Outcome};
use serde::{Deserialize, Serialize};

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
    /// The devices.
    pub devices: Vec<DeviceSettings>,
    /// The origin.
    pub origin: OriginSettings,
    /// Bytes that may be on their way to the devices at once; past it, fills are left out.
    pub appends_bytes_max: u64,
    /// Writes that may wait for their turn, over all keys; past it they are refused.
    pub writes_waiting_max: u32,
    /// How windows are cut.
    #[serde(skip)]
    pub windows: window::Settings,
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

/// The origin, as a queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OriginSettings {
    /// Requests to it at once.
    pub servers: u32,
    /// Requests waiting and in service; past it, requests are refused.
    pub queue_length_max: u32,
}
