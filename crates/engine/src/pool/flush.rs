//! A client's `flush_all`, in order with the updates of all clients.
//!
//! An update runs at one server and is copied to others. Emptied in between, the others would hold a value that is
//! older than the flush and outlives it. So a flush waits until every write of a key with several servers (and every
//! value on its way from a former server) that came before it has ended, and those that come later wait for the flush: the
//! plain ones too, or a flush might wait for ever. Reads, and writes of keys with one server, go on: each server orders them
//! with its own flush. The order of one client's commands is its driver's to keep: it begins a flush when the client's earlier
//! requests have their replies, and nothing of that client before the flush has its own.
//!
//! Cost: nothing while there is no flush. During one, such writes wait for the slowest reply of a server that is read, or for
//! its time limit; not for servers that get copies alone.

use super::event::{Action, RequestId, ServerId};
use super::state::{Phase, Pools, Request};
use crate::mutant::{self, Mutant};

impl Pools {
    pub(super) fn flush_all(&mut self, request: RequestId) {
        let came = self.order.next();
        self.flushes.queue.push_back((came, request));
    }

    /// Whether a request that holds its key has to wait for a flush that came before it. Puts it among those that do.
    pub(super) fn waits_for_flush(&mut self, id: RequestId, request: &mut Request) -> bool {
        let Some(&(first, _)) = self.flushes.queue.front() else { return false };
        let is_before = request.came < first && !self.flushes.running;
        if is_before || mutant::is(Mutant::PoolUpdatesPassFlush) {
            return false;
        }
        if !request.holds_key {
            return false;
        }
        request.phase = Phase::Locked;
        self.flushes.held.push(id);
        true
    }

    /// Begins the next flush if no request that holds its key has begun. Called when every request is in its place.
    pub(super) fn run_flushes(&mut self, actions: &mut Vec<Action>) {
        let Some(&(_, request)) = self.flushes.queue.front() else { return };
        if self.flushes.running {
            return;
        }
        // Those that hold their keys and wait, for the flush or for a read, have changed nothing yet. They begin after it.
        // The scan costs O(requests under way) for each event while a flush waits, which is as long as one update.
        let runs = |request: &Request| request.holds_key && request.phase == Phase::Serving;
        let ended = !self.requests.values().any(|request| runs(request));
        if !ended && !mutant::is(Mutant::PoolFlushPassesUpdates) {
            return;
        }
        self.flushes.running = true;
        let awaited = self.read_servers();
        actions.push(Action::Broadcast { request, awaited });
    }

    /// The servers whose values clients may get: all but those of pools that get copies alone.
    fn read_servers(&self) -> Vec<ServerId> {
        let routes = self.settings.routes.iter();
        let read = routes.flat_map(|it| [Some(it.pool), it.gutter, it.warm_from]).flatten();
        let pools = read.filter_map(|pool| self.pools.get(pool));
        let mut servers: Vec<ServerId> =
            pools.flat_map(|pool| pool.settings.servers.iter().copied()).collect();
        servers.sort_unstable();
        servers.dedup();
        servers
    }

    pub(super) fn flush_ended(
        &mut self,
        request: RequestId,
        failed: &[ServerId],
        actions: &mut Vec<Action>,
    ) {
        let first = self.flushes.queue.front().map(|(_, first)| *first);
        if !self.flushes.running || first != Some(request) {
            return self.invariants.broken();
        }
        for &server in failed {
            if server < self.servers.len() {
                // Its items may have survived: it is emptied before it is read, if its pool allows that.
                self.misses(server);
                self.servers_due = self.now;
            }
        }
        self.flushes.queue.pop_front();
        self.flushes.running = false;
        // Those that came before the next flush go on; the others are held again as they begin.
        for id in std::mem::take(&mut self.flushes.held) {
            let Some(mut request) = self.requests.remove(&id) else { continue };
            if request.phase == Phase::Locked && request.holds_key {
                if request.operation.is_read() {
                    self.begin_warm(id, &mut request, actions);
                } else {
                    self.begin_in_order(id, &mut request, actions);
                }
            }
            let pool = request.pool;
            self.settle(id, request, actions);
            // One that was refused at once leaves its worker to those that waited before any that comes now.
            self.begin_waiting(pool, actions);
        }
    }
}
