//! Detects the format of an input from its first bytes, and says why it was chosen.
//!
//! A format is chosen if every complete record of the sample (up to [`RECORDS_MAX`]) is valid in it.
//! Formats are tried from the most to the least specific: JSON, stanzas, tables, lines. Where most
//! records are valid in a format and one is not, nothing is guessed: that is an error which names
//! the line ([`Schema::detect_with`]). A table's header is judged in `header`.

use std::collections::{BTreeMap, HashSet};

use memchr::memchr_iter;

use super::header::Row;
use super::split::record_len;
use super::{BYTE_ORDER_MARK, FIELDS_MAX, Format, Problem, Schema, csv, foreign, header};
use crate::error::Error;

/// The number of records of the sample that are examined.
const RECORDS_MAX: usize = 1000;
/// The most names kept for formats whose records may have further names.
const NAMES_MAX: usize = 256;
/// Delimiters with the least number of columns: `|` also occurs in prose.
const DELIMITERS: [(u8, usize); 4] = [(b'\t', 2), (b',', 2), (b';', 2), (b'|', 3)];
/// The bytes in which a NUL is looked for: text has none.
const BINARY_BYTES: usize = 1 << 16;

/// Whether the first row of a table is a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Header {
    /// As the given [`Format::Csv`] says; detected if no format is given.
    #[default]
    Given,
    /// Detected from the first rows.
    Detect,
    /// It is.
    Yes,
    /// It is a record like the others.
    No,
}

/// What is known of an input before it is looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// Its format; detected if `None`.
    pub format: Option<Format>,
    /// Whether its first row is a header.
    pub header: Header,
    /// The names of the columns, instead of those in a header. Implies a table.
    pub columns: Vec<String>,
}

/// The schema of an input, and why it was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detection {
    /// The schema.
    pub schema: Schema,
    /// Why: half a sentence for people.
    pub because: String,
    /// What a person should look at, if the choice is a mere fallback.
    pub warning: Option<String>,
}

/// A row of the sample, or what is wrong with it.
type Parsed = Result<Row, Problem>;

/// How well a format fits the sample.
struct Fit {
    schema: Schema,
    records: usize,
    valid: usize,
    /// Number of the first line that does not fit, counted from 1, and the reason.
    first_bad: Option<(usize, String)>,
    /// Why the first row of a table is a header, or is none.
    header: Option<header::Judgement>,
    /// Why it fits by chance, if it does: what the input is instead.
    chance: Option<Chance>,
}

/// What fits a format by chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chance {
    /// Sentences with equally many delimiters.
    Sentences,
    /// Lines that begin with a word and a colon, as those of logs do.
    Lines,
}

impl Schema {
    /// Detects the schema of an input that starts with `sample`; some hundred kilobytes are enough.
    /// The first attribute becomes the key if every record of the sample has exactly one value of
    /// it, and all differ. An input that fits no format, or one only mostly, has lines.
    pub fn detect(sample: &[u8]) -> Self {
        let sample = without_mark(sample);
        let fits = fits(sample);
        let best = likeliest(&fits).filter(|fit| fit.is_whole());
        let schema = best.map(|fit| fit.schema.clone());
        schema.unwrap_or_else(|| Self::new(Format::Lines)).completed(sample)
    }

    /// Detects names and key of a schema whose format is given.
    pub fn detect_as(format: Format, sample: &[u8]) -> Self {
        let sample = without_mark(sample);
        let mut schema = Self::new(format);
        if let Format::Csv { delimiter, header } = format {
            schema.names = names(delimiter, header, sample).unwrap_or_default();
        }
        schema.completed(sample)
    }

