//! The container of a shard: named sections with checksums, written in one pass and verified when
//! opened.
//!
//! `docs/shard-format.md` describes the bytes. In short: a header, the sections, each aligned to 64
//! bytes, the table of sections, and a trailer with the position of the table and the total length.
//! The table comes last so that a [`Writer`] needs neither a second pass nor seeking. A truncated
//! file has no trailer and is rejected.
//!
//! Opening takes one pass over all bytes for the checksums (CRC-32, a few gigabytes per second).
//! [`Reader::open_unchecked`] reads only header, table and trailer: for files just written, or
//! verified later with `Reader::verify`. A checksum detects accidents, not forgery: a forged
//! shard may give wrong results, but cannot make its reader access memory outside of it, panic or
//! loop forever.

use std::fmt;
use std::io::Write;
use std::ops::Range;

use crate::bits::load::{u32_at, u64_at};
use crate::error::Error;

/// The first bytes of every shard.
pub(crate) const MAGIC: [u8; 8] = *b"CTSHARD\n";

/// The version of the format that is written and read.
pub(crate) const VERSION: u32 = 1;

/// Sections start at multiples of this many bytes.
pub(crate) const ALIGNMENT: usize = 64;

/// The longest name of a section, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 16;

/// The most sections of a shard.
pub(crate) const SECTIONS_MAX: usize = 4096;

const HEADER_BYTES: usize = 64;
const ENTRY_BYTES: usize = 40;
const TRAILER_BYTES: usize = 64;
const TRAILER_MAGIC: [u8; 8] = *b"CTSHEND\n";

/// A section's place in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its name: 1 to `NAME_BYTES_MAX` bytes of `a-z`, `0-9`, `.`, `_` and `-`.
    pub name: String,
    /// Its bytes in the container.
    pub range: Range<usize>,
    /// CRC-32 (ISO-HDLC, as in zip and PNG) of those bytes.
    pub checksum: u32,
}

fn is_name(name: &[u8]) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.iter().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-'))
}

/// Writes a container section by section, in one pass.
///
/// ```
/// use shard::format::{Reader, Writer};
///
/// let mut writer = Writer::new(Vec::new())?;
/// writer.section("greeting", b"hello")?;
/// let bytes = writer.finish()?;
/// let reader = Reader::open(bytes)?;
/// assert_eq!(reader.section("greeting"), Some(&b"hello"[..]));
/// # Ok::<(), shard::Error>(())
/// ```
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    position: usize,
    sections: Vec<Section>,
    /// The checksum of the open section.
    open: Option<crc32fast::Hasher>,
}

impl<W: Write> Writer<W> {
    /// Starts a container.
    ///
    /// # Errors
    ///
    /// [`Error::Write`] if writing to `out` fails.
    pub fn new(mut out: W) -> Result<Self, Error> {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        let checksum = crc32fast::hash(&header[..12]);
        header[12..16].copy_from_slice(&checksum.to_le_bytes());
        out.write_all(&header)?;
        Ok(Self { out, position: HEADER_BYTES, sections: Vec::new(), open: None })
    }

    /// Writes a whole section.
    ///
    /// # Errors
    ///
    /// [`Error::Write`] if the writer fails.
    ///
    /// # Panics
    ///
    /// As [`begin`](Self::begin).
    pub fn section(&mut self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        self.begin(name);
        self.write(bytes)?;
        self.end()
    }

    /// Begins a section, whose bytes [`write`](Self::write) adds until [`end`](Self::end).
    ///
    /// # Panics
    ///
    /// If the name is invalid or used already; if there are `SECTIONS_MAX` sections already; if
    /// another section is open. Names are constants of the program, not part of its input.
    pub fn begin(&mut self, name: &str) {
        assert!(is_name(name.as_bytes()), "invalid name of a section: {name:?}");
        assert!(
            self.sections.iter().all(|section| section.name != name),
            "duplicate section {name}"
        );
        assert!(self.sections.len() < SECTIONS_MAX && self.open.is_none(), "cannot begin {name}");
        let range = self.position..self.position;
        self.sections.push(Section { name: name.to_owned(), range, checksum: 0 });
        self.open = Some(crc32fast::Hasher::new());
    }

