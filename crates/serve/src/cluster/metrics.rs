//! The talk between nodes as Prometheus metrics. A node alone has them too, all 0: names do not come and
//! go with the configuration.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::node::PeerStatus;

use super::Counts;

/// Adds the text.
pub fn add_metrics(text: &mut String, counts: Option<&Counts>, peers: &[PeerStatus]) {
    let none = Counts::default();
    let counts = counts.unwrap_or(&none);
    let held = peers.iter().filter(|peer| peer.leased).count();
    let granted = peers.iter().filter(|peer| peer.granted).count();
    for (name, help, value) in [
        ("concertina_leases_held", "Leases that this node holds from other nodes.", held),
        ("concertina_leases_granted", "Leases of this node that others may hold.", granted),
    ] {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}");
    }
    type Counter<'a> = (&'static str, &'static str, &'a [(&'static str, &'a AtomicU64)]);
    let counters: [Counter<'_>; 6] = [
        (
            "concertina_leases_refused_total",
            "Leases that this node asked for and did not get in time.",
            &[("", &counts.leases_refused)],
        ),
        (
            "concertina_invalidations_total",
            "Invalidations sent to other nodes, by what came of them.",
            &[
                ("{result=\"sent\"}", &counts.invalidations),
                ("{result=\"failed\"}", &counts.invalidations_failed),
            ],
        ),
        (
            "concertina_writes_held_total",
            "Writes whose acknowledgement waited for other nodes.",
            &[("", &counts.writes_held)],
        ),
        (
            "concertina_peer_fills_total",
            "Objects that other nodes were asked for, by what they said.",
            &[
                ("{result=\"found\"}", &counts.fills_found),
                ("{result=\"not_here\"}", &counts.fills_not_here),
                ("{result=\"failed\"}", &counts.fills_failed),
            ],
        ),
        (
            "concertina_offers_total",
            "Objects that other nodes were offered.",
            &[
                ("{result=\"taken\"}", &counts.offers),
                ("{result=\"dropped\"}", &counts.offers_dropped),
            ],
        ),
        ("concertina_writes_held_seconds_total", "How long they waited.", &[]),
    ];
    for (name, help, values) in counters {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} counter");
        for (labels, value) in values {
            let _ = writeln!(text, "{name}{labels} {}", value.load(Ordering::Relaxed));
        }
    }
    let held_s = counts.writes_held_ns.load(Ordering::Relaxed) as f64 / 1e9;
    let _ = writeln!(text, "concertina_writes_held_seconds_total {held_s}");
}
