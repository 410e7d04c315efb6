//! Which folder an origin is: a file `identity` in it, with a number drawn when the folder was first used.
//!
//! A file that is missing means "no such object" only in the folder that was opened. A folder that was
//! moved away, a file system that is not mounted, or another folder at the same path has no such file or
//! another number, and every request then fails with [`Error::Lost`] instead. The check costs one `stat`:
//! the file is read again only when it is another one (device, inode or change time).

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ground::origin::{OriginId, Place};

use super::error::Error;
use super::marker;

/// The name of the file.
pub(super) const NAME: &str = "identity";
/// What precedes the number.
const START: &str = "concertina-origin 1 ";
/// More than the file has: the rest of a larger one is not read.
const BYTES_MAX: u64 = 256;

/// Device, inode and change time of the file.
type Stamp = (u64, u64, i64, i64);

/// The identity of a folder that was opened.
#[derive(Debug)]
pub(super) struct Identity {
    path: PathBuf,
    id: OriginId,
    seen: Mutex<Stamp>,
}

fn stamp_of(path: &Path) -> io::Result<Stamp> {
    let stat = fs::metadata(path)?;
    Ok((stat.dev(), stat.ino(), stat.ctime(), stat.ctime_nsec()))
}

/// The identity in a folder; `None` if it or its file is missing.
fn read(path: &Path) -> Result<Option<OriginId>, Error> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(BYTES_MAX).read_to_string(&mut text));
    match read {
        Ok(_) => {}
        Err(error) if is_missing(&error) => return Ok(None),
        Err(error) => return Err(Error::of_io(&error, &format!("read {}", path.display()))),
    }
    let id = text.strip_prefix(START).and_then(|number| number.trim_end().parse().ok());
    id.map(Some).ok_or_else(|| {
        Error::Lost(format!(
            "{} is not an origin's identity; put the right file back",
            path.display()
        ))
    })
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// What is at the path of an origin's folder. An origin of versions that gave it no identity counts as empty: it holds
/// nothing but what [`is_own`] names, and gets an identity now.
///
/// # Errors
///
/// If that cannot be known.
pub(super) fn place(root: &Path, is_own: &dyn Fn(&Path) -> bool) -> Result<Place, Error> {
    if let Some(id) = read(&root.join(NAME))? {
        return Ok(Place::Origin(id));
    }
    match marker::stranger(root, is_own) {
        Ok(None) => Ok(Place::Empty),
        Ok(Some(_)) => Ok(Place::Foreign),
        Err(marker::Unclaimed::Io { error, .. }) if is_missing(&error) => Ok(Place::Empty),
        Err(error) => Err(Error::Failed(error.to_string())),
    }
}

impl Identity {
    /// When the file was written, which is when the folder was first used, microseconds since 1970.
    pub(super) fn created_unix_us(&self) -> Option<u64> {
        let modified = fs::metadata(&self.path).and_then(|stat| stat.modified()).ok()?;
        let since = modified.duration_since(std::time::UNIX_EPOCH).ok()?;
        u64::try_from(since.as_micros()).ok()
    }

    /// Draws an identity for a folder that has none. The caller holds the lock that keeps other openers out;
    /// `temporary` is a path in `tmp/` that nobody else uses.
    pub(super) fn create(root: &Path, temporary: &Path) -> Result<OriginId, Error> {
        let path = root.join(NAME);
        let id = OriginId::new(rand::random());
        let write = || -> io::Result<()> {
            let mut file = File::create_new(temporary)?;
            file.write_all(format!("{START}{id}\n").as_bytes())?;
            file.sync_all()?;
            fs::rename(temporary, &path)?;
            File::open(root)?.sync_all()
        };
        write().map_err(|error| Error::of_io(&error, &format!("make {}", path.display())))?;
        Ok(id)
    }

    /// The identity of a folder that has it.
    pub(super) fn open(root: &Path) -> Result<Identity, Error> {
        let path = root.join(NAME);
        let id = read(&path)?.ok_or_else(|| missing(&io::ErrorKind::NotFound.into(), &path))?;
        let seen = stamp_of(&path).map_err(|error| missing(&error, &path))?;
        Ok(Identity { path, id, seen: Mutex::new(seen) })
    }

    /// The number.
    pub(super) fn id(&self) -> OriginId {
        self.id
    }

