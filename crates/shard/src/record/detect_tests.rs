//! Detection: a table or a log that is written in any dialect is read back, and nothing is guessed in silence.

use proptest::prelude::*;

use super::detect::{Header, Hints};
use super::*;

/// A table as its writer meant it.
#[derive(Clone, Debug)]
struct Table {
    delimiter: u8,
    header: Option<Vec<String>>,
    rows: Vec<Vec<String>>,
    text: Vec<u8>,
}

const DELIMITERS: &str = ",;\t|";

/// A field as RFC 4180 writes it; quoted if it must be, or by choice.
fn field(value: &str, quoted: bool) -> String {
    let must = value.contains(|c: char| DELIMITERS.contains(c) || "\"\r\n".contains(c));
    if must || quoted { format!("\"{}\"", value.replace('"', "\"\"")) } else { value.to_owned() }
}

fn any_table() -> impl Strategy<Value = Table> {
    let number = prop_oneof![
        Just(String::new()),
        "-?[0-9]{1,6}(\\.[0-9]{1,2})?",
        "20[0-9]{2}-0[1-9]-[12][0-9]( 1[0-9]:[0-5][0-9])?",
    ];
    let word = prop_oneof![
        4 => "[a-zé]{1,8}( [a-z]{1,4})?",
        1 => "[a-z]{1,3}[,;|\"\n\t(%#&'+?$\\[\\]]{1,2}[a-z]{1,3}",
    ];
    let name = prop_oneof![
        "[a-z_]{1,9}",
        "[a-z]{1,4}[ (%#&'+?$/:.\\[\\],;\"-]{1,2}[A-Z]{1,3}",
        "[1-9](st|nd|rd)"
    ];
    let columns = 3..6_usize;
    let dialect =
        (proptest::sample::select(DELIMITERS.as_bytes()), any::<[bool; 4]>(), any::<u64>());
    (columns, 3..12_usize, dialect).prop_flat_map(
        move |(columns, count, (delimiter, choices, quotes))| {
            let names = proptest::collection::hash_set(name.clone(), columns);
            let words = proptest::collection::vec(word.clone(), count * columns);
            let numbers = proptest::collection::vec(number.clone(), count);
            (names, words, numbers).prop_map(move |(names, words, numbers)| {
                let [has_header, is_crlf, is_ended, has_mark] = choices;
                let mut rows: Vec<Vec<String>> =
                    words.chunks(columns).map(<[String]>::to_vec).collect();
                for (row, number) in rows.iter_mut().zip(&numbers) {
                    row[columns - 1].clone_from(number);
                }
                // A number in the first row: without it nothing tells it from a header.
                rows[0][columns - 1] = "12.5".to_owned();
                rows[1][columns - 1] = "7".to_owned();
                let header: Option<Vec<String>> = has_header.then(|| names.into_iter().collect());
                let mut text = String::new();
                if has_mark {
                    text.push('\u{feff}');
                }
                let end = if is_crlf { "\r\n" } else { "\n" };
                for (number, row) in header.iter().chain(&rows).enumerate() {
                    let is_quoted = |column: usize| quotes >> ((number * 7 + column) % 64) & 3 == 3;
                    let fields: Vec<String> = row
                        .iter()
                        .enumerate()
                        .map(|(column, value)| field(value, is_quoted(column)))
                        .collect();
                    text.push_str(&fields.join(&char::from(delimiter).to_string()));
                    text.push_str(end);
                }
                if !is_ended {
                    text.truncate(text.len() - end.len());
                }
                Table { delimiter, header, rows, text: text.into_bytes() }
            })
        },
    )
}

/// The values of all records of a text, as read by a schema.
fn values(schema: &Schema, text: &[u8]) -> Vec<Vec<String>> {
    let mut builder = Builder::new(schema.clone());
    builder.push(text).unwrap();
    let (records, report) = builder.finish().unwrap();
    assert_eq!(report.bad, 0, "{:?}", report.first_bad);
    let value = |field: Field| String::from_utf8(field.value.into_owned()).unwrap();
    (0..records.len())
        .map(|record| {
            let bytes = &text[records.range(record).unwrap()];
            records.schema().fields(bytes).unwrap().into_iter().map(value).collect()
        })
        .collect()
}

