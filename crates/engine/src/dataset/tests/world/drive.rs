//! What the driver of a process does in the world: actions become requests to the store, which go well or do not.

use std::sync::Arc;

use rand::RngExt;

use super::store::{Chunk, Listed, Record, Removal, Request};
use super::{CALM, Fate, MS, View, What, World};
use crate::dataset::{Action, Event, Manifest, Put, Why};

impl World {
    pub(super) fn tell_soon(&mut self, process: usize, event: Event<()>) {
        let at = self.now + self.random.random_range(0..8) * MS;
        let epoch = self.processes[process].epoch;
        self.enqueue(at, What::Tell { process, epoch, event: Box::new(event) });
    }

    fn fate(&mut self) -> Fate {
        if self.now > CALM || !self.random.random_bool(self.plan.faults) {
            return Fate::Fine;
        }
        let fates = [Fate::Fails, Fate::Lost, Fate::Late, Fate::Again];
        fates[self.random.random_range(0..fates.len())]
    }

    pub(super) fn carry_out(&mut self, process: usize, action: Action<()>) -> Result<(), String> {
        match action {
            Action::Head
            | Action::ReadManifest
            | Action::Fetch
            | Action::Open
            | Action::ReadChunk { .. } => {
                let after = self.now + self.random.random_range(0..8) * MS;
                let (epoch, action) = (self.processes[process].epoch, Box::new(action));
                self.enqueue(after, What::Look { process, epoch, action });
            }
            Action::Large => {
                // The first of the processes seals.
                if process == 0 {
                    self.tell_soon(process, Event::SealLarge);
                }
            }
            Action::Wake { at } => {
                let epoch = self.processes[process].epoch;
                self.enqueue(at, What::Tell { process, epoch, event: Box::new(Event::Tick) });
            }
            Action::Changed { token, result } => self.changed(token, result)?,
            Action::Refreshed { token, result } => {
                if let Some(reading) = self.reading.remove(&token)
                    && result.is_ok()
                {
                    self.read(&reading)?;
                }
            }
            Action::Sealed { tokens, result } => {
                match result {
                    Ok(true) => self.counts.sealed += 1,
                    Err(Why::Lost) => self.counts.lost += 1,
                    _ => {}
                }
                self.sealing.retain(|token, _| !tokens.contains(token));
            }
            Action::FromView
            | Action::Show
            | Action::Hide
            | Action::Discard { .. }
            | Action::Keep { .. }
            | Action::Build
            | Action::Compare { .. } => self.change_copies(process, action)?,
            action => self.change_store(process, action)?,
        }
        Ok(())
    }

    /// What changes the process's own view and copies, or looks at them.
    fn change_copies(&mut self, process: usize, action: Action<()>) -> Result<(), String> {
        let at = &mut self.processes[process];
        match action {
            Action::Build => {
                let view = at.view.clone().ok_or("a seal without a view")?;
                let records: Arc<[Record]> = view.log.clone().into();
                let any = !records.is_empty();
                at.sealing = Some((view, records));
                self.tell_soon(process, Event::Built(Ok(any)));
            }
            Action::Compare { first_id, changes } => {
                let of = changes.iter().filter_map(|token| self.appending.get(token));
                let ours: Vec<Record> = of.flat_map(|it| it.records.iter().copied()).collect();
                let view = at.view.as_ref().ok_or("nothing to compare with")?;
                let there = view.records().skip(first_id as usize).take(ours.len());
                let may_hold = there.eq(ours);
                self.tell_soon(process, Event::Compared { may_hold });
            }
            Action::FromView => at.draft = at.view.clone(),
            Action::Show => {
                at.view = Some(at.draft.clone().ok_or("a view without a draft")?);
                self.view_shown(process)?;
            }
            Action::Hide => at.view = None,
            Action::Discard { keep } => {
                let read = at.read.as_ref().ok_or("nothing was read")?;
                let of = read.head.id.clone();
                let shards = read.head.shards.iter().filter(|number| !keep.contains(number));
                for number in shards {
                    let in_use = at.view.as_ref().is_some_and(|view| {
                        view.listed.head.id == of && view.listed.head.shards.contains(number)
                    });
                    if in_use {
                        return Err(format!("the copy of shard {number} is removed, and in use"));
                    }
                    at.copies.remove(&(of.clone(), *number));
                }
            }
            Action::Keep { number } => {
                if let Some((view, _)) = &at.sealing {
                    at.copies.insert((view.listed.head.id.clone(), number), false);
                }
            }
            other => unreachable!("{other:?} concerns the store"),
        }
        Ok(())
    }

