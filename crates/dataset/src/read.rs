//! Reads several input files as one, a shard's text at a time.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use record::compressed::decompressed;
use shard::record::{BYTE_ORDER_MARK, Format};

use super::error::{Context as _, Result, ensure};
use super::memory::{Counts, Plan, SEPARATOR_BYTES};
use super::start::{read_header, require_same};

/// The number of bytes read before their lines are counted.
const PIECE_BYTES: usize = 256 << 10;
/// Initial capacity of the buffer. It doubles from there on, up to the size of a shard.
const ROOM_BYTES: usize = 4 << 20;

/// Several files as one input. Adds a separator after a file that does not end with one, and omits
/// the headers of CSV files after the first.
pub(super) struct Joined {
    /// The files still to read, in reverse order.
    to_come: Vec<PathBuf>,
    now: Option<(PathBuf, Box<dyn BufRead + Send>)>,
    format: Option<Format>,
    /// The names in the header of the first file, if it is a table.
    header: Option<Vec<String>>,
    /// The last two bytes read.
    end: Vec<u8>,
}

/// Opens a file, or standard input for `-`. gzip, bzip2 and zstd are decompressed.
///
/// # Errors
///
/// If it cannot be opened, or is compressed in another way.
pub fn open(path: &Path) -> Result<Box<dyn BufRead + Send>> {
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
    /// Opens the first file.
    ///
    /// # Errors
    ///
    /// If `inputs` is empty, or the file cannot be opened.
    pub(super) fn open(inputs: &[PathBuf]) -> Result<Joined> {
        ensure!(
            !inputs.is_empty(),
            Invalid,
            "nothing to import: name files, or - for standard input"
        );
        let to_come = inputs.iter().rev().cloned().collect();
        let mut joined = Joined { to_come, now: None, format: None, header: None, end: Vec::new() };
        joined.next_file()?;
        Ok(joined)
    }

    /// Sets the format once it is known. `sample` is the start of the input.
    pub(super) fn follow(&mut self, format: Format, sample: &[u8]) {
        self.format = Some(format);
        let sample = sample.strip_prefix(BYTE_ORDER_MARK).unwrap_or(sample);
        if let Format::Csv { header: true, .. } = format {
            let read = read_header(format, &mut &*sample);
            self.header = read.ok().and_then(|header| header.names);
        }
    }

    fn next_file(&mut self) -> Result<bool> {
        self.now = None;
        let Some(path) = self.to_come.pop() else { return Ok(false) };
        let mut reader = open(&path)?;
        // Only at the start of the whole input the mark is kept, before its first record.
        if self.format.is_some() && reader.fill_buf()?.starts_with(BYTE_ORDER_MARK) {
            reader.consume(BYTE_ORDER_MARK.len());
        }
        if let (Some(names), Some(format)) = (&self.header, self.format) {
            let own = read_header(format, &mut reader)?;
            require_same(names, &own, &path.display().to_string())?;
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

    /// Fills a buffer up to `len` bytes; before [`follow`](Joined::follow), from the first file
    /// only. Returns whether the input has ended.
    pub(super) fn read_up_to(&mut self, len: usize, buffer: &mut Vec<u8>) -> Result<bool> {
        while buffer.len() < len {
            let Some((path, reader)) = &mut self.now else { return Ok(true) };
            let missing = (len - buffer.len()) as u64;
            let count = reader
                .by_ref()
                .take(missing)
                .read_to_end(buffer)
                .context(|| format!("cannot read {}", path.display()))?;
            if count > 0 {
                let end = buffer.len();
                self.end = buffer.get(end.saturating_sub(2)..).unwrap_or_default().to_vec();
            } else if self.to_come.is_empty() {
                self.now = None;
            } else if self.format.is_none() {
                // Before the format is known, it is unknown which separator belongs between files.
                return Ok(false);
            } else {
                if !self.end.is_empty() && !self.end.ends_with(b"\n") {
                    buffer.push(b'\n');
                }
                let stanzas = self.format == Some(Format::Stanzas);
                if !self.end.is_empty() && stanzas && self.end != b"\n\n" {
                    buffer.push(b'\n');
                }
                self.next_file()?;
            }
        }
        Ok(self.now.is_none())
    }
}