    /// Detects what the hints leave open.
    ///
    /// # Errors
    ///
    /// [`Error::Schema`] if the sample is not text, if most of its records fit a format and some do
    /// not, or if the hints contradict each other or the sample.
    pub fn detect_with(sample: &[u8], hints: &Hints) -> Result<Detection, Error> {
        let sample = without_mark(sample);
        let is_table =
            !hints.columns.is_empty() || matches!(hints.header, Header::Yes | Header::No);
        if matches!(hints.format, None | Some(Format::Csv { .. })) {
            let foreign =
                foreign::carriage_returns(sample).or_else(|| foreign::spreadsheet_line(sample));
            foreign.map_or(Ok(()), |what| Err(Error::Schema(what)))?;
        }
        match hints.format {
            Some(Format::Csv { .. }) => table_as_given(sample, hints),
            None if is_table => table_as_given(sample, hints),
            Some(format) if !is_table => {
                let because = "as given".to_owned();
                Ok(Detection { schema: Self::detect_as(format, sample), because, warning: None })
            }
            Some(_) => {
                Err(Error::Schema("only tables (csv, tsv) have a header and columns".to_owned()))
            }
            None => detected(sample),
        }
    }

    /// With the names and the key that the sample shows.
    fn completed(mut self, sample: &[u8]) -> Self {
        if self.format == Format::Files {
            return self;
        }
        if self.names.is_empty() && !matches!(self.format, Format::Csv { .. }) {
            self.names = self.names_in(sample);
        }
        self.key = self.likely_key(sample);
        self
    }

    /// The names in the order of the sample.
    fn names_in(&self, sample: &[u8]) -> Vec<String> {
        let mut known = HashSet::new();
        let mut names = Vec::new();
        for record in records(self.format, sample) {
            for field in self.fields(record).unwrap_or_default() {
                if names.len() < NAMES_MAX && !known.contains(&*field.name) {
                    known.insert(field.name.to_string());
                    names.push(field.name.into_owned());
                }
            }
        }
        names
    }

    fn likely_key(&self, sample: &[u8]) -> Option<String> {
        let first = self.names.first()?;
        if self.format == Format::Lines {
            return None;
        }
        let mut values = HashSet::new();
        let header = usize::from(matches!(self.format, Format::Csv { header: true, .. }));
        for record in records(self.format, sample).into_iter().skip(header) {
            let fields = self.fields(record).ok()?;
            let mut own = fields.into_iter().filter(|field| field.name == *first);
            let value = own.next()?.value.into_owned();
            if own.next().is_some() || !values.insert(value) {
                return None;
            }
        }
        // One record does not show whether values repeat.
        (values.len() > 1).then(|| first.clone())
    }
}

impl Fit {
    fn is_whole(&self) -> bool {
        self.valid == self.records && self.records > 0
    }

    /// The records that fit, of a thousand.
    fn valid_permille(&self) -> usize {
        1000 * self.valid / self.records.max(1)
    }

    /// How much a record says of its format by itself: that of a table is any line with as many delimiters as others.
    fn specificity(&self) -> usize {
        match self.schema.format {
            Format::JsonLines => 2,
            Format::Stanzas => 1,
            _ => 0,
        }
    }

    /// Whether the input most likely has this format, and some of its records are damaged.
    fn is_most(&self) -> bool {
        let (valid, records) = (self.valid, self.records);
        match self.schema.format {
            Format::JsonLines => valid >= 2 && 2 * valid > records,
            Format::Stanzas => valid >= 2 && 5 * valid >= 4 * records,
            // Prose has lines with equally many commas; a table has a header, or hardly another row.
            _ if self.header.as_ref().is_some_and(|header| header.is_certain) => {
                valid >= 3 && 5 * valid >= 3 * records
            }
            _ => valid >= 3 && 10 * valid >= 9 * records,
        }
    }

    fn because(&self) -> String {
        let records = self.records;
        match self.schema.format {
            Format::JsonLines => format!("each of the first {records} records is a JSON object"),
            Format::Stanzas => {
                format!("each of the first {records} records has lines `Name: value`")
            }
            _ => {
                let columns = self.schema.names.len();
                let header = self.header.as_ref().map_or("", |header| &header.because);
                format!("each of the first {records} rows has {columns} fields; {header}")
            }
        }
    }
}

