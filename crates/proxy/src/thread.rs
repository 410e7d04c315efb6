//! A serving thread: one loop over its clients and its connections to servers.
//!
//! Each turn of the loop takes what the kernel reports, passes complete requests and replies to the
//! engine, and carries out its actions. Everything that a turn wrote to one connection leaves in
//! one system call at the turn's end. Nothing is allocated for a request of one key, once the
//! buffers have grown.

mod clients;
mod decisions;
mod flush;
mod gather;
mod leave;
mod servers;
mod state;

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use engine::pool::{
    Action, Answer, AttemptId, Command, Event, Failed, KeyHash, Keys, Operation, Part, RequestId,
    ServerId,
};
use ground::window::{Nanos, Outcome, SECOND};
use memcached::{Expect, Kind, Parsed, Verb};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use record::clock;
use tracing::{info, warn};

use crate::buffer::{Filled, In};
use crate::carried::Carried;
use crate::client::Client;
use crate::counts::Count;
use crate::local;
use crate::reply;
use crate::request::{Changes, Requests, State, thread_of};
use crate::server::{Fit, Flight, Purpose, Server};
use crate::shared::Shared;
use crate::stream::{Listener, Stream};
use crate::timer::Timer;

pub(crate) use state::Thread;
use state::{Arrived, Flush, Gather};

const WAKER: Token = Token(0);
const LISTENER: Token = Token(1);
const TIMER: Token = Token(2);
/// The first token of servers; those of clients follow.
const SERVERS: usize = 3;

/// Bytes of one read of requests.
const READ: usize = 64 << 10;

/// Time between two looks at connections that do not move.
const SWEEP: Nanos = SECOND / 10;

/// The token of the waker of a thread.
pub(crate) fn waker_token() -> Token {
    WAKER
}

impl Thread {
    pub(crate) fn new(
        shared: Arc<Shared>,
        index: usize,
        poll: Poll,
        accepting: Option<(Listener, Vec<Carried>)>,
    ) -> io::Result<Thread> {
        let registry = poll.registry();
        let (mut listener, given) = accepting.unzip();
        if let Some(listener) = &mut listener {
            listener.register(registry, LISTENER)?;
        }
        let timer = Timer::new()?;
        registry.register(&mut SourceFd(&timer.descriptor()), TIMER, Interest::READABLE)?;
        let rounds = if index == 0 { 2 } else { 1 };
        let addresses = &shared.addresses;
        let servers = (0..rounds * addresses.len())
            .map(|i| {
                let address = addresses[i % addresses.len()].clone();
                let tls = shared.tls[i % addresses.len()].clone();
                Server::new(address, tls, Token(SERVERS + i), shared.limits)
            })
            .collect();
        let now = clock::now();
        Ok(Thread {
            shared,
            index,
            timer,
            poll,
            listener,
            given: given.unwrap_or_default(),
            waiting: VecDeque::new(),
            clients: Vec::new(),
            free: Vec::new(),
            generation: 0,
            servers,
            requests: Requests::default(),
            cancelled: HashSet::default(),
            writes_to_servers: Vec::new(),
            writes_to_clients: Vec::new(),
            again: Vec::new(),
            todo: VecDeque::new(),
            actions: Vec::new(),
            used: 0,
            scratch: vec![0; READ],
            gathers: HashMap::default(),
            flushes: HashMap::default(),
            now,
            swept: now,
            warned: 0,
        })
    }

