//! Reads that a serving thread begins and ends itself, by io_uring.
//!
//! A read by a thread of the pool costs two wake-ups and up to four changes of threads, which is more than all
//! the rest of a small read. A serving thread has a ring instead: the reads that it begins are given to the
//! kernel together, at the end of a round of its runtime, and the kernel's completions are events of that
//! runtime like any other.
//!
//! The ring takes whole records of up to [`READ_BYTES_MAX`]: they are verified by the serving thread, so that a larger one
//! would make others wait. What it does not take, and what does not succeed at once and in full, goes
//! to the pool, which knows what to do about errors. So does everything where the kernel has no
//! io_uring, or forbids it.

use std::cell::RefCell;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use engine::node::{Event, Failure, Unread};
use io_uring::{IoUring, opcode, types};
use record::clock;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tracing::{debug, warn};

use super::device::EventSink;
use super::queue::Queue;
use super::read::Read;
use super::room::{Buffer, Room, Span};
use super::segments::record_length;

/// Bytes of the largest read that a ring takes.
const READ_BYTES_MAX: usize = 256 << 10;
/// Buffers that a thread keeps for further reads: 4 MiB.
const BUFFERS_MAX: usize = 16;
/// Maximum reads that a thread's ring has under way.
const READS_MAX: u32 = 256;

thread_local! {
    static RING: RefCell<Option<Ring>> = const { RefCell::new(None) };
}

/// A read under way. The kernel writes to its room until it completes.
struct UnderWay {
    read: Read,
    span: Span,
    room: Room,
}

/// A thread's ring.
struct Ring {
    uring: IoUring,
    /// By the number that the kernel returns.
    under_way: Vec<Option<UnderWay>>,
    /// Numbers that are free.
    free: Vec<u64>,
    /// Buffers of small reads that have ended.
    buffers: Vec<Buffer>,
    /// Whether there are reads that the kernel was not given.
    is_waiting: bool,
    wake: Arc<Notify>,
}

impl Ring {
    fn new(wake: Arc<Notify>) -> io::Result<Ring> {
        // A completion does not interrupt the thread, which asks for it when it next waits.
        let uring = IoUring::builder().setup_coop_taskrun().build(READS_MAX);
        let uring = uring.or_else(|_| IoUring::new(READS_MAX))?;
        Ok(Ring {
            uring,
            under_way: (0..READS_MAX).map(|_| None).collect(),
            free: (0..u64::from(READS_MAX)).collect(),
            buffers: Vec::new(),
            is_waiting: false,
            wake,
        })
    }

    /// Takes a read, or gives it back.
    fn take(&mut self, read: Read) -> Option<Read> {
        let Some((file, span)) = read.at_once().filter(|(_, span)| span.bytes() <= READ_BYTES_MAX)
        else {
            return Some(read);
        };
        let Some(number) = self.free.pop() else { return Some(read) };
        let mut buffer = self.buffers.pop().unwrap_or_default();
        let Ok(mut room) = Room::new(span.bytes(), &mut buffer) else {
            self.free.push(number);
            return Some(read);
        };
        let space = room.space();
        let entry =
            opcode::Read::new(types::Fd(file.as_raw_fd()), space.as_mut_ptr(), space.len() as u32)
                .offset(span.from())
                .build()
                .user_data(number);
        if let Some(slot) = self.under_way.get_mut(number as usize) {
            *slot = Some(UnderWay { read, span, room });
        }
        #[expect(unsafe_code, reason = "the kernel writes to the room")]
        // SAFETY: the room is in `under_way` until the kernel says that the read has ended, and does not move: it
        // is a range of the arena, or on the heap. So is the file, which the read holds.
        let pushed = unsafe { self.uring.submission().push(&entry) };
        if pushed.is_err() {
            return self.end(number).map(|UnderWay { read, .. }| read);
        }
        if !self.is_waiting {
            self.is_waiting = true;
            self.wake.notify_one();
        }
        None
    }

