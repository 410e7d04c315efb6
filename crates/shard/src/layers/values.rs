//! The values of one layer: packed where all are known, atomics where queries still fill them in.
//!
//! *Packed*: `w` bits a value, `w` the bits of the largest one ([`packed`]). *Partial*: four bytes a value,
//! all ones for "not known", so that a reader sees a whole value or none. A partial array costs `32 / w` of
//! a packed one (1.19 for 100 MB) from the moment it is made, however few of its values are known.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use crate::bits::packed::{self, PackedVec, width_of};

/// What a partial array holds where nothing is known. No row and no offset has this value.
const UNKNOWN: u32 = u32::MAX;

/// Values of a fixed number of bits.
#[derive(Debug)]
pub(super) struct Packed {
    bytes: Vec<u8>,
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
    array: PackedVec,
    max: u32,
    len: usize,
}

impl Unfilled {
    /// `len` zeros, wide enough for values up to `max`.
    pub(super) fn new(len: usize, max: u32) -> Self {
        Self { array: PackedVec::new(len, width_of(max.into())), max, len }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&self) -> usize {
        packed_bytes(self.len, self.max)
    }

    /// Stores a value where a zero has been since the array was made; says whether it fits there.
    #[inline]
    pub(super) fn fill(&mut self, slot: usize, value: u32) -> bool {
        let fits = slot < self.len && value <= self.max;
        if fits {
            self.array.set(slot, value.into());
        }
        fits
    }

    pub(super) fn filled(self) -> Packed {
        let width = width_of(self.max.into());
        Packed { bytes: self.array.into_bytes(), width, len: self.len }
    }
}

/// Bytes of a packed array of `len` values up to `max`.
pub(super) fn packed_bytes(len: usize, max: u32) -> usize {
    packed::bytes_of(len, width_of(max.into()))
}

/// Values that queries fill in as they come by them.
#[derive(Debug)]
pub(super) struct Partial {
    values: Box<[AtomicU32]>,
    known: AtomicUsize,
}

impl Partial {
    pub(super) fn new(len: usize) -> Self {
        let values = (0..len).map(|_| AtomicU32::new(UNKNOWN)).collect();
        Self { values, known: AtomicUsize::new(0) }
    }

    #[inline]
    fn get(&self, slot: usize) -> Option<u32> {
        let value = self.values.get(slot)?.load(Relaxed);
        (value != UNKNOWN).then_some(value)
    }

    /// Stores a value if none is known. Relaxed suffices: the value is all there is to see.
    fn learn(&self, slot: usize, value: u32) {
        let Some(place) = self.values.get(slot) else { return };
        if place.load(Relaxed) == UNKNOWN
            && value != UNKNOWN
            && place.compare_exchange(UNKNOWN, value, Relaxed, Relaxed).is_ok()
        {
            self.known.fetch_add(1, Relaxed);
        }
    }

    /// The same values packed, if all are known. Known values never change, so this may run meanwhile.
    fn packed(&self, max: u32) -> Option<Packed> {
        if self.known.load(Relaxed) < self.values.len() {
            return None;
        }
        let mut packed = Unfilled::new(self.values.len(), max);
        let mut values = self.values.iter().map(|value| value.load(Relaxed)).enumerate();
        values.all(|(slot, value)| packed.fill(slot, value)).then(|| packed.filled())
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

    pub(super) fn learn(&self, slot: usize, value: u32) {
        if let Self::Partial(partial) = self {
            partial.learn(slot, value);
        }
    }

    pub(super) fn packed(&self, max: u32) -> Option<Packed> {
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
            Self::Partial(partial) => size_of_val(&*partial.values),
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
            let mut packed = Unfilled::new(values.len(), max);
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
        let values = Values::Partial(Partial::new(3));
        assert_eq!((values.len(), values.known(), values.bytes()), (3, 0, 12));
        values.learn(2, 7);
        values.learn(2, 9);
        values.learn(3, 1);
        assert_eq!((values.get(2), values.get(0), values.known()), (Some(7), None, 1));
        values.learn(0, 0);
        assert!(values.packed(7).is_none());
        values.learn(1, 5);
        let packed = values.packed(7).unwrap();
        assert_eq!((packed.get(0), packed.get(1), packed.get(2)), (Some(0), Some(5), Some(7)));
        assert!(values.packed(6).is_none(), "a value that does not fit");
    }
}
