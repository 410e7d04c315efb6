//! The journal's file: one JSON object a line, appended.
//!
//! A line is written with one call, so a crash leaves at most one torn line at the end. Reading skips
//! lines that do not parse, and writing starts a new line after a torn one. A full file is renamed
//! to `NAME.old`. The first failure to write is logged; the journal in memory continues.
//!
//! The kill switch outlives a restart by its line: a new file begins with it, and one that could not be written is written with the next
//! lines that can.
//!
//! The operator names the file, and may name another program's. So it is appended to only if its lines look like a
//! journal's ([`require_journal`]), and `NAME.old` is replaced only if its lines do.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use engine::act::Line;
use tracing::warn;

use crate::error::Error;

/// Bytes at the start of a file that tell whether it is a journal. No line has as many.
const HEAD_BYTES: u64 = 64 << 10;
/// What lines of this version begin with.
const BEGINNINGS: [&[u8]; 4] =
    [b"{\"entry\":{", b"{\"realised\":{", b"{\"decided\":{", b"{\"hold\":{"];

/// A file of lines.
pub struct Journal {
    path: PathBuf,
    file: File,
    bytes: u64,
    bytes_max: u64,
    complained: bool,
    /// The last line of the kill switch, and whether the file has it.
    hold: Option<Line>,
    hold_is_written: bool,
    /// Whether the file may end within a line.
    torn: bool,
}

impl Journal {
    /// Opens a file, or creates it if it is missing. Returns its lines.
    ///
    /// # Errors
    ///
    /// If it cannot be created, read or appended to; if it, or `NAME.old`, is another kind of file.
    pub fn open(path: &Path, bytes_max: u64) -> Result<(Journal, Vec<Line>), Error> {
        let unusable = |source| Error::Journal { path: path.to_owned(), source };
        Journal::open_file(path, bytes_max).map_err(unusable)
    }

    fn open_file(path: &Path, bytes_max: u64) -> io::Result<(Journal, Vec<Line>)> {
        for file in [path.to_owned(), old_of(path)] {
            require_journal(&file)?;
        }
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let bytes = file.metadata()?.len();
        // The file may have grown under another limit; only its end matters.
        let from = bytes.saturating_sub(bytes_max);
        file.seek(SeekFrom::Start(from))?;
        let mut text = Vec::new();
        (&file).take(bytes_max).read_to_end(&mut text)?;
        let lines = lines_of(&text);
        if !text.is_empty() && !text.ends_with(b"\n") {
            file.write_all(b"\n")?;
        }
        let path = path.to_owned();
        let hold = lines.iter().rfind(is_hold).cloned();
        let journal = Journal {
            path,
            file,
            bytes,
            bytes_max,
            complained: false,
            hold,
            hold_is_written: true,
            torn: false,
        };
        Ok((journal, lines))
    }

    /// Appends lines, and the kill switch's if it could not be written before.
    ///
    /// # Errors
    ///
    /// If they could not be written. The first time, the log says so.
    pub fn append(&mut self, lines: &[Line]) -> io::Result<()> {
        if lines.is_empty() && self.hold_is_written {
            return Ok(());
        }
        if let Some(hold) = lines.iter().rfind(is_hold) {
            (self.hold, self.hold_is_written) = (Some(hold.clone()), false);
        }
        let written = self.write(lines);
        if let Err(error) = &written
            && !std::mem::replace(&mut self.complained, true)
        {
            warn!("cannot write the journal {}: {error}", self.path.display());
        }
        written
    }

    fn write(&mut self, lines: &[Line]) -> io::Result<()> {
        let mut text = text_of(lines)?;
        self.turn(text.len() as u64)?;
        if !self.hold_is_written && !lines.iter().any(|line| is_hold(&line)) {
            text.splice(..0, text_of(self.hold.as_slice())?);
        }
        if self.torn {
            text.insert(0, b'\n');
        }
        // A disk that is full takes a part.
        self.torn = true;
        self.file.write_all(&text)?;
        (self.torn, self.hold_is_written) = (false, true);
        self.bytes += text.len() as u64;
        Ok(())
    }

