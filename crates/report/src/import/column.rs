//! A value of a line that is used: what it is, where it stands, and in which unit.

use super::excerpt::excerpt;
use super::time::Unit;

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A moment of the request: its start or its end, as `Layout::side` says.
    Stamp,
    /// Its start, of a log that has both.
    Start,
    /// Its end, of a log that has both.
    End,
    /// The date of a stamp that is a time of day.
    Date,
    /// How long it took; several are summed.
    Response,
    /// How long the servers behind took.
    Upstream,
    Status,
    Method,
    /// The request line: method, path, protocol.
    Request,
    Path,
    /// What decides which line the request waits in.
    Key,
    /// The server that a proxy chose.
    Server,
    Bytes,
    /// The state of a proxy's cache.
    Cache,
    /// Must be the text of [`Column::only`], or the line is none of a request.
    Select,
    /// Whether a request whose status is no number went well: the text of [`Column::only`] says so.
    Success,
}

/// The roles that `--fields` gives a value, by their names there, the usual one first.
const NAMES: [(&str, Role); 16] = [
    ("start", Role::Start),
    ("end", Role::End),
    ("time", Role::Stamp),
    ("stamp", Role::Stamp),
    ("date", Role::Date),
    ("response", Role::Response),
    ("duration", Role::Response),
    ("upstream", Role::Upstream),
    ("status", Role::Status),
    ("method", Role::Method),
    ("request", Role::Request),
    ("path", Role::Path),
    ("key", Role::Key),
    ("server", Role::Server),
    ("bytes", Role::Bytes),
    ("cache", Role::Cache),
];

impl Role {
    /// The role of a name.
    pub fn parse(name: &str) -> Option<Role> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, role)| *role)
    }

    /// Its name; of what only known formats have, none.
    pub fn name(self) -> Option<&'static str> {
        NAMES.iter().find(|(_, role)| *role == self).map(|(name, _)| *name)
    }
}

/// Where a value stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Place {
    /// A key of JSON or logfmt, the name of a column or of a variable.
    Name(String),
    /// A word or a column, from the first, or from the time in brackets.
    Number(usize),
}

/// A value that is used.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Column {
    pub role: Role,
    pub place: Place,
    /// Of a time, if this value has another than the layout's unit.
    pub unit: Option<Unit>,
    /// Of a value `a/b/c` or `name=value`, what divides it and which part.
    pub part: Option<(char, usize)>,
    /// Of [`Role::Select`] and [`Role::Success`]; of [`Role::Status`], the words that alone say that a request went well.
    pub only: &'static str,
}

impl Column {
    pub fn new(role: Role, place: Place) -> Column {
        Column { role, place, unit: None, part: None, only: "" }
    }

    /// A value by its number.
    pub fn numbered(role: Role, number: usize) -> Column {
        Column::new(role, Place::Number(number))
    }

    /// A value by its name.
    pub fn named(role: Role, name: &str) -> Column {
        Column::new(role, Place::Name(name.to_owned()))
    }

    /// The same, of a unit.
    pub fn timed(self, unit: Unit) -> Column {
        Column { unit: Some(unit), ..self }
    }

    /// The same, of which a part counts.
    pub fn divided(self, by: char, part: usize) -> Column {
        Column { part: Some((by, part)), ..self }
    }

    /// Its name, or its number from 1, for people.
    pub fn label(&self) -> String {
        match &self.place {
            Place::Name(name) => format!("`{}`", excerpt(name)),
            Place::Number(at) => format!("`{}`", at + 1),
        }
    }

    /// The part of the value that counts.
    pub fn cut<'a>(&self, value: &'a str) -> &'a str {
        match self.part {
            Some((by, part)) => value.split(by).nth(part).unwrap_or("").trim_matches('"'),
            None => value,
        }
    }
}
