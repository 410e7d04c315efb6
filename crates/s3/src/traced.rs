//! Records of requests that join the trace of the client's request.

use std::sync::Arc;

use ground::window::Operation;
use wire::lane::{RequestRecord, ThreadRecorder};
use wire::traces::TraceParent;

tokio::task_local! {
    /// The place in a trace that the request names that this task answers: `s3s` does not pass its headers on.
    pub static PARENT: Option<TraceParent>;
}

/// Records that a request for a key arrived, as a part of the trace that the client's request names.
pub fn received(lane: &Arc<ThreadRecorder>, operation: Operation, key: &[u8]) -> RequestRecord {
    let mut record = lane.received(operation, key);
    record.join(PARENT.try_with(|parent| *parent).ok().flatten());
    record
}
