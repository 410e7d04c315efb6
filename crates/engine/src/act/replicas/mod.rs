//! Decides which hot shards get an additional replica, on which node, and for how long.
//!
//! The ring assigns a shard of a dataset to some nodes. If these are busy and none of them can add a layer to the shard (see
//! [`crate::layers::replicas`]), a gateway asks the least loaded other node to hold a copy. The copy is *leased*: the gateway
//! renews the lease while the copy is needed, and a node drops a copy whose lease ends, so that a gateway that stops leaves no copies behind.
//! The bytes of leased copies count against the node's budget for layers ([`Leases`]). A node without room refuses, and is not asked again
//! for [`Settings::refused`].
//!
//! Several gateways decide independently, from the queue lengths that nodes report. Each sees the copies that others have leased, and
//! sends reads to them. Each waits a different time between two changes, so that one acts first and the others see its change.
//!
//! - **Bounds.** At most [`Settings::per_shard`] additional replicas of a shard and [`Settings::all`] of one gateway, one change of
//!   a shard at a time, each approved by the governor ([`super::Governor`]).
//! - **Wrong reports.** A shard's queue length is the lower median over its holders, so that one wrong report of three has no effect.
//!   A length that is not a number is ignored.
//! - **Mistakes.** If a shard becomes hot again within about ten minutes after a replica was given up, the next one is kept twice as
//!   long, up to [`PATIENCE_MAX`] times the settling time: copying a shard costs as much traffic as it has bytes.
//!
//! This module has no clock; callers pass the time. Cost: O(shards × nodes) for each observation.

mod leases;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use ground::window::{Nanos, SECOND};

use crate::layers::replicas::{Replicas, Replicated, Resize};
use crate::layers::{self, SettingsError, ShardId, relieved};
use crate::mutant::{Mutant, is};
use crate::route::NodeId;
pub use leases::{LEASE_MAX, Leases};

/// The longest time for which a replica is kept after mistakes, as a multiple of the settling time.
pub const PATIENCE_MAX: u64 = 128;
/// Giving up a replica was a mistake if the shard needs one again within this multiple of the settling time, or within 8 times
/// the time for which the replica was kept.
const SOON: u64 = 60;

/// The settings of the decisions on replicas.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The interval, smoothing, high mark and settling time; of these the budget and the low mark are not used.
    pub marks: layers::Settings,
    /// The largest number of additional replicas of a shard.
    pub per_shard: usize,
    /// The largest number of additional replicas that one gateway leases.
    pub all: usize,
    /// The duration of a lease; it is renewed after half of this time.
    pub lease: Nanos,
    /// How long a node that refused a shard is not asked again.
    pub refused: Nanos,
}

impl Default for Settings {
    /// Decisions every two seconds, and changes of a shard ten seconds apart at least.
    fn default() -> Self {
        let marks = layers::Settings {
            interval: 2 * SECOND,
            smoothing: 0.3,
            settle: 10 * SECOND,
            ..layers::Settings::default()
        };
        Settings { marks, per_shard: 2, all: 16, lease: 60 * SECOND, refused: 60 * SECOND }
    }
}

/// A shard, as the nodes that hold it tell of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ShardReport {
    /// The shard; the same for all gateways.
    pub shard: ShardId,
    /// Bytes of its file.
    pub bytes: u64,
    /// The nodes that hold it by the ring.
    pub homes: Vec<NodeId>,
    /// The nodes that serve it, and the length of its queue at each.
    pub holders: Vec<(NodeId, f64)>,
    /// Whether a holder can have a further layer, or is being given one.
    pub can_grow: bool,
}

/// A node that may hold further replicas.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Room {
    /// The node.
    pub node: NodeId,
    /// Requests that wait in all its queues.
    pub length: f64,
    /// Bytes that it has left for copies.
    pub bytes: u64,
}

