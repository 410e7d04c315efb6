//! The start of an input: which files of it are looked at, the format found there, and the headers of tables.

use std::io::{self, BufRead, Read as _};
use std::path::{Path, PathBuf};

use shard::record::detect::Detection;
use shard::record::{BYTE_ORDER_MARK, Format, Number, Sample, Schema};

use super::error::{Context as _, Result, ensure};
use super::options::Options;

/// The bytes of files with a single line that are looked at, and kept meanwhile.
const KEPT_BYTES_MAX: usize = 1 << 20;
/// The longest header of a table, bytes.
pub(super) const HEADER_BYTES_MAX: usize = 1 << 20;

/// The starts of the first files of an input: up to one that has more than a line. A file without records, or with a header
/// alone, shows no format.
#[derive(Default)]
pub(super) struct Starts {
    all: Vec<FileStart>,
}

/// The start of a file.
pub(super) struct FileStart {
    /// The file.
    pub path: PathBuf,
    /// What it begins with.
    pub sample: Sample,
}

impl Starts {
    /// Whether another file should be looked at, if there is one. Its start is kept in memory.
    pub fn is_short(&self) -> bool {
        let bytes: usize = self.all.iter().map(|start| start.sample.bytes.len()).sum();
        bytes < KEPT_BYTES_MAX && self.all.iter().all(|start| lines(&start.sample) < 2)
    }

    /// Adds the start of the next file.
    pub fn add(&mut self, path: &Path, sample: Sample) {
        self.all.push(FileStart { path: path.to_owned(), sample });
    }

    /// The starts, in the order of the files.
    pub fn into_vec(self) -> Vec<FileStart> {
        self.all
    }

    /// The schema with its key, by the first file of those with the most to see.
    ///
    /// # Errors
    ///
    /// If the format would be a guess, or the options contradict the sample.
    pub fn detect(&self, options: &Options) -> Result<Detection> {
        let none = FileStart { path: PathBuf::from("-"), sample: Sample::default() };
        // The last of equals is the greatest: in reverse it is the first.
        let start = self.all.iter().rev().max_by_key(|start| lines(&start.sample));
        let start = start.unwrap_or(&none);
        let found = detect(&start.sample, &start.path, options);
        if self.all.len() > 1 { found.context(|| start.path.display().to_string()) } else { found }
    }
}

/// The lines that are not blank, up to two.
fn lines(sample: &Sample) -> usize {
    let lines = sample.bytes.split(|byte| *byte == b'\n');
    lines.filter(|line| !line.trim_ascii().is_empty()).take(2).count()
}

/// The schema of an input by the start of a file.
fn detect(sample: &Sample, path: &Path, options: &Options) -> Result<Detection> {
    let records = sample.records();
    let mut found = Schema::detect_with(&records, &options.hints())?;
    let names = &found.schema.names;
    if let Some(order) = options.orders.iter().find(|order| !names.contains(order)) {
        ensure!(
            !found.schema.is_closed(),
            Invalid,
            "unknown attribute {order:?} to order by; the attributes are: {}",
            names.join(", ")
        );
    }
    let (schema, warning) = (&mut found.schema, found.warning.take());
    if options.key.is_some() {
        schema.key.clone_from(&options.key);
    }
    let is_guess = schema.format == Format::Lines && options.format.is_none();
    let by_name = if is_guess && warning.is_none() { table_by_name(path) } else { None };
    let warnings: Vec<String> = warning
        .into_iter()
        .chain(by_name)
        .chain(missing_attributes(schema, &records, options))
        .collect();
    found.warning = (!warnings.is_empty()).then(|| warnings.join("; "));
    Ok(found)
}

/// What to say of attributes that are given and that none of the records has, or has as a number where numbers are ordered. It may
/// be in later ones.
fn missing_attributes(schema: &Schema, text: &[u8], options: &Options) -> Vec<String> {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let is_number = |value: &[u8]| Number::parse(value).is_some();
    let key = options.key.iter().filter(|key| !has_value(schema, text, key, |_| true));
    let key = key.map(|key| format!("none of the records at its start has {key:?} (--key)"));
    let orders = options.orders.iter().filter(|order| !has_value(schema, text, order, is_number));
    let orders = orders.map(|order| {
        format!("none of the records at its start has a number as {order:?} (--order)")
    });
    if text.is_empty() { Vec::new() } else { key.chain(orders).collect() }
}

