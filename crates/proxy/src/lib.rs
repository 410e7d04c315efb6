//! A proxy for memcached's protocol: clients on one side, pools of memcached servers on the other.
//!
//! `engine::pool` decides (which server a key belongs to, which replica answers, when a request is
//! sent to a second server, what a failed server means); the crate `memcached` reads and writes the
//! protocol; this crate moves the bytes. See `docs/memcached.md`.
//!
//! Each thread has its own clients and its own connection to every server; the decisions are
//! shared, behind a mutex that is held for some hundred nanoseconds of a request. Requests of all
//! clients of a thread travel to a server in one stream and in one system call for each turn of
//! the loop (`thread`), which is why a busy proxy spends less processor time on a request than an
//! idle one. Requests that a client sent behind a slow one start at once; their replies wait for
//! their turn.
//!
//! - `thread`: the loop. `client`, `server`: connections. `request`: the requests under way.
//! - `reply`: replies made from those of servers. `local`: requests answered here.
//! - `names`, `place`: where servers with host names are. `outages`: what the log says of servers.
//! - `reload`: other pools for a running proxy; `carried`: the connections that it keeps. `shared`: what threads share.
//!   `lane`: what they record. `counts`: what they count. `stream`, `tls`, `buffer`, `timer`: sockets, bytes and time.

mod buffer;
mod carried;
mod client;
mod counts;
mod error;
mod lane;
mod local;
mod names;
mod outages;
mod place;
mod reload;
mod reply;
mod request;
mod server;
mod settings;
mod shared;
mod stream;
mod thread;
mod timer;
mod tls;

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use engine::invariant::Invariants;
use engine::pool::Status;
use ground::window::{Nanos, Sample, Window};
use mio::{Poll, Waker};

pub use error::Error;
pub use memcached::Limits;
pub use settings::Settings;
pub use stream::Address;
pub use tls::Tls;

use carried::Carried;
use shared::Shared;
use stream::{Listener, Stream};
use thread::Thread;

/// What the processes before and after this one have to do with its sockets.
#[derive(Default)]
pub struct Handover {
    /// The listening socket that the process was given; without one it makes its own.
    pub listener: Option<TcpListener>,
    /// Connections of clients to it that the process before has passed on.
    pub connections: Vec<TcpStream>,
    /// Keeps a connection without a request for the next process; returns whether it does.
    pub pass_on: Option<fn(BorrowedFd<'_>) -> bool>,
}

/// A running proxy.
pub struct Proxy {
    address: Address,
    /// As configured.
    listen: Address,
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// How clients come in.
pub(crate) struct Entrance {
    listener: Listener,
    carried: Vec<Carried>,
    pass_on: Option<fn(BorrowedFd<'_>) -> bool>,
    /// What the threads of the proxy before shared, whose place this one takes.
    before: Option<Arc<Shared>>,
}

impl Proxy {
    /// Starts a proxy.
    ///
    /// # Errors
    /// The address cannot be listened on, or a thread cannot be started.
    pub fn start(settings: Settings, handover: Handover, now: Nanos) -> Result<Proxy, Error> {
        let Handover { listener, connections, pass_on } = handover;
        let listener = match listener {
            Some(listener) => Listener::from_std(listener)?,
            None => Listener::bind(&settings.listen, "memcached.listen")?,
        };
        let streams = connections.into_iter().filter_map(|it| Stream::from_std(it).ok());
        let carried = streams.map(Carried::from).collect();
        Proxy::enter(settings, Entrance { listener, carried, pass_on, before: None }, now)
    }

    fn enter(settings: Settings, entrance: Entrance, now: Nanos) -> Result<Proxy, Error> {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let count = if settings.threads == 0 { cores() } else { settings.threads };
        let Entrance { listener, carried, pass_on, before } = entrance;
        let address = listener.address()?;
        let mut polls = Vec::new();
        let mut wakers = Vec::new();
        for _ in 0..count {
            let poll = Poll::new().map_err(Error::Poll)?;
            wakers.push(Waker::new(poll.registry(), thread::waker_token())?);
            polls.push(poll);
        }
        let mut shared = Shared::new(&settings, wakers, pass_on, now);
        if let Some(before) = before {
            shared.inherit(&before, carried.len());
        }
        let shared = Arc::new(shared);
        let mut accepting = Some((listener, carried));
        let mut threads = Vec::new();
        for (index, poll) in polls.into_iter().enumerate() {
            let thread = Thread::new(shared.clone(), index, poll, accepting.take())?;
            let spawned = std::thread::Builder::new()
                .name(format!("memcached/{index}"))
                .spawn(move || thread.run())?;
            threads.push(spawned);
        }
        let listen = settings.listen;
        Ok(Proxy { address, listen, shared, threads: Mutex::new(threads) })
    }

    /// Where it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Open connections of clients.
    pub fn connections(&self) -> usize {
        self.shared.connections()
    }

    /// Maximum open connections of clients.
    pub fn connections_max(&self) -> usize {
        self.shared.connections_max()
    }

    /// The state of its pools and servers.
    pub fn status(&self, now: Nanos) -> Status {
        self.shared.pool_status(now)
    }

    /// The broken invariants of the engine since the start.
    pub fn invariants(&self) -> Invariants {
        self.shared.pools().invariants()
    }

    /// The windows that ended by `now` (with `flush` also the open ones), and the samples since the
    /// last call: the queue `gateway` of the clients' requests, and those of pools and servers.
    pub fn observe(&self, now: Nanos, flush: bool) -> (Vec<Window>, Vec<Sample>) {
        // Merged by start time, because threads may return different numbers of windows.
        let mut merged: BTreeMap<u64, Window> = BTreeMap::new();
        let mut samples = Vec::new();
        for lane in self.shared.lanes() {
            let (windows, sampled) = lane.take(now, flush);
            samples.extend(sampled);
            for window in windows {
                match merged.get_mut(&window.start_unix_us) {
                    Some(sum) => sum.merge(&window, true),
                    None => {
                        merged.insert(window.start_unix_us, window);
                    }
                }
            }
        }
        let mut windows: Vec<Window> = merged.into_values().collect();
        let mut pools = self.shared.pools();
        windows.extend(if flush { pools.flush_windows(now) } else { pools.windows(now) });
        (windows, samples)
    }

    /// Takes no further connections, lets requests under way end within `drain`, and closes.
    pub fn stop(&self) {
        self.shared.stop();
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            let _ = thread.join();
        }
    }
}
