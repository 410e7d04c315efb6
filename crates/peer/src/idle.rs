//! The idle connections to one address, separately for each thread: a connection belongs to the runtime that opened it.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Instant;

use engine::gateway::IntegerHash;

use super::connection::Connection;
use super::limits::Limits;

/// Maximum idle connections per thread and pool of this process, if that is less than a pool's own limit: the limit of
/// open files is the process's, and pools do not know each other.
static IDLE_MAX: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Has every pool keep at most this number of idle connections per thread.
pub fn bound_idle(max: usize) {
    IDLE_MAX.store(max, Ordering::Relaxed);
}

/// The idle connections of a pool.
pub(super) struct IdleConnections {
    limits: Limits,
    /// By thread, most recently used last. Never locked across an `await`.
    by_thread: Mutex<HashMap<ThreadId, Vec<Connection>, IntegerHash>>,
}

impl fmt::Debug for IdleConnections {
    // Does not show the connections, whose buffers may have bytes of objects.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdleConnections").finish_non_exhaustive()
    }
}

impl IdleConnections {
    pub(super) fn new(limits: Limits) -> IdleConnections {
        IdleConnections { limits, by_thread: Mutex::default() }
    }

    /// Number of idle connections of all threads.
    pub(super) fn count(&self) -> usize {
        self.lock().values().map(Vec::len).sum()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ThreadId, Vec<Connection>, IntegerHash>> {
        self.by_thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes this thread's most recently used connection that is open; with `ask`, a system call
    /// checks that.
    pub(super) fn take(&self, ask: bool) -> Option<Connection> {
        let mut idle = self.lock();
        let connections = idle.get_mut(&std::thread::current().id())?;
        while let Some(mut connection) = connections.pop() {
            if connection.since.elapsed() >= self.limits.idle {
                // This connection expired, and the others are older.
                connections.clear();
            } else if connection.is_open(ask) {
                return Some(connection);
            }
        }
        None
    }

    /// Closes the idle connections of this thread.
    pub(super) fn forget(&self) {
        self.lock().remove(&std::thread::current().id());
    }

    /// Takes back a connection whose reply has been read to its end.
    pub(super) fn give_back(&self, mut connection: Connection) {
        // Surplus bytes after a reply would be parsed as the next one: close the connection.
        if !connection.buffer.is_empty() {
            return;
        }
        let limits = &self.limits;
        let now = Instant::now();
        connection.since = now;
        let mut idle = self.lock();
        let connections = idle.entry(std::thread::current().id()).or_default();
        connections.push(connection);
        let oldest = connections.first().is_some_and(|oldest| now - oldest.since >= limits.idle);
        let idle_max = limits.idle_max.min(IDLE_MAX.load(Ordering::Relaxed));
        if oldest || connections.len() > idle_max {
            connections.remove(0);
        }
    }
}
