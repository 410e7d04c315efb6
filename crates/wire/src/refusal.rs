//! Replies to requests that cannot be read, and what hyper is doing on a connection.
//!
//! A request whose head hyper cannot read never reaches a service: hyper writes a head without a body (400, 414, 431)
//! and closes. It has no hook for that, so what it writes while no reply of ours is under way is looked at, and a reply
//! in the form of the protocol's other errors is sent instead ([`Wording`]).

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use ground::window::Nanos;
use http::{Response, StatusCode};
use record::clock;

use crate::connections::Activity;
use crate::framing::Refusal;

/// A head that is not HTTP's, or gives the request's end more than once.
pub const MALFORMED: Refusal = Refusal {
    status: StatusCode::BAD_REQUEST,
    text: "the request is not HTTP/1.1: its first line or a header is malformed",
};

/// How a protocol words the refusal of a request that reaches no service of its own: the reply to a status and a reason.
pub type Wording = fn(StatusCode, &str) -> Response<Bytes>;

/// The bytes of a reply after which the connection ends.
pub fn written(reply: &Response<Bytes>) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 {}\r\n", reply.status()).into_bytes();
    for (name, value) in reply.headers() {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            bytes.extend_from_slice(part);
        }
    }
    let length = reply.body().len();
    let end = format!("content-length: {length}\r\nconnection: close\r\n\r\n");
    bytes.extend_from_slice(end.as_bytes());
    bytes.extend_from_slice(reply.body());
    bytes
}

/// Whether what is written on a connection may be a reply of ours.
#[derive(Default)]
pub struct Phase {
    replying: AtomicBool,
    handed_over: AtomicBool,
    /// hyper was given a request that it has not yet passed on.
    expected: AtomicBool,
    /// When the last plain read was answered, on the monotonic clock; 0: none was.
    passed: AtomicU64,
    /// hyper reads this connection for good.
    handed: AtomicBool,
    /// When hyper's last reply had been given to the kernel; 0: none was.
    answered: AtomicU64,
    activity: Arc<Activity>,
}

/// A reply of ours under way; dropped when hyper has taken all of its body.
pub struct Replying(Arc<Phase>);

impl Phase {
    /// Of a connection, whose activity it keeps.
    pub fn new(activity: Arc<Activity>) -> Phase {
        Phase { activity, ..Phase::default() }
    }

    /// Bytes are read that may be a request's.
    pub fn read(&self) {
        self.activity.begin();
    }

    /// No request is here, or only a part of a head.
    pub fn wait(&self) {
        self.activity.wait(self.last_answered());
    }

    /// When the last request was answered, or a part of its reply was sent, on the monotonic clock; 0: none was.
    pub fn last_answered(&self) -> Nanos {
        self.passed.load(Ordering::Relaxed).max(self.answered.load(Ordering::Relaxed))
    }

    /// A request came, whose reply is to be passed on as it is.
    pub fn begin(self: &Arc<Phase>) -> Replying {
        self.handed_over.store(false, Ordering::Relaxed);
        self.replying.store(true, Ordering::Relaxed);
        self.expected.store(false, Ordering::Relaxed);
        // It may have come with the one before, and been read then.
        self.activity.begin();
        Replying(self.clone())
    }

    /// All that hyper had was written.
    pub fn flushed(&self) {
        if self.handed_over.load(Ordering::Relaxed) && self.replying.load(Ordering::Relaxed) {
            self.replying.store(false, Ordering::Relaxed);
            self.answered.store(clock::now(), Ordering::Relaxed);
        }
    }

    /// From here on the connection is hyper's: nobody else knows where requests begin, or hyper closes it.
    pub fn hand(&self) {
        self.handed.store(true, Ordering::Relaxed);
    }

    /// Whether that is so.
    pub fn is_handed(&self) -> bool {
        self.handed.load(Ordering::Relaxed)
    }

    /// hyper is given a request.
    pub fn expect(&self) {
        self.expected.store(true, Ordering::Relaxed);
    }

    /// Whether a request is under way in hyper, or its reply.
    pub fn is_replying(&self) -> bool {
        self.expected.load(Ordering::Relaxed) || self.replying.load(Ordering::Relaxed)
    }

    /// A plain read was answered at a time on the monotonic clock, or is being answered.
    pub fn pass(&self, at: Nanos) {
        self.passed.store(at, Ordering::Relaxed);
    }

    /// The refusal to send instead of these buffers, if they are one of hyper's.
    pub fn instead(&self, buffers: &[IoSlice<'_>]) -> Option<Refusal> {
        if self.replying.load(Ordering::Relaxed) {
            return None;
        }
        let bytes: Vec<u8> = buffers.iter().flat_map(|buffer| buffer.iter().copied()).collect();
        let line = bytes.strip_prefix(b"HTTP/1.1 ")?;
        match line.first_chunk::<3>()? {
            b"400" => Some(MALFORMED),
            b"414" => Some(Refusal {
                status: StatusCode::URI_TOO_LONG,
                text: "the address is too long; a key has at most 1024 bytes",
            }),
            b"431" => Some(Refusal {
                status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                text: "the request's head is longer than serve.header_bytes_max, or has more than 1,024 headers: \
                       send less, or raise the limit",
            }),
            _ => None,
        }
    }
}

impl Drop for Replying {
    fn drop(&mut self) {
        self.0.handed_over.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::in_json;

    #[test]
    fn only_what_no_request_of_ours_led_to_is_rewritten() {
        let phase = Arc::new(Phase::default());
        let refusal = [
            &b"HTTP/1.1 431 Request Header Fields Too Large\r\n"[..],
            b"content-length: 0\r\n\r\n",
        ];
        let buffers = refusal.map(IoSlice::new);
        let instead = phase.instead(&buffers).unwrap();
        let instead = String::from_utf8(written(&in_json(instead.status, instead.text))).unwrap();
        assert!(
            instead.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type")
        );
        assert!(instead.ends_with("or raise the limit\"}"), "{instead}");
        // A stored object may begin so too.
        let replying = phase.begin();
        assert!(phase.instead(&buffers).is_none());
        phase.flushed();
        assert!(phase.instead(&buffers).is_none());
        drop(replying);
        assert!(phase.instead(&buffers).is_none());
        phase.flushed();
        assert!(phase.instead(&buffers).is_some());
        assert!(phase.instead(&[IoSlice::new(b"HTTP/1.1 100 Continue\r\n\r\n")]).is_none());
        assert!(phase.instead(&[]).is_none());
    }
}
