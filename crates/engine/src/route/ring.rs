//! The native ring: weighted rendezvous hashing over a fixed number of slots.
//!
//! A key's hash names one of 1,048,576 slots; each slot ranks all members by −ln(u)/weight with u
//! drawn from the hash of slot and name, and the least come first (weighted rendezvous hashing:
//! Thaler and Ravishankar, "Using name-based mappings to increase hit rates", IEEE/ACM ToN 6(1),
//! 1998, with the exponential variables that make weights exact). So a member gets a share of keys
//! in proportion to its weight, with a relative error of about 1/√(slots × share): 1.4 % for one of
//! 200. Adding or removing a member moves no key between the others, in whatever order members come.
//! A look-up costs one hash of the key and one read of the table, which has two bytes for each slot
//! and replica. The table is computed in pages of up to 64 slots, each when one of its slots is looked up
//! first, so that a ring is made at once however often members change. Points on a circle would need many points per member for the same balance, and a
//! search. A smaller table that is balanced on purpose would be less even once members have left: a
//! slot's members follow from the slot alone, or keys move between others.

use std::fmt;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use ground::window::key_hash;

/// Index of a node among the ring's members, which are in ascending order of their names.
pub type NodeId = usize;

/// Maximum number of nodes that a key belongs to.
pub const REPLICAS_MAX: usize = 8;

/// Maximum number of hot nodes of a key; fewer where it has more than four replicas, because all of a
/// key's nodes together are at most [`REPLICAS_MAX`].
pub const HOT_NODES_MAX: usize = 4;

/// Version of the rule by which keys are placed: two processes with different ones must not serve one
/// cluster. 1 had 65,536 slots.
pub const PLACEMENT: u32 = 2;

const SLOT_BITS: u32 = 20;
#[cfg(test)]
const SLOTS: usize = 1 << SLOT_BITS;

/// A page of the table has at most 2 to this power slots …
const PAGE_BITS_MAX: u32 = 6;
/// … and with many members fewer, so that one costs at most so many hashes: some 10 µs. With pages of 64 slots the first look-ups
/// of ten thousand keys among a thousand members took two seconds.
const PAGE_HASHES_MAX: usize = 1 << 12;

/// Maximum number of members of a ring.
const MEMBERS_MAX: usize = 4096;

/// A node of the ring.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// Its name, which is hashed. Its address may change without moving keys.
    pub name: String,
    /// Its share of the keys relative to the others: its capacity, in any unit. 0 in a listed ring
    /// ([`Ring::listed`]): the member has no keys, because it leaves or has left.
    pub weight: f64,
    /// Whether it is a hot node: it has no keys of its own, and holds copies of what is read most. Its
    /// weight is its share of these among the hot nodes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hot: bool,
}

impl Member {
    /// A member with keys.
    pub fn new(name: impl Into<String>, weight: f64) -> Member {
        Member { name: name.into(), weight, hot: false }
    }
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
/// let members = vec![Member::new("a", 1.0), Member::new("b", 1.0), Member::new("c", 2.0)];
/// let ring = Ring::new(members, 2)?;
/// let nodes: Vec<&str> = ring.replicas(b"key").iter().map(|n| ring.name(n)).collect();
/// assert_eq!(nodes.len(), 2);
/// assert!((ring.shares()[2] - 0.5).abs() < 0.01);
/// # Ok::<(), engine::route::RingError>(())
/// ```
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "RingParts", into = "RingParts")]
pub struct Ring {
    members: Vec<Member>,
    replicas: usize,
    /// The nodes of each slot.
    table: Table,
    /// The hot nodes of each slot.
    hot: Table,
    /// The number of slots is 2 to this power.
    slot_bits: u32,
    /// The members' indexes in ascending order of their names.
    by_name: Vec<u16>,
    /// Whether the members keep the order in which they were given.
    listed: bool,
}

/// The tables follow from the rest.
impl PartialEq for Ring {
    fn eq(&self, other: &Ring) -> bool {
        let of = |ring: &Ring| (ring.replicas, ring.slot_bits, ring.listed);
        of(self) == of(other) && self.members == other.members
    }
}

/// Omits the tables, which follow from the rest.
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
    #[serde(default = "slot_bits_once")]
    slot_bits: u32,
    #[serde(default)]
    listed: bool,
}

