//! A folder belongs to one process at a time.

use std::fs::{File, OpenOptions};
use std::path::Path;

use anyhow::Context;
use rustix::fs::{FlockOperation, flock};

/// Holds the `lock` file of a folder; the kernel lets go of it when the process ends, however it ends.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "held, not used")] File);

impl Lock {
    /// Takes the lock, or says that another process has it.
    pub fn take(folder: &Path) -> anyhow::Result<Lock> {
        let path = folder.join("lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).with_context(|| {
            format!(
                "{} is in use by another process; stop it, or name another folder",
                folder.display()
            )
        })?;
        Ok(Lock(file))
    }
}
