//! The sections of the memcached proxy: where it listens, its pools of servers, and the routes of
//! keys to pools.

use std::path::PathBuf;

use engine::gateway::Hedge;
use engine::pool::{
    Distribution, Hash, Ketama, MultiGet, OnFailure, PoolSettings, Routing, Server,
};
use engine::route::Policy;
use ground::window::Nanos;
use ground::with_causes;
use origin::{Checks, Size, section};
use serde::{Deserialize, Serialize};

use super::error::Error;
use proxy::{Address, Tls};

section! {
    /// The proxy for memcached's protocol, with serve.role = "proxy". It needs a pool.
    pub struct Memcached {
        /// Where clients connect: "127.0.0.1:11311" or "unix:/path". The protocol has no
        /// credentials, so whoever reaches the address reads and writes everything.
        pub listen: String = "127.0.0.1:11311".to_owned(),
        /// Where objects are reached by memcached's protocol, for instance "127.0.0.1:11411": those of a
        /// node that is not a member of a cluster or, in a process with a gateway, those of the cluster.
        pub node_listen: Option<String> = None,
        /// Allows addresses other than loopback for listen and node_listen. Everybody who can reach
        /// such an address can read and write all values.
        pub unauthenticated: bool = false,
        /// Threads; 0: one for each core.
        pub threads: u32 = 0,
        /// Maximum open connections, fewer where the limit of open files is low. A further one takes the place of the one
        /// that has been idle for longest; where none is, it is told so and closed.
        pub connections_max: u32 = 16_384,
        /// Size of the largest value.
        pub value_bytes_max: Size = Size(1 << 20),
        /// Maximum keys of one get.
        pub keys_max: u32 = 4096,
        /// Maximum seconds of a request; after them it is answered SERVER_ERROR.
        pub deadline_s: f64 = 5.0,
        /// A client that owes the rest of a request, or does not read its replies, is disconnected
        /// after this many seconds without a byte.
        pub stall_s: f64 = 30.0,
        /// Seconds between two pings of a server that failed.
        pub ping_s: f64 = 0.25,
        /// Seconds without a reply to a ping after which a server is taken for failed.
        pub ping_timeout_s: f64 = 0.5,
        /// Seconds over which a server that is back regains its full share of reads.
        pub recovery_s: f64 = 2.0,
    }
}