/// Those of rings that were stored without their number.
fn slot_bits_once() -> u32 {
    16
}

impl TryFrom<RingParts> for Ring {
    type Error = RingError;
    fn try_from(parts: RingParts) -> Result<Ring, RingError> {
        let RingParts { mut members, replicas, slot_bits, listed } = parts;
        if !listed {
            members.sort_by(|a, b| a.name.cmp(&b.name));
        }
        Ring::build(members, replicas, slot_bits.clamp(1, SLOT_BITS), listed)
    }
}

impl From<Ring> for RingParts {
    fn from(ring: Ring) -> RingParts {
        let Ring { members, replicas, slot_bits, listed, .. } = ring;
        RingParts { members, replicas, slot_bits, listed }
    }
}

impl Ring {
    /// A ring of members in any order. `replicas` is the number of nodes of a key, its primary
    /// included (fewer if there are fewer members). Costs a hash for each member, and up to 4,096 more at the
    /// first look-up in each page of the table (of up to 64 slots, and as many hashes for each as there are members).
    ///
    /// # Errors
    /// See [`RingError`].
    pub fn new(mut members: Vec<Member>, replicas: usize) -> Result<Ring, RingError> {
        members.sort_by(|a, b| a.name.cmp(&b.name));
        Ring::build(members, replicas, SLOT_BITS, false)
    }

    /// A ring of members whose [`NodeId`]s are their places in the given list, so that a member keeps
    /// its number while others come and go. Members of weight 0 have a number and no keys. Costs as
    /// [`Ring::new`].
    ///
    /// # Errors
    /// See [`RingError`]; [`RingError::Empty`] if all weights are 0.
    pub fn listed(members: Vec<Member>, replicas: usize) -> Result<Ring, RingError> {
        Ring::build(members, replicas, SLOT_BITS, true)
    }

    /// As [`Ring::listed`], with fewer slots: for simulations that change their rings often.
    pub(crate) fn coarse(
        members: Vec<Member>,
        replicas: usize,
        slot_bits: u32,
    ) -> Result<Ring, RingError> {
        Ring::build(members, replicas, slot_bits.clamp(1, SLOT_BITS), true)
    }

    fn build(
        members: Vec<Member>,
        replicas: usize,
        slot_bits: u32,
        listed: bool,
    ) -> Result<Ring, RingError> {
        if members.len() > MEMBERS_MAX {
            return Err(RingError::TooMany(members.len()));
        }
        if !(1..=REPLICAS_MAX).contains(&replicas) {
            return Err(RingError::Replicas(replicas));
        }
        let mut by_name: Vec<u16> = (0..members.len() as u16).collect();
        by_name.sort_by(|&a, &b| members[usize::from(a)].name.cmp(&members[usize::from(b)].name));
        let names =
            by_name.windows(2).map(|two| [0, 1].map(|i| &members[usize::from(two[i])].name));
        if let Some([name, _]) = names.into_iter().find(|[a, b]| a == b) {
            return Err(RingError::Duplicate(name.clone()));
        }
        for member in &members {
            let some = member.weight > 0.0 || (listed && member.weight == 0.0);
            if !(member.weight.is_finite() && some) {
                let Member { name, weight, .. } = member.clone();
                return Err(RingError::Weight { name, weight });
            }
        }
        let placed = placed(&members, false);
        if placed.is_empty() {
            return Err(RingError::Empty);
        }
        let each = replicas.min(placed.len());
        let table = Table::new(placed, slot_bits, each);
        let placed_hot = self::placed(&members, true);
        let hot_each = HOT_NODES_MAX.min(REPLICAS_MAX - each).min(placed_hot.len());
        let hot = Table::new(placed_hot, slot_bits, hot_each);
        Ok(Ring { members, replicas: each, table, hot, slot_bits, by_name, listed })
    }

    /// The members, in ascending order of their names, or as listed: [`NodeId`] is the index here.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// A member's name.
    pub fn name(&self, node: NodeId) -> &str {
        self.members.get(node).map_or("?", |member| &member.name)
    }