proptest! {
    #[test]
    fn a_table_in_any_dialect_is_read_back(table in any_table()) {
        for format in [None, Some(Format::Csv { delimiter: table.delimiter, header: true })] {
            let header = if format.is_some() { Header::Detect } else { Header::Given };
            let hints = Hints { format, header, ..Hints::default() };
            let found = Schema::detect_with(&table.text, &hints).unwrap();
            let expected = Format::Csv { delimiter: table.delimiter, header: table.header.is_some() };
            prop_assert_eq!(found.schema.format, expected, "{}", found.because);
            prop_assert_eq!(&values(&found.schema, &table.text), &table.rows);
            if let Some(header) = &table.header {
                let names: Vec<&str> = header.iter().map(|name| name.trim()).collect();
                prop_assert_eq!(&found.schema.names, &names);
            }
            prop_assert_eq!(found.warning, None);
        }
    }

    /// One row with another number of fields: the table is named, and the line.
    #[test]
    fn a_ragged_row_is_named(
        rows in proptest::collection::vec("[a-z]{1,4}", 6..20),
        delimiter in proptest::sample::select(&[",", ";", "\t", "|"][..]),
        at in any::<prop::sample::Index>(),
        fewer: bool,
    ) {
        let mut lines: Vec<String> = vec![["name", "size", "note"].join(delimiter)];
        lines.extend(rows.iter().zip(1..).map(|(word, n)| [word, &n.to_string(), "x"].join(delimiter)));
        let line = 1 + at.index(lines.len() - 1);
        lines[line] = if fewer { "odd".to_owned() } else { format!("{}{delimiter}more", lines[line]) };
        // A last line without a line end may be cut, and is not judged.
        let text = lines.join("\n") + "\n";
        let found = Schema::detect_with(text.as_bytes(), &Hints::default());
        let error = found.unwrap_err().to_string();
        prop_assert!(error.contains(&format!("at line {} ", line + 1)), "{error}");
        prop_assert!(error.contains("--format"), "{error}");
        // What the error advises takes the same table.
        let delimiter = delimiter.as_bytes()[0];
        let asked = if delimiter == b'\t' { delimiter } else { b',' };
        let format = Some(Format::Csv { delimiter: asked, header: true });
        let as_advised = Hints { format, header: Header::Detect, ..Hints::default() };
        let found = Schema::detect_with(text.as_bytes(), &as_advised).unwrap();
        prop_assert_eq!(found.schema.format, Format::Csv { delimiter, header: true }, "{}", found.because);
        prop_assert_eq!(found.schema.names, ["name", "size", "note"]);
    }

    #[test]
    fn a_log_is_read_as_lines(
        lines in proptest::collection::vec("(INFO|WARN) [a-z]{2,6}( [a-z]{1,5}){0,4}(, [a-z]{1,3}){0,2}", 2..20),
        is_logger: bool, has_mark: bool,
    ) {
        let stamp = if is_logger { "2026-01-02 10:20:30,123 " } else { "2026-01-02T10:20:30Z " };
        // Lines of words that all have one comma are a table of two columns; these differ.
        let commas = |line: &String| line.matches(',').count();
        prop_assume!(is_logger || lines.iter().any(|line| commas(line) != commas(&lines[0])));
        prop_assume!(is_logger || lines.iter().filter(|line| commas(line) > 0).count() * 2 < lines.len());
        let mut text = if has_mark { "\u{feff}".to_owned() } else { String::new() };
        for line in &lines {
            text.push_str(&format!("{stamp}{line}\n"));
        }
        let found = Schema::detect_with(text.as_bytes(), &Hints::default()).unwrap();
        prop_assert_eq!(found.schema.format, Format::Lines);
        let expected: Vec<Vec<String>> =
            lines.iter().map(|line| vec![format!("{stamp}{line}")]).collect();
        prop_assert_eq!(values(&found.schema, text.as_bytes()), expected);
    }

    #[test]
    fn no_bytes_make_detection_panic(
        text in proptest::collection::vec(proptest::sample::select(&b"a1,;|\t\"\n\r:{} \xef\xbb\xbf"[..]), 0..80),
        header in proptest::sample::select(&[Header::Given, Header::Detect, Header::Yes, Header::No][..]),
        columns in 0..3_usize,
    ) {
        let columns = (0..columns).map(|column| format!("c{column}")).collect();
        for format in [None, Some(Format::Csv { delimiter: b',', header: true }), Some(Format::Lines)] {
            let hints = Hints { format, header, columns: Clone::clone(&columns) };
            if let Ok(found) = Schema::detect_with(&text, &hints) {
                prop_assert!(!found.because.is_empty());
                let _ = Schema::detect(&text).fields(&text);
            }
        }
    }
}

