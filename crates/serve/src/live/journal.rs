//! The journal's file: one JSON object a line, appended.
//!
//! A line is written with one call, so a crash leaves at most one torn line at the end. Reading skips
//! lines that do not parse, and writing starts a new line after a torn one. A full file is renamed
//! to `NAME.old`. The first failure to write is logged; the journal in memory continues.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use engine::act::Line;
use tracing::warn;

/// A file of lines.
pub struct Journal {
    path: PathBuf,
    file: File,
    bytes: u64,
    bytes_max: u64,
    complained: bool,
}

impl Journal {
    /// Opens a file, or creates it if it is missing. Returns its lines.
    ///
    /// # Errors
    ///
    /// If it cannot be created, read or appended to.
    pub fn open(path: &Path, bytes_max: u64) -> anyhow::Result<(Journal, Vec<Line>)> {
        let cannot = || format!("cannot use the journal {}", path.display());
        if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            anyhow::bail!("{}: it is not a file", cannot());
        }
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .with_context(cannot)?;
        let bytes = file.metadata().with_context(cannot)?.len();
        // The file may have grown under another limit; only its end matters.
        let from = bytes.saturating_sub(bytes_max);
        file.seek(SeekFrom::Start(from)).with_context(cannot)?;
        let mut text = Vec::new();
        (&file).take(bytes_max).read_to_end(&mut text).with_context(cannot)?;
        let lines = lines_of(&text);
        if !text.is_empty() && !text.ends_with(b"\n") {
            file.write_all(b"\n").with_context(cannot)?;
        }
        let path = path.to_owned();
        Ok((Journal { path, file, bytes, bytes_max, complained: false }, lines))
    }

    /// Appends lines.
    pub fn append(&mut self, lines: &[Line]) {
        let mut text = Vec::new();
        for line in lines {
            if serde_json::to_writer(&mut text, line).is_ok() {
                text.push(b'\n');
            }
        }
        if text.is_empty() {
            return;
        }
        let written = self.turn(text.len() as u64).and_then(|()| self.file.write_all(&text));
        match written {
            Ok(()) => self.bytes += text.len() as u64,
            Err(error) if !std::mem::replace(&mut self.complained, true) => {
                warn!("cannot write the journal {}: {error}", self.path.display());
            }
            Err(_) => {}
        }
    }

    /// Begins a new file if `more` bytes do not fit in this one.
    fn turn(&mut self, more: u64) -> std::io::Result<()> {
        if self.bytes + more <= self.bytes_max || self.bytes == 0 {
            return Ok(());
        }
        let mut old = self.path.clone().into_os_string();
        old.push(".old");
        std::fs::rename(&self.path, old)?;
        self.file = OpenOptions::new().append(true).create(true).open(&self.path)?;
        self.bytes = 0;
        Ok(())
    }
}

fn lines_of(text: &[u8]) -> Vec<Line> {
    text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(at_unix_us: u64) -> Line {
        Line::Hold { on: true, at_unix_us }
    }

    #[test]
    fn a_torn_line_is_skipped_and_the_next_begins_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (mut journal, lines) = Journal::open(&path, 1 << 20).unwrap();
        assert!(lines.is_empty());
        journal.append(&[hold(1), hold(2)]);
        drop(journal);
        let text = std::fs::read(&path).unwrap();
        for cut in 0..text.len() {
            std::fs::write(&path, &text[..cut]).unwrap();
            let (mut journal, before) = Journal::open(&path, 1 << 20).unwrap();
            journal.append(&[hold(3)]);
            drop(journal);
            let (_, after) = Journal::open(&path, 1 << 20).unwrap();
            assert_eq!(after.len(), before.len() + 1, "cut at {cut}");
            assert_eq!(after.last(), Some(&hold(3)));
        }
    }

    #[test]
    fn a_full_file_is_turned_and_neither_a_folder_nor_garbage_stops_it() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Journal::open(folder.path(), 1 << 20).is_err());
        let path = folder.path().join("journal");
        std::fs::write(&path, [0xff, b'\n', b'{', b'\n']).unwrap();
        let (mut journal, lines) = Journal::open(&path, 200).unwrap();
        assert!(lines.is_empty());
        (0..20).for_each(|at| journal.append(&[hold(at)]));
        assert!(std::fs::metadata(&path).unwrap().len() <= 200);
        assert!(std::fs::metadata(folder.path().join("journal.old")).unwrap().len() <= 200);
        let (_, lines) = Journal::open(&path, 200).unwrap();
        assert_eq!(lines.last(), Some(&hold(19)));
    }
}
