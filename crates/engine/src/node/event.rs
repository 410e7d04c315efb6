//! What a node is told and what it decides.

use model::window::{Nanos, Outcome};
use serde::{Deserialize, Serialize};

use crate::tier::Location;
use crate::{Etag, Key, Payload, Size};

/// Names a request; chosen by the driver, never used twice.
pub type RequestId = u64;

/// Names a piece of work that the node asked for; chosen by the node, never used twice.
pub type JobId = u64;

/// Index of a device in the node's settings.
pub type DeviceId = usize;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event<P> {
    /// A client wants an object.
    Get {
        /// Who asks.
        request: RequestId,
        /// What for.
        key: Key,
    },
    /// A client wants to write or delete an object, and waits for its turn in the key's order.
    WriteBegin {
        /// Who asks.
        request: RequestId,
        /// Which key.
        key: Key,
    },
    /// A write is over, with whatever result, or its client left while it waited. Told before the client
    /// is answered: from here on no read returns the older version.
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
}

/// An answer to a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply<P> {
    /// The object.
    Found {
        /// The object.
        payload: P,
        /// Who had it.
        outcome: Outcome,
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
}

impl<P: Payload> Event<P> {
    /// The event with sizes in place of bytes, for a log.
    pub fn sizes(&self) -> Event<Size> {
        match self {
            Event::Get { request, key } => Event::Get { request: *request, key: key.clone() },
            Event::WriteBegin { request, key } => {
                Event::WriteBegin { request: *request, key: key.clone() }
            }
            Event::WriteEnd { request, key, payload } => Event::WriteEnd {
                request: *request,
                key: key.clone(),
                payload: payload.as_ref().map(Size::of),
            },
            Event::Read { job, result } => Event::Read {
                job: *job,
                result: result.as_ref().map(Size::of).map_err(Clone::clone),
            },
            Event::Appended { job, written } => Event::Appended { job: *job, written: *written },
            Event::Fetched { job, result } => Event::Fetched {
                job: *job,
                result: match result {
                    Fetched::Found(payload) => Fetched::Found(Size::of(payload)),
                    Fetched::TooLarge => Fetched::TooLarge,
                    Fetched::NotFound => Fetched::NotFound,
                    Fetched::Unavailable(failure) => Fetched::Unavailable(failure.clone()),
                },
            },
            Event::Checked { job, result } => Event::Checked { job: *job, result: result.clone() },
        }
    }
}

impl<P: Payload> Action<P> {
    /// The action with sizes in place of bytes, for a log.
    pub fn sizes(&self) -> Action<Size> {
        match self {
            Action::Reply { request, reply, stages } => Action::Reply {
                request: *request,
                reply: match reply {
                    Reply::Found { payload, outcome } => {
                        Reply::Found { payload: Size::of(payload), outcome: *outcome }
                    }
                    Reply::Stream => Reply::Stream,
                    Reply::NotFound => Reply::NotFound,
                    Reply::Busy { queue } => Reply::Busy { queue: queue.clone() },
                    Reply::Unavailable(failure) => Reply::Unavailable(failure.clone()),
                },
                stages: *stages,
            },
            Action::WriteTurn { request } => Action::WriteTurn { request: *request },
            Action::Read { device, location, key, job, start } => Action::Read {
                device: *device,
                location: *location,
                key: key.clone(),
                job: *job,
                start: *start,
            },
            Action::Append { device, location, key, payload, job } => Action::Append {
                device: *device,
                location: *location,
                key: key.clone(),
                payload: Size::of(payload),
                job: *job,
            },
            Action::SealSegment { device, segment } => {
                Action::SealSegment { device: *device, segment: *segment }
            }
            Action::DropSegment { device, segment } => {
                Action::DropSegment { device: *device, segment: *segment }
            }
            Action::Fetch { key, job } => Action::Fetch { key: key.clone(), job: *job },
            Action::Check { key, etag, job } => {
                Action::Check { key: key.clone(), etag: etag.clone(), job: *job }
            }
        }
    }
}
