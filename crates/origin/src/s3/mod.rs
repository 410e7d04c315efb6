//! The S3 origin: objects in a bucket of any S3-compatible store.
//!
//! *The protocol*: `signer` signs requests, `endpoint` writes their targets, `connections` keeps connections, `client` sends a request
//! and tries it again after a transient failure, `reply` tells a store's success from a stranger's, `operations` are those of S3,
//! `stored` reads the head of an object, `object_reader` its bytes. `failure` says why a request has no success, and `errors` what
//! that means to who asked. All of it is on the thread of `thread`, but for small writes, which the caller's thread makes.
//!
//! *The origin*: `name` maps keys to names, `naming` finds which of a key's names its object has, `attributes` stores our metadata with the object, `upload` sends objects (over 8 MiB in
//! parts) and keeps writes in order, `source` bounds the memory of what arrives, `sending` sends an object while it arrives, `known` are the etags that were seen last,
//! `described` the metadata of listed objects, `identity` recognises the bucket, and `list` merges the two kinds of names.

mod attributes;
mod body;
mod client;
mod connections;
mod described;
pub(super) mod endpoint;
mod errors;
mod failure;
mod identity;
mod known;
mod list;
pub(crate) mod name;
mod naming;
mod object_reader;
mod operations;
mod pieces;
mod precondition;
mod reply;
mod sending;
mod signer;
mod source;
mod store;
mod stored;
mod thread;
mod upload;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ground::origin::OriginId;
use ground::{Etag, Key};
use tokio::sync::{Mutex, OnceCell, Semaphore, mpsc};
use tracing::warn;

use super::chunks::{BoxFuture, Chunks, SingleChunk};
use super::error::{Error, OpenError};
use super::identity_record::IdentityRecord;
use super::listing::{Entry, KeyRange};
use super::metadata::{Attributes, Metadata, VersionHasher};
use super::store::{Origin, StoredObject};
use super::write::{Fence, Staged, fenced};
use crate::settings::Settings;
use client::{Attempts, Client};
use connections::Connections;
use described::Described;
use endpoint::Endpoint;
use errors::{Access, Trouble};
use failure::Failure;
use known::{EtagTable, Seal};
use list::PageOf;
use name::ObjectName;
pub use name::is_plain_prefix;
use object_reader::ObjectReader;
use operations::OpenObject;
use precondition::Precondition;
use signer::Signer;
use store::{Head, ORDER_ATTEMPTS, SENDINGS_MAX, Store};
use thread::{Thread, Worker};

