//! The folder of a survey of a file system.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};

/// Room that is left to others, beside the objects: directories, journals, and the run folders.
const ROOM: u64 = 16 << 20;
/// How often removing is tried, a tenth of a second apart: a write may be going on.
const TRIES: u32 = 50;

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
        std::fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
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
            match std::fs::remove_dir_all(&self.0) {
                Ok(()) => return,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
        tracing::warn!("{} could not be removed", self.0.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_with_its_files_and_needs_room() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::create(dir.path(), 1).unwrap();
        std::fs::write(folder.path().join("x"), "y").unwrap();
        drop(folder);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let error = Folder::create(dir.path(), 1 << 60).unwrap_err().to_string();
        assert!(error.contains("MiB are free"), "{error}");
        let error = Folder::create(&dir.path().join("none"), 1).unwrap_err().to_string();
        assert!(error.contains("cannot use the folder"), "{error}");
    }
}
