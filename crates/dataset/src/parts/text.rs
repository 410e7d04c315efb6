//! The text of several input files, read from any position.
//!
//! The text is what an import of the files would read as one stream: a separator follows a file that does not end with one, and
//! byte-order marks and headers of the files after the first are left out. Positions count the bytes of this text.

use std::fs::File;
use std::io::{Cursor, Read as _};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ::record::compressed::decompressed;
use serde::{Deserialize, Serialize};
use shard::record::{BYTE_ORDER_MARK, Format, Schema};

use crate::error::{Context as _, Error, Result, ensure};
use crate::start::{HEADER_BYTES_MAX, follow_end, is_left_out, read_header, separator};

/// One input file of a split.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InputFile {
    /// Its name as it was given: the path of the record, where records are whole files.
    pub name: String,
    /// Where it is, whatever the working folder.
    pub path: PathBuf,
    /// Its size. A file of another size is refused.
    pub bytes: u64,
    /// Bytes at its start that are left out: a byte-order mark and a header that the first file has already.
    pub skipped: u64,
    /// The separator that is added behind it.
    pub separator: String,
}

impl InputFile {
    /// Opens it.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or changed its size.
    pub fn open(&self) -> Result<File> {
        let shown = self.path.display();
        let file = ::record::file::open(&self.path).context(|| format!("cannot open {shown}"))?;
        let bytes = file.metadata()?.len();
        let expected = self.bytes;
        ensure!(
            bytes == expected,
            Invalid,
            "{shown} has {bytes} bytes, and had {expected} when the input was split: split it again"
        );
        Ok(file)
    }

    /// Bytes that it has in the text; `None` if they are not possible.
    fn text_bytes(&self, format: Format) -> Option<u64> {
        if format == Format::Files {
            return self.bytes.checked_add(self.name.len() as u64 + 1);
        }
        self.bytes.checked_sub(self.skipped)?.checked_add(self.separator.len() as u64)
    }
}

/// Where each file begins in the text, and where the text ends; `None` if no text is so long.
pub(super) fn positions(files: &[InputFile], format: Format) -> Option<Vec<u64>> {
    let mut all = vec![0_u64];
    for file in files {
        all.push(all.last()?.checked_add(file.text_bytes(format)?)?);
    }
    Some(all)
}

/// Finds out how each of the files stands in the text.
///
/// # Errors
///
/// If one cannot be read from any position (standard input, pipes, compressed files), or has another header than the first.
pub(super) fn input_files(inputs: &[PathBuf], schema: &Schema) -> Result<Vec<InputFile>> {
    let mut files = Vec::with_capacity(inputs.len());
    let mut before = Before::default();
    for path in inputs {
        files.push(input_file(path, schema.format, &mut before)?);
    }
    // Nothing follows the last.
    if let Some(last) = files.last_mut() {
        last.separator.clear();
    }
    Ok(files)
}

/// What the files before one have.
#[derive(Default)]
struct Before {
    /// The names in the header of the first that has one, if this is a table with headers.
    header: Option<Vec<String>>,
    /// The last two bytes of the text.
    end: Vec<u8>,
}

/// One of the files, behind others.
fn input_file(path: &Path, format: Format, before: &mut Before) -> Result<InputFile> {
    let shown = path.display();
    let file = open_plain(path)?;
    let mut found = InputFile {
        name: shown.to_string(),
        path: std::path::absolute(path).context(|| format!("cannot use {shown}"))?,
        bytes: file.metadata()?.len(),
        skipped: 0,
        separator: String::new(),
    };
    if format == Format::Files {
        return Ok(found);
    }
    found.skipped = skipped(&file, &found.name, format, before)?;
    follow_end(&mut before.end, &end_of(&file, found.bytes, found.skipped)?);
    found.separator = separator(&before.end, format).to_owned();
    follow_end(&mut before.end, found.separator.as_bytes());
    Ok(found)
}

/// The bytes that are left out at the start of a file: a byte-order mark behind other bytes, and a header that an earlier file has.
fn skipped(file: &File, shown: &str, format: Format, before: &mut Before) -> Result<u64> {
    let has_headers = matches!(format, Format::Csv { header: true, .. });
    let len = if has_headers { HEADER_BYTES_MAX } else { BYTE_ORDER_MARK.len() };
    let begin = begin_of(file, len)?;
    let mut rest = &begin[..];
    if !before.end.is_empty() {
        rest = rest.strip_prefix(BYTE_ORDER_MARK).unwrap_or(rest);
    }
    let mark = begin.len() - rest.len();
    if !has_headers {
        return Ok(mark as u64);
    }
    let own = read_header(format, &mut rest)?;
    let is_left_out = is_left_out(&mut before.header, &own, shown)?;
    Ok(if is_left_out { mark + own.bytes.len() } else { mark } as u64)
}

