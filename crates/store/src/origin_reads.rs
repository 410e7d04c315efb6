//! Reads of objects that no tier holds, straight from the origin: too large for the tiers of a node, or at a gateway whose
//! nodes cannot be reached.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ground::Key;
use origin::{Chunks, Metadata, Origin, within};

use super::error::Error;
use super::found::{Body, FoundObject};
use super::request::ReadRequest;
use super::version::Version;
use wire::condition::Verdict;
use wire::range::SelectedRange;

/// Looks that are taken at an object that is written meanwhile.
const ATTEMPTS: usize = 3;

/// Objects of [`LargeObjects`]: a reader asks at once, so a few are enough; one that is gone costs a request.
const LARGE_MAX: usize = 64;

/// What fetches told lately of objects that are too large for the tiers. The reader that is then told to read from the origin itself need
/// not ask again what it has there.
#[derive(Default)]
pub struct LargeObjects(Mutex<VecDeque<(Key, Metadata)>>);

impl LargeObjects {
    /// Notes what a fetch has told.
    pub fn note(&self, key: &Key, metadata: Metadata) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.retain(|(other, _)| other != key);
        if last.len() >= LARGE_MAX {
            last.pop_front();
        }
        last.push_back((key.clone(), metadata));
    }

    /// What the last fetch of a key has told.
    pub fn get(&self, key: &Key) -> Option<Metadata> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.iter().rev().find(|(other, _)| other == key).map(|(_, metadata)| metadata.clone())
    }
}

/// What a read wants of an object, now that its metadata is here. Conditions come before the range.
///
/// # Errors
///
/// If a condition does not hold, or the object has none of the bytes.
pub fn select(read: &ReadRequest, version: &Version) -> Result<Option<Range<u64>>, Error> {
    match read.conditions.judge(Some(version), true) {
        Verdict::Failed => return Err(Error::PreconditionFailed(Some(version.clone()))),
        Verdict::NotModified => return Err(Error::NotModified(version.clone())),
        Verdict::Proceed => {}
    }
    let range = read.range.filter(|_| read.conditions.range_holds(version));
    match range.map(|range| range.of_size(version.size)) {
        None | Some(SelectedRange::Whole) => Ok(None),
        Some(SelectedRange::Part(range)) => Ok(Some(range)),
        Some(SelectedRange::Unsatisfiable) => Err(Error::Unsatisfiable(version.clone())),
    }
}

/// The error of a read of what is not there. `If-Match` fails before the absence is told.
pub fn not_found(read: &ReadRequest) -> Error {
    match read.conditions.judge(None, true) {
        Verdict::Failed => Error::PreconditionFailed(None),
        _ => Error::NotFound,
    }
}

/// Reads an object, or its metadata alone (of a HEAD), by one or two requests.
///
/// The origin is asked for a range at once if the range can be named without the size. Otherwise, and where conditions may
/// end the read, the metadata comes first, unless it is `known` from this moment: a GET that is dropped costs a connection to the store, and bytes on their way.
///
/// # Errors
///
/// Whatever keeps it from being read.
pub async fn read(
    origin: &Arc<dyn Origin>,
    timeout: Duration,
    read: &ReadRequest,
    mut known: Option<Metadata>,
) -> Result<FoundObject, Error> {
    let looks = read.is_head
        || !read.conditions.is_empty()
        || read.range.is_some_and(|range| range.bounds().is_none());
    for _ in 0..ATTEMPTS {
        let mut wanted = read.range.and_then(|range| range.bounds());
        let mut seen: Option<Metadata> = None;
        if looks {
            let metadata = match known.take() {
                Some(metadata) => metadata,
                None => {
                    let metadata = within(timeout, "a read", origin.head(&read.key)).await?;
                    metadata.ok_or_else(|| not_found(read))?
                }
            };
            let version = Version::from(metadata.clone());
            wanted = select(read, &version)?;
            if read.is_head {
                let body = Body::Bytes(Bytes::new());
                return Ok(FoundObject { version, range: wanted, body, age: None });
            }
            seen = Some(metadata);
        }
        let found = within(timeout, "a read", origin.get(&read.key, wanted.clone())).await?;
        let found = found.ok_or_else(|| not_found(read))?;
        let replaced = seen.is_some_and(|seen| seen.etag != found.metadata.etag);
        let version = Version::from(found.metadata);
        let range = select(read, &version)?;
        // The bytes are those of `wanted`, cut at the end of the object. Of another version they may be the wrong ones.
        let fits = match (&range, &wanted) {
            (Some(range), Some(wanted)) => {
                range.start == wanted.start && range.end == wanted.end.min(version.size)
            }
            (None, None) => true,
            _ => false,
        };
        if fits {
            return Ok(FoundObject {
                version,
                range,
                body: Body::Stream(found.body, timeout),
                age: None,
            });
        }
        debug_assert!(replaced, "what was asked for is what is answered, of one version");
    }
    Err(Error::Unavailable("the object is written faster than it can be read".to_owned()))
}

/// Joins all pieces of a body.
///
/// # Errors
///
/// If it breaks off.
pub async fn collect(body: &mut dyn Chunks) -> Result<Bytes, origin::Error> {
    let first = match body.next().await {
        None => return Ok(Bytes::new()),
        Some(first) => first?,
    };
    let left = body.bytes_left().unwrap_or(0) as usize;
    let Some(second) = body.next().await else { return Ok(first) };
    let mut all = BytesMut::with_capacity(first.len() + left);
    all.extend_from_slice(&first);
    all.extend_from_slice(&second?);
    while let Some(piece) = body.next().await {
        all.extend_from_slice(&piece?);
    }
    Ok(all.freeze())
}
