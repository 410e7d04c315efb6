//! A thread's connection to a server: commands go out in order, replies come back in the same order.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use engine::pool::{AttemptId, Command, RequestId};
use ground::window::Nanos;
use memcached::{Expect, Limits, Scanned, Scanner, Verb};
use mio::{Registry, Token};

use crate::buffer::{Filled, In, Out};
use crate::request::Changes;
use crate::stream::{Address, Stream};
use crate::tls::Tls;

/// Room for one read of replies: a dozen replies of 4 KiB. With more, what was read last would
/// displace what was read first from the processor's cache before it is sent on.
const READ: usize = 64 << 10;
/// Memory that an empty buffer of commands keeps.
const KEPT: usize = 1 << 20;

/// What a command on its way is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// An attempt of the engine's.
    Attempt(AttemptId),
    /// A command that goes to every server (`flush_all`); its replies are counted.
    Broadcast,
    /// Undoes what a read-back has won; nobody waits for its reply.
    GiveBack,
    /// [`engine::pool::Action::Ping`].
    Ping,
    /// [`engine::pool::Action::Flush`].
    Flush,
}

/// What the reply to a command is compared with, lest a connection that is out of step gives requests the replies of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// With the client's request.
    Request,
    /// With the word of a command of the proxy's own.
    Verb(Verb),
    /// Only with [`Flight::expect`].
    Expected,
}

impl Fit {
    /// What the reply to a command of the engine's is compared with.
    pub(crate) fn for_command(command: Command) -> Fit {
        match command {
            Command::Original => Fit::Request,
            Command::Delete => Fit::Verb(Verb::MetaDelete),
            Command::ReadBack => Fit::Verb(Verb::MetaGet),
            // A copy may have become another command.
            Command::Copy { .. } | Command::Add { .. } => Fit::Expected,
        }
    }
}

/// A command that was sent, or waits to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub(crate) purpose: Purpose,
    pub(crate) request: RequestId,
    pub(crate) expect: Expect,
    pub(crate) since: Nanos,
    /// Whether it is a [`engine::pool::Command::ReadBack`].
    pub(crate) read_back: bool,
    /// What its reply is compared with.
    pub(crate) fit: Fit,
    /// Which replies say that the item has changed.
    pub(crate) changes: Changes,
}

impl Flight {
    pub(crate) fn new(
        purpose: Purpose,
        request: RequestId,
        expect: Expect,
        since: Nanos,
    ) -> Flight {
        let (read_back, changes) = (false, Changes::Nothing);
        let fit = match purpose {
            Purpose::Ping => Fit::Verb(Verb::Version),
            Purpose::Flush => Fit::Verb(Verb::FlushAll),
            Purpose::GiveBack => Fit::Verb(Verb::MetaDelete),
            Purpose::Attempt(_) | Purpose::Broadcast => Fit::Expected,
        };
        Flight { purpose, request, expect, since, read_back, fit, changes }
    }
}

/// How far the connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    /// Its name is looked up.
    Resolving,
    Connecting,
    Open,
}

/// A connection to a server, opened when it is needed.
pub(crate) struct Server {
    address: Address,
    tls: Option<Tls>,
    token: Token,
    limits: Limits,
    stream: Option<Stream>,
    state: State,
    /// Further addresses to try, if this one cannot be connected to.
    others: VecDeque<SocketAddr>,
    /// When the connection was begun.
    began: Nanos,
    input: In,
    pub(crate) out: Out,
    flights: VecDeque<Flight>,
    /// Where the reply to the first flight ends, as far as it is known.
    scanner: Option<Scanner>,
    /// Whether it is listed among those with something to write.
    pub(crate) listed: bool,
}

impl Server {
    pub(crate) fn new(address: Address, tls: Option<Tls>, token: Token, limits: Limits) -> Server {
        Server {
            address,
            tls,
            token,
            limits,
            stream: None,
            state: State::Closed,
            others: VecDeque::new(),
            began: 0,
            input: In::new(),
            out: Out::default(),
            flights: VecDeque::new(),
            scanner: None,
            listed: false,
        }
    }

    /// Queues a flight whose command is at the end of `out`. Connects if there is no connection; returns the name that is to be
    /// looked up first, if the address has one: [`Server::connect`] follows.
    ///
    /// # Errors
    /// The connection cannot even be tried; the flight is queued all the same, and
    /// [`Server::close`] returns it.
    pub(crate) fn queue(
        &mut self,
        flight: Flight,
        registry: &Registry,
    ) -> io::Result<Option<String>> {
        self.began = if self.state == State::Closed { flight.since } else { self.began };
        self.flights.push_back(flight);
        if self.state == State::Closed {
            if let Address::Name(name) = &self.address {
                let name = name.clone();
                self.state = State::Resolving;
                return Ok(Some(name));
            }
            let stream = Stream::connect(&self.address, self.tls.as_ref())?;
            self.begin(stream, registry)?;
        }
        Ok(None)
    }

    fn begin(&mut self, mut stream: Stream, registry: &Registry) -> io::Result<()> {
        stream.register(registry, self.token)?;
        self.stream = Some(stream);
        self.state = State::Connecting;
        Ok(())
    }

    /// Whether it waits for the addresses of its name.
    pub(crate) fn is_resolving(&self) -> bool {
        self.state == State::Resolving
    }

