//! A request that left its queue, as it is recorded.

use super::operation::{Operation, Outcome};
use super::time::Nanos;

/// A request that left the queue, the argument of [`super::Recorder::finish`].
#[derive(Clone, Copy, Debug)]
pub struct Finished {
    /// The operation.
    pub operation: Operation,
    /// The outcome.
    pub outcome: Outcome,
    /// Waiting time.
    pub waiting: Nanos,
    /// Service time.
    pub service: Nanos,
    /// Response time: waiting and service time, and any time between them.
    pub response: Nanos,
    /// Bytes of the reply.
    pub bytes: u64,
}
