//! The servers as the proxy sees them: health, load, pings, flushes and their record.

use ground::window::Nanos;

use super::event::{Action, ServerId};
use super::state::{Pools, Role, ServerState};
use crate::mutant::{self, Mutant};
use crate::route::Outage;

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
