//! Settings of a cluster whose hits are drawn.

use std::sync::Arc;

use ground::window::{self, Nanos, Outcome};

use crate::gateway::Spread;
use crate::node::OriginSettings;
use crate::route::{Policy, Ring};
use crate::sim::arrivals::Arrivals;
use crate::sim::law::Law;

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
    pub origin: OriginSettings,
    /// Time of half a call to the origin.
    pub origin_half: Law,
    /// What answers reads.
    pub hits: Hits,
    /// Time that a read from memory takes, beside the network.
    pub memory: Law,
    /// Time that a reply of a device takes after its service, beside the network: what a gateway and the node's own threads add.
    pub delay: Law,
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
    /// Its part of the reads of its class, in proportion to the other devices'.
    pub weight: f64,
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
