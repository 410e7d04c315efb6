//! A connection of HTTP/2 (RFC 9113), by `h2`, and the requests on it.
//!
//! `h2` is a state machine behind the traits of asynchronous sockets, which needs no runtime: the event
//! loop polls it when the socket is ready and after each request, on the clock of HTTP/1. Its wakers do
//! not wake a task, but note which streams have something to read ([`Ready`]).
//!
//! A request is written as for HTTP/1 and translated, so that there is one encoder; it costs half a
//! microsecond. Windows of flow control are so large that the service never waits for them, and what
//! came is released at once, because bodies are not kept.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use ground::window::Outcome;
use h2::client::{Builder, Connection as Driver, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{Request, Uri};
use rustix::io::Errno;
use rustix::net::sockopt;

use super::body::Body;
use super::fault::Fault;
use super::parts::{Check, RequestParts};
use super::reply::{NO_REPLY, OUTCOME_HEADER, QUEUE_LENGTH_HEADER, Reply, ReplyError, number};
use super::target::Target;
use super::wire::{Wire, connect_to};

/// Window of a stream and of a connection, bytes: the product of bandwidth and delay of any network,
/// many times over. The service may send as much before we read; nothing of it is kept.
const STREAM_WINDOW: u32 = 1 << 24;
const CONNECTION_WINDOW: u32 = 1 << 30;
/// Bytes of a body that are handed to `h2` at a time.
const PIECE: usize = 64 * 1024;
/// Streams that we gave up and whose late frames are still ignored. `h2` takes those of others for a
/// breach of protocol, and would end the connection after a few timeouts.
const RESET_STREAMS_MAX: usize = 10_000;
/// Requests that are sent before the service has said how many it takes: about the 100 that RFC 9113
/// recommends as the least. It is a number that no service says, so that it tells whether one has.
const STREAMS_UNTOLD: usize = 97;
/// What has something to do, as the wakers note.
#[derive(Default)]
struct Ready {
    /// Slots of streams.
    slots: Mutex<Vec<u32>>,
    /// The connection itself has frames to send.
    connection: AtomicBool,
}

impl Ready {
    fn add(&self, slot: u32) {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).push(slot);
    }
}

struct StreamWaker {
    slot: u32,
    ready: Arc<Ready>,
}

impl Wake for StreamWaker {
    fn wake(self: Arc<Self>) {
        self.ready.add(self.slot);
    }
}

struct ConnectionWaker(Arc<Ready>);

impl Wake for ConnectionWaker {
    fn wake(self: Arc<Self>) {
        self.0.connection.store(true, Ordering::Relaxed);
    }
}

type Opened = Result<(SendRequest<Bytes>, Driver<Wire, Bytes>), h2::Error>;

enum State {
    /// The connection is being made, or the preface sent.
    Opening(Pin<Box<dyn Future<Output = Opened> + Send>>),
    Open {
        sender: SendRequest<Bytes>,
        driver: Box<Driver<Wire, Bytes>>,
    },
    Over,
}

/// A connection with many requests in progress.
pub struct Http2Connection {
    socket: Arc<OwnedFd>,
    address: SocketAddr,
    state: State,
    /// Whether the socket accepted less than it was given.
    blocked: Arc<AtomicBool>,
    ready: Arc<Ready>,
    waker: Waker,
    /// Slots of the streams that wait for the connection to open.
    waiting: Vec<u32>,
    streams_max: usize,
    used: bool,
}

impl Http2Connection {
    /// Begins to connect to `target`; the socket becomes writable when the connection is established
    /// or has failed. `streams_max`: the most requests in progress.
    pub fn open(target: &Target, streams_max: usize) -> Result<Http2Connection, Fault> {
        let address = target.addresses.current();
        let (socket, _) = connect_to(address)?;
        let session = target.secure.as_ref().map(|secure| secure.session()).transpose()?;
        let socket = Arc::new(socket);
        let blocked = Arc::new(AtomicBool::new(true));
        let wire = Wire { socket: socket.clone(), session, blocked: blocked.clone() };
        let mut builder = Builder::new();
        builder
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .initial_max_send_streams(STREAMS_UNTOLD)
            .max_concurrent_reset_streams(RESET_STREAMS_MAX)
            .enable_push(false);
        let opening = async move { builder.handshake::<_, Bytes>(wire).await };
        let ready = Arc::new(Ready::default());
        Ok(Http2Connection {
            socket,
            address,
            state: State::Opening(Box::pin(opening)),
            blocked,
            waker: Waker::from(Arc::new(ConnectionWaker(ready.clone()))),
            ready,
            waiting: Vec::new(),
            streams_max,
            used: false,
        })
    }

