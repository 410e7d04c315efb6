use proptest::prelude::*;
use shard::record::{Builder, Format, Schema};

use super::text::{Text, input_files};
use super::*;
use crate::Dataset;
use crate::manifest::Manifest;
use crate::tests::options;

const CSV: Format = Format::Csv { delimiter: b',', header: true };
const ROWS: Format = Format::Csv { delimiter: b',', header: false };

/// A folder with inputs, and their paths.
fn inputs(texts: &[&[u8]]) -> (tempfile::TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    let path = |at: usize| folder.path().join(format!("input-{at}"));
    let paths: Vec<PathBuf> = (0..texts.len()).map(path).collect();
    paths.iter().zip(texts).for_each(|(path, text)| std::fs::write(path, text).unwrap());
    (folder, paths)
}

fn of_format(format: Format) -> Options {
    Options { format: Some(format), ..options() }
}

fn split_into(folder: &Path, paths: &[PathBuf], parts: usize, options: &Options) -> SplitSummary {
    let options = SplitOptions { import: options, again: false };
    split(folder, "d", paths, PartSize::Count(parts), &options, &mut |_| ()).unwrap()
}

fn refused<T>(what: Result<T>, part: &str) {
    let error = ground::with_causes(&what.err().expect(part));
    assert!(error.contains(part), "{error}");
}

/// The files of a dataset, the manifest without its id.
fn content(place: &Path) -> (Vec<(String, Vec<u8>)>, Manifest) {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(place).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name != "dataset.json" && name != "lock" && !name.starts_with(".concertina") {
            all.push((name.clone(), std::fs::read(place.join(name)).unwrap()));
        }
    }
    all.sort();
    let mut manifest = Manifest::read(place).unwrap();
    manifest.id = "0".repeat(16);
    (all, manifest)
}

/// Splits, builds in the order of `order` and joins; the same as one process makes.
fn check(texts: &[&[u8]], parts: usize, options: &Options) -> Dataset {
    let (folder, paths) = inputs(texts);
    let (here, there) = (folder.path().join("here"), folder.path().join("there"));
    let size = PartSize::Count(parts);
    let local = import_parts(&here, "d", &paths, size, options, &mut |_| ()).unwrap();
    let summary = split_into(&there, &paths, parts, options);
    assert_eq!(summary.parts, parts);
    for part in (0..parts).rev() {
        build(&there, "d", part, None, &mut |_| ()).unwrap();
    }
    let joined = join(&there, "d", false).unwrap();
    let (one, two) = (content(&here.join("d")), content(&there.join("d")));
    assert_eq!(one, two);
    let shown = |made: &Imported| {
        (made.records, made.bad, made.first_bad.clone(), made.shards, made.input_bytes)
    };
    assert_eq!(shown(&local), shown(&joined));
    assert!(!there.join(".parts-d").exists());
    Dataset::open(&there.join("d")).unwrap()
}

fn exported(dataset: &Dataset) -> Vec<u8> {
    let mut bytes = Vec::new();
    dataset.export(&mut bytes).unwrap();
    bytes
}

