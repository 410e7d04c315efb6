//! The servers as the proxy sees them: health, load, pings, flushes and their record.

use ground::window::{self, Nanos, QueueName, Recorder};

use super::{Action, Pools, Role, ServerId};
use crate::attempts::Endpoint;
use crate::mutant::{self, Mutant};
use crate::route::health::{self, State};
use crate::route::{Health, Outage};

/// A server.
pub(super) struct ServerState {
    pub(super) name: String,
    /// Index of its pool.
    pub(super) pool: Option<usize>,
    pub(super) health: Health,
    pub(super) endpoint: Endpoint,
    /// Whether it may have missed writes, so that it is emptied before it is read.
    pub(super) stale: bool,
    /// The time of the last write that it may have missed.
    missed_at: Nanos,
    /// How many steps behind its own place on the ring its keys were while it could not be read; 0: they were not.
    pub(super) moved: u8,
    /// Writes that were given up and that it may still carry out.
    pub(super) late: u32,
    /// Copies of requests under way.
    pub(super) copies: u32,
    /// When the ping under way was sent.
    pinged: Option<Nanos>,
    ping_at: Nanos,
    /// Whether a ping has shown how it is. Until then it gets requests, and one ping.
    is_known: bool,
    flushing: bool,
    pub(super) flushes: u64,
    /// How often it was suspected.
    pub(super) failures: u64,
}

impl ServerState {
    pub(super) fn new(name: &str, now: Nanos) -> ServerState {
        ServerState {
            name: name.to_owned(),
            pool: None,
            health: Health::new(now),
            endpoint: Endpoint::new(None, now),
            stale: false,
            missed_at: 0,
            moved: 0,
            late: 0,
            copies: 0,
            pinged: None,
            ping_at: now,
            is_known: false,
            flushing: false,
            flushes: 0,
            failures: 0,
        }
    }

    /// Makes it a server of a pool.
    pub(super) fn join(&mut self, at: usize, pool: &str, windows: &window::Settings, now: Nanos) {
        let queue = QueueName::PoolServer { pool, server: &self.name }.to_string();
        self.pool = Some(at);
        self.endpoint.recorder = Some(Recorder::new(&queue, 0, windows.clone(), now));
    }

    /// Records that an attempt or a ping failed.
    pub(super) fn fail(&mut self, now: Nanos, sent: Nanos, settings: &health::Settings) {
        let before = self.health.state(now, settings);
        self.health.fail(now, sent, settings);
        if before != State::Suspect {
            self.failures += 1;
            // At once: it may only have lost a connection.
            self.ping_at = now;
        }
    }

    /// Whether it gets requests.
    pub(super) fn is_up(&self, now: Nanos, settings: &health::Settings) -> bool {
        self.health.state(now, settings) != State::Suspect
    }

    fn wants_ping(&self, now: Nanos, settings: &health::Settings) -> bool {
        !self.is_known || !self.is_up(now, settings) || (self.stale && !self.flushing)
    }
}

impl Pools {
    /// Whether a server's values are current, and it is well; or, with `resting`, at least answers.
    pub(super) fn is_readable(&self, server: ServerId, resting: bool) -> bool {
        let state = &self.servers[server];
        let up = state.is_up(self.now, &self.settings.health);
        let stale = state.stale && !mutant::is(Mutant::PoolStaleServerRead);
        !stale && (up || resting && state.health.answers())
    }

    /// Sends the pings that are due, and gives up those that the driver did not report.
    pub(super) fn run_servers(&mut self, actions: &mut Vec<Action>) {
        let now = self.now;
        if now < self.servers_due {
            return;
        }
        let (interval, timeout) = (self.settings.ping_interval, self.settings.ping_timeout);
        let mut next = Nanos::MAX;
        for at in 0..self.servers.len() {
            let server = &mut self.servers[at];
            if let Some(sent) = server.pinged {
                let until = sent.saturating_add(timeout.saturating_mul(2));
                if until > now {
                    next = next.min(until);
                    continue;
                }
                server.pinged = None;
                server.ping_at = now.saturating_add(interval);
            }
            if !server.wants_ping(now, &self.settings.health) {
                continue;
            }
            if server.ping_at <= now {
                server.pinged = Some(now);
                next = next.min(now.saturating_add(timeout.saturating_mul(2)));
                actions.push(Action::Ping { server: at });
            } else {
                next = next.min(server.ping_at);
            }
        }
        self.servers_due = next;
    }

