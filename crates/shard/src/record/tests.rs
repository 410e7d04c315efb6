use proptest::prelude::*;

use super::field::{DEPTH_MAX, NAME_BYTES_MAX};
use super::*;
use crate::error::Error;
use crate::sample;

fn build(schema: Schema, text: &[u8], chunk: usize, max: usize) -> (Records, Report) {
    let mut builder = Builder::new(schema).record_bytes_max(max);
    for piece in text.chunks(chunk.max(1)) {
        builder.push(piece).unwrap();
    }
    builder.finish().unwrap()
}

fn split<'a>(schema: &Schema, text: &'a [u8]) -> Vec<&'a [u8]> {
    let (records, _) = build(schema.clone(), text, usize::MAX, RECORD_BYTES_MAX);
    (0..records.len()).map(|record| &text[records.range(record).unwrap()]).collect()
}

fn check_split(format: Format, records: &[&str]) {
    let text = records.concat();
    let split = split(&Schema::new(format), text.as_bytes());
    let shown: Vec<&str> = split.iter().map(|r| std::str::from_utf8(r).unwrap()).collect();
    assert_eq!(shown, records, "{format:?}");
}

const CSV: Format = Format::Csv { delimiter: b',', header: false };

#[test]
fn records_end_where_their_format_says() {
    check_split(Format::Lines, &["a\n", "\n", "b\r\n", "c"]);
    check_split(Format::JsonLines, &["{}\n\n \r\n", "{\"a\":1}\n", "x"]);
    check_split(Format::JsonLines, &["\n\n{}\n", "{}\n"]);
    check_split(Format::Stanzas, &["\nA: 1\nB: 2\n b\n\n\n", "A: 2\n \t\n", "A: 3"]);
    check_split(Format::Stanzas, &["A: 1\r\n\r\n", "A: 2\r\n"]);
    check_split(CSV, &["a,\"b\nc\",d\n", "\"\"\"\n\",\n\n", "a\"b\n", "\"open\n", "to the end"]);
    check_split(Format::Lines, &[]);
}

fn check_fields(format: Format, record: &str, expected: &[(&str, &str)]) {
    let schema = Schema::new(format);
    let fields = schema.fields(record.as_bytes()).unwrap();
    let shown: Vec<(&str, &str)> =
        fields.iter().map(|f| (&*f.name, std::str::from_utf8(&f.value).unwrap())).collect();
    assert_eq!(shown, expected, "{record}");
}

#[test]
fn fields_are_named_and_decoded() {
    check_fields(
        Format::JsonLines,
        r#" {"a":{"b":[1.50,"x\u0041\n"],"c":{}},"d":null,"a":true,"e":[[{"f":-0}]]} "#,
        &[("a.b", "1.50"), ("a.b", "xA\n"), ("d", "null"), ("a", "true"), ("e.f", "-0")],
    );
    // Half of a pair of escapes, as Python writes bytes of a file's name that are no text.
    let half = Schema::new(Format::JsonLines);
    let half = half.fields(b"{\"a\\udcff\":\"x\\ud800\"}").unwrap();
    assert_eq!(
        (&*half[0].name, &*half[0].value),
        ("a\u{fffd}\u{fffd}\u{fffd}", &b"x\xed\xa0\x80"[..])
    );
    check_fields(
        Format::Stanzas,
        "\nA: 1\nB:\n x\n y \nC:\tz:z\r\nempty:\n\n",
        &[("A", "1"), ("B", "x\n y"), ("C", "z:z"), ("empty", "")],
    );
    check_fields(
        CSV,
        "a,\"b\"\"\n,\",\"\",,d\"e\r\n",
        &[
            ("column1", "a"),
            ("column2", "b\"\n,"),
            ("column3", ""),
            ("column4", ""),
            ("column5", "d\"e"),
        ],
    );
    check_fields(Format::Lines, "a b\r\n", &[("line", "a b")]);
    check_fields(Format::Files, "dir/a\nx\ny\n", &[("path", "dir/a"), ("content", "x\ny\n")]);
}