fn refused(text: &str, hints: &Hints, says: &[&str]) {
    let error = Schema::detect_with(text.as_bytes(), hints).unwrap_err().to_string();
    for word in says {
        assert!(error.contains(word), "{text:?}: {error}");
    }
}

#[test]
fn most_lines_of_a_format_are_that_format_or_an_error() {
    let hints = Hints::default();
    refused(
        "{\"id\":1}\n{\"id\":2}\nid 3\n",
        &hints,
        &["2 of the first 3 records are json", "line 3"],
    );
    refused(
        "garbage\n{\"id\":1}\n\n{\"id\":2}\n{\"id\":3}\n",
        &hints,
        &["line 1", "--format json"],
    );
    refused(
        "A: 1\nB: 2\n\nA: 2\nB: 2\n\nA: 3\nB: 3\n\nA: 4\nB: x\n\noops\n",
        &hints,
        &["stanzas", "line 13"],
    );
    refused("title\nname,size,n\nann,1,2\nbob,2,3\neve,3,4\n", &hints, &["csv", "line 1 "]);
    refused("a,b\n1,2\n3\n5,6\n7,8\n", &hints, &["line 3", "1 fields in a row of 2"]);
    refused("a\0b\n", &hints, &["not text", "iconv"]);
    refused("PAR1\0", &hints, &["not text", "Parquet", "--format"]);
    refused(&format!("name{}ustar\0", "\0".repeat(253)), &hints, &["tar archive"]);
    let lines = |text: &str| {
        let found = Schema::detect_with(text.as_bytes(), &hints).unwrap();
        assert_eq!(found.schema.format, Format::Lines, "{text}: {}", found.because);
        found.warning
    };
    assert!(lines("[{\"a\":1},\n{\"a\":2}]\n").unwrap().contains("jq"));
    assert!(lines("{\n \"a\": 1\n}\n").unwrap().contains("jq"));
    assert!(lines("one, two\nthree\n").unwrap().contains("--format csv"));
    assert_eq!(lines("words\nand more\n"), None);
    assert_eq!(lines(""), None);
}

#[test]
fn hints_decide() {
    let csv = Some(Format::Csv { delimiter: b',', header: true });
    let check = |text: &str, hints: Hints, header: bool, names: &[&str]| {
        let Schema { format, names: found, .. } =
            Schema::detect_with(text.as_bytes(), &hints).unwrap().schema;
        assert!(matches!(format, Format::Csv { header: is, .. } if is == header), "{text}");
        assert_eq!(found, names, "{text}");
    };
    let columns = vec!["who".to_owned(), "age".to_owned()];
    let hints = |format, header| Hints { format, header, columns: Vec::new() };
    check("ann,31\nbob,22\n", hints(csv, Header::Given), true, &["ann", "31"]);
    check("ann,31\nbob,22\n", hints(csv, Header::Detect), false, &["column1", "column2"]);
    check("ann;31\nbob;22\n", hints(csv, Header::Detect), false, &["column1", "column2"]);
    check("ann,31\nbob,22\n", hints(None, Header::Yes), true, &["ann", "31"]);
    // A remark, which has no delimiter, takes neither the delimiter nor the header away; nor does another delimiter in a row.
    let remark = "x;y\n1;a,b\n# remark\n3;c\n5;d\n";
    check(remark, hints(csv, Header::Detect), true, &["x", "y"]);
    check(remark, hints(csv, Header::Yes), true, &["x", "y"]);
    check("x|y\n1|2\n# remark\n3|4\n", hints(None, Header::Yes), true, &["x", "y"]);
    check("a,b\n1,2;3\n4\n5,6;7\n", hints(csv, Header::Detect), true, &["a", "b"]);
    check("word\none; two\nthree\nfour\n", hints(csv, Header::Yes), true, &["word"]);
    refused(remark, &Hints::default(), &["are csv with ';' between fields", "line 3"]);
    check("name,age\nbob,22\n", hints(None, Header::No), false, &["column1", "column2"]);
    let named = Hints { columns: columns.clone(), ..Hints::default() };
    check("ann,31\nbob,22\n", named.clone(), false, &["who", "age"]);
    check("name,y\nbob,22\n", named.clone(), true, &["who", "age"]);
    refused("a,b,c\n1,2,3\n", &named, &["2 columns are named", "3 fields"]);
    refused("{}\n", &Hints { format: Some(Format::JsonLines), ..named }, &["only tables"]);
}

