//! Errors of this crate: processes that cannot know each other, or which origin they serve.

use std::io;

use ground::origin::InvalidId;
use http::header::InvalidHeaderValue;
use membership::EtcdError;
use origin::OpenError;
use origin::marker::Unclaimed;

/// Why a process does not begin in its cluster.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name of a member cannot be sent in a header.
    #[error("the member's name {name:?} is not a valid header value")]
    Name {
        /// The name.
        name: String,
        /// What the library of HTTP says.
        source: InvalidHeaderValue,
    },
    /// The token of the cluster cannot be sent in a header.
    #[error("cluster.token is not a valid header value")]
    Token(#[source] InvalidHeaderValue),
    /// The certificates between the processes cannot be used.
    #[error(transparent)]
    Certificates(#[from] wire::Error),
    /// What a folder remembers cannot be read, or contradicts another place.
    #[error(transparent)]
    Origin(#[from] OpenError),
    /// A folder is not this node's.
    #[error(transparent)]
    Folder(#[from] Unclaimed),
    /// What etcd remembers is not known.
    #[error("cannot read the identity of the origin from etcd")]
    Identity(#[source] Box<Error>),
    /// etcd remembers something else than an origin.
    #[error(
        "the key {key} in etcd is not the identity of an origin; remove it if the origin is the right one"
    )]
    NotIdentity {
        /// The key.
        key: String,
        /// What is wrong with its value.
        source: InvalidId,
    },
    /// etcd cannot be asked.
    #[error(transparent)]
    Membership(#[from] membership::Error),
    /// etcd refused, or could not be reached.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// etcd did not answer in time.
    #[error("etcd does not answer")]
    NoAnswer,
    /// The system refuses a thread that would ask etcd or the other members.
    #[error("cannot start a thread that asks etcd or the members")]
    Thread(#[source] io::Error),
    /// A thread has panicked.
    #[error("the thread that asks {0} has ended")]
    Ended(&'static str),
}
