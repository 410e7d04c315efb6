//! The engine's settings of a configuration.

use std::sync::Arc;

use engine::node::{ClusterSettings, DeviceSettings, OriginSettings, Settings};
use engine::route::{NodeId, Ring};
use ground::window::{self, Nanos, Outcome, QueueName};

use configuration::{Class, Config};
use device::disk::DeviceFolder;

/// A node's place among members.
pub fn place_of(config: &Config, ring: Arc<Ring>, me: NodeId, view_lag: Nanos) -> ClusterSettings {
    let cluster = &config.cluster;
    ClusterSettings {
        ring,
        me,
        lease: (cluster.lease_s * 1e9) as Nanos,
        view_lag,
        peers: OriginSettings {
            servers: cluster.peers_parallel,
            queue_length_max: cluster.peers_queue_length_max,
        },
        replicate_bytes_per_s: cluster.replicate_bytes.0,
        warm_bytes_per_s: cluster.warm_bytes.0,
        hot_load_min: cluster.hot_load,
    }
}

/// The engine's settings of a configuration.
pub fn settings_of(
    config: &Config,
    cluster: Option<ClusterSettings>,
    windows: window::Settings,
) -> Settings {
    let mut devices = Vec::new();
    for group in &config.devices {
        for _ in 0..group.count {
            devices.push(DeviceSettings {
                name: QueueName::of_device(devices.len()),
                outcome: match group.class {
                    Class::Hot => Outcome::HotDevice,
                    Class::Bulk => Outcome::BulkDevice,
                },
                servers: group.servers(),
                servers_max: group.servers_max(),
                queue_length_max: group.queue_length_max,
                bytes_max: group.bytes.0,
                segment_bytes: group.segment(),
                segments_max: 0,
                piece_bytes: group.piece_bytes.0,
            });
        }
    }
    let node = &config.node;
    Settings {
        memory_bytes_max: node.memory_bytes.0,
        eviction: node.memory_eviction,
        object_bytes_max: node.object_bytes_max.0,
        // A cache has nothing to compare with.
        revalidate: (node.revalidate_s > 0.0 && config.origin.kind != origin::Kind::None)
            .then_some((node.revalidate_s * 1e9) as Nanos),
        stale_if_error: (node.stale_if_error_s * 1e9) as Nanos,
        cluster,
        devices,
        tiers: config.tiers.settings(),
        origin: OriginSettings {
            servers: config.origin.parallel,
            queue_length_max: config.origin.queue_length_max,
        },
        appends_bytes_max: node.appends_bytes_max.0,
        writes_waiting_max: node.writes_waiting_max,
        windows,
    }
}

/// The folders of a configuration's devices.
pub fn folders_of(config: &Config) -> Vec<DeviceFolder> {
    let mut folders = Vec::new();
    for group in &config.devices {
        for (index, folder) in group.folders().into_iter().enumerate() {
            let service = group.service.clone().map(|service| (service, index as u64));
            let never = group.scrub_s <= 0.0;
            let scrub_bytes_per_s = if never { 0.0 } else { group.bytes.0 as f64 / group.scrub_s };
            let parallel = group.servers().max(group.servers_max());
            folders.push(DeviceFolder {
                folder,
                bytes: group.bytes.0,
                segment_bytes: group.segment_bytes.0,
                parallel,
                service,
                scrub_bytes_per_s,
            });
        }
    }
    folders
}
