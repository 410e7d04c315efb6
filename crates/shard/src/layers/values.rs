//! The values of one layer: packed where all are known, atomics where queries still fill them in.
//!
//! *Packed*: `w` bits a value, `w` the bits of the largest one ([`packed`]). *Partial*: four bytes
//! a value, its complement, and zero for "not known", so that a reader sees a whole value or none,
//! and an array in which nothing is known is memory as the system gives it: made in microseconds,
//! and taken page by page where values come to be known. A partial array costs `32 / w` of a packed
//! one in the end (1.19 for 100 MB), and is counted so from the beginning.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use memmap2::MmapMut;

use super::memory::{Words, zeros};
use crate::Error;
use crate::bits::packed::{self, width_of};

/// The complement of this stands for "not known". No row and no offset has this value.
const UNKNOWN: u32 = u32::MAX;

/// Values of a fixed number of bits.
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

/// Packed values while they are filled in.
#[derive(Debug)]
pub(super) struct Unfilled {
    bytes: MmapMut,
    max: u32,
    len: usize,
}

impl Unfilled {
    /// `len` zeros, wide enough for values up to `max`.
    pub(super) fn new(len: usize, max: u32) -> Result<Self, Error> {
        Ok(Self { bytes: zeros(packed_bytes(len, max))?, max, len })
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Stores a value where a zero has been since the array was made; says whether it fits there.
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

/// Bytes of a packed array of `len` values up to `max`.
pub(super) fn packed_bytes(len: usize, max: u32) -> usize {
    packed::bytes_of(len, width_of(max.into()))
}

/// Values that queries fill in as they come by them.
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

    /// Stores a value if none is known. Relaxed suffices: the value is all there is to see.
    fn learn(&self, slot: usize, value: u32) {
        let Some(place) = self.values.get(slot) else { return };
        if place.load(Relaxed) == !UNKNOWN
            && value != UNKNOWN
            && place.compare_exchange(!UNKNOWN, !value, Relaxed, Relaxed).is_ok()
        {
            self.known.fetch_add(1, Relaxed);
        }
    }

    /// The same values packed, if all are known. Known values never change, so this may run
    /// meanwhile.
    fn packed(&self, max: u32) -> Option<Result<Packed, Error>> {
        if self.known.load(Relaxed) < self.values.len() {
            return None;
        }
        let mut packed = match Unfilled::new(self.values.len(), max) {
            Ok(packed) => packed,
            Err(error) => return Some(Err(error)),
        };
        // That `known` is seen to be complete does not say that every value is seen yet.
        let mut slots = 0..self.values.len();
        let all = slots.all(|slot| self.get(slot).is_some_and(|value| packed.fill(slot, value)));
        all.then(|| Ok(packed.filled()))
    }
}

/// Either of the two.
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

    /// Asks for the memory of a slot, for a `get` that follows soon.
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

    /// A partial array's values packed, if all are known.
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

    pub(super) fn known(&self) -> usize {
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
        assert_eq!((values.len(), values.known(), values.bytes()), (3, 0, 12));
        values.learn(2, 7);
        values.learn(2, 9);
        values.learn(3, 1);
        assert_eq!((values.get(2), values.get(0), values.known()), (Some(7), None, 1));
        values.learn(0, 0);
        assert!(values.packed(7).is_none());
        values.learn(1, 5);
        let packed = values.packed(7).unwrap().unwrap();
        assert_eq!((packed.get(0), packed.get(1), packed.get(2)), (Some(0), Some(5), Some(7)));
        assert!(values.packed(6).is_none(), "a value that does not fit");
    }
}
