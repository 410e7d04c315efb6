//! Whose folder it is: the file `.concertina` of each folder that this project makes.
//!
//! Nothing is removed, renamed or overwritten that this project did not make. So a folder is used only if it was empty when
//! it was claimed, or carries a marker of the right kind; and what is removed in it is named exactly, by the names that its
//! kind of folder gives to files ([`remove_own`]). There is no recursive removal: what strangers put into a marked
//! folder later stays, and the folder with it.
//!
//! The name begins with a dot because no dataset's name does: datasets are subfolders of a marked folder. The origin's own
//! marker is older and has a file of its own (`identity`).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use ground::origin::OriginId;
use serde::{Deserialize, Serialize};

/// The name of the file.
pub const NAME: &str = ".concertina";
/// Version of the file's format.
const FORMAT: u32 = 1;
/// A marker has some 250 bytes; a larger file is something else.
const BYTES_MAX: u64 = 4096;

/// What a folder is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FolderKind {
    /// The segments of a device.
    Device,
    /// Local copies of datasets, one subfolder for each.
    Copies,
    /// The copy of one version of a dataset, a subfolder of a subfolder of [`FolderKind::Copies`].
    Copy,
    /// A dataset, or one that is being made.
    Dataset,
    /// What a node without devices remembers.
    State,
    /// Objects that a load generator writes.
    Load,
}

impl FolderKind {
    fn noun(self) -> &'static str {
        match self {
            FolderKind::Device => "a device's segments",
            FolderKind::Copies => "copies of datasets",
            FolderKind::Copy => "a copy of a dataset",
            FolderKind::Dataset => "a dataset",
            FolderKind::State => "the state of a node",
            FolderKind::Load => "objects of a load generator",
        }
    }
}

/// The content of a marker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    pub(crate) format: u32,
    /// What the folder is for.
    pub kind: FolderKind,
    /// The folder's identity: 32 hexadecimal digits, drawn when it was claimed.
    pub id: String,
    /// The member of a cluster whose folder it is; `None` outside a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The origin of the objects that the folder's content belongs to, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<OriginId>,
}

