//! What a node is told and what it decides.

use model::window::{Nanos, Outcome};
use serde::{Deserialize, Serialize};

use crate::route::{NodeId, View};
use crate::tier::Location;
use crate::{Etag, Key, Payload, Size};

/// Names a request; chosen by the driver, never used twice.
pub type RequestId = u64;

/// Names a piece of work that the node asked for; chosen by the node, never used twice.
pub type JobId = u64;

/// Index of a device in the node's settings.
pub type DeviceId = usize;

/// Who asks for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Asker {
    /// A client, perhaps through a gateway.
    Client {
        /// A node that the gateway could not get it from: it is not asked again.
        avoid: Option<NodeId>,
    },
    /// Another node that fills its tiers: it is answered from the tiers alone.
    Peer,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event<P> {
    /// Somebody wants an object.
    Get {
        /// The request.
        request: RequestId,
        /// What for.
        key: Key,
        /// Who asks.
        asker: Asker,
        /// When nobody waits for the answer any more.
        deadline: Option<Nanos>,
    },
    /// A client wants to write or delete an object, and waits for its turn in the key's order.
    WriteBegin {
        /// Who asks.
        request: RequestId,
        /// Which key.
        key: Key,
    },
    /// A write is over at the origin, with whatever result, or its client left while it waited. From here
    /// on no read of this node returns the older version; [`Action::WriteDone`] says when no read of any
    /// node does, which is when the client may be told.
    WriteEnd {
        /// Who wrote.
        request: RequestId,
        /// Which key.
        key: Key,
        /// The new object, if the origin has it for certain and it is small enough to be kept.
        payload: Option<P>,
    },
    /// A device's read ended. The time of this event is its completion, which is the start of the next
    /// read on that device, however late the driver learnt of it.
    Read {
        /// The job of [`Action::Read`].
        job: JobId,
        /// The object, or that it could not be read or was not what it should be.
        result: Result<P, Failure>,
    },
    /// A device's write ended.
    Appended {
        /// The job of [`Action::Append`].
        job: JobId,
        /// Whether the record is there to be read.
        written: bool,
    },
    /// The origin answered [`Action::Fetch`].
    Fetched {
        /// The job.
        job: JobId,
        /// The answer.
        result: Fetched<P>,
    },
    /// The origin answered [`Action::Check`].
    Checked {
        /// The job.
        job: JobId,
        /// The answer.
        result: Checked,
    },
    /// A peer answered [`Action::Ask`], or did not.
    Answered {
        /// The job.
        job: JobId,
        /// The answer.
        result: Answered<P>,
    },
    /// A peer asks for a lease on the keys of which this node is the primary. Answered by
    /// [`Action::Grant`] at once, or not at all.
    LeaseAsked {
        /// Who.
        peer: NodeId,
    },
    /// A peer granted the lease that [`Action::AskLease`] asked for.
    LeaseGranted {
        /// Who.
        peer: NodeId,
        /// When it was asked, on this node's clock: the lease counts from there.
        asked: Nanos,
        /// For how long.
        term: Nanos,
    },
    /// A peer that orders a key's writes says that a write to it ended. When this event has been handled
    /// the driver tells the peer so: no read of this node returns the older version any more.
    Invalidate {
        /// Which key.
        key: Key,
    },
    /// A peer has carried out [`Action::Invalidate`], or it is not known whether it has.
    Invalidated {
        /// Of which write.
        request: RequestId,
        /// Who.
        peer: NodeId,
        /// Whether it said so.
        done: bool,
    },
    /// A key's primary has what a second reader asked for: this node may fetch it, to be warm before it
    /// is needed.
    Offered {
        /// Which key.
        key: Key,
    },
    /// The membership changed, or was confirmed.
    View(View),
    /// Time has passed: tell it at least every [`super::ClusterSettings::tick`].
    Tick,
}

/// What a peer says to [`Action::Ask`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answered<P> {
    /// It has it.
    Found {
        /// The object.
        payload: P,
        /// How long ago it was compared with the origin.
        age: Nanos,
    },
    /// It has it not, or may not say.
    NotHere,
    /// It did not answer.
    Failed(Failure),
}

/// Why a device or the origin could not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// In words, for logs and for the answer to the client.
    pub reason: String,
}

