//! Files as a service: the objects are files of a folder, or parts of a block device or of one large file.
//!
//! Each connection is a socket pair with a thread at its other end, which reads and writes files. The event loop of the
//! generator so measures files as it does services. Objects do not cross the socket: a request is its operation,
//! size and key, a reply its status and the number of bytes.
//!
//! Files bypass the page cache (`O_DIRECT`), in whole blocks of 4096 bytes. Where the file system does not have that, as
//! some in memory, reads may come from memory, and each write ends with `fdatasync`. Every request opens its file, as
//! a store of objects does. Each key of a device is a part of it, by its hash; keys may share parts.
//!
//! Limitations: one thread for each connection, so at most some hundreds of requests at once.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ground::window::{Operation, key_hash};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use rustix::fs::OFlags;

use super::body::Body;
use super::reply::{NO_REPLY, Reply, ReplyError};

/// The unit of transfers.
const BLOCK: usize = 4096;
/// The most bytes read or written by one system call.
const PIECE: usize = 1 << 20;
/// Bytes of a request before its key, and of a reply before its text.
const REQUEST: usize = 11;
const REPLY: usize = 12;
/// The most bytes of a key and of a text.
const TEXT_MAX: usize = 1024;

/// A folder, a block device or a file.
pub(crate) struct Files {
    path: PathBuf,
    place: Place,
    /// Whether transfers bypass the page cache.
    direct: bool,
    verify: bool,
}

enum Place {
    /// A folder, and whether files in it may be written and removed.
    Folder { writes: bool },
    /// A device or file of this many bytes, and whether it may be overwritten.
    Whole { bytes: u64, writes: bool },
}

impl std::fmt::Display for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "file://{}", self.path.display())
    }
}

