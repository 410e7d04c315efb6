//! The load generator: sends requests at times that do not depend on the replies (or by clients that
//! wait for them), and records what came back as a run folder.
//!
//! A [`Plan`] says everything; [`run`] does it, and a [`Session`] step by step where one step decides the
//! next. It measures what it does not share: it imports the client, the codecs and the model, and nothing
//! of what serves, so that a mistake of one side cannot hide in the other. Latency counts from the *intended* send time. The generator says when it was the
//! bottleneck itself: see [`Generator`](record::Generator) and `docs/load.md`.
//!
//! - `plan`: what a load is.  `arrivals`, `keys`: when requests are sent and what they ask for, both
//!   functions of a seed.  `source`: a thread's share of them.
//! - `generator`: the event loop of a thread.  `phase`: what it records.
//! - `run`: merges the threads' records and writes the run folder.  `summary`: derives the result.

mod answer;
mod arrivals;
pub mod client;
mod generator;
mod keys;
mod phase;
mod plan;
mod run;
mod source;
mod summary;

pub use plan::{Arrivals, Keys, Length, Load, Plan, Popularity, Size, Speed, Think};
pub use run::{Progress, Session, UNSETTLED, run};
pub use summary::{Fill, Quantiles, StepSummary, Summary, simulated_step};
