//! Warming: nodes to which a change of the ring gave keys are offered the hottest objects of these keys.
//!
//! A node that joins is cold: each of its keys costs a read of the origin, at the time at which it is wanted. So who has a key
//! offers it to the nodes that are new to it: the first of the key's nodes that was one of them before. It goes through its
//! memory tier, what was read most first, and offers as many bytes a second as [`ClusterSettings::warm_bytes_per_s`] allows;
//! the new node copies what it has not, as it does with every offer ([`super::remote`]), to its devices or, without any, to memory.
//!
//! Nothing here is trusted. A key whose primary changed was compared with the origin under an authority that is over: before
//! it is offered it is compared again, without its bytes; and a peer is given only what may be served to anybody.
//!
//! It begins when all nodes act on the view. Another change while it goes on adds to it: keys are judged by the ring before the
//! first of them. Cost: a look at some thousand elements of memory's order in a tick, until all were looked at.

use std::sync::Arc;

use ground::window::{Nanos, SECOND, key_hash};

use super::cluster::Cluster;
use super::event::Action;
use super::flights::Flight;
use super::state::{CLASSES, Node, Warmed, Warming};
use crate::Payload;
use crate::route::{NodeId, Ring};

/// Elements of memory's order that are looked at in a tick.
const LOOKED: usize = 4096;
/// The most keys that wait; what is found beyond is not warmed.
const KEYS_MAX: usize = 1 << 16;
/// Keys that are offered or put off in a tick.
const TURNS: usize = 64;
/// Comparisons with the origin that begin in a tick.
const COMPARED: usize = 16;
/// Times that a key is put off.
const TRIES: u8 = 40;

impl Cluster {
    /// The nodes that a key's copy is to be offered to: those that are new to the key since a ring, if this node is the first
    /// of those that are not.
    fn warms(&self, from: &Ring, key: &[u8]) -> Vec<NodeId> {
        let ring = &self.settings.ring;
        let slot = ring.slot_of_hash(key_hash(key));
        if from.slots() != ring.slots() || from.row(slot) == ring.row(slot) {
            return Vec::new();
        }
        let had = from.of_slot(slot);
        let live = ring.of_slot(slot);
        let live = live.iter().filter(|node| self.view.is_live(*node));
        let (old, new): (Vec<NodeId>, Vec<NodeId>) =
            live.partition(|node| had.place(*node).is_some());
        if old.first() == Some(&self.me()) { new } else { Vec::new() }
    }
}

impl<P: Payload> Node<P> {
    /// What was offered to nodes that were new to their keys; `None` without a cluster.
    pub fn warmed(&self) -> Option<Warmed> {
        self.cluster.as_ref()?;
        let now = self.warm.now.as_ref();
        let waiting = now.map_or(0, |warming| warming.waiting_count() as u64);
        Some(Warmed { waiting, goes_on: now.is_some(), ..self.warm.done })
    }

    /// The present ring; `None` if nodes are not warmed after changes of it.
    pub(super) fn ring_before(&self) -> Option<Arc<Ring>> {
        let cluster = self.cluster.as_ref()?;
        (cluster.settings.warm_bytes_per_s > 0).then(|| cluster.settings.ring.clone())
    }

    /// Begins to warm others if a view has changed the ring; `before` is the ring that it replaced.
    pub(super) fn begin_warming(&mut self, now: Nanos, before: Arc<Ring>) {
        let Some(cluster) = &self.cluster else { return };
        if Arc::ptr_eq(&before, &cluster.settings.ring) {
            return;
        }
        // The last to learn of the view waits for as long again before it acts on it.
        let begins = now + 2 * cluster.settings.view_lag;
        let warming = self.warm.now.get_or_insert_with(|| Warming {
            from: before,
            begins,
            place: Some(0),
            keys: Default::default(),
            budget: (0.0, begins),
        });
        (warming.begins, warming.place) = (begins, Some(0));
        warming.keys = Default::default();
    }

    /// Goes on with warming others.
    pub(super) fn warm_others(&mut self, now: Nanos, actions: &mut Vec<Action<P>>) {
        let Some(mut warming) = self.warm.now.take_if(|warming| warming.begins <= now) else {
            return;
        };
        let handing_over = self.cluster.as_ref().is_none_or(Cluster::hands_over);
        self.look_for_hot(&mut warming);
        self.offer_hot(now, &mut warming, actions);
        if !handing_over && (warming.place.is_some() || warming.waiting_count() > 0) {
            self.warm.now = Some(warming);
        }
    }

    fn look_for_hot(&mut self, warming: &mut Warming) {
        let (Some(place), Some(cluster)) = (warming.place, &self.cluster) else { return };
        let (found, ends) = self.memory.hottest(place, LOOKED);
        for (key, class) in found {
            let class = usize::from(class).min(CLASSES - 1);
            if !cluster.warms(&warming.from, &key).is_empty() {
                warming.keys[class].push_back((key, 0));
            }
        }
        let full = warming.waiting_count() >= KEYS_MAX;
        warming.place = (!ends && !full).then_some(place + LOOKED);
    }

    fn offer_hot(&mut self, now: Nanos, warming: &mut Warming, actions: &mut Vec<Action<P>>) {
        let rate = self.cluster.as_ref().map_or(0, |it| it.settings.warm_bytes_per_s) as f64;
        let (left, at) = warming.budget;
        let since = now.saturating_sub(at) as f64 / SECOND as f64;
        let mut left = (left + since * rate).min(rate);
        let mut compared = 0;
        for _ in 0..TURNS {
            let Some((class, key, tries)) = warming.next() else { break };
            let Some(cluster) = &self.cluster else { break };
            let to = cluster.warms(&warming.from, &key);
            let authority = self.authority(&key, now);
            let Some(kept) = self.memory.peek(&key).filter(|_| !to.is_empty()) else { continue };
            let verified = kept.verified(&self.authorities);
            let bytes = kept.payload().stored_bytes();
            let cost = bytes as f64 * to.len() as f64;
            // One that is larger than what a second allows goes when nothing else did for a second.
            if cost.min(rate) > left {
                warming.keys[class].push_front((key, tries));
                break;
            }
            let fresh = self.is_fresh(verified, authority, now);
            if fresh {
                left -= cost;
                self.warm.done.objects += to.len() as u64;
                self.warm.done.bytes += bytes * to.len() as u64;
                let offer = |peer| Action::Offer { peer, key: key.clone() };
                actions.extend(to.into_iter().map(offer));
                continue;
            }
            if tries < TRIES {
                warming.keys[class].push_back((key.clone(), tries + 1));
            }
            let room = self.origin.length() < self.settings.origin.queue_length_max / 2;
            let may = authority.is_some() && room && compared < COMPARED;
            if may && self.flights.joinable(&key).is_none() {
                compared += 1;
                self.warm.done.compared += 1;
                let flight = Flight::new(key, now, Vec::new(), authority, None);
                self.enter_origin(now, flight, true, actions);
            }
        }
        warming.budget = (left, now);
    }
}