    /// Whether a write is under way to a server that has since missed a later write. If the server carried it out
    /// after its flush, it would hold an old value while it counts as current. Cost: O(attempts under way) if the server is
    /// stale, else O(1).
    fn has_overtaken_writes(&self, at: ServerId) -> bool {
        let Some(server) = self.servers.get(at) else { return false };
        let missed = server.missed_at;
        let writes = |role| !matches!(role, Role::Read | Role::Copied);
        server.stale
            && self
                .attempts
                .values()
                .any(|a| a.server == at && writes(a.role) && a.sent.at <= missed)
    }

    /// Notes that a server may have missed a write, so that it is emptied before it is read.
    pub(super) fn misses(&mut self, at: ServerId) {
        let now = self.now;
        let server = &mut self.servers[at];
        (server.stale, server.missed_at) = (true, now);
    }

    /// Notes that what a server has is not known: it may be another server. It is emptied before it is read. For a driver
    /// that begins with servers of which it knows that; later there is [`super::Event::Moved`].
    pub fn distrust(&mut self, at: ServerId) {
        if at >= self.servers.len() {
            return self.invariants.broken();
        }
        self.misses(at);
        // The ping that leads to its flush.
        self.servers[at].ping_at = self.now;
        self.servers_due = self.now;
    }

    /// Whether each server gets requests, and how often it failed.
    pub fn outages(&self, now: Nanos) -> Vec<Outage> {
        let outage = |server: &ServerState| Outage {
            is_up: server.is_up(now, &self.settings.health),
            failures: server.failures,
        };
        self.servers.iter().map(outage).collect()
    }

    pub(super) fn ponged(&mut self, at: ServerId, actions: &mut Vec<Action>) {
        let now = self.now;
        let overtaken = self.has_overtaken_writes(at);
        let Some(server) = self.servers.get_mut(at) else { return self.invariants.broken() };
        server.pinged = None;
        server.is_known = true;
        server.ping_at = now.saturating_add(self.settings.ping_interval);
        server.health.answer(now, true);
        let flush = server.pool.is_some_and(|pool| self.pools[pool].settings.flush_on_return);
        if server.stale && !server.flushing && server.is_up(now, &self.settings.health) {
            if !flush {
                server.stale = false;
            } else if (server.late == 0 && !overtaken)
                || mutant::is(Mutant::PoolFlushBeforeLateWrites)
            {
                // From here on writes are sent to it again, so that it misses none.
                server.flushing = true;
                actions.push(Action::Flush { server: at });
            }
        }
        self.servers_due = now;
    }

    pub(super) fn ping_failed(&mut self, at: ServerId) {
        let now = self.now;
        let Some(server) = self.servers.get_mut(at) else { return self.invariants.broken() };
        let sent = server.pinged.take().unwrap_or(now);
        server.is_known = true;
        server.ping_at = now.saturating_add(self.settings.ping_interval);
        if server.is_up(now, &self.settings.health) {
            server.failures += 1;
        }
        server.health.fail(now, sent, &self.settings.health);
        self.servers_due = now;
    }

    pub(super) fn flushed(&mut self, at: ServerId, done: bool) {
        let now = self.now;
        let Some(server) = self.servers.get_mut(at) else { return self.invariants.broken() };
        if !std::mem::take(&mut server.flushing) {
            return;
        }
        // It failed again meanwhile: it may have missed further writes.
        if done && server.is_up(now, &self.settings.health) {
            server.stale = false;
            server.flushes += 1;
        } else if !done {
            server.health.fail(now, now, &self.settings.health);
        }
        self.servers_due = now;
    }
}
