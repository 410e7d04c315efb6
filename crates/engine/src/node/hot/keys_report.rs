//! What a node tells of hot nodes: which of its keys they hold, why, what changed, and what it bought.

use ground::window::{Nanos, SECOND};
use serde::{Deserialize, Serialize};

use super::keys_state::{Candidate, HotKeys, HotNodesBought, HotNodesMoves};
use crate::node::state::Node;
use crate::{Payload, route::Ring};

/// Keys that are listed.
const LISTED: usize = 32;

/// A key that hot nodes hold copies of, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HotKey {
    /// The key; bytes that are not UTF-8 are replaced.
    pub key: String,
    /// Its record's bytes.
    pub bytes: u64,
    /// Reads per second, of hot nodes and of what the memory of other nodes did not answer.
    pub reads_per_s: f64,
    /// The service time of such a read on this node's devices, seconds.
    pub device_s: f64,
    /// The part of a device that all these reads would keep busy.
    pub load: f64,
    /// The hot nodes that are named for it.
    pub nodes: Vec<String>,
    /// Whether the configuration pins it.
    pub pinned: bool,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HotKeyMoved {
    /// How long ago, seconds.
    pub ago_s: f64,
    /// The key; bytes that are not UTF-8 are replaced.
    pub key: String,
    /// Its number of hot nodes since.
    pub nodes: u8,
    /// Its load then.
    pub load: f64,
}

/// The hot nodes, as a node sees them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HotNodes {
    /// Whether this node is one of them.
    pub is_hot: bool,
    /// Reads that it served as one.
    pub served: u64,
    /// The version of the directory that gateways fetch.
    pub version: u64,
    /// Keys of this node that hot nodes hold copies of.
    pub keys: usize,
    /// Bytes of these copies.
    pub bytes: u64,
    /// Bytes that they may take.
    pub bytes_max: u64,
    /// The load from which on a key gets a hot node.
    pub load_min: f64,
    /// Since the start.
    pub bought: HotNodesBought,
    /// Since the start.
    pub moves: HotNodesMoves,
    /// In the last whole minute and the one before now that has not ended.
    pub last_minute: HotNodesMoves,
    /// The keys with the greatest load.
    pub hottest: Vec<HotKey>,
    /// The latest changes.
    pub moved: Vec<HotKeyMoved>,
}

impl HotNodesMoves {
    fn since(&self, before: &HotNodesMoves) -> HotNodesMoves {
        HotNodesMoves {
            named: self.named - before.named,
            named_bytes: self.named_bytes - before.named_bytes,
            dropped: self.dropped - before.dropped,
            put_off: self.put_off - before.put_off,
        }
    }
}

fn printable(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}

fn hottest(hot: &HotKeys, ring: &Ring) -> Vec<HotKey> {
    let named = hot.candidates.iter().filter(|(_, candidate)| candidate.nodes > 0);
    let mut named: Vec<_> = named.collect();
    named.sort_by(|(a, x), (b, y)| y.load().total_cmp(&x.load()).then(a.cmp(b)));
    let key = |(hash, candidate): (&u64, &Candidate)| {
        let own = ring.replicas_of_hash(*hash).len();
        let nodes = ring.with_hot(*hash, usize::from(candidate.nodes));
        HotKey {
            key: printable(&candidate.key),
            bytes: candidate.bytes,
            reads_per_s: candidate.reads_per_s,
            device_s: candidate.cost_s,
            load: candidate.load(),
            nodes: nodes.iter().skip(own).map(|node| ring.name(node).to_owned()).collect(),
            pinned: candidate.pinned,
        }
    };
    named.into_iter().take(LISTED).map(key).collect()
}

impl<P: Payload> Node<P> {
    /// The hot nodes as this node sees them; `None` without any.
    pub(in crate::node) fn hot_nodes(&mut self, now: Nanos) -> Option<HotNodes> {
        let (hot, cluster) = (self.hot_keys.as_mut()?, self.cluster.as_ref()?);
        hot.roll(now);
        let of = hot.candidates.values().filter(|candidate| candidate.nodes > 0);
        let bytes = of.map(|candidate| candidate.bytes * u64::from(candidate.nodes)).sum();
        let moved = hot.moved.iter().rev().map(|noted| HotKeyMoved {
            ago_s: now.saturating_sub(noted.at) as f64 / SECOND as f64,
            key: printable(&noted.key),
            nodes: noted.nodes,
            load: noted.load,
        });
        Some(HotNodes {
            is_hot: cluster.is_hot(),
            served: hot.served_total,
            version: hot.directory.version,
            keys: hot.directory.keys.len(),
            bytes,
            bytes_max: hot.bytes_max,
            load_min: cluster.settings.hot_load_min,
            bought: hot.bought,
            moves: hot.moves,
            last_minute: hot.moves.since(&hot.minutes[0]),
            hottest: hottest(hot, &cluster.settings.ring),
            moved: moved.collect(),
        })
    }
}