    /// The member with a name.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        let name_of = |at: u16| self.members[usize::from(at)].name.as_str();
        let found = self.by_name.binary_search_by(|&at| name_of(at).cmp(name)).ok()?;
        Some(NodeId::from(self.by_name[found]))
    }

    /// Whether a member has keys: false for one that leaves or has left, for a hot node, and for an
    /// unknown one.
    pub fn has_keys(&self, node: NodeId) -> bool {
        self.members.get(node).is_some_and(|member| member.weight > 0.0 && !member.hot)
    }

    /// Whether a member is a hot node.
    pub fn is_hot(&self, node: NodeId) -> bool {
        self.members.get(node).is_some_and(|member| member.hot)
    }

    /// The number of nodes that may be hot nodes of a key.
    pub fn hot_count(&self) -> usize {
        self.hot.each
    }

    /// The number of slots: keys of one slot have the same nodes.
    pub fn slots(&self) -> usize {
        1 << self.slot_bits
    }

    /// The slot of the key with this [`key_hash`].
    pub fn slot_of_hash(&self, hash: u64) -> usize {
        (hash >> (64 - self.slot_bits)) as usize
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
        self.of_slot(self.slot_of_hash(hash))
    }

    /// The nodes of the keys of a slot below [`Ring::slots`], the primary first.
    pub fn of_slot(&self, slot: usize) -> Replicas {
        let mut nodes = [0; REPLICAS_MAX];
        nodes[..self.replicas].copy_from_slice(self.row(slot));
        Replicas { nodes, length: self.replicas as u8 }
    }

    /// The same as they stand in the table, to be compared.
    pub(crate) fn row(&self, slot: usize) -> &[u16] {
        self.table.row(slot)
    }

    /// The hot nodes of the keys of a slot, the first to be named first.
    pub(crate) fn hot_row(&self, slot: usize) -> &[u16] {
        self.hot.row(slot)
    }

    /// The nodes of the key with this [`key_hash`], and behind them up to `count` of its hot nodes: the
    /// first of all hot members by a hash of their own. They never become the key's primary, so
    /// [`super::View::primary`] is not to be asked about these.
    pub fn with_hot(&self, hash: u64, count: usize) -> Replicas {
        let slot = self.slot_of_hash(hash);
        let mut nodes = self.of_slot(slot);
        for &node in self.hot_row(slot).iter().take(count) {
            nodes.add(NodeId::from(node));
        }
        nodes
    }

    /// Whether a member may hold copies of the keys of a slot: it is one of their nodes or hot nodes.
    pub(crate) fn may_hold(&self, slot: usize, node: NodeId) -> bool {
        let is = |other: &u16| NodeId::from(*other) == node;
        self.row(slot).iter().any(is) || self.hot_row(slot).iter().any(is)
    }

    /// The share of all keys of which each member is the primary.
    pub fn shares(&self) -> Vec<f64> {
        self.shares_of(&vec![true; self.members.len()])
    }

    /// The share of all keys that each member serves when only some members are live: each key goes
    /// to the first of its live nodes. Keys without a live node count for no member.
    pub fn shares_of(&self, live: &[bool]) -> Vec<f64> {
        let mut counts = vec![0u64; self.members.len()];
        for slot in 0..self.slots() {
            let there = |node: &NodeId| live.get(*node).copied().unwrap_or(false);
            if let Some(node) = self.of_slot(slot).iter().find(there) {
                counts[node] += 1;
            }
        }
        counts.into_iter().map(|count| count as f64 / self.slots() as f64).collect()
    }

    /// A fingerprint of members, weights and replicas. Two processes with the same fingerprint
    /// place all keys alike.
    pub fn fingerprint(&self) -> u64 {
        let mut text = format!("{PLACEMENT} {} {} ", self.slot_bits, self.replicas);
        for member in &self.members {
            let hot = if member.hot { "hot " } else { "" };
            text.push_str(&format!("{:?} {:x} {hot}", member.name, member.weight.to_bits()));
        }
        key_hash(text.as_bytes())
    }
}

/// A member that has keys, or a hot node.
#[derive(Clone)]
struct Placed {
    node: u16,
    seed: u64,
    weight: f64,
}

