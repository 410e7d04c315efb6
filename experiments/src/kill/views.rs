//! What a single node sees of its disks: its own view of the origin, and its device.
//!
//! Each node has a link of its own to the one folder of the origin. To point it elsewhere is to that node what an
//! unmounted, an emptied or an exchanged file system is, and to nobody else.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bytes::Bytes;
use ground::Key;
use origin::{Folder, Origin as _, Sharing, SingleChunk};
use rand::RngExt as _;
use rand::rngs::Xoshiro256PlusPlus;

use super::body;
use super::fault::Fault;

/// The version that objects of the other origin have, which nobody writes here: a read of one is told from all others.
pub const FOREIGN_VERSION: u32 = 1 << 30;

/// The origin as one node sees it.
pub struct View {
    link: PathBuf,
    origin: PathBuf,
    empty: PathBuf,
    other: PathBuf,
}

impl View {
    /// A view of `origin` for the node `name`, below `folder`, where [`make_other`] has made another origin.
    ///
    /// # Errors
    /// If the link cannot be made.
    pub fn make(folder: &Path, name: &str, origin: &Path) -> anyhow::Result<View> {
        let view = View {
            link: folder.join(format!("view-{name}")),
            origin: origin.to_owned(),
            empty: folder.join(format!("empty-{name}")),
            other: other_of(folder),
        };
        view.point(Some(&view.origin))?;
        Ok(view)
    }

    /// What the node has as its origin's path.
    pub fn path(&self) -> &Path {
        &self.link
    }

    fn point(&self, target: Option<&Path>) -> anyhow::Result<()> {
        let next = self.link.with_extension("next");
        let what = || format!("cannot change {}", self.link.display());
        match target {
            // In one step: there is no moment at which the path is missing.
            Some(target) => symlink(target, &next).and_then(|()| fs::rename(&next, &self.link)),
            None => fs::remove_file(&self.link),
        }
        .with_context(what)
    }

    /// Shows the node something else.
    ///
    /// # Errors
    /// If it cannot be.
    pub fn change(&self, fault: Fault) -> anyhow::Result<()> {
        match fault {
            Fault::Emptied => {
                fs::create_dir_all(&self.empty)?;
                self.point(Some(&self.empty))
            }
            Fault::Replaced => self.point(Some(&self.other)),
            _ => self.point(None),
        }
    }

    /// Shows the node its origin again. What it made at the path meanwhile is moved aside, as whoever mounts a file
    /// system over it would hide it; returns how many files that are, with those in the empty folder.
    ///
    /// # Errors
    /// If it cannot be.
    pub fn restore(&self) -> anyhow::Result<usize> {
        let mut written = 0;
        let is_link = self.link.symlink_metadata().is_ok_and(|it| it.is_symlink());
        if !is_link && self.link.exists() {
            let aside = self.link.with_extension("made");
            let _ = fs::remove_dir_all(&aside);
            fs::rename(&self.link, &aside)?;
            written += files(&aside)?.len();
        }
        self.point(Some(&self.origin))?;
        if self.empty.exists() {
            written += files(&self.empty)?.len();
            fs::remove_dir_all(&self.empty)?;
        }
        Ok(written)
    }
}

fn other_of(folder: &Path) -> PathBuf {
    folder.join("other-origin")
}

/// Makes another origin, with other objects of the same keys.
///
/// # Errors
/// If it cannot be written.
pub fn make_other(folder: &Path, keys: u32) -> anyhow::Result<()> {
    let path = other_of(folder);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let other = Folder::open(&path, 1, Sharing::Cluster)?;
    let mut bytes = Vec::new();
    for key in 0..keys {
        body::write(key, FOREIGN_VERSION + key, &mut bytes);
        let name = Key::from(body::name(key).as_bytes());
        let mut whole = SingleChunk::new(Bytes::copy_from_slice(&bytes));
        runtime
            .block_on(async {
                let staged = other.stage(&name, Default::default(), &mut whole).await?;
                staged.commit(None).await
            })
            .map_err(|error| anyhow::anyhow!("cannot make another origin: {error}"))?;
    }
    Ok(())
}

