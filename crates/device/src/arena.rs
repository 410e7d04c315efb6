//! Memory for the bytes of larger objects, from which the kernel sends them without a copy.
//!
//! Private memory of the process holds the bytes. `vmsplice` gives a socket, through a pipe, the *pages* of a part of it. The
//! socket keeps them until the client has acknowledged them, which may be long after the object was dropped here.
//! So a page that a socket was given is never overwritten: the range of its object is given back to the kernel
//! (`MADV_DONTNEED`), which takes the pages from the range but not from the sockets. Only then is the range used
//! again, with new pages.
//!
//! An anonymous file (memfd) and `sendfile` were the way before. It costs more to send from (docs/decisions/0006), and where the
//! system keeps such files in huge pages, a hole that is punched into one is *filled with zeros*, which the sockets then send.
//! Private memory has no such case: a huge page that is given back in part is only taken from the map.
//!
//! A thread of its own gives the arena its memory, in huge pages where the system has them, a little ahead of what is used: a huge page is
//! cheaper to fill and to send from, but the kernel may take milliseconds to find one, which no request should wait for. Ranges that
//! are used again get small pages.
//!
//! New pages cost more than a copy of their bytes. So bytes that are sent for the first time are copied
//! ([`Arena::lend`]): if a device read them and memory does not keep them, the next read uses their
//! range with its pages (a *ready* range). Bytes that are sent again are sent without a copy.
//!
//! Ranges are whole pages, allocated first-fit, and adjacent free ranges are merged. An object that
//! does not fit keeps its own buffer and is sent with a copy: the arena is an optimisation, never a
//! requirement.

use std::collections::BTreeMap;
use std::iter::repeat_with;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;

use bytes::Bytes;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

use crate::system;

/// Smaller objects keep their own buffer: rounding them up to pages would waste memory, and copying
/// them is cheap.
pub const OBJECT_BYTES_MIN: usize = 32 << 10;

/// Ranges begin and end with a page.
pub const PAGE: usize = 4096;

/// Bytes of a huge page of the processors that this runs on.
const HUGE: u64 = 2 << 20;
/// How far memory is kept ahead of what was ever used: at a gigabyte a second, 8 ms.
const AHEAD_BYTES: u64 = 4 * HUGE;

/// Maximum number of ready ranges, and of their bytes.
const READY_MAX: usize = 64;
const READY_BYTES_MAX: u64 = 16 << 20;
/// A ready range may be larger than what it is used for, by this part of it.
const SURPLUS_PART: u64 = 16;

/// A page that no socket was sent.
const UNSENT: u8 = 0;
/// A page from which bytes were copied to a socket.
const COPIED: u8 = 1;
/// A page that a socket may hold.
const LENT: u8 = 2;

static ARENA: OnceLock<Option<Arena>> = OnceLock::new();

/// The memory and what is free of it.
pub struct Arena {
    base: *mut u8,
    bytes: u64,
    free: Mutex<Free>,
    pages: Box<[AtomicU8]>,
    /// Where memory ends that was asked for ahead.
    grown: AtomicU64,
    /// Which ranges of `HUGE` bytes were asked for as huge pages, and have not been given back in part.
    huge: Box<[AtomicBool]>,
    /// The thread that asks for memory ahead, if there is one.
    grower: OnceLock<Option<Thread>>,
}

#[expect(unsafe_code, reason = "`base` is a map that lives as long as the process")]
// SAFETY: the map is never changed or removed. A range of it is written by the one `Space` that owns it, and
// only read once that is frozen.
unsafe impl Send for Arena {}
#[expect(unsafe_code, reason = "see above")]
// SAFETY: see above; the free ranges are behind a mutex.
unsafe impl Sync for Arena {}

