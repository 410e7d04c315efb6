//! The cluster protocol of a node: leases, invalidations, offers of copies.
//!
//! One node orders a key's writes: its *primary*, the first of the key's nodes that is live. The
//! key's other nodes may serve copies under a *lease* from the primary, which they keep renewing.
//! While a lease lasts, the primary acknowledges no write to the key before the lease's holder has
//! dropped its copies (Gray and Cheriton, "Leases: an efficient fault-tolerant mechanism for
//! distributed file cache consistency", SOSP 1989, with one lease for all keys of a primary). A
//! node whose lease ran out may have missed an invalidation: it compares each copy with the origin
//! before serving it, and keeps nothing that it fetches meanwhile. Each node measures durations on
//! its own clock, and the granter counts a lease as 1/16 longer than the holder does. So clocks
//! need not show the same time, but their rates must agree to within 1/16.
//!
//! Each copy records the [`Authority`] under which it was last compared with the origin. A lease
//! that lapsed and was granted again has another generation, and a view that changes who orders a
//! key another epoch, so copies verified under the old one are compared again.
//!
//! A new view concerns those keys alone whose primary it changes, or of which it makes this node a
//! replica ([`Terms`]): for them the node waits until nobody acts on the earlier view. For other
//! keys all goes on, and their primary invalidates the copies of those that were replicas before
//! for as long as they may not know that they are none any more. A node that missed a view cannot
//! tell which keys it concerned, and takes all for changed.
//!
//! A *hot node* ([`Ring::with_hot`]) holds copies as a replica does, under the same leases, and to a
//! key's primary it is one more holder to invalidate. It orders no writes and never becomes a primary.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ground::window::{Nanos, SECOND, key_hash};
use serde::{Deserialize, Serialize};

use super::authorities::Authority;
use super::event::RequestId;
use super::settings::ClusterSettings;
use super::terms::{Change, Term, Terms};
use crate::mutant::{self, Mutant};
use crate::route::{NodeId, Ring, View};
use ground::Key;

/// A lease from a peer.
#[derive(Clone, Copy, Default)]
pub(super) struct Lease {
    pub until: Nanos,
    /// The number of times that it was granted after having lapsed.
    pub generation: u32,
    /// When it was last requested.
    pub asked: Option<Nanos>,
    /// When its granter took it back: grants of requests until then are void.
    pub returned: Option<Nanos>,
}

/// A write that has ended at the origin and waits for the key's other nodes to drop their copies.
pub(super) struct Pending {
    pub key: Key,
    /// As in [`super::state::Writers`].
    pub until: Nanos,
    /// The peers that have not confirmed, and when to repeat the invalidation.
    pub peers: Vec<(NodeId, Option<Nanos>)>,
}

/// How far a node is that hands over.
#[derive(Default)]
pub(super) struct Handover {
    /// The peers whose lease is being taken back.
    pub asked: Vec<NodeId>,
    /// Whether it has handed over.
    pub done: bool,
}

/// A node's view of its peers.
pub(super) struct Cluster {
    pub settings: ClusterSettings,
    pub(super) view: View,
    pub(super) terms: Terms,
    /// Rings of earlier views, and until when another node may act on them.
    earlier: Vec<(Arc<Ring>, Nanos)>,
    pub(super) leases: Vec<Lease>,
    /// The time until which each peer may hold a lease from this node.
    pub granted: Vec<Nanos>,
    /// The newest view that each peer had when it asked for a lease.
    pub(super) asked_in: Vec<u64>,
    /// Before this, no lease is to be asked for.
    pub(super) asks_due: Nanos,
    /// Present once this node hands over.
    pub handover: Option<Handover>,
    pub(super) pending: BTreeMap<RequestId, Pending>,
    /// The number of pending writes of each key.
    pub(super) pending_of: HashMap<Key, u32>,
    /// The share of recent requests to each peer that it could serve, 0 to 1.
    useful: Vec<f32>,
    /// Bytes that may be offered now, and when that was last computed.
    budget: (f64, Nanos),
}

