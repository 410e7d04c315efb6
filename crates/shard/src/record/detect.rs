//! Detects the format of an input from its first bytes.
//!
//! A format is chosen if every complete record of the sample (up to [`RECORDS_MAX`]) is valid in
//! it. Formats are tried from the most to the least specific: JSON, stanzas, CSV, lines. A few
//! malformed records at the start of an input can mislead the detection; then the format must be
//! given.

use std::collections::HashSet;

use super::split::record_len;
use super::{Format, Schema, csv};

/// The number of records of the sample that are examined.
const RECORDS_MAX: usize = 1000;
/// The most names kept for formats whose records may have further names.
const NAMES_MAX: usize = 256;
/// Delimiters with the least number of columns: `|` also occurs in prose.
const DELIMITERS: [(u8, usize); 4] = [(b'\t', 2), (b',', 2), (b';', 2), (b'|', 3)];

impl Schema {
    /// Detects the schema of an input that starts with `sample`; some hundred kilobytes are enough.
    /// The first attribute becomes the key if every record of the sample has exactly one value of
    /// it, and all differ.
    pub fn detect(sample: &[u8]) -> Self {
        let mut schema = [Self::new(Format::JsonLines), Self::new(Format::Stanzas)]
            .into_iter()
            .find(|schema| schema.reads(sample))
            .or_else(|| detect_csv(sample))
            .unwrap_or_else(|| Self::new(Format::Lines));
        if schema.names.is_empty() {
            schema.names = schema.names_in(sample);
        }
        schema.key = schema.likely_key(sample);
        schema
    }

    /// Detects names and key of a schema whose format is given.
    pub fn detect_as(format: Format, sample: &[u8]) -> Self {
        let mut schema = Self::new(format);
        if let Format::Csv { delimiter, header } = format {
            schema.names = names(delimiter, header, sample).unwrap_or_default();
        } else if schema.names.is_empty() {
            schema.names = schema.names_in(sample);
        }
        if format != Format::Files {
            schema.key = schema.likely_key(sample);
        }
        schema
    }

    fn reads(&self, sample: &[u8]) -> bool {
        let records = records(self.format, sample);
        // Requires two lines with a colon: prose often has one.
        let enough = |fields: usize| self.format != Format::Stanzas || fields >= 2;
        !records.is_empty()
            && records.iter().all(|record| {
                self.fields(record).is_ok_and(|fields| {
                    let named = |field: &super::Field| is_name(&field.name);
                    enough(fields.len())
                        && (self.format != Format::Stanzas || fields.iter().all(named))
                })
            })
    }

    /// The names in the order of the sample.
    fn names_in(&self, sample: &[u8]) -> Vec<String> {
        let mut known = HashSet::new();
        let mut names = Vec::new();
        for record in records(self.format, sample) {
            for field in self.fields(record).unwrap_or_default() {
                if names.len() < NAMES_MAX && !known.contains(&*field.name) {
                    known.insert(field.name.to_string());
                    names.push(field.name.into_owned());
                }
            }
        }
        names
    }

    fn likely_key(&self, sample: &[u8]) -> Option<String> {
        let first = self.names.first()?;
        if self.format == Format::Lines {
            return None;
        }
        let mut values = HashSet::new();
        let header = usize::from(matches!(self.format, Format::Csv { header: true, .. }));
        for record in records(self.format, sample).into_iter().skip(header) {
            let fields = self.fields(record).ok()?;
            let mut own = fields.into_iter().filter(|field| field.name == *first);
            let value = own.next()?.value.into_owned();
            if own.next().is_some() || !values.insert(value) {
                return None;
            }
        }
        // One record does not show whether values repeat.
        (values.len() > 1).then(|| first.clone())
    }
}

/// The complete records of the sample. The last one may be cut short, so it counts only if it is
/// the only one.
fn records(format: Format, sample: &[u8]) -> Vec<&[u8]> {
    let mut rest = sample;
    let mut records = Vec::new();
    while records.len() < RECORDS_MAX && !rest.is_empty() {
        let Some(len) = record_len(format, rest, false) else {
            if records.is_empty() || rest.ends_with(b"\n") {
                records.push(rest);
            }
            break;
        };
        let (record, after) = rest.split_at(len);
        records.push(record);
        rest = after;
    }
    records
}

fn detect_csv(sample: &[u8]) -> Option<Schema> {
    DELIMITERS.into_iter().find_map(|(delimiter, columns_min)| {
        let rows = rows(delimiter, sample)?;
        let columns = rows.first()?.len();
        let even = rows.len() > 1 && rows.iter().all(|row| row.len() == columns);
        if columns < columns_min || !even {
            return None;
        }
        let header = looks_like_header(&rows);
        let names = names(delimiter, header, sample)?;
        Some(Schema { format: Format::Csv { delimiter, header }, names, key: None })
    })
}

fn names(delimiter: u8, header: bool, sample: &[u8]) -> Option<Vec<String>> {
    let format = Format::Csv { delimiter, header };
    let first = *records(format, sample).first()?;
    if header {
        return csv::header(delimiter, first).ok();
    }
    Some((0..csv::values(delimiter, first).ok()?.len()).map(csv::column_name).collect())
}

fn rows(delimiter: u8, sample: &[u8]) -> Option<Vec<Vec<Vec<u8>>>> {
    records(Format::Csv { delimiter, header: false }, sample)
        .into_iter()
        .map(|record| {
            let values = csv::values(delimiter, record).ok()?;
            Some(values.into_iter().map(|value| value.into_owned()).collect())
        })
        .collect()
}

/// Whether a row is a header: its fields are distinct names, and no column contains its own name.
fn looks_like_header(rows: &[Vec<Vec<u8>>]) -> bool {
    let Some((first, others)) = rows.split_first() else { return false };
    let distinct: HashSet<&[u8]> = first.iter().map(Vec::as_slice).collect();
    let first = first.iter().map(|name| name.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(name));
    distinct.len() == rows[0].len()
        && first.enumerate().all(|(column, name)| {
            std::str::from_utf8(name).is_ok_and(is_name)
                && others.iter().all(|row| row.get(column).is_none_or(|value| value != name))
        })
}

fn is_name(text: &str) -> bool {
    text.len() <= 64
        && text.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_alphanumeric() || " _-.:/#".contains(c))
}
