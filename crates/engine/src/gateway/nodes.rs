//! A gateway's view of each node: health, load, pings and the results of attempts.

use std::sync::Arc;

use ground::window::Nanos;

use super::Gateway;
use super::event::{Action, Operation};
use super::node::Node;
use super::requests::{Attempt, Phase, Target};
use super::settings::Spread;
use super::status::NodeStatus;
use crate::attempts::End;
use crate::mutant::{self, Mutant};
use crate::node::{HOT_KEYS_MAX, HotDirectory};
use crate::route::{LoadReport, NodeId, Outage, Replicas, View};

impl Gateway {
    /// The state of a node, for operators.
    pub(super) fn node_status(&self, now: Nanos, at: usize) -> NodeStatus {
        let node = &self.nodes[at];
        let (reported_length, age) = node.endpoint.load.reported(now);
        let ms = |nanos: Nanos| nanos as f64 * 1e-6;
        let prior_s = self.balancer.prior_s().unwrap_or(0.0);
        NodeStatus {
            name: self.settings.ring.name(at).to_owned(),
            state: node.health.state(now, &self.settings.health),
            failure: None,
            live: self.view.is_live(at),
            share: node.health.share(now, &self.settings.health),
            relapses: node.health.relapses(),
            outstanding: node.endpoint.load.outstanding(),
            reported_length,
            reported_age_ms: ms(age),
            expected_response_ms: node.endpoint.load.expected_s(now, prior_s) * 1e3,
            hedge_after_ms: (node.endpoint.hedge_after < Nanos::MAX)
                .then(|| ms(node.endpoint.hedge_after)),
            timeout_ms: ms(node.timeout),
        }
    }

    /// Records the end of an attempt, and the time of a read. That of a write is the origin's.
    pub(super) fn end(&mut self, now: Nanos, attempt: &Attempt, operation: Operation, end: End) {
        let Target::Node(at) = attempt.target else {
            self.origin_attempts = self.origin_attempts.saturating_sub(1);
            return;
        };
        let Some(node) = self.nodes.get_mut(at) else { return self.invariants.broken() };
        let service = node.endpoint.end(now, &attempt.sent, operation.recorded(), end, 0);
        if let Some(service) = service
            && operation == Operation::Read
        {
            let hedge = self.settings.hedge.as_ref();
            if node.endpoint.learn(now, &attempt.sent, service, hedge) {
                node.update_timeout(&self.settings);
            }
            self.balancer.learn(&attempt.sent, service);
        }
    }

    /// Sends the pings that are due, and counts a ping as failed that the driver did not report in
    /// time.
    pub(super) fn run_nodes(&mut self, now: Nanos, actions: &mut Vec<Action>) {
        if now < self.nodes_due {
            return;
        }
        for at in 0..self.nodes.len() {
            if self.nodes[at].pinged.is_some() && now >= self.nodes[at].due(&self.settings) {
                self.ping_failed(now, at, actions);
            }
            let node = &mut self.nodes[at];
            if node.pinged.is_none() && now >= node.ping_at {
                if !self.settings.ring.has_keys(at) && !self.view.is_live(at) {
                    // It has left: looks again in a while whether it is back.
                    node.ping_at = now.saturating_add(self.settings.ping_interval.max(1));
                    continue;
                }
                node.pinged = Some(now);
                node.ping_at = now.saturating_add(self.settings.ping_interval.max(1));
                actions.push(Action::Ping { node: at });
            }
        }
        self.nodes_due = self.first_due();
    }

    /// If this gateway itself stood still (its process was stopped, its machine asleep), the
    /// timeouts of pings under way start again: otherwise all nodes would be suspected at once.
    pub(super) fn excuse(&mut self, now: Nanos) {
        if now.saturating_sub(self.nodes_due) < self.settings.ping_interval {
            return;
        }
        for node in &mut self.nodes {
            node.pinged = node.pinged.map(|_| now);
        }
        self.nodes_due = self.first_due();
    }

    fn first_due(&self) -> Nanos {
        self.nodes.iter().map(|node| node.due(&self.settings)).min().unwrap_or(Nanos::MAX)
    }

