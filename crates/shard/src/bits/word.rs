//! Selection and counting in words, and prefetching, using special instructions of the processor.
//!
//! Contains one of the crate's two pieces of unsafe code (the other is `layers::memory`). It is
//! sound for any stored bytes: no pointer is dereferenced, and a function that needs BMI2 can only
//! be called with a [`Bmi2`], which is created only after a check of the processor.
//!
//! Selection (the position of the `r`-th one bit in a word) takes one `pdep` and one count of
//! trailing zeros with BMI2, and six halvings without: both in O(1), with the same result. Bytes of
//! a list are counted sixteen at a time with AVX2, which almost all processors with BMI2 have, and
//! eight at a time without: this makes walks over 1 MB, which fits the caches, 6 % faster. On
//! processors that implement `pdep` in microcode (AMD before Zen 3) the portable variant would be
//! faster, but is not chosen.

#![allow(unsafe_code)]

/// An implementation of selection and counting in words.
pub trait Word: Copy {
    /// The position of one bit number `rank` (from 0), counted from the lowest bit; 64 if the word
    /// has at most `rank` ones. `rank` must be below 64.
    fn select(self, word: u64, rank: u32) -> u32;

    /// The lowest `count` bits of a word; all bits if `count` is 64 or more. `count` must be below
    /// 256.
    fn lowest(self, word: u64, count: u32) -> u64;

    /// Returns one bit for each of 16 bytes, the lowest for the first byte: set if the byte is at
    /// most `most`. Defined only for the ascending bytes below 128 at the beginning; further bits
    /// are arbitrary. `most` must be below 128.
    fn at_most(self, bytes: (u64, u64), most: u32) -> u32;
}

/// Selection without special instructions.
#[derive(Clone, Copy, Debug)]
pub struct Portable;

impl Word for Portable {
    #[inline(always)]
    fn select(self, mut word: u64, mut rank: u32) -> u32 {
        if rank >= word.count_ones() {
            return u64::BITS;
        }
        let mut place = 0;
        for width in [32, 16, 8, 4, 2, 1] {
            let ones = (word & ((1 << width) - 1)).count_ones();
            if rank >= ones {
                rank -= ones;
                word >>= width;
                place += width;
            }
        }
        place
    }

    #[inline(always)]
    fn lowest(self, word: u64, count: u32) -> u64 {
        word & !u64::MAX.checked_shl(count).unwrap_or(0)
    }

    #[inline(always)]
    fn at_most(self, bytes: (u64, u64), most: u32) -> u32 {
        let first = leading_at_most(bytes.0, most);
        let second = if first == 8 { leading_at_most(bytes.1, most) } else { 0 };
        !(u32::MAX << (first + second))
    }
}

/// The number of bytes of a word before the first that is greater than `most`. All bytes must be
/// below 128.
#[inline(always)]
pub fn leading_at_most(bytes: u64, most: u32) -> u32 {
    let (low_bits, high_bits) = (0x0101_0101_0101_0101, 0x8080_8080_8080_8080);
    let at_most = ((high_bits | (u64::from(most) * low_bits)).wrapping_sub(bytes)) & high_bits;
    (at_most ^ high_bits).trailing_zeros() / 8
}

/// Selection with BMI2's `pdep`, counting with AVX2. A value exists only if the processor has the
/// required instructions.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub struct Bmi2(());

#[cfg(target_arch = "x86_64")]
impl Bmi2 {
    /// Returns a proof that the processor has BMI1, BMI2, LZCNT, POPCNT and AVX2; `None` if it
    /// lacks any.
    fn detect() -> Option<Self> {
        (is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt")
            && is_x86_feature_detected!("avx2"))
        .then_some(Self(()))
    }

    /// Runs a job that is compiled with these instructions.
    #[target_feature(enable = "bmi1,bmi2,lzcnt,popcnt,avx2")]
    fn run<J: Job>(self, job: J) -> J::Output {
        job.run(self)
    }
}

#[cfg(target_arch = "x86_64")]
impl Word for Bmi2 {
    #[inline(always)]
    fn select(self, word: u64, rank: u32) -> u32 {
        // SAFETY: `self` exists, so the processor has BMI2; `pdep` touches no memory.
        unsafe { std::arch::x86_64::_pdep_u64(1 << (rank & 63), word).trailing_zeros() }
    }

    #[inline(always)]
    fn lowest(self, word: u64, count: u32) -> u64 {
        // SAFETY: as above; `bzhi` touches no memory.
        unsafe { std::arch::x86_64::_bzhi_u64(word, count) }
    }

    #[inline(always)]
    fn at_most(self, bytes: (u64, u64), most: u32) -> u32 {
        use std::arch::x86_64::{_mm_cmpgt_epi8, _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi8};
        // SAFETY: as above, it has AVX2 too; none of these touches memory.
        unsafe {
            let bytes = _mm_set_epi64x(bytes.1 as i64, bytes.0 as i64);
            let past = _mm_set1_epi8(most as i8);
            !_mm_movemask_epi8(_mm_cmpgt_epi8(bytes, past)) as u32
        }
    }
}

