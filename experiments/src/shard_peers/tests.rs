//! Splitting, drawing, the oracle; and the protocol with SQLite and our own library over a few records.

use std::io::Cursor;
use std::path::Path;

use super::config::{Class, Config, TextConfig};
use super::engine::{Engine, write_task};
use super::oracle::{self, Hits};
use super::protocol::{Form, Kind, Question, Reply, Task};
use super::text::Text;
use super::{engine, measure, ours, questions};

const STANZAS: &str = "\
Package: nano
Maintainer: Ann Editor <ann@example.org>
Tag: editor,
 console
Section: editors

Package: python3-nano
Maintainer: Python Team <python@example.org>
Section: python


Package: vim
Maintainer: Ann Editor <ann@example.org>
Section: editors
";

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("shard-peers")
}

fn config() -> Config {
    let text = std::fs::read_to_string(folder().join("config.toml")).unwrap();
    let config: Config = toml::from_str(&text).unwrap();
    config.check().unwrap();
    config
}

fn described(format: &str) -> TextConfig {
    TextConfig {
        name: "few".to_owned(),
        file: Some("none".into()),
        lineitem_bytes: 0,
        format: format.to_owned(),
        key: (format == "stanzas").then(|| "Package".to_owned()),
        equals: ["Package", "Section"].map(str::to_owned).to_vec(),
        contains: vec!["Maintainer".to_owned()],
        regexes: vec!["^Package: (nano|vim)$".to_owned(), "no match".to_owned()],
    }
}

fn stanzas() -> Text {
    Text::split(STANZAS.to_owned(), &described("stanzas")).unwrap()
}

/// Lines keep what stands at their ends; an empty one is a record too, and the last needs no newline.
#[test]
fn lines_are_records() {
    let bare = || TextConfig { equals: vec![], contains: vec![], ..described("lines") };
    let text = Text::split("one two  \n\n{\"a\":1}\nlast".to_owned(), &bare()).unwrap();
    let found: Vec<&str> = text.records.iter().map(|r| &text.content[r.range.clone()]).collect();
    assert_eq!(found, ["one two  ", "", "{\"a\":1}", "last"]);
    assert_eq!(text.record_of(12), Some(2));
    assert!(Text::split(String::new(), &bare()).is_err());
}

#[test]
fn texts_are_split_into_records_with_their_values() {
    let text = stanzas();
    let names = text.records.iter().map(|r| &*r.values["Package"]).collect::<Vec<_>>();
    assert_eq!(names, ["nano", "python3-nano", "vim"]);
    let first = &STANZAS[text.records[0].range.clone()];
    assert!(first.starts_with("Package: nano\n") && first.ends_with("Section: editors"), "{first}");
    assert_eq!(text.record_of(STANZAS.find("vim").unwrap()), Some(2));
    assert_eq!(text.record_of(STANZAS.find("\n\n").unwrap() + 1), None);
    let csv = "name,admin\nParis,\"a, b\"\nRome,c\n".to_owned();
    let rows = TextConfig {
        key: None,
        equals: vec!["name".to_owned()],
        contains: vec!["admin".to_owned()],
        ..described("csv")
    };
    let text = Text::split(csv, &rows).unwrap();
    assert_eq!((text.header, text.records.len()), (11, 2));
    assert_eq!(&text.content[text.records[0].range.clone()], "Paris,\"a, b\"");
    assert_eq!(text.records[0].values["admin"], "a, b");
    assert!(Text::split("a\n\"x\ny\"\n".to_owned(), &rows).is_err(), "a row of two lines");
    let folded = TextConfig { contains: vec!["Tag".to_owned()], ..described("stanzas") };
    assert!(Text::split(STANZAS.to_owned(), &folded).is_err(), "a value of two lines");
}

