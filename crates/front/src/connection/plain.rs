//! The connection's own turn: plain reads are answered, until there is something for hyper.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::HeaderMap;
use record::clock;
use tokio::io::ReadBuf;
use wire::framing::Refusal;
use wire::head::{Approved, Front, Line, front};
use wire::lane::ThreadRecorder;
use wire::limits::Client;
use wire::refusal;

use super::hyper_side::{Link, Turn};
use crate::quick::{Content, Facts, Flight, Quick, ReadStart, Record, Slot};

/// Capacity of a reply's head beyond which its buffer is not kept.
const HEAD_BYTES_KEPT: usize = 16 << 10;

thread_local! {
    /// Where requests are read: one for each thread, so that a connection that is idle keeps none.
    static REQUESTS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// Where heads of replies are written, for the same reason.
    static HEAD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// Where bodies are read that are passed on: always the same memory, which the processor's cache
    /// keeps, where a buffer for each connection would be read from memory.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Bytes of the scratch space: the largest body that is passed on whole, and a head.
const SCRATCH_BYTES: usize = (256 + 16) << 10;

/// Least bytes that one read may bring: some dozens of requests that were sent without waiting for replies.
const REQUESTS_BYTES_MIN: usize = 16 << 10;

/// How the connection's turn ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The bytes that are held begin with something for hyper.
    Hyper,
    /// The client has closed, or is to.
    End,
}

/// What to do with the bytes in the buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Nothing, or a part of a head, is left: there may be more.
    More,
    /// A reply waits for the client, or the request for a reply.
    Blocked,
    /// The first bytes are hyper's.
    Given,
}

/// What became of a plain read.
enum Plain {
    Sent,
    /// Its reply waits for the client, or for another process.
    Waits,
    Usual,
}

/// A reply that the client has not taken in full.
struct UnsentReply {
    head: Vec<u8>,
    head_sent: usize,
    body: Bytes,
    body_sent: usize,
    /// What is recorded once it is sent; a refusal is not.
    record: Option<Record>,
}

/// The state of plain reads on one connection.
pub(super) struct PlainReads<S: Quick> {
    shared: Arc<S>,
    lane: Arc<ThreadRecorder>,
    approved: Approved<Facts>,
    /// The read that waits for another process, with the bytes of its request.
    flight: Option<(S::Flight, Vec<u8>)>,
    slot: Slot<S::Flight>,
    rest: Option<UnsentReply>,
    /// The request was refused: the connection ends after the reply.
    is_refused: bool,
    head_bytes_max: usize,
    /// Whose requests are counted together with this connection's.
    client: Option<Client>,
}

impl<S: Quick> PlainReads<S> {
    /// Those of a connection from an address.
    pub(super) fn new(
        shared: Arc<S>,
        lane: Arc<ThreadRecorder>,
        slot: Slot<S::Flight>,
        head_bytes_max: usize,
        from: Option<IpAddr>,
    ) -> PlainReads<S> {
        let is_limited = shared.limits().is_some();
        PlainReads {
            client: from.filter(|_| is_limited).map(Client::from_address),
            shared,
            lane,
            approved: Approved::default(),
            flight: None,
            slot,
            rest: None,
            is_refused: false,
            head_bytes_max,
        }
    }

    /// Whether no read is under way: the client's next request is waited for.
    pub(super) fn is_idle(&self) -> bool {
        self.rest.is_none() && self.flight.is_none()
    }

    /// Whether a client may have something now; it always may where nothing is limited.
    fn may(&self, client: Option<&Client>) -> bool {
        let limits = self.shared.limits().zip(client);
        limits.is_none_or(|(limits, client)| limits.admit(client, clock::now()).is_ok())
    }

    /// Counts what a client gets.
    fn pay(&self, client: Option<Client>, content: &Content) {
        if let Some((limits, client)) = self.shared.limits().zip(client) {
            limits.pay(client, content.len() as u64, clock::now());
        }
    }

