//! The node's administrative paths: `/metrics`, `/admin/status` and `/admin/tiers`.

use std::sync::Arc;

use engine::node::Contents;
use http::{Response, StatusCode};
use serde::Serialize;

use super::Shared;
use super::cluster::{self, ClusterStatus, Mismatch};
use super::tiers;
use device::disk::Lateness;
use front::health::OriginStatus;
use live::Controls as _;
use live::memory::Division;
use record::clock;
use wire::body::ReplyBody;
use wire::problem::{json, typed};

/// Replies with the node's metrics in Prometheus text format.
pub fn metrics(shared: &Arc<Shared>) -> Response<ReplyBody> {
    let (contents, waiting) = shared.drive.contents();
    let mut page = shared.metrics.node(&contents, waiting);
    page.connections(shared.connections.count(), shared.connections.max());
    shared.metrics.memory(&mut page, &contents, shared.memory.as_ref().map(|it| it.division()));
    shared.live.add_metrics(&mut page);
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
