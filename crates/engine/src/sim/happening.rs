//! The events of the simulation and their targets.

use ground::window::{Nanos, Outcome};

use super::check::Version;
use super::settings::Process;
use crate::node::{Asker, JobId, ReadsTold};
use crate::route::View;
use crate::{Size, gateway, node};
use ground::{Etag, Key};

/// Number of a client's request.
pub(super) type RequestNumber = u64;

/// Number of a process's life, counted from its starts: an event for an earlier life does not reach
/// a later one.
pub(super) type Life = u32;

#[derive(Clone, Debug)]
pub(super) enum Happening {
    /// A client sends a request.
    Arrival,
    /// A client's request arrives at a gateway.
    Request { gateway: usize, request: RequestNumber },
    /// A reply arrives at its client.
    ClientReply { request: RequestNumber, answer: ClientReply },
    /// A client stops waiting.
    Leave { request: RequestNumber },
    /// An event of a node: from its own devices and timers, or a reply to one of its requests.
    Node { node: usize, life: Life, event: node::Event<Size> },
    /// A node's tick is due.
    NodeTick { node: usize, life: Life },
    /// Requests of one node for leases, which it sent at once, arrive at its peers.
    LeasesAsked { leases: LeaseRequests },
    /// The leases that those granted arrive at the node, each with its term.
    LeasesGranted { leases: LeaseRequests, grants: Vec<(Process, Nanos)> },
    /// A call arrives at a node.
    Call { node: usize, from: Caller, call: Call },
    /// A node's put ended: it is in the origin, it failed, or its outcome is unknown.
    PutOver { node: usize, life: Life, request: u64, done: bool },
    /// A write took longer than its client waits, or than the origin's timeout.
    WriteTimeout { node: usize, life: Life, request: u64 },
    /// An object that a node streams from the origin has arrived.
    Streamed { node: usize, life: Life, request: u64, answer: ClientReply },
    /// An event of a gateway.
    Gateway { gateway: usize, life: Life, event: gateway::Event, answer: Option<ClientReply> },
    /// A gateway's requested wake-up is due.
    Wake { gateway: usize, life: Life, at: Nanos },
    /// A read arrives at the origin.
    OriginRead { from: Reader, key: Key, check: bool },
    /// A put takes effect at the origin, or fails.
    OriginPut { put: Put },
    /// The look before a conditional put arrives at the origin.
    OriginLook { put: Put, extra: Nanos },
    /// What a look found arrives at the writer, which sends the put.
    Looked { put: Put, extra: Nanos },
    /// A process's renewal of its membership is due.
    Renew { process: Process, life: Life },
    /// A renewal arrives at the membership service, with the time at which it was sent, on the
    /// sender's clock.
    Renewing { process: Process, life: Life, asked: Nanos },
    /// A view of the members arrives at a process; `until` counts only in a reply to its own
    /// renewal.
    Viewed { process: Process, life: Life, view: View, asked: Option<Nanos> },
    /// The membership service hears that a member has handed over and stops.
    Leaving { member: usize, life: Life },
    /// A process that stops in order ends, by the fault of this index.
    Stopped { process: usize, life: Life, fault: usize },
    /// A member that has not renewed since is removed.
    Expire { member: usize, renewed: Nanos },
    /// The fault of this index begins.
    Fault(usize),
    /// The fault of this index ends.
    Mend(usize),
}

impl Happening {
    /// The process that the event is for, given the number of nodes, and in which of its lives.
    pub fn target(&self, nodes: usize) -> Option<(usize, Option<Life>)> {
        match *self {
            Happening::Node { node, life, .. }
            | Happening::NodeTick { node, life }
            | Happening::PutOver { node, life, .. }
            | Happening::WriteTimeout { node, life, .. }
            | Happening::Streamed { node, life, .. } => Some((node, Some(life))),
            Happening::Stopped { process, life, .. } => Some((process, Some(life))),
            Happening::Looked { put, .. } => Some((put.node, Some(put.life))),
            Happening::Call { node, .. } => Some((node, None)),
            Happening::Gateway { gateway, life, .. } | Happening::Wake { gateway, life, .. } => {
                Some((nodes + gateway, Some(life)))
            }
            Happening::Request { gateway, .. } => Some((nodes + gateway, None)),
            Happening::Renew { process, life } | Happening::Viewed { process, life, .. } => {
                Some((usize::from(process), Some(life)))
            }
            _ => None,
        }
    }

