//! Several inputs as one, read as far as the next shard may go.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use shard::record::Format;

use super::memory::{Counts, Plan, SEPARATOR_BYTES};

/// Bytes that are read before they are counted.
const PIECE_BYTES: usize = 256 << 10;
/// Room for the first of them; it doubles from there on, and never past a shard.
const ROOM_BYTES: usize = 4 << 20;

/// Several files as one input. Between two of them a separator is added where the first does not end
/// with one; the headers of later CSV files are left out.
pub(super) struct Joined {
    /// The files to come, the next one last.
    to_come: Vec<PathBuf>,
    now: Option<(PathBuf, Box<dyn BufRead>)>,
    format: Option<Format>,
    header: Option<Vec<u8>>,
    /// The last two bytes that were read.
    end: Vec<u8>,
}

impl Joined {
    /// Opens the first of them.
    ///
    /// # Errors
    ///
    /// If there is none, or it cannot be opened.
    pub(super) fn open(inputs: &[PathBuf]) -> anyhow::Result<Joined> {
        ensure!(
            !inputs.is_empty(),
            "there is nothing to import: name files, or - for standard input"
        );
        let to_come = inputs.iter().rev().cloned().collect();
        let mut joined = Joined { to_come, now: None, format: None, header: None, end: Vec::new() };
        joined.next_file()?;
        Ok(joined)
    }

    /// Says what the records are, once that is known.
    pub(super) fn follow(&mut self, format: Format, sample: &[u8]) {
        self.format = Some(format);
        if let Format::Csv { header: true, .. } = format {
            self.header = sample.split_inclusive(|byte| *byte == b'\n').next().map(<[u8]>::to_vec);
        }
    }

    fn next_file(&mut self) -> anyhow::Result<bool> {
        self.now = None;
        let Some(path) = self.to_come.pop() else { return Ok(false) };
        let mut reader: Box<dyn BufRead> = if path.as_os_str() == "-" {
            Box::new(BufReader::new(io::stdin()))
        } else {
            let shown = path.display();
            let file = File::open(&path).with_context(|| format!("cannot open {shown}"))?;
            ensure!(!file.metadata()?.is_dir(), "{shown} is a folder; name its files");
            Box::new(BufReader::with_capacity(1 << 20, file))
        };
        if let Some(header) = &self.header {
            let mut line = Vec::new();
            reader.by_ref().take(header.len() as u64).read_until(b'\n', &mut line)?;
            if !line.is_empty() && line != *header {
                bail!(
                    "{}: its first line is not the header of the first file; name files of one kind",
                    path.display()
                );
            }
        }
        self.now = Some((path, reader));
        Ok(true)
    }

    /// Reads on until the buffer holds what one shard may; gives what it holds, and whether the input has
    /// ended.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, or is none of the kind of the first.
    pub(super) fn read_shard(
        &mut self,
        plan: &Plan,
        buffer: &mut Vec<u8>,
    ) -> anyhow::Result<(Counts, bool)> {
        let mut counts = Counts::of(buffer);
        while buffer.len() < plan.shard_bytes && plan.fits(&counts) {
            let from = buffer.len();
            if buffer.capacity() - from < PIECE_BYTES {
                // Twice the room each time, so that little is copied, but no more than a shard.
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

    /// Fills a buffer up to `len` bytes, of the first file alone before [`follow`](Joined::follow); says
    /// whether the input has ended.
    pub(super) fn read_up_to(&mut self, len: usize, buffer: &mut Vec<u8>) -> anyhow::Result<bool> {
        while buffer.len() < len {
            let Some((path, reader)) = &mut self.now else { return Ok(true) };
            let missing = (len - buffer.len()) as u64;
            let count = reader
                .by_ref()
                .take(missing)
                .read_to_end(buffer)
                .with_context(|| format!("cannot read {}", path.display()))?;
            if count > 0 {
                let end = buffer.len();
                self.end = buffer.get(end.saturating_sub(2)..).unwrap_or_default().to_vec();
            } else if self.to_come.is_empty() {
                self.now = None;
            } else if self.format.is_none() {
                // The sample ends with the first file: how to go on to the next is not known yet.
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
