//! What the experiment and the processes that answer say to each other: one line of JSON each.
//!
//! `experiments/shard-peers/peer.py` is the other end for all but our own library (see
//! [`super::ours`]).

use serde::{Deserialize, Serialize};

/// What an index is made of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// Path of the text.
    pub text: String,
    /// Path of its records, one to a line of JSON.
    pub records: String,
    /// `stanzas` or `csv`.
    pub format: String,
    /// The attribute that is a key.
    pub key: Option<String>,
    /// Attributes that are asked for by their whole value.
    pub equals: Vec<String>,
    /// Attributes that are asked for by a word in them.
    pub contains: Vec<String>,
    /// This program.
    pub program: String,
}

/// What is asked for.
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

/// What is wanted of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// How many.
    Count,
    /// The first ten, as they came: any ten.
    First,
    /// All, as they came.
    All,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The value, word or pattern that is searched for.
    pub kind: Kind,
    /// Of which attribute; `None` for the whole record.
    pub attribute: Option<String>,
    /// The bytes, the word, the value or the expression.
    pub value: String,
    /// What is wanted.
    pub form: Form,
    /// The same in our syntax.
    pub query: String,
    /// The same as a regular expression of a line.
    pub line: String,
}

/// What a process says of a question. Sums are of the CRC-32 of records without the newlines at
/// their end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reply {
    /// Why it has no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cannot: Option<String>,
    /// Time of the call, ns.
    pub wall_ns: u64,
    /// CPU time, ns.
    pub cpu_ns: u64,
    /// How many there are, or were returned.
    pub count: u64,
    /// Bytes that were returned.
    pub bytes: u64,
    /// Sum of what was returned.
    pub sum: u64,
    /// The first ten.
    pub some: Vec<u32>,
}

/// What building took.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Built {
    /// Time, s.
    pub wall_s: f64,
    /// CPU time, s.
    pub cpu_s: f64,
    /// Most memory beyond what the process held before.
    pub memory_bytes: u64,
}

/// What a process says when it is ready.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Opened {
    /// Time of opening, s.
    pub open_s: f64,
}

/// What it holds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Held {
    /// Memory that is of no file, beyond what it held before opening; `None` if it holds nothing.
    pub anonymous_bytes: Option<u64>,
}

/// Records that are returned when the first are wanted.
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
