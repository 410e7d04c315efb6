//! The state of a serving thread: its connections, and what is under way.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use engine::gateway::IntegerHash;
use engine::pool::{Action, AttemptId, Event, RequestId, ServerId};
use ground::window::Nanos;
use mio::Poll;

use crate::carried::Carried;
use crate::client::Client;
use crate::request::Requests;
use crate::server::Server;
use crate::shared::Shared;
use crate::stream::{Listener, Stream};
use crate::timer::Timer;

/// A serving thread.
pub(crate) struct Thread {
    pub(super) shared: Arc<Shared>,
    pub(super) index: usize,
    pub(super) poll: Poll,
    pub(super) timer: Timer,
    pub(super) listener: Option<Listener>,
    /// What the process before has passed on.
    pub(super) given: Vec<Carried>,
    /// Connections that wait for the place of an idle one of another thread.
    pub(super) waiting: VecDeque<Stream>,
    pub(super) clients: Vec<Option<Client>>,
    pub(super) free: Vec<u32>,
    pub(super) generation: u32,
    /// The servers; on the first thread they are followed by a second connection to each, for
    /// pings and flushes.
    pub(super) servers: Vec<Server>,
    pub(super) requests: Requests,
    /// Attempts whose replies nobody needs.
    pub(super) cancelled: HashSet<AttemptId, IntegerHash>,
    /// Servers and clients with something to write.
    pub(super) writes_to_servers: Vec<usize>,
    pub(super) writes_to_clients: Vec<u32>,
    /// Clients to be read again although the kernel reports nothing.
    pub(super) again: Vec<u32>,
    /// Events that follow from carrying out actions.
    pub(super) todo: VecDeque<Event>,
    pub(super) actions: Vec<Action>,
    /// The last attempt whose reply was used.
    pub(super) used: AttemptId,
    pub(super) scratch: Vec<u8>,
    /// Gets of several keys whose keys are asked for one by one.
    pub(super) gathers: HashMap<RequestId, Gather, IntegerHash>,
    /// Clients' flushes under way.
    pub(super) flushes: HashMap<RequestId, Flush, IntegerHash>,
    pub(super) now: Nanos,
    pub(super) swept: Nanos,
    pub(super) warned: Nanos,
}

/// A reply that is being handled, or (`attempt`: 0) a request.
#[derive(Clone, Copy)]
pub(super) struct Arrived<'a> {
    pub(super) attempt: AttemptId,
    pub(super) bytes: &'a [u8],
    pub(super) hits: u32,
    pub(super) read_back: bool,
}

/// A flush under way.
#[derive(Default)]
pub(super) struct Flush {
    /// The servers whose replies count.
    pub(super) awaited: Vec<ServerId>,
    /// Those of them that have not carried it out.
    pub(super) missed: Vec<ServerId>,
}

/// A get of several keys, and the replies so far.
pub(super) struct Gather {
    pub(super) left: usize,
    pub(super) replies: Vec<Vec<u8>>,
}