#[test]
fn bad_records_are_kept_and_reported_by_line() {
    let deep = format!("{}1{}", "{\"a\":".repeat(DEPTH_MAX + 1), "}".repeat(DEPTH_MAX + 1));
    let long_name = format!("{{\"{}\":1}}", "n".repeat(NAME_BYTES_MAX + 1));
    let many = format!("{{\"a\":[0{}]}}", ",0".repeat(FIELDS_MAX));
    let text = format!("{{}}\n\n{{\n[1]\n{deep}\n{long_name}\n{many}\n{{\"a\":\"\\ud8\"}}\n");
    let (records, report) = build(Schema::new(Format::JsonLines), text.as_bytes(), 7, 1 << 20);
    assert_eq!((report.records, report.bad), (7, 6));
    assert_eq!(records.range(1), Some(4..6));
    let lines: Vec<u64> = report.first_bad.iter().map(|bad| bad.line).collect();
    assert_eq!(lines, [3, 4, 5, 6, 7, 8]);
    let problems: Vec<&Problem> = report.first_bad.iter().map(|bad| &bad.problem).collect();
    assert!(matches!(
        problems[..],
        [
            Problem::Json(_),
            Problem::NotAnObject,
            Problem::TooDeep,
            Problem::Name,
            Problem::TooManyFields,
            Problem::Json(_)
        ]
    ));

    let csv = Schema::detect(b"a,b\n1,2\n3,4\n");
    let (_, report) = build(csv, b"a,b\n1,2\n3\n\"x\"y,4\n5,6\n", 3, 1 << 20);
    let shown: Vec<String> = report.first_bad.iter().map(BadRecord::to_string).collect();
    assert_eq!(
        shown,
        ["line 3: 1 fields in a row of 2 columns", "line 4: field 1: unbalanced quotes"]
    );

    let stanzas = Schema::new(Format::Stanzas);
    let (_, report) = build(stanzas, b"A: 1\n\n\nB: 2\nno name\n\n folded\n", 3, 1 << 20);
    let shown: Vec<String> = report.first_bad.iter().map(BadRecord::to_string).collect();
    assert_eq!(
        shown,
        [
            "line 4: line 2 of the stanza is not `Name: value`",
            "line 7: line 1 of the stanza is not `Name: value`"
        ]
    );
}

/// A quote that never closes must not swallow the rows after it.
#[test]
fn a_stray_quote_costs_one_row() {
    let text = [b"1,\"x\n".as_slice(), &b"2,3\n".repeat(50)].concat();
    for chunk in [1, 10, 1000] {
        let (records, report) = build(Schema::new(CSV), &text, chunk, 64);
        assert_eq!((records.len(), report.bad), (51, 1));
        assert_eq!(records.range(0), Some(0..5));
        assert!(!records.are_whole_lines());
    }
}

/// Nor where the input ends before a row could be too long, or where another field's quote would close it.
#[test]
fn quotes_that_are_never_closed_cost_one_row() {
    let rows = |count: usize| b"2,3\n".repeat(count);
    let stray = b"1,\"x\n".to_vec();
    for (text, bad) in [
        ([stray.clone(), rows(50)].concat(), 1),
        ([rows(9), stray.clone(), rows(20), stray.clone(), rows(19), b"4,5".to_vec()].concat(), 2),
        ([rows(48), b"1,2\n".to_vec(), stray.clone(), b"4,\"5\"".to_vec()].concat(), 1),
    ] {
        for chunk in [1, 10, 1000] {
            let (records, report) = build(Schema::new(CSV), &text, chunk, 1 << 20);
            assert_eq!(
                (records.len(), report.bad),
                (51, bad),
                "{}",
                String::from_utf8_lossy(&text)
            );
        }
    }
    // Quotes that are closed enclose lines, also at the end of the input.
    for text in ["1,\"x\ny\"\n2,3\n", "2,3\n1,\"x\ny\"", "1,\"x\n\"\"y\"\"\" \r\n2,3\n"] {
        let (records, _) = build(Schema::new(CSV), text.as_bytes(), 3, 1 << 20);
        assert_eq!(records.len(), 2, "{text}");
    }
}

/// Found by the property below: blanks that came after the longest record made it a cut one, if the
/// chunk ended within them.
#[test]
fn chunks_do_not_decide_what_is_cut() {
    let build = |chunk| build(Schema::new(Format::JsonLines), b"{}\n \t{}\n", chunk, 3);
    let (records, report) = build(100);
    assert_eq!((records.len(), report.bad), (3, 3));
    for chunk in 1..6 {
        assert_eq!(build(chunk), (records.clone(), report.clone()), "chunks of {chunk}");
    }
}

fn check_detect(text: &str, format: Format, names: &[&str], key: Option<&str>) {
    let schema = Schema::detect(text.as_bytes());
    assert_eq!(schema.format, format, "{text}");
    assert_eq!(schema.names, names, "{text}");
    assert_eq!(schema.key.as_deref(), key, "{text}");
}

