//! Errors of this crate: requests that are malformed, and datasets that cannot be read or changed now.

use std::io;

use tokio::task::JoinError;

/// Why a dataset does not answer a request, or is not served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A parameter of the request is unknown, missing or invalid. The message is meant for the client.
    #[error("{0}")]
    Parameter(String),
    /// A query is malformed, or a shard refuses it.
    #[error(transparent)]
    Query(#[from] shard::Error),
    /// The dataset refuses, is damaged, or its files cannot be read or written.
    #[error(transparent)]
    Dataset(#[from] dataset::Error),
    /// The origin refuses, or does not answer.
    #[error(transparent)]
    Origin(#[from] origin::Error),
    /// The folder of copies (`datasets.path`) cannot be used.
    #[error("datasets.path")]
    Copies(#[source] dataset::Error),
    /// No dataset has this name.
    #[error("there is no dataset {0}")]
    Unknown(String),
    /// A change was not written, or it is not known whether it was: the message says which.
    #[error("{0}")]
    Unwritten(String),
    /// Another dataset has the name now, of which nothing was changed.
    #[error(
        "the dataset was replaced meanwhile; nothing of the new one was changed: try again, with ids of the new one"
    )]
    Replaced,
    /// What another caller was told of the same work, which is done once for all of them.
    #[error("{0}")]
    Shared(String),
    /// A step of the work lacks what an earlier one makes.
    #[error("{0}")]
    Lacking(&'static str),
    /// The process ends.
    #[error("the server is stopping")]
    Stopping,
    /// A task has panicked.
    #[error("internal error: see the server's log")]
    Panicked(#[from] JoinError),
    /// The settings of layers contradict each other.
    #[error(transparent)]
    Layers(#[from] engine::layers::SettingsError),
    /// The system has no thread for the layers, or a file of a seal cannot be renamed.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl Error {
    /// Whether a query is valid and costs more than a process allows.
    pub fn is_too_much_work(&self) -> bool {
        let shard = match self {
            Error::Query(error) => Some(error),
            Error::Dataset(error) => match error.cause() {
                dataset::Error::Shard(error) => Some(error),
                _ => None,
            },
            _ => None,
        };
        matches!(shard, Some(shard::Error::TooMuchWork { .. }))
    }
}

/// The result of a request to a dataset.
pub type Result<T, E = Error> = std::result::Result<T, E>;
