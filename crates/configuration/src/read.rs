//! Reading the configuration: overrides, and the mistakes of a table.

use std::path::Path;

use origin::{Checks, Mistake, with_short_numbers};
use toml::{Table, Value};

use super::config::{Config, SECTIONS};
use super::mistakes::Mistakes;

impl Config {
    /// Reads a file, if one is given, puts the overrides `a.b=c` on top, fills in the defaults and
    /// checks the whole.
    ///
    /// # Errors
    /// All mistakes, each with its place; values are checked once all can be read.
    pub fn load(file: Option<&Path>, overrides: &[String]) -> Result<Config, Mistakes> {
        let Some(path) = file else { return Config::parse("", "the configuration", overrides) };
        let place = path.display().to_string();
        match record::file::read_text_of(path, record::file::CONFIG_BYTES_MAX) {
            Ok(text) => Config::parse(&text, &place, overrides),
            Err(error) => {
                Err(Mistakes(vec![Mistake { place, what: format!("cannot be read: {error}") }]))
            }
        }
    }

    /// [`Config::load`] of a text; `name` is the place of mistakes in its syntax.
    ///
    /// # Errors
    /// As for [`Config::load`].
    pub fn parse(text: &str, name: &str, overrides: &[String]) -> Result<Config, Mistakes> {
        let mut mistakes = Vec::new();
        let mut table = text.parse::<Table>().unwrap_or_else(|error| {
            mistakes.push(syntax(name, text, &error));
            Table::new()
        });
        for text in overrides {
            if let Err(what) = override_with(&mut table, text) {
                mistakes.push(Mistake { place: shown_override(text), what });
            }
        }
        let config = config(table).unwrap_or_else(|wrong| {
            mistakes.extend(wrong);
            Config::default()
        });
        if mistakes.is_empty() {
            config.check(&mut Checks::new(&mut mistakes));
        }
        if mistakes.is_empty() { Ok(config) } else { Err(Mistakes(mistakes)) }
    }
}

/// Reads a configuration.
///
/// `serde` stops at the first mistake; so that all are reported, every value is also read alone, in
/// a configuration without any other. Costs one configuration for each key.
///
/// # Errors
/// All values of the wrong kind and all unknown keys.
pub fn config(table: Table) -> Result<Config, Vec<Mistake>> {
    let mut mistakes = Vec::new();
    read_alone("", &|value| value, &Value::Table(table.clone()), &mut mistakes);
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    let whole = |error: toml::de::Error| vec![mistake("the configuration", error.message())];
    table.try_into().map_err(whole)
}

/// The mistake that a syntax error in a file stands for.
///
/// The parser's own text quotes the line, and the line of a secret may be any: an unterminated string ends lines later, and
/// a line in it may look like a key. So nothing of the file is repeated but a word that is a key of the configuration.
pub fn syntax(file: &str, text: &str, error: &toml::de::Error) -> Mistake {
    let what = error.message().trim_end().replace('\n', ", ");
    let Some(span) = error.span() else {
        return Mistake { place: file.to_owned(), what };
    };
    let before = &text.as_bytes()[..span.start.min(text.len())];
    let line = before.iter().filter(|byte| **byte == b'\n').count();
    let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let column = String::from_utf8_lossy(&before[start..]).chars().count() + 1;
    let key = text.lines().nth(line).and_then(|line| line.split('=').next()).unwrap_or_default();
    let key = key.rsplit('.').next().unwrap_or_default();
    let key = key.trim_matches(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '[' | ']'));
    let key = if is_known(key) { format!(" (`{key}`)") } else { String::new() };
    let line = line + 1;
    let place = format!("{file}, line {line}, column {column}{key}");
    Mistake { place, what: format!("{what}; the line is not shown, since it may hold a secret") }
}

/// Whether a place is a section that is not a list of sections.
fn is_single(place: &str) -> bool {
    !matches!(place, "device" | "member" | "pool" | "route")
        && SECTIONS.iter().any(|(section, _, _)| *section == place)
}

/// Whether a word is the name of a section or of a key.
fn is_known(word: &str) -> bool {
    SECTIONS
        .iter()
        .any(|(section, _, keys)| *section == word || keys.iter().any(|(key, _)| *key == word))
}

/// What a mistake calls an override: its path up to the first part that is not known. The rest may be a secret that was
/// written without its key, such as one in base64, which ends in `=`.
pub fn shown_override(text: &str) -> String {
    let path = text.split_once('=').map_or(text, |(path, _)| path).trim();
    let is_index = |part: &str| part.len() <= 4 && part.parse::<u32>().is_ok();
    let mut shown = Vec::new();
    for part in path.split('.') {
        if !is_known(part) && !is_index(part) {
            shown.push("…");
            break;
        }
        shown.push(part);
    }
    format!("--set {}", shown.join("."))
}

