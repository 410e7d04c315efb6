//! Carries out what [`engine::dataset`] decides for one dataset: reads and writes its files in the origin, copies and opens its shards, seals its log.
//!
//! A request is an event with a number; the action that ends it finds its caller under that number. The view that
//! requests read, the draft of the next one and the shard that is sealed are here; when which is made, shown or
//! removed is the engine's business.

use std::collections::HashSet;
use std::future::Future;
use std::ops::RangeInclusive;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use engine::dataset::{self as decide, Put, Tail, Token, Why};
use futures_util::FutureExt;
use ground::with_causes;
use shard::index::Options;
use tracing::{info, warn};

use super::ask::part_of;
use super::error::{Error, Result};
use super::served::Served;
use super::state::{Reason, SETTINGS, Sealing, State};
use super::view::View;
use dataset::chunk::{Chunk, Entry};
use dataset::copies::{CopyFolder, SealFolder};
use dataset::manifest::{Manifest, ShardEntry, is_shard_file, shard_file};
use dataset::remote::{Current, key_of_file, key_of_manifest};
use dataset::{Dataset, chunk_file, compute};
use record::clock;

type Event = decide::Event<Reason>;
type Action = decide::Action<Reason>;

/// The age from which a copy is removed that is not used.
const SWEPT_AFTER: Duration = Duration::from_secs(600);

fn to_message<T>(result: dataset::Result<T>) -> Result<T, Reason> {
    result.map_err(|error| Reason::from(with_causes(&error)))
}

fn tail(dataset: &Dataset) -> Tail {
    Tail {
        last_chunk: dataset.last_chunk(),
        end_id: dataset.end_id(),
        log_bytes: dataset.log_memory() as u64,
    }
}

/// The entries of several changes, in order.
fn entries_of(changes: &[Arc<Vec<Entry>>]) -> Vec<Entry> {
    changes.iter().flat_map(|entries| entries.iter().cloned()).collect()
}

/// The bytes that entries have in a chunk, or a little more.
fn bytes_of(entries: &[Entry]) -> u64 {
    let records = entries.iter().filter_map(Entry::appended).map(|record| record.len() as u64);
    records.sum::<u64>() + 9 * entries.len() as u64
}

/// The number of a shard's file.
fn number_of(entry: &ShardEntry) -> Option<u64> {
    part_of(&entry.file).parse().ok()
}

fn manifest(current: &Current) -> decide::Manifest {
    let Current { manifest, etag } = current;
    decide::Manifest {
        id: manifest.id.as_str().into(),
        etag: etag.clone(),
        sealed_chunks: manifest.sealed_chunks,
        next_shard: manifest.next_shard,
        shards: manifest.shards.iter().filter_map(number_of).collect(),
    }
}

impl Served {
    /// Locks the state.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the engine an event and carries out what it decides.
    pub fn tell(self: &Arc<Self>, state: &mut State, event: Event) {
        let mut actions = Vec::new();
        state.engine.handle(clock::now(), event, &mut actions);
        for action in actions {
            self.carry_out(state, action);
        }
    }

