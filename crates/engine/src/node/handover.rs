//! The end of a node in order: it hands its keys over before it stops.
//!
//! A node that is told [`Event::HandOver`](super::Event::HandOver) begins no write any more: those that come
//! and those that wait for their turn are refused ([`Reply::NotPrimary`]), so that gateways send them to the
//! key's next primary. It grants no leases, and takes back those that it granted. What it serves of the keys
//! that it orders it compares with the origin first, as a node without a lease does. Once the writes under way
//! have ended and nobody holds a lease from it, others need not wait for it: [`Action::HandedOver`]. The
//! view that lists it as not live says so ([`View::handed_over`](crate::route::View::handed_over)), and the
//! next of its keys' nodes order them from the moment at which they know that view.
//!
//! A node that has handed over holds no lease of others' either: it gives up those that it has, asks for none, and what it
//! answers for a while as a replica it compares with the origin. So who orders keys need not invalidate its copies, nor
//! wait for it, once the view says that it has handed over. A lease that a later process of the same name was granted
//! meanwhile is another matter: that process had a later view when it asked.
//!
//! A peer that does not answer costs at most the rest of its lease, and a write that takes long keeps the
//! node from handing over: its driver bounds the wait, and then others wait as for a node that was lost.

use ground::window::Nanos;

use super::cluster::Cluster;
use super::event::{Action, RequestId};
use super::reply::{Reply, Stages};
use super::state::Node;
use crate::Payload;
use crate::mutant::{self, Mutant};
use crate::route::NodeId;
use crate::route::View;
use ground::Key;

impl Cluster {
    /// Whether this node hands over, or has.
    pub(super) fn hands_over(&self) -> bool {
        self.handover.is_some()
    }

    /// Whether this node has handed over.
    pub(super) fn has_handed_over(&self) -> bool {
        self.handover.as_ref().is_some_and(|handover| handover.done)
    }

    /// Gives up the leases from others, for good; `now` is at least the time of any request for one.
    fn give_up_leases(&mut self, now: Nanos) {
        for peer in 0..self.granted.len() {
            self.give_back(peer, now);
        }
    }

    /// Those that handed over between the view before and the present one, which follows it, hold no lease any more.
    pub(super) fn end_leases_of_ended(&mut self, before: &View, now: Nanos) {
        for peer in 0..self.granted.len() {
            let ended = before.is_live(peer) && self.view.has_handed_over(peer);
            let earlier = self.asked_in[peer] < self.view.epoch;
            if ended && (earlier || mutant::is(Mutant::LaterLeaseEnded)) {
                self.granted[peer] = now.min(self.granted[peer]);
            }
        }
    }

    /// Whether a write of a key may be made, or acknowledged, now: this node orders the key, or nobody else
    /// does before `until`.
    pub(super) fn may_end(&self, key: &Key, until: Nanos, now: Nanos) -> bool {
        match until {
            Nanos::MAX => self.is_primary(key, now),
            until => now < until || mutant::is(Mutant::GraceForEver),
        }
    }
}

impl<P: Payload> Node<P> {
    pub(super) fn hand_over(&mut self, now: Nanos, actions: &mut Vec<Action<P>>) {
        let Some(cluster) = &mut self.cluster else { return self.invariants.broken() };
        cluster.handover.get_or_insert_default();
        let waiting = self.writers.values_mut().flat_map(|writers| writers.waiting.drain(..));
        let mut refused: Vec<RequestId> = waiting.map(|(request, _)| request).collect();
        refused.sort_unstable();
        self.writes_waiting -= refused.len() as u32;
        let stages = Stages::at_once(now, self.flights.len() as u32);
        let refuse = |request| Action::Reply { request, reply: Reply::NotPrimary, stages };
        actions.extend(refused.into_iter().map(refuse));
        self.go_on_handing_over(now, actions);
    }

    /// Takes back the leases that others hold and that are not being taken back, and looks whether all is
    /// over.
    pub(super) fn go_on_handing_over(&mut self, now: Nanos, actions: &mut Vec<Action<P>>) {
        let Some(cluster) = &mut self.cluster else { return };
        let (me, pending) = (cluster.me(), cluster.pending_writes());
        let Some(handover) = cluster.handover.as_mut().filter(|handover| !handover.done) else {
            return;
        };
        let granted = cluster.granted.iter().enumerate();
        let holders: Vec<NodeId> = granted
            .filter(|(peer, until)| *peer != me && now < **until)
            .map(|(peer, _)| peer)
            .collect();
        for &peer in holders.iter().filter(|peer| !handover.asked.contains(peer)) {
            actions.push(Action::TakeBack { peer });
        }
        handover.asked.clone_from(&holders);
        let writes = self.writers.len() + pending;
        if (writes == 0 || mutant::is(Mutant::HandsOverWhileWriting))
            && (holders.is_empty() || mutant::is(Mutant::HandsOverLeased))
        {
            handover.done = true;
            if !mutant::is(Mutant::HandoverKeepsLeases) {
                cluster.give_up_leases(now);
            }
            actions.push(Action::HandedOver);
        }
    }

    /// A peer gave its lease back, or could not be reached: then the next tick asks it again.
    pub(super) fn returned(
        &mut self,
        now: Nanos,
        peer: NodeId,
        done: bool,
        actions: &mut Vec<Action<P>>,
    ) {
        let Some(cluster) = &mut self.cluster else { return self.invariants.broken() };
        let Some(handover) = &mut cluster.handover else { return self.invariants.broken() };
        if !done {
            handover.asked.retain(|asked| *asked != peer);
            return;
        }
        if let Some(until) = cluster.granted.get_mut(peer) {
            *until = now.min(*until);
        }
        // Those that waited for this peer may end, and with them the handover.
        self.end_writes(now, None, actions);
    }

    /// The primary of other keys takes its lease back.
    pub(super) fn give_back(&mut self, peer: NodeId) {
        let now = self.now;
        if !self.cluster.as_mut().is_some_and(|cluster| cluster.give_back(peer, now)) {
            self.invariants.broken();
        }
    }
}
