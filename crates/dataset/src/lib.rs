//! Datasets: records in compressed, searchable shards, and a log of later appends and deletes.
//!
//! A dataset is a folder. `dataset.json` (the [`Manifest`](manifest::Manifest)) lists the shards, which never change. A
//! chunk of the log ([`chunk`]) is one acknowledged call of [`Writer::append`] or
//! [`Writer::delete`]. Sealing builds a shard from the log's records and replaces the manifest.
//! Every file is written atomically ([`files`]), so a crash at any moment loses no acknowledged
//! change; files that the manifest does not list are leftovers, which the next writer removes.
//! Record ids are assigned in ascending order and never reused: a deleted record leaves a gap. Compaction
//! ([`compact`]) makes one shard of several small ones, without the bytes of deleted records; ids stay.
//!
//! One process writes at a time. Any number of processes read, and each sees the dataset as it was
//! when opened.

mod attributes;
mod batch;
pub mod chunk;
pub mod compact;
mod compute;
pub mod copies;
mod dataset;
mod error;
pub mod files;
pub mod folder;
mod gaps;
mod import;
mod jobs;
pub mod manifest;
mod memory;
mod names;
mod options;
mod page;
pub mod part;
pub mod parts;
mod read;
pub mod remote;
mod sealable;
mod start;
mod write;

pub use compute::compute;
pub use dataset::{Dataset, Info, key_query};
pub use error::{Error, Result};
pub use folder::drop_dataset;
pub use import::{Imported, Step, discard, import};
pub use memory::Machine;
pub use names::{chunk_file, is_name};
pub use options::Options;
pub use page::{PageRequest, SearchResult};
pub use read::open as open_input;
pub use sealable::split;
pub use write::{SEAL_BYTES, Writer};

#[cfg(test)]
mod inputs_tests;
#[cfg(test)]
mod open_tests;
#[cfg(test)]
mod separators_tests;
#[cfg(test)]
mod tests;
