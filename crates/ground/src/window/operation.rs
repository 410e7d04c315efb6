//! What a request asked for, and which part of the service answered it.

use serde::{Deserialize, Serialize};

/// The operation of a request. A fit of a storage node uses [`Operation::Get`] only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Read an object, or a range of it.
    Get,
    /// Read several objects by one request.
    MultiGet,
    /// Read an object's metadata.
    Head,
    /// Write an object.
    Put,
    /// Remove an object.
    Delete,
    /// List keys by prefix.
    List,
    /// Find the records of a dataset that match a query.
    Search,
    /// Count the records that match a query, or the occurrences of some bytes.
    Count,
    /// Read bytes of a dataset's text.
    Extract,
    /// Append records to a dataset.
    Append,
}

impl Operation {
    /// All of them.
    pub const ALL: [Operation; 10] = {
        use Operation::*;
        [Get, MultiGet, Head, Put, Delete, List, Search, Count, Extract, Append]
    };

    /// The operation with this name; the inverse of [`Operation::as_str`].
    pub fn parse(word: &str) -> Option<Operation> {
        Self::ALL.into_iter().find(|operation| operation.as_str() == word)
    }

    /// The name of the operation, as in run folders and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Get => "get",
            Operation::MultiGet => "multi_get",
            Operation::Head => "head",
            Operation::Put => "put",
            Operation::Delete => "delete",
            Operation::List => "list",
            Operation::Search => "search",
            Operation::Count => "count",
            Operation::Extract => "extract",
            Operation::Append => "append",
        }
    }
}

/// The part of the service that answered a request. It tells hits from misses without a time
/// threshold.
///
/// ```
/// use ground::window::Outcome;
/// assert_eq!(Outcome::parse("bulk_device"), Some(Outcome::BulkDevice));
/// assert!(Outcome::BulkDevice.is_device() && !Outcome::Memory.is_device());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The memory tier of the node.
    Memory,
    /// A device of class `hot`.
    HotDevice,
    /// A device of class `bulk`.
    BulkDevice,
    /// Another node's replica.
    Replica,
    /// The origin.
    Origin,
    /// A shard of a dataset.
    Shard,
    /// The key does not exist.
    Miss,
    /// The reply was an error of this service or of one behind it.
    Error,
    /// The source does not say which part answered (an imported log, another vendor's service).
    Unknown,
}

impl Outcome {
    /// The name of the outcome in headers, metrics and tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Outcome::Memory => "memory",
            Outcome::HotDevice => "hot_device",
            Outcome::BulkDevice => "bulk_device",
            Outcome::Replica => "replica",
            Outcome::Origin => "origin",
            Outcome::Shard => "shard",
            Outcome::Miss => "miss",
            Outcome::Error => "error",
            Outcome::Unknown => "unknown",
        }
    }

    /// The outcome with this name; the inverse of [`Outcome::as_str`].
    pub fn parse(word: &str) -> Option<Outcome> {
        use Outcome::*;
        [Memory, HotDevice, BulkDevice, Replica, Origin, Shard, Miss, Error, Unknown]
            .into_iter()
            .find(|outcome| outcome.as_str() == word)
    }

    /// Whether a device of the node served the request, so that it waited in that device's queue.
    pub fn is_device(self) -> bool {
        matches!(self, Outcome::HotDevice | Outcome::BulkDevice)
    }
}
