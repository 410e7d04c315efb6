//! Why a request to the store has no success.

use std::error::Error;
use std::io;
use std::time::Duration;

use http::StatusCode;

/// See the module.
#[derive(Debug)]
pub enum Failure {
    /// The store replied with a status that is no success, and this text.
    Status { status: StatusCode, text: String },
    /// The store replied with a success whose text is that of an error.
    ErrorText(String),
    /// There is no reply, or none of a store.
    Transport { kind: FailureKind, text: String },
}

/// What is known of a request without a reply: whether it may be sent again depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// There is no connection, so the request was not sent.
    Connect,
    /// The connection ended before the reply began, as one does that the store closes because it was idle.
    Closed,
    /// The connection broke off.
    Interrupted,
    /// The reply did not come in time.
    Timeout,
    /// What came is not a store's reply, or cannot be read.
    Malformed,
    /// The head of the reply is not one of HTTP's: a line has characters that none may have, or there are too many lines.
    Unreadable,
    /// Anything else.
    Unknown,
}

impl Failure {
    /// A failure of our own.
    pub fn new(kind: FailureKind, what: impl Into<String>) -> Failure {
        Failure::Transport { kind, text: what.into() }
    }

    /// The failure of what did not come in time.
    pub fn late(timeout: Duration) -> Failure {
        let what = format!("no reply within {} s", timeout.as_secs_f64());
        Failure::new(FailureKind::Timeout, what)
    }

    /// A failure with the text of the innermost cause, to which the outer ones add nothing of use to an operator.
    pub fn of_cause(kind: FailureKind, error: &(dyn Error + 'static)) -> Failure {
        let mut innermost = error;
        while let Some(source) = innermost.source() {
            innermost = source;
        }
        Failure::new(kind, innermost.to_string())
    }

    /// The failure of a request that was sent, or of which a part was.
    pub fn of_request(error: &hyper::Error) -> Failure {
        let mut cause: Option<&(dyn Error + 'static)> = Some(error);
        let mut kind = FailureKind::Unknown;
        while let Some(error) = cause.filter(|_| kind == FailureKind::Unknown) {
            if let Some(error) = error.downcast_ref::<hyper::Error>() {
                if error.is_closed()
                    || error.is_incomplete_message()
                    || error.is_body_write_aborted()
                {
                    kind = FailureKind::Closed;
                } else if error.is_timeout() {
                    kind = FailureKind::Timeout;
                } else if error.is_parse() {
                    kind = FailureKind::Unreadable;
                }
            } else if let Some(error) = error.downcast_ref::<io::Error>() {
                kind = kind_of_io(error);
            }
            cause = error.source();
        }
        Failure::of_cause(kind, error)
    }
}

fn kind_of_io(error: &io::Error) -> FailureKind {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut, UnexpectedEof};
    match error.kind() {
        TimedOut => FailureKind::Timeout,
        ConnectionAborted | ConnectionReset | BrokenPipe | UnexpectedEof => {
            FailureKind::Interrupted
        }
        _ => FailureKind::Unknown,
    }
}
