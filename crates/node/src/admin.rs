//! The node's administrative paths: `/metrics`, `/admin/status` and `/admin/tiers`.

use std::sync::Arc;

use engine::node::{DeviceState, Tiers};
use engine::status::{Connections, NodeProcess, ProcessStatus};
use http::{Response, StatusCode};

use super::peers;
use super::state::Node;
use super::tiers;
use configuration::Role;
use front::health::{self, Fault, Part, origin_faults, origin_status};
use live::Controls as _;
use record::clock;
use wire::body::ReplyBody;
use wire::problem::{json, typed};

/// `/readyz`.
pub async fn ready(shared: &Arc<Node>) -> Response<ReplyBody> {
    let tiers = shared.drive.tiers(clock::now());
    health::ready(shared, &faults(shared, &tiers).await)
}

/// The faults of the parts that the node depends on.
async fn faults(shared: &Arc<Node>, tiers: &Tiers) -> Vec<Fault> {
    let mut faults = origin_faults(shared, shared.drive.origin()).await;
    faults.extend(tiers.devices.iter().filter_map(|device| {
        let name = &device.name;
        let reason = match device.state {
            DeviceState::Out => {
                format!("{name} failed and is not used; its objects are read from elsewhere")
            }
            DeviceState::In if device.write_failed => {
                format!("{name} takes no writes; what it holds is read")
            }
            DeviceState::In => return None,
        };
        Some(Fault::degraded(Part::Device, reason))
    }));
    faults
}

/// Replies with the node's metrics in Prometheus text format.
pub async fn metrics(shared: &Arc<Node>) -> Response<ReplyBody> {
    let (contents, waiting) = shared.drive.contents();
    let mut page = shared.metrics.node(&contents, waiting);
    page.connections(shared.connections.count(), shared.connections.max());
    shared.metrics.memory(&mut page, &contents, shared.memory.as_ref().map(|it| it.division()));
    shared.live.add_metrics(&mut page);
    let peers = shared.drive.peers().map(|peers| &peers.counts);
    let disks = shared.drive.disks();
    let scrubbed = |id| disks.map_or((0, 0), |disks| disks.scrubbed(id));
    let tiers = shared.drive.tiers(clock::now());
    tiers::add_metrics(&mut page, &tiers, scrubbed);
    health::add_metrics(&mut page, &faults(shared, &tiers).await);
    let warmed = shared.drive.warmed().unwrap_or_default();
    peers::add_metrics(&mut page, peers, &shared.drive.peers_status(clock::now()), &warmed);
    let follower = shared.membership().and_then(|membership| membership.follower());
    membership::add_metrics(&mut page, follower.map(|it| it.common()));
    typed(StatusCode::OK, "text/plain; version=0.0.4", page.finish().into_bytes(), None)
}

/// Replies with what is hot, why, what moved and what it bought, as JSON.
pub fn tiers(shared: &Arc<Node>) -> Response<ReplyBody> {
    json(StatusCode::OK, &shared.drive.tiers(clock::now()), None)
}

/// Replies with the node's status as JSON.
pub async fn status(shared: &Arc<Node>) -> Response<ReplyBody> {
    let (contents, requests_waiting) = shared.drive.contents();
    let peers = shared.drive.peers_status(clock::now());
    let status = Box::new(NodeProcess {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        laboratory: shared.config.laboratory(),
        contents,
        memory: shared.memory.as_ref().map(|memory| memory.division()),
        requests_waiting: Some(requests_waiting),
        connections: Connections {
            connections: Some(shared.connections.count()),
            connections_max: Some(shared.connections.max()),
        },
        origin: Some(origin_status(shared.drive.origin()).await),
        cluster: shared.drive.peers().map(|cluster| cluster.status(peers, shared.drive.warmed())),
        mismatches: shared.mismatches.list(),
        pacer_lateness: Some(
            shared.drive.disks().map(|disks| disks.lateness()).unwrap_or_default(),
        ),
        config: shared.asked.clone(),
    });
    let status = match shared.config.serve.role {
        Role::Node => ProcessStatus::Node(status),
        _ => ProcessStatus::All(status),
    };
    json(StatusCode::OK, &status, None)
}
