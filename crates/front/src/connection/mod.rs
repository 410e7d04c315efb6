//! A client's connection: whose turn it is, and when it ends.
//!
//! A connection has one of three turns at a time. *Plain*: requests are looked at here, and plain reads are answered here
//! ([`quick`](super::quick)). *Request*: hyper has one request, from its first byte until its reply has been
//! given to the kernel. *Handed*: hyper reads by itself for good, because only it knows where requests end (a chunked body, an
//! upgrade, a head that is malformed). hyper is polled in its turns only, and is made when it has the first; a
//! connection with nothing but plain reads never has one.
//!
//! The rejected way was a socket inside hyper that answered plain reads while hyper waited for a head, and told it that
//! nothing had arrived. Each read then passed hyper's state machine in vain, hyper's timer of silence had to be
//! corrected, and the end of a connection was hyper's, which did not know of the reads under way.

mod discard;
mod hyper_side;
mod plain;

use std::error::Error;
use std::future::poll_fn;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ground::window::Nanos;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::HttpService;
use hyper_util::rt::TokioIo;
use record::clock;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};
use wire::body::ReplyBody;
use wire::connections::Seat;
use wire::inherited;
use wire::lane::ThreadRecorder;
use wire::pace::Pace;
use wire::refusal::Phase;

use super::quick::{Quick, Slot};
use super::socket::{Socket, Stream};
use discard::Discard;
use hyper_side::{HyperSide, Link, Turn};
use plain::{PlainReads, Step};

/// The most header lines of a request. Each pair of user metadata is one, and S3 allows 2 KB of pairs. Replies with the same pairs and
/// a few lines more must pass between the processes of a cluster (`peer::HEADERS_MAX`).
const HEADERS_MAX: usize = 1024;

/// What holds for one connection.
pub(crate) struct Terms {
    /// The longest silence between requests.
    pub(crate) silent_max: Duration,
    /// How slow the client may be.
    pub(crate) pace: Pace,
    /// The longest head of a request.
    pub(crate) head_bytes_max: usize,
    /// What the connection was taken for.
    pub(crate) seat: Seat,
    /// The client's address.
    pub(crate) from: Option<IpAddr>,
}

/// A connection with its server, and the service that hyper calls.
pub(crate) struct Connection<S: Quick, V: HttpService<Incoming>> {
    link: Arc<Mutex<Link>>,
    reads: PlainReads<S>,
    /// What hyper is made of when it is needed.
    service: Option<V>,
    hyper: Option<http1::Connection<TokioIo<HyperSide>, V>>,
    terms: Terms,
    opened: Nanos,
    silence: Option<Pin<Box<Sleep>>>,
    /// What comes after the last reply.
    discard: Option<Discard>,
    /// Nothing begins any more.
    is_ending: bool,
    /// hyper knows that.
    is_told: bool,
}