#[test]
fn formats_are_detected() {
    let csv = |delimiter, header| Format::Csv { delimiter, header };
    check_detect(
        "{\"id\":1,\"a\":{\"b\":2}}\n{\"id\":2}\n",
        Format::JsonLines,
        &["id", "a.b"],
        Some("id"),
    );
    check_detect("{\"id\":1}\n{\"id\":1}\n{\"i", Format::JsonLines, &["id"], None);
    check_detect("{\"id\":1}\n{id}\n", Format::Lines, &["line"], None);
    check_detect("A: 1\nB: 2\n\nA: 2\nB: 2\n", Format::Stanzas, &["A", "B"], Some("A"));
    check_detect("A: 1\n\nB: 2\n", Format::Lines, &["line"], None);
    check_detect("10:00:01 x: y\n10:00:02 x: z\n", Format::Lines, &["line"], None);
    check_detect("id,name\n1,x\n2,y\n", csv(b',', true), &["id", "name"], Some("id"));
    check_detect("1,x\n1,y\n", csv(b',', false), &["column1", "column2"], None);
    check_detect("a\tb c\n1\t2\n", csv(b'\t', true), &["a", "b c"], None);
    check_detect(
        "1|2|\n3|4|\n",
        csv(b'|', false),
        &["column1", "column2", "column3"],
        Some("column1"),
    );
    check_detect("one, two\nthree\n", Format::Lines, &["line"], None);
    check_detect("word | gloss\nother | gloss\n", Format::Lines, &["line"], None);
    check_detect("", Format::Lines, &["line"], None);
    check_detect("\u{feff}a,b\n1,2\n", csv(b',', true), &["a", "b"], None);
}

#[test]
fn formats_can_be_given() {
    let schema = Schema::detect_as("csv".parse().unwrap(), b"1,2\nx,y\n");
    assert_eq!(schema.names, ["1", "2"]);
    assert_eq!("tsv".parse::<Format>().unwrap(), Format::Csv { delimiter: b'\t', header: true });
    assert!(matches!("xml".parse::<Format>(), Err(Error::Schema(_))));
    let mut schema = Schema::new(Format::Lines);
    schema.key = Some("id".to_owned());
    assert!(matches!(Builder::new(schema).finish(), Err(Error::Schema(_))));
}

#[test]
fn files_come_back_without_their_paths() {
    let mut builder = Builder::new(Schema::new(Format::Files));
    let mut text = Vec::new();
    for (path, content) in [("a/b", &b"x\ny"[..]), ("empty", b""), ("c", b"\n")] {
        text.extend(builder.push_file(path, content.len()).unwrap());
        text.extend(content);
    }
    assert!(builder.push(b"x").is_err());
    assert!(builder.push_file("a\nb", 0).is_err());
    assert!(builder.push_file("large", RECORD_BYTES_MAX).is_err());
    let (records, _) = builder.finish().unwrap();
    let original = |record| records.schema().original(&text[records.range(record).unwrap()]);
    assert_eq!([original(0), original(1), original(2)], [&b"x\ny"[..], b"", b"\n"]);
}

#[test]
fn real_inputs_are_detected_and_split() {
    let expected = [
        ("debian_packages.txt", Format::Stanzas, Some("Package"), "Package"),
        ("geonames_cities1000.csv", Format::Csv { delimiter: b',', header: true }, None, "lat"),
        ("nginx_plus_status.jsonl", Format::JsonLines, None, "version"),
        ("wordnet_synsets.txt", Format::Lines, None, "line"),
    ];
    for (name, format, key, first) in expected {
        let Some(text) = sample::text(name, 1 << 20) else { continue };
        let schema = Schema::detect(&text);
        assert_eq!(schema.format, format, "{name}");
        assert_eq!((schema.key.as_deref(), &*schema.names[0]), (key, first), "{name}");
        let (records, report) = build(schema, &text, 50_000, RECORD_BYTES_MAX);
        assert_eq!(report.bad, 0, "{name}: {:?}", report.first_bad);
        assert!(records.len() > 100, "{name}: {}", records.len());
    }
}

/// Twin: JSON as a tree, flattened.
fn flat(value: &serde_json::Value, path: &str, depth: usize, out: &mut Vec<(String, String)>) {
    use serde_json::Value;
    match value {
        Value::Object(members) => members.iter().for_each(|(name, member)| {
            let dot = if depth == 0 { "" } else { "." };
            flat(member, &format!("{path}{dot}{name}"), depth + 1, out);
        }),
        Value::Array(elements) => elements.iter().for_each(|e| flat(e, path, depth + 1, out)),
        Value::String(text) => out.push((path.to_owned(), text.clone())),
        other => out.push((path.to_owned(), other.to_string())),
    }
}

