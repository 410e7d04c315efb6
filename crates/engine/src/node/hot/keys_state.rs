//! What a node knows of hot keys: how often they are read, the directory of those that hot nodes hold copies of, what was moved,
//! and what it bought.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use ground::window::{Nanos, SECOND};
use serde::{Deserialize, Serialize};

use crate::node::settings::TierSettings;
use crate::route::NodeId;
use crate::tier::Popularity;
use ground::Key;

/// Maximum keys of a directory.
pub const HOT_KEYS_MAX: usize = 1024;
/// Maximum keys of which a node tells another its reads at once.
pub const TOLD_MAX: usize = 256;
/// Keys whose reads are counted until they are told.
const SERVED_MAX: usize = 4096;
/// A key is no candidate for fewer decayed reads: once is no popularity.
pub(super) const COUNT_MIN: f64 = 1.5;
/// Beats in the remembered time, and at least one a second.
const BEATS: Nanos = 16;
/// Moves that are listed.
const MOVES_LISTED: usize = 64;
const MINUTE: Nanos = 60 * SECOND;

/// The keys of one primary that hot nodes hold copies of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotDirectory {
    /// Another one for each change; those of two lives of a process differ.
    pub version: u64,
    /// The keys' hashes ([`ground::window::key_hash`]) in ascending order, each with its number of hot nodes; at most
    /// [`HOT_KEYS_MAX`].
    pub keys: Vec<(u64, u8)>,
}

/// Counts of what hot nodes were named for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotNodesMoves {
    /// Copies that hot nodes were named for.
    pub named: u64,
    /// Their bytes.
    pub named_bytes: u64,
    /// Copies that they are named for no more.
    pub dropped: u64,
    /// Keys put off because as many bytes were moved as `promote_bytes` allows.
    pub put_off: u64,
}

/// What hot nodes brought to the keys of this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HotNodesBought {
    /// Reads of this node's keys that hot nodes served, as they told it.
    pub reads: u64,
    /// Seconds of service on this node's devices that these would have taken.
    pub device_s: f64,
}

/// A key that may be worth hot nodes.
pub(in crate::node) struct Candidate {
    pub key: Key,
    pub bytes: u64,
    /// The service time of a read on this node's devices, seconds.
    pub cost_s: f64,
    pub reads_per_s: f64,
    /// Its number of hot nodes; 0: none.
    pub nodes: u8,
    pub pinned: bool,
}

impl Candidate {
    /// The part of a device that its reads keep busy.
    pub fn load(&self) -> f64 {
        self.reads_per_s * self.cost_s
    }
}

/// A move, as it is kept.
pub(in crate::node) struct HotNoted {
    pub at: Nanos,
    pub key: Key,
    pub nodes: u8,
    pub load: f64,
}

/// What a node knows of hot keys.
pub(in crate::node) struct HotKeys {
    pub(super) counts: Popularity,
    pub candidates: HashMap<u64, Candidate>,
    /// Reads of other primaries' keys that were not told yet.
    served: HashMap<u64, u32>,
    /// Reads that this node served as a hot node.
    pub served_total: u64,
    /// The bytes of each hot node, and when it told them.
    pub(super) rooms: Vec<(NodeId, u64, Nanos)>,
    /// Bytes that this node's keys may take of them, at the last beat.
    pub bytes_max: u64,
    pub(super) every: Nanos,
    pub(super) due: Nanos,
    pub directory: Arc<HotDirectory>,
    pub bought: HotNodesBought,
    pub moves: HotNodesMoves,
    /// The moves when the current minute and the one before began.
    pub minutes: [HotNodesMoves; 2],
    minute: Nanos,
    pub moved: VecDeque<HotNoted>,
}

