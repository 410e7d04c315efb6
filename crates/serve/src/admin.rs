//! The node's administrative paths: `/healthz`, `/readyz`, `/metrics`, `/admin/status` and
//! `/admin/tiers`.

use std::sync::Arc;
use std::time::Duration;

use engine::node::Contents;
use ground::origin::OriginId;
use http::{Response, StatusCode};
use origin::Origin;
use serde::Serialize;

use super::Shared;
use super::cluster::{self, ClusterStatus, Mismatch};
use super::front::Front;
use super::tiers;
use crate::memory::Division;
use device::disk::Lateness;
use membership::Membership;
use record::clock;
use wire::body::ReplyBody;
use wire::problem::{json, typed};

/// How long `/readyz` waits for the origin. One that does not answer is not known to be lost, and what
/// memory and devices hold is served.
const CHECK_MAX: Duration = Duration::from_secs(1);

#[derive(Serialize)]
struct Health {
    ok: bool,
    /// Why it is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// What is less than it should be, though it is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    degraded: Option<String>,
}

/// `/healthz`: the process lives.
pub fn alive() -> Response<ReplyBody> {
    json(StatusCode::OK, &Health { ok: true, error: None, degraded: None }, None)
}

/// `/readyz`: whether the process takes requests, and has the origin that it was started with. Says too
/// when etcd does not confirm the members.
pub async fn ready(front: &Front, origin: &Arc<dyn Origin>) -> Response<ReplyBody> {
    let looked = OriginStatus::look(origin).await;
    let error = if front.is_stopping() {
        Some("the server is stopping".to_owned())
    } else {
        looked.lost.clone()
    };
    let ok = error.is_none();
    let status = if ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    // Reads go on without etcd and without writes, and so a balancer must not take every process out.
    let etcd = front.membership().and_then(Membership::problem);
    let writes = looked.read_only.map(|why| format!("writes are refused: {why}"));
    let degraded: Vec<String> = etcd.into_iter().chain(writes).collect();
    let degraded = (!degraded.is_empty()).then(|| degraded.join("; "));
    json(status, &Health { ok, error, degraded }, None)
}

/// What a process says of its origin.
#[derive(Serialize)]
pub struct OriginStatus {
    /// Its identity, once it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<OriginId>,
    /// Why nothing is served from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<String>,
    /// Why it takes no writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    read_only: Option<String>,
}

impl OriginStatus {
    /// Looks at the origin, for a second at most.
    pub async fn look(origin: &Arc<dyn Origin>) -> OriginStatus {
        let checked = tokio::time::timeout(CHECK_MAX, origin.check()).await;
        // Only of an origin that answers: a file system that hangs would hold this thread.
        let read_only = checked.as_ref().ok().and_then(|_| origin.read_only());
        let lost = match checked {
            Ok(Err(error @ origin::Error::Lost(_))) => Some(error.to_string()),
            _ => None,
        };
        OriginStatus { id: origin.id(), lost, read_only }
    }
}

/// `/readyz` of a process without an origin.
pub fn ready_without_origin(front: &Front) -> Response<ReplyBody> {
    let error = front.is_stopping().then(|| "the server is stopping".to_owned());
    let ok = error.is_none();
    let status = if ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    json(status, &Health { ok, error, degraded: None }, None)
}

/// Replies with the node's metrics in Prometheus text format.
pub fn metrics(shared: &Arc<Shared>) -> Response<ReplyBody> {
    let (contents, waiting) = shared.drive.contents();
    let mut page = shared.metrics.node(&contents, waiting);
    page.connections(shared.connections.count(), shared.connections.max());
    shared.metrics.memory(&mut page, &contents, shared.memory.as_ref().map(|it| it.division()));
    shared.whole.add_metrics(&mut page);
    let peers = shared.drive.peers().map(|peers| &peers.counts);
    let disks = shared.drive.disks();
    let scrubbed = |id| disks.map_or((0, 0), |disks| disks.scrubbed(id));
    tiers::add_metrics(&mut page, &shared.drive.tiers(clock::now()), scrubbed);
    let warmed = shared.drive.warmed().unwrap_or_default();
    cluster::add_metrics(&mut page, peers, &shared.drive.peers_status(clock::now()), &warmed);
    let follower = shared.membership().and_then(|membership| membership.follower());
    membership::add_metrics(&mut page, follower.map(|it| it.common()));
    typed(StatusCode::OK, "text/plain; version=0.0.4", page.finish().into_bytes(), None)
}

/// Replies with what is hot, why, what moved and what it bought, as JSON.
pub fn tiers(shared: &Arc<Shared>) -> Response<ReplyBody> {
    json(StatusCode::OK, &shared.drive.tiers(clock::now()), None)
}

#[derive(Serialize)]
struct Status<'a> {
    version: &'static str,
    /// A description of the emulated devices; present if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    laboratory: Option<String>,
    contents: Contents,
    /// Present if objects and layers share their memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<Division>,
    requests_waiting: usize,
    connections: usize,
    /// As configured, or fewer where the limit of open files is low.
    connections_max: usize,
    role: &'static str,
    origin: OriginStatus,
    /// Present on a node of a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<ClusterStatus<'a>>,
    /// Processes whose version or configuration differs: this node refused them, or they refused
    /// it.
    mismatches: Vec<Mismatch>,
    pacer_lateness: Lateness,
    config: &'a toml::Table,
}

/// Replies with the node's status as JSON.
pub async fn status(shared: &Arc<Shared>) -> Response<ReplyBody> {
    let (contents, requests_waiting) = shared.drive.contents();
    let peers = shared.drive.peers_status(clock::now());
    let status = Status {
        version: env!("CARGO_PKG_VERSION"),
        laboratory: shared.config.laboratory(),
        contents,
        memory: shared.memory.as_ref().map(|memory| memory.division()),
        requests_waiting,
        connections: shared.connections.count(),
        connections_max: shared.connections.max(),
        role: shared.config.serve.role.as_str(),
        origin: OriginStatus::look(shared.drive.origin()).await,
        cluster: shared.drive.peers().map(|cluster| cluster.status(peers, shared.drive.warmed())),
        mismatches: shared.mismatches.list(),
        pacer_lateness: shared.drive.disks().map(|disks| disks.lateness()).unwrap_or_default(),
        config: &shared.asked,
    };
    json(StatusCode::OK, &status, None)
}