    /// Whether the network may deliver the event twice.
    pub fn may_repeat(&self) -> bool {
        match self {
            Happening::Call { call, .. } => !matches!(call, Call::Write { .. }),
            Happening::Node { .. }
            | Happening::Gateway { .. }
            | Happening::Viewed { .. }
            | Happening::ClientReply { .. } => true,
            _ => false,
        }
    }
}

/// Requests for leases that a node sends at once.
#[derive(Clone, Debug)]
pub(super) struct LeaseRequests {
    pub node: usize,
    pub life: Life,
    pub asked: Nanos,
    pub epoch: u64,
    /// Those asked; empty on the way back.
    pub peers: Vec<Process>,
}

/// The sender of a call to a node, and where its reply goes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Caller {
    Client { request: RequestNumber },
    Gateway { gateway: usize, life: Life, attempt: gateway::AttemptId },
    Ping { gateway: usize, life: Life },
    Peer { node: usize, life: Life, job: JobId },
    Lease { node: usize, life: Life, asked: Nanos, epoch: u64 },
    Invalidation { node: usize, life: Life, request: u64 },
    TakeBack { node: usize, life: Life },
    Offer,
}

/// A call to a node.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Get {
        key: Key,
        asker: Asker,
        wait: Option<Nanos>,
    },
    Write {
        key: Key,
        write: Written,
        /// The node's life to which the call was sent: a connection does not outlive the process.
        life: Life,
        /// The epoch of the view of the gateway that sent it.
        epoch: Option<u64>,
        /// When the client stops waiting; a write that arrives later is not started. In the real
        /// process the gateway sends the time left, which the node adds to its own clock.
        until: Nanos,
    },
    Ping {
        /// The version of the node's directory of hot keys that the gateway has.
        hot_version: u64,
    },
    Lease,
    Return,
    Invalidate {
        key: Key,
    },
    Offer {
        key: Key,
    },
    Reads {
        peer: usize,
        told: ReadsTold,
    },
}

/// A client's write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    pub version: Version,
    /// Bytes to put; `None` for a deletion.
    pub bytes: Option<u64>,
}

/// A put on its way to the origin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Put {
    pub node: usize,
    pub life: Life,
    pub request: u64,
    pub key: u32,
    pub write: Written,
    /// How often the put may be sent again if its reply is lost.
    pub retries: u8,
    /// What the store must hold for the put to take effect.
    pub condition: Condition,
    /// Whether it may be at the origin already.
    pub sent: bool,
}

/// What the store must hold for a put to take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// Anything.
    None,
    /// This version, as read before; `None` for no object.
    Is(Option<Version>),
}

/// The process that reads from the origin.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reader {
    Fetch { node: usize, life: Life, job: JobId },
    Stream { node: usize, life: Life, request: u64 },
    Gateway { gateway: usize, life: Life, attempt: gateway::AttemptId },
}

/// A reply to a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientReply {
    pub kind: ReplyKind,
    pub outcome: Outcome,
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ReplyKind {
    Found {
        key: u32,
        version: Version,
    },
    NotFound,
    /// The write is acknowledged.
    Written,
    /// The request was refused; nothing was done.
    Busy,
    Failed,
}

impl ClientReply {
    pub const BUSY: ClientReply =
        ClientReply { kind: ReplyKind::Busy, outcome: Outcome::Error, bytes: 0 };
    pub const FAILED: ClientReply =
        ClientReply { kind: ReplyKind::Failed, outcome: Outcome::Error, bytes: 0 };
}

/// The etag of a version of a key in the simulated origin.
pub(super) fn etag(key: u32, version: Version) -> Etag {
    format!("{key:x}.{version:x}").into()
}

/// The key and version of an etag.
pub(super) fn parse_etag(etag: &str) -> Option<(u32, Version)> {
    let (key, version) = etag.split_once('.')?;
    Some((u32::from_str_radix(key, 16).ok()?, Version::from_str_radix(version, 16).ok()?))
}

/// The name of a key by its number, the same as in the load generator, so that the ring places it
/// where it would be in a measurement.
pub(super) fn key_name(key: u32) -> Key {
    format!("k{key}").into_bytes().into()
}

/// The number of a key by its name.
pub(super) fn key_number(key: &Key) -> u32 {
    let digits = key.get(1..).unwrap_or_default();
    digits.iter().fold(0, |number, digit| number * 10 + u32::from(digit - b'0'))
}
