//! The datasets of a node: found in the origin, copied to local disk, searched and appended to.
//!
//! `datasets` has all of them, `ask` the queries and their answers, `served` one dataset, `drive` what
//! [`engine::dataset`] decides for it, `copies` what gateways lease of other nodes' shards, `room` the memory of appends, `station` the queue of each part,
//! `layers` the layers that make shards faster while memory lasts, and `http` the requests.

pub mod ask;
pub mod asking;
mod complaints;
pub mod copies;
mod datasets;
mod drive;
mod error;
pub mod http;
mod layers;
mod leases;
mod problem;
pub mod question_text;
pub mod reply_form;
mod room;
pub mod served;
mod state;
mod station;
mod view;

pub use datasets::{Datasets, Running};
pub use error::{Error, Result};
