//! The requests under way of a thread.

use engine::pool::{AttemptId, RequestId};
use ground::window::{Nanos, Operation, Outcome};
use memcached::{Expect, Kind, Verb};

/// A range of [`Request::command`].
pub(crate) type Range = (u32, u32);

/// How far a request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// The place is free.
    #[default]
    Free,
    /// It has no reply.
    Open,
    /// Its reply waits until earlier ones of its connection are there.
    Replied,
    /// The client has its reply, or has left.
    Delivered,
}

/// Which replies to a request say that it has changed the item, so that it has to be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Changes {
    /// None beside those that say so to every request of its kind.
    Nothing,
    /// One that finds the item: it gives it a new time to live.
    Found,
    /// One that says that the client has won the right to replace the item: it is marked so.
    Won,
}

impl Changes {
    pub(crate) fn of_request(request: &memcached::Request<'_>) -> Changes {
        let lives_on = request.has_any_flag(b"TE");
        match (request.kind(), request.verb) {
            (Kind::Update, Verb::MetaGet) if !lives_on => Changes::Won,
            (Kind::Update, _) => Changes::Found,
            _ => Changes::Nothing,
        }
    }
}

/// A reply that the engine may use later.
#[derive(Clone)]
pub(crate) struct KeptReply {
    pub(crate) attempt: AttemptId,
    pub(crate) bytes: Vec<u8>,
    /// Keys that it has found.
    pub(crate) hits: u32,
    /// Whether it replies to a [`engine::pool::Command::ReadBack`].
    pub(crate) read_back: bool,
}

/// A request under way.
pub(crate) struct Request {
    pub(crate) state: State,
    generation: u32,
    /// The client's place and its generation.
    pub(crate) client: (u32, u32),
    pub(crate) verb: Verb,
    pub(crate) noreply: bool,
    pub(crate) quiet: bool,
    pub(crate) base64: bool,
    pub(crate) expect: Expect,
    /// What the client sent, in the form that has the server answer.
    pub(crate) command: Vec<u8>,
    /// Where its keys are.
    pub(crate) keys: Vec<Range>,
    /// Where the expiration time of a `gat` is.
    pub(crate) exptime: Range,
    /// Whether the engine knows it.
    pub(crate) in_engine: bool,
    /// Parts whose replies are in [`Request::reply`].
    pub(crate) parts: u32,
    /// Whether one of them is an error, which then is the reply.
    pub(crate) failed: bool,
    /// Replies that the engine has not decided on.
    pub(crate) kept: Vec<KeptReply>,
    /// The reply, as far as it is known.
    pub(crate) reply: Vec<u8>,
    /// The get of several keys that it is a part of, and which.
    pub(crate) gather: Option<(RequestId, u16)>,
    /// Replies that a broadcast, or a get of several keys, waits for.
    pub(crate) left: u32,
    pub(crate) received: Nanos,
    pub(crate) started: Nanos,
    pub(crate) served: Nanos,
    pub(crate) operation: Operation,
    pub(crate) outcome: Outcome,
    /// Which replies to it say that the item has changed.
    pub(crate) changes: Changes,
    /// Keys that were found.
    pub(crate) hits: u32,
    /// Of its first key.
    pub(crate) hash: u64,
    pub(crate) length_met: u32,
}

/// Memory that a free place keeps for the next command, and for the next reply.
const KEPT: usize = 8 << 10;
/// The places that are used most, since the last that became free is the first to be taken, keep
/// more: enough for a get of several keys.
const WARM: (u32, usize) = (256, 64 << 10);

impl Request {
    fn new() -> Request {
        Request {
            state: State::Free,
            generation: 0,
            client: (0, 0),
            verb: Verb::Version,
            noreply: false,
            quiet: false,
            base64: false,
            expect: Expect::Line,
            command: Vec::new(),
            keys: Vec::new(),
            exptime: (0, 0),
            in_engine: false,
            parts: 0,
            failed: false,
            kept: Vec::new(),
            reply: Vec::new(),
            gather: None,
            left: 0,
            received: 0,
            started: 0,
            served: 0,
            operation: Operation::Get,
            outcome: Outcome::Error,
            changes: Changes::Nothing,
            hits: 0,
            hash: 0,
            length_met: 0,
        }
    }

    pub(crate) fn slice(&self, (start, end): Range) -> &[u8] {
        self.command.get(start as usize..end as usize).unwrap_or_default()
    }

    /// Keeps a reply that the engine may use later.
    pub(crate) fn keep(&mut self, attempt: AttemptId, bytes: &[u8], hits: u32, read_back: bool) {
        if !self.kept.iter().any(|kept| kept.attempt == attempt) {
            self.kept.push(KeptReply { attempt, bytes: bytes.to_vec(), hits, read_back });
        }
    }

    /// A kept reply.
    pub(crate) fn kept_reply(&self, attempt: AttemptId) -> Option<&KeptReply> {
        self.kept.iter().find(|kept| kept.attempt == attempt)
    }

    /// The first key.
    pub(crate) fn key(&self) -> &[u8] {
        self.keys.first().map_or(&[], |range| self.slice(*range))
    }
}

/// The requests under way. Places are reused with their memory.
#[derive(Default)]
pub(crate) struct Requests {
    places: Vec<Request>,
    free: Vec<u32>,
}

/// Bits of a request's name that are its place.
const PLACE_BITS: u32 = 24;
/// Bits of a request's name that are its thread.
const THREAD_BITS: u32 = 10;

/// The thread that a request belongs to.
pub(crate) fn thread_of(name: RequestId) -> usize {
    (name >> (64 - THREAD_BITS)) as usize
}

impl Requests {
    /// A place for a request; `None` if there are as many as there may be.
    pub(crate) fn insert(&mut self) -> Option<u32> {
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.places.len() < 1 << PLACE_BITS => {
                self.places.push(Request::new());
                (self.places.len() - 1) as u32
            }
            None => return None,
        };
        self.places[place as usize].state = State::Open;
        Some(place)
    }

    /// The name of a request.
    pub(crate) fn name(&self, thread: usize, place: u32) -> RequestId {
        let generation = u64::from(self.places[place as usize].generation);
        let generation = generation & ((1 << (64 - PLACE_BITS - THREAD_BITS)) - 1);
        ((thread as u64) << (64 - THREAD_BITS)) | (generation << PLACE_BITS) | u64::from(place)
    }

    /// The place of a request, if it is still under way.
    pub(crate) fn place(&self, thread: usize, name: RequestId) -> Option<u32> {
        let place = (name & ((1 << PLACE_BITS) - 1)) as u32;
        let request = self.places.get(place as usize)?;
        (request.state != State::Free && self.name(thread, place) == name).then_some(place)
    }

    pub(crate) fn request_mut(&mut self, place: u32) -> &mut Request {
        &mut self.places[place as usize]
    }

    /// Frees a place once the client has its reply and the engine has forgotten the request.
    pub(crate) fn release(&mut self, place: u32) {
        let request = &mut self.places[place as usize];
        if request.state != State::Delivered || request.in_engine || request.left > 0 {
            return;
        }
        request.state = State::Free;
        request.generation = request.generation.wrapping_add(1);
        let kept = if place < WARM.0 { WARM.1 } else { KEPT };
        for bytes in [&mut request.command, &mut request.reply] {
            bytes.clear();
            if bytes.capacity() > kept {
                *bytes = Vec::new();
            }
        }
        request.keys.clear();
        (request.parts, request.failed) = (0, false);
        request.gather = None;
        request.kept.clear();
        self.free.push(place);
    }

    /// Requests under way.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}