    /// Begins to connect to the first of some addresses that can be tried; the others follow if it fails.
    ///
    /// # Errors
    /// None can be tried.
    pub(crate) fn connect(
        &mut self,
        addresses: Vec<SocketAddr>,
        now: Nanos,
        registry: &Registry,
    ) -> io::Result<()> {
        self.others = addresses.into();
        let mut last = io::ErrorKind::AddrNotAvailable.into();
        while let Some(address) = self.others.pop_front() {
            self.began = now;
            let stream = Stream::connect_tcp(address, self.tls.as_ref());
            match stream.and_then(|stream| self.begin(stream, registry)) {
                Ok(()) => return Ok(()),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Tries the next address, if the connection is not open and there is one. Returns whether it does.
    pub(crate) fn connect_next(&mut self, now: Nanos, registry: &Registry) -> bool {
        if self.state != State::Connecting || self.others.is_empty() {
            return false;
        }
        self.stream = None;
        let others = std::mem::take(&mut self.others).into();
        self.connect(others, now, registry).is_ok()
    }

    /// Whether an address has had its share of the time that connecting may take, and another can be tried.
    pub(crate) fn is_late(&self, now: Nanos, patience: Nanos) -> bool {
        let share = patience / (self.others.len() as u64 + 1);
        self.state == State::Connecting
            && !self.others.is_empty()
            && now.saturating_sub(self.began) > share
    }

    /// The address of the other end of an open connection, of TCP.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.stream.as_ref().filter(|_| self.state == State::Open)?.peer()
    }

    /// Whether its address is a name.
    pub(crate) fn has_name(&self) -> bool {
        matches!(self.address, Address::Name(_))
    }

    /// Whether the connection has just been made: it was not open before.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn open(&mut self) -> io::Result<bool> {
        let Some(stream) = &self.stream else { return Ok(false) };
        let opens = self.state == State::Connecting && stream.is_connected()?;
        if opens {
            self.state = State::Open;
        }
        Ok(opens)
    }

    /// Closes the connection and returns the flights that have no reply, with whether the server
    /// cannot have seen them.
    pub(crate) fn close(&mut self) -> (bool, VecDeque<Flight>) {
        let unseen = self.state != State::Open;
        if let Some(stream) = self.stream.take()
            && !self.flights.is_empty()
        {
            // The server must not carry out later what fails here.
            stream.abort();
        }
        self.state = State::Closed;
        self.others.clear();
        self.input.clear();
        self.out.clear();
        self.scanner = None;
        (unseen, std::mem::take(&mut self.flights))
    }

    /// Commands without a reply.
    pub(crate) fn length(&self) -> u32 {
        self.flights.len() as u32
    }

    /// The attempts that have no reply yet.
    pub(crate) fn attempts(&self) -> impl Iterator<Item = AttemptId> + '_ {
        self.flights.iter().filter_map(|flight| match flight.purpose {
            Purpose::Attempt(attempt) => Some(attempt),
            _ => None,
        })
    }

    /// Since when the first flight waits.
    pub(crate) fn oldest(&self) -> Option<Nanos> {
        self.flights.front().map(|flight| flight.since)
    }

    /// Whether there is a connection, or one is being made.
    pub(crate) fn is_open(&self) -> bool {
        self.state != State::Closed
    }

    /// Writes what waits, if the connection is open.
    ///
    /// # Errors
    /// The connection broke.
    pub(crate) fn write(&mut self) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        if self.state != State::Open {
            return Ok(());
        }
        self.out.write_to(stream, KEPT)?;
        // What an encrypted connection has of its own, or still has of what was written.
        io::Write::flush(stream)
    }

    /// Reads once.
    ///
    /// # Errors
    /// The connection broke.
    pub(crate) fn read(&mut self) -> io::Result<Filled> {
        let Some(stream) = &mut self.stream else { return Ok(Filled::Blocked) };
        if self.state != State::Open {
            return Ok(Filled::Blocked);
        }
        self.input.fill(stream, READ)
    }

    /// The next whole reply: its flight, and what the scanner found. Its bytes are the first of
    /// [`Server::take_input`], whose `consume` drops them.
    ///
    /// # Errors
    /// The server sent what is no reply, or what nobody waits for.
    pub(crate) fn next_reply(
        &mut self,
    ) -> Result<Option<(Flight, memcached::Reply)>, &'static str> {
        if self.input.bytes().is_empty() {
            return Ok(None);
        }
        let Some(flight) = self.flights.front() else { return Err("a reply without a request") };
        let (expect, limits) = (flight.expect, &self.limits);
        let scanner = self.scanner.get_or_insert_with(|| Scanner::new(expect, limits));
        match scanner.advance(self.input.bytes()) {
            Scanned::Incomplete { .. } => Ok(None),
            Scanned::Malformed(why) => Err(why),
            Scanned::Complete(reply) => {
                self.scanner = None;
                Ok(self.flights.pop_front().map(|flight| (flight, reply)))
            }
        }
    }

    /// Takes back the flight of a reply that is not its own: it has none.
    pub(crate) fn put_back(&mut self, flight: Flight) {
        self.flights.push_front(flight);
    }

    /// The buffer of replies, taken out while they are handled; [`Server::give_back`] ends that.
    pub(crate) fn take_input(&mut self) -> In {
        std::mem::replace(&mut self.input, In::new())
    }

    pub(crate) fn give_back(&mut self, input: In) {
        if self.is_open() {
            self.input = input;
        }
    }
}