impl Files {
    /// Checks a path. What is at a device or file is overwritten only with `destroy`, and nothing is written or removed in a folder
    /// without it.
    pub fn open(path: &Path, destroy: bool, verify: bool) -> Result<Files, String> {
        let named = |what: &str, error: io::Error| format!("{what}: {error}");
        let metadata = path.metadata().map_err(|e| named("it cannot be opened", e))?;
        let kind = metadata.file_type();
        let mut files = Files {
            path: path.to_owned(),
            place: Place::Folder { writes: destroy },
            direct: true,
            verify,
        };
        if kind.is_dir() && !destroy {
            files.direct = files.reads_directly(path).map_err(|e| named("it cannot be read", e))?;
        } else if kind.is_dir() {
            files.direct = files.probe(path).map_err(|e| match e.kind() {
                io::ErrorKind::StorageFull => format!("its disk is full ({e}): free some room"),
                _ => named("no file can be written in it", e),
            })?;
        } else if kind.is_file() || kind.is_block_device() {
            if destroy && kind.is_block_device() {
                may_be_overwritten(path, &metadata)?;
            }
            let opened = files.open_file(path, destroy);
            files.direct = opened.is_ok();
            let mut opened = match opened {
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    files.open_file(path, destroy)
                }
                opened => opened,
            }
            .map_err(|e| named("it cannot be opened", e))?;
            let bytes = opened.seek(SeekFrom::End(0)).map_err(|e| named("its size", e))?;
            if bytes < BLOCK as u64 {
                return Err(format!("it has {bytes} bytes: at least {BLOCK} expected"));
            }
            files.place = Place::Whole { bytes, writes: destroy };
        } else {
            return Err("it is not a folder, block device or file".to_owned());
        }
        Ok(files)
    }

    /// How many bytes the device or file has; `None` of a folder.
    pub fn bytes(&self) -> Option<u64> {
        match self.place {
            Place::Folder { .. } => None,
            Place::Whole { bytes, .. } => Some(bytes / BLOCK as u64 * BLOCK as u64),
        }
    }

    /// Whether the files of a folder can be read without the page cache, by the first of them.
    fn reads_directly(&self, folder: &Path) -> io::Result<bool> {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                let opened = self.options().read(true).open(entry.path());
                return Ok(!opened.is_err_and(|error| error.kind() == io::ErrorKind::InvalidInput));
            }
        }
        Ok(true)
    }

    /// Whether a file of a folder can be written without the page cache. The file that is written is removed.
    fn probe(&self, folder: &Path) -> io::Result<bool> {
        let mut buffer = Buffer::new();
        let mut write = |direct: bool| -> io::Result<()> {
            let path = folder.join(format!(".probe-{:016x}", rand::random::<u64>()));
            let mut options = OpenOptions::new();
            options.write(true).create_new(true);
            if direct {
                options.custom_flags(OFlags::DIRECT.bits() as i32);
            }
            let opened = options.open(&path);
            // Where O_DIRECT is refused, some systems have made the file before.
            let is_ours =
                opened.as_ref().map_or_else(|e| e.kind() == io::ErrorKind::InvalidInput, |_| true);
            let written = opened.and_then(|file| file.write_all_at(buffer.room(BLOCK), 0));
            if is_ours {
                let _ = std::fs::remove_file(&path);
            }
            written
        };
        match write(true) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                write(false).map(|()| false)
            }
            tried => tried.map(|()| true),
        }
    }

    fn options(&self) -> OpenOptions {
        let mut options = OpenOptions::new();
        if self.direct {
            options.custom_flags(OFlags::DIRECT.bits() as i32);
        }
        options
    }

    fn open_file(&self, path: &Path, writes: bool) -> io::Result<File> {
        self.options().read(true).write(writes).open(path)
    }

    /// Whether transfers bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Appends a request.
    pub fn write_request(out: &mut Vec<u8>, operation: Operation, key: &[u8], size: u64) {
        let key = &key[..key.len().min(TEXT_MAX)];
        out.push(match operation {
            Operation::Put => b'p',
            Operation::Delete => b'd',
            Operation::Head => b'h',
            _ => b'g',
        });
        out.extend_from_slice(&size.to_le_bytes());
        out.extend_from_slice(&(key.len() as u16).to_le_bytes());
        out.extend_from_slice(key);
    }

    /// A connection: the generator's end. Its thread ends when this is closed.
    pub fn connect(self: &Arc<Files>) -> io::Result<OwnedFd> {
        let (own, other) = UnixStream::pair()?;
        own.set_nonblocking(true)?;
        let files = Arc::clone(self);
        let serve = move || {
            // An error is the end of the connection, at either end.
            let _ = files.serve(other);
        };
        std::thread::Builder::new().name("files".to_owned()).spawn(serve)?;
        Ok(own.into())
    }

    fn serve(&self, mut socket: UnixStream) -> io::Result<()> {
        let mut buffer = Buffer::new();
        loop {
            let mut head = [0; REQUEST];
            socket.read_exact(&mut head)?;
            let [operation, a, b, c, d, e, f, g, h, low, high] = head;
            let size = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
            let mut key = vec![0; usize::from(u16::from_le_bytes([low, high]))];
            socket.read_exact(&mut key)?;
            let done = match operation {
                b'p' => self.put(&key, size, &mut buffer).map(|()| 0),
                b'd' => self.delete(&key).map(|()| 0),
                b'h' => self.path_of(&key).metadata().map(|_| 0),
                _ => self.get(&key, size, &mut buffer),
            };
            let (status, bytes, text) = match done {
                Ok(bytes) => (200u16, bytes, String::new()),
                Err(error) => {
                    let status = match error.kind() {
                        io::ErrorKind::NotFound => 404,
                        io::ErrorKind::PermissionDenied => 403,
                        io::ErrorKind::StorageFull => 507,
                        _ => 500,
                    };
                    let what = if operation == b'p' { "a write failed" } else { "a read failed" };
                    (status, 0, format!("{what}: {error}"))
                }
            };
            let text = &text.as_bytes()[..text.len().min(TEXT_MAX)];
            let mut reply = Vec::with_capacity(REPLY + text.len());
            reply.extend_from_slice(&status.to_le_bytes());
            reply.extend_from_slice(&u64::to_le_bytes(bytes));
            reply.extend_from_slice(&(text.len() as u16).to_le_bytes());
            reply.extend_from_slice(text);
            socket.write_all(&reply)?;
        }
    }

    /// The file of a key.
    fn path_of(&self, key: &[u8]) -> PathBuf {
        match self.place {
            Place::Folder { .. } => {
                self.path.join(percent_encode(key, NON_ALPHANUMERIC).to_string())
            }
            Place::Whole { .. } => self.path.clone(),
        }
    }

    /// Where an object begins in its file, and how many bytes of it may be transferred.
    fn part(&self, key: &[u8], size: u64) -> io::Result<(u64, u64)> {
        let Some(whole) = self.bytes() else { return Ok((0, u64::MAX)) };
        let block = BLOCK as u64;
        let slot = size.div_ceil(block).max(1).saturating_mul(block);
        if slot > whole {
            let why = format!("an object of {size} bytes, but the device or file has {whole}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        // FNV-1a has its best bits at the top.
        Ok(((key_hash(key) >> 16) % (whole / slot) * slot, slot))
    }

    /// Reads an object and returns its bytes.
    fn get(&self, key: &[u8], size: u64, buffer: &mut Buffer) -> io::Result<u64> {
        let file = self.options().read(true).open(self.path_of(key))?;
        let (from, most) = self.part(key, size)?;
        let body = Body { key: key_hash(key), size };
        let mut read = 0u64;
        while read < most {
            let room = buffer.room((most - read).min(PIECE as u64) as usize);
            let count = match file.read_at(room, from + read) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                count => count?,
            };
            let own = (count as u64).min(size.saturating_sub(read)) as usize;
            if self.verify && !body.matches(read, &room[..own]) {
                return Err(io::Error::other("other bytes than were written"));
            }
            read += count as u64;
            if count < room.len() {
                break;
            }
        }
        let whole = matches!(self.place, Place::Whole { .. });
        Ok(if whole { read.min(size) } else { read })
    }

    /// Writes an object in whole blocks, and cuts its file to its length.
    fn put(&self, key: &[u8], size: u64, buffer: &mut Buffer) -> io::Result<()> {
        let (from, most) = self.part(key, size)?;
        if matches!(self.place, Place::Whole { writes: false, .. }) {
            let why = "the device or file is opened for reads only; --destroy overwrites it";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let create = matches!(self.place, Place::Folder { .. });
        if create {
            self.require_writes()?;
        }
        let mut options = self.options();
        if create {
            // A link that somebody put there would lead to another's file.
            let direct = if self.direct { OFlags::DIRECT } else { OFlags::empty() };
            options.custom_flags((direct | OFlags::NOFOLLOW).bits() as i32);
        }
        let file = options.write(true).create(create).open(self.path_of(key))?;
        let body = Body { key: key_hash(key), size };
        let (blocks, mut written) = (size.div_ceil(BLOCK as u64) * BLOCK as u64, 0);
        while written < blocks.min(most) {
            let room = buffer.room((blocks.min(most) - written).min(PIECE as u64) as usize);
            let own = (room.len() as u64).min(size - written) as usize;
            body.fill(written, &mut room[..own]);
            room[own..].fill(0);
            file.write_all_at(room, from + written)?;
            written += room.len() as u64;
        }
        if create && file.metadata()?.len() != size {
            file.set_len(size)?;
        }
        if self.direct { Ok(()) } else { file.sync_data() }
    }

    fn delete(&self, key: &[u8]) -> io::Result<()> {
        match self.place {
            Place::Folder { .. } => {
                self.require_writes()?;
                std::fs::remove_file(self.path_of(key))
            }
            Place::Whole { .. } => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn require_writes(&self) -> io::Result<()> {
        let Place::Folder { writes: false } = self.place else { return Ok(()) };
        let why = "the folder holds files that no load generator wrote, so it is only read; name an empty folder to write";
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
    }
}

/// Checks that a block device is not in use (mounted, or part of another device) and not read-only. The kernel gives
/// a device that is in use to nobody else exclusively.
fn may_be_overwritten(path: &Path, metadata: &std::fs::Metadata) -> Result<(), String> {
    let exclusive = OFlags::EXCL.bits() as i32;
    match OpenOptions::new().read(true).custom_flags(exclusive).open(path) {
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error()) => {
            return Err("it is in use (mounted, swap, or part of another device), so --destroy would damage what \
                uses it: unmount it first"
                .to_owned());
        }
        Err(error) => return Err(format!("it cannot be opened: {error}")),
        Ok(_) => {}
    }
    let number = metadata.rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let flag = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro"));
    if flag.is_ok_and(|flag| flag.trim() == "1") {
        return Err("it is read-only: measure reads, without --destroy".to_owned());
    }
    Ok(())
}

/// Memory that begins at a block's boundary.
struct Buffer(Vec<u8>);

impl Buffer {
    fn new() -> Buffer {
        Buffer(vec![0; PIECE + BLOCK])
    }

    /// The first bytes, at most [`PIECE`].
    fn room(&mut self, bytes: usize) -> &mut [u8] {
        let skip = self.0.as_ptr().align_offset(BLOCK).min(BLOCK);
        &mut self.0[skip..skip + bytes.min(PIECE)]
    }
}

/// The parser of replies.
pub(super) struct Answers {
    bytes: Vec<u8>,
    reply: Reply,
    text: Option<String>,
}

impl Default for Answers {
    fn default() -> Answers {
        Answers { bytes: Vec::new(), reply: NO_REPLY, text: None }
    }
}

impl Answers {
    pub fn start(&mut self) {
        *self = Answers::default();
    }

    pub fn untouched(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Takes bytes; whether the reply is complete.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<bool, ReplyError> {
        self.bytes.extend_from_slice(bytes);
        let Some((head, text)) = self.bytes.split_first_chunk::<REPLY>() else { return Ok(false) };
        let [s, t, a, b, c, d, e, f, g, h, low, high] = *head;
        let length = usize::from(u16::from_le_bytes([low, high]));
        if text.len() > length {
            return Err(ReplyError::Extra);
        }
        if text.len() < length {
            return Ok(false);
        }
        self.reply.status = u16::from_le_bytes([s, t]);
        self.reply.body_bytes = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        self.text = (length > 0).then(|| String::from_utf8_lossy(text).into_owned());
        Ok(true)
    }

    pub fn reply(&self) -> &Reply {
        &self.reply
    }

    pub fn error_text(&self) -> Option<&str> {
        self.text.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends a request and returns status, bytes and text.
    fn ask(files: &Arc<Files>, operation: Operation, key: &str, size: u64) -> (u16, u64, String) {
        let mut socket = UnixStream::from(files.connect().unwrap());
        socket.set_nonblocking(false).unwrap();
        let mut request = Vec::new();
        Files::write_request(&mut request, operation, key.as_bytes(), size);
        socket.write_all(&request).unwrap();
        let (mut answers, mut byte) = (Answers::default(), [0]);
        loop {
            socket.read_exact(&mut byte).unwrap();
            if answers.feed(&byte).unwrap() {
                let text = answers.error_text().unwrap_or_default().to_owned();
                return (answers.reply().status, answers.reply().body_bytes, text);
            }
        }
    }

    #[test]
    fn files_of_a_folder_are_written_read_and_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let files = Arc::new(Files::open(dir.path(), true, true).unwrap());
        for size in [0, 1, 4096, 5000, (2 << 20) + 7] {
            assert_eq!(ask(&files, Operation::Put, "a/../b", size).0, 200, "{size}");
            assert_eq!(ask(&files, Operation::Get, "a/../b", size), (200, size, String::new()));
        }
        let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "the key is one name, and no probe is left: {names:?}");
        assert_eq!(ask(&files, Operation::Head, "a/../b", 0).0, 200);
        assert_eq!(ask(&files, Operation::Delete, "a/../b", 0).0, 200);
        assert_eq!(ask(&files, Operation::Get, "a/../b", 1).0, 404);
        // Of the other key's bytes.
        assert_eq!(ask(&files, Operation::Put, "x", 100).0, 200);
        std::fs::rename(dir.path().join("x"), dir.path().join("y")).unwrap();
        let (status, _, text) = ask(&files, Operation::Get, "y", 100);
        assert!(status == 500 && text.contains("other bytes"), "{status} {text}");
    }

    #[test]
    fn a_folder_of_others_is_read_and_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("k"), "precious").unwrap();
        std::fs::write(dir.path().join("other"), "precious").unwrap();
        let reads = Arc::new(Files::open(dir.path(), false, false).unwrap());
        assert_eq!(ask(&reads, Operation::Get, "k", 8), (200, 8, String::new()));
        for operation in [Operation::Put, Operation::Delete] {
            let (status, _, text) = ask(&reads, operation, "k", 4096);
            assert!(status == 403 && text.contains("name an empty folder"), "{status} {text}");
        }
        // Nor are links followed where files may be written.
        let writes = Arc::new(Files::open(dir.path(), true, false).unwrap());
        std::os::unix::fs::symlink(dir.path().join("other"), dir.path().join("l")).unwrap();
        assert_eq!(ask(&writes, Operation::Put, "l", 4096).0, 500);
        for file in ["k", "other"] {
            assert_eq!(std::fs::read_to_string(dir.path().join(file)).unwrap(), "precious");
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3, "no probe is left");
    }

    #[test]
    fn a_file_in_the_place_of_a_device_is_overwritten_only_if_that_is_wanted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("device");
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        let reads = Arc::new(Files::open(&path, false, false).unwrap());
        assert_eq!(ask(&reads, Operation::Get, "k", 5000), (200, 5000, String::new()));
        let (status, _, text) = ask(&reads, Operation::Put, "k", 4096);
        assert!(status == 403 && text.contains("--destroy"), "{status} {text}");
        assert_eq!(std::fs::read(&path).unwrap(), vec![7; 1 << 20]);
        let writes = Arc::new(Files::open(&path, true, true).unwrap());
        assert_eq!(ask(&writes, Operation::Put, "k", 5000).0, 200);
        assert_eq!(ask(&writes, Operation::Get, "k", 5000), (200, 5000, String::new()));
        // An object that is larger than all of it is not cut.
        for operation in [Operation::Put, Operation::Get] {
            let (status, _, text) = ask(&writes, operation, "k", (1 << 20) + 1);
            assert!(
                status == 500 && text.contains("the device or file has 1048576"),
                "{status} {text}"
            );
        }
        assert_eq!(ask(&writes, Operation::Get, "k", 5000), (200, 5000, String::new()));
        assert_eq!(path.metadata().unwrap().len(), 1 << 20);
        std::fs::write(&path, [1]).unwrap();
        assert!(Files::open(&path, false, false).is_err_and(|why| why.contains("1 bytes")));
        let missing = Files::open(&dir.path().join("none"), false, false);
        assert!(missing.is_err_and(|why| why.contains("No such file")));
        assert!(Files::open(Path::new("/dev/null"), true, false).is_err());
    }
}
