//! Decides whether a record matches a query. This is the definition: every search agrees with it.

use std::cell::OnceCell;
use std::ops::RangeBounds;

use memchr::memmem;

use super::condition::{Condition, Query, Test};
use crate::record::{Field, Number, Schema};

impl Query {
    /// Whether a record, given as stored in the text, matches. A malformed record has no
    /// attributes.
    ///
    /// Cost: the record is parsed at most once; then one pass for each test.
    pub fn matches(&self, schema: &Schema, record: &[u8]) -> bool {
        Row { schema, record, fields: OnceCell::new() }.matches(self)
    }
}

struct Row<'a> {
    schema: &'a Schema,
    record: &'a [u8],
    fields: OnceCell<Vec<Field<'a>>>,
}

impl Row<'_> {
    /// The recursion is as deep as the query, which its parser bounds.
    fn matches(&self, query: &Query) -> bool {
        match query {
            Query::All => true,
            Query::Test(test) => self.holds(test),
            Query::Not(query) => !self.matches(query),
            Query::And(queries) => queries.iter().all(|query| self.matches(query)),
            Query::Or(queries) => queries.iter().any(|query| self.matches(query)),
        }
    }

    fn holds(&self, test: &Test) -> bool {
        let Some(attribute) = &test.attribute else {
            return test.condition.holds(without_line_end(self.record));
        };
        let fields =
            self.fields.get_or_init(|| self.schema.fields(self.record).unwrap_or_default());
        let mut values = fields.iter().filter(|field| field.name == *attribute);
        values.any(|field| test.condition.holds(&field.value))
    }
}

impl Condition {
    /// Whether `value` meets the condition.
    pub(crate) fn holds(&self, value: &[u8]) -> bool {
        match self {
            Self::Contains(bytes) => memmem::find(value, bytes).is_some(),
            Self::Equals(bytes) => value == bytes,
            Self::Prefix(bytes) => value.starts_with(bytes),
            Self::Numbers(from, to) => {
                Number::parse(value).is_some_and(|number| (*from, *to).contains(&number))
            }
            Self::Strings(from, to) => {
                let bounds = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
                RangeBounds::<[u8]>::contains(&bounds, value)
            }
            Self::Matches(pattern) => pattern.is_match(value),
        }
    }
}

fn without_line_end(record: &[u8]) -> &[u8] {
    let end = record.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r'));
    &record[..end.map_or(0, |last| last + 1)]
}
