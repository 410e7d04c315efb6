//! Writes to the store. An object of up to 8 MiB stays in memory until one PUT at the commit (if its hash is known
//! before its bytes, the PUT begins earlier: [`sending`](super::sending)); a larger one is sent in parts as its bytes
//! arrive.
//!
//! The parts become an object only when the upload is completed. A dropped upload is aborted. The
//! parts that a crash leaves are removed by the bucket's lifecycle rule for incomplete uploads.

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use ::http::header::HeaderMap;
use bytes::Bytes;
use futures_util::future::{Either, select};

use super::attributes;
use super::errors::{Access, Trouble};
use super::failure::Failure;
use super::known::Seal;
use super::name::ObjectName;
use super::operations::{NewObject, UploadedPart};
use super::pieces::Payload;
use super::precondition::Precondition;
use super::sending::{Outcome, Sending};
use super::signer::Sha256;
use super::source::{PART_BYTES, Reservation, Source};
use super::store::{Head, Look, ORDER_ATTEMPTS, Store};
use crate::chunks::{BoxFuture, Chunks};
use crate::error::Error;
use crate::metadata::{Attributes, Metadata, VersionHasher, now_unix_us, version_of_sha256};
use crate::write::{Condition, Fence, Staged, fenced};

const PART_LENGTH: u64 = PART_BYTES as u64;
/// The least bytes of an object that is sent while it arrives, if its SHA-256 is known. It is not hashed a second time then: its version
/// is made of that hash, by which readers verify it. SHA-256 takes them longer than BLAKE3, 30 µs for 100 KiB; and of a
/// smaller object little is left to arrive when the store could begin: a read of the socket has up to 64 KiB, and a store that is
/// woken by a head alone, to wait again, took 200 µs longer for 66,000 bytes.
const SENT_EARLY_BYTES_MIN: u64 = 96 << 10;
/// The largest object that is sent while it arrives only if what it replaces is known: a look at that takes longer than the rest of it.
const KNOWN_BYTES_MAX: u64 = 128 << 10;
/// The largest payload that the thread that asks sends itself.
const LIGHT_BYTES_MAX: usize = 32 << 10;
/// The same if its SHA-256 is known: signing takes no longer for more bytes then, and sending 256 KiB takes some 60 µs.
const LIGHT_KNOWN_BYTES_MAX: u64 = 256 << 10;
/// When this many bytes are there that the request does not have, it begins, or gets them. Each time costs two switches between
/// threads and a system call.
const GIVEN_BYTES: usize = 32 << 10;
/// The most parts of an upload.
const PARTS_MAX: u64 = 10_000;
/// The most attempts to read consistent metadata of an object that is being written.
const LOOKS_MAX: usize = 10;

/// The object that an upload replaces.
pub struct Target<'a> {
    pub key: &'a [u8],
    pub name: ObjectName,
}

