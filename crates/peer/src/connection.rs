//! One connection: sends a request and reads the head of its reply.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use rustix::net::RecvFlags;
use tokio::io::{AsyncRead, AsyncReadExt, Interest, ReadBuf};
use tokio::net::TcpStream;

use super::fault::Fault;
use super::limits::Limits;
use super::reply::{self, Head};
use super::request::Outgoing;
use super::stream::Stream;
use origin::Chunks;
use wire::tls::Dialer;

/// Minimum buffer space for reading the beginning of a reply.
const FIRST_BYTES_MIN: usize = 4 * 1024;
/// Maximum of that space. Up to it, a reply as large as the last one can be read with one call.
const FIRST_BYTES_MAX: usize = 272 * 1024;
/// Space for the rest of a reply of which a part has arrived.
const PART_BYTES_MIN: usize = 64 * 1024;
/// Maximum interim replies skipped before the final one.
const INTERIM_MAX: usize = 8;

/// An open connection.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    /// Bytes received and not yet consumed.
    pub buffer: BytesMut,
    /// Expected bytes of a reply: those of the last one, or a decaying maximum of earlier ones.
    usual: usize,
    /// Start of the current idle period, if the connection is idle.
    pub since: Instant,
}

/// Why a request failed.
#[derive(Debug)]
pub struct Failed {
    pub fault: Fault,
    /// Whether the connection ended before any byte of a reply. If it was idle before, the server
    /// most likely closed it for that reason.
    pub unanswered: bool,
}

/// How sending a request ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    /// The whole request was sent.
    All,
    /// The server replied before it had the whole request; the rest is not sent.
    Answered,
}

impl Connection {
    /// Connects, and shakes hands where the connection is encrypted.
    pub async fn open(
        address: SocketAddr,
        dialer: Option<&Dialer>,
        within: Duration,
    ) -> Result<Connection, Fault> {
        let timed_out = |_| Err(io::Error::from(io::ErrorKind::TimedOut));
        let connect = async {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(match dialer {
                None => Stream::Plain(stream),
                Some(dialer) => Stream::Encrypted(Box::new(dialer.shake(address, stream).await?)),
            })
        };
        let connect = tokio::time::timeout(within, connect);
        let stream = connect.await.unwrap_or_else(timed_out).map_err(Fault::Connect)?;
        let since = Instant::now();
        Ok(Connection { stream, buffer: BytesMut::new(), usual: 0, since })
    }

    /// Whether the connection can take a request: nothing arrived while it was idle, not even its
    /// end. Without `ask`, uses only what the runtime already knows, which is free; with `ask`,
    /// also makes a system call.
    pub fn is_open(&mut self, ask: bool) -> bool {
        let nothing = |result: io::Result<usize>| {
            result.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        };
        if ask {
            let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
            let peeked = rustix::net::recv(self.stream.socket(), &mut [0_u8; 1], flags);
            return nothing(peeked.map(|(count, _)| count).map_err(io::Error::from));
        }
        nothing(self.stream.try_read(&mut [0; 1]))
    }

    /// Sends a request and reads the head of its reply. Also returns whether the whole request was
    /// sent.
    pub async fn exchange(
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
        Ok((self.receive(bodiless, limits).await?, sent == Sent::All))
    }

    /// Reads the head of the reply to a request that was sent.
    pub async fn receive(&mut self, bodiless: bool, limits: &Limits) -> Result<Head, Failed> {
        match self.head(bodiless, limits).await {
            Ok(head) => {
                self.usual = (self.usual - self.usual / 8)
                    .max(usize::try_from(head.length).unwrap_or(usize::MAX).saturating_add(1024))
                    .min(FIRST_BYTES_MAX);
                Ok(head)
            }
            Err(fault) => {
                let unanswered = self.buffer.is_empty() && matches!(fault, Fault::Broken(_));
                Err(Failed { fault, unanswered })
            }
        }
    }

