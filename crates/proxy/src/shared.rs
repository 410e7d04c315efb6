//! What the threads of a proxy share.

use std::fmt::Write as _;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::pool::{Action, KeyHash, Pools, Refusal, Routes};
use engine::route::health::State;
use ground::window::Nanos;
use memcached::Limits;
use mio::Waker;
use record::clock;

use crate::carried::Carried;
use crate::counts::{Count, Counters, Totals};
use crate::lane::Lane;
use crate::outages::{OutageLog, Reasons};
use crate::place::Place;
use crate::settings::Settings;
use crate::stream::{Address, Listener};
use crate::tls::Tls;

/// What the proxy says its version is. Clients read that of memcached from the beginning.
pub(crate) const VERSION: &str = concat!("1.6.38-concertina-", env!("CARGO_PKG_VERSION"));

/// What others have for a thread.
#[derive(Default)]
pub(crate) struct Mail {
    pub(crate) actions: Vec<Action>,
    pub(crate) streams: Vec<Carried>,
    /// Connections to servers whose names were looked up.
    pub(crate) resolved: Vec<usize>,
    /// Whether a server is elsewhere than before.
    pub(crate) close_left: bool,
}

/// Where others put what they have for a thread.
struct Mailbox {
    inside: Mutex<Mail>,
    /// Whether its thread is to close its longest idle connection.
    evict: AtomicBool,
    waker: Waker,
    /// Connections that it serves.
    connections: AtomicUsize,
}

/// What the threads share.
pub(crate) struct Shared {
    pools: Mutex<Pools>,
    routes: Routes,
    /// Routes whose keys are moved from another pool.
    warm: Vec<bool>,
    /// Routes whose keys have several servers.
    replicated: Vec<bool>,
    /// Whether all commands of a write are sent at once: none is copied to another pool, nor moved.
    pub(crate) sends_once: bool,
    mailboxes: Vec<Mailbox>,
    lanes: Vec<Lane>,
    counters: Vec<Counters>,
    /// What the proxies before had counted.
    earlier: Totals,
    /// What the counts were at the last `stats reset`.
    baseline: Mutex<Totals>,
    /// What the log says of servers; the first thread looks at them.
    outages: Mutex<OutageLog>,
    stopping: AtomicBool,
    /// Whether threads that stop leave their clients and the listener to others.
    collecting: AtomicBool,
    pub(crate) collected: Mutex<(Option<Listener>, Vec<Carried>)>,
    /// No thread accepts connections any more.
    closed: AtomicBool,
    /// Keeps a connection without a request for the next process.
    pub(crate) pass_on: Option<fn(BorrowedFd<'_>) -> bool>,
    running: AtomicUsize,
    connections_max: usize,
    accepted: AtomicUsize,
    start: Nanos,
    pub(crate) addresses: Vec<Address>,
    /// Where they are, if they have names.
    pub(crate) places: Vec<Place>,
    /// Why they failed.
    pub(crate) reasons: Reasons,
    pub(crate) tls: Vec<Option<Tls>>,
    pub(crate) names: Vec<String>,
    pub(crate) limits: Limits,
    pub(crate) deadline: Nanos,
    pub(crate) stall: Nanos,
    pub(crate) drain: Nanos,
    pub(crate) ping_timeout: Nanos,
    /// A connection whose first command has no reply for this long is closed.
    pub(crate) stuck: Nanos,
}

impl Shared {
    pub(crate) fn new(
        settings: &Settings,
        wakers: Vec<Waker>,
        pass_on: Option<fn(BorrowedFd<'_>) -> bool>,
        now: Nanos,
    ) -> Shared {
        let pools = &settings.pools;
        let routes = Routes::new(pools);
        let warm = pools.routes.iter().map(|route| route.warm_from.is_some()).collect();
        let has_replicas = |pool: usize| {
            let pool = pools.pools.get(pool);
            pool.is_some_and(|pool| pool.routing.replicas(pool.servers.len()) > 1)
        };
        let pools_of = |route: &engine::pool::Route| [Some(route.pool), route.gutter];
        let replicated = pools.routes.iter();
        let replicated = replicated.map(|it| pools_of(it).into_iter().flatten().any(has_replicas));
        let replicated = replicated.collect();
        let sends_more = |route: &engine::pool::Route| route.copy_to.or(route.warm_from).is_some();
        let sends_once = !pools.routes.iter().any(sends_more);
        let timeout = pools.pools.iter().map(|pool| pool.timeout).max().unwrap_or_default();
        let lane = || Lane::new(pools.windows.clone(), settings.sample_one_in, now);
        Shared {
            lanes: wakers.iter().map(|_| lane()).collect(),
            counters: wakers.iter().map(|_| Counters::default()).collect(),
            earlier: Totals::default(),
            baseline: Mutex::default(),
            outages: Mutex::default(),
            running: AtomicUsize::new(wakers.len()),
            mailboxes: wakers
                .into_iter()
                .map(|waker| Mailbox {
                    inside: Mutex::default(),
                    evict: AtomicBool::new(false),
                    waker,
                    connections: AtomicUsize::new(0),
                })
                .collect(),
            pools: Mutex::new(Pools::new(pools.clone(), now)),
            routes,
            warm,
            replicated,
            sends_once,
            stopping: AtomicBool::new(false),
            collecting: AtomicBool::new(false),
            collected: Mutex::default(),
            closed: AtomicBool::new(false),
            pass_on,
            connections_max: settings.connections_max,
            accepted: AtomicUsize::new(0),
            start: now,
            addresses: settings.addresses.clone(),
            places: settings.addresses.iter().map(|_| Place::default()).collect(),
            reasons: Reasons::new(settings.addresses.len()),
            tls: settings.tls.clone(),
            names: pools.servers.iter().map(|server| server.name.clone()).collect(),
            limits: settings.limits,
            deadline: settings.deadline,
            stall: settings.stall,
            drain: settings.drain,
            ping_timeout: pools.ping_timeout,
            stuck: timeout.saturating_mul(2),
        }
    }

    /// The decisions.
    pub(crate) fn pools(&self) -> MutexGuard<'_, Pools> {
        // A panic inside the engine means a broken invariant: every later request must fail, rather
        // than be routed by a state that cannot be trusted.
        #[expect(clippy::expect_used, reason = "see above")]
        self.pools.lock().expect("the pools failed")
    }

