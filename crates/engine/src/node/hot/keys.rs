//! Which keys hot nodes hold copies of, and how many hot nodes hold each.
//!
//! A hot node ([`crate::route::Ring::with_hot`]) has no keys of its own: it adds reads per second to a
//! cluster, not bytes of the catalogue. Each primary decides for its keys. It counts the reads that its
//! own memory did not answer ([`Popularity`]), and once a beat is told by replicas and hot nodes what
//! they served of its keys; without that a key would seem cold as soon as a hot node serves it. The
//! *load* of a key is its reads per second × the service time of such a read on this node's devices:
//! the part of a device that it keeps busy. Keys above a least load get hot nodes, those with the
//! greatest load per byte first, until this node's part of the hot nodes' bytes is taken. A key has one
//! hot node, and one more for each device that its load would keep busy all the time.
//!
//! The result is a [`HotDirectory`] with a version, which gateways fetch with their pings. It says
//! where a copy may be worth asking for, and no more: whether a node may serve a copy follows from its
//! lease, and a primary invalidates all hot nodes that a key can have, named or not. So an old
//! directory costs its benefit and no consistency. It names counts and not nodes: which nodes they are
//! follows from the reader's ring.
//!
//! Cost: a hash and a look at the sketch for each read that is counted; once a beat a sort of at most
//! 4,096 candidates. Nothing without hot members.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use ground::window::{Nanos, SECOND, key_hash};
use serde::{Deserialize, Serialize};

use crate::Payload;
use crate::node::{Action, Node, ReadsTold, TierSettings};
use crate::route::{HOT_NODES_MAX, NodeId};
use crate::tier::Popularity;
use ground::Key;

/// Maximum keys of a directory.
pub const HOT_KEYS_MAX: usize = 1024;
/// Maximum keys of which a node tells another its reads at once.
pub const TOLD_MAX: usize = 256;
/// Keys whose reads are counted until they are told.
const SERVED_MAX: usize = 4096;
/// Keys that are looked at for hot nodes.
const CANDIDATES_MAX: usize = 4096;
/// A key is no candidate for fewer decayed reads: once is no popularity.
const COUNT_MIN: f64 = 1.5;
/// Objects offered to hot nodes in a beat; these copy others when they are first read there.
const OFFERED_MAX: usize = 32;
/// Beats in the remembered time, and at least one a second.
const BEATS: Nanos = 16;
/// Beats after which a hot node's bytes count no more unless it tells them again.
const ROOM_KEPT: Nanos = 16;
/// Moves that are listed.
const MOVES_LISTED: usize = 64;
const MINUTE: Nanos = 60 * SECOND;

/// The keys of one primary that hot nodes hold copies of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotDirectory {
    /// Another one for each change; those of two lives of a process differ.
    pub version: u64,
    /// The keys' hashes ([`key_hash`]) in ascending order, each with its number of hot nodes; at most
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
    counts: Popularity,
    pub candidates: HashMap<u64, Candidate>,
    /// Reads of other primaries' keys that were not told yet.
    served: HashMap<u64, u32>,
    /// Reads that this node served as a hot node.
    pub served_total: u64,
    /// The bytes of each hot node, and when it told them.
    rooms: Vec<(NodeId, u64, Nanos)>,
    /// Bytes that this node's keys may take of them, at the last beat.
    pub bytes_max: u64,
    every: Nanos,
    due: Nanos,
    pub directory: Arc<HotDirectory>,
    pub bought: HotNodesBought,
    pub moves: HotNodesMoves,
    /// The moves when the current minute and the one before began.
    pub minutes: [HotNodesMoves; 2],
    minute: Nanos,
    pub moved: VecDeque<HotNoted>,
}

