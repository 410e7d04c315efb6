//! What hyper answers on its own, given the JSON body of our other errors.
//!
//! A request whose head cannot be read never reaches us: hyper writes a head without a body (400, 414, 431)
//! and closes. It has no hook for that, so the connection's socket looks at what is written while no reply
//! of ours is under way, and sends our text instead.

use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ground::window::Nanos;
use record::clock;

use crate::connections::Activity;
use crate::framing::Refusal;

/// Whether what is written on a connection may be a reply of ours.
#[derive(Default)]
pub struct Phase {
    replying: AtomicBool,
    handed_over: AtomicBool,
    /// hyper was given a request that it has not yet passed on.
    expected: AtomicBool,
    /// When the last plain read was answered, on the monotonic clock; 0: none was.
    passed: AtomicU64,
    /// The last request was answered, and nothing of another has been read.
    idle: AtomicBool,
    /// hyper reads this connection for good.
    handed: AtomicBool,
    /// Why hyper was given what it refuses in place of a request.
    refusal: OnceLock<Refusal>,
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
        self.set_idle(false);
        self.activity.begin();
    }

    /// No request is here, or only a part of a head.
    pub fn wait(&self) {
        let passed = self.passed.load(Ordering::Relaxed);
        self.activity.wait(passed.max(self.answered.load(Ordering::Relaxed)));
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

    /// Whether nothing was read since the last request was answered.
    pub fn set_idle(&self, idle: bool) {
        self.idle.store(idle, Ordering::Relaxed);
    }

    /// Whether another process can serve the connection from here on.
    pub fn is_idle(&self) -> bool {
        self.idle.load(Ordering::Relaxed)
    }

    /// From here on nobody but hyper knows where requests begin.
    pub fn hand(&self) {
        self.handed.store(true, Ordering::Relaxed);
    }

    /// Whether that is so.
    pub fn is_handed(&self) -> bool {
        self.handed.load(Ordering::Relaxed)
    }

    /// hyper is given what it refuses, and the client is told this.
    pub fn refuse(&self, refusal: Refusal) {
        // The connection ends with the first.
        let _ = self.refusal.set(refusal);
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

    /// When the last plain read was answered, if that was after `since`.
    pub fn last_passed(&self, since: Instant) -> Option<Instant> {
        let at = self.passed.load(Ordering::Relaxed);
        let ago = Duration::from_nanos(clock::now().saturating_sub(at));
        let at = Instant::now().checked_sub(ago).filter(|_| at > 0)?;
        (at > since).then_some(at)
    }

    /// What to send instead of these buffers, if they are a refusal of hyper's.
    pub fn instead(&self, buffers: &[IoSlice<'_>]) -> Option<Vec<u8>> {
        if self.replying.load(Ordering::Relaxed) {
            return None;
        }
        let bytes: Vec<u8> = buffers.iter().flat_map(|buffer| buffer.iter().copied()).collect();
        let line = bytes.strip_prefix(b"HTTP/1.1 ")?;
        let refusal = self.refusal.get();
        let ours = match line.first_chunk::<3>()? {
            b"400" if refusal.is_some() => refusal?.text,
            b"400" => "the request is not HTTP/1.1: its first line or a header is malformed",
            b"414" => "the address is too long; a key has at most 1024 bytes",
            b"431" => {
                "the request's head is longer than serve.header_bytes_max, or has more than 100 headers: \
                 send less, or raise the limit"
            }
            _ => return None,
        };
        let end = line.windows(2).position(|two| two == b"\r\n")?;
        let body = format!("{{\"error\":\"{ours}\"}}");
        let head = format!(
            "\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        let status = match refusal {
            Some(refusal) => format!("HTTP/1.1 {}", refusal.status).into_bytes(),
            None => bytes.get(..b"HTTP/1.1 ".len() + end)?.to_vec(),
        };
        Some([&status, head.as_bytes(), body.as_bytes()].concat())
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

    #[test]
    fn only_what_no_request_of_ours_led_to_is_rewritten() {
        let phase = Arc::new(Phase::default());
        let refusal = [
            &b"HTTP/1.1 431 Request Header Fields Too Large\r\n"[..],
            b"content-length: 0\r\n\r\n",
        ];
        let buffers = refusal.map(IoSlice::new);
        let instead = String::from_utf8(phase.instead(&buffers).unwrap()).unwrap();
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
