//! Bodies: of replies, and of uploads on their way to the origin.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::lane::RequestRecord;
use super::pace::{Meter, Pace};
use super::refusal::Replying;
use origin::{BoxFuture, Chunks, Error};
use record::clock;

type Next = (Box<dyn Chunks>, Option<Result<Bytes, Error>>);

enum Kind {
    Bytes(Option<Bytes>),
    /// What comes first, and what follows it.
    Two(Option<Bytes>, Option<Bytes>),
    /// Bytes from the origin or a device: how many are left, and the piece that is awaited.
    Stream {
        left: u64,
        next: Pin<Box<dyn Future<Output = Next> + Send>>,
        failed: bool,
    },
}

/// The body of a reply. It holds the request's record, which is complete when the body is dropped.
pub struct ReplyBody {
    kind: Kind,
    _seen: Option<RequestRecord>,
    _replying: Option<Replying>,
}

fn next_of(mut chunks: Box<dyn Chunks>) -> Pin<Box<dyn Future<Output = Next> + Send>> {
    Box::pin(async move {
        let next = chunks.next().await;
        (chunks, next)
    })
}

/// A stream of which each piece may take a time.
pub struct Paced {
    /// The stream.
    pub chunks: Box<dyn Chunks>,
    /// The most time for a piece.
    pub timeout: Duration,
}

impl Chunks for Paced {
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, Error>>> {
        Box::pin(async move {
            let next = tokio::time::timeout(self.timeout, self.chunks.next()).await;
            next.unwrap_or_else(|_| Some(Err(Error::TimedOut("in a stream".to_owned()))))
        })
    }
    fn bytes_left(&self) -> Option<u64> {
        self.chunks.bytes_left()
    }
}

impl ReplyBody {
    /// Bytes that are all there.
    pub fn bytes(bytes: Bytes, seen: Option<RequestRecord>) -> ReplyBody {
        let bytes = Some(bytes).filter(|bytes| !bytes.is_empty());
        ReplyBody { kind: Kind::Bytes(bytes), _seen: seen, _replying: None }
    }

    /// One after the other.
    pub fn two(first: Bytes, second: Bytes, seen: Option<RequestRecord>) -> ReplyBody {
        let some = |bytes: Bytes| Some(bytes).filter(|bytes| !bytes.is_empty());
        ReplyBody { kind: Kind::Two(some(first), some(second)), _seen: seen, _replying: None }
    }

    /// The first `left` bytes of a stream.
    pub fn stream(chunks: Box<dyn Chunks>, left: u64, seen: RequestRecord) -> ReplyBody {
        let kind = Kind::Stream { left, next: next_of(chunks), failed: false };
        ReplyBody { kind, _seen: Some(seen), _replying: None }
    }

    /// Nothing.
    pub fn empty(seen: Option<RequestRecord>) -> ReplyBody {
        ReplyBody { kind: Kind::Bytes(None), _seen: seen, _replying: None }
    }
}

impl ReplyBody {
    /// The bytes, if they are all there in one piece.
    pub fn whole_bytes(&self) -> Option<Bytes> {
        match &self.kind {
            Kind::Bytes(bytes) => Some(bytes.clone().unwrap_or_default()),
            Kind::Two(..) | Kind::Stream { .. } => None,
        }
    }

    /// Sends other bytes instead.
    pub fn replace(&mut self, bytes: Bytes) {
        self.kind = Kind::Bytes(Some(bytes).filter(|bytes| !bytes.is_empty()));
    }

    /// Keeps a mark on its connection that a reply is under way.
    pub fn hold(&mut self, replying: Replying) {
        self._replying = Some(replying);
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let (left, next, failed) = match &mut self.kind {
            Kind::Bytes(bytes) => return Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            Kind::Two(first, second) => {
                let next = first.take().or_else(|| second.take());
                return Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))));
            }
            Kind::Stream { left, next, failed } => (left, next, failed),
        };
        if *left == 0 || *failed {
            return Poll::Ready(None);
        }
        let (chunks, piece) = std::task::ready!(next.as_mut().poll(context));
        let result = match piece {
            Some(Ok(piece)) => {
                *left = left.saturating_sub(piece.len() as u64);
                *next = next_of(chunks);
                Ok(Frame::data(piece))
            }
            Some(Err(error)) => {
                tracing::warn!("a reply breaks off: {error}");
                *failed = true;
                Err(error)
            }
            None => {
                *failed = true;
                Err(Error::Damaged("it sent fewer bytes than it said".to_owned()))
            }
        };
        Poll::Ready(Some(result))
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Bytes(bytes) => bytes.is_none(),
            Kind::Two(first, second) => first.is_none() && second.is_none(),
            Kind::Stream { left, .. } => *left == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        let length = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
        SizeHint::with_exact(match &self.kind {
            Kind::Bytes(bytes) => length(bytes),
            Kind::Two(first, second) => length(first) + length(second),
            Kind::Stream { left, .. } => *left,
        })
    }
}

