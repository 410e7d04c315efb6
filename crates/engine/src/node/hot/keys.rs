//! Which keys hot nodes hold copies of, and how many hot nodes hold each.
//!
//! A hot node ([`crate::route::Ring::with_hot`]) has no keys of its own: it adds reads per second to a
//! cluster, not bytes of the catalogue. Each primary decides for its keys. It counts the reads that its
//! own memory did not answer (`Popularity`), and once a beat is told by replicas and hot nodes what
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

use std::sync::Arc;

use ground::window::{Nanos, SECOND, key_hash};

use super::keys_state::{COUNT_MIN, Candidate, HOT_KEYS_MAX, HotDirectory, HotKeys, TOLD_MAX};
use crate::Payload;
use crate::node::event::{Action, ReadsTold};
use crate::node::state::Node;
use crate::route::{HOT_NODES_MAX, NodeId};
use ground::Key;

/// Keys that are looked at for hot nodes.
const CANDIDATES_MAX: usize = 4096;
/// Objects offered to hot nodes in a beat; these copy others when they are first read there.
const OFFERED_MAX: usize = 32;
/// Beats after which a hot node's bytes count no more unless it tells them again.
const ROOM_KEPT: Nanos = 16;

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
