//! How the folder origin is opened: once it is there, it is the right one, and as far as it can be written.
//!
//! A process may be started while its folder is not mounted, or is another one; then every request fails, and each looks
//! again. A folder on a file system that is mounted read-only is read, and each write looks whether that has changed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use ground::origin::{OriginId, Verdict};
use rustix::fs::{Access as Permission, StatVfs};
use tracing::{info, warn};

use super::damage::DamageLog;
use super::error::{Error, OpenError};
use super::identity::{self, Identity};
use super::identity_record::IdentityRecord;
use super::lock::Lock;
use super::sharing::{Entered, Sharing, Turns};
use super::temporary::Temporary;

/// The folder, shared with the jobs of the pool.
pub(super) struct Tree {
    pub root: PathBuf,
    pub damage_log: DamageLog,
    sharing: Sharing,
    record: Arc<IdentityRecord>,
    opened: OnceLock<Opened>,
    /// Held while the folder is opened.
    opening: Mutex<()>,
    temporary: AtomicU64,
}

/// A folder that was found to be the right one.
struct Opened {
    identity: Identity,
    access: RwLock<Access>,
}

enum Access {
    Writable(Arc<Writable>),
    /// Why it cannot be written, and the lock that keeps processes out that write alone.
    ReadOnly(String, Option<Lock>),
}

/// What writes need.
pub(super) struct Writable {
    entered: Entered,
    pub turns: Turns,
}

/// Whether an entry of the folder is one that this project makes.
fn is_own(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_shard = name.len() == 2 && u8::from_str_radix(name, 16).is_ok();
    is_shard || ["lock", "opening", "tmp", "owners", "turns"].contains(&name)
}

/// Whether an error says that nothing may be written, and not that something failed.
fn is_read_only(error: &OpenError) -> bool {
    matches!(
        error.of_file(),
        Some(io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied)
    )
}

/// Whether a folder's lock could not even be looked at.
fn has_no_lock(error: &OpenError) -> bool {
    matches!(error.of_file(), Some(io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied))
}

/// What a file system has no more of. Those that do not count files say that they have none in all.
fn lacks(room: &StatVfs) -> Option<&'static str> {
    match (room.f_bavail, room.f_files, room.f_favail) {
        (0, ..) => Some("space"),
        (_, 1.., 0) => Some("inodes"),
        _ => None,
    }
}

impl Tree {
    pub fn new(root: &Path, sharing: Sharing, record: Arc<IdentityRecord>) -> Tree {
        Tree {
            root: root.to_owned(),
            damage_log: DamageLog::default(),
            sharing,
            record,
            opened: OnceLock::new(),
            opening: Mutex::default(),
            temporary: AtomicU64::new(0),
        }
    }

    /// The folder's identity, which is that of the origin that this process serves.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] as long as something else is at the path, or the other members serve another origin.
    pub fn identity(&self) -> Result<&Identity, Error> {
        let opened = self.opened()?;
        self.record.check()?;
        Ok(&opened.identity)
    }

    /// The number of the identity, once the folder was opened.
    pub fn id(&self) -> Option<OriginId> {
        self.record.id()
    }

