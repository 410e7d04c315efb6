//! What can happen, and to whom.

use model::window::{Nanos, Outcome};

use super::check::Version;
use super::settings::Process;
use crate::node::{Asker, JobId};
use crate::route::View;
use crate::{Etag, Key, Size, gateway, node};

/// Number of a client's request.
pub(super) type RequestNumber = u64;

/// Counts the lives of a process: what was meant for an earlier one does not reach a later.
pub(super) type Life = u32;

#[derive(Clone, Debug)]
pub(super) enum Happening {
    /// A client asks.
    Arrival,
    /// A client's request comes to a gateway.
    Request { gateway: usize, request: RequestNumber },
    /// A client has its answer.
    ClientReply { request: RequestNumber, answer: ClientReply },
    /// A client stops waiting.
    Leave { request: RequestNumber },
    /// Something happens to a node: its own devices and times, and answers to what it asked.
    Node { node: usize, life: Life, event: node::Event<Size> },
    /// It is time to tell a node the time.
    NodeTick { node: usize, life: Life },
    /// Somebody asks a node.
    Call { node: usize, from: Caller, call: Call },
    /// A put of a node's is over: it is in the origin, or failed, or nobody knows.
    PutOver { node: usize, life: Life, request: u64, done: bool },
    /// A write took longer than its client waits, or than the origin may take.
    WriteTimeout { node: usize, life: Life, request: u64 },
    /// What a node streams from the origin is there.
    Streamed { node: usize, life: Life, request: u64, answer: ClientReply },
    /// Something happens to a gateway.
    Gateway { gateway: usize, life: Life, event: gateway::Event, answer: Option<ClientReply> },
    /// A gateway asked to be told the time.
    Wake { gateway: usize, life: Life, at: Nanos },
    /// A read comes to the origin.
    OriginRead { from: Reader, key: Key, check: Option<Etag> },
    /// A put takes effect at the origin, or fails.
    OriginPut { put: Put },
    /// A process is to confirm its membership.
    Renew { process: Process, life: Life },
    /// Its wish comes to the membership, with the time on its clock when it was sent.
    Renewing { process: Process, life: Life, asked: Nanos },
    /// A process is told who is a member; `until` counts only in answer to what it asked.
    Viewed { process: Process, life: Life, view: View, asked: Option<Nanos> },
    /// A member that has not renewed since is taken out.
    Expire { member: usize, renewed: Nanos },
    /// The fault of this index begins.
    Fault(usize),
    /// It ends.
    Mend(usize),
}

impl Happening {
    /// To which process it happens, given how many nodes there are, and in which of its lives.
    pub fn target(&self, nodes: usize) -> Option<(usize, Option<Life>)> {
        match *self {
            Happening::Node { node, life, .. }
            | Happening::NodeTick { node, life }
            | Happening::PutOver { node, life, .. }
            | Happening::WriteTimeout { node, life, .. }
            | Happening::Streamed { node, life, .. } => Some((node, Some(life))),
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

    /// Whether the network may deliver it twice.
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

/// Who asks a node, and how the answer finds it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Caller {
    Client { request: RequestNumber },
    Gateway { gateway: usize, life: Life, attempt: gateway::AttemptId },
    Ping { gateway: usize, life: Life },
    Peer { node: usize, life: Life, job: JobId },
    Lease { node: usize, life: Life, asked: Nanos },
    Invalidation { node: usize, life: Life, request: u64 },
    Offer,
}

/// What a node is asked.
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
        /// The node's life that it was sent to: a connection does not outlive the process.
        life: Life,
        /// When its client stops waiting: from then on it is not begun. In the process the gateway
        /// says so on the node's clock.
        until: Nanos,
    },
    Ping,
    Lease,
    Invalidate {
        key: Key,
    },
    Offer {
        key: Key,
    },
}

/// A client's write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    pub version: Version,
    /// Bytes to be put; `None`: a deletion.
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
    /// How often it may be sent again if its answer is lost.
    pub retries: u8,
}

/// Who reads from the origin.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reader {
    Fetch { node: usize, life: Life, job: JobId },
    Stream { node: usize, life: Life, request: u64 },
    Gateway { gateway: usize, life: Life, attempt: gateway::AttemptId },
}

/// What a client is answered.
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
    /// Refused: nothing was done.
    Busy,
    Failed,
}

impl ClientReply {
    pub const BUSY: ClientReply =
        ClientReply { kind: ReplyKind::Busy, outcome: Outcome::Error, bytes: 0 };
    pub const FAILED: ClientReply =
        ClientReply { kind: ReplyKind::Failed, outcome: Outcome::Error, bytes: 0 };
}

/// The version of a key as the simulation's origin names it.
pub(super) fn etag(key: u32, version: Version) -> Etag {
    format!("{key:x}.{version:x}").into()
}

/// The key and version of a name.
pub(super) fn parse_etag(etag: &str) -> Option<(u32, Version)> {
    let (key, version) = etag.split_once('.')?;
    Some((u32::from_str_radix(key, 16).ok()?, Version::from_str_radix(version, 16).ok()?))
}

/// The name of a key by its number: as the load generator calls it, so that the ring puts it where
/// it would lie in a measurement.
pub(super) fn key_name(key: u32) -> Key {
    format!("k{key}").into_bytes().into()
}

/// The number of a key by its name.
pub(super) fn key_number(key: &Key) -> u32 {
    let digits = key.get(1..).unwrap_or_default();
    digits.iter().fold(0, |number, digit| number * 10 + u32::from(digit - b'0'))
}