    /// What changes the store.
    fn change_store(&mut self, process: usize, action: Action<()>) -> Result<(), String> {
        let at = &mut self.processes[process];
        let id = |view: &Option<View>| view.as_ref().map(|view| view.listed.head.id.clone());
        match action {
            Action::PutChunk { number, first_id, changes } => {
                let mut draft = at.view.clone().ok_or("a chunk without a view")?;
                let of = changes.iter().filter_map(|token| self.appending.get(token));
                let records: Vec<Record> = of.flat_map(|it| it.records.iter().copied()).collect();
                draft.log.extend(&records);
                draft.last_chunk = number;
                let name = (draft.listed.head.id.clone(), number);
                at.draft = Some(draft);
                self.write(process, Request::PutChunk(name, Chunk { first_id, records }));
            }
            Action::RemoveChunk { number } => {
                let name = (id(&at.view).ok_or("no view")?, number);
                self.write(process, Request::RemoveChunk(name, Removal::Late));
            }
            Action::RemoveChunks { from, to } => {
                let id = at.sealing.as_ref().map(|(view, _)| view.listed.head.id.clone());
                let id = id.ok_or("nothing is sealed")?;
                self.removals[process] = ((to + 1 - from) as usize, Ok(()));
                for number in from..=to {
                    self.write(
                        process,
                        Request::RemoveChunk((id.clone(), number), Removal::Sealed),
                    );
                }
            }
            Action::LookForChunks { from, to } => {
                let id = at.sealing.as_ref().map(|(view, _)| view.listed.head.id.clone());
                let id = id.ok_or("nothing is sealed")?;
                let failed = self.fate() != Fate::Fine;
                let mut names = (from..=to).map(|number| (id.clone(), number));
                let found = failed || names.any(|name| self.store.chunks.contains_key(&name));
                self.tell_soon(process, Event::Looked { found });
            }
            Action::Replace { over, shard } => {
                let listed = self.sealed(process, shard)?;
                self.write(process, Request::Replace { over, listed });
            }
            Action::RemoveShard { number } | Action::PutShard { number } => {
                let (view, records) = at.sealing.clone().ok_or("nothing is sealed")?;
                let name = (view.listed.head.id.clone(), number);
                let request = match action {
                    Action::PutShard { .. } => Request::PutShard(name, records),
                    _ => Request::RemoveShard(name),
                };
                self.write(process, request);
            }
            other => unreachable!("{other:?} concerns the process"),
        }
        Ok(())
    }

    /// The manifest of the sealed log.
    fn sealed(&mut self, process: usize, shard: Option<u64>) -> Result<Listed, String> {
        self.writes += 1;
        let sealing = self.processes[process].sealing.clone();
        let (view, records) = sealing.ok_or("nothing is sealed")?;
        let before = &view.listed.head;
        let mut shards = view.listed.shards.clone();
        shards.extend(shard.map(|number| (number, records)));
        let head = Manifest {
            id: before.id.clone(),
            etag: format!("{}-{}", before.id, self.writes).into(),
            sealed_chunks: view.last_chunk,
            next_shard: shard.map_or(before.next_shard, |number| number + 1),
            shards: shards.iter().map(|(number, _)| *number).collect(),
        };
        Ok(Listed { head: Arc::new(head), shards })
    }

    fn write(&mut self, process: usize, request: Request) {
        let (fate, epoch) = (self.fate(), self.processes[process].epoch);
        let of = self.store.write_of(&request);
        let at = self.now + self.random.random_range(0..8) * MS;
        let request = Box::new(request);
        self.enqueue(at, What::Effect { process, epoch, request, fate, of });
    }