#[test]
fn the_oracle_knows_records_lines_and_what_depends_on_the_reading() {
    let text = stanzas();
    let folded = text.content.to_ascii_lowercase().into_bytes();
    let records = |hits: Option<Hits>| hits.map(|hits| hits.records);
    let ano = oracle::substring(&text, "ano").unwrap();
    assert_eq!((ano.records.as_slice(), ano.lines.len(), ano.occurrences), (&[0, 1][..], 2, 2));
    assert_eq!(records(oracle::word(&text, &folded, "editors")), Some(vec![0, 2]));
    assert_eq!(records(oracle::word(&text, &folded, "nan")), Some(vec![]));
    assert_eq!(records(oracle::word(&text, &folded, "python")), None, "Python is another case");
    assert_eq!(records(oracle::equals(&text, "Section", "editors")), Some(vec![0, 2]));
    assert_eq!(records(oracle::contains(&text, "Maintainer", "Editor")), Some(vec![0, 2]));
    assert_eq!(records(oracle::contains(&text, "Maintainer", "Edit")), None, "a part of a word");
    let right = ano.expected_records(&text, Kind::Substring);
    let of = |numbers: &[usize]| {
        oracle::summed(
            numbers.iter().map(|&n| text.content[text.records[n].range.clone()].as_bytes()),
        )
    };
    for (form, records, is) in [
        (Form::All, &[1, 0][..], true),
        (Form::All, &[0, 2], false),
        (Form::All, &[0], false),
        (Form::First, &[0, 1], true),
        (Form::First, &[0, 2], false),
        (Form::First, &[0], false),
        (Form::Count, &[0, 2], true),
        (Form::Count, &[0], false),
    ] {
        assert_eq!(right.is(form, &of(records)), is, "{form:?} {records:?}");
    }
}

#[test]
fn questions_are_drawn_for_each_class_there_is() {
    let text = stanzas();
    let config = config();
    let asked =
        questions::draw(&text, &described("stanzas"), &config, config.questions(true)).unwrap();
    let kinds: Vec<Kind> = asked.iter().map(|asked| asked.question.kind).collect();
    for kind in [Kind::Substring, Kind::Word, Kind::Equals, Kind::Contains, Kind::Regex, Kind::Key]
    {
        assert_eq!(kinds.iter().filter(|k| **k == kind).count(), 1, "{kind:?} in {kinds:?}");
    }
    assert!(asked.iter().all(|asked| asked.class == Class::Rare), "three records are few");
}

/// Builds an engine over the few records, asks it what `draw` gives, and counts its answers.
fn answers(engine: &Engine, place: &Path) -> usize {
    let text = stanzas();
    let config = config();
    let drawn =
        questions::draw(&text, &described("stanzas"), &config, config.questions(true)).unwrap();
    let built = engine.build(place).unwrap().unwrap();
    assert!(built.wall_s > 0.0 && engine::disk_bytes(&engine.folder(place)).unwrap() > 0);
    let mut open = engine.open(place).unwrap();
    let mut answers = 0;
    for asked in &drawn {
        for form in Form::ALL {
            let question = Question { form, ..asked.question.clone() };
            let reply = open.ask(&question).unwrap();
            if reply.cannot.is_none() {
                let right = oracle::check(&question, &asked.records, &reply);
                assert!(right, "{question:?}: {reply:?}");
                answers += 1;
            }
        }
    }
    assert!(open.memory_use().unwrap().anonymous_bytes.is_some());
    answers
}

fn task(place: &Path) -> Task {
    let path = |name: &str| place.join(name).to_string_lossy().into_owned();
    let task = Task {
        text: path("text"),
        records: path("records.jsonl"),
        format: "stanzas".to_owned(),
        key: Some("Package".to_owned()),
        equals: described("stanzas").equals,
        contains: described("stanzas").contains,
        program: String::new(),
    };
    write_task(place, &task, STANZAS).unwrap();
    stanzas().write_records(Path::new(&task.records)).unwrap();
    task
}

