//! Which seeds have which clusters: how many nodes, of which kinds, and their rings.

use std::sync::Arc;

use rand::RngExt;
use rand::rngs::SmallRng;

use crate::route::{Member, Ring, RingError};

/// The seeds from this one on have hot nodes.
pub const HOT_SEEDS: u64 = 1 << 40;

/// The seeds from this one on have members whose weights change, and no hot nodes.
pub const WEIGHT_SEEDS: u64 = 1 << 41;

/// The seeds from this one on are as those from 0 on, with nodes that come up on a wrong or empty origin.
pub const ORIGIN_SEEDS: u64 = 1 << 42;

/// The seeds from this one on are as those from 0 on, with a store that fails in every way that it can here: down, refusing, slow,
/// cut off, emptied or replaced for all nodes at once.
pub const STORE_SEEDS: u64 = 1 << 43;

/// Maximum number of nodes of a seed's cluster.
const NODES_MAX: usize = 5;
/// Maximum number of nodes of a key.
const REPLICAS_MAX: usize = 3;
/// Logarithm of the number of slots of a seed's ring: few, because keys are few and changes many.
const SLOT_BITS: u32 = 6;

/// The rings that all seeds share, because they are costly to build: for each number of nodes and of
/// replicas one for each set of nodes that have keys, as bits.
pub struct Rings {
    rings: Vec<Vec<Arc<Ring>>>,
}

impl Rings {
    /// Builds the rings. Costs tens of milliseconds.
    ///
    /// # Errors
    /// None, unless the ring's limits change.
    pub fn new() -> Result<Rings, RingError> {
        let mut rings = Vec::new();
        for nodes in 1..=NODES_MAX {
            for replicas in 1..=REPLICAS_MAX {
                let of = |set: usize| {
                    let weight = |i: usize| f64::from(u8::from(set >> i & 1 == 1));
                    let member = |i: usize| Member::new(format!("n{i}"), weight(i));
                    Ring::coarse((0..nodes).map(member).collect(), replicas, SLOT_BITS)
                };
                let sets = (1..1 << nodes).map(|set| of(set).map(Arc::new));
                rings.push(sets.collect::<Result<_, _>>()?);
            }
        }
        Ok(Rings { rings })
    }

    /// The ring in which only a set of the nodes has keys.
    fn some(&self, nodes: usize, replicas: usize, set: usize) -> Arc<Ring> {
        self.rings[(nodes - 1) * REPLICAS_MAX + replicas - 1][set - 1].clone()
    }
}

/// How the nodes of a seed are placed.
pub(super) struct Layout<'a> {
    pub rings: &'a Rings,
    pub nodes: usize,
    pub replicas: usize,
    /// How many of the nodes, the last ones, are hot nodes.
    pub hot: usize,
}

impl Layout<'_> {
    /// The nodes that may have keys, as bits.
    pub fn keyed(&self) -> usize {
        (1 << (self.nodes - self.hot)) - 1
    }

    /// The ring in which only a set of the nodes, as bits, has keys or holds hot copies.
    pub fn ring(&self, set: usize) -> Arc<Ring> {
        let Layout { rings, nodes, replicas, hot } = *self;
        if hot == 0 {
            return rings.some(nodes, replicas, set);
        }
        let member = |i: usize| {
            let weight = f64::from(u8::from(set >> i & 1 == 1));
            Member { hot: i >= nodes - hot, ..Member::new(format!("n{i}"), weight) }
        };
        let ring = Ring::coarse((0..nodes).map(member).collect(), replicas, SLOT_BITS);
        // A set has a node with keys, and the limits allow the rest.
        ring.map_or_else(|_| rings.some(nodes, replicas, set), Arc::new)
    }

    /// The ring of nodes with these weights.
    pub fn weighted(&self, weights: &[f64]) -> Arc<Ring> {
        let member = |(i, weight): (usize, &f64)| Member::new(format!("n{i}"), *weight);
        let members = weights.iter().enumerate().map(member).collect();
        let ring = Ring::coarse(members, self.replicas, SLOT_BITS);
        // Some weight is above 0, and the limits allow the rest.
        ring.map_or_else(|_| self.full_ring(), Arc::new)
    }

    pub fn full_ring(&self) -> Arc<Ring> {
        self.ring((1 << self.nodes) - 1)
    }
}

/// The number and the kinds of a seed's nodes.
pub(super) struct Shape {
    pub nodes: usize,
    pub replicas: usize,
    pub hot: usize,
    /// The node knows no cluster.
    pub alone: bool,
    pub weighted: bool,
    pub misplaced: bool,
    /// Whether the store fails again and again.
    pub store_fails: bool,
}

impl Shape {
    pub fn draw(seed: u64, random: &mut SmallRng, hot_draw: &mut SmallRng) -> Shape {
        // One cluster in eight is a single node.
        let nodes = if random.random_bool(0.125) { 1 } else { random.random_range(2..=NODES_MAX) };
        let alone = nodes == 1 && random.random_bool(0.75);
        let replicas = random.random_range(1..=REPLICAS_MAX.min(nodes).max(1));
        let replicas = if nodes > 1 { replicas.max(2) } else { replicas };
        let store_fails = seed >= STORE_SEEDS;
        let misplaced = seed >= ORIGIN_SEEDS && !store_fails;
        let special = seed < ORIGIN_SEEDS;
        let weighted = seed >= WEIGHT_SEEDS && special;
        let (nodes, hot) = match seed >= HOT_SEEDS && special {
            false => (nodes, 0),
            true if weighted => (nodes.max(3), 0),
            true if nodes < 3 => (3, 1),
            true => (nodes, hot_draw.random_range(1..=2)),
        };
        let alone = alone && hot == 0 && !weighted;
        Shape { nodes, replicas, hot, alone, weighted, misplaced, store_fails }
    }
}
