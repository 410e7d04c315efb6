//! Leases, invalidations and views of the membership: what a node does at events of its cluster. What it knows of the cluster is
//! in `cluster`.

use ground::window::{Nanos, key_hash};

use super::cluster::{Cluster, Pending};
use super::event::{Action, RequestId};
use super::state::Node;
use crate::Payload;
use crate::mutant::{self, Mutant};
use crate::route::{NodeId, View};
use ground::Key;

impl Cluster {
    /// Asks each peer for a lease whose last was asked for `every` ago. Notes when the next is due: members ask at the same
    /// ticks, so most ticks ask for none, and a look at each of a thousand leases would be most of what a tick costs.
    fn ask_leases<P>(&mut self, now: Nanos, every: Nanos, actions: &mut Vec<Action<P>>) {
        let (me, epoch) = (self.me(), self.view.epoch);
        let mut next = Nanos::MAX;
        for (peer, lease) in self.leases.iter_mut().enumerate() {
            // A hot node orders no writes, so nobody needs a lease from it.
            if peer == me || self.settings.ring.is_hot(peer) || !self.view.is_live(peer) {
                continue;
            }
            if lease.asked.is_none_or(|at| at + every <= now) {
                lease.asked = Some(now);
                actions.push(Action::AskLease { peer, asked: now, epoch });
            }
            next = next.min(lease.asked.unwrap_or(now) + every);
        }
        self.asks_due = next;
    }
}

impl<P: Payload> Node<P> {
    pub(super) fn lease_asked(
        &mut self,
        now: Nanos,
        peer: NodeId,
        epoch: Option<u64>,
        actions: &mut Vec<Action<P>>,
    ) {
        // A peer's configuration may name this node although its own says that it is alone.
        let Some(cluster) = &mut self.cluster else { return };
        let known = peer < cluster.granted.len() && peer != cluster.me();
        // A peer that owes a confirmation gets no new lease, so that the write need not wait for
        // ever.
        let owes = |pending: &Pending| pending.peers.iter().any(|(owing, _)| *owing == peer);
        if !known || !cluster.may_grant(now) || cluster.pending.values().any(owes) {
            return;
        }
        let term = cluster.settings.lease.min(cluster.view.until.saturating_sub(now));
        // The margin is added on this side alone: it covers what the peer's clock may be slower than this one.
        let no_margin = mutant::is(Mutant::NoMargin);
        let margin = if no_margin { 0 } else { cluster.settings.margin() };
        let until = now + term + margin;
        cluster.granted[peer] = cluster.granted[peer].max(until);
        // Who does not say it may be a later process than any that has handed over.
        let epoch = epoch.unwrap_or(u64::MAX);
        cluster.asked_in[peer] = cluster.asked_in[peer].max(epoch);
        actions.push(Action::Grant { peer, term });
    }

    pub(super) fn lease_granted(&mut self, now: Nanos, peer: NodeId, asked: Nanos, term: Nanos) {
        let Some(cluster) = &mut self.cluster else { return self.invariants.broken() };
        let asked = if mutant::is(Mutant::LeaseFromArrival) { now } else { asked };
        // From when it was asked for. The granter counts from when the question came, which is later, so its time ends after
        // this one however long the messages took.
        let until = asked.saturating_add(term.min(cluster.settings.lease));
        let Some(lease) = cluster.leases.get_mut(peer) else { return self.invariants.broken() };
        // The grant was longer on its way than it lasts.
        if until <= now {
            return;
        }
        let void = lease.returned.is_some_and(|at| asked <= at);
        if void && !mutant::is(Mutant::ReturnedLeaseRevived) {
            return;
        }
        // While the lease had lapsed the granter waited for no confirmation from here: copies from before are compared again.
        if lease.until <= now {
            lease.generation += 1;
        }
        lease.until = lease.until.max(until);
    }

    pub(super) fn invalidate(&mut self, key: &Key) {
        if !mutant::is(Mutant::InvalidationKeepsCopies) {
            self.forget(key);
        }
        if !mutant::is(Mutant::InvalidationKeepsFlights) {
            self.flights.void(key);
        }
    }

    /// A write has ended at the origin and its key is forgotten here: invalidates the other nodes'
    /// copies.
    pub(super) fn spread_write(
        &mut self,
        now: Nanos,
        request: RequestId,
        key: &Key,
        until: Nanos,
        actions: &mut Vec<Action<P>>,
    ) {
        let Some(cluster) = &mut self.cluster else {
            actions.push(Action::WriteDone { request, certain: true });
            return;
        };
        // A node without a lease compares each copy before it serves it, so it need not be told.
        let leased = |node: &NodeId| *node != cluster.me() && now < cluster.granted[*node];
        let leased = |node: &NodeId| leased(node) && !mutant::is(Mutant::InvalidationSkipped);
        let mut peers = cluster.holders(key, now);
        peers.retain(leased);
        for &peer in &peers {
            actions.push(Action::Invalidate { peer, key: key.clone(), request });
        }
        let awaited = |_: &NodeId| !mutant::is(Mutant::AckBeforePeers);
        let peers = peers.into_iter().filter(awaited).map(|peer| (peer, None)).collect();
        *cluster.pending_of.entry(key.clone()).or_insert(0) += 1;
        // Also if nobody is waited for, so that all writes are acknowledged in one place. Not a repeated name: the pending write
        // would be acknowledged by the confirmations of another.
        let write = Pending { key: key.clone(), until, peers };
        if cluster.pending.insert(request, write).is_some() {
            self.invariants.broken();
        }
        self.end_writes(now, Some(request), actions);
    }