/// What the origin says to a fetch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Fetched<P> {
    /// The object.
    Found(P),
    /// It exists, and is larger than what a node keeps: stream it past the node.
    TooLarge,
    /// It does not exist.
    NotFound,
    /// The origin failed or took too long.
    Unavailable(Failure),
}

/// What the origin says to the question whether a version is still the current one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Checked {
    /// It is.
    Current,
    /// It is not, or the key is gone.
    Changed,
    /// The origin failed or took too long.
    Unavailable(Failure),
}

/// Something that the driver is to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Action<P> {
    /// Answer a [`Event::Get`], or refuse a [`Event::WriteBegin`].
    Reply {
        /// To whom.
        request: RequestId,
        /// What.
        reply: Reply<P>,
        /// When what happened to it.
        stages: Stages,
    },
    /// The turn of a write has come: write to the origin, then tell [`Event::WriteEnd`].
    WriteTurn {
        /// Whose turn.
        request: RequestId,
    },
    /// No node returns a version older than this write's: its client may be told what became of it.
    WriteDone {
        /// Whose.
        request: RequestId,
        /// Whether it may be acknowledged. If not, this node has lost its place in the membership
        /// meanwhile, and it is not known whether the write will last.
        certain: bool,
    },
    /// Read a record, then tell [`Event::Read`].
    Read {
        /// From which device.
        device: DeviceId,
        /// Where.
        location: Location,
        /// Which key the record must have; anything else there is a failure.
        key: Key,
        /// Its name.
        job: JobId,
        /// When its service began.
        start: Nanos,
    },
    /// Write a record, then tell [`Event::Appended`]. Records of a segment are written at ascending
    /// offsets.
    Append {
        /// To which device.
        device: DeviceId,
        /// Where.
        location: Location,
        /// Its key.
        key: Key,
        /// The object.
        payload: P,
        /// Its name.
        job: JobId,
    },
    /// No record will be added to this segment: write its index.
    SealSegment {
        /// Of which device.
        device: DeviceId,
        /// Which.
        segment: u64,
    },
    /// Remove a segment. Reads of it that began may still end.
    DropSegment {
        /// Of which device.
        device: DeviceId,
        /// Which.
        segment: u64,
    },
    /// Get an object from the origin, then tell [`Event::Fetched`].
    Fetch {
        /// Which.
        key: Key,
        /// Its name.
        job: JobId,
    },
    /// Ask the origin whether a version is still current, then tell [`Event::Checked`].
    Check {
        /// Of which key.
        key: Key,
        /// Which version.
        etag: Etag,
        /// Its name.
        job: JobId,
    },
    /// Get an object from a peer's tiers ([`Asker::Peer`] there), then tell [`Event::Answered`].
    Ask {
        /// Whom.
        peer: NodeId,
        /// For which object.
        key: Key,
        /// Its name.
        job: JobId,
    },
    /// Ask a peer for a lease ([`Event::LeaseAsked`] there); if it grants one, tell
    /// [`Event::LeaseGranted`].
    AskLease {
        /// Whom.
        peer: NodeId,
        /// The time now, to be told back.
        asked: Nanos,
    },
    /// The answer to [`Event::LeaseAsked`].
    Grant {
        /// To whom.
        peer: NodeId,
        /// For how long.
        term: Nanos,
    },
    /// Tell a peer [`Event::Invalidate`], then [`Event::Invalidated`] here.
    Invalidate {
        /// Whom.
        peer: NodeId,
        /// Of which key.
        key: Key,
        /// For which write.
        request: RequestId,
    },
    /// Tell a peer [`Event::Offered`]; whether it hears does not matter.
    Offer {
        /// Whom.
        peer: NodeId,
        /// Which key.
        key: Key,
    },
}

/// An answer to a client or a peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply<P> {
    /// The object.
    Found {
        /// The object.
        payload: P,
        /// Who had it.
        outcome: Outcome,
        /// How long ago it was compared with the origin, for a peer.
        age: Nanos,
        /// Which of the key's nodes have it too, as far as its primary knows: bit `i` for the node at
        /// place `i` of [`crate::route::Ring::replicas`].
        warm: u8,
    },
    /// It is too large to be kept: the driver streams it from the origin to this client.
    Stream,
    /// It does not exist.
    NotFound,
    /// A queue is full: try again later.
    Busy {
        /// Which queue.
        queue: String,
    },
    /// The origin is needed and cannot be had.
    Unavailable(Failure),
    /// To a peer: it is not in the tiers, or may not be given.
    NotHere,
    /// The key does not belong to this node: its configuration and the asker's differ.
    NotMine,
    /// This node does not order the key's writes now.
    NotPrimary,
    /// The deadline passed before its service began.
    TooLate,
}

