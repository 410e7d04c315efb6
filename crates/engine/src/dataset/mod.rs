//! One dataset as one process reads and changes it: when its view is refreshed, how appends become chunks of the log, when
//! the log is sealed into a shard, and what happens when another process did so first or the store failed.
//!
//! A dataset is a *manifest* in a store, the *shards* that it lists, and the *chunks* of a log that are numbered without gaps.
//! Any process may change it, without a lock: a chunk and a shard are put only under a number that is unused, a
//! manifest only in place of the one that was read. Here is decided:
//!
//! - *View.* What a process reads is one manifest with all chunks behind it, and the manifest must still be current
//!   after the last of them was read. Who wants a newer view while one is being read waits for the next, and all of them share it.
//! - *Append.* Changes that wait become one chunk, under the next number. A change is acknowledged when its chunk is in the store
//!   and the manifest had not sealed its number before; a writer that was suspended could otherwise put a chunk under a
//!   number that is sealed and removed. If another process has the number, the next one is tried, [`Settings::tries`] times.
//! - *Refused or unknown.* A change is refused if it certainly is not part of the log, and unknown if it may be.
//! - *Seal.* The log of a fresh view becomes a shard under the first unused number, then a manifest that lists it replaces the one of that view. If
//!   another manifest is there, the shard is removed, unless that manifest lists it: then only the reply was lost. The
//!   chunks are removed last.
//! - *Removal.* A chunk is removed once a manifest that has sealed it is current, a shard once a current manifest does not
//!   list it, a local copy if the view does not use it. Chunks are removed in ascending order; what an interrupted removal left,
//!   the next seal finds directly below its own and removes too.
//!
//! At most one operation of each of two kinds is under way: one that reads or writes the log, and one seal, which builds its shard beside it.
//! What the data are is the driver's business: it holds the *view* (what is read), the *draft* (what the next view may be), and the
//! sealed shard. There is no clock and no I/O here. Cost: constant for each event, and a batch of changes is as large as a chunk.

mod limits;
mod refresh;
mod seal;
#[cfg(test)]
mod tests;
mod write;

use std::collections::VecDeque;
use std::sync::Arc;

use ground::window::Nanos;

use ground::Etag;
pub use limits::{DatasetVersion, Lookup, Lookups, Room, Serves, serves};
use refresh::Refresh;
use seal::{Replace, Seal};
use write::{PendingChange, Write};

/// The number by which a driver knows a request.
pub type Token = u64;

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
    fn is_large(&self, settings: &Settings) -> bool {
        let chunks = self.tail.last_chunk.saturating_sub(self.manifest.sealed_chunks);
        self.tail.log_bytes > settings.seal_bytes || chunks > settings.seal_chunks
    }
}

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
type Read<E> = Result<(), Why<E>>;

/// Who waits for a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    Request(Token),
    Seal,
}

/// What is to be done with the log next. Each is there at most once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Job {
    Refresh,
    Write,
    Replace,
}

/// What is being done with the log.
#[derive(Clone, Debug)]
enum Lane<E> {
    Idle,
    Refresh(Refresh<E>, Vec<Reader>),
    Write(Write<E>),
    Replace(Replace<E>),
}

/// One dataset in one process.
///
/// ```
/// use engine::dataset::{Action, Dataset, Event, Settings};
///
/// let settings = Settings {
///     tries: 10, pause: 10_000_000, chunk_bytes_max: 1 << 20, seal_bytes: 32 << 20, seal_chunks: 8192,
///     shard_tries: 1000,
///     removed_at_once: 16,
/// };
/// let mut dataset: Dataset<String> = Dataset::new(settings);
/// let mut actions = Vec::new();
/// dataset.handle(0, Event::First { token: 1 }, &mut actions);
/// assert_eq!(actions, [Action::Head]);
/// actions.clear();
/// dataset.handle(1, Event::Head(Ok(None)), &mut actions);
/// assert_eq!(actions, [Action::Hide, Action::Refreshed { token: 1, result: Ok(()) }]);
/// ```
#[derive(Clone, Debug)]
pub struct Dataset<E> {
    settings: Settings,
    view: Option<State>,
    lane: Lane<E>,
    due: VecDeque<Job>,
    changes: VecDeque<PendingChange>,
    readers: Vec<Reader>,
    /// Whether the process holds other shards than the view has.
    moved: bool,
    seal: Option<Seal<E>>,
    sealers: Vec<Token>,
    /// The dataset and the chunk up to which all chunks are known to be removed.
    removed: Option<(Arc<str>, u64)>,
}

impl<E: Clone> Dataset<E> {
    /// A dataset that was not read yet.
    pub fn new(settings: Settings) -> Dataset<E> {
        Dataset {
            settings,
            view: None,
            lane: Lane::Idle,
            due: VecDeque::new(),
            changes: VecDeque::new(),
            readers: Vec::new(),
            moved: false,
            seal: None,
            sealers: Vec::new(),
            removed: None,
        }
    }