/// Creates the arena of this process with `bytes` bytes of address space; memory is used only as
/// the arena fills. Where the system refuses so much address space there is no arena, and objects are sent with a copy.
pub fn open(bytes: u64) {
    // Threads and the allocator need the rest, and what does not fit here is sent with a copy.
    let bytes = system::address_space_max().map_or(bytes, |limit| bytes.min(limit / 4));
    let arena = ARENA.get_or_init(|| {
        let arena = Arena::create(bytes.next_multiple_of(PAGE as u64));
        if let Err(error) = &arena {
            tracing::warn!(
                "cannot map {bytes} bytes of memory ({error}); large objects are sent with a copy"
            );
        }
        arena.ok()
    });
    if let Some(arena) = arena {
        // Without the thread, memory comes as it is used, in small pages.
        arena.grower.get_or_init(|| {
            let thread = std::thread::Builder::new().name("arena".to_owned());
            thread.spawn(|| arena.grow()).ok().map(|handle| handle.thread().clone())
        });
    }
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

/// Copies pieces together into the arena; `None` if they are too few bytes for it or find no room.
pub fn gather(pieces: &[Bytes]) -> Option<Bytes> {
    let length = pieces.iter().map(Bytes::len).sum();
    let arena = get().filter(|_| length >= OBJECT_BYTES_MIN)?;
    arena.gather(pieces.iter().map(|piece| &piece[..]), length)
}

/// Space for `bytes` bytes that begins with a page, with the bytes of an earlier use or zeros; `None` if they are
/// too few for the arena or find no room.
pub fn space(bytes: usize) -> Option<Space> {
    get().filter(|_| bytes >= OBJECT_BYTES_MIN)?.take(bytes).map(Space)
}

impl Arena {
    fn create(bytes: u64) -> std::io::Result<Arena> {
        let length = usize::try_from(bytes + HUGE).map_err(std::io::Error::other)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        #[expect(unsafe_code, reason = "mapping memory")]
        // SAFETY: a new map at a place of the kernel's choice.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), length, access, flags)? };
        // Clients' bytes have no place in a core file, and a child process no use for them; huge pages are asked for where
        // they are wanted. Without any of these the arena works as well.
        for advice in [Advice::LinuxDontDump, Advice::LinuxDontFork, Advice::LinuxNoHugepage] {
            #[expect(unsafe_code, reason = "advice about the map")]
            // SAFETY: the whole of the new map; none changes what it reads as in this process.
            let _ = unsafe { madvise(base, length, advice) };
        }
        let aligned = base.cast::<u8>().align_offset(HUGE as usize);
        #[expect(unsafe_code, reason = "the first place in the map where a huge page can be")]
        // SAFETY: the map has `HUGE` bytes more than are used.
        let base = unsafe { base.cast::<u8>().add(aligned) };
        Ok(Arena {
            base,
            bytes,
            free: Mutex::new(Free::new(bytes)),
            pages: repeat_with(AtomicU8::default).take((bytes / PAGE as u64) as usize).collect(),
            grown: AtomicU64::new(0),
            huge: repeat_with(AtomicBool::default).take((bytes / HUGE) as usize).collect(),
            grower: OnceLock::new(),
        })
    }

    /// What the thread does that asks for memory ahead: it sleeps until [`Arena::take`] wakes it.
    fn grow(&self) {
        loop {
            std::thread::park();
            loop {
                let used = self.lock().used;
                // Not where small pages may be already.
                let at = self.grown.load(Ordering::Relaxed).max(used.next_multiple_of(HUGE));
                if at + HUGE > (used + AHEAD_BYTES).min(self.bytes) {
                    break;
                }
                self.ask(at);
                self.grown.store(at + HUGE, Ordering::Relaxed);
            }
        }
    }

    /// Asks for a huge page; small ones if there is none.
    fn ask(&self, at: u64) {
        let advise = |advice| {
            #[expect(unsafe_code, reason = "advice about a range of the map")]
            // SAFETY: the range is within the map; what it reads as does not change, whoever has it by now.
            unsafe {
                madvise(self.base.add(at as usize).cast(), HUGE as usize, advice)
            }
        };
        let is_huge = advise(Advice::LinuxHugepage).is_ok();
        if let Some(huge) = self.huge.get((at / HUGE) as usize).filter(|_| is_huge) {
            huge.store(true, Ordering::Relaxed);
        }
        let _ = advise(Advice::LinuxPopulateWrite);
        // A page that is needed later comes at once, by whoever needs it: so it is a small one.
        let _ = advise(Advice::LinuxNoHugepage);
    }

    fn lock(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&'static self, bytes: usize) -> Option<Region> {
        let wanted = (bytes as u64).next_multiple_of(PAGE as u64);
        let taken = self.lock().take(wanted);
        let (at, room) = taken.or_else(|| {
            // There may be room among the ready ranges, for less or for more than each of them.
            let ready = std::mem::take(&mut self.lock().ready);
            ready.into_iter().for_each(|(at, room)| self.release(at, room));
            self.lock().take(wanted)
        })?;
        if at + room + AHEAD_BYTES / 2 > self.grown.load(Ordering::Relaxed)
            && let Some(Some(grower)) = self.grower.get()
        {
            grower.unpark();
        }
        Some(Region { arena: self, at, room, length: bytes })
    }

    /// Copies bytes into the arena; `None` if they are in the arena already, or find no room.
    fn keep(&'static self, bytes: &[u8]) -> Option<Bytes> {
        if self.place(bytes).is_some() {
            return None;
        }
        self.gather([bytes], bytes.len())
    }

    /// Copies pieces of `length` bytes together; `None` if they find no room.
    fn gather<'a>(
        &'static self,
        pieces: impl IntoIterator<Item = &'a [u8]>,
        length: usize,
    ) -> Option<Bytes> {
        let mut space = Space(self.take(length)?);
        // All pages at once: a fault for each of them costs more. Where the kernel has no such call, there are faults.
        #[expect(unsafe_code, reason = "advice about a range of the map")]
        // SAFETY: the range is within the map; what it reads as does not change.
        let _ = unsafe { madvise(space.as_mut_ptr().cast(), length, Advice::LinuxPopulateWrite) };
        let mut at = 0;
        for piece in pieces {
            space[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        Some(space.freeze())
    }

    /// The offset of bytes in the arena; `None` if they are not in the arena.
    pub fn place(&self, bytes: &[u8]) -> Option<u64> {
        let at = (bytes.as_ptr() as usize).checked_sub(self.base as usize)? as u64;
        (at < self.bytes).then_some(at)
    }

    /// The pages that have bytes of a part of the arena.
    fn pages(&self, at: u64, bytes: u64) -> &[AtomicU8] {
        let (from, to) = (at / PAGE as u64, (at + bytes).div_ceil(PAGE as u64));
        self.pages.get(from as usize..to as usize).unwrap_or_default()
    }

    /// Whether bytes are to be sent without a copy, which they are from the second time on. If so,
    /// their pages are a socket's from now on.
    pub fn lend(&self, at: u64, bytes: usize) -> bool {
        let pages = self.pages(at, bytes as u64);
        if pages.first().is_none_or(|first| first.load(Ordering::Relaxed) == UNSENT) {
            return false;
        }
        pages.iter().for_each(|page| page.store(LENT, Ordering::Relaxed));
        true
    }

    /// Notes that the bytes from an offset on were copied to a socket.
    pub fn copied(&self, at: u64) {
        if let Some(first) = self.pages(at, 1).first() {
            let _ = first.compare_exchange(UNSENT, COPIED, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Frees a range without its pages.
    fn release(&self, at: u64, room: u64) {
        let advise = |advice| {
            #[expect(unsafe_code, reason = "advice about a range of the map")]
            // SAFETY: the range is within the map, and nobody has it: its region is dropped, or it was a ready one. It
            // reads as zeros afterwards.
            unsafe {
                madvise(self.base.add(at as usize).cast(), room as usize, advice)
            }
        };
        let (from, to) = (at / HUGE, (at + room).div_ceil(HUGE));
        let huge = self.huge.get(from as usize..to as usize).unwrap_or_default();
        let is_huge =
            huge.iter().fold(false, |any, huge| any | huge.swap(false, Ordering::Relaxed));
        if is_huge {
            // This splits the huge page into small ones, of which those of the range come free at once (246 of 300 MiB were free
            // then, and none without it). Taken from the map only, they come free when the kernel has no other memory left.
            let _ = advise(Advice::LinuxFree);
        }
        let result = advise(Advice::LinuxDontNeed);
        // If this fails, the range is lost to later objects: using it again without new pages could
        // change bytes that a socket has yet to send.
        if result.is_ok() {
            self.lock().give(at, room);
        }
    }
}

/// A range of the arena that is being filled.
pub struct Space(Region);

impl Space {
    /// The bytes, which stay as they are from now on.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self.0)
    }
}

impl Deref for Space {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.as_ref()
    }
}

impl DerefMut for Space {
    fn deref_mut(&mut self) -> &mut [u8] {
        let Region { arena, at, length, .. } = self.0;
        #[expect(unsafe_code, reason = "writing the map")]
        // SAFETY: the range is within the map, and this value alone has it. No socket has its pages: those of a
        // range that sockets were given are taken from it before it is free again.
        unsafe {
            std::slice::from_raw_parts_mut(arena.base.add(at as usize), length)
        }
    }
}

/// The range of one object.
struct Region {
    arena: &'static Arena,
    at: u64,
    /// Bytes of the range.
    room: u64,
    /// Bytes of it that are used.
    length: usize,
}

impl AsRef<[u8]> for Region {
    fn as_ref(&self) -> &[u8] {
        #[expect(unsafe_code, reason = "reading the map")]
        // SAFETY: the range is within the map, and nobody writes to it until the region is dropped, but the
        // `Space` that has it.
        unsafe {
            std::slice::from_raw_parts(self.arena.base.add(self.at as usize), self.length)
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let before = |page: &AtomicU8| page.swap(UNSENT, Ordering::Relaxed);
        let pages = self.arena.pages(self.at, self.room).iter();
        let is_lent = pages.fold(false, |lent, page| lent | (before(page) == LENT));
        if is_lent {
            return self.arena.release(self.at, self.room);
        }
        let surplus = self.arena.lock().make_ready(self.at, self.room);
        surplus.into_iter().for_each(|(at, room)| self.arena.release(at, room));
    }
}

/// Free ranges.
struct Free {
    /// Those without pages: lengths by offset. No two are adjacent.
    empty: BTreeMap<u64, u64>,
    /// Those that have their pages: offsets and lengths, the oldest first.
    ready: Vec<(u64, u64)>,
    /// The end of what was ever taken.
    used: u64,
}

impl Free {
    fn new(bytes: u64) -> Free {
        Free { empty: BTreeMap::from([(0, bytes)]), ready: Vec::new(), used: 0 }
    }

    /// A range of so many bytes, or a ready one of a few more.
    fn take(&mut self, bytes: u64) -> Option<(u64, u64)> {
        let fits =
            |&(_, length): &(u64, u64)| length >= bytes && length - bytes <= length / SURPLUS_PART;
        // The latest: the processor's cache may have it.
        if let Some(place) = self.ready.iter().rposition(fits) {
            return Some(self.ready.remove(place));
        }
        let (&at, &length) = self.empty.iter().find(|(_, length)| **length >= bytes)?;
        self.empty.remove(&at);
        if length > bytes {
            self.empty.insert(at + bytes, length - bytes);
        }
        self.used = self.used.max(at + bytes);
        Some((at, bytes))
    }

    /// Frees a range with its pages. Returns those that are to be freed without, so that not many are ready.
    fn make_ready(&mut self, at: u64, bytes: u64) -> Vec<(u64, u64)> {
        self.ready.push((at, bytes));
        let mut left = self.ready.iter().map(|(_, bytes)| bytes).sum::<u64>();
        let mut surplus = self.ready.len().saturating_sub(READY_MAX);
        left -= self.ready[..surplus].iter().map(|(_, bytes)| bytes).sum::<u64>();
        while left > READY_BYTES_MAX {
            left -= self.ready[surplus].1;
            surplus += 1;
        }
        self.ready.drain(..surplus).collect()
    }

    /// Frees a range without pages.
    fn give(&mut self, mut at: u64, mut bytes: u64) {
        if let Some((&before, &length)) = self.empty.range(..at).next_back()
            && before + length == at
        {
            self.empty.remove(&before);
            (at, bytes) = (before, bytes + length);
        }
        if let Some(after) = self.empty.remove(&(at + bytes)) {
            bytes += after;
        }
        self.empty.insert(at, bytes);
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
            steps in prop::collection::vec((0..4u8, 1u64..9, any::<prop::sample::Index>()), 0..200),
        ) {
            const PAGES: u64 = 32;
            let mut free = Free::new(PAGES);
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (step, pages, index) in steps {
                if step < 2 {
                    let mut used = [false; PAGES as usize];
                    let held = taken.iter().chain(&free.ready);
                    held.for_each(|&(at, n)| (at..at + n).for_each(|p| used[p as usize] = true));
                    let is_room = used.windows(pages as usize).any(|w| w.iter().all(|used| !used));
                    let is_ready = free.ready.iter().any(|&(_, room)| room == pages);
                    let place = free.take(pages);
                    prop_assert_eq!(place.is_some(), is_room || is_ready);
                    if let Some((at, room)) = place {
                        prop_assert_eq!(room, pages);
                        let apart = |&(other, n): &(u64, u64)| at + room <= other || other + n <= at;
                        prop_assert!(taken.iter().chain(&free.ready).all(apart));
                        taken.push((at, room));
                    }
                } else if !taken.is_empty() {
                    let (at, room) = taken.swap_remove(index.index(taken.len()));
                    if step == 2 {
                        free.give(at, room);
                    } else {
                        prop_assert!(free.make_ready(at, room).is_empty());
                    }
                }
            }
            let ready = std::mem::take(&mut free.ready);
            ready.into_iter().chain(taken).for_each(|(at, room)| free.give(at, room));
            prop_assert_eq!(free.empty, BTreeMap::from([(0, PAGES)]));
        }

        #[test]
        fn few_ranges_are_ready(rooms in prop::collection::vec(1u64..(4 << 20), 0..300)) {
            let mut free = Free::new(0);
            let (mut at, mut surplus) = (0, Vec::new());
            for room in rooms {
                surplus.extend(free.make_ready(at, room));
                at += room;
                prop_assert!(free.ready.len() <= READY_MAX);
                prop_assert!(free.ready.iter().map(|(_, room)| room).sum::<u64>() <= READY_BYTES_MAX);
            }
            surplus.extend(free.ready);
            let end = surplus.into_iter().fold(0, |end, (at, room)| if at == end { at + room } else { 0 });
            prop_assert_eq!(end, at);
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
        let pieces: Vec<Bytes> = bytes.chunks(30_000).map(Bytes::copy_from_slice).collect();
        let gathered = gather(&pieces).unwrap();
        assert_eq!(gathered, bytes);
        assert!(arena.place(&gathered).is_some());
        assert!(gather(&[Bytes::from_static(b"small")]).is_none());
        drop(gathered);
        drop(kept);
        for i in 0..2_000 {
            let kept = keep(Bytes::from(bytes.clone()));
            if i % 2 == 0 {
                arena.copied(arena.place(&kept).unwrap());
                assert!(arena.lend(arena.place(&kept).unwrap(), kept.len()));
            }
        }
        // A thousand of these objects were lent: they would fill the arena. Other tests hold little, and ready ranges and what is asked
        // for ahead have their limits.
        let bytes = pages_present(arena) * PAGE as u64;
        assert!(bytes < 40 << 20, "dropped objects keep their memory: {bytes} bytes");
    }

    /// Pages of the arena that are in memory or swapped out, as the kernel has it.
    fn pages_present(arena: &Arena) -> u64 {
        let map = std::fs::File::open("/proc/self/pagemap").unwrap();
        let mut entries = vec![0; (arena.bytes as usize / PAGE) * 8];
        let first = arena.base as u64 / PAGE as u64 * 8;
        std::os::unix::fs::FileExt::read_exact_at(&map, &mut entries, first).unwrap();
        let is_present = |entry: &&[u8]| entry[7] & 0xC0 != 0;
        entries.chunks(8).filter(is_present).count() as u64
    }

    /// Gives a socket the first page of bytes, without a copy.
    fn send_page(to: &std::os::unix::net::UnixStream, bytes: &[u8]) {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let slice = std::io::IoSlice::new(&bytes[..PAGE]);
        let flags = rustix::pipe::SpliceFlags::empty();
        #[expect(unsafe_code, reason = "lending a page to a pipe")]
        // SAFETY: the pipe's end for writing; the bytes are only read.
        let lent = unsafe {
            let slices = [rustix::pipe::IoSliceRaw::from_slice(&slice)];
            rustix::pipe::vmsplice(&write, &slices, flags).unwrap()
        };
        assert_eq!(lent, PAGE);
        assert_eq!(rustix::pipe::splice(&read, None, to, None, PAGE, flags).unwrap(), PAGE);
    }

    /// What a socket was given stays as it is, whatever becomes of its range.
    #[test]
    fn pages_that_were_lent_are_never_written_again() {
        open(64 << 20);
        let Some(arena) = get() else { return };
        let (to, from) = std::os::unix::net::UnixStream::pair().unwrap();
        for round in 0..40u8 {
            let mut space = space(OBJECT_BYTES_MIN).unwrap();
            space.fill(round);
            let kept = space.freeze();
            let at = arena.place(&kept).unwrap();
            assert!(!arena.lend(at, kept.len()), "it was never sent");
            arena.copied(at);
            assert!(arena.lend(at, kept.len()));
            send_page(&to, &kept);
            drop(kept);
            // The next ones may get its range.
            for _ in 0..3 {
                super::space(OBJECT_BYTES_MIN).unwrap().fill(255);
            }
            let mut got = vec![0; PAGE];
            std::io::Read::read_exact(&mut &from, &mut got).unwrap();
            assert!(got.iter().all(|byte| *byte == round), "round {round}: {:?}", &got[..8]);
        }
    }

    #[test]
    fn what_was_only_copied_is_used_again_with_its_pages() {
        open(64 << 20);
        let Some(arena) = get() else { return };
        // Of a size that no other test of this process uses.
        let bytes = OBJECT_BYTES_MIN + 9 * PAGE + 1;
        let mut first = space(bytes).unwrap();
        first.fill(7);
        let kept = first.freeze();
        let at = arena.place(&kept).unwrap();
        arena.copied(at);
        drop(kept);
        let again = space(bytes).unwrap();
        assert_eq!(arena.place(&again), Some(at));
        assert_eq!(again[0], 7);
        assert_eq!(again.len(), bytes);
        assert!(!arena.lend(at, bytes), "the range was sent in an earlier use only");
        // Too few for the arena.
        assert!(space(OBJECT_BYTES_MIN - 1).is_none());
    }
}
