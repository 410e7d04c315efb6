//! The layers of one array, and the assignment of indexes to layers.
//!
//! Rates are powers of two. An index belongs to the *largest* existing rate that divides it. Layers
//! are therefore disjoint, and one can be added or dropped at the bottom (the smallest rate)
//! without changing the others: layered sampled arrays, from BlowFish (NSDI 2016). The layer of an
//! index follows from its trailing zeros and a word with one bit per rate, so a look-up does not
//! search the layers.

use std::sync::Arc;

use super::part::Part;
use super::values::{Partial, Unfilled, Values, packed_bytes};
use crate::error::Error;

/// One layer of an array.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LayerFootprint {
    /// The sampling rate.
    pub rate: u32,
    /// Size in bytes.
    pub bytes: usize,
    /// Bytes of the packed copy that [`Layers::pack`](super::Layers::pack) makes of a marked layer before it drops that; 0
    /// for a packed layer.
    pub packing_bytes: usize,
    /// Capacity in values.
    pub values: usize,
    /// Known values; all of them, unless the layer is marked and queries are still filling it.
    pub known: usize,
}

/// Maps the indexes of a layer, the multiples of its rate that no larger rate holds, to slots.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Shape {
    rate_log2: u32,
    /// Logarithm of the next larger rate in units of this one; 63 if there is no larger one.
    above_log2: u32,
}

impl Shape {
    /// The shape of the layer with rate `2^rate_log2` among the `present` rates.
    fn new(rate_log2: u32, present: u32) -> Self {
        let larger = present & !low_mask(rate_log2);
        let above_log2 = if larger == 0 { 63 } else { larger.trailing_zeros() - rate_log2 };
        Self { rate_log2, above_log2 }
    }

    /// The slot of an index of this layer. Of every `2^above` multiples of the rate, the first
    /// belongs to a larger rate.
    #[inline]
    pub(super) fn slot(self, index: u32) -> usize {
        let multiple = u64::from(index >> self.rate_log2);
        let above = (multiple >> self.above_log2) + u64::from(self.above_log2 < 63);
        multiple.wrapping_sub(above) as usize
    }

    /// The number of indexes below `end` in this layer.
    fn slots(self, end: u32) -> usize {
        let multiples = u64::from(end).div_ceil(1 << self.rate_log2);
        let above = if self.above_log2 < 63 { multiples.div_ceil(1 << self.above_log2) } else { 0 };
        (multiples - above) as usize
    }
}

/// A layer: its shape and its values.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) shape: Shape,
    pub(super) values: Values,
}

impl Part for Layer {
    fn bytes(&self) -> usize {
        self.values.bytes()
    }
}

/// All layers of one array.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// One bit for each existing rate, including that of `fixed`.
    present: u32,
    /// The bit of the rate whose values are stored elsewhere, as the shard's own samples.
    fixed: u32,
    /// One past the largest index, and one past the largest value.
    end: u32,
    layers: [Option<Arc<Layer>>; 32],
}

/// The bits up to and including `log2`.
#[inline]
fn low_mask(log2: u32) -> u32 {
    u32::MAX >> (31 - log2.min(31))
}

/// The largest of the `present` rates that divides `index`, as a power of two.
#[inline]
fn holder(present: u32, index: u32) -> Option<u32> {
    (present & low_mask(index.trailing_zeros())).checked_ilog2()
}

impl Group {
    /// Creates a group without layers. Multiples of `fixed_rate` are stored elsewhere if it is a
    /// power of two.
    pub(super) fn new(end: u32, fixed_rate: u32) -> Self {
        let fixed = if fixed_rate.is_power_of_two() { fixed_rate } else { 0 };
        Self { present: fixed, fixed, end, layers: Default::default() }
    }

    #[inline]
    fn layer_of(&self, index: u32) -> Option<&Layer> {
        self.layers[holder(self.present, index)? as usize].as_deref()
    }

    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<u32> {
        let layer = self.layer_of(index)?;
        layer.values.get(layer.shape.slot(index))
    }

    /// Prefetches an index for a `get` that follows soon. Returns whether that certainly finds a
    /// value.
    #[inline(always)]
    pub(super) fn ask(&self, index: u32) -> bool {
        let Some(layer) = self.layer_of(index).filter(|_| index < self.end) else { return false };
        layer.values.ask(layer.shape.slot(index));
        !layer.values.is_partial()
    }

