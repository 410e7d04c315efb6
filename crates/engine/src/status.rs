//! The replies of a process's administrative paths: the server writes these types, and commands parse them.
//!
//! The two may be of different versions. A field that the reader does not know is skipped. A field that a server may not have
//! is an `Option`, so that a reader cannot take "not reported" for 0; a missing field of another kind is an error that names
//! the field. So a new field of these types, or of those inside them, is an `Option`, which the server always fills, or a
//! list that defaults to the empty one.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use ground::origin::OriginId;
use model::live::State;
use serde::{Deserialize, Serialize};

use crate::act::Entry;
use crate::budget::Move;
use crate::node::{Contents, PeerStatus, Warmed};
use crate::{gateway, pool};

/// The reply of `/admin/status`, by the process's role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub enum ProcessStatus {
    /// A node that, in a cluster, is a gateway too.
    All(Box<NodeProcess>),
    /// A node.
    Node(Box<NodeProcess>),
    /// A gateway.
    Gateway(Box<GatewayProcess>),
    /// A proxy of memcached servers.
    Proxy(Box<ProxyProcess>),
}

impl ProcessStatus {
    /// The status of a node.
    pub fn node(&self) -> Option<&NodeProcess> {
        match self {
            ProcessStatus::All(node) | ProcessStatus::Node(node) => Some(node),
            ProcessStatus::Gateway(_) | ProcessStatus::Proxy(_) => None,
        }
    }

    /// The status of a gateway.
    pub fn gateway(&self) -> Option<&gateway::GatewayStatus> {
        match self {
            ProcessStatus::Gateway(status) => Some(&status.gateway),
            _ => None,
        }
    }

    /// The connections of clients.
    pub fn connections(&self) -> Connections {
        match self {
            ProcessStatus::All(node) | ProcessStatus::Node(node) => node.connections,
            ProcessStatus::Gateway(gateway) => gateway.connections,
            ProcessStatus::Proxy(proxy) => proxy.connections,
        }
    }

    /// The configuration in full, without secrets.
    pub fn config(&self) -> &toml::Table {
        match self {
            ProcessStatus::All(node) | ProcessStatus::Node(node) => &node.config,
            ProcessStatus::Gateway(gateway) => &gateway.config,
            ProcessStatus::Proxy(proxy) => &proxy.config,
        }
    }

    /// The members of the cluster, as a node or a gateway of one knows them.
    pub fn membership(&self) -> Option<&MembershipStatus> {
        match self {
            ProcessStatus::All(node) | ProcessStatus::Node(node) => {
                node.cluster.as_ref().map(|cluster| &cluster.membership)
            }
            ProcessStatus::Gateway(gateway) => Some(&gateway.membership),
            ProcessStatus::Proxy(_) => None,
        }
    }

    /// The origin; a proxy has none.
    pub fn origin(&self) -> Option<&OriginStatus> {
        match self {
            ProcessStatus::All(node) | ProcessStatus::Node(node) => node.origin.as_ref(),
            ProcessStatus::Gateway(gateway) => gateway.origin.as_ref(),
            ProcessStatus::Proxy(_) => None,
        }
    }
}

/// The connections of clients, and their limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connections {
    /// Open connections.
    pub connections: Option<usize>,
    /// As configured, or fewer where the limit of open files is low.
    pub connections_max: Option<usize>,
}

/// The status of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeProcess {
    /// The version of Concertina that it runs.
    pub version: String,
    /// A description of the emulated devices; present if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub laboratory: Option<String>,
    /// What it holds.
    pub contents: Contents,
    /// Present if objects and layers share their memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryDivision>,
    /// Requests in its queues.
    pub requests_waiting: Option<usize>,
    /// The connections of its clients.
    #[serde(flatten)]
    pub connections: Connections,
    /// Its origin.
    pub origin: Option<OriginStatus>,
    /// Present on a node of a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterStatus>,
    /// Processes whose version or configuration differs: this node refused them, or they refused
    /// it.
    #[serde(default)]
    pub mismatches: Vec<ProcessMismatch>,
    /// How late emulated devices delivered.
    pub pacer_lateness: Option<Lateness>,
    /// The configuration in full, without secrets.
    #[serde(default)]
    pub config: toml::Table,
}

/// The status of a gateway.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GatewayProcess {
    /// The version of Concertina that it runs.
    pub version: String,
    /// The version of the protocol between processes.
    pub protocol: String,
    /// The ring's fingerprint, which must be equal in all processes of the cluster.
    pub ring: String,
    /// Replicas of each key.
    pub replicas: u32,
    /// The members of the cluster.
    #[serde(flatten)]
    pub membership: MembershipStatus,
    /// Nodes that are not used because their configuration or version differs.
    #[serde(default)]
    pub mismatches: Vec<NodeMismatch>,
    /// Its counters, and the nodes as it sees them.
    pub gateway: gateway::GatewayStatus,
    /// Its origin.
    pub origin: Option<OriginStatus>,
    /// Requests that can still receive actions; 0 when no request is in progress.
    pub mailboxes: Option<usize>,
    /// The connections of its clients.
    #[serde(flatten)]
    pub connections: Connections,
    /// The configuration in full, without secrets.
    #[serde(default)]
    pub config: toml::Table,
}

