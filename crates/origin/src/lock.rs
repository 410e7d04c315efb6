//! A folder belongs to one process at a time, or to the processes of one cluster.

use std::fs::{File, OpenOptions};
use std::path::Path;

use anyhow::Context;
use rustix::fs::{FlockOperation, flock};

/// Holds the `lock` file of a folder; the kernel lets go of it when the process ends, however it ends.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "held, not used")] File);

impl Lock {
    /// Takes the lock for this process alone, or says that another has it.
    pub fn take(folder: &Path) -> anyhow::Result<Lock> {
        let file = lock_file(folder)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).with_context(|| {
            format!(
                "{} is in use by another process; stop it, or name another folder",
                folder.display()
            )
        })?;
        Ok(Lock(file))
    }

    /// Takes the lock together with the other processes of a cluster, or says that one has it alone.
    pub fn share(folder: &Path) -> anyhow::Result<Lock> {
        let file = lock_file(folder)?;
        flock(&file, FlockOperation::NonBlockingLockShared).with_context(|| {
            format!(
                "{} is in use by a process that does not share it (a server that is no part of a \
                 cluster); stop it, or name another folder",
                folder.display()
            )
        })?;
        Ok(Lock(file))
    }
}

fn lock_file(folder: &Path) -> anyhow::Result<File> {
    open_to_lock(&folder.join("lock"))
}

/// Opens a file that is there to be locked, and makes it if it is not there.
pub(super) fn open_to_lock(path: &Path) -> anyhow::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true);
    options.open(path).with_context(|| format!("cannot open {}", path.display()))
}
