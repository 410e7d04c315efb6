//! The state of a simulation: its clients' requests, processes, messages that are cut, and members. It behaves in the files
//! beside it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use ground::window::{Nanos, Outcome, Recorder};
use rand::rngs::SmallRng;

use super::arrivals::Source;
use super::check::{Checker, Violation};
use super::disk::Disk;
use super::happening::{Caller, Happening, Life, Written};
use super::law::{Keys, Law};
use super::leases::Batch;
use super::place::OriginPlace;
use super::schedule::Schedule;
use super::settings::{Clock, Process, Settings};
use super::slab::Slab;
use super::store::Store;
use crate::gateway::Gateway;
use crate::node::{JobId, Node};
use crate::route::Ring;
use crate::{Size, gateway, node};
use ground::Key;

/// The state that nodes and gateways share.
pub(super) struct State {
    pub(super) life: Life,
    pub(super) alive: bool,
    /// Number of active pauses.
    pub(super) paused: u32,
    /// Events that arrived while it was paused.
    pub(super) deferred: Vec<Happening>,
    pub(super) clock: Clock,
    /// The time, on its clock, until which it may act on its membership.
    pub(super) until: Nanos,
}

/// Random numbers, one sequence for each purpose, so that one does not change the others.
pub(super) struct Randoms {
    pub(super) load: SmallRng,
    pub(super) network: SmallRng,
    pub(super) service: SmallRng,
    pub(super) faults: SmallRng,
}

/// An entry of a node's event log: the time on its clock, the event and the resulting actions.
pub type Logged = (Nanos, node::Event<Size>, Vec<node::Action<Size>>);

/// A cluster in virtual time. See the module.
pub struct Simulation {
    pub(super) settings: Settings,
    pub(super) faulty: bool,
    pub(super) now: Nanos,
    pub(super) schedule: Schedule<Happening>,
    pub(super) random: Randoms,
    pub(super) keys: Vec<Key>,
    pub(super) popularity: Keys,
    pub(super) source: Source,
    /// How many keys further the popular ones are than at the beginning.
    pub(super) shifted: u32,
    pub(super) processes: Vec<State>,
    pub(super) nodes: Vec<NodeProcess>,
    pub(super) gateways: Vec<GatewayProcess>,
    pub(super) requests: Slab<Request>,
    pub(super) origin: Store,
    pub(super) places: Vec<OriginPlace>,
    pub(super) members: Members,
    pub(super) cuts: Vec<Cut>,
    pub(super) checker: Checker,
    pub(super) violations: Vec<Violation>,
    pub(super) broken: Vec<String>,
    pub(super) counts: Counts,
    pub(super) recorder: Recorder,
    /// Requests for leases that travel together, and grants of them.
    pub(super) batch: Batch,
    pub(super) node_actions: Vec<node::Action<Size>>,
    pub(super) gateway_actions: Vec<gateway::Action>,
    pub(super) trace: Option<VecDeque<(Nanos, String)>>,
}

/// A request that waits for its reply.
pub(super) struct Request {
    pub key: u32,
    /// The write; `None` for a read.
    pub write: Option<Written>,
    pub began: Nanos,
    /// The gateway that it was sent to.
    pub gateway: Option<usize>,
}

/// Counts of the clients' requests and their results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests sent.
    pub requests: u64,
    /// Writes among them.
    pub writes: u64,
    /// Writes acknowledged.
    pub acknowledged: u64,
    /// Requests refused because a queue was full.
    pub refused: u64,
    /// Requests that failed or got no reply.
    pub failed: u64,
    /// Reads answered, by the place that served the object.
    pub reads: BTreeMap<Outcome, u64>,
}

impl Counts {
    /// Requests whose reply was judged: reads that returned a version or "not found", and
    /// acknowledged writes. All others were refused, failed or got no reply.
    pub fn judged(&self) -> u64 {
        self.reads.values().sum::<u64>() + self.acknowledged
    }
}

