//! What a query asks of records.

use std::ops::Bound;

use super::pattern::Pattern;
use crate::record::Number;

/// A condition on records, or a combination of conditions.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Query {
    /// Matches every record.
    All,
    /// Matches records that pass a test.
    Test(Test),
    /// Matches records that the inner query does not match.
    Not(Box<Query>),
    /// Matches records that all of these match.
    And(Vec<Query>),
    /// Matches records that at least one of these matches.
    Or(Vec<Query>),
}

impl Query {
    /// The names of the attributes that it tests, once each.
    pub fn attributes(&self) -> Vec<String> {
        let mut names = match self {
            Self::All => Vec::new(),
            Self::Test(test) => test.attribute.iter().cloned().collect(),
            Self::Not(query) => query.attributes(),
            Self::And(queries) | Self::Or(queries) => {
                queries.iter().flat_map(Self::attributes).collect()
            }
        };
        names.sort();
        names.dedup();
        names
    }
}

/// A condition on an attribute or on the whole record.
#[derive(Clone, Debug, PartialEq)]
pub struct Test {
    /// The attribute, of which one value must hold the condition; `None` for the whole record
    /// without the newlines at its end.
    pub attribute: Option<String>,
    /// The condition on the value.
    pub condition: Condition,
}

/// A condition on a value.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Condition {
    /// The value contains these bytes. An empty string matches every value.
    Contains(Vec<u8>),
    /// The value equals these bytes.
    Equals(Vec<u8>),
    /// The value starts with these bytes.
    Prefix(Vec<u8>),
    /// The value is a number within these bounds.
    Numbers(Bound<Number>, Bound<Number>),
    /// The value is within these bounds, in byte order.
    Strings(Bound<Vec<u8>>, Bound<Vec<u8>>),
    /// The value contains a match of a regular expression.
    Matches(Pattern),
}
