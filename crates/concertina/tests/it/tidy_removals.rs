//! The list of everything that removes, renames or overwrites (docs/decisions/0014-what-is-removed.md) is complete, and lists
//! nothing that is gone.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::tidy::{all_sources, relative_name, root};

/// Calls that remove, rename or overwrite, or that open what may be there.
const CALLS: [&str; 17] = [
    "remove_dir_all(",
    "remove_dir(",
    "remove_file(",
    "remove_files(",
    "remove_own(",
    "rename(",
    "renameat_with(",
    "persist(",
    "persist_noclobber(",
    "set_len(",
    "tempdir(",
    "tempdir_in(",
    "hard_link(",
    "fs::write(",
    "fs::copy(",
    "File::create(",
    ".create(",
];

/// A call in a function of a file; of `experiments`, in a file.
type Place = (String, String, String);

/// Whether the text has the call as a word of its own.
fn has_call(line: &str, call: &str) -> bool {
    line.match_indices(call).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        call.starts_with('.') || !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

/// The name of the function that a line begins, and what follows it.
fn function(line: &str) -> Option<(&str, &str)> {
    let (before, rest) = line.trim_start().split_once("fn ")?;
    let is_word =
        |word: &str| word.starts_with("pub") || ["async", "const", "unsafe"].contains(&word);
    let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'))?;
    before.split_whitespace().all(is_word).then(|| rest.split_at(end))
}

/// The calls in the text of a file, up to its tests.
fn calls(file: &str, text: &str) -> BTreeSet<Place> {
    let mut found = BTreeSet::new();
    let mut name = "";
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let is_inline = |next: &&str| next.starts_with("mod ") && next.ends_with('{');
        if line == "#[cfg(test)]" && lines.peek().is_some_and(is_inline) {
            break;
        }
        let mut code = line.split("//").next().unwrap_or_default();
        if let Some((function, rest)) = function(code) {
            (name, code) = (function, rest);
        }
        // Of the options of opening, `create` makes a file that others may have made; constructors have that name, too.
        let is_option = code.contains(".create(true)") || code.contains(".create(create)");
        for call in CALLS.iter().filter(|call| has_call(code, call)) {
            if *call != ".create(" || is_option {
                let function = if file.starts_with("experiments") { "" } else { name };
                let call = call.trim_matches(['.', '(']).to_owned();
                found.insert((file.to_owned(), function.to_owned(), call));
            }
        }
    }
    found
}

fn is_test(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    path.contains("/tests/")
        || path.contains("/benches/")
        || name == "tests.rs"
        || name.ends_with("_tests.rs")
}

/// The calls that the tables list: rows of `file` and functions, calls, and more.
fn listed(text: &str) -> BTreeSet<Place> {
    let mut listed = BTreeSet::new();
    for row in text.lines().filter(|line| line.starts_with("| `")) {
        let mut cells = row.trim_matches('|').split(" | ");
        let mut quoted = || -> Vec<String> {
            let cell = cells.next().unwrap_or_default();
            cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
        };
        let (place, calls) = (quoted(), quoted());
        let is_experiment = place[0].starts_with("experiments");
        let is_whole = is_experiment || place[0].starts_with("python/");
        let file = if is_whole { place[0].clone() } else { format!("crates/{}", place[0]) };
        let functions = if is_experiment { vec![String::new()] } else { place[1..].to_vec() };
        assert!(!functions.is_empty() && !calls.is_empty(), "{row}");
        for function in functions {
            let call = |call: &String| (file.clone(), function.clone(), call.clone());
            listed.extend(calls.iter().map(call));
        }
    }
    listed
}

#[test]
fn whatever_removes_renames_or_overwrites_is_listed_with_its_reason() {
    let table = "docs/decisions/0014-what-is-removed.md";
    let listed = listed(&fs::read_to_string(root().join(table)).unwrap());
    let mut found = BTreeSet::new();
    for path in all_sources() {
        let name = relative_name(&path);
        if !is_test(&name) && !Path::new(&name).components().any(|it| it.as_os_str() == "target") {
            found.extend(calls(&name, &fs::read_to_string(&path).unwrap()));
        }
    }
    let recursive: Vec<_> = found
        .iter()
        .filter(|(file, _, call)| call == "remove_dir_all" && file.starts_with("crates/"))
        .collect();
    assert!(recursive.is_empty(), "use origin::marker::remove_own: {recursive:#?}");
    let missing: Vec<_> = found.difference(&listed).collect();
    assert!(
        missing.is_empty(),
        "{table} does not say why these can only hit what is ours: {missing:#?}"
    );
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(gone.is_empty(), "{table} lists what is gone: {gone:#?}");
}

#[test]
fn calls_are_found_where_they_are() {
    let text = "fn a() {\n    let x = || std::fs::remove_file(path);\n    // fs::write(path)\n}\n\
        pub(crate) fn rename(&self) {\n    self.file.persist(path)\n    do_rename(1);\n    Copies::create(x);\n}\n\
        async fn b() { options.create(true); }\n#[cfg(test)]\nmod tests {\n    fn c() { fs::write() }\n}\n";
    let expected = [("a", "remove_file"), ("rename", "persist"), ("b", "create")];
    let expected =
        expected.map(|(function, call)| ("f".to_owned(), function.to_owned(), call.to_owned()));
    assert_eq!(calls("f", text), BTreeSet::from(expected));
}
