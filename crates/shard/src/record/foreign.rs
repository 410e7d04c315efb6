//! Recognises inputs that look like a table or stanzas to a parser and are none to a person: JSON that is not one object on a line,
//! sentences and log lines with equally many commas, lists and log lines that begin with a word and a colon, lines that end with a carriage return alone, a spreadsheet's own first line.

use std::collections::{HashMap, HashSet};

use serde::de::IgnoredAny;

use super::header::Row;

/// Words in a field, on average over a table, from which on the fields are parts of sentences.
const WORDS_MEAN_MAX: usize = 4;

/// What to do with an input whose lines end with a carriage return alone, as on old Macs: no format has such lines, and the
/// whole input would be one record.
pub(super) fn carriage_returns(sample: &[u8]) -> Option<String> {
    let ends = sample.iter().filter(|byte| **byte == b'\r').count();
    // What has NUL bytes is no text, and has bytes of any value.
    let has_lines =
        sample.iter().any(|byte| b"\n\0".contains(byte)) || sample.trim_ascii().is_empty();
    // A single one may be part of a text that has no line end at all.
    (ends > 1 && !has_lines).then(|| {
        "its lines end with a carriage return alone (CR, as on old Macs), which ends no record: convert it with \
         `tr '\\r' '\\n'`, or take it as one record with --format lines"
            .to_owned()
    })
}

/// What to do with `sep=;` in a first line, which tells spreadsheets the delimiter and is neither a header nor a record.
pub(super) fn spreadsheet_line(sample: &[u8]) -> Option<String> {
    let line = sample.split(|byte| *byte == b'\n').next()?.trim_ascii_end();
    let line = line.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(line);
    let [name @ .., delimiter] = line else { return None };
    let is_delimiter = b",;\t|".contains(delimiter);
    // `sep=` and a tab: the tab is blank at the line's end.
    let is_tab = line.eq_ignore_ascii_case(b"sep=");
    ((name.eq_ignore_ascii_case(b"sep=") && is_delimiter) || is_tab).then(|| {
        format!(
            "its first line, `{}`, tells spreadsheets the delimiter and is not a row: leave it out \
             (`tail -n +2 FILE | concertina … -`)",
            String::from_utf8_lossy(line)
        )
    })
}

/// What an input with NUL bytes most likely is, and what makes text of it.
pub(super) fn not_text(sample: &[u8]) -> &'static str {
    let starts: [(&[u8], &str); 11] = [
        (
            b"PAR1",
            "it is a Parquet file; in Python `polars.read_parquet(FILE).write_ndjson(…)` makes lines of it",
        ),
        (
            b"ARROW1",
            "it is an Arrow file; in Python `polars.read_ipc(FILE).write_ndjson(…)` makes lines of it",
        ),
        (b"Obj\x01", "it is an Avro file; `avro-tools tojson FILE` makes lines of it"),
        (
            b"SQLite format 3",
            "it is a database; `sqlite3 -csv -header FILE 'select …'` makes a table of it",
        ),
        (b"\xd0\xcf\x11\xe0", "it is a file of an office program; save it as CSV"),
        (b"%PDF-", "it is a PDF file; `pdftotext FILE -` makes text of it"),
        (b"\x1f\x8b", "it is compressed by gzip, twice; decompress it"),
        (b"\x04\x22\x4d\x18", "it is compressed by lz4; `lz4cat FILE` decompresses it"),
        (b"\x5d\x00\x00", "it is compressed by lzma; `xzcat FILE` decompresses it"),
        (b"7z\xbc\xaf", "it is a 7z archive; `7z x -so FILE` decompresses it"),
        (b"ORC", "it is an ORC file; convert it to CSV or JSON"),
    ];
    if let Some((_, what)) = starts.iter().find(|(start, _)| sample.starts_with(start)) {
        return what;
    }
    // The header of a tar archive has its name behind the first file's.
    if sample.get(257..262) == Some(b"ustar") {
        return "it is a tar archive; extract it (`tar -xOf FILE` writes all of its files)";
    }
    "it has NUL bytes (UTF-16 is converted by `iconv -f UTF-16 -t UTF-8`)"
}

