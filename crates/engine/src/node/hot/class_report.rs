//! What a node tells of its tiers: what is hot, why, what moved, and what it bought.

use ground::window::{Nanos, Outcome, SECOND};
use serde::{Deserialize, Serialize};

use super::class_state::{Bought, Hottest, MoveKind, Moves};
use crate::Payload;
use crate::node::depth::{Depth, Reason as DepthReason};
use crate::node::device::DeviceState;
use crate::node::event::DeviceId;
use crate::node::hot::keys_report::HotNodes;
use crate::node::state::Node;
use crate::tier::SCALES;
use ground::Key;

/// One move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Moved {
    /// How long ago, seconds.
    pub ago_s: f64,
    /// The key; bytes that are not UTF-8 are replaced.
    pub key: String,
    /// What was done.
    pub what: MoveKind,
    /// Its benefit then; 0 for a demotion.
    pub benefit: f64,
    /// The benefit from which on objects fitted.
    pub level: f64,
}

/// The class of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceClass {
    /// It holds copies of what is read most, if there are bulk devices too.
    Hot,
    /// It holds any object.
    Bulk,
}

impl DeviceClass {
    /// The name.
    pub fn as_str(self) -> &'static str {
        match self {
            DeviceClass::Hot => "hot",
            DeviceClass::Bulk => "bulk",
        }
    }
}

/// A device as `/admin/tiers` shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceTier {
    /// Its queue's name.
    pub name: String,
    /// Its class.
    pub class: DeviceClass,
    /// Whether it serves.
    pub state: DeviceState,
    /// Seconds since it was taken out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out_for_s: Option<f64>,
    /// Whether its last write failed: it takes no further objects until one succeeds. A full device goes on.
    #[serde(default)]
    pub write_failed: bool,
    /// Requests waiting and in service.
    pub queue_length: u32,
    /// Reads that it serves at once.
    pub parallel: u32,
    /// Why, if that is found from its throughput; absent before the first round of measurements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<DepthReason>,
    /// The expected wait of a read of the mean size that came now, service included, seconds.
    pub expected_s: f64,
    /// Service of a read without bytes, and of each byte, seconds: fitted to the latest reads.
    pub service_s: (f64, f64),
    /// Bytes of its log.
    pub bytes: u64,
    /// Its budget.
    pub bytes_max: u64,
    /// Segments that it holds, the one that is filled included.
    pub segments: u64,
    /// Maximum number of segments, if it has a place for each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segments_max: Option<u64>,
    /// Objects that can be read from it.
    pub objects: u64,
    /// Bytes of these, each rounded up by at most an eighth; the rest of `bytes` was replaced.
    pub live_bytes: u64,
    /// Bytes written since the start.
    pub written_bytes: u64,
    /// Bytes of these that were on it before.
    pub reinserted_bytes: u64,
    /// Records that a scrub found damaged since the start.
    pub damaged: u64,
}

/// What is hot, why, what moved, and what it bought.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tiers {
    /// The devices.
    pub devices: Vec<DeviceTier>,
    /// Reads of devices since the start that found the record of another key, because the index
    /// has a part of each key's hash alone.
    pub other_keys: u64,
    /// Absent without devices of both classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hot: Option<HotTier>,
    /// Absent without hot nodes in the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hot_nodes: Option<HotNodes>,
}

/// The hot class of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HotTier {
    /// The benefit (seconds saved in a second for each byte) from which on objects fit.
    pub level: f64,
    /// Benefit from which on any object is copied; objects with many reads are copied from less on.
    pub promote_from: f64,
    /// Objects on hot devices.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Since the start.
    pub bought: Bought,
    /// Since the start.
    pub moves: Moves,
    /// In the last whole minute and the one before now that has not ended.
    pub last_minute: Moves,
    /// For multiples of the hot devices' bytes: share of the devices' reads that the best placement
    /// of so many bytes would serve.
    pub share_at: Vec<(f64, f64)>,
    /// The share of the devices' recent reads that a placement by the counts would have held, within the part
    /// of the hot bytes that it gets; absent before the first read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<f64>,
    /// The time over which reads are counted at the moment, seconds.
    pub remembered_s: f64,
    /// The objects with the greatest benefit among those read lately.
    pub hottest: Vec<Hottest>,
    /// The latest moves.
    pub moved: Vec<Moved>,
}

