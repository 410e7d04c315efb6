//! The order of one client's requests, where it does not wait for replies.
//!
//! A server carries out what comes by one connection in its order, so a read that was sent there
//! before a write of the same key does not see it. It would see it at another server, which has the
//! write already when the read comes: as a hedge, as a retry, or because a read of several keys waits
//! for an update of one of them while a later write of another is under way. So a read with such a
//! write behind it is sent nowhere else, and such a write waits until that read is sent.
//!
//! A read whose item may be marked at its first server asks there at once after an invalidation that came by this
//! proxy: of several that a client sends without waiting, the first one then wins. (If the first asked another server, whose
//! miss sends it on, the second would come before it.)

use std::collections::HashMap;

use super::{KeyHash, Keys, Operation, Pools, Request};
use crate::gateway::IntegerHash;
use crate::mutant::{self, Mutant};

/// Places of [`Order::writes`]. Two keys of clients that share one cost a hedge or a retry, no more.
const PLACES: usize = 1 << 14;

/// What is known of the order of requests.
#[derive(Default)]
pub(super) struct Order {
    /// Requests that came.
    came: u64,
    /// The last write of a client and a key, by a hash of both, as its number among all requests.
    /// Empty until there is a write.
    writes: Vec<u64>,
    /// The last invalidation of a key since it was written, likewise, by a hash of the key alone. Two keys that share a place cost
    /// a choice of servers. Empty until there is one.
    invalidations: Vec<u64>,
    /// Reads of several keys that wait, as their numbers, by client and key.
    waiting: HashMap<(u64, u64), Vec<u64>, IntegerHash>,
    /// The key for which each of them waits now.
    at: HashMap<u64, u64, IntegerHash>,
}

fn place(client: u64, key: &KeyHash) -> usize {
    let mixed = (client ^ key.id.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (64 - PLACES.trailing_zeros())) as usize
}

impl Order {
    /// The number of what comes now.
    pub(super) fn next(&mut self) -> u64 {
        self.came += 1;
        self.came
    }

    /// A request came; returns its number.
    pub(super) fn arrive(&mut self, client: u64, operation: Operation, keys: &Keys) -> u64 {
        self.came += 1;
        if !operation.is_read() {
            self.writes.resize(PLACES, 0);
            for key in keys.as_slice() {
                self.writes[place(client, key)] = self.came;
            }
            self.note_mark(operation, keys);
        }
        self.came
    }

    /// Notes an invalidation, or the write that ends it.
    fn note_mark(&mut self, operation: Operation, keys: &Keys) {
        match operation {
            Operation::Invalidate => self.invalidations.resize(PLACES, 0),
            Operation::Write if !self.invalidations.is_empty() => {}
            _ => return,
        }
        let mark = if operation == Operation::Invalidate { self.came } else { 0 };
        for key in keys.as_slice() {
            self.invalidations[place(0, key)] = mark;
        }
    }
}

impl Pools {
    /// Whether a read's item was marked by an invalidation that came before it, for all that is known here.
    pub(super) fn is_marked(&self, request: &Request) -> bool {
        let marks = &self.order.invalidations;
        let last = |key: &KeyHash| marks.get(place(0, key)).copied().unwrap_or(0);
        request.keys.as_slice().iter().any(|key| (1..request.came).contains(&last(key)))
    }

    /// Whether a write of one of a read's keys came after it from the same client.
    pub(super) fn is_overtaken(&self, request: &Request) -> bool {
        let writes = &self.order.writes;
        let last = |key: &KeyHash| writes.get(place(request.client, key)).copied().unwrap_or(0);
        request.keys.as_slice().iter().any(|key| last(key) > request.came)
    }

    /// A read waits for an update of a key: writes of its client that come later wait for the read.
    pub(super) fn holds_back(&mut self, request: &mut Request, key: u64) {
        if request.keys.as_slice().len() < 2 {
            return;
        }
        self.order.at.insert(request.came, key);
        if std::mem::replace(&mut request.holds_back, true) {
            return;
        }
        for key in request.keys.as_slice() {
            self.order.waiting.entry((request.client, key.id)).or_default().push(request.came);
        }
    }

    /// A read does not wait any more.
    pub(super) fn holds_back_no_more(&mut self, request: &mut Request) {
        if !std::mem::take(&mut request.holds_back) {
            return;
        }
        self.order.at.remove(&request.came);
        for key in request.keys.as_slice() {
            let name = (request.client, key.id);
            let Some(waiting) = self.order.waiting.get_mut(&name) else { continue };
            waiting.retain(|came| *came != request.came);
            if waiting.is_empty() {
                self.order.waiting.remove(&name);
            }
        }
    }

    /// The key for which a read waits that came before a write, from the same client and of the same
    /// key.
    pub(super) fn held_back_at(&self, write: &Request) -> Option<u64> {
        if self.order.waiting.is_empty() || mutant::is(Mutant::PoolWritePassesWaitingRead) {
            return None;
        }
        let key = write.keys.as_slice().first()?;
        let waiting = self.order.waiting.get(&(write.client, key.id))?;
        let earlier = waiting.iter().find(|came| **came < write.came)?;
        self.order.at.get(earlier).copied()
    }
}
