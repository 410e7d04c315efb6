//! Reads: the choice of a node, retries, hedges, and the origin as the last resort.

use ground::window::Nanos;

use super::requests::{Attempt, Phase, Target};
use super::{Action, Gateway, Head, Operation, Refusal, Spread, Status};
use crate::attempts::{End, Sent};
use crate::route::health::State;
use crate::route::{NodeId, REPLICAS_MAX};
use crate::slots::Slot;

/// Seconds that a read is expected to take before any node answered.
const PRIOR_S: f64 = 1e-3;

/// Where an attempt goes.
#[derive(Clone, Copy)]
pub(super) struct Destination {
    /// The node's place among those of the key.
    pub place: usize,
    pub node: NodeId,
    /// A node that the reached one is to skip when it asks others.
    pub avoid: Option<NodeId>,
}

/// The candidate nodes of a read.
#[derive(Default)]
struct Choice {
    nodes: [NodeId; REPLICAS_MAX],
    places: [usize; REPLICAS_MAX],
    length: usize,
    /// The first node to use only if there is no other: its share is spent, or it rests.
    spare: Option<(usize, NodeId)>,
    /// The first node that was passed over because it is not healthy.
    passed: Option<NodeId>,
}

impl Choice {
    fn add(&mut self, place: usize, node: NodeId) {
        self.nodes[self.length] = node;
        self.places[self.length] = place;
        self.length += 1;
    }
}

impl Gateway {
    /// The untried nodes that a read may go to now.
    fn choice(&mut self, now: Nanos, slot: Slot) -> Choice {
        let mut choice = Choice::default();
        let Some(request) = self.requests.get(slot) else {
            self.invariants.broken();
            return choice;
        };
        let (replicas, tried, hash) = (request.replicas, request.tried, request.hash);
        let warm = match self.settings.spread {
            Spread::Primary => 0,
            Spread::All => u8::MAX,
            Spread::Warm if self.hints.is_empty() => 0,
            Spread::Warm => self.hints.get(&hash).copied().unwrap_or(0),
        };
        for (place, at) in replicas.iter().enumerate() {
            if tried >> place & 1 == 1 || !self.view.is_live(at) {
                continue;
            }
            let health = &self.nodes[at].health;
            let well = match health.state(now, &self.settings.health) {
                State::Healthy => true,
                State::Recovering => self.balancer.grants(health.share(now, &self.settings.health)),
                State::Suspect | State::Unfit => false,
            };
            let extra = || self.extras.get(&hash).is_some_and(|nodes| nodes.contains(&at));
            let copies = warm >> place & 1 == 1 || self.settings.ring.is_hot(at) || extra();
            if well && (choice.length == 0 || copies) {
                choice.add(place, at);
            } else if !well {
                choice.passed = choice.passed.or(Some(at));
                if health.answers() && choice.spare.is_none() {
                    choice.spare = Some((place, at));
                }
            }
        }
        choice
    }

    /// Chooses a node for a read, and the node that it should skip. With `spare`, also a node that
    /// is used only if there is no other.
    fn pick(&mut self, now: Nanos, slot: Slot, spare: bool) -> Option<Destination> {
        let choice = self.choice(now, slot);
        let last = self.requests.get(slot)?.last;
        let avoid = last.or(choice.passed);
        if choice.length == 0 {
            let (place, node) = choice.spare.filter(|_| spare)?;
            let avoid = avoid.filter(|&avoid| avoid != node);
            return Some(Destination { place, node, avoid });
        }
        let mut chosen = 0;
        if choice.length > 1 {
            let nodes = choice.nodes[..choice.length].iter();
            let loads = nodes.map(|&at| &self.nodes[at].endpoint.load);
            chosen = self.balancer.choose(now, self.settings.policy, PRIOR_S, loads);
        }
        let node = choice.nodes[chosen];
        let avoid = avoid.filter(|&avoid| avoid != node);
        Some(Destination { place: choice.places[chosen], node, avoid })
    }

    /// Sends a read that has no attempt under way to its next node, to the origin, or refuses it.
    pub(super) fn next_read(&mut self, now: Nanos, slot: Slot, actions: &mut Vec<Action>) {
        let Some(request) = self.requests.get(slot) else { return self.invariants.broken() };
        let (first, busy) = (request.sent == 0, request.busy);
        let unavailable = request.unavailable;
        let picked = if unavailable < 2 { self.pick(now, slot, true) } else { None };
        let to_origin = picked.is_none() && !busy && unavailable == 0 && self.may_ask_origin(slot);
        if picked.is_none() && !to_origin {
            let why = if busy { Refusal::Busy } else { Refusal::Unavailable };
            return self.refuse(now, slot, why, actions);
        }
        if to_origin && self.origin_attempts >= self.settings.origin_attempts_max {
            return self.refuse(now, slot, Refusal::Busy, actions);
        }
        if !first && !self.further.may_retry(true) {
            let why = if busy { Refusal::Busy } else { Refusal::Unavailable };
            return self.refuse(now, slot, why, actions);
        }
        if !first {
            self.further.count_retry();
        }
        match picked {
            Some(to) => self.send(now, slot, to, actions),
            None => self.ask_origin(now, slot, actions),
        }
    }

    fn may_ask_origin(&self, slot: Slot) -> bool {
        self.settings.origin && self.requests.get(slot).is_some_and(|r| !r.asked_origin)
    }