    /// Adds bytes to the open section.
    ///
    /// # Errors
    ///
    /// [`Error::Write`] if the writer fails.
    ///
    /// # Panics
    ///
    /// If no section is open.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.open.as_mut().expect("a section is open").update(bytes);
        self.out.write_all(bytes)?;
        self.position += bytes.len();
        Ok(())
    }

    /// Ends the open section.
    ///
    /// # Errors
    ///
    /// [`Error::Write`] if writing the padding fails.
    ///
    /// # Panics
    ///
    /// If no section is open.
    pub fn end(&mut self) -> Result<(), Error> {
        let checksum = self.open.take().expect("a section is open").finalize();
        let section = self.sections.last_mut().expect("a section is open");
        section.range.end = self.position;
        section.checksum = checksum;
        self.pad()
    }

    /// The completed sections.
    pub(crate) fn sections(&self) -> &[Section] {
        &self.sections
    }

    fn pad(&mut self) -> Result<(), Error> {
        let padding = self.position.next_multiple_of(ALIGNMENT) - self.position;
        self.out.write_all(&[0; ALIGNMENT][..padding])?;
        self.position += padding;
        Ok(())
    }

    /// Writes the table and the trailer, and returns the writer.
    ///
    /// # Errors
    ///
    /// [`Error::Write`] if the writer fails.
    ///
    /// # Panics
    ///
    /// If a section is open.
    pub fn finish(mut self) -> Result<W, Error> {
        assert!(self.open.is_none(), "a section is still open");
        let table_offset = self.position;
        let mut table = Vec::with_capacity(self.sections.len() * ENTRY_BYTES);
        for section in &self.sections {
            let mut name = [0; NAME_BYTES_MAX];
            name[..section.name.len()].copy_from_slice(section.name.as_bytes());
            table.extend_from_slice(&name);
            table.extend_from_slice(&(section.range.start as u64).to_le_bytes());
            table.extend_from_slice(&(section.range.len() as u64).to_le_bytes());
            table.extend_from_slice(&section.checksum.to_le_bytes());
            table.extend_from_slice(&[0; 4]);
        }
        self.out.write_all(&table)?;
        self.position += table.len();
        self.pad()?;
        let mut trailer = [0; TRAILER_BYTES];
        trailer[..8].copy_from_slice(&(table_offset as u64).to_le_bytes());
        trailer[8..16].copy_from_slice(&(self.sections.len() as u64).to_le_bytes());
        trailer[16..24].copy_from_slice(&((self.position + TRAILER_BYTES) as u64).to_le_bytes());
        trailer[24..28].copy_from_slice(&crc32fast::hash(&table).to_le_bytes());
        let checksum = crc32fast::hash(&trailer[..28]);
        trailer[28..32].copy_from_slice(&checksum.to_le_bytes());
        trailer[56..].copy_from_slice(&TRAILER_MAGIC);
        self.out.write_all(&trailer)?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// An opened container: bytes in memory or a memory map, with the positions of the sections.
pub struct Reader {
    bytes: Box<dyn AsRef<[u8]> + Send + Sync>,
    sections: Vec<Section>,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("sections", &self.sections).finish_non_exhaustive()
    }
}

fn unreadable(what: impl Into<String>) -> Error {
    Error::Unreadable(what.into())
}

fn offset_of(value: u64) -> Result<usize, Error> {
    usize::try_from(value).map_err(|_| unreadable(format!("an offset of {value} bytes")))
}

