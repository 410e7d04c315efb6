//! An origin whose requests have a time limit.

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ground::origin::OriginId;
use ground::{Etag, Key};

use super::chunks::{BoxFuture, Chunks};
use super::error::Error;
use super::listing::{Entry, KeyRange};
use super::metadata::{Attributes, Metadata};
use super::store::{Origin, StoredObject};
use super::write::{Condition, Fence, Staged};

/// Waits for a request to the origin for at most `timeout`; `what` names the request in the error.
///
/// # Errors
///
/// [`Error::TimedOut`] after the timeout, and what the request fails with.
pub async fn within<T>(
    timeout: Duration,
    what: &str,
    request: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let seconds = timeout.as_secs_f64();
    let timed_out = || Error::TimedOut(format!("no answer to {what} within {seconds} s"));
    tokio::time::timeout(timeout, request).await.unwrap_or_else(|_| Err(timed_out()))
}

/// Ends each request to an origin with [`Error::TimedOut`] after a time without an answer. A body may take that long for each of its
/// pieces, and staging for each that it takes.
///
/// A file system that hangs, such as NFS whose server is away, answers nothing for hours, and a caller that does one thing after the
/// other would do nothing any more.
pub struct TimeLimited {
    origin: Arc<dyn Origin>,
    timeout: Duration,
}

impl TimeLimited {
    /// The same origin, whose requests end after `timeout`.
    pub fn new(origin: Arc<dyn Origin>, timeout: Duration) -> TimeLimited {
        TimeLimited { origin, timeout }
    }
}

impl Origin for TimeLimited {
    fn head(&self, key: &Key) -> BoxFuture<'_, Result<Option<Metadata>, Error>> {
        Box::pin(within(self.timeout, "a comparison", self.origin.head(key)))
    }

    fn get(
        &self,
        key: &Key,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<StoredObject>, Error>> {
        let (timeout, found) = (self.timeout, self.origin.get(key, range));
        Box::pin(async move {
            let Some(StoredObject { metadata, body }) = within(timeout, "a read", found).await?
            else {
                return Ok(None);
            };
            let body = Box::new(TimedBody { body, timeout });
            Ok(Some(StoredObject { metadata, body }))
        })
    }

    fn stage<'a>(
        &'a self,
        key: &Key,
        attributes: Attributes,
        body: &'a mut dyn Chunks,
    ) -> BoxFuture<'a, Result<Box<dyn Staged>, Error>> {
        let (key, timeout) = (key.clone(), self.timeout);
        Box::pin(async move {
            let taken = AtomicU64::new(0);
            let mut body = CountedBody { body, taken: &taken };
            let mut staging = self.origin.stage(&key, attributes, &mut body);
            let mut taken_before = 0;
            let staged = loop {
                if let Ok(staged) = tokio::time::timeout(timeout, &mut staging).await {
                    break staged?;
                }
                let taken = taken.load(Ordering::Relaxed);
                if taken == taken_before {
                    let seconds = timeout.as_secs_f64();
                    let what = format!("no answer to a write within {seconds} s");
                    return Err(Error::TimedOut(what));
                }
                taken_before = taken;
            };
            let staged: Box<dyn Staged> = Box::new(TimedStaged { staged, timeout });
            Ok(staged)
        })
    }

    fn delete(&self, key: &Key) -> BoxFuture<'_, Result<bool, Error>> {
        Box::pin(within(self.timeout, "a removal", self.origin.delete(key)))
    }

    fn delete_fenced(&self, key: &Key, fence: Fence) -> BoxFuture<'_, Result<bool, Error>> {
        Box::pin(within(self.timeout, "a removal", self.origin.delete_fenced(key, fence)))
    }

    fn delete_version(&self, key: &Key, etag: &Etag) -> BoxFuture<'_, Result<bool, Error>> {
        Box::pin(within(self.timeout, "a removal", self.origin.delete_version(key, etag)))
    }

    fn entries(&self, range: &KeyRange, limit: usize) -> BoxFuture<'_, Result<Vec<Entry>, Error>> {
        Box::pin(within(self.timeout, "a listing", self.origin.entries(range, limit)))
    }

    fn is_durable(&self) -> bool {
        self.origin.is_durable()
    }

    fn id(&self) -> Option<OriginId> {
        self.origin.id()
    }

    fn read_only(&self) -> Option<String> {
        self.origin.read_only()
    }

    fn created_unix_us(&self) -> BoxFuture<'_, Option<u64>> {
        self.origin.created_unix_us()
    }

    fn check(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(within(self.timeout, "a comparison", self.origin.check()))
    }
}

/// A body that is being read.
struct TimedBody {
    body: Box<dyn Chunks>,
    timeout: Duration,
}

