//! A pool's events (what its driver tells it) and actions (what it tells its driver to do).
//!
//! The engine sees no bytes: the driver keeps each request's commands and each attempt's reply. A
//! request has one or more *parts* (the keys of a multi-get that go to one server), a part one or
//! more *attempts*. The reply of one attempt is used for each part.

use ground::window::{Nanos, Operation as Recorded};
use serde::{Deserialize, Serialize};

/// Names a client's request; chosen by the driver, never used twice.
pub type RequestId = u64;

/// Names an attempt; chosen by the engine, never used twice.
pub type AttemptId = u64;

/// Index of a server among [`super::Settings::servers`].
pub type ServerId = usize;

/// Index of a route among [`super::Settings::routes`].
pub type RouteId = u16;

/// A key as decisions see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyHash {
    /// The route whose prefix the key has.
    pub route: RouteId,
    /// Its position on the ring of the route's pool, by the pool's hash function.
    pub ring: u32,
    /// Identifies the key among the writes under way, and selects samples.
    pub id: u64,
}

/// The keys of a request. One is the usual number and is held in place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Keys {
    /// One key.
    One(KeyHash),
    /// The keys of a multi-get, in the order of the request.
    Many(Box<[KeyHash]>),
}

impl Keys {
    /// The keys.
    pub fn as_slice(&self) -> &[KeyHash] {
        match self {
            Keys::One(key) => std::slice::from_ref(key),
            Keys::Many(keys) => keys,
        }
    }
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// Changes nothing: one of a key's servers answers. Reads alone have several keys.
    Read,
    /// As [`Operation::Read`], but the reply has what the key's first server alone can say: a
    /// compare-and-swap number, which a later update there is compared with.
    ReadFirst,
    /// As [`Operation::Read`], of one key whose item may be marked at its first server (stale, won) and is
    /// nowhere else then: a miss of another server is asked of the first one too.
    ReadMarked,
    /// The same command has the same effect on every server (set, delete, touch): it goes to all
    /// of the key's servers.
    Write,
    /// The effect depends on what the server holds (cas, add, append, incr): it runs on the key's
    /// primary, then the new value is copied to the other servers.
    Update,
    /// An update whose item must not be copied: it is marked stale, and the next read of it wins the right to
    /// replace it. The other servers lose theirs.
    Invalidate,
}

impl Operation {
    /// Whether it changes nothing.
    pub fn is_read(self) -> bool {
        matches!(self, Operation::Read | Operation::ReadFirst | Operation::ReadMarked)
    }

    /// Whether its effect depends on what is stored.
    pub fn is_update(self) -> bool {
        matches!(self, Operation::Update | Operation::Invalidate)
    }
}

/// An event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// A client's request.
    Request {
        /// The request.
        request: RequestId,
        /// Names the connection that it came by: the order of a client's own requests counts, also
        /// where it did not wait for replies. Requests come in that order.
        client: u64,
        /// What it does.
        operation: Operation,
        /// What it is recorded as.
        recorded: Recorded,
        /// Its keys; only a read has several.
        keys: Keys,
        /// Bytes of the value that is written, 0 for a read.
        bytes: u32,
        /// When the client is given up.
        deadline: Nanos,
    },
    /// A client empties all servers. Answered by [`Action::Broadcast`] once every update that came before
    /// has ended.
    FlushAll {
        /// Names it among requests.
        request: RequestId,
    },
    /// All servers that are waited for have answered an [`Action::Broadcast`], or have failed.
    FlushEnded {
        /// The request.
        request: RequestId,
        /// The servers that may not be empty.
        failed: Vec<ServerId>,
    },
    /// The whole reply of an attempt arrived.
    Answered {
        /// The attempt.
        attempt: AttemptId,
        /// The kind of the reply.
        answer: Answer,
        /// Keys of the attempt that were found, for a read.
        hits: u32,
        /// Bytes of the reply.
        bytes: u32,
    },
    /// An attempt ended without a reply.
    Failed {
        /// The attempt.
        attempt: AttemptId,
        /// The reason.
        why: Failed,
    },
    /// The client of a request left. Its writes go on; nobody is told of their end.
    Over {
        /// The request.
        request: RequestId,
    },
    /// A server answered [`Action::Ping`].
    Ponged {
        /// The server.
        server: ServerId,
    },
    /// A server did not answer [`Action::Ping`], or a connection to it was lost while idle.
    PingFailed {
        /// The server.
        server: ServerId,
    },
    /// A server answers at another address than before: it may be another one.
    Moved {
        /// The server.
        server: ServerId,
    },
    /// [`Action::Flush`] ended.
    Flushed {
        /// The server.
        server: ServerId,
        /// Whether the server is empty now.
        done: bool,
    },
    /// Time has passed. Sent at the time of [`super::Pools::next_wake`] or a little later.
    Tick,
}

