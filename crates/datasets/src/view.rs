//! A dataset at one moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::station::Station;
use dataset::Dataset;
use dataset::part::Part;
use dataset::remote::Current;

/// A dataset at one moment.
#[derive(Clone)]
pub struct View {
    /// The dataset's log, and those of its shards that this node holds.
    pub dataset: Dataset,
    /// The manifest in the origin.
    pub current: Current,
    /// The shards of the dataset that this node holds, by part name: a question asks thousands of them.
    pub parts: BTreeMap<String, Arc<Part>>,
    /// A queue for each part held here. Every process holds the log.
    pub stations: BTreeMap<String, Arc<Station>>,
}

impl View {
    /// The shard with this part name, if this node holds it.
    pub fn part(&self, name: &str) -> Option<&Arc<Part>> {
        self.parts.get(name)
    }
}
