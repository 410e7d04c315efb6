//! What the engine is told, and what it decides.

use super::*;
use crate::shared::Mail;

impl Thread {
    /// Tells the engine of an event, and carries out what follows from it.
    pub(super) fn tell(&mut self, event: Event, arrived: Option<Arrived<'_>>) {
        let mut actions = std::mem::take(&mut self.actions);
        self.shared.pools().handle(self.now, event, &mut actions);
        for i in 0..actions.len() {
            let action = std::mem::replace(&mut actions[i], Action::Ping { server: usize::MAX });
            let request = match &action {
                Action::Send { request, .. }
                | Action::Broadcast { request, .. }
                | Action::Use { request, .. }
                | Action::Done { request }
                | Action::Cancel { request, .. }
                | Action::Forget { request }
                | Action::Refuse { request, .. } => thread_of(*request),
                Action::Ping { .. } | Action::Flush { .. } => 0,
            };
            if request == self.index {
                let last = match (&action, actions.get(i + 1)) {
                    (Action::Use { request, .. }, Some(Action::Done { request: done })) => {
                        request == done
                    }
                    _ => false,
                };
                self.act(action, arrived, last);
            } else {
                self.shared.mail_action(request, action);
            }
        }
        actions.clear();
        self.actions = actions;
    }

    /// Carries out what events of other threads decided for this one.
    pub(super) fn inbox(&mut self) {
        let Mail { actions, streams, resolved, close_left } = self.shared.mail(self.index);
        for server in resolved {
            self.connect(server);
        }
        if close_left {
            self.close_left();
        }
        if self.shared.is_to_evict(self.index) {
            self.close_idle();
        }
        for stream in streams {
            self.add_client(stream);
        }
        for action in actions {
            self.act(action, None, false);
        }
    }

    /// Carries out an action. `last`: the next action is [`Action::Done`].
    pub(super) fn act(&mut self, action: Action, arrived: Option<Arrived<'_>>, last: bool) {
        match action {
            Action::Send { request, attempt, server, part: _, keys, command } => {
                let fresh = arrived.filter(|arrived| arrived.attempt == 0);
                let fresh = fresh.map_or(&[][..], |arrived| arrived.bytes);
                self.send(request, attempt, server, &keys, command, fresh);
            }
            Action::Broadcast { request, awaited } => self.broadcast(request, awaited),
            Action::Use { request, part: _, attempt } => {
                let Some(at) = self.requests.place(self.index, request) else { return };
                self.used = attempt;
                match arrived.filter(|arrived| arrived.attempt == attempt) {
                    Some(Arrived { bytes, hits, read_back, .. }) => {
                        self.requests.request_mut(at).hits += hits;
                        self.use_reply(at, bytes, read_back, last);
                    }
                    None => {
                        let kept = self.requests.request_mut(at).kept_reply(attempt).cloned();
                        let Some(kept) = kept else { return };
                        self.requests.request_mut(at).hits += kept.hits;
                        self.use_reply(at, &kept.bytes, kept.read_back, last);
                    }
                }
            }
            Action::Done { request } => {
                let Some(at) = self.requests.place(self.index, request) else { return };
                self.finish(at, b"");
            }
            Action::Cancel { attempt, .. } => {
                self.cancelled.insert(attempt);
            }
            Action::Forget { request } => {
                let Some(at) = self.requests.place(self.index, request) else { return };
                self.requests.request_mut(at).in_engine = false;
                self.requests.release(at);
            }
            Action::Refuse { request, why } => {
                let Some(at) = self.requests.place(self.index, request) else { return };
                let under_way = self.requests.request_mut(at);
                if under_way.state != State::Open {
                    return;
                }
                under_way.outcome = Outcome::Error;
                under_way.reply.clear();
                let text = self.shared.refusal(why);
                self.finish(at, text.as_bytes());
            }
            Action::Ping { server } => {
                let connection = self.shared.addresses.len() + server;
                let Some(target) = self.servers.get_mut(connection) else { return };
                target.out.end().extend_from_slice(b"version\r\n");
                self.queue(connection, Purpose::Ping, 0, Expect::Line);
            }
            Action::Flush { server } => {
                let connection = self.shared.addresses.len() + server;
                let Some(target) = self.servers.get_mut(connection) else { return };
                info!("emptying {}, which may have missed writes", self.shared.names[server]);
                target.out.end().extend_from_slice(b"flush_all\r\n");
                self.queue(connection, Purpose::Flush, 0, Expect::Line);
            }
        }
    }

