//! The sections of a cluster: its members, and gateways.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::act::concurrency;
use engine::gateway::{self, Hedge, Spread};
use engine::route::{Policy, REPLICAS_MAX, Ring, health};
use ground::window::{self, Nanos};
use origin::{Checks, Secret, Size, section};
use serde::{Deserialize, Serialize};

use super::sections::Class;

/// How the bound of a gateway's requests in progress is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Concurrency {
    /// As configured.
    #[default]
    Fixed,
    /// Found by itself.
    Auto,
}

/// Whether a gateway verifies what nodes reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verify {
    /// If a member is not on loopback.
    #[default]
    Auto,
    /// Every reply.
    Always,
    /// None.
    Never,
}

section! {
    /// The nodes of a cluster, the same list in every process. Repeat the section for each node.
    pub struct Member {
        /// Name of the node. It determines which keys belong to the node; the address may change
        /// without moving keys.
        pub name: String = String::new(),
        /// Address and port on which the node listens for gateways and the other nodes.
        pub address: String = String::new(),
        /// Share of the keys in proportion to the other weights: the node's capacity, in any unit. Of a
        /// hot node its share of the hot copies among the hot nodes.
        pub weight: f64 = 1.0,
        /// "bulk": a node with keys. "hot": a hot node, which has no keys and holds copies of those that
        /// are read most.
        pub class: Class = Class::Bulk,
    }
}

section! {
    /// A node's place among the members.
    pub struct Cluster {
        /// The member that this process is. Unset on a gateway.
        pub name: Option<String> = None,
        /// The secret that the processes of a cluster show each other, the same in every one; never what
        /// clients have. It must be set if a member is reachable from outside, and with serve.token.
        /// CONCERTINA_CLUSTER_TOKEN of the environment sets it, too, unless a --set does.
        #[serde(skip_serializing)]
        pub token: Option<Secret> = None,
        /// File with the certificates, in PEM format, that those of the cluster's processes are checked
        /// against. With it and the next two, nodes listen for who shows such a certificate, and for nobody
        /// else. Read again when they change.
        pub tls_ca: Option<PathBuf> = None,
        /// File with this process's certificate, in PEM format; a node's must be for its IP address.
        pub tls_certificate: Option<PathBuf> = None,
        /// File with its key, in PEM format, which only its owner may read.
        pub tls_key: Option<PathBuf> = None,
        /// Nodes that each key belongs to, its primary included; the same in every process.
        pub replicas: u32 = 3,
        /// Seconds for which a key's primary grants leases to the key's other nodes: the time that
        /// a write waits for a node that died. A node that has not heard from a primary for this
        /// long compares its copies with the origin on each read.
        pub lease_s: f64 = 0.5,
        /// Bytes per second offered to a key's other nodes when an object is read for the second
        /// time, so that they are warm before they are needed. 0: none.
        pub replicate_bytes: Size = Size(4 << 20),
        /// Bytes per second of what is read most that are offered to a node that joins, or gets another weight, by each
        /// node that had its keys before. 0: none; it reads them from the origin when they are wanted.
        pub warm_bytes: Size = Size(16 << 20),
        /// Part of a device's time from which on the reads of a key get it a hot node, where there are hot
        /// nodes; those with the greatest part per byte come first. See docs/cluster.md.
        pub hot_load: f64 = 0.001,
        /// Maximum concurrent requests to other nodes for objects.
        pub peers_parallel: u32 = 64,
        /// Maximum requests to other nodes waiting or in progress; a request that needs a further
        /// one is answered 503.
        pub peers_queue_length_max: u32 = 1024,
    }
}

