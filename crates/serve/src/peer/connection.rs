//! One connection: a request out, a reply's head in.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use rustix::net::RecvFlags;
use tokio::io::{AsyncReadExt, Interest};
use tokio::net::TcpStream;

use super::reply::{self, Head};
use super::{Fault, Limits, Outgoing};
use origin::Chunks;

/// The least room for reading the beginning of a reply.
const FIRST_BYTES_MIN: usize = 4 * 1024;
/// The most of it: a whole reply of the size of the last one is read with one call if it is there.
const FIRST_BYTES_MAX: usize = 272 * 1024;
/// Interim replies that are passed over before the final one.
const INTERIM_MAX: usize = 8;

/// A connection that is open.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    /// What has come and was not handed on.
    pub(super) buffer: BytesMut,
    /// Bytes of the last reply, or a little less than of a longer one before it.
    usual: usize,
    /// Since when it is idle, if it is.
    pub(super) since: Instant,
}

/// A request that failed.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) fault: Fault,
    /// Whether it ended before any byte of a reply: if it was idle before, the server most likely
    /// closed it because of that.
    pub(super) unanswered: bool,
}

/// How sending ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    All,
    /// The server answers before it has the whole request, which is not sent to its end.
    Answered,
}

impl Connection {
    pub(super) async fn open(address: SocketAddr, within: Duration) -> Result<Connection, Fault> {
        let timed_out = |_| Err(io::Error::from(io::ErrorKind::TimedOut));
        let connect = tokio::time::timeout(within, TcpStream::connect(address));
        let stream = connect.await.unwrap_or_else(timed_out).map_err(Fault::Connect)?;
        stream.set_nodelay(true).map_err(Fault::Connect)?;
        let since = Instant::now();
        Ok(Connection { stream, buffer: BytesMut::new(), usual: 0, since })
    }

    /// Whether it can take a request: nothing came while it was idle, not even its end. What the runtime
    /// has learnt is known for nothing; with `ask` the kernel is asked too.
    pub(super) fn is_open(&self, ask: bool) -> bool {
        let nothing = |result: io::Result<usize>| {
            result.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        };
        if ask {
            let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
            let peeked = rustix::net::recv(&self.stream, &mut [0_u8; 1], flags);
            return nothing(peeked.map(|(count, _)| count).map_err(io::Error::from));
        }
        nothing(self.stream.try_read(&mut [0; 1]))
    }

    /// Sends a request and reads the head of its reply; says too whether the request was sent whole.
    pub(super) async fn exchange(
        &mut self,
        head: &[u8],
        body: &mut Outgoing<'_>,
        bodiless: bool,
        limits: &Limits,
    ) -> Result<(Head, bool), Failed> {
        let sent = match body {
            Outgoing::Empty => self.write([head, &[], &[]]).await,
            Outgoing::Bytes(bytes) => self.write([head, bytes, &[]]).await,
            Outgoing::Stream(chunks) => self.write_stream(head, &mut **chunks).await,
        };
        let sent = match sent {
            Ok(sent) => sent,
            Err(fault) => return Err(Failed { fault, unanswered: self.buffer.is_empty() }),
        };
        match self.head(bodiless, limits).await {
            Ok(head) => {
                self.usual = (self.usual - self.usual / 8)
                    .max(usize::try_from(head.length).unwrap_or(usize::MAX).saturating_add(1024))
                    .min(FIRST_BYTES_MAX);
                Ok((head, sent == Sent::All))
            }
            Err(fault) => {
                let unanswered = self.buffer.is_empty() && matches!(fault, Fault::Broken(_));
                Err(Failed { fault, unanswered })
            }
        }
    }

    async fn head(&mut self, bodiless: bool, limits: &Limits) -> Result<Head, Fault> {
        let mut interim = 0;
        loop {
            if !self.buffer.is_empty()
                && let Some(head) = reply::parse(&mut self.buffer, bodiless, limits)?
            {
                if !head.status.is_informational() {
                    return Ok(head);
                }
                interim += 1;
                if interim > INTERIM_MAX || head.status == http::StatusCode::SWITCHING_PROTOCOLS {
                    return Err(Fault::Malformed(format!("an interim reply {}", head.status)));
                }
                continue;
            }
            let room = self.usual.max(FIRST_BYTES_MIN);
            if self.fill(room).await? == 0 {
                return Err(Fault::closed("closed before the reply's head was whole"));
            }
        }
    }

