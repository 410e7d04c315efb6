//! The queries, drawn from the texts, each with its right result.
//!
//! They mean the same to all engines: a substring is within a line, begins inside a word and does not
//! overlap itself; a word is a word by every engine's definition (see [`oracle::word`]).

use std::collections::HashSet;

use anyhow::Context as _;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use shard::query::Pattern;

use super::config::{Class, Config, PerClass, TextConfig};
use super::oracle::{self, Expected, Hits};
use super::protocol::{Form, Kind, Question};
use super::text::Text;

/// Number of draws of a kind, after which an incomplete class stays incomplete.
const DRAWS_MAX: usize = 600;

/// A query with its right result.
pub struct CheckedQuery {
    /// The query.
    pub question: Question,
    /// Number of records that match.
    pub class: Class,
    /// The right records.
    pub records: Expected,
    /// The right lines, for ripgrep.
    pub lines: Expected,
}

/// All queries on a text.
///
/// # Errors
/// If a regular expression of the configuration cannot be read.
pub fn draw(
    text: &Text,
    of: &TextConfig,
    config: &Config,
    wanted: &PerClass<usize>,
) -> anyhow::Result<Vec<CheckedQuery>> {
    let random = StdRng::seed_from_u64(config.seed);
    let folded = text.content.to_ascii_lowercase().into_bytes();
    let mut drawer = Drawer { text, config, wanted, random, queries: Vec::new() };
    drawer.until_full(Kind::Substring, |random| {
        let value = substring(text, random)?;
        Some((None, value, oracle::substring(text, value)?))
    });
    drawer.occurrences();
    drawer.until_full(Kind::Word, |random| {
        let at = random.random_range(text.header..text.content.len());
        let value = word_around(&text.content, at)?;
        Some((None, value, oracle::word(text, &folded, value)?))
    });
    drawer.until_full(Kind::Equals, |random| {
        let (name, value) = value(text, &of.equals, random)?;
        Some((Some(name), value, oracle::equals(text, name, value)?))
    });
    drawer.until_full(Kind::Contains, |random| {
        let (name, value) = value(text, &of.contains, random)?;
        let word = word_around(value, random.random_range(0..value.len().max(1)))?;
        Some((Some(name), word, oracle::contains(text, name, word)?))
    });
    drawer.regexes(&of.regexes)?;
    if let Some(key) = &of.key {
        drawer.keys(key);
    }
    Ok(drawer.queries)
}

struct Drawer<'a> {
    text: &'a Text,
    config: &'a Config,
    wanted: &'a PerClass<usize>,
    random: StdRng,
    queries: Vec<CheckedQuery>,
}

type Candidate<'t> = (Option<&'t str>, &'t str, Hits);

impl<'a> Drawer<'a> {
    /// Draws until each class has its queries.
    fn until_full(
        &mut self,
        kind: Kind,
        mut draw: impl FnMut(&mut StdRng) -> Option<Candidate<'a>>,
    ) {
        let mut seen = HashSet::new();
        for _ in 0..DRAWS_MAX {
            if Class::ALL.into_iter().all(|class| !self.has_room(kind, class)) {
                break;
            }
            let Some((attribute, value, hits)) = draw(&mut self.random) else { continue };
            let Some(class) = self.config.class_of(hits.records.len() as u64) else { continue };
            if self.has_room(kind, class) && seen.insert((attribute, value)) {
                self.push(kind, class, attribute, value, &hits);
            }
        }
    }

    fn has_room(&self, kind: Kind, class: Class) -> bool {
        let there = self.queries.iter().filter(|a| a.question.kind == kind && a.class == class);
        there.count() < self.wanted.for_class(class)
    }

    fn push(
        &mut self,
        kind: Kind,
        class: Class,
        attribute: Option<&str>,
        value: &str,
        hits: &Hits,
    ) {
        let (query, line) = rendered(self.text, kind, attribute, value);
        let question = Question {
            kind,
            attribute: attribute.map(str::to_owned),
            value: value.to_owned(),
            form: Form::Count,
            query,
            line,
        };
        let (text, queries) = (self.text, &mut self.queries);
        let (records, lines) = (hits.expected_records(text, kind), hits.expected_lines(text, kind));
        queries.push(CheckedQuery { question, class, records, lines });
    }

    /// The substrings again, as counts of occurrences.
    fn occurrences(&mut self) {
        let substrings: Vec<(Class, String)> =
            self.queries.iter().map(|a| (a.class, a.question.value.clone())).collect();
        for (class, value) in substrings {
            if let Some(hits) = oracle::substring(self.text, &value) {
                self.push(Kind::Occurrences, class, None, &value, &hits);
            }
        }
    }

