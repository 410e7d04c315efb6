//! The end of a connection whose client is still sending.
//!
//! A reply may go out before the request's body has come: a refusal. Closing the socket with bytes unread in it resets the connection,
//! and the client, which is writing, sees a broken network in place of the reply (RFC 9112, section 9.6). So this side
//! of the connection is closed, and what still comes is read and thrown away for a while.

use std::future::Future;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::ReadBuf;
use tokio::time::{Sleep, sleep};

use crate::socket::Stream;

/// For how long: a client that looks for the reply now and then finds it by then, and one that never does holds its place no
/// longer.
const TIME: Duration = Duration::from_secs(5);
/// How many bytes at most: the parts that SDKs send in one piece have 5 to 64 MiB.
const BYTES_MAX: usize = 64 << 20;
/// Bytes of one read, on the stack.
const READ_BYTES: usize = 16 << 10;

/// What is thrown away of a connection.
pub(super) struct Discard {
    bytes_left: usize,
    timer: Pin<Box<Sleep>>,
}

impl Discard {
    pub(super) fn new() -> Discard {
        Discard { bytes_left: BYTES_MAX, timer: Box::pin(sleep(TIME)) }
    }

    /// Ready when the client has closed its side too, or has had its time.
    pub(super) fn poll(&mut self, stream: &mut Stream, context: &mut Context<'_>) -> Poll<()> {
        while self.bytes_left > 0 && self.timer.as_mut().poll(context).is_pending() {
            let mut space = [MaybeUninit::uninit(); READ_BYTES];
            let mut buffer = ReadBuf::uninit(&mut space);
            let read = ready!(stream.poll_read(context, &mut buffer));
            let count = buffer.filled().len();
            if read.is_err() || count == 0 {
                break;
            }
            self.bytes_left = self.bytes_left.saturating_sub(count);
        }
        Poll::Ready(())
    }
}
