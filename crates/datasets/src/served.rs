//! One dataset as a process serves it: copies of its shards on local disk, its log in memory, and
//! appends to the origin.
//!
//! A [`View`] is the dataset at one moment; a request keeps the view that it began with. When it is replaced and what
//! becomes of a change decides [`engine::dataset`]; `drive` carries that out.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
pub use engine::dataset::Changed;
use engine::dataset::{Event, Token};
use ground::window::{Nanos, QueueName, Settings, Window};
use ground::{Key, with_causes};
use serde::Serialize;
use tokio::sync::oneshot;

use super::ask::{LOG, part_of};
use super::error::{Error, Result};
use super::room::Reserved;
use super::state::{Change, State};
use super::station::{Bound, Station};
pub use super::view::View;
use dataset::chunk::Entry;
use dataset::part::{Part, Work};
use dataset::remote::{Current, Remote};
use dataset::{Dataset, compute, split};
use origin::Origin;
use record::clock;

/// The largest log to which something is written: every process has it in memory, and a shard is built of all of it.
const LOG_BYTES_MAX: u64 = 512 << 20;

/// Settings and resources shared by all datasets of a process.
pub struct Common {
    /// Where the datasets are durable.
    pub origin: Arc<dyn Origin>,
    /// The folder of local copies; `None` of a process that holds no shards.
    pub copies: Option<PathBuf>,
    /// The bound of a part's queue.
    pub bound: Bound,
    /// What a query of one shard may cost.
    pub work: Work,
    /// Settings of the windows.
    pub windows: Settings,
    /// Whether this process is one of a key's nodes.
    pub is_mine: Box<dyn Fn(&Key) -> bool + Send + Sync>,
    /// Whether this process seals the log of the dataset whose manifest has this key.
    pub seals: Box<dyn Fn(&Key) -> bool + Send + Sync>,
}

/// What it took to get this process's shards of a dataset from the origin, since the process began: a node that
/// takes over shards of a lost one copies them.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Copied {
    /// Shards that were copied.
    pub shards: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Seconds that the copies took, one after the other.
    pub seconds: f64,
    /// Bytes per second; 0 if nothing was copied.
    pub bytes_per_s: f64,
}

impl Copied {
    fn add(&mut self, bytes: u64, seconds: f64) {
        self.shards += 1;
        self.bytes += bytes;
        self.seconds += seconds;
        self.bytes_per_s = if self.seconds > 0.0 { self.bytes as f64 / self.seconds } else { 0.0 };
    }
}

/// A dataset that this process serves.
pub struct Served {
    pub(crate) name: String,
    pub(crate) common: Arc<Common>,
    pub(crate) remote: Remote,
    pub(crate) view: ArcSwapOption<View>,
    pub(crate) state: Mutex<State>,
    /// Bytes of layers for all shards together; `u64::MAX` lets the queue lengths decide.
    fixed_bytes: AtomicU64,
    copied: Mutex<Copied>,
}

impl Served {
    /// A dataset that has not been read yet.
    pub fn new(name: &str, common: Arc<Common>) -> Arc<Served> {
        Arc::new(Served {
            name: name.to_owned(),
            remote: Remote::new(common.origin.clone(), name),
            common,
            view: ArcSwapOption::empty(),
            state: Mutex::new(State::new()),
            fixed_bytes: AtomicU64::new(u64::MAX),
            copied: Mutex::default(),
        })
    }

    /// The dataset's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of layers that the shards are to have together, if that number is fixed.
    pub fn fixed_bytes(&self) -> Option<u64> {
        Some(self.fixed_bytes.load(Ordering::Relaxed)).filter(|bytes| *bytes != u64::MAX)
    }