/// Receives the bytes of an upload; see [`Origin::stage`](crate::store::Origin::stage).
pub async fn stage(
    store: &Arc<Store>,
    target: Target<'_>,
    attributes: Attributes,
    body: &mut dyn Chunks,
) -> Result<Box<dyn Staged>, Error> {
    let Target { key, name: ObjectName { text: name, is_cut, shadowed } } = target;
    let key = is_cut.then_some(key);
    let must_exist = shadowed.is_some();
    if body.bytes_left().is_some_and(|bytes| bytes > PARTS_MAX * PART_BYTES as u64) {
        return Err(too_large());
    }
    let mut held = Reservation::new(store.held_kib.clone(), store.held_bytes_max);
    let (sha256, length) = (body.sha256(), body.bytes_left());
    let mut source = Source::new(body);
    let modified_unix_us = now_unix_us();
    let mut sending = None;
    let (metadata, content) =
        if let (Some(hash), Some(length @ SENT_EARLY_BYTES_MIN..=PART_LENGTH), false) =
            (sha256, length, must_exist)
        {
            let etag = version_of_sha256(&hash, &attributes);
            let headers = attributes::to_store(&etag, modified_unix_us, &attributes, key)?;
            let early = Early { sha256: hash, length, headers: &headers };
            sending = early.send(store, &name, &mut source, &mut held).await?;
            let metadata = Metadata { size: length, etag, modified_unix_us, attributes };
            let payload = source.pieces.take(PART_BYTES);
            (metadata, Content::Whole { payload, sha256, headers, _held: held })
        } else {
            let payload = source.part(&mut held, 0).await?;
            if source.is_empty() {
                let mut hasher = VersionHasher::default();
                payload.pieces().iter().for_each(|piece| hasher.update(piece));
                let (etag, size) = (hasher.finish(&attributes), payload.len() as u64);
                let headers = attributes::to_store(&etag, modified_unix_us, &attributes, key)?;
                let metadata = Metadata { size, etag, modified_unix_us, attributes };
                (metadata, Content::Whole { payload, sha256, headers, _held: held })
            } else {
                let etag = attributes::drawn_version();
                let headers = attributes::to_store(&etag, modified_unix_us, &attributes, key)?;
                let mut parts = Parts::create(store, &name, headers).await?;
                let size = parts.send_all(payload, &mut source, &mut held).await?;
                (Metadata { size, etag, modified_unix_us, attributes }, Content::Parts(parts))
            }
        };
    let store = store.clone();
    Ok(Box::new(StagedUpload { store, name, must_exist, metadata, content, sending, fence: None }))
}

/// An object whose hash and length are known before its bytes.
struct Early<'a> {
    sha256: Sha256,
    length: u64,
    headers: &'a HeaderMap,
}

impl Early<'_> {
    /// Receives all bytes, and sends all but the last pieces, which are returned with the request under way.
    async fn send(
        self,
        store: &Arc<Store>,
        name: &str,
        source: &mut Source<'_>,
        held: &mut Reservation,
    ) -> Result<Option<(Sending, Vec<Bytes>)>, Error> {
        let mut sending: Option<Sending> = None;
        let mut begun = self.length <= KNOWN_BYTES_MAX && store.known.get(name).is_none();
        // Pieces that the request has, those that others have followed, and the bytes that came since it got some.
        let (mut given, mut followed, mut waiting) = (0, 0, 0);
        let mut before = 0;
        let is_light = self.length <= LIGHT_KNOWN_BYTES_MAX && !store.client.is_encrypted();
        while source.next(held, 0).await? {
            let bytes = source.pieces.len();
            waiting += bytes - std::mem::replace(&mut before, bytes);
            // A connection to the store is not spent on a client that sends nothing.
            if waiting >= GIVEN_BYTES {
                if !std::mem::replace(&mut begun, true) {
                    let Early { sha256, length, headers } = &self;
                    let (headers, sha256) = ((*headers).clone(), *sha256);
                    let object = NewObject { payload: Payload::default(), sha256, headers };
                    sending = Sending::start(store, name, object, *length, is_light);
                }
                if let Some(sending) = &sending {
                    let pieces = source.pieces.list().get(given..followed).unwrap_or_default();
                    pieces.iter().for_each(|piece| sending.give(piece.clone()));
                    (given, waiting) = (followed, 0);
                    // The store begins its work with the first pieces. Where what sends them shares a processor with this thread, or
                    // is a task of it, it would otherwise begin when all pieces are here and hashed.
                    match is_light {
                        true => tokio::task::yield_now().await,
                        false => std::thread::yield_now(),
                    }
                }
            }
            followed = source.pieces.list().len();
        }
        if source.pieces.len() as u64 != self.length {
            let what = "the body has another length than it was announced with";
            return Err(Error::Upload(what.to_owned()));
        }
        source.pieces.flush();
        let rest = source.pieces.list().get(given..).unwrap_or_default().to_vec();
        Ok(sending.map(|sending| (sending, rest)))
    }
}

fn too_large() -> Error {
    let most = PARTS_MAX * PART_BYTES as u64;
    Error::Refused(format!("the object is larger than {most} bytes ({PARTS_MAX} parts)"))
}

