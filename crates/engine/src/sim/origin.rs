//! The store behind the nodes.

use ground::window::{Nanos, Outcome};
use rand::RngExt;

use super::happening::{
    ClientReply, Condition, Happening, Put, Reader, ReplyKind, key_number, parse_etag,
};
use super::place::right;
use super::settings::{ORIGIN, Process};
use super::state::Simulation;
use crate::node::{Checked, Failure, Fetched};
use crate::{Size, gateway, node};
use ground::Key;
use ground::origin::OriginId;

impl Simulation {
    /// A read takes effect; its reply is sent.
    pub(super) fn origin_read(&mut self, from: Reader, key: &Key, check: bool) {
        if self.origin.dead > 0 {
            return;
        }
        let number = key_number(key);
        let failures = self.settings.origin.failures;
        let fails = failures > 0.0 && self.random.faults.random_bool(failures);
        let fails = fails || self.origin.refuses > 0;
        let (fails, found) = match from {
            Reader::Fetch { node, .. } | Reader::Stream { node, .. } => {
                match self.origin_of(node) {
                    None => (true, None),
                    Some(origin) if origin == right() => (fails, self.origin.payload(number)),
                    Some(_) => {
                        let object = self.wrong_object(node, number);
                        let found = object.and_then(|(version, bytes)| Some((version, bytes?)));
                        let payload =
                            |(version, bytes)| self.origin.payload_of(number, version, bytes);
                        (fails, found.map(payload))
                    }
                }
            }
            Reader::Gateway { .. } => (fails, self.origin.payload(number)),
        };
        let failure = || Failure::unavailable("simulated");
        let (process, what) = match from {
            Reader::Fetch { node, life, job } => {
                let most = self.settings.nodes[node].object_bytes_max;
                let event = match (check, found) {
                    (false, _) if fails => {
                        node::Event::Fetched { job, result: Fetched::Unavailable(failure()) }
                    }
                    (true, _) if fails => {
                        node::Event::Checked { job, result: Checked::Unavailable(failure()) }
                    }
                    (true, found) => {
                        let version = found.map(|found| Checked::Version(found.etag));
                        let result = version.unwrap_or(Checked::Missing);
                        node::Event::Checked { job, result }
                    }
                    (false, found) => {
                        let result = match found {
                            Some(found) if found.bytes > most => Fetched::TooLarge,
                            Some(found) => Fetched::Found(found),
                            None => Fetched::NotFound,
                        };
                        node::Event::Fetched { job, result }
                    }
                };
                (node, Happening::Node { node, life, event })
            }
            Reader::Stream { node, life, request } => {
                let answer = answer_of(found.as_ref(), fails);
                (node, Happening::Streamed { node, life, request, answer })
            }
            Reader::Gateway { gateway, life, attempt } => {
                let answer = answer_of(found.as_ref(), fails);
                let status =
                    if fails { gateway::Status::Unavailable } else { gateway::Status::Final };
                let outcome = answer.outcome;
                let head = gateway::Head { status, outcome, node_length: 0, warm: 0 };
                let event = gateway::Event::Answered { attempt, head };
                let what = Happening::Gateway { gateway, life, event, answer: Some(answer) };
                (self.nodes.len() + gateway, what)
            }
        };
        self.send_from_origin(process, what);
    }

    /// The delay of a put, or of its reply.
    pub(super) fn late_put(&mut self) -> Nanos {
        let (share, law) = &self.settings.origin.late;
        let late = *share > 0.0 && self.random.faults.random_bool(*share);
        if late { law.draw(&mut self.random.faults) } else { 0 }
    }

    /// A writer asks the origin which version it holds, to name it in the put.
    pub(super) fn look_before_put(&mut self, put: Put, extra: Nanos) {
        let after = self.half_origin();
        if self.faulty && self.is_cut(put.node as Process, ORIGIN) {
            return self.look_lost(put);
        }
        self.schedule.push(self.now + after, Happening::OriginLook { put, extra });
    }

    /// A look or its reply was lost, so that no put was sent: the write has failed.
    fn look_lost(&mut self, put: Put) {
        let Put { node, life, request, .. } = put;
        let after = self.settings.origin.timeout / 4;
        let over = Happening::PutOver { node, life, request, done: false };
        self.schedule.push(self.now + after, over);
    }

    pub(super) fn origin_look(&mut self, mut put: Put, extra: Nanos) {
        let answers = self.origin.dead == 0 && self.origin.refuses == 0;
        if !answers || (self.faulty && self.is_cut(ORIGIN, put.node as Process)) {
            return self.look_lost(put);
        }
        let present = match self.origin_of_put(&put) {
            None => return self.look_lost(put),
            Some(origin) if origin == right() => {
                let Some(object) = self.origin.objects.get(put.key as usize) else { return };
                object.present()
            }
            Some(_) => {
                let object = self.wrong_object(put.node, put.key);
                object.and_then(|(version, bytes)| bytes.map(|_| version))
            }
        };
        put.condition = Condition::Is(present);
        let after = self.half_origin();
        self.schedule.push(self.now + after, Happening::Looked { put, extra });
    }

    /// A writer knows what the origin holds: sends the put, unless the writer is not the key's primary
    /// any more.
    pub(super) fn looked(&mut self, put: Put, extra: Nanos) {
        let now = self.local(put.node);
        let key = super::happening::key_name(put.key);
        if self.nodes[put.node].node.may_write(now, put.request, &key) {
            return self.send_put(put, extra);
        }
        self.put_fenced(put);
    }

