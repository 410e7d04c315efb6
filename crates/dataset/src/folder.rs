//! The folder of a dataset: the names of what belongs in it, and how a new one is made beside its place.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use origin::Lock;
use origin::marker::{self, Claim, FolderKind};

use super::error::{Context as _, Error, Result, ensure};
use super::files;
use super::manifest::{self, is_shard_file};
use super::names::{chunk_file, is_name};
use super::parts::names::is_part_file;

/// Whether a name is that of a temporary file with this prefix: six letters and digits follow it.
pub(crate) fn is_temporary(name: &str, prefix: &str) -> bool {
    let drawn = name.strip_prefix(prefix).unwrap_or_default();
    drawn.len() == 6 && drawn.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// The number of a chunk of the log, from the name of its file.
pub(crate) fn chunk_of(name: &str) -> Option<u64> {
    let number = name.strip_suffix(".log")?.parse().ok()?;
    (chunk_file(number) == name).then_some(number)
}

/// Whether a name is that of a file of a dataset, its lock and its marker not counted.
fn is_of_dataset(name: &str) -> bool {
    name == manifest::FILE
        || is_shard_file(name)
        || chunk_of(name).is_some()
        || is_temporary(name, files::WRITING)
}

/// Whether a name is that of a file of a dataset, or of one that is being made of parts.
fn is_own(name: &str) -> bool {
    is_of_dataset(name) || is_part_file(name)
}

fn is_file(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
}

/// The claim of a dataset's folder. Those of earlier versions have no marker.
fn claim() -> Claim<'static> {
    let is_earlier: &dyn Fn(&Path) -> bool = &|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        is_of_dataset(name) && is_file(path)
    };
    Claim { is_earlier, ..Claim::new(FolderKind::Dataset, None) }
}

/// Checks that a folder, if it exists, is a dataset's and holds nothing else.
///
/// # Errors
///
/// If it is not, or holds what is not part of a dataset; the message names it.
fn require_own(folder: &Path) -> Result<()> {
    let shown = folder.display();
    match std::fs::symlink_metadata(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).context(|| format!("cannot use {shown}")),
        Ok(found) => ensure!(
            found.is_dir(),
            Foreign,
            "{shown} is not a folder, or a link to one; choose another name"
        ),
    }
    claim().inspect(folder)?;
    for entry in std::fs::read_dir(folder).context(|| format!("cannot list {shown}"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_known = name == "lock" || name.starts_with(marker::NAME) || is_own(&name);
        ensure!(
            is_known && entry.file_type()?.is_file(),
            Foreign,
            "{shown} holds {name:?}, which is not part of a dataset, and nothing in it is changed; move it elsewhere, or \
             choose another name"
        );
    }
    Ok(())
}

/// Removes a dataset's folder, and nothing that is not part of a dataset. Returns whether nothing is left.
fn remove(folder: &Path) -> Result<bool> {
    if !folder.exists() {
        return Ok(true);
    }
    claim().take(folder)?;
    Ok(marker::remove_own(folder, FolderKind::Dataset, &is_own)?)
}

/// Removes the dataset `name` of the folder `datasets`: it is gone at once, also if the removal of its files is interrupted.
///
/// # Errors
///
/// If there is no such dataset, if something writes to it, or if its folder holds what is not part of a dataset: then
/// nothing was changed. Those of the system.
pub fn drop_dataset(datasets: &Path, name: &str) -> Result<()> {
    let place = datasets.join(name);
    let is_there = is_name(name) && place.join(manifest::FILE).is_file();
    ensure!(is_there, Missing, "there is no dataset {name} in {}", datasets.display());
    let old = datasets.join(format!(".replaced-{name}"));
    require_own(&place)?;
    require_own(&old)?;
    let left =
        || format!("{} holds what is not part of a dataset; move it elsewhere", old.display());
    ensure!(remove(&old)?, Foreign, "{}", left());
    claim().take(&place)?;
    {
        // No writer may have it open.
        let _writer = Lock::take(&place)?;
        std::fs::rename(&place, &old)?;
    }
    File::open(datasets)?.sync_all()?;
    ensure!(remove(&old)?, Foreign, "the dataset was dropped, but {}", left());
    Ok(())
}

/// Removes those of a dataset's own files that `is_left` names.
pub(crate) fn remove_left(folder: &Path, is_left: &dyn Fn(&str) -> bool) -> Result<()> {
    Ok(marker::remove_files(folder, &|name| is_own(name) && is_left(name))?)
}

