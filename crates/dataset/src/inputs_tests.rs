//! Several files as one input: what they are together, and which of them shows the format.

use std::path::PathBuf;

use ground::with_causes;
use shard::record::Format;

use super::parts::{PartSize, import_parts};
use super::tests::{exported, options};
use super::*;

/// A folder with files of these texts.
fn files(texts: &[&str]) -> (tempfile::TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    let path = |at: usize| folder.path().join(format!("input-{at}.csv"));
    let paths: Vec<PathBuf> = (0..texts.len()).map(path).collect();
    paths.iter().zip(texts).for_each(|(path, text)| std::fs::write(path, text).unwrap());
    (folder, paths)
}

/// Imports the texts as one process does and in parts, and returns their format and the export, which are the same.
fn check(texts: &[&str], format: Format, records: u64, export: &str) {
    let (folder, paths) = files(texts);
    let size = PartSize::Count(2);
    let whole = import(folder.path(), "d", &paths, &options(), &mut |_| ());
    let parts = import_parts(folder.path(), "p", &paths, size, &options(), &mut |_| ());
    for (made, name) in [(whole, "d"), (parts, "p")] {
        let made = made.unwrap_or_else(|error| panic!("{texts:?}: {}", with_causes(&error)));
        assert_eq!((made.records, made.bad), (records, 0), "{texts:?}: {}", made.because);
        assert_eq!(made.warning, None);
        let dataset = Dataset::open(&folder.path().join(name)).unwrap();
        let own = without_header(dataset.schema().format);
        assert_eq!(own, without_header(format), "{texts:?}");
        assert_eq!(String::from_utf8(exported(&dataset)).unwrap(), export, "{texts:?}");
    }
}

fn without_header(format: Format) -> Format {
    match format {
        Format::Csv { delimiter, .. } => Format::Csv { delimiter, header: false },
        format => format,
    }
}

#[test]
fn several_files_are_one_input() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let check = |files: &[PathBuf], expected: &str| {
        let options = Options { replace: true, ..options() };
        import(folder.path(), "d", files, &options, &mut |_| ()).unwrap();
        let dataset = Dataset::open(&folder.path().join("d")).unwrap();
        assert_eq!(String::from_utf8(exported(&dataset)).unwrap(), expected);
    };
    let (a, b) = (path("a", "name,size\ned,90\n"), path("b", "name,size\nvi,91"));
    check(&[a.clone(), b.clone(), a.clone()], "name,size\ned,90\nvi,91\ned,90\n");
    // The same names in other quotes, with other line ends, behind a byte-order mark; a line break within a name.
    let marked = path("marked", "\u{feff}\"name\",size\r\nvi,91\r\n");
    check(&[a.clone(), marked], "name,size\ned,90\nvi,91\r\n");
    let (f, g) = (path("f", "\"a\nb\",c\n1,2\n"), path("g", "\"a\nb\",c\n3,4\n"));
    check(&[f, g], "\"a\nb\",c\n1,2\n3,4\n");
    let (c, d) = (path("c", "A: 1\nB: 2\n\nA: 3\nB: 2\n"), path("rest", "A: 5\nB: 6\n"));
    check(&[c, d], "A: 1\nB: 2\n\nA: 3\nB: 2\n\nA: 5\nB: 6\n");
    let other = path("e", "size,name\n1,x\n");
    let options = Options { replace: true, ..options() };
    let refused = import(folder.path(), "d", &[a, other], &options, &mut |_| ()).unwrap_err();
    assert!(with_causes(&refused).contains("header"), "{refused}");
    // What was there still is.
    assert!(Dataset::open(&folder.path().join("d")).is_ok());
}

/// A day without entries, a file of blank lines, and one of a header alone show no format: the next file does.
#[test]
fn the_first_file_with_records_shows_the_format() {
    let csv = Format::Csv { delimiter: b',', header: true };
    let json = "{\"a\":1}\n{\"a\":2}\n";
    for nothing in ["", "\n", " \n\n"] {
        let before = if nothing.is_empty() { String::new() } else { format!("{nothing}{json}") };
        let export = if nothing.is_empty() { json.to_owned() } else { before };
        check(&[nothing, json], Format::JsonLines, 2, &export);
    }
    check(&["", "", json, ""], Format::JsonLines, 2, json);
    check(&["{\"a\":0}", json], Format::JsonLines, 3, &format!("{{\"a\":0}}\n{json}"));
    check(&["a,b\n", "a,b\n1,2\n3,4\n"], csv, 2, "a,b\n1,2\n3,4\n");
    check(&["", "a,b\n", "\u{feff}a,b\r\n1,2\n3,4\n"], csv, 2, "a,b\n1,2\n3,4\n");
    check(&["", "\u{feff}a,b\n1,2\n", "a,b\n3,4\n"], csv, 2, "\u{feff}a,b\n1,2\n3,4\n");
    check(&["a,b\n1,2\n", "", "\n", "a,b\n3,4"], csv, 2, "a,b\n1,2\n\n3,4");
    check(&["\n", "a,b\n1,2\n"], csv, 1, "\na,b\n1,2\n");
    check(&["", "A: 1\nB: 2\n"], Format::Stanzas, 1, "A: 1\nB: 2\n");
}