    /// Serves until the process ends.
    pub(crate) fn run(mut self) {
        let mut events = Events::with_capacity(1024);
        let mut ready: Vec<u32> = Vec::new();
        let mut drain_until = None;
        if self.index == 0 {
            self.tell(Event::Tick, None);
        }
        let given = std::mem::take(&mut self.given);
        self.take_over(given);
        loop {
            let wait = if self.again.is_empty() { SWEEP } else { 0 };
            if let Err(error) = self.poll.poll(&mut events, Some(Duration::from_nanos(wait)))
                && error.kind() != io::ErrorKind::Interrupted
            {
                warn!("cannot wait for connections: {error}");
                std::thread::sleep(Duration::from_millis(20));
            }
            self.now = clock::now();
            let first_client = SERVERS + self.servers.len();
            ready.append(&mut self.again);
            for event in &events {
                match event.token() {
                    WAKER => {}
                    LISTENER => self.accept(),
                    TIMER => self.timer.acknowledge(),
                    Token(token) if token < first_client => {
                        self.server_ready(token - SERVERS, event.is_read_closed());
                    }
                    Token(token) => {
                        let place = (token - first_client) as u32;
                        if self.client_ready(place, event) {
                            ready.push(place);
                        }
                    }
                }
            }
            // Before the mail is looked at: none comes after it.
            let closed = self.shared.is_closed();
            self.inbox();
            for place in ready.drain(..) {
                self.read_client(place);
            }
            if self.timer.is_due(self.now) {
                self.tell(Event::Tick, None);
            }
            self.work_off();
            let wake = self.shared.pools().next_wake();
            self.timer.set(wake, self.now);
            if self.now - self.swept >= SWEEP {
                self.swept = self.now;
                self.sweep();
                self.work_off();
            }
            if self.shared.is_stopping() {
                let others = self.leave(drain_until.is_none());
                let until = *drain_until.get_or_insert(self.now + self.shared.drain);
                if (closed && self.is_idle() && !others) || self.now >= until {
                    break;
                }
            }
        }
        self.end();
    }

    /// Notes what a client's socket is ready for. Returns whether it has bytes to read, which the caller does after all events of
    /// the round.
    fn client_ready(&mut self, place: u32, event: &mio::event::Event) -> bool {
        if event.is_writable() {
            self.write_later(place);
        }
        let is_readable = event.is_readable() || event.is_read_closed() || event.is_error();
        if is_readable && let Some(client) = self.client(place) {
            client.hung_up |= event.is_read_closed();
        }
        is_readable
    }

    /// Handles events that follow from others, and writes, until neither is left.
    fn work_off(&mut self) {
        loop {
            while let Some(event) = self.todo.pop_front() {
                self.tell(event, None);
            }
            let mut servers = std::mem::take(&mut self.writes_to_servers);
            for server in servers.drain(..) {
                self.servers[server].listed = false;
                self.write_server(server);
            }
            if self.writes_to_servers.is_empty() {
                self.writes_to_servers = servers;
            }
            let mut clients = std::mem::take(&mut self.writes_to_clients);
            for place in clients.drain(..) {
                self.write_client(place);
            }
            if self.writes_to_clients.is_empty() {
                self.writes_to_clients = clients;
            }
            let written = self.writes_to_servers.is_empty() && self.writes_to_clients.is_empty();
            if self.todo.is_empty() && written {
                return;
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.requests.len() == 0
            && self.clients.iter().flatten().all(|client| client.out.is_empty())
    }

    /// Closes what does not move: clients that owe the rest of a request or do not read their
    /// replies, and connections to servers that do not answer.
    fn sweep(&mut self) {
        let now = self.now;
        for place in 0..self.clients.len() as u32 {
            let stall = self.shared.stall;
            let Some(client) = self.client(place) else { continue };
            let waits = client.paused && client.out.is_empty();
            if client.is_moving() && !waits && now.saturating_sub(client.moved) > stall {
                self.close_client(place);
            }
        }
        for server in 0..self.servers.len() {
            let pings = server >= self.shared.addresses.len();
            let patience = if pings { self.shared.ping_timeout } else { self.shared.stuck };
            let stuck = |since: Nanos| now.saturating_sub(since) > patience;
            if self.servers[server].is_late(now, patience) {
                self.broken(server, &"it cannot be connected to");
            }
            if self.servers[server].oldest().is_some_and(stuck) {
                let seconds = patience as f64 * 1e-9;
                self.broken(server, &format_args!("no reply for {seconds} s"));
            }
        }
        self.forget_cancelled();
        if self.index == 0 {
            let outages = self.shared.pools().outages(now);
            let (names, reasons) = (&self.shared.names, &self.shared.reasons);
            self.shared.outages().look(now, &outages, names, reasons);
        }
        if self.listener.is_some() {
            self.accept();
        }
    }

    /// Forgets cancelled attempts whose reply came, or will not: another thread's decision arrives by mail, and the reply may have been
    /// read before it.
    fn forget_cancelled(&mut self) {
        if !self.cancelled.is_empty() {
            let open: HashSet<AttemptId> = self.servers.iter().flat_map(Server::attempts).collect();
            self.cancelled.retain(|attempt| open.contains(attempt));
        }
    }
}