    fn carry_out(self: &Arc<Self>, state: &mut State, action: Action) {
        match action {
            Action::FromView => {
                let copy = |view: Arc<View>| (view.dataset.clone(), view.current.clone());
                state.draft = self.view().map(copy);
            }
            Action::Show => {
                if let Some((dataset, current)) = state.draft.take() {
                    self.publish(dataset, current);
                }
            }
            Action::Hide => self.view.store(None),
            Action::Discard { keep } => self.discard(state, &keep),
            Action::Keep { number } => self.keep(state, number),
            Action::Large => {
                if (self.common.seals)(&key_of_manifest(&self.name)) {
                    self.later(async { Event::SealLarge });
                }
            }
            Action::Wake { at } => self.later(async move {
                let left = Duration::from_nanos(at.saturating_sub(clock::now()));
                tokio::time::sleep(left).await;
                Event::Tick
            }),
            Action::Changed { token, result } => {
                if let Some(change) = state.changes.remove(&token) {
                    let _ = change.done.send(result.map_err(|why| self.change_error(why)));
                }
            }
            Action::Refreshed { token, result } => {
                if let Some(done) = state.views.remove(&token) {
                    let failed = |why| format!("dataset {}: {}", self.name, self.message(why));
                    let _ = done.send(result.map_err(failed));
                }
            }
            Action::Sealed { tokens, result } => {
                state.sealing = None;
                let result = result.map_err(|why| self.message(why));
                if let (Err(error), true) = (&result, tokens.is_empty()) {
                    warn!("dataset {}: cannot seal the log now: {error}", self.name);
                }
                for token in tokens {
                    if let Some(done) = state.seals.remove(&token) {
                        let _ = done.send(result.clone());
                    }
                }
            }
            Action::Build => {
                state.sealing = self.view().map(|view| {
                    let manifest = view.current.manifest.clone();
                    Sealing { view, manifest, made: None }
                });
                self.begin(action);
            }
            _ => self.begin(action),
        }
    }

    /// Carries out an action that takes time, and tells the engine its result. In a task of its own: a client that
    /// disconnects must not cancel what others wait for.
    fn begin(self: &Arc<Self>, action: Action) {
        let served = self.clone();
        self.later(async move {
            let failed = |error: Reason| match &action {
                Action::Head => Event::Head(Err(error)),
                Action::ReadManifest => Event::Manifest(Err(error)),
                Action::Fetch => Event::Fetched(Err(error)),
                Action::Open => Event::Opened(Err(error)),
                Action::ReadChunk { .. } => Event::Chunk(Err(error)),
                Action::PutChunk { .. } => Event::Put(Put::Failed(error)),
                Action::RemoveChunk { .. } => Event::ChunkRemoved(Err(error)),
                Action::Replace { .. } => Event::Replaced(Err(error)),
                Action::RemoveShard { .. } => Event::ShardRemoved(Err(error)),
                // Unknown is what it may be.
                Action::Compare { .. } => Event::Compared { may_hold: true },
                Action::Build => Event::Built(Err(error)),
                Action::PutShard { .. } => Event::ShardPut(Err(error)),
                // They may be there.
                Action::LookForChunks { .. } => Event::Looked { found: true },
                Action::RemoveChunks { .. } => Event::ChunksRemoved(Err(error)),
                _ => Event::Tick,
            };
            let done = AssertUnwindSafe(served.perform(action.clone())).catch_unwind().await;
            match done {
                Ok(Ok(event)) => event,
                Ok(Err(error)) => failed(with_causes(&error).into()),
                Err(_) => failed("internal error: see the server's log".into()),
            }
        });
    }

    fn later(self: &Arc<Self>, event: impl Future<Output = Event> + Send + 'static) {
        let served = self.clone();
        tokio::spawn(async move {
            let event = event.await;
            served.tell(&mut served.state(), event);
        });
    }

