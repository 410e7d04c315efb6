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

use super::event::KeyHash;
use super::state::{Pools, Request, place};
use crate::mutant::{self, Mutant};

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