fn detected(sample: &[u8]) -> Result<Detection, Error> {
    if sample.iter().take(BINARY_BYTES).any(|&byte| byte == 0) {
        let advice = foreign::not_text(sample);
        return Err(Error::Schema(format!(
            "the input is not text: {advice}; --format lines, json … takes it as it is"
        )));
    }
    let fits = fits(sample);
    if let Some(fit) = likeliest(&fits) {
        if fit.is_whole() {
            let schema = fit.schema.clone().completed(sample);
            return Ok(Detection { schema, because: fit.because(), warning: None });
        }
        let (name, valid, records) = (fit.schema.format.name(), fit.valid, fit.records);
        let (line, reason) = fit.first_bad.clone().unwrap_or_default();
        let with = match fit.schema.format {
            Format::Csv { delimiter: delimiter @ (b';' | b'|'), .. } => {
                format!(" with {:?} between fields", char::from(delimiter))
            }
            _ => String::new(),
        };
        return Err(Error::Schema(format!(
            "{valid} of the first {records} records are {name}{with}, but the one at line {line} is not: {reason}; correct it, \
             or choose: --format {name} keeps such records without attributes, --format lines takes every line as text"
        )));
    }
    Ok(Detection {
        schema: Schema::new(Format::Lines).completed(sample),
        because: "neither JSON objects, nor stanzas, nor rows with equally many fields".to_owned(),
        warning: doubt(sample, &fits),
    })
}

/// The format that the input has, in all of its records or in most of them. Of several it is the most specific: each line of JSON may
/// well have as many commas as the others, also the one that is cut off. Of tables it is the one with the most rows.
fn likeliest(fits: &[Fit]) -> Option<&Fit> {
    let likely =
        fits.iter().filter(|fit| fit.chance.is_none() && (fit.is_whole() || fit.is_most()));
    // The last of equals is the greatest: in reverse it is the first.
    likely.rev().max_by_key(|fit| (fit.specificity(), fit.valid_permille()))
}

/// What a person should know of an input that fits no format.
fn doubt(sample: &[u8], fits: &[Fit]) -> Option<String> {
    let start = sample.trim_ascii_start();
    let json = fits.iter().find(|fit| fit.schema.format == Format::JsonLines);
    if foreign::is_json_array(sample) {
        return Some(
            "it is an array of JSON: `jq -c '.[]' FILE | concertina … -` takes each of its elements as a record"
                .to_owned(),
        );
    }
    if let (true, Some((line, reason))) =
        (start.starts_with(b"{"), json.and_then(|fit| fit.first_bad.clone()))
    {
        let goes_on = ["EOF while parsing", "trailing characters"];
        let is_split = goes_on.iter().any(|text| reason.contains(text));
        let advice = if is_split { "; `jq -c . FILE` writes an object on a line" } else { "" };
        return Some(format!(
            "it starts as JSON, but line {line} is not an object: {reason}{advice}"
        ));
    }
    let most = format!("more than {FIELDS_MAX} values");
    if sample.split(|byte| *byte == b'\n').next().is_some_and(|first| {
        DELIMITERS.iter().any(|(delimiter, _)| {
            matches!(csv::values(*delimiter, first), Err(Problem::TooManyFields))
        })
    }) {
        return Some(format!("its first row has {most}, the most of a table"));
    }
    let doubtful = |fit: &&Fit| fit.valid > 0 && (fit.records > 1 || fit.chance.is_some());
    let best = fits.iter().filter(doubtful).rev().max_by_key(|fit| fit.valid_permille())?;
    let (name, valid, records) = (best.schema.format.name(), best.valid, best.records);
    if best.chance == Some(Chance::Lines) {
        let lines = sample.split_inclusive(|byte| *byte == b'\n').count();
        let made =
            if records == 1 { "one record".to_owned() } else { format!("{records} records") };
        return Some(format!(
            "lines that begin with a word and a colon read as a log or a list, and not as stanzas; --format {name} makes {made} \
             of the first {lines} lines"
        ));
    }
    let but = if best.chance.is_some() { ", but read as sentences" } else { "" };
    Some(format!(
        "{valid} of the first {records} records would be {name}{but}; --format {name} takes them so"
    ))
}

