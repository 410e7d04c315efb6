//! Clients of a thread: connections, requests parsed, replies written.

use std::os::fd::AsFd as _;

use super::*;

/// A connection that has been idle for less is not closed for another's sake: its client's request may be on its way.
const IDLE_MIN: Nanos = SECOND / 10;

/// Connections that may wait for an idle one of another thread to close. Each takes a file of the process meanwhile.
const WAITING_MAX: usize = 4;

/// A client's request, as the engine decides on it.
pub(super) struct PoolRequest {
    pub request: RequestId,
    /// The name of the client's connection.
    pub client: u64,
    pub operation: Operation,
    /// The operation as windows count it.
    pub recorded: ground::window::Operation,
    pub keys: Keys,
    /// Bytes of the value.
    pub bytes: u32,
}

impl Thread {
    pub(super) fn accept(&mut self) {
        for stream in std::mem::take(&mut self.waiting) {
            match self.shared.seat() {
                Some(thread) => self.place(thread, stream),
                None => refuse(stream),
            }
        }
        loop {
            let Some(listener) = &self.listener else { return };
            match listener.accept() {
                Ok(stream) => self.seat(stream),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    // Out of files, most likely: an idle connection goes, and those at work go on. The sweep tries
                    // again.
                    warn!("cannot accept a connection: {error}");
                    let _ = self.close_idle() || self.shared.evict_elsewhere(self.index);
                    return;
                }
            }
        }
    }

    /// Finds a place for a connection: if there are as many as there may be, that of an idle one.
    fn seat(&mut self, stream: Stream) {
        let mut seat = self.shared.seat();
        if seat.is_none() && self.close_idle() {
            seat = self.shared.seat();
        }
        match seat {
            Some(thread) => self.place(thread, stream),
            // The next look is the sweep's.
            None if self.waiting.len() < WAITING_MAX && self.shared.evict_elsewhere(self.index) => {
                self.waiting.push_back(stream);
            }
            None => refuse(stream),
        }
    }

    fn place(&mut self, thread: usize, stream: Stream) {
        if thread == self.index {
            self.add_client(stream.into());
        } else {
            self.shared.mail_stream(thread, stream.into());
        }
    }

    /// Closes this thread's connection that has been idle for longest; returns whether there is one. Its cost, a look at
    /// every client of the thread, occurs at the limit of connections alone.
    pub(super) fn close_idle(&mut self) -> bool {
        let now = self.now;
        let idle = self.clients.iter().enumerate().filter_map(|(place, client)| {
            let client = client.as_ref().filter(|client| client.is_idle())?;
            Some((client.moved, place as u32))
                .filter(|(since, _)| now.saturating_sub(*since) >= IDLE_MIN)
        });
        let Some((_, place)) = idle.min() else { return false };
        self.close_client(place);
        true
    }

    pub(super) fn add_client(&mut self, carried: Carried) {
        self.generation = self.generation.wrapping_add(1);
        let Carried { stream, rest, skip } = carried;
        let mut client = Client::new(stream, self.generation, self.now);
        // What was read before is looked at before more is read.
        client.paused = !rest.is_empty();
        (client.rest, client.skip) = (rest, skip);
        let place = self.free.pop().unwrap_or_else(|| {
            self.clients.push(None);
            (self.clients.len() - 1) as u32
        });
        let token = Token(SERVERS + self.servers.len() + place as usize);
        if let Err(error) = client.stream.register(self.poll.registry(), token) {
            warn!("cannot watch a connection: {error}");
            self.free.push(place);
            self.shared.leave(self.index);
            return;
        }
        self.clients[place as usize] = Some(client);
        self.read_again(place);
    }

    /// Serves what the process before has passed on.
    pub(super) fn take_over(&mut self, connections: Vec<Carried>) {
        for carried in connections {
            match self.shared.seat() {
                Some(thread) if thread == self.index => self.add_client(carried),
                Some(thread) => self.shared.mail_stream(thread, carried),
                None => refuse(carried.stream),
            }
        }
    }

    /// Has connections without a request kept for the next process. Returns whether there are others, which are
    /// to end first.
    pub(super) fn pass_on(&mut self) -> bool {
        let Some(pass_on) = self.shared.pass_on else { return false };
        for place in 0..self.clients.len() as u32 {
            if let Some(client) = self.client(place)
                && client.is_idle()
            {
                pass_on(client.stream.as_fd());
                self.close_client(place);
            }
        }
        self.clients.iter().any(Option::is_some)
    }

    pub(super) fn client(&mut self, place: u32) -> Option<&mut Client> {
        self.clients.get_mut(place as usize)?.as_mut()
    }

    pub(super) fn read_again(&mut self, place: u32) {
        if let Some(client) = self.client(place)
            && !std::mem::replace(&mut client.again, true)
        {
            self.again.push(place);
        }
    }

    pub(super) fn write_later(&mut self, place: u32) {
        if let Some(client) = self.client(place)
            && !std::mem::replace(&mut client.listed, true)
        {
            self.writes_to_clients.push(place);
        }
    }

    pub(super) fn read_client(&mut self, place: u32) {
        let mut scratch = std::mem::take(&mut self.scratch);
        self.read_client_into(place, &mut scratch);
        self.scratch = scratch;
    }

    pub(super) fn read_client_into(&mut self, place: u32, scratch: &mut [u8]) {
        let (now, collecting) = (self.now, self.shared.is_collecting());
        let Some(client) = self.client(place) else { return };
        client.again = false;
        if client.is_full() || collecting {
            client.paused = true;
            return;
        }
        // What arrived while it had too much under way.
        if std::mem::take(&mut client.paused) && !client.rest.is_empty() && !client.ending {
            self.parse_rest(place);
        }
        let Some(client) = self.client(place) else { return };
        if client.is_full() {
            // Whole requests may be left of what was read: to see the end of what the client sends would drop them.
            client.paused = true;
            return;
        }
        let count = match io::Read::read(&mut client.stream, scratch) {
            Ok(0) => {
                // Replies to what it sent before may still be on their way to a client that only
                // closed its sending half; it is closed once they are written.
                client.ending = true;
                client.closes_at = None;
                client.rest = Vec::new();
                return self.write_later(place);
            }
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return client.drained = true;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                return self.read_again(place);
            }
            Err(_) => return self.close_client(place),
        };
        client.drained = count < scratch.len() && !client.hung_up;
        let more = !client.drained;
        // Nothing that it sends counts any more.
        if client.ending && more {
            return self.read_again(place);
        } else if client.ending {
            return;
        }
        // Further bytes of a line that has begun do not count: a request whose line comes byte by
        // byte would hold its connection for ever.
        if client.rest.is_empty() || client.needed > 0 {
            client.moved = now;
        }
        let mut bytes = &scratch[..count];
        if client.skip > 0 {
            let skipped = client.skip.min(bytes.len() as u64);
            client.skip -= skipped;
            bytes = &bytes[skipped as usize..];
        }
        if !client.rest.is_empty() {
            client.rest.extend_from_slice(bytes);
            self.parse_rest(place);
        } else if !bytes.is_empty() {
            let used = self.parse(place, bytes);
            if let Some(client) = self.client(place)
                && !client.ending
            {
                client.rest.extend_from_slice(&bytes[used..]);
            }
        }
        // A short read has emptied the socket, unless the client has closed it, which is reported
        // together with the bytes before.
        self.read_again_if(place, more);
    }

    pub(super) fn read_again_if(&mut self, place: u32, more: bool) {
        let Some(client) = self.client(place) else { return };
        if client.is_full() {
            client.paused = true;
        } else if more {
            self.read_again(place);
        }
    }

    pub(super) fn parse_rest(&mut self, place: u32) {
        let Some(client) = self.client(place) else { return };
        if client.rest.len() < client.needed {
            return self.bound_rest(place);
        }
        let mut rest = std::mem::take(&mut client.rest);
        let used = self.parse(place, &rest);
        let now = self.now;
        let Some(client) = self.client(place) else { return };
        if used > 0 {
            client.moved = now;
        }
        if used == rest.len() || client.ending {
            rest.clear();
            if rest.capacity() > READ {
                rest = Vec::new();
            }
        } else {
            rest.drain(..used);
        }
        client.rest = rest;
        self.bound_rest(place);
    }

    /// Refuses the connection whose unfinished request does not fit in memory.
    pub(super) fn bound_rest(&mut self, place: u32) {
        let max = self.shared.limits.value_bytes_max + self.shared.limits.line_bytes_max + 4096;
        let Some(client) = self.client(place) else { return };
        if client.rest.len() > max.max(READ) * 2 {
            client.ending = true;
            client.rest = Vec::new();
            self.answer(place, b"SERVER_ERROR out of memory reading request\r\n");
        }
    }

    /// Begins the requests at the start of some bytes; returns how many bytes they are.
    pub(super) fn parse(&mut self, place: u32, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            let Some(client) = self.client(place) else { return at };
            if client.is_full() {
                client.paused = true;
                // What is left is whole requests, which must not wait for as many bytes as an earlier one lacked.
                client.needed = 0;
                return at;
            }
            if client.ending {
                return bytes.len();
            }
            let limits = self.shared.limits;
            match memcached::parse(&bytes[at..], &limits) {
                Parsed::Incomplete { needed } => {
                    if let Some(client) = self.client(place) {
                        client.needed = needed;
                    }
                    return at;
                }
                Parsed::Request(request) => {
                    if self.waits_to_flush(place, &request) {
                        return at;
                    }
                    at += request.whole.len();
                    self.request(place, &request);
                }
                Parsed::Invalid { reply, consumed, skip, close, drops } => {
                    if let Some(drops) = drops {
                        self.drop_value(place, drops);
                    }
                    let binary = memcached::refuse_binary(&bytes[at..]);
                    if binary.is_some() {
                        warn!("{}", memcached::BINARY_CLIENT);
                    }
                    at += consumed;
                    let here = skip.min((bytes.len() - at) as u64);
                    at += here as usize;
                    if let Some(client) = self.client(place) {
                        client.skip = skip - here;
                        client.ending |= close;
                    }
                    self.shared.counters(self.index).add(Count::Refused, 1);
                    self.answer(place, binary.as_deref().unwrap_or(reply.as_bytes()));
                }
            }
        }
        if let Some(client) = self.client(place) {
            client.needed = 0;
        }
        at
    }

    pub(super) fn request(&mut self, place: u32, request: &memcached::Request<'_>) {
        match request.verb {
            Verb::Quit => {
                if let Some(client) = self.client(place) {
                    client.ending = true;
                }
                return self.write_later(place);
            }
            Verb::FlushAll => return self.flush_all(place, request),
            _ if request.kind() == Kind::Local => {
                let mut reply = Vec::new();
                local::reply(&self.shared, request, &mut reply);
                if request.noreply {
                    reply.clear();
                }
                return self.answer(place, &reply);
            }
            _ if request.keys().nth(1).is_some() && self.shared.splits(request) => {
                return self.split(place, request);
            }
            _ => {}
        }
        let Some(name) = self.begin(place, request) else {
            return self.answer(place, b"SERVER_ERROR too many requests under way\r\n");
        };
        let hash = |key: &[u8]| self.shared.key_hash(key, request.is_base64());
        let mut keys = request.keys();
        let (first, second) = (keys.next().unwrap_or_default(), keys.next());
        let keys = match second {
            None => Keys::One(hash(first)),
            Some(_) => Keys::Many(request.keys().map(hash).collect::<Vec<KeyHash>>().into()),
        };
        let operation = self.operation(request, second.is_some());
        let recorded = local::recorded(request.verb, second.is_some());
        let id = keys.as_slice().first().map_or(0, |key| key.id);
        let at = self.requests.place(self.index, name);
        if let Some(at) = at {
            let under_way = self.requests.request_mut(at);
            under_way.operation = recorded;
            under_way.hash = id;
            under_way.changes = Changes::of_request(request);
            under_way.in_engine = true;
        }
        let (attempt, bytes) = (0, request.whole);
        let arrived = Arrived { attempt, bytes, hits: 0, read_back: false };
        let (place, generation) = at.map_or((0, 0), |at| self.requests.request_mut(at).client);
        let client = self.client_name(place, generation);
        let value_bytes = request.value().len() as u32;
        let pool_request =
            PoolRequest { request: name, client, operation, recorded, keys, bytes: value_bytes };
        self.ask(pool_request, Some(arrived));
        if self.is_copied_late(request)
            && let Some(at) = self.requests.place(self.index, name)
        {
            let under_way = self.requests.request_mut(at);
            if under_way.started == 0 && under_way.state == State::Open {
                under_way.command.extend_from_slice(bytes);
            }
        }
    }

    /// What a request does, as the engine decides on it.
    fn operation(&self, request: &memcached::Request<'_>, several: bool) -> Operation {
        match request.kind() {
            // On one server each: others were split.
            Kind::Update if several => Operation::ReadFirst,
            Kind::Update if request.verb == Verb::MetaDelete && request.has_any_flag(b"I") => {
                Operation::Invalidate
            }
            Kind::Update => Operation::Update,
            Kind::Write => Operation::Write,
            // A value that is moved from a former server gets its number here.
            _ if request.asks_one_server() && self.shared.warms(request.keys()) => {
                Operation::Update
            }
            _ if request.asks_one_server() => Operation::ReadFirst,
            _ if request.verb == Verb::MetaGet => Operation::ReadMarked,
            _ => Operation::Read,
        }
    }

    /// The name of a client's connection.
    pub(super) fn client_name(&self, place: u32, generation: u32) -> u64 {
        // A generation counts the connections of the thread.
        (self.index as u64) << 56 ^ u64::from(place) << 32 ^ u64::from(generation)
    }

    /// Passes a request to the engine, with its bytes if they are not in
    /// [`Request::command`](crate::request::Request::command).
    pub(super) fn ask(&mut self, pool_request: PoolRequest, arrived: Option<Arrived<'_>>) {
        self.shared.lane(self.index).arrive(self.now);
        let deadline = self.now.saturating_add(self.shared.deadline);
        let PoolRequest { request, client, operation, recorded, keys, bytes } = pool_request;
        let event = Event::Request { request, client, operation, recorded, keys, bytes, deadline };
        self.tell(event, arrived);
    }

    /// Whether a request's bytes are kept only if it has to wait. A write whose commands are all
    /// sent at once is never sent again.
    fn is_copied_late(&self, request: &memcached::Request<'_>) -> bool {
        self.shared.sends_once
            && request.kind() == Kind::Write
            && !request.noreply
            && !request.quiet
            && request.value().len() > 512
    }

    /// A place for a client's request, at the end of the client's queue.
    pub(super) fn begin(
        &mut self,
        place: u32,
        request: &memcached::Request<'_>,
    ) -> Option<RequestId> {
        let late = self.is_copied_late(request);
        let at = self.requests.insert()?;
        let now = self.now;
        let Some(client) = self.clients.get_mut(place as usize).and_then(Option::as_mut) else {
            let free = self.requests.request_mut(at);
            free.state = State::Delivered;
            self.requests.release(at);
            return None;
        };
        client.queue.push_back(at);
        let under_way = self.requests.request_mut(at);
        under_way.client = (place, client.generation);
        under_way.verb = request.verb;
        under_way.noreply = request.noreply;
        under_way.quiet = request.quiet;
        under_way.base64 = request.is_base64();
        under_way.expect = request.expect();
        under_way.in_engine = false;
        under_way.left = 0;
        (under_way.received, under_way.started, under_way.served) = (now, 0, 0);
        under_way.outcome = Outcome::Error;
        (under_way.length_met, under_way.hits) = (0, 0);
        if !late {
            request.put_answered(&mut under_way.command);
        }
        let start = request.whole.as_ptr() as usize;
        let range = |bytes: &[u8]| {
            let from = (bytes.as_ptr() as usize).saturating_sub(start);
            (from as u32, (from + bytes.len()) as u32)
        };
        under_way.keys.extend(request.keys().map(range));
        under_way.exptime = match request.verb {
            Verb::Gat | Verb::Gats => range(request.arguments()),
            _ => (0, 0),
        };
        Some(self.requests.name(self.index, at))
    }

    /// Answers a request that no server has to be asked for.
    pub(super) fn answer(&mut self, place: u32, reply: &[u8]) {
        let Some(client) = self.client(place) else { return };
        if client.queue.is_empty() {
            client.out.end().extend_from_slice(reply);
            return self.write_later(place);
        }
        let generation = client.generation;
        let Some(at) = self.requests.insert() else { return self.close_client(place) };
        let under_way = self.requests.request_mut(at);
        under_way.client = (place, generation);
        under_way.state = State::Replied;
        under_way.in_engine = false;
        under_way.left = 0;
        under_way.received = 0;
        under_way.reply.extend_from_slice(reply);
        if let Some(client) = self.client(place) {
            client.queue.push_back(at);
        }
    }

    pub(super) fn write_client(&mut self, place: u32) {
        let now = self.now;
        let Some(client) = self.client(place) else { return };
        client.listed = false;
        match client.out.write_to(&mut client.stream, READ) {
            Err(_) => return self.close_client(place),
            Ok(0) => {}
            Ok(_) => client.moved = now,
        }
        let is_answered = client.queue.is_empty() && client.out.is_empty();
        if client.ending && client.closes_at.is_none() && is_answered {
            return self.close_client(place);
        }
        if client.paused && !client.is_full() {
            self.read_again(place);
        }
    }

    pub(super) fn close_client(&mut self, place: u32) {
        let Some(client) = self.clients.get_mut(place as usize).and_then(Option::take) else {
            return;
        };
        self.free.push(place);
        self.shared.leave(self.index);
        for at in client.queue {
            let request = self.requests.request_mut(at);
            let over = request.in_engine && request.state == State::Open;
            request.state = State::Delivered;
            if over {
                let name = self.requests.name(self.index, at);
                self.shared.lane(self.index).abandon(self.now);
                self.todo.push_back(Event::Over { request: name });
            }
            self.requests.release(at);
        }
    }
}

/// Tells a client that its connection is one too many, and closes it.
fn refuse(mut stream: Stream) {
    let _ = io::Write::write(&mut stream, b"SERVER_ERROR too many open connections\r\n");
}