    async fn perform(self: &Arc<Self>, action: Action) -> Result<Event> {
        Ok(match action {
            Action::Head => Event::Head(Ok(self.remote.etag().await?)),
            Action::ReadManifest => {
                let current = self.remote.current().await?;
                let found = current.as_ref().map(manifest);
                self.state().read = current;
                Event::Manifest(Ok(found))
            }
            Action::Fetch => {
                self.files_changed().await;
                self.fetch(self.read()?).await?;
                Event::Fetched(Ok(()))
            }
            Action::Open => {
                self.files_changed().await;
                let current = self.read()?;
                let dataset = self.open(&current).await?;
                let tail = tail(&dataset);
                self.state().draft = Some((dataset, current));
                Event::Opened(Ok(tail))
            }
            Action::ReadChunk { number } => self.read_chunk(number).await?,
            Action::PutChunk { number, first_id, changes } => {
                Event::Put(self.put_chunk(number, first_id, &changes).await?)
            }
            Action::RemoveChunk { number } => {
                let id = self.require_view()?.current.manifest.id.clone();
                self.remote.remove(&id, &chunk_file(number)).await?;
                Event::ChunkRemoved(Ok(()))
            }
            Action::Compare { first_id, changes } => Event::Compared {
                may_hold: self.may_hold(first_id, &entries_of(&self.changes(&changes))),
            },
            Action::Build => self.build().await?,
            Action::PutShard { number } => self.put_shard(number).await?,
            Action::Replace { over, .. } => {
                let manifest = self.sealing(|sealing| sealing.manifest.clone())?;
                Event::Replaced(Ok(self.remote.replace(&over, manifest).await?.is_some()))
            }
            Action::RemoveShard { number } => {
                let id = self.sealing(|sealing| sealing.manifest.id.clone())?;
                self.remote.remove(&id, &shard_file(number)).await?;
                Event::ShardRemoved(Ok(()))
            }
            Action::LookForChunks { from, to } => {
                let id = &self.sealing(|sealing| sealing.manifest.id.clone())?;
                let looks = (from..=to).map(|number| self.remote.has(id, chunk_file(number)));
                let found = futures_util::future::try_join_all(looks).await?;
                Event::Looked { found: found.contains(&true) }
            }
            Action::RemoveChunks { from, to } => self.remove_chunks(from..=to).await?,
            _ => Event::Tick,
        })
    }

    /// Takes a chunk of the log into the draft, if there is such a chunk.
    async fn read_chunk(&self, number: u64) -> Result<Event> {
        let draft = self.state().draft.take();
        let (mut dataset, current) = draft.ok_or(Error::Lacking("there is no draft"))?;
        let chunk = self.remote.chunk(&current.manifest.id, number).await?;
        let found = chunk.is_some();
        if let Some(chunk) = chunk {
            let bytes = bytes_of(&chunk.entries);
            dataset = compute(bytes, move || dataset.take(chunk).map(|()| dataset)).await?;
        }
        let tail = tail(&dataset);
        self.state().draft = Some((dataset, current));
        Ok(Event::Chunk(Ok(found.then_some(tail))))
    }

    /// Removes chunks whose records are sealed. One that cannot be removed does not keep the others.
    async fn remove_chunks(&self, numbers: RangeInclusive<u64>) -> Result<Event> {
        let id = &self.sealing(|sealing| sealing.manifest.id.clone())?;
        let removals = numbers.map(|number| async move {
            let chunk = chunk_file(number);
            let removed = self.remote.remove(id, &chunk).await;
            if let Err(error) = &removed {
                warn!("dataset {}: cannot remove the sealed {chunk}: {error}", self.name);
            }
            removed
        });
        let removed = futures_util::future::join_all(removals).await;
        removed.into_iter().collect::<Result<(), _>>()?;
        Ok(Event::ChunksRemoved(Ok(())))
    }

    fn read(&self) -> Result<Current> {
        self.state().read.clone().ok_or(Error::Lacking("no manifest was read"))
    }

    /// The folder of the copies of all datasets.
    fn copies(&self) -> Result<&Path> {
        let copies = self.common.copies.as_deref();
        copies.ok_or(Error::Lacking("this process holds no shards (datasets.path)"))
    }

    /// The folder of the copy of a version, if there is one.
    pub fn copy_folder(&self, id: &str) -> Option<CopyFolder> {
        CopyFolder::find(self.common.copies.as_deref()?, &self.name, id)
    }

    fn is_mine(&self, id: &str, entry: &ShardEntry) -> bool {
        (self.common.is_mine)(&key_of_file(&self.name, id, &entry.file))
    }

    /// Copies those shards that this node holds and has no file of the right size of.
    async fn fetch(self: &Arc<Self>, current: Current) -> Result<()> {
        let manifest = current.manifest;
        let id = manifest.id.clone();
        let served = self.clone();
        let look = move || {
            served.sweep(&manifest);
            served.missing(manifest)
        };
        let Some((folder, missing)) = tokio::task::spawn_blocking(look).await?? else {
            return Ok(());
        };
        let folder = folder.path();
        for entry in missing {
            info!("dataset {}: copying {}, {} bytes", self.name, entry.file, entry.file_bytes);
            let begun = clock::now();
            self.remote.fetch(&id, &entry.file, entry.file_bytes, folder).await?;
            let seconds = (clock::now() - begun) as f64 * 1e-9;
            self.count_copy(entry.file_bytes, seconds);
            info!("dataset {}: copied {} in {seconds:.3} s", self.name, entry.file);
        }
        Ok(())
    }