/// Whether the input starts with an array of JSON, which may go on beyond the sample, and not with a field in brackets.
pub(super) fn is_json_array(sample: &[u8]) -> bool {
    if !sample.trim_ascii_start().starts_with(b"[") {
        return false;
    }
    let mut values = serde_json::Deserializer::from_slice(sample).into_iter::<IgnoredAny>();
    match values.next() {
        Some(Ok(_)) => {
            let after = sample.get(values.byte_offset()..).unwrap_or_default();
            matches!(after.first(), None | Some(b'\n' | b'\r' | b' ' | b'['))
        }
        Some(Err(error)) => error.is_eof(),
        None => false,
    }
}

/// Whether the fields of rows without a header are parts of sentences: many words in each, or a blank after every delimiter
/// and a word behind it.
pub(super) fn is_prose(rows: &[Row]) -> bool {
    let continues =
        |field: &Vec<u8>| matches!(&field[..], [b' ', first, ..] if first.is_ascii_alphabetic());
    let fields = rows.iter().map(Vec::len).sum::<usize>();
    let words: usize = rows.iter().flatten().map(|field| words(field)).sum();
    let all_continue = rows.iter().all(|row| row.iter().skip(1).all(continues));
    fields > 0 && (words > WORDS_MEAN_MAX * fields || all_continue)
}

/// Whether records that can be read as stanzas are some, and not lines of a log or a list that begin with a word and a colon
/// (`INFO: …`, `root:x:0`, `http://…`): a stanza has few names twice, and there is a blank behind the colon, or other stanzas have the
/// name too. Lines with one name that follow each other (`objectClass: …`) count once, unless there is nothing but them to judge by.
pub(super) fn are_stanzas(records: &[&[u8]]) -> bool {
    let named: Vec<Vec<NamedLine<'_>>> = records.iter().map(|record| named_lines(record)).collect();
    let mut records_with: HashMap<&[u8], usize> = HashMap::new();
    let (mut distinct, mut runs) = (0, 0);
    for lines in &named {
        let names: HashSet<&[u8]> = lines.iter().map(|line| line.name).collect();
        distinct += names.len();
        runs += lines.chunk_by(|one, next| records.len() > 1 && one.name == next.name).count();
        names.into_iter().for_each(|name| *records_with.entry(name).or_default() += 1);
    }
    let recurs = |name: &[u8]| records_with.get(name).is_some_and(|records| *records > 1);
    let lines = named.iter().flatten();
    let plausible = lines.clone().filter(|line| line.has_blank || recurs(line.name)).count();
    3 * distinct > 2 * runs && 2 * plausible > lines.count()
}

/// A line of a stanza that begins a field.
struct NamedLine<'a> {
    name: &'a [u8],
    /// Whether a blank or the line's end follows the colon.
    has_blank: bool,
}

fn named_lines(record: &[u8]) -> Vec<NamedLine<'_>> {
    let lines = record
        .split(|byte| *byte == b'\n')
        .filter(|line| !matches!(line.first(), Some(b' ' | b'\t')));
    let named = lines.filter_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = line.split_at(colon);
        Some(NamedLine { name, has_blank: value.get(1).is_none_or(u8::is_ascii_whitespace) })
    });
    named.collect()
}

fn words(field: &[u8]) -> usize {
    field.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_told_from_fields_in_brackets() {
        for text in
            ["[1,2]\n[3,4]\n", "[\n{\"a\":1},\n{\"a\":2}\n]\n", " [{\"a\": [1, \"x", "[", "[]"]
        {
            assert!(is_json_array(text.as_bytes()), "{text:?}");
        }
        for text in
            ["[date],[time]\n1,2\n", "[1],[2]\n", "[INFO] a, b\n", "a,[1]\n", "", "{\"a\":1}\n"]
        {
            assert!(!is_json_array(text.as_bytes()), "{text:?}");
        }
    }

    #[test]
    fn spreadsheets_and_old_macs_are_recognised() {
        for text in ["sep=;\na;b\n", "SEP=,\r\na,b\r\n", "\"sep=|\"\na|b\n", "sep=\t\na\tb\n"] {
            assert!(spreadsheet_line(text.as_bytes()).is_some(), "{text:?}");
        }
        for text in ["sep=a\n", "separator;b\n", "", "sep\n", "a;b\nsep=;\n"] {
            assert_eq!(spreadsheet_line(text.as_bytes()), None, "{text:?}");
        }
        assert!(carriage_returns(b"a,b\r1,2\r").is_some());
        for text in ["a\r\nb\r\n", "\r\r\r", "a", "a\r", "", "a\rb\rc\n", "a\rb\r\0"] {
            assert_eq!(carriage_returns(text.as_bytes()), None, "{text:?}");
        }
    }
}
