//! One dataset as one process reads and changes it: when its view is refreshed, how appends become chunks of the log, when
//! the log is sealed into a shard, and what happens when another process did so first or the store failed.
//!
//! A dataset is a *manifest* in a store, the *shards* that it lists, and the *chunks* of a log that are numbered without gaps.
//! Any process may change it, without a lock: a chunk and a shard are put only under a number that is unused, a
//! manifest only in place of the one that was read. Here is decided:
//!
//! - *View.* What a process reads is one manifest with all chunks behind it, and the manifest must still be current
//!   after the last of them was read. A request for a newer view that comes while one is being read waits for the next view, which all such requests share.
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

mod event;
mod limits;
mod refresh;
mod seal;
mod sealing;
mod settings;
mod state;
#[cfg(test)]
mod tests;
mod write;

use std::collections::VecDeque;
use std::sync::Arc;

use ground::window::Nanos;

use event::Read;
pub use event::{Action, Changed, Event, Put, Token, Why};
pub use limits::{DatasetVersion, Lookup, Lookups, Room, Serves, serves};
use refresh::Refresh;
use seal::{Replace, Seal};
pub use settings::Settings;
pub use state::{Manifest, State, Tail};
use write::{PendingChange, Write};

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
