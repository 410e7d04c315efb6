//! How messages travel between processes.

use ground::window::Nanos;
use rand::RngExt;

use super::happening::{Call, Caller, ClientReply, Happening};
use super::settings::{CLIENTS, Process};
use super::{Breakage, Simulation};
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
        self.pass_origin(process as Process, super::ORIGIN, what);
    }

    /// Sends the origin's reply to a process, unless the process is cut off from the origin.
    pub(super) fn send_from_origin(&mut self, process: usize, what: Happening) {
        self.pass_origin(super::ORIGIN, process as Process, what);
    }

    fn pass_origin(&mut self, from: Process, to: Process, what: Happening) {
        let after = self.half_origin();
        if self.faulty && self.is_cut(from, to) {
            self.note(|| format!("lost from {from} to {to}: {what:?}"));
            return;
        }
        self.schedule.push(self.now + after, what);
    }
}

pub(super) fn ask_failed<P>(job: node::JobId) -> node::Event<P> {
    let failure = Failure::unavailable("simulated");
    node::Event::Answered { job, result: PeerReply::Failed(failure) }
}
