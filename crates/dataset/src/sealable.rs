//! Which records a log may hold: those that a seal makes into the same records of a shard, whatever stands before and behind them.

use shard::record::{Builder, Format, RECORD_BYTES_MAX, Records, Report, Schema};

use super::chunk::CHUNK_BYTES_MAX;
use super::error::{Error, Result, bail, ensure};

/// The overhead of an appended record in a chunk, bytes.
const ENTRY_BYTES: u64 = 5;

/// Splits bytes into records to append. Each is completed with the format's separator, so that it
/// stays the same record when others follow. The first row of a table is left out if it has the names of the columns, or those of
/// the `header` that the dataset's own files have.
pub fn split(schema: &Schema, header: Option<&[String]>, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
    let known: Vec<&[String]> = [&schema.names[..]].into_iter().chain(header).collect();
    ensure!(
        schema.format != Format::Files,
        Invalid,
        "whole files cannot be appended: import them as a new dataset"
    );
    let all_bytes = bytes;
    let bytes = without_blank_lines(schema.format, bytes);
    let (records, mut report) = records_of(schema, bytes)?;
    let left_out = &all_bytes[..all_bytes.len() - bytes.len()];
    let lines_left_out = left_out.iter().filter(|byte| **byte == b'\n').count() as u64;
    report.first_bad.iter_mut().for_each(|bad| bad.line += lines_left_out);
    let chunk_bytes = bytes.len() as u64 + ENTRY_BYTES * records.len() as u64;
    ensure!(
        chunk_bytes <= CHUNK_BYTES_MAX as u64,
        Invalid,
        "{} records of {} bytes exceed the limit of one append; append them in parts",
        records.len(),
        bytes.len()
    );
    if let Some(bad) = report.first_bad.first() {
        let bad_records = report.bad;
        bail!(
            Invalid,
            "{bad_records} records are malformed, the first at {bad}; nothing was appended"
        );
    }
    let mut all = Vec::with_capacity(records.len());
    for record in 0..records.len() {
        let range =
            records.range(record).ok_or_else(|| Error::inconsistent("a record has a place"))?;
        let start = range.start;
        let mut record = bytes
            .get(range)
            .ok_or_else(|| Error::inconsistent("a record is within the bytes"))?
            .to_vec();
        if all.is_empty() && is_header(schema, &known, &record) {
            continue;
        }
        ensure!(
            !all.is_empty() || !is_other_header(schema, &known, &record),
            Invalid,
            "the first row has the names of the columns in another order or spelling: bring the columns into the order {}, or \
             leave that row out; nothing was appended",
            order_of(&known)
        );
        let missing = schema.missing_separator(bytes.get(..start).unwrap_or_default(), &record);
        record.extend_from_slice(missing);
        all.push(record);
    }
    // A shard is built from their concatenation, and must split it into the same records.
    let (again, report) = records_of(schema, &all.concat())?;
    let same = (0..again.len().max(all.len()))
        .all(|at| again.range(at).map(|range| range.len()) == all.get(at).map(Vec::len));
    ensure!(
        same && report.bad == 0,
        Invalid,
        "the records would change when appended to others (one is too long, or an empty line is \
         not a record by itself); nothing was appended"
    );
    Ok(all)
}

/// Whether appended records can be sealed: whether each is one record of the dataset, whatever stands before and
/// behind it. [`split`] makes such records; a log that something else wrote may have others, and would never be
/// sealed.
///
/// # Errors
///
/// If one is not.
pub(super) fn require_sealable(schema: &Schema, records: &[&[u8]]) -> Result<()> {
    let Some(first) = records.first() else { return Ok(()) };
    ensure!(schema.format != Format::Files, Damaged, "it appends to whole files");
    if let Some(long) = records.iter().find(|record| record.len() > RECORD_BYTES_MAX) {
        bail!(
            Damaged,
            "it appends a record of {} bytes; a record has at most {RECORD_BYTES_MAX}",
            long.len()
        );
    }
    let (split, report) = records_of(schema, &records.concat())?;
    let alone = without_blank_lines(schema.format, first).len() == first.len();
    let ended = records.iter().all(|record| schema.missing_separator(b"", record).is_empty());
    let same = split.len() == records.len()
        && records
            .iter()
            .enumerate()
            .all(|(at, record)| split.range(at).is_some_and(|range| range.len() == record.len()));
    ensure!(
        alone && ended && same && report.bad == 0,
        Damaged,
        "it appends what is not a record of this dataset by itself"
    );
    Ok(())
}

fn records_of(schema: &Schema, bytes: &[u8]) -> Result<(Records, Report), shard::Error> {
    let mut builder = Builder::new(schema.clone());
    builder.push(bytes)?;
    builder.finish()
}

/// Strips blank lines at the start, which would become part of the previous record.
fn without_blank_lines(format: Format, bytes: &[u8]) -> &[u8] {
    let blank: &[u8] = match format {
        Format::JsonLines | Format::Stanzas => b" \t\r",
        Format::Csv { .. } => b"\r",
        _ => return bytes,
    };
    let mut rest = bytes;
    while let Some(newline) = rest.iter().position(|byte| *byte == b'\n') {
        let (line, after) = rest.split_at(newline + 1);
        if !line[..newline].iter().all(|byte| blank.contains(byte)) {
            break;
        }
        rest = after;
    }
    // A last line without a line break may be blank too.
    if rest.iter().all(|byte| blank.contains(byte)) { &[] } else { rest }
}

/// Whether a row of a CSV file is its header, which appended bytes may include. It is read as an import reads one: names are trimmed, those of
/// columns without one are numbered.
fn is_header(schema: &Schema, known: &[&[String]], record: &[u8]) -> bool {
    // A row of empty values has the names of a table without a header.
    schema.format.header_names(record).is_some_and(|names| known.contains(&&names[..]))
        && schema
            .fields(record)
            .is_ok_and(|fields| fields.iter().any(|field| !field.value.trim_ascii().is_empty()))
}

/// The order of columns as an error shows it: their names, and those in the header of the dataset's files if they differ.
fn order_of(known: &[&[String]]) -> String {
    match known {
        [names, header] if names != header => {
            format!("{} ({} in its files)", names.join(", "), header.join(", "))
        }
        _ => known.first().map(|names| names.join(", ")).unwrap_or_default(),
    }
}

/// Whether a row of a table has the names of all of its columns, in another order or in other letters: the header of a file
/// whose rows would get into the wrong columns. A table of a single column may well have its name as a value.
fn is_other_header(schema: &Schema, known: &[&[String]], record: &[u8]) -> bool {
    if !matches!(schema.format, Format::Csv { .. }) || schema.names.len() < 2 {
        return false;
    }
    let sorted = |names: &[String]| {
        let mut names: Vec<_> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
        names.sort_unstable();
        names
    };
    let Some(names) = schema.format.header_names(record) else { return false };
    // The names themselves are those of a header, or of a row without values.
    !known.contains(&&names[..]) && known.iter().any(|known| sorted(&names) == sorted(known))
}
