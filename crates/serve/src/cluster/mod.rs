//! The cluster side of a node: connections to peers, calls it makes, requests it serves for them.
//!
//! All decisions are made in `engine::node`. This module sends the requests to other nodes that the
//! engine decides on ([`calls`]), serves the requests of other processes ([`endpoints`]), passes
//! ticks and views to the engine ([`beat`]), and knows the members ([`membership`]).

mod beat;
mod calls;
mod endpoints;
mod membership;
mod metrics;
mod mismatch;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use engine::node::{ClusterSettings, PeerStatus};
use engine::route::{Member, NodeId, Ring};
use http::header::{AUTHORIZATION, HeaderValue};
use model::window::{Nanos, key_hash};
use serde::Serialize;

use super::headers;
use crate::config::{Config, Origin};
use crate::peer::{Limits, Pool};

pub use beat::Beat;
pub use endpoints::{Sender, answer, asker, deadline, sender};
pub use membership::{Membership, Static};
pub use metrics::add_metrics;
pub use mismatch::{Mismatch, Mismatches};

/// Maximum offers in progress; further ones are dropped.
const OFFERS_MAX: usize = 64;

/// The connections to the other nodes, and counts of the traffic.
pub struct Peers {
    ring: Arc<Ring>,
    me: NodeId,
    /// Connections by node, in the ring's order; this node's own entry is never used.
    pools: Vec<Pool>,
    addresses: Vec<SocketAddr>,
    identity: Identity,
    shares: Vec<f64>,
    lease: Duration,
    object_bytes_max: u64,
    offers: AtomicUsize,
    /// Counts of the traffic between nodes.
    pub counts: Counts,
    /// Processes whose configuration or version differs.
    mismatches: Arc<Mismatches>,
}

/// What all processes of a cluster must agree on, as header values.
struct Identity {
    ring: HeaderValue,
    members: HeaderValue,
    origin: HeaderValue,
}

/// Counts of the traffic between nodes.
#[derive(Debug, Default)]
pub struct Counts {
    /// Leases requested and not granted in time.
    pub leases_refused: AtomicU64,
    /// Invalidations sent.
    pub invalidations: AtomicU64,
    /// Invalidations not confirmed in time; they are repeated as long as the lease lasts.
    pub invalidations_failed: AtomicU64,
    /// Writes whose acknowledgement waited for other nodes.
    pub writes_held: AtomicU64,
    /// Total nanoseconds that these acknowledgements waited.
    pub writes_held_ns: AtomicU64,
    /// Objects requested from other nodes that had them.
    pub fills_found: AtomicU64,
    /// Objects requested from other nodes that did not have them.
    pub fills_not_here: AtomicU64,
    /// Objects requested from other nodes without a usable reply in time.
    pub fills_failed: AtomicU64,
    /// Offers sent and accepted.
    pub offers: AtomicU64,
    /// Offers dropped here, or not accepted by the peer.
    pub offers_dropped: AtomicU64,
}

/// Increments a counter.
pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn hexadecimal(hash: u64) -> HeaderValue {
    // Hexadecimal digits are always a valid header value, so the fallback is never used.
    HeaderValue::from_str(&format!("{hash:016x}")).unwrap_or(HeaderValue::from_static(""))
}

impl Identity {
    /// The identity of a configuration. It leaves out the path of a folder origin and the address
    /// of a store: a folder may be mounted elsewhere on each machine, and a store may have several
    /// addresses.
    fn of(ring: &Ring, addresses: &[SocketAddr], origin: &Origin) -> Identity {
        let behind = match origin.kind {
            origin::Kind::S3 => format!("s3 {:?} {:?}", origin.bucket, origin.prefix),
            origin::Kind::Folder => "folder".to_owned(),
            origin::Kind::None => "none".to_owned(),
        };
        let mut text = String::new();
        for (member, address) in ring.members().iter().zip(addresses) {
            text.push_str(&format!("{:?} {address} ", member.name));
        }
        Identity {
            ring: hexadecimal(ring.fingerprint()),
            members: hexadecimal(key_hash(text.as_bytes())),
            origin: hexadecimal(key_hash(behind.as_bytes())),
        }
    }
}

impl Peers {
    /// Prepares the connections to the other members of the configuration. Sends nothing yet.
    ///
    /// # Errors
    ///
    /// If a name or the token is not a valid header value.
    pub fn new(
        config: &Config,
        settings: &ClusterSettings,
        mismatches: Arc<Mismatches>,
    ) -> anyhow::Result<Peers> {
        let (ring, me) = (settings.ring.clone(), settings.me);
        let addresses = config.addresses();
        let identity = Identity::of(&ring, &addresses, &config.origin);
        let mut common = vec![
            (headers::PROTOCOL.clone(), HeaderValue::from_static(headers::PROTOCOL_VERSION)),
            (headers::RING.clone(), identity.ring.clone()),
            (headers::MEMBERS.clone(), identity.members.clone()),
            (headers::ORIGIN.clone(), identity.origin.clone()),
            (headers::FROM.clone(), HeaderValue::from_str(ring.name(me))?),
        ];
        if let Some(token) = &config.cluster.token {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}"))?;
            value.set_sensitive(true);
            common.push((AUTHORIZATION, value));
        }
        let lease = Duration::from_nanos(settings.lease);
        let idle = Duration::from_secs_f64(config.serve.idle_s / 2.0).min(Limits::default().idle);
        let limits = Limits { idle, connect: lease, ..Limits::default() };
        let pools = addresses.iter().map(|at| Pool::new(*at, &common, limits)).collect();
        Ok(Peers {
            shares: ring.shares(),
            ring,
            me,
            pools,
            addresses,
            identity,
            lease,
            object_bytes_max: config.node.object_bytes_max.0,
            offers: AtomicUsize::new(0),
            counts: Counts::default(),
            mismatches,
        })
    }

    /// The cluster's part of the status.
    pub fn status(&self, peers: Vec<PeerStatus>) -> ClusterStatus<'_> {
        let members = self.ring.members().iter().zip(&self.addresses).zip(&self.shares);
        let mut shown = Vec::new();
        for ((member, &address), &share) in members {
            let Member { name, weight } = member;
            shown.push(MemberStatus { name, address, weight: *weight, share });
        }
        ClusterStatus {
            name: self.ring.name(self.me),
            membership: "static",
            replicas: self.ring.replica_count(),
            ring: format!("{:016x}", self.ring.fingerprint()),
            members: shown,
            peers,
        }
    }

    /// Counts a write whose acknowledgement waited this long for other nodes.
    pub fn held(&self, waited: Nanos) {
        count(&self.counts.writes_held);
        self.counts.writes_held_ns.fetch_add(waited, Ordering::Relaxed);
    }
}

/// A node's place in a cluster.
#[derive(Serialize)]
pub struct ClusterStatus<'a> {
    name: &'a str,
    membership: &'static str,
    replicas: usize,
    /// The fingerprint that all processes must share.
    ring: String,
    members: Vec<MemberStatus<'a>>,
    peers: Vec<PeerStatus>,
}

#[derive(Serialize)]
struct MemberStatus<'a> {
    name: &'a str,
    address: SocketAddr,
    weight: f64,
    /// Fraction of all keys whose primary this member is.
    share: f64,
}
