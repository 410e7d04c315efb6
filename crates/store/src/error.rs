//! Why a store does not carry out a request.

use engine::node::{Failure, FailureKind};

use super::version::Version;

/// Why a request was not carried out.
#[derive(Debug)]
pub enum Error {
    /// There is no object of this key.
    NotFound,
    /// This node does not have it, and was asked for a copy of its own.
    NotHere,
    /// The client's copy is current.
    NotModified(Version),
    /// The object is not as a condition says; with the object, if a read was refused.
    PreconditionFailed(Option<Version>),
    /// The range lies outside of the object.
    Unsatisfiable(Version),
    /// A queue is full: of this name, if it is a node's.
    Busy(Option<String>, String),
    /// The deadline passed before it could be served.
    TooLate,
    /// A reply that was waited for did not come in time.
    TimedOut(String),
    /// The origin or the cluster cannot serve it now.
    Unavailable(String),
    /// The key, or the order of its writes, is another node's.
    Misdirected(String),
    /// The object is too large.
    TooLarge(String),
    /// The request is wrong.
    Invalid(String),
    /// The origin cannot keep the object beside one of another key.
    Conflict(String),
    /// The key is the server's own.
    Reserved,
    /// The origin takes no writes.
    Full(String),
    /// The origin does not allow writes, and will not.
    Denied(String),
    /// The origin does not allow the read, and will not.
    Unreadable(String),
    /// The origin's copy is not what was written.
    Damaged(String),
    /// The store does not have this operation.
    Unsupported(&'static str),
    /// The process ends.
    Stopping,
}

const MISDIRECTED: &str = "the key, or the order of its writes, is another node's: ask a gateway, or compare the \
    members of both configurations";

impl Error {
    /// A queue of a node is full.
    pub fn busy(queue: &str) -> Error {
        Error::Busy(Some(queue.to_owned()), format!("the queue `{queue}` is full; try again later"))
    }

    /// A request went to the wrong node.
    pub fn misdirected() -> Error {
        Error::Misdirected(MISDIRECTED.to_owned())
    }

    /// The reason, for the client.
    pub fn text(&self) -> &str {
        match self {
            Error::NotFound => "there is no object of this key",
            Error::NotHere => "this node does not have it",
            Error::NotModified(_) => "the client's copy is current",
            Error::PreconditionFailed(_) => "the object is not as the request's condition says",
            Error::Unsatisfiable(_) => "the range lies outside of the object",
            Error::TooLate => "the deadline passed before the request could be served",
            Error::Reserved => {
                "keys that begin with !s3/ or !key/ are the server's own; choose another key"
            }
            Error::Stopping => "the server is stopping",
            Error::Unsupported(text) => text,
            Error::Busy(_, text)
            | Error::TimedOut(text)
            | Error::Unavailable(text)
            | Error::Misdirected(text)
            | Error::TooLarge(text)
            | Error::Invalid(text)
            | Error::Conflict(text)
            | Error::Full(text)
            | Error::Denied(text)
            | Error::Unreadable(text)
            | Error::Damaged(text) => text,
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        match failure.kind {
            FailureKind::TimedOut => Error::TimedOut(failure.reason),
            FailureKind::Unavailable => Error::Unavailable(failure.reason),
            FailureKind::Denied => Error::Unreadable(failure.reason),
            FailureKind::Damaged => Error::Damaged(failure.reason),
        }
    }
}

impl From<origin::Error> for Error {
    fn from(error: origin::Error) -> Error {
        let text = error.to_string();
        match error {
            origin::Error::Full(_) => Error::Full(text),
            origin::Error::ReadOnly(_) => Error::Denied(text),
            origin::Error::Upload(_) | origin::Error::Refused(_) => Error::Invalid(text),
            origin::Error::Conflict(_) => Error::Conflict(text),
            origin::Error::Fenced(_) => Error::Misdirected(text),
            origin::Error::TimedOut(_) => Error::TimedOut(text),
            origin::Error::Denied(_) => Error::Unreadable(text),
            origin::Error::Damaged(_) => Error::Damaged(text),
            _ => Error::Unavailable(text),
        }
    }
}
