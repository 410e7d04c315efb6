//! What a connection's socket does with the bytes that it receives.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::sync::PoisonError;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use record::clock;
use tokio::io::ReadBuf;

use super::{Content, Facts, Flight, Quick, ReadStart, Record, Turn, UnsentReply};
use crate::socket::Socket;
use wire::head::{Front, Line, front};
use wire::limits::Client;

/// Capacity of a reply's head beyond which its buffer is not kept.
const HEAD_BYTES_KEPT: usize = 16 << 10;

thread_local! {
    /// Where heads of replies are written: one for each thread, so that a connection that is idle
    /// keeps none.
    static HEAD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// Where bodies are read that are passed on: always the same memory, which the processor's cache
    /// keeps, where a buffer for each connection would be read from memory.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Bytes of the scratch space: the largest body that is passed on whole, and a head.
const SCRATCH_BYTES: usize = (256 + 16) << 10;

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

impl<S: Quick> Socket<S> {
    /// Reads for hyper; plain reads are answered and hidden from it.
    pub fn read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.phase.read();
        match self.reads.turn {
            Turn::Ours => self.read_ours(context, buffer),
            Turn::Handed if self.reads.held.is_empty() => {
                let read = self.stream.poll_read(context, buffer);
                if read.is_pending() && !self.phase.is_replying() {
                    self.phase.wait();
                }
                read
            }
            Turn::Handed => {
                self.give_held(buffer);
                Poll::Ready(Ok(()))
            }
            Turn::Theirs { left: 0 } if !self.phase.is_replying() => {
                self.reads.turn = Turn::Ours;
                self.read_ours(context, buffer)
            }
            Turn::Theirs { left: 0 } => self.read_early(context, buffer),
            Turn::Theirs { left } => self.read_theirs(context, buffer, left),
        }
    }

    /// Wakes hyper for bytes that it could not have while a reply was under way.
    pub fn flushed(&mut self, context: &mut Context<'_>) {
        if self.reads.recall && !self.phase.is_replying() {
            self.reads.recall = false;
            context.waker().wake_by_ref();
        }
    }

    /// Gives the rest of the request that hyper has begun to read.
    fn read_theirs(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
        left: u64,
    ) -> Poll<io::Result<()>> {
        if self.reads.held.is_empty() {
            ready!(self.stream.poll_read(context, buffer))?;
        } else {
            self.give_held(buffer);
        }
        self.cut(buffer, left);
        Poll::Ready(Ok(()))
    }

    /// Leaves hyper the rest of a request, of which there may be `left` bytes in the buffer, and holds
    /// what follows it.
    fn cut(&mut self, buffer: &mut ReadBuf<'_>, left: u64) {
        let length = buffer.filled().len();
        let given = usize::try_from(left).unwrap_or(usize::MAX).min(length);
        if given < length {
            let surplus = buffer.filled()[given..].to_vec();
            self.reads.held.splice(..0, surplus);
            buffer.set_filled(given);
        }
        self.reads.turn = Turn::Theirs { left: left - given as u64 };
    }

    /// hyper looks whether the client is still there while a reply is under way: bytes of the next
    /// request are held until it has been sent.
    fn read_early(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.reads.held.is_empty() {
            ready!(self.stream.poll_read(context, buffer))?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.reads.held.extend_from_slice(buffer.filled());
            buffer.clear();
        }
        self.reads.recall = true;
        Poll::Pending
    }

    /// Moves held bytes to hyper's buffer, as many as it has room for.
    fn give_held(&mut self, buffer: &mut ReadBuf<'_>) {
        let held = &mut self.reads.held;
        let count = held.len().min(buffer.remaining());
        buffer.put_slice(&held[..count]);
        held.drain(..count);
        if held.is_empty() {
            *held = Vec::new();
        }
    }

    /// No request is under way: answers plain reads until there is something for hyper.
    fn read_ours(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if self.reads.rest.is_some() {
                ready!(self.send_rest(context))?;
            }
            if self.reads.flight.is_some() {
                ready!(self.poll_flight(context, buffer))?;
                if self.reads.turn != Turn::Ours {
                    return self.read(context, buffer);
                }
                continue;
            }
            if !self.reads.held.is_empty() {
                self.give_held(buffer);
            }
            match self.answer(context, buffer)? {
                Next::More if !self.reads.held.is_empty() => continue,
                Next::More => {}
                Next::Blocked => continue,
                Next::Given => return Poll::Ready(Ok(())),
            }
            let before = buffer.filled().len();
            if self.stream.poll_read(context, buffer)?.is_pending() {
                self.hold(buffer, 0);
                self.phase.set_idle(self.reads.held.is_empty());
                self.phase.wait();
                return Poll::Pending;
            }
            if buffer.filled().len() == before {
                // The client has closed: hyper gets what there is, then the end.
                self.reads.turn = Turn::Handed;
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Keeps what the buffer has from `at` on for the next look.
    fn hold(&mut self, buffer: &mut ReadBuf<'_>, at: usize) {
        // Before bytes that did not fit into the buffer.
        let rest = std::mem::take(&mut self.reads.held);
        self.reads.held.extend_from_slice(&buffer.filled()[at..]);
        self.reads.held.extend_from_slice(&rest);
        buffer.clear();
    }

    /// Answers the plain reads at the front of the buffer.
    fn answer(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> io::Result<Next> {
        let mut at = 0;
        loop {
            let bytes = &buffer.filled()[at..];
            if bytes.is_empty() {
                buffer.clear();
                return Ok(Next::More);
            }
            let reads = &mut self.reads;
            let approve = |headers: &_| reads.shared.approve(headers);
            let mut signer = None;
            let signed = |is_head, path, headers: &_| {
                let signed = reads.shared.signed(is_head, path, headers)?;
                signer = signed.client;
                Some((signed.key, signed.facts))
            };
            let max = reads.head_bytes_max;
            let front = front(bytes, &mut reads.approved, max, approve, signed);
            let refused = match front {
                Front::Ambiguous => Some(None),
                Front::Refused(refusal) => Some(Some(refusal)),
                _ => None,
            };
            let length = match front {
                Front::Part if buffer.remaining() > 0 || at > 0 => {
                    self.shift(buffer, at);
                    return Ok(Next::More);
                }
                Front::Part | Front::Unknown | Front::Ambiguous | Front::Refused(_) => {
                    self.shift(buffer, at);
                    if let Some(refusal) = refused {
                        // hyper would choose one of its ends, or take it: it gets what it refuses, and closes.
                        if let Some(refusal) = refusal {
                            self.phase.refuse(refusal);
                        }
                        buffer.clear();
                        buffer.put_slice(b"\0\r\n\r\n");
                    }
                    self.reads.turn = Turn::Handed;
                    self.phase.hand();
                    return Ok(Next::Given);
                }
                Front::Other { length } => length,
                Front::Plain { line, facts, length } => {
                    let next = at + length;
                    let request = &buffer.filled()[at..next];
                    match self.plain(context, &line, facts, signer, request)? {
                        Plain::Sent => {
                            at = next;
                            continue;
                        }
                        Plain::Waits => {
                            self.hold(buffer, next);
                            return Ok(Next::Blocked);
                        }
                        Plain::Usual => length as u64,
                    }
                }
            };
            self.shift(buffer, at);
            self.cut(buffer, length);
            // Until hyper has read the request and called for its reply.
            self.phase.expect();
            return Ok(Next::Given);
        }
    }

    /// Drops the first `at` bytes of the buffer.
    fn shift(&mut self, buffer: &mut ReadBuf<'_>, at: usize) {
        let length = buffer.filled().len();
        buffer.filled_mut().copy_within(at.., 0);
        buffer.set_filled(length - at);
    }

    /// Answers a plain read, or begins to; `request` are the bytes of its head.
    fn plain(
        &mut self,
        context: &mut Context<'_>,
        line: &Line<'_>,
        facts: Facts,
        signer: Option<Client>,
        request: &[u8],
    ) -> io::Result<Plain> {
        HEAD.with_borrow_mut(|head| {
            head.clear();
            head.shrink_to(HEAD_BYTES_KEPT);
            self.copies = facts.internal && self.near;
            let reads = &mut self.reads;
            let client = signer.or_else(|| reads.client.clone());
            // What is refused is refused the usual way.
            if reads.shared.ends() || !reads.may(client.as_ref()) {
                return Ok(Plain::Usual);
            }
            match reads.shared.begin(&reads.lane, line, facts, head) {
                ReadStart::Usual => Ok(Plain::Usual),
                ReadStart::Reply(content, record) => {
                    reads.pay(client, &content);
                    self.send_content(context, head, content, record)
                }
                ReadStart::Flight(flight) => {
                    reads.flight = Some((flight, request.to_vec()));
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
        *self.reads.slot.lock().unwrap_or_else(PoisonError::into_inner) = resumed;
    }

    /// Waits for the reply of another process and sends it.
    fn poll_flight(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some((mut flight, request)) = self.reads.flight.take() else {
            return Poll::Ready(Ok(()));
        };
        let landed = HEAD.with_borrow_mut(|head| {
            head.clear();
            SCRATCH.with_borrow_mut(|scratch| {
                scratch.resize(SCRATCH_BYTES, 0);
                match flight.poll(context, head, scratch) {
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(None) => Poll::Ready(Ok(None)),
                    Poll::Ready(Some((content, record))) => {
                        self.reads.pay(self.reads.client.clone(), &content);
                        let Content::Scratch(range) = content else {
                            let sent = self.send_content(context, head, content, record);
                            return Poll::Ready(sent.map(Some));
                        };
                        let body = scratch.get(range).unwrap_or_default();
                        let keep = |from: usize| Bytes::copy_from_slice(&body[from..]);
                        Poll::Ready(self.send(context, head, body, keep, record).map(Some))
                    }
                }
            })
        });
        match landed {
            Poll::Pending => {
                // Whether the client is still there.
                if self.read_early(context, buffer)?.is_ready() {
                    self.reads.turn = Turn::Handed;
                    return Poll::Ready(Ok(()));
                }
                self.reads.recall = false;
                self.phase.pass(clock::now());
                self.reads.flight = Some((flight, request));
                Poll::Pending
            }
            Poll::Ready(sent) => match sent? {
                None => {
                    let left = request.len() as u64;
                    self.leave(flight.resume());
                    self.reads.held.splice(..0, request);
                    self.reads.turn = Turn::Theirs { left };
                    self.phase.expect();
                    Poll::Ready(Ok(()))
                }
                Some(Plain::Waits) => Poll::Pending,
                Some(_) => Poll::Ready(Ok(())),
            },
        }
    }

    fn send_content(
        &mut self,
        context: &mut Context<'_>,
        head: &[u8],
        content: Content,
        record: Record,
    ) -> io::Result<Plain> {
        let Content::Bytes(body) = content else {
            return Err(io::Error::other("a reply without its bytes"));
        };
        self.send(context, head, &body, |from| body.slice(from..), record)
    }

    /// Sends a reply; what the client does not take is kept.
    fn send(
        &mut self,
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
            match self.poll_reply(context, buffers)? {
                Poll::Ready(count) => {
                    let of_head = count.min(head.len() - head_sent);
                    head_sent += of_head;
                    body_sent += count - of_head;
                }
                Poll::Pending => {
                    let head = head[head_sent..].to_vec();
                    let body = keep(body_sent);
                    let rest = UnsentReply { head, head_sent: 0, body, body_sent: 0, record };
                    self.reads.rest = Some(rest);
                    return Ok(Plain::Waits);
                }
            }
        }
        if self.poll_through(context)?.is_pending() {
            let (head, body) = (Vec::new(), Bytes::new());
            self.reads.rest = Some(UnsentReply { head, head_sent: 0, body, body_sent: 0, record });
            return Ok(Plain::Waits);
        }
        self.sent(record);
        Ok(Plain::Sent)
    }

    fn poll_reply(
        &mut self,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match ready!(self.poll_send(context, buffers))? {
            0 => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            count => Poll::Ready(Ok(count)),
        }
    }

    /// Ends what is under way when hyper closes the connection: it knows nothing of it.
    pub fn end(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.send_rest(context))?;
        if self.reads.flight.is_some() {
            let mut space = [0; 512];
            ready!(self.poll_flight(context, &mut ReadBuf::new(&mut space)))?;
        }
        self.send_rest(context)
    }

    /// Sends what is left of a reply.
    fn send_rest(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(mut rest) = self.reads.rest.take() else { return Poll::Ready(Ok(())) };
        loop {
            let head = rest.head.get(rest.head_sent..).unwrap_or_default();
            let body = rest.body.get(rest.body_sent..).unwrap_or_default();
            if head.is_empty() && body.is_empty() {
                let through = self.poll_through(context);
                if through.is_pending() {
                    self.phase.pass(clock::now());
                    self.reads.rest = Some(rest);
                } else {
                    self.sent(rest.record);
                }
                return through;
            }
            let buffers = [IoSlice::new(head), IoSlice::new(body)];
            let buffers = &buffers[usize::from(head.is_empty())..];
            let of_head_max = head.len();
            match self.poll_reply(context, buffers) {
                Poll::Ready(Ok(count)) => {
                    let of_head = count.min(of_head_max);
                    rest.head_sent += of_head;
                    rest.body_sent += count - of_head;
                }
                Poll::Ready(Err(error)) => {
                    // The client left, or was too slow: it was served all the same.
                    self.sent(rest.record);
                    return Poll::Ready(Err(error));
                }
                Poll::Pending => {
                    // The limit of silence does not count while a reply is sent.
                    self.phase.pass(clock::now());
                    self.reads.rest = Some(rest);
                    return Poll::Pending;
                }
            }
        }
    }

    /// Records a reply that the kernel has.
    fn sent(&mut self, record: Record) {
        let now = clock::now();
        self.delivered = None;
        self.phase.pass(now);
        match record {
            Record::Passed(passed) => self.reads.lane.passed(&passed, now),
            Record::Request(mut seen) => seen.replied = Some(now),
        }
    }
}
