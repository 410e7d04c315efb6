//! The origin of a cache: it accepts every write and keeps none.

use std::future::ready;
use std::ops::Range;

use ground::Key;

use super::chunks::{BoxFuture, Chunks};
use super::error::Error;
use super::listing::{Entry, KeyRange};
use super::metadata::{Attributes, Metadata, VersionHasher, now_unix_us};
use super::store::{Origin, StoredObject};
use super::write::{Condition, Staged};

/// Keeps nothing. What was written is in the tiers in front of it, or gone.
#[derive(Clone, Copy, Debug)]
pub struct Nowhere;

struct Drained(Metadata);

impl Staged for Drained {
    fn metadata(&self) -> &Metadata {
        &self.0
    }

    /// The condition is the node's to judge, which knows what its tiers hold.
    fn commit(
        self: Box<Self>,
        condition: Option<Condition>,
    ) -> BoxFuture<'static, Result<(), Error>> {
        let refused = |_| Err(Error::Refused("a cache has no conditions of its own".to_owned()));
        Box::pin(ready(condition.map_or(Ok(()), refused)))
    }
}

impl Origin for Nowhere {
    fn head(&self, _key: &Key) -> BoxFuture<'_, Result<Option<Metadata>, Error>> {
        Box::pin(ready(Ok(None)))
    }

    fn get(
        &self,
        _key: &Key,
        _range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<StoredObject>, Error>> {
        Box::pin(ready(Ok(None)))
    }

    fn stage<'a>(
        &'a self,
        _key: &Key,
        attributes: Attributes,
        body: &'a mut dyn Chunks,
    ) -> BoxFuture<'a, Result<Box<dyn Staged>, Error>> {
        Box::pin(async move {
            let (mut hasher, mut size) = (VersionHasher::default(), 0);
            while let Some(piece) = body.next().await {
                let piece = piece?;
                hasher.update(&piece);
                size += piece.len() as u64;
            }
            let (etag, modified_unix_us) = (hasher.finish(&attributes), now_unix_us());
            let staged: Box<dyn Staged> =
                Box::new(Drained(Metadata { size, etag, modified_unix_us, attributes }));
            Ok(staged)
        })
    }

    fn delete(&self, _key: &Key) -> BoxFuture<'_, Result<bool, Error>> {
        Box::pin(ready(Ok(false)))
    }

    fn entries(&self, _: &KeyRange, _: usize) -> BoxFuture<'_, Result<Vec<Entry>, Error>> {
        let why = "a cache (origin.kind = \"none\") has no list of its objects";
        Box::pin(ready(Err(Error::Refused(why.to_owned()))))
    }

    fn is_durable(&self) -> bool {
        false
    }
}