    /// Fixes the bytes of layers; `None` lets the lengths of the queues decide.
    pub fn set_fixed_bytes(&self, bytes: Option<u64>) {
        self.fixed_bytes.store(bytes.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// What copies of shards took so far.
    pub fn copied(&self) -> Copied {
        *self.copied.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a copy of a shard.
    pub fn count_copy(&self, bytes: u64, seconds: f64) {
        self.copied.lock().unwrap_or_else(PoisonError::into_inner).add(bytes, seconds);
    }

    /// The current view; `None` if the dataset has not been read, or does not exist in the origin.
    pub fn view(&self) -> Option<Arc<View>> {
        self.view.load_full()
    }

    /// The windows of the dataset's queues that ended by `now`; with `flush`, the current ones too.
    pub fn windows(&self, now: Nanos, flush: bool) -> Vec<Window> {
        let view = self.view();
        let stations = view.iter().flat_map(|view| view.stations.values());
        stations.flat_map(|station| station.windows(now, flush)).collect()
    }

    /// Compares with the origin and applies the changes found there.
    ///
    /// # Errors
    ///
    /// Those of the origin and of the folder of copies. The previous view then stays.
    pub async fn refresh(self: &Arc<Self>) -> Result<()> {
        self.want_view(|token| Event::Refresh { token }).await
    }

    /// Opens the dataset, or waits for the caller that is opening it and shares its result.
    ///
    /// # Errors
    ///
    /// Those of [`refresh`](Self::refresh).
    pub async fn first_view(self: &Arc<Self>) -> Result<Option<Arc<View>>> {
        self.want_view(|token| Event::First { token }).await?;
        Ok(self.view())
    }

    pub(crate) async fn want_view(
        self: &Arc<Self>,
        event: impl FnOnce(Token) -> Event<Arc<str>>,
    ) -> Result<()> {
        let (done, told) = oneshot::channel();
        {
            let mut state = self.state();
            let token = state.token();
            state.views.insert(token, done);
            self.tell(&mut state, event(token));
        }
        told.await.map_err(|_| Error::Stopping)?.map_err(Error::Shared)
    }

    /// Makes a dataset the view. Queues of parts that the view before had stay.
    pub fn publish(&self, dataset: Dataset, current: Current) {
        let before = self.view();
        let same = before.filter(|view| view.current.manifest.id == current.manifest.id);
        let name_of = |part: &Arc<Part>| part_of(&part.entry().file).to_owned();
        let parts: BTreeMap<String, Arc<Part>> =
            dataset.parts().iter().map(|part| (name_of(part), part.clone())).collect();
        let station = |part: String| {
            let there = same.as_ref().and_then(|view| view.stations.get(&part).cloned());
            let station = there.unwrap_or_else(|| {
                let name =
                    QueueName::Shard { dataset: &self.name, part: part.as_str() }.to_string();
                let common = &self.common;
                let windows = common.windows.clone();
                Station::new(name, common.bound, windows, clock::now())
            });
            (part, station)
        };
        let stations = parts.keys().cloned().chain([LOG.to_owned()]).map(station).collect();
        self.view.store(Some(Arc::new(View { dataset, current, parts, stations })));
    }

    /// Appends the records in `bytes`, which `room` is reserved for; they are then in the origin.
    ///
    /// # Errors
    ///
    /// If a record is invalid in the dataset's format. [`Error::Unwritten`] if the origin fails: its
    /// message says whether the records may have been appended.
    pub async fn append(self: &Arc<Self>, bytes: Bytes, room: Option<Reserved>) -> Result<Changed> {
        let room = room.map(Arc::new);
        match self.append_once(bytes.clone(), room.clone()).await {
            // Whoever replaced the dataset tells no process, so that this one has learned it only now: the records are for
            // the dataset that has the name.
            Err(Error::Replaced) => self.append_once(bytes, room).await,
            done => done,
        }
    }

    /// Appends to the dataset of the current view.
    async fn append_once(
        self: &Arc<Self>,
        bytes: Bytes,
        room: Option<Arc<Reserved>>,
    ) -> Result<Changed> {
        let (view, size) = (self.require_view()?, bytes.len() as u64);
        let dataset = view.dataset.clone();
        let read = move || {
            let header = dataset.header_names()?;
            let records = split(dataset.schema(), header.as_deref(), &bytes)?;
            Ok::<_, Error>(records.into_iter().map(Entry::Append).collect())
        };
        let entries = compute(size, read).await?;
        self.change(&view, entries, room).await
    }

    /// Deletes records, skipping deleted ones; the deletions, which `room` is reserved for, are then in the origin.
    ///
    /// # Errors
    ///
    /// If an id was never assigned, or those of [`append`](Self::append). [`Error::Replaced`] if another dataset has the name
    /// now, which has the ids for other records.
    pub async fn delete(
        self: &Arc<Self>,
        ids: impl IntoIterator<Item = u64>,
        room: Option<Reserved>,
    ) -> Result<Changed> {
        let mut view = self.require_view()?;
        let ids: Vec<u64> = ids.into_iter().collect();
        if ids.iter().any(|id| *id >= view.dataset.end_id()) {
            // Another node may have appended them.
            self.refresh().await.map_err(|error| Error::Unwritten(with_causes(&error)))?;
            view = self.require_view()?;
        }
        let end = view.dataset.end_id();
        if let Some(id) = ids.iter().find(|id| **id >= end) {
            let what = format!("there is no record {id}: ids are less than {end}");
            return Err(Error::Parameter(what));
        }
        let deleted = view.dataset.deleted();
        let there: Vec<Entry> =
            ids.into_iter().filter(|id| !deleted.contains(id)).map(Entry::Delete).collect();
        if !view.dataset.has_room_for_deletions(there.len()) {
            let what = format!(
                "nothing was deleted: the manifest has no room for more than the {} deleted records that it lists; export the \
                 dataset, and import it anew",
                deleted.len()
            );
            return Err(Error::Unwritten(what));
        }
        self.change(&view, there, room.map(Arc::new)).await
    }

    pub(crate) fn require_view(&self) -> Result<Arc<View>> {
        self.view().ok_or_else(|| Error::Unknown(self.name.clone()))
    }

    async fn change(
        self: &Arc<Self>,
        view: &View,
        entries: Vec<Entry>,
        room: Option<Arc<Reserved>>,
    ) -> Result<Changed> {
        if entries.is_empty() {
            let dataset = &view.dataset;
            let (first_id, chunk) = (dataset.end_id(), dataset.last_chunk());
            return Ok(Changed { first_id, records: 0, chunk });
        }
        let (done, told) = oneshot::channel();
        {
            let mut state = self.state();
            let log_bytes = state.engine.view().map_or(0, |view| view.tail.log_bytes);
            if log_bytes > LOG_BYTES_MAX {
                let what = format!(
                    "nothing was written: the log has {log_bytes} bytes, more than {LOG_BYTES_MAX}, because the node that \
                     seals it does not; its log says why"
                );
                return Err(Error::Unwritten(what));
            }
            let token = state.token();
            let appended = || entries.iter().filter_map(Entry::appended);
            let event = Event::Change {
                token,
                id: view.current.manifest.id.as_str().into(),
                // A lower bound, close to the actual size.
                bytes: appended().map(<[u8]>::len).sum::<usize>() + 9 * entries.len(),
                records: entries.len() as u64,
                appended: appended().count() as u64,
            };
            let entries = Arc::new(entries);
            state.changes.insert(token, Change { entries, _room: room, done });
            self.tell(&mut state, event);
        }
        let stopping = "it is not known whether the change was written: the server is stopping";
        told.await.unwrap_or_else(|_| Err(Error::Unwritten(stopping.to_owned())))
    }

    /// Seals the log into a new shard. Returns whether there was anything to seal.
    ///
    /// # Errors
    ///
    /// If the origin or the folder of copies fails, or another process seals first. The log stays.
    pub async fn seal(self: &Arc<Self>) -> Result<bool> {
        let (done, told) = oneshot::channel();
        {
            let mut state = self.state();
            let token = state.token();
            state.seals.insert(token, done);
            self.tell(&mut state, Event::Seal { token });
        }
        told.await.map_err(|_| Error::Stopping)?.map_err(Error::Shared)
    }
}

#[cfg(test)]
#[path = "served_tests.rs"]
mod tests;
