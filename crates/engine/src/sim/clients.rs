//! The clients: an open loop of requests, and their results.

use ground::window::{Finished, Nanos, Operation, SECOND, key_hash};
use rand::RngExt;

use super::check::{ReadResult, Version};
use super::happening::{Call, Caller, ClientReply, Happening, ReplyKind, RequestNumber, Written};
use super::settings::{CLIENTS, Process};
use super::state::{Request, Simulation};
use crate::node::Asker;

/// How much longer than its deadline a client waits for a reply that the deadline passed.
const GRACE: Nanos = SECOND / 100;

impl Simulation {
    pub(super) fn arrive(&mut self) {
        let clients = &self.settings.clients;
        let next = self.source.next(self.now, &mut self.random.load);
        if let Some(next) = next.filter(|next| *next < clients.until) {
            self.schedule.push(next, Happening::Arrival);
        }
        let random = &mut self.random.load;
        let key = match self.shifted {
            0 => self.popularity.draw(random),
            by => {
                let key = u64::from(self.popularity.draw(random)) + u64::from(by);
                (key % u64::from(clients.keys)) as u32
            }
        };
        let writes = clients.write_share > 0.0 && random.random_bool(clients.write_share);
        let bytes = writes.then(|| {
            let deletes = clients.delete_share > 0.0 && random.random_bool(clients.delete_share);
            (!deletes).then(|| random.random_range(clients.bytes.0..=clients.bytes.1))
        });
        let any = clients.any_node;
        let write = bytes.map(|bytes| Written { version: self.begin_write(key, bytes), bytes });
        self.recorder.arrive(self.now);
        self.recorder.start(self.now);
        self.counts.requests += 1;
        self.counts.writes += u64::from(writes);
        let request = Request { key, write, began: self.now, gateway: None };
        let number = self.requests.insert(request);
        if self.faulty {
            let leaves = self.now + self.settings.clients.deadline + GRACE;
            self.schedule.push(leaves, Happening::Leave { request: number });
        }
        let any = any > 0.0 && self.random.load.random_bool(any);
        if self.gateways.is_empty() || (any && write.is_none()) {
            return self.ask_node(number, key, write, any);
        }
        let gateway = match self.gateways.len() {
            1 => 0,
            gateways => self.random.load.random_range(0..gateways),
        };
        let what = Happening::Request { gateway, request: number };
        self.send(CLIENTS, self.gateway_end(gateway), what);
    }

    /// Assigns a client's write its number.
    fn begin_write(&mut self, key: u32, bytes: Option<u64>) -> Version {
        let version = self.origin.number(key);
        if self.settings.check {
            let begun = self.checker.begin(key, bytes, self.now);
            assert_eq!(begun, version, "clients and checker number writes alike");
        }
        version
    }

    /// Without gateways, sends a request to the key's first node or to any of its nodes.
    fn ask_node(&mut self, request: RequestNumber, key: u32, write: Option<Written>, any: bool) {
        let until = self.now + self.settings.clients.deadline;
        let key = self.keys[key as usize].clone();
        let ring = &self.settings.ring;
        let replicas = match write.is_some() {
            true => ring.replicas(&key),
            false => ring.with_hot(key_hash(&key), usize::MAX),
        };
        let any = any && replicas.len() > 1;
        let place = if any { self.random.load.random_range(0..replicas.len()) } else { 0 };
        let node = replicas.iter().nth(place).unwrap_or(0);
        let call = match write {
            Some(write) => Call::Write { key, write, life: self.life(node), epoch: None, until },
            None => {
                let wait = Some(self.settings.clients.deadline);
                Call::Get { key, asker: Asker::Client { avoid: None }, wait }
            }
        };
        let from = Caller::Client { request };
        self.send(CLIENTS, node as Process, Happening::Call { node, from, call });
    }

    /// A client has its reply, or stops waiting.
    pub(super) fn answer_client(&mut self, number: RequestNumber, answer: ClientReply) {
        let Some(request) = self.requests.remove(number) else { return };
        let response = self.now - request.began;
        let operation = match request.write {
            None => Operation::Get,
            Some(Written { bytes: Some(_), .. }) => Operation::Put,
            Some(Written { bytes: None, .. }) => Operation::Delete,
        };
        let finished = Finished {
            operation,
            outcome: answer.outcome,
            waiting: 0,
            service: response,
            response,
            bytes: answer.bytes,
        };
        self.recorder.finish(self.now, &finished);
        match answer.kind {
            ReplyKind::Busy => self.counts.refused += 1,
            ReplyKind::Failed => self.counts.failed += 1,
            ReplyKind::Written => self.counts.acknowledged += 1,
            ReplyKind::Found { .. } | ReplyKind::NotFound => {
                *self.counts.reads.entry(answer.outcome).or_insert(0) += 1;
            }
        }
        if self.settings.check {
            self.judge(&request, &answer);
        }
    }

    fn judge(&mut self, request: &Request, answer: &ClientReply) {
        let now = self.now;
        let (key, began) = (request.key, request.began);
        let judged = match answer.kind {
            ReplyKind::Written => {
                let version = request.write.map_or(0, |write| write.version);
                self.checker.acknowledged(key, version, now)
            }
            ReplyKind::Found { key: of, version } => {
                let seen = ReadResult::Version { key: of, version, bytes: answer.bytes };
                self.checker.read(key, began, now, seen)
            }
            ReplyKind::NotFound => self.checker.read(key, began, now, ReadResult::Nothing),
            ReplyKind::Busy | ReplyKind::Failed => {
                if let Some(write) = request.write {
                    self.checker.given_up(key, write.version, now);
                }
                Ok(())
            }
        };
        if let Err(violation) = judged {
            self.note(|| format!("VIOLATION: {violation}"));
            self.violations.push(violation);
        }
    }
}
