//! Errors of this crate: threads of a node, and its log of events. What a request meets is the store's.

use std::io;
use std::path::PathBuf;

/// Why a thread of a node does not start, or a log of events cannot be written or replayed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system has no thread for it.
    #[error("cannot start the thread {name:?}")]
    Thread {
        /// The thread.
        name: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// A log of events cannot be made.
    #[error("cannot create {}", .path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A log of events cannot be opened or read.
    #[error("cannot read {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A line of a log is not an event.
    #[error("{}, line {line}: malformed event", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A log does not begin with the node, or has several.
    #[error("{}, line {line}: the start must be the first line, and only that", .path.display())]
    Start {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// The engine decides otherwise than it did.
    #[error(
        "{}, line {line}: the actions after {event} differ from the recorded \
         ones: replayed\n{decided}\nrecorded\n{recorded}", .path.display()
    )]
    Differs {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What happened.
        event: String,
        /// The actions now.
        decided: String,
        /// The actions then.
        recorded: String,
    },
}