impl<P: Payload> Node<P> {
    /// What is hot, why, what moved, and what it bought. Changes no decision. Cost: a
    /// look at each device.
    pub fn tiers(&mut self, now: Nanos) -> Tiers {
        let devices: Vec<DeviceTier> =
            (0..self.devices.len()).map(|id| self.device_tier(id, now)).collect();
        let hot = self.hot_tier(&devices, now);
        Tiers { devices, other_keys: self.other_keys, hot, hot_nodes: self.hot_nodes(now) }
    }

    fn device_tier(&self, id: DeviceId, now: Nanos) -> DeviceTier {
        let device = &self.devices[id];
        let live = self.index.live(id);
        let mean = live.bytes / live.objects.max(1);
        DeviceTier {
            name: self.settings.devices[id].name.clone(),
            class: match device.outcome {
                Outcome::HotDevice => DeviceClass::Hot,
                _ => DeviceClass::Bulk,
            },
            state: device.health.state(),
            out_for_s: device
                .health
                .out_since()
                .map(|since| now.saturating_sub(since) as f64 / SECOND as f64),
            write_failed: device.write_failed,
            queue_length: device.queue.length(),
            parallel: device.servers,
            depth: device.depth.as_ref().and_then(Depth::reason),
            expected_s: device.expected_s(mean, now),
            service_s: device.service.line(),
            bytes: device.log.bytes(),
            bytes_max: device.log.bytes_max(),
            segments: device.log.segments().0,
            segments_max: device.log.segments().1,
            objects: live.objects,
            live_bytes: live.bytes.min(device.log.bytes()),
            written_bytes: device.written_bytes,
            reinserted_bytes: device.reinserted_bytes,
            damaged: device.damaged,
        }
    }

    fn hot_tier(&mut self, devices: &[DeviceTier], now: Nanos) -> Option<HotTier> {
        let tiers = &self.settings.tiers;
        let remembered_s = tiers.memory as f64 / SECOND as f64;
        let hot = self.hot.as_mut()?;
        hot.roll(now);
        // Per second instead of per remembered time, so that it compares with other settings.
        // As of the last read that asked: to look at it must not change what is decided.
        let level = hot.rate(hot.level, now);
        let of = devices.iter().filter(|device| device.class == DeviceClass::Hot);
        let (objects, bytes) =
            of.fold((0, 0), |(n, b), device| (n + device.objects, b + device.live_bytes));
        let there = |key: &Key| self.index.get(key).is_some_and(|on| on.hot().is_some());
        let listed = hot.hottest.iter().filter(|(key, _)| there(key));
        let mut hottest: Vec<Hottest> = listed.map(|(_, listed)| listed.clone()).collect();
        hottest.sort_by(|a, b| b.benefit.total_cmp(&a.benefit));
        let moved = hot.moved.iter().rev().map(|noted| Moved {
            ago_s: now.saturating_sub(noted.at) as f64 / SECOND as f64,
            key: String::from_utf8_lossy(&noted.key).into_owned(),
            what: noted.what,
            benefit: hot.rate(noted.benefit, now),
            level: hot.rate(noted.level, now),
        });
        Some(HotTier {
            level,
            promote_from: level * tiers.hysteresis,
            objects,
            bytes,
            bought: hot.bought,
            moves: hot.moves,
            last_minute: hot.moves.since(&hot.minutes[0]),
            share_at: hot.share_at.clone(),
            held: hot.worth.held_share(),
            remembered_s: remembered_s * SCALES[hot.worth.scale()],
            hottest,
            moved: moved.collect(),
        })
    }
}
