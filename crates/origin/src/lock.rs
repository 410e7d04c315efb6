//! Locks that reserve a folder for one process, or for the processes of one cluster.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// How long a lock may be held by a process that is about to let go of it: a child has its parent's locks from the fork until it
/// executes its program, and the last thread of a process that was killed may end after its parent has heard of it.
const HELD_MAX: Duration = Duration::from_millis(500);

/// A lock on the `lock` file of a folder. The kernel releases it when the process ends, however it
/// ends.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "held, not used")] File);

impl Lock {
    /// Takes the lock exclusively; an error if another process holds it.
    pub fn take(folder: &Path) -> anyhow::Result<Lock> {
        let file = lock_file(folder)?;
        exclusively(&file).with_context(|| {
            format!(
                "{} is in use by another process; stop it, or name another folder",
                folder.display()
            )
        })?;
        Ok(Lock(file))
    }

    /// Takes an exclusive lock on a file or block device itself, which `path` names; an error if another
    /// process holds one.
    pub fn on_file(file: File, path: &Path) -> anyhow::Result<Lock> {
        exclusively(&file).with_context(|| {
            format!("{} is in use by another process; stop it, or name another", path.display())
        })?;
        Ok(Lock(file))
    }

    /// Takes the lock shared with the other processes of a cluster; an error if a process holds it
    /// exclusively.
    pub(crate) fn share(folder: &Path) -> anyhow::Result<Lock> {
        let file = lock_file(folder)?;
        flock(&file, FlockOperation::NonBlockingLockShared)
            .with_context(|| in_use_alone(folder))?;
        Ok(Lock(file))
    }

    /// As [`Lock::share`], of a folder that cannot be written: the file to lock must be there.
    pub(crate) fn share_to_read(folder: &Path) -> anyhow::Result<Lock> {
        let path = folder.join("lock");
        let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
        flock(&file, FlockOperation::NonBlockingLockShared)
            .with_context(|| in_use_alone(folder))?;
        Ok(Lock(file))
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

fn in_use_alone(folder: &Path) -> String {
    format!(
        "{} is in use by a process that does not share it (a server outside a cluster); stop it, or name another folder",
        folder.display()
    )
}

fn lock_file(folder: &Path) -> anyhow::Result<File> {
    open_to_lock(&folder.join("lock"))
}

/// Opens a lock file, creating it if necessary.
pub(super) fn open_to_lock(path: &Path) -> anyhow::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true);
    options.open(path).with_context(|| format!("cannot open {}", path.display()))
}