/// An S3-compatible store as the origin.
pub struct S3 {
    store: Arc<Store>,
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
        let token = settings.session_token.as_ref().map(|token| token.expose());
        let signer = Signer::new(&settings.region, id, secret.expose(), token);
        let signer = signer.map_err(|_| {
            let what = "origin.session_token has characters that no header can have";
            OpenError::Settings(what.to_owned())
        })?;
        let url = settings.endpoint.clone();
        let url = url.unwrap_or_else(|| format!("https://s3.{}.amazonaws.com", settings.region));
        let endpoint = Endpoint::parse(&url, &settings.bucket, settings.allow_http);
        let endpoint =
            endpoint.map_err(|what| OpenError::Settings(format!("origin.endpoint: {what}")))?;
        let timeout = Duration::from_secs_f64(settings.timeout_s);
        let connections = Connections::new(&endpoint, timeout).map_err(OpenError::Client)?;
        let thread = Thread::start().map_err(OpenError::Thread)?;
        let held_bytes_max = settings.uploads_bytes_max.0;
        let held_kib = usize::try_from(held_bytes_max >> 10)?.min(Semaphore::MAX_PERMITS);
        Ok(Store {
            client: Arc::new(Client::new(endpoint, signer, connections, timeout)),
            thread,
            prefix: settings.prefix.clone(),
            place: settings.in_words(),
            parallel: settings.parallel as usize,
            held_kib: Arc::new(Semaphore::new(held_kib)),
            held_bytes_max,
            looks: Mutex::default(),
            record,
            known: EtagTable::default(),
            naming: OnceCell::new(),
            described: Described::new(settings.listed_bytes_max.0),
            sendings: Arc::new(Semaphore::new(SENDINGS_MAX)),
            passed_over: AtomicBool::new(false),
        })
    }

    async fn probe(&self) -> Result<(), Trouble> {
        self.page(&self.prefix, PageOf::default(), 1).await.map(|_| ())
    }

    /// Returns the metadata without bytes, for an empty range.
    async fn nothing_of(&self, name: &str) -> Result<Option<StoredObject>, Error> {
        let head = self.head(name).await?;
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
        let name = self.object_name(key).await?.text;
        if range.as_ref().is_some_and(|range| range.start >= range.end) {
            return self.nothing_of(&name).await;
        }
        let mut attempts = Attempts::new();
        let OpenObject { part, body } =
            match self.client.get(&name, range.as_ref(), &mut attempts).await {
                Ok(open) => open,
                Err(failure) => {
                    let what = format!("a read of {name}");
                    let trouble = self.trouble(&failure, &what, Access::Read);
                    return match (trouble.status, trouble.code.as_str()) {
                        (Some(404), "NoSuchBucket") => Err(trouble.error),
                        // Absent in this bucket; but is it the bucket that was opened?
                        (Some(404), _) => {
                            self.look(Instant::now()).await?;
                            Ok(None)
                        }
                        // The range begins past the end.
                        (Some(416), _) => self.nothing_of(&name).await,
                        _ => Err(trouble.error),
                    };
                }
            };
        let metadata = self.judge_metadata(&name, &part.head).await?;
        let (rest, etag) = (part.range, part.head.etag);
        let (left, whole) = (rest.end - rest.start, rest == (0..metadata.size));
        // Of an object that another tool wrote the version of its bytes may be known.
        let known = etag.as_ref().and_then(|etag| self.known.version_of_bytes(&name, etag));
        let expected = known.unwrap_or_else(|| metadata.etag.clone());
        let hasher = VersionHasher::for_etag(&expected).filter(|_| whole);
        let version = hasher.map(|hasher| Version {
            hasher,
            expected,
            metadata: metadata.clone(),
            name: name.clone(),
            etag: etag.clone(),
        });
        if let Some(version) = version.as_ref().filter(|_| left == 0) {
            // No piece will come to be compared.
            version.check(self)?;
        }
        let client = self.client.clone();
        let reader = ObjectReader { client, name, etag, body, rest, attempts };
        let (send, pieces) = mpsc::channel(object_reader::PIECES_MAX);
        let worker = Worker(tokio::spawn(reader.pump(send)));
        let body = Body { store: self.clone(), pieces, left, version, _worker: worker };
        Ok(Some(StoredObject { metadata, body: Box::new(body) }))
    }

    /// The store's own etag of an object, which its conditions compare; `None` if there is no object.
    async fn etag(&self, name: &str) -> Result<Option<String>, Error> {
        let Some(stored) = self.stored(name).await? else { return Ok(None) };
        stored.etag.map(Some).ok_or_else(|| {
            let what = "the store returns no etag, which a conditional write needs";
            Error::Failed(what.to_owned())
        })
    }

    async fn delete(&self, key: &[u8], fence: Option<Fence>) -> Result<bool, Error> {
        let ObjectName { text, shadowed, .. } = self.object_name(key).await?;
        if let Some(shadowed) = shadowed {
            // First, since it would be the object without the other.
            self.delete_named(shadowed, fence.clone()).await?;
        }
        self.delete_named(text, fence).await
    }

    /// Removes an object, of the version that is there now: a removal that arrives late, after a later
    /// write, is refused by stores that evaluate `If-Match` of a DELETE. Others ignore the condition.
    async fn delete_named(&self, name: String, fence: Option<Fence>) -> Result<bool, Error> {
        self.known.take(&name);
        let began = Instant::now();
        let mut last = None;
        for _ in 0..ORDER_ATTEMPTS {
            // The store's reply does not tell whether the object existed. Whether this is the bucket is asked beside it: a removal
            // that another bucket acknowledges is none.
            let (etag, known) = tokio::try_join!(self.etag(&name), self.look(began))?;
            if fence.as_ref().is_some_and(|fence| !fence()) {
                return Err(last.unwrap_or_else(fenced));
            }
            let Some(etag) = etag else { return Ok(false) };
            let condition = match known.conditions {
                true => Precondition::Is(etag),
                false => Precondition::None,
            };
            let deleted = self.client.delete(&name, &condition).await;
            let Err(failure) = deleted else { return Ok(true) };
            let trouble = self.trouble(&failure, &format!("a delete of {name}"), Access::Write);
            match (trouble.status, trouble.code.as_str()) {
                (Some(404), code) if code != "NoSuchBucket" => return Ok(false),
                (Some(409 | 412), _) => last = Some(trouble.error),
                _ => return Err(trouble.error),
            }
        }
        Err(Error::Failed(format!("{name} was written by others during {ORDER_ATTEMPTS} deletes")))
    }
}

/// The body of an object that is being read.
struct Body {
    store: Arc<Store>,
    pieces: mpsc::Receiver<Result<Bytes, Failure>>,
    left: u64,
    /// The expected version of a read of the whole object, if it is a hash. Verified at the end.
    version: Option<Version>,
    _worker: Worker,
}