section! {
    /// A pool of memcached servers behind the proxy. Repeat the section for further pools.
    pub struct Pool {
        /// Name of the pool, in metrics and routes.
        pub name: String = "main".to_owned(),
        /// Its servers: "ADDRESS", "ADDRESS weight=2" or "ADDRESS name=a". The name (the address, if
        /// there is none) determines which keys a server has; the address may change without
        /// moving keys.
        pub servers: Vec<String> = Vec::new(),
        /// Where a key is: "hash" (on one server), "replicated" (on every server), or
        /// "hash_replicas" (on as many as `replicas` says).
        pub routing: Kind = Kind::Hash,
        /// Servers of each key, with routing = "hash_replicas".
        pub replicas: u32 = 2,
        /// How servers share the keys: "ketama" (as twemproxy, and libmemcached with weights),
        /// "consistent" (as libmemcached without weights), "modula" (the remainder of the hash, as
        /// twemproxy: servers in the order of their names) or "modula_listed" (in the order of the
        /// list, as libmemcached), so that keys stay where another proxy or client has put them.
        pub ring: Distribution = Distribution::default(),
        /// Hash function of keys: "fnv1a_64", "fnv1a_32", "fnv1_64", "fnv1_32", "md5", "crc32",
        /// "crc32a", "crc16", "one_at_a_time", "murmur", "hsieh" or "jenkins".
        pub hash: Hash = Hash::default(),
        /// Two characters, for instance "{}": only the part of a key between them is hashed.
        pub hash_tag: String = String::new(),
        /// Which of a key's servers answers a read: "smallest_expected_response", "blowfish" (with
        /// probability in proportion to 1/(1 + queue length)), "shortest_queue", "power_of_two",
        /// "c3" (C3's score), "hot_cold" (Prequal's rule), "round_robin" or "primary".
        pub policy: Policy = Policy::default(),
        /// How a get of several keys is sent where several servers have them: "whole" (to one),
        /// "sharded" (in equal shares to all), or "auto" (whichever is expected to end first).
        pub multi_get: MultiGet = MultiGet::default(),
        /// A read that takes longer than this quantile of recent responses (of those of the pool's
        /// servers the median) is sent to another of the key's servers too; the first hit counts.
        pub hedge_quantile: f64 = 0.95,
        /// Minimum seconds before a read is hedged.
        pub hedge_after_min_s: f64 = 0.0005,
        /// Maximum hedges as a share of reads; 0: no hedges.
        pub hedge_share: f64 = 0.05,
        /// Maximum hedges in a burst after a quiet time.
        pub hedge_burst: u32 = 100,
        /// Maximum requests in service, as a thread pool of this size has; further ones wait. 0: no
        /// bound.
        pub workers: u32 = 0,
        /// Maximum requests that wait for a worker; further ones are answered SERVER_ERROR.
        pub waiting_max: u32 = 100_000,
        /// What happens to the keys of a server that cannot be reached, if no other has them:
        /// "error" or "move" (to the servers that follow on the ring).
        pub on_failure: OnFailure = OnFailure::Error,
        /// Whether a server that may have missed writes is emptied before it is read again.
        pub flush_on_return: bool = true,
        /// Seconds without a reply after which a request to a server has failed.
        pub timeout_s: f64 = 1.0,
        /// Maximum retries of reads as a share of requests.
        pub retry_share: f64 = 0.1,
        /// Whether connections to its servers are encrypted by TLS.
        pub tls: bool = false,
        /// File with the certificates, in PEM format, that sign those of its servers; without one those of
        /// the system count.
        pub tls_ca: Option<PathBuf> = None,
        /// Name in the certificates of its servers; without one the host of each server's address.
        pub tls_name: Option<String> = None,
    }
}

section! {
    /// The pool of the keys with a prefix. Repeat the section for further prefixes; without any,
    /// all keys are of the first pool.
    pub struct Route {
        /// The beginning of the keys; empty for all keys that no longer prefix fits.
        pub prefix: String = String::new(),
        /// Name of their pool.
        pub pool: String = String::new(),
        /// Name of the pool that takes the place of servers that cannot be reached.
        pub gutter: Option<String> = None,
        /// Name of the pool that had these keys before: what `pool` does not have is moved from there when
        /// it is read, and writes delete it there.
        pub warm_from: Option<String> = None,
        /// Name of a pool that is sent the same requests, whose replies nobody waits for.
        pub copy_to: Option<String> = None,
    }
}

/// Where a pool's keys are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// On one server.
    Hash,
    /// On every server.
    Replicated,
    /// On some.
    HashReplicas,
}

/// A server as a pool lists it.
pub(super) struct Listed {
    pub(super) address: Address,
    pub(super) server: Server,
}

/// Reads "ADDRESS weight=2 name=a".
pub(super) fn listed(text: &str) -> Result<Listed, String> {
    let mut words = text.split_whitespace();
    let address = words.next().unwrap_or_default();
    let (mut name, mut weight) = (address.to_owned(), 1);
    for word in words {
        match word.split_once('=') {
            Some(("name", given)) if !given.is_empty() => name = given.to_owned(),
            Some(("weight", given)) => {
                weight = given.parse().ok().filter(|weight| (1..=1000).contains(weight)).ok_or(
                    format!("{word:?} is not a weight; write a whole number from 1 to 1000"),
                )?;
            }
            _ => return Err(format!("{word:?} is not known; write weight=2 or name=a")),
        }
    }
    let address = Address::parse_server(address).map_err(|error| with_causes(&error))?;
    Ok(Listed { address, server: Server { name, weight } })
}

impl Route {
    /// A route to print where there is none.
    pub fn example() -> Route {
        Route { pool: "main".to_owned(), ..Route::default() }
    }
}

impl Pool {
    /// A pool to print where there is none.
    pub fn example() -> Pool {
        Pool { servers: vec!["127.0.0.1:11211".to_owned()], ..Pool::default() }
    }

