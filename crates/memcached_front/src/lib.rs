//! memcached's protocol in front of a store: `get`, `set` and their kin on the objects of a node, or of a cluster through
//! its gateway.
//!
//! A key is an object's key, a value its bytes; the client's flags and the time at which the value
//! expires are metadata of the object. What a read finds comes from the tiers or from the
//! origin behind them; what a write acknowledges is in the origin. The compare-and-swap number of a
//! value is derived from its etag, so it changes with the bytes, the flags and the expiry, and not
//! with the number of writes; it is metadata where a client chose it, or where it outlives a change of the metadata. With `origin.kind = "none"` the node is a cache: what is written is in its
//! tiers.
//!
//! A connection's requests are carried out one after another; the keys of a `get` are read side by side.

mod change;
mod counts;
mod meta;
mod notes;
mod stats;
mod values;

use std::ops::Deref;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use ground::Key;
use ground::window::{Nanos, Operation, Outcome};
use memcached::{Kind, Limits, Parsed, Request, Verb};
use record::clock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::warn;

use counts::{Count, Stats};
use front::{Front, Protocol};
use notes::{Notes, number_of};
use store::{Error, ReadRequest, Recorded, Store, Version};
use wire::connections::{Activity, Seat};
use wire::inherited;
use wire::lane::ThreadRecorder;

const END: &[u8] = b"END\r\n";
/// The version that clients are told: they read memcached's from its beginning.
const VERSION: &str = concat!("1.6.38-concertina-", env!("CARGO_PKG_VERSION"));
/// Replies that are kept until they are sent.
const OUT_BYTES: usize = 256 << 10;
/// Bytes of one read.
const READ: usize = 64 << 10;

/// A store as clients of memcached see it.
pub struct Memcached(Arc<Shared>);

/// What the connections have in common.
struct Shared {
    store: Arc<dyn Store>,
    stats: Stats,
    /// The `flush_all` that is to come: one, as in memcached, where a later one takes the place of an earlier one.
    flush: Mutex<Option<AbortHandle>>,
}

impl Memcached {
    /// In front of a store.
    pub fn new(store: Arc<dyn Store>) -> Arc<Memcached> {
        let stats = Stats::new(store.front().lanes.len());
        Arc::new(Memcached(Arc::new(Shared { store, stats, flush: Mutex::default() })))
    }
}

impl Deref for Memcached {
    type Target = Front;
    fn deref(&self) -> &Front {
        self.0.store.front()
    }
}

impl Protocol for Memcached {
    fn too_many() -> Vec<u8> {
        b"SERVER_ERROR too many open connections\r\n".to_vec()
    }

    async fn connection(
        self: Arc<Self>,
        lane: Arc<ThreadRecorder>,
        mut stream: TcpStream,
        activity: Arc<Activity>,
        stop: watch::Receiver<bool>,
    ) {
        if activity.seat() == Seat::Spare {
            let _ = timeout(Duration::from_secs(1), stream.write_all(&Memcached::too_many())).await;
            return;
        }
        let _ = stream.set_nodelay(true);
        let config = &self.config.memcached;
        let limits = Limits {
            value_bytes_max: config.value_bytes_max.0 as usize,
            keys_max: config.keys_max as usize,
            line_bytes_max: (config.keys_max as usize).saturating_mul(251) + 16,
            ..Limits::default()
        };
        let stall = Duration::from_secs_f64(config.stall_s);
        let thread = self.lanes.iter().position(|other| Arc::ptr_eq(other, &lane)).unwrap_or(0);
        let (shared, store) = (self.0.clone(), self.0.store.clone());
        let mut session = Session { shared, store, thread, lane, activity, out: Vec::new() };
        session.note(Count::Connection, 1);
        session.run(&mut stream, &limits, stall, stop).await;
    }

    fn under_way(&self) -> usize {
        self.0.store.under_way()
    }
}

/// A connection.
struct Session {
    shared: Arc<Shared>,
    store: Arc<dyn Store>,
    /// The place of its thread among those of the front.
    thread: usize,
    lane: Arc<ThreadRecorder>,
    activity: Arc<Activity>,
    /// Replies that were not sent yet.
    out: Vec<u8>,
}

/// Whether a connection goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    GoOn,
    Close,
}

/// The client, and how long it may take no byte of a reply, or send none of a request.
struct To<'a> {
    stream: &'a mut TcpStream,
    stall: Duration,
}

/// What a client has sent that is not answered.
struct Input {
    bytes: Vec<u8>,
    /// Bytes of a refused value that are still to come.
    skip: u64,
    /// The bytes that the next request has at least, as far as its beginning says so.
    least: usize,
    /// When its first line, or the last part of a value, came.
    began: Instant,
    /// When a request was last answered, on the monotonic clock; 0: none was.
    answered: Nanos,
}

impl Input {
    fn new() -> Input {
        Input { bytes: Vec::new(), skip: 0, least: 0, began: Instant::now(), answered: 0 }
    }

    fn drop_skipped(&mut self) {
        let dropped = self.skip.min(self.bytes.len() as u64);
        self.bytes.drain(..dropped as usize);
        self.skip -= dropped;
    }

