//! Memory for the bytes of larger objects, from which the kernel sends them without a copy.
//!
//! An anonymous file (memfd) holds the bytes. It is mapped once, read-only, and written through the
//! file. `sendfile` gives a socket a part of the file; the socket then keeps the file's *pages*
//! until the client has acknowledged them, which may be long after the object was dropped here. So
//! bytes are never overwritten: the range of a dropped object is punched out of the file, which
//! takes the pages from the file but not from the sockets. Only then is the range reused, with new
//! pages.
//!
//! Ranges are whole pages, allocated first-fit, and adjacent free ranges are merged. An object that
//! does not fit keeps its own buffer and is sent with a copy: the arena is an optimisation, never a
//! requirement.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
use rustix::io::pwrite;
use rustix::mm::{MapFlags, ProtFlags, mmap};

/// Smaller objects keep their own buffer: rounding them up to pages would waste memory, and copying
/// them is cheap.
pub const OBJECT_BYTES_MIN: usize = 32 << 10;

const PAGE: u64 = 4096;

static ARENA: OnceLock<Option<Arena>> = OnceLock::new();

/// The file and its mapping.
pub struct Arena {
    file: OwnedFd,
    base: *const u8,
    bytes: u64,
    free: Mutex<Free>,
}

#[expect(unsafe_code, reason = "`base` is a read-only map that lives as long as the process")]
// SAFETY: the map is never changed or removed, and is only read.
unsafe impl Send for Arena {}
#[expect(unsafe_code, reason = "see above")]
// SAFETY: see above; the places are behind a mutex.
unsafe impl Sync for Arena {}

/// Creates the arena of this process with `bytes` bytes of address space; memory is used only as
/// the arena fills. On a system without memfd there is no arena, and objects are sent with a copy.
pub fn open(bytes: u64) {
    ARENA.get_or_init(|| {
        let arena = Arena::create(bytes.next_multiple_of(PAGE));
        if let Err(error) = &arena {
            tracing::warn!(
                "cannot create an anonymous file ({error}); large objects are sent with a copy"
            );
        }
        arena.ok()
    });
}

/// The arena, if it exists.
pub fn get() -> Option<&'static Arena> {
    ARENA.get().and_then(Option::as_ref)
}

/// Moves bytes into the arena if they are large enough and there is room; otherwise returns them as
/// they are.
pub fn keep(bytes: Bytes) -> Bytes {
    if bytes.len() < OBJECT_BYTES_MIN {
        return bytes;
    }
    get().and_then(|arena| arena.keep(&bytes)).unwrap_or(bytes)
}

impl Arena {
    fn create(bytes: u64) -> std::io::Result<Arena> {
        let file = memfd_create("concertina-objects", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, bytes)?;
        let length = usize::try_from(bytes).map_err(std::io::Error::other)?;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        #[expect(unsafe_code, reason = "mapping a file")]
        // SAFETY: a new map at a place of the kernel's choice, of a file that nobody else has.
        let base = unsafe { mmap(std::ptr::null_mut(), length, ProtFlags::READ, flags, &file, 0)? };
        let free = Mutex::new(Free::new(bytes));
        Ok(Arena { file, base: base.cast(), bytes, free })
    }

    /// Copies bytes into the arena; `None` if they are smaller than a page, are in the arena
    /// already, or find no room.
    fn keep(&'static self, bytes: &[u8]) -> Option<Bytes> {
        let pages = (bytes.len() as u64).next_multiple_of(PAGE);
        if (bytes.len() as u64) < PAGE || self.place(bytes).is_some() {
            return None;
        }
        let at = self.free.lock().unwrap_or_else(PoisonError::into_inner).take(pages)?;
        let region = Region { arena: self, at, pages, length: bytes.len() };
        let mut written = 0;
        while written < bytes.len() {
            match pwrite(&self.file, &bytes[written..], at + written as u64) {
                Ok(count) if count > 0 => written += count,
                // Out of memory: dropping the region frees its range.
                _ => return None,
            }
        }
        Some(Bytes::from_owner(region))
    }

