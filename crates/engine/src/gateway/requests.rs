//! The table of requests under way, by name and by attempt, with their timers.
//!
//! Requests lie in slots that are reused. An attempt's name contains its request's slot, so a reply
//! finds its request without a search; the name of an attempt that is over finds nothing.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasher, Hasher};

use model::window::{Nanos, Outcome};

use super::{AttemptId, Operation, RequestId};
use crate::invariant::Invariants;
use crate::route::{NodeId, Replicas};

/// Bits of an attempt's name that are its request's slot.
const SLOT_BITS: u32 = 20;
/// Most requests at once.
pub(super) const SLOTS_MAX: u32 = 1 << SLOT_BITS;

/// Index of a request in the table.
pub(super) type Slot = u32;

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
    pub(super) sent: Nanos,
    /// When it is replaced by an attempt at another node.
    pub(super) until: Nanos,
    /// The node's length when it was sent.
    pub(super) length_met: f64,
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
    /// When its timer fires; `MAX` if it is not set.
    timer: Nanos,
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
            timer: Nanos::MAX,
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

    /// When to look at it next.
    fn due(&self) -> Nanos {
        match self.phase {
            Phase::Relaying { .. } => Nanos::MAX,
            Phase::Parked { until, .. } => until.min(self.deadline),
            Phase::Asking => {
                let until = self.attempts.iter().flatten().map(|a| a.until).min();
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
    slots: Vec<Option<Request>>,
    free: Vec<Slot>,
    by_id: HashMap<RequestId, Slot, IntegerHash>,
    /// (when, request, slot); an entry that is not its request's timer is stale.
    timers: BinaryHeap<Reverse<(Nanos, RequestId, Slot)>>,
    serial: u64,
    /// Slots that were named and are empty.
    pub(super) invariants: Invariants,
}

impl Requests {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn slot_of(&self, id: RequestId) -> Option<Slot> {
        self.by_id.get(&id).copied()
    }

    pub(super) fn insert(&mut self, request: Request) -> Slot {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as Slot
        });
        self.by_id.insert(request.id, slot);
        self.slots[slot as usize] = Some(request);
        slot
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Option<Request> {
        let request = self.slots.get_mut(slot as usize)?.take()?;
        self.by_id.remove(&request.id);
        self.free.push(slot);
        Some(request)
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&Request> {
        self.slots.get(slot as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut Request> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    /// A name for a new attempt of a request.
    pub(super) fn name(&mut self, slot: Slot) -> AttemptId {
        self.serial += 1;
        self.serial << SLOT_BITS | u64::from(slot)
    }

    /// Takes out an attempt that is under way.
    pub(super) fn take(&mut self, attempt: AttemptId) -> Option<(Slot, Attempt)> {
        let slot = (attempt & u64::from(SLOTS_MAX - 1)) as Slot;
        Some((slot, self.get_mut(slot)?.take(attempt)?))
    }

    /// The requests of which something holds, in order of their names.
    pub(super) fn which(&self, holds: impl Fn(&Request) -> bool) -> Vec<Slot> {
        let mut found: Vec<&Request> =
            self.slots.iter().flatten().filter(|request| holds(request)).collect();
        found.sort_unstable_by_key(|request| request.id);
        found.into_iter().filter_map(|request| self.slot_of(request.id)).collect()
    }

    /// Asserts that the table is empty.
    #[cfg(test)]
    pub(super) fn assert_empty(&self) {
        assert!(self.by_id.is_empty() && self.slots.iter().all(Option::is_none));
        assert_eq!(self.free.len(), self.slots.len());
    }

    /// Sets a request's timer to when it is next due.
    pub(super) fn arm(&mut self, slot: Slot) {
        let Some(request) = self.slots.get_mut(slot as usize).and_then(Option::as_mut) else {
            return self.invariants.broken();
        };
        let due = request.due();
        if due == request.timer {
            return;
        }
        request.timer = due;
        if due < Nanos::MAX {
            let id = request.id;
            self.timers.push(Reverse((due, id, slot)));
        }
        if self.timers.len() > 4 * self.by_id.len() + 1024 {
            let slots = &self.slots;
            self.timers.retain(|Reverse(timer)| is_set(slots, timer));
        }
    }

    /// The next request that is due by `now`; its timer is not set any more.
    pub(super) fn pop_due(&mut self, now: Nanos) -> Option<Slot> {
        if self.next_due()? > now {
            return None;
        }
        let Reverse((_, _, slot)) = self.timers.pop()?;
        self.get_mut(slot)?.timer = Nanos::MAX;
        Some(slot)
    }

    /// When the first is due, or a little before: after [`Requests::pop_due`], exactly.
    pub(super) fn first_due(&self) -> Option<Nanos> {
        self.timers.peek().map(|Reverse(timer)| timer.0)
    }

    /// When the first is due. Drops stale timers before it.
    fn next_due(&mut self) -> Option<Nanos> {
        while let Some(Reverse(timer)) = self.timers.peek() {
            if is_set(&self.slots, timer) {
                return Some(timer.0);
            }
            self.timers.pop();
        }
        None
    }
}

fn is_set(slots: &[Option<Request>], (when, id, slot): &(Nanos, RequestId, Slot)) -> bool {
    let request = slots.get(*slot as usize).and_then(Option::as_ref);
    request.is_some_and(|request| request.id == *id && request.timer == *when)
}
