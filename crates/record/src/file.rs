//! Reads files that are read whole: models, run folders, tables, descriptions of clusters.
//!
//! The name of such a file comes from a command line or from another file, so it may name anything.
//! A named pipe would block until somebody writes to it, `/dev/zero` would be read until memory is
//! full, and so would a file that is far larger than any of its kind. All three are errors here.
//! Streams (traces, access logs, standard input) are not read by this module.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// The largest file that somebody writes or a command makes in one piece: models, tables, TOML.
pub const TEXT_BYTES_MAX: u64 = 64 << 20;

/// The largest file of a run folder: about a million windows.
pub const RUN_BYTES_MAX: u64 = 8 << 30;

/// Opens a regular file for reading. Does not block on a named pipe.
///
/// # Errors
/// If the file cannot be opened or is of another type; the message says which, and what to do. It
/// does not name the file: callers do, with the purpose of the file.
pub fn open(path: &Path) -> io::Result<File> {
    // Nonblocking: opening a pipe would wait for a writer. It does not change regular files.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    let is = if kind.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder"));
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_char_device() || kind.is_block_device() {
        "a device"
    } else {
        "neither a file nor a folder"
    };
    let what = format!("it is {is}, not a regular file; write the content to a file and name that");
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}

/// Reads a regular file of at most `bytes_max` bytes.
///
/// # Errors
/// As [`open`], and if the file is larger or cannot be read.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let too_large = || {
        let what = format!(
            "it is larger than {bytes_max} bytes, the most that is read of such a file; is it the right one?"
        );
        io::Error::new(io::ErrorKind::FileTooLarge, what)
    };
    let size = file.metadata()?.len();
    if size > bytes_max {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    // The file may grow meanwhile, and files of /proc state a length of 0.
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max { Err(too_large()) } else { Ok(bytes) }
}

/// Reads a regular UTF-8 file of at most [`TEXT_BYTES_MAX`] bytes.
///
/// # Errors
/// As [`read`], and if the file is not UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    let text = String::from_utf8(read(path, TEXT_BYTES_MAX)?);
    text.map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        let what = format!("it is not text: byte {at} is not UTF-8; is it the right file?");
        io::Error::new(io::ErrorKind::InvalidData, what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_regular_file_of_a_sensible_size_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        rustix::fs::mknodat(
            rustix::fs::CWD,
            path("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        std::fs::write(path("bytes"), b"ab\xff").unwrap();
        std::fs::write(path("text"), "text").unwrap();
        // A sparse file: it takes no room on the disk.
        File::create(path("huge")).unwrap().set_len(TEXT_BYTES_MAX + 1).unwrap();
        for (name, words) in [
            (path("pipe"), "it is a pipe"),
            (path("huge"), "it is larger than 67108864 bytes"),
            (path("bytes"), "byte 2 is not UTF-8"),
            (path("."), "it is a folder"),
            (path("none"), "No such file"),
            ("/dev/zero".into(), "it is a device"),
        ] {
            let error = read_text(&name).unwrap_err().to_string();
            assert!(error.contains(words), "{}: {error}", name.display());
        }
        assert_eq!(read_text(&path("text")).unwrap(), "text");
        assert_eq!(read(&path("text"), 4).unwrap(), b"text");
        assert!(read(&path("text"), 3).is_err());
        // Its length is 0 until it is read.
        assert!(read_text(Path::new("/proc/self/status")).unwrap().contains("Name:"));
    }
}