    /// The offset of bytes in the file; `None` if they are not in the arena.
    pub fn place(&self, bytes: &[u8]) -> Option<u64> {
        let at = (bytes.as_ptr() as usize).checked_sub(self.base as usize)? as u64;
        (at < self.bytes).then_some(at)
    }

    /// The file.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The range of one object.
struct Region {
    arena: &'static Arena,
    at: u64,
    pages: u64,
    length: usize,
}

impl AsRef<[u8]> for Region {
    fn as_ref(&self) -> &[u8] {
        #[expect(unsafe_code, reason = "reading the map")]
        // SAFETY: the place is within the map, was written whole before the region was given out, and
        // nobody writes to it until the region is dropped.
        unsafe {
            std::slice::from_raw_parts(self.arena.base.add(self.at as usize), self.length)
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // If this fails, the range is lost to later objects: reusing it without new pages could
        // change bytes that a socket has yet to send.
        if fallocate(&self.arena.file, flags, self.at, self.pages).is_ok() {
            let mut free = self.arena.free.lock().unwrap_or_else(PoisonError::into_inner);
            free.give(self.at, self.pages);
        }
    }
}

/// Free ranges: lengths by start offset. No two are adjacent.
struct Free(BTreeMap<u64, u64>);

impl Free {
    fn new(bytes: u64) -> Free {
        Free(BTreeMap::from([(0, bytes)]))
    }

    fn take(&mut self, bytes: u64) -> Option<u64> {
        let (&at, &length) = self.0.iter().find(|(_, length)| **length >= bytes)?;
        self.0.remove(&at);
        if length > bytes {
            self.0.insert(at + bytes, length - bytes);
        }
        Some(at)
    }

    fn give(&mut self, mut at: u64, mut bytes: u64) {
        if let Some((&before, &length)) = self.0.range(..at).next_back()
            && before + length == at
        {
            self.0.remove(&before);
            (at, bytes) = (before, bytes + length);
        }
        if let Some(after) = self.0.remove(&(at + bytes)) {
            bytes += after;
        }
        self.0.insert(at, bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The naive twin: a flag for each page.
        #[test]
        fn places_never_overlap_and_all_comes_back(
            steps in prop::collection::vec((any::<bool>(), 1u64..9, any::<prop::sample::Index>()), 0..200),
        ) {
            const PAGES: u64 = 32;
            let mut free = Free::new(PAGES);
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (take, pages, index) in steps {
                if take {
                    let mut used = [false; PAGES as usize];
                    taken.iter().for_each(|&(at, n)| (at..at + n).for_each(|p| used[p as usize] = true));
                    let room = used.windows(pages as usize).any(|w| w.iter().all(|used| !used));
                    let place = free.take(pages);
                    prop_assert_eq!(place.is_some(), room);
                    if let Some(at) = place {
                        prop_assert!((at..at + pages).all(|p| !used[p as usize]));
                        taken.push((at, pages));
                    }
                } else if !taken.is_empty() {
                    let (at, pages) = taken.swap_remove(index.index(taken.len()));
                    free.give(at, pages);
                }
            }
            taken.into_iter().for_each(|(at, pages)| free.give(at, pages));
            prop_assert_eq!(free.0, BTreeMap::from([(0, PAGES)]));
        }
    }

    #[test]
    fn bytes_are_those_that_were_kept_and_their_memory_comes_back() {
        open(64 << 20);
        let Some(arena) = get() else { return };
        let bytes: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
        let kept = keep(Bytes::from(bytes.clone()));
        assert_eq!(kept, bytes);
        assert!(arena.place(&kept).is_some() && arena.place(&kept.slice(50_000..)).is_some());
        assert!(arena.place(&bytes).is_none());
        let small = keep(Bytes::from_static(b"small"));
        assert!(arena.place(&small).is_none());
        let pages = |arena: &Arena| rustix::fs::fstat(&arena.file).map(|stat| stat.st_blocks);
        drop(kept);
        for _ in 0..2_000 {
            drop(keep(Bytes::from(bytes.clone())));
        }
        assert!(pages(arena).unwrap() < 128 << 11, "dropped objects keep their memory");
    }
}
