//! Reads several input files as one, a shard's text at a time.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};

use record::compressed::decompressed;
use shard::record::{BYTE_ORDER_MARK, Format, Sample};

use super::error::{Context as _, Result, ensure};
use super::memory::{Counts, Plan, SEPARATOR_BYTES};
use super::start::{Starts, follow_end, is_left_out, read_header, separator};

/// The number of bytes read before their lines are counted.
const PIECE_BYTES: usize = 256 << 10;
/// Initial capacity of the buffer. It doubles from there on, up to the size of a shard.
const ROOM_BYTES: usize = 4 << 20;

/// A file that is read.
type Reader = Box<dyn BufRead + Send>;

/// Several files as one input. Adds a separator after a file that does not end with one, and omits
/// the headers of CSV files after the first.
pub(super) struct Joined {
    format: Format,
    /// The files whose start was looked at, to be read from it on.
    begun: VecDeque<(PathBuf, Reader)>,
    /// The files still to open, in reverse order.
    to_come: Vec<PathBuf>,
    now: Option<(PathBuf, Reader)>,
    /// The names in the header of the first file that has one, if this is a table with headers.
    header: Option<Vec<String>>,
    /// The last two bytes read.
    end: Vec<u8>,
}

/// Several files of which the first were looked at.
pub(super) struct InputStart {
    pub starts: Starts,
    /// What follows the starts.
    rest: Vec<Reader>,
    /// The files still to open, in reverse order.
    to_come: Vec<PathBuf>,
}

impl InputStart {
    /// Opens as many of the files as it takes to see their format.
    ///
    /// # Errors
    ///
    /// If `inputs` is empty, or a file cannot be read.
    pub(super) fn open(inputs: &[PathBuf]) -> Result<InputStart> {
        ensure!(
            !inputs.is_empty(),
            Invalid,
            "nothing to import: name files, or - for standard input"
        );
        let to_come = inputs.iter().rev().cloned().collect();
        let mut begun = InputStart { starts: Starts::default(), rest: Vec::new(), to_come };
        while begun.starts.is_short() {
            let Some(path) = begun.to_come.pop() else { break };
            let mut reader = open(&path)?;
            let sample = Sample::read(|len, bytes| {
                let missing = (len - bytes.len()) as u64;
                let read = reader.by_ref().take(missing).read_to_end(bytes);
                read.context(|| format!("cannot read {}", path.display())).map(|_| ())
            })?;
            // What was read to its end needs no open file.
            begun.rest.push(if sample.is_whole { Box::new(io::empty()) } else { reader });
            begun.starts.add(&path, sample);
        }
        Ok(begun)
    }

    /// The input as a whole, once its format is known.
    ///
    /// # Errors
    ///
    /// If the first file cannot be read.
    pub(super) fn join(self, format: Format) -> Result<Joined> {
        let starts = self.starts.into_vec().into_iter().zip(self.rest);
        let begun = starts.map(|(start, rest)| {
            let reader: Reader = Box::new(Cursor::new(start.sample.bytes).chain(rest));
            (start.path, reader)
        });
        let (begun, to_come) = (begun.collect(), self.to_come);
        let mut joined =
            Joined { format, begun, to_come, now: None, header: None, end: Vec::new() };
        joined.next_file()?;
        Ok(joined)
    }
}

/// Opens a file, or standard input for `-`. gzip, bzip2 and zstd are decompressed.
///
/// # Errors
///
/// If it cannot be opened, or is compressed in another way.
pub fn open(path: &Path) -> Result<Reader> {
    let shown = path.display();
    let content = if path.as_os_str() == "-" {
        decompressed(BufReader::new(io::stdin()))
    } else {
        let file = record::file::open_stream(path);
        let file = file.context(|| format!("cannot open {shown}"))?;
        decompressed(BufReader::with_capacity(1 << 20, file))
    };
    content.context(|| format!("cannot read {shown}"))
}

impl Joined {
    fn next_file(&mut self) -> Result<bool> {
        self.now = None;
        let next = match self.begun.pop_front() {
            Some(begun) => Some(begun),
            None => {
                self.to_come.pop().map(|path| open(&path).map(|file| (path, file))).transpose()?
            }
        };
        let Some((path, mut reader)) = next else { return Ok(false) };
        // Only at the start of the whole input the mark is kept, before its first record.
        if !self.end.is_empty() && reader.fill_buf()?.starts_with(BYTE_ORDER_MARK) {
            reader.consume(BYTE_ORDER_MARK.len());
        }
        if let Format::Csv { header: true, .. } = self.format {
            let own = read_header(self.format, &mut reader)?;
            if !is_left_out(&mut self.header, &own, &path.display().to_string())? {
                reader = Box::new(Cursor::new(own.bytes).chain(reader));
            }
        }
        self.now = Some((path, reader));
        Ok(true)
    }

    /// Reads until the buffer holds a shard's text. Returns the counts of the buffer, and whether
    /// the input has ended.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, or has another header than the first.
    pub(super) fn read_shard(
        &mut self,
        plan: &Plan,
        buffer: &mut Vec<u8>,
    ) -> Result<(Counts, bool)> {
        let mut counts = Counts::from_text(buffer);
        while buffer.len() < plan.shard_bytes && plan.fits(&counts) {
            let from = buffer.len();
            if buffer.capacity() - from < PIECE_BYTES {
                // Doubles the capacity so that little is copied, but not beyond a shard.
                let room = from.max(ROOM_BYTES).min(plan.shard_bytes - from);
                buffer.reserve_exact(room + SEPARATOR_BYTES);
            }
            let ended = self.read_up_to(plan.shard_bytes.min(from + PIECE_BYTES), buffer)?;
            counts.add(buffer.get(from..).unwrap_or_default());
            if ended {
                return Ok((counts, true));
            }
        }
        Ok((counts, false))
    }

    /// Fills a buffer up to `len` bytes. Returns whether the input has ended.
    fn read_up_to(&mut self, len: usize, buffer: &mut Vec<u8>) -> Result<bool> {
        while buffer.len() < len {
            let Some((path, reader)) = &mut self.now else { return Ok(true) };
            let from = buffer.len();
            let missing = (len - from) as u64;
            let count = reader
                .by_ref()
                .take(missing)
                .read_to_end(buffer)
                .context(|| format!("cannot read {}", path.display()))?;
            if count > 0 {
                follow_end(&mut self.end, buffer.get(from..).unwrap_or_default());
            } else if self.begun.is_empty() && self.to_come.is_empty() {
                self.now = None;
            } else {
                let missing = separator(&self.end, self.format).as_bytes();
                buffer.extend_from_slice(missing);
                follow_end(&mut self.end, missing);
                self.next_file()?;
            }
        }
        Ok(self.now.is_none())
    }
}