    /// A read that the kernel does not have, or has no longer.
    fn end(&mut self, number: u64) -> Option<UnderWay> {
        let under_way = self.under_way.get_mut(usize::try_from(number).ok()?)?.take()?;
        self.free.push(number);
        Some(under_way)
    }

    /// Gives the kernel the reads that it does not have yet, and takes those that have ended, with what the kernel
    /// says of each.
    fn turn(&mut self, ended: &mut Vec<(UnderWay, i32)>) -> io::Result<()> {
        while std::mem::take(&mut self.is_waiting) {
            match self.uring.submit() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => self.is_waiting = true,
                submitted => drop(submitted?),
            }
        }
        loop {
            let completion = self.uring.completion().next();
            let Some(completion) = completion else { break };
            let under_way = self.end(completion.user_data());
            ended.extend(under_way.map(|under_way| (under_way, completion.result())));
        }
        Ok(())
    }

    /// Waits for the reads under way, and gives them back: nobody has been told of them.
    fn drain(&mut self) -> Vec<Read> {
        let mut ended = Vec::new();
        while self.free.len() < self.under_way.len() {
            let waited = self.uring.submit_and_wait(1);
            if waited.is_err_and(|error| error.kind() != io::ErrorKind::Interrupted)
                || self.turn(&mut ended).is_err()
            {
                // The kernel says nothing more: what it may still write to is never used again.
                std::mem::forget(std::mem::take(&mut self.under_way));
                break;
            }
        }
        ended.into_iter().map(|(UnderWay { read, .. }, _)| read).collect()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The kernel must not write to memory that is used for something else.
        self.drain();
    }
}

/// Has this thread's ring take a read; gives it back if the thread has none, or the ring does not take it.
pub(super) fn take(read: Read) -> Option<Read> {
    RING.with_borrow_mut(|ring| match ring {
        Some(ring) => ring.take(read),
        None => Some(read),
    })
}

/// Takes the thread's ring away when its runtime ends, or the ring fails. The pool reads what was under way.
struct End {
    pool: Arc<Queue<Read>>,
}

impl Drop for End {
    fn drop(&mut self) {
        let ring = RING.take();
        let reads = ring.map(|mut ring| ring.drain());
        reads.into_iter().flatten().for_each(|read| self.pool.push(read));
    }
}

/// Gives this thread a ring and ends the ring's reads, until the thread's runtime ends. Returns at once where there is
/// no io_uring.
pub(super) async fn run(told: EventSink, pool: Arc<Queue<Read>>) {
    let wake = Arc::new(Notify::new());
    let ring = match Ring::new(wake.clone()) {
        Ok(ring) => ring,
        Err(error) => return debug!("no io_uring, so that threads read from devices: {error}"),
    };
    let Ok(descriptor) = rustix::io::dup(&ring.uring) else { return };
    #[expect(unsafe_code, reason = "the runtime waits for a descriptor")]
    // SAFETY: the descriptor is open until it is dropped, and is never another's.
    let completions = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
    let Ok(completions) = completions else { return };
    RING.set(Some(ring));
    let end = End { pool };
    loop {
        tokio::select! {
            () = wake.notified() => {}
            ready = completions.readable() => match ready {
                Ok(mut ready) => ready.clear_ready(),
                Err(_) => return,
            },
        }
        let mut ended = Vec::new();
        let turned = RING.with_borrow_mut(|ring| ring.as_mut().map(|ring| ring.turn(&mut ended)));
        for (under_way, result) in ended {
            tell(under_way, result, &told, &end.pool);
        }
        if let Some(Err(error)) = turned {
            warn!("io_uring failed, so that threads read from devices: {error}");
            return;
        }
    }
}

