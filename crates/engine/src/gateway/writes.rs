//! Writes: sent to the key's primary alone, and again only if nothing was done.

use ground::window::Nanos;

use super::reads::Destination;
use super::requests::Phase;
use super::{Action, Gateway, Refusal, Status};
use crate::slots::Slot;

impl Gateway {
    /// The primary of a write's key, if it answers: a suspect node that answered its last ping
    /// does.
    fn primary(&self, slot: Slot) -> Option<Destination> {
        let replicas = self.requests.get(slot)?.replicas;
        let node = self.view.primary(&replicas)?;
        let there = self.nodes.get(node)?.health.answers();
        let place = replicas.place(node).filter(|_| there)?;
        Some(Destination { place, node, avoid: None })
    }

    /// Whether a write whose primary does not answer waits: for the node that takes over as soon as the
    /// membership notices, or, where members are static, for the primary itself, as long as it fell silent only
    /// just now. A ping that a busy machine answers late and a restart are no reason to refuse a write that has
    /// time. A primary that is gone for good is: writes that wait for it would take the places of reads.
    fn may_wait(&self, now: Nanos, slot: Slot) -> bool {
        let of = |slot| self.view.primary(&self.requests.get(slot)?.replicas);
        let primary = of(slot).and_then(|node| self.nodes.get(node));
        let patience = self.settings.attempt_timeout_max;
        self.view.epoch > 0
            || primary.is_some_and(|node| node.health.may_answer_soon(now, patience))
    }

    /// Sends a write that came.
    pub(super) fn first_write(&mut self, now: Nanos, slot: Slot, actions: &mut Vec<Action>) {
        match self.primary(slot) {
            Some(to) => self.send(now, slot, to, actions),
            None if self.may_wait(now, slot) => self.park(now, slot, self.view.epoch > 0),
            None => self.refuse(now, slot, Refusal::NoPrimary, actions),
        }
    }

    /// Sends a write again that its node did not take. A misdirected write waits for a view with
    /// another primary.
    pub(super) fn retry_write(&mut self, now: Nanos, slot: Slot, actions: &mut Vec<Action>) {
        let Some(request) = self.requests.get(slot) else { return self.invariants.broken() };
        let Phase::Parked { rerouted, .. } = request.phase else {
            return self.invariants.broken();
        };
        let first = request.sent == 0;
        match self.primary(slot) {
            // It waited for a primary, and was not sent yet.
            Some(to) if first => self.send(now, slot, to, actions),
            Some(to) if self.further.may_retry(true) => {
                self.further.count_retry();
                self.send(now, slot, to, actions);
            }
            Some(_) => self.park(now, slot, rerouted),
            None if rerouted || self.may_wait(now, slot) => self.park(now, slot, rerouted),
            None => self.refuse(now, slot, Refusal::NoPrimary, actions),
        }
    }

    /// Nothing was done: the write waits a little, longer each time.
    pub(super) fn park(&mut self, now: Nanos, slot: Slot, rerouted: bool) {
        let pause = self.settings.write_retry.max(1);
        let Some(request) = self.requests.get_mut(slot) else { return self.invariants.broken() };
        let pause = pause.saturating_mul(1 << request.sent.saturating_sub(1).min(4));
        request.phase = Phase::Parked { until: now.saturating_add(pause), rerouted };
        self.requests.arm(slot);
    }

    /// The primary declined a write, or failed.
    pub(super) fn write_declined(
        &mut self,
        now: Nanos,
        slot: Slot,
        status: Status,
        actions: &mut Vec<Action>,
    ) {
        match status {
            Status::Misdirected => self.park(now, slot, true),
            Status::Busy => self.refuse(now, slot, Refusal::Busy, actions),
            // The origin may have taken it before it could not be reached any more.
            Status::Unavailable | Status::Final => {
                self.refuse(now, slot, Refusal::Unknown, actions);
            }
        }
    }
}