/// The kind of a server's reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// A read found at least one of its keys.
    Hit,
    /// A read found none of its keys.
    Miss,
    /// A write took effect.
    Done,
    /// A write's condition did not hold (`NOT_STORED`, `EXISTS`, `NOT_FOUND`): nothing changed.
    Unchanged,
    /// The client's mistake, as the server says (`CLIENT_ERROR`): nothing changed.
    Refused,
    /// The server could not (`SERVER_ERROR`, for instance out of memory). The value is not stored;
    /// an older one may be gone.
    Error,
}

/// Why an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failed {
    /// No connection: the server did nothing.
    Connect,
    /// The connection broke, or the reply was malformed. A write may have happened.
    Broken,
}

/// Which of a request's keys an attempt is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// All of them: the command can be sent as it came.
    Whole,
    /// Those at these places of the request.
    Places(Box<[u16]>),
}

/// What is sent to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// The client's command.
    Original,
    /// A read of the key with its flags and its remaining time to live; the answer is [`Answer::Hit`]
    /// or [`Answer::Miss`]. Only for requests of one key.
    ReadBack,
    /// A set of what the attempt `from`, a [`Command::ReadBack`], has read.
    Copy {
        /// The attempt that read it.
        from: AttemptId,
    },
    /// As [`Command::Copy`], but only where there is no item.
    Add {
        /// The attempt that read it.
        from: AttemptId,
    },
    /// A delete of the key.
    Delete,
}

/// An operation for the driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Send a command to a server. Ends with [`Event::Answered`] or [`Event::Failed`].
    Send {
        /// The request.
        request: RequestId,
        /// The attempt.
        attempt: AttemptId,
        /// The server.
        server: ServerId,
        /// Which part of the request it serves; parts are numbered from 0 in the order in which
        /// they are first sent.
        part: u16,
        /// The part's keys.
        keys: Part,
        /// What is sent.
        command: Command,
    },
    /// Send a client's `flush_all` to all servers. Ends with [`Event::FlushEnded`] when those have answered that are waited for.
    Broadcast {
        /// The request.
        request: RequestId,
        /// The servers that are read. Nobody waits for those that get copies alone: a slow one would hold up every update.
        awaited: Vec<ServerId>,
    },
    /// This attempt's reply is the part's.
    Use {
        /// The request.
        request: RequestId,
        /// The part.
        part: u16,
        /// The attempt.
        attempt: AttemptId,
    },
    /// Every part has its reply: send them to the client. Follows the last [`Action::Use`]; nothing
    /// else concerns the client after it. Replies to attempts that are still under way are kept only
    /// if a later [`Command::Copy`] or [`Command::Add`] names them.
    Done {
        /// The request.
        request: RequestId,
    },
    /// The reply of this attempt is not needed: drop it when it comes. The driver reports no event
    /// for it.
    Cancel {
        /// The request.
        request: RequestId,
        /// The attempt.
        attempt: AttemptId,
    },
    /// Nothing more is done for this request: forget its commands and replies. Follows
    /// [`Action::Done`] or [`Action::Refuse`] at once, or later if copies were still to be made.
    Forget {
        /// The request.
        request: RequestId,
    },
    /// Refuse the request.
    Refuse {
        /// The request.
        request: RequestId,
        /// The reason.
        why: Refusal,
    },
    /// Ping a server (`version`, on a connection of its own or at the end of an idle one). Ends with
    /// [`Event::Ponged`] or [`Event::PingFailed`].
    Ping {
        /// The server.
        server: ServerId,
    },
    /// Empty a server that may have missed writes. Ends with [`Event::Flushed`].
    Flush {
        /// The server.
        server: ServerId,
    },
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// As many requests wait as may wait.
    Busy,
    /// The deadline passed.
    TooLate {
        /// The servers that have not answered, as bits; servers from the 64th on are left out.
        servers: u64,
    },
    /// These servers failed, as bits. A write took effect at most on others.
    Failed {
        /// The servers as bits; servers from the 64th on are left out.
        servers: u64,
    },
    /// None of the key's servers can be reached.
    NoServer,
}
