//! The sections of the memcached proxy: where it listens, its pools of servers, and the routes of
//! keys to pools.

use std::path::PathBuf;

use engine::gateway::Hedge;
use engine::pool::{
    self, Distribution, Hash, Ketama, MultiGet, OnFailure, PoolSettings, Routing, Server,
};
use engine::route::{Policy, health};
use ground::window::{self, Nanos};
use ground::with_causes;
use origin::{Checks, Size, section};
use serde::{Deserialize, Serialize};

use super::Config;
use super::cluster::Role;
use super::error::Error;
use proxy::{Address, Limits, Tls};

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
struct Listed {
    address: Address,
    server: Server,
}

/// Reads "ADDRESS weight=2 name=a".
fn listed(text: &str) -> Result<Listed, String> {
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

/// The mistake of an address that others can reach.
const UNAUTHENTICATED: &str = "memcached's protocol has no credentials, so everybody who reaches this address could read and \
    write; use a loopback address, or set memcached.unauthenticated=true if that is intended";

impl Memcached {
    pub(crate) fn check(&self, config: &Config, checks: &mut Checks<'_>) {
        let mut own = checks.part("memcached");
        self.check_listen(config, &mut own);
        own.between("threads", self.threads, 0, 512);
        own.at_least("connections_max", self.connections_max, 1);
        own.between("value_bytes_max", self.value_bytes_max, Size(1), Size(128 << 20));
        own.between("keys_max", self.keys_max, 1, 65_535);
        own.between("deadline_s", self.deadline_s, 0.001, 3600.0);
        own.between("stall_s", self.stall_s, 0.01, 1e6);
        own.between("ping_s", self.ping_s, 0.001, 3600.0);
        own.between("ping_timeout_s", self.ping_timeout_s, 0.001, 3600.0);
        own.between("recovery_s", self.recovery_s, 0.0, 3600.0);
        check_pools(config, checks);
        check_routes(config, checks);
    }

    /// Checks who can reach the addresses, and whether this process is one that listens there.
    fn check_listen(&self, config: &Config, own: &mut Checks<'_>) {
        match Address::parse(&self.listen) {
            Err(error) => own.must(false, "listen", with_causes(&error)),
            Ok(Address::Tcp(address)) => own.must(
                address.ip().is_loopback() || self.unauthenticated,
                "listen",
                UNAUTHENTICATED,
            ),
            Ok(Address::Unix(_) | Address::Name(_)) => {}
        }
        if let Some(text) = &self.node_listen {
            let parsed = text.parse::<std::net::SocketAddr>();
            let open = |address: &std::net::SocketAddr| !address.ip().is_loopback();
            own.must(
                parsed.is_ok(),
                "node_listen",
                format!("{text:?} is not an address; write \"127.0.0.1:11411\""),
            );
            own.must(
                !parsed.as_ref().is_ok_and(open) || self.unauthenticated,
                "node_listen",
                UNAUTHENTICATED,
            );
            own.must(
                config.is_gateway() || (config.is_node() && !config.is_clustered()),
                "node_listen",
                "is for a process with a gateway, or with a node that is not a member of a cluster",
            );
        }
        // The default is printed in every role, and what is printed can be read.
        own.must(
            config.is_proxy() || self.listen == Memcached::default().listen,
            "listen",
            "is where a proxy listens, and serve.role is not \"proxy\"; set the role, or memcached.node_listen for the \
             objects of a node or a cluster",
        );
        own.must(
            !config.is_proxy() || !config.pools.is_empty() || config.is_in_etcd(),
            "listen",
            "a proxy needs servers; list them in a [[pool]]",
        );
    }
}

/// Checks each pool, and that no two have one name.
fn check_pools(config: &Config, checks: &mut Checks<'_>) {
    for (index, pool) in config.pools.iter().enumerate() {
        pool.check(checks.part(&format!("pool.{index}")));
        let before = config.pools[..index].iter().any(|other| other.name == pool.name);
        checks.part(&format!("pool.{index}")).must(
            !before,
            "name",
            format!("{:?} is the name of two pools", pool.name),
        );
    }
}

/// Checks that routes lead to pools that there are, and that every key has one.
fn check_routes(config: &Config, checks: &mut Checks<'_>) {
    for (index, route) in config.routes.iter().enumerate() {
        let mut own = checks.part(&format!("route.{index}"));
        let known: Vec<&str> = config.pools.iter().map(|pool| pool.name.as_str()).collect();
        let named = [
            ("pool", Some(&route.pool)),
            ("gutter", route.gutter.as_ref()),
            ("warm_from", route.warm_from.as_ref()),
            ("copy_to", route.copy_to.as_ref()),
        ];
        for (key, name) in named {
            let Some(name) = name else { continue };
            own.must(
                known.contains(&name.as_str()),
                key,
                format!("there is no pool {name:?}; write one of: {}", known.join(", ")),
            );
        }
        let before = config.routes[..index].iter().any(|other| other.prefix == route.prefix);
        own.must(!before, "prefix", format!("{:?} has two routes", route.prefix));
    }
    checks.part("route").must(
        config.routes.is_empty() || config.routes.iter().any(|route| route.prefix.is_empty()),
        "prefix",
        "no route has the empty prefix; write which pool all other keys belong to",
    );
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

    fn check(&self, mut checks: Checks<'_>) {
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
    fn tls_to(&self, listed: &str) -> Result<Option<Tls>, Error> {
        if !self.tls {
            return Ok(None);
        }
        let address = listed.split_whitespace().next().unwrap_or_default();
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let name = self.tls_name.as_deref().unwrap_or(host.trim_matches(['[', ']']));
        Ok(Some(Tls::new(self.tls_ca.as_deref(), name)?))
    }
}

fn nanos(seconds: f64) -> Nanos {
    (seconds * 1e9) as Nanos
}

/// The settings of a pool: `members` are its servers' places among those of all pools, `of_ring` their names on the ring.
fn pool_settings(
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

impl Config {
    /// Whether this process is a proxy for memcached's protocol.
    pub fn is_proxy(&self) -> bool {
        self.serve.role == Role::Proxy
    }

    /// The settings of the proxy.
    ///
    /// # Errors
    /// There is no pool, or a server's name cannot be resolved.
    pub fn proxy(&self, windows: window::Settings, seed: u64) -> Result<proxy::Settings, Error> {
        if self.pools.is_empty() {
            return Err(Error::NoServers);
        }
        let own = &self.memcached;
        let (mut servers, mut addresses): (Vec<Server>, Vec<Address>) = Default::default();
        let (mut pools, mut tls) = (Vec::new(), Vec::new());
        for pool in &self.pools {
            let mut members = Vec::new();
            let mut of_ring = Vec::new();
            for text in &pool.servers {
                let listed = listed(text).map_err(Error::Server)?;
                members.push(servers.len());
                of_ring.push(listed.server.clone());
                servers.push(listed.server);
                tls.push(pool.tls_to(text)?);
                addresses.push(listed.address);
            }
            pools.push(pool_settings(pool, members, &of_ring)?);
        }
        let place = |name: &str| self.pools.iter().position(|pool| pool.name == name);
        let route = |route: &Route| pool::Route {
            prefix: route.prefix.as_bytes().into(),
            pool: place(&route.pool).unwrap_or(0),
            gutter: route.gutter.as_deref().and_then(place),
            warm_from: route.warm_from.as_deref().and_then(place),
            copy_to: route.copy_to.as_deref().and_then(place),
        };
        let mut routes: Vec<pool::Route> = self.routes.iter().map(route).collect();
        if routes.is_empty() {
            routes.push(pool::Route::new("", 0));
        }
        let health = health::Settings { recovery: nanos(own.recovery_s), ..Default::default() };
        let keys_max = own.keys_max as usize;
        Ok(proxy::Settings {
            listen: Address::parse(&own.listen)?,
            threads: own.threads as usize,
            connections_max: own.connections_max as usize,
            limits: Limits {
                value_bytes_max: own.value_bytes_max.0 as usize,
                keys_max,
                line_bytes_max: (keys_max * 251 + 64).max(2048),
                ..Limits::default()
            },
            deadline: nanos(own.deadline_s),
            stall: nanos(own.stall_s),
            drain: nanos(self.serve.drain_s),
            sample_one_in: self.observe.sample_one_in,
            addresses,
            tls,
            pools: pool::Settings {
                servers,
                pools,
                routes,
                ping_interval: nanos(own.ping_s),
                ping_timeout: nanos(own.ping_timeout_s),
                health,
                seed,
                windows,
            },
        })
    }
}