impl Reader {
    /// Opens a container and verifies every byte.
    ///
    /// # Errors
    ///
    /// [`Error::Unreadable`] if the bytes are not a container of this version, are truncated or
    /// have trailing bytes; [`Error::Checksum`] if a section does not match its checksum.
    pub fn open(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Result<Self, Error> {
        let reader = Self::open_unchecked(bytes)?;
        reader.verify()?;
        Ok(reader)
    }

    /// Opens a container without reading its sections. Header, table and trailer are verified.
    ///
    /// # Errors
    ///
    /// [`Error::Unreadable`] as for [`open`](Self::open).
    pub fn open_unchecked(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Result<Self, Error> {
        let sections = read_table(bytes.as_ref())?;
        Ok(Self { bytes: Box::new(bytes), sections })
    }

    /// Verifies the checksum of every section, and that all padding is zero.
    ///
    /// # Errors
    ///
    /// [`Error::Checksum`] with the first section that does not match; [`Error::Unreadable`] if
    /// padding is not zero.
    pub(crate) fn verify(&self) -> Result<(), Error> {
        let mut end = HEADER_BYTES;
        for section in &self.sections {
            let bytes = self.range(section.range.clone());
            let found = crc32fast::hash(bytes);
            if found != section.checksum || bytes.len() != section.range.len() {
                return Err(Error::Checksum {
                    section: section.name.clone(),
                    offset: section.range.start,
                    expected: section.checksum,
                    found,
                });
            }
            self.verify_padding(end, section.range.start)?;
            end = section.range.end;
        }
        self.verify_padding(end, end.next_multiple_of(ALIGNMENT))
    }

    fn verify_padding(&self, from: usize, to: usize) -> Result<(), Error> {
        if self.range(from..to).iter().any(|&byte| byte != 0) {
            return Err(unreadable(format!(
                "bytes {from} to {to}, between sections, are not zero"
            )));
        }
        Ok(())
    }

    /// The sections, in the order written.
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// The bytes of a section, if it exists.
    pub fn section(&self, name: &str) -> Option<&[u8]> {
        let section = self.sections.iter().find(|section| section.name == name)?;
        Some(self.range(section.range.clone()))
    }

    /// The length of the whole container in bytes.
    pub fn len_bytes(&self) -> usize {
        self.bytes().len()
    }

    /// Heap memory of this reader in bytes, besides the container.
    pub(crate) fn heap_bytes(&self) -> usize {
        let names: usize = self.sections.iter().map(|section| section.name.capacity()).sum();
        names + self.sections.capacity() * size_of::<Section>()
    }

    /// The range of a section's bytes, for [`bytes`](Self::bytes); empty if the section does not
    /// exist.
    pub(crate) fn place(&self, name: &str) -> Range<usize> {
        let found = self.sections.iter().find(|section| section.name == name);
        found.map_or(0..0, |section| section.range.clone())
    }

    /// All bytes of the container.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        (*self.bytes).as_ref()
    }

    /// A range of the container; empty if the underlying bytes have become shorter.
    #[inline]
    fn range(&self, range: Range<usize>) -> &[u8] {
        self.bytes().get(range).unwrap_or(&[])
    }
}

/// Verifies header, table and trailer, and returns the sections of the table.
fn read_table(bytes: &[u8]) -> Result<Vec<Section>, Error> {
    if bytes.get(..8) != Some(&MAGIC) {
        return Err(unreadable("it does not start with the eight bytes \"CTSHARD\\n\""));
    }
    let version = u32_at(bytes, 8);
    if version != VERSION {
        return Err(unreadable(format!("version {version}; this build reads version {VERSION}")));
    }
    let header = bytes.get(..HEADER_BYTES).ok_or_else(|| unreadable("it is truncated"))?;
    if crc32fast::hash(&header[..12]) != u32_at(header, 12) || header[16..].iter().any(|&b| b != 0)
    {
        return Err(unreadable("the header is damaged"));
    }
    let trailer_offset = bytes.len().saturating_sub(TRAILER_BYTES).max(HEADER_BYTES);
    let trailer = &bytes[trailer_offset.min(bytes.len())..];
    if trailer.len() != TRAILER_BYTES || trailer[56..] != TRAILER_MAGIC {
        return Err(unreadable("it has no trailer: it is truncated, or has bytes after its end"));
    }
    if crc32fast::hash(&trailer[..28]) != u32_at(trailer, 28)
        || trailer[32..56].iter().any(|&b| b != 0)
    {
        return Err(unreadable("the trailer is damaged"));
    }
    let table_offset = offset_of(u64_at(trailer, 0))?;
    let count = offset_of(u64_at(trailer, 8))?;
    let total = offset_of(u64_at(trailer, 16))?;
    if total != bytes.len() {
        return Err(unreadable(format!("expected {total} bytes, found {}", bytes.len())));
    }
    let rest = bytes.get(table_offset..trailer_offset).unwrap_or(&[]);
    if count > SECTIONS_MAX || rest.len() != (count * ENTRY_BYTES).next_multiple_of(ALIGNMENT) {
        return Err(unreadable(format!(
            "its table of {count} sections does not fit before the trailer"
        )));
    }
    let (table, padding) = rest.split_at(count * ENTRY_BYTES);
    if crc32fast::hash(table) != u32_at(trailer, 24) || padding.iter().any(|&b| b != 0) {
        return Err(unreadable("the table of sections is damaged"));
    }
    let mut sections: Vec<Section> = Vec::with_capacity(count);
    let mut position = HEADER_BYTES;
    for entry in table.chunks_exact(ENTRY_BYTES) {
        let section = read_entry(entry)?;
        let second = sections.iter().any(|other| other.name == section.name);
        if second || section.range.start != position || section.range.end > table_offset {
            return Err(unreadable(format!("section {} is at the wrong offset", section.name)));
        }
        position = section.range.end.next_multiple_of(ALIGNMENT);
        sections.push(section);
    }
    if position != table_offset {
        return Err(unreadable("there are bytes between the last section and the table"));
    }
    Ok(sections)
}

fn read_entry(entry: &[u8]) -> Result<Section, Error> {
    let (name, rest) = entry.split_at(NAME_BYTES_MAX);
    let length = name.iter().position(|&byte| byte == 0).unwrap_or(NAME_BYTES_MAX);
    let name = match str::from_utf8(&name[..length]) {
        Ok(text) if is_name(text.as_bytes()) && name[length..].iter().all(|&byte| byte == 0) => {
            text
        }
        _ => return Err(unreadable("invalid name of a section in the table")),
    };
    let start = offset_of(u64_at(rest, 0))?;
    let end = offset_of(u64_at(rest, 8))?.checked_add(start);
    let end = end.ok_or_else(|| unreadable(format!("section {name} exceeds the container")))?;
    Ok(Section { name: name.to_owned(), range: start..end, checksum: u32_at(rest, 16) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(sections: &[(&str, &[u8])]) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new()).unwrap();
        for (name, bytes) in sections {
            writer.section(name, bytes).unwrap();
        }
        writer.finish().unwrap()
    }

    #[test]
    fn sections_come_back_aligned() {
        let bytes = written(&[("a", b"first"), ("empty", b""), ("b.2", &[7; 200])]);
        let reader = Reader::open(bytes).unwrap();
        assert_eq!(reader.section("a"), Some(&b"first"[..]));
        assert_eq!(reader.section("empty"), Some(&[][..]));
        assert_eq!(reader.section("b.2"), Some(&[7; 200][..]));
        assert_eq!(reader.section("c"), None);
        for section in reader.sections() {
            assert_eq!(section.range.start % ALIGNMENT, 0, "{}", section.name);
        }
    }

    #[test]
    fn a_section_may_be_written_in_parts() {
        let mut writer = Writer::new(Vec::new()).unwrap();
        writer.begin("parts");
        writer.write(b"one, ").unwrap();
        writer.write(b"two").unwrap();
        writer.end().unwrap();
        assert_eq!(writer.sections()[0].range, 64..72);
        assert_eq!(writer.finish().unwrap(), written(&[("parts", b"one, two")]));
    }

    #[test]
    fn every_change_of_one_bit_is_an_error() {
        let bytes = written(&[("a", b"first"), ("b", &[7; 70])]);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                assert!(Reader::open(changed).is_err(), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn every_other_length_is_an_error() {
        let bytes = written(&[("a", b"first"), ("b", &[7; 70])]);
        for len in 0..bytes.len() {
            assert!(Reader::open(bytes[..len].to_vec()).is_err(), "{len} bytes");
        }
        let mut longer = bytes;
        longer.push(0);
        assert!(Reader::open(longer).is_err());
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let message = |bytes: Vec<u8>| Reader::open(bytes).unwrap_err().to_string();
        assert!(message(b"{}".to_vec()).contains("does not start with"));
        let mut bytes = written(&[("a", b"first")]);
        assert!(message(bytes[..100].to_vec()).contains("truncated"));
        bytes[64] ^= 1;
        assert!(message(bytes.clone()).contains("section a"), "{}", message(bytes));
        let mut bytes = written(&[]);
        bytes[8] = 2;
        assert!(message(bytes).contains("version 2"));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(tail in prop::collection::vec(any::<u8>(), 0..300), cut: usize) {
            let mut bytes = written(&[("a", b"first")]);
            bytes.truncate(cut % (bytes.len() + 1));
            bytes.extend_from_slice(&tail);
            let _ = Reader::open(bytes);
        }
    }
}