impl HotKeys {
    fn new(settings: &TierSettings, now: Nanos) -> HotKeys {
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

    fn served(&mut self, hash: u64) {
        if self.served.len() < SERVED_MAX {
            let count = self.served.entry(hash).or_insert(0);
            *count = count.saturating_add(1);
        } else if let Some(count) = self.served.get_mut(&hash) {
            *count = count.saturating_add(1);
        }
    }

    /// What is to be told to each primary, the most read keys first where there are too many.
    fn take_reads(
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
    fn note_change(&mut self, hash: u64, before: u8, now: Nanos) {
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
    fn ranked(&mut self, hysteresis: f64, now: Nanos) -> Vec<u64> {
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

/// The number of hot nodes that a load needs: one, and one more for each device that it keeps busy. A
/// key that has more keeps them until its load is clearly below what they are for.
pub(in crate::node) fn nodes_for(load: f64, before: u8, hysteresis: f64) -> u8 {
    let nodes = |load: f64| 1 + load.clamp(0.0, HOT_NODES_MAX as f64) as u8;
    nodes(load).max(before.min(nodes(load * hysteresis))).min(HOT_NODES_MAX as u8)
}

impl<P: Payload> Node<P> {
    /// The keys of which this node orders the writes and which hot nodes hold copies of, for gateways;
    /// `None` without hot nodes.
    pub fn hot_directory(&self) -> Option<Arc<HotDirectory>> {
        self.hot_keys.as_ref().map(|hot| hot.directory.clone())
    }

    /// Counts a client's read: what memory answers costs no device's time, except on a hot node, where
    /// it was spared another node.
    pub(in crate::node) fn count_for_hot_nodes(&mut self, key: &[u8], in_memory: bool, now: Nanos) {
        let (Some(hot), Some(cluster)) = (&mut self.hot_keys, &self.cluster) else { return };
        if in_memory && !cluster.is_hot() {
            return;
        }
        let hash = key_hash(key);
        if cluster.primary_of_hash(hash) != Some(cluster.settings.me) {
            hot.served_total += u64::from(cluster.is_hot());
            return hot.served(hash);
        }
        let count = hot.counts.add(&hash.to_le_bytes(), now);
        let pinned = self.settings.tiers.pins.iter().any(|pin| pin.holds(key));
        let enough = pinned || count >= COUNT_MIN;
        if !enough || hot.candidates.len() >= CANDIDATES_MAX || hot.candidates.contains_key(&hash) {
            return;
        }
        // What no device has costs none of their time.
        let Some(on) = self.index.get(key) else { return };
        let (bytes, key) = (on.bytes(), Key::from(key));
        let candidate = Candidate { key, bytes, cost_s: 0.0, reads_per_s: 0.0, nodes: 0, pinned };
        hot.candidates.insert(hash, candidate);
    }

    /// A peer tells what it served of keys whose primary this node is.
    pub(in crate::node) fn reads_told(&mut self, now: Nanos, peer: NodeId, told: &ReadsTold) {
        let (Some(hot), Some(cluster)) = (&mut self.hot_keys, &self.cluster) else { return };
        let is_hot = cluster.settings.ring.is_hot(peer);
        if is_hot {
            hot.rooms.retain(|(node, ..)| *node != peer);
            hot.rooms.push((peer, told.bytes_max, now));
        }
        for &(hash, reads) in told.reads.iter().take(TOLD_MAX) {
            // Only of keys that were hot here already is it known what a read costs.
            let Some(candidate) = hot.candidates.get(&hash) else { continue };
            hot.counts.add_many(&hash.to_le_bytes(), reads, now);
            if is_hot {
                hot.bought.reads += u64::from(reads);
                hot.bought.device_s += f64::from(reads) * candidate.cost_s;
            }
        }
    }

    /// Tells primaries what was served of their keys, and decides anew about this node's own.
    pub(in crate::node) fn run_hot_keys(&mut self, now: Nanos, actions: &mut Vec<Action<P>>) {
        let Some(cluster) = &self.cluster else { return };
        if cluster.settings.ring.hot_count() == 0 {
            self.hot_keys = None;
            return;
        }
        let tiers = &self.settings.tiers;
        let mut hot = self.hot_keys.take().unwrap_or_else(|| Box::new(HotKeys::new(tiers, now)));
        if hot.due <= now {
            hot.due = now + hot.every;
            hot.roll(now);
            self.tell_reads(&mut hot, actions);
            self.name_hot_nodes(&mut hot, now, actions);
        }
        self.hot_keys = Some(hot);
    }

    fn tell_reads(&self, hot: &mut HotKeys, actions: &mut Vec<Action<P>>) {
        let Some(cluster) = &self.cluster else { return };
        let mut told = hot.take_reads(|hash| cluster.primary_of_hash(hash));
        let devices: u64 = self.devices.iter().map(|device| device.log.bytes_max()).sum();
        let bytes_max = match cluster.is_hot() {
            true => devices.max(self.settings.memory_bytes_max),
            false => 0,
        };
        for peer in cluster.live_peers() {
            let reads = told.remove(&peer).unwrap_or_default();
            let has_keys = cluster.settings.ring.has_keys(peer);
            if !reads.is_empty() || (bytes_max > 0 && has_keys) {
                actions.push(Action::TellReads { peer, told: ReadsTold { bytes_max, reads } });
            }
        }
    }

    /// The part of the hot nodes' bytes for this node's keys: its part of the weights.
    fn hot_room(&self, hot: &mut HotKeys, now: Nanos) -> u64 {
        let Some(cluster) = &self.cluster else { return 0 };
        let kept = ROOM_KEPT * hot.every;
        hot.rooms.retain(|(_, _, told)| now.saturating_sub(*told) <= kept);
        let bytes: u64 = hot.rooms.iter().fold(0, |sum, (_, bytes, _)| sum.saturating_add(*bytes));
        let (ring, me) = (&cluster.settings.ring, cluster.settings.me);
        let weight =
            |node: NodeId| if ring.has_keys(node) { ring.members()[node].weight } else { 0.0 };
        let all: f64 = (0..ring.members().len()).map(weight).sum();
        (bytes as f64 * self.settings.tiers.fill * weight(me) / all.max(f64::MIN_POSITIVE)) as u64
    }

    /// Sets the bytes of candidates and what their reads cost this node's devices.
    fn price_candidates(&self, hot: &mut HotKeys) {
        for candidate in hot.candidates.values_mut() {
            // As of the last time for an object that no device has at the moment.
            let Some(on) = self.index.get(&candidate.key) else { continue };
            candidate.bytes = on.bytes();
            let cost = on.places().map(|p| self.devices[p.device].service.of_s(candidate.bytes));
            candidate.cost_s = cost.fold(f64::INFINITY, f64::min).min(1e3);
        }
    }

    fn name_hot_nodes(&mut self, hot: &mut HotKeys, now: Nanos, actions: &mut Vec<Action<P>>) {
        let Some(cluster) = &self.cluster else { return };
        hot.bytes_max = self.hot_room(hot, now);
        let tiers = &self.settings.tiers;
        let me = cluster.settings.me;
        hot.candidates.retain(|hash, _| cluster.primary_of_hash(*hash) == Some(me));
        self.price_candidates(hot);
        let ranked = hot.ranked(tiers.hysteresis, now);
        let most = cluster.settings.ring.hot_count() as u8;
        let per_beat = tiers.promote_bytes_per_s as f64 * hot.every as f64 / SECOND as f64;
        let (mut taken, mut moved, mut offered) = (0u64, 0u64, 0);
        let mut keys: Vec<(u64, u8)> = Vec::new();
        for (rank, hash) in ranked.into_iter().enumerate() {
            let Some(candidate) = hot.candidates.get_mut(&hash) else { continue };
            let before = candidate.nodes;
            let held = if before > 0 { tiers.hysteresis.max(1.0) } else { 1.0 };
            let worth = candidate.pinned
                || candidate.load() * held >= cluster.settings.hot_load_min
                    && candidate.load() > 0.0;
            let mut nodes =
                nodes_for(candidate.load(), before, tiers.hysteresis.max(1.0)).min(most);
            let bytes = candidate.bytes.saturating_mul(u64::from(nodes));
            let fits = taken.saturating_add(bytes) <= hot.bytes_max && keys.len() < HOT_KEYS_MAX;
            if !worth || !fits {
                nodes = 0;
            } else if nodes > before {
                // Where nothing was moved in this beat, any object may be, however large.
                if per_beat <= 0.0 || moved > 0 && (moved + bytes) as f64 > per_beat {
                    hot.moves.put_off += 1;
                    nodes = before;
                } else {
                    moved += bytes;
                }
            }
            taken += candidate.bytes.saturating_mul(u64::from(nodes));
            candidate.nodes = nodes;
            if nodes > 0 {
                keys.push((hash, nodes));
            }
            if nodes != before {
                let key = candidate.key.clone();
                hot.note_change(hash, before, now);
                let all = cluster.settings.ring.with_hot(hash, usize::from(nodes));
                let new = all.iter().skip(all.len() - usize::from(nodes.saturating_sub(before)));
                for peer in new.filter(|&peer| cluster.has_granted(peer, now)) {
                    if offered < OFFERED_MAX {
                        offered += 1;
                        actions.push(Action::Offer { peer, key: key.clone() });
                    }
                }
            }
            if nodes == 0 && rank >= CANDIDATES_MAX / 2 {
                hot.candidates.remove(&hash);
            }
        }
        keys.sort_unstable();
        if keys != hot.directory.keys {
            let version = hot.directory.version.wrapping_add(1);
            hot.directory = Arc::new(HotDirectory { version, keys });
        }
    }
}
