//! The native ring: weighted rendezvous hashing over a fixed number of slots.
//!
//! A key's hash names one of 65,536 slots; each slot ranks all members by −ln(u)/weight with u
//! drawn from the hash of slot and name, and the least come first (weighted rendezvous hashing:
//! Thaler and Ravishankar, "Using name-based mappings to increase hit rates", IEEE/ACM ToN 6(1),
//! 1998, with the exponential variables that make weights exact). So a member gets a share of keys
//! in proportion to its weight, with a relative error of about 1/√(slots × share), and adding or
//! removing a member moves no key between the others. A look-up costs one hash of the key and one
//! read of the table. Points on a circle would need many points per member for the same balance,
//! and a search.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::NodeId;
use model::window::key_hash;

/// Maximum number of nodes that a key belongs to.
pub const REPLICAS_MAX: usize = 8;

const SLOT_BITS: u32 = 16;
const SLOTS: usize = 1 << SLOT_BITS;

/// Maximum number of members of a ring.
const MEMBERS_MAX: usize = 4096;

/// A node of the ring.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// Its name, which is hashed. Its address may change without moving keys.
    pub name: String,
    /// Its share of the keys relative to the others: its capacity, in any unit.
    pub weight: f64,
}

/// An invalid ring.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// The ring has no members.
    #[error("the ring has no members")]
    Empty,
    /// The ring has too many members.
    #[error("the ring has {0} members; at most {MEMBERS_MAX} are possible")]
    TooMany(usize),
    /// Two members have the same name.
    #[error("the ring has two members named {0:?}")]
    Duplicate(String),
    /// A weight is not positive and finite.
    #[error("invalid weight {weight} of {name:?}: it must be positive and finite")]
    Weight {
        /// The member.
        name: String,
        /// Its weight.
        weight: f64,
    },
    /// The number of replicas is out of range.
    #[error("invalid number of replicas {0}: it must be 1 to {REPLICAS_MAX}")]
    Replicas(usize),
}

/// The nodes of a key, its primary first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replicas {
    nodes: [u16; REPLICAS_MAX],
    length: u8,
}

impl Replicas {
    /// Appends a node unless it is there already. Returns `false` if there is no room, or if the
    /// node's index is above 65,535.
    pub(crate) fn add(&mut self, node: NodeId) -> bool {
        if self.place(node).is_some() {
            return true;
        }
        let Ok(node) = u16::try_from(node) else { return false };
        let Some(place) = self.nodes.get_mut(usize::from(self.length)) else { return false };
        *place = node;
        self.length += 1;
        true
    }

    /// The nodes in order.
    pub fn iter(&self) -> impl Iterator<Item = NodeId> + use<> {
        let (nodes, length) = (self.nodes, usize::from(self.length));
        (0..length).map(move |i| NodeId::from(nodes[i]))
    }

    /// The number of nodes.
    pub fn len(&self) -> usize {
        usize::from(self.length)
    }

    /// Whether there are no nodes; never true for the replicas of a ring.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The place of a node among the key's nodes; 0 is the primary.
    pub fn place(&self, node: NodeId) -> Option<usize> {
        self.iter().position(|other| other == node)
    }
}

/// Consistent hashing of keys onto nodes.
///
/// ```
/// use engine::route::{Member, Ring};
/// let member = |name: &str, weight| Member { name: name.into(), weight };
/// let ring = Ring::new(vec![member("a", 1.0), member("b", 1.0), member("c", 2.0)], 2)?;
/// let nodes: Vec<&str> = ring.replicas(b"key").iter().map(|n| ring.name(n)).collect();
/// assert_eq!(nodes.len(), 2);
/// assert!((ring.shares()[2] - 0.5).abs() < 0.01);
/// # Ok::<(), engine::route::RingError>(())
/// ```
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RingParts", into = "RingParts")]
pub struct Ring {
    members: Vec<Member>,
    replicas: usize,
    /// The nodes of each slot in turn, `replicas` per slot.
    table: Vec<u16>,
}

/// Omits the table, which follows from the rest.
impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (members, replicas) = (&self.members, &self.replicas);
        f.debug_struct("Ring").field("members", members).field("replicas", replicas).finish()
    }
}

/// The serialised form of a ring, from which its table is computed.
#[derive(Clone, Serialize, Deserialize)]
struct RingParts {
    members: Vec<Member>,
    replicas: usize,
}