/// A peer as a node sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Its name.
    pub name: String,
    /// Whether the view lists it as live.
    pub live: bool,
    /// Whether this node holds a lease from it.
    pub leased: bool,
    /// Whether it may hold a lease from this node.
    pub granted: bool,
}

impl Cluster {
    pub fn new(settings: ClusterSettings, now: Nanos) -> Cluster {
        let members = settings.ring.members().len();
        // The process that ran under this name before may have granted leases until just now.
        let granted = match mutant::is(Mutant::RestartForgetsLeases) {
            true => vec![now; members],
            false => vec![now + settings.lease + settings.margin(); members],
        };
        Cluster {
            view: match settings.view_lag {
                0 => View::fixed(members),
                _ => View::unknown(members),
            },
            terms: Terms::new(Term { epoch: 0, settled_from: now }),
            earlier: Vec::new(),
            leases: vec![Lease::default(); members],
            granted,
            asked_in: vec![0; members],
            asks_due: 0,
            handover: None,
            pending: BTreeMap::new(),
            pending_of: HashMap::new(),
            useful: vec![1.0; members],
            budget: (0.0, now),
            settings,
        }
    }

    /// Writes that wait for other nodes to drop their copies.
    pub fn pending_writes(&self) -> usize {
        self.pending.len()
    }

    pub fn me(&self) -> NodeId {
        self.settings.me
    }

    /// Whether this node may act on its place in the view.
    fn lasts(&self, now: Nanos) -> bool {
        now < self.view.until || mutant::is(Mutant::MembershipIgnored)
    }

    /// Whether this node may grant leases: it is a member, and no node acts on a view that it missed.
    pub(super) fn may_grant(&self, now: Nanos) -> bool {
        !self.hands_over() && self.terms.all.settled_from <= now && self.lasts(now)
    }

    fn term(&self, hash: u64) -> Term {
        self.terms.term_of(self.settings.ring.slot_of_hash(hash))
    }

    pub fn authority(&self, key: &[u8], now: Nanos) -> Option<Authority> {
        let hash = key_hash(key);
        let primary = self.view.primary(&self.settings.ring.replicas_of_hash(hash))?;
        let (lease, term) = (self.leases[primary], self.term(hash));
        let mine =
            primary == self.me() && (!self.hands_over() || mutant::is(Mutant::ServesAfterHandover));
        let outlives = mutant::is(Mutant::ServeAfterLease)
            || mutant::is(Mutant::HotNodeServesAfterLease) && self.is_hot();
        let leased = mine || now < lease.until || outlives;
        let ignored = mutant::is(Mutant::GenerationIgnored);
        let generation = if ignored { 0 } else { lease.generation };
        let authority = Authority::new(primary, generation, term.epoch);
        (leased && term.settled_from <= now && self.lasts(now)).then_some(authority)
    }

    /// Whether copies that were verified under this authority may be served at some time without
    /// being compared again.
    pub fn may_count(&self, authority: &Authority) -> bool {
        let generation = self.leases.get(authority.primary).map(|lease| lease.generation);
        let same =
            Some(authority.generation) == generation || mutant::is(Mutant::GenerationIgnored);
        same && authority.epoch == self.view.epoch
    }

    /// Whether this node may hold copies of a key: it is one of the key's nodes, or of its hot nodes.
    pub fn is_mine(&self, key: &[u8]) -> bool {
        let ring = &self.settings.ring;
        let any = mutant::is(Mutant::HotNodeTakesAnyKey) && self.is_hot();
        ring.may_hold(ring.slot_of_hash(key_hash(key)), self.me()) || any
    }

    /// Whether this is a hot node.
    pub fn is_hot(&self) -> bool {
        self.settings.ring.is_hot(self.me())
    }

