//! What happens to a dataset, what its driver is to do, and why a request fails.

use std::sync::Arc;

use ground::Etag;
use ground::window::Nanos;

use super::state::{Manifest, Tail};

/// The number by which a driver knows a request.
pub type Token = u64;

/// Why a request failed. `E` is the driver's error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why<E> {
    /// The store or the local disk failed.
    Store(E),
    /// The dataset changes faster than it can be read.
    Changing,
    /// The dataset does not exist.
    NoDataset,
    /// Another dataset has its name now, and was not changed. The earlier one may have had the change.
    Replaced,
    /// The change cannot be applied to the dataset; nothing was changed.
    Inapplicable(E),
    /// Other processes changed the dataset during all attempts; nothing was changed.
    Contended,
    /// It is unknown whether the change was written.
    Unknown(Option<E>),
    /// Another process replaced the manifest; nothing was sealed.
    Lost,
    /// Shards that no manifest lists have all numbers that were tried; nothing was sealed.
    NoNumber,
}

/// What came of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The id of its first record.
    pub first_id: u64,
    /// Number of records appended or deleted.
    pub records: u64,
    /// The number of its chunk.
    pub chunk: u64,
}

/// What came of putting a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Put<E> {
    /// It is in the store, and the log ends so with it.
    Stored(Tail),
    /// Another chunk has its number.
    Taken,
    /// It may be in the store, or get there later.
    Failed(E),
    /// The changes do not apply to the view; nothing was put.
    Inapplicable(E),
}

/// An event. Those after [`Event::Tick`] end the action of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<E> {
    /// A change that was checked against the dataset `id`. Ends with [`Action::Changed`].
    Change {
        /// The request.
        token: Token,
        /// Id of the dataset.
        id: Arc<str>,
        /// Bytes of the change in a chunk.
        bytes: usize,
        /// Records appended or deleted.
        records: u64,
        /// Records appended.
        appended: u64,
    },
    /// A view that is not older than this event is wanted. Ends with [`Action::Refreshed`].
    Refresh {
        /// The request.
        token: Token,
    },
    /// As [`Event::Refresh`], and the process holds other shards than before: the manifest is read and opened again though it is
    /// the one in use.
    Moved {
        /// The request.
        token: Token,
    },
    /// Any view is wanted. Ends with [`Action::Refreshed`].
    First {
        /// The request.
        token: Token,
    },
    /// The log is to be sealed. Ends with [`Action::Sealed`].
    Seal {
        /// The request.
        token: Token,
    },
    /// The log is to be sealed if it is large, and no seal is under way.
    SealLarge,
    /// Time has passed.
    Tick,
    /// The version of the current manifest.
    Head(Result<Option<Etag>, E>),
    /// The current manifest.
    Manifest(Result<Option<Manifest>, E>),
    /// The shards of the manifest are here.
    Fetched(Result<(), E>),
    /// They are open; the log ends so without chunks.
    Opened(Result<Tail, E>),
    /// The chunk was applied to the draft, whose log then ends so; `None` if there is no such chunk.
    Chunk(Result<Option<Tail>, E>),
    /// The chunk was put.
    Put(Put<E>),
    /// Whether the view's records may be those of the changes.
    Compared {
        /// Whether they may.
        may_hold: bool,
    },
    /// The late chunk was removed.
    ChunkRemoved(Result<(), E>),
    /// Whether the manifest was replaced; `false` if another one is current.
    Replaced(Result<bool, E>),
    /// The shard was removed.
    ShardRemoved(Result<(), E>),
    /// Whether the log has records, so that there is a shard; without, only its deletions are sealed.
    Built(Result<bool, E>),
    /// Whether the shard was put; `false` if its number is used.
    ShardPut(Result<bool, E>),
    /// Whether any of the chunks is there.
    Looked {
        /// Whether one is, or may be.
        found: bool,
    },
    /// Sealed chunks were removed, or some of them could not be.
    ChunksRemoved(Result<(), E>),
}

/// What the driver is to do, in this order. Those up to [`Action::Compare`] belong to the log, of which at most one is under
/// way; those from [`Action::Build`] to [`Action::RemoveChunks`] to the seal, likewise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<E> {
    /// Read the version of the current manifest.
    Head,
    /// Read the current manifest.
    ReadManifest,
    /// Copy those shards of the manifest that was read which this process holds and does not have.
    Fetch,
    /// Open them: that is the draft.
    Open,
    /// Read a chunk and apply it to the draft.
    ReadChunk {
        /// Its number.
        number: u64,
    },
    /// Apply the changes to a copy of the view, which becomes the draft, and put them as a chunk if no chunk has this number.
    PutChunk {
        /// Its number.
        number: u64,
        /// The id of its first record.
        first_id: u64,
        /// The changes, in order.
        changes: Vec<Token>,
    },
    /// Remove a chunk that was put after its number had been sealed.
    RemoveChunk {
        /// Its number.
        number: u64,
    },
    /// Replace the manifest by that of the sealed log.
    Replace {
        /// The version to replace, and no other.
        over: Etag,
        /// The number of the new shard, if there is one.
        shard: Option<u64>,
    },
    /// Remove the new shard, which no manifest lists.
    RemoveShard {
        /// Its number.
        number: u64,
    },
    /// Compare the view's records with those of the changes. Ends with [`Event::Compared`].
    Compare {
        /// The id at which they would begin.
        first_id: u64,
        /// The changes, in order.
        changes: Vec<Token>,
    },
    /// Build a shard from the log of the present view.
    Build,
    /// Put the shard if no shard has this number.
    PutShard {
        /// Its number.
        number: u64,
    },
    /// Look whether any of these sealed chunks is there. Ends with [`Event::Looked`].
    LookForChunks {
        /// The first.
        from: u64,
        /// The last.
        to: u64,
    },
    /// Remove sealed chunks.
    RemoveChunks {
        /// The first.
        from: u64,
        /// The last.
        to: u64,
    },
    /// The draft is a copy of the view.
    FromView,
    /// The draft is the view from now on.
    Show,
    /// There is no view from now on.
    Hide,
    /// Remove the copies of the shards that could not be opened, as they may be damaged, but not those that the view uses.
    Discard {
        /// The numbers of the shards that the view uses.
        keep: Arc<[u64]>,
    },
    /// Make the new shard's file the local copy.
    Keep {
        /// Its number.
        number: u64,
    },
    /// The log is large: if this process is the one that seals it, send [`Event::SealLarge`].
    Large,
    /// Send [`Event::Tick`] at this time.
    Wake {
        /// The time.
        at: Nanos,
    },
    /// A change has ended.
    Changed {
        /// The request.
        token: Token,
        /// Its result.
        result: Result<Changed, Why<E>>,
    },
    /// A request for a view has ended.
    Refreshed {
        /// The request.
        token: Token,
        /// Its result.
        result: Result<(), Why<E>>,
    },
    /// A seal has ended. Its result says whether there was anything to seal.
    Sealed {
        /// The requests; empty if the log was large.
        tokens: Vec<Token>,
        /// Its result.
        result: Result<bool, Why<E>>,
    },
}

/// What came of reading a view.
pub(super) type Read<E> = Result<(), Why<E>>;