/// Opens a file that can be read from any position.
pub(super) fn open_plain(path: &Path) -> Result<File> {
    let shown = path.display();
    ensure!(
        path.as_os_str() != "-",
        Invalid,
        "standard input cannot be split into parts: write it to a file and name that"
    );
    let file = ::record::file::open(path).context(|| format!("cannot open {shown}"))?;
    let begin = begin_of(&file, 8)?;
    ensure!(
        !is_compressed(&begin),
        Invalid,
        "{shown} is compressed, and a part of it cannot be read alone: decompress it first"
    );
    Ok(file)
}

/// Whether an import would decompress a file that begins with these bytes, or refuse it as an archive.
fn is_compressed(begin: &[u8]) -> bool {
    let mut content = Vec::new();
    // What is plain comes back; the start of anything else is an error or other bytes.
    let is_plain = decompressed(Cursor::new(begin.to_vec()))
        .is_ok_and(|mut plain| plain.read_to_end(&mut content).is_ok() && content == begin);
    !is_plain
}

/// The first bytes of a file.
pub(super) fn begin_of(file: &File, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let mut read = 0;
    while read < len {
        let count = file.read_at(bytes.get_mut(read..).unwrap_or_default(), read as u64)?;
        if count == 0 {
            break;
        }
        read += count;
    }
    bytes.truncate(read);
    Ok(bytes)
}

/// The last two bytes of a file, of those behind what is left out.
fn end_of(file: &File, bytes: u64, skipped: u64) -> Result<Vec<u8>> {
    let from = bytes.saturating_sub(2).max(skipped);
    let mut end = vec![0; bytes.saturating_sub(from) as usize];
    file.read_exact_at(&mut end, from)?;
    Ok(end)
}

/// A reader of the text.
pub(super) struct Text<'a> {
    files: &'a [InputFile],
    positions: Vec<u64>,
    /// The file read last, by its place.
    open: Option<(usize, File)>,
}

impl<'a> Text<'a> {
    /// The text of some files, whose records are not whole files.
    ///
    /// # Errors
    ///
    /// If no text is so long.
    pub fn new(files: &'a [InputFile], format: Format) -> Result<Text<'a>> {
        let positions = positions(files, format)
            .ok_or_else(|| Error::inconsistent("the sizes of the files are not possible"))?;
        Ok(Text { files, positions, open: None })
    }

    /// Its length.
    pub fn len(&self) -> u64 {
        self.positions.last().copied().unwrap_or(0)
    }

    /// Reads from a position into a buffer: at least a byte, unless the text or the buffer ends there.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, or became shorter.
    pub fn read_at(&mut self, at: u64, buffer: &mut [u8]) -> Result<usize> {
        if at >= self.len() || buffer.is_empty() {
            return Ok(0);
        }
        // The last that begins there: files without bytes begin where the next does.
        let place = self.positions.partition_point(|start| *start <= at).saturating_sub(1);
        let (Some(file), Some(start)) = (self.files.get(place), self.positions.get(place)) else {
            return Err(Error::inconsistent("a position is in a file"));
        };
        let (within, body) = (at - start, file.bytes - file.skipped);
        if within >= body {
            let rest = file.separator.as_bytes().get((within - body) as usize..);
            let rest = rest.unwrap_or_default();
            let count = rest.len().min(buffer.len());
            buffer.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            return Ok(count);
        }
        if self.open.as_ref().is_none_or(|(open, _)| *open != place) {
            self.open = Some((place, file.open()?));
        }
        let Some((_, opened)) = &self.open else {
            return Err(Error::inconsistent("a file was just opened"));
        };
        let len = buffer.len().min(usize::try_from(body - within).unwrap_or(usize::MAX));
        let count =
            opened.read_at(buffer.get_mut(..len).unwrap_or_default(), file.skipped + within);
        let shown = file.path.display();
        let count = count.context(|| format!("cannot read {shown}"))?;
        ensure!(count > 0, Invalid, "{shown} became shorter while it was read: split it again");
        Ok(count)
    }

    /// Reads a range of the text.
    ///
    /// # Errors
    ///
    /// As [`read_at`](Self::read_at).
    pub fn read_range(&mut self, range: &Range<u64>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(range.end - range.start)?];
        let mut read = 0;
        while read < bytes.len() {
            let to = bytes.get_mut(read..).unwrap_or_default();
            let count = self.read_at(range.start + read as u64, to)?;
            ensure!(count > 0, Damaged, "a part lies past the end of the input: split it again");
            read += count;
        }
        Ok(bytes)
    }
}
