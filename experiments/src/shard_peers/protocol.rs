//! The messages between the experiment and the engines' processes: one line of JSON each.
//!
//! `experiments/shard-peers/peer.py` is the other end for all but our own library (see
//! [`super::ours`]).

use serde::{Deserialize, Serialize};

/// The input of an index.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// Path of the text.
    pub text: String,
    /// Path of its records, one to a line of JSON.
    pub records: String,
    /// `stanzas`, `csv`, `lines` or `json`.
    pub format: String,
    /// The attribute that is a key.
    pub key: Option<String>,
    /// Attributes that are searched by their whole value.
    pub equals: Vec<String>,
    /// Attributes that are searched by a word of their value.
    pub contains: Vec<String>,
    /// This program.
    pub program: String,
}

/// The kind of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Records that hold some bytes anywhere, the first of them inside of a word.
    Substring,
    /// Records that hold a word.
    Word,
    /// Records of which an attribute has a value.
    Equals,
    /// Records of which an attribute contains a word.
    Contains,
    /// Records of which a line has a match of a regular expression.
    Regex,
    /// How often some bytes occur.
    Occurrences,
    /// The record with a key.
    Key,
}

/// The wanted part of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// The number of matches.
    Count,
    /// Any ten matches.
    First,
    /// All matches, in any order.
    All,
}

/// A query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The value, word or pattern that is searched for.
    pub kind: Kind,
    /// The attribute to search; `None` for the whole record.
    pub attribute: Option<String>,
    /// The bytes, the word, the value or the expression.
    pub value: String,
    /// The wanted part of the result.
    pub form: Form,
    /// The query in our syntax.
    pub query: String,
    /// The query as a regular expression of a line.
    pub line: String,
}

/// The reply to a query. Sums are of the CRC-32 of records without the newlines at their end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reply {
    /// The reason why there is no result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cannot: Option<String>,
    /// Time of the call, ns.
    pub wall_ns: u64,
    /// CPU time, ns.
    pub cpu_ns: u64,
    /// Number of matches, or of returned records.
    pub count: u64,
    /// Number of returned bytes.
    pub bytes: u64,
    /// Sum over the returned records.
    pub sum: u64,
    /// The first ten.
    pub some: Vec<u32>,
}

/// The resources that building took.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Built {
    /// Time, s.
    pub wall_s: f64,
    /// CPU time, s.
    pub cpu_s: f64,
    /// Peak memory beyond that of the process before building.
    pub memory_bytes: u64,
}

/// The message of a process that is ready.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Opened {
    /// Time of opening, s.
    pub open_s: f64,
}

/// The memory that a process holds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct MemoryUse {
    /// Anonymous memory beyond that before opening; `None` if the engine keeps nothing open.
    pub anonymous_bytes: Option<u64>,
}

/// Number of records returned if the first ones are wanted.
pub const FIRST: u64 = 10;

impl Kind {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Substring => "substring",
            Kind::Word => "word",
            Kind::Equals => "attribute = value",
            Kind::Contains => "attribute : word",
            Kind::Regex => "regex",
            Kind::Occurrences => "occurrences",
            Kind::Key => "key",
        }
    }
}

impl Form {
    /// All of them.
    pub const ALL: [Form; 3] = [Form::Count, Form::First, Form::All];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Form::Count => "count",
            Form::First => "first 10",
            Form::All => "all",
        }
    }
}