    /// Begins a new file if `more` bytes do not fit in this one.
    fn turn(&mut self, more: u64) -> io::Result<()> {
        if self.bytes + more <= self.bytes_max || self.bytes == 0 {
            return Ok(());
        }
        // Others may have put files in the place of both since the start.
        if let Some(there) = metadata_of(&self.path)? {
            let ours = self.file.metadata()?;
            if (there.dev(), there.ino()) != (ours.dev(), ours.ino()) {
                return Err(io::Error::other("another file is in its place"));
            }
            let old = old_of(&self.path);
            require_journal(&old)?;
            std::fs::rename(&self.path, old)?;
        }
        self.file = OpenOptions::new().append(true).create_new(true).open(&self.path)?;
        (self.bytes, self.torn, self.hold_is_written) = (0, false, self.hold.is_none());
        Ok(())
    }
}

fn is_hold(line: &&Line) -> bool {
    matches!(line, Line::Hold { .. })
}

/// Lines as the file has them.
fn text_of(lines: &[Line]) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    for line in lines {
        serde_json::to_writer(&mut text, line)?;
        text.push(b'\n');
    }
    Ok(text)
}

/// Where a full file goes.
fn old_of(path: &Path) -> PathBuf {
    let mut old = OsString::from(path);
    old.push(".old");
    old.into()
}