/// Removes a folder into which abandoned threads may still write. Retries because they may add
/// files; their writes fail once the folder is gone.
pub(crate) fn remove_unfinished(folder: &Path) {
    for _ in 0..10 {
        if remove(folder).is_ok_and(|is_gone| is_gone) {
            return;
        }
    }
}

/// A dataset that is being made, in a folder beside its place that nobody else writes to.
#[derive(Debug)]
pub struct Draft {
    folder: PathBuf,
    place: PathBuf,
    /// Where a dataset goes that is replaced; `None` if none may be.
    old: Option<PathBuf>,
    lock: Lock,
}

impl Draft {
    /// Begins the dataset `name` of the folder `datasets` in its subfolder `.VERB-NAME`, without what an interrupted predecessor left
    /// there. `replace` tells whether it may replace a dataset.
    ///
    /// # Errors
    ///
    /// If the subfolder holds what is not part of a dataset, or another process is filling it; if the dataset exists and holds
    /// such a thing. Nothing was changed then.
    pub fn begin(datasets: &Path, verb: &str, name: &str, replace: bool) -> Result<Draft> {
        let draft = Draft::open(datasets, verb, name, replace)?;
        draft.clear()?;
        Ok(draft)
    }

    /// The same, with the files that are there already.
    ///
    /// # Errors
    ///
    /// As [`begin`](Self::begin).
    pub fn open(datasets: &Path, verb: &str, name: &str, replace: bool) -> Result<Draft> {
        std::fs::create_dir_all(datasets)
            .context(|| format!("cannot create {}", datasets.display()))?;
        let folder = Draft::folder_of(datasets, verb, name);
        let place = datasets.join(name);
        let old = replace.then(|| datasets.join(format!(".replaced-{name}")));
        // Known before the work begins, and not after hours of it.
        require_own(&folder)?;
        if let Some(old) = &old {
            require_own(&place)?;
            require_own(old)?;
        }
        claim().take(&folder)?;
        let lock = Lock::take(&folder)?;
        Ok(Draft { folder, place, old, lock })
    }

    /// The subfolder.
    pub(crate) fn folder_of(datasets: &Path, verb: &str, name: &str) -> PathBuf {
        datasets.join(format!(".{verb}-{name}"))
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// Removes the files of an earlier attempt.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn clear(&self) -> Result<()> {
        self.clear_of(&is_own)
    }

    /// Removes those of the draft's own files that `is_left` names.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub(crate) fn clear_of(&self, is_left: &dyn Fn(&str) -> bool) -> Result<()> {
        remove_left(&self.folder, is_left)
    }

    /// Removes the folder, unless something was put there that is not part of a dataset.
    pub fn discard(self) {
        remove_unfinished(&self.folder);
    }

    /// Puts the dataset in its place, durably, removes the one that it replaces, and returns the place.
    ///
    /// # Errors
    ///
    /// Those of the system; or if what is in its place is being written to, or holds what is not part of a dataset.
    pub fn publish(self) -> Result<PathBuf> {
        let Draft { folder, place, old, lock } = self;
        let left = |old: &Path| {
            format!("{} holds what is not part of a dataset; move it elsewhere", old.display())
        };
        if let Some(old) = old.as_ref().filter(|_| place.exists()) {
            ensure!(remove(old)?, Foreign, "{}", left(old));
            // Again: something may have come in during the work. It is marked, so that it can be removed below.
            require_own(&place)?;
            claim().take(&place)?;
            // No writer may have the replaced dataset open.
            let _writer = Lock::take(&place)?;
            if exchange(&folder, &place)? {
                std::fs::rename(&folder, old)?;
            } else {
                std::fs::rename(&place, old)?;
                std::fs::rename(&folder, &place)?;
            }
        } else {
            // A folder that is not empty is not replaced by it.
            std::fs::rename(&folder, &place)
                .context(|| format!("cannot create {}", place.display()))?;
        }
        let datasets =
            place.parent().ok_or_else(|| Error::inconsistent("a dataset is in a folder"))?;
        File::open(datasets)?.sync_all()?;
        drop(lock);
        if let Some(old) = &old {
            ensure!(remove(old)?, Foreign, "the dataset was replaced, but {}", left(old));
        }
        Ok(place)
    }
}

/// Exchanges a new dataset's folder and the place of the one that it replaces: at no moment, and after no crash, is there none.
/// `false` where the file system cannot do that: it takes two renames there, with neither in place between them.
fn exchange(folder: &Path, place: &Path) -> io::Result<bool> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;
    match renameat_with(CWD, folder, CWD, place, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(true),
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests;
