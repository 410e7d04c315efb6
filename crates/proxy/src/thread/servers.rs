//! Servers of a thread: commands sent, replies taken apart.

use super::*;

impl Thread {
    pub(super) fn queue(
        &mut self,
        server: usize,
        purpose: Purpose,
        request: RequestId,
        expect: Expect,
    ) {
        let flight = Flight::new(purpose, request, expect, self.now);
        self.push(server, flight);
    }

    pub(super) fn push(&mut self, server: usize, flight: Flight) {
        let target = &mut self.servers[server];
        if target.queue(flight, self.poll.registry()).is_err() {
            return self.broken(server);
        }
        if !std::mem::replace(&mut target.listed, true) {
            self.writes_to_servers.push(server);
        }
    }

    /// Sends a command to a server. `fresh`: the request's bytes, if it is being handled.
    pub(super) fn send(
        &mut self,
        request: RequestId,
        attempt: AttemptId,
        server: ServerId,
        keys: &Part,
        command: Command,
        fresh: &[u8],
    ) {
        let Some(at) = self.requests.place(self.index, request) else {
            return self.todo.push_back(Event::Failed { attempt, why: Failed::Connect });
        };
        let Some(target) = self.servers.get_mut(server) else { return };
        let under_way = self.requests.request_mut(at);
        if under_way.started == 0 {
            under_way.started = self.now;
            under_way.length_met = target.length();
        }
        let meta = Expect::Meta { get: false };
        let (key, base64, out) = (under_way.key(), under_way.base64, target.out.end());
        let (expect, read_back) = match command {
            Command::Original => {
                match keys {
                    Part::Whole if under_way.command.is_empty() => out.extend_from_slice(fresh),
                    Part::Whole => out.extend_from_slice(&under_way.command),
                    Part::Places(places) => {
                        let ranges = places.iter().map(|i| under_way.keys.get(usize::from(*i)));
                        let keys = ranges.flatten().map(|range| under_way.slice(*range));
                        let exptime = under_way.slice(under_way.exptime);
                        memcached::put_get(under_way.verb, exptime, keys, out);
                    }
                }
                (under_way.expect, false)
            }
            Command::ReadBack => {
                memcached::put_read_back(key, base64, out);
                (Expect::Meta { get: true }, true)
            }
            Command::Copy { from } => {
                let read = under_way.kept_reply(from).map_or(&[][..], |kept| &kept.bytes);
                if !memcached::put_copy(read, key, base64, false, out) {
                    // Gone in between, or not of a form that can be copied.
                    memcached::put_delete(key, base64, out);
                }
                (meta, false)
            }
            Command::Add { from } => {
                let read = under_way.kept_reply(from).map_or(&[][..], |kept| &kept.bytes);
                if !memcached::put_copy(read, key, base64, true, out) {
                    // Of a form that cannot be copied: there is nothing to be done.
                    out.extend_from_slice(b"mn\r\n");
                }
                (meta, false)
            }
            Command::Delete => {
                memcached::put_delete(key, base64, out);
                (meta, false)
            }
        };
        let changes = command == Command::Original && under_way.changes;
        let purpose = Purpose::Attempt(attempt);
        let flight =
            Flight { read_back, changes, ..Flight::new(purpose, request, expect, self.now) };
        self.push(server, flight);
    }

    pub(super) fn server_ready(&mut self, server: usize, closed: bool) {
        self.write_server(server);
        loop {
            match self.servers[server].read() {
                Ok(Filled::Closed) => {
                    self.replies(server);
                    return self.broken(server);
                }
                Ok(filled) => {
                    self.replies(server);
                    if filled == Filled::Blocked || (filled == Filled::Some && !closed) {
                        return;
                    }
                }
                Err(error) => {
                    if error.kind() == io::ErrorKind::InvalidData {
                        self.warn_of(server, &error);
                    }
                    return self.broken(server);
                }
            }
        }
    }

    /// Says why a server's certificate or session is not accepted, not more often than every ten
    /// seconds.
    fn warn_of(&mut self, server: usize, error: &io::Error) {
        if self.now.saturating_sub(self.warned) > 10 * SECOND || self.warned == 0 {
            self.warned = self.now;
            warn!("{}: {error}", self.shared.name(server));
        }
    }

    pub(super) fn write_server(&mut self, server: usize) {
        match self.servers[server].write() {
            Ok(_) => {}
            Err(_) => self.broken(server),
        }
    }

    /// Handles all replies of a server that are complete.
    pub(super) fn replies(&mut self, server: usize) {
        loop {
            let (flight, reply) = match self.servers[server].next_reply() {
                Ok(Some(next)) => next,
                Ok(None) => return,
                Err(why) => {
                    warn!("{}: {why}", self.shared.name(server));
                    return self.broken(server);
                }
            };
            let input: In = self.servers[server].take_input();
            if self.is_strange(flight, reply.hits, &input.bytes()[..reply.bytes]) {
                warn!("{}: the values of other keys than were asked for", self.shared.name(server));
                if let Purpose::Attempt(attempt) = flight.purpose
                    && !self.cancelled.remove(&attempt)
                {
                    self.todo.push_back(Event::Failed { attempt, why: Failed::Broken });
                }
                return self.broken(server);
            }
            self.replied(server, flight, &reply, &input.bytes()[..reply.bytes]);
            let mut input = input;
            input.consume(reply.bytes);
            self.servers[server].give_back(input);
        }
    }

