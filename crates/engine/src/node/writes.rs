//! Writes: one at a time for each key; when one ends, no older version is left in any tier.

use std::collections::VecDeque;

use model::window::Nanos;

use super::hot::Target;
use super::{Action, Node, Reply, RequestId, Stages, Verified, Writers};
use crate::mutant::{self, Mutant};
use crate::{Key, Payload};

impl<P: Payload> Node<P> {
    pub(super) fn write_begin(
        &mut self,
        now: Nanos,
        request: RequestId,
        key: Key,
        actions: &mut Vec<Action<P>>,
    ) {
        if self.cluster.as_ref().is_some_and(|cluster| !cluster.is_primary(&key, now)) {
            self.refuse_write(now, request, Reply::NotPrimary, actions);
            return;
        }
        match self.writers.get_mut(&key) {
            None => {
                let writers =
                    Writers { current: request, uncertain: false, waiting: VecDeque::new() };
                self.writers.insert(key, writers);
                actions.push(Action::WriteTurn { request });
            }
            Some(_) if self.writes_waiting >= self.settings.writes_waiting_max => {
                let reply = Reply::Busy { queue: "writes".into() };
                self.refuse_write(now, request, reply, actions);
            }
            Some(writers) => {
                if mutant::is(Mutant::TurnShared) {
                    actions.push(Action::WriteTurn { request });
                }
                writers.waiting.push_back(request);
                self.writes_waiting += 1;
            }
        }
    }

    pub(super) fn write_end(
        &mut self,
        now: Nanos,
        request: RequestId,
        key: Key,
        payload: Option<P>,
        actions: &mut Vec<Action<P>>,
    ) {
        // Refused when this node lost its place in the view, just when its client left.
        let Some(writers) = self.writers.get_mut(&key) else { return };
        if writers.current != request {
            // Its client left while it waited for its turn.
            let before = writers.waiting.len();
            writers.waiting.retain(|&waiting| waiting != request);
            self.writes_waiting -= (before - writers.waiting.len()) as u32;
            return;
        }
        let uncertain = writers.uncertain;
        self.next_turn(now, &key, actions);
        if !mutant::is(Mutant::OwnCopyKept) {
            self.forget(&key);
        }
        if !mutant::is(Mutant::OwnFlightsKept) {
            self.flights.void(&key);
        }
        // If the view changed since its turn began, another node may have written after it, because
        // the origin's answer may have been long on its way.
        let authority = self.authority(&key, now).filter(|_| !uncertain);
        let verified = authority.map(|authority| Verified { at: now, authority });
        if let Some(payload) = payload.filter(|_| verified.is_some()) {
            self.append(&key, &payload, verified, Target::Main, actions);
            self.keep(key.clone(), payload, verified, actions);
        }
        self.spread_write(now, request, &key, uncertain, actions);
    }

    /// Gives the turn to the next writer of a key. If this node does not order the key's writes any
    /// more, it refuses all that wait.
    fn next_turn(&mut self, now: Nanos, key: &Key, actions: &mut Vec<Action<P>>) {
        let primary = self.cluster.as_ref().is_none_or(|cluster| cluster.is_primary(key, now));
        let Some(writers) = self.writers.get_mut(key) else { return self.invariants.broken() };
        if mutant::is(Mutant::WriterLost) && writers.waiting.pop_front().is_some() {
            self.writes_waiting -= 1;
        }
        let next = if primary { writers.waiting.pop_front() } else { None };
        if let Some(request) = next {
            writers.current = request;
            writers.uncertain = false;
            self.writes_waiting -= 1;
            actions.push(Action::WriteTurn { request });
            return;
        }
        let waiting = std::mem::take(&mut writers.waiting);
        self.writers.remove(key);
        self.writes_waiting -= waiting.len() as u32;
        for request in waiting {
            self.refuse_write(now, request, Reply::NotPrimary, actions);
        }
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
