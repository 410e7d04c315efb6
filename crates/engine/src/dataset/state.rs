//! What a view of a dataset consists of, as far as decisions need it: the manifest, and the end of the log.

use std::sync::Arc;

use ground::Etag;

use super::settings::Settings;

/// A manifest, as far as decisions need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Distinguishes the dataset from others of the same name.
    pub id: Arc<str>,
    /// Its version in the store.
    pub etag: Etag,
    /// Chunks of the log up to this number are in shards.
    pub sealed_chunks: u64,
    /// The number of the next shard.
    pub next_shard: u64,
    /// The numbers of the shards.
    pub shards: Arc<[u64]>,
}

/// The end of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// The number of the last chunk.
    pub last_chunk: u64,
    /// The id that the next record gets.
    pub end_id: u64,
    /// Memory of the records that are not in shards, bytes.
    pub log_bytes: u64,
}

/// What a view consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The manifest.
    pub manifest: Arc<Manifest>,
    /// The end of the log.
    pub tail: Tail,
}

impl State {
    /// Whether the log is to be sealed.
    pub(super) fn is_large(&self, settings: &Settings) -> bool {
        let chunks = self.tail.last_chunk.saturating_sub(self.manifest.sealed_chunks);
        self.tail.log_bytes > settings.seal_bytes || chunks > settings.seal_chunks
    }
}
