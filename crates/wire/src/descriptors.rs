//! How many files the process may open, and how many of them are left for the connections of clients.
//!
//! Every connection, segment and socket of the process is one file descriptor, and the kernel's limit
//! (`RLIMIT_NOFILE`) holds for all of them together. When it is reached, `accept` fails for everyone, `/healthz`
//! included, a device cannot begin a segment, and the origin cannot be read: so connections are bounded by what the
//! other parts leave, before the kernel bounds all alike.

use std::fmt;

use rustix::process::{Resource, getrlimit, setrlimit};
use tracing::warn;

use configuration::Config;

/// Descriptors for one connection: its own, and the one that its request needs meanwhile (a file of the origin, a
/// connection to the store, to a peer, or from a gateway to a node).
const OF_CONNECTION: u64 = 2;
/// Standard streams, the runtime that waits for signals, locks, membership's and the live model's threads: 14 were
/// counted.
const BASE: u64 = 18;
/// A serving thread's epoll, wakers and io_uring: 6 were counted. The pipe that lends pages to sockets is not among them: without one, bytes are
/// copied.
const OF_THREAD: u64 = 6;
/// A thread of the proxy: epoll, waker, timer.
const OF_PROXY_THREAD: u64 = 4;
/// The agent's runtime and its connections to etcd.
const OF_ETCD: u64 = 10;
/// Files of a run folder, and the log of events.
const OF_RUN: u64 = 7;
/// Manifests and shards that are being read; their maps need no descriptor.
const OF_DATASETS: u64 = 16;
/// A folder as the origin of several processes: a lock for each of its 256 folders, and the process's own.
const OF_SHARED_FOLDER: u64 = 258;
/// The segment that is written, the lock, and what is listed or removed.
const OF_DEVICE_MORE: u64 = 3;
/// Connections with which serving begins to be of use.
const CONNECTIONS_MIN: u64 = 2;

/// What the limit of open files leaves for connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Files that the process may open.
    pub limit: u64,
    /// Those that are not for connections.
    pub own: u64,
    /// Maximum connections of each front, without those for health and administration.
    pub connections: usize,
    /// Maximum further connections of each front, for health and administration.
    pub spare: usize,
    /// Maximum connections of the proxy's clients.
    pub proxied: usize,
}

/// The limit of open files is too low for a configuration.
#[derive(Debug, PartialEq, Eq)]
pub struct TooFew {
    limit: u64,
    needed: u64,
    parts: Vec<(&'static str, u64)>,
}

impl fmt::Display for TooFew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> =
            self.parts.iter().map(|(name, count)| format!("{name} {count}")).collect();
        write!(
            f,
            "this process may open {} files, and needs at least {} with this configuration ({}): raise the limit \
             (`ulimit -n`, LimitNOFILE= of a systemd unit), or configure fewer serve.threads or devices, or larger \
             device.N.segment_bytes",
            self.limit,
            self.needed,
            parts.join(", ")
        )
    }
}

impl std::error::Error for TooFew {}

/// Raises the limit of open files as far as the kernel allows; returns it.
pub fn raise() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        warn!("cannot raise the limit of open files: {error}");
    }
    obtained()
}

