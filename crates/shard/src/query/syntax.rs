//! Parses queries. See [`super`] for examples of the syntax.
//!
//! ```text
//! query     = or
//! or        = and { "OR" and }
//! and       = not { [ "AND" ] not }
//! not       = "NOT" not | "(" [ or ] ")" | term
//! term      = name ":" condition | flags quoted | "~" text | text
//! flags     = "i" | "w" | "iw" | "wi"
//! condition = flags quoted | "=" text | "^" text | "~" text | ( "<=" | "<" | ">=" | ">" ) text
//!           | [ text ] ".." [ text ] | [ text ]
//! text      = word | quoted
//! ```
//!
//! A word ends at a blank, a quote or a parenthesis. A name, and a text without a name, also ends
//! at a colon. Length, nesting and number of terms are bounded, so parsing takes bounded time for
//! any input.

use std::ops::{Bound, Range};
use std::str::FromStr;

use super::condition::{Condition, Query, Test};
use super::pattern::Pattern;
use crate::error::Error;
use crate::record::Number;

/// The longest query in bytes.
pub(crate) const QUERY_BYTES_MAX: usize = 64 << 10;
/// The most terms of a query.
pub(crate) const TERMS_MAX: usize = 256;
/// The deepest nesting of a query.
pub(crate) const DEPTH_MAX: usize = 32;
/// The most regular expressions of a query: each may take some megabytes.
const PATTERNS_MAX: usize = 16;

impl FromStr for Query {
    type Err = Error;

    /// # Errors
    ///
    /// [`Error::Syntax`], with the position and the reason.
    fn from_str(text: &str) -> Result<Self, Error> {
        if text.len() > QUERY_BYTES_MAX {
            let what = format!("the query is longer than {QUERY_BYTES_MAX} bytes");
            return Err(Error::Syntax { at: QUERY_BYTES_MAX, what });
        }
        let mut parser = Parser::new(text);
        parser.skip_blanks();
        if parser.remaining().is_empty() {
            return Ok(Self::All);
        }
        let query = parser.or(0)?;
        match parser.remaining().chars().next() {
            None => Ok(query),
            Some(unread) => Err(parser.wrong(format!("unmatched {unread:?}"))),
        }
    }
}