#[test]
fn parts_that_are_joined_are_what_one_process_makes() {
    let line = |at: usize| format!("{at} {}\n", "x".repeat(at % 40));
    let lines: String = (0..3_000).map(line).collect();
    let dataset = check(&[lines.as_bytes()], 8, &of_format(Format::Lines));
    assert_eq!((dataset.parts().len(), exported(&dataset)), (8, lines.clone().into_bytes()));
    let sizes: Vec<u64> = dataset.manifest().shards.iter().map(|shard| shard.input_bytes).collect();
    let mean = lines.len() as u64 / 8;
    assert!(sizes.iter().all(|bytes| bytes.abs_diff(mean) < 100), "{sizes:?}");

    let row = |at: usize| format!("{at},\"a \"\"quoted\"\"\n line\",{}\n", at * 7 % 1000);
    let rows: String = (0..1_000).map(row).collect();
    let (one, two) = (format!("id,text,size\n{rows}"), "id,text,size\nx,y,1\nz\nw,y,2");
    let given = Options { key: Some("id".into()), orders: vec!["size".into()], ..of_format(CSV) };
    let dataset = check(&[one.as_bytes(), two.as_bytes()], 5, &given);
    assert_eq!(exported(&dataset), format!("{one}x,y,1\nz\nw,y,2").into_bytes());
    let found = dataset.count(&"size:..1".parse().unwrap()).unwrap();
    assert_eq!((dataset.end_id(), found), (1_003, 1 + 1 + 1));

    let json: String = (0..500).map(|at| format!("{{\"n\":{at}}}\n\n")).collect();
    let dataset = check(&[json.as_bytes(), b"\n\n", b"{\"n\":7}"], 3, &options());
    assert_eq!((dataset.end_id(), dataset.id_of("499").unwrap()), (501, Some(499)));

    let stanza = |at: usize| format!("Name: {at}\nText: a\n b\n \n");
    let stanzas: String = (0..500).map(stanza).collect();
    let dataset = check(&[stanzas.as_bytes(), b"Name: x\nText: y"], 4, &options());
    assert_eq!((dataset.end_id(), dataset.id_of("x").unwrap()), (501, Some(500)));

    let files: Vec<Vec<u8>> = (0..9).map(|at| vec![b'a' + at; 1 << at]).collect();
    let texts: Vec<&[u8]> = files.iter().map(Vec::as_slice).collect();
    let dataset = check(&texts, 3, &of_format(Format::Files));
    assert_eq!((dataset.end_id(), dataset.get(8).unwrap()), (9, files[8].clone()));

    // More parts than records, and no record at all.
    let dataset = check(&[b"a\nb\n"], 7, &of_format(Format::Lines));
    assert_eq!((dataset.parts().len(), dataset.end_id()), (2, 2));
    assert_eq!(check(&[b""], 3, &of_format(Format::Lines)).end_id(), 0);
    let marked = b"\xEF\xBB\xBF\n\na\nb\n";
    for format in [Format::Lines, Format::JsonLines, Format::Stanzas, ROWS] {
        check(&[marked, marked], 20, &of_format(format));
    }
}

/// Texts with what separates records anywhere.
fn text_of(format: Format) -> impl Strategy<Value = Vec<u8>> {
    let symbols = match format {
        Format::Csv { .. } => vec!["a", ",", "\"", "\"", "\n", "\r\n"],
        Format::Stanzas => vec!["a: b", "\n", "\n", " ", "\r\n"],
        _ => vec!["a", "{}", "\n", "\n", " ", "\r\n"],
    };
    let symbol = proptest::sample::select(symbols);
    proptest::collection::vec(symbol, 0..60).prop_map(|all| all.concat().into_bytes())
}

fn any_input() -> impl Strategy<Value = (Format, Vec<Vec<u8>>)> {
    let format = prop_oneof![
        Just(Format::Lines),
        Just(Format::JsonLines),
        Just(Format::Stanzas),
        Just(ROWS),
    ];
    let texts = |format| proptest::collection::vec(text_of(format), 1..4);
    format.prop_flat_map(move |format| (Just(format), texts(format)))
}

/// The starts of records of a whole text, from 0.
fn starts(schema: &Schema, text: &[u8]) -> Vec<u64> {
    let mut builder = Builder::new(schema.clone());
    builder.push(text).unwrap();
    let (records, _) = builder.finish().unwrap();
    (0..records.len()).map(|record| records.range(record).unwrap().start as u64).collect()
}

/// The cut at a position by reading everything: the first start of a record from there on. A stanza must show its blank line, too.
fn naive_cut(format: Format, text: &[u8], starts: &[u64], position: u64) -> u64 {
    let line_before = |start: u64| {
        let before = &text[..(start as usize).saturating_sub(1)];
        before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at as u64 + 1)
    };
    let is_cut = |start: &&u64| {
        **start >= position && (format != Format::Stanzas || line_before(**start) >= position)
    };
    let found = starts.iter().find(is_cut);
    if position == 0 { 0 } else { found.copied().unwrap_or(text.len() as u64) }
}