/// The files of the other origin, to be compared later: nobody may write there. Locks hold nothing; to look whose a
/// folder is may take them.
///
/// # Errors
/// If they cannot be listed.
pub fn files_of_other(folder: &Path) -> anyhow::Result<BTreeMap<PathBuf, u64>> {
    let mut found = files(&other_of(folder))?;
    let is_lock = |name: &std::ffi::OsStr| name == "turns" || name == "owners" || name == "opening";
    found.retain(|path, _| !path.iter().any(is_lock));
    Ok(found)
}

/// The files below a folder and their lengths, without those that only hold a lock.
fn files(folder: &Path) -> anyhow::Result<BTreeMap<PathBuf, u64>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let (entry, path) = entry.map(|entry| (entry.file_type(), entry.path()))?;
            if entry?.is_dir() {
                folders.push(path);
            } else if path.file_name().is_some_and(|name| name != "lock") {
                let length = path.metadata().map_or(0, |it| it.len());
                found.insert(path, length);
            }
        }
    }
    Ok(found)
}

/// Removes everything from a device whose node is down.
///
/// # Errors
/// If it cannot.
pub fn wipe(device: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(device) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Share of the blocks of 4 KiB of a device in which a bit is flipped.
const FLIPPED: f64 = 0.05;
const BLOCK: u64 = 4096;

/// Flips bits all over a device whose node is down; returns how many.
///
/// # Errors
/// If its files cannot be changed.
pub fn flip(device: &Path, random: &mut Xoshiro256PlusPlus) -> anyhow::Result<usize> {
    let mut flipped = 0;
    for (path, length) in files(device).unwrap_or_default() {
        let file = fs::OpenOptions::new().read(true).write(true).open(&path)?;
        for block in 0..length.div_ceil(BLOCK) {
            if random.random::<f64>() >= FLIPPED {
                continue;
            }
            let most = BLOCK.min(length - block * BLOCK);
            let at = block * BLOCK + random.random_range(0..most);
            let mut byte = [0];
            file.read_exact_at(&mut byte, at)?;
            file.write_all_at(&[byte[0] ^ (1 << random.random_range(0..8))], at)?;
            flipped += 1;
        }
    }
    Ok(flipped)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn a_view_shows_one_node_something_else_and_what_it_wrote_there_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let origin = folder.path().join("origin");
        fs::create_dir(&origin).unwrap();
        fs::write(origin.join("a"), "right").unwrap();
        make_other(folder.path(), 3).unwrap();
        let others = files_of_other(folder.path()).unwrap();
        assert!(others.len() >= 3, "{others:?}");
        let view = View::make(folder.path(), "n0", &origin).unwrap();
        let seen = || fs::read_dir(view.path()).map(|all| all.count());
        assert_eq!(seen().unwrap(), 1);
        view.change(Fault::Unmounted).unwrap();
        assert!(seen().is_err());
        assert_eq!(view.restore().unwrap(), 0);
        view.change(Fault::Emptied).unwrap();
        assert_eq!(seen().unwrap(), 0);
        fs::write(view.path().join("identity"), "new").unwrap();
        assert_eq!(view.restore().unwrap(), 1);
        view.change(Fault::Replaced).unwrap();
        assert!(seen().unwrap() >= 1);
        assert_eq!(view.restore().unwrap(), 0);
        // A node that makes a folder where there is none.
        view.change(Fault::Unmounted).unwrap();
        fs::create_dir(view.path()).unwrap();
        fs::write(view.path().join("identity"), "new").unwrap();
        assert_eq!(view.restore().unwrap(), 1);
        assert_eq!(fs::read(view.path().join("a")).unwrap(), b"right");
        assert_eq!(files_of_other(folder.path()).unwrap(), others);
    }

    #[test]
    fn flips_change_bytes_and_no_lengths() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("segment");
        fs::write(&path, vec![7; 1 << 20]).unwrap();
        let flipped = flip(folder.path(), &mut Xoshiro256PlusPlus::seed_from_u64(1)).unwrap();
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 1 << 20);
        assert_eq!(bytes.iter().filter(|byte| **byte != 7).count(), flipped);
        assert!(flipped > 3, "{flipped}");
        wipe(folder.path()).unwrap();
        assert!(!path.exists());
        wipe(folder.path()).unwrap();
    }
}
