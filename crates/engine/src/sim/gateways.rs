//! The driver of a gateway.

use ground::window::Nanos;

use super::happening::{Call, Caller, ClientReply, Happening, Reader, RequestNumber};
use super::settings::{CLIENTS, Process};
use super::state::Simulation;
use crate::act::concurrency::Order;
use crate::gateway::{Action, Event, Operation};
use crate::node::Asker;

impl Simulation {
    /// A gateway as one end of a connection.
    pub(super) fn gateway_end(&self, gateway: usize) -> Process {
        (self.nodes.len() + gateway) as Process
    }

    pub(super) fn request_at_gateway(&mut self, at: usize, number: RequestNumber) {
        let Some(request) = self.requests.get_mut(number) else { return };
        request.gateway = Some(at);
        let key = self.keys[request.key as usize].clone();
        let operation = if request.write.is_some() { Operation::Write } else { Operation::Read };
        let left = (request.began + self.settings.clients.deadline).saturating_sub(self.now);
        let deadline = self.local(self.nodes.len() + at).saturating_add(left);
        self.tell_gateway(at, Event::Request { request: number, key, operation, deadline }, None);
    }

    pub(super) fn wake(&mut self, at: usize, when: Nanos) {
        if self.gateways[at].wake == when {
            self.gateways[at].wake = Nanos::MAX;
            self.tell_gateway(at, Event::Tick, None);
        }
    }

    /// Sends a gateway an event; `answer` is the reply that it may decide to relay.
    pub(super) fn tell_gateway(&mut self, at: usize, event: Event, answer: Option<ClientReply>) {
        let process = self.nodes.len() + at;
        let now = self.local(process);
        let mut actions = std::mem::take(&mut self.gateway_actions);
        self.gateways[at].gateway.handle(now, event, &mut actions);
        let mut over = None;
        for action in actions.drain(..) {
            if self.trace.is_some() {
                self.note(|| format!("    gateway {at}: {action:?}"));
            }
            if let Action::Relay { request, .. } = action {
                over = Some(request);
            }
            self.gateway_act(at, action, answer);
        }
        if let Some(request) = over {
            // Relaying a reply takes no time in the simulation.
            self.gateways[at].gateway.handle(now, Event::Over { request }, &mut actions);
            actions.clear();
        }
        if self.gateways[at].gateway.advice().is_some() {
            // Whoever approves changes approves at once.
            let event = Event::Concurrency(Order::Move);
            self.gateways[at].gateway.handle(now, event, &mut actions);
        }
        self.gateway_actions = actions;
        let process = &mut self.gateways[at];
        if let Some(next) = process.gateway.next_wake() {
            let clock = self.processes[self.nodes.len() + at].clock;
            let when = clock.when(next).max(self.now + 1);
            if when < process.wake {
                process.wake = when;
                let life = self.life(self.nodes.len() + at);
                self.schedule.push(when, Happening::Wake { gateway: at, life, at: when });
            }
        }
    }

    fn gateway_act(&mut self, at: usize, action: Action, answer: Option<ClientReply>) {
        let process = self.nodes.len() + at;
        let life = self.life(process);
        match action {
            Action::Send { request, attempt, node, avoid, deadline, epoch } => {
                let Some(asked) = self.requests.get_mut(request) else { return };
                let key = self.keys[asked.key as usize].clone();
                let until = asked.began + self.settings.clients.deadline;
                let wait = Some(deadline.saturating_sub(self.local(process)));
                let to_life = self.life(node);
                let asked = self.requests.get_mut(request);
                let call = match asked.and_then(|asked| asked.write) {
                    Some(write) => {
                        let epoch = Some(epoch);
                        Call::Write { key, write, life: to_life, epoch, until }
                    }
                    None => Call::Get { key, asker: Asker::Client { avoid }, wait },
                };
                let from = Caller::Gateway { gateway: at, life, attempt };
                self.send(
                    process as Process,
                    node as Process,
                    Happening::Call { node, from, call },
                );
            }
            Action::Origin { request, attempt } => {
                let Some(asked) = self.requests.get_mut(request) else { return };
                let key = self.keys[asked.key as usize].clone();
                let from = Reader::Gateway { gateway: at, life, attempt };
                self.send_to_origin(process, Happening::OriginRead { from, key, check: false });
            }
            Action::Relay { request, .. } => {
                let answer = answer.unwrap_or(ClientReply::FAILED);
                self.send(process as Process, CLIENTS, Happening::ClientReply { request, answer });
            }
            Action::Cancel { .. } => {}
            Action::Refuse { request, why } => {
                let busy = matches!(why, crate::gateway::Refusal::Busy);
                let answer = if busy { ClientReply::BUSY } else { ClientReply::FAILED };
                self.send(process as Process, CLIENTS, Happening::ClientReply { request, answer });
            }
            Action::Ping { node } => {
                let from = Caller::Ping { gateway: at, life };
                let hot_version = self.gateways[at].gateway.hot_version(node);
                let what = Happening::Call { node, from, call: Call::Ping { hot_version } };
                self.send(process as Process, node as Process, what);
            }
        }
    }
}
