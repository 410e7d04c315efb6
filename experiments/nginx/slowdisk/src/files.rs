//! The file system: files `k0`, `k1` … of one size, each on one of the disks.
//!
//! Names and attributes are answered at once and kept by the kernel; what is read waits for its disk.
//! The thread that takes requests from the kernel only puts them in queues: how long a read waits is
//! decided by its disk alone. The page cache keeps what was read, as it does for any disk.

use std::ffi::OsStr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context;
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEntry,
    ReplyOpen, Request,
};
use ground::window::{Histogram, Nanos};

use crate::clock;
use crate::disk::Disk;

/// How long the kernel may keep names and attributes: nothing ever changes.
const TTL: Duration = Duration::from_secs(1 << 30);

/// Reads that a disk's queue holds; more are answered with an error.
const QUEUE_MAX: usize = 65_536;

/// A read whose end is known.
struct Due {
    at: Nanos,
    file: u64,
    offset: u64,
    bytes: usize,
    reply: ReplyData,
}

/// A disk with the thread that answers its reads.
struct Spindle {
    disk: Mutex<Disk>,
    due: SyncSender<Due>,
    /// How late answers left, nanoseconds after the end of their service.
    late: Arc<Mutex<Histogram>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The disks, shared with who reads their counters.
pub struct Disks {
    spindles: Vec<Spindle>,
}

impl Disks {
    /// Starts a thread for each disk.
    pub fn start(disks: Vec<Disk>) -> anyhow::Result<Disks> {
        let mut spindles = Vec::with_capacity(disks.len());
        for (number, disk) in disks.into_iter().enumerate() {
            let (due, dues) = sync_channel(QUEUE_MAX);
            let late = Arc::new(Mutex::new(Histogram::default()));
            let of_thread = late.clone();
            std::thread::Builder::new()
                .name(format!("disk/{number}"))
                .spawn(move || answer(&dues, &of_thread))
                .context("cannot start a disk's thread")?;
            spindles.push(Spindle { disk: Mutex::new(disk), due, late });
        }
        Ok(Disks { spindles })
    }

    /// What each disk counted up to `now`, and how late answers left.
    pub fn take_counters(&self, now: Nanos) -> (Vec<crate::disk::Counters>, Histogram) {
        let counters = self.spindles.iter().map(|s| locked(&s.disk).take_counters(now)).collect();
        let mut late = Histogram::default();
        for spindle in &self.spindles {
            late.merge(&std::mem::take(&mut *locked(&spindle.late)));
        }
        (counters, late)
    }

    /// A read comes.
    fn read(&self, file: u64, offset: u64, bytes: usize, reply: ReplyData) {
        let Some(spindle) = self.spindles.get((file % self.spindles.len() as u64) as usize) else {
            return reply.error(Errno::EIO);
        };
        let mut disk = locked(&spindle.disk);
        // Within the lock, so that the times of arrivals do not run back.
        let now = clock::now();
        if disk.length(now) >= QUEUE_MAX {
            return reply.error(Errno::EBUSY);
        }
        let at = disk.read(now, bytes as u64);
        // Within the lock still, so that ends stand in the queue in their order.
        let sent = spindle.due.try_send(Due { at, file, offset, bytes, reply });
        if let Err(std::sync::mpsc::TrySendError::Full(due)) = sent {
            due.reply.error(Errno::EBUSY);
        }
    }
}

/// Answers the reads of a disk, each when its service ends.
fn answer(dues: &Receiver<Due>, late: &Mutex<Histogram>) {
    clock::precise_thread();
    while let Ok(due) = dues.recv() {
        clock::sleep_until(due.at);
        locked(late).record(clock::now().saturating_sub(due.at));
        due.reply.data(&content(due.file, due.offset, due.bytes));
    }
}

/// The bytes of a file: its name and a new line, again and again.
fn content(file: u64, offset: u64, bytes: usize) -> Vec<u8> {
    let line = format!("k{file}\n").into_bytes();
    let skip = (offset % line.len() as u64) as usize;
    line.iter().cycle().skip(skip).take(bytes).copied().collect()
}

/// The file system.
pub struct Files {
    disks: Arc<Disks>,
    count: u64,
    bytes: u64,
    uid: u32,
    gid: u32,
}

/// The first file's inode; 1 is the folder.
const FIRST: u64 = 2;

impl Files {
    /// So many files of so many bytes; file `i` is on disk `i` modulo their number.
    pub fn new(disks: Arc<Disks>, count: u64, bytes: u64) -> Files {
        let uid = rustix::process::getuid().as_raw();
        let gid = rustix::process::getgid().as_raw();
        Files { disks, count, bytes, uid, gid }
    }

