//! The connections to the other nodes, what all processes must agree on, and counts of the traffic.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use http::Response;
use http::header::HeaderValue;

use super::outages::OutageLog;
use cluster::identity::header_line;
use cluster::{Mismatches, Roll, authorization, fingerprint, hexadecimal};
use configuration::Config;
use engine::node::{ClusterSettings, PeerStatus, Warmed};
use engine::route::NodeId;
use engine::status::{ClusterStatus, NodeReport};
use ground::window::{Nanos, key_hash};
use membership::{Members, Membership};
use origin::IdentityRecord;
use peer::{Limits, RequestHead};
use wire::body::ReplyBody;
use wire::headers;
use wire::tls::dialer;

/// Maximum offers in progress; further ones are dropped.
pub(super) const OFFERS_MAX: usize = 64;

/// The connections to the other nodes, and counts of the traffic.
pub struct Peers {
    /// The nodes; the connections of this node's own entry are never used.
    pub roll: Roll,
    pub(super) me: NodeId,
    pub(super) membership: Arc<Membership>,
    pub(super) identity: Identity,
    pub(super) lease: Duration,
    pub(super) object_bytes_max: u64,
    pub(super) offers: AtomicUsize,
    /// Counts of the traffic between nodes.
    pub counts: Counts,
    /// Processes whose configuration or version differs.
    pub(super) mismatches: Arc<Mismatches>,
    /// Which origin this process serves.
    pub(super) record: Arc<IdentityRecord>,
    pub(super) outages: OutageLog,
}

/// What all processes of a cluster must agree on, as header values.
pub(super) struct Identity {
    pub(super) ring: HeaderValue,
    pub(super) members: HeaderValue,
    pub(super) origin: HeaderValue,
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

impl Identity {
    /// The identity of a configuration. It leaves out the path of a folder origin and the address
    /// of a store: a folder may be mounted elsewhere on each machine, and a store may have several
    /// addresses.
    ///
    /// Of members in etcd, the name of the list stands for the list.
    fn of_node(known: &Members, config: &Config) -> Identity {
        let origin = &config.origin;
        let behind = match origin.kind {
            origin::Kind::S3 => format!("s3 {:?} {:?}", origin.bucket, origin.prefix),
            origin::Kind::Folder => "folder".to_owned(),
            origin::Kind::None => "none".to_owned(),
        };
        let mut text = String::new();
        if config.is_in_etcd() {
            text = format!("etcd {:?}", config.membership.prefix);
        } else {
            for (member, address) in known.ring.members().iter().zip(&known.addresses) {
                text.push_str(&format!("{:?} {address} ", member.name));
            }
        }
        Identity {
            ring: hexadecimal(fingerprint(known, config)),
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
        membership: Arc<Membership>,
        mismatches: Arc<Mismatches>,
        record: Arc<IdentityRecord>,
    ) -> Result<Peers, cluster::Error> {
        let (known, me) = (membership.members(), settings.me);
        let identity = Identity::of_node(&known, config);
        let name = known.ring.name(me);
        let invalid = |source| cluster::Error::Name { name: name.to_owned(), source };
        let mut common = vec![
            (headers::PROTOCOL.clone(), HeaderValue::from_static(headers::PROTOCOL_VERSION)),
            (headers::RING.clone(), identity.ring.clone()),
            (headers::MEMBERS.clone(), identity.members.clone()),
            (headers::ORIGIN.clone(), identity.origin.clone()),
            (headers::FROM.clone(), HeaderValue::from_str(name).map_err(invalid)?),
        ];
        common.extend(authorization(config)?);
        let lease = Duration::from_nanos(settings.lease);
        let idle = Duration::from_secs_f64(config.serve.idle_s / 2.0).min(Limits::default().idle);
        let limits = Limits { idle, connect: lease, ..Limits::default() };
        Ok(Peers {
            roll: Roll::new(
                &known,
                membership.is_leased(),
                RequestHead { common, late: header_line(&record) },
                limits,
                dialer(config)?,
            )?,
            me,
            membership,
            identity,
            lease,
            object_bytes_max: config.node.object_bytes_max.0,
            offers: AtomicUsize::new(0),
            counts: Counts::default(),
            mismatches,
            record,
            outages: OutageLog::default(),
        })
    }

    /// The cluster's part of the status.
    pub fn status(&self, peers: Vec<PeerStatus>, warmed: Option<Warmed>) -> ClusterStatus {
        let ring = self.roll.ring();
        ClusterStatus {
            name: self.roll.name(self.me).to_owned(),
            membership: self.membership.status(),
            replicas: ring.replica_count(),
            ring: format!("{:016x}", ring.fingerprint()),
            peers,
            warmed,
        }
    }

    /// The reply of `/cluster/about`.
    pub(super) fn report(&self, warmed: Option<Warmed>) -> NodeReport {
        // One that yields to the other members does not speak for an origin.
        let origin = self.record.id().filter(|_| self.record.check().is_ok());
        cluster::report(&self.membership.members(), warmed, origin)
    }

    /// Replies with what all members that live say of themselves.
    pub async fn members(&self, warmed: Option<Warmed>) -> Response<ReplyBody> {
        let own = (self.me, self.report(warmed));
        cluster::members(&self.roll, &self.membership.members(), Some(own)).await
    }

    /// Counts a write whose acknowledgement waited this long for other nodes.
    pub fn count_held_write(&self, waited: Nanos) {
        count(&self.counts.writes_held);
        self.counts.writes_held_ns.fetch_add(waited, Ordering::Relaxed);
    }
}