/// Why a folder is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unclaimed {
    /// It holds what this project did not make.
    #[error(
        "{} holds {entry:?} and no {NAME}: Concertina did not make this folder, or the file was removed from it, and \
         nothing in it is changed; name an empty or a new folder for {}, or put the file back",
        .folder.display(), .kind.noun()
    )]
    NotEmpty {
        /// The folder.
        folder: PathBuf,
        /// One of its entries.
        entry: String,
        /// What it was to be used for.
        kind: FolderKind,
    },
    /// It is used for something else.
    #[error(
        "{} is a folder of Concertina for {}, not for {}; name another folder",
        .folder.display(), .found.noun(), .wanted.noun()
    )]
    OtherKind {
        /// The folder.
        folder: PathBuf,
        /// What it is for.
        found: FolderKind,
        /// What it was to be used for.
        wanted: FolderKind,
    },
    /// It is another node's.
    #[error(
        "{} belongs to the node {owner:?}{}; name another folder, or remove this one to begin with an empty one",
        .folder.display(), not_to(.me.as_deref())
    )]
    OtherNode {
        /// The folder.
        folder: PathBuf,
        /// The node.
        owner: String,
        /// This node; `None` outside a cluster.
        me: Option<String>,
    },
    /// Its marker cannot be understood.
    #[error(
        "the marker of {} is damaged ({reason}); if the folder is this node's, remove it with all its content, which is \
         copies only", .folder.display()
    )]
    Damaged {
        /// The folder.
        folder: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The system refuses.
    #[error("cannot {action} {}: {error}", .path.display())]
    Io {
        /// What failed.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

fn not_to(me: Option<&str>) -> String {
    match me {
        Some(me) => format!(", not to {me:?}"),
        None => ", and this node is in no cluster".to_owned(),
    }
}

/// A request to use a folder.
#[derive(Clone, Copy)]
pub struct Claim<'a> {
    /// What for.
    pub kind: FolderKind,
    /// The member of a cluster that uses it; `None` outside a cluster.
    pub owner: Option<&'a str>,
    /// Whether an entry is of a kind that earlier versions, which had no marker, made in such a folder. A folder with such
    /// entries alone is claimed as if it were empty.
    pub is_earlier: &'a dyn Fn(&Path) -> bool,
}

impl<'a> Claim<'a> {
    /// A claim of a folder that no version used without a marker.
    pub fn new(kind: FolderKind, owner: Option<&'a str>) -> Claim<'a> {
        Claim { kind, owner, is_earlier: &|_| false }
    }

    /// Looks whether the folder may be used, and changes nothing. Returns its marker, if it has one.
    ///
    /// # Errors
    ///
    /// [`Unclaimed`]. A folder that is missing may be used.
    pub fn inspect(&self, folder: &Path) -> Result<Option<Marker>, Unclaimed> {
        let Some(marker) = Marker::read(folder)? else {
            return match stranger(folder, self.is_earlier)? {
                None => Ok(None),
                Some(entry) => {
                    let folder = folder.to_owned();
                    Err(Unclaimed::NotEmpty { folder, entry, kind: self.kind })
                }
            };
        };
        if marker.kind != self.kind {
            let (found, wanted) = (marker.kind, self.kind);
            return Err(Unclaimed::OtherKind { folder: folder.to_owned(), found, wanted });
        }
        match (&marker.owner, self.owner) {
            (Some(owner), me) if Some(owner.as_str()) != me => Err(Unclaimed::OtherNode {
                folder: folder.to_owned(),
                owner: owner.clone(),
                me: me.map(str::to_owned),
            }),
            _ => Ok(Some(marker)),
        }
    }

    /// Takes a folder, which is made if it is missing.
    ///
    /// Two processes that claim the same new folder at once may both succeed: those that must not share it hold a lock on it.
    ///
    /// # Errors
    ///
    /// [`Unclaimed`]; nothing was changed then, except that the folder may have been made.
    pub fn take(&self, folder: &Path) -> Result<Marker, Unclaimed> {
        let found = self.inspect(folder)?;
        fs::create_dir_all(folder).map_err(|error| io_error("create", folder, error))?;
        let owner = self.owner.map(str::to_owned);
        match found {
            // The folder of a node that joins a cluster becomes the member's.
            Some(marker) if marker.owner == owner => Ok(marker),
            found => {
                let id = || format!("{:032x}", rand::random::<u128>());
                let (id, origin) = found.map_or_else(|| (id(), None), |it| (it.id, it.origin));
                let marker = Marker { format: FORMAT, kind: self.kind, id, owner, origin };
                marker.write(folder)?;
                Ok(marker)
            }
        }
    }
}

impl Marker {
    /// Reads the marker of a folder; `None` if it has none or the folder is missing.
    ///
    /// # Errors
    ///
    /// [`Unclaimed::Damaged`], or [`Unclaimed::Io`].
    pub fn read(folder: &Path) -> Result<Option<Marker>, Unclaimed> {
        let path = folder.join(NAME);
        // Nonblocking: opening a pipe would wait for a writer.
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error("read", &path, error)),
        };
        let damaged = |reason: String| Unclaimed::Damaged { folder: folder.to_owned(), reason };
        let is_file = file.metadata().is_ok_and(|found| found.is_file());
        if !is_file {
            return Err(damaged("it is not a file".to_owned()));
        }
        let mut text = String::new();
        file.take(BYTES_MAX)
            .read_to_string(&mut text)
            .map_err(|error| io_error("read", &path, error))?;
        let marker: Marker =
            toml::from_str(&text).map_err(|error| damaged(error.message().to_owned()))?;
        if marker.format != FORMAT {
            let format = marker.format;
            return Err(damaged(format!("its format is {format}, this version reads {FORMAT}")));
        }
        Ok(Some(marker))
    }

    /// Writes the marker, durably and as a whole.
    ///
    /// # Errors
    ///
    /// [`Unclaimed::Io`].
    pub fn write(&self, folder: &Path) -> Result<(), Unclaimed> {
        let path = folder.join(NAME);
        let fields = toml::to_string(self)
            .map_err(|error| io_error("write", &path, io::Error::other(error)))?;
        let text = format!(
            "# This folder belongs to Concertina, which removes and overwrites its own files in it.\n{fields}"
        );
        let temporary = folder.join(format!("{NAME}-{:016x}", rand::random::<u64>()));
        let write = || -> io::Result<()> {
            let mut file = File::create_new(&temporary)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, &path)?;
            File::open(folder)?.sync_all()
        };
        write().map_err(|error| {
            // Made above, under a name that was drawn.
            let _ = fs::remove_file(&temporary);
            io_error("write", &path, error)
        })
    }
}