    /// Whether a reply to a get cannot be its own: it has more values than the request has keys, or its first value is of
    /// another key. A server that replies twice to a command puts its connection out of step so. Only the first value is
    /// compared: every get pays for this, and each value names its key to the client.
    fn is_strange(&mut self, flight: Flight, hits: u32, bytes: &[u8]) -> bool {
        if flight.expect != Expect::Values || hits == 0 {
            return false;
        }
        let Some(at) = self.requests.place(self.index, flight.request) else { return false };
        let request = self.requests.request_mut(at);
        if request.command.is_empty() {
            return false;
        }
        let is_asked = |key: &[u8]| request.keys.iter().any(|range| request.slice(*range) == key);
        hits as usize > request.keys.len()
            || memcached::values(bytes).next().is_some_and(|first| !is_asked(first.key))
    }

    pub(super) fn replied(
        &mut self,
        server: usize,
        flight: Flight,
        reply: &memcached::Reply,
        bytes: &[u8],
    ) {
        match flight.purpose {
            Purpose::Attempt(attempt) => {
                if !self.cancelled.is_empty() && self.cancelled.remove(&attempt) {
                    return;
                }
                let arrived =
                    Arrived { attempt, bytes, hits: reply.hits, read_back: flight.read_back };
                let (answer, hits) = (reply::answer(reply.answer, flight.changes), reply.hits);
                let event = Event::Answered { attempt, answer, hits, bytes: reply.bytes as u32 };
                if flight.read_back {
                    // What follows may be a copy of it.
                    self.keep(flight.request, attempt, bytes, reply.hits, true);
                }
                self.tell(event, Some(arrived));
                if !flight.read_back && self.used != attempt {
                    // KeptReply while the engine may still use it.
                    self.keep(flight.request, attempt, bytes, reply.hits, false);
                }
            }
            Purpose::Broadcast => {
                let failed = reply::answer(reply.answer, false) != Answer::Done;
                self.broadcast_ended(flight.request, server, failed.then_some(bytes));
            }
            Purpose::Ping => {
                let server = server % self.shared.addresses.len();
                self.todo.push_back(Event::Ponged { server });
            }
            Purpose::Flush => {
                let done = reply::answer(reply.answer, false) == Answer::Done;
                let server = server % self.shared.addresses.len();
                self.todo.push_back(Event::Flushed { server, done });
            }
        }
    }

    /// Keeps a reply while its request has none.
    pub(super) fn keep(
        &mut self,
        request: RequestId,
        attempt: AttemptId,
        bytes: &[u8],
        hits: u32,
        read_back: bool,
    ) {
        if let Some(at) = self.requests.place(self.index, request) {
            let under_way = self.requests.request_mut(at);
            if under_way.in_engine && under_way.state == State::Open {
                under_way.keep(attempt, bytes, hits, read_back);
            }
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
        let name = self.shared.name(server).to_owned();
        let under_way = self.requests.request_mut(at);
        under_way.left = under_way.left.saturating_sub(1);
        if let Some(bytes) = failed {
            let text = String::from_utf8_lossy(bytes);
            let said = if text.is_empty() { "cannot be reached" } else { text.trim_end() };
            let line = format!("SERVER_ERROR {name}: {said}\r\n");
            under_way.reply.clear();
            under_way.reply.extend_from_slice(line.as_bytes());
        }
        if under_way.left == 0 {
            if under_way.reply.is_empty() {
                under_way.reply.extend_from_slice(b"OK\r\n");
            }
            match under_way.state {
                State::Open => self.finish(at, b""),
                _ => self.requests.release(at),
            }
        }
    }

    /// Closes a connection to a server; what had no reply has failed.
    pub(super) fn broken(&mut self, server: usize) {
        let (unseen, flights) = self.servers[server].close();
        let why = if unseen { Failed::Connect } else { Failed::Broken };
        let real = server % self.shared.addresses.len();
        for flight in flights {
            match flight.purpose {
                Purpose::Attempt(attempt) => {
                    if !self.cancelled.remove(&attempt) {
                        self.todo.push_back(Event::Failed { attempt, why });
                    }
                }
                Purpose::Broadcast => self.broadcast_ended(flight.request, server, Some(&[])),
                Purpose::Ping => self.todo.push_back(Event::PingFailed { server: real }),
                Purpose::Flush => {
                    self.todo.push_back(Event::Flushed { server: real, done: false });
                }
            }
        }
    }
}
