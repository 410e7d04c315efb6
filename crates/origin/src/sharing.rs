//! How the processes of a cluster share one folder: ownership of temporary files, and locks on the
//! subfolders.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use rustix::fs::{FlockOperation, flock};
use rustix::io::retry_on_intr;

use super::Error;
use super::identity::Identity;
use super::lock::{Lock, open_to_lock};

/// Whether other processes may use the folder at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// No other process.
    Alone,
    /// The other processes of a cluster, which must all open it in this mode.
    Cluster,
}

/// The folder's lock, and the name that marks this process's temporary files.
///
/// In a cluster, a process holds a lock on `owners/NAME` until it ends, however it ends. Temporary
/// files whose owner file is not locked belong to a process that has ended. Processes open the
/// folder one at a time (the lock on `opening`), so that none is seen between the creation of its
/// owner file and locking it.
#[derive(Debug)]
pub(super) struct Entered {
    name: String,
    owner: Option<(PathBuf, File)>,
    /// Which folder this is.
    pub(super) identity: Identity,
    _lock: Lock,
}

impl Entered {
    /// Takes the lock and removes temporary files of processes that have ended.
    pub(super) fn enter(root: &Path, sharing: Sharing) -> anyhow::Result<Entered> {
        let name = format!("{:016x}", rand::random::<u64>());
        let owners = root.join("owners");
        if sharing == Sharing::Alone {
            let lock = Lock::take(root)?;
            remove_files(&root.join("tmp"), |_| Ok(true))?;
            if owners.exists() {
                remove_files(&owners, |_| Ok(true))?;
            }
            let identity = Identity::open(root, &root.join("tmp").join(&name))?;
            return Ok(Entered { name, owner: None, identity, _lock: lock });
        }
        let lock = Lock::share(root)?;
        let opening = open_to_lock(&root.join("opening"))?;
        retry_on_intr(|| flock(&opening, FlockOperation::LockExclusive))
            .with_context(|| format!("cannot lock {}", root.join("opening").display()))?;
        fs::create_dir_all(&owners)
            .with_context(|| format!("cannot create {}", owners.display()))?;
        let path = owners.join(&name);
        let file = open_to_lock(&path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .with_context(|| format!("cannot lock {}", path.display()))?;
        remove_files(&root.join("tmp"), |file| {
            let owner = file.split_once('-').map_or("", |(owner, _)| owner);
            Ok(owner.is_empty() || !is_alive(&owners.join(owner))?)
        })?;
        remove_files(&owners, |owner| Ok(!is_alive(&owners.join(owner))?))?;
        let identity = Identity::open(root, &root.join("tmp").join(&name))?;
        Ok(Entered { name, owner: Some((path, file)), identity, _lock: lock })
    }

    /// The name of this process's `number`-th temporary file.
    pub(super) fn temporary_name(&self, number: u64) -> String {
        format!("{}-{number}", self.name)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some((path, _)) = &self.owner {
            let _ = fs::remove_file(path);
        }
    }
}

/// Whether a process's owner file is locked.
fn is_alive(owner: &Path) -> anyhow::Result<bool> {
    // Opened for writing because network file systems require it for locks.
    let file = match OpenOptions::new().write(true).open(owner) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot open {}", owner.display()));
        }
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(false),
        Err(error) if error == rustix::io::Errno::WOULDBLOCK => Ok(true),
        Err(error) => Err(error).with_context(|| format!("cannot lock {}", owner.display())),
    }
}

/// Removes the files of a folder that `goes` selects. A file that is already gone is not an error.
fn remove_files(folder: &Path, goes: impl Fn(&str) -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot list {}", folder.display()))?;
        if !goes(&entry.file_name().to_string_lossy())? {
            continue;
        }
        match fs::remove_file(entry.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => {
                removed.with_context(|| format!("cannot remove {}", entry.path().display()))?;
            }
        }
    }
    Ok(())
}

/// The locks on the folders `XX`: a mutex between threads, a lock on `turns/XX` between processes.
pub(super) struct Turns(Vec<Mutex<Option<File>>>);

/// A held lock on a folder. It is held for a check and a rename, never while bytes are written or
/// synced.
pub(super) struct Turn<'a>(MutexGuard<'a, Option<File>>);

impl Turns {
    pub(super) fn open(root: &Path, sharing: Sharing) -> anyhow::Result<Turns> {
        let folder = root.join("turns");
        if sharing == Sharing::Cluster {
            fs::create_dir_all(&folder)
                .with_context(|| format!("cannot create {}", folder.display()))?;
        }
        let turn = |shard: u8| match sharing {
            Sharing::Alone => Ok(Mutex::new(None)),
            Sharing::Cluster => {
                let file = open_to_lock(&folder.join(format!("{shard:02x}")))?;
                Ok(Mutex::new(Some(file)))
            }
        };
        Ok(Turns((0..=255).map(turn).collect::<anyhow::Result<_>>()?))
    }

    /// Waits for the lock of a key's folder.
    pub(super) fn take(&self, key: &[u8]) -> Result<Turn<'_>, Error> {
        let shard = usize::from(blake3::hash(key).as_bytes()[0]);
        let guard = self.0[shard].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &*guard {
            retry_on_intr(|| flock(file, FlockOperation::LockExclusive))
                .map_err(|error| Error::of_io(&error.into(), "lock turns"))?;
        }
        Ok(Turn(guard))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(file) = &*self.0 {
            let _ = flock(file, FlockOperation::Unlock);
        }
    }
}
