//! Opens and reads every file whose name an operator gives: configurations, certificates, keys, models, run folders, tables.
//!
//! The name of such a file comes from a command line or from another file, so it may name anything.
//! A named pipe would block until somebody writes to it, `/dev/zero` would be read until memory is
//! full, and so would a file that is far larger than any of its kind. All three are errors here.
//! Inputs that are documented as streams (lines to import, access logs) may be pipes: [`open_stream`] opens them, and refuses
//! the rest.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// The largest file that somebody writes or a command makes in one piece: models, tables, TOML.
pub const TEXT_BYTES_MAX: u64 = 64 << 20;

/// The largest configuration: some tens of thousands of members.
pub const CONFIG_BYTES_MAX: u64 = 4 << 20;

/// The largest file of certificates or keys in PEM format. That of all public authorities has a quarter of a megabyte.
pub const PEM_BYTES_MAX: u64 = 4 << 20;

/// The largest file of a run folder: about a million windows.
pub const RUN_BYTES_MAX: u64 = 8 << 30;

/// Opens a regular file for reading. Does not block on a named pipe.
///
/// # Errors
/// If the file cannot be opened or is of another type; the message says which, and what to do. It
/// does not name the file: callers do, with the purpose of the file.
pub fn open(path: &Path) -> io::Result<File> {
    open_if(path, false)
}

/// Opens a regular file or a pipe for reading as a stream. Waits for somebody who writes to the pipe.
///
/// # Errors
/// As [`open`], but for pipes.
pub fn open_stream(path: &Path) -> io::Result<File> {
    // Not by [`open`]: a pipe that is opened without waiting ends at once if nobody writes to it yet.
    let is_pipe = std::fs::metadata(path)?.file_type().is_fifo();
    if is_pipe { File::open(path) } else { open_if(path, true) }
}

fn open_if(path: &Path, is_stream: bool) -> io::Result<File> {
    // Nonblocking: opening a pipe would wait for a writer. It does not change regular files.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() || is_stream && kind.is_fifo() {
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
    read_opened(&open(path)?, bytes_max)
}

/// As [`read`], of a file of secrets: also if its mode has one of the bits `refused`, which others than its owner have.
///
/// # Errors
/// As [`read`]; of the kind `PermissionDenied` if the mode is refused.
pub fn read_private(path: &Path, bytes_max: u64, refused: u32) -> io::Result<Vec<u8>> {
    // Type and mode are those of the file that is read: another may have its name by then.
    let file = open(path)?;
    let mode = file.metadata()?.permissions().mode() & 0o777;
    if mode & refused != 0 {
        let what =
            format!("others than its owner may read or write it (mode {mode:03o}); chmod 600 it");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    read_opened(&file, bytes_max)
}

fn read_opened(file: &File, bytes_max: u64) -> io::Result<Vec<u8>> {
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
    read_text_of(path, TEXT_BYTES_MAX)
}

/// Reads a regular UTF-8 file of at most `bytes_max` bytes.
///
/// # Errors
/// As [`read`], and if the file is not UTF-8.
pub fn read_text_of(path: &Path, bytes_max: u64) -> io::Result<String> {
    let text = String::from_utf8(read(path, bytes_max)?);
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
        for (name, opens) in [("text", true), (".", false), ("none", false)] {
            assert_eq!(open_stream(&path(name)).is_ok(), opens, "{name}");
        }
        assert!(open_stream(Path::new("/dev/zero")).is_err());
        let writer = std::thread::spawn({
            let pipe = path("pipe");
            move || std::fs::write(pipe, "through").unwrap()
        });
        let mut text = String::new();
        open_stream(&path("pipe")).unwrap().read_to_string(&mut text).unwrap();
        writer.join().unwrap();
        assert_eq!(text, "through");
        // Of a file of secrets, its type is told before its mode.
        let set =
            |mode| std::fs::set_permissions(path("text"), std::fs::Permissions::from_mode(mode));
        set(0o640).unwrap();
        let refused = read_private(&path("text"), 4, 0o077).unwrap_err().to_string();
        assert!(refused.contains("(mode 640); chmod 600 it"), "{refused}");
        assert_eq!(read_private(&path("text"), 4, 0o027).unwrap(), b"text");
        let zero = read_private(Path::new("/dev/zero"), 4, 0o077).unwrap_err().to_string();
        assert!(zero.contains("it is a device"), "{zero}");
        // Its length is 0 until it is read.
        assert!(read_text(Path::new("/proc/self/status")).unwrap().contains("Name:"));
    }
}