    /// The shards that this node holds and has no file of the right size of, with the folder of their copies; `None` if it
    /// holds none.
    fn missing(&self, manifest: Manifest) -> Result<Option<(CopyFolder, Vec<ShardEntry>)>> {
        let Manifest { id, mut shards, .. } = manifest;
        shards.retain(|entry| self.is_mine(&id, entry));
        if shards.is_empty() {
            return Ok(None);
        }
        let folder = CopyFolder::create(self.copies()?, &self.name, &id)?;
        shards.retain(|entry| {
            let found = std::fs::metadata(folder.path().join(&entry.file));
            !found.is_ok_and(|found| found.len() == entry.file_bytes)
        });
        Ok(Some((folder, shards)))
    }

    /// Changes files of copies on a thread that may wait for a disk, after all changes before. What is copied or opened
    /// next waits for it.
    fn change_files(
        self: &Arc<Self>,
        state: &mut State,
        change: impl FnOnce(&Served) + Send + 'static,
    ) {
        let (served, before) = (self.clone(), state.files_change.take());
        state.files_change = Some(tokio::spawn(async move {
            if let Some(before) = before {
                let _ = before.await;
            }
            let _ = tokio::task::spawn_blocking(move || change(&served)).await;
        }));
    }

    /// Waits for changes of the copies' files.
    async fn files_changed(&self) {
        let change = self.state().files_change.take();
        if let Some(change) = change {
            let _ = change.await;
        }
    }

