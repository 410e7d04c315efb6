//! How messages travel between processes.

use ground::window::Nanos;
use rand::RngExt;

use super::happening::{Call, Caller, ClientReply, Happening, LeaseRequests};
use super::settings::{Breakage, CLIENTS, ORIGIN, Process};
use super::state::Simulation;
use crate::gateway::Failed;
use crate::node::{Failure, PeerReply};
use crate::{gateway, node};

impl Simulation {
    /// Sends a message from one end to another. It may be lost, late, or arrive twice.
    pub(super) fn send(&mut self, from: Process, to: Process, what: Happening) {
        let network = &self.settings.network;
        let random = &mut self.random.network;
        let delay = network.delay.draw(random);
        if !self.faulty {
            self.schedule.push(self.now + delay, what);
            return;
        }
        let lost = network.loss > 0.0 && random.random_bool(network.loss);
        let late = network.late.0 > 0.0 && random.random_bool(network.late.0);
        let delay = if late { delay + network.late.1.draw(random) } else { delay };
        let twice = network.duplicates > 0.0 && random.random_bool(network.duplicates);
        let second = self.now + 2 * delay + network.delay.draw(random);
        if self.is_cut(from, to) || lost {
            self.note(|| format!("lost from {from} to {to}: {what:?}"));
            return;
        }
        let again = self.settings.breakage == Some(Breakage::WriteSentTwice)
            && matches!(what, Happening::Call { call: Call::Write { .. }, .. });
        if again || (twice && what.may_repeat()) {
            self.schedule.push(second, what.clone());
        }
        self.schedule.push(self.now + delay, what);
    }

    /// Sends a call to a node. If no reply comes, the caller gets `failed`.
    pub(super) fn call(
        &mut self,
        from: usize,
        to: usize,
        what: Happening,
        failed: Option<Happening>,
    ) {
        self.send(from as Process, to as Process, what);
        if let (true, Some(failed)) = (self.faulty, failed) {
            self.schedule.push(self.now + self.settings.network.timeout, failed);
        }
    }

    /// A message arrived at a process that is not running: its sender is notified.
    pub(super) fn refuse_connection(&mut self, what: Happening) {
        self.note(|| format!("refused: {what:?}"));
        match what {
            Happening::Call { node, from, .. } => self.fail_call(node, from, Failed::Connect),
            Happening::Request { gateway, request } => {
                let from = (self.nodes.len() + gateway) as Process;
                let answer = Happening::ClientReply { request, answer: ClientReply::FAILED };
                self.send(from, CLIENTS, answer);
            }
            _ => {}
        }
    }

    /// Notifies a caller that its call failed.
    pub(super) fn fail_call(&mut self, node: usize, from: Caller, why: Failed) {
        let nodes = self.nodes.len();
        let to_node = |node, life, event| Happening::Node { node, life, event };
        let (to, what) = match from {
            Caller::Client { request } => {
                (CLIENTS, Happening::ClientReply { request, answer: ClientReply::FAILED })
            }
            Caller::Gateway { gateway, life, attempt } => {
                let event = gateway::Event::Failed { attempt, why };
                let what = Happening::Gateway { gateway, life, event, answer: None };
                ((nodes + gateway) as Process, what)
            }
            Caller::Ping { gateway, life } => {
                let event = gateway::Event::PingFailed { node };
                let what = Happening::Gateway { gateway, life, event, answer: None };
                ((nodes + gateway) as Process, what)
            }
            Caller::Peer { node: asker, life, job } => {
                (asker as Process, to_node(asker, life, ask_failed(job)))
            }
            Caller::Invalidation { node: writer, life, request } => {
                let event = node::Event::Invalidated { request, peer: node, done: false };
                (writer as Process, to_node(writer, life, event))
            }
            Caller::TakeBack { node: granter, life } => {
                let event = node::Event::Returned { peer: node, done: false };
                (granter as Process, to_node(granter, life, event))
            }
            Caller::Lease { .. } | Caller::Offer => return,
        };
        self.send(node as Process, to, what);
    }

    /// Whether messages between two ends are blocked now.
    pub(super) fn is_cut(&self, from: Process, to: Process) -> bool {
        let between = |one: Process, from: &[Process], a: Process, b: Process| {
            one == a && (from.is_empty() || from.contains(&b))
        };
        self.cuts.iter().any(|cut| {
            between(cut.process, &cut.from, from, to)
                || (!cut.one_way && between(cut.process, &cut.from, to, from))
        })
    }

