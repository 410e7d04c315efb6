//! What a gateway is told and what it decides.
//!
//! The engine sees heads of answers only: bodies pass from the node's connection to the client's in the
//! driver. A request causes *attempts*, one at a time or, when hedged, two; one of them is chosen to be
//! the answer ([`Action::Relay`]), the others are cancelled.

use model::window::{Nanos, Outcome};
use serde::{Deserialize, Serialize};

use crate::Key;
use crate::route::{NodeId, View};

/// Names a client's request; chosen by the driver, never used twice.
pub type RequestId = u64;

/// Names a try to have a request answered; chosen by the gateway, never used twice.
pub type AttemptId = u64;

/// What a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// Read: any of the key's nodes, then the origin; tried again as long as the deadline allows.
    Read,
    /// Write: the key's primary alone; not tried again once a byte may have been taken, unless the node
    /// said that it did nothing.
    Write,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// A client asks.
    Request {
        /// Its name.
        request: RequestId,
        /// Of which key.
        key: Key,
        /// What it wants.
        operation: Operation,
        /// When it stops waiting.
        deadline: Nanos,
    },
    /// The head of an answer came (or, where the driver gathers small answers before it tells, all of it).
    Answered {
        /// Of which attempt.
        attempt: AttemptId,
        /// What it said.
        head: Head,
    },
    /// An attempt has no answer and will have none.
    Failed {
        /// Which.
        attempt: AttemptId,
        /// Why.
        why: Failed,
    },
    /// The client of a request left, or the answer that was relayed is over: whole (`Ok`) or broken off.
    Over {
        /// Which.
        request: RequestId,
    },
    /// A node answered [`Action::Ping`].
    Ponged {
        /// Who.
        node: NodeId,
        /// Requests that wait in its queues.
        node_length: u32,
        /// Whether its configuration and version are this gateway's; if not, nothing is sent to it.
        fits: bool,
    },
    /// A node did not answer [`Action::Ping`] in time.
    PingFailed {
        /// Who.
        node: NodeId,
    },
    /// The membership changed, or was confirmed.
    View(View),
    /// Time has passed. Tell it at the time of the gateway's next wake, or a little later.
    Tick,
}

/// The head of an answer, as far as decisions need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// What it is.
    pub status: Status,
    /// Who had it.
    pub outcome: Outcome,
    /// Requests that wait in the node's queues, as the reply says.
    pub node_length: u32,
    /// Which of the key's nodes have the object too : bit `i` for the node at place `i` of [`crate::route::Replicas`].
    pub warm: u8,
}

/// What an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// An answer for the client: an object, "no such key", or an error that is the client's own.
    Final,
    /// The node is too busy, or stops: nothing was done, another may be tried.
    Busy,
    /// The node could not reach the origin.
    Unavailable,
    /// The node says that the key, or its order of writes, is not its own: nothing was done.
    Misdirected,
}

/// Why an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failed {
    /// No connection: nothing was done.
    Connect,
    /// The connection broke, or what came was no answer. A write may have happened.
    Broken,
}

/// Something that the driver is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Send the request to a node; tell [`Event::Answered`] or [`Event::Failed`].
    Send {
        /// For which request.
        request: RequestId,
        /// Its name.
        attempt: AttemptId,
        /// Where.
        node: NodeId,
        /// A node that was tried and that this one should not ask.
        avoid: Option<NodeId>,
        /// When nobody waits any more: the node is told what is left.
        deadline: Nanos,
    },
    /// Get it from the origin itself; tell [`Event::Answered`] or [`Event::Failed`]. Reads only.
    Origin {
        /// For which request.
        request: RequestId,
        /// Its name.
        attempt: AttemptId,
    },
    /// This attempt's answer is the request's: relay it. Tell [`Event::Over`] when it is relayed. If it
    /// breaks off, the driver asks for the rest by a new request.
    Relay {
        /// The request.
        request: RequestId,
        /// The answer.
        attempt: AttemptId,
    },
    /// Drop an attempt: its answer is not wanted any more.
    Cancel {
        /// Which.
        attempt: AttemptId,
    },
    /// Refuse the request.
    Refuse {
        /// Which.
        request: RequestId,
        /// Why.
        why: Refusal,
    },
    /// Ask a node whether it is well, and what configuration it has; tell [`Event::Ponged`] or, after
    /// the ping timeout, [`Event::PingFailed`].
    Ping {
        /// Whom.
        node: NodeId,
    },
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The gateway has as many requests under way as it may have, or all of the key's nodes are busy:
    /// 503 at once.
    Busy,
    /// The deadline passed: 504.
    TooLate,
    /// The node that orders the key's writes cannot be reached: 503.
    NoPrimary,
    /// Neither a node nor the origin could answer: 503.
    Unavailable,
    /// A write was sent and its answer never came: 504; it may have happened.
    Unknown,
}