/// An upload in parts. Aborted on drop unless it was completed.
struct Parts {
    store: Arc<Store>,
    name: String,
    /// What the store calls it; `None` once it is completed.
    upload_id: Option<String>,
    /// The parts that the store has.
    list: Vec<UploadedPart>,
}

impl Parts {
    async fn create(store: &Arc<Store>, name: &str, headers: HeaderMap) -> Result<Parts, Error> {
        let (of, name) = (store.clone(), name.to_owned());
        let start = async move {
            let started = of.client.start_upload(&name, headers).await;
            let what = || format!("the start of an upload of {name}");
            let upload_id = started.map_err(|e| of.failed(&e, &what(), Access::Write))?;
            Ok(Parts { store: of, name, upload_id: Some(upload_id), list: Vec::new() })
        };
        store.thread.run(start).await
    }

    /// Sends all parts, each while the next is received. Returns the number of bytes.
    async fn send_all(
        &mut self,
        first: Payload,
        source: &mut Source<'_>,
        held: &mut Reservation,
    ) -> Result<u64, Error> {
        let (mut size, mut part) = (0, first);
        for number in 1..=PARTS_MAX {
            let beside = part.len();
            size += beside as u64;
            let sent = self.send(number, part);
            let (next, ()) = tokio::try_join!(source.part(held, beside), sent)?;
            if next.len() == 0 {
                return Ok(size);
            }
            part = next;
        }
        Err(too_large())
    }

    async fn send(&mut self, number: u64, part: Payload) -> Result<(), Error> {
        let Some(upload_id) = self.upload_id.clone() else { return Ok(()) };
        let (store, name) = (self.store.clone(), self.name.clone());
        let sent = self.store.thread.run(async move {
            let sent = store.client.put_part(&name, &upload_id, number, part).await;
            let what = || format!("an upload of {name}");
            sent.map_err(|e| store.failed(&e, &what(), Access::Write))
        });
        self.list.push(sent.await?);
        Ok(())
    }

    /// Completes the upload, under a condition that the store checks.
    async fn complete(&mut self, precondition: &Precondition) -> Result<(), Failure> {
        let Some(upload_id) = &self.upload_id else { return Ok(()) };
        let Parts { store, name, list, .. } = self;
        store.client.complete_upload(name, upload_id, list, precondition).await?;
        self.upload_id = None;
        Ok(())
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        let Some(upload_id) = self.upload_id.take() else { return };
        let (store, name) = (self.store.clone(), std::mem::take(&mut self.name));
        self.store.thread.handle().spawn(async move {
            if let Err(failure) = store.client.abort_upload(&name, &upload_id).await {
                let what = format!("the abort of an upload of {name}");
                let error = store.failed(&failure, &what, Access::Write);
                tracing::warn!(
                    "an upload could not be aborted, and its parts are left to the bucket's \
                     lifecycle rule: {error}"
                );
            }
        });
    }
}

enum Content {
    Whole {
        payload: Payload,
        /// That of the payload, if it is known.
        sha256: Option<Sha256>,
        /// The content type, and our metadata.
        headers: HeaderMap,
        _held: Reservation,
    },
    Parts(Parts),
}

/// A write whose bytes have all been received.
struct StagedUpload {
    store: Arc<Store>,
    name: String,
    /// Whether nothing is written under the name where no object is: it is that of an object of version 1.0.0, and a process that
    /// starts when that has been removed looks for the key under another (`naming`).
    must_exist: bool,
    metadata: Metadata,
    content: Content,
    /// The request that is under way, and the last pieces, which it lacks.
    sending: Option<(Sending, Vec<Bytes>)>,
    fence: Option<Fence>,
}

impl Staged for StagedUpload {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn fence(&mut self, fence: Fence) {
        self.fence = Some(fence);
    }

