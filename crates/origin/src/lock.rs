//! Locks that reserve a folder for one process, or for the processes of one cluster.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::error::OpenError;

/// How long a lock may be held by a process that is about to let go of it: a child has its parent's locks from the fork until it
/// executes its program, and the last thread of a process that was killed may end after its parent has heard of it.
const HELD_MAX: Duration = Duration::from_millis(500);

/// A lock on the `lock` file of a folder. The kernel releases it when the process ends, however it
/// ends.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "held, not used")] File);

impl Lock {
    /// Takes the lock exclusively; an error if another process holds it.
    pub fn take(folder: &Path) -> Result<Lock, OpenError> {
        let file = lock_file(folder)?;
        match exclusively(&file) {
            Ok(()) => Ok(Lock(file)),
            Err(source) => {
                Err(OpenError::InUse { path: folder.to_owned(), is_folder: true, source })
            }
        }
    }

    /// Takes an exclusive lock on a file or block device itself, which `path` names; an error if another
    /// process holds one.
    pub fn on_file(file: File, path: &Path) -> Result<Lock, OpenError> {
        match exclusively(&file) {
            Ok(()) => Ok(Lock(file)),
            Err(source) => {
                Err(OpenError::InUse { path: path.to_owned(), is_folder: false, source })
            }
        }
    }

    /// Takes the lock shared with the other processes of a cluster; an error if a process holds it
    /// exclusively.
    pub(crate) fn share(folder: &Path) -> Result<Lock, OpenError> {
        let file = lock_file(folder)?;
        shared(file, folder)
    }

    /// As [`Lock::share`], of a folder that cannot be written: the file to lock must be there.
    pub(crate) fn share_to_read(folder: &Path) -> Result<Lock, OpenError> {
        let path = folder.join("lock");
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(source) => return Err(OpenError::File { action: "open", path, source }),
        };
        shared(file, folder)
    }
}

/// Locks a file exclusively, if another process lets go of it within [`HELD_MAX`].
fn exclusively(file: &File) -> rustix::io::Result<()> {
    let start = Instant::now();
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if start.elapsed() < HELD_MAX => {
                std::thread::sleep(HELD_MAX / 20);
            }
            locked => return locked,
        }
    }
}

/// Locks the file of a folder, shared with the other processes of a cluster.
fn shared(file: File, folder: &Path) -> Result<Lock, OpenError> {
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(Lock(file)),
        Err(source) => Err(OpenError::InUseAlone { path: folder.to_owned(), source }),
    }
}

fn lock_file(folder: &Path) -> Result<File, OpenError> {
    open_to_lock(&folder.join("lock"))
}

/// Opens a lock file, creating it if necessary.
pub(super) fn open_to_lock(path: &Path) -> Result<File, OpenError> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true);
    let failed = |source| OpenError::File { action: "open", path: path.to_owned(), source };
    options.open(path).map_err(failed)
}
