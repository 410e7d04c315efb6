//! A node among others, as the process sees it: whom it talks to, what it says, what it is asked.
//!
//! All decisions are `engine::node`'s. Here are the requests to other nodes that it asks for
//! ([`calls`]), the endpoints at which it is asked ([`endpoints`]), its ticks and views ([`beat`]), and
//! who the members are ([`membership`]).

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

/// Offers under way at once; past it they are left out.
const OFFERS_MAX: usize = 64;

/// The other nodes, and what was said to them.
pub struct Peers {
    ring: Arc<Ring>,
    me: NodeId,
    /// In the ring's order; that of this node is never used.
    pools: Vec<Pool>,
    addresses: Vec<SocketAddr>,
    identity: Identity,
    shares: Vec<f64>,
    lease: Duration,
    object_bytes_max: u64,
    offers: AtomicUsize,
    /// What is counted.
    pub counts: Counts,
    /// Whose configuration or version is not ours.
    mismatches: Arc<Mismatches>,
}

/// What all processes of a cluster must agree on, as headers say it.
struct Identity {
    ring: HeaderValue,
    members: HeaderValue,
    origin: HeaderValue,
}

/// What is counted of the talk between nodes.
#[derive(Debug, Default)]
pub struct Counts {
    /// Leases that were asked for and not granted in time.
    pub leases_refused: AtomicU64,
    /// Invalidations sent.
    pub invalidations: AtomicU64,
    /// Of these, not confirmed in time; they are sent again as long as the lease lasts.
    pub invalidations_failed: AtomicU64,
    /// Writes whose acknowledgement waited for other nodes.
    pub writes_held: AtomicU64,
    /// Nanoseconds that they waited.
    pub writes_held_ns: AtomicU64,
    /// Objects that other nodes were asked for and had.
    pub fills_found: AtomicU64,
    /// … and had not.
    pub fills_not_here: AtomicU64,
    /// … and did not answer for in time.
    pub fills_failed: AtomicU64,
    /// Offers that were sent.
    pub offers: AtomicU64,
    /// Offers that were left out or not taken.
    pub offers_dropped: AtomicU64,
}

/// A counter's next value.
pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn hexadecimal(hash: u64) -> HeaderValue {
    // Digits are a header's value.
    HeaderValue::from_str(&format!("{hash:016x}")).unwrap_or(HeaderValue::from_static(""))
}

impl Identity {
    /// A folder may be mounted at another place on every machine, and a store may have several addresses, so
    /// neither is compared.
    fn of(ring: &Ring, addresses: &[SocketAddr], origin: &Origin) -> Identity {
        let behind = match origin.kind {
            origin::Kind::S3 => format!("s3 {:?} {:?}", origin.bucket, origin.prefix),
            origin::Kind::Folder => "folder".to_owned(),
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
    /// The members of a configuration beside this one; nothing is sent yet.
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
        if let Some(token) = &config.serve.token {
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

    /// What the status shows.
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

    /// A write's acknowledgement waited so long for other nodes.
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
    /// Of all keys, those of which it is the primary.
    share: f64,
}