    /// A ping of a node ended, which was due at `before`: keeps the first due time of all. Looks at this node alone where its own
    /// time comes sooner, as it does while pings are sent more often than they time out: each of a thousand nodes answers ten
    /// times a second.
    fn ping_ended(&mut self, at: NodeId, before: Nanos) {
        let due = self.nodes[at].due(&self.settings);
        self.nodes_due = match due <= before {
            true => self.nodes_due.min(due),
            false => self.first_due(),
        };
    }

    pub(super) fn ponged(
        &mut self,
        now: Nanos,
        at: NodeId,
        load: LoadReport,
        fits: bool,
        actions: &mut Vec<Action>,
    ) {
        let Some(node) = self.nodes.get_mut(at) else { return self.invariants.broken() };
        let before = node.due(&self.settings);
        // A late or repeated reply says nothing about the present.
        let Some(sent) = node.pinged.take() else { return };
        node.endpoint.load.pong(now, load, now.saturating_sub(sent));
        node.health.answer(now, fits);
        self.ping_ended(at, before);
        if !fits {
            self.leave_node(now, at, actions);
        }
    }

    pub(super) fn ping_failed(&mut self, now: Nanos, at: NodeId, actions: &mut Vec<Action>) {
        let Some(node) = self.nodes.get_mut(at) else { return self.invariants.broken() };
        let before = node.due(&self.settings);
        // The ping's failure was already reported, or assumed after twice the timeout: ignores a
        // late report.
        let Some(sent) = node.pinged.take() else { return };
        node.fail(now, sent, &self.settings);
        self.ping_ended(at, before);
        self.leave_node(now, at, actions);
    }

    /// Whether each node answers, and how often it stopped; `None` for one that is not a member any more.
    pub fn outages(&self) -> impl Iterator<Item = Option<Outage>> {
        self.nodes.iter().enumerate().map(|(at, node)| {
            let is_member = self.settings.ring.has_keys(at) || self.view.is_live(at);
            let outage = Outage { is_up: node.health.answers(), failures: node.failures };
            is_member.then_some(outage)
        })
    }

    /// The version of a node's directory of hot keys that this gateway has; 0 for none. Drivers tell it
    /// with each ping, and the node sends its directory if that has another version.
    pub fn hot_version(&self, node: NodeId) -> u64 {
        self.nodes.get(node).map_or(0, |node| node.hot_version)
    }

    /// A node told its directory of hot keys. It is taken as it is, whatever came before: messages of an
    /// earlier version that are late cost benefit until the next ping, and nothing else.
    pub(super) fn hot_keys(&mut self, node: NodeId, directory: &HotDirectory) {
        let Some(node) = self.nodes.get_mut(node) else { return self.invariants.broken() };
        node.hot_version = directory.version;
        node.hot = directory.keys.iter().take(HOT_KEYS_MAX).copied().collect();
    }

    /// Keys for which directories name hot nodes.
    pub(super) fn hot_keys_known(&self) -> usize {
        self.nodes.iter().map(|node| node.hot.len()).sum()
    }

    /// The nodes that a read of a key may go to: the key's nodes, behind them as many of its hot nodes
    /// as its primary names, and those that hold further copies.
    pub(super) fn readers(&self, hash: u64) -> Replicas {
        let mut replicas = self.readers_of_ring(hash);
        if self.settings.spread == Spread::Primary {
            return replicas;
        }
        for &node in self.extras.get(&hash).into_iter().flatten() {
            // Members are numbered for good; a directory may name one that this gateway has not met.
            if node < self.nodes.len() {
                replicas.add(node);
            }
        }
        replicas
    }

    fn readers_of_ring(&self, hash: u64) -> Replicas {
        let ring = &self.settings.ring;
        let replicas = ring.replicas_of_hash(hash);
        if ring.hot_count() == 0 || self.settings.spread == Spread::Primary {
            return replicas;
        }
        let primary = self.view.primary(&replicas).and_then(|node| self.nodes.get(node));
        match primary.and_then(|node| node.hot.get(&hash)) {
            Some(&count) => ring.with_hot(hash, usize::from(count)),
            None => replicas,
        }
    }

