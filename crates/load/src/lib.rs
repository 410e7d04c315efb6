//! The load generator: sends requests, either at times that do not depend on the replies (an open
//! loop) or from clients that wait for each reply (a closed loop), and records the results in a run
//! folder.
//!
//! A [`Plan`] describes a load. [`run`] runs it from start to end; a [`Session`] runs it step by
//! step, for callers that choose each step from the results of the one before.
//!
//! The generator shares no code with the server: it depends on `record` and `model` only, so that a
//! mistake in one cannot hide in the other. Latency counts from the *intended* send time. Each step
//! also records whether the generator itself was the bottleneck: see
//! [`Generator`](record::Generator) and `docs/load.md`.
//!
//! - `plan`: the description of a load. `arrivals` and `keys`: send times and requests, both
//!   functions of a seed. `source`: one thread's share of them.
//! - `generator`: the event loop of a thread. `phase`: what the thread records.
//! - `streams`: players at a bit rate, and how often they stall.
//! - `reach`: whether the service is there. `run`: merges the records of all threads and writes the run folder. `summary`: derives the
//!   result; `listed`: that of each request of a list.

mod arrivals;
pub mod client;
mod completion;
mod error;
mod generator;
#[cfg(test)]
mod http2_tests;
mod keys;
mod listed;
mod phase;
mod plan;
mod quantiles;
mod reach;
mod run;
mod source;
mod streams;
mod summary;

pub use error::Error;
pub use listed::ListedSummary;
pub use plan::{Arrivals, Keys, Length, Load, Plan, Popularity, Size, Speed, Think};
pub use quantiles::Quantiles;
pub use run::{Progress, Session, UNSETTLED, run};
pub use streams::{Stalls, Streams, streams};
pub use summary::{Fill, StepSummary, Summary, simulated_step};
