//! The folder of a survey of a file system.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use origin::marker::{self, Claim, FolderKind};

/// Room that is left to others, beside the objects: directories, journals, and the run folders.
const ROOM: u64 = 16 << 20;
/// How often removing is tried, a tenth of a second apart: a write may be going on.
const TRIES: u32 = 50;

/// Whether a file is an object of a survey (`s4096-17` with its `-` escaped) or a probe of its folder.
fn is_own(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let object = name.strip_prefix('s').and_then(|rest| rest.split_once("%2D"));
    object.is_some_and(|(size, number)| is_number(size) && is_number(number))
        || name.starts_with(".probe-")
}

/// A new folder for the objects of a survey, removed with them in the end.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes a folder in `parent`, whose file system needs room for `bytes`.
    ///
    /// # Errors
    /// If `parent` is missing or read-only, or has less room.
    pub fn create(parent: &Path, bytes: u64) -> anyhow::Result<Folder> {
        let stat = rustix::fs::statvfs(parent);
        let stat = stat.with_context(|| format!("cannot use the folder {}", parent.display()))?;
        let room = stat.f_bavail.saturating_mul(stat.f_frsize);
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        ensure!(
            bytes.saturating_add(ROOM) <= room,
            "{}: {} MiB are free, but the objects take {} MiB and {} MiB must be left: give fewer or smaller --sizes, \
             or another folder",
            parent.display(),
            room >> 20,
            mib(bytes),
            mib(ROOM)
        );
        let path = parent.join(format!("concertina-capacity-{}", std::process::id()));
        // Not one that is there: it may be another's.
        std::fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Claim::new(FolderKind::Load, None).take(&path)?;
        Ok(Folder(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        for _ in 0..TRIES {
            match marker::remove_own(&self.0, FolderKind::Load, &is_own) {
                Ok(true) => return,
                _ if !self.0.exists() => return,
                _ => std::thread::sleep(Duration::from_millis(100)),
            }
        }
        tracing::warn!("{} could not be removed, or holds other files", self.0.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_with_its_files_and_needs_room() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::create(dir.path(), 1).unwrap();
        std::fs::write(folder.path().join("s4096%2D17"), "y").unwrap();
        drop(folder);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let error = Folder::create(dir.path(), 1 << 60).unwrap_err().to_string();
        assert!(error.contains("MiB are free"), "{error}");
        let error = Folder::create(&dir.path().join("none"), 1).unwrap_err().to_string();
        assert!(error.contains("cannot use the folder"), "{error}");
    }

    #[test]
    fn what_others_put_into_the_folder_stays() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::create(dir.path(), 1).unwrap();
        let path = folder.path().to_owned();
        for file in ["s1%2D1", "s1-1", "s%2D1", "a.jpg"] {
            std::fs::write(path.join(file), "y").unwrap();
        }
        drop(folder);
        let left = |file: &str| path.join(file).exists();
        assert!(!left("s1%2D1") && left("s1-1") && left("s%2D1") && left("a.jpg"));
        let error = Folder::create(dir.path(), 1).unwrap_err().to_string();
        assert!(error.contains("cannot make"), "{error}");
    }
}
