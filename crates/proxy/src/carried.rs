//! Connections that go on when what serves them ends.

use crate::stream::Stream;

/// A client's connection between two sets of threads.
pub(crate) struct Carried {
    pub(crate) stream: Stream,
    /// The beginning of a request.
    pub(crate) rest: Vec<u8>,
    /// Bytes of a refused value that are still to come.
    pub(crate) skip: u64,
}

impl From<Stream> for Carried {
    fn from(stream: Stream) -> Carried {
        Carried { stream, rest: Vec::new(), skip: 0 }
    }
}
