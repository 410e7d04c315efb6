//! Attributes that a query names and no record has. JSON and stanzas may have any, so that a misspelt one is no error.

use shard::query::Query;

use super::Dataset;
use super::error::Result;
use super::part::Part;

impl Dataset {
    /// The attributes named by a query that no record of the open shards and of the log has, deleted ones included.
    /// Takes a look-up in each shard of the names that the import did not see. An attribute whose name occurs in other
    /// places, too, may be missing from this list.
    ///
    /// # Errors
    ///
    /// Only if a shard is inconsistent.
    pub fn unknown_attributes(&self, query: &Query) -> Result<Vec<String>> {
        let mut unknown = self.unknown_in_log(query);
        for part in self.parts() {
            self.retain_unknown(part, &mut unknown)?;
        }
        Ok(unknown)
    }

    /// Those that no record of one shard has.
    ///
    /// # Errors
    ///
    /// Only if the shard is inconsistent.
    pub fn unknown_in(&self, part: &Part, query: &Query) -> Result<Vec<String>> {
        let mut unknown = self.not_in_schema(query);
        self.retain_unknown(part, &mut unknown)?;
        Ok(unknown)
    }

    /// Those that no record of the log has.
    pub fn unknown_in_log(&self, query: &Query) -> Vec<String> {
        let mut unknown = self.not_in_schema(query);
        unknown.retain(|name| !self.log().any(|(_, record)| has(self, record, name)));
        unknown
    }

    /// A table's attributes are those of its header, and names that the import saw have a record.
    fn not_in_schema(&self, query: &Query) -> Vec<String> {
        let mut names = query.attributes();
        names.retain(|name| !self.schema().names.contains(name));
        names
    }

    fn retain_unknown(&self, part: &Part, names: &mut Vec<String>) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        let searcher = part.shard().searcher()?;
        names.retain(|name| searcher.lacks(name));
        Ok(())
    }
}

fn has(dataset: &Dataset, record: &[u8], name: &str) -> bool {
    let fields = dataset.schema().fields(record).unwrap_or_default();
    fields.iter().any(|field| field.name == name)
}
