//! A store of objects, as the fronts see it.
//!
//! A front (HTTP, S3, memcached's protocol) translates its requests into those of [`Store`] and the results back, once. The
//! node and the gateway of a process are stores; a front does not know which it has. Between processes requests are HTTP's:
//! a gateway's store writes them for nodes, a node's front reads them.
//!
//! The front makes the record of a request before it calls, the store notes in it where the reply came from and when, and
//! the front keeps it until the reply has been sent.

mod problem;
mod target;

use std::future::Future;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::node::{Asker, Failure, FailureKind, Hit};
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use ground::window::Nanos;
use ground::{Etag, Key};
use http::HeaderValue;
use origin::{Attributes, BoxFuture, Chunks, Listed, Metadata, Origin};
use tokio::runtime::Handle;

use device::object::Object;
use front::Front;
use wire::body::{Arriving, Paced, ReplyBody};
use wire::condition::Conditions;
use wire::lane::RequestRecord;
use wire::range::ByteRange;

pub use problem::problem_of;
pub use target::{escaped, key_of};

/// Reads of a multi-get that are under way at a time: each may hold a value in memory.
const PARALLEL: usize = 16;
/// Maximum bytes of user metadata, names and values together.
const META_BYTES_MAX: usize = 8 << 10;
/// Maximum bytes of a content type.
const CONTENT_TYPE_BYTES_MAX: usize = 1 << 10;
/// How the keys begin that are the server's own: parts of uploads, and the origin's names of keys that a bucket cannot have.
const RESERVED: [&[u8]; 2] = [b"!s3/", b"!key/"];

/// How old a read's answer may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Freshness {
    /// As the configuration has it: not older than an acknowledged write of this cluster, and than `revalidate_s` where others
    /// write to the origin.
    #[default]
    Configured,
    /// As the origin has it now.
    Origin,
}

/// A read of an object, or of what is known of it.
#[derive(Clone, Debug, Default)]
pub struct ReadRequest {
    /// The object's key.
    pub key: Key,
    /// Whether only what is known of it is wanted, without bytes.
    pub is_head: bool,
    /// The bytes wanted; `None`: all.
    pub range: Option<ByteRange>,
    /// What must hold.
    pub conditions: Conditions,
    /// How old the answer may be.
    pub freshness: Freshness,
    /// When nobody waits for it any more.
    pub deadline: Option<Nanos>,
    /// The process that asks; `None`: a client.
    pub asker: Option<Asker>,
    /// Whether the reply tells the times of its stages.
    pub is_timed: bool,
}

impl ReadRequest {
    /// A read of a whole object, whatever its version.
    pub fn get(key: Key) -> ReadRequest {
        ReadRequest { key, ..ReadRequest::default() }
    }

    /// A read of what is known of an object.
    pub fn head(key: Key) -> ReadRequest {
        ReadRequest { key, is_head: true, ..ReadRequest::default() }
    }
}

/// What binds a write beside its bytes.
#[derive(Clone, Debug, Default)]
pub struct WriteTerms {
    /// What must hold of the object that it replaces.
    pub conditions: Conditions,
    /// When it must not begin any more.
    pub deadline: Option<Nanos>,
    /// The epoch of the view by which a gateway chose this node for it.
    pub epoch: Option<u64>,
    /// Whether the reply tells the times of its stages.
    pub is_timed: bool,
}

/// A write of an object.
pub struct PutRequest {
    /// The object's key.
    pub key: Key,
    /// Its type and user metadata.
    pub attributes: Attributes,
    /// Its bytes, as they arrive.
    pub body: Arriving,
    /// The SHA-256 that a gateway says they have.
    pub sha256: Option<[u8; 32]>,
    /// What binds it.
    pub terms: WriteTerms,
}

/// A removal of an object.
pub struct DeleteRequest {
    /// The object's key.
    pub key: Key,
    /// What binds it.
    pub terms: WriteTerms,
}

/// What is known of an object that was found.
#[derive(Clone, Debug)]
pub enum Version {
    /// An object that is in memory, or of which a device has a part.
    Held(Object),
    /// One of which the metadata alone is here.
    Described(Box<Metadata>),
}

impl Deref for Version {
    type Target = Metadata;
    fn deref(&self) -> &Metadata {
        match self {
            Version::Held(object) => object.metadata(),
            Version::Described(metadata) => metadata,
        }
    }
}

