//! Clusters without faults, to compare with computed results.

use std::sync::Arc;

use engine::node::{ClusterSettings, DeviceSettings, OriginSettings, TierSettings};
use engine::route::{Member, NodeId, Ring};
use engine::sim::{Clients, Law, Network, Origin, Popularity, Settings};
use engine::{gateway, node};
use ground::window::{self, Nanos, Outcome, SECOND};

pub struct Plain {
    pub nodes: usize,
    pub gateways: usize,
    pub rate: f64,
    pub seconds: u64,
    pub keys: u32,
    pub popularity: Popularity,
    pub memory_bytes: u64,
    pub servers: u32,
    pub service: Law,
}

impl Plain {
    pub fn settings(&self) -> Settings {
        let member = |i: usize| Member::new(format!("n{i}"), 1.0);
        let ring = (0..self.nodes).map(member).collect();
        let ring = Arc::new(Ring::new(ring, 1).unwrap());
        let windows = window::Settings { window_ns: 10 * SECOND, ..Default::default() };
        let node = |me| self.node(&ring, me, &windows);
        Settings {
            seed: 1,
            nodes: (0..self.nodes).map(node).collect(),
            devices: vec![vec![self.service.clone()]; self.nodes],
            gateways: (0..self.gateways)
                .map(|_| gateway::Settings {
                    windows: windows.clone(),
                    ..gateway::Settings::new(ring.clone())
                })
                .collect(),
            ring,
            clients: Clients {
                rate: self.rate,
                course: None,
                until: self.seconds * SECOND,
                keys: self.keys,
                popularity: self.popularity.clone(),
                write_share: 0.0,
                delete_share: 0.0,
                bytes: (100, 100),
                deadline: Nanos::MAX / 4,
                any_node: 0.0,
            },
            network: Network::default(),
            origin: Origin::default(),
            membership: None,
            device_faults: engine::sim::DeviceFaults::default(),
            clocks: Vec::new(),
            faults: Vec::new(),
            breakage: None,
            check: false,
            windows,
        }
    }

    fn node(&self, ring: &Arc<Ring>, me: NodeId, windows: &window::Settings) -> node::Settings {
        let device = DeviceSettings {
            name: "device/0".into(),
            outcome: Outcome::BulkDevice,
            servers: self.servers,
            queue_length_max: 1_000_000,
            bytes_max: 1 << 40,
            segment_bytes: 1 << 30,
            segments_max: 0,
            piece_bytes: 0,
            servers_max: 0,
        };
        node::Settings {
            memory_bytes_max: self.memory_bytes,
            eviction: engine::tier::Eviction::default(),
            object_bytes_max: 1 << 20,
            revalidate: None,
            stale_if_error: 0,
            devices: vec![device],
            tiers: TierSettings::default(),
            origin: OriginSettings { servers: 16, queue_length_max: 1 << 20 },
            appends_bytes_max: 1 << 40,
            writes_waiting_max: 1000,
            cluster: (self.nodes > 1).then(|| ClusterSettings {
                ring: ring.clone(),
                me,
                lease: SECOND / 2,
                view_lag: 0,
                peers: OriginSettings { servers: 64, queue_length_max: 1024 },
                replicate_bytes_per_s: 0,
                warm_bytes_per_s: 0,
                hot_load_min: 0.0,
            }),
            windows: windows.clone(),
        }
    }
}
