//! Recognises the format of a file by its first lines: what servers, proxies, clouds and load generators write, each in the unit
//! and with the stamp that its documentation says.

mod generators;
mod json;
mod sample;
mod servers;
mod services;
mod summaries;
mod tail;

use std::path::Path;

use super::error::Error;
use super::layout::{Layout, Role, Shape};
use super::names;
use super::split;
use sample::Sample;
pub(super) use services::HEROKU;

/// What the options say of a format.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Described<'a> {
    /// `--log-format`.
    pub format: Option<&'a str>,
    /// `--fields`.
    pub fields: Option<&'a str>,
}

/// The layout of a file by its first bytes and what the options say.
///
/// # Errors
/// [`Error::Format`] for options that are wrong; [`Error::Content`] for a file that holds no requests or is not
/// recognised, with what to do.
pub(super) fn recognise(
    path: &Path,
    head: &[u8],
    described: Described<'_>,
) -> Result<Layout, Error> {
    let content = |reason: String| Error::Content { path: path.to_owned(), reason };
    let sample = Sample::new(head);
    match described.format.map(str::trim) {
        Some("json") => {
            let keys = keys(&sample);
            let names = || keys.iter().map(String::as_str);
            let layout = json::recognise(&sample)
                .or_else(|| names::of_json(names()))
                .unwrap_or_else(|| Layout::new("JSON", Shape::Json, Vec::new()));
            return finished(layout, described.fields, path);
        }
        Some(format) => return names::of_template(format, described.fields),
        None => {}
    }
    if sample.lines.is_empty() {
        return Err(Error::Empty { path: path.to_owned(), what: "lines".to_owned() });
    }
    if let Some(reason) = summaries::reason(&sample, head) {
        return Err(content(reason));
    }
    let is_binary = head.iter().take(4096).any(|byte| *byte == 0);
    if is_binary {
        return Err(content(
            "it is not text, and not compressed by gzip, bzip2 or zstd".to_owned(),
        ));
    }
    if described.fields.is_some() {
        return finished(base(&sample), described.fields, path);
    }
    let known = json::recognise(&sample)
        .or_else(|| generators::recognise(&sample))
        .or_else(|| services::recognise(&sample))
        .or_else(|| servers::recognise(&sample));
    if let Some(layout) = known {
        return Ok(layout);
    }
    let keys = keys(&sample);
    let names = || keys.iter().map(String::as_str);
    let base = base(&sample);
    if let Some(layout) = names::of_json(names()).filter(|_| base.shape == Shape::Json) {
        return Ok(layout);
    }
    let has_decimal_commas = base.has_decimal_commas;
    if let Some(layout) = names::by_words(&base.name, base.shape, names()) {
        return Ok(layout.with_decimal_commas(has_decimal_commas));
    }
    if !keys.is_empty() {
        return Err(content(tail::advice_on_names(&base.name, &keys)));
    }
    Err(content(tail::advice(&sample)))
}

/// Whether a file's first bytes are of a report that holds no requests.
pub(super) fn is_summary(head: &[u8]) -> bool {
    summaries::reason(&Sample::new(head), head).is_some()
}

/// A layout that options describe in full, or an error that says what is missing.
fn finished(layout: Layout, fields: Option<&str>, path: &Path) -> Result<Layout, Error> {
    let layout = match fields {
        Some(fields) => names::described(layout, fields)?,
        None => layout,
    };
    let lacks = |what: &str| Error::Content {
        path: path.to_owned(),
        reason: format!(
            "{what}; say where it is: --fields end=NAME,response=NAME:ms,status=NAME,path=NAME (or start=NAME; \
             units s, ms, us, ns)"
        ),
    };
    if layout.has_both_ends() {
        Ok(layout)
    } else if !layout.has(Role::Stamp) {
        Err(lacks("it is not known which value is the time of a request"))
    } else if !layout.has(Role::Response) {
        Err(lacks("it is not known which value is the duration of a request"))
    } else {
        Ok(layout)
    }
}

/// How the lines of a file are divided, of which nothing else is known.
fn base(sample: &Sample) -> Layout {
    let first = sample.first();
    if first.starts_with('{') {
        return Layout::new("JSON", Shape::Json, Vec::new());
    }
    if sample.lines.iter().any(|line| line.starts_with("#Fields:")) {
        return servers::extended(sample);
    }
    let is_pairs = |line: &str| split::pairs(line).len() >= 3;
    if sample.mostly(is_pairs) {
        return Layout::new("logfmt", Shape::Pairs(&[]), Vec::new());
    }
    match generators::delimiter(sample) {
        Some(delimiter) => {
            let header = split::columns(first, delimiter);
            // A header has no numbers.
            let is_header = header.iter().all(|name| name.parse::<f64>().is_err());
            let header = is_header.then_some(header);
            let mut layout = Layout::new("CSV", Shape::Csv { delimiter, header }, Vec::new());
            layout.has_decimal_commas = has_decimal_commas(sample, delimiter);
            layout
        }
        None => Layout::new("words", Shape::Words { from_time: false }, Vec::new()),
    }
}

/// Whether numbers of a table are written with a decimal comma (`0,125`), as where columns are divided by `;`. A value with a point among
/// those of its kind speaks against it.
fn has_decimal_commas(sample: &Sample, delimiter: u8) -> bool {
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let is_one = |value: &str| {
        value.split_once(',').is_some_and(|(whole, part)| is_digits(whole) && is_digits(part))
    };
    let is_pointed = |value: &str| {
        value.split_once('.').is_some_and(|(whole, part)| is_digits(whole) && is_digits(part))
    };
    let values = || sample.lines.iter().skip(1).flat_map(|line| split::columns(line, delimiter));
    delimiter != b','
        && values().any(|v| is_one(v.trim()))
        && !values().any(|v| is_pointed(v.trim()))
}

/// The names of a file's values: the keys of its first lines, the columns of its header.
fn keys(sample: &Sample) -> Vec<String> {
    match base(sample).shape {
        Shape::Json => {
            let mut keys: Vec<String> = Vec::new();
            for line in &sample.lines {
                let Ok(object) = split::object(line) else { continue };
                for (key, value) in object {
                    if let serde_json::Value::Object(inner) = &value {
                        keys.extend(inner.keys().map(|name| format!("{key}.{name}")));
                    }
                    keys.push(key);
                }
            }
            once(keys)
        }
        Shape::Csv { header: Some(header), .. } => header,
        Shape::Extended { fields, .. } => fields,
        Shape::Pairs(_) => {
            // A service's first lines are of its start, and have other names than its requests.
            let pairs = sample.lines.iter().flat_map(|line| split::pairs(line));
            once(pairs.map(|pair| pair.0.to_owned()).collect())
        }
        _ => Vec::new(),
    }
}

/// Names in their order, each once.
fn once(mut names: Vec<String>) -> Vec<String> {
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}
