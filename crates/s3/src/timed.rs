//! A limit on how slowly a client may send the body of a request that `s3s` reads. `s3s` itself waits without a limit, for some
//! requests before it has checked their signature.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use s3s::S3ErrorCode;
use tokio::time::{Instant, Sleep, sleep_until};

use super::payload::{Broken, Differs};
use wire::pace::Pace;

/// A body that ends in an error if it comes too slowly.
pub struct Timed<B> {
    body: B,
    pace: Pace,
    differs: Differs,
    /// Since when nothing came; `None` while bytes are at hand.
    silent: Option<Instant>,
    /// Time spent waiting, and the bytes that came, since the rate was judged.
    waited: Duration,
    bytes: u64,
    alarm: Pin<Box<Sleep>>,
}

impl<B> Timed<B> {
    /// A body of which nothing was read. The reason goes to `differs`.
    pub fn new(body: B, pace: Pace, differs: Differs) -> Timed<B> {
        let alarm = Box::pin(sleep_until(Instant::now()));
        Timed { body, pace, differs, silent: None, waited: Duration::ZERO, bytes: 0, alarm }
    }
}

impl<B> Body for Timed<B>
where
    B: Body<Data = Bytes> + Unpin,
    Broken: From<B::Error>,
{
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let now = Instant::now();
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            if let Some(silent) = self.silent.take() {
                self.waited += now.saturating_duration_since(silent);
            }
            let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
            self.bytes += data.map_or(0, Bytes::len) as u64;
            if self.waited >= self.pace.stall {
                if self.pace.is_stalled(self.bytes) && frame.is_some() {
                    return Poll::Ready(Some(Err(self.slow())));
                }
                (self.waited, self.bytes) = (Duration::ZERO, 0);
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Broken::from)));
        }
        let silent = *self.silent.get_or_insert(now);
        let left = self.pace.stall.saturating_sub(self.waited);
        // A silence that lasts until the rate is judged ends the body if what came before it was too little.
        let stalled = self.pace.is_stalled(self.bytes).then_some(silent + left);
        let idle = silent + self.pace.idle;
        let end = stalled.map_or(idle, |stalled| stalled.min(idle));
        self.alarm.as_mut().reset(end);
        ready!(self.alarm.as_mut().poll(context));
        Poll::Ready(Some(Err(self.slow())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Timed<B> {
    fn slow(&self) -> Broken {
        let what = format!("the body came too slowly: {}", self.pace.in_words());
        self.differs.set(S3ErrorCode::RequestTimeout, what.clone());
        Broken::from(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{BodyExt, StreamBody};
    use std::convert::Infallible;

    /// Reads a body of pieces, each a delay in ms and a number of bytes. Returns whether the body was read to its end, and
    /// whether `Differs` has an error.
    async fn read_timed(rate: u64, pieces: Vec<(u64, usize)>) -> (bool, bool) {
        let ms = Duration::from_millis;
        let pace = Pace { idle: ms(300), stall: ms(100), rate };
        let stream = futures_util::stream::unfold(pieces.into_iter(), |mut pieces| async {
            let (after_ms, bytes) = pieces.next()?;
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
            let frame = Frame::data(Bytes::from(vec![0; bytes]));
            Some((Ok::<_, Infallible>(frame), pieces))
        });
        let differs = Differs::default();
        let body = Timed::new(StreamBody::new(Box::pin(stream)), pace, differs.clone());
        (body.collect().await.is_ok(), differs.error().is_some())
    }

    #[tokio::test]
    async fn a_slow_body_is_given_up_and_another_is_not() {
        assert_eq!(read_timed(1000, vec![]).await, (true, false));
        // Nothing at all, too little, and what was enough once.
        assert_eq!(read_timed(1000, vec![(100_000, 1)]).await, (false, true));
        assert_eq!(read_timed(1_000_000, vec![(5, 1); 1000]).await, (false, true));
        assert_eq!(read_timed(1000, vec![(0, 10_000), (100_000, 1)]).await, (false, true));
        assert_eq!(read_timed(1, vec![(20, 1500); 20]).await, (true, false));
    }
}