/// A computation that uses selection, compiled once for each implementation. `run`, and all
/// functions called in its loops, should be `#[inline(always)]`, so that all of it is compiled with
/// the same instructions.
pub trait Job {
    /// The result.
    type Output;

    /// Computes the result with the given implementation.
    fn run<W: Word>(self, word: W) -> Self::Output;
}

/// The choice of implementation.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    #[cfg(target_arch = "x86_64")]
    bmi2: Option<Bmi2>,
}

impl Kernel {
    /// The fastest implementation for this processor.
    pub fn detect() -> Self {
        Self {
            #[cfg(target_arch = "x86_64")]
            bmi2: Bmi2::detect(),
        }
    }

    /// The portable implementation, for tests that both agree.
    #[cfg(test)]
    pub fn portable() -> Self {
        Self {
            #[cfg(target_arch = "x86_64")]
            bmi2: None,
        }
    }

    /// Runs `job`.
    #[inline]
    pub fn run<J: Job>(self, job: J) -> J::Output {
        #[cfg(target_arch = "x86_64")]
        if let Some(bmi2) = self.bmi2 {
            // SAFETY: a `Bmi2` exists, so the processor has the instructions that `run` is compiled
            // with.
            return unsafe { bmi2.run(job) };
        }
        job.run(Portable)
    }
}

/// Prefetches the cache line of `bytes[at]`. Does nothing past the end, or on other processors than
/// x86-64.
#[inline(always)]
pub fn prefetch(bytes: &[u8], at: usize) {
    prefetch_at(bytes.as_ptr().wrapping_add(at));
}

/// Prefetches the cache line of any address, valid or not; see [`prefetch`].
#[inline(always)]
pub fn prefetch_at<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint: it never faults, and the pointer is not dereferenced.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    struct Select(u64, u32);

    impl Job for Select {
        type Output = u32;
        #[inline(always)]
        fn run<W: Word>(self, word: W) -> u32 {
            word.select(self.0, self.1)
        }
    }

    fn naive(word: u64, rank: u32) -> u32 {
        (0..64).filter(|bit| word >> bit & 1 == 1).nth(rank as usize).unwrap_or(64)
    }

    proptest! {
        #[test]
        fn both_ways_select_the_same(a: u64, b: u64, sparse: bool, rank in 0..64u32) {
            let word = if sparse { a & b & a.rotate_left(17) } else { a };
            prop_assert_eq!(Kernel::portable().run(Select(word, rank)), naive(word, rank));
            prop_assert_eq!(Kernel::detect().run(Select(word, rank)), naive(word, rank));
        }
    }

    struct Lowest(u64, u32);

    impl Job for Lowest {
        type Output = u64;
        #[inline(always)]
        fn run<W: Word>(self, word: W) -> u64 {
            word.lowest(self.0, self.1)
        }
    }

    struct AtMost((u64, u64), u32);

    impl Job for AtMost {
        type Output = u32;
        #[inline(always)]
        fn run<W: Word>(self, word: W) -> u32 {
            word.at_most(self.0, self.1)
        }
    }

    proptest! {
        #[test]
        fn both_ways_count_a_list_the_same(
            mut list in prop::collection::vec(0..128u8, 0..=16),
            behind: [u8; 16],
            most in 0..128u32,
        ) {
            list.sort_unstable();
            let mut bytes = behind;
            bytes[..list.len()].copy_from_slice(&list);
            let words = bytes.as_chunks().0;
            let words = (u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1]));
            let expected = list.iter().filter(|&&entry| u32::from(entry) <= most).count();
            for kernel in [Kernel::portable(), Kernel::detect()] {
                let mask = kernel.run(AtMost(words, most));
                let listed = mask & !(u32::MAX << list.len());
                prop_assert_eq!(listed, !(u32::MAX << expected));
            }
        }

        #[test]
        fn both_ways_keep_the_lowest_bits(word: u64, count in 0..256u32) {
            let expected = (0..count.min(64)).map(|bit| word & 1 << bit).sum::<u64>();
            for kernel in [Kernel::portable(), Kernel::detect()] {
                prop_assert_eq!(kernel.run(Lowest(word, count)), expected);
            }
        }
    }

    #[test]
    fn the_ends_of_a_word_are_selected() {
        for kernel in [Kernel::portable(), Kernel::detect()] {
            assert_eq!(kernel.run(Select(0, 0)), 64);
            assert_eq!(kernel.run(Select(u64::MAX, 63)), 63);
            assert_eq!(kernel.run(Select(1 << 63, 0)), 63);
            assert_eq!(kernel.run(Select(1 << 63, 1)), 64);
        }
        prefetch(&[], 5);
        prefetch(&[1, 2, 3], usize::MAX);
        prefetch_at(std::ptr::null::<u32>());
    }
}