/// Whether a record of a text has a value of an attribute that is as wanted.
fn has_value(schema: &Schema, text: &[u8], name: &str, is_wanted: impl Fn(&[u8]) -> bool) -> bool {
    let mut rest = text;
    while let Some(len) = schema.record_len(rest, true) {
        let (record, after) = rest.split_at(len);
        let fields = schema.fields(record).unwrap_or_default();
        if fields.iter().any(|field| field.name == name && is_wanted(&field.value)) {
            return true;
        }
        rest = after;
    }
    false
}

/// What to say of an input with the format `lines` whose name promises another one.
fn table_by_name(path: &Path) -> Option<String> {
    let mut name = path.to_owned();
    if name.extension().is_some_and(|end| ["gz", "bz2", "zst"].iter().any(|known| end == *known)) {
        name.set_extension("");
    }
    let end = name.extension()?.to_str()?.to_ascii_lowercase();
    let (format, promised) = match &end[..] {
        "csv" => ("csv", "rows with equally many fields, two at least"),
        "tsv" => ("tsv", "rows with equally many fields, two at least"),
        "json" | "jsonl" | "ndjson" => ("json", "an object on each line"),
        _ => return None,
    };
    Some(format!(
        "its name ends in .{end}, but its start does not have {promised}; --format {format} takes it for that"
    ))
}

/// The first row of a table, read up to its line end, and the names in it; no names if it is not a row.
///
/// # Errors
///
/// If the input cannot be read.
pub(super) fn read_header(format: Format, input: &mut impl BufRead) -> io::Result<Header> {
    let mut header = Header { bytes: Vec::new(), names: None };
    let mut limited = input.take(HEADER_BYTES_MAX as u64);
    // Line breaks within quotes, and empty lines before the row, belong to it.
    while limited.read_until(b'\n', &mut header.bytes)? > 0 {
        let is_blank = header.bytes.iter().all(|byte| matches!(byte, b'\n' | b'\r'));
        header.names = format.header_names(&header.bytes).filter(|_| !is_blank);
        if header.names.is_some() {
            break;
        }
    }
    Ok(header)
}

/// Whether the first row of a file of a table, which is called `shown`, is left out: an earlier file has this header. `known` are the
/// names in that, or become those of this one. A file without rows has no header, and is as it is.
///
/// # Errors
///
/// If it is another header.
pub(super) fn is_left_out(
    known: &mut Option<Vec<String>>,
    header: &Header,
    shown: &str,
) -> Result<bool> {
    if header.bytes.trim_ascii().is_empty() {
        return Ok(false);
    }
    let Some(names) = known else {
        known.clone_from(&header.names);
        return Ok(false);
    };
    ensure!(
        header.names.as_ref() == Some(names),
        Invalid,
        "{shown}: the first line is not the header of the first file; name files with the same columns"
    );
    Ok(true)
}

/// What a text lacks of the separator of its records, by its last two bytes.
pub(super) fn separator(end: &[u8], format: Format) -> &'static str {
    match (end.ends_with(b"\n"), format) {
        _ if end.is_empty() => "",
        (false, Format::Stanzas) => "\n\n",
        (true, Format::Stanzas) if end != b"\n\n" => "\n",
        (false, _) => "\n",
        (true, _) => "",
    }
}

/// Makes `end`, the last two bytes of a text, those of the text with more bytes behind it.
pub(super) fn follow_end(end: &mut Vec<u8>, bytes: &[u8]) {
    end.extend_from_slice(bytes.get(bytes.len().saturating_sub(2)..).unwrap_or_default());
    end.drain(..end.len().saturating_sub(2));
}

/// The first row of a table.
#[derive(Debug)]
pub(super) struct Header {
    /// Its bytes, with its line end.
    pub bytes: Vec<u8>,
    /// The names of the columns.
    pub names: Option<Vec<String>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_promise_a_table_are_warned_of() {
        for name in ["a.csv", "dir/a.TSV", "a.csv.gz", "b.jsonl", "x.json.zst"] {
            assert!(table_by_name(Path::new(name)).is_some(), "{name}");
        }
        for name in ["a.log", "-", "csv", "a.gz", ".csv", "a.txt.gz"] {
            assert_eq!(table_by_name(Path::new(name)), None, "{name}");
        }
    }

    #[test]
    fn a_header_ends_behind_its_quotes() {
        let csv = Format::Csv { delimiter: b',', header: true };
        let mut text = &b"\r\n\"a\nb\",c\n1,2\n"[..];
        let header = read_header(csv, &mut text).unwrap();
        assert_eq!(header.names.unwrap(), ["a\nb", "c"]);
        assert_eq!((&header.bytes[..], text), (&b"\r\n\"a\nb\",c\n"[..], &b"1,2\n"[..]));
        let mut open = &b"\"a\nb,c\n"[..];
        assert_eq!(read_header(csv, &mut open).unwrap().names, None);
    }
}
