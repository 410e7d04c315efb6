//! The boundaries of the records of a text.
//!
//! Stored as one Elias–Fano sequence of the starts: about `2 + log₂(mean length)` bits per record
//! (12 bits for records of 788 bytes: 0.2 % of the text). Finding the record of an offset is a
//! predecessor search: `O(log n)`.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::format::Format;
use super::order::Order;
use super::schema::Schema;
use crate::bits::elias_fano::EliasFano;
use crate::error::Error;

/// The version of the encoding.
const VERSION: u32 = 1;
/// The name of the section in errors.
const SECTION: &str = "records";

/// The records of a text: their schema and their starts. Built by a [`Builder`](super::Builder).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Records {
    about: About,
    starts: EliasFano,
    /// The tables of the attributes in `about.orders`.
    orders: Vec<Order>,
}

/// Metadata, stored before the starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct About {
    schema: Schema,
    text_bytes: u64,
    /// Whether every record starts at the start of a line and ends with a newline; unknown for
    /// files.
    whole_lines: bool,
    /// Whether every record is valid in its format; unknown for files, and for texts stored before
    /// this field existed.
    #[serde(default)]
    all_good: bool,
    /// The attributes with tables of numbers, stored in the parts after the starts.
    orders: Vec<String>,
}

impl Records {
    pub(super) fn new(
        schema: Schema,
        starts: &[u64],
        text_bytes: usize,
        whole_lines: bool,
        all_good: bool,
    ) -> Result<Self, Error> {
        let text_bytes = text_bytes as u64;
        let about = About { schema, text_bytes, whole_lines, all_good, orders: Vec::new() };
        Ok(Self { about, starts: EliasFano::new(starts)?, orders: Vec::new() })
    }

    pub(super) fn add_order(&mut self, attribute: String, order: Order) {
        self.about.orders.push(attribute);
        self.orders.push(order);
    }

    /// The attributes with tables of numbers.
    pub fn ordered(&self) -> &[String] {
        &self.about.orders
    }

    /// The table of an attribute's numbers, if one was built.
    pub(crate) fn order(&self, attribute: &str) -> Option<&Order> {
        let at = self.about.orders.iter().position(|name| name == attribute)?;
        self.orders.get(at)
    }

    /// The schema: the format of the records and their attributes.
    pub fn schema(&self) -> &Schema {
        &self.about.schema
    }

    /// Number of records in the text.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Length of the text, in bytes.
    pub fn text_len(&self) -> usize {
        self.about.text_bytes as usize
    }

    /// Whether every record starts at the start of a line, and ends with the end of one.
    pub(crate) fn are_whole_lines(&self) -> bool {
        self.about.whole_lines
    }

    /// Whether no record is malformed, so that each has the attributes in its bytes.
    pub(crate) fn are_all_good(&self) -> bool {
        self.about.all_good
    }

    /// The range of a record, including the separator after it; `None` past the last.
    pub fn range(&self, record: usize) -> Option<Range<usize>> {
        let start = self.starts.get(record)?;
        let end = self.starts.get(record + 1).unwrap_or(self.about.text_bytes);
        Some(start as usize..end as usize)
    }

    /// The record that contains the byte at `offset`; `None` for a byte of the header, or past the
    /// text.
    pub fn record_of(&self, offset: usize) -> Option<usize> {
        if offset >= self.text_len() {
            return None;
        }
        self.starts.predecessor(offset as u64)
    }

    /// Whether no newline stands before the first record: only a header ends with one, a byte-order
    /// mark does not.
    pub(crate) fn starts_without_newline(&self) -> bool {
        let is_header = matches!(self.schema().format, Format::Csv { header: true, .. });
        !self.is_empty() && (self.header().is_empty() || !is_header)
    }

    /// The bytes before the first record: the header of a CSV file, or a byte-order mark.
    pub fn header(&self) -> Range<usize> {
        0..self.starts.get(0).unwrap_or(self.about.text_bytes) as usize
    }

    /// Encodes the section: version (4, little-endian), then parts, each a length (8) and its
    /// bytes. The parts are the JSON of schema, `text_bytes`, `whole_lines`, `all_good` and
    /// `orders`; the starts (`EliasFano::encode`); and for each of `orders` the count of its
    /// numbers (8), their records (`⌈log₂ records⌉` bits each, packed lowest first into words of 64
    /// bits) and their keys (again `EliasFano::encode`).
    pub fn encode(&self) -> Vec<u8> {
        // Cannot fail: JSON can represent strings, numbers and enums.
        let about = serde_json::to_vec(&self.about).unwrap_or_default();
        let mut bytes = VERSION.to_le_bytes().to_vec();
        let orders = self.orders.iter().map(Order::encode);
        for part in [about, self.starts.encode()].into_iter().chain(orders) {
            bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bytes.extend_from_slice(&part);
        }
        bytes
    }

    /// Decodes the bytes of [`encode`](Self::encode), and checks every start.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`] or [`Error::Schema`] if the bytes are malformed, [`Error::Unreadable`]
    /// for another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let (version, mut rest) = bytes
            .split_first_chunk()
            .ok_or_else(|| damaged(format!("{} bytes are too short for a header", bytes.len())))?;
        let version = u32::from_le_bytes(*version);
        if version != VERSION {
            return Err(Error::Unreadable(format!(
                "records have version {version}; this build reads version {VERSION}"
            )));
        }
        let about: About =
            serde_json::from_slice(part(&mut rest)?).map_err(|error| damaged(error.to_string()))?;
        about.schema.check()?;
        let starts = part(&mut rest)?;
        let starts = EliasFano::decode(starts)?;
        let mut before = None;
        for start in starts.iter() {
            if before >= Some(start) || start >= about.text_bytes {
                return Err(damaged(format!("empty record at offset {start}")));
            }
            before = Some(start);
        }
        if usize::try_from(about.text_bytes).is_err() {
            return Err(damaged(format!(
                "text length {} exceeds the address space",
                about.text_bytes
            )));
        }
        let order = |_| Order::decode(part(&mut rest)?, starts.len());
        let orders = about.orders.iter().map(order).collect::<Result<_, _>>()?;
        if !rest.is_empty() {
            return Err(damaged(format!("{} unexpected bytes after the last part", rest.len())));
        }
        Ok(Self { about, starts, orders })
    }
}

/// Splits a part off the front of `rest`: a length and that number of bytes.
fn part<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Error> {
    let short = || damaged("truncated: the section ends within a part".to_owned());
    let (len, after) = rest.split_first_chunk().ok_or_else(short)?;
    let len = usize::try_from(u64::from_le_bytes(*len)).unwrap_or(usize::MAX);
    let (part, after) = after.split_at_checked(len).ok_or_else(short)?;
    *rest = after;
    Ok(part)
}

fn damaged(what: String) -> Error {
    Error::Damaged { section: SECTION, what }
}