    /// Removes copies of shards that this node does not hold any more or that the manifest does not list. A copy that the view
    /// uses stays, and so does a new one: a gateway may have leased it a moment ago.
    fn sweep(&self, manifest: &Manifest) {
        let Some(folder) = self.copy_folder(&manifest.id) else { return };
        let view = self.view();
        let listed: HashSet<&str> = manifest.shards.iter().map(|it| it.file.as_str()).collect();
        for entry in std::fs::read_dir(folder.path()).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_mine = || (self.common.is_mine)(&key_of_file(&self.name, &manifest.id, &name));
            let is_listed = listed.contains(name.as_str());
            let is_used = || view.as_ref().is_some_and(|view| view.part(part_of(&name)).is_some());
            let written = entry.metadata().and_then(|found| found.modified()).ok();
            let age = written.and_then(|written| written.elapsed().ok()).unwrap_or_default();
            let is_old = is_shard_file(&name) && age > SWEPT_AFTER;
            if is_old && !is_used() && !(is_listed && is_mine()) {
                match folder.remove(&name) {
                    Ok(true) => info!(
                        "dataset {}: removed the copy {name}, which is not used here any more",
                        self.name
                    ),
                    Ok(false) => {}
                    Err(error) => warn!("dataset {}: cannot remove {name}: {error}", self.name),
                }
            }
        }
    }

    /// Opens this node's shards of a manifest.
    async fn open(&self, current: &Current) -> Result<Dataset> {
        let manifest = current.manifest.clone();
        let mine = manifest.shards.iter().filter(|entry| self.is_mine(&manifest.id, entry));
        let files: Vec<String> = mine.map(|entry| entry.file.clone()).collect();
        if files.is_empty() {
            return Ok(Dataset::of_parts(Path::new(""), manifest, &[], |_| false)?);
        }
        let folder = self.copies()?.join(&self.name).join(&manifest.id);
        let same = self.view().filter(|view| view.current.manifest.id == manifest.id);
        let parts = same.map(|view| view.dataset.parts().to_vec()).unwrap_or_default();
        // Opening verifies every byte, which takes about a second per few gigabytes.
        let work = self.common.work.clone();
        let open = move || {
            let wanted = |entry: &ShardEntry| files.contains(&entry.file);
            Dataset::of_parts(&folder, manifest, &parts, wanted).map(|all| all.with_work(work))
        };
        Ok(tokio::task::spawn_blocking(open).await??)
    }

    /// Removes the copies of a manifest's shards, but those of the view's parts.
    fn discard(self: &Arc<Self>, state: &mut State, keep: &[u64]) {
        let (Some(Current { manifest, .. }), view) = (&state.read, self.view()) else { return };
        let is_kept = |entry: &&ShardEntry| {
            number_of(entry).is_some_and(|number| keep.contains(&number))
                && view.as_ref().is_some_and(|view| view.part(part_of(&entry.file)).is_some())
        };
        let mine = manifest.shards.iter().filter(|entry| self.is_mine(&manifest.id, entry));
        let discarded = mine.filter(|entry| !is_kept(entry)).map(|entry| entry.file.clone());
        let (id, files) = (manifest.id.clone(), discarded.collect::<Vec<String>>());
        self.change_files(state, move |served| {
            let Some(folder) = served.copy_folder(&id) else { return };
            for file in files {
                if folder.remove(&file).is_ok_and(|was_there| was_there) {
                    let shown = folder.path().join(file);
                    warn!("dataset {}: removed {} to copy it again", served.name, shown.display());
                }
            }
        });
    }

    /// Applies changes to the view and puts them as a chunk.
    async fn put_chunk(
        &self,
        number: u64,
        first_id: u64,
        changes: &[Token],
    ) -> Result<Put<Reason>> {
        let view = self.require_view()?;
        let changes = self.changes(changes);
        let bytes = changes.iter().map(|entries| bytes_of(entries)).sum();
        let mut dataset = view.dataset.clone();
        // Apply the chunk before putting it: an inapplicable chunk would block every process.
        let apply = move || {
            let chunk = Chunk { number, first_id, entries: entries_of(&changes) };
            let encoded = chunk.encode();
            dataset.take(chunk).map(|()| (dataset, encoded))
        };
        let (dataset, encoded) = match to_message(compute(bytes, apply).await) {
            Ok(applied) => applied,
            Err(error) => return Ok(Put::Inapplicable(error)),
        };
        let id = &view.current.manifest.id;
        if !self.remote.put_chunk(id, number, encoded?.into()).await? {
            return Ok(Put::Taken);
        }
        let tail = tail(&dataset);
        self.state().draft = Some((dataset, view.current.clone()));
        Ok(Put::Stored(tail))
    }

    /// The entries of each change.
    fn changes(&self, changes: &[Token]) -> Vec<Arc<Vec<Entry>>> {
        let state = self.state();
        let of = changes.iter().filter_map(|token| state.changes.get(token));
        of.map(|change| change.entries.clone()).collect()
    }

    /// Whether the dataset's records from `first_id` on may already be those of `entries`.
    fn may_hold(&self, first_id: u64, entries: &[Entry]) -> bool {
        let Some(view) = self.view() else { return false };
        let mut same = entries.iter().filter_map(Entry::appended).zip(first_id..).map(|(r, id)| {
            // A record in another node's shard cannot be compared: assume that it may be the same.
            view.dataset.stored(id).map_or(id < view.dataset.end_id(), |there| there == r)
        });
        // Entries that only delete may be written twice.
        entries.iter().any(|entry| entry.appended().is_some()) && same.all(|same| same)
    }

    fn sealing<T>(&self, of: impl FnOnce(&mut Sealing) -> T) -> Result<T> {
        let mut state = self.state();
        state.sealing.as_mut().map(of).ok_or(Error::Lacking("nothing is being sealed"))
    }

    async fn build(&self) -> Result<Event> {
        let view = self.sealing(|sealing| sealing.view.clone())?;
        let copies = self.copies()?.to_owned();
        let build = move || -> dataset::Result<_> {
            let made = SealFolder::create(&copies)?;
            let mut manifest = view.current.manifest.clone();
            view.dataset.seal_into(made.path(), &mut manifest, &Options::default())?;
            let any = manifest.shards.len() > view.current.manifest.shards.len();
            Ok((made, manifest, any))
        };
        let (made, manifest, any) = tokio::task::spawn_blocking(build).await??;
        self.sealing(|sealing| {
            (sealing.made, sealing.manifest) = (Some(Arc::new(made)), manifest)
        })?;
        Ok(Event::Built(Ok(any)))
    }

    /// Puts the new shard under a number.
    async fn put_shard(&self, number: u64) -> Result<Event> {
        const NOT_BUILT: Error = Error::Lacking("no shard was built");
        let file = shard_file(number);
        let (made, built) = self.sealing(|Sealing { manifest, made, .. }| {
            let built = manifest.shards.last().map(|entry| entry.file.clone());
            made.clone().zip(built).ok_or(NOT_BUILT)
        })??;
        let folder = made.path().to_owned();
        if built != file {
            let (from, to) = (folder.join(&built), folder.join(&file));
            tokio::task::spawn_blocking(move || std::fs::rename(from, to)).await??;
        }
        let id = self.sealing(|Sealing { manifest, .. }| {
            let entry = manifest.shards.last_mut().ok_or(NOT_BUILT)?;
            entry.file.clone_from(&file);
            manifest.next_shard = number + 1;
            Ok::<_, Error>(manifest.id.clone())
        })??;
        let put = self.remote.put_shard(&id, &file, &folder).await;
        Ok(Event::ShardPut(match put {
            Err(dataset::Error::Origin(origin::Error::Condition(_))) => Ok(false),
            put => to_message(put.map(|()| true)),
        }))
    }

    /// Moves the new shard to the copies, if this node is one of its nodes.
    fn keep(self: &Arc<Self>, state: &mut State, number: u64) {
        let Some(Sealing { manifest, made: Some(made), .. }) = &state.sealing else { return };
        if manifest.shards.last().is_none_or(|entry| !self.is_mine(&manifest.id, entry)) {
            return;
        }
        let (id, made) = (manifest.id.clone(), made.clone());
        self.change_files(state, move |served| {
            if let Err(error) = served.keep_file(&id, &made, number) {
                // The refresh that follows copies the shard from the origin.
                let (name, why) = (&served.name, with_causes(&error));
                warn!("dataset {name}: cannot keep the new shard {number}: {why}");
            }
        });
    }

    fn keep_file(&self, id: &str, made: &SealFolder, number: u64) -> Result<()> {
        let folder = CopyFolder::create(self.copies()?, &self.name, id)?;
        let file = shard_file(number);
        Ok(std::fs::rename(made.path().join(&file), folder.path().join(&file))?)
    }

    /// Why a change has failed.
    fn change_error(&self, why: Why<Reason>) -> Error {
        match why {
            Why::Replaced => Error::Replaced,
            why => Error::Unwritten(self.message(why)),
        }
    }

    /// What a caller is told.
    fn message(&self, why: Why<Reason>) -> String {
        let unknown = "it is not known whether the change was written; check before you try again";
        match why {
            Why::Store(error) | Why::Inapplicable(error) => error.to_string(),
            Why::Unknown(Some(error)) => format!("{unknown}: {error}"),
            Why::Unknown(None) => unknown.to_owned(),
            Why::Changing => "it changes faster than it can be read".to_owned(),
            Why::NoDataset => format!("there is no dataset {}", self.name),
            Why::Replaced => Error::Replaced.to_string(),
            Why::Contended => format!(
                "other processes changed the dataset during all {} attempts; try again",
                SETTINGS.tries
            ),
            Why::Lost => {
                "another process changed the manifest meanwhile; nothing was sealed here".to_owned()
            }
            Why::NoNumber => format!(
                "cannot seal: {} shards that no manifest names occupy the next numbers",
                SETTINGS.shard_tries
            ),
        }
    }
}
