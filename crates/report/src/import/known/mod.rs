//! Recognises the format of a file by its first lines: what servers, proxies, clouds and load generators write, each in the unit
//! and with the stamp that its documentation says.

mod clouds;
mod generators;
mod json;
mod sample;
mod servers;
mod services;
mod summaries;
mod tail;

use std::path::Path;

use super::error::Error;
use super::layout::{Column, Layout, Role, Shape};
use super::names;
use super::split;
use super::time;
use super::words;
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
    let layout = match described.format.map(str::trim) {
        Some("json") => finished(json_of(&sample), described.fields, path)?,
        Some(format) => names::of_template(format, described.fields)?,
        None if sample.lines.is_empty() => {
            return Err(Error::Empty { path: path.to_owned(), what: "lines".to_owned() });
        }
        None => {
            if let Some(reason) = summaries::reason(&sample, head) {
                return Err(content(reason));
            }
            if head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff") {
                return Err(content(
                    "it is UTF-16, as PowerShell writes it; convert it: `iconv -f UTF-16 -t UTF-8 FILE | concertina import -`".to_owned(),
                ));
            }
            let is_binary = head.iter().take(4096).any(|byte| *byte == 0);
            if is_binary {
                return Err(content(
                    "it is not text, and not compressed by gzip, bzip2 or zstd".to_owned(),
                ));
            }
            match described.fields {
                Some(_) => finished(foundation(&sample), described.fields, path)?,
                None => undescribed(&sample).map_err(content)?,
            }
        }
    };
    let layout = match described.fields {
        Some(_) => layout.name_missing(&sample.lines),
        None => layout,
    };
    if layout.doubt.is_empty() {
        Ok(layout.find_events(&sample.lines))
    } else {
        Err(content(layout.doubt))
    }
}

/// The layout of lines that are said to be JSON.
fn json_of(sample: &Sample) -> Layout {
    let keys = keys(sample);
    let names = || keys.iter().map(String::as_str);
    let base = Layout::new("JSON", Shape::Json, Vec::new());
    json::recognise(sample)
        .or_else(|| names::of_json(names()))
        .or_else(|| words::by_words(&base, Vec::new(), names(), &sample.lines))
        .unwrap_or(base)
}

/// What `--fields` adds to: what is recognised without it, if its lines are divided in the same way, so that numbers are those that are counted.
fn foundation(sample: &Sample) -> Layout {
    let base = base(sample);
    match undescribed(sample) {
        Ok(layout) if layout.shape == base.shape => layout,
        _ => base,
    }
}

/// The layout of lines of which no option says anything; else what to do.
fn undescribed(sample: &Sample) -> Result<Layout, String> {
    // JSON has names; words of it in a row of their own say less, and were taken for a log's (`"timeTaken": 0.014`).
    let of_words = || {
        generators::recognise(sample)
            .or_else(|| headed(sample))
            .or_else(|| services::recognise(sample))
            .or_else(|| servers::recognise(sample))
    };
    let is_json = sample.first().starts_with('{');
    let known = json::recognise(sample).or_else(|| if is_json { None } else { of_words() });
    if let Some(layout) = known {
        return Ok(layout);
    }
    let keys = keys(sample);
    let names = || keys.iter().map(String::as_str);
    let base = base(sample);
    if let Some(layout) = names::of_json(names()).filter(|_| base.shape == Shape::Json) {
        return Ok(layout);
    }
    if let Some(reason) = clouds::without_servers(&keys).filter(|_| base.shape == Shape::Json) {
        return Err(reason);
    }
    let by_words = |time: Vec<Column>| words::by_words(&base, time, names(), &sample.lines);
    let with_time = || match base.shape {
        Shape::Pairs => by_words(leading_time(sample)?),
        _ => None,
    };
    by_words(Vec::new()).or_else(with_time).ok_or_else(|| {
        if keys.is_empty() {
            tail::advice(sample)
        } else {
            tail::advice_on_names(&base.name, &keys)
        }
    })
}

/// A table whose first line names a stamp and a duration. What the names say is known, where the values alone let a format be guessed:
/// `duration_ms` between tabs was taken for nginx's seconds.
fn headed(sample: &Sample) -> Option<Layout> {
    let delimiter = generators::delimiter(sample).unwrap_or(b' ');
    let header = split::columns(sample.first(), delimiter);
    let has_columns = |line: &str| split::columns(line, delimiter).len() == header.len();
    if !is_header(&header) || !sample.mostly(has_columns) {
        return None;
    }
    let name = if delimiter == b' ' { "words below their names" } else { "CSV" };
    let shape = Shape::Csv { delimiter, header: Some(header.clone()) };
    let base = Layout::new(name, shape, Vec::new())
        .with_decimal_commas(has_decimal_commas(sample, delimiter));
    words::by_words(&base, Vec::new(), header.iter().map(String::as_str), &sample.lines)
}

/// Whether these are names of columns: a header has no numbers, no moments, and no quoted requests in the middle of a name.
fn is_header(columns: &[String]) -> bool {
    let is_name = |name: &String| {
        name.parse::<f64>().is_err() && !name.contains('"') && time::moment(name, None).is_none()
    };
    columns.iter().all(is_name)
}

/// Whether a file's first bytes are of a report that holds no requests.
pub(super) fn is_summary(head: &[u8]) -> bool {
    summaries::reason(&Sample::new(head), head).is_some()
}

/// Words before the pairs of a line among which its time is looked for.
const LEADING: usize = 4;

/// Where the time stands that a logger writes before the pairs of its lines: `2026-11-22 04:15:00,250 [INFO] … method=GET`, `I,
/// [2026-11-22T04:15:00.250 #12] …`.
fn leading_time(sample: &Sample) -> Option<Vec<Column>> {
    let word = |line: &str, at: usize| line.split_whitespace().nth(at).map(str::to_owned);
    // A number alone (of a process) is none.
    let is_time = |text: &str| text.contains(':') && time::moment(text, None).is_some();
    (0..LEADING).find_map(|at| {
        if sample.mostly(|line| word(line, at).is_some_and(|word| is_time(&word))) {
            return Some(vec![Column::numbered(Role::Stamp, at)]);
        }
        let is_both = |line: &str| {
            let (day, hour) = (word(line, at)?, word(line, at + 1)?);
            Some(!day.contains(':') && is_time(&format!("{day} {hour}")))
        };
        let columns =
            || vec![Column::numbered(Role::Date, at), Column::numbered(Role::Stamp, at + 1)];
        sample.mostly(|line| is_both(line) == Some(true)).then(columns)
    })
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
        return Layout::new("logfmt", Shape::Pairs, Vec::new());
    }
    match generators::delimiter(sample) {
        Some(delimiter) => {
            let header = split::columns(first, delimiter);
            let header = is_header(&header).then_some(header);
            Layout::new("CSV", Shape::Csv { delimiter, header }, Vec::new())
                .with_decimal_commas(has_decimal_commas(sample, delimiter))
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
                split::names(&object, "", &mut keys);
            }
            once(keys)
        }
        Shape::Csv { header: Some(header), .. } => header,
        Shape::Extended { fields, .. } => fields,
        Shape::Pairs => {
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