    /// The node that orders a key's writes, by this node's view.
    pub fn primary_of_hash(&self, hash: u64) -> Option<NodeId> {
        self.view.primary(&self.settings.ring.replicas_of_hash(hash))
    }

    /// Whether a peer may hold a lease from this node.
    pub fn has_granted(&self, peer: NodeId, now: Nanos) -> bool {
        self.granted.get(peer).is_some_and(|&until| now < until)
    }

    /// The live members but this one.
    pub fn live_peers(&self) -> impl Iterator<Item = NodeId> {
        let there = |peer: &NodeId| *peer != self.me() && self.view.is_live(*peer);
        (0..self.settings.ring.members().len()).filter(there)
    }

    /// Whether this node orders the key's writes.
    pub fn is_primary(&self, key: &Key, now: Nanos) -> bool {
        let hash = key_hash(key);
        let primary = self.view.primary(&self.settings.ring.replicas_of_hash(hash));
        primary == Some(self.me()) && self.term(hash).settled_from <= now && self.lasts(now)
    }

    /// A peer takes its lease back; `now` is at least the time of any request for it so far.
    pub fn give_back(&mut self, peer: NodeId, now: Nanos) -> bool {
        let Some(lease) = self.leases.get_mut(peer) else { return false };
        (lease.until, lease.returned) = (0, Some(now));
        true
    }

    /// Whether this node's part in a key's order is the same since an epoch; with `None` it does not matter.
    pub fn is_since(&self, key: &Key, epoch: Option<u64>) -> bool {
        epoch.is_none_or(|epoch| self.term(key_hash(key)).epoch <= epoch)
    }

    /// Takes a newer view. Returns the epoch from which on a key's term is new.
    pub(super) fn follow(&mut self, now: Nanos, view: View) -> u64 {
        let ring = view.ring.clone().unwrap_or_else(|| self.settings.ring.clone());
        let lag = self.settings.view_lag;
        let wait = if mutant::is(Mutant::ViewLagIgnored) { 0 } else { lag };
        let term = Term { epoch: view.epoch, settled_from: now + wait };
        let (members, me) = (ring.members().len(), self.me());
        let old = std::mem::replace(&mut self.settings.ring, ring);
        let before = std::mem::replace(&mut self.view, view);
        let next = before.epoch + 1 == term.epoch || mutant::is(Mutant::MissedViewTrusted);
        let ring = &self.settings.ring;
        if before.epoch > 0 && next && old.slots() == ring.slots() {
            let (old, ring, before, view) =
                (old.clone(), ring.clone(), before.clone(), self.view.clone());
            self.terms.begin(term, now, Change { me, old, before, ring, view });
        } else {
            self.terms = Terms::new(term);
        }
        for (node, member) in old.members().iter().enumerate() {
            // Another member has this number now.
            if ring.name(node) != member.name {
                let generation = self.leases[node].generation + 1;
                self.leases[node] = Lease { generation, ..Lease::default() };
            }
        }
        self.leases.resize(members, Lease::default());
        self.granted.resize(members, now);
        self.asked_in.resize(members, 0);
        self.useful.resize(members, 1.0);
        // Members that came or were away may be asked at once.
        self.asks_due = 0;
        self.earlier.retain(|(_, until)| now < *until);
        if !Arc::ptr_eq(&old, ring) && !mutant::is(Mutant::EarlierRingForgotten) {
            self.earlier.push((old, now + lag));
        }
        if next {
            self.end_leases_of_ended(&before, now);
        }
        term.epoch
    }

    /// The nodes that may serve copies of a key: its nodes and hot nodes in the present ring, and in
    /// those on which others may still act. All of its hot nodes count, whether they were named for it
    /// or not: what the primary named before a restart, or another primary, it cannot know.
    pub(super) fn holders(&self, key: &[u8], now: Nanos) -> Vec<NodeId> {
        let hash = key_hash(key);
        let earlier = self.earlier.iter().filter(|(_, until)| now < *until).map(|(ring, _)| ring);
        let mut holders: Vec<NodeId> = Vec::new();
        for ring in std::iter::once(&self.settings.ring).chain(earlier) {
            let without = mutant::is(Mutant::HotNodeNotInvalidated);
            let more = ring.with_hot(hash, if without { 0 } else { usize::MAX });
            let new: Vec<NodeId> = more.iter().filter(|node| !holders.contains(node)).collect();
            holders.extend(new);
        }
        holders
    }

