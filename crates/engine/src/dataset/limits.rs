//! What is refused, and what is not looked at again: memory for appends, versions of views, names of datasets that were not found.

use std::collections::BTreeMap;
use std::sync::Arc;

use ground::window::Nanos;

/// The memory of the appends of a process.
#[derive(Clone, Debug)]
pub struct Room {
    bytes_free: usize,
}

impl Room {
    /// Memory for appends of `bytes` together.
    pub fn new(bytes: usize) -> Room {
        Room { bytes_free: bytes }
    }

    /// Takes memory for an append; `false` if the appends in progress leave too little, and the append is to be refused.
    pub fn take(&mut self, bytes: usize) -> bool {
        let left = self.bytes_free.checked_sub(bytes);
        self.bytes_free = left.unwrap_or(self.bytes_free);
        left.is_some()
    }

    /// Returns the memory of an append that ended.
    pub fn give_back(&mut self, bytes: usize) {
        self.bytes_free = self.bytes_free.saturating_add(bytes);
    }
}

/// Whether a view answers questions to a version: a manifest, and the last chunk behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serves {
    /// It is that version.
    Now,
    /// It is a later one of the same manifest: without the deletions of later chunks it answers.
    AsOf,
    /// It does not: refresh it, and if it does not serve then either, the question is to be asked of a newer version.
    Not,
}

/// A version of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatasetVersion<'a> {
    /// The etag of its manifest.
    pub etag: &'a str,
    /// The last chunk behind the manifest.
    pub last_chunk: u64,
}

/// Whether a view of the version `view` answers questions to the version `question`.
pub fn serves(view: DatasetVersion, question: DatasetVersion) -> Serves {
    match view.last_chunk.cmp(&question.last_chunk) {
        _ if view.etag != question.etag => Serves::Not,
        std::cmp::Ordering::Less => Serves::Not,
        std::cmp::Ordering::Equal => Serves::Now,
        std::cmp::Ordering::Greater => Serves::AsOf,
    }
}

/// Whether to look a name up in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Yes.
    Yes,
    /// No: it was not found just now, or too many others were not.
    No,
    /// No: it failed just now.
    Failed(Arc<str>),
}

/// Names that were not found lately, with the error if the store failed.
#[derive(Clone, Debug)]
pub struct Lookups {
    failed: BTreeMap<String, (Nanos, Option<Arc<str>>)>,
    pause: Nanos,
    names_max: usize,
}

impl Lookups {
    /// Remembers a name for `pause`, and `names_max` names at most. While there are so many, no other is looked up.
    pub fn new(pause: Nanos, names_max: usize) -> Lookups {
        Lookups { failed: BTreeMap::new(), pause, names_max }
    }

    /// Whether to look a name up.
    pub fn may(&mut self, now: Nanos, name: &str) -> Lookup {
        self.failed.retain(|_, (at, _)| now.saturating_sub(*at) < self.pause);
        match self.failed.get(name) {
            Some((_, Some(failed))) => Lookup::Failed(failed.clone()),
            Some((_, None)) => Lookup::No,
            None if self.failed.len() < self.names_max => Lookup::Yes,
            None => Lookup::No,
        }
    }

    /// A name was not found, or could not be looked up.
    pub fn failed(&mut self, now: Nanos, name: &str, error: Option<Arc<str>>) {
        if self.failed.len() < self.names_max {
            self.failed.insert(name.to_owned(), (now, error));
        }
    }
}
