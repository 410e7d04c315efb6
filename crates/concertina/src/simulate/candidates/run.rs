//! One run of a candidate.

use std::sync::Arc;

use engine::gateway::Spread;
use engine::node::OriginSettings;
use engine::route::{Policy, Ring};
use engine::sim::Law;
use engine::sim::drawn::{NodeFault, NodeFaultKind, Settings};
use ground::window::{self, Nanos, SECOND};

use super::super::server::Server;
use super::failures::State;

/// A run is at least this many relaxation times of its queues long, but at most some times as long as was asked for; its warm-up
/// is a part of that.
const RELAXATIONS: f64 = 100.0;
const LONGER_MAX: f64 = 10.0;
const WARMUP_PART: f64 = 0.25;
/// A read that counts as late takes this many times the objective.
const LATE: f64 = 10.0;

/// One run of a cluster of servers that are alike.
pub(super) struct Run {
    pub ring: Arc<Ring>,
    /// Requests/s of the cluster.
    pub rate: f64,
    pub within_s: f64,
    pub origin_s: Option<f64>,
    pub requests: f64,
    pub seed: u64,
    pub state: State,
}

impl Run {
    /// The time of its warm-up and its end.
    pub fn times(&self, server: &Server) -> (Nanos, Nanos) {
        let asked_s = self.requests / self.rate;
        let long = (RELAXATIONS * server.relaxation_s).clamp(asked_s, LONGER_MAX * asked_s);
        let ns = |seconds: f64| (seconds * SECOND as f64) as Nanos;
        (ns(WARMUP_PART * long), ns((1.0 + WARMUP_PART) * long))
    }

    pub fn settings(&self, server: &Server) -> Settings {
        let (_, end) = self.times(server);
        let down = |node: usize, kind| NodeFault { at: 0, until: Nanos::MAX, node, kind };
        let nodes = self.state.nodes.iter().map(|&node| down(node, NodeFaultKind::Down));
        let devices = self.state.devices.iter();
        let devices = devices.map(|&(node, at)| down(node, NodeFaultKind::DeviceLost(at)));
        let origin = match self.origin_s {
            Some(mean_s) => Law::exponential(mean_s / 2.0),
            None => Law::constant(LATE * self.within_s / 2.0),
        };
        Settings {
            seed: self.seed,
            ring: self.ring.clone(),
            devices: server.devices.clone(),
            origin: OriginSettings { servers: u32::MAX, queue_length_max: u32::MAX },
            origin_half: origin,
            hits: server.hits,
            memory: server.memory.clone(),
            delay: server.delay.clone(),
            arrivals: server.arrivals(self.rate),
            until: end,
            write_share: 0.0,
            bytes: 0,
            network: 0,
            gateways: 1,
            spread: Spread::Primary,
            policy: Policy::default(),
            ping_interval: SECOND,
            faults: nodes.chain(devices).collect(),
            windows: window::Settings {
                // Windows are taken at the end of the warm-up and of the run.
                window_ns: 10 * end,
                objectives_ms: vec![self.within_s * 1e3],
                unix_offset_ns: 0,
            },
        }
    }
}