section! {
    /// How a gateway routes requests to the members.
    pub struct Gateway {
        /// How a node is chosen among those that may serve a read: "smallest_expected_response",
        /// "blowfish" (with probability in proportion to 1/(1 + queue length)), "shortest_queue",
        /// "power_of_two", "c3" (C3's score), "hot_cold" (Prequal's rule), "round_robin" or "primary".
        pub policy: Policy = Policy::default(),
        /// Which of a key's nodes may serve a read when all are well: "primary", "warm" (the
        /// primary and the nodes that have the object according to it) or "all".
        pub spread: Spread = Spread::default(),
        /// A read that takes longer than this quantile of its node's recent responses is hedged:
        /// sent to another node too, and the first reply counts.
        pub hedge_quantile: f64 = 0.95,
        /// Minimum seconds before a read is hedged: earlier a hedge costs more than it saves.
        pub hedge_after_min_s: f64 = 0.002,
        /// Maximum hedges as a share of reads; 0: no hedges.
        pub hedge_share: f64 = 0.05,
        /// Maximum hedges in a burst after a quiet time.
        pub hedge_burst: u32 = 20,
        /// Maximum retries as a share of requests; beyond it a request that failed is answered 503.
        pub retry_share: f64 = 0.1,
        /// Maximum retries in a burst after a quiet time.
        pub retry_burst: u32 = 1000,
        /// Maximum requests in progress; further ones are answered 503.
        pub requests_max: u32 = 10_000,
        /// How many requests may be in progress: "fixed" (requests_max), or "auto" (fewer, where more only
        /// wait: found from how responses grow with requests in progress; see act.concurrency).
        pub concurrency: Concurrency = Concurrency::Fixed,
        /// Maximum seconds of a request; after them it is answered 504. Clients can ask for less
        /// with the header concertina-deadline-ms.
        pub deadline_s: f64 = 10.0,
        /// An attempt to read is given up for another after this factor times the 0.99 quantile of
        /// its node's recent responses, within the two bounds that follow.
        pub attempt_timeout_factor: f64 = 4.0,
        /// Minimum seconds before an attempt is given up.
        pub attempt_timeout_min_s: f64 = 0.1,
        /// Maximum seconds before an attempt is given up. With static members a write waits as long
        /// for a primary that does not answer; one silent for longer is taken for failed.
        pub attempt_timeout_max_s: f64 = 5.0,
        /// Seconds between two pings of a node.
        pub ping_s: f64 = 0.1,
        /// Seconds without a reply to a ping after which a node is suspected to have failed.
        pub ping_timeout_s: f64 = 0.25,
        /// Seconds over which a node that is back regains its full share of reads.
        pub recovery_s: f64 = 2.0,
        /// Whether a read that none of its nodes can answer is answered from the origin.
        pub origin_fallback: bool = true,
        /// Maximum concurrent reads from the origin; further ones are answered 503.
        pub origin_parallel: u32 = 64,
        /// Whether replies of nodes are compared with their etags before they are passed on, at about 30 µs
        /// for 100 KiB: "always", "never", or "auto" (if a member is not on loopback). Parts of objects
        /// and objects whose etag is not a hash cannot be compared.
        pub verify: Verify = Verify::Auto,
        /// Seconds between two attempts of a write that its node did not accept.
        pub write_retry_s: f64 = 0.02,
        /// Maximum keys for which the gateway remembers which nodes have them, at about 50 bytes
        /// each.
        pub hints_max: u32 = 65_536,
    }
}

impl Member {
    /// A member to print where there is none.
    pub fn example() -> Member {
        let address = "127.0.0.1:7071".to_owned();
        Member { name: "a".to_owned(), address, ..Member::default() }
    }
}