impl TryFrom<RingParts> for Ring {
    type Error = RingError;
    fn try_from(parts: RingParts) -> Result<Ring, RingError> {
        Ring::new(parts.members, parts.replicas)
    }
}

impl From<Ring> for RingParts {
    fn from(ring: Ring) -> RingParts {
        RingParts { members: ring.members, replicas: ring.replicas }
    }
}

impl Ring {
    /// A ring of members in any order. `replicas` is the number of nodes of a key, its primary
    /// included (fewer if there are fewer members). Costs 65,536 hashes for each member.
    ///
    /// # Errors
    /// See [`RingError`].
    pub fn new(mut members: Vec<Member>, replicas: usize) -> Result<Ring, RingError> {
        if members.is_empty() {
            return Err(RingError::Empty);
        }
        if members.len() > MEMBERS_MAX {
            return Err(RingError::TooMany(members.len()));
        }
        if !(1..=REPLICAS_MAX).contains(&replicas) {
            return Err(RingError::Replicas(replicas));
        }
        members.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(two) = members.windows(2).find(|two| two[0].name == two[1].name) {
            return Err(RingError::Duplicate(two[0].name.clone()));
        }
        for member in &members {
            if !(member.weight.is_finite() && member.weight > 0.0) {
                let Member { name, weight } = member.clone();
                return Err(RingError::Weight { name, weight });
            }
        }
        let each = replicas.min(members.len());
        let seeds: Vec<u64> = members.iter().map(|m| key_hash(m.name.as_bytes())).collect();
        let mut table = Vec::with_capacity(SLOTS * each);
        let mut ranked: Vec<(f64, u16)> = Vec::with_capacity(members.len());
        for slot in 0..SLOTS as u64 {
            ranked.clear();
            for (node, member) in members.iter().enumerate() {
                ranked.push((rank(seeds[node], slot, member.weight), node as u16));
            }
            if each < ranked.len() {
                ranked.select_nth_unstable_by(each - 1, |a, b| a.0.total_cmp(&b.0));
            }
            let first = &mut ranked[..each];
            first.sort_by(|a, b| a.0.total_cmp(&b.0));
            table.extend(first.iter().map(|(_, node)| node));
        }
        Ok(Ring { members, replicas: each, table })
    }

    /// The members, in ascending order of their names: [`NodeId`] is the index here.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// A member's name.
    pub fn name(&self, node: NodeId) -> &str {
        self.members.get(node).map_or("?", |member| &member.name)
    }

    /// The member with a name.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.members.binary_search_by(|member| member.name.as_str().cmp(name)).ok()
    }

    /// The number of nodes of a key.
    pub fn replica_count(&self) -> usize {
        self.replicas
    }

    /// The nodes of a key, its primary first.
    pub fn replicas(&self, key: &[u8]) -> Replicas {
        self.replicas_of_hash(key_hash(key))
    }

    /// The nodes of the key with this [`key_hash`], for callers that need the hash too.
    pub fn replicas_of_hash(&self, hash: u64) -> Replicas {
        self.of_slot((hash >> (64 - SLOT_BITS)) as usize)
    }

    fn of_slot(&self, slot: usize) -> Replicas {
        let mut nodes = [0; REPLICAS_MAX];
        let from = slot * self.replicas;
        nodes[..self.replicas].copy_from_slice(&self.table[from..from + self.replicas]);
        Replicas { nodes, length: self.replicas as u8 }
    }

    /// The share of all keys of which each member is the primary.
    pub fn shares(&self) -> Vec<f64> {
        self.shares_of(&vec![true; self.members.len()])
    }

    /// The share of all keys that each member serves when only some members are live: each key goes
    /// to the first of its live nodes. Keys without a live node count for no member.
    pub fn shares_of(&self, live: &[bool]) -> Vec<f64> {
        let mut counts = vec![0u64; self.members.len()];
        for slot in 0..SLOTS {
            let there = |node: &NodeId| live.get(*node).copied().unwrap_or(false);
            if let Some(node) = self.of_slot(slot).iter().find(there) {
                counts[node] += 1;
            }
        }
        counts.into_iter().map(|count| count as f64 / SLOTS as f64).collect()
    }

    /// A fingerprint of members, weights and replicas. Two processes with the same fingerprint
    /// place all keys alike.
    pub fn fingerprint(&self) -> u64 {
        let mut text = format!("1 {} ", self.replicas);
        for member in &self.members {
            text.push_str(&format!("{:?} {:x} ", member.name, member.weight.to_bits()));
        }
        key_hash(text.as_bytes())
    }
}