/// The status of a proxy of memcached servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProxyProcess {
    /// The version of Concertina that it runs.
    pub version: String,
    /// Where clients connect.
    pub listen: String,
    /// The connections of its clients.
    #[serde(flatten)]
    pub connections: Connections,
    /// Its pools and servers.
    pub memcached: pool::Status,
    /// The configuration in full, without secrets.
    #[serde(default)]
    pub config: toml::Table,
    /// The common configuration of members in etcd.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration: Option<SharedConfiguration>,
}

/// The origin of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginStatus {
    /// Its identity, once it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<OriginId>,
    /// Why nothing is served from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
    /// Why it did not answer when it was last looked at, if it may be the right one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<String>,
    /// Why it takes no writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<String>,
}

/// Who has the bytes of the budget that objects and layers share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryDivision {
    /// The budget.
    pub bytes_max: u64,
    /// The limit of objects in memory.
    pub objects_bytes_max: u64,
    /// Bytes that they hold.
    pub objects_bytes: u64,
    /// The limit of layers.
    pub layers_bytes_max: u64,
    /// Bytes that they hold.
    pub layers_bytes: u64,
    /// Bytes that nobody may hold.
    pub free_bytes: u64,
    /// Bytes that were moved since the start.
    pub moved_bytes: u64,
    /// The move under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moving: Option<Move>,
    /// Seconds of service per second that objects in memory save by their present limit.
    pub objects_saved_s: f64,
    /// Seconds of service per second of retrievals of objects and of shards.
    pub service_s: f64,
}

/// A process whose version or configuration differs from a node's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessMismatch {
    /// The member, or `gateway`.
    pub peer: String,
    /// Description of the difference.
    pub what: String,
    /// Number of requests refused because of it.
    pub times: u64,
    /// Seconds since the last such request.
    pub last_s_ago: f64,
}

/// A node that a gateway does not use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeMismatch {
    /// The node.
    pub name: String,
    /// Description of the difference.
    pub why: String,
}

/// How late emulated devices delivered since the status before, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lateness {
    /// Number of deliveries.
    pub count: u64,
    /// Mean lateness.
    pub mean_us: f64,
    /// 0.99 quantile of the lateness.
    pub p99_us: f64,
    /// Maximum lateness.
    pub max_us: f64,
}

/// A node's place in a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// The node's name.
    pub name: String,
    /// The members.
    #[serde(flatten)]
    pub membership: MembershipStatus,
    /// Replicas of each key.
    pub replicas: usize,
    /// The fingerprint that all processes must share.
    pub ring: String,
    /// The other nodes, as the protocol of writes sees them.
    pub peers: Vec<PeerStatus>,
    /// What it offered to nodes that were new to their keys.
    pub warmed: Option<Warmed>,
}

/// The members of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MembershipStatus {
    /// `static` or `etcd`.
    #[serde(rename = "membership")]
    pub kind: String,
    /// Which view it is.
    pub epoch: u64,
    /// Seconds since etcd last confirmed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirmed_s_ago: Option<f64>,
    /// Why etcd does not confirm it now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The members.
    pub members: Vec<MemberStatus>,
    /// The common configuration of members in etcd.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration: Option<SharedConfiguration>,
}

/// A member of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Its name.
    pub name: String,
    /// Where it listens for gateways and the other nodes.
    pub address: SocketAddr,
    /// Its share of the keys in proportion to the other weights.
    pub weight: f64,
    /// Whether it is a hot node; absent from servers that have none.
    pub hot: Option<bool>,
    /// Fraction of all keys whose primary it is.
    pub share: Option<f64>,
    /// What it does: `in` or `draining`. Text, since a newer server may have further states.
    pub state: String,
    /// Whether it lives.
    pub live: bool,
    /// The members that it does not answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suspected_by: Vec<String>,
}

/// The configuration that the processes of a cluster share through etcd.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SharedConfiguration {
    /// The version that was taken last; 0 for none.
    pub version: u64,
    /// Weights of members by name.
    #[serde(default)]
    pub weights: BTreeMap<String, f64>,
    /// Settings on top of each process's own.
    #[serde(default)]
    pub settings: toml::Table,
    /// Why what etcd holds now is not taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The settings that this process will have from its next start on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at_next_start: Vec<String>,
}

/// The reply of `/cluster/about`: what a node reports of itself to the other processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeReport {
    /// The version of Concertina that it runs.
    pub version: String,
    /// The view that it follows; 0 with static members.
    pub epoch: u64,
    /// What it offered to nodes that were new to their keys; earlier versions report nothing.
    #[serde(default)]
    pub warmed: Option<Warmed>,
    /// The identity of its origin, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<OriginId>,
}

/// One of the reply of `/admin/members`: a member that lives, with its report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberReport {
    /// The member.
    pub name: String,
    /// Its report; absent if it did not answer.
    #[serde(flatten)]
    pub report: Option<NodeReport>,
    /// Why it did not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The reply of `/model`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelReport {
    /// The predictions.
    pub model: State,
    /// Processor time of the live model since the start, seconds.
    pub cost_s: f64,
    /// Intervals that were dropped because the thread fell behind.
    pub dropped: u64,
    /// Bytes of the layers of each shard, by its queue.
    #[serde(default)]
    pub footprints: BTreeMap<String, u64>,
}

/// The reply of `/actions`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Actions {
    /// Whether all changes are held.
    pub held: bool,
    /// The last entries, newest first.
    pub actions: Vec<Entry>,
    /// What is to be known beside: the kill switch's position could not be written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}