    /// The socket, for polling.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether bytes, or the connection itself, wait for the socket to become writable.
    pub fn wants_write(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }

    /// The most requests that may be in progress: what the service allows, within our own bound. 0
    /// when the service has said that it will close the connection.
    pub fn room(&mut self) -> usize {
        match &mut self.state {
            State::Opening(_) => self.streams_max,
            State::Open { sender, .. } => {
                let mut context = Context::from_waker(Waker::noop());
                match sender.poll_ready(&mut context) {
                    Poll::Ready(Err(_)) => 0,
                    _ => sender.current_max_send_streams().min(self.streams_max),
                }
            }
            State::Over => 0,
        }
    }

    /// Whether a request has been answered on this connection.
    pub fn is_used(&self) -> bool {
        self.used
    }

    /// Reads, writes, and notes which streams have something to do. `Ready` when the connection has
    /// ended, by an error or as the service announced.
    pub fn poll(&mut self) -> Poll<Result<(), Fault>> {
        self.blocked.store(false, Ordering::Relaxed);
        self.ready.connection.store(false, Ordering::Relaxed);
        let mut context = Context::from_waker(&self.waker);
        loop {
            let ended = match &mut self.state {
                State::Opening(opening) => {
                    let connect = |error| Fault::Connect { address: self.address, error };
                    if let Err(error) | Ok(Err(error)) = sockopt::socket_error(&self.socket) {
                        self.state = State::Over;
                        return Poll::Ready(Err(connect(error)));
                    }
                    match opening.as_mut().poll(&mut context) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(Ok((sender, driver))) => {
                            self.state = State::Open { sender, driver: Box::new(driver) };
                            self.waiting.drain(..).for_each(|slot| self.ready.add(slot));
                            continue;
                        }
                        Poll::Ready(Err(error)) => Err(fault(error)),
                    }
                }
                State::Open { driver, .. } => match Pin::new(driver).poll(&mut context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(ended) => ended.map_err(fault),
                },
                State::Over => Ok(()),
            };
            self.state = State::Over;
            return Poll::Ready(ended);
        }
    }

    /// Whether the connection has frames to send since it was polled.
    pub fn wants_poll(&self) -> bool {
        self.ready.connection.load(Ordering::Relaxed)
    }

    /// Takes the slots of the streams that have something to do.
    pub fn take_ready(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.ready.slots.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Begins a request; `slot` is how [`Http2Connection::take_ready`] names it. Nothing is sent before
    /// the stream is polled, and the connection after it.
    pub fn begin(
        &mut self,
        slot: u32,
        target: &Target,
        parts: &RequestParts<'_>,
    ) -> Result<Http2Stream, Fault> {
        let mut written = Vec::new();
        target.write_request(&mut written, parts);
        let (request, body) = translated(&written, target.is_secure())?;
        let source = match parts.upload() {
            Some(body) => Source::Generated(body),
            None => Source::Whole(Bytes::copy_from_slice(body)),
        };
        let waker = Arc::new(StreamWaker { slot, ready: self.ready.clone() });
        self.ready.add(slot);
        Ok(Http2Stream {
            slot,
            phase: Phase::Unsent(Box::new(request), source),
            is_early: false,
            upload: None,
            reply: NO_REPLY,
            check: parts.check(),
            waker: Waker::from(waker),
        })
    }
}

/// A request on a connection, and its reply.
pub struct Http2Stream {
    slot: u32,
    phase: Phase,
    /// Whether it was sent before the service had said how many requests it takes.
    is_early: bool,
    upload: Option<Upload>,
    reply: Reply,
    check: Option<Check>,
    waker: Waker,
}

enum Phase {
    Unsent(Box<Request<()>>, Source),
    Head(ResponseFuture),
    Body(RecvStream),
    Done,
}

/// The body of a request that is not sent yet.
enum Source {
    /// Of a listed request: it is in memory.
    Whole(Bytes),
    /// The object of a key, which is made as it is sent.
    Generated(Body),
}

impl Source {
    fn is_empty(&self) -> bool {
        match self {
            Source::Whole(bytes) => bytes.is_empty(),
            Source::Generated(body) => body.size == 0,
        }
    }