/// −ln(u)/weight, with u in (0, 1] drawn from the hashes of slot and member.
fn rank(seed: u64, slot: u64, weight: f64) -> f64 {
    // SplitMix64's finaliser: slots are small numbers, and neighbouring slots must get unrelated
    // values.
    let mut hash = seed ^ slot.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^= hash >> 31;
    let uniform = ((hash >> 11) + 1) as f64 / (1u64 << 53) as f64;
    -uniform.ln() / weight
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ring(weights: &[f64], replicas: usize) -> Ring {
        let member = |(i, w): (usize, &f64)| Member { name: format!("n{i:03}"), weight: *w };
        Ring::new(weights.iter().enumerate().map(member).collect(), replicas).unwrap()
    }

    /// The naive twin: ranks all members for each key's slot.
    fn naive(ring: &Ring, key: &[u8]) -> Vec<NodeId> {
        let slot = key_hash(key) >> (64 - SLOT_BITS);
        let of = |m: &Member| rank(key_hash(m.name.as_bytes()), slot, m.weight);
        let mut ranked: Vec<NodeId> = (0..ring.members.len()).collect();
        ranked.sort_by(|&a, &b| of(&ring.members[a]).total_cmp(&of(&ring.members[b])));
        ranked.truncate(ring.replicas);
        ranked
    }

    #[test]
    fn shares_follow_weights() {
        let ring = ring(&[1.0, 1.0, 2.0, 4.0], 3);
        for (share, exact) in ring.shares().iter().zip([0.125, 0.125, 0.25, 0.5]) {
            assert!((share - exact).abs() < 0.01, "{share} for {exact}");
        }
        let without = ring.shares_of(&[true, true, true, false]);
        for (share, exact) in without.iter().zip([0.25, 0.25, 0.5, 0.0]) {
            assert!((share - exact).abs() < 0.01, "{share} for {exact}");
        }
    }

    #[test]
    fn a_new_member_takes_its_share_and_moves_nothing_else() {
        let (before, after) = (ring(&[1.0; 5], 3), ring(&[1.0; 6], 3));
        let mut moved = 0;
        for slot in 0..SLOTS {
            let old: Vec<NodeId> = before.of_slot(slot).iter().collect();
            let new: Vec<NodeId> = after.of_slot(slot).iter().filter(|&n| n != 5).collect();
            assert!(old.starts_with(&new), "slot {slot}: {old:?} became {new:?}");
            moved += usize::from(old[0] != after.of_slot(slot).iter().next().unwrap());
        }
        let share = moved as f64 / SLOTS as f64;
        assert!((share - 1.0 / 6.0).abs() < 0.01, "{share} of the keys moved");
    }

    #[test]
    fn rings_that_cannot_be_are_named() {
        let member = |name: &str, weight| Member { name: name.into(), weight };
        assert_eq!(Ring::new(vec![], 3), Err(RingError::Empty));
        let two = vec![member("a", 1.0), member("b", 1.0), member("a", 2.0)];
        assert_eq!(Ring::new(two, 3), Err(RingError::Duplicate("a".into())));
        for weight in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let error = Ring::new(vec![member("a", weight)], 3).unwrap_err();
            assert!(matches!(error, RingError::Weight { .. }), "{weight}: {error}");
        }
        assert_eq!(Ring::new(vec![member("a", 1.0)], 0), Err(RingError::Replicas(0)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]
        #[test]
        fn agrees_with_ranking_all_members(
            quarters in prop::collection::vec(1u8..40, 1..12),
            replicas in 1usize..5,
        ) {
            let weights: Vec<f64> = quarters.iter().map(|&q| f64::from(q) / 4.0).collect();
            let ring = ring(&weights, replicas);
            for key in 0u32..500 {
                let nodes: Vec<NodeId> = ring.replicas(&key.to_be_bytes()).iter().collect();
                prop_assert_eq!(nodes, naive(&ring, &key.to_be_bytes()));
            }
            let json = serde_json::to_string(&ring).unwrap();
            prop_assert_eq!(serde_json::from_str::<Ring>(&json).unwrap(), ring);
        }
    }
}
