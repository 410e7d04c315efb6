//! Memory of layers: anonymous maps, which return to the system as soon as they are dropped.
//!
//! An allocator keeps freed memory. glibc's returns only separately mapped blocks, and takes ever
//! larger blocks from its heap instead, so a dropped layer of 15 MB stayed with the process. A map
//! costs one system call to create and one to drop, and up to a page of extra memory, so it suits
//! arrays of which a shard has few. Its pages are allocated when they are first written, at about
//! half a microsecond each.
//!
//! Dropping a map frees its pages in time proportional to those written (0.1 ms per megabyte);
//! [`Dropped`](super::Dropped) controls which thread spends it.

#![allow(unsafe_code)]

use std::ops::Deref;
use std::sync::atomic::AtomicU32;

use memmap2::{MmapMut, MmapOptions, MmapRaw};

use crate::bits::word::prefetch_at;
use crate::error::Error;

/// Allocates `len` zero bytes.
///
/// # Errors
///
/// [`Error::Layers`] if the system refuses the memory.
pub(super) fn zeros(len: usize) -> Result<MmapMut, Error> {
    made(len, MmapMut::map_anon(len))
}

/// As [`zeros`], but without reserving memory: for arrays that may be written only in part.
///
/// # Errors
///
/// As [`zeros`].
pub(super) fn room(len: usize) -> Result<MmapMut, Error> {
    made(len, MmapOptions::new().len(len).no_reserve_swap().map_anon())
}

fn made(len: usize, map: std::io::Result<MmapMut>) -> Result<MmapMut, Error> {
    map.map_err(|error| Error::Layers(format!("cannot allocate {len} bytes: {error}")))
}

/// Words shared by threads, initially zero.
#[derive(Debug)]
pub(super) struct Words {
    map: MmapRaw,
    len: usize,
}

impl Words {
    /// Allocates `len` words.
    ///
    /// # Errors
    ///
    /// As [`zeros`].
    pub(super) fn new(len: usize) -> Result<Self, Error> {
        let map = zeros(len * size_of::<AtomicU32>())?;
        Ok(Self { map: map.into(), len })
    }

    /// Prefetches a word that will be read soon.
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
        // SAFETY: the map has at least `len` words, is aligned to a page, was created zeroed, and
        // is accessed only through these atomics until it is dropped with `self`.
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
            assert!(error.contains("cannot allocate 4611686018427387904 bytes"), "{error}");
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