proptest! {
    #[test]
    fn cuts_are_the_first_starts_of_records(
        (format, texts) in any_input(), count in 1..9_usize,
    ) {
        let texts: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
        let (_folder, paths) = inputs(&texts);
        let schema = Schema::new(format);
        let files = input_files(&paths, &schema).unwrap();
        let mut text = Text::new(&files, format).unwrap();
        let cuts = cut::cuts(&mut text, &schema, count, &mut |_| ()).unwrap();
        let len = text.len();
        let whole = text.read_range(&(0..len)).unwrap();
        let starts = starts(&schema, &whole);
        let targets: Vec<u64> = cut::targets(len, count).collect();
        prop_assert_eq!(targets.len(), count - 1);
        let naive = targets.iter().map(|target| naive_cut(format, &whole, &starts, *target));
        let expected: Vec<u64> = [0].into_iter().chain(naive).chain([len]).collect();
        prop_assert_eq!(cuts, expected);
    }

    /// What the files are together does not depend on how much is read at a time.
    #[test]
    fn a_text_is_read_from_anywhere((format, texts) in any_input(), len in 1..7_usize) {
        let texts: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
        let (_folder, paths) = inputs(&texts);
        let files = input_files(&paths, &Schema::new(format)).unwrap();
        let mut text = Text::new(&files, format).unwrap();
        let mut expected = Vec::new();
        for (file, bytes) in files.iter().zip(&texts) {
            expected.extend_from_slice(bytes);
            expected.extend_from_slice(file.separator.as_bytes());
        }
        let all = text.len();
        prop_assert_eq!(&text.read_range(&(0..all)).unwrap(), &expected);
        for start in 0..all {
            let end = all.min(start + len as u64);
            let range = start as usize..end as usize;
            prop_assert_eq!(&text.read_range(&(start..end)).unwrap()[..], &expected[range]);
        }
    }

    /// A description that another program wrote, or a damaged one, is an error or a split.
    #[test]
    fn a_changed_description_is_refused_or_used(
        at in any::<prop::sample::Index>(), byte in any::<u8>(), part in 0..4_usize,
    ) {
        let (folder, paths) = inputs(&[b"a\nb\nc\nd\n"]);
        split_into(folder.path(), &paths, 3, &of_format(Format::Lines));
        let file = folder.path().join(".parts-d").join(FILE);
        let mut text = std::fs::read(&file).unwrap();
        let at = at.index(text.len());
        text[at] = byte;
        std::fs::write(&file, text).unwrap();
        if build(folder.path(), "d", part, None, &mut |_| ()).is_ok() {
            let _ = join(folder.path(), "d", false);
        }
    }
}

#[test]
fn a_part_reads_its_range_alone() {
    let text: String = (0..1_000).map(|at| format!("{at:06}\n")).collect();
    let (folder, paths) = inputs(&[text.as_bytes()]);
    let lines = of_format(Format::Lines);
    let expected = folder.path().join("expected");
    import_parts(&expected, "d", &paths, PartSize::Count(5), &lines, &mut |_| ()).unwrap();
    split_into(folder.path(), &paths, 5, &lines);
    let split = InputSplit::read(&folder.path().join(".parts-d")).unwrap();
    for part in 0..5 {
        let range = split.cuts[part] as usize..split.cuts[part + 1] as usize;
        let mut foreign = vec![b'?'; text.len()];
        foreign[range.clone()].copy_from_slice(&text.as_bytes()[range]);
        std::fs::write(&paths[0], foreign).unwrap();
        build(folder.path(), "d", part, None, &mut |_| ()).unwrap();
    }
    join(folder.path(), "d", false).unwrap();
    assert_eq!(content(&folder.path().join("d")), content(&expected.join("d")));
}