    fn opened(&self) -> Result<&Opened, Error> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let opened = self.open_root().map_err(|error| match error {
            OpenError::Origin(error) => error,
            error => Error::Failed(error.in_full()),
        })?;
        self.record.take(opened.identity.id());
        Ok(self.opened.get_or_init(|| opened))
    }

    fn judge(&self) -> Result<Verdict, Error> {
        let place = identity::place(&self.root, &is_own)?;
        match self.record.judge(place) {
            Verdict::Refuse(refusal) => {
                let place = format!("the origin's folder {}", self.root.display());
                Err(self.record.lost(refusal, &place))
            }
            verdict => Ok(verdict),
        }
    }

    fn open_root(&self) -> Result<Opened, OpenError> {
        let (root, shown) = (&self.root, self.root.display());
        let verdict = self.judge()?;
        if verdict == Verdict::Create {
            let action = "create the origin's folder";
            let failed = |source| OpenError::File { action, path: root.clone(), source };
            fs::create_dir_all(root).map_err(failed)?;
        }
        let (entered, opening) = match Entered::enter(root, self.sharing) {
            Ok(entered) => entered,
            Err(error) if verdict != Verdict::Create && is_read_only(&error) => {
                let identity = Identity::open(root)?;
                let why = error.in_full();
                warn!("the origin's folder {shown} is read-only ({why}): writes are refused");
                // Where no process ever wrote, there is no file to lock, and no process to keep out.
                let lock = match Lock::share_to_read(root) {
                    Ok(lock) => Some(lock),
                    Err(error) if has_no_lock(&error) => None,
                    // What another process writes alone would be served here as it was before.
                    Err(error) => return Err(error),
                };
                let access = Access::ReadOnly(why, lock);
                return Ok(Opened { identity, access: RwLock::new(access) });
            }
            Err(error) => return Err(error),
        };
        // Again, now that no other process opens the folder: one may have made the origin meanwhile.
        if self.judge()? == Verdict::Create {
            self.create(&entered)?;
        }
        drop(opening);
        let identity = Identity::open(root)?;
        let turns = Turns::open(root, self.sharing)?;
        let access = Access::Writable(Arc::new(Writable { entered, turns }));
        Ok(Opened { identity, access: RwLock::new(access) })
    }

    /// Makes an origin. The identity last: a folder that has one has all its subfolders, and one that is missing later is
    /// [`Error::Lost`] and not a folder without objects.
    fn create(&self, entered: &Entered) -> Result<(), OpenError> {
        for shard in 0..=255u8 {
            let shard = self.root.join(format!("{shard:02x}"));
            match fs::create_dir(&shard) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => made.map_err(|source| {
                    let (action, path) = ("create", shard.clone());
                    OpenError::File { action, path, source }
                })?,
            }
        }
        let id = Identity::create(&self.root, &self.temporary_path(entered))?;
        info!("made the origin {id} in {}", self.root.display());
        let parent = self.root.parent().filter(|path| !path.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        // The folder may have been there, in one that this process cannot read.
        if let Err(error) = File::open(parent).and_then(|folder| folder.sync_all()) {
            warn!("cannot sync {}: {error}", parent.display());
        }
        Ok(())
    }

    /// What a write needs.
    ///
    /// # Errors
    ///
    /// [`Error::ReadOnly`] as long as the folder cannot be written; those of [`Tree::identity`].
    pub fn writable(&self) -> Result<Arc<Writable>, Error> {
        let opened = self.opened()?;
        self.identity()?.check()?;
        {
            let access = opened.access.read().unwrap_or_else(PoisonError::into_inner);
            if let Access::Writable(writable) = &*access {
                return Ok(writable.clone());
            }
        }
        let mut access = opened.access.write().unwrap_or_else(PoisonError::into_inner);
        let (why, lock) = match &mut *access {
            Access::Writable(writable) => return Ok(writable.clone()),
            Access::ReadOnly(why, lock) => (why, lock),
        };
        let refused = |why: &str| {
            Error::ReadOnly(format!(
                "{why}; mount {} so that it can be written",
                self.root.display()
            ))
        };
        if rustix::fs::access(&self.root, Permission::WRITE_OK).is_err() {
            return Err(refused(why));
        }
        // The lock of a reader would keep out this process's own lock of a writer, too.
        *lock = None;
        let entered = Entered::enter(&self.root, self.sharing)
            .and_then(|(entered, _)| Ok((entered, Turns::open(&self.root, self.sharing)?)));
        match entered {
            Ok((entered, turns)) => {
                info!("the origin's folder {} can be written now", self.root.display());
                let writable = Arc::new(Writable { entered, turns });
                *access = Access::Writable(writable.clone());
                Ok(writable)
            }
            Err(error) => {
                *lock = Lock::share_to_read(&self.root).ok();
                *why = error.in_full();
                Err(refused(why))
            }
        }
    }

    /// Why the folder cannot be written; `None` if it can, or is not open.
    pub fn read_only(&self) -> Option<String> {
        let opened = self.opened.get()?;
        match opened.access.try_read() {
            Ok(access) => {
                if let Access::ReadOnly(why, _) = &*access {
                    return Some(why.clone());
                }
            }
            // A write looks whether that has changed, which may take a while.
            Err(_) => return None,
        }
        // It may have been mounted anew, as the kernel does when a disk fails.
        let tmp = self.root.join("tmp");
        match rustix::fs::access(&tmp, Permission::WRITE_OK) {
            Err(rustix::io::Errno::ROFS) => Some(format!("{} is read-only", tmp.display())),
            _ => {
                let full = rustix::fs::statvfs(&tmp).ok().as_ref().and_then(lacks)?;
                Some(format!("the file system of {} has no {full} left", tmp.display()))
            }
        }
    }

    fn temporary_path(&self, entered: &Entered) -> PathBuf {
        let number = self.temporary.fetch_add(1, Ordering::Relaxed);
        self.root.join("tmp").join(entered.temporary_name(number))
    }

    /// A new file in `tmp/`.
    ///
    /// # Errors
    ///
    /// Those of [`Tree::writable`] and of the file system.
    pub fn temporary(&self) -> Result<Temporary, Error> {
        let writable = self.writable()?;
        Temporary::create(self.temporary_path(&writable.entered))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_without_space_or_inodes_lacks_them() {
        let folder = tempfile::tempdir().unwrap();
        let room = rustix::fs::statvfs(folder.path()).unwrap();
        let with =
            |f_bavail, f_files, f_favail| lacks(&StatVfs { f_bavail, f_files, f_favail, ..room });
        assert_eq!(with(1, 1, 1), None);
        assert_eq!(with(0, 1, 1), Some("space"));
        assert_eq!(with(0, 0, 0), Some("space"));
        assert_eq!(with(1, 1, 0), Some("inodes"));
        // As btrfs says.
        assert_eq!(with(1, 0, 0), None);
    }
}
