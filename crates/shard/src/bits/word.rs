//! Selection and counting in words, and asking for memory ahead: what processors have instructions
//! for.
//!
//! Unsafe code, one of the crate's two pieces (the other is `layers::memory`). It is sound whatever
//! the stored bytes are: no pointer is read through, and a function that needs BMI2 can only be
//! reached with a [`Bmi2`], which exists only where the processor was asked for it.
//!
//! Selection (the place of the `r`-th one in a word) is one `pdep` and one count of trailing zeros
//! with BMI2, and six halvings without: both in O(1), with the same answers. A list of bytes is
//! counted sixteen at once with AVX2, which all processors with BMI2 but a few have, and eight at
//! once without: walks over 1 MB, where all is in the caches, are 6 % faster for it. On processors
//! whose `pdep` is microcode (AMD before Zen 3) the portable way would be the faster one; it is not
//! chosen there.

#![allow(unsafe_code)]

/// A way to select and count in words.
pub trait Word: Copy {
    /// The place of one number `rank` (counted from 0) from the lowest bit on; 64 if there are no
    /// more than `rank` ones. `rank` is below 64.
    fn select(self, word: u64, rank: u32) -> u32;

    /// The lowest `count` bits of a word, all of them from 64 on. `count` is below 256.
    fn lowest(self, word: u64, count: u32) -> u64;

    /// A bit for each of 16 bytes, the first the lowest: of ascending bytes below 128 at the
    /// beginning those that are at most `most`, which is below 128; bits of what follows them may
    /// be anything.
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

/// How many bytes of a word, all below 128, are at most `most` before the first that is greater.
#[inline(always)]
pub fn leading_at_most(bytes: u64, most: u32) -> u32 {
    let (low_bits, high_bits) = (0x0101_0101_0101_0101, 0x8080_8080_8080_8080);
    let at_most = ((high_bits | (u64::from(most) * low_bits)).wrapping_sub(bytes)) & high_bits;
    (at_most ^ high_bits).trailing_zeros() / 8
}

/// Selection with BMI2's `pdep`, counting with AVX2. One of these exists only if the processor has
/// what it is compiled for.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub struct Bmi2(());

#[cfg(target_arch = "x86_64")]
impl Bmi2 {
    /// A proof that the processor has BMI1, BMI2, LZCNT, POPCNT and AVX2, if it has.
    fn detect() -> Option<Self> {
        (is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt")
            && is_x86_feature_detected!("avx2"))
        .then_some(Self(()))
    }

    /// Runs a job compiled for these instructions.
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

/// A computation that selects in words, to be compiled once for each way of doing so. `run` should
/// be `#[inline(always)]`, with all that is called in its loops, so that all of it is compiled that
/// way.
pub trait Job {
    /// What comes out.
    type Output;

    /// Computes it with the given selection.
    fn run<W: Word>(self, word: W) -> Self::Output;
}

/// Which way of selecting is used.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    #[cfg(target_arch = "x86_64")]
    bmi2: Option<Bmi2>,
}

impl Kernel {
    /// The fastest that this processor has.
    pub fn detect() -> Self {
        Self {
            #[cfg(target_arch = "x86_64")]
            bmi2: Bmi2::detect(),
        }
    }

    /// The one that every processor has, for tests that both ways agree.
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
            // SAFETY: a `Bmi2` exists, so the processor has what `run` is compiled for.
            return unsafe { bmi2.run(job) };
        }
        job.run(Portable)
    }
}

/// Asks for the cache line of `bytes[at]`; does nothing where the processor cannot, or past the
/// end.
#[inline(always)]
pub fn prefetch(bytes: &[u8], at: usize) {
    prefetch_at(bytes.as_ptr().wrapping_add(at));
}

/// Asks for the cache line of a place in memory, or of none, as [`prefetch`] does.
#[inline(always)]
pub fn prefetch_at<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint: it never faults, and the pointer is not read through.
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