/// The limit of open files that holds.
fn obtained() -> u64 {
    // None: unlimited.
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Raises the limit, and warns if it bounds the connections. Returns how many idle connections each pool to a peer may keep.
///
/// # Errors
///
/// If the limit does not suffice for the process.
pub fn prepare(config: &Config) -> Result<usize, TooFew> {
    let allowance = Allowance::divide(config, raise())?;
    let Allowance { limit, own, connections, proxied, .. } = allowance;
    let (key, wanted, given) = match config.is_proxy() {
        true => ("memcached.connections_max", config.memcached.connections_max, proxied),
        false => ("serve.connections_max", config.serve.connections_max, connections),
    };
    if given < wanted as usize {
        warn!(
            "{key} is {wanted}, and at most {given} connections are taken: this process may open {limit} files, of \
             which it keeps {own} for itself; raise the limit (`ulimit -n`, LimitNOFILE= of a systemd unit)"
        );
    }
    // Idle connections to peers, of all threads together, are at most as many as there may be requests.
    let pools = threads(config).saturating_mul(config.members.len().max(4) as u64);
    Ok((connections as u64 / pools).max(1) as usize)
}

/// What the obtained limit leaves for a configuration's connections. Where it does not suffice the process has not started.
pub fn allowance(config: &Config) -> Allowance {
    Allowance::divide(config, obtained()).unwrap_or(Allowance {
        limit: obtained(),
        own: 0,
        connections: CONNECTIONS_MIN as usize,
        spare: SPARE_MIN as usize,
        proxied: CONNECTIONS_MIN as usize,
    })
}

/// Fewest and most connections for health and administration: whoever fills the limit must not make a server look
/// dead.
const SPARE_MIN: u64 = 4;
const SPARE_MAX: u64 = 32;

impl Allowance {
    fn divide(config: &Config, limit: u64) -> Result<Allowance, TooFew> {
        let mut parts = parts(config);
        // What is read and written without a client that waits: fills of tiers, listings, certificates, names.
        parts.push(("the origin and peers", (limit / 16).clamp(4, 64)));
        let fronts = match config.is_node() && config.is_gateway() {
            true => 2,
            false => 1,
        };
        let spare = (limit / 16).clamp(SPARE_MIN, SPARE_MAX);
        parts.push(("health and administration", spare * fronts));
        let own: u64 = parts.iter().map(|(_, count)| count).sum();
        let needed = own + CONNECTIONS_MIN * OF_CONNECTION * fronts;
        if needed > limit {
            return Err(TooFew { limit, needed, parts });
        }
        let left = limit - own;
        // The proxy's clients need one each. Its administration, which has a front of its own, gets an eighth.
        let (for_fronts, proxied) = match config.is_proxy() {
            true => ((left / 8).max(CONNECTIONS_MIN * OF_CONNECTION), left - (left / 8)),
            false => (left, 0),
        };
        let bounded = |count: u64, max: u32| count.min(u64::from(max)) as usize;
        Ok(Allowance {
            limit,
            own,
            connections: bounded(
                for_fronts / (OF_CONNECTION * fronts),
                config.serve.connections_max,
            ),
            spare: spare as usize,
            proxied: bounded(proxied, config.memcached.connections_max),
        })
    }
}

fn threads(config: &Config) -> u64 {
    match config.serve.threads {
        0 => cores(),
        n => u64::from(n),
    }
}

fn cores() -> u64 {
    std::thread::available_parallelism().map_or(1, usize::from) as u64
}

/// What a configuration needs beside connections.
fn parts(config: &Config) -> Vec<(&'static str, u64)> {
    let threads = threads(config);
    let mut parts = vec![("the process", BASE)];
    let memcached = !config.is_proxy() && config.memcached.node_listen.is_some();
    let fronts = u64::from(config.is_node())
        + u64::from(config.is_gateway())
        + u64::from(config.is_proxy())
        + u64::from(config.s3.listen.is_some())
        + u64::from(memcached);
    parts.push(("serving threads", fronts * (threads * OF_THREAD + 1)));
    if config.is_proxy() {
        let servers: u64 = config.pools.iter().map(|pool| pool.servers.len() as u64).sum();
        let threads = match config.memcached.threads {
            0 => cores(),
            n => u64::from(n),
        };
        let of_threads = threads * (OF_PROXY_THREAD + servers) + servers + 1;
        parts.push(("the proxy and its servers", of_threads));
    }
    if config.is_node() {
        let devices = config.devices.iter().flat_map(|group| {
            let segments = group.bytes.0.div_ceil(group.segment().max(1));
            let folders = group.folders().into_iter();
            // Of a device without a file system all segments are one file.
            folders.map(move |path| match path.metadata().is_ok_and(|it| !it.is_dir()) {
                true => OF_DEVICE_MORE,
                false => segments + OF_DEVICE_MORE,
            })
        });
        parts.push(("devices' segments", devices.sum()));
    }
    if config.is_clustered() && config.origin.kind == origin::Kind::Folder {
        parts.push(("the locks of the origin's folder", OF_SHARED_FOLDER));
    }
    if config.is_in_etcd() {
        parts.push(("etcd", OF_ETCD));
    }
    if config.observe.run_dir.is_some() {
        parts.push(("the run folder", OF_RUN));
    }
    if config.datasets.path.is_some() {
        parts.push(("datasets", OF_DATASETS));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(sets: &[&str]) -> Config {
        let sets: Vec<String> = sets.iter().map(|&set| set.to_owned()).collect();
        Config::load(None, &sets).unwrap()
    }

    #[test]
    fn connections_get_what_the_limit_of_open_files_leaves() {
        let node = config(&["serve.threads=2"]);
        let of = |limit: u64| Allowance::divide(&node, limit).unwrap();
        // Of 64 files, 31 are the process's and 19 of the device; 4 are for the origin, 4 for health.
        assert_eq!((of(64).connections, of(64).spare), (3, 4));
        assert!((10..64).contains(&of(128).connections), "{:?}", of(128));
        assert_eq!(of(1 << 20).connections, 4096, "as configured");
        for limit in 64..5000 {
            let Allowance { own, connections, .. } = of(limit);
            assert!(own + connections as u64 * OF_CONNECTION <= limit, "{limit}");
        }
        // A node and a gateway in one process share.
        let both = config(&[
            "serve.threads=2",
            "cluster.token=t",
            "member.0.address=127.0.0.1:1",
            "cluster.name=a",
            "member.0.name=a",
        ]);
        let Allowance { own, connections, .. } = Allowance::divide(&both, 512).unwrap();
        assert!(own + 2 * connections as u64 * OF_CONNECTION <= 512);
    }

    #[test]
    fn a_limit_that_is_too_low_is_refused_with_what_is_needed() {
        let node = config(&["serve.threads=4", "device.0.bytes=1GB", "device.0.segment_bytes=1MB"]);
        let told = Allowance::divide(&node, 256).unwrap_err().to_string();
        for part in ["may open 256 files", "devices' segments 1003", "ulimit -n", "segment_bytes"] {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert!(Allowance::divide(&node, 2048).is_ok());
    }

    #[test]
    fn the_proxy_leaves_its_administration_something() {
        let proxy =
            config(&["serve.role=proxy", "serve.threads=2", "pool.0.servers=[\"127.0.0.1:1\"]"]);
        let Allowance { own, connections, proxied, .. } = Allowance::divide(&proxy, 128).unwrap();
        assert!(connections >= 2 && proxied > 20, "{connections}, {proxied}");
        assert!(
            own + (connections as u64) * OF_CONNECTION + proxied as u64
                <= 128 + OF_CONNECTION * CONNECTIONS_MIN
        );
    }
}