    fn ask_origin(&mut self, now: Nanos, slot: Slot, actions: &mut Vec<Action>) {
        let id = self.requests.name(slot);
        let Some(request) = self.requests.get_mut(slot) else { return self.invariants.broken() };
        request.asked_origin = true;
        request.hedge_at = Nanos::MAX;
        let name = request.id;
        let attempt = Attempt {
            id,
            target: Target::Origin,
            sent: Sent { at: now, until: Nanos::MAX, length_met: 0.0 },
            hedge: false,
        };
        self.origin_attempts += 1;
        self.counts.origin += 1;
        self.add(now, slot, attempt);
        actions.push(Action::Origin { request: name, attempt: id });
    }

    /// Sends a request to a node.
    pub(super) fn send(
        &mut self,
        now: Nanos,
        slot: Slot,
        to: Destination,
        actions: &mut Vec<Action>,
    ) {
        let Destination { place, node: at, avoid } = to;
        let id = self.requests.name(slot);
        let Some(request) = self.requests.get_mut(slot) else { return self.invariants.broken() };
        let node = &mut self.nodes[at];
        let read = request.operation == Operation::Read;
        let hedge = request.is_asking();
        request.tried |= 1 << place;
        request.last = Some(at);
        let more = read && !request.hedged && request.replicas.len() > 1;
        let hedges = more && self.settings.spread != Spread::Primary;
        request.hedge_at =
            if hedges { now.saturating_add(node.endpoint.hedge_after) } else { Nanos::MAX };
        // A write that is given up may still be made, so it has no time of its own: its client waits until its deadline.
        let sent = node.endpoint.send(now, if read { node.timeout } else { Nanos::MAX });
        let (name, deadline) = (request.id, request.deadline);
        self.add(now, slot, Attempt { id, target: Target::Node(at), sent, hedge });
        let epoch = self.view.epoch;
        actions.push(Action::Send { request: name, attempt: id, node: at, avoid, deadline, epoch });
    }

    fn add(&mut self, now: Nanos, slot: Slot, attempt: Attempt) {
        let Some(request) = self.requests.get_mut(slot) else { return self.invariants.broken() };
        request.phase = Phase::Asking;
        request.add(attempt);
        if request.started.is_none() {
            request.started = Some(now);
            self.recorder.start(now);
        }
        self.requests.arm(slot);
    }

    /// A read's node replied without the object.
    pub(super) fn read_declined(
        &mut self,
        now: Nanos,
        slot: Slot,
        target: Target,
        head: &Head,
        actions: &mut Vec<Action>,
    ) {
        let Some(request) = self.requests.get_mut(slot) else { return self.invariants.broken() };
        match head.status {
            Status::Busy => request.busy = true,
            // This gateway could not reach the origin either: nothing is left to try.
            Status::Unavailable if target == Target::Origin => request.unavailable = 2,
            Status::Unavailable => request.unavailable += 1,
            Status::Misdirected | Status::Final => {}
        }
        self.go_on(now, slot, actions);
    }

    /// An attempt of a read ended without a usable reply: tries the next node if no attempt is
    /// under way.
    pub(super) fn go_on(&mut self, now: Nanos, slot: Slot, actions: &mut Vec<Action>) {
        if self.requests.get(slot).is_some_and(|request| !request.is_asking()) {
            self.next_read(now, slot, actions);
        } else {
            self.requests.arm(slot);
        }
    }

    /// A read's timer fired: hedges it, or replaces a late attempt.
    pub(super) fn read_due(&mut self, now: Nanos, slot: Slot, actions: &mut Vec<Action>) {
        let Some(request) = self.requests.get(slot) else { return self.invariants.broken() };
        let late = request.attempts.iter().flatten().find(|a| a.sent.until <= now).copied();
        if let Some(late) = late {
            self.give_up(now, slot, late, actions);
        }
        let Some(request) = self.requests.get_mut(slot) else { return self.invariants.broken() };
        if request.hedge_at <= now {
            request.hedge_at = Nanos::MAX;
            if request.attempts[1].is_none() {
                self.hedge(now, slot, actions);
            }
        }
        self.requests.arm(slot);
    }

    /// Replaces a late attempt by one at another node. If there is no other, the attempt goes on.
    fn give_up(&mut self, now: Nanos, slot: Slot, late: Attempt, actions: &mut Vec<Action>) {
        let Some(request) = self.requests.get_mut(slot) else { return self.invariants.broken() };
        for attempt in request.attempts.iter_mut().flatten().filter(|a| a.id == late.id) {
            attempt.sent.until = Nanos::MAX;
        }
        let sibling = request.attempts[1].is_some();
        // A second attempt is under way already.
        if sibling {
            return;
        }
        // No other node is well: the attempts under way are all that can be had.
        let Some(to) = self.pick(now, slot, false) else { return };
        if !self.further.may_retry(true) {
            return;
        }
        self.further.count_retry();
        if self.requests.take(late.id).is_none() {
            self.invariants.broken();
        }
        actions.push(Action::Cancel { attempt: late.id });
        self.end(now, &late, Operation::Read, End::Dropped);
        self.send(now, slot, to, actions);
    }

    /// Tries a second node beside a slow one, within the budget.
    fn hedge(&mut self, now: Nanos, slot: Slot, actions: &mut Vec<Action>) {
        // No other node is well: the attempts under way are all that can be had.
        let Some(to) = self.pick(now, slot, false) else { return };
        if !self.further.may_hedge(true) {
            return;
        }
        match self.requests.get_mut(slot) {
            Some(request) => request.hedged = true,
            None => self.invariants.broken(),
        }
        self.further.count_hedge();
        self.send(now, slot, to, actions);
    }
}