impl From<Metadata> for Version {
    fn from(metadata: Metadata) -> Version {
        Version::Described(Box::new(metadata))
    }
}

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
            Body::Bytes(bytes) => Box::new(origin::Whole::new(bytes)),
            Body::Pieces(chunks) => chunks,
            Body::Stream(chunks, timeout) => Box::new(Paced { chunks, timeout }),
        }
    }
}

/// Why a request was not carried out.
#[derive(Debug)]
pub enum Error {
    /// There is no object of this key.
    NotFound,
    /// This node does not have it, and was asked for a copy of its own.
    NotHere,
    /// The client's copy is current.
    NotModified(Version),
    /// The object is not as a condition says; with the object, if a read was refused.
    PreconditionFailed(Option<Version>),
    /// The range lies outside of the object.
    Unsatisfiable(Version),
    /// A queue is full: of this name, if it is a node's.
    Busy(Option<String>, String),
    /// The deadline passed before it could be served.
    TooLate,
    /// A reply that was waited for did not come in time.
    TimedOut(String),
    /// The origin or the cluster cannot serve it now.
    Unavailable(String),
    /// The key, or the order of its writes, is another node's.
    Misdirected(String),
    /// The object is too large.
    TooLarge(String),
    /// The request is wrong.
    Invalid(String),
    /// The key is the server's own.
    Reserved,
    /// The origin takes no writes.
    Full(String),
    /// The store does not have this operation.
    Unsupported(&'static str),
    /// The process ends.
    Stopping,
}

const MISDIRECTED: &str = "the key, or the order of its writes, is another node's: ask a gateway, or compare the \
    members of both configurations";

impl Error {
    /// A queue of a node is full.
    pub fn busy(queue: &str) -> Error {
        Error::Busy(Some(queue.to_owned()), format!("the queue `{queue}` is full; try again later"))
    }

    /// A request went to the wrong node.
    pub fn misdirected() -> Error {
        Error::Misdirected(MISDIRECTED.to_owned())
    }

    /// The reason, for the client.
    pub fn text(&self) -> &str {
        match self {
            Error::NotFound => "there is no object of this key",
            Error::NotHere => "this node does not have it",
            Error::NotModified(_) => "the client's copy is current",
            Error::PreconditionFailed(_) => "the object is not as the request's condition says",
            Error::Unsatisfiable(_) => "the range lies outside of the object",
            Error::TooLate => "the deadline passed before the request could be served",
            Error::Reserved => {
                "keys that begin with !s3/ or !key/ are the server's own; choose another key"
            }
            Error::Stopping => "the server is stopping",
            Error::Unsupported(text) => text,
            Error::Busy(_, text)
            | Error::TimedOut(text)
            | Error::Unavailable(text)
            | Error::Misdirected(text)
            | Error::TooLarge(text)
            | Error::Invalid(text)
            | Error::Full(text) => text,
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        match failure.kind {
            FailureKind::TimedOut => Error::TimedOut(failure.reason),
            FailureKind::Unavailable => Error::Unavailable(failure.reason),
        }
    }
}

impl From<origin::Error> for Error {
    fn from(error: origin::Error) -> Error {
        let text = error.to_string();
        match error {
            origin::Error::Full(_) | origin::Error::ReadOnly(_) => Error::Full(text),
            origin::Error::Upload(_) | origin::Error::Refused(_) => Error::Invalid(text),
            origin::Error::Fenced(_) => Error::Misdirected(text),
            origin::Error::TimedOut(_) => Error::TimedOut(text),
            _ => Error::Unavailable(text),
        }
    }
}

/// Refuses what of attributes is too long to be kept.
///
/// # Errors
///
/// [`Error::Invalid`], with the bound.
pub fn check_attributes(attributes: &Attributes) -> Result<(), Error> {
    let type_bytes = attributes.content_type.as_ref().map_or(0, String::len);
    if type_bytes > CONTENT_TYPE_BYTES_MAX {
        let what = format!("the content type is longer than {CONTENT_TYPE_BYTES_MAX} bytes");
        return Err(Error::Invalid(what));
    }
    let bytes: usize = attributes.user.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > META_BYTES_MAX {
        let what =
            format!("the user metadata has {bytes} bytes; at most {META_BYTES_MAX} are kept");
        return Err(Error::Invalid(what));
    }
    Ok(())
}

/// The text of a header that is kept with an object.
pub fn header_text(name: &str, value: &HeaderValue) -> Result<String, Error> {
    let text = std::str::from_utf8(value.as_bytes()).map(str::to_owned);
    text.map_err(|_| Error::Invalid(format!("the header {name} is not UTF-8")))
}

/// Refuses writes of reserved keys by clients of HTTP and of memcached's protocol. Reading them shows nothing that a client with
/// the token could not have. The cluster's processes write them: a gateway stores parts of uploads on nodes.
///
/// # Errors
///
/// [`Error::Reserved`].
pub fn refuse_reserved(key: &[u8]) -> Result<(), Error> {
    match RESERVED.iter().any(|start| key.starts_with(start)) {
        true => Err(Error::Reserved),
        false => Ok(()),
    }
}

/// The result of a read, with its record.
pub type Recorded = (Result<FoundObject, Error>, RequestRecord);

/// Objects that can be read, written and listed.
pub trait Store: Send + Sync + 'static {
    /// What the threads behind the process's address share.
    fn front(&self) -> &Front;