    fn commit(
        self: Box<Self>,
        condition: Option<Condition>,
    ) -> BoxFuture<'static, Result<(), Error>> {
        let store = self.store.clone();
        let is_light = self.is_light();
        let commit = async move { self.make(condition).await };
        Box::pin(async move {
            match is_light {
                true => commit.await,
                // On the thread as a whole: it crosses over once, not with each request.
                false => store.thread.run(commit).await,
            }
        })
    }
}

/// A write that was made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Made {
    /// In the bucket that was opened.
    There,
    /// In the bucket that answered.
    Somewhere,
}

impl Made {
    fn new(is_proof: bool) -> Made {
        if is_proof { Made::There } else { Made::Somewhere }
    }
}

/// What became of a request that was under way.
enum Finished {
    /// It made the write.
    Made(Made),
    /// It did not, nor will it.
    NotMade,
    /// Nobody knows.
    Unknown(Error),
}

impl StagedUpload {
    /// Whether the thread that asks makes the write itself: to sign and to send so little takes about as long as to cross over to
    /// the store's thread and back. Long bodies and TLS, whose handshakes take a millisecond, would delay the others that it serves.
    fn is_light(&self) -> bool {
        match &self.content {
            Content::Whole { payload, sha256, .. } => {
                let is_known = sha256.is_some() && payload.len() as u64 <= LIGHT_KNOWN_BYTES_MAX;
                (is_known || payload.len() <= LIGHT_BYTES_MAX) && !self.store.client.is_encrypted()
            }
            Content::Parts(_) => false,
        }
    }

    /// Makes the write, in the bucket that was opened: what another bucket acknowledges is not a write, and a look of two seconds
    /// ago does not say which one this is.
    ///
    /// A write that names the etag of an object that was in the right bucket needs no look: an emptied bucket or another one does
    /// not have that object, and refuses. (A copy of the bucket that has the same bytes under the same key does not refuse; it is noticed
    /// within two seconds.) For all others the look is beside the write, not before it: it costs no time, and writes
    /// that come together share one.
    async fn make(mut self: Box<Self>, condition: Option<Condition>) -> Result<(), Error> {
        let (store, began) = (self.store.clone(), Instant::now());
        let lately = store.look_lately().await?;
        let names_etag = lately.conditions && condition.is_none();
        let expects_proof = names_etag && store.known.proves(&self.name, lately.began);
        if expects_proof {
            if self.write(condition, lately).await? == Made::Somewhere {
                store.look(began).await?;
            }
        } else {
            let (write, look) = (pin!(self.write(condition, lately)), pin!(store.look(began)));
            // A write that failed does not wait for the look; one that was sent is not given up because of it.
            match select(write, look).await {
                Either::Left((written, look)) => {
                    written?;
                    look.await?;
                }
                Either::Right((looked, write)) => {
                    write.await?;
                    looked?;
                }
            }
        }
        store.known.acknowledge(&self.name, Seal::of_metadata(&self.metadata));
        Ok(())
    }

    async fn write(&mut self, condition: Option<Condition>, lately: Look) -> Result<Made, Error> {
        let conditions = lately.conditions;
        // A caller's condition is judged at the commit, and sent with the whole.
        let sending = self.sending.take().filter(|_| condition.is_none());
        // Where the store evaluates conditions, a write that is sent as a whole asks after each look.
        let asks = sending.is_some() || (condition.is_none() && !conditions);
        let may = |it: &StagedUpload| it.fence.as_ref().is_none_or(|fence| fence());
        if asks && !may(self) {
            return Err(fenced());
        }
        // What the request under way came to, where it may have been carried out.
        let mut unknown = None;
        if let Some((sending, rest)) = sending {
            match self.finish(sending, rest).await? {
                Finished::Made(made) => return Ok(made),
                Finished::NotMade => {}
                Finished::Unknown(error) => unknown = Some(error),
            }
            if !conditions && !may(self) {
                return Err(unknown.unwrap_or_else(fenced));
            }
        }
        match condition {
            Some(condition) => self.write_if(condition).await?,
            None if conditions => return self.write_in_order(unknown, lately).await,
            None => match self.send(Precondition::None).await {
                Ok(()) => {}
                Err(trouble) => {
                    settle(&self.store, &self.name, &self.metadata, None, trouble).await?;
                }
            },
        }
        Ok(Made::Somewhere)
    }