    pub(super) fn effect(
        &mut self,
        process: usize,
        epoch: u64,
        request: Box<Request>,
        fate: Fate,
        of: Option<u64>,
    ) -> Result<(), String> {
        // A request of a process that crashed may have left it or not.
        if !self.is_there(process, epoch) && self.random.random() {
            return Ok(());
        }
        self.writes += 1;
        let write = self.writes;
        let later = self.now + self.random.random_range(0..600) * MS;
        match fate {
            Fate::Fails => self.reply(process, epoch, &request, Err(())),
            Fate::Late => {
                self.reply(process, epoch, &request, Err(()));
                let nobody = u64::MAX;
                let what = What::Effect { process, epoch: nobody, request, fate: Fate::Fine, of };
                self.enqueue(later, what);
            }
            Fate::Fine | Fate::Lost | Fate::Again => {
                let holds = self.store.apply(&request, write, of)?;
                match fate {
                    Fate::Again if holds => {
                        self.enqueue(later, What::Again { process, epoch, request, write });
                    }
                    Fate::Lost => self.reply(process, epoch, &request, Err(())),
                    _ => self.reply(process, epoch, &request, Ok(holds)),
                }
            }
        }
        Ok(())
    }

    /// The store's reply to a write; `Ok(false)` if its condition does not hold.
    pub(super) fn reply(
        &mut self,
        process: usize,
        epoch: u64,
        request: &Request,
        reply: Result<bool, ()>,
    ) {
        if !self.is_there(process, epoch) {
            return;
        }
        let event = match request {
            Request::PutChunk(..) => {
                let tail = self.processes[process].draft.as_ref().map(View::tail);
                Event::Put(match reply {
                    Ok(true) => Put::Stored(tail.unwrap_or_default()),
                    Ok(false) => Put::Taken,
                    Err(()) => Put::Failed(()),
                })
            }
            Request::PutShard(..) => Event::ShardPut(reply),
            Request::Replace { .. } => Event::Replaced(reply),
            Request::RemoveShard(_) => Event::ShardRemoved(reply.map(drop)),
            Request::RemoveChunk(_, Removal::Sealed) => {
                let at = self.now + self.random.random_range(0..8) * MS;
                let failed = reply.is_err();
                return self.enqueue(at, What::ChunkGone { process, epoch, failed });
            }
            Request::RemoveChunk(_, Removal::Late) => Event::ChunkRemoved(reply.map(drop)),
        };
        self.tell_soon(process, event);
    }

    /// A read of the store.
    pub(super) fn look(&mut self, process: usize, action: Action<()>) -> Result<Event<()>, String> {
        let failed = self.fate() != Fate::Fine;
        let damaged = failed && self.random.random_bool(0.5);
        let at = &mut self.processes[process];
        let current = &self.store.listed.0;
        Ok(match action {
            Action::Head if failed => Event::Head(Err(())),
            Action::Head => Event::Head(Ok(Some(current.head.etag.clone()))),
            Action::ReadManifest if failed => Event::Manifest(Err(())),
            Action::ReadManifest => {
                at.read = Some(current.clone());
                Event::Manifest(Ok(Some(Manifest::clone(&current.head))))
            }
            Action::Fetch => {
                let read = at.read.clone().ok_or("nothing was read")?;
                for number in read.head.shards.iter() {
                    let name = (read.head.id.clone(), *number);
                    if at.copies.contains_key(&name) {
                        continue;
                    }
                    if failed && !damaged || !self.store.shards.contains_key(&name) {
                        return Ok(Event::Fetched(Err(())));
                    }
                    at.copies.insert(name, damaged);
                }
                Event::Fetched(Ok(()))
            }
            Action::Open => {
                let read = at.read.clone().ok_or("nothing was read")?;
                let copy = |number: &u64| at.copies.get(&(read.head.id.clone(), *number));
                if read.head.shards.iter().any(|number| copy(number) != Some(&false)) {
                    return Ok(Event::Opened(Err(())));
                }
                let draft = View::from_listed(read);
                let tail = draft.tail();
                at.draft = Some(draft);
                Event::Opened(Ok(tail))
            }
            Action::ReadChunk { .. } if failed => Event::Chunk(Err(())),
            Action::ReadChunk { number } => {
                let draft = at.draft.as_mut().ok_or("a chunk without a draft")?;
                let name = (draft.listed.head.id.clone(), number);
                match self.store.chunks.get(&name) {
                    None => Event::Chunk(Ok(None)),
                    Some((chunk, _)) if chunk.first_id != draft.tail().end_id => {
                        Event::Chunk(Err(()))
                    }
                    Some((chunk, _)) => {
                        draft.log.extend(&chunk.records);
                        draft.last_chunk = number;
                        Event::Chunk(Ok(Some(draft.tail())))
                    }
                }
            }
            other => return Err(format!("{other:?} is no read")),
        })
    }
}