    pub(crate) fn lane(&self, thread: usize) -> &Lane {
        &self.lanes[thread]
    }

    pub(crate) fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    pub(crate) fn counters(&self, thread: usize) -> &Counters {
        &self.counters[thread]
    }

    /// The name of a server, or of the second connection to it.
    pub(crate) fn name(&self, server: usize) -> &str {
        &self.names[server % self.names.len()]
    }

    /// Where a key belongs.
    pub(crate) fn key_hash(&self, key: &[u8], base64: bool) -> KeyHash {
        if base64 {
            // The same item as under the key in plain.
            let mut plain = Vec::new();
            memcached::decode_base64(key, &mut plain);
            return self.key_hash(&plain, false);
        }
        // A route with the empty prefix is checked for at start.
        self.routes.key(key).unwrap_or(KeyHash { route: 0, ring: 0, id: 0 })
    }

    /// Whether a get of several keys is asked key by key: values may have to be moved from another pool, or it gives items a
    /// new time to live, which is then copied to each key's other servers, or its line is longer than a server reads.
    pub(crate) fn splits(&self, request: &memcached::Request<'_>) -> bool {
        let changes = request.kind() == memcached::Kind::Update && self.replicated.contains(&true);
        let is_replicated = |route| self.replicated.get(usize::from(route)).copied();
        let is_replicated = |key| self.routes.route(key).and_then(is_replicated).unwrap_or(false);
        request.is_line_long()
            || changes && request.keys().any(is_replicated)
            || self.warms(request.keys())
    }

    /// Whether one of some keys may have to be moved from another pool.
    pub(crate) fn warms<'k>(&self, mut keys: impl Iterator<Item = &'k [u8]>) -> bool {
        let is_warm = |route| self.warm.get(usize::from(route)).copied().unwrap_or(false);
        self.warm.contains(&true) && keys.any(|key| self.routes.route(key).is_some_and(is_warm))
    }

    /// A seat for a further connection: the thread that has fewest. `None` if there are as many as
    /// there may be.
    pub(crate) fn seat(&self) -> Option<usize> {
        let open = self.connections();
        let load = |m: &Mailbox| m.connections.load(Ordering::Relaxed);
        let least = (0..self.mailboxes.len()).min_by_key(|i| load(&self.mailboxes[*i]));
        let thread = least.filter(|_| open < self.connections_max)?;
        self.mailboxes[thread].connections.fetch_add(1, Ordering::Relaxed);
        self.accepted.fetch_add(1, Ordering::Relaxed);
        Some(thread)
    }

