//! Filters: literals that every matching record contains, and that the index can count and locate.
//!
//! A filter is a necessary condition: it must hold for every spelling of a value that the format
//! allows. Besides the usual spellings (`"key": "value"`, `Name: value`) it therefore covers the
//! unusual ones (two blanks, a tab, `\u0041` for a letter) as alternatives, through literals that
//! occur in each of them. In most inputs these do not occur, and cost one count each.
//!
//! Most filters are not sufficient: a candidate record is read before it is returned. The
//! sufficient ones are marked ([`Literal::doubts`], [`Numbers::certain`]): a literal anywhere in
//! the record, a whole line of a stanza, a number in a table. For some others, the bytes beside an
//! occurrence decide ([`Beside`]).

use std::cell::Cell;
use std::ops::{Bound, Range};

use super::condition::{Condition, Query};
use super::pattern::Bounds;
use crate::record::{Format, Records};

/// The most literals of one query; further conditions are not looked up.
const LITERALS_MAX: usize = 16_384;

/// A condition on the bytes of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Any record.
    All,
    /// Records that contain the literal.
    Literal(Literal),
    /// One record.
    Record(usize),
    /// Records with a number of the attribute in the range, from its table.
    Numbers(Numbers),
    /// Records that pass all of these filters.
    And(Vec<Filter>),
    /// Filters that every matching record passes; looking up one of them is enough.
    Rarest(Vec<Filter>),
    /// Records that pass at least one of these filters.
    Or(Vec<Filter>),
}

/// The bytes to look up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Literal {
    pub bytes: Vec<u8>,
    /// The number of these bytes that precede the record.
    pub skip: usize,
    /// If set, a record with the literal certainly passes the test, unless the occurrence continues
    /// as one of these longer literals. `None` if the record must be read in any case.
    pub doubts: Option<Vec<Vec<u8>>>,
    /// A condition on the bytes beside an occurrence.
    pub beside: Option<Beside>,
}

/// A condition that the bytes beside an occurrence decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Beside {
    /// The occurrence is a whole word.
    Word(Bounds),
    /// The occurrence is in a value of this attribute of a stanza.
    Attribute(String),
}

/// Entries in the table of an attribute's numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers {
    pub attribute: String,
    pub entries: Range<usize>,
    /// The entries whose records certainly pass.
    pub certain: Range<usize>,
}

/// Builds the filter of a query.
pub fn filter(query: &Query, records: &Records) -> Filter {
    of_query(query, records, &Cell::new(LITERALS_MAX))
}

fn of_query(query: &Query, records: &Records, left: &Cell<usize>) -> Filter {
    let each = |queries: &[Query]| {
        queries.iter().map(|query| of_query(query, records, left)).collect::<Vec<_>>()
    };
    match query {
        Query::All | Query::Not(_) => Filter::All,
        Query::And(queries) => all(each(queries)),
        Query::Or(queries) => any(each(queries)),
        Query::Test(test) => {
            let attribute = test.attribute.as_deref();
            Spellings { records, attribute, left }.of_condition(&test.condition)
        }
    }
}

fn all(filters: Vec<Filter>) -> Filter {
    let conditions = filters.len();
    let mut kept: Vec<Filter> = filters.into_iter().filter(|f| *f != Filter::All).collect();
    let left_out = kept.len() < conditions;
    let filter = match kept.len() {
        0 => Filter::All,
        1 => kept.remove(0),
        _ => Filter::And(kept),
    };
    // If not all conditions have a filter, no record is certain.
    if left_out { doubtful(filter) } else { filter }
}

/// The alternatives; without any, no record passes.
fn any(filters: Vec<Filter>) -> Filter {
    if filters.contains(&Filter::All) { Filter::All } else { Filter::Or(filters) }
}

/// The same candidates, none of them certain.
fn doubtful(filter: Filter) -> Filter {
    let each = |filters: Vec<Filter>| filters.into_iter().map(doubtful).collect();
    match filter {
        Filter::Literal(literal) => {
            Filter::Literal(Literal { doubts: None, beside: None, ..literal })
        }
        Filter::Numbers(numbers) => Filter::Numbers(Numbers { certain: 0..0, ..numbers }),
        Filter::And(filters) => Filter::And(each(filters)),
        Filter::Or(filters) => Filter::Or(each(filters)),
        Filter::Rarest(filters) => Filter::Rarest(each(filters)),
        filter @ (Filter::All | Filter::Record(_)) => filter,
    }
}