    /// Sends a put to the origin. Its writer gets [`Happening::PutOver`] once, and not before it is
    /// certain that the put cannot land any more: until then the writer holds the key's turn.
    pub(super) fn send_put(&mut self, mut put: Put, extra: Nanos) {
        put.sent = true;
        let after = self.half_origin() + extra;
        if self.faulty && self.is_cut(put.node as Process, ORIGIN) {
            self.note(|| format!("lost on its way to the origin: {put:?}"));
            return self.put_lost(put);
        }
        self.schedule.push(self.now + after, Happening::OriginPut { put });
    }

    /// A put or its reply was lost: sends it again, or reports an unknown outcome to its writer.
    fn put_lost(&mut self, mut put: Put) {
        let Put { node, life, request, .. } = put;
        let after = self.settings.origin.timeout / 4;
        if put.retries == 0 {
            let over = Happening::PutOver { node, life, request, done: false };
            return self.schedule.push(self.now + after, over);
        }
        put.retries -= 1;
        let after = after + self.half_origin();
        self.schedule.push(self.now + after, Happening::OriginPut { put });
    }

    /// The condition of a put does not hold: its writer, if it lives, looks again.
    fn refuse_put(&mut self, mut put: Put) {
        let Put { node, life, request, .. } = put;
        self.note(|| format!("the origin refuses {put:?}"));
        let after = self.half_origin();
        if put.retries == 0 {
            let over = Happening::PutOver { node, life, request, done: false };
            return self.schedule.push(self.now + after, over);
        }
        if self.life(node) == life && self.processes[node].alive {
            put.retries -= 1;
            let after = after + self.half_origin();
            self.schedule.push(self.now + after, Happening::OriginLook { put, extra: 0 });
        }
    }

    /// The origin that a put reaches. One of a life that has ended was sent to the right one.
    fn origin_of_put(&mut self, put: &Put) -> Option<OriginId> {
        let lives = self.life(put.node) == put.life && self.processes[put.node].alive;
        if lives { self.origin_of(put.node) } else { Some(right()) }
    }

    /// A put takes effect, or fails; its reply is sent.
    pub(super) fn origin_put(&mut self, put: Put) {
        let Put { node, life, request, key, write, .. } = put;
        let ended = self.life(node) != life || !self.processes[node].alive;
        // A put to a folder ends with the process that made it, a request to a store need not.
        if ended && !self.settings.origin.orphans {
            return;
        }
        if self.origin.dead > 0 {
            return self.put_lost(put);
        }
        match self.origin_of_put(&put) {
            Some(origin) if origin == right() => {}
            // A folder that is not the right one is not written to; a wrong one that was taken is.
            reached => {
                if reached.is_some() {
                    self.write_wrong(node, key, (write.version, write.bytes));
                }
                let after = self.half_origin();
                let over = Happening::PutOver { node, life, request, done: reached.is_some() };
                return self.schedule.push(self.now + after, over);
            }
        }
        if self.origin.refuses > 0 {
            let after = self.half_origin();
            let over = Happening::PutOver { node, life, request, done: false };
            return self.schedule.push(self.now + after, over);
        }
        let failures = self.settings.origin.failures;
        let fails = failures > 0.0 && self.random.faults.random_bool(failures);
        let held = self.origin.objects.get(key as usize).and_then(|object| {
            let own = object.version == write.version;
            Some((own, object.present())).filter(|_| put.condition != Condition::None)
        });
        match held {
            // An earlier attempt has done it, or there is nothing to delete.
            Some((own, held)) if own || (held.is_none() && write.bytes.is_none()) => {}
            Some((_, held)) if put.condition != Condition::Is(held) => return self.refuse_put(put),
            _ => {}
        }
        if !fails || self.random.faults.random_bool(0.5) {
            let Some(object) = self.origin.objects.get_mut(key as usize) else { return };
            (object.version, object.bytes) = (write.version, write.bytes);
            if self.settings.check {
                self.checker.landed(key, write.version);
            }
            self.note(|| format!("the origin has key: {key}, {write:?}"));
        }
        let after = self.half_origin() + self.late_put();
        if self.faulty && self.is_cut(ORIGIN, node as Process) {
            return self.put_lost(put);
        }
        let over = Happening::PutOver { node, life, request, done: !fails };
        self.schedule.push(self.now + after, over);
    }
}

/// A client's reply for an object.
pub(super) fn answer_of(found: Option<&Size>, fails: bool) -> ClientReply {
    match found {
        _ if fails => ClientReply::FAILED,
        Some(found) => found_answer(found, Outcome::Origin),
        None => ClientReply { kind: ReplyKind::NotFound, outcome: Outcome::Miss, bytes: 0 },
    }
}

pub(super) fn found_answer(found: &Size, outcome: Outcome) -> ClientReply {
    let (key, version) = parse_etag(&found.etag).unwrap_or((u32::MAX, 0));
    ClientReply { kind: ReplyKind::Found { key, version }, outcome, bytes: found.bytes }
}

/// A client's reply to a write.
pub(super) fn write_answer(done: bool) -> ClientReply {
    let kind = ReplyKind::Written;
    if done {
        ClientReply { kind, outcome: Outcome::Origin, bytes: 0 }
    } else {
        ClientReply::FAILED
    }
}