    pub(crate) fn leave(&self, thread: usize) {
        self.mailboxes[thread].connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Asks the other thread that has most connections to close its longest idle one; returns whether there is another.
    pub(crate) fn evict_elsewhere(&self, thread: usize) -> bool {
        let others = self.mailboxes.iter().enumerate().filter(|(index, _)| *index != thread);
        let most = others.max_by_key(|(_, m)| m.connections.load(Ordering::Relaxed));
        let Some((_, mailbox)) = most else { return false };
        mailbox.evict.store(true, Ordering::Relaxed);
        let _ = mailbox.waker.wake();
        true
    }

    /// Whether a thread was asked to close its longest idle connection.
    pub(crate) fn is_to_evict(&self, thread: usize) -> bool {
        self.mailboxes[thread].evict.swap(false, Ordering::Relaxed)
    }

    /// Maximum open connections of clients.
    pub(crate) fn connections_max(&self) -> usize {
        self.connections_max
    }

    /// Open connections of clients.
    pub(crate) fn connections(&self) -> usize {
        self.mailboxes.iter().map(|m| m.connections.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn mail_action(&self, thread: usize, action: Action) {
        let Some(mailbox) = self.mailboxes.get(thread) else { return };
        mailbox.inside.lock().unwrap_or_else(PoisonError::into_inner).actions.push(action);
        let _ = mailbox.waker.wake();
    }

    pub(crate) fn mail_stream(&self, thread: usize, stream: Carried) {
        let Some(mailbox) = self.mailboxes.get(thread) else { return };
        mailbox.inside.lock().unwrap_or_else(PoisonError::into_inner).streams.push(stream);
        let _ = mailbox.waker.wake();
    }

    pub(crate) fn mail_look_up(&self, thread: usize, connection: usize) {
        let Some(mailbox) = self.mailboxes.get(thread) else { return };
        let mut mail = mailbox.inside.lock().unwrap_or_else(PoisonError::into_inner);
        mail.resolved.push(connection);
        drop(mail);
        let _ = mailbox.waker.wake();
    }

    /// Has every thread close its connections to where servers were before.
    pub(crate) fn close_left(&self) {
        for mailbox in &self.mailboxes {
            mailbox.inside.lock().unwrap_or_else(PoisonError::into_inner).close_left = true;
            let _ = mailbox.waker.wake();
        }
    }

    /// What others have for a thread.
    pub(crate) fn mail(&self, thread: usize) -> Mail {
        let mailbox = &self.mailboxes[thread];
        std::mem::take(&mut *mailbox.inside.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Notes that the listener is closed: no thread gets further connections from it.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Whether it is.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Has threads, when they stop, leave their clients and the listener to others.
    pub(crate) fn collect(&self) {
        self.collecting.store(true, Ordering::Release);
    }

    pub(crate) fn is_collecting(&self) -> bool {
        self.collecting.load(Ordering::Acquire)
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        for mailbox in &self.mailboxes {
            let _ = mailbox.waker.wake();
        }
    }

    /// The error reply for a refused request: the reason, and which servers it concerns.
    pub(crate) fn refusal(&self, why: Refusal) -> String {
        let names = |servers: u64| {
            let named = self.names.iter().take(64).enumerate();
            let failed = named.filter(|(at, _)| servers >> at & 1 == 1).map(|(_, name)| &**name);
            let failed: Vec<&str> = failed.collect();
            // Servers from the 65th on have no bit.
            if failed.is_empty() { "a server".to_owned() } else { failed.join(", ") }
        };
        match why {
            Refusal::Busy => "SERVER_ERROR busy: too many requests wait\r\n".to_owned(),
            Refusal::TooLate { servers: 0 } => "SERVER_ERROR timed out\r\n".to_owned(),
            Refusal::TooLate { servers } => {
                format!("SERVER_ERROR timed out at {}\r\n", names(servers))
            }
            Refusal::Failed { servers } => format!("SERVER_ERROR failed at {}\r\n", names(servers)),
            Refusal::NoServer => "SERVER_ERROR no server of the key can be reached\r\n".to_owned(),
        }
    }

    /// Appends the reply to `stats`.
    pub(crate) fn put_stats(&self, out: &mut Vec<u8>) {
        let now = clock::now();
        let totals = self.totals().since(&self.baseline());
        let mut text = String::new();
        let mut put = |name: &str, value: String| {
            let _ = write!(text, "STAT {name} {value}\r\n");
        };
        let unix = (i128::from(now) + clock::unix_offset_ns()) / 1_000_000_000;
        put("pid", std::process::id().to_string());
        put("uptime", ((now - self.start) / 1_000_000_000).to_string());
        put("time", unix.to_string());
        put("version", VERSION.to_owned());
        put("pointer_size", usize::BITS.to_string());
        put("threads", self.mailboxes.len().to_string());
        put("curr_connections", self.connections().to_string());
        put("total_connections", self.accepted.load(Ordering::Relaxed).to_string());
        put("cmd_touch", (totals.get(Count::TouchHit) + totals.get(Count::TouchMiss)).to_string());
        for (name, count) in [
            ("cmd_get", Count::Get),
            ("cmd_set", Count::Set),
            ("cmd_flush", Count::Flush),
            ("get_hits", Count::GetHit),
            ("get_misses", Count::GetMiss),
            ("touch_hits", Count::TouchHit),
            ("touch_misses", Count::TouchMiss),
            ("delete_hits", Count::DeleteHit),
            ("delete_misses", Count::DeleteMiss),
            ("incr_hits", Count::IncrHit),
            ("incr_misses", Count::IncrMiss),
            ("decr_hits", Count::DecrHit),
            ("decr_misses", Count::DecrMiss),
            ("failed_requests", Count::Failed),
            ("bytes_written", Count::BytesWritten),
            ("refused_requests", Count::Refused),
        ] {
            put(name, totals.get(count).to_string());
        }
        for (name, value) in self.status(now) {
            put(&name, value);
        }
        out.extend_from_slice(text.as_bytes());
        out.extend_from_slice(b"END\r\n");
    }

    fn totals(&self) -> Totals {
        let mut sum = self.earlier.clone();
        self.counters.iter().for_each(|counters| sum.add(counters));
        sum
    }

    /// Counts go on from those of the proxy before, of whose connections `carried` go on.
    pub(crate) fn go_on(&mut self, before: &Shared, carried: usize) {
        self.start = before.start;
        self.earlier = before.totals();
        self.baseline = Mutex::new(before.baseline());
        let accepted = before.accepted.load(Ordering::Relaxed).saturating_sub(carried);
        self.accepted = AtomicUsize::new(accepted);
    }

    /// What the log says of servers.
    pub(crate) fn outages(&self) -> MutexGuard<'_, OutageLog> {
        self.outages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn baseline(&self) -> Totals {
        self.baseline.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// `stats reset`: counts begin anew. Those of pools and servers, which metrics report too, go on.
    pub(crate) fn reset_stats(&self) {
        *self.baseline.lock().unwrap_or_else(PoisonError::into_inner) = self.totals();
    }

    /// The state of pools and servers.
    pub(crate) fn pool_status(&self, now: Nanos) -> engine::pool::Status {
        let mut status = self.pools().status(now);
        for (at, server) in status.servers.iter_mut().enumerate() {
            let is_lost = server.state == State::Suspect;
            server.failure = is_lost.then(|| self.reasons.reason(at));
        }
        status
    }

    /// The state of pools and servers, as names and values.
    fn status(&self, now: Nanos) -> Vec<(String, String)> {
        let status = self.pools().status(now);
        let mut all = Vec::new();
        for pool in &status.pools {
            let mut put = |what: &str, value: u64| {
                all.push((format!("pool.{}.{what}", pool.name), value.to_string()));
            };
            put("in_service", u64::from(pool.in_service));
            put("waiting", u64::from(pool.waiting));
            put("hedges", pool.counts.attempts.hedges);
            put("copies", pool.counts.copies);
            put("copies_left_out", pool.counts.copies_left_out);
            put("warmed", pool.counts.warmed);
            put("hedges_won", pool.counts.attempts.hedges_won);
            put("retries", pool.counts.attempts.retries);
            put("refused_busy", pool.counts.refused_busy);
            put("refused_too_late", pool.counts.refused_too_late);
            put("refused_failed", pool.counts.refused_failed);
            put("refused_no_server", pool.counts.refused_no_server);
        }
        for server in &status.servers {
            let mut put = |what: &str, value: String| {
                all.push((format!("server.{}.{what}", server.name), value));
            };
            put("state", server.state.as_str().to_owned());
            put("outstanding", server.outstanding.to_string());
            put("expected_response_us", format!("{:.0}", server.expected_response_ms * 1e3));
            put("flushes", server.flushes.to_string());
        }
        all
    }

    /// Appends the reply to `stats settings`.
    pub(crate) fn put_settings(&self, out: &mut Vec<u8>) {
        let text = format!(
            "STAT maxconns {}\r\nSTAT item_size_max {}\r\nSTAT num_threads {}\r\n\
             STAT client_flags_size 4\r\nEND\r\n",
            self.connections_max,
            self.limits.value_bytes_max,
            self.mailboxes.len()
        );
        out.extend_from_slice(text.as_bytes());
    }

    /// Notes that a thread has ended.
    pub(crate) fn left(&self, _thread: usize) {
        self.running.fetch_sub(1, Ordering::Relaxed);
    }
}
