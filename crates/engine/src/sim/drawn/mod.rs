//! A cluster whose hits are drawn: what answers a read is a matter of chance with given ratios, not of what was read before.
//!
//! Nothing is kept of keys, so a request costs a fraction of one of [`super::Simulation`], and memory does not grow with the
//! number of objects. The rules that decide how long a request takes are the engine's own: the ring's placement and replicas
//! ([`Ring`]), the choice among replicas ([`Policy`] over [`crate::route::Load`]), the queues in front of devices and of the
//! origin with their windows ([`crate::queue::Queue`]), and the laws of service.
//!
//! Not decided here, because it depends on which keys are read: popularity (each key of the ring is asked for equally often),
//! reads that join an earlier read of the same key, what memory and hot devices hold, warm copies on further replicas
//! ([`Spread::Warm`] is the first replica), and how cold a node is after a restart. Not simulated: hedges, timeouts of attempts,
//! leases and the faults of messages. `docs/simulate.md` says it to users.
//!
//! Cost: an entry in a heap for each read of a device or the origin, none for a hit in memory: replies that are under way all
//! take the same time, so they are queues.

mod cluster;
mod run;

use std::sync::Arc;

use ground::window::{self, Nanos, Outcome};

use super::{Arrivals, Law};
use crate::gateway::Spread;
use crate::route::{Policy, Ring};

pub use run::Drawn;

/// A cluster to simulate with drawn hits.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The seed of all random numbers.
    pub seed: u64,
    /// Places requests on nodes.
    pub ring: Arc<Ring>,
    /// The devices of each node; all nodes are alike.
    pub devices: Vec<DeviceSettings>,
    /// The origin's queue of each node: reads in parallel, and the most that wait and are served.
    pub origin: crate::node::OriginSettings,
    /// Time of half a call to the origin.
    pub origin_half: Law,
    /// What answers reads.
    pub hits: Hits,
    /// When requests arrive.
    pub arrivals: Arrivals,
    /// When they end.
    pub until: Nanos,
    /// Share of requests that are writes.
    pub write_share: f64,
    /// Bytes of an object.
    pub bytes: u64,
    /// One-way delay of a message.
    pub network: Nanos,
    /// The number of gateways in front of several nodes.
    pub gateways: usize,
    /// Which of a key's nodes may serve a read.
    pub spread: Spread,
    /// How one of them is chosen.
    pub policy: Policy,
    /// Time between two pings of a node by a gateway.
    pub ping_interval: Nanos,
    /// What fails, in order of time.
    pub faults: Vec<NodeFault>,
    /// Settings of the recorded windows.
    pub windows: window::Settings,
}

/// A device of every node.
#[derive(Clone, Debug)]
pub struct DeviceSettings {
    /// The name of its queue: `device/0` …
    pub name: String,
    /// The outcome of its reads: [`Outcome::HotDevice`] or [`Outcome::BulkDevice`].
    pub outcome: Outcome,
    /// Reads that it serves in parallel.
    pub servers: u32,
    /// Maximum number of reads waiting and in service; further reads are refused.
    pub queue_length_max: u32,
    /// Its service times.
    pub law: Law,
}

/// The shares of reads by what answers them. The rest is answered by bulk devices.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Hits {
    /// Answered from memory.
    pub memory: f64,
    /// Answered by a hot device.
    pub hot: f64,
    /// On no device: read from the origin.
    pub origin: f64,
}

/// A fault of one node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeFault {
    /// When it begins.
    pub at: Nanos,
    /// When it ends; `Nanos::MAX` for never.
    pub until: Nanos,
    /// The node.
    pub node: usize,
    /// What fails.
    pub kind: NodeFaultKind,
}

/// What fails of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NodeFaultKind {
    /// The node: its requests go to the next of their nodes.
    Down,
    /// Its devices take a multiple of the time.
    Slow(f64),
    /// One of its devices: its reads go to the origin, as reads of a device that was taken out do.
    DeviceLost(usize),
}
