//! Selection in a word, and asking for memory ahead: what processors have instructions for.
//!
//! Unsafe code, one of the crate's two pieces (the other is `layers::memory`). It is sound whatever the stored bytes are: no pointer is read
//! through, and a function that needs BMI2 can only be reached with a [`Bmi2`], which exists only where
//! the processor was asked for it.
//!
//! Selection (the place of the `r`-th one in a word) is one `pdep` and one count of trailing zeros with
//! BMI2, and six halvings without: both in O(1), with the same answers. On processors whose `pdep` is
//! microcode (AMD before Zen 3) the portable way would be the faster one; it is not chosen there.

#![allow(unsafe_code)]

/// A way to select in a word.
pub trait Word: Copy {
    /// The place of one number `rank` (counted from 0) from the lowest bit on; 64 if there are no more
    /// than `rank` ones. `rank` is below 64.
    fn select(self, word: u64, rank: u32) -> u32;
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
}

/// Selection with BMI2's `pdep`. One of these exists only if the processor has it.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub struct Bmi2(());

#[cfg(target_arch = "x86_64")]
impl Bmi2 {
    /// A proof that the processor has BMI1, BMI2, LZCNT and POPCNT, if it has.
    fn detect() -> Option<Self> {
        (is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt"))
        .then_some(Self(()))
    }

    /// Runs a job compiled for these instructions.
    #[target_feature(enable = "bmi1,bmi2,lzcnt,popcnt")]
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
}

/// A computation that selects in words, to be compiled once for each way of doing so. `run` should be
/// `#[inline(always)]`, with all that is called in its loops, so that all of it is compiled that way.
pub trait Job {
    /// What comes out.
    type Output;

    /// Computes it with the given selection.
    fn run<W: Word>(self, word: W) -> Self::Output;
}

/// Which way of selecting is used.
///
/// ```
/// use shard::bits::word::{Job, Kernel, Word};
///
/// struct Third(u64);
/// impl Job for Third {
///     type Output = u32;
///     #[inline(always)]
///     fn run<W: Word>(self, word: W) -> u32 {
///         word.select(self.0, 2)
///     }
/// }
/// assert_eq!(Kernel::detect().run(Third(0b1011000)), 6);
/// assert_eq!(Kernel::portable().run(Third(0b1011000)), 6);
/// ```
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

    /// The one that every processor has, for tests of it.
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

/// Asks for the cache line of `bytes[at]`; does nothing where the processor cannot, or past the end.
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
