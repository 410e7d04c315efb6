//! The values of one layer: packed if all are known, atomics while queries still fill them in.
//!
//! *Packed*: `w` bits per value, `w` being the width of the largest one ([`packed`]). *Partial*:
//! four bytes per value, storing its complement, with zero for "unknown". A reader therefore sees
//! either a complete value or none, and an empty array is untouched zero memory: created in
//! microseconds, with pages allocated as values are stored. A full partial array takes `32 / w`
//! times as much as a packed one (1.19 for 100 MB), and is counted so from the start.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use memmap2::MmapMut;

use super::memory::{Words, zeros};
use crate::bits::packed::{self, width_of};
use crate::error::Error;

/// The complement of this means "unknown". It is never a row or an offset.
const UNKNOWN: u32 = u32::MAX;

/// Values of a fixed width in bits.
#[derive(Debug)]
pub(super) struct Packed {
    bytes: MmapMut,
    width: u32,
    len: usize,
}

impl Packed {
    #[inline]
    fn array(&self) -> packed::Packed<'_> {
        packed::Packed::new(&self.bytes, self.width)
    }

    #[inline]
    fn get(&self, slot: usize) -> Option<u32> {
        (slot < self.len).then(|| self.array().get(slot) as u32)
    }
}

/// A packed array being filled.
#[derive(Debug)]
pub(super) struct Unfilled {
    bytes: MmapMut,
    max: u32,
    len: usize,
}

impl Unfilled {
    /// Creates an array of `len` zeros, wide enough for values up to `max`.
    pub(super) fn new(len: usize, max: u32) -> Result<Self, Error> {
        Ok(Self { bytes: zeros(packed_bytes(len, max))?, max, len })
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Stores a value in a slot that has not been filled before. Returns whether slot and value are
    /// in range.
    #[inline]
    pub(super) fn fill(&mut self, slot: usize, value: u32) -> bool {
        let fits = slot < self.len && value <= self.max;
        if fits {
            packed::set(&mut self.bytes, width_of(self.max.into()), slot, value.into());
        }
        fits
    }

    pub(super) fn filled(self) -> Packed {
        let width = width_of(self.max.into());
        Packed { bytes: self.bytes, width, len: self.len }
    }
}

/// The size in bytes of a packed array of `len` values up to `max`.
pub(super) fn packed_bytes(len: usize, max: u32) -> usize {
    packed::bytes_of(len, width_of(max.into()))
}

/// Values that queries fill in as they compute them.
#[derive(Debug)]
pub(super) struct Partial {
    values: Words,
    known: AtomicUsize,
}

impl Partial {
    pub(super) fn new(len: usize) -> Result<Self, Error> {
        Ok(Self { values: Words::new(len)?, known: AtomicUsize::new(0) })
    }

    #[inline]
    fn get(&self, slot: usize) -> Option<u32> {
        let value = !self.values.get(slot)?.load(Relaxed);
        (value != UNKNOWN).then_some(value)
    }

    /// Stores a value unless one is known. Relaxed ordering suffices, because nothing else depends
    /// on the value.
    fn learn(&self, slot: usize, value: u32) {
        let Some(place) = self.values.get(slot) else { return };
        if place.load(Relaxed) == !UNKNOWN
            && value != UNKNOWN
            && place.compare_exchange(!UNKNOWN, !value, Relaxed, Relaxed).is_ok()
        {
            self.known.fetch_add(1, Relaxed);
        }
    }

    /// Returns a packed copy if all values are known. May run concurrently with queries, since
    /// known values never change.
    fn packed(&self, max: u32) -> Option<Result<Packed, Error>> {
        if self.known.load(Relaxed) < self.values.len() {
            return None;
        }
        let mut packed = match Unfilled::new(self.values.len(), max) {
            Ok(packed) => packed,
            Err(error) => return Some(Err(error)),
        };
        // The relaxed counter may be complete before every value is visible to this thread.
        let mut slots = 0..self.values.len();
        let all = slots.all(|slot| self.get(slot).is_some_and(|value| packed.fill(slot, value)));
        all.then(|| Ok(packed.filled()))
    }
}

/// A packed or a partial array.
#[derive(Debug)]
pub(super) enum Values {
    Packed(Packed),
    Partial(Partial),
}

impl Values {
    #[inline]
    pub(super) fn get(&self, slot: usize) -> Option<u32> {
        match self {
            Self::Packed(packed) => packed.get(slot),
            Self::Partial(partial) => partial.get(slot),
        }
    }

    /// Prefetches a slot for a `get` that follows soon.
    #[inline(always)]
    pub(super) fn ask(&self, slot: usize) {
        match self {
            Self::Packed(packed) => packed.array().prefetch(slot),
            Self::Partial(partial) => partial.values.ask(slot),
        }
    }

    pub(super) fn learn(&self, slot: usize, value: u32) {
        if let Self::Partial(partial) = self {
            partial.learn(slot, value);
        }
    }

    /// Returns a packed copy of a partial array whose values are all known.
    pub(super) fn packed(&self, max: u32) -> Option<Result<Packed, Error>> {
        match self {
            Self::Packed(_) => None,
            Self::Partial(partial) => partial.packed(max),
        }
    }

    pub(super) fn is_partial(&self) -> bool {
        matches!(self, Self::Partial(_))
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Packed(packed) => packed.len,
            Self::Partial(partial) => partial.values.len(),
        }
    }

    pub(super) fn known_count(&self) -> usize {
        match self {
            Self::Packed(packed) => packed.len,
            Self::Partial(partial) => partial.known.load(Relaxed),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Packed(packed) => packed.bytes.len(),
            Self::Partial(partial) => size_of_val::<[_]>(&partial.values),
        }
    }

    /// The bytes that [`Values::packed`] takes, of values up to `max`.
    pub(super) fn packing_bytes(&self, max: u32) -> usize {
        match self {
            Self::Packed(_) => 0,
            Self::Partial(partial) => packed_bytes(partial.values.len(), max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn packed_values_are_those_of_a_plain_vector(
            width in 1u32..=32,
            values in prop::collection::vec(any::<u32>(), 0..200),
        ) {
            let max = u32::MAX >> (32 - width);
            let values: Vec<u32> = values.into_iter().map(|value| value & max).collect();
            let mut packed = Unfilled::new(values.len(), max).unwrap();
            for (slot, &value) in values.iter().enumerate().rev() {
                prop_assert!(packed.fill(slot, value));
            }
            prop_assert!(!packed.fill(values.len(), 0));
            let packed = packed.filled();
            for (slot, &value) in values.iter().enumerate() {
                prop_assert_eq!(packed.get(slot), Some(value));
            }
            prop_assert_eq!(packed.get(values.len()), None);
            prop_assert_eq!(packed.bytes.len(), (values.len() * width as usize).div_ceil(8) + 8);
        }
    }

    #[test]
    fn a_partial_array_is_packed_once_it_is_full() {
        let values = Values::Partial(Partial::new(3).unwrap());
        assert_eq!((values.len(), values.known_count(), values.bytes()), (3, 0, 12));
        values.learn(2, 7);
        values.learn(2, 9);
        values.learn(3, 1);
        assert_eq!((values.get(2), values.get(0), values.known_count()), (Some(7), None, 1));
        values.learn(0, 0);
        assert!(values.packed(7).is_none());
        values.learn(1, 5);
        let packed = values.packed(7).unwrap().unwrap();
        assert_eq!((packed.get(0), packed.get(1), packed.get(2)), (Some(0), Some(5), Some(7)));
        assert!(values.packed(6).is_none(), "a value that does not fit");
    }
}
