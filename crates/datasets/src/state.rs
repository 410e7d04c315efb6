//! What a process knows of a dataset that it serves, beside the view: who waits for what, the draft of the next view, and the log that
//! is being sealed.

use std::collections::HashMap;
use std::sync::Arc;

use engine::dataset::{self as decide, Changed, Settings, Token};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::error::Result;
use super::room::Reserved;
use super::view::View;
use dataset::chunk::{CHUNK_BYTES_MAX, Entry};
use dataset::copies::SealFolder;
use dataset::manifest::Manifest;
use dataset::remote::Current;
use dataset::{Dataset, SEAL_BYTES};

/// An error as the engine passes it on.
pub(super) type Reason = Arc<str>;

/// The bounds of a dataset.
pub const SETTINGS: Settings = Settings {
    tries: 10,
    pause: 10_000_000,
    chunk_bytes_max: CHUNK_BYTES_MAX / 2,
    seal_bytes: SEAL_BYTES as u64,
    seal_chunks: 8192,
    shard_tries: 1000,
    removed_at_once: 16,
};

/// A change that waits to be written, and the channel to its caller.
pub struct Change {
    /// Its records and deletions.
    pub entries: Arc<Vec<Entry>>,
    /// The change's share of the memory for appends, released when the change has ended and is not tried again.
    pub _room: Option<Arc<Reserved>>,
    /// Where its result goes.
    pub done: oneshot::Sender<Result<Changed>>,
}

/// A log that is being sealed.
pub(super) struct Sealing {
    pub(super) view: Arc<View>,
    /// The manifest that lists the new shard.
    pub(super) manifest: Manifest,
    /// The shard's folder.
    pub(super) made: Option<Arc<SealFolder>>,
}

/// What the engine decides with, and what its actions work on.
pub struct State {
    pub engine: decide::Dataset<Reason>,
    pub(super) tokens: Token,
    /// Changes that have not ended.
    pub changes: HashMap<Token, Change>,
    /// Callers that wait for a view.
    pub views: HashMap<Token, oneshot::Sender<Result<(), String>>>,
    /// Callers that wait for a seal.
    pub seals: HashMap<Token, oneshot::Sender<Result<bool, String>>>,
    /// The manifest that was read last.
    pub(super) read: Option<Current>,
    pub(super) draft: Option<(Dataset, Current)>,
    pub(super) sealing: Option<Sealing>,
    /// The last change of the copies' files; it ends after all before it.
    pub(super) files_change: Option<JoinHandle<()>>,
}

impl State {
    /// Of a dataset that was not read yet.
    pub fn new() -> State {
        State {
            engine: decide::Dataset::new(SETTINGS),
            tokens: 0,
            changes: HashMap::new(),
            views: HashMap::new(),
            seals: HashMap::new(),
            read: None,
            draft: None,
            sealing: None,
            files_change: None,
        }
    }

    /// A number for a request.
    pub fn token(&mut self) -> Token {
        self.tokens += 1;
        self.tokens
    }
}