impl Chunks for TimedBody {
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, Error>>> {
        let piece = self.body.next();
        let timeout = self.timeout;
        let piece = async { piece.await.transpose() };
        Box::pin(async move { within(timeout, "a read", piece).await.transpose() })
    }

    fn bytes_left(&self) -> Option<u64> {
        self.body.bytes_left()
    }

    fn sha256(&self) -> Option<[u8; 32]> {
        self.body.sha256()
    }
}

/// A body that is being written; counts the pieces that were asked for.
struct CountedBody<'a> {
    body: &'a mut dyn Chunks,
    taken: &'a AtomicU64,
}

impl Chunks for CountedBody<'_> {
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, Error>>> {
        self.taken.fetch_add(1, Ordering::Relaxed);
        self.body.next()
    }

    fn bytes_left(&self) -> Option<u64> {
        self.body.bytes_left()
    }

    fn sha256(&self) -> Option<[u8; 32]> {
        self.body.sha256()
    }
}

/// A write whose bytes are staged.
struct TimedStaged {
    staged: Box<dyn Staged>,
    timeout: Duration,
}

impl Staged for TimedStaged {
    fn metadata(&self) -> &Metadata {
        self.staged.metadata()
    }

    fn fence(&mut self, fence: Fence) {
        self.staged.fence(fence);
    }

    fn commit(
        self: Box<Self>,
        condition: Option<Condition>,
    ) -> BoxFuture<'static, Result<(), Error>> {
        Box::pin(within(self.timeout, "a write", self.staged.commit(condition)))
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;
    use crate::folder::Folder;
    use crate::sharing::Sharing;

    /// Pieces with pauses between them, or none at all.
    struct Slow {
        pieces: u64,
        pause: Duration,
    }

    impl Chunks for Slow {
        fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, Error>>> {
            Box::pin(async move {
                tokio::time::sleep(self.pause).await;
                self.pieces = self.pieces.checked_sub(1)?;
                Some(Ok(Bytes::from_static(b"x")))
            })
        }

        fn bytes_left(&self) -> Option<u64> {
            None
        }
    }

    /// An origin that answers nothing.
    struct Silent;

    impl Origin for Silent {
        fn head(&self, _key: &Key) -> BoxFuture<'_, Result<Option<Metadata>, Error>> {
            Box::pin(pending())
        }

        fn get(
            &self,
            _key: &Key,
            _range: Option<Range<u64>>,
        ) -> BoxFuture<'_, Result<Option<StoredObject>, Error>> {
            Box::pin(pending())
        }

        fn stage<'a>(
            &'a self,
            _key: &Key,
            _attributes: Attributes,
            _body: &'a mut dyn Chunks,
        ) -> BoxFuture<'a, Result<Box<dyn Staged>, Error>> {
            Box::pin(pending())
        }

        fn delete(&self, _key: &Key) -> BoxFuture<'_, Result<bool, Error>> {
            Box::pin(pending())
        }

        fn entries(
            &self,
            _range: &KeyRange,
            _limit: usize,
        ) -> BoxFuture<'_, Result<Vec<Entry>, Error>> {
            Box::pin(pending())
        }
    }

    #[tokio::test]
    async fn requests_without_an_answer_end() {
        let origin = TimeLimited::new(Arc::new(Silent), Duration::from_millis(1));
        let key = Key::from(&b"a"[..]);
        let mut body = Slow { pieces: 1, pause: Duration::ZERO };
        let results = [
            origin.head(&key).await.map(drop),
            origin.get(&key, None).await.map(drop),
            origin.stage(&key, Attributes::default(), &mut body).await.map(drop),
            origin.delete(&key).await.map(drop),
            origin.delete_version(&key, &Etag::from("v")).await.map(drop),
            origin.list(b"", None, 1).await.map(drop),
        ];
        for result in results {
            assert!(matches!(result, Err(Error::TimedOut(_))), "{result:?}");
        }
    }

    /// The limit is for each piece: all of them take longer.
    #[tokio::test]
    async fn a_body_may_take_as_long_as_its_pieces_come() {
        let folder = tempfile::tempdir().unwrap();
        let inner = Folder::open(&folder.path().join("origin"), 1, Sharing::Alone).unwrap();
        let origin = TimeLimited::new(Arc::new(inner), Duration::from_secs(1));
        let key = Key::from(&b"a"[..]);
        let mut body = Slow { pieces: 6, pause: Duration::from_millis(250) };
        let staged = origin.stage(&key, Attributes::default(), &mut body).await.unwrap();
        staged.commit(None).await.unwrap();
        let found = origin.get(&key, None).await.unwrap().unwrap();
        assert_eq!(found.metadata.size, 6);
    }
}
