//! The S3 origin: objects in a bucket of any S3-compatible store, through the crate `object_store`.
//!
//! `name` maps keys to names, `attributes` stores our metadata with the object, `http` sends
//! requests on a separate thread, `upload` sends objects (over 8 MiB in parts) and keeps writes in
//! order, `sending` sends an object while it arrives, `known` are the etags that were seen last, `described` the metadata of listed objects, `identity` recognises the bucket, and `list` merges the two kinds of names. A request is retried after a transient error, at most three times and not
//! after `origin.timeout_s`; the last attempt may take as long again.

mod attributes;
mod crypto;
mod described;
mod errors;
mod http;
mod identity;
mod known;
mod list;
mod name;
mod pieces;
mod precondition;
mod reply;
mod sending;
mod upload;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::http::header::{HeaderValue, IF_MATCH};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use ground::Key;
use ground::origin::OriginId;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{
    BackoffConfig, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, RetryConfig,
};
use tokio::sync::{Mutex, Semaphore};
use tracing::warn;

use super::{
    Attributes, BoxFuture, Chunks, Entry, Error, Fence, IdentityRecord, KeyRange, Metadata,
    OpenError, Origin, SingleChunk, Staged, StoredObject, VersionHasher, fenced,
};
use crate::Settings;
use described::Described;
use errors::{Access, Trouble, trouble};
use http::{Connector, EXTRA, Thread};
use identity::Looks;
use known::{EtagTable, Seal};
use list::PageOf;
pub(super) use name::is_plain;

/// The most retries of a request.
const RETRIES_MAX: usize = 3;
/// The most attempts of a write whose condition is refused because the object changed meanwhile.
const ORDER_ATTEMPTS: usize = 5;

/// An S3-compatible store as the origin.
pub struct S3 {
    store: Arc<Store>,
}

/// State shared by all requests.
struct Store {
    client: AmazonS3,
    thread: Thread,
    /// The prefix of all names.
    prefix: String,
    /// Bucket and endpoint, for messages.
    place: String,
    /// The most concurrent requests of one listing.
    parallel: usize,
    /// The memory left for uploads, KiB.
    held_kib: Arc<Semaphore>,
    held_bytes_max: u64,
    looks: Mutex<Looks>,
    /// What this process remembers of its origin.
    record: Arc<IdentityRecord>,
    known: EtagTable,
    described: Described,
    /// Writes that may be sent while they arrive.
    sendings: Arc<Semaphore>,
}

/// The store's reply to a HEAD.
struct Head {
    meta: ObjectMeta,
    attributes: object_store::Attributes,
    metadata: Metadata,
}

impl S3 {
    /// Connects to the store, lists the bucket once, and reads its marker or creates it.
    ///
    /// # Errors
    ///
    /// If the store rejects the request (missing bucket, wrong credentials). A store that does not
    /// reply causes only a warning: requests that need the origin fail, and the rest can be served.
    pub fn open(settings: &Settings) -> Result<S3, OpenError> {
        S3::open_recorded(settings, Arc::default())
    }

    /// As [`S3::open`], for a process that may remember which origin it served. Where that is missing or another one is in
    /// its place, every request fails until it is there.
    ///
    /// # Errors
    ///
    /// As [`S3::open`].
    pub fn open_recorded(
        settings: &Settings,
        record: Arc<IdentityRecord>,
    ) -> Result<S3, OpenError> {
        let waits = record.waits();
        let store = Arc::new(Store::new(settings, record)?);
        let timeout = Duration::from_secs_f64(settings.timeout_s);
        let (send, receive) = std::sync::mpsc::channel();
        let probed = store.clone();
        store.thread.handle().spawn(async move {
            let _ = send.send(probed.learn().await);
        });
        // The longest time that the retries may take, plus a second.
        match receive.recv_timeout(timeout * 2 + Duration::from_secs(1)) {
            Ok(Ok(())) => {}
            Ok(Err(Trouble { error, status: Some(400..=499), .. }))
                if !(waits && matches!(error, Error::Lost(_))) =>
            {
                return Err(error.into());
            }
            Ok(Err(Trouble { error, .. })) => {
                warn!(
                    "{error}; serving starts, and requests that need the origin are answered 503"
                );
            }
            Err(_) => warn!("{} does not reply; serving starts without it", store.place),
        }
        Ok(S3 { store })
    }
}

