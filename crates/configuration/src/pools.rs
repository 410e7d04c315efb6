//! The proxy of a configuration: what is wrong with its pools and routes, and its settings.

use std::net::SocketAddr;

use engine::pool::{self, Server};
use engine::route::health;
use ground::window;
use ground::with_causes;
use origin::{Checks, Size};

use super::config::Config;
use super::error::Error;
use super::memcached::{Memcached, Route, listed, nanos, pool_settings};
use super::role::Role;
use proxy::{Address, Limits};

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
            let parsed = text.parse::<SocketAddr>();
            let open = |address: &SocketAddr| !address.ip().is_loopback();
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
            // A write would delete in the old pool what it has just stored, or be carried out twice.
            own.must(
                key == "pool" || *name != route.pool,
                key,
                format!("{name:?} is the pool of these keys itself; take this key out, or name another pool"),
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