    pub(super) fn check(&self, mut checks: Checks<'_>) {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        checks.must(
            (1..=64).contains(&self.name.len()) && self.name.bytes().all(plain),
            "name",
            format!("invalid name {:?}; write 1 to 64 letters, digits, `-`, `_` or `.`", self.name),
        );
        checks.must(!self.servers.is_empty(), "servers", "is empty; list at least one server");
        let mut names = Vec::new();
        for text in &self.servers {
            match listed(text) {
                Err(what) => checks.must(false, "servers", what),
                Ok(listed) => {
                    let twice = names.contains(&listed.server.name);
                    checks.must(!twice, "servers", format!("{text:?} is listed twice"));
                    names.push(listed.server.name);
                }
            }
        }
        checks.must(
            self.hash_tag.is_empty() || self.hash_tag.len() == 2,
            "hash_tag",
            "must be two characters, for instance \"{}\"",
        );
        checks.between("replicas", self.replicas, 1, 8);
        let (replicas, count) = (self.replicas as usize, self.servers.len());
        checks.must(
            self.routing != Kind::HashReplicas || replicas <= count || count == 0,
            "replicas",
            format!("is {replicas}, but the pool has {count} server(s); list more, or write replicas = {count}"),
        );
        checks.must(
            self.hedge_quantile > 0.0 && self.hedge_quantile < 1.0,
            "hedge_quantile",
            format!("must be above 0 and below 1, not {}", self.hedge_quantile),
        );
        checks.between("hedge_after_min_s", self.hedge_after_min_s, 0.0, 3600.0);
        checks.between("hedge_share", self.hedge_share, 0.0, 1.0);
        checks.between("timeout_s", self.timeout_s, 0.001, 3600.0);
        let unix = |text: &String| text.trim_start().starts_with("unix:");
        checks.must(
            !self.tls || !self.servers.iter().any(unix),
            "tls",
            "is for TCP; a server on a Unix socket needs none",
        );
        checks.must(
            self.tls || (self.tls_ca.is_none() && self.tls_name.is_none()),
            "tls",
            "is false, but tls_ca or tls_name is set; write tls = true",
        );
        checks.between("retry_share", self.retry_share, 0.0, 1.0);
    }
}

impl Pool {
    /// How connections to one of its servers, as listed, are encrypted.
    pub(super) fn tls_to(&self, listed: &str) -> Result<Option<Tls>, Error> {
        if !self.tls {
            return Ok(None);
        }
        let address = listed.split_whitespace().next().unwrap_or_default();
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let name = self.tls_name.as_deref().unwrap_or(host.trim_matches(['[', ']']));
        Ok(Some(Tls::new(self.tls_ca.as_deref(), name)?))
    }
}

pub(super) fn nanos(seconds: f64) -> Nanos {
    (seconds * 1e9) as Nanos
}

/// The settings of a pool: `members` are its servers' places among those of all pools, `of_ring` their names on the ring.
pub(super) fn pool_settings(
    pool: &Pool,
    members: Vec<usize>,
    of_ring: &[Server],
) -> Result<PoolSettings, Error> {
    let tag = pool.hash_tag.as_bytes().try_into().ok();
    let hedge = Hedge {
        quantile: pool.hedge_quantile,
        after_min: nanos(pool.hedge_after_min_s),
        share: pool.hedge_share,
        burst: pool.hedge_burst,
    };
    Ok(PoolSettings {
        name: pool.name.clone(),
        servers: members,
        ring: Ketama::new(pool.ring, pool.hash, tag, of_ring)?,
        routing: match pool.routing {
            Kind::Hash => Routing::Hash,
            Kind::Replicated => Routing::Replicated,
            Kind::HashReplicas => Routing::HashReplicas(pool.replicas as u8),
        },
        policy: pool.policy,
        multi_get: pool.multi_get,
        hedge: (pool.hedge_share > 0.0).then_some(hedge),
        workers: pool.workers,
        waiting_max: pool.waiting_max,
        on_failure: pool.on_failure,
        flush_on_return: pool.flush_on_return,
        timeout: nanos(pool.timeout_s),
        retry_share: pool.retry_share,
    })
}