/// Memory for uploads that may fill the tiers, over all requests.
pub struct Budget {
    left: AtomicU64,
}

impl Budget {
    /// So many bytes.
    pub fn new(bytes: u64) -> Arc<Budget> {
        Arc::new(Budget { left: AtomicU64::new(bytes) })
    }

    /// A part of it, if so much is left.
    pub fn take(self: &Arc<Budget>, bytes: u64) -> Option<Share> {
        let taken = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        taken.is_ok().then(|| Share { budget: self.clone(), bytes })
    }
}

/// A part of the budget, given back when it is dropped.
pub struct Share {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Share {
    /// Takes over another part of the same budget.
    pub fn join(&mut self, mut other: Share) {
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.left.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

/// Bytes of a refused upload that are taken.
const DISCARD_BYTES_MAX: u64 = 64 << 20;
/// Time that is spent on them.
const DISCARD_TIME_MAX: Duration = Duration::from_secs(2);

/// When the origin was given the last piece of an upload and has not asked for the next: then it is the
/// origin that is slow, not the client. 0 while the client is waited for.
pub type GivenAt = Arc<AtomicU64>;

/// The body of a request, as it arrives.
pub enum RequestBody {
    /// From a connection.
    Http(Incoming),
    /// From another protocol's server, or from the process itself.
    Stream(Box<dyn Chunks>),
}

impl RequestBody {
    /// The next piece, which is not empty; `None` after the last. Trailers are passed over.
    pub async fn next(&mut self) -> Option<Result<Bytes, Error>> {
        let incoming = match self {
            RequestBody::Http(incoming) => incoming,
            RequestBody::Stream(chunks) => return chunks.next().await,
        };
        loop {
            match incoming.frame().await? {
                Err(error) => return Some(Err(Error::Upload(error.to_string()))),
                Ok(frame) => match frame.into_data() {
                    Ok(piece) if !piece.is_empty() => return Some(Ok(piece)),
                    _ => {}
                },
            }
        }
    }

    /// The bytes left, if they are known in advance.
    pub fn bytes_left(&self) -> Option<u64> {
        match self {
            RequestBody::Http(incoming) => incoming.size_hint().exact(),
            RequestBody::Stream(chunks) => chunks.bytes_left(),
        }
    }

    /// Their SHA-256, if it is known in advance.
    pub fn sha256(&self) -> Option<[u8; 32]> {
        match self {
            RequestBody::Http(_) => None,
            RequestBody::Stream(chunks) => chunks.sha256(),
        }
    }
}

/// Pieces below this size are copied together: each may be a small part of a buffer that it keeps.
const PIECE_BYTES_MIN: usize = 16 << 10;

/// The bytes of an upload in the order in which they came. Larger pieces are not copied: the origin has the same ones.
#[derive(Default)]
pub struct UploadedBytes {
    pieces: Vec<Bytes>,
    /// Small pieces after those.
    tail: BytesMut,
    length: u64,
    /// Their part of the memory for uploads.
    share: Option<Share>,
}

impl UploadedBytes {
    /// Their number.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The pieces, and the part of the memory that they take.
    pub fn into_pieces(mut self) -> (Vec<Bytes>, Option<Share>) {
        self.flush();
        (self.pieces, self.share)
    }

    fn push(&mut self, piece: &Bytes, share: Share) {
        self.length += piece.len() as u64;
        match &mut self.share {
            Some(all) => all.join(share),
            None => self.share = Some(share),
        }
        if piece.len() < PIECE_BYTES_MIN {
            self.tail.extend_from_slice(piece);
        } else {
            self.flush();
            self.pieces.push(piece.clone());
        }
    }

    fn flush(&mut self) {
        if !self.tail.is_empty() {
            self.pieces.push(self.tail.split().freeze());
        }
    }
}

/// The body of a PUT, as the origin takes it. Keeps a copy for the tiers while that may be.
pub struct Upload {
    incoming: RequestBody,
    meter: Meter,
    given_at: GivenAt,
    /// `None`: too large, or more than the memory for uploads has room for.
    copy: Option<UploadedBytes>,
    object_bytes_max: u64,
    budget: Arc<Budget>,
    sha256: Option<[u8; 32]>,
}

impl Upload {
    /// The upload of a request.
    pub fn new(
        incoming: RequestBody,
        pace: Pace,
        object_bytes_max: u64,
        budget: Arc<Budget>,
    ) -> Upload {
        let declared = incoming.bytes_left();
        let is_small = declared.is_none_or(|bytes| bytes <= object_bytes_max);
        let copy = is_small.then(UploadedBytes::default);
        let (given_at, meter) = (GivenAt::default(), Meter::new(pace));
        let sha256 = incoming.sha256();
        Upload { incoming, meter, given_at, copy, object_bytes_max, budget, sha256 }
    }

    /// Takes the word of a gateway for the SHA-256 of what it sends.
    pub fn expect(&mut self, sha256: [u8; 32]) {
        self.sha256 = Some(sha256);
    }

    /// See [`GivenAt`].
    pub fn given_at(&self) -> GivenAt {
        self.given_at.clone()
    }

    /// All bytes, if they were few enough to be kept.
    pub fn into_copy(self) -> Option<UploadedBytes> {
        self.copy
    }

    /// Takes what the client still sends, within reason, so that it reads its answer: a connection that
    /// is closed while it sends would be reset under it.
    pub async fn discard(mut self) {
        let mut left = DISCARD_BYTES_MAX;
        let discard = async {
            while let Some(Ok(piece)) = self.incoming.next().await {
                left = left.saturating_sub(piece.len() as u64);
                if left == 0 {
                    break;
                }
            }
        };
        let _ = tokio::time::timeout(DISCARD_TIME_MAX, discard).await;
    }

    fn keep(&mut self, piece: &Bytes) {
        let Some(copy) = &mut self.copy else { return };
        let length = copy.length + piece.len() as u64;
        match self.budget.take(piece.len() as u64).filter(|_| length <= self.object_bytes_max) {
            Some(share) => copy.push(piece, share),
            None => self.copy = None,
        }
    }
}

impl Chunks for Upload {
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, Error>>> {
        self.given_at.store(0, Ordering::Relaxed);
        Box::pin(async move {
            match self.meter.wait(self.incoming.next()).await {
                Err(slow) => Some(Err(Error::Upload(slow))),
                Ok(None) => {
                    self.given_at.store(clock::now(), Ordering::Relaxed);
                    None
                }
                Ok(Some(Err(error))) => Some(Err(error)),
                Ok(Some(Ok(piece))) => {
                    self.meter.took(piece.len());
                    self.keep(&piece);
                    self.given_at.store(clock::now(), Ordering::Relaxed);
                    Some(Ok(piece))
                }
            }
        })
    }

    fn bytes_left(&self) -> Option<u64> {
        self.incoming.bytes_left()
    }

    fn sha256(&self) -> Option<[u8; 32]> {
        self.sha256
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever pieces they came in, the bytes are those that came, and their memory is given back.
        #[test]
        fn uploaded_bytes_are_those_that_came(
            lengths in prop::collection::vec(0_usize..40_000, 0..12),
        ) {
            let budget = Budget::new(1 << 20);
            let (mut uploaded, mut all) = (UploadedBytes::default(), Vec::new());
            for (at, length) in lengths.into_iter().enumerate() {
                let piece: Vec<u8> = (0..length).map(|byte| (byte * 7 + at) as u8).collect();
                all.extend_from_slice(&piece);
                let share = budget.take(length as u64).unwrap();
                uploaded.push(&Bytes::from(piece), share);
            }
            prop_assert_eq!(uploaded.length(), all.len() as u64);
            prop_assert_eq!(budget.left.load(Ordering::Relaxed), (1 << 20) - all.len() as u64);
            let (pieces, share) = uploaded.into_pieces();
            let small = pieces.iter().filter(|piece| piece.len() < PIECE_BYTES_MIN).count();
            prop_assert!(small <= pieces.len() / 2 + 1, "small ones are gathered");
            prop_assert_eq!(pieces.concat(), all);
            drop(share);
            prop_assert_eq!(budget.left.load(Ordering::Relaxed), 1 << 20);
        }
    }
}
