//! Opens the files of an import: regular files, pipes and standard input, decompressed by what they contain and not by
//! their names, with their beginning at hand before they are read.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use record::compressed::{Unreadable, decompressed};

use super::envelope::{Envelope, Unwrapped};
use super::error::Error;

/// Bytes from a file's beginning by which its format is recognised: some hundred lines.
const HEAD_BYTES: u64 = 1 << 18;
/// Bytes read at a time.
const BUFFER_BYTES: usize = 1 << 17;

/// A file whose beginning has been read.
pub(super) struct Source {
    /// As it was named; `-` is the standard input.
    pub path: PathBuf,
    /// Its first bytes, decompressed and without envelopes, and at least a line unless it is longer than that.
    pub head: Vec<u8>,
    /// The first bytes, and what follows them, of a stream that cannot be opened again.
    stream: Option<Box<dyn BufRead>>,
    /// What carried its lines, the outermost first.
    envelopes: Vec<Envelope>,
    left_out: Arc<AtomicU64>,
}

impl Source {
    /// Opens a file and reads its beginning.
    pub fn open(path: &Path) -> Result<Source, Error> {
        let failed = |source| Error::File { path: path.to_owned(), source };
        let mut input = open(path, true)?;
        let mut head = Vec::new();
        input.by_ref().take(HEAD_BYTES).read_to_end(&mut head).map_err(failed)?;
        // A regular file is opened again when its turn comes: hundreds of rotated logs are not open at once.
        let is_file = path != Path::new("-") && std::fs::metadata(path).is_ok_and(|m| m.is_file());
        let stream = (!is_file).then(|| chained(&head, input));
        Ok(Source::new(path, head, stream))
    }

    fn new(path: &Path, head: Vec<u8>, stream: Option<Box<dyn BufRead>>) -> Source {
        let (envelopes, left_out) = (Vec::new(), Arc::default());
        Source { path: path.to_owned(), head, stream, envelopes, left_out }
    }

    /// A source of bytes in memory.
    pub fn memory(path: &Path, bytes: &[u8]) -> Source {
        let length = bytes.len().min(HEAD_BYTES as usize);
        let (head, rest) = bytes.split_at(length);
        let stream = chained(head, Box::new(io::Cursor::new(rest.to_vec())));
        Source::new(path, head.to_vec(), Some(stream))
    }

    /// Takes the lines out of envelopes, the outermost first; `head` is the beginning without them.
    pub fn wrap(&mut self, envelopes: &[Envelope], head: &[u8]) {
        (self.envelopes, self.head) = (envelopes.to_vec(), head.to_vec());
    }

    /// What carried its lines, the outermost first.
    pub fn envelopes(&self) -> &[Envelope] {
        &self.envelopes
    }

    /// Lines of other programs or streams that were left out so far.
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    /// The file from its beginning.
    pub fn lines(&mut self) -> Result<Box<dyn BufRead>, Error> {
        let mut input = match self.stream.take() {
            Some(stream) => stream,
            None => open(&self.path, true)?,
        };
        for envelope in &self.envelopes {
            let inner = Unwrapped::new(envelope.clone(), input, Arc::clone(&self.left_out));
            input = Box::new(BufReader::with_capacity(BUFFER_BYTES, inner));
        }
        Ok(input)
    }
}

/// A stream with its beginning, which was read, before it.
fn chained(head: &[u8], rest: Box<dyn BufRead>) -> Box<dyn BufRead> {
    let head = io::Cursor::new(head.to_vec());
    Box::new(BufReader::with_capacity(BUFFER_BYTES, head.chain(rest)))
}

/// Opens a source for reading; a stream may be a pipe.
pub(super) fn open(path: &Path, is_stream: bool) -> Result<Box<dyn BufRead>, Error> {
    let failed = |source| Error::File { path: path.to_owned(), source };
    let input: Box<dyn Read + Send> = if path == Path::new("-") {
        Box::new(io::stdin())
    } else if is_stream {
        Box::new(record::file::open_stream(path).map_err(failed)?)
    } else {
        Box::new(record::file::open(path).map_err(failed)?)
    };
    match decompressed(BufReader::with_capacity(BUFFER_BYTES, input)) {
        Ok(content) => without_hole(content).map_err(failed),
        Err(Unreadable::Io(source)) => Err(failed(source)),
        Err(Unreadable::Unsupported { what, command }) => {
            let reason = format!("it is {what}; decompress it: `{command} | concertina import -`");
            Err(Error::Content { path: path.to_owned(), reason })
        }
    }
}