    /// The present view.
    pub fn view(&self) -> Option<&State> {
        self.view.as_ref()
    }

    /// Whether nothing is under way.
    #[cfg(test)]
    fn is_idle(&self) -> bool {
        matches!(self.lane, Lane::Idle) && self.due.is_empty() && self.seal.is_none()
    }

    /// Handles an event and appends the resulting actions.
    pub fn handle(&mut self, now: Nanos, event: Event<E>, actions: &mut Vec<Action<E>>) {
        match event {
            Event::Change { token, id, bytes, records, appended } => {
                self.changes.push_back(PendingChange { token, id, bytes, records, appended });
                self.is_due(Job::Write);
            }
            Event::Refresh { token } => self.want_view(Reader::Request(token)),
            Event::Moved { token } => {
                self.moved = true;
                self.want_view(Reader::Request(token));
            }
            Event::First { token } => match &mut self.lane {
                _ if self.view.is_some() => {
                    actions.push(Action::Refreshed { token, result: Ok(()) });
                }
                Lane::Refresh(_, readers) => readers.push(Reader::Request(token)),
                _ => self.want_view(Reader::Request(token)),
            },
            Event::Seal { token } => {
                self.sealers.push(token);
                self.begin_seal();
            }
            Event::SealLarge => {
                if self.seal.is_none() {
                    self.seal = Some(Seal::new(Vec::new()));
                    self.want_view(Reader::Seal);
                }
            }
            Event::Built(_)
            | Event::ShardPut(_)
            | Event::Looked { .. }
            | Event::ChunksRemoved(_) => {
                self.seal_event(event, actions);
            }
            _ => self.lane_event(now, event, actions),
        }
        while matches!(self.lane, Lane::Idle)
            && let Some(job) = self.due.pop_front()
        {
            self.begin(job, actions);
        }
    }

    fn is_due(&mut self, job: Job) {
        if !self.due.contains(&job) {
            self.due.push_back(job);
        }
    }

    fn want_view(&mut self, reader: Reader) {
        self.readers.push(reader);
        self.is_due(Job::Refresh);
    }

    fn begin(&mut self, job: Job, actions: &mut Vec<Action<E>>) {
        match job {
            Job::Refresh => {
                let anew = std::mem::take(&mut self.moved);
                let refresh = Refresh::begin(&self.settings, anew, actions);
                self.lane = Lane::Refresh(refresh, std::mem::take(&mut self.readers));
            }
            Job::Write => {
                let batch = write::batch(&mut self.changes, self.settings.chunk_bytes_max);
                if !self.changes.is_empty() {
                    self.is_due(Job::Write);
                }
                if let Some(write) =
                    Write::begin(&self.settings, batch, self.view.as_ref(), actions)
                {
                    self.lane = Lane::Write(write);
                }
            }
            Job::Replace => {
                let seal = self.seal.as_ref();
                if let Some(replace) =
                    seal.and_then(|seal| seal.replace(self.view.as_ref(), actions))
                {
                    self.lane = Lane::Replace(replace);
                }
            }
        }
    }

    fn lane_event(&mut self, now: Nanos, event: Event<E>, actions: &mut Vec<Action<E>>) {
        match std::mem::replace(&mut self.lane, Lane::Idle) {
            Lane::Idle => {}
            Lane::Refresh(mut refresh, readers) => {
                match refresh.handle(now, event, &self.settings, &mut self.view, actions) {
                    Some(result) => {
                        self.moved |= refresh.is_anew() && result.is_err();
                        self.refreshed(readers, result, actions);
                    }
                    None => self.lane = Lane::Refresh(refresh, readers),
                }
            }
            Lane::Write(mut write) => {
                match write.handle(now, event, &self.settings, &mut self.view, actions) {
                    true => self.look_at_log(actions),
                    false => self.lane = Lane::Write(write),
                }
            }
            Lane::Replace(mut replace) => {
                match replace.handle(now, event, &self.settings, &mut self.view, actions) {
                    Some(result) => self.manifest_replaced(result, actions),
                    None => self.lane = Lane::Replace(replace),
                }
            }
        }
    }

    fn refreshed(&mut self, readers: Vec<Reader>, result: Read<E>, actions: &mut Vec<Action<E>>) {
        for reader in readers {
            let result = result.clone();
            match reader {
                Reader::Request(token) => actions.push(Action::Refreshed { token, result }),
                Reader::Seal => self.seal_view(result, actions),
            }
        }
        self.look_at_log(actions);
    }

    /// Whether the log is to be sealed.
    fn look_at_log(&mut self, actions: &mut Vec<Action<E>>) {
        let is_large = |view: &State| view.is_large(&self.settings);
        if self.seal.is_none() && self.view.as_ref().is_some_and(is_large) {
            actions.push(Action::Large);
        }
    }
}