    fn regexes(&mut self, regexes: &[String]) -> anyhow::Result<()> {
        for regex in regexes {
            let pattern = Pattern::new(regex).with_context(|| format!("the regex {regex}"))?;
            let hits = oracle::regex(self.text, |line| pattern.is_match(line));
            let hits = hits.context("a record's line is in a record")?;
            let class = self.config.class_of(hits.records.len() as u64);
            if let Some(class) = class.filter(|class| self.has_room(Kind::Regex, *class)) {
                self.push(Kind::Regex, class, None, regex, &hits);
            }
        }
        Ok(())
    }

    /// Keys that one record has.
    fn keys(&mut self, key: &str) {
        for _ in 0..DRAWS_MAX {
            if !self.has_room(Kind::Key, Class::Rare) {
                break;
            }
            let number = self.random.random_range(0..self.text.records.len());
            let Some(value) = self.text.records[number].values.get(key) else { continue };
            let Some(hits) = oracle::equals(self.text, key, value) else { continue };
            if hits.records.len() == 1 {
                self.push(Kind::Key, Class::Rare, Some(key), value, &hits);
            }
        }
    }
}

/// A string within a line that begins inside of a word.
fn substring<'t>(text: &'t Text, random: &mut StdRng) -> Option<&'t str> {
    let (len, at) =
        (random.random_range(4..24), random.random_range(text.header + 1..text.content.len()));
    let value = text.content.get(at..at + len)?;
    let bytes = text.content.as_bytes();
    let inside = bytes[at - 1].is_ascii_alphanumeric() && bytes[at].is_ascii_alphanumeric();
    let plain = value.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    let overlaps =
        (1..len).any(|border| value.as_bytes()[..border] == value.as_bytes()[len - border..]);
    (inside && plain && !overlaps && !value.ends_with(' ')).then_some(value)
}

/// The word of ASCII letters and digits that a byte is in.
fn word_around(text: &str, at: usize) -> Option<&str> {
    let bytes = text.as_bytes();
    let not = |byte: &u8| !byte.is_ascii_alphanumeric();
    let start = bytes.get(..at)?.iter().rposition(not).map_or(0, |before| before + 1);
    let end = bytes[at..].iter().position(not).map_or(bytes.len(), |after| at + after);
    // Longer ones are left out by Tantivy's tokenizer.
    (3..=30).contains(&(end.saturating_sub(start))).then(|| &text[start..end])
}

/// A random record's value of one of the attributes.
fn value<'t>(
    text: &'t Text,
    attributes: &'t [String],
    random: &mut StdRng,
) -> Option<(&'t str, &'t str)> {
    let name = attributes.get(random.random_range(0..attributes.len().max(1)))?;
    let record = &text.records[random.random_range(0..text.records.len())];
    let value = record.values.get(name)?;
    let plain =
        !value.is_empty() && value.bytes().all(|b| !b.is_ascii_control() && !b"\",".contains(&b));
    plain.then_some((name, value))
}

/// The question in our syntax, and as a regular expression of a line.
fn rendered(text: &Text, kind: Kind, attribute: Option<&str>, value: &str) -> (String, String) {
    let (quoted, plain) = (quoted(value), escaped(value));
    let name = attribute.unwrap_or_default();
    // A field, and a number of further fields with the commas after them.
    let field = r#"(?:[^,"]*|"(?:[^"]|"")*")"#;
    let before = text.columns.iter().position(|column| column == name).unwrap_or(0);
    let is_csv = text.format == "csv";
    match kind {
        Kind::Substring | Kind::Occurrences => (quoted, plain),
        Kind::Word => (format!(r#"~"\b{value}\b""#), format!(r"(?-u:\b){value}(?-u:\b)")),
        Kind::Equals | Kind::Key => {
            let line = match is_csv {
                true => format!("^(?:{field},){{{before}}}{plain}(?:,|$)"),
                false => format!("^{}: {plain}$", escaped(name)),
            };
            (format!("{name}:={quoted}"), line)
        }
        Kind::Contains => {
            let line = match is_csv {
                true => format!(r#"^(?:{field},){{{before}}}(?:[^,"]*|"(?:[^"]|"")*){plain}"#),
                false => format!("^{}: .*{plain}", escaped(name)),
            };
            (format!("{name}:{quoted}"), line)
        }
        Kind::Regex => (format!("~\"(?m){}\"", value.replace('"', "\\\"")), value.to_owned()),
    }
}

/// In our syntax.
fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

/// In a regular expression.
fn escaped(value: &str) -> String {
    let mut out = String::new();
    for c in value.chars() {
        if r"\.+*?()|[]{}^$#&-~".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}