    pub(super) fn invalidated(
        &mut self,
        now: Nanos,
        request: RequestId,
        peer: NodeId,
        done: bool,
        actions: &mut Vec<Action<P>>,
    ) {
        let Some(cluster) = &mut self.cluster else { return self.invariants.broken() };
        let again = now + cluster.settings.tick();
        // Late or repeated: the write ended with the peer's lease, or by its first confirmation.
        let Some(pending) = cluster.pending.get_mut(&request) else { return };
        if done {
            pending.peers.retain(|(owing, _)| *owing != peer);
        } else if let Some(owing) = pending.peers.iter_mut().find(|(owing, _)| *owing == peer) {
            owing.1 = Some(again);
        }
        self.end_writes(now, Some(request), actions);
    }

    /// Ends those pending writes (one, or all) that wait for no peer's lease any more.
    pub(super) fn end_writes(
        &mut self,
        now: Nanos,
        only: Option<RequestId>,
        actions: &mut Vec<Action<P>>,
    ) {
        // A node without peers gets ticks too; it has no pending writes.
        let Some(cluster) = &mut self.cluster else { return };
        let Cluster { pending, granted, .. } = cluster;
        let mut done = Vec::new();
        let end = |request: RequestId, write: &mut Pending, done: &mut Vec<RequestId>| {
            write.peers.retain(|(peer, _)| now < granted[*peer]);
            if write.peers.is_empty() {
                done.push(request);
            }
        };
        match only {
            Some(request) => {
                if let Some(write) = pending.get_mut(&request) {
                    end(request, write, &mut done);
                }
            }
            None => pending.iter_mut().for_each(|(&r, write)| end(r, write, &mut done)),
        }
        for request in done {
            let Some(write) = cluster.pending.remove(&request) else {
                self.invariants.broken();
                continue;
            };
            match cluster.pending_of.get_mut(&write.key) {
                Some(count) if *count > 1 => *count -= 1,
                Some(_) => _ = cluster.pending_of.remove(&write.key),
                None => self.invariants.broken(),
            }
            let certain = cluster.may_end(&write.key, write.until, now);
            actions.push(Action::WriteDone { request, certain });
        }
        self.go_on_handing_over(now, actions);
    }

    pub(super) fn view(&mut self, now: Nanos, view: View, actions: &mut Vec<Action<P>>) {
        let Some(cluster) = &mut self.cluster else { return self.invariants.broken() };
        let members = view.ring.as_ref().unwrap_or(&cluster.settings.ring).members().len();
        // Members keep their numbers, so none vanishes.
        if view.live.len() != members || members < cluster.leases.len() {
            return self.invariants.broken();
        }
        // An older view that a newer one overtook.
        if view.epoch < cluster.view.epoch {
            return;
        }
        let me = cluster.me();
        // Since the view ran out, others may have written this node's keys: its copies of them count no more. A later
        // confirmation of the same view must not revive them.
        if cluster.view.until <= now {
            cluster.leases[me].generation += 1;
        }
        if view.epoch == cluster.view.epoch {
            cluster.view.until = cluster.view.until.max(view.until);
            return;
        }
        // Nobody who knows a later view acts on it before this one ends here.
        let until = cluster.view.until;
        let epoch = cluster.follow(now, view);
        for pending in cluster.pending.values_mut() {
            let slot = cluster.settings.ring.slot_of_hash(key_hash(&pending.key));
            if cluster.terms.term_of(slot).epoch == epoch {
                pending.until = pending.until.min(until);
            }
        }
        for (key, writers) in &mut self.writers {
            let slot = cluster.settings.ring.slot_of_hash(key_hash(key));
            if cluster.terms.term_of(slot).epoch == epoch {
                writers.until = writers.until.min(until);
            }
        }
        self.tick(now, actions);
    }

    pub(super) fn tick(&mut self, now: Nanos, actions: &mut Vec<Action<P>>) {
        // First: a write that waited for a lease that has ended is over, and is not repeated below.
        self.end_writes(now, None, actions);
        // A node without peers gets ticks too.
        let Some(cluster) = &mut self.cluster else { return };
        cluster.terms.sweep();
        let tick = cluster.settings.tick();
        for (&request, write) in &mut cluster.pending {
            for (peer, again) in &mut write.peers {
                if again.is_some_and(|at| at <= now) {
                    *again = None;
                    let (peer, key) = (*peer, write.key.clone());
                    actions.push(Action::Invalidate { peer, key, request });
                }
            }
        }
        // Three attempts in the time of a lease, less a tick.
        let every = (cluster.settings.lease / 3).saturating_sub(tick);
        if now >= cluster.asks_due && !cluster.has_handed_over() {
            cluster.ask_leases(now, every, actions);
        }
        self.run_hot_keys(now, actions);
    }
}