/// Tells the engine of a read that has ended; the pool reads again what did not succeed.
fn tell(under_way: UnderWay, result: i32, told: &EventSink, pool: &Queue<Read>) {
    let UnderWay { read, span, mut room } = under_way;
    let filled = usize::try_from(result).unwrap_or(0);
    if filled < span.needed() {
        return pool.push(read);
    }
    let record = span.record(room.space(), filled, record_length);
    let mut buffer = Buffer::default();
    let bytes = room.finish(record, &mut buffer);
    RING.with_borrow_mut(|ring| {
        // A burst of reads does not leave a buffer for each of them.
        let keeps = |ring: &&mut Ring| !buffer.is_empty() && ring.buffers.len() < BUFFERS_MAX;
        if let Some(ring) = ring.as_mut().filter(keeps) {
            ring.buffers.push(buffer);
        }
    });
    let result = read.device.segments.object(read.location, &read.key, &bytes);
    if let Err(Unread::Failed(Failure { reason, .. })) = &result {
        warn!("{reason}; reading from elsewhere instead");
    }
    told(clock::now(), Event::Read { job: read.job, result, left: 0 });
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::os::unix::fs::FileExt;
    use std::path::{Path, PathBuf};
    use std::sync::mpsc;
    use std::thread::{self, ThreadId};
    use std::time::Duration;

    use bytes::Bytes;
    use engine::Payload;
    use engine::node::{Event, Extent};
    use engine::tier::{Location, record_bytes};
    use ground::Key;
    use origin::{Attributes, Metadata};

    use super::*;
    use crate::disk::{DeviceFolder, Disks, Opened, Segments};
    use crate::object::Object;

    fn object(number: usize, size: usize) -> Object {
        let bytes: Vec<u8> = (0..size).map(|at| (at * 31 + number * 7 + at / 255) as u8).collect();
        let metadata = Metadata {
            size: size as u64,
            etag: format!("{number:032x}").into(),
            modified_unix_us: 0,
            attributes: Attributes::default(),
        };
        Object::new(&metadata, Bytes::from(bytes))
    }

    type Read = (u64, Result<Object, Unread>, ThreadId);

    /// The reads that ended, of as many as were begun.
    fn ended(
        told: &mpsc::Receiver<Read>,
        count: usize,
    ) -> HashMap<u64, (Result<Object, Unread>, ThreadId)> {
        let next = || told.recv_timeout(Duration::from_secs(20)).unwrap();
        (0..count).map(|_| next()).map(|(job, result, thread)| (job, (result, thread))).collect()
    }

    /// The naive twin of a thread's ring is the pool.
    #[test]
    fn a_serving_thread_reads_what_the_pool_reads() {
        let folder = tempfile::tempdir().unwrap();
        let segment = folder.path().join("00000000.seg");
        reads_the_same(folder.path(), &|| (segment.clone(), 0));
    }

    #[test]
    fn a_serving_thread_reads_what_the_pool_reads_of_a_device_without_a_file_system() {
        use crate::disk::block::superblock::Superblock;
        use crate::disk::block::{FormatOptions, format};

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("device");
        std::fs::File::create(&path).unwrap().set_len(160 << 20).unwrap();
        format(
            &path,
            FormatOptions { segment_bytes: 40 << 20, record_bytes: 1024, destroy: false },
        )
        .unwrap();
        let superblock = Superblock::decode(&std::fs::read(&path).unwrap()[..4096]).unwrap();
        reads_the_same(&path, &|| (path.clone(), superblock.segment_at(0)));
    }

    /// Fills and seals the first segment, and returns what is where.
    fn write_records(segments: &Segments) -> Vec<(Location, Key)> {
        let mut at = 0;
        let sizes = [0, 1, 700, 4096, 33_000, 81_920, 100_000, 250_000, 300_000];
        let mut written = Vec::new();
        for (number, size) in sizes.into_iter().cycle().take(300).enumerate() {
            let (key, object) =
                (Key::from(format!("key-{number}").as_bytes()), object(number, size));
            let bytes = record_bytes(key.len(), object.bytes(), object.stored_bytes());
            let location = Location::new(0, at, bytes);
            segments.append(location, &key, &object).unwrap();
            at += bytes;
            written.push((location, key));
        }
        segments.seal(0).unwrap();
        written
    }

    /// More than a ring holds are under way, and their completions wait for the runtime.
    async fn ring_is_idle() {
        for _ in 0..1_000 {
            tokio::time::sleep(Duration::from_millis(2)).await;
            let left = RING.with_borrow(|ring| {
                ring.as_ref().is_some_and(|ring| ring.free.len() < READS_MAX as usize)
            });
            if !left {
                break;
            }
        }
    }

    /// `first`: the file of the first segment, and its offset there.
    fn reads_the_same(path: &Path, first: &dyn Fn() -> (PathBuf, u64)) {
        crate::arena::open(64 << 20);
        let (send, told) = mpsc::channel();
        let send = std::sync::Mutex::new(send);
        let tell: EventSink = Arc::new(move |_, event| {
            if let Event::Read { job, result, .. } = event {
                send.lock().unwrap().send((job, result, thread::current().id())).unwrap();
            }
        });
        let device = DeviceFolder {
            folder: path.to_owned(),
            bytes: 64 << 20,
            segment_bytes: 0,
            parallel: 8,
            service: None,
            scrub_bytes_per_s: 0.0,
        };
        let devices = [device];
        let opened = Opened::open(&devices, None, &origin::IdentityRecord::default()).unwrap();
        let (disks, _) = Disks::start(&devices, opened, tell).unwrap();
        let segments = &disks.devices[&0].segments;
        let mut written = write_records(segments);
        let end = written.last().map_or(0, |(last, _)| last.offset() + last.bytes());
        let is_direct = segments.segment(0).unwrap().direct().is_some();
        // A record that is damaged, one of another key, one past the end, and one of a segment that is gone.
        let (path, base) = first();
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(b"damage", base + written[5].0.offset() + 40_000).unwrap();
        file.sync_all().unwrap();
        let other = (written[1].0, written[2].1.clone());
        let past = (Location::new(0, end + 5_000, 700), written[2].1.clone());
        let gone = (Location::new(9, 0, 700), written[2].1.clone());
        written.extend([other, past, gone]);
        let begin = || {
            for (job, (location, key)) in written.iter().enumerate() {
                disks.read(0, *location, key.clone(), job as u64, clock::now(), Extent::Record);
            }
        };
        begin();
        let by_pool = ended(&told, written.len());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.spawn(disks.on_thread());
        runtime.block_on(async {
            tokio::task::yield_now().await;
            begin();
            ring_is_idle().await;
        });
        let by_ring = ended(&told, written.len());
        let this = thread::current().id();
        assert!(by_pool.values().all(|(_, thread)| *thread != this));
        let there = is_direct && IoUring::new(8).is_ok();
        let here = by_ring.values().filter(|(_, thread)| *thread == this).count();
        assert_eq!(here > 100, there, "{here} reads were ended by the thread that began them");
        for (job, (result, _)) in &by_pool {
            assert_eq!(by_ring[job].0.is_ok(), result.is_ok(), "job {job}");
            match (result, &by_ring[job].0) {
                (Ok(one), Ok(two)) => assert!(one == two, "job {job}"),
                (one, two) => assert_eq!(one.as_ref().err(), two.as_ref().err()),
            }
        }
        assert_eq!(by_pool.values().filter(|(result, _)| result.is_err()).count(), 4);
        // Reads that are under way when the runtime ends are the pool's.
        runtime.block_on(async { begin() });
        drop(runtime);
        assert!(RING.with_borrow(Option::is_none));
        assert_eq!(ended(&told, written.len()).len(), written.len());
        disks.stop(Duration::from_secs(60));
    }
}
