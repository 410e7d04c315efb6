//! Attributes that a query names and no record has. JSON and stanzas may have any, so that a misspelt one is no error.

use shard::query::Query;

use super::Dataset;

impl Dataset {
    /// The attributes named by a query that no record of the open shards and of the log has, deleted ones included.
    /// Takes a look-up of their names in each shard. An attribute whose name occurs in other places, too, may be missing
    /// from this list.
    ///
    /// # Errors
    ///
    /// Only if a shard is inconsistent.
    pub fn unknown_attributes(&self, query: &Query) -> anyhow::Result<Vec<String>> {
        let mut unknown = query.attributes();
        unknown.retain(|name| !self.log().any(|(_, record)| has(self, record, name)));
        for part in self.parts() {
            let searcher = part.shard().searcher()?;
            unknown.retain(|name| searcher.lacks(name));
        }
        // Those of a table are known by its header.
        unknown.retain(|name| !self.schema().is_closed() || !self.schema().names.contains(name));
        Ok(unknown)
    }
}

fn has(dataset: &Dataset, record: &[u8], name: &str) -> bool {
    let fields = dataset.schema().fields(record).unwrap_or_default();
    fields.iter().any(|field| field.name == name)
}