    /// Completes the request under way. If it has not made the write, that is to be made with another request: this one named
    /// what is there no more, the store did not want to wait for the body, or the reply was lost.
    async fn finish(&mut self, sending: Sending, rest: Vec<Bytes>) -> Result<Finished, Error> {
        self.store.known.take(&self.name);
        match sending.finish(rest).await {
            Outcome::Written { etag, is_proof } => {
                if let Some(etag) = etag {
                    self.store.known.set(&self.name, etag, Some(Seal::of_metadata(&self.metadata)));
                }
                Ok(Finished::Made(Made::new(is_proof)))
            }
            Outcome::NotSent => Ok(Finished::NotMade),
            Outcome::Failed(failure) => {
                let what = format!("a write of {}", self.name);
                let trouble = self.store.trouble(&failure, &what, Access::Write);
                match (trouble.status, trouble.error) {
                    // It may still be carried out, and must not be sent again.
                    (_, error @ Error::TimedOut(_)) => Err(error),
                    (Some(400..500), _) => Ok(Finished::NotMade),
                    (_, error) => Ok(Finished::Unknown(error)),
                }
            }
        }
    }

    /// Writes under a caller's condition, which names our version. The store compares its own etag,
    /// which a HEAD returns.
    async fn write_if(&mut self, condition: Condition) -> Result<(), Error> {
        let mut precondition = Precondition::Absent;
        let parts = matches!(self.content, Content::Parts(_));
        if parts || self.must_exist || matches!(condition, Condition::Is(_)) {
            let head = consistent_head(&self.store, &self.name).await?;
            condition.judge(head.as_ref().map(|head| &head.metadata))?;
            self.check_existence(head.is_some())?;
            if let Some(head) = head {
                let missing = || {
                    let what = "the store returns no etag, which a conditional write needs";
                    Error::Failed(what.to_owned())
                };
                precondition = Precondition::Is(head.stored.etag.ok_or_else(missing)?);
            }
        }
        match self.send(precondition).await {
            Ok(()) => Ok(()),
            Err(trouble) => {
                settle(&self.store, &self.name, &self.metadata, Some(condition), trouble).await
            }
        }
    }

    /// Replaces whatever is there, but only what is there *now*: the write names the store's etag that was just
    /// read, or the one that this process saw last (of a write or a read); the store refuses the latter if others wrote since, and
    /// then the etag is read. If this request is delayed on its way (its process died, or sent it again) until after
    /// a later write, its condition does not hold any more and the store refuses it. `last`: what an earlier request came to
    /// that may have been carried out.
    async fn write_in_order(
        &mut self,
        mut last: Option<Error>,
        lately: Look,
    ) -> Result<Made, Error> {
        // An upload in parts cannot be completed a second time after a refusal.
        let whole = matches!(self.content, Content::Whole { .. });
        let seen = self.store.known.take(&self.name).filter(|_| whole);
        let mut is_proof = seen.as_ref().is_some_and(|seen| seen.proves(lately.began));
        let mut known = seen.map(|seen| seen.etag);
        for _ in 0..ORDER_ATTEMPTS {
            let etag = match known.take() {
                Some(etag) => Some(etag),
                None => self.store.etag(&self.name).await?,
            };
            self.check_existence(etag.is_some())?;
            if self.fence.as_ref().is_some_and(|fence| !fence()) {
                // A request before this one may have been carried out, and overtaken since.
                return Err(last.unwrap_or_else(fenced));
            }
            let Err(trouble) = self.send(Precondition::unchanged(etag)).await else {
                return Ok(Made::new(is_proof));
            };
            // What is named from here on was seen in the bucket that answers.
            is_proof = false;
            let changed = matches!(trouble.status, Some(304 | 404 | 409 | 412));
            // What the store can never take does not become possible with another etag, though the status is the same. (A folder
            // in the place of an object may go: stores that keep objects as files remove empty ones late.)
            let never = trouble.error.is_refusal() && trouble.code != "ExistingObjectIsDirectory";
            if !changed || never || trouble.code == "NoSuchBucket" {
                return Err(trouble.error);
            }
            // The store has refused it, or has done it already and the reply was lost.
            let head = self.store.head(&self.name).await?;
            if head.as_ref().is_some_and(|head| head.metadata == self.metadata) {
                return Ok(Made::Somewhere);
            }
            last = Some(trouble.error);
            if matches!(self.content, Content::Parts(_)) {
                break;
            }
            // What was seen is what the next attempt replaces; without an object the store is asked again.
            known = head.and_then(|head| head.stored.etag);
        }
        if let Some(refused) = last.take_if(|last| last.is_refusal()) {
            // The folder in its place did not go: nobody else wrote.
            return Err(refused);
        }
        let told = last.map_or_else(String::new, |error| format!(" ({error})"));
        let name = &self.name;
        Err(Error::Failed(format!("others wrote {name} meanwhile: write it again{told}")))
    }

