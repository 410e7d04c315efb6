//! Why a request got no reply.

use std::io;

/// Why a request got no reply, or only part of one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Connecting failed. Nothing was sent.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// The connection broke. It is not known whether the request was carried out.
    #[error("the connection broke: {0}")]
    Broken(io::Error),
    /// The reply is malformed, or of a kind that this client does not accept. The request may have
    /// been carried out.
    #[error("the reply is malformed: {0}")]
    Malformed(String),
    /// The request is invalid: its path is malformed, or its body differs from its declared length
    /// or failed. Part of the body may have been sent, never all of it.
    #[error("the request cannot be sent: {0}")]
    Request(String),
}

impl Fault {
    pub(super) fn closed(when: &str) -> Fault {
        Fault::Broken(io::Error::new(io::ErrorKind::UnexpectedEof, when.to_owned()))
    }
}