    /// Begins to send. What is in memory is handed over whole, without waiting for room: so it leaves
    /// in one write with its head, and the service is woken once. `None` if that was all.
    fn begin(self, mut stream: SendStream<Bytes>) -> Option<Upload> {
        match self {
            Source::Whole(bytes) if bytes.is_empty() => None,
            Source::Whole(bytes) => {
                // An error is left to the reply, which has it as well.
                let _ = stream.send_data(bytes, true);
                None
            }
            Source::Generated(body) => (body.size > 0).then_some(Upload { body, sent: 0, stream }),
        }
    }
}

/// A generated object that is being sent.
struct Upload {
    body: Body,
    sent: u64,
    stream: SendStream<Bytes>,
}

impl Upload {
    /// Hands on as much as flow control allows. Returns whether there is more to send; an error ends
    /// it too, and is left to the reply, which has it as well.
    fn poll(&mut self, context: &mut Context<'_>) -> bool {
        while self.sent < self.body.size {
            let left = self.body.size - self.sent;
            self.stream.reserve_capacity(left.min(PIECE as u64) as usize);
            // `poll_capacity` tells of changes only: what is there already must be asked for.
            let mut room = self.stream.capacity();
            if room == 0 {
                match self.stream.poll_capacity(context) {
                    Poll::Ready(Some(Ok(more))) if more > 0 => room = more,
                    Poll::Ready(Some(Ok(_))) | Poll::Pending => return true,
                    Poll::Ready(Some(Err(_)) | None) => return false,
                }
            }
            let mut piece = vec![0; left.min(room.min(PIECE) as u64) as usize];
            self.body.fill(self.sent, &mut piece);
            self.sent += piece.len() as u64;
            if self.stream.send_data(piece.into(), self.sent == self.body.size).is_err() {
                return false;
            }
        }
        false
    }
}

impl Http2Stream {
    /// Sends and receives what is possible now; `Ready` when the reply is complete.
    pub fn poll(&mut self, connection: &mut Http2Connection) -> Poll<Result<(), Fault>> {
        if let Phase::Unsent(..) = self.phase {
            let State::Open { sender, .. } = &mut connection.state else {
                connection.waiting.push(self.slot);
                return Poll::Pending;
            };
            let sent = std::mem::replace(&mut self.phase, Phase::Done);
            let Phase::Unsent(request, source) = sent else {
                return Poll::Pending;
            };
            self.is_early = sender.current_max_send_streams() == STREAMS_UNTOLD;
            // A clone, because a handle refuses a second request while its first waits for a place.
            match sender.clone().send_request(*request, source.is_empty()) {
                Ok((head, stream)) => {
                    self.phase = Phase::Head(head);
                    self.upload = source.begin(stream);
                }
                Err(error) => return Poll::Ready(Err(fault(error))),
            }
        }
        let waker = self.waker.clone();
        let mut context = Context::from_waker(&waker);
        if self.upload.as_mut().is_some_and(|upload| !upload.poll(&mut context)) {
            self.upload = None;
        }
        let ended = self.poll_reply(&mut context);
        match ended {
            Poll::Ready(Ok(())) => connection.used = true,
            // Neither side is to blame for one too many, and nothing was done about it.
            Poll::Ready(Err(Fault::Refused)) if self.is_early => {
                return Poll::Ready(Err(Fault::Unprocessed));
            }
            _ => {}
        }
        ended
    }

    fn poll_reply(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        loop {
            match &mut self.phase {
                Phase::Unsent(..) => return Poll::Pending,
                Phase::Head(head) => match Pin::new(head).poll(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(fault(error))),
                    Poll::Ready(Ok(head)) => {
                        self.reply = reply_of(&head);
                        self.phase = Phase::Body(head.into_body());
                    }
                },
                Phase::Body(body) => match body.poll_data(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(fault(error))),
                    Poll::Ready(Some(Ok(piece))) => {
                        self.reply.body_bytes += piece.len() as u64;
                        if let Some(check) = &mut self.check {
                            check.add(&piece);
                        }
                        // It fails only for more than what came.
                        let _ = body.flow_control().release_capacity(piece.len());
                    }
                    Poll::Ready(None) => match body.poll_trailers(context) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(fault(error))),
                        Poll::Ready(Ok(_)) => self.phase = Phase::Done,
                    },
                },
                Phase::Done => return Poll::Ready(Ok(())),
            }
        }
    }

    /// The reply as far as it has arrived.
    pub fn reply(&self) -> &Reply {
        &self.reply
    }

    /// Whether nothing of the reply has arrived.
    pub fn is_unanswered(&self) -> bool {
        matches!(self.phase, Phase::Unsent(..) | Phase::Head(_)) || self.reply.status == 0
    }

    /// Whether the reply's bytes differ from the expected body.
    pub fn is_wrong(&self) -> bool {
        self.reply.status == 200 && self.check.as_ref().is_some_and(Check::is_wrong)
    }
}

