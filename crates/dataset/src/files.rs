//! Atomic writes of files.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Name prefix of the temporary files of [`write`].
pub(crate) const WRITING: &str = ".writing-";

/// Writes the file `name` of a folder atomically and durably: `fill` writes to a temporary file,
/// which is synced and renamed; then the folder is synced. After a crash at any moment either the
/// old or the new file exists.
///
/// Unless `replace` is set, an existing file is an error ([`io::ErrorKind::AlreadyExists`]) and
/// stays unchanged.
///
/// # Errors
///
/// Those of the file system and of `fill`; an existing file is then unchanged.
pub fn write(
    folder: &Path,
    name: &str,
    replace: bool,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut builder = tempfile::Builder::new();
    // The usual permissions: by default, only the owner can read a temporary file.
    builder.prefix(WRITING).permissions(std::fs::Permissions::from_mode(0o666));
    let temporary = builder.tempfile_in(folder)?;
    let mut writer = io::BufWriter::with_capacity(1 << 20, temporary);
    fill(&mut writer)?;
    let temporary = writer.into_inner().map_err(io::IntoInnerError::into_error)?;
    temporary.as_file().sync_all()?;
    let path = folder.join(name);
    if replace {
        temporary.persist(path)?;
    } else {
        temporary.persist_noclobber(path)?;
    }
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_whole_or_stays_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        write(path, "a", false, |w| w.write_all(b"first")).unwrap();
        let again = write(path, "a", false, |w| w.write_all(b"second")).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        let failed = write(path, "a", true, |w| {
            w.write_all(b"half")?;
            Err(io::Error::other("no more"))
        });
        assert!(failed.is_err());
        assert_eq!(std::fs::read(path.join("a")).unwrap(), b"first");
        write(path, "a", true, |w| w.write_all(b"third")).unwrap();
        assert_eq!(std::fs::read(path.join("a")).unwrap(), b"third");
        assert_eq!(std::fs::read_dir(path).unwrap().count(), 1, "nothing temporary is left");
    }
}
