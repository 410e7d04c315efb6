//! How the processes of a cluster share one folder: ownership of temporary files, and locks on the
//! subfolders.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::retry_on_intr;

use super::error::{Error, OpenError};
use super::lock::{Lock, open_to_lock};
use super::marker::remove_files;

/// How long a lock on a folder `XX` is waited for. Its holder has it for a check and a rename, so only a
/// process that stands still (a debugger, a frozen container) or a hung file system keeps it for longer.
/// Who waits blocks one of the threads for file calls, which reads need too.
const TURN_WAIT_MAX: Duration = Duration::from_secs(1);
/// How long a process waits for another one that opens the folder.
const OPENING_WAIT_MAX: Duration = Duration::from_secs(30);
/// The pauses between two attempts double from the first to the second.
const PAUSES: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(2)];

/// Attempts until one succeeds; `None` after `wait`.
fn within<T>(
    wait: Duration,
    mut attempt: impl FnMut() -> Result<Option<T>, Error>,
) -> Result<Option<T>, Error> {
    let (start, mut pause) = (Instant::now(), PAUSES[0]);
    loop {
        if let Some(got) = attempt()? {
            return Ok(Some(got));
        }
        if start.elapsed() >= wait {
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSES[1]);
    }
}

/// Whether the file could be locked; it is not if another process has locked it.
fn try_lock(file: &File, what: &Path) -> Result<bool, Error> {
    match retry_on_intr(|| flock(file, FlockOperation::NonBlockingLockExclusive)) {
        Ok(()) => Ok(true),
        Err(error) if error == rustix::io::Errno::WOULDBLOCK => Ok(false),
        Err(error) => Err(Error::of_io(&error.into(), &format!("lock {}", what.display()))),
    }
}

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
    _lock: Lock,
}

/// Keeps the other processes of a cluster from opening the folder.
pub(super) struct Opening(#[expect(dead_code, reason = "held, not used")] Option<File>);

/// The name of an opener, in `owners/` and at the start of the names in `tmp/`.
fn is_opener(name: &str) -> bool {
    name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The opener of a file in `tmp/`; `None` if none of this project's has such a name.
fn opener_of(file: &str) -> Option<&str> {
    // Without a number: the identity of versions that drew it under that name.
    let (opener, number) = file.split_once('-').unwrap_or((file, "0"));
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_opener(opener) && is_number).then_some(opener)
}

impl Entered {
    /// Takes the lock and removes temporary files of processes that have ended. The folder must be an origin, or one that is
    /// being made. In a cluster, no other process opens it as long as the second value lives.
    pub(super) fn enter(root: &Path, sharing: Sharing) -> Result<(Entered, Opening), OpenError> {
        let name = format!("{:016x}", rand::random::<u64>());
        let (tmp, owners) = (root.join("tmp"), root.join("owners"));
        let create = |folder: &Path| match fs::create_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made.map_err(|source| cannot("create", folder, source)),
        };
        if sharing == Sharing::Alone {
            let lock = Lock::take(root)?;
            create(&tmp)?;
            remove_files(&tmp, &|file| opener_of(file).is_some())?;
            if owners.exists() {
                remove_files(&owners, &is_opener)?;
            }
            return Ok((Entered { name, owner: None, _lock: lock }, Opening(None)));
        }
        let lock = Lock::share(root)?;
        let path = root.join("opening");
        let opening = open_to_lock(&path)?;
        within(OPENING_WAIT_MAX, || Ok(try_lock(&opening, &path)?.then_some(())))?
            .ok_or(OpenError::Held { path, waited: OPENING_WAIT_MAX })?;
        create(&tmp)?;
        create(&owners)?;
        let path = owners.join(&name);
        let file = open_to_lock(&path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|source| OpenError::Lock { path: path.clone(), source })?;
        // One whose lock cannot be tried is taken for alive: what it wrote stays for another start.
        let is_over = |opener: &str| is_alive(&owners.join(opener)).is_ok_and(|alive| !alive);
        remove_files(&tmp, &|file| opener_of(file).is_some_and(is_over))?;
        remove_files(&owners, &|owner| is_opener(owner) && is_over(owner))?;
        Ok((Entered { name, owner: Some((path, file)), _lock: lock }, Opening(Some(opening))))
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

/// The error of an action on a file or folder.
fn cannot(action: &'static str, path: &Path, source: io::Error) -> OpenError {
    OpenError::File { action, path: path.to_owned(), source }
}

/// Whether a process's owner file is locked.
fn is_alive(owner: &Path) -> Result<bool, OpenError> {
    // Opened for writing because network file systems require it for locks.
    let file = match OpenOptions::new().write(true).open(owner) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(source) => return Err(cannot("open", owner, source)),
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(false),
        Err(error) if error == rustix::io::Errno::WOULDBLOCK => Ok(true),
        Err(source) => Err(OpenError::Lock { path: owner.to_owned(), source }),
    }
}

/// The locks on the folders `XX`: a mutex between threads, a lock on `turns/XX` between processes.
pub(super) struct Turns {
    folder: PathBuf,
    each: Vec<Mutex<Option<File>>>,
}

/// A held lock on a folder. It is held for a check and a rename, never while bytes are written or
/// synced.
pub(super) struct Turn<'a>(MutexGuard<'a, Option<File>>);

impl Turns {
    pub(super) fn open(root: &Path, sharing: Sharing) -> Result<Turns, OpenError> {
        let folder = root.join("turns");
        if sharing == Sharing::Cluster {
            fs::create_dir_all(&folder).map_err(|source| cannot("create", &folder, source))?;
        }
        let turn = |shard: u8| match sharing {
            Sharing::Alone => Ok(Mutex::new(None)),
            Sharing::Cluster => {
                let file = open_to_lock(&folder.join(format!("{shard:02x}")))?;
                Ok(Mutex::new(Some(file)))
            }
        };
        let each = (0..=255).map(turn).collect::<Result<_, OpenError>>()?;
        Ok(Turns { folder, each })
    }

    /// Waits for the lock of a key's folder, for at most [`TURN_WAIT_MAX`].
    pub(super) fn take(&self, key: &[u8]) -> Result<Turn<'_>, Error> {
        self.take_shard(blake3::hash(key).as_bytes()[0])
    }

    /// The same of a folder `XX`.
    pub(super) fn take_shard(&self, shard: u8) -> Result<Turn<'_>, Error> {
        let path = self.folder.join(format!("{shard:02x}"));
        let attempt = || {
            let guard = match self.each[usize::from(shard)].try_lock() {
                Ok(guard) => guard,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return Ok(None),
            };
            let locked = guard.as_ref().map_or(Ok(true), |file| try_lock(file, &path))?;
            Ok(locked.then_some(Turn(guard)))
        };
        within(TURN_WAIT_MAX, attempt)?.ok_or_else(|| {
            Error::Failed(format!(
                "nothing was written: a process has held {} for over {TURN_WAIT_MAX:?}; it stands \
                 still in the middle of a write, or its file system does",
                path.display()
            ))
        })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(file) = &*self.0 {
            let _ = flock(file, FlockOperation::Unlock);
        }
    }
}