fn io_error(action: &'static str, path: &Path, error: io::Error) -> Unclaimed {
    Unclaimed::Io { action, path: path.to_owned(), error }
}

/// An entry that neither this project nor the file system itself made; `None` if there is none or the folder is missing.
/// `is_known` tells of the project's other entries by their paths.
pub(crate) fn stranger(
    folder: &Path,
    is_known: &dyn Fn(&Path) -> bool,
) -> Result<Option<String>, Unclaimed> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_error("list", folder, error)),
    };
    for entry in entries {
        let entry = entry.map_err(|error| io_error("list", folder, error))?;
        let name = entry.file_name();
        // `lost+found` is made by mkfs, `lock` by a start that ended before it wrote its marker.
        let empty_lock = || name == "lock" && entry.metadata().is_ok_and(|it| it.len() == 0);
        let is_ours = || name.to_str().is_some_and(|name| name.starts_with(NAME));
        if name != "lost+found" && !empty_lock() && !is_ours() && !is_known(&entry.path()) {
            return Ok(Some(name.to_string_lossy().into_owned()));
        }
    }
    Ok(None)
}

/// Removes a folder of this project: the files that `is_own` names, its lock and its marker, then the folder itself. A folder
/// without a marker of this kind, other files, links and subfolders stay, and then so does the folder. Returns whether
/// nothing is left.
///
/// # Errors
///
/// Those of the file system, and a damaged marker.
pub fn remove_own(
    folder: &Path,
    kind: FolderKind,
    is_own: &dyn Fn(&str) -> bool,
) -> Result<bool, Unclaimed> {
    if Marker::read(folder)?.is_none_or(|marker| marker.kind != kind) {
        return Ok(false);
    }
    remove_files(folder, &|name| name == "lock" || is_own(name))?;
    // The marker last: what a crash leaves is still known as this project's.
    if stranger(folder, &|_| false)?.is_some() {
        return Ok(false);
    }
    remove_files(folder, &|name| name.starts_with(NAME))?;
    match fs::remove_dir(folder) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        // Something came in meanwhile.
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(false),
        Err(error) => Err(io_error("remove", folder, error)),
    }
}

/// Removes the regular files of a folder that `is_own` names. One that is already gone is not an error.
///
/// # Errors
///
/// Those of the file system.
pub fn remove_files(folder: &Path, is_own: &dyn Fn(&str) -> bool) -> Result<(), Unclaimed> {
    let entries = fs::read_dir(folder).map_err(|error| io_error("list", folder, error))?;
    for entry in entries {
        let entry = entry.map_err(|error| io_error("list", folder, error))?;
        let name = entry.file_name();
        let is_file = || entry.file_type().is_ok_and(|kind| kind.is_file());
        if !name.to_str().is_some_and(is_own) || !is_file() {
            continue;
        }
        match fs::remove_file(entry.path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(io_error("remove", &entry.path(), error));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