    /// The number of the file with a name.
    fn number(&self, name: &OsStr) -> Option<u64> {
        let digits = name.to_str()?.strip_prefix('k')?;
        let number: u64 = digits.parse().ok()?;
        (number < self.count && digits == number.to_string()).then_some(number)
    }

    /// The number of the file with an inode.
    fn file(&self, inode: INodeNo) -> Option<u64> {
        inode.0.checked_sub(FIRST).filter(|file| *file < self.count)
    }

    fn attributes(&self, inode: u64) -> FileAttr {
        let folder = inode < FIRST;
        let size = if folder { 0 } else { self.bytes };
        FileAttr {
            ino: INodeNo(inode),
            size,
            blocks: size.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if folder { FileType::Directory } else { FileType::RegularFile },
            perm: if folder { 0o555 } else { 0o444 },
            nlink: if folder { 2 } else { 1 },
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for Files {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let refused = |what: &str| std::io::Error::other(format!("the kernel refuses {what}"));
        // One byte is no page: what is not asked for is not read, so a miss is one read.
        config.set_max_readahead(1).map_err(|_| refused("to read ahead nothing"))?;
        // Reads wait in the disks' queues, where they are counted, and not in the kernel's.
        config.set_max_background(u16::MAX).map_err(|_| refused("the background limit"))?;
        config.set_congestion_threshold(u16::MAX).map_err(|_| refused("the threshold"))?;
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.number(name).filter(|_| parent == INodeNo::ROOT) {
            Some(file) => reply.entry(&TTL, &self.attributes(file + FIRST), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        if inode == INodeNo::ROOT || self.file(inode).is_some() {
            reply.attr(&TTL, &self.attributes(inode.0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn open(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if self.file(inode).is_some() {
            reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some(file) = self.file(inode) else { return reply.error(Errno::ENOENT) };
        let bytes = self.bytes.saturating_sub(offset).min(u64::from(size));
        if bytes == 0 {
            return reply.data(&[]);
        }
        self.disks.read(file, offset, bytes as usize, reply);
    }

    fn readdir(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if inode != INodeNo::ROOT {
            return reply.error(Errno::ENOENT);
        }
        for file in offset..self.count {
            let name = format!("k{file}");
            if reply.add(INodeNo(file + FIRST), file + 1, FileType::RegularFile, name) {
                break;
            }
        }
        reply.ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_inodes_are_numbers_of_files() {
        let disks = Arc::new(Disks { spindles: Vec::new() });
        let files = Files::new(disks, 100, 4096);
        for (name, number) in [("k0", Some(0)), ("k99", Some(99)), ("k100", None), ("k", None)] {
            assert_eq!(files.number(OsStr::new(name)), number, "{name}");
        }
        for name in ["k01", "k+1", "1", "", "k99999999999999999999999"] {
            assert_eq!(files.number(OsStr::new(name)), None, "{name}");
        }
        assert_eq!(files.file(INodeNo(1)), None);
        assert_eq!(files.file(INodeNo(2)), Some(0));
        assert_eq!(files.file(INodeNo(102)), None);
        assert_eq!(files.attributes(2).size, 4096);
    }

    #[test]
    fn a_part_of_a_file_is_that_part_of_the_whole() {
        let whole = content(123, 0, 4096);
        assert_eq!(whole.len(), 4096);
        assert!(whole.starts_with(b"k123\nk123\n"));
        for (offset, bytes) in [(0, 0), (3, 10), (5, 5), (1001, 999)] {
            assert_eq!(content(123, offset, bytes), whole[offset as usize..][..bytes]);
        }
    }
}