impl Query {
    /// What is valid in a query and was most likely meant otherwise, in its order: words that look like operators (`or` in
    /// `cat or dog`), and a blank between an attribute and the text that it is to have (`Section: libs`). Each tells how to
    /// write either. Empty for a query that is invalid.
    ///
    /// ```
    /// use shard::query::Query;
    ///
    /// assert!(Query::warnings("cat or dog")[0].contains("OR in capitals"));
    /// assert!(Query::warnings("Section: libs")[0].contains("Section:libs"));
    /// assert!(Query::warnings("cat OR Section:libs").is_empty());
    /// ```
    pub fn warnings(text: &str) -> Vec<String> {
        let mut parser = Parser::new(text);
        parser.skip_blanks();
        let is_valid = parser.or(0).is_ok() && parser.remaining().is_empty();
        if is_valid && parser.terms > 1 { parser.warnings } else { Vec::new() }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    terms: usize,
    patterns: usize,
    warnings: Vec<String>,
    /// Where the last term stands, if it is an attribute whose test has no text: `Section:`, `Section:=`, `Size:5..`.
    open_term: Option<Range<usize>>,
}

/// An unquoted word, or the content of a quoted text.
enum Text<'a> {
    Word(&'a str),
    Quoted(Vec<u8>),
}

impl Text<'_> {
    fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Word(word) => word.as_bytes().to_vec(),
            Self::Quoted(bytes) => bytes,
        }
    }

    /// The number that the text represents; quoted text is never a number.
    fn number(&self) -> Option<Number> {
        match self {
            Self::Word(word) => Number::parse(word.as_bytes()),
            Self::Quoted(_) => None,
        }
    }
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, at: 0, terms: 0, patterns: 0, warnings: Vec::new(), open_term: None }
    }

    fn remaining(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn wrong(&self, what: impl Into<String>) -> Error {
        Error::Syntax { at: self.at, what: what.into() }
    }

    fn skip_blanks(&mut self) {
        self.at = self.text.len() - self.remaining().trim_start().len();
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.remaining().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    /// Whether the next word is this keyword, by itself.
    fn take_keyword(&mut self, keyword: &str) -> bool {
        let found = self.word_until(|c| is_word_end(c) || c == ':') == keyword
            && !self.remaining()[keyword.len()..].starts_with([':', '"']);
        if found {
            self.at += keyword.len();
            self.skip_blanks();
        }
        found
    }

    /// The characters before the first that ends a word.
    fn word_until(&self, is_end: impl Fn(char) -> bool) -> &'a str {
        let rest = self.remaining();
        &rest[..rest.find(is_end).unwrap_or(rest.len())]
    }

    fn or(&mut self, depth: usize) -> Result<Query, Error> {
        let mut queries = vec![self.and(depth)?];
        while self.take_keyword("OR") {
            queries.push(self.and(depth)?);
        }
        Ok(one_or(queries, Query::Or))
    }

    fn and(&mut self, depth: usize) -> Result<Query, Error> {
        let mut queries = vec![self.not(depth)?];
        loop {
            let explicit = self.take_keyword("AND");
            let ends = self.remaining().is_empty()
                || self.remaining().starts_with(')')
                || self.word_until(is_word_end) == "OR";
            if ends && !explicit {
                return Ok(one_or(queries, Query::And));
            }
            queries.push(self.not(depth)?);
        }
    }

    fn not(&mut self, depth: usize) -> Result<Query, Error> {
        if depth > DEPTH_MAX {
            return Err(self.wrong(format!("the query nests deeper than {DEPTH_MAX} levels")));
        }
        if self.take_keyword("NOT") {
            return Ok(Query::Not(Box::new(self.not(depth + 1)?)));
        }
        if !self.take("(") {
            return self.term();
        }
        self.skip_blanks();
        let query =
            if self.remaining().starts_with(')') { Query::All } else { self.or(depth + 1)? };
        if !self.take(")") {
            return Err(self.wrong("missing `)`"));
        }
        self.skip_blanks();
        Ok(query)
    }

    fn term(&mut self) -> Result<Query, Error> {
        self.terms += 1;
        if self.terms > TERMS_MAX {
            return Err(self.wrong(format!("more than {TERMS_MAX} terms")));
        }
        let start = self.at;
        let test = if let Some(condition) = self.flagged_text()? {
            Test { attribute: None, condition }
        } else if self.take("~") {
            Test { attribute: None, condition: Condition::Matches(self.pattern()?) }
        } else {
            let text = self.text_until(|c| is_word_end(c) || c == ':')?;
            if let Text::Word("" | "AND" | "OR") = text {
                self.at = start;
                return Err(self.wrong("expected a word or an attribute"));
            }
            if self.take(":") {
                let name = String::from_utf8(text.into_bytes());
                let name = name.map_err(|_| self.wrong("the name of an attribute is not UTF-8"))?;
                Test { attribute: Some(name), condition: self.condition()? }
            } else {
                if let Text::Word(word) = text
                    && ["and", "or", "not"].iter().any(|known| word.eq_ignore_ascii_case(known))
                {
                    self.warnings.push(format!(
                        "{word:?} is searched as a word; {} in capitals is the operator, and {word:?} in quotes a word without this \
                         warning",
                        word.to_ascii_uppercase()
                    ));
                }
                Test { attribute: None, condition: Condition::Contains(text.into_bytes()) }
            }
        };
        if !self.remaining().is_empty()
            && !self.remaining().starts_with(|c: char| c.is_whitespace() || c == ')')
        {
            return Err(self.wrong("text with blanks, quotes or parentheses must be quoted"));
        }
        self.warn_of_blank(start..self.at, &test);
        self.skip_blanks();
        Ok(Query::Test(test))
    }

    /// Warns if only a blank separates a test without an attribute, which stands at `term`, from an attribute before it that lacks
    /// a text.
    fn warn_of_blank(&mut self, term: Range<usize>, test: &Test) {
        let written = &self.text[term.clone()];
        let is_open = test.attribute.is_some()
            && !written.ends_with('"')
            && match &test.condition {
                Condition::Contains(text) | Condition::Equals(text) | Condition::Prefix(text) => {
                    text.is_empty()
                }
                Condition::Matches(pattern) => pattern.source().is_empty(),
                Condition::Numbers(..) => written.ends_with(".."),
                Condition::Strings(..) => false,
            };
        let before = std::mem::replace(&mut self.open_term, is_open.then(|| term.clone()));
        let Some(before) = before.filter(|_| test.attribute.is_none()) else { return };
        if !self.text[before.end..term.start].trim().is_empty() {
            return;
        }
        let attribute = &self.text[before];
        let meant = format!("{attribute}{written}");
        if meant.parse::<Query>().is_ok() {
            self.warnings.push(format!(
                "{attribute} and {written} are two terms, of which {written} may be anywhere in a record; without the blank, {meant} \
                 tests the attribute, and {attribute} AND {written} is the same query without this warning"
            ));
        }
    }

    fn condition(&mut self) -> Result<Condition, Error> {
        if self.take("=") {
            return Ok(Condition::Equals(self.text()?.into_bytes()));
        }
        if self.take("^") {
            return Ok(Condition::Prefix(self.text()?.into_bytes()));
        }
        if self.take("~") {
            return Ok(Condition::Matches(self.pattern()?));
        }
        if let Some(condition) = self.flagged_text()? {
            return Ok(condition);
        }
        for operator in ["<=", "<", ">=", ">"] {
            if self.take(operator) {
                let start = self.at;
                let bound = self.some_text()?;
                let wrap = if operator.len() == 2 { Bound::Included } else { Bound::Excluded };
                let range = if operator.starts_with('<') {
                    range(Bound::Unbounded, wrap(bound))
                } else {
                    range(wrap(bound), Bound::Unbounded)
                };
                return range.map_err(|what| Error::Syntax { at: start, what });
            }
        }
        self.contains_or_range()
    }

    /// `i"text"`, whatever its case; `w"text"`, as a whole word; `iw"text"`.
    fn flagged_text(&mut self) -> Result<Option<Condition>, Error> {
        let flags = self.word_until(|c| !matches!(c, 'i' | 'w'));
        let is_quoted = self.remaining()[flags.len()..].starts_with('"');
        let is_once = matches!(flags, "i" | "w" | "iw" | "wi");
        if !is_quoted || !is_once {
            return Ok(None);
        }
        let start = self.at;
        self.at += flags.len();
        let text = String::from_utf8(self.quoted()?);
        let text = text.map_err(|_| self.wrong("a text with i or w must be UTF-8"))?;
        let (case, edge) = (flags.contains('i'), flags.contains('w'));
        let (case, edge) = (if case { "(?i)" } else { "" }, if edge { r"\b" } else { "" });
        self.count_pattern()?;
        let pattern = Pattern::new(&format!("{case}{edge}{}{edge}", regex_syntax::escape(&text)));
        Ok(Some(Condition::Matches(pattern.map_err(|error| placed(error, start))?)))
    }

    fn count_pattern(&mut self) -> Result<(), Error> {
        self.patterns += 1;
        if self.patterns > PATTERNS_MAX {
            return Err(self.wrong(format!("more than {PATTERNS_MAX} regular expressions")));
        }
        Ok(())
    }

    fn contains_or_range(&mut self) -> Result<Condition, Error> {
        let start = self.at;
        let from = if self.remaining().starts_with('"') {
            let text = self.text()?;
            if !self.take("..") {
                return Ok(Condition::Contains(text.into_bytes()));
            }
            Bound::Included(text)
        } else {
            let word = self.word_until(is_word_end);
            let Some((from, _)) = word.split_once("..") else {
                self.at += word.len();
                return Ok(Condition::Contains(word.as_bytes().to_vec()));
            };
            self.at += from.len() + 2;
            if from.is_empty() { Bound::Unbounded } else { Bound::Included(Text::Word(from)) }
        };
        let to = match self.text()? {
            Text::Word("") => Bound::Unbounded,
            text => Bound::Included(text),
        };
        if matches!((&from, &to), (Bound::Unbounded, Bound::Unbounded)) {
            return Err(self.wrong("a range needs at least one end"));
        }
        range(from, to).map_err(|what| Error::Syntax { at: start, what })
    }

    fn text(&mut self) -> Result<Text<'a>, Error> {
        self.text_until(is_word_end)
    }

    fn some_text(&mut self) -> Result<Text<'a>, Error> {
        match self.text()? {
            Text::Word("") => Err(self.wrong("missing value")),
            text => Ok(text),
        }
    }

    fn text_until(&mut self, is_end: impl Fn(char) -> bool) -> Result<Text<'a>, Error> {
        if self.remaining().starts_with('"') {
            return Ok(Text::Quoted(self.quoted()?));
        }
        let word = self.word_until(is_end);
        self.at += word.len();
        Ok(Text::Word(word))
    }

    fn quoted(&mut self) -> Result<Vec<u8>, Error> {
        let start = self.at;
        self.at += 1;
        let mut bytes = Vec::new();
        loop {
            let plain = self.word_until(|c| c == '"' || c == '\\');
            bytes.extend_from_slice(plain.as_bytes());
            self.at += plain.len();
            if self.take("\"") {
                return Ok(bytes);
            }
            if self.remaining().is_empty() {
                self.at = start;
                return Err(self.wrong("unclosed quote"));
            }
            bytes.push(self.escape()?);
        }
    }

    fn escape(&mut self) -> Result<u8, Error> {
        for (escape, byte) in
            [("\\\"", b'"'), ("\\\\", b'\\'), ("\\n", b'\n'), ("\\t", b'\t'), ("\\r", b'\r')]
        {
            if self.take(escape) {
                return Ok(byte);
            }
        }
        let digits = self.remaining().strip_prefix("\\x").and_then(|rest| rest.get(..2));
        let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                self.at += 4;
                Ok(byte)
            }
            None => Err(self.wrong(r#"unknown escape; use \" \\ \n \t \r \xHH"#)),
        }
    }

    /// Reads a regular expression. It has its own escapes, so only `\"` is unescaped here.
    fn pattern(&mut self) -> Result<Pattern, Error> {
        self.count_pattern()?;
        let start = self.at;
        let source = if self.take("\"") {
            self.quoted_pattern(start)?
        } else {
            let word = self.word_until(is_word_end);
            self.at += word.len();
            word.to_owned()
        };
        Pattern::new(&source).map_err(|error| placed(error, start))
    }

    fn quoted_pattern(&mut self, start: usize) -> Result<String, Error> {
        let mut source = String::new();
        let mut chars = self.remaining().char_indices();
        while let Some((at, c)) = chars.next() {
            match (c, c == '\\') {
                ('"', _) => {
                    self.at += at + 1;
                    return Ok(source);
                }
                (_, true) => match chars.next() {
                    Some((_, '"')) => source.push('"'),
                    next => {
                        source.push('\\');
                        source.extend(next.map(|(_, c)| c));
                    }
                },
                _ => source.push(c),
            }
        }
        self.at = start;
        Err(self.wrong("unclosed quote"))
    }
}