    /// Whether the index belongs to a layer that lacks its value.
    #[inline]
    pub(super) fn wants(&self, index: u32) -> bool {
        index < self.end
            && self.layer_of(index).is_some_and(|l| l.values.get(l.shape.slot(index)).is_none())
    }

    /// The largest known index in `after + 1..=index`, and its value.
    #[inline]
    pub(super) fn get_before(&self, index: u32, after: u32) -> Option<(u32, u32)> {
        let rate = self.rate_lowest()?;
        let last = index.min(self.end.saturating_sub(1));
        let mut candidate = last - last % rate;
        while candidate > after {
            if let Some(value) = self.get(candidate) {
                return Some((candidate, value));
            }
            candidate = candidate.saturating_sub(rate);
        }
        None
    }

    pub(super) fn learn(&self, index: u32, value: u32) {
        if index < self.end
            && value < self.end
            && let Some(layer) = self.layer_of(index)
        {
            layer.values.learn(layer.shape.slot(index), value);
        }
    }

    /// The smallest rate of a layer.
    #[inline]
    pub(super) fn rate_lowest(&self) -> Option<u32> {
        (self.present != self.fixed).then(|| 1 << self.present.trailing_zeros())
    }

    pub(super) fn has_partial(&self) -> bool {
        self.layers.iter().flatten().any(|layer| layer.values.is_partial())
    }

    /// The bits that are zero in every index of the layers that are not whole; all bits if all are.
    pub(super) fn partial_mask(&self) -> u32 {
        let partial = |layer: &Option<Arc<Layer>>| {
            layer.as_ref().is_some_and(|layer| layer.values.is_partial())
        };
        let lowest = self.layers.iter().position(partial);
        lowest.map_or(u32::MAX, |log2| (1 << log2) - 1)
    }

    /// Returns the bits of `rates`. Each rate must be new and below all existing ones or, with
    /// `finish`, that of a partial layer.
    fn bits_of(&self, rates: &[u32], finish: bool) -> Result<u32, Error> {
        let mut bits = 0;
        for &rate in rates {
            if !rate.is_power_of_two() || bits & rate != 0 {
                return Err(Error::Layers(format!(
                    "the sampling rates {rates:?} are not distinct powers of two"
                )));
            }
            let partial = finish
                && self.layers[rate.ilog2() as usize]
                    .as_ref()
                    .is_some_and(|l| l.values.is_partial());
            if !partial && self.present & low_mask(rate.ilog2()) != 0 {
                return Err(Error::Layers(format!(
                    "a layer of rate {rate} would not be below the existing rate {}; \
                     layers are added at the bottom, with smaller rates",
                    1u32 << self.present.trailing_zeros()
                )));
            }
            bits |= rate;
        }
        Ok(bits)
    }

    /// Creates packed layers to be filled.
    pub(super) fn filling(&self, rates: &[u32]) -> Result<Filling, Error> {
        let bits = self.bits_of(rates, true)?;
        let mut filling = Filling {
            before: self.present,
            present: self.present | bits,
            mask: if bits == 0 { u32::MAX } else { (1 << bits.trailing_zeros()) - 1 },
            filled: 0,
            layers: Default::default(),
        };
        for &rate in rates {
            let shape = Shape::new(rate.ilog2(), filling.present);
            let values = Unfilled::new(shape.slots(self.end), self.end.saturating_sub(1))?;
            filling.layers[rate.ilog2() as usize] = Some((shape, values));
        }
        Ok(filling)
    }