impl Gateway {
    /// The engine's settings.
    pub fn settings(
        &self,
        ring: Arc<Ring>,
        windows: window::Settings,
        seed: u64,
    ) -> gateway::Settings {
        let hedge = Hedge {
            quantile: self.hedge_quantile,
            after_min: nanos(self.hedge_after_min_s),
            share: self.hedge_share,
            burst: self.hedge_burst,
        };
        let health = health::Settings { recovery: nanos(self.recovery_s), ..Default::default() };
        gateway::Settings {
            policy: self.policy,
            spread: self.spread,
            hedge: (self.hedge_share > 0.0).then_some(hedge),
            retry_share: self.retry_share,
            retry_burst: self.retry_burst,
            requests_max: self.requests_max,
            concurrency: (self.concurrency == Concurrency::Auto).then(|| concurrency::Settings {
                initial: CONCURRENCY.min(self.requests_max),
                most: self.requests_max,
                ..concurrency::Settings::default()
            }),
            attempt_timeout_factor: self.attempt_timeout_factor,
            attempt_timeout_min: nanos(self.attempt_timeout_min_s),
            attempt_timeout_max: nanos(self.attempt_timeout_max_s),
            ping_interval: nanos(self.ping_s),
            ping_timeout: nanos(self.ping_timeout_s),
            health,
            origin: self.origin_fallback,
            origin_attempts_max: self.origin_parallel,
            write_retry: nanos(self.write_retry_s),
            hints_max: self.hints_max as usize,
            seed,
            windows,
            ..gateway::Settings::new(ring)
        }
    }
}

/// The bound at which a gateway begins to look for one.
const CONCURRENCY: u32 = 128;

fn nanos(seconds: f64) -> Nanos {
    (seconds * 1e9) as Nanos
}

/// A file of certificates to check others against, and a chain with its key.
pub type Certificates<'a> = (&'a Path, (&'a Path, &'a Path));

impl Cluster {
    /// The certificates between the processes of the cluster; `None`: they talk unencrypted.
    pub fn certificates(&self) -> Option<Certificates<'_>> {
        let own = self.tls_certificate.as_deref().zip(self.tls_key.as_deref());
        self.tls_ca.as_deref().zip(own)
    }

    pub(crate) fn check(&self, mut checks: Checks<'_>) {
        checks.between("replicas", self.replicas, 1, REPLICAS_MAX as u32);
        let files = [&self.tls_ca, &self.tls_certificate, &self.tls_key];
        let there = files.iter().filter(|file| file.is_some()).count();
        checks.must(
            there == 0 || there == files.len(),
            "tls_ca",
            "tls_ca, tls_certificate and tls_key belong together: set all three or none",
        );
        checks.between("lease_s", self.lease_s, 0.02, 60.0);
        checks.between("hot_load", self.hot_load, 0.0, 1e3);
        checks.between("peers_parallel", self.peers_parallel, 1, 4096);
        checks.at_least("peers_queue_length_max", self.peers_queue_length_max, 1);
    }
}

impl Gateway {
    pub(crate) fn check(&self, mut checks: Checks<'_>) {
        let (quantile, shortest) = (self.hedge_quantile, self.attempt_timeout_min_s);
        checks.must(
            quantile > 0.0 && quantile < 1.0,
            "hedge_quantile",
            format!("must be above 0 and below 1, not {quantile}"),
        );
        checks.between("hedge_share", self.hedge_share, 0.0, 1.0);
        checks.between("retry_share", self.retry_share, 0.0, 1.0);
        checks.between("requests_max", self.requests_max, 1, 1 << 20);
        checks.between("attempt_timeout_factor", self.attempt_timeout_factor, 1.0, 1e3);
        checks.between("hedge_after_min_s", self.hedge_after_min_s, 0.0, 3600.0);
        checks.between("deadline_s", self.deadline_s, 0.001, 3600.0);
        checks.between("attempt_timeout_max_s", self.attempt_timeout_max_s, 0.001, 3600.0);
        checks.between("attempt_timeout_min_s", shortest, 0.001, 3600.0);
        checks.must(
            shortest <= self.attempt_timeout_max_s,
            "attempt_timeout_min_s",
            "must not be above attempt_timeout_max_s",
        );
        checks.between("ping_s", self.ping_s, 0.001, 3600.0);
        checks.between("ping_timeout_s", self.ping_timeout_s, 0.001, 3600.0);
        checks.between("recovery_s", self.recovery_s, 0.0, 3600.0);
        checks.between("write_retry_s", self.write_retry_s, 0.001, 3600.0);
        checks.at_least("hints_max", self.hints_max, 1);
    }
}