impl<S, V> Connection<S, V>
where
    S: Quick,
    V: HttpService<Incoming, ResBody = ReplyBody>,
    V::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// A connection whose first request has not been read.
    pub(crate) fn new(
        server: Arc<S>,
        lane: Arc<ThreadRecorder>,
        stream: Stream,
        phase: Arc<Phase>,
        slot: Slot<S::Flight>,
        service: V,
        terms: Terms,
    ) -> Connection<S, V> {
        // A spare seat has one request, of which hyper ends the connection.
        let turn = if terms.seat == Seat::Regular { Turn::Plain } else { Turn::Handed };
        if turn == Turn::Handed {
            phase.hand();
        }
        let reads = PlainReads::new(server, lane, slot, terms.head_bytes_max, terms.from);
        let link = Link::new(Socket::new(stream, terms.pace), turn, phase, S::refused);
        Connection {
            link: Arc::new(Mutex::new(link)),
            reads,
            service: Some(service),
            hyper: None,
            terms,
            opened: clock::now(),
            silence: None,
            discard: None,
            is_ending: false,
            is_told: false,
        }
    }

    fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here on what is under way is ended, and then the connection.
    pub(crate) fn end(&mut self) {
        self.is_ending = true;
    }

    /// Has the next process go on with the connection, if no request is here. Returns whether it does.
    fn pass_on(&self) -> bool {
        let link = self.link();
        let is_idle = link.turn == Turn::Plain && link.held.is_empty() && self.reads.is_idle();
        is_idle && inherited::keeps() && {
            let socket: BorrowedFd<'_> = link.socket.stream.socket().as_fd();
            inherited::pass_on(socket);
            true
        }
    }

    /// Serves until the connection ends, or the process stops. Returns whether it has ended.
    pub(crate) async fn serve_until(&mut self, mut stopping: watch::Receiver<bool>) -> bool {
        let seen = stopping.clone();
        let mut stop = std::pin::pin!(stopping.wait_for(|stopping| *stopping));
        let mut waits = false;
        poll_fn(|context| {
            if self.poll(context).is_ready() {
                return Poll::Ready(true);
            }
            // Registered once: to look at the future after each request would cost more than the flag.
            if waits && !seen.has_changed().unwrap_or(true) {
                return Poll::Pending;
            }
            waits = true;
            stop.as_mut().poll(context).map(|_| false)
        })
        .await
    }

    /// Serves on for a while after the process was told to stop, or until the next process goes on with the connection
    /// where it `stays`. Returns whether it has ended, or was passed on.
    pub(crate) async fn linger(&mut self, time: Duration, stays: bool) -> bool {
        let last = poll_fn(|context| {
            let is_over = self.poll(context).is_ready() || stays && self.pass_on();
            if is_over { Poll::Ready(()) } else { Poll::Pending }
        });
        tokio::time::timeout(time, last).await.is_ok()
    }

    /// Serves until the connection ends.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Some(discard) = &mut self.discard {
                let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
                return discard.poll(&mut link.socket.stream, context);
            }
            if ready!(self.poll_plain(context)) == Some(Step::End) {
                // What is left of a connection whose client is gone, or gets nothing more: no reason to wait.
                let _ = self.link().socket.stream.poll_shutdown(context);
                return Poll::Ready(());
            }
            let Some(hyper) = self.hyper() else { return Poll::Ready(()) };
            // What goes wrong on a connection (a client that leaves, a malformed head, which hyper answers) is
            // the client's to know.
            if Pin::new(hyper).poll(context).is_ready() {
                let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
                // A spare seat is for the next one that comes.
                if self.terms.seat != Seat::Regular || !link.may_have_unread() {
                    return Poll::Ready(());
                }
                let _ = link.socket.stream.poll_shutdown(context);
                self.discard = Some(Discard::new());
                continue;
            }
            if self.link().is_answered() {
                continue;
            }
            if self.is_ending && !self.is_told {
                // Not before hyper has read the head that it was given: without a request it would close at once.
                self.is_told = true;
                if let Some(hyper) = &mut self.hyper {
                    Pin::new(hyper).graceful_shutdown();
                }
                continue;
            }
            if self.link().poll_left(context).is_ready() {
                return Poll::Ready(());
            }
            let is_awaited = self.link().is_awaited();
            return self.poll_silence(context, is_awaited);
        }
    }

    /// The connection's own turn, if it is: how it ends.
    fn poll_plain(&mut self, context: &mut Context<'_>) -> Poll<Option<Step>> {
        let link = self.link.clone();
        let mut link = link.lock().unwrap_or_else(PoisonError::into_inner);
        if link.is_answered() {
            link.turn = Turn::Plain;
        }
        if link.turn != Turn::Plain {
            return Poll::Ready(None);
        }
        match self.reads.poll(&mut link, context, self.is_ending) {
            Poll::Ready(step) => Poll::Ready(Some(step)),
            Poll::Pending => {
                drop(link);
                let is_idle = self.reads.is_idle();
                self.poll_silence(context, is_idle).map(|()| Some(Step::End))
            }
        }
    }

    /// hyper's connection, which is made when it has its first turn.
    fn hyper(&mut self) -> Option<&mut http1::Connection<TokioIo<HyperSide>, V>> {
        if let Some(service) = self.service.take() {
            let mut builder = http1::Builder::new();
            builder
                .keep_alive(self.terms.seat == Seat::Regular)
                // The connection has a limit of its own, which counts in every turn.
                .header_read_timeout(None)
                // Nor does hyper judge whether the client has left (`Link::poll_left`).
                .half_close(true)
                .max_headers(HEADERS_MAX)
                .max_buf_size(self.terms.head_bytes_max);
            let io = TokioIo::new(HyperSide(self.link.clone()));
            self.hyper = Some(builder.serve_connection(io, service));
        }
        self.hyper.as_mut()
    }

    /// The limit of silence: ready once the client has been silent for too long while its next request `is_awaited`.
    ///
    /// One timer, however many requests pass: when it ends it looks when the last one was answered.
    fn poll_silence(&mut self, context: &mut Context<'_>, is_awaited: bool) -> Poll<()> {
        let silent_max = self.terms.silent_max;
        let timer = match &mut self.silence {
            // It has the task's waker, which stays the same; to register it for each request would cost more.
            Some(timer) if !timer.is_elapsed() => return Poll::Pending,
            Some(timer) => timer,
            none => none.insert(Box::pin(tokio::time::sleep(silent_max))),
        };
        loop {
            ready!(timer.as_mut().poll(context));
            let link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
            let since = link.phase.last_answered().max(self.opened);
            let silent = Duration::from_nanos(clock::now().saturating_sub(since));
            let left = silent_max.saturating_sub(silent);
            if is_awaited && left.is_zero() {
                return Poll::Ready(());
            }
            // A request under way began later than the last reply: it is looked at again after a whole limit.
            let pause = if is_awaited { left } else { silent_max };
            timer.as_mut().reset(Instant::now() + pause);
        }
    }
}