/// What the bytes of a whole object are compared with.
struct Version {
    hasher: VersionHasher,
    expected: Etag,
    metadata: Metadata,
    name: String,
    /// The store's own.
    etag: Option<String>,
}

impl Version {
    /// Refuses bytes, all of which were hashed, that are of another version.
    fn check(&self, store: &Store) -> Result<(), Error> {
        let found = self.hasher.finish(&self.metadata.attributes);
        if found == self.expected {
            return Ok(());
        }
        // If another tool wrote it, further reads find the same bytes.
        if let Some(etag) = &self.etag {
            store.known.mismatched(&self.name, etag, Seal::of_metadata(&self.metadata), found);
        }
        Err(Error::Damaged(format!(
            "the bytes at {} do not match the object's version: they were damaged on their way or at the store, or another tool \
             changed them and kept our metadata, which the next reads show; write the object again",
            store.place
        )))
    }
}

impl Chunks for Body {
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, Error>>> {
        Box::pin(async move {
            let piece = match self.pieces.recv().await {
                Some(Ok(piece)) => Ok(piece),
                Some(Err(failure)) => Err(self.store.failed(&failure, "a read", Access::Read)),
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
        if let Some(version) = &mut self.version {
            version.hasher.update(&piece);
            if self.left == 0 {
                version.check(&self.store)?;
            }
        }
        Ok(piece)
    }
}

impl S3 {
    /// Runs an operation on the thread of the store's connections.
    fn run<T, F>(&self, operation: impl FnOnce(Arc<Store>) -> F) -> BoxFuture<'_, Result<T, Error>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        Box::pin(self.store.thread.run(operation(self.store.clone())))
    }
}

impl Origin for S3 {
    fn id(&self) -> Option<OriginId> {
        self.store.record.id()
    }

    fn head(&self, key: &Key) -> BoxFuture<'_, Result<Option<Metadata>, Error>> {
        let key = key.clone();
        self.run(async move |store: Arc<Store>| {
            store.ready().await?;
            let name = store.object_name(&key).await?.text;
            // What another bucket has under this name is not the object. The look costs a request every two seconds, beside the read.
            let (head, _) = tokio::try_join!(store.head(&name), store.look_lately())?;
            Ok(head.map(|head| head.metadata))
        })
    }

    fn get(
        &self,
        key: &Key,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<StoredObject>, Error>> {
        let key = key.clone();
        self.run(async move |store: Arc<Store>| {
            store.ready().await?;
            // As for `head`.
            let (found, _) = tokio::try_join!(store.get(&key, range), store.look_lately())?;
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
            let name = match self.store.fixed_name(&key) {
                Some(name) => name,
                None => {
                    let key = key.clone();
                    let naming = async move |store: Arc<Store>| {
                        store.ready().await?;
                        store.object_name(&key).await
                    };
                    self.run(naming).await?
                }
            };
            let target = upload::Target { key: &key, name };
            // Nothing is at its place before the commit, which looks at the bucket.
            upload::stage(&self.store, target, attributes, body).await
        })
    }

    fn delete(&self, key: &Key) -> BoxFuture<'_, Result<bool, Error>> {
        let key = key.clone();
        self.run(async move |store: Arc<Store>| {
            store.ready().await?;
            store.delete(&key, None).await
        })
    }

    fn delete_fenced(&self, key: &Key, fence: Fence) -> BoxFuture<'_, Result<bool, Error>> {
        let key = key.clone();
        self.run(async move |store: Arc<Store>| {
            store.ready().await?;
            store.delete(&key, Some(fence)).await
        })
    }

    fn entries(&self, range: &KeyRange, limit: usize) -> BoxFuture<'_, Result<Vec<Entry>, Error>> {
        let range = range.clone();
        self.run(async move |store: Arc<Store>| {
            store.ready().await?;
            let entries = store.entries(range, limit).await?;
            // A listing of another bucket, or of one that was emptied, looks like any other: clients that synchronise would
            // remove what it lacks. So the marker is read after the last page, and not only every two seconds: one
            // request of a few bytes, where a page costs at least two.
            store.look(Instant::now()).await?;
            Ok(entries)
        })
    }

    fn created_unix_us(&self) -> BoxFuture<'_, Option<u64>> {
        let created = self.run(async |store: Arc<Store>| Ok(store.created_unix_us().await));
        Box::pin(async move { created.await.ok().flatten() })
    }

    fn check(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.run(async |store: Arc<Store>| store.look_lately().await.map(|_| ()))
    }
}
