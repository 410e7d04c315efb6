//! A gateway's events (what its driver tells it) and actions (what it tells its driver to do).
//!
//! The engine sees only the heads of replies: the driver passes bodies from the node's connection
//! to the client's. A request causes *attempts*, one at a time or, when hedged, two. The reply to
//! one of them is relayed to the client ([`Action::Relay`]); the others are cancelled.

use std::sync::Arc;

use ground::window::{Nanos, Outcome};
use serde::{Deserialize, Serialize};

use crate::act::concurrency::Order;
use crate::node::HotDirectory;
use crate::route::{LoadReport, NodeId, View};
use ground::Key;

/// Names a client's request; chosen by the driver, never used twice.
pub type RequestId = u64;

/// Names an attempt to serve a request; chosen by the gateway, never used twice.
pub type AttemptId = u64;

/// The operation that a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// Read: sent to any of the key's nodes, then to the origin, again and again until the
    /// deadline.
    Read,
    /// Write: sent to the key's primary alone, and sent again only if the node certainly did
    /// nothing.
    Write,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// A client's request.
    Request {
        /// The attempt.
        request: RequestId,
        /// The key.
        key: Key,
        /// The operation.
        operation: Operation,
        /// When the client stops waiting.
        deadline: Nanos,
    },
    /// The head of a reply arrived (or all of it, where the driver gathers small replies first).
    Answered {
        /// The attempt.
        attempt: AttemptId,
        /// The head.
        head: Head,
    },
    /// An attempt ended without a reply.
    Failed {
        /// The attempt.
        attempt: AttemptId,
        /// The reason.
        why: Failed,
    },
    /// The client of a request left, or the relayed reply ended, complete or not.
    Over {
        /// The request.
        request: RequestId,
    },
    /// A node answered [`Action::Ping`].
    Ponged {
        /// The node.
        node: NodeId,
        /// What it reports of its load.
        load: LoadReport,
        /// Whether its configuration and version equal this gateway's; if not, nothing is sent to
        /// it.
        fits: bool,
    },
    /// A node did not answer [`Action::Ping`] in time.
    PingFailed {
        /// The node.
        node: NodeId,
    },
    /// A node told which of its keys hot nodes hold copies of, because its directory's version is not
    /// [`super::Gateway::hot_version`].
    HotKeys {
        /// The node.
        node: NodeId,
        /// Its directory.
        directory: Arc<HotDirectory>,
    },
    /// The nodes that hold further copies of keys, beside the keys' own ([`crate::act::replicas`]): hashes of keys with
    /// nodes, in place of what was told before.
    Extras(Arc<Vec<(u64, Vec<NodeId>)>>),
    /// The membership changed, or was confirmed.
    View(View),
    /// An order for the bound of requests that the gateway finds by itself; nothing without one.
    Concurrency(Order),
    /// Time has passed. Sent at the time of [`super::Gateway::next_wake`] or a little later.
    Tick,
}

/// The part of a reply's head that decisions need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The kind of reply.
    pub status: Status,
    /// Where the object came from.
    pub outcome: Outcome,
    /// Requests that wait in the node's queues, as the reply says.
    pub node_length: u32,
    /// The key's nodes that have the object too: bit `i` for the node at place `i` of
    /// [`crate::route::Replicas`].
    pub warm: u8,
}

/// The kind of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// A reply for the client: an object, "no such key", or an error that the client caused.
    Final,
    /// The node is too busy, or is stopping: nothing was done, another node may be tried.
    Busy,
    /// The node could not reach the origin.
    Unavailable,
    /// The node does not hold the key or does not order its writes: nothing was done.
    Misdirected,
}

/// Why an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failed {
    /// No connection: nothing was done.
    Connect,
    /// The connection broke, or the reply was malformed. A write may have happened.
    Broken,
}

/// An operation for the driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Send the request to a node. Ends with [`Event::Answered`] or [`Event::Failed`].
    Send {
        /// The request.
        request: RequestId,
        /// The attempt.
        attempt: AttemptId,
        /// The node.
        node: NodeId,
        /// A node that failed before and that this node should skip too.
        avoid: Option<NodeId>,
        /// When the client stops waiting: the driver sends the node the time left.
        deadline: Nanos,
        /// The epoch of the view that the node was chosen by, for [`crate::node::Event::WriteBegin`].
        epoch: u64,
    },
    /// Read the object from the origin. Ends with [`Event::Answered`] or [`Event::Failed`].
    Origin {
        /// The request.
        request: RequestId,
        /// The attempt.
        attempt: AttemptId,
    },
    /// Relay this attempt's reply to the client, then send [`Event::Over`]. If the reply breaks
    /// off, the driver reads the rest by a new request.
    Relay {
        /// The request.
        request: RequestId,
        /// The attempt whose reply is relayed.
        attempt: AttemptId,
    },
    /// Cancel an attempt: its reply is not needed any more.
    Cancel {
        /// The attempt.
        attempt: AttemptId,
    },
    /// Refuse the request.
    Refuse {
        /// The request.
        request: RequestId,
        /// The reason.
        why: Refusal,
    },
    /// Ping a node, for its health and its configuration. Ends with [`Event::Ponged`] or, after the
    /// ping timeout, [`Event::PingFailed`].
    Ping {
        /// The node.
        node: NodeId,
    },
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The gateway has as many requests under way as it may have, or all of the key's nodes are
    /// busy: 503 at once.
    Busy,
    /// The deadline passed: 504.
    TooLate,
    /// The key's primary cannot be reached, and has not been for a while: 503.
    NoPrimary,
    /// Neither a node nor the origin could answer: 503.
    Unavailable,
    /// A write was sent and no reply came: 504. The write may have happened.
    Unknown,
}
