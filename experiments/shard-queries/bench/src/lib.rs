//! What `experiments/shard-queries` measures: the compressed shard of this project beside those of sdsl-lite;
//! and what `experiments/shard-layers` does ([`layers`]).
//!
//! Every index is a process of its own, an *engine*, that answers queries from files by one protocol
//! ([`engine`]), so that all are timed in the same way and none shares memory with another, and so that
//! sdsl-lite (GPL-3.0) is not linked with anything here. All engines of a dataset run at once, and
//! [`measure`] lets them work in turns, one at a time. Each timed answer goes into a checksum that is
//! compared with the [`oracle`]'s: a wrong answer ends the run.

pub mod ceiling;
pub mod checksum;
pub mod config;
pub mod curve;
pub mod data;
pub mod engine;
pub mod layers;
pub mod measure;
pub mod oracle;
pub mod ours;
pub mod queries;
pub mod results;
pub mod sdsl;
pub mod text;
pub mod tune;