/// The spellings of one attribute's values.
struct Spellings<'a> {
    records: &'a Records,
    attribute: Option<&'a str>,
    /// The number of literals left for the query.
    left: &'a Cell<usize>,
}

impl Spellings<'_> {
    fn of_condition(&self, condition: &Condition) -> Filter {
        match condition {
            // Then an occurrence that ends within the record also ends before its line end.
            Condition::Contains(bytes)
                if self.attribute.is_none()
                    && !matches!(bytes.last(), None | Some(b'\n' | b'\r')) =>
            {
                self.certain(0, &**bytes, Vec::new())
            }
            Condition::Contains(bytes) => self.contains_for_certain(bytes),
            Condition::Equals(bytes) => self.starts(bytes, true),
            Condition::Prefix(bytes) => self.starts(bytes, false),
            Condition::Numbers(from, to) => {
                let order = self.attribute.and_then(|name| Some((name, self.records.order(name)?)));
                order.map_or_else(
                    || self.contains(b""),
                    |(name, order)| {
                        let entries = order.entries(*from, *to);
                        let certain = order.certain(*from, *to);
                        Filter::Numbers(Numbers { attribute: name.to_owned(), entries, certain })
                    },
                )
            }
            Condition::Strings(from, to) => doubtful(self.starts(common_prefix(from, to), false)),
            Condition::Matches(pattern) if self.attribute.is_none() && pattern.word().is_some() => {
                let (bytes, bounds) =
                    pattern.word().cloned().unwrap_or((Vec::new(), Bounds::Ascii));
                self.look_up(Literal {
                    bytes,
                    skip: 0,
                    doubts: Some(Vec::new()),
                    beside: Some(Beside::Word(bounds)),
                })
            }
            Condition::Matches(pattern) => all(pattern
                .clauses()
                .iter()
                .map(|clause| any(clause.iter().map(|bytes| self.contains(bytes)).collect()))
                .chain([self.contains(b"")])
                .collect()),
        }
    }

    fn literal(&self, bytes: impl Into<Vec<u8>>) -> Filter {
        self.literal_after(0, bytes)
    }

    /// A literal whose first `skip` bytes precede the record.
    fn literal_after(&self, skip: usize, bytes: impl Into<Vec<u8>>) -> Filter {
        self.look_up(Literal { bytes: bytes.into(), skip, doubts: None, beside: None })
    }

    /// A literal that is sufficient, except for its `doubts`.
    fn certain(&self, skip: usize, bytes: impl Into<Vec<u8>>, doubts: Vec<Vec<u8>>) -> Filter {
        self.look_up(Literal { bytes: bytes.into(), skip, doubts: Some(doubts), beside: None })
    }

    fn look_up(&self, literal: Literal) -> Filter {
        let count = 1 + literal.doubts.as_ref().map_or(0, Vec::len);
        let enough = literal.bytes.len() > literal.skip;
        let Some(left) = self.left.get().checked_sub(count).filter(|_| enough) else {
            return Filter::All;
        };
        self.left.set(left);
        Filter::Literal(literal)
    }

    /// Literals for every pair of a lead and a trail around `middle`.
    fn around(&self, leads: &[&[u8]], middle: &[u8], trails: &[&[u8]]) -> Vec<Filter> {
        let pairs = leads.iter().flat_map(|lead| trails.iter().map(move |trail| (lead, trail)));
        pairs.map(|(lead, trail)| self.literal([*lead, middle, *trail].concat())).collect()
    }

    /// A value of the attribute contains `bytes`; if empty, the record has the attribute.
    fn contains(&self, bytes: &[u8]) -> Filter {
        let Some(name) = self.attribute else { return self.literal(bytes) };
        match self.records.schema().format {
            Format::Lines | Format::Files => self.literal(bytes),
            // A quote within a value is doubled.
            Format::Csv { .. } => self.literal(longest_run(bytes, |byte| byte != b'"')),
            Format::Stanzas => all(vec![self.literal(bytes), self.literal(format!("{name}:"))]),
            Format::JsonLines => self.json_contains(name, bytes),
        }
    }

    /// The same, with a deciding condition if there is one.
    fn contains_for_certain(&self, bytes: &[u8]) -> Filter {
        let contains = self.contains(bytes);
        let Some(name) = self.attribute.filter(|_| self.are_lines_certain(bytes)) else {
            return contains;
        };
        let beside = Some(Beside::Attribute(name.to_owned()));
        let literal = Literal { bytes: bytes.to_vec(), skip: 0, doubts: Some(Vec::new()), beside };
        Filter::Rarest(vec![self.look_up(literal), contains])
    }

    /// Whether all records are valid stanzas, and `bytes` are within one line and not trimmed from
    /// a value.
    fn are_lines_certain(&self, bytes: &[u8]) -> bool {
        let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        matches!(self.records.schema().format, Format::Stanzas)
            && self.records.are_whole_lines()
            && self.records.are_all_good()
            && !bytes.iter().any(|byte| matches!(byte, b'\r' | b'\n'))
            && bytes.first().is_some_and(|byte| !is_blank(byte))
            && bytes.last().is_some_and(|byte| !is_blank(byte))
    }

    /// A value of the attribute starts with `bytes`, or equals them if `whole`.
    fn starts(&self, bytes: &[u8], whole: bool) -> Filter {
        let contains = self.contains(bytes);
        let context = match (self.attribute, self.records.schema().format) {
            (Some(name), Format::JsonLines) => self.json_starts(name, bytes, whole),
            // The following applies to whole lines only.
            _ if !self.records.are_whole_lines() => Filter::All,
            (Some(name), Format::Stanzas) => self.stanza_starts(name, bytes, whole),
            (Some(name), Format::Csv { delimiter, .. }) => {
                self.csv_starts(name, delimiter, bytes, whole)
            }
            (Some(_), Format::Lines) if whole => any(self.around(&[b""], bytes, &[b"\n", b"\r"])),
            _ => Filter::All,
        };
        match context {
            Filter::All => contains,
            context => Filter::Rarest(vec![context, contains]),
        }
    }

    /// `Name: value` at the start of a line, with one or no blank before the value; other
    /// separators are covered by their first two bytes.
    fn stanza_starts(&self, name: &str, bytes: &[u8], whole: bool) -> Filter {
        let line = |rest: &[u8]| [b"\n", name.as_bytes(), rest].concat();
        // A line with that name has the value after it, unless blanks are trimmed from the value.
        let decides = self.are_lines_certain(bytes)
            && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':');
        let mut ways = Vec::new();
        for lead in [":", ": "] {
            let way = line(&[lead.as_bytes(), bytes].concat());
            let goes_on = |more: &str| [&way[..], more.as_bytes()].concat();
            match (decides, whole) {
                (true, false) => ways.push(self.certain(1, &*way, Vec::new())),
                (false, false) => ways.push(self.literal_after(1, &*way)),
                (true, true) => {
                    // Unless the next line is folded into the value.
                    let doubts = vec![goes_on("\n "), goes_on("\n\t")];
                    ways.push(self.certain(1, goes_on("\n"), doubts));
                }
                (false, true) => ways.push(self.literal_after(1, goes_on("\n"))),
            }
            if whole {
                let blanks = ["\r", " ", "\t"].map(|blank| self.literal_after(1, goes_on(blank)));
                ways.extend(blanks);
            }
        }
        for odd in [":\t", ":\n", ":\r", ":  ", ": \t", ": \n", ": \r"] {
            ways.push(self.literal_after(1, line(odd.as_bytes())));
        }
        if self.records.starts_without_newline() {
            // The first line has no newline before it.
            ways.push(Filter::Record(0));
        }
        any(ways)
    }

    fn csv_starts(&self, name: &str, delimiter: u8, bytes: &[u8], whole: bool) -> Filter {
        let names = &self.records.schema().names;
        let mut columns = names.iter().enumerate().filter(|(_, column)| *column == name);
        let (Some((column, _)), None) = (columns.next(), columns.next()) else {
            return Filter::All;
        };
        if bytes.contains(&b'"') {
            return Filter::All;
        }
        let delimiter = &[delimiter][..];
        let trails: &[&[u8]] = match (whole, column + 1 == names.len()) {
            (false, _) => &[b""],
            (true, false) => &[delimiter],
            (true, true) => &[b"\n", b"\r"],
        };
        let is_first = column == 0;
        let lead: &[u8] = if is_first { b"\n" } else { delimiter };
        let close: &[u8] = if whole { b"\"" } else { b"" };
        let quoted = [b"\"", bytes, close].concat();
        let mut ways = Vec::new();
        for trail in trails {
            for value in [bytes, &quoted[..]] {
                ways.push(self.literal_after(is_first.into(), [lead, value, *trail].concat()));
            }
        }
        if is_first && self.records.starts_without_newline() {
            // The first row has no newline before it.
            ways.push(Filter::Record(0));
        }
        any(ways)
    }

    fn json_contains(&self, name: &str, bytes: &[u8]) -> Filter {
        let plain = longest_run(bytes, is_plain);
        let wide = longest_run(bytes, |byte| is_plain(byte) || byte >= 0x80);
        let mut parts = vec![self.json_plain(plain, plain)];
        if wide.len() > plain.len() {
            // Non-ASCII characters are often written as escapes, in any spelling.
            parts.push(any(vec![self.literal(wide), self.literal("\\u"), self.literal("\\/")]));
        }
        // The last part of a path is a quoted name, or the end of a name that contains a dot.
        let key = last_name(name);
        if !key.is_empty() && key.bytes().all(is_plain) {
            parts.push(self.json_plain(&[key.as_bytes(), b"\""].concat(), key.as_bytes()));
        }
        all(parts)
    }

    /// A literal, or an escape that may represent a character of `escapable`.
    fn json_plain(&self, literal: &[u8], escapable: &[u8]) -> Filter {
        if literal.is_empty() {
            return Filter::All;
        }
        let mut ways = vec![self.literal(literal)];
        ways.extend(self.json_escapes(escapable));
        any(ways)
    }

    fn json_escapes(&self, escapable: &[u8]) -> Vec<Filter> {
        let escapes = ["\\u002", "\\u003", "\\u004", "\\u005", "\\u006", "\\u007"];
        let slash = escapable.contains(&b'/').then_some("\\/");
        escapes.into_iter().chain(slash).map(|escape| self.literal(escape)).collect()
    }

    /// `"key":"value"`, with one or no blank before the value. Arrays are covered by their bracket,
    /// other spellings by the first unusual blanks.
    fn json_starts(&self, name: &str, bytes: &[u8], whole: bool) -> Filter {
        if !bytes.iter().copied().all(is_plain) {
            return Filter::All;
        }
        let close: &[u8] = if whole { b"\"" } else { b"" };
        let quoted = [b"\"", bytes, close].concat();
        // Numbers, `true`, `false` and `null` are not quoted.
        let is_bare = bytes.first().is_none_or(|&b| b == b'-' || b.is_ascii_alphanumeric());
        let mut value = vec![self.literal(&*quoted)];
        if is_bare {
            value.push(self.literal(bytes));
        }
        value.extend(self.json_escapes(bytes));
        let key = last_name(name);
        if key.is_empty() || !key.bytes().all(is_plain) {
            return any(value);
        }
        let after = |between: &str| [key, between].concat().into_bytes();
        let (tight, spaced) = (after("\":"), after("\": "));
        let leads = [&tight[..], &spaced[..]];
        let mut ways = self.around(&leads, &quoted, &[b""]);
        if is_bare {
            let trails: &[&[u8]] = if whole { &[b",", b"}", b" ", b"\t", b"\r"] } else { &[b""] };
            ways.extend(self.around(&leads, bytes, trails));
        }
        for odd in
            ["\":[", "\": [", "\" ", "\"\t", "\"\r", "\":\t", "\":\r", "\":  ", "\": \t", "\": \r"]
        {
            ways.push(self.literal(after(odd)));
        }
        ways.extend(self.json_escapes(&[bytes, key.as_bytes()].concat()));
        all(vec![any(value), any(ways)])
    }
}

/// Printable ASCII that a JSON string can contain unescaped.
fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\')
}

fn last_name(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

fn longest_run(bytes: &[u8], keep: impl Fn(u8) -> bool) -> &[u8] {
    let runs = bytes.split(|&byte| !keep(byte));
    runs.max_by_key(|run| run.len()).unwrap_or_default()
}

/// The common prefix of all strings between the bounds.
fn common_prefix<'a>(from: &'a Bound<Vec<u8>>, to: &Bound<Vec<u8>>) -> &'a [u8] {
    let (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) =
        (from, to)
    else {
        return &[];
    };
    let len = from.iter().zip(to).take_while(|(a, b)| a == b).count();
    &from[..len]
}