/// Messages between a process and others that are lost.
pub(super) struct Cut {
    pub fault: usize,
    pub process: Process,
    /// The other processes; empty for all.
    pub from: Vec<Process>,
    /// Whether only messages from the process are lost.
    pub one_way: bool,
}

/// A gateway as a process.
pub(super) struct GatewayProcess {
    pub gateway: Gateway,
    /// When its next wake-up is scheduled.
    pub wake: Nanos,
}

impl GatewayProcess {
    pub fn new(settings: &Settings, gateway: usize, clock: Clock) -> GatewayProcess {
        let gateway = Gateway::new(settings.gateways[gateway].clone(), clock.local(0));
        GatewayProcess { gateway, wake: Nanos::MAX }
    }
}

/// A node as a process.
pub(super) struct NodeProcess {
    pub node: Node<Size>,
    /// Requests that wait for a reply.
    pub incoming: Slab<Incoming>,
    pub disks: Vec<Disk>,
    pub laws: Vec<Law>,
    /// Whether the node knows its membership, and therefore serves.
    pub joined: bool,
    /// Factor on the service times of its devices.
    pub slow: f64,
    /// The peer whose lease request is being handled, and when the peer sent it.
    pub lease_asker: Option<(usize, Life, Nanos)>,
    /// Keys being filled, for [`super::Breakage::VoidIgnored`].
    pub fills: HashMap<JobId, u32>,
    /// The fault by which it stops in order.
    pub stops: Option<usize>,
    /// Records that are being read in pieces.
    pub pieces: HashMap<JobId, InPieces>,
    /// Number of active faults that keep its devices full.
    pub full: u32,
    pub log: Option<Vec<Logged>>,
}

/// A request at a node.
pub(super) struct Incoming {
    pub from: Caller,
    pub key: Key,
    pub write: Option<Write>,
    /// The engine has answered; the object is streamed from the origin.
    pub streams: bool,
    /// The object whose bytes follow as they are read.
    pub opened: Option<Size>,
}

pub(super) struct Write {
    pub what: Written,
    /// The write has its turn.
    pub turn: bool,
    /// The put has ended.
    pub over: bool,
    /// The origin confirmed the put.
    pub done: bool,
    /// It was refused before anything was sent to the origin.
    pub fenced: bool,
    /// The client has its reply already: that the write took too long or, with a breakage, an early
    /// acknowledgement.
    pub told: bool,
}

impl NodeProcess {
    pub fn new(settings: &Settings, node: usize, clock: Clock) -> NodeProcess {
        let laws = settings.devices.get(node).cloned().unwrap_or_default();
        NodeProcess {
            node: Node::new(settings.node_lent_for_ever(node), clock.local(0)),
            incoming: Slab::default(),
            disks: settings.nodes[node].devices.iter().map(|_| Disk::default()).collect(),
            laws,
            joined: settings.membership.is_none(),
            slow: 1.0,
            lease_asker: None,
            fills: HashMap::new(),
            stops: None,
            pieces: HashMap::new(),
            full: 0,
            log: None,
        }
    }
}

/// A record that is being read in pieces.
pub(super) struct InPieces {
    pub payload: Size,
    /// Bytes that are not read yet.
    pub left: u64,
    /// The place of damage: the read fails when so many bytes are left, or fewer.
    pub fails_at: Option<u64>,
}

pub(super) struct Members {
    /// Starts at 1; 0 is the epoch of a node that has not received a view.
    pub epoch: u64,
    pub live: Vec<bool>,
    pub renewed: Vec<Nanos>,
    pub ring: Arc<Ring>,
    /// Whether each handed over before it ceased to be live.
    pub handed_over: Vec<bool>,
    /// The newest life of each that is known, and the one that has left in order.
    pub newest: Vec<Life>,
    pub left: Vec<Option<Life>>,
}

impl Members {
    pub fn new(ring: Arc<Ring>) -> Members {
        let nodes = ring.members().len();
        Members {
            epoch: 1,
            live: vec![true; nodes],
            renewed: vec![0; nodes],
            ring,
            handed_over: vec![false; nodes],
            newest: vec![0; nodes],
            left: vec![None; nodes],
        }
    }
}
