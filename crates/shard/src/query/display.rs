//! Formats queries in the syntax that [`super::syntax`] parses.

use std::fmt;
use std::ops::Bound;

use super::condition::{Condition, Query, Test};

impl fmt::Display for Query {
    /// Formats the query in the syntax of the parser; parsing the result gives the same query.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("()"),
            Self::Test(test) => test.fmt(f),
            Self::Not(query) => {
                f.write_str("NOT ")?;
                operand(query, f)
            }
            Self::And(queries) => joined(queries, " AND ", f),
            Self::Or(queries) => joined(queries, " OR ", f),
        }
    }
}

fn joined(queries: &[Query], between: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (index, query) in queries.iter().enumerate() {
        f.write_str(if index == 0 { "" } else { between })?;
        operand(query, f)?;
    }
    Ok(())
}

fn operand(query: &Query, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match query {
        Query::And(_) | Query::Or(_) => write!(f, "({query})"),
        _ => write!(f, "{query}"),
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.attribute {
            write!(f, "{}:", WordOrQuoted(name.as_bytes()))?;
        }
        match &self.condition {
            Condition::Contains(bytes) if bytes.is_empty() && self.attribute.is_some() => Ok(()),
            Condition::Contains(bytes) => WordOrQuoted(bytes).fmt(f),
            Condition::Equals(bytes) => write!(f, "={}", WordOrQuoted(bytes)),
            Condition::Prefix(bytes) => write!(f, "^{}", WordOrQuoted(bytes)),
            Condition::Numbers(from, to) => {
                bounds(f, &from.map(|n| n.to_string()), &to.map(|n| n.to_string()))
            }
            Condition::Strings(from, to) => {
                let quoted = |bytes: &Vec<u8>| Quoted(bytes).to_string();
                bounds(f, &from.as_ref().map(quoted), &to.as_ref().map(quoted))
            }
            Condition::Matches(pattern) => {
                f.write_str("~\"")?;
                let mut chars = pattern.source().chars();
                while let Some(c) = chars.next() {
                    match (c, if c == '\\' { chars.next() } else { None }) {
                        ('"', _) | ('\\', Some('"')) => f.write_str("\\\"")?,
                        (c, next) => {
                            write!(f, "{c}")?;
                            next.map_or(Ok(()), |next| write!(f, "{next}"))?;
                        }
                    }
                }
                f.write_str("\"")
            }
        }
    }
}

fn bounds(f: &mut fmt::Formatter<'_>, from: &Bound<String>, to: &Bound<String>) -> fmt::Result {
    match (from, to) {
        (Bound::Unbounded, Bound::Included(to)) => write!(f, "<={to}"),
        (Bound::Unbounded, Bound::Excluded(to)) => write!(f, "<{to}"),
        (Bound::Included(from), Bound::Unbounded) => write!(f, ">={from}"),
        (Bound::Excluded(from), Bound::Unbounded) => write!(f, ">{from}"),
        (Bound::Included(from), Bound::Included(to)) => write!(f, "{from}..{to}"),
        // The syntax has no such range. Two separate conditions would differ for records with
        // several values.
        (from, to) => write!(f, "<{from:?} to {to:?}>"),
    }
}

/// Formats a text as a word if possible, else in quotes.
struct WordOrQuoted<'a>(&'a [u8]);

impl fmt::Display for WordOrQuoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_word = |word: &str| {
            !matches!(word, "" | "AND" | "OR" | "NOT")
                && word.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'))
        };
        match std::str::from_utf8(self.0) {
            Ok(word) if is_word(word) => f.write_str(word),
            _ => Quoted(self.0).fmt(f),
        }
    }
}

struct Quoted<'a>(&'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '"' => f.write_str("\\\"")?,
                    '\\' => f.write_str("\\\\")?,
                    '\n' => f.write_str("\\n")?,
                    '\t' => f.write_str("\\t")?,
                    '\r' => f.write_str("\\r")?,
                    '\0'..='\x1f' | '\x7f' => write!(f, "\\x{:02x}", u32::from(c))?,
                    _ => write!(f, "{c}")?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        f.write_str("\"")
    }
}