impl Store {
    fn new(settings: &Settings, record: Arc<IdentityRecord>) -> Result<Store, OpenError> {
        let missing = |key, variable| OpenError::NoAccessKey { key, variable };
        let id = settings.access_key_id.as_deref();
        let id = id.ok_or_else(|| missing("access_key_id", "AWS_ACCESS_KEY_ID"))?;
        let secret = settings.secret_access_key.as_ref();
        let secret = secret.ok_or_else(|| missing("secret_access_key", "AWS_SECRET_ACCESS_KEY"))?;
        let timeout = Duration::from_secs_f64(settings.timeout_s);
        let thread = Thread::start().map_err(OpenError::Thread)?;
        let connector = Connector::new(thread.handle().clone(), timeout, settings.allow_http)
            .map_err(OpenError::Client)?;
        let retry = RetryConfig {
            backoff: BackoffConfig {
                init_backoff: Duration::from_millis(50),
                max_backoff: Duration::from_millis(500),
                base: 2.0,
            },
            max_retries: RETRIES_MAX,
            retry_timeout: timeout,
        };
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&settings.bucket)
            .with_region(&settings.region)
            .with_access_key_id(id)
            .with_secret_access_key(secret.expose())
            .with_allow_http(settings.allow_http)
            .with_retry(retry)
            // Not every store supports bulk deletes.
            .with_disable_bulk_delete(true)
            .with_crypto_provider(Arc::new(crypto::Crypto))
            .with_http_connector(connector);
        if let Some(token) = &settings.session_token {
            builder = builder.with_token(token.expose());
        }
        if let Some(endpoint) = &settings.endpoint {
            builder = builder.with_endpoint(endpoint.trim_end_matches('/'));
        }
        let held_bytes_max = settings.uploads_bytes_max.0;
        let held_kib = usize::try_from(held_bytes_max >> 10)?.min(Semaphore::MAX_PERMITS);
        Ok(Store {
            client: builder.build().map_err(OpenError::Settings)?,
            thread,
            prefix: settings.prefix.clone(),
            place: settings.in_words(),
            parallel: settings.parallel as usize,
            held_kib: Arc::new(Semaphore::new(held_kib)),
            held_bytes_max,
            looks: Mutex::default(),
            record,
            known: EtagTable::default(),
            described: Described::new(settings.listed_bytes_max.0),
            sendings: Arc::new(Semaphore::new(sending::SENDINGS_MAX)),
        })
    }

    async fn probe(&self) -> Result<(), Trouble> {
        self.page(&self.prefix, PageOf::default(), 1).await.map(|_| ())
    }

    fn trouble(&self, error: &object_store::Error, what: &str, access: Access) -> Trouble {
        trouble(error, &self.place, what, access)
    }

    fn failed(&self, error: &object_store::Error, what: &str, access: Access) -> Error {
        self.trouble(error, what, access).error
    }

    /// Returns the name of a key, and whether the metadata must hold the whole key.
    fn path(&self, key: &[u8]) -> Result<(Path, bool), Error> {
        let (name, cut) = name::name_of(key, &self.prefix);
        let path = Path::parse(&name);
        Ok((
            path.map_err(|e| {
                Error::Refused(format!("the key cannot be a name in the store: {e}"))
            })?,
            cut,
        ))
    }

    async fn head(&self, path: &Path) -> Result<Option<Head>, Error> {
        let options = GetOptions { head: true, ..GetOptions::default() };
        match self.client.get_opts(path, options).await {
            Ok(found) => {
                let metadata = self.judge_metadata(path, &found.meta, &found.attributes).await?;
                Ok(Some(Head { meta: found.meta, attributes: found.attributes, metadata }))
            }
            // The answer to a HEAD has no text: it does not say whether the object or the bucket is missing.
            Err(object_store::Error::NotFound { .. }) => {
                self.look(Instant::now()).await?;
                Ok(None)
            }
            Err(error) => Err(self.failed(&error, &format!("a look at {path}"), Access::Read)),
        }
    }

    /// The metadata of an object that was read. Remembers its etag, for a write of it that may follow. What another tool
    /// wrote and left our metadata with is that tool's object.
    async fn judge_metadata(
        &self,
        path: &Path,
        meta: &ObjectMeta,
        stored: &object_store::Attributes,
    ) -> Result<Metadata, Error> {
        let metadata = attributes::from_store(meta, stored);
        let Some(etag) = &meta.e_tag else { return Ok(metadata) };
        let seal = Seal::of_metadata(&metadata);
        match self.known.is_rewritten(path, etag, seal) {
            None => return Ok(metadata),
            Some(false) => {}
            // While a write is under way, a store that keeps metadata apart from bytes may pair those before it with the etag
            // after it (as for `consistent_head`). A second look does not find that pair again.
            Some(true) => {
                let options = GetOptions { head: true, ..GetOptions::default() };
                let again = self.client.get_opts(path, options).await;
                let again = again.map_err(|error| {
                    self.failed(&error, &format!("a look at {path}"), Access::Read)
                })?;
                let now =
                    Seal::of_metadata(&attributes::from_store(&again.meta, &again.attributes));
                if (&again.meta.e_tag, now) != (&meta.e_tag, seal) {
                    if let Some(etag) = again.meta.e_tag {
                        self.known.set(path, etag, Some(now));
                    }
                    return Ok(metadata);
                }
                warn!(
                    "another tool wrote {path} at {} and kept Concertina's metadata; it is served as that tool's object",
                    self.place
                );
            }
        }
        Ok(attributes::of_another_tool(meta, metadata))
    }

    /// Returns the metadata without bytes, for an empty range.
    async fn nothing_of(&self, path: &Path) -> Result<Option<StoredObject>, Error> {
        let head = self.head(path).await?;
        let found = |head: Head| StoredObject {
            metadata: head.metadata,
            body: Box::new(SingleChunk::new(Bytes::new())),
        };
        Ok(head.map(found))
    }

    async fn get(
        self: &Arc<Self>,
        key: &[u8],
        range: Option<Range<u64>>,
    ) -> Result<Option<StoredObject>, Error> {
        let (path, _) = self.path(key)?;
        if range.as_ref().is_some_and(|range| range.start >= range.end) {
            return self.nothing_of(&path).await;
        }
        let options = GetOptions { range: range.map(GetRange::Bounded), ..GetOptions::default() };
        let got = match self.client.get_opts(&path, options).await {
            Ok(got) => got,
            Err(error) => {
                let trouble = self.trouble(&error, &format!("a read of {path}"), Access::Read);
                return match (trouble.status, trouble.code.as_str()) {
                    (Some(404), "NoSuchBucket") => Err(trouble.error),
                    // Absent in this bucket; but is it the bucket that was opened?
                    (Some(404), _) => {
                        self.look(Instant::now()).await?;
                        Ok(None)
                    }
                    // The range begins past the end.
                    (Some(416), _) => self.nothing_of(&path).await,
                    _ => Err(trouble.error),
                };
            }
        };
        let metadata = self.judge_metadata(&path, &got.meta, &got.attributes).await?;
        let (left, whole) = (got.range.end - got.range.start, got.range == (0..metadata.size));
        let hasher = VersionHasher::for_etag(&metadata.etag).filter(|_| whole);
        let version = hasher.map(|hasher| Version {
            hasher,
            metadata: metadata.clone(),
            path: path.clone(),
            etag: got.meta.e_tag.clone(),
        });
        let body = Body { store: self.clone(), stream: got.into_stream(), left, version };
        Ok(Some(StoredObject { metadata, body: Box::new(body) }))
    }

    /// The store's own etag of an object, which its conditions compare; `None` if there is no object.
    async fn etag(&self, path: &Path) -> Result<Option<String>, Error> {
        let options = GetOptions { head: true, ..GetOptions::default() };
        match self.client.get_opts(path, options).await {
            Ok(found) => found.meta.e_tag.map(Some).ok_or_else(|| {
                let what = "the store returns no etag, which a conditional write needs";
                Error::Failed(what.to_owned())
            }),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed(&error, &format!("a look at {path}"), Access::Read)),
        }
    }

    /// Removes an object, of the version that is there now: a removal that arrives late, after a later
    /// write, is refused by stores that evaluate `If-Match` of a DELETE. Others ignore the condition.
    async fn delete(&self, key: &[u8], fence: Option<Fence>) -> Result<bool, Error> {
        let (path, _) = self.path(key)?;
        self.known.take(&path);
        let began = Instant::now();
        let mut last = None;
        for _ in 0..ORDER_ATTEMPTS {
            // The store's reply does not tell whether the object existed. Whether this is the bucket is asked beside it: a removal
            // that another bucket acknowledges is none.
            let (etag, known) = tokio::try_join!(self.etag(&path), self.look(began))?;
            let conditions = known.conditions;
            if fence.as_ref().is_some_and(|fence| !fence()) {
                return Err(last.unwrap_or_else(fenced));
            }
            let Some(etag) = etag else { return Ok(false) };
            let condition = HeaderValue::from_str(&etag).ok().filter(|_| conditions);
            let deleted = match condition {
                Some(etag) => EXTRA.scope((IF_MATCH, etag), self.client.delete(&path)).await,
                None => self.client.delete(&path).await,
            };
            let Err(error) = deleted else { return Ok(true) };
            let trouble = self.trouble(&error, &format!("a delete of {path}"), Access::Write);
            match (trouble.status, trouble.code.as_str()) {
                (Some(404), code) if code != "NoSuchBucket" => return Ok(false),
                (Some(409 | 412), _) => last = Some(trouble.error),
                _ => return Err(trouble.error),
            }
        }
        Err(Error::Failed(format!("{path} was written by others during {ORDER_ATTEMPTS} deletes")))
    }
}

