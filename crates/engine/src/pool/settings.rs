//! The settings of pools: servers, pools of them, and the routes of keys to pools.

use std::collections::BTreeSet;

use ground::window::{self, Nanos, SECOND};
use serde::{Deserialize, Serialize};

use super::event::RouteId;
use super::ketama::{Ketama, Server};
use crate::gateway::Hedge;
use crate::route::{Policy, REPLICAS_MAX, health};

/// Where a pool's keys are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Routing {
    /// Each key on one server, by the ring.
    #[default]
    Hash,
    /// Each key on every server.
    Replicated,
    /// Each key on this many servers, those that follow it on the ring.
    HashReplicas(u8),
}

/// How a get of several keys is split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MultiGet {
    /// As few servers as hold the keys: one, where every server has every key.
    Whole,
    /// As many servers as hold the keys, in equal shares.
    Sharded,
    /// Whichever is expected to end first.
    #[default]
    Auto,
}

/// What happens to the keys of a server that cannot be reached and has no other replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// Requests fail: no other server gets its keys, so that none serves stale data later.
    #[default]
    Error,
    /// Its keys move to the servers that follow on the ring until it returns; it is emptied then.
    Move,
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolSettings {
    /// Its name.
    pub name: String,
    /// Its servers, as indexes of [`Settings::servers`].
    pub servers: Vec<usize>,
    /// The ring.
    pub ring: Ketama,
    /// Where keys are.
    pub routing: Routing,
    /// Which of a key's servers answers a read.
    pub policy: Policy,
    /// How gets of several keys are split.
    pub multi_get: MultiGet,
    /// Reads sent to a second server when the first is slow; `None` for none.
    pub hedge: Option<Hedge>,
    /// Most requests in service at once, as the threads of a thread pool; 0 for no bound.
    pub workers: u32,
    /// Most requests that wait for a worker; further ones are refused.
    pub waiting_max: u32,
    /// What happens to the keys of a server that cannot be reached.
    pub on_failure: OnFailure,
    /// Whether a server that may have missed writes is emptied before it is read again.
    pub flush_on_return: bool,
    /// An attempt at a server fails after this time.
    pub timeout: Nanos,
    /// Most retries of reads after a failure, as a share of requests.
    pub retry_share: f64,
}

/// Sends the keys with a prefix to a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The beginning of its keys; empty for all keys.
    pub prefix: Box<[u8]>,
    /// Index of the pool in [`Settings::pools`].
    pub pool: usize,
    /// The pool that takes the place of servers that cannot be reached.
    pub gutter: Option<usize>,
    /// The pool that had these keys before: what `pool` does not have is moved from there.
    pub warm_from: Option<usize>,
    /// The pool that is sent the same requests; nothing waits for its replies.
    pub copy_to: Option<usize>,
}

/// The settings of all pools behind one front.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// Every server of every pool.
    pub servers: Vec<Server>,
    /// The pools.
    pub pools: Vec<PoolSettings>,
    /// The routes. The longest prefix counts; one has the empty prefix.
    pub routes: Vec<Route>,
    /// Time between two pings of a server that has not answered anything since.
    pub ping_interval: Nanos,
    /// Time after which a ping has failed.
    pub ping_timeout: Nanos,
    /// How failed servers are taken back.
    pub health: health::Settings,
    /// The seed of random choices.
    pub seed: u64,
    /// Settings of the recorded windows.
    #[serde(skip)]
    pub windows: window::Settings,
}

impl Route {
    /// Sends the keys with a prefix to a pool, and nothing elsewhere.
    pub fn new(prefix: &str, pool: usize) -> Route {
        Route {
            prefix: prefix.as_bytes().into(),
            pool,
            gutter: None,
            warm_from: None,
            copy_to: None,
        }
    }
}

impl Routing {
    /// The number of servers of a key in a pool with this many servers.
    pub fn replicas(self, servers: usize) -> usize {
        match self {
            Routing::Hash => 1,
            Routing::Replicated => servers,
            Routing::HashReplicas(n) => usize::from(n).clamp(1, servers.max(1)),
        }
    }
}