/// A table of which the delimiter, the header or the columns are given.
fn table_as_given(sample: &[u8], hints: &Hints) -> Result<Detection, Error> {
    let given = hints.format.unwrap_or(Format::Csv { delimiter: b',', header: true });
    let Format::Csv { delimiter: asked, header: flag } = given else {
        return Err(Error::Schema("a table is csv or tsv".to_owned()));
    };
    // Exactly the given format, or the delimiter by which most rows have equally many fields.
    let may_differ = hints.format.is_none() || (hints.header != Header::Given && asked == b',');
    let others = DELIMITERS.iter().map(|(delimiter, _)| *delimiter).filter(|_| may_differ);
    let even_rows = |delimiter: u8| {
        let fit = table(delimiter, sample).filter(|fit| fit.schema.names.len() > 1);
        fit.map(|fit| fit.valid_permille())
    };
    // The last of equals is the greatest: in reverse it is the one that was asked for.
    let delimiters = std::iter::once(asked).chain(others).collect::<Vec<u8>>();
    let most_even = delimiters.into_iter().rev().max_by_key(|delimiter| even_rows(*delimiter));
    let delimiter = most_even.unwrap_or(asked);
    let mut rows: Vec<Row> = rows(delimiter, sample).into_iter().flatten().collect();
    // A row with more or fewer fields, as a remark is, says nothing of the columns.
    let columns = rows.first().map_or(0, Vec::len);
    rows.retain(|row| row.len() == columns);
    let judged = header::judge(&rows);
    let (header, why) = match hints.header {
        Header::Yes => (true, "header as given".to_owned()),
        Header::No => (false, "no header, as given".to_owned()),
        Header::Given if hints.format.is_some() => (flag, "as given".to_owned()),
        _ => (judged.is_header, judged.because),
    };
    let mut schema = Schema::new(Format::Csv { delimiter, header });
    schema.names = names(delimiter, header, sample).unwrap_or_default();
    if !hints.columns.is_empty() {
        let (given, found) = (hints.columns.len(), schema.names.len());
        if found != given && !sample.is_empty() {
            return Err(Error::Schema(format!(
                "{given} columns are named, but the first row has {found} fields"
            )));
        }
        schema.names.clone_from(&hints.columns);
    }
    let because = if why == "as given" { why } else { format!("a table, as given; {why}") };
    Ok(Detection { schema: schema.completed(sample), because, warning: None })
}

fn without_mark(sample: &[u8]) -> &[u8] {
    sample.strip_prefix(BYTE_ORDER_MARK).unwrap_or(sample)
}

/// The complete records of the sample. The last one may be cut short, so it counts only if it is
/// the only one.
fn records(format: Format, sample: &[u8]) -> Vec<&[u8]> {
    let mut rest = sample;
    let mut records = Vec::new();
    while records.len() < RECORDS_MAX && !rest.is_empty() {
        let Some(len) = record_len(format, rest, false) else {
            if records.is_empty() || rest.ends_with(b"\n") {
                records.push(rest);
            }
            break;
        };
        let (record, after) = rest.split_at(len);
        records.push(record);
        rest = after;
    }
    records
}

/// How well each format fits, the most specific first.
fn fits(sample: &[u8]) -> Vec<Fit> {
    let named = [Format::JsonLines, Format::Stanzas].map(|format| named(format, sample));
    let is_array = foreign::is_json_array(sample);
    let tables = DELIMITERS.iter().filter_map(|&(delimiter, columns_min)| {
        let fit = table(delimiter, sample)?;
        let columns = fit.schema.names.len();
        let is_table = columns >= columns_min && fit.records > 1 && !is_log(delimiter, sample);
        (is_table && !is_array).then_some(fit)
    });
    named.into_iter().chain(tables).collect()
}

/// How well a format fits whose records name their attributes.
fn named(format: Format, sample: &[u8]) -> Fit {
    let schema = Schema::new(format);
    let all = records(format, sample);
    let problem = |record: &[u8]| match (schema.fields(record), format) {
        (Err(problem), _) => Some(problem.to_string()),
        // Requires two names: prose often has a line with a colon, and a log many with the same word.
        (Ok(fields), Format::Stanzas)
            if fields.iter().all(|field| field.name == fields[0].name) =>
        {
            Some("a single name".to_owned())
        }
        (Ok(fields), Format::Stanzas) if !fields.iter().all(|field| is_name(&field.name)) => {
            Some("a line that starts with no name".to_owned())
        }
        _ => None,
    };
    let problems: Vec<Option<String>> = all.iter().map(|record| problem(record)).collect();
    let records = all.len();
    let valid = problems.iter().filter(|problem| problem.is_none()).count();
    let is_chance = format == Format::Stanzas && !foreign::are_stanzas(&all);
    let chance = is_chance.then_some(Chance::Lines);
    let first_bad = first_bad(&all, problems);
    Fit { schema, records, valid, first_bad, header: None, chance }
}