    /// Answers plain reads until there is something for hyper. With `ending` only what is under way ends.
    pub(super) fn poll(
        &mut self,
        link: &mut Link,
        context: &mut Context<'_>,
        ending: bool,
    ) -> Poll<Step> {
        loop {
            // In the order of the requests: the reply under way, the read under way, the next one.
            if ready!(self.send_rest(link, context)).is_err() || self.is_refused {
                return Poll::Ready(Step::End);
            }
            if self.flight.is_some() {
                match ready!(self.poll_flight(link, context)) {
                    Ok(None) => continue,
                    Ok(Some(step)) => return Poll::Ready(step),
                    Err(_) => return Poll::Ready(Step::End),
                }
            }
            if ending {
                return Poll::Ready(Step::End);
            }
            match ready!(self.read(link, context)) {
                Ok(None) => {}
                Ok(Some(step)) => return Poll::Ready(step),
                Err(_) => return Poll::Ready(Step::End),
            }
        }
    }

    /// Reads requests and answers those that are plain; `None`: a reply is under way.
    fn read(
        &mut self,
        link: &mut Link,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Step>>> {
        link.phase.read();
        REQUESTS.with_borrow_mut(|space| {
            // A head of the permitted length fits, so that a longer one is known to be one.
            let bytes = self.head_bytes_max.max(REQUESTS_BYTES_MIN);
            if space.len() < bytes {
                space.resize(bytes, 0);
            }
            let buffer = &mut ReadBuf::new(&mut space[..bytes]);
            loop {
                link.give_held(buffer);
                match self.answer(link, context, buffer)? {
                    Next::More if !link.held.is_empty() => continue,
                    Next::More => {}
                    Next::Blocked => return Poll::Ready(Ok(None)),
                    Next::Given => return Poll::Ready(Ok(Some(Step::Hyper))),
                }
                let before = buffer.filled().len();
                if link.socket.stream.poll_read(context, buffer)?.is_pending() {
                    hold(link, buffer, 0);
                    link.phase.wait();
                    return Poll::Pending;
                }
                if buffer.filled().len() == before {
                    // The client has closed; the beginning of a head that it leaves is nobody's request.
                    return Poll::Ready(Ok(Some(Step::End)));
                }
            }
        })
    }

    /// Answers the plain reads at the front of the buffer.
    fn answer(
        &mut self,
        link: &mut Link,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> io::Result<Next> {
        let mut at = 0;
        loop {
            let bytes = &buffer.filled()[at..];
            if bytes.is_empty() {
                buffer.clear();
                return Ok(Next::More);
            }
            let (shared, max) = (&self.shared, self.head_bytes_max);
            let approve = |headers: &_| shared.approve(headers);
            let mut signer = None;
            let signed = |is_head, path, headers: &HeaderMap| {
                let signed = shared.signed(is_head, path, headers)?;
                signer = signed.client;
                Some((signed.key, signed.facts))
            };
            let length = match front(bytes, &mut self.approved, max, approve, signed) {
                Front::Part if buffer.remaining() > 0 || at > 0 => {
                    shift(buffer, at);
                    return Ok(Next::More);
                }
                Front::Part | Front::Unknown => {
                    hold(link, buffer, at);
                    link.turn = Turn::Handed;
                    link.phase.hand();
                    return Ok(Next::Given);
                }
                Front::Ambiguous => return Ok(self.refuse(refusal::MALFORMED)),
                Front::Refused(refusal) => return Ok(self.refuse(refusal)),
                Front::Other { length } => length,
                Front::Plain { line, facts, length } => {
                    let next = at + length;
                    let request = &buffer.filled()[at..next];
                    match self.plain(link, context, &line, facts, signer, request)? {
                        Plain::Sent => {
                            at = next;
                            continue;
                        }
                        Plain::Waits => {
                            hold(link, buffer, next);
                            return Ok(Next::Blocked);
                        }
                        Plain::Usual => length as u64,
                    }
                }
            };
            let bytes = &buffer.filled()[at..];
            let is_read = bytes.starts_with(b"GET ") || bytes.starts_with(b"HEAD ");
            hold(link, buffer, at);
            link.give(length, is_read);
            // Until hyper has read the request and called for its reply.
            link.phase.expect();
            return Ok(Next::Given);
        }
    }

    /// Answers a request that breaks a rule of HTTP. hyper would choose one of its ends, or take it.
    fn refuse(&mut self, refusal: Refusal) -> Next {
        let head = refusal::written(&S::refused(refusal.status, refusal.text));
        self.rest = Some(UnsentReply {
            head,
            head_sent: 0,
            body: Bytes::new(),
            body_sent: 0,
            record: None,
        });
        self.is_refused = true;
        Next::Blocked
    }

    /// Answers a plain read, or begins to; `request` are the bytes of its head.
    fn plain(
        &mut self,
        link: &mut Link,
        context: &mut Context<'_>,
        line: &Line<'_>,
        facts: Facts,
        signer: Option<Client>,
        request: &[u8],
    ) -> io::Result<Plain> {
        HEAD.with_borrow_mut(|head| {
            head.clear();
            head.shrink_to(HEAD_BYTES_KEPT);
            link.socket.copies = facts.internal && link.socket.near;
            let client = signer.or_else(|| self.client.clone());
            // What is refused is refused the usual way.
            if self.shared.ends() || !self.may(client.as_ref()) {
                return Ok(Plain::Usual);
            }
            match self.shared.begin(&self.lane, line, facts, head) {
                ReadStart::Usual => Ok(Plain::Usual),
                ReadStart::Reply(content, record) => {
                    self.pay(client, &content);
                    self.send_content(link, context, head, content, record)
                }
                ReadStart::Flight(flight) => {
                    self.flight = Some((flight, request.to_vec()));
                    Ok(Plain::Waits)
                }
                ReadStart::Resume(resumed) => {
                    self.leave(Some(resumed));
                    Ok(Plain::Usual)
                }
            }
        })
    }

    /// Leaves what the usual way needs for the request that hyper is about to be given.
    fn leave(&mut self, resumed: Option<<S::Flight as Flight>::Resumed>) {
        *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = resumed;
    }

    /// Waits for the reply of another process and sends it; `None`: it was sent, or is being sent.
    fn poll_flight(
        &mut self,
        link: &mut Link,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Step>>> {
        let Some((mut flight, request)) = self.flight.take() else {
            return Poll::Ready(Ok(None));
        };
        let landed = HEAD.with_borrow_mut(|head| {
            head.clear();
            SCRATCH.with_borrow_mut(|scratch| {
                scratch.resize(SCRATCH_BYTES, 0);
                match flight.poll(context, head, scratch) {
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(None) => Poll::Ready(Ok(None)),
                    Poll::Ready(Some((content, record))) => {
                        self.pay(self.client.clone(), &content);
                        let Content::Scratch(range) = content else {
                            let sent = self.send_content(link, context, head, content, record);
                            return Poll::Ready(sent.map(Some));
                        };
                        let body = scratch.get(range).unwrap_or_default();
                        let keep = |from: usize| Bytes::copy_from_slice(&body[from..]);
                        Poll::Ready(self.send(link, context, head, body, keep, record).map(Some))
                    }
                }
            })
        });
        match landed {
            Poll::Ready(Ok(Some(_))) => Poll::Ready(Ok(None)),
            Poll::Ready(Ok(None)) => {
                self.leave(flight.resume());
                link.give(request.len() as u64, true);
                link.held.splice(..0, request);
                link.phase.expect();
                Poll::Ready(Ok(Some(Step::Hyper)))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                if link.poll_gone(context, true).is_ready() {
                    return Poll::Ready(Ok(Some(Step::End)));
                }
                link.phase.pass(clock::now());
                self.flight = Some((flight, request));
                Poll::Pending
            }
        }
    }

    fn send_content(
        &mut self,
        link: &mut Link,
        context: &mut Context<'_>,
        head: &[u8],
        content: Content,
        record: Record,
    ) -> io::Result<Plain> {
        let Content::Bytes(body) = content else {
            return Err(io::Error::other("a reply without its bytes"));
        };
        self.send(link, context, head, &body, |from| body.slice(from..), record)
    }

    /// Sends a reply; what the client does not take is kept.
    fn send(
        &mut self,
        link: &mut Link,
        context: &mut Context<'_>,
        head: &[u8],
        body: &[u8],
        keep: impl FnOnce(usize) -> Bytes,
        record: Record,
    ) -> io::Result<Plain> {
        let (mut head_sent, mut body_sent) = (0, 0);
        while head_sent < head.len() || body_sent < body.len() {
            let buffers = [IoSlice::new(&head[head_sent..]), IoSlice::new(&body[body_sent..])];
            let buffers = &buffers[usize::from(head_sent == head.len())..];
            match poll_reply(link, context, buffers)? {
                Poll::Ready(count) => {
                    let of_head = count.min(head.len() - head_sent);
                    head_sent += of_head;
                    body_sent += count - of_head;
                }
                Poll::Pending => {
                    let head = head[head_sent..].to_vec();
                    let body = keep(body_sent);
                    let record = Some(record);
                    self.rest =
                        Some(UnsentReply { head, head_sent: 0, body, body_sent: 0, record });
                    return Ok(Plain::Waits);
                }
            }
        }
        if link.socket.poll_through(context)?.is_pending() {
            let (head, body, record) = (Vec::new(), Bytes::new(), Some(record));
            self.rest = Some(UnsentReply { head, head_sent: 0, body, body_sent: 0, record });
            return Ok(Plain::Waits);
        }
        self.sent(link, Some(record));
        Ok(Plain::Sent)
    }

    /// Sends what is left of a reply.
    fn send_rest(&mut self, link: &mut Link, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(mut rest) = self.rest.take() else { return Poll::Ready(Ok(())) };
        match poll_rest(&mut rest, link, context) {
            Poll::Pending => {
                // The limit of silence does not count while a reply is sent.
                link.phase.pass(clock::now());
                self.rest = Some(rest);
                Poll::Pending
            }
            Poll::Ready(sent) => {
                // A client that left, or was too slow, was served all the same.
                self.sent(link, rest.record);
                Poll::Ready(sent)
            }
        }
    }

    /// Records a reply that the kernel has.
    fn sent(&self, link: &mut Link, record: Option<Record>) {
        let now = clock::now();
        link.socket.keeps_up();
        link.phase.pass(now);
        match record {
            Some(Record::Passed(passed)) => self.lane.passed(&passed, now),
            Some(Record::Request(mut request)) => request.replied = Some(now),
            None => {}
        }
    }
}

/// Keeps what the buffer has from `at` on for the next look.
fn hold(link: &mut Link, buffer: &mut ReadBuf<'_>, at: usize) {
    // Before bytes that did not fit into the buffer.
    let rest = std::mem::take(&mut link.held);
    link.held.extend_from_slice(&buffer.filled()[at..]);
    link.held.extend_from_slice(&rest);
    buffer.clear();
}

/// Drops the first `at` bytes of the buffer.
fn shift(buffer: &mut ReadBuf<'_>, at: usize) {
    let length = buffer.filled().len();
    buffer.filled_mut().copy_within(at.., 0);
    buffer.set_filled(length - at);
}

fn poll_reply(
    link: &mut Link,
    context: &mut Context<'_>,
    buffers: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    match ready!(link.socket.poll_send(context, buffers))? {
        0 => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
        count => Poll::Ready(Ok(count)),
    }
}

/// Sends what is left of a reply, and all of it that is encrypted.
fn poll_rest(
    rest: &mut UnsentReply,
    link: &mut Link,
    context: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    loop {
        let head = rest.head.get(rest.head_sent..).unwrap_or_default();
        let body = rest.body.get(rest.body_sent..).unwrap_or_default();
        if head.is_empty() && body.is_empty() {
            return link.socket.poll_through(context);
        }
        let buffers = [IoSlice::new(head), IoSlice::new(body)];
        let buffers = &buffers[usize::from(head.is_empty())..];
        let of_head_max = head.len();
        let count = ready!(poll_reply(link, context, buffers))?;
        let of_head = count.min(of_head_max);
        rest.head_sent += of_head;
        rest.body_sent += count - of_head;
    }
}
