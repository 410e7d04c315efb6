//! Copies of shards that a node holds because gateways lease them.

use std::collections::BTreeMap;

use ground::window::{Nanos, SECOND};

use crate::layers::ShardId;
use crate::mutant::{Mutant, is};

/// The longest lease.
pub const LEASE_MAX: Nanos = 300 * SECOND;
/// Gateways that lease one copy at a time, and copies of a node.
const LESSEES_MAX: usize = 64;
const COPIES_MAX: usize = 256;

#[derive(Clone, Debug)]
struct Copy {
    bytes: u64,
    /// Who leases it, and until when.
    until: BTreeMap<u64, Nanos>,
}

/// The copies that a node holds on lease. This type reads no clock: callers pass the time.
///
/// ```
/// use engine::act::replicas::Leases;
/// let mut leases = Leases::default();
/// let (now, lease) = (0, 60_000_000_000);
/// assert!(leases.grant(now, 7, 1, 1000, lease, 1500));
/// assert!(!leases.grant(now, 8, 1, 1000, lease, 500), "no room");
/// assert!(leases.holds(7) && leases.bytes() == 1000);
/// assert_eq!(leases.expire(lease + 1), [7]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Leases(BTreeMap<ShardId, Copy>);

impl Leases {
    /// Whether a copy is leased to `by` from now on: it is there already, or its bytes fit into `room_bytes`.
    pub fn grant(
        &mut self,
        now: Nanos,
        shard: ShardId,
        by: u64,
        bytes: u64,
        lease: Nanos,
        room_bytes: u64,
    ) -> bool {
        let until = now.saturating_add(lease.min(LEASE_MAX));
        if let Some(copy) = self.0.get_mut(&shard) {
            let known = copy.until.contains_key(&by) || copy.until.len() < LESSEES_MAX;
            if known {
                copy.until.insert(by, until);
            }
            return known;
        }
        let fits = bytes <= room_bytes && self.0.len() < COPIES_MAX;
        if fits || is(Mutant::ReplicaIgnoresRoom) {
            self.0.insert(shard, Copy { bytes, until: BTreeMap::from([(by, until)]) });
            return true;
        }
        false
    }

    /// `by` needs a copy no longer. [`Leases::expire`] drops it if nobody else does.
    pub fn release(&mut self, shard: ShardId, by: u64) {
        if let Some(copy) = self.0.get_mut(&shard) {
            copy.until.remove(&by);
        }
    }

    /// Drops what nobody leases any more, and returns it.
    pub fn expire(&mut self, now: Nanos) -> Vec<ShardId> {
        if is(Mutant::ReplicaNeverLapses) {
            return Vec::new();
        }
        let mut gone = Vec::new();
        self.0.retain(|shard, copy| {
            copy.until.retain(|_, until| *until > now);
            if copy.until.is_empty() {
                gone.push(*shard);
            }
            !copy.until.is_empty()
        });
        gone
    }

    /// Drops copies until at most `bytes` are held, those with the largest numbers first, and returns them: the budget
    /// has become smaller.
    pub fn shrink(&mut self, bytes: u64) -> Vec<ShardId> {
        let mut gone = Vec::new();
        while self.bytes() > bytes && !is(Mutant::ReplicaIgnoresRoom) {
            let Some((shard, _)) = self.0.pop_last() else { break };
            gone.push(shard);
        }
        gone
    }

    /// Whether a copy is held.
    pub fn holds(&self, shard: ShardId) -> bool {
        self.0.contains_key(&shard)
    }

    /// The copies.
    pub fn shards(&self) -> impl Iterator<Item = ShardId> + '_ {
        self.0.keys().copied()
    }

    /// Bytes of all copies.
    pub fn bytes(&self) -> u64 {
        self.0.values().map(|copy| copy.bytes).fold(0, u64::saturating_add)
    }
}
