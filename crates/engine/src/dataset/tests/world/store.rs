//! The store of the simulated world: one dataset's manifest, shards and chunks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::dataset::Manifest;

/// A record: no two are the same.
pub type Record = u64;

/// A manifest with the records of its shards.
#[derive(Clone, Debug)]
pub struct Listed {
    pub head: Arc<Manifest>,
    pub shards: Vec<(u64, Arc<[Record]>)>,
}

impl Listed {
    pub fn end_id(&self) -> u64 {
        self.shards.iter().map(|(_, records)| records.len() as u64).sum()
    }
}

/// A chunk of the log.
#[derive(Clone, Debug)]
pub struct Chunk {
    pub first_id: u64,
    pub records: Vec<Record>,
}

/// An object: its content, and which write made it.
pub type Made<T> = (T, u64);

/// An object's name: the dataset's id and a number.
pub type Name = (Arc<str>, u64);

/// What a request does with the store.
#[derive(Clone, Debug)]
pub enum Request {
    PutChunk(Name, Chunk),
    PutShard(Name, Arc<[Record]>),
    Replace {
        over: ground::Etag,
        listed: Listed,
    },
    /// Of a seal, or of a chunk that was put too late.
    RemoveChunk(Name, Removal),
    RemoveShard(Name),
}

/// Why a chunk is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    Sealed,
    Late,
}

/// What is in the store.
#[derive(Clone, Debug)]
pub struct Store {
    pub listed: Made<Listed>,
    pub chunks: BTreeMap<Name, Made<Chunk>>,
    pub shards: BTreeMap<Name, Made<Arc<[Record]>>>,
    /// Chunks that were put after their number had been sealed.
    pub late: BTreeSet<Name>,
}

impl Store {
    /// A store with an empty dataset.
    pub fn new(id: &str) -> Store {
        Store {
            listed: (empty(id), 0),
            chunks: BTreeMap::new(),
            shards: BTreeMap::new(),
            late: BTreeSet::new(),
        }
    }

    fn is_current(&self, name: &Name) -> bool {
        self.listed.0.head.id == name.0
    }

    /// Carries a request out as the write `write`; `false` if its condition does not hold. A removal that was delayed
    /// concerns only the object that was there when it was sent, the one of the write `of`.
    pub fn apply(
        &mut self,
        request: &Request,
        write: u64,
        of: Option<u64>,
    ) -> Result<bool, String> {
        match request {
            Request::PutChunk(name, chunk) => {
                if self.chunks.contains_key(name) {
                    return Ok(false);
                }
                if self.listed.0.head.sealed_chunks >= name.1 {
                    self.late.insert(name.clone());
                }
                self.chunks.insert(name.clone(), (chunk.clone(), write));
            }
            Request::PutShard(name, records) => {
                if self.shards.contains_key(name) {
                    return Ok(false);
                }
                self.shards.insert(name.clone(), (records.clone(), write));
            }
            Request::Replace { over, listed } => {
                if *over != self.listed.0.head.etag {
                    return Ok(false);
                }
                for (number, _) in &listed.shards {
                    if !self.shards.contains_key(&(listed.head.id.clone(), *number)) {
                        return Err(format!("a manifest lists shard {number}, which is missing"));
                    }
                }
                self.listed = (listed.clone(), write);
            }
            Request::RemoveChunk(name, _) => {
                if self.chunks.get(name).map(|made| made.1) != of {
                    return Ok(true);
                }
                if self.is_current(name) && self.listed.0.head.sealed_chunks < name.1 {
                    return Err(format!("chunk {} is removed, and not sealed", name.1));
                }
                self.chunks.remove(name);
            }
            Request::RemoveShard(name) => {
                if self.shards.get(name).map(|made| made.1) != of {
                    return Ok(true);
                }
                if self.is_current(name) && self.listed.0.head.shards.contains(&name.1) {
                    return Err(format!("shard {} is removed, and the manifest lists it", name.1));
                }
                self.shards.remove(name);
            }
        }
        Ok(true)
    }

    /// The write of the object that a request concerns, if it is there.
    pub fn write_of(&self, request: &Request) -> Option<u64> {
        match request {
            Request::PutChunk(name, _) | Request::RemoveChunk(name, _) => {
                self.chunks.get(name).map(|made| made.1)
            }
            Request::PutShard(name, _) | Request::RemoveShard(name) => {
                self.shards.get(name).map(|made| made.1)
            }
            Request::Replace { .. } => Some(self.listed.1),
        }
    }
}

/// The manifest of an empty dataset.
pub fn empty(id: &str) -> Listed {
    let head = Manifest {
        id: id.into(),
        etag: format!("{id}-0").into(),
        sealed_chunks: 0,
        next_shard: 1,
        shards: Arc::from([]),
    };
    Listed { head: Arc::new(head), shards: Vec::new() }
}