    /// Uses a reply for a part. That of a read-back is converted to the form that the client asked
    /// for.
    pub(super) fn use_reply(&mut self, at: u32, bytes: &[u8], read_back: bool, last: bool) {
        if read_back {
            let mut converted = Vec::new();
            reply::convert(self.requests.request_mut(at), bytes, &mut converted);
            self.use_part(at, &converted, last);
        } else {
            self.use_part(at, bytes, last);
        }
    }

    pub(super) fn use_part(&mut self, at: u32, bytes: &[u8], last: bool) {
        let under_way = self.requests.request_mut(at);
        if under_way.state != State::Open {
            return;
        }
        under_way.outcome = reply::outcome(under_way.outcome, bytes, under_way.parts);
        under_way.served = self.now;
        if !last || under_way.failed {
            return reply::add(under_way, bytes);
        }
        // The last part is not copied.
        if reply::is_whole(under_way, bytes) {
            under_way.reply.clear();
        }
        reply::open(under_way);
        self.finish(at, bytes);
    }

    /// Gives a request its reply (what is known of it, and `rest`), which is sent once those before
    /// it are.
    pub(super) fn finish(&mut self, at: u32, rest: &[u8]) {
        let under_way = self.requests.request_mut(at);
        if under_way.state != State::Open {
            return;
        }
        let (verb, quiet, noreply) = (under_way.verb, under_way.quiet, under_way.noreply);
        let start = if under_way.reply.is_empty() { rest } else { &under_way.reply };
        let mut rest = rest;
        if memcached::is_suppressed(verb, quiet, noreply, start) {
            under_way.reply.clear();
            rest = &[];
        }
        let bytes = under_way.reply.len() + rest.len();
        let (place, generation) = under_way.client;
        let gather = under_way.gather.take();
        if under_way.received > 0 {
            self.shared.lane(self.index).finish(self.now, under_way, bytes);
            self.shared.counters(self.index).finish(under_way, bytes);
        }
        if let Some((whole, part)) = gather {
            let mut reply = std::mem::take(&mut under_way.reply);
            reply.extend_from_slice(rest);
            under_way.state = State::Delivered;
            self.requests.release(at);
            return self.gathered(whole, part, reply);
        }
        let client = self.clients.get_mut(place as usize).and_then(Option::as_mut);
        let Some(client) = client.filter(|client| client.generation == generation) else {
            under_way.state = State::Delivered;
            return self.requests.release(at);
        };
        client.replied(bytes);
        if client.queue.front() != Some(&at) {
            match reply::in_order(under_way, rest).map(|pieces| pieces.concat()) {
                Some(reply) => under_way.reply = reply,
                None => under_way.reply.extend_from_slice(rest),
            }
            under_way.state = State::Replied;
            return;
        }
        if client.out.is_empty() {
            client.moved = self.now;
        }
        client.queue.pop_front();
        match reply::in_order(under_way, rest) {
            Some(pieces) => client.send(&pieces),
            None => client.send(&[&under_way.reply, rest]),
        }
        under_way.state = State::Delivered;
        self.requests.release(at);
        while let Some(&next) = client.queue.front() {
            let under_way = self.requests.request_mut(next);
            if under_way.state != State::Replied {
                break;
            }
            client.out.end().append(&mut under_way.reply);
            under_way.state = State::Delivered;
            client.queue.pop_front();
            self.requests.release(next);
        }
        if client.wants_turn() {
            self.write_later(place);
        }
    }
}
