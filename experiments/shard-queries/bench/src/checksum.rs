//! Checksums of answers: every timed answer is compared with the oracle's without being kept.
//!
//! Cost: one multiplication for eight bytes of text or for one offset. Not a hash for adversaries: it
//! tells right answers from wrong ones, of which none is made to match. `sdsl.cpp` computes the same.

/// An odd constant whose product mixes all bits: 2⁶⁴ over the golden ratio.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// A sum with a value added; the order of values counts.
pub fn fold(sum: u64, value: u64) -> u64 {
    (sum.rotate_left(5) ^ value).wrapping_mul(MIX)
}

/// The checksum of extracted bytes: their number, then words of eight, the last one filled with zeros.
pub fn of_bytes(bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(8);
    let mut sum = fold(0, bytes.len() as u64);
    for word in &mut words {
        let mut eight = [0; 8];
        eight.copy_from_slice(word);
        sum = fold(sum, u64::from_le_bytes(eight));
    }
    let rest = words.remainder();
    if rest.is_empty() {
        return sum;
    }
    let mut eight = [0; 8];
    eight[..rest.len()].copy_from_slice(rest);
    fold(sum, u64::from_le_bytes(eight))
}

/// The checksum of a set of offsets, in whatever order they were found.
pub fn of_offsets(offsets: impl IntoIterator<Item = u64>) -> u64 {
    let mut count = 0u64;
    let sum = offsets.into_iter().fold(0u64, |sum, offset| {
        count += 1;
        let mixed = (offset + 1).wrapping_mul(MIX);
        sum.wrapping_add((mixed ^ (mixed >> 32)).wrapping_mul(MIX))
    });
    fold(sum, count)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn one_changed_byte_is_seen(mut bytes: Vec<u8>, at: usize, change in 1u8..) {
            prop_assume!(!bytes.is_empty());
            let before = of_bytes(&bytes);
            let at = at % bytes.len();
            bytes[at] ^= change;
            prop_assert_ne!(of_bytes(&bytes), before);
        }

        #[test]
        fn the_order_of_offsets_does_not_count_and_each_offset_does(mut offsets: Vec<u32>, at: usize) {
            prop_assume!(!offsets.is_empty());
            let of = |offsets: &[u32]| of_offsets(offsets.iter().map(|&offset| u64::from(offset)));
            let before = of(&offsets);
            let at = at % offsets.len();
            offsets[..=at].reverse();
            prop_assert_eq!(of(&offsets), before);
            offsets[at] ^= 1;
            prop_assert_ne!(of(&offsets), before);
            offsets.remove(at);
            prop_assert_ne!(of(&offsets), before);
        }
    }

    #[test]
    fn lengths_and_their_order_count() {
        assert_ne!(of_bytes(b""), of_bytes(b"\0"));
        assert_ne!(of_bytes(b"\0"), of_bytes(b"\0\0"));
        assert_ne!(fold(fold(0, 1), 2), fold(fold(0, 2), 1));
    }
}