/// Reads the value at a place, and then every value inside it. `around` puts a value at that place
/// of an otherwise empty configuration.
fn read_alone(
    place: &str,
    around: &dyn Fn(Value) -> Value,
    value: &Value,
    mistakes: &mut Vec<Mistake>,
) {
    let inside = |key: &str| match place {
        "" => key.to_owned(),
        _ => format!("{place}.{key}"),
    };
    if is_single(place) && !value.is_table() {
        // Not left to `serde`, which would quote the value: it may be the section's secret.
        let what = format!("must be a table: write [{place}] and its keys below it");
        mistakes.push(Mistake { place: place.to_owned(), what });
        return;
    }
    let alone = match value {
        Value::Table(_) => Value::Table(Table::new()),
        Value::Array(list) if list.iter().all(Value::is_table) => Value::Array(Vec::new()),
        single => single.clone(),
    };
    if let Err(mut error) = around(alone).try_into::<Config>() {
        if error.message().ends_with("expected string only") {
            // One word of several: the error of an unknown word lists them.
            let word = around(Value::String(value.to_string()));
            error = word.try_into::<Config>().err().unwrap_or(error);
        }
        mistakes.push(mistake(place, error.message()));
        return;
    }
    match value {
        Value::Table(table) => {
            for (key, value) in table {
                let around = |value| around(Value::Table(Table::from_iter([(key.clone(), value)])));
                read_alone(&inside(key), &around, value, mistakes);
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                let around = |value| around(Value::Array(vec![value]));
                read_alone(&inside(&index.to_string()), &around, value, mistakes);
            }
        }
        _ => {}
    }
}

/// The mistake that an error of `serde` stands for.
fn mistake(place: &str, error: &str) -> Mistake {
    let what = match error.trim_end().rsplit_once(", expected ") {
        Some((found, known)) if found.starts_with("unknown field ") => {
            let known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
            unknown(place.rsplit('.').next().unwrap_or(place), &known)
        }
        Some(("invalid type: map", "a sequence")) if !place.contains('.') => {
            format!("must be a list: write [[{place}]], not [{place}]")
        }
        Some((found, expected)) => {
            let prefixes = ["invalid type: ", "invalid value: ", "unknown variant "];
            let found =
                prefixes.iter().find_map(|prefix| found.strip_prefix(prefix)).unwrap_or(found);
            format!("must be {}, not {}", in_words(expected), in_words(found))
        }
        None => error.trim_end().to_owned(),
    };
    Mistake { place: place.to_owned(), what: with_short_numbers(&what) }
}

/// A type by its name in a TOML file.
fn in_words(serde: &str) -> &str {
    match serde {
        "f64" => "a number",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" => "a whole number, 0 or more",
        "a boolean" => "true or false",
        "path string" => "a path",
        "a sequence" | "sequence" => "a list",
        "map" => "a table",
        _ if serde.starts_with("struct ") => "a table",
        other => other,
    }
}

/// What to write instead of an unknown key.
fn unknown(key: &str, known: &[&str]) -> String {
    match known.iter().min_by_key(|name| distance(key, name)) {
        Some(name) if distance(key, name) <= 1 + key.len() / 3 => {
            format!("unknown key; did you mean `{name}`?")
        }
        _ => format!("unknown key; the keys here are: {}", known.join(", ")),
    }
}

/// Edit distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, &y) in b.iter().enumerate() {
            let cost = (diagonal + usize::from(x != y)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = std::mem::replace(&mut row[j + 1], cost);
        }
    }
    row[b.len()]
}

/// Puts `a.b=c` on top of a table; a number in the path is an index of a list; `a=[…]` is a whole list.
/// The value is TOML if it can be read as TOML, and otherwise a string.
///
/// # Errors
/// What is wrong with the override, and what to write.
pub fn override_with(table: &mut Table, text: &str) -> Result<(), String> {
    let (path, value) = text.split_once('=').ok_or("has no `=`; write it as section.key=value")?;
    let value = match format!("v = {value}").parse::<Table>() {
        Ok(mut parsed) if parsed.len() == 1 => parsed.remove("v").unwrap_or(Value::Boolean(false)),
        _ => Value::String(value.to_owned()),
    };
    let path: Vec<&str> = path.trim().split('.').collect();
    // Not left to the check of unknown keys, which shows them: this may be a secret behind its key, without the `=`.
    let is_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if !path.iter().all(|part| part.chars().all(is_key)) {
        return Err("has no valid path before `=`; write it as section.key=value".to_owned());
    }
    match path.as_slice() {
        [section, inside @ ..] if !inside.is_empty() => {
            put(table.entry(*section).or_insert_with(|| container(inside)), inside, value)
        }
        // A whole list, such as one without devices.
        [section] if value.is_array() => {
            table.insert((*section).to_owned(), value);
            Ok(())
        }
        _ => Err("has no section; write it as section.key=value".to_owned()),
    }
}

/// Puts a value at a path inside another, and makes the tables and lists on the way.
pub fn put(at: &mut Value, path: &[&str], value: Value) -> Result<(), String> {
    let [part, inside @ ..] = path else {
        *at = value;
        return Ok(());
    };
    let next = match at {
        Value::Table(table) => table.entry(*part).or_insert_with(|| container(inside)),
        Value::Array(list) => {
            let index =
                part.parse::<usize>().map_err(|_| "the part after a list is not an index")?;
            if index == list.len() {
                list.push(container(inside));
            }
            let length = list.len();
            list.get_mut(index).ok_or(format!("index {index} is beyond a list of {length}"))?
        }
        _ => return Err("a part of the path is inside a value that is not a section".to_owned()),
    };
    put(next, inside, value)
}

/// What a path leads into.
fn container(path: &[&str]) -> Value {
    match path.first() {
        Some(part) if part.parse::<usize>().is_ok() => Value::Array(Vec::new()),
        _ => Value::Table(Table::new()),
    }
}