    fn drop_answered(&mut self, used: usize) {
        self.bytes.drain(..used);
        self.bytes.shrink_to(READ);
        self.began = Instant::now();
        self.answered = clock::now();
    }

    /// Whether the client has begun something that it has to finish.
    fn owes(&self) -> bool {
        !self.bytes.is_empty() || self.skip > 0
    }

    /// Whether no value is under way. A part of a line is no request yet, a part of a value is.
    fn is_line(&self) -> bool {
        self.least == 0 && self.skip == 0
    }

    /// Until when more must have come: a line within the time as a whole; of a value, every part.
    fn until(&self, stall: Duration) -> Instant {
        let whole_line = !self.bytes.is_empty() && self.is_line();
        if whole_line { self.began + stall } else { Instant::now() + stall }
    }
}

impl Session {
    async fn run(
        &mut self,
        stream: &mut TcpStream,
        limits: &Limits,
        stall: Duration,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut input = Input::new();
        loop {
            input.drop_skipped();
            let Ok(then) = self.answer(&mut input, limits, &mut To { stream, stall }).await else {
                return;
            };
            if self.send(stream, stall).await.is_err() || then == Then::Close {
                return;
            }
            if self.receive(&mut input, &mut To { stream, stall }, &mut stop).await.is_err() {
                return;
            }
        }
    }

    /// Answers the requests that are complete. Fails if the client does not take the replies.
    async fn answer(
        &mut self,
        input: &mut Input,
        limits: &Limits,
        to: &mut To<'_>,
    ) -> Result<Then, ()> {
        let mut used = 0;
        let mut then = Then::GoOn;
        while then == Then::GoOn
            && used < input.bytes.len()
            && input.bytes.len() - used >= input.least
        {
            match memcached::parse(&input.bytes[used..], limits) {
                Parsed::Incomplete { needed } => {
                    input.least = needed;
                    break;
                }
                Parsed::Request(request) => {
                    then = self.request(&request, to).await;
                    used += request.whole.len();
                }
                Parsed::Invalid { reply, consumed, skip: more, close, drops } => {
                    if let Some(drops) = drops {
                        self.drop_value(&drops).await;
                    }
                    let binary = memcached::refuse_binary(&input.bytes[used..]);
                    if binary.is_some() {
                        warn!("{}", memcached::BINARY_CLIENT);
                    }
                    self.out.extend_from_slice(binary.as_deref().unwrap_or(reply.as_bytes()));
                    let here = more.min((input.bytes.len() - used - consumed) as u64);
                    used += consumed + here as usize;
                    input.skip = more - here;
                    then = if close { Then::Close } else { Then::GoOn };
                }
            }
            input.least = 0;
            if self.out.len() >= OUT_BYTES {
                self.send(to.stream, to.stall).await?;
            }
        }
        if used > 0 {
            input.drop_answered(used);
        }
        Ok(then)
    }

    /// Waits for more of the client. Fails at the end of the connection.
    async fn receive(
        &mut self,
        input: &mut Input,
        from: &mut To<'_>,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<(), ()> {
        let owes = input.owes();
        let until = input.until(from.stall);
        input.bytes.reserve(READ);
        if input.is_line() {
            self.activity.wait(input.answered);
        }
        let read = async {
            let bytes = &mut input.bytes;
            match owes {
                true => timeout_at(until, from.stream.read_buf(bytes)).await.unwrap_or(Ok(0)),
                false => from.stream.read_buf(bytes).await,
            }
        };
        let count = tokio::select! {
            count = read => count,
            // Where connections are passed on, the rest of a request is waited for.
            _ = stop.wait_for(|stop| *stop), if !(owes && inherited::keeps()) => {
                if !owes {
                    inherited::pass_on(from.stream.as_fd());
                }
                return Err(());
            }
        };
        self.activity.begin();
        if !owes {
            input.began = Instant::now();
        }
        match count {
            Ok(count @ 1..) => {
                self.note(Count::BytesRead, count as u64);
                Ok(())
            }
            _ => Err(()),
        }
    }

    /// Sends the replies.
    async fn send(&mut self, stream: &mut TcpStream, stall: Duration) -> Result<(), ()> {
        let mut rest = &self.out[..];
        while !rest.is_empty() {
            match timeout(stall, stream.write(rest)).await {
                Ok(Ok(count @ 1..)) => rest = &rest[count..],
                _ => return Err(()),
            }
        }
        self.note(Count::BytesWritten, self.out.len() as u64);
        self.out.clear();
        self.out.shrink_to(READ);
        Ok(())
    }

    /// Sends what there is of a reply if it is much, so that a reply may be longer than the memory that it takes. What is sent
    /// cannot be taken back: `start` is where the rest begins.
    async fn send_much(&mut self, to: &mut To<'_>, start: &mut usize) -> Then {
        if self.out.len() < OUT_BYTES {
            return Then::GoOn;
        }
        *start = 0;
        match self.send(to.stream, to.stall).await {
            Ok(()) => Then::GoOn,
            Err(()) => Then::Close,
        }
    }