/// Settings that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A pool names a server that does not exist.
    #[error("the pool {pool:?} names server {server}, which does not exist")]
    Server {
        /// The pool.
        pool: String,
        /// The server.
        server: usize,
    },
    /// A pool's ring is not one of its servers.
    #[error("the ring of the pool {0:?} is not one of its servers")]
    Ring(String),
    /// A pool has a server twice.
    #[error("the pool {pool:?} has server {server} twice")]
    Twice {
        /// The pool.
        pool: String,
        /// The server.
        server: usize,
    },
    /// A key would belong to too many servers.
    #[error(
        "the pool {pool:?} has {replicas} servers for each key; 1 to {REPLICAS_MAX} are possible"
    )]
    Replicas {
        /// The pool.
        pool: String,
        /// The number of servers of a key.
        replicas: usize,
    },
    /// A pool without a time limit of attempts.
    #[error("the timeout of the pool {0:?} is 0")]
    Timeout(String),
    /// A route names a pool that does not exist.
    #[error("the route {route:?} names pool {pool}, which does not exist")]
    Pool {
        /// The prefix of the route.
        route: String,
        /// The pool.
        pool: usize,
    },
    /// A route uses its pool a second time, or two of its pools hash keys differently.
    #[error(
        "the route {route:?} cannot use the pools {pool:?} and {other:?}: they must differ and have \
         the same hash function and hash tag"
    )]
    Pair {
        /// The prefix of the route.
        route: String,
        /// The pool.
        pool: String,
        /// The other pool.
        other: String,
    },
    /// Two routes have the same prefix.
    #[error("two routes have the prefix {0:?}")]
    Prefix(String),
    /// No route takes all other keys.
    #[error("no route has the empty prefix")]
    NoDefault,
    /// There are too many routes, or too many servers.
    #[error("{0} {1}; at most 65,535 are possible")]
    TooMany(usize, &'static str),
}

impl Settings {
    /// The route of a key: that with the longest prefix. Compares all of them; see
    /// [`super::Routes`].
    pub fn route(&self, key: &[u8]) -> Option<RouteId> {
        let routes = self.routes.iter().enumerate();
        let fits = routes.filter(|(_, route)| key.starts_with(&route.prefix));
        let longest = fits.max_by_key(|(_, route)| route.prefix.len());
        longest.map(|(at, _)| at as RouteId)
    }

    /// Checks that the settings fit together.
    ///
    /// # Errors
    /// The first contradiction found.
    pub fn check(&self) -> Result<(), SettingsError> {
        let (routes, servers) = (self.routes.len(), self.servers.len());
        for (number, of) in [(routes, "routes"), (servers, "servers")] {
            if number > usize::from(u16::MAX) {
                return Err(SettingsError::TooMany(number, of));
            }
        }
        self.pools.iter().try_for_each(|pool| pool.check(servers))?;
        let mut prefixes = BTreeSet::new();
        for route in &self.routes {
            if !prefixes.insert(&route.prefix) {
                return Err(SettingsError::Prefix(printable(route)));
            }
            self.check_route(route)?;
        }
        match prefixes.first() {
            Some(first) if first.is_empty() => Ok(()),
            _ => Err(SettingsError::NoDefault),
        }
    }

    fn check_route(&self, route: &Route) -> Result<(), SettingsError> {
        let get = |pool: usize| {
            let missing = SettingsError::Pool { route: printable(route), pool };
            self.pools.get(pool).ok_or(missing)
        };
        let pool = get(route.pool)?;
        for other in [route.gutter, route.warm_from, route.copy_to].into_iter().flatten() {
            let second = get(other)?;
            if other == route.pool || second.ring.hash() != pool.ring.hash() {
                let (pool, other) = (pool.name.clone(), second.name.clone());
                return Err(SettingsError::Pair { route: printable(route), pool, other });
            }
        }
        Ok(())
    }
}

impl PoolSettings {
    fn check(&self, servers: usize) -> Result<(), SettingsError> {
        let pool = || self.name.clone();
        let mut seen = BTreeSet::new();
        for &server in &self.servers {
            if server >= servers {
                return Err(SettingsError::Server { pool: pool(), server });
            }
            if !seen.insert(server) {
                return Err(SettingsError::Twice { pool: pool(), server });
            }
        }
        if self.ring.len() != self.servers.len() {
            return Err(SettingsError::Ring(pool()));
        }
        let replicas = match self.routing {
            Routing::HashReplicas(n) => usize::from(n),
            routing => routing.replicas(self.servers.len()),
        };
        if !(1..=REPLICAS_MAX).contains(&replicas) {
            return Err(SettingsError::Replicas { pool: pool(), replicas });
        }
        if self.timeout == 0 {
            return Err(SettingsError::Timeout(pool()));
        }
        Ok(())
    }
}

fn printable(route: &Route) -> String {
    String::from_utf8_lossy(&route.prefix).into_owned()
}

/// The default time limit of an attempt.
pub const TIMEOUT: Nanos = SECOND;