/// Inputs that a parser takes for a table by chance, and a person does not: lines, with a warning that says why, or an error.
#[test]
fn nothing_is_a_table_by_chance() {
    let lines = |text: &str, says: &str| {
        let found = Schema::detect_with(text.as_bytes(), &Hints::default()).unwrap();
        assert_eq!(found.schema.format, Format::Lines, "{text}: {}", found.because);
        let warning = found.warning.unwrap();
        assert!(warning.contains(says), "{text}: {warning}");
        assert_eq!(Schema::detect(text.as_bytes()).format, Format::Lines);
    };
    let access = |path: &str| {
        format!(
            "10.0.0.1 - - [02/Jan/2024:03:04:05 +0000] \"GET /{path} HTTP/1.1\" 200 13 \"-\" \"Mozilla (KHTML, like Gecko)\"\n"
        )
    };
    lines(&(access("a") + &access("b") + &access("c")), "read as sentences; --format csv");
    lines(
        "It was fine, said one, and the cat sat.\nIt was wet, said two, and the cat ran.\n",
        "--format csv",
    );
    lines("[1,2]\n[3,4]\n[5,6]\n", "jq -c '.[]'");
    lines("[\n{\"a\":1,\"b\":2},\n{\"a\":3,\"b\":4},\n{\"a\":5,\"b\":6}\n]\n", "jq -c '.[]'");
    lines("{\"a\":1}{\"a\":2}\n{\"a\":3}\n", "jq -c .");
    lines(
        "{\"a\":NaN}\n{\"a\":1}\n{\"a\":Infinity}\n",
        "line 1 is not an object: not JSON: expected value",
    );
    let wide = vec!["1"; FIELDS_MAX + 1].join(",") + "\n";
    lines(&wide.repeat(3), "more than 16384 values");
    let hints = Hints::default();
    refused("a,b\r1,2\r3,4\r", &hints, &["carriage return", "tr '\\r' '\\n'"]);
    refused("sep=;\na;b\n1;2\n", &hints, &["`sep=;`", "tail -n +2"]);
    let csv = Hints { format: Some(Format::Csv { delimiter: b';', header: true }), ..hints };
    refused("sep=;\na;b\n1;2\n", &csv, &["`sep=;`"]);
}

/// Lines that begin with a word and a colon were one record: the stanza that a parser reads in them.
#[test]
fn lines_that_begin_with_a_word_and_a_colon_are_no_stanza() {
    let numbers = 0..300;
    let log: String =
        numbers.clone().map(|n| format!("INFO:root:request {n} took 3 ms\n")).collect();
    let levels = ["INFO", "INFO", "WARN", "INFO", "ERROR"];
    let mixed: String =
        numbers.clone().map(|n| format!("{}: request {n}\n", levels[n % 5])).collect();
    let groups = mixed.replace("5\n", "5\n\n");
    let containers: String = "web-1: GET /a 200\n".repeat(9) + &"db-1: vacuum\n".repeat(9);
    let users = "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1:daemon:/usr/sbin:/bin/sh\nbin:x:2:2:bin:/bin:/bin/sh\n";
    let matches = "src/a.rs:12: text\nsrc/b.rs:7: more\nsrc/c.rs:1: text\n";
    let addresses = "http://a/x\nhttps://b/y\nhttp://a/z\n";
    let cards = "BEGIN:VCARD\nVERSION:4.0\nFN:Ann\nEND:VCARD\nBEGIN:VCARD\nVERSION:4.0\nFN:Bob\nEND:VCARD\n";
    let separate = users.replace("\nbin", "\n\nbin");
    for text in [&log, &mixed, &groups, &containers, users, matches, addresses, cards, &separate] {
        let found = Schema::detect_with(text.as_bytes(), &Hints::default()).unwrap();
        assert_eq!(found.schema.format, Format::Lines, "{text:.60}: {}", found.because);
        let warning = found.warning.unwrap_or_default();
        assert!(warning.is_empty() || warning.contains("--format stanzas"), "{warning}");
    }
    let found = Schema::detect(b"http://a/x,1\nhttp://b/y,2\n");
    assert_eq!(found.format, Format::Csv { delimiter: b',', header: false });
}