/// The body of an object that is being read.
struct Body {
    store: Arc<Store>,
    stream: BoxStream<'static, object_store::Result<Bytes>>,
    left: u64,
    /// The expected version of a read of the whole object, if it is a hash. Verified at the end.
    version: Option<Version>,
}

/// What the bytes of a whole object are compared with.
struct Version {
    hasher: VersionHasher,
    metadata: Metadata,
    path: Path,
    /// The store's own.
    etag: Option<String>,
}

impl Chunks for Body {
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, Error>>> {
        Box::pin(async move {
            let piece = match self.stream.next().await {
                Some(Ok(piece)) => Ok(piece),
                Some(Err(error)) => Err(self.store.failed(&error, "a read", Access::Read)),
                None if self.left > 0 => {
                    Err(Error::Failed(format!("a read at {} broke off", self.store.place)))
                }
                None => return None,
            };
            Some(piece.and_then(|piece| self.checked(piece)))
        })
    }

    fn bytes_left(&self) -> Option<u64> {
        Some(self.left)
    }
}

impl Body {
    /// Counts and hashes a piece. Returns the last piece only if the whole matches the version.
    fn checked(&mut self, piece: Bytes) -> Result<Bytes, Error> {
        self.left = self.left.checked_sub(piece.len() as u64).ok_or_else(|| {
            Error::Damaged("the store sent more bytes than it announced".to_owned())
        })?;
        if let Some(Version { hasher, metadata, path, etag }) = &mut self.version {
            hasher.update(&piece);
            if self.left == 0 && hasher.finish(&metadata.attributes) != metadata.etag {
                // If another tool wrote it, the next read finds that tool's object.
                if let Some(etag) = etag {
                    self.store.known.mismatched(path, etag, Seal::of_metadata(metadata));
                }
                return Err(Error::Damaged(format!(
                    "the bytes at {} do not match the object's version: another tool changed them \
                     and kept our metadata, or the store damaged them; write the object again",
                    self.store.place
                )));
            }
        }
        Ok(piece)
    }
}

