//! An export is read as the same records, whatever was appended, deleted and sealed: separators between records that came
//! from different files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use shard::record::Format;

use super::*;

/// A format, its header, and records of it without the separator at their end.
#[derive(Clone, Debug)]
pub(super) struct Input {
    pub format: Format,
    pub header: &'static str,
    pub separator: String,
    pub records: Vec<String>,
}

pub(super) fn inputs() -> impl Strategy<Value = Input> {
    let csv = |delimiter, header| Format::Csv { delimiter, header };
    let format = prop_oneof![
        Just((Format::Lines, "", "[ab ]{0,6}", 1)),
        Just((Format::JsonLines, "", r#"\{"a":(0|[1-9][0-9]?|\[[0-9]\]|"[\]:\{]{0,4}") ?\}"#, 1)),
        Just((Format::Stanzas, "", "A: [ab]{0,4}(\nB:[a:]{0,3}){0,2}(\n more){0,1}", 2)),
        Just((csv(b',', true), "x,y", "([a1]|\"(\n|,|\"\"|a){2}\"),[0-9]{1,2}", 1)),
        Just((csv(b';', false), "", "[ab]{1,3};(\"[;a]{0,3}\"|[0-9])", 1)),
    ];
    let ends = prop_oneof![Just("\n"), Just("\r\n")];
    (format, ends).prop_flat_map(|((format, header, pattern, lines), end)| {
        proptest::collection::vec(pattern, 1..12).prop_map(move |records| {
            // A quoted line break is part of a value, and stays as it is.
            let is_csv = matches!(format, Format::Csv { .. });
            let own = |record: String| if is_csv { record } else { record.replace('\n', end) };
            let records = records.into_iter().map(own).collect();
            Input { format, header, separator: end.repeat(lines), records }
        })
    })
}

/// The records of a dataset without the separators at their ends.
fn records(dataset: &Dataset) -> Vec<String> {
    let ids = (0..dataset.end_id()).filter(|id| !dataset.deleted().contains(id));
    let texts = ids.map(|id| String::from_utf8(dataset.get(id).unwrap()).unwrap());
    texts.map(|text| text.trim_end_matches(['\r', '\n']).to_owned()).collect()
}

pub(super) fn imported(folder: &Path, name: &str, text: &[u8], format: Format) -> PathBuf {
    let input = folder.join("input");
    std::fs::write(&input, text).unwrap();
    let options = Options { format: Some(format), ..tests::options() };
    import(folder, name, &[input], &options, &mut |_| ()).unwrap();
    folder.join(name)
}

/// How much of the separator the file's last record has.
fn cut(text: &mut String, ended: usize) {
    let end = text.trim_end_matches(['\r', '\n']).len();
    let lines: Vec<usize> = text[end..].match_indices('\n').map(|(at, _)| end + at + 1).collect();
    let to = match ended.checked_sub(1) {
        None => end,
        Some(line) => lines.get(line).copied().unwrap_or(text.len()),
    };
    text.truncate(to);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn an_export_is_read_as_the_same_records(
        input in inputs(),
        imports in 0_usize..12,
        ended in 0_usize..3,
        appends in 1_usize..4,
        deleted in proptest::collection::vec(any::<prop::sample::Index>(), 0..4),
        seals: [bool; 3],
    ) {
        let folder = tempfile::tempdir().unwrap();
        let Input { format, header, separator, records: all } = &input;
        let line_end = if separator.starts_with('\r') { "\r\n" } else { "\n" };
        let (first, later) = all.split_at(imports.min(all.len()));
        let mut text: String = first.iter().map(|record| format!("{record}{separator}")).collect();
        if !header.is_empty() {
            text = format!("{header}{line_end}{text}");
        }
        cut(&mut text, ended);
        let place = imported(folder.path(), "d", text.as_bytes(), *format);
        let mut writer = Writer::open(&place).unwrap();
        // An import of lines has no empty last line if its file does not end it.
        let mut expected = records(writer.dataset());
        for (some, seal) in later.chunks(later.len().div_ceil(appends).max(1)).zip(seals) {
            let mut text = some.join(separator);
            text.push_str(separator);
            cut(&mut text, ended);
            if text.is_empty() {
                continue;
            }
            let ids = writer.append(text.as_bytes()).unwrap();
            expected.extend((ids).map(|id| {
                let record = String::from_utf8(writer.dataset().get(id).unwrap()).unwrap();
                record.trim_end_matches(['\r', '\n']).to_owned()
            }));
            if seal {
                writer.seal().unwrap();
            }
        }
        let end = writer.dataset().end_id();
        let gone: BTreeSet<u64> =
            deleted.iter().filter(|_| end > 0).map(|one| one.index(end as usize) as u64).collect();
        writer.delete(&gone.iter().copied().collect::<Vec<_>>()).unwrap();
        let there = expected.into_iter().zip(0..).filter(|(_, id)| !gone.contains(id));
        let expected: Vec<String> = there.map(|(record, _)| record).collect();
        prop_assert_eq!(&records(writer.dataset()), &expected);
        let mut exported = Vec::new();
        writer.dataset().export(&mut exported).unwrap();
        let again = imported(folder.path(), "again", &exported, *format);
        let again = Dataset::open(&again).unwrap();
        prop_assert_eq!(records(&again), expected, "{:?}", String::from_utf8_lossy(&exported));
    }
}

/// An import and an append in which each format's last record lacks its separator, and what is exported.
#[test]
fn separators_are_added_between_what_came_from_different_files() {
    let check = |format: &str, import: &str, append: &str, expected: &str| {
        let folder = tempfile::tempdir().unwrap();
        let place = imported(folder.path(), "d", import.as_bytes(), format.parse().unwrap());
        let mut writer = Writer::open(&place).unwrap();
        let mut alone = Vec::new();
        writer.dataset().export(&mut alone).unwrap();
        assert_eq!(
            String::from_utf8(alone).unwrap(),
            import,
            "byte for byte while nothing follows"
        );
        writer.append(append.as_bytes()).unwrap();
        for _ in 0..2 {
            let mut exported = Vec::new();
            writer.dataset().export(&mut exported).unwrap();
            assert_eq!(String::from_utf8(exported).unwrap(), expected);
            writer.seal().unwrap();
        }
    };
    check("json", "{\"a\":1}", "{\"a\":2}", "{\"a\":1}\n{\"a\":2}\n");
    check("csv", "a,b\n1,x\n2,y", "3,z\n", "a,b\n1,x\n2,y\n3,z\n");
    check("csv", "a,b\r\n1,x", "3,z", "a,b\r\n1,x\r\n3,z\n");
    check("csv", "a,b", "3,z", "a,b\n3,z\n");
    check("stanzas", "A: 1\nB: x\n\nA: 2\n", "A: 3\n", "A: 1\nB: x\n\nA: 2\n\nA: 3\n\n");
    check("stanzas", "A: 1\r\nB: x", "A: 3", "A: 1\r\nB: x\r\n\r\nA: 3\n\n");
    check("lines", "a\n\nb", "c", "a\n\nb\nc\n");
}
