//! A node's settings.

use std::sync::Arc;

use ground::window::{self, Nanos, Outcome};
use serde::{Deserialize, Serialize};

use crate::route::{NodeId, Ring};
use crate::tier::{Eviction, HASH_BITS};

/// A node's resources and limits. Nothing grows beyond these limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Maximum bytes of the memory tier, overhead included.
    pub memory_bytes_max: u64,
    /// Which objects leave the memory tier first.
    pub eviction: Eviction,
    /// Objects larger than this are not kept in any tier: they are streamed from the origin.
    pub object_bytes_max: u64,
    /// An object that has not been compared with the origin for this long is compared before it is
    /// served; `None` for only after a restart. This bounds how long a write made directly at the
    /// origin stays unseen.
    pub revalidate: Option<Nanos>,
    /// While the origin does not answer, objects that are due for a comparison are served for this
    /// much longer, unless a write through Concertina may have been missed.
    pub stale_if_error: Nanos,
    /// The devices.
    pub devices: Vec<DeviceSettings>,
    /// What hot devices hold, and how a device is chosen for a read.
    pub tiers: TierSettings,
    /// The origin.
    pub origin: OriginSettings,
    /// Maximum bytes being written to the devices at once; beyond it, objects are not written to a
    /// device.
    pub appends_bytes_max: u64,
    /// Maximum number of writes that wait for their turn, over all keys; further writes are
    /// refused.
    pub writes_waiting_max: u32,
    /// The cluster that the node belongs to; `None` for a single node.
    pub cluster: Option<ClusterSettings>,
    /// Settings of the recorded windows.
    #[serde(skip)]
    pub windows: window::Settings,
}

/// A node's place in its cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterSettings {
    /// Assigns keys to nodes; the same on all nodes.
    pub ring: Arc<Ring>,
    /// This node's index among the ring's members.
    pub me: NodeId,
    /// Duration of the lease that a primary grants to the other nodes. It bounds how long a write
    /// waits for a node that died. A node whose lease has run out compares each copy with the
    /// origin before it serves it.
    pub lease: Nanos,
    /// Time after a change of the view during which other nodes may still act on the older view.
    /// For this time the node orders no writes and serves nothing that it has not compared with the
    /// origin. 0 for a static membership.
    pub view_lag: Nanos,
    /// The queue of requests to peers for objects.
    pub peers: OriginSettings,
    /// Maximum bytes per second that are offered to further replicas on an object's second hit; 0
    /// for no offers.
    pub replicate_bytes_per_s: u64,
    /// Maximum bytes per second of what is hot that are offered to nodes that became some of its nodes; 0 for no offers.
    #[serde(default)]
    pub warm_bytes_per_s: u64,
    /// The part of a device that a key's reads must keep busy for a hot node to hold a copy.
    #[serde(default)]
    pub hot_load_min: f64,
}

impl ClusterSettings {
    /// Maximum time between two [`super::Event::Tick`]s.
    pub fn tick(&self) -> Nanos {
        (self.lease / 10).max(1)
    }

    /// The time by which a granter counts a lease longer than its holder does, so that clocks whose
    /// rates differ by a sixteenth do no harm.
    pub fn margin(&self) -> Nanos {
        self.lease / 16
    }
}

/// One device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceSettings {
    /// The name of its queue: `device/0` …
    pub name: String,
    /// The outcome of its reads: [`Outcome::HotDevice`] or [`Outcome::BulkDevice`].
    pub outcome: Outcome,
    /// Number of reads that it serves in parallel.
    pub servers: u32,
    /// If above 0: that number is found from the measured throughput, between 1 and this one.
    #[serde(default)]
    pub servers_max: u32,
    /// Maximum number of reads waiting and in service; further reads are refused.
    pub queue_length_max: u32,
    /// Maximum bytes that it holds.
    pub bytes_max: u64,
    /// Maximum bytes of a segment.
    pub segment_bytes: u64,
    /// Maximum number of segments, for a device that has a place for each; 0: its bytes alone are bounded.
    #[serde(default)]
    pub segments_max: u64,
    /// A longer record is read in pieces of so many bytes of its object, with other reads between
    /// them, and a part of its object alone; 0: every record is read at once.
    #[serde(default)]
    pub piece_bytes: u64,
}

/// What hot devices hold, and how a device is chosen for a read. Without devices of both classes,
/// only [`TierSettings::choice`] has an effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TierSettings {
    /// The time over which reads are counted: a read of this age counts 1/e.
    pub memory: Nanos,
    /// Counters in each of the four rows of the sketch; see [`crate::tier::Popularity`].
    pub counters: usize,
    /// An object is copied to a hot device from this multiple on of the benefit from which on
    /// objects fit, and stays there from 1 on, so that objects at the border do not move again and
    /// again.
    pub hysteresis: f64,
    /// The part of the hot devices' bytes that objects worth a copy should take; the rest holds what
    /// was worth it before.
    pub fill: f64,
    /// Maximum bytes per second that are written to hot devices; 0 for no copies.
    pub promote_bytes_per_s: u64,
    /// Keys that are copied on their first read and stay, whatever their popularity.
    pub pins: Vec<Pin>,
    /// How a device is chosen among those that hold an object.
    pub choice: Choice,
    /// Bits of a key's hash by which the index of the devices' records tells keys apart, up to
    /// [`HASH_BITS`]; fewer only to see what happens when keys share them.
    pub index_bits: u32,
}

impl Default for TierSettings {
    fn default() -> Self {
        TierSettings {
            memory: 600 * window::SECOND,
            counters: 1 << 16,
            hysteresis: 1.5,
            fill: 0.9,
            promote_bytes_per_s: 32 << 20,
            pins: Vec::new(),
            choice: Choice::default(),
            index_bits: HASH_BITS,
        }
    }
}

/// Keys that belong on hot devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pin {
    /// One key.
    Key(Vec<u8>),
    /// All keys that begin so.
    Prefix(Vec<u8>),
}

impl Pin {
    /// Whether a key is pinned.
    pub fn holds(&self, key: &[u8]) -> bool {
        match self {
            Pin::Key(pinned) => key == &pinned[..],
            Pin::Prefix(prefix) => key.starts_with(prefix),
        }
    }
}

/// How a device is chosen among those that hold an object. All but the first are for comparisons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// The least expected wait: what is queued, and the service time of a read of that size.
    #[default]
    Wait,
    /// The least share of the last whole second that it was busy, as `iostat` shows it.
    Utilisation,
    /// Each in turn.
    RoundRobin,
}

/// The origin, or the peers, as a queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OriginSettings {
    /// Number of requests that it serves in parallel.
    pub servers: u32,
    /// Maximum number of requests waiting and in service; further requests are refused.
    pub queue_length_max: u32,
}