    /// Carries out a request, and appends its reply.
    async fn request(&mut self, request: &Request<'_>, to: &mut To<'_>) -> Then {
        let start = self.out.len();
        match request.verb {
            Verb::Quit => return Then::Close,
            Verb::Get | Verb::Gets => return self.get(request, to).await,
            Verb::MetaGet => self.meta_get(request).await,
            Verb::Set | Verb::Add | Verb::Replace | Verb::Cas => self.store(request).await,
            Verb::MetaSet => self.meta_set(request).await,
            Verb::Delete => self.delete(request).await,
            Verb::MetaDelete => self.meta_delete(request).await,
            Verb::MetaArithmetic => self.meta_arithmetic(request).await,
            Verb::MetaDebug => self.meta_debug(request).await,
            Verb::Append | Verb::Prepend => self.join(request).await,
            Verb::Incr | Verb::Decr => self.count(request).await,
            Verb::Touch => self.touch(request).await,
            Verb::Gat | Verb::Gats => return self.get_and_touch(request, to).await,
            Verb::FlushAll => self.flush(request),
            Verb::MetaNoop => self.out.extend_from_slice(b"MN\r\n"),
            Verb::Verbosity => self.out.extend_from_slice(b"OK\r\n"),
            Verb::Version => {
                self.out.extend_from_slice(format!("VERSION {VERSION}\r\n").as_bytes());
            }
            Verb::Stats => self.stats(request),
        }
        let said = self.out.get(start..).unwrap_or_default();
        self.note_reply(request, said);
        let answers = request.kind() != Kind::Local || request.noreply;
        if answers && memcached::is_suppressed(request.verb, request.quiet, request.noreply, said) {
            self.out.truncate(start);
        }
        Then::GoOn
    }

    /// Appends an error of the server, in one line.
    fn fail(&mut self, error: &Error) {
        self.out.extend_from_slice(b"SERVER_ERROR ");
        let line = error.text().replace(['\r', '\n'], " ");
        self.out.extend_from_slice(line.as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    /// The value of a key; `None` if there is none, or it has expired.
    async fn read(&self, read: &ReadRequest) -> Result<Option<Value>, Error> {
        let mut record = self.lane.received(Operation::Get, &read.key);
        let found = self.store.get(read, &mut record).await;
        value_of((found, record), self.value_bytes_max()).await
    }

    /// The largest object that is read as a value: as large as what a node keeps, whoever wrote it.
    fn value_bytes_max(&self) -> u64 {
        let config = &self.store.front().config;
        config.node.object_bytes_max.0.max(config.memcached.value_bytes_max.0)
    }

    /// `get KEY*`, `gets KEY*`.
    async fn get(&mut self, request: &Request<'_>, to: &mut To<'_>) -> Then {
        let several = request.keys().nth(1).is_some();
        let operation = if several { Operation::MultiGet } else { Operation::Get };
        let (store, lane, max) = (self.store.clone(), self.lane.clone(), self.value_bytes_max());
        let mut start = self.out.len();
        let reads = request
            .keys()
            .map(|key| (ReadRequest::get(Key::from(key)), lane.received(operation, key)));
        let mut values = store.multi_get(reads);
        for key in request.keys() {
            let Some(found) = values.next().await else { break };
            match value_of(found, max).await {
                Ok(Some(value)) => {
                    let number = number_of(&value.version);
                    self.put_value(key, &value, (request.verb == Verb::Gets).then_some(number));
                    self.note(Count::GetHit, 1);
                }
                Ok(None) => self.note(Count::GetMiss, 1),
                Err(error) => {
                    // An error is the whole reply, or the end of one.
                    self.out.truncate(start);
                    self.fail(&error);
                    return Then::GoOn;
                }
            }
            if self.send_much(to, &mut start).await == Then::Close {
                return Then::Close;
            }
        }
        self.out.extend_from_slice(END);
        Then::GoOn
    }

    fn put_value(&mut self, key: &[u8], value: &Value, number: Option<u64>) {
        let (flags, size) = (Notes::read(&value.version).flags, value.bytes.len());
        self.out.extend_from_slice(b"VALUE ");
        self.out.extend_from_slice(key);
        let mut rest = format!(" {flags} {size}");
        if let Some(number) = number {
            rest += &format!(" {number}");
        }
        self.out.extend_from_slice(rest.as_bytes());
        self.out.extend_from_slice(b"\r\n");
        self.out.extend_from_slice(&value.bytes);
        self.out.extend_from_slice(b"\r\n");
    }
}

/// A value that was read.
struct Value {
    version: Version,
    bytes: Bytes,
}

/// The value that a read found, if it has not expired.
async fn value_of((found, mut record): Recorded, bytes_max: u64) -> Result<Option<Value>, Error> {
    match found {
        Ok(found) if !Notes::read(&found.version).is_expired() => {
            let version = found.version.clone();
            Ok(Some(Value { version, bytes: found.gather(bytes_max).await? }))
        }
        Ok(_) | Err(Error::NotFound) => {
            record.outcome = Outcome::Miss;
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
