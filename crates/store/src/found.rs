//! What a read finds.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use ground::window::Nanos;
use origin::Chunks;

use super::error::Error;
use super::request::ReadRequest;
use super::version::Version;
use wire::body::{Paced, ReplyBody};
use wire::lane::RequestRecord;

/// The bytes of a reply.
pub enum Body {
    /// All of them; none for a HEAD.
    Bytes(Bytes),
    /// As a device reads them.
    Pieces(Box<dyn Chunks>),
    /// As the origin or another process sends them, each piece within a time.
    Stream(Box<dyn Chunks>, Duration),
}

/// An object that was found, with the bytes that were asked for.
pub struct FoundObject {
    /// The object.
    pub version: Version,
    /// The part that the bytes are; `None`: the whole object.
    pub range: Option<Range<u64>>,
    /// The bytes.
    pub body: Body,
    /// Time since it was last compared with the origin, for a node that keeps a copy.
    pub age: Option<Nanos>,
}

impl FoundObject {
    /// The number of bytes selected. (A HEAD has none of them.)
    pub fn length(&self) -> u64 {
        self.range.as_ref().map_or(self.version.size, |range| range.end - range.start)
    }

    /// All bytes, if they are no more than `max`.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] for more, and if the bytes break off.
    pub async fn gather(self, max: u64) -> Result<Bytes, Error> {
        let length = self.length();
        if length > max {
            let what = format!("the object has {length} bytes, and {max} are taken here");
            return Err(Error::TooLarge(what));
        }
        let mut chunks = match self.body {
            Body::Bytes(bytes) => return Ok(bytes),
            body => body.into_chunks(),
        };
        // Not more than was announced: a stream's length is another process's word.
        let mut all = bytes::BytesMut::with_capacity(length as usize);
        while let Some(piece) = chunks.next().await {
            all.extend_from_slice(&piece?);
            if all.len() as u64 >= length {
                break;
            }
        }
        match all.len() as u64 == length {
            true => Ok(all.freeze()),
            false => Err(Error::Unavailable("a reply broke off".to_owned())),
        }
    }
}

impl Body {
    /// The body of HTTP's reply, as long as the record says.
    pub fn into_reply(self, record: RequestRecord) -> ReplyBody {
        let left = record.bytes;
        match self {
            Body::Bytes(bytes) => ReplyBody::bytes(bytes, Some(record)),
            _ if left == 0 => ReplyBody::empty(Some(record)),
            body => ReplyBody::stream(body.into_chunks(), left, record),
        }
    }

    /// The bytes piece by piece.
    pub fn into_chunks(self) -> Box<dyn Chunks> {
        match self {
            Body::Bytes(bytes) => Box::new(origin::SingleChunk::new(bytes)),
            Body::Pieces(chunks) => chunks,
            Body::Stream(chunks, timeout) => Box::new(Paced { chunks, timeout }),
        }
    }
}

/// Notes the sizes of a result.
pub fn noted(
    found: Result<FoundObject, Error>,
    read: &ReadRequest,
    record: &mut RequestRecord,
) -> Result<FoundObject, Error> {
    match &found {
        Ok(found) => {
            record.size = found.version.size;
            record.bytes = if read.is_head { 0 } else { found.length() };
        }
        Err(
            Error::NotModified(version)
            | Error::PreconditionFailed(Some(version))
            | Error::Unsatisfiable(version),
        ) => record.size = version.size,
        Err(_) => {}
    }
    found
}