/// When what happened to a request, on the node's clock.
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
    /// Of a request that was answered when it came, with so many waiting in the node.
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

impl<P: Payload> Event<P> {
    /// The event with sizes in place of bytes, for a log.
    pub fn sizes(&self) -> Event<Size> {
        self.map(Size::of)
    }

    /// The event with another payload.
    pub fn map<Q>(&self, mut to: impl FnMut(&P) -> Q) -> Event<Q> {
        match self.clone() {
            Event::Get { request, key, asker, deadline } => {
                Event::Get { request, key, asker, deadline }
            }
            Event::WriteBegin { request, key } => Event::WriteBegin { request, key },
            Event::WriteEnd { request, key, payload } => {
                Event::WriteEnd { request, key, payload: payload.as_ref().map(to) }
            }
            Event::Read { job, result } => {
                Event::Read { job, result: result.map(|payload| to(&payload)) }
            }
            Event::Appended { job, written } => Event::Appended { job, written },
            Event::Fetched { job, result } => {
                let result = match result {
                    Fetched::Found(payload) => Fetched::Found(to(&payload)),
                    Fetched::TooLarge => Fetched::TooLarge,
                    Fetched::NotFound => Fetched::NotFound,
                    Fetched::Unavailable(failure) => Fetched::Unavailable(failure),
                };
                Event::Fetched { job, result }
            }
            Event::Checked { job, result } => Event::Checked { job, result },
            Event::Answered { job, result } => {
                let result = match result {
                    Answered::Found { payload, age } => {
                        Answered::Found { payload: to(&payload), age }
                    }
                    Answered::NotHere => Answered::NotHere,
                    Answered::Failed(failure) => Answered::Failed(failure),
                };
                Event::Answered { job, result }
            }
            Event::LeaseAsked { peer } => Event::LeaseAsked { peer },
            Event::LeaseGranted { peer, asked, term } => Event::LeaseGranted { peer, asked, term },
            Event::Invalidate { key } => Event::Invalidate { key },
            Event::Invalidated { request, peer, done } => {
                Event::Invalidated { request, peer, done }
            }
            Event::Offered { key } => Event::Offered { key },
            Event::View(view) => Event::View(view),
            Event::Tick => Event::Tick,
        }
    }
}

impl<P: Payload> Action<P> {
    /// The action with sizes in place of bytes, for a log.
    pub fn sizes(&self) -> Action<Size> {
        match self.clone() {
            Action::Reply { request, reply, stages } => {
                Action::Reply { request, reply: reply.sizes(), stages }
            }
            Action::Append { device, location, key, payload, job } => {
                let payload = Size::of(&payload);
                Action::Append { device, location, key, payload, job }
            }
            Action::WriteTurn { request } => Action::WriteTurn { request },
            Action::WriteDone { request, certain } => Action::WriteDone { request, certain },
            Action::Read { device, location, key, job, start } => {
                Action::Read { device, location, key, job, start }
            }
            Action::SealSegment { device, segment } => Action::SealSegment { device, segment },
            Action::DropSegment { device, segment } => Action::DropSegment { device, segment },
            Action::Fetch { key, job } => Action::Fetch { key, job },
            Action::Check { key, etag, job } => Action::Check { key, etag, job },
            Action::Ask { peer, key, job } => Action::Ask { peer, key, job },
            Action::AskLease { peer, asked } => Action::AskLease { peer, asked },
            Action::Grant { peer, term } => Action::Grant { peer, term },
            Action::Invalidate { peer, key, request } => Action::Invalidate { peer, key, request },
            Action::Offer { peer, key } => Action::Offer { peer, key },
        }
    }
}

impl<P: Payload> Reply<P> {
    fn sizes(&self) -> Reply<Size> {
        match self.clone() {
            Reply::Found { payload, outcome, age, warm } => {
                Reply::Found { payload: Size::of(&payload), outcome, age, warm }
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
