//! Writes and updates: their order by key, their servers, and what a failure leaves behind.

use std::collections::{HashMap, VecDeque};

use ground::window::Outcome;

use super::event::{Action, Answer, AttemptId, Command, Operation, Refusal, RequestId, ServerId};
use super::state::{Attempt, KeyQueue, Phase, Pools, Request, Role, Warmth, bit};
use crate::gateway::IntegerHash;
use crate::mutant::{self, Mutant};

impl Pools {
    /// Whether a read has to wait for an update of one of its keys. Puts it among those that wait;
    /// for the keys before, and for this one once its turn comes, it does not wait again: what comes
    /// later came after the read.
    pub(super) fn waits_for_update(&mut self, id: RequestId, request: &mut Request) -> bool {
        if self.keys.is_empty() || mutant::is(Mutant::PoolReadsDuringUpdate) {
            return false;
        }
        let keys = request.keys.as_slice();
        if keys.len() > 1 && mutant::is(Mutant::PoolMultiGetDoesNotWait) {
            return false;
        }
        for (place, key) in keys.iter().enumerate().skip(usize::from(request.passed)) {
            let Some(queue) = self.keys.get_mut(&key.id) else { continue };
            if queue.delays(request.came) {
                queue.insert(request.came, id);
                let held = key.id;
                request.phase = Phase::Locked;
                request.passed = place as u16 + 1;
                self.holds_back(request, held);
                return true;
            }
        }
        self.holds_back_no_more(request);
        false
    }

    /// Whether writes of a request's key have an order that the proxy keeps: they have several
    /// servers.
    pub(super) fn is_ordered(&self, request: &Request) -> bool {
        let settings = &self.pools[request.pool].settings;
        settings.routing.replicas(settings.servers.len()) > 1 || self.warm_pool(request).is_some()
    }

    /// Begins a write once no other of its key is under way.
    pub(super) fn lock_key(
        &mut self,
        id: RequestId,
        request: &mut Request,
        actions: &mut Vec<Action>,
    ) {
        let ordered = self.is_ordered(request) || self.held_back_at(request).is_some();
        if ordered && !self.takes_key(id, request) {
            return;
        }
        self.begin_in_order(id, request, actions);
    }

    /// Begins a write whose turn among those of its key has come, or has it wait for an earlier read
    /// of its client.
    pub(super) fn begin_in_order(
        &mut self,
        id: RequestId,
        request: &mut Request,
        actions: &mut Vec<Action>,
    ) {
        let Some(key) = request.keys.as_slice().first().copied() else { return };
        if self.waits_for_flush(id, request) {
            // Before it may wait for a read, which may wait for what waits for the flush. Reads of its key that come
            // later wait for it.
            return hold(&mut self.keys, key.id, true, request.came);
        }
        let ahead = self.held_back_at(request);
        if let Some(queue) = ahead.and_then(|key| self.keys.get_mut(&key)) {
            queue.insert(request.came, id);
            request.phase = Phase::Locked;
            // Reads of its key that come later wait for it.
            return hold(&mut self.keys, key.id, true, request.came);
        }
        if request.holds_key {
            let update = request.operation != Operation::Write;
            hold(&mut self.keys, key.id, update, request.came);
        }
        self.begin_write(id, request, actions);
    }

    /// Gives a request its key, or puts it among those that wait for it.
    pub(super) fn takes_key(&mut self, id: RequestId, request: &mut Request) -> bool {
        let Some(key) = request.keys.as_slice().first() else { return false };
        if let Some(queue) = self.keys.get_mut(&key.id) {
            if mutant::is(Mutant::PoolKeyShared) {
                return true;
            }
            queue.waiting.push_back((request.came, id));
            request.phase = Phase::Locked;
            return false;
        }
        let update = request.operation != Operation::Write;
        let queue = KeyQueue { update, came: request.came, waiting: VecDeque::new() };
        self.keys.insert(key.id, queue);
        request.holds_key = true;
        true
    }