/// The members with keys, or the hot nodes.
fn placed(members: &[Member], hot: bool) -> Vec<Placed> {
    let of = |(node, member): (usize, &Member)| Placed {
        node: node as u16,
        seed: key_hash(member.name.as_bytes()),
        weight: member.weight,
    };
    let members = members.iter().enumerate();
    members.filter(|(_, member)| member.weight > 0.0 && member.hot == hot).map(of).collect()
}

/// The first `each` members of all slots.
#[derive(Clone)]
struct Table {
    each: usize,
    placed: Vec<Placed>,
    /// Whether all have the same weight.
    even: bool,
    /// The number of slots of a page is 2 to this power.
    page_bits: u32,
    /// The members of a page's slots in turn, `each` per slot, once one of these slots was looked up.
    pages: Vec<OnceLock<Box<[u16]>>>,
}

impl Table {
    fn new(placed: Vec<Placed>, slot_bits: u32, each: usize) -> Table {
        let even = placed.iter().all(|member| member.weight == placed[0].weight);
        let page_bits = (PAGE_HASHES_MAX / placed.len().max(1)).max(1).ilog2().min(PAGE_BITS_MAX);
        let pages = if each == 0 { 0 } else { 1 << slot_bits.saturating_sub(page_bits) };
        Table { each, placed, even, page_bits, pages: vec![OnceLock::new(); pages] }
    }

    fn row(&self, slot: usize) -> &[u16] {
        let (page, at) = (slot >> self.page_bits, slot % (1 << self.page_bits));
        let Some(rows) = self.pages.get(page) else { return &[] };
        &rows.get_or_init(|| self.page(page))[at * self.each..][..self.each]
    }

    fn page(&self, page: usize) -> Box<[u16]> {
        let slots = (page << self.page_bits..).take(1 << self.page_bits);
        let rows = slots.flat_map(|slot| {
            first(&self.placed, slot as u64, self.each, self.even).into_iter().take(self.each)
        });
        rows.collect()
    }
}

/// The `each` members that a slot ranks first, in their order; `even` if all have the same weight.
fn first(placed: &[Placed], slot: u64, each: usize, even: bool) -> [u16; REPLICAS_MAX] {
    if even {
        return first_of_even(placed, slot, each);
    }
    let (mut nodes, mut ranks) = ([0; REPLICAS_MAX], [f64::INFINITY; REPLICAS_MAX]);
    for &Placed { node, seed, weight } in placed {
        let less = 1.0 - uniform(seed, slot);
        // −ln(u) grows with 1 − u and is at least that, which saves most logarithms.
        if less * 0.999_999 > ranks[each - 1] * weight {
            continue;
        }
        let rank = -(1.0 - less).ln() / weight;
        let mut at = each - 1;
        if rank >= ranks[at] {
            continue;
        }
        while at > 0 && rank < ranks[at - 1] {
            (ranks[at], nodes[at]) = (ranks[at - 1], nodes[at - 1]);
            at -= 1;
        }
        (ranks[at], nodes[at]) = (rank, node);
    }
    nodes
}

/// The same of members whose weights are equal: those with the largest u, compared as integers. Half the time of the whole table of a
/// thousand members.
fn first_of_even(placed: &[Placed], slot: u64, each: usize) -> [u16; REPLICAS_MAX] {
    let (mut nodes, mut most) = ([0; REPLICAS_MAX], [0; REPLICAS_MAX]);
    for &Placed { node, seed, .. } in placed {
        let u = draw(seed, slot);
        let mut at = each - 1;
        if u <= most[at] {
            continue;
        }
        while at > 0 && u > most[at - 1] {
            (most[at], nodes[at]) = (most[at - 1], nodes[at - 1]);
            at -= 1;
        }
        (most[at], nodes[at]) = (u, node);
    }
    nodes
}

/// u in (0, 1], drawn from the hashes of slot and member.
fn uniform(seed: u64, slot: u64) -> f64 {
    draw(seed, slot) as f64 / (1u64 << 53) as f64
}

/// u times 2^53.
fn draw(seed: u64, slot: u64) -> u64 {
    // SplitMix64's finaliser: slots are small numbers, and neighbouring slots must get unrelated
    // values.
    let mut hash = seed ^ slot.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^= hash >> 31;
    (hash >> 11) + 1
}

#[cfg(test)]
mod tests;
