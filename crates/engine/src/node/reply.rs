//! What a node answers a request, and when each of its stages ended.

use ground::window::{Nanos, Outcome};
use serde::{Deserialize, Serialize};

use super::failure::Failure;
use crate::{Payload, Size};

/// A reply to a client or a peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply<P> {
    /// The object.
    Found {
        /// The object.
        payload: P,
        /// Where it came from.
        outcome: Outcome,
        /// Time since it was last compared with the origin, for a peer.
        age: Nanos,
        /// Which of the key's nodes have it too, as far as its primary knows: bit `i` for the node
        /// at place `i` of [`crate::route::Ring::replicas`].
        warm: u8,
    },
    /// The object's bytes follow as they are read. When the last has been read, or a piece could not
    /// be, a second reply to the request follows, which tells only that.
    Opened {
        /// The object, in the form that [`Event::Read`](super::Event::Read) brought.
        payload: P,
        /// Where it comes from.
        outcome: Outcome,
    },
    /// The object is too large to be kept: the driver streams it from the origin to the client.
    Stream,
    /// It does not exist.
    NotFound,
    /// A queue is full: the client may try again later.
    Busy {
        /// The queue.
        queue: String,
    },
    /// The origin is needed and does not answer.
    Unavailable(Failure),
    /// To a peer: the object is not in the tiers, or may not be served.
    NotHere,
    /// The key does not belong to this node: its configuration and the sender's differ.
    NotMine,
    /// This node is not the key's primary now.
    NotPrimary,
    /// The deadline passed before its service began.
    TooLate,
}

/// The times of a request's stages, on the node's clock.
///
/// Waiting is `started − queued`, service `served − started`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stages {
    /// It came to the node.
    pub received: Nanos,
    /// It entered the queue that served it.
    pub queued: Nanos,
    /// Its service began.
    pub started: Nanos,
    /// Its service ended.
    pub served: Nanos,
    /// Length of that queue (waiting and in service) when it came.
    pub length_met: u32,
    /// Length of that queue now: what the reply tells the gateway.
    pub length_left: u32,
    /// Requests that wait in any queue of the node now.
    pub node_length: u32,
}

impl Stages {
    /// The stages of a request answered on arrival; `node_length` requests wait in the node.
    pub(super) fn at_once(now: Nanos, node_length: u32) -> Stages {
        Stages {
            received: now,
            queued: now,
            started: now,
            served: now,
            length_met: 0,
            length_left: 0,
            node_length,
        }
    }
}

impl<P: Payload> Reply<P> {
    pub(super) fn sizes(&self) -> Reply<Size> {
        match self.clone() {
            Reply::Found { payload, outcome, age, warm } => {
                Reply::Found { payload: Size::from_payload(&payload), outcome, age, warm }
            }
            Reply::Opened { payload, outcome } => {
                Reply::Opened { payload: Size::from_payload(&payload), outcome }
            }
            Reply::Stream => Reply::Stream,
            Reply::NotFound => Reply::NotFound,
            Reply::Busy { queue } => Reply::Busy { queue },
            Reply::Unavailable(failure) => Reply::Unavailable(failure),
            Reply::NotHere => Reply::NotHere,
            Reply::NotMine => Reply::NotMine,
            Reply::NotPrimary => Reply::NotPrimary,
            Reply::TooLate => Reply::TooLate,
        }
    }
}

/// A read that memory answered at once ([`super::Node::hit`]).
#[derive(Clone, Debug, PartialEq)]
pub struct Hit<P> {
    /// The object.
    pub payload: P,
    /// The key's nodes known to have the object, as bits of their places.
    pub warm: u8,
    /// Retrievals under way in the node, each with its readers.
    pub length: u32,
}