#[test]
fn sqlite_answers_by_the_protocol() {
    let dir = tempfile::tempdir().unwrap();
    task(dir.path());
    let script = folder().join("peer.py").to_string_lossy().into_owned();
    let peer = |name: &str| Engine::of_command(vec!["python3".into(), script.clone(), name.into()]);
    // FTS5 is part of every Python that is built as usual; the trigram tokenizer came with SQLite 3.34.
    for (name, kinds) in [("sqlite-trigram", 4), ("sqlite-trigram-small", 4), ("sqlite-words", 4)] {
        assert_eq!(answers(&peer(name), dir.path()), kinds * Form::ALL.len(), "{name}");
    }
    assert!(peer("unknown").open(dir.path()).is_err());
}

#[test]
fn our_library_answers_by_the_protocol() {
    let dir = tempfile::tempdir().unwrap();
    let task = task(dir.path());
    let folder = dir.path().join("ours");
    let built = ours::build(&task, &folder, 8, 8).unwrap();
    assert!(built.wall_s > 0.0);
    let (text, config) = (stanzas(), config());
    let drawn =
        questions::draw(&text, &described("stanzas"), &config, config.questions(true)).unwrap();
    let ways = Form::ALL.into_iter().flat_map(|form| [(form, false), (form, true)]);
    for (form, text_layer) in ways {
        let asked = drawn.iter().map(|asked| Question { form, ..asked.question.clone() });
        let asked: Vec<Question> = asked.collect();
        let lines = asked.iter().map(|question| serde_json::to_string(question).unwrap() + "\n");
        let input: String = lines.chain(["\"memory\"\n".to_owned()]).collect();
        let mut out = Vec::new();
        ours::serve(&folder, text_layer, Cursor::new(input), &mut out).unwrap();
        let said: Vec<&str> = std::str::from_utf8(&out).unwrap().lines().collect();
        assert_eq!(said.len(), asked.len() + 2, "opened, answers, memory");
        for ((question, drawn), line) in asked.iter().zip(&drawn).zip(&said[1..]) {
            let reply: Reply = serde_json::from_str(line).unwrap();
            // A key has no counts, occurrences nothing else.
            let makes_sense = match question.kind {
                Kind::Occurrences => form == Form::Count,
                Kind::Key => form != Form::Count,
                _ => true,
            };
            let right = oracle::check(question, &drawn.records, &reply);
            assert!(right || !makes_sense, "{question:?}: {line}");
        }
    }
    assert!(ours::serve(&folder, false, Cursor::new("{}\n"), &mut Vec::new()).is_err());
}

#[test]
fn a_cell_is_of_its_median_and_a_table_marks_the_fastest() {
    let cell = measure::Cell { kind: Kind::Word, class: Class::Rare, form: Form::First };
    let row = |engine: &str, wall_s: &[f64], wrong: u64, cannot: Option<&str>| measure::Row {
        engine: engine.to_owned(),
        cell,
        cannot: cannot.map(str::to_owned),
        wall_s: wall_s.to_vec(),
        cpu_s: wall_s.to_vec(),
        wrong,
        questions: 1,
        answers: 3.0,
    };
    let size = |engine: &str| measure::Size {
        engine: engine.to_owned(),
        version: "1".to_owned(),
        disk_bytes: Some(60),
        cached_bytes: Some(50),
        anonymous_bytes: None,
        built: None,
        open_s: 0.0,
    };
    let rows = vec![
        row("shard", &[0.002, 0.004], 0, None),
        row("wrong", &[0.001, 0.001], 1, None),
        row("other", &[], 0, Some("no words")),
        row("rg", &[0.03, 0.03], 0, None),
    ];
    let sizes = ["shard", "wrong", "other", "rg"].map(size).to_vec();
    let measured = measure::TextMeasurements {
        text: "few".to_owned(),
        bytes: 100,
        records: 3,
        missing: vec!["tantivy: none".to_owned()],
        sizes,
        questions: Vec::new(),
        rows,
    };
    let text = super::table::text(&measured);
    for said in ["3.00*", "1.00!", "30.0*", "other cannot: word: no words", "missing: tantivy"] {
        assert!(text.contains(said), "{said} in {text}");
    }
    let ratios = measured.ratios("rg", "shard", cell);
    assert_eq!(ratios.iter().map(|r| r.round()).collect::<Vec<_>>(), [15.0, 8.0]);
}
