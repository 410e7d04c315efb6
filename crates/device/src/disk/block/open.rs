//! Opening a block device: whether it can be used at all, and by this node.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use rustix::fs::OFlags;

use super::foreign;
use super::slots::BlockDevice;
use super::superblock::{BLOCK, Refused, Superblock};
use crate::error::{Error, Unusable};
use origin::Lock;

/// How often a lock is tried, and the time between two tries: what looks at new devices (udev) locks them for
/// a moment.
const TRIES: u32 = 20;
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

impl BlockDevice {
    /// Opens a device that was formatted. `me` is the node's name in its cluster; a device without an owner
    /// becomes its.
    ///
    /// # Errors
    ///
    /// [`Unusable`], or an error that should end the process: another process uses the device.
    pub fn open(path: &Path, me: Option<&str>) -> Result<BlockDevice, Error> {
        let name = path.display().to_string();
        let raw = |why: String| Unusable::Raw(name.clone(), why);
        let (file, lock) = exclusively(path)?;
        let mut superblock = read(&file).map_err(&raw)?;
        let bytes = size(&file).map_err(|error| raw(error.to_string()))?;
        if bytes < superblock.device_bytes {
            return Err(raw(format!(
                "it has {bytes} bytes, and had {} when it was formatted; restore its size, or format it again",
                superblock.device_bytes
            ))
            .into());
        }
        match me {
            Some(me) if superblock.owner.is_empty() => {
                me.clone_into(&mut superblock.owner);
                let written = file.write_all_at(&superblock.encode(), 0);
                let written = written.and_then(|()| file.sync_data());
                written.map_err(|error| raw(format!("it cannot be written: {error}")))?;
            }
            Some(me) if superblock.owner != me => {
                return Err(raw(format!(
                    "it belongs to node {}, and this is node {me}; name another, or format it again with \
                     `concertina device format --destroy {name}`",
                    superblock.owner
                ))
                .into());
            }
            _ => {}
        }
        let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0);
        let direct = OpenOptions::new().read(true).custom_flags(direct).open(path);
        Ok(BlockDevice {
            name,
            superblock,
            file: Arc::new(file),
            direct: direct.map(Arc::new),
            slots: Mutex::default(),
            usable: OnceLock::new(),
            _lock: lock,
        })
    }
}

/// The superblock, or why the device cannot be used.
pub(super) fn read(file: &File) -> Result<Superblock, String> {
    let mut bytes = vec![0; BLOCK as usize];
    let short = |error: &io::Error| error.kind() == io::ErrorKind::UnexpectedEof;
    match file.read_exact_at(&mut bytes, 0) {
        Err(error) if !short(&error) => return Err(error.to_string()),
        _ => {}
    }
    Superblock::decode(&bytes).map_err(|why| {
        let mut begin = vec![0; foreign::LOOKED_AT as usize];
        let there = file.read_at(&mut begin, 0).unwrap_or(0);
        let found = foreign::signature(begin.get(..there).unwrap_or_default());
        match (why, found) {
            (Refused::Missing, Some(found)) => format!(
                "{why}: it holds {found}; name another, or, if that can be destroyed, use `concertina device format`"
            ),
            (Refused::Missing, None) => format!("{why}; `concertina device format` does that"),
            (Refused::Version(_), _) => {
                format!("{why}; use the program that wrote it, or format it again")
            }
            _ => format!("{why}; format it again (`concertina device format`)"),
        }
    })
}

/// Bytes of a device or file.
pub(super) fn size(file: &File) -> io::Result<u64> {
    let mut file = file;
    file.seek(SeekFrom::End(0))
}

/// Opens a device so that nothing else uses it meanwhile: the kernel refuses what is mounted or a part of another
/// device, and the lock another process.
pub(super) fn exclusively(path: &Path) -> Result<(File, Lock), Error> {
    let raw = |why: String| Unusable::Raw(path.display().to_string(), why);
    let metadata = fs::metadata(path).map_err(|error| raw(error.to_string()))?;
    let is_block = metadata.file_type().is_block_device();
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    if is_block {
        // Exclusive use of block devices alone: of files, it would be about creating them.
        options.custom_flags(i32::try_from(OFlags::EXCL.bits()).unwrap_or(0));
    }
    let file = match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            if let Some(place) = mounted_at(metadata.rdev()) {
                return Err(raw(format!(
                    "it is mounted at {place}; name another, or unmount it and format it"
                ))
                .into());
            }
            return Err(Error::InUse(path.to_owned()));
        }
        opened => opened.map_err(|error| raw(error.to_string()))?,
    };
    let mut tries = 1;
    let lock = loop {
        let copy = file.try_clone();
        let copy = copy.map_err(|source| Error::Read { path: path.to_owned(), source })?;
        let lock = Lock::on_file(copy, path);
        if lock.is_ok() || !is_block || tries == TRIES {
            break lock?;
        }
        tries += 1;
        thread::sleep(BETWEEN_TRIES);
    };
    Ok((file, lock))
}

/// Where a device is mounted.
fn mounted_at(device: u64) -> Option<String> {
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = mounts.lines().find(|line| line.split(' ').nth(2) == Some(&number))?;
    line.split(' ').nth(4).map(|place| place.replace("\\040", " "))
}
