//! Packed arrays of unsigned integers of a fixed width in bits, stored without gaps.
//!
//! Integer `i` of width `w` is the bits `i·w .. (i + 1)·w` of the array, counted from the lowest
//! bit of the first byte. Eight zero bytes follow the last integer, so that each integer can be
//! read with one word load, a shift and a mask, in O(1). Not for widths above 57, where an integer
//! may extend into a ninth byte.

use super::load::u64_at;

/// The largest width: up to it, every integer lies within eight bytes.
pub const WIDTH_MAX: u32 = 57;

/// Zero bytes after the last integer.
const PADDING: usize = 8;

/// The smallest width that holds `value`; at least 1.
pub fn width_of(value: u64) -> u32 {
    (u64::BITS - value.leading_zeros()).max(1)
}

/// The size in bytes of an array of `count` integers of `width` bits, including padding.
pub fn bytes_of(count: usize, width: u32) -> usize {
    (count * width as usize).div_ceil(8) + PADDING
}

/// A packed array within stored bytes.
#[derive(Clone, Copy, Debug)]
pub struct Packed<'a> {
    bytes: &'a [u8],
    width: u32,
}

impl<'a> Packed<'a> {
    /// The array of integers of `width` bits stored in `bytes`, which include the padding.
    pub fn new(bytes: &'a [u8], width: u32) -> Self {
        Self { bytes, width: width.clamp(1, WIDTH_MAX) }
    }

    /// Integer `index`; 0 past the end.
    #[inline(always)]
    pub fn get(&self, index: usize) -> u64 {
        let bit = index.wrapping_mul(self.width as usize);
        (u64_at(self.bytes, bit / 8) >> (bit % 8)) & ((1 << self.width) - 1)
    }

    /// Prefetches integer `index` for a `get` that follows soon.
    #[inline(always)]
    pub fn prefetch(&self, index: usize) {
        super::word::prefetch(self.bytes, index.wrapping_mul(self.width as usize) / 8);
    }
}

/// Sets integer `index`, which must be 0, of the array of `width` bits stored in `bytes`.
///
/// # Panics
///
/// If the value needs more bits than the array has for it, or the index is past the end.
pub fn set(bytes: &mut [u8], width: u32, index: usize, value: u64) {
    assert!(value >> width == 0, "{value} in {width} bits");
    let bit = index * width as usize;
    let word = u64_at(bytes, bit / 8) | value << (bit % 8);
    bytes[bit / 8..bit / 8 + 8].copy_from_slice(&word.to_le_bytes());
}

/// Appends integers, each given with its width (up to 56 bits), and pads the last byte with zeros.
pub fn append(values: impl Iterator<Item = (u64, u32)>, bytes: &mut Vec<u8>) {
    let (mut bits, mut held) = (0u64, 0);
    for (value, width) in values {
        bits |= value << held;
        held += width;
        while held >= 8 {
            bytes.push(bits as u8);
            bits >>= 8;
            held -= 8;
        }
    }
    if held > 0 {
        bytes.push(bits as u8);
    }
}

/// A packed array being filled. See [`Packed`].
#[derive(Clone, Debug)]
pub struct PackedVec {
    bytes: Vec<u8>,
    width: u32,
}

impl PackedVec {
    /// Creates an array of `count` zeros of `width` bits.
    ///
    /// # Panics
    ///
    /// If the width is 0 or more than [`WIDTH_MAX`].
    pub fn new(count: usize, width: u32) -> Self {
        assert!((1..=WIDTH_MAX).contains(&width), "a width of {width} bits");
        Self { bytes: vec![0; bytes_of(count, width)], width }
    }

    /// Sets integer `index`, which must be 0, to `value`.
    ///
    /// # Panics
    ///
    /// If the value needs more bits than the array has for it, or the index is past the end.
    pub fn set(&mut self, index: usize, value: u64) {
        set(&mut self.bytes, self.width, index, value);
    }

    /// The array in its stored form.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_set_is_got(width in 1..=WIDTH_MAX, values in prop::collection::vec(any::<u64>(), 0..200)) {
            let values: Vec<u64> = values.iter().map(|value| value & ((1 << width) - 1)).collect();
            let mut array = PackedVec::new(values.len(), width);
            for (index, &value) in values.iter().enumerate().rev() {
                array.set(index, value);
            }
            let bytes = array.into_bytes();
            prop_assert_eq!(bytes.len(), bytes_of(values.len(), width));
            let array = Packed::new(&bytes, width);
            let got: Vec<u64> = (0..values.len()).map(|index| array.get(index)).collect();
            prop_assert_eq!(got, values);
            prop_assert_eq!(array.get(usize::MAX), 0);
        }
    }

    #[test]
    fn widths_hold_their_values() {
        for (value, width) in [(0, 1), (1, 1), (2, 2), (255, 8), (256, 9), (u64::MAX, 64)] {
            assert_eq!(width_of(value), width);
        }
    }
}