impl Origin for S3 {
    fn id(&self) -> Option<OriginId> {
        self.store.record.id()
    }

    fn head(&self, key: &Key) -> BoxFuture<'_, Result<Option<Metadata>, Error>> {
        let key = key.clone();
        Box::pin(async move {
            self.store.ready().await?;
            let (path, _) = self.store.path(&key)?;
            // What another bucket has under this name is not the object. The look costs a request every two seconds, beside the read.
            let (head, _) = tokio::try_join!(self.store.head(&path), self.store.look_lately())?;
            Ok(head.map(|head| head.metadata))
        })
    }

    fn get(
        &self,
        key: &Key,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<StoredObject>, Error>> {
        let key = key.clone();
        Box::pin(async move {
            self.store.ready().await?;
            // As for `head`.
            let read = self.store.get(&key, range);
            let (found, _) = tokio::try_join!(read, self.store.look_lately())?;
            Ok(found)
        })
    }

    fn stage<'a>(
        &'a self,
        key: &Key,
        attributes: Attributes,
        body: &'a mut dyn Chunks,
    ) -> BoxFuture<'a, Result<Box<dyn Staged>, Error>> {
        let key = key.clone();
        Box::pin(async move {
            // Nothing is at its place before the commit, which looks at the bucket.
            upload::stage(&self.store, &key, attributes, body).await
        })
    }

    fn delete(&self, key: &Key) -> BoxFuture<'_, Result<bool, Error>> {
        let key = key.clone();
        Box::pin(async move {
            self.store.ready().await?;
            self.store.delete(&key, None).await
        })
    }

    fn delete_fenced(&self, key: &Key, fence: Fence) -> BoxFuture<'_, Result<bool, Error>> {
        let key = key.clone();
        Box::pin(async move {
            self.store.ready().await?;
            self.store.delete(&key, Some(fence)).await
        })
    }

    fn entries(&self, range: &KeyRange, limit: usize) -> BoxFuture<'_, Result<Vec<Entry>, Error>> {
        let range = range.clone();
        Box::pin(async move {
            self.store.ready().await?;
            let entries = self.store.entries(range, limit).await?;
            // A listing of another bucket, or of one that was emptied, looks like any other: clients that synchronise would
            // remove what it lacks. So the marker is read after the last page, and not only every two seconds: one
            // request of a few bytes, where a page costs at least two.
            self.store.look(Instant::now()).await?;
            Ok(entries)
        })
    }

    fn created_unix_us(&self) -> BoxFuture<'_, Option<u64>> {
        Box::pin(self.store.created_unix_us())
    }

    fn check(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async { self.store.look_lately().await.map(|_| ()) })
    }
}
