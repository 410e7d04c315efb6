//! The memory of layers, and the choice of layers for a budget.
//!
//! The size of a layer follows from its rate and the text's length, so layers can be chosen for a
//! budget before they are built. Each further layer doubles an array, so between half and all of a
//! budget is used. The size of a text layer is known only after it is built; there the budget
//! determines whether one may be kept or tried, with
//! [`TextOptions::bytes_max`](super::TextOptions::bytes_max).

use super::group::{Group, LayerFootprint};
use super::rates::{Array, Rates};
use super::state::{Base, Layers, Set};

/// The largest rate that is added if the shard has no samples of its own.
const RATE_MAX: u32 = 1024;

/// The memory of layers in bytes, by part.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Footprint {
    /// Layers of the suffix array, the largest rate first.
    pub sa: Vec<LayerFootprint>,
    /// Layers of the inverse suffix array, the largest rate first.
    pub isa: Vec<LayerFootprint>,
    /// The text layer: blocks, their table and the tokens.
    pub text_bytes: usize,
    /// Capacity for decoded blocks of the text layer; allocated as blocks are read.
    pub hot_bytes: usize,
    /// Dropped layers that are not freed yet because a view or a [`Dropped`](super::Dropped) holds
    /// them.
    pub dropped_bytes: usize,
}

impl Footprint {
    /// The sum of all parts.
    pub fn total_bytes(&self) -> usize {
        let layers: usize = self.sa.iter().chain(&self.isa).map(|layer| layer.bytes).sum();
        layers + self.text_bytes + self.hot_bytes + self.dropped_bytes
    }
}

/// The memory limits of a shard's layers in bytes, by part.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Budget {
    /// For layers of the suffix array.
    pub sa_bytes: usize,
    /// For layers of the inverse suffix array.
    pub isa_bytes: usize,
    /// For the text layer.
    pub text_bytes: usize,
}

/// The changes that lead from the present layers to those of a budget: first drop, then add.
///
/// ```
/// use shard::layers::{Budget, Layers};
///
/// // A text of 1 MiB less a byte: rows have 20 bits, so every 64th of them takes 40 KiB.
/// let layers = Layers::new(1 << 20);
/// let changes = layers.changes(&Budget { sa_bytes: 50 << 10, ..Budget::default() });
/// assert_eq!(changes.add.sa, [1024, 512, 256, 128, 64]);
/// assert!(changes.add.isa.is_empty());
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Changes {
    /// The number of lowest layers of the suffix array to drop.
    pub drop_sa: usize,
    /// The number of lowest layers of the inverse suffix array to drop.
    pub drop_isa: usize,
    /// Whether to drop the text layer.
    pub drop_text: bool,
    /// Layers to add, the largest rate of each array first; in one sweep or one after another.
    pub add: Rates,
    /// Whether to try to build a text layer.
    pub add_text: bool,
}

impl Changes {
    /// Whether the present layers are already those of the budget.
    pub fn is_empty(&self) -> bool {
        self.drop_sa == 0
            && self.drop_isa == 0
            && !self.drop_text
            && self.add.is_empty()
            && !self.add_text
    }

    pub(super) fn toward(set: &Set, base: Base, budget: &Budget) -> Self {
        let (drop_sa, add_sa) = array(&set.sa, base.sa_rate, budget.sa_bytes);
        let (drop_isa, add_isa) = array(&set.isa, base.isa_rate, budget.isa_bytes);
        let text_bytes = set.text.as_ref().map(|text| text.bytes());
        Self {
            drop_sa,
            drop_isa,
            drop_text: text_bytes.is_some_and(|bytes| bytes > budget.text_bytes),
            add: Rates { sa: add_sa, isa: add_isa },
            add_text: text_bytes.is_none() && budget.text_bytes > 0,
        }
    }
}

/// Returns how many of the lowest layers of one array to drop, and which to add, to use
/// `bytes_max`.
fn array(group: &Group, base_rate: u32, bytes_max: usize) -> (usize, Vec<u32>) {
    let layers = group.footprint();
    let mut bytes: usize = layers.iter().map(|layer| layer.bytes).sum();
    let mut dropped = 0;
    for layer in layers.iter().rev() {
        if bytes <= bytes_max {
            break;
        }
        bytes -= layer.bytes;
        dropped += 1;
    }
    let mut added = Vec::new();
    // Adding after a drop would only rebuild a dropped layer.
    if dropped == 0 {
        let mut rate = lowest(group, base_rate) / 2;
        while rate > 0 {
            bytes += group.packed_bytes(rate, &added);
            if bytes > bytes_max {
                break;
            }
            added.push(rate);
            rate /= 2;
        }
    }
    (dropped, added)
}

impl Layers {
    /// The sampling rate of the next smaller layer of an array, and the bytes that it would take; `None` once
    /// every value is held.
    pub fn next_layer(&self, array: Array) -> Option<(u32, usize)> {
        let set = self.set.load();
        let (group, base_rate) = match array {
            Array::Sa => (&set.sa, self.base.sa_rate),
            Array::Isa => (&set.isa, self.base.isa_rate),
        };
        let rate = lowest(group, base_rate) / 2;
        (rate > 0).then(|| (rate, group.packed_bytes(rate, &[])))
    }
}

/// The smallest rate of an array, or the rate below which its layers begin.
fn lowest(group: &Group, base_rate: u32) -> u32 {
    group.rate_lowest().unwrap_or(match base_rate {
        0 => 2 * RATE_MAX,
        rate => rate.checked_next_power_of_two().unwrap_or(1 << 31),
    })
}