fn metadata_of(path: &Path) -> io::Result<Option<std::fs::Metadata>> {
    match std::fs::metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Checks that a file is missing, empty, or a journal's.
fn require_journal(path: &Path) -> io::Result<()> {
    let Some(found) = metadata_of(path)? else { return Ok(()) };
    let other = |what: &str| {
        let what =
            format!("{} {what}: name another file (act.journal), or remove it", path.display());
        Err(io::Error::new(io::ErrorKind::InvalidData, what))
    };
    if !found.is_file() {
        return other("is not a file");
    }
    let mut head = Vec::new();
    File::open(path)?.take(HEAD_BYTES).read_to_end(&mut head)?;
    if !is_journal(&head, found.len() > HEAD_BYTES) {
        return other("exists and is not a journal");
    }
    Ok(())
}

/// Whether the bytes at the start of a file can be a journal's. `is_cut` tells that more follow.
fn is_journal(head: &[u8], is_cut: bool) -> bool {
    let mut lines: Vec<&[u8]> = head.split(|byte| *byte == b'\n').collect();
    if is_cut && lines.pop().is_some() && lines.is_empty() {
        return false;
    }
    let begins = |line: &[u8]| {
        BEGINNINGS.iter().any(|known| line.starts_with(known) || known.starts_with(line))
    };
    let (mut known, mut any) = (false, false);
    for line in lines {
        // After a loss of power, a file system may show bytes that were not written as zeros.
        let line: Vec<u8> = line.iter().copied().filter(|byte| *byte != 0).collect();
        if line.is_empty() {
            continue;
        }
        any = true;
        if begins(&line) {
            known = true;
        } else if !is_later(&line) {
            return false;
        }
    }
    known || !any
}

/// Whether a line may be of a later version: an object with one field, which is an object.
fn is_later(line: &[u8]) -> bool {
    let parsed: Result<serde_json::Map<String, serde_json::Value>, _> =
        serde_json::from_slice(line);
    parsed.is_ok_and(|it| it.len() == 1 && it.values().all(serde_json::Value::is_object))
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
        journal.append(&[hold(1), hold(2)]).unwrap();
        drop(journal);
        let text = std::fs::read(&path).unwrap();
        for cut in 0..text.len() {
            std::fs::write(&path, &text[..cut]).unwrap();
            let (mut journal, before) = Journal::open(&path, 1 << 20).unwrap();
            journal.append(&[hold(3)]).unwrap();
            drop(journal);
            let (_, after) = Journal::open(&path, 1 << 20).unwrap();
            assert_eq!(after.len(), before.len() + 1, "cut at {cut}");
            assert_eq!(after.last(), Some(&hold(3)));
        }
    }

    #[test]
    fn a_full_file_is_turned() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (mut journal, lines) = Journal::open(&path, 200).unwrap();
        assert!(lines.is_empty());
        (0..20).for_each(|at| journal.append(&[hold(at)]).unwrap());
        assert!(std::fs::metadata(&path).unwrap().len() <= 200);
        assert!(std::fs::metadata(folder.path().join("journal.old")).unwrap().len() <= 200);
        let (mut journal, lines) = Journal::open(&path, 200).unwrap();
        assert_eq!(lines.last(), Some(&hold(19)));
        // Who took the file away gets a new one.
        std::fs::rename(&path, folder.path().join("away")).unwrap();
        (20..40).for_each(|at| journal.append(&[hold(at)]).unwrap());
        assert_eq!(Journal::open(&path, 200).unwrap().1.last(), Some(&hold(39)));
    }

    #[test]
    fn the_kill_switch_is_in_each_file_and_is_written_late_rather_than_never() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let other = |id| Line::Realised { id, value: 1.0 };
        let (mut journal, _) = Journal::open(&path, 200).unwrap();
        journal.append(&[hold(1)]).unwrap();
        (0..40).for_each(|id| journal.append(&[other(id)]).unwrap());
        let holds = |lines: &[Line]| lines.iter().filter(|line| **line == hold(1)).count();
        assert_eq!(holds(&Journal::open(&path, 200).unwrap().1), 1);
        // A file that takes nothing.
        journal.file = OpenOptions::new().append(true).open("/dev/full").unwrap();
        journal.bytes = 0;
        let off = Line::Hold { on: false, at_unix_us: 2 };
        assert!(journal.append(std::slice::from_ref(&off)).is_err());
        journal.file = OpenOptions::new().append(true).open(&path).unwrap();
        journal.append(&[other(99)]).unwrap();
        let lines = Journal::open(&path, 1 << 20).unwrap().1;
        assert_eq!(lines.iter().rfind(is_hold), Some(&off));
        assert_eq!(lines.last(), Some(&other(99)));
    }

    #[test]
    fn what_crashes_and_later_versions_leave_is_a_journals() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let line = "{\"hold\":{\"on\":true,\"at_unix_us\":1}}\n";
        for (text, lines) in [
            (line.to_owned(), 1),
            (format!("{line}{{\"wish\":{{\"of\":1}}}}\n{line}"), 2),
            (format!("{line}{{\"entry\":{{\"id\":\n{line}"), 2),
            (format!("{line}\0\0\0\n{line}\0\0"), 2),
            ("{\"hol".to_owned(), 0),
            ("\0\0".to_owned(), 0),
            (line.repeat(3000), 3000),
        ] {
            std::fs::write(&path, &text).unwrap();
            let (_, read) = Journal::open(&path, 1 << 20).expect(&text);
            assert_eq!(read.len(), lines, "{text}");
        }
    }

    /// A file that the operator named by mistake was appended to, and later renamed over `NAME.old`.
    #[test]
    fn another_file_is_neither_appended_to_nor_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let old = folder.path().join("journal.old");
        assert!(Journal::open(folder.path(), 1 << 20).is_err());
        let long = "x".repeat(100_000);
        for text in
            ["notes\n", "{\"a\":1}\n", "{\"a\":{}}\n{\"b\":2}\n", "\u{ff}\n{\n", "[]", &long]
        {
            for file in [&path, &old] {
                std::fs::write(file, text).unwrap();
                let error = Journal::open(&path, 1 << 20).err().expect(text);
                let told = ground::with_causes(&error);
                assert!(told.contains("is not a journal"), "{told}");
                assert_eq!(std::fs::read_to_string(file).unwrap(), text);
                std::fs::remove_file(file).unwrap();
            }
        }
        // One that comes in later.
        let (mut journal, _) = Journal::open(&path, 200).unwrap();
        std::fs::write(&old, "notes\n").unwrap();
        let refused = (0..20).filter(|at| journal.append(&[hold(*at)]).is_err());
        assert!(refused.count() > 10);
        assert_eq!(std::fs::read_to_string(&old).unwrap(), "notes\n");
        std::fs::remove_file(&old).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "notes\n").unwrap();
        let refused = (0..20).filter(|at| journal.append(&[hold(*at)]).is_err());
        assert!(refused.count() > 10);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "notes\n");
        assert!(!old.exists());
    }
}