    /// Returns this group with the filled layers; an error if the group has changed since the
    /// filling began. Adds replaced partial layers to `replaced`.
    pub(super) fn with_filled(
        &self,
        filling: Filling,
        replaced: &mut Vec<Arc<dyn Part>>,
    ) -> Result<Self, Error> {
        if filling.filled != filling.slots() {
            return Err(Error::Layers(format!(
                "{} of {} values are known; only whole layers are published",
                filling.filled,
                filling.slots()
            )));
        }
        let asked = filling.layers.iter().any(Option::is_some);
        if asked && filling.before != self.present {
            return Err(Error::Layers(
                "layers were added or dropped since this sweep began, so its layers no longer fit; \
                 begin another sweep"
                    .to_owned(),
            ));
        }
        let mut group = self.clone();
        if asked {
            group.present = filling.present;
        }
        for (place, filled) in group.layers.iter_mut().zip(filling.layers) {
            if let Some((shape, values)) = filled {
                let layer = Layer { shape, values: Values::Packed(values.filled()) };
                let old = place.replace(Arc::new(layer));
                replaced.extend(old.map(|old| old as Arc<dyn Part>));
            }
        }
        Ok(group)
    }

    /// Returns this group with new, empty partial layers.
    pub(super) fn with_marked(&self, rates: &[u32]) -> Result<Self, Error> {
        let bits = self.bits_of(rates, false)?;
        let mut group = self.clone();
        group.present |= bits;
        for &rate in rates {
            let shape = Shape::new(rate.ilog2(), group.present);
            let values = Values::Partial(Partial::new(shape.slots(self.end))?);
            group.layers[rate.ilog2() as usize] = Some(Arc::new(Layer { shape, values }));
        }
        Ok(group)
    }

    /// Returns this group without its lowest layer, and that layer.
    pub(super) fn without_lowest(&self) -> Option<(Self, Arc<Layer>)> {
        let rate = self.rate_lowest()?;
        let mut group = self.clone();
        let layer = group.layers[rate.ilog2() as usize].take()?;
        group.present &= !rate;
        Some((group, layer))
    }

    /// Returns this group with its full partial layers packed. Adds the replaced ones to
    /// `replaced`.
    pub(super) fn with_packed(&self, replaced: &mut Vec<Arc<dyn Part>>) -> Result<Self, Error> {
        let mut group = self.clone();
        for place in &mut group.layers {
            if let Some(layer) = place
                && let Some(packed) = layer.values.packed(self.end.saturating_sub(1))
            {
                let packed = Layer { shape: layer.shape, values: Values::Packed(packed?) };
                let full = std::mem::replace(layer, Arc::new(packed));
                replaced.push(full);
            }
        }
        Ok(group)
    }

    /// The memory of each layer, from the largest rate down.
    pub(super) fn footprint(&self) -> Vec<LayerFootprint> {
        let layers = self.layers.iter().enumerate().rev();
        layers
            .filter_map(|(log2, layer)| {
                let values = &layer.as_ref()?.values;
                Some(LayerFootprint {
                    rate: 1 << log2,
                    bytes: values.bytes(),
                    packing_bytes: values.packing_bytes(self.end.saturating_sub(1)),
                    values: values.len(),
                    known: values.known_count(),
                })
            })
            .collect()
    }

    /// The size in bytes of a packed layer of `rate` below the existing ones and `above`, the rates
    /// to be added before it.
    pub(super) fn packed_bytes(&self, rate: u32, above: &[u32]) -> usize {
        let present = above.iter().fold(self.present | rate, |bits, rate| bits | rate);
        packed_bytes(Shape::new(rate.ilog2(), present).slots(self.end), self.end.saturating_sub(1))
    }
}

/// Packed layers of one array while a sweep fills them.
#[derive(Debug)]
pub(super) struct Filling {
    /// The group's rates when the filling began.
    before: u32,
    /// Those, and the rates of these layers.
    present: u32,
    /// The bits that are zero in every index of these layers.
    mask: u32,
    filled: usize,
    layers: [Option<(Shape, Unfilled)>; 32],
}

impl Filling {
    /// Stores a value if its index belongs to one of the layers. Each index must be offered once.
    #[inline]
    pub(super) fn offer(&mut self, index: u32, value: u32) {
        if index & self.mask == 0
            && let Some(holder) = holder(self.present, index)
            && let Some((shape, values)) = &mut self.layers[holder as usize]
        {
            self.filled += usize::from(values.fill(shape.slot(index), value));
        }
    }

    pub(super) fn slots(&self) -> usize {
        self.layers.iter().flatten().map(|(_, values)| values.len()).sum()
    }

    pub(super) fn bytes(&self) -> usize {
        self.layers.iter().flatten().map(|(_, values)| values.bytes()).sum()
    }
}
