//! Errors of this crate: a membership that does not begin.

use std::io;
use std::net::AddrParseError;

/// Why a process has no membership, or not what its members share.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration names no server of etcd.
    #[error("there are no etcd servers")]
    NoServers,
    /// The certificates of the connections to etcd or to members cannot be used.
    #[error(transparent)]
    Certificates(#[from] wire::Error),
    /// This node has no address to enter in the list.
    #[error("this node's address {address:?} is not an address and a port")]
    Address {
        /// As configured.
        address: String,
        /// What is wrong with it.
        source: AddrParseError,
    },
    /// etcd did not answer in time, or had no member by then.
    #[error(
        "no membership in etcd ({endpoints}, prefix {prefix}) within {start_s} s (membership.start_s)"
    )]
    NotInTime {
        /// The servers.
        endpoints: String,
        /// What the keys begin with.
        prefix: String,
        /// The time, seconds.
        start_s: f64,
        /// What came instead.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The system has no thread for the membership.
    #[error("cannot start the thread of the membership")]
    Thread(#[source] io::Error),
    /// The thread that reads what the members share has panicked.
    #[error("the thread that asks etcd has ended")]
    Ended,
}

impl Error {
    pub(crate) fn not_in_time(
        of: &configuration::Membership,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Error {
        Error::NotInTime {
            endpoints: of.endpoints.join(", "),
            prefix: of.prefix.clone(),
            start_s: of.start_s,
            source: source.into(),
        }
    }
}
