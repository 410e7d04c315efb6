//! The bytes of generated objects.
//!
//! The object of a key is a prefix of an endless stream that the key alone determines: the 8-byte
//! word `i` (from 0), little endian, is the output of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014)
//! at the state `key_hash(key) + (i + 1) × 0x9e3779b97f4a7c15`. Each word is computed
//! independently, in about a nanosecond, so a body is written and checked in pieces, in any order,
//! without being stored.
//!
//! Not for secrets. The bytes do not compress, which is the worst case for a service that
//! compresses.

/// The generated object of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Body {
    /// `ground::window::key_hash` of the key.
    pub key: u64,
    /// The length in bytes.
    pub size: u64,
}

impl Body {
    /// Fills `out` with the stream's bytes from `offset` on, without regard to `size`.
    pub fn fill(&self, offset: u64, out: &mut [u8]) {
        let mut at = offset;
        let mut rest = out;
        while !rest.is_empty() {
            let word = word(self.key, at / 8).to_le_bytes();
            let from = (at % 8) as usize;
            let take = (8 - from).min(rest.len());
            let (now, later) = rest.split_at_mut(take);
            now.copy_from_slice(&word[from..from + take]);
            at += take as u64;
            rest = later;
        }
    }

    /// Whether `bytes` equal this object's bytes from `offset` on.
    pub fn matches(&self, offset: u64, bytes: &[u8]) -> bool {
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let word = word(self.key, at / 8).to_le_bytes();
            let from = (at % 8) as usize;
            let take = (8 - from).min(rest.len());
            let (now, later) = rest.split_at(take);
            if now != &word[from..from + take] {
                return false;
            }
            at += take as u64;
            rest = later;
        }
        true
    }

    /// Returns the whole object. For tests and small objects.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = vec![0; self.size as usize];
        self.fill(0, &mut out);
        out
    }
}

fn word(key: u64, index: u64) -> u64 {
    let mut z = key.wrapping_add((index.wrapping_add(1)).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_are_those_of_splitmix64() {
        // The first outputs of the published generator from seed 0.
        let body = Body { key: 0, size: 16 };
        let expected = [0xe220_a839_7b1d_cdaf_u64, 0x6e78_9e6a_a1b9_65f4];
        let bytes: Vec<u8> = expected.iter().flat_map(|w| w.to_le_bytes()).collect();
        assert_eq!(body.bytes(), bytes);
    }

    proptest! {
        #[test]
        fn pieces_are_parts_of_the_whole(key in any::<u64>(), size in 1u64..300, cut in 0u64..300) {
            let body = Body { key, size };
            let whole = body.bytes();
            let cut = cut.min(size);
            let mut tail = vec![0; (size - cut) as usize];
            body.fill(cut, &mut tail);
            prop_assert_eq!(&whole[cut as usize..], &tail[..]);
            prop_assert!(body.matches(cut, &tail));
            if let Some(last) = tail.last_mut() {
                *last ^= 1;
                prop_assert!(!body.matches(cut, &tail));
            }
        }
    }
}