/// What a gateway should do. [`Order::Add`] and [`Order::Remove`] are changes, for the governor to decide on.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Ask a node to hold a copy; then call [`Extras::record_agreement`].
    Add {
        /// The shard.
        shard: ShardId,
        /// The node.
        node: NodeId,
        /// Mean length of a holder's queue.
        average: f64,
        /// The length expected with one holder more.
        expected: f64,
    },
    /// Give a copy up; then call [`Extras::gone`].
    Remove {
        /// The shard.
        shard: ShardId,
        /// The node.
        node: NodeId,
        /// Mean length of a holder's queue.
        average: f64,
        /// The length expected with one holder less.
        expected: f64,
    },
    /// Lease a copy anew; then call [`Extras::record_agreement`].
    Renew {
        /// The shard.
        shard: ShardId,
        /// The node.
        node: NodeId,
    },
}

/// A copy that this gateway has leased.
#[derive(Clone, Copy, Debug)]
struct Extra {
    until: Nanos,
    /// Whether the node has told that it serves it.
    serves: bool,
}

/// How long a shard's replicas are kept.
#[derive(Clone, Copy, Debug)]
struct Patience {
    added: Nanos,
    removed: Option<Nanos>,
    patience: Nanos,
}

/// Decides for a gateway.
#[derive(Clone, Debug)]
pub struct Extras {
    settings: Settings,
    replicas: Replicas,
    leased: BTreeMap<(ShardId, NodeId), Extra>,
    refused: BTreeMap<(ShardId, NodeId), Nanos>,
    patience: BTreeMap<ShardId, Patience>,
}

impl Extras {
    /// `number` tells gateways apart: those with different numbers (modulo 8) wait different times between changes.
    ///
    /// # Errors
    /// The settings are invalid.
    pub fn new(mut settings: Settings, number: u64) -> Result<Extras, SettingsError> {
        let settle = settings.marks.settle;
        settings.marks.settle = settle + settle / 8 * (number % 8);
        Ok(Extras {
            replicas: Replicas::new(settings.marks.clone(), 1)?,
            settings,
            leased: BTreeMap::new(),
            refused: BTreeMap::new(),
            patience: BTreeMap::new(),
        })
    }