/// A file without bytes got a separator of its own.
#[test]
fn one_separator_stands_between_records_whatever_lies_between() {
    let csv = Format::Csv { delimiter: b',', header: true };
    check(&["a,b\n1,2", "", "", "a,b\n3,4"], csv, 2, "a,b\n1,2\n3,4");
    let stanza = "A: 1\nB: 2";
    let export = format!("{stanza}\n\n{stanza}");
    check(&[stanza, "", stanza], Format::Stanzas, 2, &export);
}

/// The error and the warning name the file that was looked at.
#[test]
fn what_is_wrong_is_said_of_the_file_that_shows_the_format() {
    let (folder, paths) = files(&["", "a,b\n1,2\n3\n4,5\n6,7\n"]);
    let refused = import(folder.path(), "d", &paths, &options(), &mut |_| ()).unwrap_err();
    let text = with_causes(&refused);
    assert!(text.contains("input-1.csv: ") && text.contains("at line 3 "), "{text}");
    let (folder, paths) = files(&["a,b\n1,2\n", "c,d\n3,4\n"]);
    let refused = import(folder.path(), "d", &paths, &options(), &mut |_| ()).unwrap_err();
    assert!(with_causes(&refused).contains("input-1.csv: the first line is not the header"));
}

/// A row whose quoted line break stands where a shard ends was cut there: its quote was taken for one that is never closed.
#[test]
fn a_row_that_goes_on_behind_a_shards_end_is_whole() {
    let (folder, paths) = files(&[&("x,y\n".to_owned() + &"\"a\nb\nc\",1\n".repeat(100))]);
    let options = Options { jobs: Some(1), ..options() };
    for shard_bytes in 64..84 {
        let mut plan = memory::Plan::default_of(&options);
        plan.shard_bytes = shard_bytes;
        let place = folder.path().join(shard_bytes.to_string());
        std::fs::create_dir(&place).unwrap();
        let made = import::fill(&place, &paths, &options, plan, &mut |_| ()).unwrap();
        assert_eq!((made.records, made.bad), (100, 0), "{shard_bytes} B: {:?}", made.first_bad);
    }
}

/// A misspelt key or order of JSON, whose records may have any attribute, is a warning.
#[test]
fn a_key_and_an_order_that_no_record_has_are_warned_of() {
    let json = "{\"a\":1,\"b\":\"x\"}\n{\"a\":2,\"b\":\"y\"}\n";
    let table = "a,b\n1,x\n2,y\n";
    let stanzas = "a: 1\nb: x\n\na: 2\nb: y\n";
    let warning = |text: &str, key: Option<&str>, order: Option<&str>| {
        let (folder, paths) = files(&[text]);
        let (key, orders) =
            (key.map(str::to_owned), order.map(str::to_owned).into_iter().collect());
        let options = Options { key, orders, ..options() };
        import(folder.path(), "d", &paths, &options, &mut |_| ()).unwrap().warning
    };
    for text in [json, stanzas] {
        let said = warning(text, Some("zz"), Some("ww")).unwrap();
        assert!(said.contains("has \"zz\" (--key)"), "{said}");
        assert!(said.contains("none of the records at its start has a number as \"ww\""), "{said}");
    }
    for text in [json, stanzas, table] {
        assert_eq!(warning(text, Some("b"), Some("a")), None);
        assert!(warning(text, None, Some("b")).unwrap().contains("a number as \"b\""));
    }
}

/// A file with a header, whose columns were given other names, is appended without it.
#[test]
fn the_header_of_a_table_with_given_columns_is_not_appended() {
    let table = "x,y\n1,2\n3,4\n";
    let (folder, paths) = files(&[table]);
    let columns = vec!["p".to_owned(), "q".to_owned()];
    let options = Options { columns, ..options() };
    import(folder.path(), "d", &paths, &options, &mut |_| ()).unwrap();
    let mut writer = Writer::open(&folder.path().join("d")).unwrap();
    assert_eq!(writer.append(table.as_bytes()).unwrap(), 2..4);
    assert_eq!(writer.append(b"p,q\n5,6\n").unwrap(), 4..5);
    let refused = with_causes(&writer.append(b"y,x\n7,8\n").unwrap_err());
    assert!(refused.contains("order p, q (x, y in its files)"), "{refused}");
    writer.seal().unwrap();
    assert_eq!(writer.append(table.as_bytes()).unwrap(), 5..7);
}