    /// Writes a request without waiting: how many bytes the socket took.
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.stream.try_write_vectored(&[IoSlice::new(bytes)])?;
        self.stream.try_flush()?;
        Ok(count)
    }

    /// Reads what has arrived: into `scratch` as long as nothing is buffered, else after what is. The
    /// bytes so far, which are not in the buffer if they are in `scratch`; none: the connection ended.
    pub fn poll_arrived<'a>(
        &'a mut self,
        context: &mut Context<'_>,
        scratch: &'a mut [u8],
    ) -> Poll<io::Result<&'a [u8]>> {
        if self.buffer.is_empty() {
            let mut into = ReadBuf::new(scratch);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut into))?;
            let count = into.filled().len();
            return Poll::Ready(Ok(&scratch[..count]));
        }
        // What has arrived so far grows by as much at a time, so that a reply in few parts costs no more
        // memory than it has.
        self.buffer.reserve(self.buffer.len().max(PART_BYTES_MIN));
        let count = ready!(pin!(self.stream.read_buf(&mut self.buffer)).poll(context))?;
        Poll::Ready(Ok(if count == 0 { &[] } else { &self.buffer }))
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
                    return Err(Fault::Malformed(format!(
                        "unexpected interim reply {}",
                        head.status
                    )));
                }
                continue;
            }
            let room = self.usual.max(FIRST_BYTES_MIN);
            if self.fill(room).await? == 0 {
                return Err(Fault::closed("closed before the end of the reply's head"));
            }
        }
    }

    /// Waits for bytes and reads them into the buffer, with space for at least `room`. Returns
    /// their number; 0 means that the connection ended. Dropping the future loses no bytes.
    pub async fn fill(&mut self, room: usize) -> Result<usize, Fault> {
        self.buffer.reserve(room);
        self.stream.read_buf(&mut self.buffer).await.map_err(Fault::Broken)
    }

    /// Like [`fill`](Self::fill), but reads into another buffer, which must have space.
    pub async fn fill_other(&mut self, buffer: &mut impl BufMut) -> Result<usize, Fault> {
        self.stream.read_buf(buffer).await.map_err(Fault::Broken)
    }

    /// Reads available bytes without waiting; returns whether there were any. The end of the
    /// connection is [`Fault::Broken`].
    fn peek(&mut self) -> Result<bool, Fault> {
        self.buffer.reserve(FIRST_BYTES_MIN);
        match self.stream.try_read_buf(&mut self.buffer) {
            Ok(0) => Err(Fault::closed("closed while the request was sent")),
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(Fault::Broken(error)),
        }
    }

    /// Writes all pieces, with one call if the socket accepts them.
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
                // The server may have replied before it closed, for example "too large".
                Err(error) => match self.peek() {
                    Ok(true) => return Ok(Sent::Answered),
                    _ => return Err(Fault::Broken(error)),
                },
            }
        }
        while let Err(error) = self.stream.try_flush() {
            if error.kind() != io::ErrorKind::WouldBlock {
                return Err(Fault::Broken(error));
            }
            let both = Interest::READABLE | Interest::WRITABLE;
            let ready = self.stream.ready(both).await.map_err(Fault::Broken)?;
            if ready.is_readable() && self.peek()? {
                return Ok(Sent::Answered);
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
                        return Err(Fault::Request("the body is longer than declared".to_owned()));
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
                    let what = format!("the body ended {left} bytes before its declared length");
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

    /// The next piece of an upload, `Some(None)` after the last; `None` if a reply arrives first.
    async fn next_of(&mut self, chunks: &mut dyn Chunks) -> Result<Option<Option<Bytes>>, Fault> {
        // Keep one future while checking the socket: dropping it could lose a piece.
        let mut next = chunks.next();
        loop {
            tokio::select! {
                biased;
                piece = &mut next => return match piece {
                    Some(Ok(piece)) => Ok(Some(Some(piece))),
                    Some(Err(error)) => Err(Fault::Request(error.to_string())),
                    None => Ok(Some(None)),
                },
                ready = self.stream.ready(Interest::READABLE) => {
                    ready.map_err(Fault::Broken)?;
                    if self.peek()? {
                        return Ok(None);
                    }
                }
            }
        }
    }
}
