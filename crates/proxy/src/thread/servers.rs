//! Servers of a thread: commands sent, replies taken apart.

use super::*;
use crate::names::look_up;

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
        match target.queue(flight, self.poll.registry()) {
            Ok(None) => {}
            Ok(Some(name)) => {
                let real = server % self.shared.addresses.len();
                if let Err(error) = look_up(&self.shared, real, &name, self.index, server) {
                    return self.broken(server, &error);
                }
            }
            Err(error) => return self.broken(server, &error),
        }
        let target = &mut self.servers[server];
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
        let original = command == Command::Original;
        let changes = if original { under_way.changes } else { Changes::Nothing };
        let purpose = Purpose::Attempt(attempt);
        let fit = Fit::for_command(command);
        let flight =
            Flight { read_back, fit, changes, ..Flight::new(purpose, request, expect, self.now) };
        self.push(server, flight);
    }

    pub(super) fn server_ready(&mut self, server: usize, closed: bool) {
        self.write_server(server);
        loop {
            match self.servers[server].read() {
                Ok(Filled::Closed) => {
                    self.replies(server);
                    return self.broken(server, &"it closed the connection");
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
                    return self.broken(server, &error);
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
        match self.servers[server].open() {
            Ok(opens) if opens && self.servers[server].has_name() => {
                if self.is_elsewhere(server) {
                    return self.broken(server, &"its name has another address");
                }
            }
            Ok(_) => {}
            Err(error) => return self.broken(server, &error),
        }
        if let Err(error) = self.servers[server].write() {
            self.broken(server, &error);
        }
    }

    /// The addresses of a server's name are there, or why there are none.
    pub(super) fn connect(&mut self, server: usize) {
        if !self.servers[server].is_resolving() {
            return;
        }
        let addresses = self.shared.places[server % self.shared.addresses.len()].addresses();
        let now = self.now;
        match addresses {
            Ok(addresses) => {
                let registry = self.poll.registry();
                if let Err(error) = self.servers[server].connect(addresses, now, registry) {
                    self.broken(server, &error);
                }
            }
            Err(why) => self.broken(server, &why),
        }
    }

    /// Notes where a server answers. Returns whether it did elsewhere before and this connection has commands that were
    /// meant for that one.
    fn is_elsewhere(&mut self, server: usize) -> bool {
        let real = server % self.shared.addresses.len();
        let Some(peer) = self.servers[server].peer() else { return false };
        let Some(before) = self.shared.places[real].move_to(peer) else { return false };
        info!("the server {} is at {peer} now, not at {before}", self.shared.name(server));
        self.todo.push_back(Event::Moved { server: real });
        self.shared.close_left();
        // Pings and flushes are what it takes to use it.
        server < self.shared.addresses.len()
    }

    /// Closes connections to where servers were before.
    pub(super) fn close_left(&mut self) {
        for server in 0..self.servers.len() {
            let real = server % self.shared.addresses.len();
            let has_left = |peer| self.shared.places[real].has_left(peer);
            if self.servers[server].has_name() && self.servers[server].peer().is_some_and(has_left)
            {
                self.broken(server, &"its name has another address");
            }
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
                    return self.broken(server, &why);
                }
            };
            let input: In = self.servers[server].take_input();
            if let Some((said, why)) =
                self.find_strange(&flight, reply.hits, &input.bytes()[..reply.bytes])
            {
                warn!("{}: {said}", self.shared.name(server));
                self.servers[server].give_back(input);
                self.servers[server].put_back(flight);
                return self.broken(server, &why);
            }
            self.replied(server, flight, &reply, &input.bytes()[..reply.bytes]);
            let mut input = input;
            input.consume(reply.bytes);
            self.servers[server].give_back(input);
        }
    }

    /// What shows that a reply cannot be its request's own, for the log and as the reason of an outage. A server that replies
    /// twice to a command, or not at all, puts its connection out of step so. Of a get: it has more values than the
    /// request has keys, or its first value is of another key; only the first is compared, since every get pays for this and
    /// each value names its key to the client. Of other commands: see [`memcached::fits`].
    fn find_strange(
        &mut self,
        flight: &Flight,
        hits: u32,
        bytes: &[u8],
    ) -> Option<(&'static str, &'static str)> {
        const UNFIT: (&str, &str) =
            ("a reply to another request than was sent", "it sent a reply to another request");
        const OTHERS: (&str, &str) =
            ("the values of other keys than were asked for", "it sent the values of other keys");
        if let Fit::Verb(verb) = flight.fit {
            return (!memcached::fits(verb, &[], bytes)).then_some(UNFIT);
        }
        let at = self.requests.place(self.index, flight.request)?;
        let request = self.requests.request_mut(at);
        if flight.expect != Expect::Values {
            let line = request.command.split(|&byte| byte == b'\n').next().unwrap_or_default();
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let fits = flight.fit != Fit::Request || memcached::fits(request.verb, line, bytes);
            return (!fits).then_some(UNFIT);
        }
        if hits == 0 || request.command.is_empty() {
            return None;
        }
        let is_asked = |key: &[u8]| request.keys.iter().any(|range| request.slice(*range) == key);
        let is_strange = hits as usize > request.keys.len()
            || memcached::values(bytes).next().is_some_and(|first| !is_asked(first.key));
        is_strange.then_some(OTHERS)
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
                let changes = match flight.changes {
                    Changes::Nothing => false,
                    Changes::Found => true,
                    Changes::Won => memcached::is_won(bytes),
                };
                let (answer, hits) = (reply::answer(reply.answer, changes), reply.hits);
                let event = Event::Answered { attempt, answer, hits, bytes: reply.bytes as u32 };
                if flight.read_back {
                    if memcached::is_won(bytes) {
                        self.give_back(server, flight.request);
                    }
                    // What follows may be a copy of it.
                    self.keep(flight.request, attempt, bytes, reply.hits, true);
                }
                self.tell(event, Some(arrived));
                if !flight.read_back && self.used != attempt {
                    // Kept while the engine may still use it.
                    self.keep(flight.request, attempt, bytes, reply.hits, false);
                }
            }
            Purpose::GiveBack => {}
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

    /// A read-back has won the right to replace a stale item, which is a client's: marks the item anew, so that the next
    /// client to read it wins. Its compare-and-swap number changes, as with every `md` that invalidates.
    fn give_back(&mut self, server: usize, request: RequestId) {
        let Some(at) = self.requests.place(self.index, request) else { return };
        let under_way = self.requests.request_mut(at);
        let (key, base64) = (under_way.key(), under_way.base64);
        memcached::put_invalidate(key, base64, self.servers[server].out.end());
        self.queue(server, Purpose::GiveBack, request, Expect::Meta { get: false });
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

    /// Closes a connection to a server, for a reason; what had no reply has failed. One that is not made yet is tried
    /// at the server's next address instead.
    pub(super) fn broken(&mut self, server: usize, why: &dyn std::fmt::Display) {
        if self.servers[server].connect_next(self.now, self.poll.registry()) {
            return;
        }
        let why = match self.servers[server].is_resolving() {
            // A look-up that takes longer than a request may.
            true if self.servers[server].oldest().is_some() => {
                format!("its name is not known yet ({why})")
            }
            _ => why.to_string(),
        };
        self.shared.reasons.note(server % self.shared.addresses.len(), why);
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
                Purpose::GiveBack => {}
                Purpose::Broadcast => self.broadcast_ended(flight.request, server, Some(&[])),
                Purpose::Ping => self.todo.push_back(Event::PingFailed { server: real }),
                Purpose::Flush => {
                    self.todo.push_back(Event::Flushed { server: real, done: false });
                }
            }
        }
    }
}
