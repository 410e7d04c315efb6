//! The errors of this crate.

use std::io;

use crate::client::TargetError;
use crate::client::memcached::KEY_MAX;

/// Why a load could not be run. Requests that fail are not errors of this kind: the summary counts them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The plan contradicts itself.
    #[error("the load cannot be run: {}", mistakes.join("; "))]
    Plan {
        /// All that is wrong.
        mistakes: Vec<String>,
    },
    /// The plan cannot be written into the run folder.
    #[error("the plan cannot be written as TOML")]
    Description(#[source] toml::ser::Error),
    /// The service's URL is invalid, or its folder cannot be used.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The service does not accept connections.
    #[error("cannot reach {target} ({reasons}); is the service running there?")]
    Unreachable {
        /// The service.
        target: String,
        /// Each address with its failure.
        reasons: String,
    },
    /// The service accepts connections, but not what is said first on them.
    #[error("cannot speak to {target}: {reason}")]
    Handshake {
        /// The service.
        target: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The keys of a plan cannot be drawn.
    #[error("{what}: {reason}")]
    Keys {
        /// The part of the plan.
        what: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A line of the trace is malformed.
    #[error("--skip-broken skips and counts such lines")]
    BrokenLine(#[source] record::Error),
    /// The trace cannot be read, or the run folder not be written.
    #[error(transparent)]
    Record(#[from] record::Error),
    /// The selected rows of the trace are not there.
    #[error("rows {from}..{to} requested, but the trace has only {rows}")]
    Rows {
        /// The first selected row.
        from: u64,
        /// The row after the last selected one.
        to: u64,
        /// The rows of the trace.
        rows: usize,
    },
    /// The trace cannot be replayed as the plan wants it.
    #[error("{reason}")]
    Trace {
        /// What is wrong, with the row, and what to do.
        reason: String,
    },
    /// A list of the trace has a key that memcached does not take.
    #[error(
        "key `{key}` of the trace: memcached keys have 1 to {KEY_MAX} printable ASCII characters, and one \
         space separates two of them"
    )]
    Key {
        /// The key, escaped.
        key: String,
    },
    /// Not all keys were stored.
    #[error(
        "the fill is incomplete: {stored} of {keys} keys were stored below {target} ({reason}): {hint}"
    )]
    Fill {
        /// Keys that were stored.
        stored: u64,
        /// The distinct keys.
        keys: u64,
        /// The service.
        target: String,
        /// The most frequent fault.
        reason: String,
        /// What to do.
        hint: &'static str,
    },
    /// The system does not let a thread wait for sockets.
    #[error("cannot create an epoll instance")]
    Poll(#[source] io::Error),
    /// Streams cannot be played as they were described.
    #[error("{reason}")]
    Streams {
        /// What is wrong.
        reason: String,
    },
    /// A thread ended in a panic.
    #[error("a generator thread panicked; this is a bug")]
    Panicked,
}
