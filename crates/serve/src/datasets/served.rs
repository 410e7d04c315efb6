//! One dataset as a process serves it: copies of its shards on local disk, its log in memory, and
//! appends to the origin.
//!
//! A [`View`] is the dataset at one moment; a request keeps the view that it began with. Changes
//! and refreshes hold the mutex `changing`, so that each view replaces its predecessor.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, bail, ensure};
use arc_swap::ArcSwapOption;
use engine::Key;
use model::window::{Nanos, QueueName, Settings, Window};
use shard::index::Options;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tracing::{info, warn};

use super::ask::{LOG, part_of};
use super::station::{Bound, Station};
use dataset::chunk::{CHUNK_BYTES_MAX, Chunk, Entry};
use dataset::manifest::{Manifest, ShardEntry, shard_file};
use dataset::part::Part;
use dataset::remote::{Current, Put, Remote, folder_of_copy, key_of_file, key_of_manifest};
use dataset::{Dataset, SEAL_BYTES, chunk_file, split};
use origin::Origin;
use record::clock;

/// Maximum attempts at an operation that concurrent changes by other processes can defeat.
const TRIES: usize = 10;

/// Maximum shard numbers that a seal skips because unreferenced shards occupy them.
const UNNAMED_MAX: usize = 1000;

/// Sealed chunks removed concurrently.
const REMOVED_AT_ONCE: usize = 16;

/// Name prefix of the temporary folders of seals, inside the folder of copies.
pub const SEALING: &str = ".sealing-";

/// Settings and resources shared by all datasets of a process.
pub struct Common {
    /// Where the datasets are durable.
    pub origin: Arc<dyn Origin>,
    /// The folder of local copies.
    pub copies: PathBuf,
    /// The bound of a part's queue.
    pub bound: Bound,
    /// Settings of the windows.
    pub windows: Settings,
    /// Whether this process is one of a key's nodes.
    pub is_mine: Box<dyn Fn(&Key) -> bool + Send + Sync>,
    /// Whether this process seals the log of the dataset whose manifest has this key.
    pub seals: Box<dyn Fn(&Key) -> bool + Send + Sync>,
}

/// A dataset at one moment.
#[derive(Clone)]
pub struct View {
    /// The dataset's log, and those of its shards that this node holds.
    pub dataset: Dataset,
    /// The manifest in the origin.
    pub current: Current,
    /// A queue for each part held here. Every process holds the log.
    pub stations: BTreeMap<String, Arc<Station>>,
}

impl View {
    /// The shard with this part name, if this node holds it.
    pub fn part(&self, name: &str) -> Option<&Arc<Part>> {
        self.dataset.parts().iter().find(|part| part_of(&part.entry().file) == name)
    }
}

/// A change that waits to be written, and the channel to its caller.
struct Change {
    /// Id of the dataset that the change was checked against.
    id: String,
    entries: Vec<Entry>,
    /// The change's share of the memory for appends, released when the change is written.
    _room: Option<OwnedSemaphorePermit>,
    done: oneshot::Sender<Result<Changed, Unwritten>>,
}

/// A valid change that could not be written, or of which this is not known.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unwritten(String);

impl Change {
    /// Bytes of the change in a chunk: a lower bound, close to the actual size.
    fn bytes(&self) -> usize {
        let size = |entry: &Entry| match entry {
            Entry::Append(record) => record.len(),
            Entry::Delete(_) => 0,
        };
        self.entries.iter().map(|entry| size(entry) + 9).sum()
    }
}

/// The result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Id of the first appended record.
    pub first_id: u64,
    /// Number of records appended, or deleted.
    pub records: u64,
    /// Number of the log's chunk that holds the change.
    pub chunk: u64,
}

/// A dataset that this process serves.
pub struct Served {
    name: String,
    common: Arc<Common>,
    remote: Remote,
    view: ArcSwapOption<View>,
    changing: tokio::sync::Mutex<()>,
    sealing: tokio::sync::Mutex<()>,
    changes: Mutex<Vec<Change>>,
    /// Bytes of layers for all shards together; `u64::MAX` lets the queue lengths decide.
    fixed_bytes: AtomicU64,
    /// When the latest attempt to open the dataset ended, and its error.
    first_read: Mutex<Option<(Nanos, Option<String>)>>,
}