    fn check_existence(&self, exists: bool) -> Result<(), Error> {
        if exists || !self.must_exist {
            return Ok(());
        }
        let name = &self.name;
        Err(Error::Failed(format!("others removed {name} meanwhile: write the object again")))
    }

    /// Sends the write once.
    async fn send(&mut self, precondition: Precondition) -> Result<(), Trouble> {
        let StagedUpload { store, name, content, metadata, .. } = self;
        let written = match content {
            Content::Whole { payload, sha256, headers, .. } => {
                let sha256 = *sha256.get_or_insert_with(|| payload.sha256());
                let (payload, headers) = (payload.clone(), headers.clone());
                let object = NewObject { payload, sha256, headers };
                store.client.put(name, object, &precondition).await
            }
            Content::Parts(parts) => parts.complete(&precondition).await.map(|()| None),
        };
        let what = || format!("a write of {name}");
        let etag = written.map_err(|it| store.trouble(&it, &what(), Access::Write))?;
        if let Some(etag) = etag {
            store.known.set(name, etag, Some(Seal::of_metadata(metadata)));
        }
        Ok(())
    }
}

/// Reads an object's metadata until two consecutive reads agree.
///
/// A store that keeps metadata apart from the bytes (`versitygw` does) may return our version from
/// before a concurrent write together with its own etag from after it. A condition based on that
/// pair would overwrite the concurrent write.
async fn consistent_head(store: &Store, name: &str) -> Result<Option<Head>, Error> {
    let mut before = store.head(name).await?;
    for _ in 0..LOOKS_MAX {
        let now = store.head(name).await?;
        let known = |head: &Option<Head>| {
            head.as_ref().map(|head| (head.metadata.clone(), head.stored.etag.clone()))
        };
        if known(&before) == known(&now) {
            return Ok(now);
        }
        before = now;
    }
    Err(Error::Condition("the object is being written".to_owned()))
}

/// Determines the result of a write that got an error reply.
///
/// If a reply was lost and the request retried, the store may report that the object exists
/// already, or that the upload no longer exists. The write has then succeeded if the stored object
/// is ours.
async fn settle(
    store: &Store,
    name: &str,
    metadata: &Metadata,
    condition: Option<Condition>,
    trouble: Trouble,
) -> Result<(), Error> {
    let answered = matches!(trouble.status, Some(304 | 404 | 409 | 412));
    if !answered || trouble.error.is_refusal() || trouble.code == "NoSuchBucket" {
        return Err(trouble.error);
    }
    let head = store.head(name).await?;
    if head.as_ref().is_some_and(|head| head.metadata == *metadata) {
        return Ok(());
    }
    match (condition, trouble.status) {
        (Some(condition), Some(304 | 412 | 404)) => {
            condition.judge(head.as_ref().map(|head| &head.metadata))?;
            // The condition holds now, but did not when the store checked it.
            Err(Error::Condition("another write came between".to_owned()))
        }
        _ => Err(trouble.error),
    }
}