impl HotKeys {
    pub(super) fn new(settings: &TierSettings, now: Nanos) -> HotKeys {
        // The time makes the versions of two lives differ.
        let directory = HotDirectory { version: now.max(1), keys: Vec::new() };
        HotKeys {
            counts: Popularity::new(settings.counters, settings.memory, now),
            candidates: HashMap::new(),
            served: HashMap::new(),
            served_total: 0,
            rooms: Vec::new(),
            bytes_max: 0,
            every: (settings.memory / BEATS).clamp(1, SECOND),
            due: now,
            directory: Arc::new(directory),
            bought: HotNodesBought::default(),
            moves: HotNodesMoves::default(),
            minutes: [HotNodesMoves::default(); 2],
            minute: now,
            moved: VecDeque::new(),
        }
    }

    pub(super) fn served(&mut self, hash: u64) {
        if self.served.len() < SERVED_MAX {
            let count = self.served.entry(hash).or_insert(0);
            *count = count.saturating_add(1);
        } else if let Some(count) = self.served.get_mut(&hash) {
            *count = count.saturating_add(1);
        }
    }

    /// What is to be told to each primary, the most read keys first where there are too many.
    pub(super) fn take_reads(
        &mut self,
        primary: impl Fn(u64) -> Option<NodeId>,
    ) -> HashMap<NodeId, Vec<(u64, u32)>> {
        let mut served: Vec<(u64, u32)> = self.served.drain().collect();
        served.sort_unstable_by_key(|&(hash, count)| (std::cmp::Reverse(count), hash));
        let mut told: HashMap<NodeId, Vec<(u64, u32)>> = HashMap::new();
        for (hash, count) in served {
            let Some(peer) = primary(hash) else { continue };
            let of = told.entry(peer).or_default();
            if of.len() < TOLD_MAX {
                of.push((hash, count));
            }
        }
        told
    }

    /// Counts and lists that a candidate has another number of hot nodes than before.
    pub(super) fn note_change(&mut self, hash: u64, before: u8, now: Nanos) {
        let Some(candidate) = self.candidates.get(&hash) else { return };
        let (nodes, load) = (candidate.nodes, candidate.load());
        let named = u64::from(nodes.saturating_sub(before));
        self.moves.named += named;
        self.moves.named_bytes += candidate.bytes * named;
        self.moves.dropped += u64::from(before.saturating_sub(nodes));
        let key = candidate.key.clone();
        if self.moved.len() >= MOVES_LISTED {
            self.moved.pop_front();
        }
        self.moved.push_back(HotNoted { at: now, key, nodes, load });
    }

    pub fn roll(&mut self, now: Nanos) {
        let past = now.saturating_sub(self.minute);
        if past >= MINUTE {
            let before = if past < 2 * MINUTE { self.minutes[1] } else { self.moves };
            self.minutes = [before, self.moves];
            self.minute = now - past % MINUTE;
        }
    }

    /// Counts the reads anew, forgets what is read no more, and returns the candidates, the one with the
    /// greatest load per byte first. Those that have hot nodes come before others of nearly the same.
    pub(super) fn ranked(&mut self, hysteresis: f64, now: Nanos) -> Vec<u64> {
        let HotKeys { counts, candidates, .. } = self;
        candidates.retain(|hash, candidate| {
            let count = counts.count(&hash.to_le_bytes(), now);
            candidate.reads_per_s = counts.rate(count, now);
            candidate.nodes > 0 || count >= COUNT_MIN / 2.0
        });
        let merit = |candidate: &Candidate| {
            let held = if candidate.nodes > 0 { hysteresis.max(1.0) } else { 1.0 };
            candidate.load() * held / candidate.bytes.max(1) as f64
        };
        let of = |(hash, c): (&u64, &Candidate)| (c.pinned, merit(c), *hash);
        let mut ranked: Vec<(bool, f64, u64)> = candidates.iter().map(of).collect();
        ranked.sort_by(|a, b| b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)).then(a.2.cmp(&b.2)));
        ranked.into_iter().map(|(_, _, hash)| hash).collect()
    }
}