    /// Reads what has come, waiting for something, into room for at least `room` bytes. 0 is the end.
    /// Can be dropped without losing what came.
    pub(super) async fn fill(&mut self, room: usize) -> Result<usize, Fault> {
        self.buffer.reserve(room);
        self.stream.read_buf(&mut self.buffer).await.map_err(Fault::Broken)
    }

    /// Reads into another buffer, which has room.
    pub(super) async fn fill_other(&mut self, buffer: &mut impl BufMut) -> Result<usize, Fault> {
        self.stream.read_buf(buffer).await.map_err(Fault::Broken)
    }

    /// What has come meanwhile, if anything; an end is [`Fault::Broken`].
    fn peek(&mut self) -> Result<bool, Fault> {
        self.buffer.reserve(FIRST_BYTES_MIN);
        match self.stream.try_read_buf(&mut self.buffer) {
            Ok(0) => Err(Fault::closed("closed while the request was sent")),
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(Fault::Broken(error)),
        }
    }

    /// Writes all, with one call if the socket takes it.
    async fn write(&mut self, pieces: [&[u8]; 3]) -> Result<Sent, Fault> {
        let mut slices = pieces.map(IoSlice::new);
        let mut left = &mut slices[..];
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            match self.stream.try_write_vectored(left) {
                Ok(count) => IoSlice::advance_slices(&mut left, count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let both = Interest::READABLE | Interest::WRITABLE;
                    let ready = self.stream.ready(both).await.map_err(Fault::Broken)?;
                    if ready.is_readable() && self.peek()? {
                        return Ok(Sent::Answered);
                    }
                }
                // It may have answered before it closed: "too large", say.
                Err(error) => match self.peek() {
                    Ok(true) => return Ok(Sent::Answered),
                    _ => return Err(Fault::Broken(error)),
                },
            }
        }
        Ok(Sent::All)
    }

    async fn write_stream(&mut self, head: &[u8], chunks: &mut dyn Chunks) -> Result<Sent, Fault> {
        let mut left = chunks.bytes_left();
        let mut head = head;
        loop {
            let Some(piece) = self.next_of(chunks).await? else { return Ok(Sent::Answered) };
            let sent = match (piece, &mut left) {
                (Some(piece), Some(left)) => {
                    let Some(after) = left.checked_sub(piece.len() as u64) else {
                        return Err(Fault::Request("its body is longer than it said".to_owned()));
                    };
                    *left = after;
                    self.write([head, &piece, &[]]).await?
                }
                (Some(piece), None) if piece.is_empty() => continue,
                (Some(piece), None) => {
                    let mut before = head.to_vec();
                    before.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
                    self.write([&before, &piece, b"\r\n"]).await?
                }
                (None, Some(0)) => return self.write([head, &[], &[]]).await,
                (None, Some(left)) => {
                    let what = format!("its body ended {left} bytes before its length");
                    return Err(Fault::Request(what));
                }
                (None, None) => return self.write([head, b"0\r\n\r\n", &[]]).await,
            };
            if sent == Sent::Answered {
                return Ok(Sent::Answered);
            }
            head = &[];
        }
    }

    /// The next piece of an upload, `Some(None)` after the last; `None` if an answer comes before it.
    async fn next_of(&mut self, chunks: &mut dyn Chunks) -> Result<Option<Option<Bytes>>, Fault> {
        // One future, kept while the socket is looked at: it might lose a piece if it were dropped.
        let mut next = chunks.next();
        loop {
            tokio::select! {
                biased;
                piece = &mut next => return match piece {
                    Some(Ok(piece)) => Ok(Some(Some(piece))),
                    Some(Err(error)) => Err(Fault::Request(error.to_string())),
                    None => Ok(Some(None)),
                },
                ready = self.stream.readable() => {
                    ready.map_err(Fault::Broken)?;
                    if self.peek()? {
                        return Ok(None);
                    }
                }
            }
        }
    }
}
