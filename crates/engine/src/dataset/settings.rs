//! The bounds of a dataset's decisions.

use ground::window::Nanos;

/// Bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Attempts at what changes by other processes can defeat.
    pub tries: u32,
    /// Pause between two attempts to read a view.
    pub pause: Nanos,
    /// Bytes of changes that become one chunk; a larger change has a chunk of its own.
    pub chunk_bytes_max: usize,
    /// The log is sealed if it takes more memory than this, bytes.
    pub seal_bytes: u64,
    /// The log is also sealed if it has more chunks than this: a process that starts reads them one by one.
    pub seal_chunks: u64,
    /// Numbers of shards that a seal tries. Seals that were interrupted leave shards that no manifest lists.
    pub shard_tries: u32,
    /// Chunks that are looked for or removed at a time.
    pub removed_at_once: u64,
}