    /// An attempt failed: the node is suspected, and pinged at once.
    pub(super) fn suspect(&mut self, now: Nanos, attempt: &Attempt) {
        // The origin has no health: its failures end the request.
        let Target::Node(at) = attempt.target else { return };
        let Some(node) = self.nodes.get_mut(at) else { return self.invariants.broken() };
        node.fail(now, attempt.sent.at, &self.settings);
        if node.pinged.is_none() && !node.health.answers() {
            node.ping_at = node.ping_at.min(now);
            self.nodes_due = self.nodes_due.min(now);
        }
    }

    /// Sends all reads that are at a node to other nodes.
    fn leave_node(&mut self, now: Nanos, at: NodeId, actions: &mut Vec<Action>) {
        if self.nodes[at].endpoint.load.outstanding() == 0 {
            return;
        }
        let there = |a: &Attempt| a.target == Target::Node(at);
        let slots = self.requests.which(|request| {
            request.operation == Operation::Read && request.attempts.iter().flatten().any(there)
        });
        for slot in slots {
            // A request's end touches no other request, so all that were found are still there.
            let request = self.requests.get(slot);
            let found = request.and_then(|r| r.attempts.iter().flatten().find(|a| there(a)));
            let taken = found.map(|a| a.id).and_then(|id| self.requests.take(id));
            let Some((_, attempt)) = taken else {
                self.invariants.broken();
                continue;
            };
            let id = attempt.id;
            actions.push(Action::Cancel { attempt: id });
            self.end(now, &attempt, Operation::Read, End::Failed);
            self.go_on(now, slot, actions);
        }
    }

    /// Writes that are at nodes that a view lost end soon. When nobody acts on the earlier view any more,
    /// such a write has landed, or can be made neither by its node (which began to order its keys anew if
    /// it is back, and refuses it) nor in place of a later one. Its client is told then that its result is
    /// not known. Sooner it could be overtaken: its node may still make it after a write that comes there
    /// through another gateway.
    /// A node that handed over answers all that it was sent.
    fn leave_lost(&mut self, now: Nanos, before: &View) {
        let lag = if mutant::is(Mutant::GivenUpAtOnce) { 0 } else { self.settings.view_lag };
        let view = &self.view;
        let lost = |a: &Attempt| {
            matches!(a.target, Target::Node(at)
            if before.is_live(at) && !view.is_live(at) && !view.has_handed_over(at))
        };
        let slots = self.requests.which(|request| {
            request.operation == Operation::Write && request.attempts.iter().flatten().any(lost)
        });
        for slot in slots {
            let Some(request) = self.requests.get_mut(slot) else {
                self.invariants.broken();
                continue;
            };
            let until = now.saturating_add(lag);
            request
                .attempts
                .iter_mut()
                .flatten()
                .for_each(|a| a.sent.until = a.sent.until.min(until));
            self.requests.arm(slot);
        }
    }

    /// Takes a new view of the membership, and retries the writes that wait for one.
    pub(super) fn viewed(&mut self, now: Nanos, view: View, actions: &mut Vec<Action>) {
        if view.epoch < self.view.epoch {
            return;
        }
        let ring = view.ring.clone().filter(|ring| !Arc::ptr_eq(ring, &self.settings.ring));
        let changed = view.live != self.view.live || ring.is_some();
        let before = std::mem::replace(&mut self.view, view);
        if let Some(ring) = ring {
            // Members keep their numbers, so none vanishes.
            if ring.members().len() < self.nodes.len() {
                return self.invariants.broken();
            }
            let new = ring.members().iter().skip(self.nodes.len());
            let new: Vec<Node> = new.map(|m| Node::new(&m.name, &self.settings, now)).collect();
            self.nodes.extend(new);
            self.nodes_due = now;
            self.hints.clear();
            self.settings.ring = ring;
        }
        if changed {
            self.leave_lost(now, &before);
            let parked = |phase: Phase| matches!(phase, Phase::Parked { .. });
            for slot in self.requests.which(|request| parked(request.phase)) {
                if let Some(request) = self.requests.get_mut(slot) {
                    request.replicas = self.settings.ring.replicas_of_hash(request.hash);
                }
                self.retry_write(now, slot, actions);
            }
        }
    }
}