#[test]
fn real_json_is_read_as_a_tree_would_be() {
    let Some(text) = sample::text("nginx_plus_status.jsonl", 100_000) else { return };
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        let mut expected = Vec::new();
        flat(&serde_json::from_slice(line).unwrap(), "", 0, &mut expected);
        let mut got: Vec<(String, String)> = json::fields(line)
            .unwrap()
            .into_iter()
            .map(|f| (f.name.into_owned(), String::from_utf8(f.value.into_owned()).unwrap()))
            .collect();
        // The tree sorts its members.
        expected.sort();
        got.sort();
        assert_eq!(got, expected);
    }
}

#[test]
fn hostile_sections_are_refused() {
    let (records, _) = build(Schema::new(Format::Lines), b"a\nb\nc\n", 1, 100);
    let bytes = records.encode();
    assert_eq!(Records::decode(&bytes).unwrap(), records);
    let mut other = bytes.clone();
    other[0] = 2;
    assert!(matches!(Records::decode(&other), Err(Error::Unreadable(_))));
    for len in 0..bytes.len() {
        assert!(Records::decode(&bytes[..len]).is_err(), "{len} bytes");
    }
    for (from, to) in [("\"text_bytes\":6", "\"text_bytes\":4"), ("lines", "csvvv")] {
        let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
        let mut other = bytes.clone();
        other[at..at + to.len()].copy_from_slice(to.as_bytes());
        assert!(Records::decode(&other).is_err(), "{to}");
    }
}

pub fn any_format() -> impl Strategy<Value = Format> {
    prop_oneof![
        Just(Format::Lines),
        Just(Format::JsonLines),
        Just(Format::Stanzas),
        Just(CSV),
        Just(Format::Csv { delimiter: b'\t', header: true }),
    ]
}

/// Bytes that formats care about.
const TOKENS: &[&str] = &[
    "\n", "\r\n", "\n\n", " ", "\t", ",", "\"", "\"\"", ":", "{\"a\":", "}", "a", "A: b", "\\u00",
];

/// Those, and every other byte.
pub fn any_text() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        6 => proptest::sample::select(TOKENS).prop_map(|token| token.as_bytes().to_vec()),
        1 => any::<u8>().prop_map(|byte| vec![byte]),
    ];
    proptest::collection::vec(token, 0..60).prop_map(|tokens| tokens.concat())
}

proptest! {
    /// Whatever the chunks, the records are the same, and they are the text.
    #[test]
    fn splitting_is_exact_and_streams(format in any_format(), text in any_text(), chunk in 1..40usize, max in 1..100usize) {
        let whole = build(Schema::new(format), &text, usize::MAX, max);
        let streamed = build(Schema::new(format), &text, chunk, max);
        prop_assert_eq!(&whole, &streamed);
        let records = whole.0;
        let mut joined = text[records.header()].to_vec();
        for record in 0..records.len() {
            let range = records.range(record).unwrap();
            prop_assert!(!range.is_empty() && range.len() <= max);
            for offset in range.clone() {
                prop_assert_eq!(records.record_of(offset), Some(record));
            }
            joined.extend(&text[range]);
        }
        prop_assert_eq!(joined, text.clone());
        prop_assert_eq!(records.record_of(text.len()), None);
        prop_assert_eq!(Records::decode(&records.encode()).unwrap(), records);
    }

    #[test]
    fn no_bytes_make_a_reader_panic(text in any_text(), format in any_format()) {
        let _ = Schema::detect(&text);
        let _ = Schema::detect_as(format, &text);
        let _ = Schema::new(format).fields(&text);
        let _ = Records::decode(&text);
    }

    #[test]
    fn damaged_sections_are_refused_or_consistent(text in any_text(), at in any::<usize>(), byte: u8) {
        let (records, _) = build(Schema::detect(&text), &text, 64, 1000);
        let mut bytes = records.encode();
        let at = at % bytes.len();
        bytes[at] = byte;
        if let Ok(read) = Records::decode(&bytes) {
            for record in 0..read.len() {
                let range = read.range(record).unwrap();
                prop_assert!(range.start < range.end && range.end <= read.text_len());
            }
        }
    }

    /// The twin is the crate `csv`, of rows as its own writer writes them.
    #[test]
    fn rows_are_read_as_they_were_written(rows in proptest::collection::vec(proptest::collection::vec("[ab,\"\n\r é]{0,4}", 3), 1..6)) {
        let mut writer = ::csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
        rows.iter().for_each(|row| writer.write_record(row).unwrap());
        let text = writer.into_inner().unwrap();
        let schema = Schema::new(CSV);
        let read: Vec<Vec<String>> = split(&schema, &text)
            .iter()
            .map(|record| {
                let fields = schema.fields(record).unwrap();
                fields.iter().map(|f| String::from_utf8(f.value.to_vec()).unwrap()).collect()
            })
            .collect();
        prop_assert_eq!(read, rows);
    }
}
