//! The checker: what was acknowledged is read once and in order by every later read, what was refused is never read, and
//! what a view uses is there.

use std::sync::Arc;

use super::store::Record;
use super::{RECORD_BYTES, Reading, World};
use crate::dataset::{DatasetVersion, Serves, State, Token, Why, serves};

impl World {
    pub(super) fn changed(
        &mut self,
        token: Token,
        result: Result<crate::dataset::Changed, Why<()>>,
    ) -> Result<(), String> {
        let Some(append) = self.appending.remove(&token) else {
            return Err(format!("change {token} ended twice"));
        };
        let bytes = append.records.len() * RECORD_BYTES as usize;
        self.processes[append.process].room.give_back(bytes);
        match result {
            Ok(changed) => {
                self.counts.acknowledged += 1;
                let records = append.records.iter().copied();
                for (id, record) in (changed.first_id..).zip(records) {
                    self.place(&append.id, id, record)?;
                }
                self.acknowledged.push((append.id, changed.first_id, append.records));
            }
            // The earlier dataset may have had it, and is gone.
            Err(Why::Replaced) => {
                self.counts.replaced += 1;
                if self.store.listed.0.head.id == append.id {
                    return Err(format!("{} was not replaced", append.id));
                }
            }
            Err(Why::Unknown(_)) => self.counts.unknown += 1,
            Err(_) => {
                self.counts.refused += 1;
                if let Some(read) = append.records.iter().find(|r| self.places.contains_key(r)) {
                    return Err(format!("record {read} is refused, and was read"));
                }
                self.refused.extend(append.records);
            }
        }
        Ok(())
    }

    /// A record is read under an id: there and nowhere else, and no other record there.
    fn place(&mut self, of: &Arc<str>, id: u64, record: Record) -> Result<(), String> {
        let place = (of.clone(), id);
        let before = self.places.entry(record).or_insert_with(|| place.clone());
        if *before != place {
            return Err(format!("record {record} is read at {before:?} and at {place:?}"));
        }
        let truth = self.truth.entry(of.clone()).or_default();
        truth.resize(truth.len().max(id as usize + 1), Record::MAX);
        let known = &mut truth[id as usize];
        if *known != Record::MAX && *known != record {
            return Err(format!("id {id} of {of} is record {record}, and was {known}"));
        }
        *known = record;
        Ok(())
    }

    /// A view is shown: all that is in it can be read from now on.
    pub(super) fn view_shown(&mut self, process: usize) -> Result<(), String> {
        let Some(view) = self.processes[process].view.clone() else { return Ok(()) };
        let of = &view.listed.head.id;
        for (id, record) in (0..).zip(view.records()) {
            if self.refused.contains(&record) {
                return Err(format!("record {record} was refused, and is read"));
            }
            self.place(of, id, record)?;
        }
        for number in view.listed.head.shards.iter() {
            if self.processes[process].copies.get(&(of.clone(), *number)) != Some(&false) {
                return Err(format!("the view uses shard {number}, which is not there"));
            }
        }
        Ok(())
    }

    /// A read has the view that it waited for.
    pub(super) fn read(&mut self, reading: &Reading) -> Result<(), String> {
        self.counts.reads += 1;
        let Some(view) = &self.processes[reading.process].view else {
            return Err("the dataset was read, and has no view".to_owned());
        };
        let head = &view.listed.head;
        let version = DatasetVersion { etag: &head.etag, last_chunk: view.last_chunk };
        let state = self.processes[reading.process].machine.view();
        let same = |state: &State| {
            let (etag, last_chunk) = (&*state.manifest.etag, state.tail.last_chunk);
            serves(DatasetVersion { etag, last_chunk }, version) == Serves::Now
        };
        if !state.is_some_and(same) {
            return Err("the view is not the version that the engine says".to_owned());
        }
        let there: Vec<Record> = view.records().collect();
        for (id, first, records) in &self.acknowledged[..reading.acknowledged] {
            // A dataset that was replaced is gone, with what was appended to it.
            let end = *first as usize + records.len();
            if *id == head.id && there.get(*first as usize..end) != Some(&records[..]) {
                return Err(format!("records {records:?} were acknowledged, and are not read"));
            }
        }
        Ok(())
    }
}
