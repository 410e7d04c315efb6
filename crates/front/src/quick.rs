//! Plain reads: what a server answers itself, on the connection and without hyper.
//!
//! A plain read of an object (GET or HEAD, no range, no condition: [`wire::head`]) that memory answers at once takes
//! one read, one look at the head and one write of head and body: no future, no map of headers, nothing
//! allocated. A gateway's plain read becomes a [`Flight`]: the node's reply is read into the thread's scratch space and
//! written from there. Whose turn it is on a connection, and how a read goes on the usual way, is
//! [`Connection`](super::connection::Connection)'s to know; here is what a server brings to it.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use ground::window::Nanos;
use http::header::HeaderMap;
use http::{Response, StatusCode};

use wire::head::Line;
use wire::lane::Passed;
use wire::lane::{RequestRecord, ThreadRecorder};
use wire::limits::{Client, Limits};
use wire::problem;
use wire::traces::TraceParent;

/// What the headers of a plain read say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Whether the sender is a gateway or another node, which gets additional headers.
    pub internal: bool,
    /// The time from its arrival until nobody waits for it, if that is limited.
    pub patience: Option<Nanos>,
    /// The sender's place in a trace, if it names one and sampled requests have spans.
    pub parent: Option<TraceParent>,
}

/// A read whose signature is right.
pub struct Signed<'a> {
    /// The object's key.
    pub key: &'a [u8],
    /// What its headers say.
    pub facts: Facts,
    /// Who has signed it, if clients are limited.
    pub client: Option<Client>,
}

/// A server's part in plain reads.
pub trait Quick: Send + Sync + 'static {
    /// A plain read that waits for another process.
    type Flight: Flight;

    /// The reply to a request that is refused before its service has it, in the form of the protocol's errors.
    fn refused(status: StatusCode, text: &str) -> Response<Bytes> {
        problem::in_json(status, text)
    }

    /// Judges the headers of a plain read: `None` if the request must go the usual way, as when it is
    /// to be refused.
    fn approve(&self, _headers: &HeaderMap) -> Option<Facts> {
        None
    }

    /// Judges a read that is plain but for its path, and whose headers differ each time because they sign it:
    /// `None` if it must go the usual way.
    fn signed<'a>(
        &self,
        _is_head: bool,
        _path: &'a str,
        _headers: &HeaderMap,
    ) -> Option<Signed<'a>> {
        None
    }

    /// What one client may have, if that is limited.
    fn limits(&self) -> Option<&Limits> {
        None
    }

    /// Whether the process ends: clients are told so with their next reply, which goes the usual way.
    fn ends(&self) -> bool {
        false
    }

    /// Begins to answer a plain read. A reply that is ready has its head in `head`.
    fn begin(
        self: &Arc<Self>,
        _lane: &Arc<ThreadRecorder>,
        _line: &Line<'_>,
        _facts: Facts,
        _head: &mut Vec<u8>,
    ) -> ReadStart<Self::Flight> {
        ReadStart::Usual
    }
}

/// How a plain read begins.
#[allow(
    clippy::large_enum_variant,
    reason = "passed once, on the stack; a box would be an allocation for each hit"
)]
pub enum ReadStart<F: Flight> {
    /// It goes the usual way. Nothing was recorded.
    Usual,
    /// The reply is ready: its head is written.
    Reply(Content, Record),
    /// Another process was asked.
    Flight(F),
    /// It goes the usual way from where it is.
    Resume(F::Resumed),
}

/// A plain read that waits for another process.
pub trait Flight: Send + Unpin + 'static {
    /// What the usual way needs in order to go on with it.
    type Resumed: Send + 'static;

    /// Waits for the reply: writes its head, and uses `scratch` for its body. `None`: it goes the usual way.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        head: &mut Vec<u8>,
        scratch: &mut [u8],
    ) -> Poll<Option<(Content, Record)>>;

    /// Hands over to the usual way.
    fn resume(self) -> Option<Self::Resumed>;
}

/// The flight of a server that waits for nobody; `R` is what the usual way needs of reads that are not answered at once.
pub struct Never<R>(Infallible, PhantomData<fn() -> R>);

impl<R: Send + 'static> Flight for Never<R> {
    type Resumed = R;

    fn poll(
        &mut self,
        _: &mut Context<'_>,
        _: &mut Vec<u8>,
        _: &mut [u8],
    ) -> Poll<Option<(Content, Record)>> {
        match self.0 {}
    }

    fn resume(self) -> Option<R> {
        match self.0 {}
    }
}

/// Where the connection leaves what a request needs that goes on the usual way.
pub type Slot<F> = Arc<Mutex<Option<<F as Flight>::Resumed>>>;

/// The body of a reply.
pub enum Content {
    /// These bytes.
    Bytes(Bytes),
    /// A part of the thread's scratch space.
    Scratch(Range<usize>),
}

impl Content {
    pub(crate) fn len(&self) -> usize {
        match self {
            Content::Bytes(bytes) => bytes.len(),
            Content::Scratch(range) => range.len(),
        }
    }
}

/// What is recorded once a reply is sent.
pub enum Record {
    /// All of the request.
    Passed(Passed),
    /// Its end.
    Request(RequestRecord),
}