    /// Begins the requests that wait for a key, up to and with its next write.
    pub(super) fn unlock_key(&mut self, key: u64, actions: &mut Vec<Action>) {
        loop {
            let Some(queue) = self.keys.get_mut(&key) else { return self.invariants.broken() };
            let Some((_, next)) = queue.waiting.pop_front() else {
                self.keys.remove(&key);
                return;
            };
            let Some(mut request) = self.requests.remove(&next) else { continue };
            if request.phase != Phase::Locked {
                self.settle(next, request, actions);
                continue;
            }
            if request.holds_key {
                // It has its own key, and waited here for a read of its client.
                self.begin_in_order(next, &mut request, actions);
                self.settle(next, request, actions);
                continue;
            }
            if request.operation.is_read() && request.warmth == Warmth::Cold {
                if !self.waits_for_update(next, &mut request) {
                    self.begin_read(next, &mut request, actions);
                }
                self.settle(next, request, actions);
                continue;
            }
            let update = request.operation != Operation::Write;
            hold(&mut self.keys, key, update, request.came);
            request.holds_key = true;
            if request.operation.is_read() {
                self.begin_warm(next, &mut request, actions);
            } else {
                self.begin_in_order(next, &mut request, actions);
            }
            // A write that was refused at once has passed the key on itself.
            self.settle(next, request, actions);
            return;
        }
    }

    pub(super) fn begin_write(
        &mut self,
        id: RequestId,
        request: &mut Request,
        actions: &mut Vec<Action>,
    ) {
        let Some(key) = request.keys.as_slice().first().copied() else { return };
        if request.operation.is_update() && request.warmth == Warmth::Cold && self.may_warm(request)
        {
            return self.begin_warm(id, request, actions);
        }
        let servers = self.targets(&key);
        let targets: &[ServerId] = match request.operation {
            // What a stale server has must not be copied to the others.
            Operation::Update | Operation::Invalidate => match servers.iter().position(|at| {
                !self.servers[*at].stale || mutant::is(Mutant::PoolUpdatesStaleServer)
            }) {
                Some(first) => &servers[first..=first],
                None => &[],
            },
            _ => &servers,
        };
        if targets.is_empty() {
            return self.refuse(id, request, Refusal::NoServer, actions);
        }
        let role = match request.operation {
            Operation::Update | Operation::Invalidate => Role::Update,
            _ => Role::Write,
        };
        for &server in targets {
            self.send(id, request, 0, server, role, Command::Original, actions);
        }
        if role == Role::Write {
            self.drop_former(id, request, actions);
            self.drop_moved(id, request, &servers, actions);
        }
    }

    pub(super) fn write_answered(
        &mut self,
        name: AttemptId,
        attempt: &Attempt,
        request: &mut Request,
        answer: Answer,
        actions: &mut Vec<Action>,
    ) {
        let id = attempt.request;
        match attempt.role {
            Role::Update => self.update_answered(name, attempt, request, answer, actions),
            Role::ReadBack => {
                let Some(key) = request.keys.as_slice().first().copied() else { return };
                let command = match answer {
                    Answer::Hit => Command::Copy { from: name },
                    _ => Command::Delete,
                };
                for server in self.targets(&key) {
                    if server != attempt.server {
                        self.send(id, request, 0, server, Role::Write, command, actions);
                    }
                }
                if request.live.is_empty() {
                    self.end_write(id, request, actions);
                }
            }
            _ => {
                if answer == Answer::Error {
                    // memcached drops the old value where it cannot store the new one.
                    request.failed |= bit(attempt.server);
                    request.error.get_or_insert(name);
                }
                if request.operation == Operation::Write && attempt.role == Role::Write {
                    self.prefer_reply(name, attempt, request, answer);
                }
                if request.live.is_empty() || mutant::is(Mutant::PoolFirstReplyEndsWrite) {
                    self.end_write(id, request, actions);
                }
            }
        }
    }

