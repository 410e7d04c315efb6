//! Writes: one at a time for each key; when one ends, no older version is left in any tier.

use std::collections::VecDeque;

use ground::window::Nanos;

use super::authorities::Verified;
use super::event::{Action, RequestId};
use super::reply::{Reply, Stages};
use super::state::{Node, Writers};
use super::tiers::{NewRecord, Target};
use crate::Payload;
use crate::mutant::{self, Mutant};
use ground::Key;

impl<P: Payload> Node<P> {
    pub(super) fn write_begin(
        &mut self,
        now: Nanos,
        request: RequestId,
        key: Key,
        epoch: Option<u64>,
        actions: &mut Vec<Action<P>>,
    ) {
        if !self.orders(now, &key, epoch) {
            self.refuse_write(now, request, Reply::NotPrimary, actions);
            return;
        }
        match self.writers.get_mut(&key) {
            None => {
                let writers =
                    Writers { current: request, until: Nanos::MAX, waiting: VecDeque::new() };
                self.writers.insert(key, writers);
                actions.push(Action::WriteTurn { request });
            }
            Some(_) if self.writes_waiting >= self.settings.writes_waiting_max => {
                let reply = Reply::Busy { queue: "writes".into() };
                self.refuse_write(now, request, reply, actions);
            }
            // A second turn under the same name would end with the first, whoever holds it by then.
            Some(writers) if writers.current == request => self.invariants.broken(),
            Some(writers) => {
                if mutant::is(Mutant::TurnShared) {
                    actions.push(Action::WriteTurn { request });
                }
                writers.waiting.push_back((request, epoch));
                self.writes_waiting += 1;
            }
        }
    }

    /// Whether this node orders a key's writes, and has done so since an epoch.
    fn orders(&self, now: Nanos, key: &Key, epoch: Option<u64>) -> bool {
        let orders = |cluster: &super::Cluster| {
            !cluster.hands_over()
                && cluster.is_primary(key, now)
                && (cluster.is_since(key, epoch) || mutant::is(Mutant::EpochUnasked))
        };
        self.cluster.as_ref().is_none_or(orders)
    }

    /// Whether a write that has its turn may be made now: nobody else can have been the key's primary
    /// since the turn began. To be asked between the look at what the origin holds, which the write's
    /// condition names, and the write: a look that comes after another primary's write must not be
    /// followed by this one. Cost: a look-up.
    pub fn may_write(&self, now: Nanos, request: RequestId, key: &Key) -> bool {
        let turn = self.writers.get(key).filter(|it| it.current == request);
        let may = |cluster: &super::Cluster, until| cluster.may_end(key, until, now);
        let may = |it: &Writers| self.cluster.as_ref().is_none_or(|cluster| may(cluster, it.until));
        turn.is_some_and(may) || mutant::is(Mutant::WritesUnasked)
    }

    pub(super) fn write_end(
        &mut self,
        now: Nanos,
        request: RequestId,
        key: Key,
        payload: Option<P>,
        actions: &mut Vec<Action<P>>,
    ) {
        // Before the turn passes on, which resets it for the next writer.
        let Some(until) = self.turn_until(request, &key) else { return };
        self.next_turn(now, &key, actions);
        // Copies first, flights second, the new object last: what is kept here must be newer than all that was there, and a
        // flight that is not voided would put the older version back over it.
        if !mutant::is(Mutant::OwnCopyKept) {
            self.forget(&key);
        }
        if !mutant::is(Mutant::OwnFlightsKept) {
            self.flights.void(&key);
        }
        // If the view changed since its turn began, another node may have written after it, because
        // the origin's answer may have been long on its way.
        let authority = self.authority(&key, now).filter(|_| until == Nanos::MAX);
        let verified = authority.map(|authority| Verified { at: now, authority });
        if let Some(payload) = payload.filter(|_| verified.is_some()) {
            self.append(NewRecord::new(&key, &payload, verified), Target::Main, actions);
            self.keep(key.clone(), payload, verified, actions);
        }
        // Last: it acknowledges the write at once if no other node is to be told.
        self.spread_write(now, request, &key, until, actions);
    }

    pub(super) fn write_given_up(
        &mut self,
        now: Nanos,
        request: RequestId,
        key: &Key,
        actions: &mut Vec<Action<P>>,
    ) {
        if self.turn_until(request, key).is_some() {
            self.next_turn(now, key, actions);
        }
    }

    /// Until when a write that ends has had the right to its turn. `None` for one that waited for it, which leaves the queue.
    fn turn_until(&mut self, request: RequestId, key: &Key) -> Option<Nanos> {
        // Refused when this node lost its place in the view, just when its client left.
        let writers = self.writers.get_mut(key)?;
        if writers.current != request {
            let before = writers.waiting.len();
            writers.waiting.retain(|&(waiting, _)| waiting != request);
            self.writes_waiting -= (before - writers.waiting.len()) as u32;
            return None;
        }
        Some(writers.until)
    }

    /// Gives the turn to the next writer of a key. Refuses those that came when this node did not order
    /// the key's writes yet, or before it ceased to.
    fn next_turn(&mut self, now: Nanos, key: &Key, actions: &mut Vec<Action<P>>) {
        let Some(writers) = self.writers.get_mut(key) else { return self.invariants.broken() };
        if mutant::is(Mutant::WriterLost) && writers.waiting.pop_front().is_some() {
            self.writes_waiting -= 1;
        }
        // Refused here and not when the view changed: a view looks at the keys' terms, not at all who wait.
        while let Some((request, epoch)) = self.next_writer(key) {
            self.writes_waiting -= 1;
            if !self.orders(now, key, epoch) {
                self.refuse_write(now, request, Reply::NotPrimary, actions);
                continue;
            }
            let Some(writers) = self.writers.get_mut(key) else { return self.invariants.broken() };
            writers.current = request;
            writers.until = Nanos::MAX;
            actions.push(Action::WriteTurn { request });
            return;
        }
        self.writers.remove(key);
    }

    fn next_writer(&mut self, key: &Key) -> Option<(RequestId, Option<u64>)> {
        self.writers.get_mut(key)?.waiting.pop_front()
    }

    fn refuse_write(
        &mut self,
        now: Nanos,
        request: RequestId,
        reply: Reply<P>,
        actions: &mut Vec<Action<P>>,
    ) {
        let stages = Stages::at_once(now, self.flights.len() as u32);
        actions.push(Action::Reply { request, reply, stages });
    }
}
