//! A client's `flush_all`: to all servers, in order with the client's other requests.
//!
//! The engine orders a flush among the updates of all clients. Among those of its own client it is in order because it
//! begins when all earlier ones have their replies, and nothing later is read from the connection before it has its own.

use super::*;

impl Thread {
    /// Whether a request has to wait until all earlier ones of its client have their replies; the connection is read no further
    /// until then. Notes whether later ones wait for it.
    pub(super) fn waits_to_flush(&mut self, place: u32, request: &memcached::Request<'_>) -> bool {
        let Some(client) = self.client(place) else { return false };
        let flushes = request.verb == Verb::FlushAll;
        // Most requests of most connections.
        if !flushes && !client.waits_for_replies {
            return false;
        }
        client.waits_for_replies = flushes;
        let waits = flushes && !client.queue.is_empty();
        if waits {
            client.paused = true;
            client.needed = 0;
        }
        waits
    }

    /// Asks the engine when a command may go to every server.
    pub(super) fn flush_all(&mut self, place: u32, request: &memcached::Request<'_>) {
        let Some(name) = self.begin(place, request) else {
            return self.answer(place, b"SERVER_ERROR too many requests under way\r\n");
        };
        let Some(at) = self.requests.place(self.index, name) else { return };
        let under_way = self.requests.request_mut(at);
        // Kept, if the client leaves, until it has ended.
        under_way.left = 1;
        under_way.received = 0;
        self.flushes.insert(name, Flush::default());
        self.tell(Event::FlushAll { request: name }, None);
    }

    /// Sends a client's `flush_all` to every server.
    pub(super) fn broadcast(&mut self, request: RequestId, awaited: Vec<ServerId>) {
        let Some(at) = self.requests.place(self.index, request) else { return };
        let servers = self.shared.addresses.len();
        self.requests.request_mut(at).left = awaited.len() as u32;
        self.flushes.entry(request).or_default().awaited = awaited;
        for server in 0..servers {
            let command = &self.requests.request_mut(at).command;
            self.servers[server].out.end().extend_from_slice(command);
            self.queue(server, Purpose::Broadcast, request, Expect::Line);
        }
    }

    /// A server has carried out a broadcast, or (`failed`: its reply, or nothing) has not.
    pub(super) fn broadcast_ended(
        &mut self,
        request: RequestId,
        server: usize,
        failed: Option<&[u8]>,
    ) {
        let Some(at) = self.requests.place(self.index, request) else { return };
        let real = server % self.shared.addresses.len();
        // A server that gets copies alone is not waited for, and may answer when the request is another's.
        let is_awaited = |flush: &Flush| flush.awaited.contains(&real);
        if !self.flushes.get(&request).is_some_and(is_awaited) {
            return;
        }
        let name = self.shared.name(server).to_owned();
        let under_way = self.requests.request_mut(at);
        under_way.left = under_way.left.saturating_sub(1);
        if let Some(bytes) = failed {
            let text = String::from_utf8_lossy(bytes);
            let said = if text.is_empty() { "cannot be reached" } else { text.trim_end() };
            let line = format!("SERVER_ERROR {name}: {said}\r\n");
            under_way.reply.clear();
            under_way.reply.extend_from_slice(line.as_bytes());
            self.flushes.entry(request).or_default().missed.push(real);
        }
        let under_way = self.requests.request_mut(at);
        if under_way.left > 0 {
            return;
        }
        if under_way.reply.is_empty() {
            under_way.reply.extend_from_slice(b"OK\r\n");
        }
        match under_way.state {
            State::Open => self.finish(at, b""),
            _ => self.requests.release(at),
        }
        let failed = self.flushes.remove(&request).unwrap_or_default().missed;
        self.todo.push_back(Event::FlushEnded { request, failed });
    }
}