/// How well a table fits: how many rows have as many fields as most of them. `None` if there is no row.
fn table(delimiter: u8, sample: &[u8]) -> Option<Fit> {
    let all = records(Format::Csv { delimiter, header: false }, sample);
    let parsed = rows(delimiter, sample);
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    parsed.iter().flatten().for_each(|row| *counts.entry(row.len()).or_default() += 1);
    let (&columns, &valid) = counts.iter().max_by_key(|(_, rows)| **rows)?;
    let problem = |row: &Parsed| match row {
        Err(problem) => Some(problem.to_string()),
        Ok(row) if row.len() != columns => {
            Some(format!("{} fields in a row of {columns} columns", row.len()))
        }
        Ok(_) => None,
    };
    let first_bad = first_bad(&all, parsed.iter().map(problem).collect());
    let even: Vec<Row> = parsed.into_iter().flatten().filter(|row| row.len() == columns).collect();
    let judged = header::judge(&even);
    let is_prose = !judged.is_certain && foreign::is_prose(&even);
    let chance = is_prose.then_some(Chance::Sentences);
    let format = Format::Csv { delimiter, header: judged.is_header };
    let mut schema = Schema::new(format);
    schema.names = (0..columns).map(csv::column_name).collect();
    if let (true, Some(names)) = (judged.is_header, names(delimiter, true, sample)) {
        // Of a first row with another number of fields there are none to take.
        if names.len() == columns {
            schema.names = names;
        }
    }
    Some(Fit { schema, records: all.len(), valid, first_bad, header: Some(judged), chance })
}

/// The first of the problems with its line.
fn first_bad(records: &[&[u8]], problems: Vec<Option<String>>) -> Option<(usize, String)> {
    let mut line = 1;
    for (record, problem) in records.iter().zip(problems) {
        if let Some(problem) = problem {
            let blank = record.iter().take_while(|byte| byte.is_ascii_whitespace());
            return Some((line + blank.filter(|&&byte| byte == b'\n').count(), problem));
        }
        line += memchr_iter(b'\n', record).count();
    }
    None
}

fn names(delimiter: u8, header: bool, sample: &[u8]) -> Option<Vec<String>> {
    let format = Format::Csv { delimiter, header };
    let first = *records(format, sample).first()?;
    if header {
        return csv::header(delimiter, first).ok();
    }
    Some((0..csv::values(delimiter, first).ok()?.len()).map(csv::column_name).collect())
}

/// The rows of the sample.
fn rows(delimiter: u8, sample: &[u8]) -> Vec<Parsed> {
    records(Format::Csv { delimiter, header: false }, sample)
        .into_iter()
        .map(|record| {
            let values = csv::values(delimiter, record)?;
            Ok(values.into_iter().map(|value| value.into_owned()).collect())
        })
        .collect()
}

/// Whether each line starts with a time of day whose fraction follows a comma, as loggers of Python and
/// Java write it: such a comma is no delimiter.
fn is_log(delimiter: u8, sample: &[u8]) -> bool {
    let is_fraction = |value: &[u8]| {
        let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
        (3..=9).contains(&digits) && matches!(value.get(digits), Some(b' ' | b']' | b'Z' | b'\t'))
    };
    delimiter == b','
        && rows(delimiter, sample).iter().flatten().all(|row| match &row[..] {
            [time, rest, ..] => time.contains(&b':') && is_fraction(rest),
            _ => false,
        })
}

/// A name of a stanza's line.
fn is_name(text: &str) -> bool {
    text.len() <= 64
        && text.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_alphanumeric() || " _-.:/#".contains(c))
}