#[test]
fn each_step_may_be_repeated() {
    let (folder, paths) = inputs(&[b"a\nb\nc\nd\n"]);
    let (folder, lines) = (folder.path(), of_format(Format::Lines));
    let first = split_into(folder, &paths, 3, &lines);
    assert_eq!(split_into(folder, &paths, 3, &lines), first);
    let build = |part| build(folder, "d", part, None, &mut |_| ());
    let built = build(1).unwrap();
    assert!(!built.was_built);
    assert_eq!(build(1).unwrap(), BuiltPart { was_built: true, ..built.clone() });
    refused(join(folder, "d", false), "2 of 3 parts of d are not built: 0, 2");
    // A task that was killed before it had written its report, one whose shard is cut, and what one that was killed left.
    let place = folder.join(".parts-d");
    std::fs::remove_file(place.join(report_file(2))).unwrap();
    assert!(!build(1).unwrap().was_built);
    std::fs::write(place.join("000002.shard"), "cut").unwrap();
    assert_eq!(build(1).unwrap(), built);
    std::fs::write(place.join(".writing-abc123"), "half").unwrap();
    build(0).unwrap();
    build(2).unwrap();
    refused(build(3), "the parts 0 to 2");
    // Another split of the name.
    let options = SplitOptions { import: &lines, again: false };
    let other = split(folder, "d", &paths, PartSize::Bytes(4), &options, &mut |_| ());
    refused(other, "--again");
    let options = SplitOptions { again: true, ..options };
    let other = split(folder, "d", &paths, PartSize::Bytes(4), &options, &mut |_| ()).unwrap();
    assert_eq!((other.parts, other.part_bytes_max), (2, 4));
    refused(join(folder, "d", false), "2 of 2 parts of d are not built: 0, 1");
    build(0).unwrap();
    build(1).unwrap();
    assert_eq!(join(folder, "d", false).unwrap().records, 4);
    refused(join(folder, "d", false), "exists already");
    refused(build(0), "no input of d is split");
    assert_eq!(content(&folder.join("d")).0.len(), 2);
    // Over an existing dataset.
    let again = Options { replace: true, ..lines };
    split_into(folder, &paths[..1], 1, &again);
    build(0).unwrap();
    assert_eq!(join(folder, "d", true).unwrap().shards, 1);
    assert_eq!(content(&folder.join("d")).0.len(), 1);
}

#[test]
fn what_cannot_be_split_is_refused() {
    let (folder, paths) = inputs(&[b"a\nb\nc\nd\n", b"\x1f\x8b\x08compressed"]);
    let (folder, lines) = (folder.path(), of_format(Format::Lines));
    let split = |paths: &[PathBuf], size, options: &Options| {
        let options = SplitOptions { import: options, again: false };
        split(folder, "d", paths, size, &options, &mut |_| ())
    };
    let two = PartSize::Count(2);
    refused(split(&paths, two, &lines), "is compressed");
    refused(split(&["-".into()], two, &lines), "standard input");
    refused(split(&[], two, &lines), "nothing to import");
    refused(split(&paths[..1], PartSize::Count(0), &lines), "0 parts");
    refused(split(&paths[..1], PartSize::Count(PARTS_MAX + 1), &lines), "1 to 100000");
    refused(split(&[folder.join("none")], two, &lines), "cannot open");
    let large = folder.join("large");
    let file = std::fs::File::create(&large).unwrap();
    file.set_len(5 << 30).unwrap();
    refused(split(&[large], PartSize::Count(1), &lines), "more parts");
    assert!(!folder.join(".parts-d").exists());
    // A file that is not the one that was split.
    split(&paths[..1], two, &lines).unwrap();
    std::fs::write(&paths[0], "a\nb\nc\nd\ne\n").unwrap();
    refused(build(folder, "d", 0, None, &mut |_| ()), "has 10 bytes, and had 8");
    refused(build(folder, "d", 0, Some(1 << 20), &mut |_| ()), "too little");
    let other = folder.join("other");
    std::fs::write(&paths[0], "a,b\n1,2\n").unwrap();
    std::fs::write(&other, "b,a\n1,2\n").unwrap();
    refused(split(&[paths[0].clone(), other], two, &of_format(CSV)), "header of the first file");
}
