//! Files that are written under another name and renamed when they are complete.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::error::Error;
use super::pool::Pool;

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

/// A [`Temporary`] that a thread of the pool removes if it is dropped: to remove a file of gigabytes takes a file system some 100 ms, in
/// which a serving thread would answer nobody.
pub(super) struct PooledTemporary {
    file: Option<Temporary>,
    pool: Pool,
}

impl PooledTemporary {
    /// Keeps a file.
    pub fn new(file: Temporary, pool: &Pool) -> PooledTemporary {
        PooledTemporary { file: Some(file), pool: pool.clone() }
    }

    /// The file, for a thread that may wait for the disk.
    pub fn take(mut self) -> Result<Temporary, Error> {
        self.file.take().ok_or_else(|| Error::Failed("there is no temporary file".to_owned()))
    }
}

impl Drop for PooledTemporary {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            self.pool.discard(file);
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    struct Waits(mpsc::Receiver<()>);

    impl Drop for Waits {
        fn drop(&mut self) {
            let _ = self.0.recv();
        }
    }

    #[test]
    fn a_file_is_removed_by_a_thread_of_the_pool() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1");
        let pool = Pool::start(1).unwrap();
        let (free, busy) = mpsc::channel::<()>();
        // The only thread waits.
        pool.discard(Waits(busy));
        drop(PooledTemporary::new(Temporary::create(path.clone()).unwrap(), &pool));
        assert!(path.exists());
        drop(free);
        while path.exists() {
            std::thread::yield_now();
        }
    }
}