/// One stanza, names that a stanza has more than once, and stanzas without blanks stay stanzas.
#[test]
fn stanzas_are_told_from_lines() {
    let head = "Return-Path: <a@b>\nReceived: from c\n\tby d\nReceived: from e\nFrom: f\nTo: g\nSubject:\n h\n";
    let person = "dn: cn=a\nobjectClass: top\nobjectClass: person\nobjectClass: user\ncn: a\n";
    let group = "dn: cn=b\nmember: 1\nmember: 2\nmember: 3\nmember: 4\nmember: 5\n";
    let close = "A:1\nB:2\n\nA:3\nB:4\n\n";
    for text in [head, &[person, group, group].join("\n"), close] {
        let found = Schema::detect_with(text.as_bytes(), &Hints::default()).unwrap();
        assert_eq!(found.schema.format, Format::Stanzas, "{text}: {:?}", found.warning);
    }
}

/// Objects with a comma each are rows, too; also a line that was cut off has the comma.
#[test]
fn most_lines_of_json_are_json_and_no_table() {
    let objects = "{\"t\":1,\"m\":\"x\"}\n".repeat(9);
    for bad in ["Traceback (most recent call last):\n", "{\"t\":1,\"m\":\n"] {
        let says = ["18 of the first 19 records are json", "line 10 ", "--format json"];
        refused(&[&objects, bad, &objects].concat(), &Hints::default(), &says);
    }
}

/// Tables of short words, of bracketed names and with repeated names stay tables.
#[test]
fn short_words_are_a_table() {
    let table = |text: &str, names: &[&str]| {
        let found = Schema::detect_with(text.as_bytes(), &Hints::default()).unwrap();
        assert_eq!(found.schema.names, names, "{text}: {}", found.because);
        assert_eq!(found.warning, None);
        found.because
    };
    table("ann,london\nbob,paris\nann,rome\n", &["column1", "column2"]);
    table("[date],[time]\n1,2\n3,4\n", &["[date]", "[time]"]);
    table("one, two\n1, 2\n3, 4\n", &["one", "two"]);
    let because = table("id,x,x\n1,2,3\n4,5,6\n", &["id", "x", "x"]);
    assert!(because.contains("the same name \"x\""), "{because}");
}

#[test]
fn headers_are_the_same_whatever_their_quotes_and_line_ends() {
    let csv = Format::Csv { delimiter: b',', header: true };
    let names = csv.header_names(b"id,\"a\nb\"\n").unwrap();
    assert_eq!(names, ["id", "a\nb"]);
    for same in ["\u{feff}id,\"a\nb\"\r\n", "\"id\",\"a\nb\"", " id,\"a\nb\"\n"] {
        assert_eq!(csv.header_names(same.as_bytes()), Some(names.clone()), "{same:?}");
    }
    assert_eq!(csv.header_names(b"id,\"a\n"), None);
    assert_eq!(Format::Lines.header_names(b"id,a\n"), None);
}

/// A byte-order mark is kept in the text, before the first record, and is part of none.
#[test]
fn a_byte_order_mark_is_no_character() {
    for (text, value) in
        [("\u{feff}{\"id\":1}\n{\"id\":2}\n", "1"), ("\u{feff}A: 1\nB: 2\n\nA: 3\nB: 4\n", "1")]
    {
        let schema = Schema::detect(text.as_bytes());
        assert_ne!(schema.format, Format::Lines);
        for chunk in [1, 2, 3, 100] {
            let mut builder = Builder::new(schema.clone());
            text.as_bytes().chunks(chunk).for_each(|piece| builder.push(piece).unwrap());
            let (records, report) = builder.finish().unwrap();
            assert_eq!((records.len(), report.bad, records.header()), (2, 0, 0..3));
            let first = &text.as_bytes()[records.range(0).unwrap()];
            assert_eq!(schema.fields(first).unwrap()[0].value.as_ref(), value.as_bytes());
        }
    }
}