    /// Where objects are durable. Parts of uploads are written there, past all caches.
    fn origin(&self) -> &Arc<dyn Origin>;

    /// Reads an object, or what is known of it.
    ///
    /// # Errors
    ///
    /// Whatever keeps it from being read.
    fn get<'a>(
        &'a self,
        read: &'a ReadRequest,
        record: &'a mut RequestRecord,
    ) -> BoxFuture<'a, Result<FoundObject, Error>>;

    /// Writes an object; returns its version. It is in the origin then, and no later read returns an older one.
    ///
    /// # Errors
    ///
    /// Whatever keeps it from being written.
    fn put<'a>(
        &'a self,
        put: PutRequest,
        record: &'a mut RequestRecord,
    ) -> BoxFuture<'a, Result<Etag, Error>>;

    /// Removes an object; returns whether it was there.
    ///
    /// # Errors
    ///
    /// Whatever keeps it from being removed.
    fn delete<'a>(
        &'a self,
        delete: DeleteRequest,
        record: &'a mut RequestRecord,
    ) -> BoxFuture<'a, Result<bool, Error>>;

    /// Whether this process holds objects in memory itself.
    fn has_memory(&self) -> bool {
        false
    }

    /// An object that memory holds and may serve as it is.
    fn hit(&self, _now: Nanos, _key: &[u8]) -> Option<Hit<Object>> {
        None
    }

    /// Has the next read of a key compare what is held with the origin, where others may have written.
    fn revalidate(&self, _key: &Key) {}

    /// Drops what is held of all keys. What is in the origin remains.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] where other processes hold it too.
    fn clear(&self) -> Result<(), Error>;

    /// Whether what is written outlives what is held.
    fn is_durable(&self) -> bool {
        self.origin().is_durable()
    }

    /// The work that the end of the process waits for, beside connections.
    fn under_way(&self) -> usize {
        0
    }

    /// Lets a front's threads read from devices.
    fn read_on(&self, _runtimes: &[Handle]) {}
}

impl dyn Store {
    /// Reads several objects at a time; the results come in the order of the requests.
    pub fn multi_get<'a>(
        &'a self,
        reads: impl Iterator<Item = (ReadRequest, RequestRecord)> + Send + 'a,
    ) -> BoxStream<'a, Recorded> {
        let one = async move |(read, mut record): (ReadRequest, RequestRecord)| {
            let found = self.get(&read, &mut record).await;
            (found, record)
        };
        stream::iter(reads.map(one)).buffered(PARALLEL).boxed()
    }

    /// The objects whose keys begin with `prefix` and follow `after`, at most `limit`.
    ///
    /// # Errors
    ///
    /// If the origin does not list them in time.
    pub async fn list(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Listed>, Error> {
        let listing = self.origin().list(prefix, after, limit);
        self.within_timeout("a listing", listing).await
    }

    /// Waits for a request to the origin as long as the configuration allows.
    async fn within_timeout<T>(
        &self,
        what: &str,
        request: impl Future<Output = Result<T, origin::Error>>,
    ) -> Result<T, Error> {
        let timeout = Duration::from_secs_f64(self.front().config.origin.timeout_s);
        Ok(origin::within(timeout, what, request).await?)
    }
}