    /// [`Error::Lost`] unless the folder at the path is still the one that was opened. One `stat`.
    pub(super) fn check(&self) -> Result<(), Error> {
        let stamp = stamp_of(&self.path).map_err(|error| self.missing(&error))?;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == stamp {
            return Ok(());
        }
        let found = read(&self.path)?;
        if found != Some(self.id) {
            return Err(Error::Lost(format!(
                "{} has another identity than the folder that was opened; put that folder back",
                self.path.display()
            )));
        }
        // The same folder, mounted again or restored from a copy.
        *seen = stamp;
        Ok(())
    }

    /// The error for a folder of objects that is not there.
    pub(super) fn check_shard(&self, shard: &Path) -> Result<(), Error> {
        self.check()?;
        fs::metadata(shard).map(|_| ()).map_err(|error| missing(&error, shard))
    }

    fn missing(&self, error: &io::Error) -> Error {
        let has_others = self.path.parent().and_then(|root| fs::read_dir(root).ok()?.next());
        if !is_missing(error) || has_others.is_none() {
            return missing(error, &self.path);
        }
        Error::Lost(format!(
            "{} is missing, though its folder is there: put the file back (one line, {START}{}), or mount the file \
             system that has it",
            self.path.display(),
            self.id
        ))
    }
}

fn missing(error: &io::Error, path: &Path) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Error::Lost(format!(
            "{} is missing; mount the file system or put the folder back",
            path.display()
        )),
        _ => Error::of_io(error, &format!("look at {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(identity: &Identity, expected: Option<&str>) {
        match (identity.check(), expected) {
            (Ok(()), None) => {}
            (Err(Error::Lost(text)), Some(part)) if text.contains(part) => {}
            (got, _) => panic!("{got:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn a_folder_is_known_again_wherever_it_lies() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other, away] = ["one", "other", "away"].map(|name| folder.path().join(name));
        let create = |root: &Path| {
            fs::create_dir_all(root).unwrap();
            Identity::create(root, &root.join("temporary")).unwrap()
        };
        let id = create(&one);
        let identity = Identity::open(&one).unwrap();
        check(&identity, None);
        assert_eq!(identity.id(), id);
        assert_ne!(create(&other), id);
        fs::rename(&one, &away).unwrap();
        check(&identity, Some("is missing"));
        fs::create_dir(&one).unwrap();
        check(&identity, Some("is missing; mount"));
        fs::write(one.join("other"), "").unwrap();
        // With what an operator needs in order to put the file back.
        check(&identity, Some(&format!("put the file back (one line, {START}{id})")));
        fs::remove_dir_all(&one).unwrap();
        fs::rename(&other, &one).unwrap();
        check(&identity, Some("another identity"));
        fs::rename(&one, &other).unwrap();
        fs::create_dir(&one).unwrap();
        fs::copy(away.join(NAME), one.join(NAME)).unwrap();
        check(&identity, None);
        fs::write(one.join(NAME), "").unwrap();
        assert!(Identity::open(&one).is_err());
    }

    #[test]
    fn what_is_at_a_path_is_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("origin");
        let is_own = |path: &Path| path.ends_with("tmp");
        let at = |root: &Path| place(root, &is_own);
        assert_eq!(at(&root), Ok(Place::Empty), "missing");
        fs::create_dir(&root).unwrap();
        assert_eq!(at(&root), Ok(Place::Empty));
        fs::create_dir(root.join("tmp")).unwrap();
        assert_eq!(at(&root), Ok(Place::Empty), "a first start that was interrupted");
        fs::write(root.join("photo.jpg"), "").unwrap();
        assert_eq!(at(&root), Ok(Place::Foreign));
        let id = Identity::create(&root, &root.join("temporary")).unwrap();
        assert_eq!(at(&root), Ok(Place::Origin(id)), "strangers' files beside do no harm");
        assert_eq!(at(&root.join("photo.jpg")), Ok(Place::Empty), "below a file");
        fs::write(root.join(NAME), "concertina-origin 1 7").unwrap();
        assert!(matches!(at(&root), Err(Error::Lost(_))));
        fs::write(root.join(NAME), vec![b'x'; 1 << 20]).unwrap();
        assert!(matches!(at(&root), Err(Error::Lost(_))));
    }
}
