//! `/metrics` and `/admin/status` of a gateway.

use std::sync::Arc;

use engine::gateway::GatewayStatus;
use engine::route::health::State;
use engine::status::{Connections, GatewayProcess, NodeMismatch, ProcessStatus};
use http::{Response, StatusCode};

use super::gateway::Gateway;
use front::health::{Fault, Part, origin_faults, origin_status};
use store::Store as _;
use wire::body::ReplyBody;
use wire::exposition::{Exposition, Kind};
use wire::headers::PROTOCOL_VERSION;
use wire::problem::{json, typed};

use record::clock;

/// Replies with the gateway's status as JSON.
pub async fn status(access: &Arc<Gateway>) -> Response<ReplyBody> {
    let (gateway, misfits) = access.router.drive.status(clock::now());
    let mismatches = misfits.into_iter().enumerate().filter_map(|(node, why)| {
        let name = access.router.name(Some(node)).to_owned();
        Some(NodeMismatch { name, why: why? })
    });
    let status = GatewayProcess {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        protocol: PROTOCOL_VERSION.to_owned(),
        ring: access.router.backend.fingerprint.clone(),
        replicas: access.config.cluster.replicas,
        membership: access.membership.status(),
        mismatches: mismatches.collect(),
        gateway,
        origin: Some(origin_status(access.origin()).await),
        mailboxes: Some(access.router.drive.mailboxes()),
        connections: Connections {
            connections: Some(access.connections.count()),
            connections_max: Some(access.connections.max()),
        },
        config: access.asked.clone(),
    };
    json(StatusCode::OK, &ProcessStatus::Gateway(Box::new(status)), None)
}

/// The faults of the parts that the gateway depends on.
pub async fn faults(access: &Arc<Gateway>) -> Vec<Fault> {
    let mut faults = origin_faults(&access.front, access.origin()).await;
    faults.extend(silent_nodes(access));
    faults
}

/// The nodes that do not answer. The gateway serves without them, unless none answers and the origin keeps nothing.
fn silent_nodes(access: &Arc<Gateway>) -> Option<Fault> {
    let (silent, members) = access.router.drive.silent();
    if silent.is_empty() {
        return None;
    }
    let name = |node| access.router.name(Some(node));
    let nodes: Vec<String> =
        silent.iter().map(|(node, why)| format!("{}: {why}", name(*node))).collect();
    let count = nodes.len();
    let text = format!("{count} of {members} nodes fail ({})", nodes.join(", "));
    // Otherwise reads go on from the origin.
    let is_fatal = count == members && !access.origin().is_durable();
    Some(Fault { part: Part::Node, reason: text, is_fatal })
}

/// Replies with the gateway's metrics in Prometheus text format.
pub async fn metrics(access: &Arc<Gateway>) -> Response<ReplyBody> {
    let (status, _) = access.router.drive.status(clock::now());
    let mut page = access.metrics.queues();
    access.live.add_metrics(&mut page);
    add(&mut page, &status);
    let common = access.membership.follower().map(|it| it.common());
    membership::add_metrics(&mut page, common);
    front::health::add_metrics(&mut page, &faults(access).await);
    page.connections(access.connections.count(), access.connections.max());
    typed(StatusCode::OK, "text/plain; version=0.0.4", page.finish().into_bytes(), None)
}

fn add(page: &mut Exposition, status: &GatewayStatus) {
    let counts = &status.counts;
    for (name, help, value) in [
        ("retries", "Attempts after a request's first.", counts.attempts.retries),
        (
            "retries_left_out",
            "Retries that the budget did not allow.",
            counts.attempts.retries_left_out,
        ),
        ("hedges", "Second attempts beside a slow one.", counts.attempts.hedges),
        ("hedges_won", "Second attempts that replied first.", counts.attempts.hedges_won),
        (
            "hedges_left_out",
            "Hedges that the budget did not allow.",
            counts.attempts.hedges_left_out,
        ),
        ("hot_reads", "Reads that hot nodes answered.", counts.hot_reads),
        ("origin_reads", "Reads from the origin because no node could reply.", counts.origin),
    ] {
        let name = format!("concertina_gateway_{name}_total");
        page.single(&name, Kind::Counter, help, value as f64);
    }
    let name = "concertina_gateway_refusals_total";
    page.family(name, Kind::Counter, "Requests that were refused, by reason.");
    for (reason, count) in [
        ("busy", counts.refused_busy),
        ("too_late", counts.refused_too_late),
        ("no_primary", counts.refused_no_primary),
        ("unavailable", counts.refused_unavailable),
        ("unknown", counts.refused_unknown),
    ] {
        page.sample(name, &[("reason", reason)], count as f64);
    }
    let help = "Requests in progress, including those being relayed.";
    page.single("concertina_gateway_requests", Kind::Gauge, help, status.requests as f64);
    let help = "Maximum requests in progress now.";
    let bound = f64::from(status.requests_bound);
    page.single("concertina_gateway_requests_bound", Kind::Gauge, help, bound);
    let help = "Keys for which hot nodes are known.";
    page.single("concertina_gateway_hot_keys", Kind::Gauge, help, status.hot_keys as f64);
    let name = "concertina_gateway_node_state";
    page.family(name, Kind::Gauge, "1 for the state that a node is in.");
    for node in &status.nodes {
        for state in State::ALL {
            let labels = [("node", node.name.as_str()), ("state", state.as_str())];
            page.sample(name, &labels, f64::from(u8::from(node.state == state)));
        }
    }
    let name = "concertina_gateway_node_outstanding";
    page.family(name, Kind::Gauge, "Requests of this gateway in progress at a node.");
    for node in &status.nodes {
        page.sample(name, &[("node", node.name.as_str())], f64::from(node.outstanding));
    }
    let name = "concertina_gateway_node_length";
    page.family(name, Kind::Gauge, "Requests waiting in a node, as of its last reply.");
    for node in &status.nodes {
        page.sample(name, &[("node", node.name.as_str())], f64::from(node.reported_length));
    }
}
