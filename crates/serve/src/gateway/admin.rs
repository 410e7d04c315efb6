//! `/metrics` and `/admin/status` of a gateway.

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::gateway::GatewayStatus;
use engine::route::health::State;
use http::{Response, StatusCode};
use serde::Serialize;

use super::super::body::ReplyBody;
use super::super::headers::PROTOCOL_VERSION;
use super::super::http::{json, typed};
use super::Access;
use record::clock;

#[derive(Serialize)]
struct Status<'a> {
    version: &'static str,
    role: &'static str,
    protocol: &'static str,
    /// The ring's fingerprint, which must be the same for all processes.
    ring: &'a str,
    replicas: u32,
    members: Vec<Member<'a>>,
    /// Nodes that are not used because their configuration or version is another.
    mismatches: Vec<Mismatch<'a>>,
    gateway: GatewayStatus,
    /// Requests that may still be told something: none are left when none is under way.
    mailboxes: usize,
    connections: usize,
    config: &'a toml::Table,
}

#[derive(Serialize)]
struct Member<'a> {
    name: &'a str,
    address: SocketAddr,
    weight: f64,
    share: f64,
}

#[derive(Serialize)]
struct Mismatch<'a> {
    name: &'a str,
    why: String,
}

/// What runs here.
pub fn status(access: &Arc<Access>) -> Response<ReplyBody> {
    let (gateway, misfits) = access.router.drive.status(clock::now());
    let shares = access.router.backend.ring.shares();
    let members =
        access.router.backend.ring.members().iter().zip(&access.router.backend.pools).zip(shares);
    let members = members.map(|((member, pool), share)| Member {
        name: &member.name,
        address: pool.address(),
        weight: member.weight,
        share,
    });
    let mismatches = misfits.into_iter().enumerate().filter_map(|(node, why)| {
        Some(Mismatch { name: access.router.name(Some(node)), why: why? })
    });
    let status = Status {
        version: env!("CARGO_PKG_VERSION"),
        role: access.config.serve.role.as_str(),
        protocol: PROTOCOL_VERSION,
        ring: &access.router.backend.fingerprint,
        replicas: access.config.cluster.replicas,
        members: members.collect(),
        mismatches: mismatches.collect(),
        gateway,
        mailboxes: access.router.drive.mailboxes(),
        connections: access.connections.load(Ordering::Relaxed),
        config: &access.asked,
    };
    json(StatusCode::OK, &status, None)
}

/// Prometheus text.
pub fn metrics(access: &Arc<Access>) -> Response<ReplyBody> {
    let (status, _) = access.router.drive.status(clock::now());
    let mut text = access.metrics.queues();
    let connections = access.connections.load(Ordering::Relaxed);
    add(&mut text, &status, connections);
    typed(StatusCode::OK, "text/plain; version=0.0.4", text.into_bytes(), None)
}

fn add(text: &mut String, status: &GatewayStatus, connections: usize) {
    let counts = &status.counts;
    let mut one = |name: &str, kind: &str, help: &str, rows: &[(String, f64)]| {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in rows {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    };
    let plain = |value: u64| [(String::new(), value as f64)];
    let counters: [(&str, &str, u64); 6] = [
        ("concertina_gateway_retries_total", "Tries after a request's first.", counts.retries),
        (
            "concertina_gateway_retries_left_out_total",
            "Tries that the budget did not allow.",
            counts.retries_left_out,
        ),
        ("concertina_gateway_hedges_total", "Second tries beside a slow one.", counts.hedges),
        (
            "concertina_gateway_hedges_won_total",
            "Second tries that answered first.",
            counts.hedges_won,
        ),
        (
            "concertina_gateway_hedges_left_out_total",
            "Second tries that the budget did not allow.",
            counts.hedges_left_out,
        ),
        (
            "concertina_gateway_origin_reads_total",
            "Reads from the origin, since no node could answer.",
            counts.origin,
        ),
    ];
    for (name, help, value) in counters {
        one(name, "counter", help, &plain(value));
    }
    let refusals = [
        ("busy", counts.refused_busy),
        ("too_late", counts.refused_too_late),
        ("no_primary", counts.refused_no_primary),
        ("unavailable", counts.refused_unavailable),
        ("unknown", counts.refused_unknown),
    ];
    let refusals = refusals.map(|(why, count)| (format!("{{reason=\"{why}\"}}"), count as f64));
    one(
        "concertina_gateway_refusals_total",
        "counter",
        "Requests that were refused, by reason.",
        &refusals,
    );
    one(
        "concertina_gateway_requests",
        "gauge",
        "Requests under way, those being relayed included.",
        &plain(status.requests as u64),
    );
    let states = [State::Healthy, State::Recovering, State::Suspect, State::Unfit];
    let mut rows = Vec::new();
    for node in &status.nodes {
        for state in states {
            let name = format!("{state:?}").to_lowercase();
            let labels = format!("{{node=\"{}\",state=\"{name}\"}}", node.name);
            rows.push((labels, f64::from(u8::from(node.state == state))));
        }
    }
    one("concertina_gateway_node_state", "gauge", "1 for the state that a node is in.", &rows);
    let by_node = |value: fn(&engine::gateway::NodeStatus) -> f64| -> Vec<(String, f64)> {
        let row = |node: &engine::gateway::NodeStatus| {
            (format!("{{node=\"{}\"}}", node.name), value(node))
        };
        status.nodes.iter().map(row).collect()
    };
    one(
        "concertina_gateway_node_outstanding",
        "gauge",
        "Requests of this gateway that are at a node.",
        &by_node(|node| f64::from(node.outstanding)),
    );
    one(
        "concertina_gateway_node_length",
        "gauge",
        "Requests that wait in a node, as it last said.",
        &by_node(|node| f64::from(node.reported_length)),
    );
    one("concertina_connections", "gauge", "Connections.", &plain(connections as u64));
}
