//! What hyper answers on its own, given the JSON body of our other errors.
//!
//! A request whose head cannot be read never reaches us: hyper writes a head without a body (400, 414, 431)
//! and closes. It has no hook for that, so the connection's socket looks at what is written while no reply
//! of ours is under way, and sends our text instead.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether what is written on a connection may be a reply of ours.
#[derive(Default)]
pub struct Phase {
    replying: AtomicBool,
    handed_over: AtomicBool,
}

/// A reply of ours under way; dropped when hyper has taken all of its body.
pub struct Replying(Arc<Phase>);

impl Phase {
    /// A request came, whose reply is to be passed on as it is.
    pub fn begin(self: &Arc<Phase>) -> Replying {
        self.handed_over.store(false, Ordering::Relaxed);
        self.replying.store(true, Ordering::Relaxed);
        Replying(self.clone())
    }

    /// All that hyper had was written.
    pub fn flushed(&self) {
        if self.handed_over.load(Ordering::Relaxed) {
            self.replying.store(false, Ordering::Relaxed);
        }
    }

    /// What to send instead of these buffers, if they are a refusal of hyper's.
    pub fn instead(&self, buffers: &[IoSlice<'_>]) -> Option<Vec<u8>> {
        if self.replying.load(Ordering::Relaxed) {
            return None;
        }
        let bytes: Vec<u8> = buffers.iter().flat_map(|buffer| buffer.iter().copied()).collect();
        let line = bytes.strip_prefix(b"HTTP/1.1 ")?;
        let ours = match line.first_chunk::<3>()? {
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
        let status = bytes.get(..b"HTTP/1.1 ".len() + end)?;
        Some([status, head.as_bytes(), body.as_bytes()].concat())
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