    /// The copies that this gateway has leased: shard and node.
    pub fn leased(&self) -> impl Iterator<Item = (ShardId, NodeId)> + '_ {
        self.leased.keys().copied()
    }

    /// Takes what nodes tell of all shards and of themselves, and returns what to do.
    pub fn observe(&mut self, now: Nanos, shards: &[ShardReport], nodes: &[Room]) -> Vec<Order> {
        self.refused.retain(|_, until| *until > now);
        self.patience.retain(|id, _| shards.iter().any(|shard| shard.shard == *id));
        for seen in shards {
            for ((_, node), extra) in
                self.leased.range_mut((seen.shard, 0)..=(seen.shard, NodeId::MAX))
            {
                extra.serves |= seen.holders.iter().any(|(holder, _)| holder == node);
            }
        }
        // What was not renewed in time is gone: its node was silent, or its shard.
        self.leased.retain(|_, extra| extra.until > now);
        let replicated: Vec<Replicated> = shards.iter().map(|seen| self.replicated(seen)).collect();
        let resized = self.replicas.observe(now, &replicated);
        let mut orders = Vec::new();
        for resize in resized {
            let of = |id: ShardId| shards.iter().find(|seen| seen.shard == id);
            orders.extend(match resize {
                Resize::Add { shard, average } => {
                    of(shard).and_then(|seen| self.add(now, seen, average, nodes))
                }
                Resize::Remove { shard, average } => {
                    of(shard).and_then(|seen| self.remove(now, seen, average))
                }
            });
        }
        let half = self.settings.lease / 2;
        for (&(shard, node), extra) in &self.leased {
            let removed = |order: &Order| matches!(order, Order::Remove { shard: s, node: n, .. } if (*s, *n) == (shard, node));
            let seen = shards.iter().any(|seen| seen.shard == shard);
            if seen && extra.until <= now.saturating_add(half) && !orders.iter().any(removed) {
                orders.push(Order::Renew { shard, node });
            }
        }
        orders
    }

    /// A node was asked at `now` to hold a copy and has agreed; it may still be making it.
    pub fn record_agreement(&mut self, now: Nanos, shard: ShardId, node: NodeId) {
        let until = now.saturating_add(self.settings.lease);
        let new = self.leased.insert((shard, node), Extra { until, serves: false });
        if let Some(before) = new {
            if let Some(extra) = self.leased.get_mut(&(shard, node)) {
                extra.serves = before.serves;
            }
            return;
        }
        let settle = self.settings.marks.settle;
        let patience = self.patience.entry(shard).or_insert(Patience {
            added: now,
            removed: None,
            patience: settle,
        });
        let span = patience.patience.saturating_mul(8).max(settle.saturating_mul(SOON));
        let soon = |at: Nanos| now < at.saturating_add(span);
        patience.patience = match patience.removed.take() {
            Some(at) if soon(at) => {
                patience.patience.saturating_mul(2).min(settle.saturating_mul(PATIENCE_MAX))
            }
            _ => patience.patience,
        };
        patience.added = now;
    }

    /// A node refused to hold a copy, or to hold it any longer.
    pub fn refused(&mut self, now: Nanos, shard: ShardId, node: NodeId) {
        self.leased.remove(&(shard, node));
        if !is(Mutant::ReplicaRefusalForgotten) {
            self.refused.insert((shard, node), now.saturating_add(self.settings.refused));
        }
    }

    /// A copy was given up.
    pub fn gone(&mut self, now: Nanos, shard: ShardId, node: NodeId) {
        self.leased.remove(&(shard, node));
        if let Some(patience) = self.patience.get_mut(&shard) {
            patience.removed = Some(now);
        }
    }

    fn replicated(&self, seen: &ShardReport) -> Replicated {
        let mut lengths: Vec<f64> =
            seen.holders.iter().map(|(_, length)| length.max(0.0)).collect();
        lengths.retain(|length| length.is_finite());
        lengths.sort_by(f64::total_cmp);
        let median = lengths.get(lengths.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN);
        let replicas = seen.holders.len() as u32;
        let growing = self.leases_of(seen.shard).any(|(_, extra)| !extra.serves)
            && !is(Mutant::ReplicaUnderWayIgnored);
        Replicated {
            id: seen.shard,
            replicas,
            queue_length: median * f64::from(replicas),
            can_grow: seen.can_grow,
            growing,
        }
    }

    fn leases_of(&self, shard: ShardId) -> impl Iterator<Item = (NodeId, &Extra)> {
        let all = self.leased.range((shard, 0)..=(shard, NodeId::MAX));
        all.map(|((_, node), extra)| (*node, extra))
    }

    fn add(&self, now: Nanos, seen: &ShardReport, average: f64, nodes: &[Room]) -> Option<Order> {
        let shard = seen.shard;
        let extra = seen.holders.iter().filter(|(node, _)| !seen.homes.contains(node)).count();
        if extra.max(self.leases_of(shard).count()) >= self.settings.per_shard
            || self.leased.len() >= self.settings.all
        {
            return None;
        }
        let there = |node: NodeId| {
            seen.homes.contains(&node) || seen.holders.iter().any(|(holder, _)| *holder == node)
        };
        let free = nodes.iter().filter(|room| {
            let refused = self.refused.get(&(shard, room.node)).is_some_and(|until| *until > now);
            let has_room = room.bytes >= seen.bytes || is(Mutant::ReplicaRefusalForgotten);
            // A node that is as busy as the shard's own takes nothing off them.
            !there(room.node) && !refused && has_room && room.length.max(0.0) < average
        });
        let least = free.min_by(|a, b| {
            a.length.max(0.0).total_cmp(&b.length.max(0.0)).then(a.node.cmp(&b.node))
        })?;
        let n = seen.holders.len().max(1) as f64;
        let expected = relieved(average, (n + 1.0) / n);
        Some(Order::Add { shard, node: least.node, average, expected })
    }

    /// Gives up one of this gateway's copies; those of others are theirs to give up.
    fn remove(&self, now: Nanos, seen: &ShardReport, average: f64) -> Option<Order> {
        let shard = seen.shard;
        let patience = self.patience.get(&shard)?;
        if now < patience.added.saturating_add(patience.patience) {
            return None;
        }
        let node =
            self.leases_of(shard).filter(|(_, extra)| extra.serves).map(|(node, _)| node).max()?;
        let n = seen.holders.len().max(2) as f64;
        let expected = relieved(average, (n - 1.0) / n);
        Some(Order::Remove { shard, node, average, expected })
    }
}
