//! The traffic between nodes as Prometheus metrics. A node without a cluster exports them too, all
//! 0, so that the set of metrics does not depend on the configuration.

use std::sync::atomic::{AtomicU64, Ordering};

use engine::node::{PeerStatus, Warmed};

use super::connections::Counts;
use wire::exposition::{Exposition, Kind};

/// Name, help text, label, and counts by the label's value.
type Counter<'a> = (&'static str, &'static str, &'static str, &'a [(&'static str, &'a AtomicU64)]);

/// Adds the metrics of a node's peers.
pub fn add_metrics(
    page: &mut Exposition,
    counts: Option<&Counts>,
    peers: &[PeerStatus],
    warmed: &Warmed,
) {
    let none = Counts::default();
    let counts = counts.unwrap_or(&none);
    let held = peers.iter().filter(|peer| peer.leased).count();
    let granted = peers.iter().filter(|peer| peer.granted).count();
    for (name, help, value) in [
        ("concertina_leases_held", "Leases that this node holds from other nodes.", held),
        ("concertina_leases_granted", "Leases of this node that others may hold.", granted),
    ] {
        page.single(name, Kind::Gauge, help, value as f64);
    }
    add_warmed(page, warmed);
    add_traffic(page, counts);
}

fn add_warmed(page: &mut Exposition, warmed: &Warmed) {
    for (name, kind, help, value) in [
        (
            "concertina_warm_objects_total",
            Kind::Counter,
            "Objects offered to nodes that were new to them, because they joined or got another weight.",
            warmed.objects,
        ),
        ("concertina_warm_bytes_total", Kind::Counter, "Bytes of these.", warmed.bytes),
        (
            "concertina_warm_compared_total",
            Kind::Counter,
            "Comparisons with the origin before objects were offered so.",
            warmed.compared,
        ),
        (
            "concertina_warm_waiting",
            Kind::Gauge,
            "Objects that are known to wait to be offered so.",
            warmed.waiting,
        ),
    ] {
        page.single(name, kind, help, value as f64);
    }
}

fn add_traffic(page: &mut Exposition, counts: &Counts) {
    let counters: [Counter<'_>; 5] = [
        (
            "concertina_leases_refused_total",
            "Leases that this node requested and did not get in time.",
            "",
            &[("", &counts.leases_refused)],
        ),
        (
            "concertina_invalidations_total",
            "Invalidations sent to other nodes, by result.",
            "result",
            &[("sent", &counts.invalidations), ("failed", &counts.invalidations_failed)],
        ),
        (
            "concertina_writes_held_total",
            "Writes whose acknowledgement waited for other nodes.",
            "",
            &[("", &counts.writes_held)],
        ),
        (
            "concertina_peer_fills_total",
            "Objects requested from other nodes, by result.",
            "result",
            &[
                ("found", &counts.fills_found),
                ("not_here", &counts.fills_not_here),
                ("failed", &counts.fills_failed),
            ],
        ),
        (
            "concertina_offers_total",
            "Objects offered to other nodes, by result.",
            "result",
            &[("taken", &counts.offers), ("dropped", &counts.offers_dropped)],
        ),
    ];
    for (name, help, label, values) in counters {
        page.family(name, Kind::Counter, help);
        for (text, value) in values {
            let labels = [(label, *text)];
            let labels = if label.is_empty() { &labels[..0] } else { &labels[..] };
            page.sample(name, labels, value.load(Ordering::Relaxed) as f64);
        }
    }
    let held_s = counts.writes_held_ns.load(Ordering::Relaxed) as f64 / 1e9;
    let help = "Time that acknowledgements of writes waited for other nodes.";
    page.single("concertina_writes_held_seconds_total", Kind::Counter, help, held_s);
}
