//! Names and signatures that make a reader look things up, counted: the counts may only fall.
//!
//! A name that needs its definition to be read costs everyone a look-up, every time. So a type has a noun for a name, a
//! function a verb with its object, what belongs together is a struct and not a tuple, and a body fits a screen.

use std::collections::BTreeMap;
use std::fs;

use crate::tidy::{all_sources, relative_name};

/// How many of each kind there are today. Lower a number as soon as a test says that it can be.
const COUNTS: [(&str, usize, &str); 4] = [
    ("fn", 0, "a function is named only by a preposition, a pronoun or a participle"),
    ("long", 13, "a function has more than 70 lines"),
    ("tuple", 0, "a parameter is a tuple of two or more parts: name a struct, or pass them apart"),
    ("type", 0, "a type is named by a participle or a pronoun: name the thing"),
];

/// Lines of a function, its signature included: a screen.
const FUNCTION_LINES_MAX: usize = 70;

/// What no type and no function is called by alone.
const WORDS: [&str; 28] = [
    "answered", "arriving", "asked", "at", "begun", "drawn", "found", "given", "heard", "held",
    "here", "kept", "known", "meant", "measured", "of", "one", "rest", "said", "seen", "shown",
    "so", "such", "taken", "told", "waiting", "wanted", "whole",
];

/// The name that a line declares by one of these keywords.
fn declared<'a>(code: &'a str, keywords: &[&str]) -> Option<&'a str> {
    let mut rest = code.trim_start();
    while let Some((word, after)) = rest.split_once(' ') {
        if keywords.contains(&word) {
            let end = after.find(|c: char| !(c.is_alphanumeric() || c == '_'));
            return Some(&after[..end.unwrap_or(after.len())]);
        }
        if !(["const", "async", "unsafe"].contains(&word) || word.starts_with("pub")) {
            break;
        }
        rest = after.trim_start();
    }
    None
}

/// Whether a line has a parameter that is a tuple: `(one, other): (`.
fn has_tuple(code: &str) -> bool {
    let is_list = code.trim_start().starts_with('(') || declared(code, &["fn"]).is_some();
    let is_tuple = |start: usize| {
        let Some((pattern, after)) = code[start + 1..].split_once(')') else { return false };
        let Some(first) = pattern.split_once(',').map(|(first, _)| first.trim()) else {
            return false;
        };
        let first = first.strip_prefix("mut ").unwrap_or(first);
        let is_name = first.starts_with(|c: char| c.is_lowercase() || c == '_')
            && first.chars().all(|c| c.is_alphanumeric() || c == '_');
        let kind = after.trim_start().strip_prefix(':');
        is_name
            && !pattern.contains('(')
            && kind.is_some_and(|kind| kind.trim_start().starts_with('('))
    };
    is_list && code.match_indices('(').any(|(start, _)| is_tuple(start))
}

/// The findings in a text: their kinds, line numbers and names.
fn findings(text: &str) -> Vec<(&'static str, usize, String)> {
    let mut found = Vec::new();
    // The function whose end has not come yet: its first line, its indent, its name.
    let mut open: Option<(usize, usize, &str)> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let code = line.split("//").next().unwrap_or_default();
        if let Some(name) = declared(code, &["struct", "enum", "trait", "type"])
            && WORDS.contains(&&*name.to_lowercase())
            && name.starts_with(char::is_uppercase)
        {
            found.push(("type", number, name.to_owned()));
        }
        if let Some(name) = declared(code, &["fn"]) {
            if WORDS.contains(&name) {
                found.push(("fn", number, name.to_owned()));
            }
            open = Some((number, line.len() - line.trim_start().len(), name));
        }
        if let Some((start, indent, name)) = open
            && code
                .trim_end()
                .strip_suffix('}')
                .is_some_and(|before| before.len() == indent && before.trim_start().is_empty())
        {
            let lines = number - start + 1;
            if lines > FUNCTION_LINES_MAX {
                found.push(("long", start, format!("{name} ({lines} lines)")));
            }
            open = None;
        }
        if has_tuple(code) {
            found.push(("tuple", number, code.trim().to_owned()));
        }
    }
    found
}

#[test]
fn names_that_must_be_looked_up_become_fewer() {
    let mut found: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for path in all_sources() {
        for (kind, line, name) in findings(&fs::read_to_string(&path).unwrap()) {
            found.entry(kind).or_default().push(format!("{}:{line} {name}", relative_name(&path)));
        }
    }
    let mut wrong = Vec::new();
    for (kind, most, why) in COUNTS {
        let places = found.remove(kind).unwrap_or_default();
        let count = places.len();
        if count > most {
            wrong.push(format!(
                "{count} times, at most {most}: {why}. A new one is among {places:#?}"
            ));
        } else if count < most {
            let next = &places[..count.min(5)];
            wrong.push(format!(
                "only {count} times: {why}. Let COUNTS say ({kind:?}, {count}); next {next:#?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn names_are_found_where_they_are() {
    let long = format!("    pub async fn run(&self) {{\n{}    }}\n", "        1;\n".repeat(69));
    let text = "pub(crate) struct Seen;\nstruct Asks;\nconst fn of() {}\nfn offer(a: (u8, u8)) {}\n\
        // fn at() {}\n    (mut one, other): (u8, u8),\nfn two(&self, (a, b): (u8, u8)) {}\n\
        let (a, b): (u8, u8) = x;\n";
    let found = findings(&[text, &long].concat());
    let found: Vec<(&str, usize)> = found.iter().map(|(kind, line, _)| (*kind, *line)).collect();
    let expected = [("type", 1), ("fn", 3), ("tuple", 6), ("tuple", 7), ("long", 9)];
    assert_eq!(found, expected);
}