/// A file without NULs at its beginning: a log that is truncated while a program writes to it begins with a hole as long as it was.
fn without_hole(mut input: Box<dyn BufRead>) -> io::Result<Box<dyn BufRead>> {
    loop {
        let bytes = input.fill_buf()?;
        let count = bytes.iter().take_while(|byte| **byte == 0).count();
        let is_done = count < bytes.len() || bytes.is_empty();
        input.consume(count);
        if is_done {
            return Ok(input);
        }
    }
}

/// The longest text that is read into memory, bytes.
const TEXT_MAX: u64 = 1 << 29;

/// The whole of a document that is not read line by line.
pub(super) fn text(path: &Path) -> Result<String, Error> {
    let too_long = || {
        let reason = format!("longer than {TEXT_MAX} bytes; import a shorter recording");
        Error::Content { path: path.to_owned(), reason }
    };
    // Before half a gigabyte of it is in memory.
    if std::fs::metadata(path).is_ok_and(|found| found.len() > TEXT_MAX) {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    let read = open(path, false)?.take(TEXT_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|source| Error::File { path: path.to_owned(), source })?;
    if bytes.len() as u64 > TEXT_MAX {
        return Err(too_long());
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "1700000000.000 200 0.010\n";
    /// The same, as bzip2 writes it.
    const BZIP2: &[u8] = b"BZh91AY&SY\xff\x92A$\x00\x00\t\xd8\x00\x04\x10@\x01p\x80 \x00!*~\xa9\x8d\x040\"\xc1LKbM\x7f\xb98]\xc9\x14\xe1BC\xfeI\x04\x90";

    fn content(name: &str, bytes: &[u8]) -> Result<String, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let mut source = Source::open(&path).map_err(|e| e.to_string())?;
        let head = String::from_utf8(source.head.clone()).unwrap();
        let mut all = String::new();
        source.lines().unwrap().read_to_string(&mut all).map_err(|e| e.to_string())?;
        assert!(all.starts_with(&head));
        Ok(all)
    }

    #[test]
    fn files_are_decompressed_by_their_content() {
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        let zstd = ruzstd::encoding::compress_to_vec(TEXT.as_bytes(), level);
        let hole = [&vec![0; 3 * BUFFER_BYTES][..], TEXT.as_bytes()].concat();
        assert_eq!(content("a.log", &hole).unwrap(), TEXT);
        assert_eq!(content("a.log", &[0; 9]).unwrap(), "");
        for name in ["a.log", "a.gz", "a.zst"] {
            assert_eq!(content(name, &zstd).unwrap(), TEXT);
        }
        assert!(content("a", &zstd[..zstd.len() / 2]).is_err(), "cut short");
        for name in ["a.log", "a.bz2"] {
            assert_eq!(content(name, BZIP2).unwrap(), TEXT);
            // Rotated logs that were joined.
            assert_eq!(content(name, &BZIP2.repeat(2)).unwrap(), TEXT.repeat(2));
        }
        assert!(content("a", &BZIP2[..BZIP2.len() / 2]).is_err(), "cut short");
        assert_eq!(content("a.gz", TEXT.as_bytes()).unwrap(), TEXT);
        assert_eq!(content("a", b"").unwrap(), "");
        assert!(content("a", b"\xfd7zXZ\0").unwrap_err().contains("xzcat"));
        assert!(content("a", b"PK\x03\x04").unwrap_err().contains("unzip"));
    }

    #[test]
    fn sources_in_memory_are_whole() {
        let bytes = TEXT.repeat(20_000);
        let mut source = Source::memory(Path::new("-"), bytes.as_bytes());
        let mut all = String::new();
        source.lines().unwrap().read_to_string(&mut all).unwrap();
        assert_eq!(all, bytes);
        assert_eq!(
            crate::import::excerpt::excerpt("a\u{1b}[31m\x00é"),
            "a\\u{1b}[31m\\u{0}\\u{e9}"
        );
    }
}
