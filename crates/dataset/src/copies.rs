//! The folder in which a node keeps copies of shards (`datasets.path`), and what is removed in it.
//!
//! A client chooses the names of datasets, and so the names of folders here. Therefore a name never decides what is removed: the
//! folder of copies, the folder `NAME/ID` of each copy and the folder of each seal carry a marker ([`origin::marker`]), and
//! in a marked folder only files with the exact names that this module gives are removed.

use std::io;
use std::path::{Path, PathBuf};

use origin::Lock;
use origin::marker::{self, Claim, FolderKind, Marker, Unclaimed};
use tracing::warn;

use super::error::{Context as _, Result, ensure};
use super::folder::is_temporary;
use super::manifest::{is_id, is_shard_file};
use super::names::is_name;

/// Name prefix of the folders of seals, inside the folder of copies.
const SEALING: &str = ".sealing-";
/// Name prefix of a copy that is being fetched.
pub(crate) const FETCHING: &str = ".fetching-";

/// The folder of all copies of a node, locked for this process.
#[derive(Debug)]
pub struct Copies {
    folder: PathBuf,
    _lock: Lock,
}

impl Copies {
    /// Claims a folder for the node `owner` (`None` outside a cluster), locks it, and removes what seals left that a crash
    /// interrupted. A folder of an earlier version, which had no markers, is adopted if it holds nothing but copies and
    /// seals.
    ///
    /// # Errors
    ///
    /// If the folder holds anything else, belongs to another node, or is used by another process. Nothing in it was changed then,
    /// except that the file `lock` may be new.
    pub fn open(folder: &Path, owner: Option<&str>) -> Result<Copies> {
        let claim = Claim { is_earlier: &is_earlier, ..Claim::new(FolderKind::Copies, owner) };
        let found = claim.inspect(folder)?;
        std::fs::create_dir_all(folder)
            .context(|| format!("cannot create {}", folder.display()))?;
        // Two processes would remove each other's copies: each removes the versions that it does not use.
        let lock = Lock::take(folder)?;
        if found.is_none() {
            // The folder's own marker comes last: after a crash here it is still adopted.
            for copy in earlier_folders(folder)? {
                claim_of_copy().take(&copy)?;
            }
        }
        claim.take(folder)?;
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let is_seal = is_seal_folder(&entry.file_name().to_string_lossy());
            if is_seal && !marker::remove_own(&entry.path(), FolderKind::Copy, &is_own)? {
                let shown = entry.path();
                warn!("{} holds files that no seal wrote; it stays", shown.display());
            }
        }
        Ok(Copies { folder: folder.to_owned(), _lock: lock })
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.folder
    }
}

/// The files of a copy, and of a seal: shards and temporary files.
fn is_own(name: &str) -> bool {
    is_shard_file(name) || is_temporary(name, FETCHING) || is_temporary(name, super::files::WRITING)
}

fn is_seal_folder(name: &str) -> bool {
    // Of 16 digits since folders have markers, before of six letters and digits.
    let drawn = name.strip_prefix(SEALING).unwrap_or_default();
    matches!(drawn.len(), 6 | 16) && drawn.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn claim_of_copy() -> Claim<'static> {
    let is_earlier: &dyn Fn(&Path) -> bool = &|path| is_file(path) && is_own(name_of(path));
    Claim { is_earlier, ..Claim::new(FolderKind::Copy, None) }
}

fn name_of(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// A regular file, and not a link to one.
fn is_file(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
}

/// A folder, and not a link to one.
fn is_folder(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}

/// The paths in a folder.
fn paths_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
}

/// Whether an entry of the folder of copies is one that earlier versions made: a seal's folder, or a dataset's with
/// copies alone.
fn is_earlier(path: &Path) -> bool {
    let holds_copy = |path: &Path| is_folder(path) && claim_of_copy().inspect(path).is_ok();
    if is_seal_folder(name_of(path)) {
        return holds_copy(path);
    }
    let is_copy = |path: &PathBuf| is_id(name_of(path)) && holds_copy(path);
    is_name(name_of(path))
        && is_folder(path)
        && paths_in(path).is_ok_and(|copies| copies.iter().all(is_copy))
}

/// The folders of copies and seals in a folder of which each entry [`is_earlier`].
fn earlier_folders(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for path in paths_in(folder)? {
        match name_of(&path) {
            name if is_seal_folder(name) => folders.push(path),
            name if is_name(name) && is_folder(&path) => folders.extend(paths_in(&path)?),
            _ => {}
        }
    }
    Ok(folders)
}

/// The folder of the copy of one version of a dataset.
#[derive(Debug)]
pub struct CopyFolder(PathBuf);

impl CopyFolder {
    /// Makes the folder for a version of a dataset, and removes the copies of the dataset's other versions.
    ///
    /// # Errors
    ///
    /// Those of the system; or if a folder of this name exists that this project did not make.
    pub fn create(copies: &Path, name: &str, id: &str) -> Result<CopyFolder> {
        ensure!(is_name(name), Invalid, "invalid dataset name {name:?}");
        ensure!(is_id(id), Invalid, "invalid id {id:?} of the dataset {name}");
        let of_name = copies.join(name);
        let folder = of_name.join(id);
        Claim::new(FolderKind::Copy, None).take(&folder)?;
        for path in paths_in(&of_name)? {
            if path != folder && is_id(name_of(&path)) && is_folder(&path) {
                // Mapped files stay readable until they are unmapped. What strangers put there stays, without a word:
                // this is done at each change of the dataset.
                marker::remove_own(&path, FolderKind::Copy, &is_own)?;
            }
        }
        // Left by fetches that a crash interrupted.
        marker::remove_files(&folder, &|name| is_temporary(name, FETCHING))?;
        Ok(CopyFolder(folder))
    }

    /// The folder of a version of a dataset; `None` if there is none, or one that this project did not make.
    pub fn find(copies: &Path, name: &str, id: &str) -> Option<CopyFolder> {
        let folder = copies.join(name).join(id);
        let marker = Marker::read(&folder).ok().flatten()?;
        (marker.kind == FolderKind::Copy).then_some(CopyFolder(folder))
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Removes a shard's file. Returns whether it was there.
    ///
    /// # Errors
    ///
    /// Those of the system. Nothing is removed that is not a regular file with a shard's name.
    pub fn remove(&self, file: &str) -> io::Result<bool> {
        let path = self.0.join(file);
        if !is_shard_file(file) || !is_file(&path) {
            return Ok(false);
        }
        // Mapped files stay readable until they are unmapped.
        std::fs::remove_file(path).map(|()| true)
    }
}

/// The folder in which a seal builds its shard, removed on drop. Of its own: leftovers of an unfinished seal cannot
/// interfere.
#[derive(Debug)]
pub struct SealFolder(PathBuf);

impl SealFolder {
    /// Makes a folder with a name of its own.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn create(copies: &Path) -> Result<SealFolder> {
        let folder = copies.join(format!("{SEALING}{:016x}", rand::random::<u64>()));
        Claim::new(FolderKind::Copy, None).take(&folder)?;
        Ok(SealFolder(folder))
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for SealFolder {
    fn drop(&mut self) {
        let removed: Result<bool, Unclaimed> =
            marker::remove_own(&self.0, FolderKind::Copy, &is_own);
        if let Err(error) = removed {
            warn!("{error}; the next start removes it");
        }
    }
}

#[cfg(test)]
mod tests;
