//! The table of requests under way, by name and by attempt.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::ops::{Deref, DerefMut};

use ground::window::{Nanos, Outcome};

use super::event::{AttemptId, Operation, RequestId};
use crate::attempts::Sent;
use crate::route::{NodeId, Replicas};
use crate::slots::{Slot, Slots, Timed};

/// Where an attempt went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Node(NodeId),
    Origin,
}

/// An attempt to serve a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub(super) id: AttemptId,
    pub(super) target: Target,
    pub(super) sent: Sent,
    /// Whether it was sent beside another.
    pub(super) hedge: bool,
}

/// The state of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Has attempts.
    Asking,
    /// A write that waits to be tried again; `rerouted` if the node said that it is not its own.
    Parked { until: Nanos, rerouted: bool },
    /// Its answer is being relayed.
    Relaying { outcome: Outcome },
}

/// A request under way.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) id: RequestId,
    pub(super) hash: u64,
    pub(super) replicas: Replicas,
    pub(super) operation: Operation,
    pub(super) received: Nanos,
    pub(super) deadline: Nanos,
    pub(super) started: Option<Nanos>,
    pub(super) phase: Phase,
    /// At most two, the older first.
    pub(super) attempts: [Option<Attempt>; 2],
    /// Places of the key's nodes that were tried.
    pub(super) tried: u8,
    /// The node that was tried last.
    pub(super) last: Option<NodeId>,
    /// Attempts so far.
    pub(super) sent: u32,
    /// Whether a node was busy.
    pub(super) busy: bool,
    /// How many nodes could not reach the origin.
    pub(super) unavailable: u8,
    /// Whether the gateway asked the origin itself.
    pub(super) asked_origin: bool,
    /// When a second node is tried beside the first; `MAX` if none is.
    pub(super) hedge_at: Nanos,
    pub(super) hedged: bool,
    /// Whether the bound of requests was reached with it.
    pub(super) full: bool,
}

impl Request {
    pub(super) fn new(
        id: RequestId,
        hash: u64,
        replicas: Replicas,
        operation: Operation,
        received: Nanos,
        deadline: Nanos,
    ) -> Request {
        Request {
            id,
            hash,
            replicas,
            operation,
            received,
            deadline,
            started: None,
            phase: Phase::Asking,
            attempts: [None, None],
            tried: 0,
            last: None,
            sent: 0,
            busy: false,
            unavailable: 0,
            asked_origin: false,
            hedge_at: Nanos::MAX,
            hedged: false,
            full: false,
        }
    }

    /// Takes an attempt out.
    pub(super) fn take(&mut self, id: AttemptId) -> Option<Attempt> {
        let of = |a: &Option<Attempt>| a.is_some_and(|a| a.id == id);
        let taken = self.attempts.iter_mut().find(|a| of(a))?.take();
        if self.attempts[0].is_none() {
            self.attempts.swap(0, 1);
        }
        taken
    }

    pub(super) fn add(&mut self, attempt: Attempt) {
        debug_assert!(self.attempts[1].is_none(), "a third attempt at once");
        let free = usize::from(self.attempts[0].is_some());
        self.attempts[free] = Some(attempt);
        self.sent += 1;
    }

    /// Whether an attempt is under way.
    pub(super) fn is_asking(&self) -> bool {
        self.attempts[0].is_some()
    }
}

impl Timed for Request {
    fn id(&self) -> RequestId {
        self.id
    }

    fn due(&self) -> Nanos {
        match self.phase {
            Phase::Relaying { .. } => Nanos::MAX,
            Phase::Parked { until, .. } => until.min(self.deadline),
            Phase::Asking => {
                let until = self.attempts.iter().flatten().map(|a| a.sent.until).min();
                self.deadline.min(self.hedge_at).min(until.unwrap_or(Nanos::MAX))
            }
        }
    }
}

/// Hashes integers by a multiplication, with fixed keys: fast, and the same on every run. Names
/// come from our own driver, so nobody chooses them to collide.
#[derive(Clone, Copy, Debug, Default)]
pub struct IntegerHash(u64);

impl Hasher for IntegerHash {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(self.0 ^ u64::from(byte)));
    }
    fn write_u64(&mut self, value: u64) {
        let product = u128::from(value ^ self.0) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

impl BuildHasher for IntegerHash {
    type Hasher = IntegerHash;
    fn build_hasher(&self) -> IntegerHash {
        IntegerHash::default()
    }
}

/// The requests under way.
#[derive(Default)]
pub(super) struct Requests {
    slots: Slots<Request>,
    by_id: HashMap<RequestId, Slot, IntegerHash>,
}

impl Requests {
    pub(super) fn slot_of(&self, id: RequestId) -> Option<Slot> {
        self.by_id.get(&id).copied()
    }

    pub(super) fn insert(&mut self, request: Request) -> Slot {
        let id = request.id;
        let slot = self.slots.insert(request);
        self.by_id.insert(id, slot);
        slot
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Option<Request> {
        let request = self.slots.remove(slot)?;
        self.by_id.remove(&request.id);
        Some(request)
    }

    /// Takes out an attempt that is under way.
    pub(super) fn take(&mut self, attempt: AttemptId) -> Option<(Slot, Attempt)> {
        let slot = Slots::<Request>::slot_in(attempt);
        Some((slot, self.get_mut(slot)?.take(attempt)?))
    }
}

impl Deref for Requests {
    type Target = Slots<Request>;
    fn deref(&self) -> &Slots<Request> {
        &self.slots
    }
}

impl DerefMut for Requests {
    fn deref_mut(&mut self) -> &mut Slots<Request> {
        &mut self.slots
    }
}
