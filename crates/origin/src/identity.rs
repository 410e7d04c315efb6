//! Which folder an origin is: a file `identity` in it, with a number drawn when the folder was first used.
//!
//! A file that is missing means "no such object" only in the folder that was opened. A folder that was
//! moved away, a file system that is not mounted, or another folder at the same path has no such file or
//! another number, and every request then fails with [`Error::Lost`] instead. The check costs one `stat`:
//! the file is read again only when it is another one (device, inode or change time).

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, bail};

use super::Error;

/// The name of the file.
const NAME: &str = "identity";
/// What precedes the number.
const START: &str = "concertina-origin 1 ";

/// Device, inode and change time of the file.
type Stamp = (u64, u64, i64, i64);

/// The identity of a folder that was opened.
#[derive(Debug)]
pub(super) struct Identity {
    path: PathBuf,
    text: String,
    seen: Mutex<Stamp>,
}

fn stamp_of(path: &Path) -> io::Result<Stamp> {
    let stat = fs::metadata(path)?;
    Ok((stat.dev(), stat.ino(), stat.ctime(), stat.ctime_nsec()))
}

impl Identity {
    /// Reads the identity of a folder, or draws one for a folder that has none. The caller holds the lock
    /// that keeps other openers out; `temporary` is a path in `tmp/` that nobody else uses.
    pub(super) fn open(root: &Path, temporary: &Path) -> anyhow::Result<Identity> {
        let path = root.join(NAME);
        let shown = path.display();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let text = format!("{START}{:032x}\n", rand::random::<u128>());
                let write = || -> io::Result<()> {
                    let mut file = fs::File::create_new(temporary)?;
                    file.write_all(text.as_bytes())?;
                    file.sync_all()?;
                    fs::rename(temporary, &path)
                };
                write().with_context(|| format!("cannot make {shown}"))?;
                text
            }
            Err(error) => return Err(error).with_context(|| format!("cannot read {shown}")),
        };
        let number = text.strip_prefix(START).map(str::trim_end).unwrap_or_default();
        if number.len() != 32 || !number.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            bail!(
                "{shown} is not an origin's identity; put the right file back, or remove it if this \
                 folder is the right one"
            );
        }
        let seen = stamp_of(&path).with_context(|| format!("cannot read {shown}"))?;
        Ok(Identity { path, text, seen: Mutex::new(seen) })
    }

    /// [`Error::Lost`] unless the folder at the path is still the one that was opened. One `stat`.
    pub(super) fn check(&self) -> Result<(), Error> {
        let stamp = stamp_of(&self.path).map_err(|error| self.missing(&error))?;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == stamp {
            return Ok(());
        }
        let text = fs::read_to_string(&self.path).map_err(|error| self.missing(&error))?;
        if text != self.text {
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
        missing(error, &self.path)
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
        let open = |root: &Path| {
            fs::create_dir_all(root).unwrap();
            Identity::open(root, &root.join("temporary")).unwrap()
        };
        let identity = open(&one);
        check(&identity, None);
        assert_eq!(open(&one).text, identity.text);
        assert_ne!(open(&other).text, identity.text);
        fs::rename(&one, &away).unwrap();
        check(&identity, Some("is missing"));
        fs::create_dir(&one).unwrap();
        check(&identity, Some("is missing"));
        fs::remove_dir(&one).unwrap();
        fs::rename(&other, &one).unwrap();
        check(&identity, Some("another identity"));
        fs::rename(&one, &other).unwrap();
        fs::create_dir(&one).unwrap();
        fs::copy(away.join(NAME), one.join(NAME)).unwrap();
        check(&identity, None);
        fs::write(one.join(NAME), "").unwrap();
        assert!(Identity::open(&one, &one.join("temporary")).is_err());
    }
}