    /// Takes a server's reply to a write for the client's, unless that of another is better: one that took effect; among
    /// these, that of the server where updates run, whose compare-and-swap number is the one that counts.
    fn prefer_reply(
        &mut self,
        name: AttemptId,
        attempt: &Attempt,
        request: &mut Request,
        answer: Answer,
    ) {
        // Attempts of a write are sent, and so numbered, in the order of the ring.
        let first = !self.servers[attempt.server].stale || mutant::is(Mutant::PoolNumberOfAny);
        let better = match request.reply {
            None => true,
            Some((_, before)) if (before == Answer::Done) != (answer == Answer::Done) => {
                answer == Answer::Done
            }
            Some((before, _)) => first && name < before && !mutant::is(Mutant::PoolNumberOfAny),
        };
        if better {
            request.reply = Some((name, answer));
        }
    }

    /// The key's first server carried out an update, or did not: its value goes to the others.
    fn update_answered(
        &mut self,
        name: AttemptId,
        attempt: &Attempt,
        request: &mut Request,
        answer: Answer,
        actions: &mut Vec<Action>,
    ) {
        let id = attempt.request;
        request.reply = Some((name, answer));
        let targets = match request.keys.as_slice().first().copied() {
            Some(key) if answer == Answer::Done => self.targets(&key),
            _ => Vec::new(),
        };
        if answer == Answer::Done {
            self.drop_former(id, request, actions);
            self.drop_moved(id, request, &targets, actions);
        }
        let alone = targets.iter().all(|server| *server == attempt.server);
        if alone || mutant::is(Mutant::PoolUpdateNotCopied) {
            if request.live.is_empty() {
                self.end_write(id, request, actions);
            }
            return;
        }
        if !self.is_ordered(request) {
            // Its server ceased to be the key's meanwhile. A copy could come after a later write there.
            for server in targets.into_iter().filter(|server| *server != attempt.server) {
                self.send(id, request, 0, server, Role::Drop, Command::Delete, actions);
            }
            return;
        }
        if request.operation == Operation::Invalidate && !mutant::is(Mutant::PoolReadsBackStale) {
            // A read-back would take the right to replace the item from its first reader.
            for server in targets.into_iter().filter(|server| *server != attempt.server) {
                self.send(id, request, 0, server, Role::Write, Command::Delete, actions);
            }
            return;
        }
        let (role, command) = (Role::ReadBack, Command::ReadBack);
        self.send(id, request, 0, attempt.server, role, command, actions);
    }

    /// An attempt of a write failed, or took too long. What its server has is not known.
    pub(super) fn write_failed(
        &mut self,
        attempt: &Attempt,
        request: &mut Request,
        actions: &mut Vec<Action>,
    ) {
        // What was to be dropped there may still be there.
        if self.is_ordered(request) || attempt.role == Role::Drop {
            self.misses(attempt.server);
        }
        let id = attempt.request;
        if !self.may_answer(request) {
            self.refuse_failed(id, request, actions);
        }
    }

    fn end_write(&mut self, id: RequestId, request: &mut Request, actions: &mut Vec<Action>) {
        let found = match request.reply {
            Some((attempt, answer)) if request.failed == 0 => {
                let failed = answer == Answer::Error;
                Some((attempt, if failed { Outcome::Error } else { Outcome::Memory }))
            }
            // Some servers may have the value. What one of the others says, for instance that its memory is full, tells a client
            // more than that it failed.
            _ => request.error.map(|attempt| (attempt, Outcome::Error)),
        };
        let Some((attempt, outcome)) = found else {
            return self.refuse_failed(id, request, actions);
        };
        actions.push(Action::Use { request: id, part: 0, attempt });
        self.done(id, request, outcome, actions);
    }
}

/// Notes which write holds a key now, and whether reads wait for it.
fn hold(keys: &mut HashMap<u64, KeyQueue, IntegerHash>, key: u64, update: bool, came: u64) {
    if let Some(queue) = keys.get_mut(&key) {
        (queue.update, queue.came) = (update, came);
    }
}
