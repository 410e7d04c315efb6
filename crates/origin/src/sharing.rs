//! How the processes of a cluster share one folder: who made which temporary file, and whose turn it is.

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

/// Who else may use the folder at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Nobody.
    Alone,
    /// The other processes of a cluster, all of which open it so.
    Cluster,
}

/// The folder's lock, and the name by which this opener's temporary files are known.
///
/// In a cluster an opener holds a lock on `owners/NAME` as long as it lives, however it ends: temporary
/// files whose owner is not locked are of the dead. Openers come one at a time (the lock on
/// `opening`), so that none is between the making of its file and locking it when another looks.
#[derive(Debug)]
pub(super) struct Entered {
    name: String,
    owner: Option<(PathBuf, File)>,
    /// Which folder this is.
    pub(super) identity: Identity,
    _lock: Lock,
}

impl Entered {
    /// Takes the lock and removes temporary files that nobody will finish.
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
        fs::create_dir_all(&owners).with_context(|| format!("cannot make {}", owners.display()))?;
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

    /// The name of this opener's `number`-th temporary file.
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

/// Whether an opener's file is locked.
fn is_alive(owner: &Path) -> anyhow::Result<bool> {
    // To write, because a lock on a network file system needs that.
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

/// Removes the files of a folder that are to go; one that is gone already is no error.
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

/// The turns to change a folder `XX`: between threads a mutex, between processes a lock on `turns/XX`.
pub(super) struct Turns(Vec<Mutex<Option<File>>>);

/// A turn. It is held for a look and a rename, never while bytes are written or synced.
pub(super) struct Turn<'a>(MutexGuard<'a, Option<File>>);

impl Turns {
    pub(super) fn open(root: &Path, sharing: Sharing) -> anyhow::Result<Turns> {
        let folder = root.join("turns");
        if sharing == Sharing::Cluster {
            fs::create_dir_all(&folder)
                .with_context(|| format!("cannot make {}", folder.display()))?;
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

    /// Waits for the turn of a key's folder.
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