/// An error of an expression, at its place in the query.
fn placed(error: Error, at: usize) -> Error {
    match error {
        Error::Syntax { what, .. } => Error::Syntax { at, what },
        other => other,
    }
}

fn is_word_end(c: char) -> bool {
    c.is_whitespace() || matches!(c, '"' | '(' | ')')
}

fn one_or(mut queries: Vec<Query>, combine: fn(Vec<Query>) -> Query) -> Query {
    match queries.len() {
        1 => queries.remove(0),
        _ => combine(queries),
    }
}

/// A range of numbers, or of byte strings if its ends are quoted.
///
/// # Errors
///
/// What is wrong with an end. A word that is no number is not compared as bytes: `10O` for `100` would
/// silently find other records.
fn range(from: Bound<Text<'_>>, to: Bound<Text<'_>>) -> Result<Condition, String> {
    let is_quoted = |bound: &Bound<Text<'_>>| {
        matches!(bound, Bound::Included(Text::Quoted(_)) | Bound::Excluded(Text::Quoted(_)))
    };
    let is_word = |bound: &Bound<Text<'_>>| {
        matches!(bound, Bound::Included(Text::Word(_)) | Bound::Excluded(Text::Word(_)))
    };
    match (is_quoted(&from) || is_quoted(&to), is_word(&from) || is_word(&to)) {
        (true, true) => Err("a range has two numbers or two quoted texts as its ends".to_owned()),
        (true, false) => {
            Ok(Condition::Strings(from.map(Text::into_bytes), to.map(Text::into_bytes)))
        }
        (false, _) => Ok(Condition::Numbers(numeric(from)?, numeric(to)?)),
    }
}

fn numeric(bound: Bound<Text<'_>>) -> Result<Bound<Number>, String> {
    let number = |text: Text<'_>| {
        text.number().ok_or_else(|| {
            let word = String::from_utf8_lossy(&text.into_bytes()).into_owned();
            match word.parse::<f64>() {
                Ok(number)
                    if number.is_infinite() && word.contains(|c: char| c.is_ascii_digit()) =>
                {
                    format!("{word} is beyond the largest number, 1.8e308")
                }
                _ => {
                    format!("{word} is not a number; a range of texts has quoted ends: \"{word}\"")
                }
            }
        })
    };
    Ok(match bound {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(text) => Bound::Included(number(text)?),
        Bound::Excluded(text) => Bound::Excluded(number(text)?),
    })
}
