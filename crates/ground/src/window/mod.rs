//! [`Window`] and [`Sample`]: the only two records of observations.
//!
//! Nodes, gateways, the load generator and importers write these two records and nothing else.
//! Metrics, run folders, reports and fits are derived from them. A [`Recorder`] makes the windows
//! of one queue from its events. It takes the time as an argument and never reads a clock.
//! [`QueueName`] lists the queues.

mod dense;
mod dispersion;
mod finished;
mod histogram;
mod interval;
mod operation;
mod queue_name;
mod recorder;
mod sample;
mod time;
mod times;

pub use dispersion::Dispersion;
pub use finished::Finished;
pub use histogram::Histogram;
pub use interval::{KernelDevice, Window};
pub use operation::{Operation, Outcome};
pub use queue_name::QueueName;
pub use recorder::{Recorder, Settings};
pub use sample::{Sample, is_sampled, key_hash};
pub use time::{Nanos, SECOND};
pub use times::{ServiceByNumber, Times};

#[cfg(test)]
mod tests;