    /// The next peer to request a missing object from, starting at replica `from`: the primary, or,
    /// if this node is the primary, one of the others. Skips peers whose lease has run out, and
    /// most of the time those that seldom have the object. While a write of the key is pending the
    /// primary requests it from no peer: they may still hold the older version, which it would then
    /// keep as its own.
    pub fn next_peer(
        &self,
        key: &Key,
        from: u8,
        avoid: Option<NodeId>,
        turn: u64,
        now: Nanos,
    ) -> Option<(NodeId, u8)> {
        let replicas = self.settings.ring.replicas(key);
        let primary = self.view.primary(&replicas)?;
        let mine = primary == self.me();
        let pending = self.pending_of.contains_key(key);
        if mine && pending && !mutant::is(Mutant::AsksPeersWhilePending) {
            return None;
        }
        let asked = |node: NodeId| {
            node != self.me()
                && (mine || node == primary)
                && Some(node) != avoid
                && now < self.leases[node].until
                && (self.useful[node] > 0.05 || turn.is_multiple_of(16))
        };
        let places = replicas.iter().enumerate().skip(usize::from(from));
        let mut found = places.filter(|(_, node)| asked(*node));
        found.next().map(|(place, node)| (node, place as u8 + 1))
    }

    pub fn note_reply(&mut self, peer: NodeId, found: bool) {
        let useful = &mut self.useful[peer];
        // Over some 32 replies. Below 0.05, after 95 misses in a row, 1 request in 16 still goes there (`next_peer`), so that a
        // peer that has objects again is found out.
        *useful += (f32::from(u8::from(found)) - *useful) / 32.0;
    }

    /// The peers to offer an object of this size to, within the budget, and the same as bits of
    /// places.
    pub fn offer_to(&mut self, key: &[u8], bytes: u64, now: Nanos) -> (Vec<NodeId>, u8) {
        let rate = self.settings.replicate_bytes_per_s as f64;
        let replicas = self.settings.ring.replicas(key);
        if rate == 0.0 || self.view.primary(&replicas) != Some(self.me()) {
            return (Vec::new(), 0);
        }
        let (left, at) = self.budget;
        let since = now.saturating_sub(at) as f64 / SECOND as f64;
        let left = (left + since * rate).min(rate);
        let there = |(_, node): &(usize, NodeId)| *node != self.me() && now < self.granted[*node];
        let peers: Vec<(usize, NodeId)> = replicas.iter().enumerate().filter(there).collect();
        let cost = bytes as f64 * peers.len() as f64;
        let afforded = cost <= left;
        self.budget = (if afforded { left - cost } else { left }, now);
        // To all of them or to none: the object is offered once, at its second read.
        if !afforded {
            return (Vec::new(), 0);
        }
        let warm = peers.iter().fold(0, |bits, (place, _)| bits | 1 << place);
        (peers.into_iter().map(|(_, node)| node).collect(), warm)
    }

    /// What is known of each peer.
    pub fn status(&self, now: Nanos) -> Vec<PeerStatus> {
        let peers = self.settings.ring.members().iter().enumerate();
        let there = |node: NodeId| self.settings.ring.has_keys(node) || self.view.is_live(node);
        let peers = peers.filter(|(node, _)| *node != self.me() && there(*node));
        let status = |(node, member): (usize, &crate::route::Member)| PeerStatus {
            name: member.name.clone(),
            live: self.view.is_live(node),
            leased: now < self.leases[node].until,
            granted: now < self.granted[node],
        };
        peers.map(status).collect()
    }
}
