//! Files that are written under another name and renamed when they are complete.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::error::Error;

/// A file in `tmp/` that is removed on drop unless it was renamed.
pub(crate) struct Temporary {
    file: File,
    path: PathBuf,
    renamed: bool,
}

impl Temporary {
    /// Creates it.
    pub fn create(path: PathBuf) -> Result<Temporary, Error> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(|e| Error::of_io(&e, &format!("create {}", path.display())))?;
        Ok(Temporary { file, path, renamed: false })
    }

    /// Appends.
    pub fn write(&mut self, pieces: &[&[u8]]) -> Result<(), Error> {
        for piece in pieces {
            let written = self.file.write_all(piece);
            written.map_err(|e| Error::of_io(&e, &format!("write {}", self.path.display())))?;
        }
        Ok(())
    }

    /// Makes it durable.
    pub fn sync(&self) -> Result<(), Error> {
        let synced = self.file.sync_all();
        synced.map_err(|e| Error::of_io(&e, &format!("sync {}", self.path.display())))
    }

    /// Gives it its name.
    pub fn rename(&mut self, to: &Path) -> Result<(), Error> {
        fs::rename(&self.path, to)
            .map_err(|e| Error::of_io(&e, &format!("rename to {}", to.display())))?;
        self.renamed = true;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.renamed {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Makes a change of names in a file's folder durable.
pub(crate) fn sync_parent(path: &Path) -> Result<(), Error> {
    let parent = path.parent().unwrap_or(Path::new("."));
    File::open(parent)
        .and_then(|folder| folder.sync_all())
        .map_err(|e| Error::of_io(&e, &format!("sync {}", parent.display())))
}