    /// The travel time of a message to or from the origin.
    pub(super) fn half_origin(&mut self) -> Nanos {
        let half = self.settings.origin.half.draw(&mut self.random.network);
        (half as f64 * self.origin.factor) as Nanos
    }

    /// Sends a read to the origin, unless the process is cut off from the origin.
    pub(super) fn send_to_origin(&mut self, process: usize, what: Happening) {
        self.pass_origin(process as Process, ORIGIN, what);
    }

    /// Sends the origin's reply to a process, unless the process is cut off from the origin.
    pub(super) fn send_from_origin(&mut self, process: usize, what: Happening) {
        self.pass_origin(ORIGIN, process as Process, what);
    }

    fn pass_origin(&mut self, from: Process, to: Process, what: Happening) {
        let after = self.half_origin();
        if self.faulty && self.is_cut(from, to) {
            self.note(|| format!("lost from {from} to {to}: {what:?}"));
            return;
        }
        self.schedule.push(self.now + after, what);
    }

    /// Whether all messages of one time to one end arrive together: none is lost, late, doubled or of a random time. A trace
    /// shows each.
    pub(super) fn batches_leases(&self) -> bool {
        let network = &self.settings.network;
        let at_random = network.loss > 0.0 || network.late.0 > 0.0 || network.duplicates > 0.0;
        !at_random && network.delay.constant_ns().is_some() && self.trace.is_none()
    }

    /// Collects a node's request for a lease.
    pub(super) fn batch_lease_request(
        &mut self,
        node: usize,
        peer: usize,
        asked: Nanos,
        epoch: u64,
    ) {
        let (from, to) = (node as Process, peer as Process);
        if self.faulty && self.is_cut(from, to) {
            return;
        }
        let life = self.life(node);
        let new = || LeaseRequests { node, life, asked, epoch, peers: Vec::new() };
        self.batch.requests.get_or_insert_with(new).peers.push(to);
    }

    /// Sends the requests that were collected.
    pub(super) fn send_lease_requests(&mut self) {
        let Some(leases) = self.batch.requests.take() else { return };
        self.send_lease_batch(Happening::LeasesAsked { leases });
    }

    fn send_lease_batch(&mut self, what: Happening) {
        let delay = self.settings.network.delay.constant_ns().unwrap_or(0);
        self.schedule.push(self.now + delay, what);
    }

    /// Requests for leases arrive at peers: each is handled as if it had come alone.
    pub(super) fn leases_asked(&mut self, mut leases: LeaseRequests) {
        let LeaseRequests { node, life, asked, epoch, .. } = leases;
        self.batch.grants = Some(Vec::with_capacity(leases.peers.len()));
        for peer in std::mem::take(&mut leases.peers) {
            let from = Caller::Lease { node, life, asked, epoch };
            self.happen(Happening::Call { node: usize::from(peer), from, call: Call::Lease });
        }
        let grants = self.batch.grants.take().unwrap_or_default();
        if !grants.is_empty() {
            self.send_lease_batch(Happening::LeasesGranted { leases, grants });
        }
    }

    /// Collects a grant of a request that came with others. `false`: it is to be sent alone.
    pub(super) fn batch_grant(&mut self, at: usize, peer: usize, term: Nanos) -> bool {
        let lost = self.faulty && self.is_cut(at as Process, peer as Process);
        let Some(grants) = &mut self.batch.grants else { return false };
        if !lost {
            grants.push((at as Process, term));
        }
        true
    }

    /// The grants of requests that were sent together arrive.
    pub(super) fn leases_granted(&mut self, leases: &LeaseRequests, grants: &[(Process, Nanos)]) {
        let LeaseRequests { node, life, asked, .. } = *leases;
        for &(peer, term) in grants {
            let event = node::Event::LeaseGranted { peer: usize::from(peer), asked, term };
            self.happen(Happening::Node { node, life, event });
        }
    }
}

pub(super) fn ask_failed<P>(job: node::JobId) -> node::Event<P> {
    let failure = Failure::unavailable("simulated");
    node::Event::Answered { job, result: PeerReply::Failed(failure) }
}