impl Served {
    /// A dataset that has not been read yet.
    pub fn new(name: &str, common: Arc<Common>) -> Arc<Served> {
        Arc::new(Served {
            name: name.to_owned(),
            remote: Remote::new(common.origin.clone(), name),
            common,
            view: ArcSwapOption::empty(),
            changing: tokio::sync::Mutex::default(),
            sealing: tokio::sync::Mutex::default(),
            changes: Mutex::default(),
            fixed_bytes: AtomicU64::new(u64::MAX),
            first_read: Mutex::default(),
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
    pub async fn refresh(&self) -> anyhow::Result<()> {
        let _changing = self.changing.lock().await;
        self.refresh_locked().await.with_context(|| format!("dataset {}", self.name))
    }

    async fn refresh_locked(&self) -> anyhow::Result<()> {
        let mut last = None;
        for _ in 0..TRIES {
            match self.refresh_once().await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                // A new manifest may have removed shards and chunks in between.
                Err(error) => last = Some(error),
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        Err(last.unwrap_or_else(|| anyhow::anyhow!("it changes faster than it can be read")))
    }

    /// Reads manifest and log once; `false` if the manifest changed meanwhile, which voids them.
    async fn refresh_once(&self) -> anyhow::Result<bool> {
        let Some(etag) = self.remote.etag().await? else {
            self.view.store(None);
            return Ok(true);
        };
        let known = self.view().filter(|view| view.current.etag == etag);
        let (mut dataset, current) = match &known {
            Some(view) => (view.dataset.clone(), view.current.clone()),
            None => match self.remote.current().await? {
                Some(current) => (self.open(&current).await?, current),
                None => return Ok(false),
            },
        };
        let before = dataset.last_chunk();
        let id = &current.manifest.id;
        while let Some(chunk) = self.remote.chunk(id, dataset.last_chunk() + 1).await? {
            dataset.take(chunk)?;
        }
        if self.remote.etag().await? != Some(current.etag.clone()) {
            return Ok(false);
        }
        if known.is_none() || dataset.last_chunk() > before {
            self.publish(dataset, current);
        }
        Ok(true)
    }

    /// Copies this node's shards of a manifest and opens them.
    async fn open(&self, current: &Current) -> anyhow::Result<Dataset> {
        let manifest = current.manifest.clone();
        let mine = |entry: &ShardEntry| self.is_mine(&manifest.id, entry);
        if !manifest.shards.iter().any(mine) {
            return Dataset::of_parts(Path::new(""), manifest, &[], |_| false);
        }
        let folder = folder_of_copy(&self.common.copies, &self.name, &manifest.id)?;
        for entry in manifest.shards.iter().filter(|entry| mine(entry)) {
            let path = folder.join(&entry.file);
            if std::fs::metadata(&path).is_ok_and(|found| found.len() == entry.file_bytes) {
                continue;
            }
            info!("dataset {}: copying {}, {} bytes", self.name, entry.file, entry.file_bytes);
            self.remote.fetch(&manifest.id, &entry.file, entry.file_bytes, &folder).await?;
        }
        let files: Vec<String> =
            manifest.shards.iter().filter(|e| mine(e)).map(|e| e.file.clone()).collect();
        let before = self.view();
        let same = before.filter(|view| view.current.manifest.id == manifest.id);
        let parts = same.map(|view| view.dataset.parts().to_vec()).unwrap_or_default();
        let name = self.name.clone();
        // Opening verifies every byte, which takes about a second per few gigabytes.
        tokio::task::spawn_blocking(move || {
            let open = Dataset::of_parts(&folder, manifest, &parts, |e| files.contains(&e.file));
            if open.is_err() {
                // Remove copies that may be damaged, so that the next attempt copies them again.
                for file in &files {
                    let path = folder.join(file);
                    if !parts.iter().any(|part| part.entry().file == *file)
                        && std::fs::remove_file(&path).is_ok()
                    {
                        warn!("dataset {name}: removed {} to copy it again", path.display());
                    }
                }
            }
            open
        })
        .await?
    }

    fn is_mine(&self, id: &str, entry: &ShardEntry) -> bool {
        (self.common.is_mine)(&key_of_file(&self.name, id, &entry.file))
    }

    fn publish(&self, dataset: Dataset, current: Current) -> Arc<View> {
        let before = self.view();
        let same = before.filter(|view| view.current.manifest.id == current.manifest.id);
        let parts = dataset.parts().iter().map(|part| part_of(&part.entry().file).to_owned());
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
        let stations = parts.chain([LOG.to_owned()]).map(station).collect();
        let view = Arc::new(View { dataset, current, stations });
        self.view.store(Some(view.clone()));
        view
    }

    /// Opens the dataset, or waits for the caller that is opening it and shares its result.
    ///
    /// # Errors
    ///
    /// Those of [`refresh`](Self::refresh).
    pub async fn first_view(&self) -> anyhow::Result<Option<Arc<View>>> {
        let begun = clock::now();
        let _changing = self.changing.lock().await;
        if let Some(view) = self.view() {
            return Ok(Some(view));
        }
        let first_read = self.first_read().clone().filter(|first_read| first_read.0 >= begun);
        let failed = match first_read {
            Some((_, failed)) => failed,
            None => {
                let read = self.refresh_locked().await;
                let failed = read.err().map(|error| format!("dataset {}: {error:#}", self.name));
                *self.first_read() = Some((clock::now(), failed.clone()));
                failed
            }
        };
        match failed {
            Some(failed) => bail!("{failed}"),
            None => Ok(self.view()),
        }
    }

    fn first_read(&self) -> std::sync::MutexGuard<'_, Option<(Nanos, Option<String>)>> {
        self.first_read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends the records in `bytes`, which `room` is reserved for; they are then in the origin.
    ///
    /// # Errors
    ///
    /// If a record is invalid in the dataset's format. [`Unwritten`] if the origin fails: its
    /// message says whether the records may have been appended.
    pub async fn append(
        self: &Arc<Self>,
        bytes: &[u8],
        room: Option<OwnedSemaphorePermit>,
    ) -> anyhow::Result<Changed> {
        let view = self.require_view()?;
        let records = split(view.dataset.schema(), bytes)?;
        self.change(&view, records.into_iter().map(Entry::Append).collect(), room).await
    }

    /// Deletes records, skipping deleted ones; the deletions are then in the origin.
    ///
    /// # Errors
    ///
    /// If an id was never assigned, or those of [`append`](Self::append).
    pub async fn delete(
        self: &Arc<Self>,
        ids: impl IntoIterator<Item = u64>,
    ) -> anyhow::Result<Changed> {
        let mut view = self.require_view()?;
        let ids: Vec<u64> = ids.into_iter().collect();
        if ids.iter().any(|id| *id >= view.dataset.end_id()) {
            // Another node may have appended them.
            self.refresh().await?;
            view = self.require_view()?;
        }
        let end = view.dataset.end_id();
        if let Some(id) = ids.iter().find(|id| **id >= end) {
            bail!("there is no record {id}: ids are less than {end}");
        }
        let deleted = view.dataset.deleted();
        let there = ids.into_iter().filter(|id| !deleted.contains(id));
        self.change(&view, there.map(Entry::Delete).collect(), None).await
    }

    fn require_view(&self) -> anyhow::Result<Arc<View>> {
        self.view().with_context(|| format!("there is no dataset {}", self.name))
    }

    async fn change(
        self: &Arc<Self>,
        view: &View,
        entries: Vec<Entry>,
        room: Option<OwnedSemaphorePermit>,
    ) -> anyhow::Result<Changed> {
        if entries.is_empty() {
            let dataset = &view.dataset;
            let (first_id, chunk) = (dataset.end_id(), dataset.last_chunk());
            return Ok(Changed { first_id, records: 0, chunk });
        }
        let (done, told) = oneshot::channel();
        let id = view.current.manifest.id.clone();
        self.changes().push(Change { id, entries, _room: room, done });
        // In a task of its own: a client that disconnects must not cancel the changes of others.
        let served = self.clone();
        tokio::spawn(async move { served.write_changes().await });
        let stopping = "it is not known whether the change was written: the server is stopping";
        Ok(told.await.unwrap_or_else(|_| Err(Unwritten(stopping.to_owned())))?)
    }

    fn changes(&self) -> std::sync::MutexGuard<'_, Vec<Change>> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes waiting changes as one chunk: those that fit and were checked against the same id.
    async fn write_changes(self: &Arc<Self>) {
        let _changing = self.changing.lock().await;
        let changes = {
            let mut waiting = self.changes();
            let (mut count, mut bytes) = (0, 0);
            while let Some(change) = waiting.get(count) {
                bytes += change.bytes();
                let other = waiting.first().is_some_and(|first| first.id != change.id);
                if other || (count > 0 && bytes > CHUNK_BYTES_MAX / 2) {
                    break;
                }
                count += 1;
            }
            waiting.drain(..count).collect::<Vec<_>>()
        };
        let Some(id) = changes.first().map(|change| &change.id) else { return };
        let entries = changes.iter().flat_map(|change| change.entries.iter().cloned()).collect();
        let written = self.write_chunk(id, entries).await;
        let written = written.map_err(|error| Unwritten(format!("{error:#}")));
        let mut first = written.as_ref().map_or(0, |changed| changed.first_id);
        for change in changes {
            let appended = change.entries.iter().filter(|e| matches!(e, Entry::Append(_))).count();
            let records = change.entries.len() as u64;
            let told = written.clone().map(|all| Changed { first_id: first, records, ..all });
            first += appended as u64;
            let _ = change.done.send(told);
        }
        self.seal_if_large();
    }

    /// Seals the log in the background if it is large and this node is the one that seals it.
    pub fn seal_if_large(self: &Arc<Self>) {
        let large = self.view().is_some_and(|view| view.dataset.log_bytes() > SEAL_BYTES);
        if !large || !(self.common.seals)(&key_of_manifest(&self.name)) {
            return;
        }
        let served = self.clone();
        tokio::spawn(async move {
            if let Err(error) = served.seal_large().await {
                warn!("dataset {}: cannot seal the log now: {error:#}", served.name);
            }
        });
    }

    async fn write_chunk(&self, id: &str, entries: Vec<Entry>) -> anyhow::Result<Changed> {
        for _ in 0..TRIES {
            let View { dataset, current, .. } = &*self.require_view()?;
            ensure!(
                current.manifest.id == id,
                "the dataset was replaced meanwhile; nothing was changed"
            );
            let (number, first_id) = (dataset.last_chunk() + 1, dataset.end_id());
            let chunk = Chunk { number, first_id, entries: entries.clone() };
            // Apply the chunk before putting it: an inapplicable chunk would block every process.
            let mut dataset = dataset.clone();
            dataset.take(chunk.clone())?;
            let put = self.remote.put_chunk(current, &chunk).await;
            if matches!(put, Ok(Put::Done)) {
                let changed = Changed { first_id, records: entries.len() as u64, chunk: number };
                self.publish(dataset, current.clone());
                return Ok(changed);
            }
            // The origin may now hold another process's chunk, or ours if only the reply was lost.
            let refreshed = self.refresh_locked().await;
            let unknown =
                "it is not known whether the change was written; check before you try again";
            let put = put.context(unknown)?;
            refreshed?;
            ensure!(put != Put::Sealed || !self.may_hold(first_id, &entries), unknown);
        }
        bail!("other processes changed the dataset during all {TRIES} attempts; try again")
    }

    /// Whether the dataset's records from `first_id` on may already be those of `entries`.
    fn may_hold(&self, first_id: u64, entries: &[Entry]) -> bool {
        let Some(view) = self.view() else { return false };
        let appended = entries.iter().filter_map(|entry| match entry {
            Entry::Append(record) => Some(record),
            Entry::Delete(_) => None,
        });
        let mut same = appended.zip(first_id..).map(|(record, id)| {
            // A record in another node's shard cannot be compared: assume that it may be the same.
            view.dataset.stored(id).map_or(id < view.dataset.end_id(), |there| there == *record)
        });
        // Entries that only delete may be written twice.
        entries.iter().any(|entry| matches!(entry, Entry::Append(_))) && same.all(|same| same)
    }

    /// Seals the log into a new shard. Returns whether there was anything to seal.
    ///
    /// # Errors
    ///
    /// If the origin or the folder of copies fails, or another process seals first. The log stays.
    pub async fn seal(self: &Arc<Self>) -> anyhow::Result<bool> {
        let _sealing = self.sealing.lock().await;
        self.refresh().await?;
        self.seal_locked().await
    }

    /// Seals the log if no other seal runs here and the log is still large after a refresh.
    async fn seal_large(self: &Arc<Self>) -> anyhow::Result<()> {
        let Ok(_sealing) = self.sealing.try_lock() else { return Ok(()) };
        self.refresh().await?;
        if self.require_view()?.dataset.log_bytes() > SEAL_BYTES {
            self.seal_locked().await?;
        }
        Ok(())
    }

    async fn seal_locked(&self) -> anyhow::Result<bool> {
        let view = self.require_view()?;
        let before = &view.current.manifest;
        if view.dataset.last_chunk() == before.sealed_chunks {
            return Ok(false);
        }
        // A temporary folder of its own: leftovers of an unfinished seal cannot interfere.
        std::fs::create_dir_all(&self.common.copies)?;
        let made = tempfile::Builder::new().prefix(SEALING).tempdir_in(&self.common.copies)?;
        let (dataset, to) = (view.dataset.clone(), made.path().to_owned());
        let mut manifest = before.clone();
        let mut manifest = tokio::task::spawn_blocking(move || -> anyhow::Result<Manifest> {
            dataset.seal_into(&to, &mut manifest, &Options::default())?;
            Ok(manifest)
        })
        .await??;
        let file = match manifest.shards.len() > before.shards.len() {
            true => Some(self.put_sealed(&mut manifest, made.path()).await?),
            false => None,
        };
        self.replace(&view, manifest, file.map(|file| made.path().join(file))).await
    }

    /// Puts the manifest's last shard, just built, under the first free number, and returns its
    /// file name. An unfinished seal may have left an unreferenced shard under a lower number.
    async fn put_sealed(&self, manifest: &mut Manifest, folder: &Path) -> anyhow::Result<String> {
        for _ in 0..UNNAMED_MAX {
            let Some(entry) = manifest.shards.last_mut() else { break };
            match self.remote.put_shard(&manifest.id, &entry.file, folder).await {
                Ok(()) => return Ok(entry.file.clone()),
                Err(error) => match error.downcast_ref::<origin::Error>() {
                    Some(origin::Error::Condition(_)) => {}
                    _ => return Err(error),
                },
            }
            let next = shard_file(manifest.next_shard);
            std::fs::rename(folder.join(&entry.file), folder.join(&next))?;
            entry.file = next;
            manifest.next_shard += 1;
        }
        bail!("cannot seal: {UNNAMED_MAX} shards that no manifest names occupy the next numbers")
    }

    /// Replaces the manifest of `view` in the origin if it is still current, then removes the
    /// sealed chunks. `shard` is the local file of the manifest's last shard, if the seal made one.
    async fn replace(
        &self,
        view: &View,
        manifest: Manifest,
        shard: Option<PathBuf>,
    ) -> anyhow::Result<bool> {
        let changing = self.changing.lock().await;
        let (id, before) = (&manifest.id, &view.current.manifest);
        let file = manifest.shards.last().map(|entry| entry.file.clone()).unwrap_or_default();
        if self.remote.replace(&view.current.etag, &manifest).await?.is_none() {
            self.refresh_locked().await?;
            let now = self.view();
            // Only the reply may be lost: then the current manifest, or a successor, has our shard.
            let is_named = now.is_some_and(|view| {
                let now = &view.current.manifest;
                now.id == *id && now.shards.iter().any(|entry| entry.file == file)
            });
            if shard.is_none() || !is_named {
                if shard.is_some() {
                    self.remote.remove(id, &file).await?;
                }
                bail!("another process changed the manifest meanwhile; nothing was sealed here")
            }
        }
        if let Some(made) = shard
            && manifest.shards.last().is_some_and(|entry| self.is_mine(id, entry))
        {
            // If the move fails, the refresh below copies the shard from the origin.
            let moved = folder_of_copy(&self.common.copies, &self.name, id)
                .and_then(|folder| Ok(std::fs::rename(&made, folder.join(&file))?));
            if let Err(error) = moved {
                warn!("dataset {}: copying the new {file} from the origin: {error:#}", self.name);
            }
        }
        let refreshed = self.refresh_locked().await;
        // Nothing reads the sealed chunks now, and there may be thousands: remove them unlocked.
        drop(changing);
        let sealed: Vec<u64> = (before.sealed_chunks + 1..=manifest.sealed_chunks).collect();
        for some in sealed.chunks(REMOVED_AT_ONCE) {
            let removals = some.iter().map(|number| async move {
                let chunk = chunk_file(*number);
                if let Err(error) = self.remote.remove(id, &chunk).await {
                    warn!("dataset {}: cannot remove the sealed {chunk}: {error}", self.name);
                }
            });
            futures_util::future::join_all(removals).await;
        }
        refreshed?;
        Ok(true)
    }
}

#[cfg(test)]
#[path = "served_tests.rs"]
mod tests;
