//! The access point's decisions: which node a request goes to, when another is tried beside or after
//! it, what is given up.

mod event;

pub use event::{Action, AttemptId, Event, Failed, Head, Operation, Refusal, RequestId, Status};