fn reply_of(head: &http::Response<RecvStream>) -> Reply {
    let header = |name: &str| head.headers().get(name);
    let queue_length = header(QUEUE_LENGTH_HEADER).and_then(|value| number(value.as_bytes()));
    Reply {
        status: head.status().as_u16(),
        outcome: header(OUTCOME_HEADER).and_then(|v| v.to_str().ok()).and_then(Outcome::parse),
        queue_length: queue_length.and_then(|length| u32::try_from(length).ok()),
        content_length: header("content-length").and_then(|value| number(value.as_bytes())),
        ..NO_REPLY
    }
}

/// A request of HTTP/1 as one of HTTP/2, and its body.
fn translated(written: &[u8], is_secure: bool) -> Result<(Request<()>, &[u8]), Fault> {
    let wrong = |what: String| Fault::Http2(format!("the request cannot be sent: {what}"));
    let lines = written.iter().filter(|&&byte| byte == b'\n').count();
    let mut headers = vec![httparse::EMPTY_HEADER; lines];
    let mut parsed = httparse::Request::new(&mut headers);
    let length = match parsed.parse(written) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Err(wrong("its head has no end".to_owned())),
        Err(error) => return Err(wrong(error.to_string())),
    };
    let mut request = Request::builder().method(parsed.method.unwrap_or("GET"));
    let mut authority: &[u8] = b"";
    for header in parsed.headers.iter() {
        match header.name {
            "host" => authority = header.value,
            // Of a connection of HTTP/1: RFC 9113, section 8.2.2.
            "connection" | "upgrade" | "proxy-connection" => {}
            "te" if header.value != b"trailers" => {}
            name => request = request.header(name, header.value),
        }
    }
    let uri = Uri::builder()
        .scheme(if is_secure { "https" } else { "http" })
        .authority(authority)
        .path_and_query(parsed.path.unwrap_or("/"))
        .build()
        .map_err(|error| wrong(error.to_string()))?;
    let request = request.uri(uri).version(http::Version::HTTP_2).body(());
    let request = request.map_err(|error| wrong(error.to_string()))?;
    Ok((request, written.get(length..).unwrap_or_default()))
}

/// What ended a stream or a connection.
fn fault(error: h2::Error) -> Fault {
    if let Some(error) = error.get_io() {
        return match (Errno::from_io_error(error), error.kind()) {
            (Some(errno), _) => Fault::Socket(errno),
            (None, io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof) => {
                Fault::Reply(ReplyError::Closed("with requests on it"))
            }
            (None, _) => Fault::Http2(error.to_string()),
        };
    }
    let reason = error.reason().map_or(String::new(), |reason| format!("{reason:?}"));
    if error.is_go_away() && error.is_remote() {
        // The service promises that it did nothing about streams above the last that it names.
        return match error.reason() {
            Some(Reason::NO_ERROR) => Fault::Unprocessed,
            _ => Fault::Http2(format!("the service ended the connection (GOAWAY, {reason})")),
        };
    }
    if error.is_reset() && error.is_remote() {
        return match error.reason() {
            Some(Reason::REFUSED_STREAM) => Fault::Refused,
            _ => Fault::Http2(format!("the service ended the request (RST_STREAM, {reason})")),
        };
    }
    Fault::Http2(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_http_1_are_translated() {
        let written = b"POST /a%20b?x=1 HTTP/1.1\r\nhost: h:1\r\nx-key: v\r\nconnection: close\r\n\
            content-length: 3\r\n\r\nabc";
        let (request, body) = translated(written, true).unwrap();
        assert_eq!(request.uri().to_string(), "https://h:1/a%20b?x=1");
        assert_eq!((request.method().as_str(), body), ("POST", &b"abc"[..]));
        let names: Vec<&str> = request.headers().keys().map(|name| name.as_str()).collect();
        assert_eq!(names, ["x-key", "content-length"]);
        assert!(translated(b"GET / HTTP/1.1\r\nhost: \r\n\r\n", false).is_err());
    }
}
