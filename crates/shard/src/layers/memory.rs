//! Memory of layers: anonymous maps, which go back to the system at the moment they are dropped.
//!
//! An allocator keeps what it is given back: glibc's returns only what it mapped apart, and comes
//! to cut ever larger blocks from its heap, so that a dropped layer of 15 MB stayed with the
//! process. A map costs a system call to make and one to drop, and up to a page more than it was
//! asked for; so this is for arrays of which a shard has a few. Its pages are taken from the system
//! as they are first written, about half a microsecond each.
//!
//! Dropping one gives its pages back, in time proportional to those that were written (0.1 ms for a
//! megabyte): [`Dropped`](super::Dropped) says who pays for that.

#![allow(unsafe_code)]

use std::ops::Deref;
use std::sync::atomic::AtomicU32;

use memmap2::{MmapMut, MmapOptions, MmapRaw};

use crate::Error;
use crate::bits::word::prefetch_at;

/// `len` bytes, all zero.
///
/// # Errors
///
/// [`Error::Layers`] if the system has no such memory.
pub(super) fn zeros(len: usize) -> Result<MmapMut, Error> {
    made(len, MmapMut::map_anon(len))
}

/// As [`zeros`], for `len` bytes of which fewer may come to be written, by how many nobody knows
/// yet: the system does not set memory aside for them.
///
/// # Errors
///
/// As [`zeros`].
pub(super) fn room(len: usize) -> Result<MmapMut, Error> {
    made(len, MmapOptions::new().len(len).no_reserve_swap().map_anon())
}

fn made(len: usize, map: std::io::Result<MmapMut>) -> Result<MmapMut, Error> {
    map.map_err(|error| Error::Layers(format!("{len} bytes of memory: {error}")))
}

/// Words that threads share, all zero at first.
#[derive(Debug)]
pub(super) struct Words {
    map: MmapRaw,
    len: usize,
}

impl Words {
    /// `len` words.
    ///
    /// # Errors
    ///
    /// As [`zeros`].
    pub(super) fn new(len: usize) -> Result<Self, Error> {
        let map = zeros(len * size_of::<AtomicU32>())?;
        Ok(Self { map: map.into(), len })
    }

    /// Asks for the memory of a word that is read soon.
    #[inline(always)]
    pub(super) fn ask(&self, index: usize) {
        if let Some(word) = self.get(index) {
            prefetch_at(word);
        }
    }
}

impl Deref for Words {
    type Target = [AtomicU32];

    #[inline]
    fn deref(&self) -> &[AtomicU32] {
        let first = self.map.as_mut_ptr().cast();
        // SAFETY: the map is of `len` words at the least, begins with a page, was all zero when it
        // was made, and is reached in no other way than through these atomics, until it is dropped
        // with `self`.
        unsafe { std::slice::from_raw_parts(first, self.len) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn memory_is_zero_and_as_long_as_asked_for() {
        for len in [0, 1, 4096, 10_000] {
            // Miri knows no maps without memory set aside.
            let others = if cfg!(miri) { zeros(len) } else { room(len) };
            for mut bytes in [zeros(len).unwrap(), others.unwrap()] {
                assert!(bytes.len() == len && bytes.iter().all(|&byte| byte == 0));
                bytes.fill(7);
            }
            let words = Words::new(len).unwrap();
            assert!(words.len() == len && words.iter().all(|word| word.load(Relaxed) == 0));
            if let Some(last) = words.last() {
                last.store(u32::MAX, Relaxed);
                assert_eq!(words[len - 1].load(Relaxed), u32::MAX);
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri ends where there is no memory")]
    fn memory_that_there_is_not_is_an_error() {
        for map in [zeros, room] {
            let error = map(1 << 62).unwrap_err().to_string();
            assert!(error.contains("4611686018427387904 bytes of memory"), "{error}");
        }
    }

    #[test]
    fn words_are_shared_among_threads() {
        let words = Words::new(1000).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| words.iter().for_each(|word| _ = word.fetch_add(1, Relaxed)));
            }
        });
        assert!(words.iter().all(|word| word.load(Relaxed) == 2));
    }
}
