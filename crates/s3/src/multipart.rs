//! Uploads in parts.
//!
//! Parts are objects of the origin whose keys begin with [`HIDDEN`](super::hidden::HIDDEN); they pass by all caches. Completing an
//! upload writes their concatenation as one PUT through the node or gateway behind, so that it is ordered
//! and seen as any other write, and then removes them. So any origin will do, any process may take any part,
//! and nothing is lost with a process; the price is that the bytes pass twice. Parts of uploads that are
//! neither completed nor aborted stay: `ListMultipartUploads` shows them.
//!
//! Here an upload begins and is aborted; its parts are in [`upload_parts`](super::upload_parts), its end in
//! [`completion`](super::completion).

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use ground::Key;
use http::header::CONTENT_TYPE;
use origin::{Attributes, Chunks, Error, Listed, Metadata, Origin, SingleChunk};
use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, CreateMultipartUploadInput,
    CreateMultipartUploadOutput,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use serde::{Deserialize, Serialize};

use super::errors::of_origin;
use super::headers;
use super::hidden::BEGUN;
use super::inner::Inner;
use super::messages::NO_SUCH_UPLOAD;
use super::objects::plain_write;
use super::tags::Tags;
use super::upload_checksum::UploadChecksum;
use device::object::META_PREFIX;

/// Requests to the origin at a time, while parts are removed.
const PARALLEL: usize = 16;
/// The largest description of an upload.
const BEGUN_BYTES_MAX: usize = 64 << 10;

/// The mark of the completion that an object's metadata name.
pub fn named_mark(attributes: &Attributes) -> Option<&str> {
    let name = headers::parts(attributes)?.strip_prefix('@')?;
    let plain = name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then_some(name)
}

/// What an upload will make.
#[derive(Serialize, Deserialize)]
pub struct UploadDescription {
    bucket: String,
    key: String,
    /// Type and metadata.
    headers: Vec<(String, String)>,
    /// Algorithm and type of the checksum, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checksum: Option<String>,
}

impl UploadDescription {
    /// The checksum that the object gets.
    pub fn checksum(&self) -> Option<UploadChecksum> {
        self.checksum.as_deref().and_then(UploadChecksum::of_words)
    }

    /// Type and metadata of the object.
    pub fn attributes(self) -> Attributes {
        attributes_of(self.headers)
    }
}

fn no_such_upload() -> S3Error {
    S3Error::with_message(S3ErrorCode::NoSuchUpload, NO_SUCH_UPLOAD)
}

/// The key of an upload's description.
///
/// # Errors
///
/// `NoSuchUpload` for what cannot be the id of an upload.
pub fn begun_key(upload: &str) -> S3Result<Key> {
    let plain = upload.len() == 32
        && upload.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if !plain {
        return Err(no_such_upload());
    }
    Ok(Key::from(format!("{BEGUN}{upload}").into_bytes()))
}

/// A name as it stands in metadata: escaped, or in base64 behind `=` where that is shorter. S3's stores take 2 KiB of metadata,
/// and a key of 1,024 bytes would be three times as long.
pub fn encoded(text: &str) -> String {
    let escaped = store::escaped(text.as_bytes());
    let other = format!("={}", BASE64.encode(text));
    if other.len() < escaped.len() { other } else { escaped }
}

/// The name that [`encoded`] has made such.
pub fn decoded(text: &str) -> String {
    match text.strip_prefix('=').map(|text| BASE64.decode(text)) {
        Some(Ok(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
        _ => percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned(),
    }
}

impl Inner {
    pub(super) async fn within_timeout<T>(
        &self,
        request: impl Future<Output = Result<T, Error>>,
    ) -> S3Result<T> {
        let done = origin::within(self.timeout, "a request", request).await;
        done.map_err(|error| of_origin(&error))
    }

    /// Writes an object of the origin that no cache has.
    pub(super) async fn keep(
        &self,
        key: &Key,
        attributes: Attributes,
        body: &mut dyn Chunks,
    ) -> S3Result<Metadata> {
        let staged = self.store.origin().stage(key, attributes, body).await;
        let staged = staged.map_err(|error| of_origin(&error))?;
        let metadata = staged.metadata().clone();
        self.within_timeout(staged.commit(None)).await?;
        Ok(metadata)
    }

    /// What an upload will make; `NoSuchUpload` if it is not one of this key.
    pub(super) async fn description_of(
        &self,
        upload: &str,
        bucket: &str,
        key: &str,
    ) -> S3Result<UploadDescription> {
        let found = self.within_timeout(self.store.origin().get(&begun_key(upload)?, None)).await?;
        let mut body = found.ok_or_else(no_such_upload)?.body;
        let mut text = Vec::new();
        while let Some(piece) = body.next().await {
            text.extend_from_slice(&piece.map_err(|error| of_origin(&error))?);
            if text.len() > BEGUN_BYTES_MAX {
                return Err(no_such_upload());
            }
        }
        let begun: UploadDescription =
            serde_json::from_slice(&text).map_err(|_| no_such_upload())?;
        if begun.bucket == bucket && begun.key == key { Ok(begun) } else { Err(no_such_upload()) }
    }

    pub(super) async fn create(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        let input = request.input;
        let acl = input.acl.as_ref().is_some_and(|acl| acl.as_str() != "private");
        plain_write(&request.headers, acl)?;
        self.key(&input.bucket, &input.key)?;
        let (algorithm, kind) = (input.checksum_algorithm.as_ref(), input.checksum_type.as_ref());
        let checksum = UploadChecksum::of_request(algorithm, kind)?;
        let mut kept = headers::attributes_of(&request.headers)?;
        headers::keep_tags(&mut kept, &Tags::of_request(&request.headers)?);
        let begun = UploadDescription {
            bucket: input.bucket.clone(),
            key: input.key.clone(),
            headers: pairs_of(kept),
            checksum: checksum.map(UploadChecksum::words),
        };
        // In the order of time, in which uploads of one key are listed.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let upload = format!("{:016x}{:016x}", since.as_micros() as u64, rand::random::<u64>());
        let text = serde_json::to_vec(&begun).map_err(S3Error::internal_error)?;
        let mut user = vec![("bucket".to_owned(), encoded(&input.bucket))];
        user.extend(checksum.map(|checksum| ("checksum".to_owned(), encoded(&checksum.words()))));
        user.push(("key".to_owned(), encoded(&input.key)));
        let attributes = Attributes { content_type: None, user };
        self.keep(&begun_key(&upload)?, attributes, &mut SingleChunk::new(Bytes::from(text)))
            .await?;
        Ok(S3Response::new(CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(upload),
            checksum_algorithm: checksum.map(UploadChecksum::name),
            checksum_type: checksum.map(UploadChecksum::kind),
            ..CreateMultipartUploadOutput::default()
        }))
    }

    pub(super) async fn abort(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        let input = request.input;
        self.bucket(&input.bucket)?;
        self.description_of(&input.upload_id, &input.bucket, &input.key).await?;
        let origin = self.store.origin().clone();
        self.within_timeout(origin.delete(&begun_key(&input.upload_id)?)).await?;
        let parts = self.objects_of(&input.upload_id).await?;
        remove(&origin, parts).await;
        Ok(S3Response::new(AbortMultipartUploadOutput::default()))
    }
}

/// Type and metadata as the description of an upload has them: as headers of HTTP's.
fn pairs_of(attributes: Attributes) -> Vec<(String, String)> {
    let content_type = attributes.content_type.map(|text| (CONTENT_TYPE.to_string(), text));
    let user = attributes.user.into_iter();
    let user = user.map(|(name, text)| (format!("{META_PREFIX}{name}"), text));
    content_type.into_iter().chain(user).collect()
}

/// What [`pairs_of`] has described.
fn attributes_of(pairs: Vec<(String, String)>) -> Attributes {
    let mut attributes = Attributes::default();
    for (name, text) in pairs {
        match name.strip_prefix(META_PREFIX) {
            Some(name) => attributes.user.push((name.to_owned(), text)),
            None => attributes.content_type = Some(text),
        }
    }
    attributes
}

/// Removes parts. One that stays is only space in the origin.
pub async fn remove(origin: &Arc<dyn Origin>, parts: Vec<Listed>) {
    let removals = stream::iter(parts).map(|part| async move {
        if let Err(error) = origin.delete(&part.key).await {
            tracing::warn!("a part of an upload that has ended stays in the origin: {error}");
        }
    });
    removals.buffer_unordered(PARALLEL).for_each(|()| std::future::ready(())).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_metadata_come_back_and_are_short() {
        let long = "ü/日本".repeat(111);
        for name in ["", "a b/c", "=YQ==", "%41", "größe", &long] {
            let text = encoded(name);
            assert!(text.is_ascii() && text.len() <= 1400, "{text}");
            assert_eq!(decoded(&text), name);
        }
        // As earlier versions wrote it.
        assert_eq!(decoded("gr%C3%B6%C3%9Fe"), "größe");
    }

    #[test]
    fn only_marks_are_names() {
        let named = |text: &str| {
            let mut attributes = Attributes::default();
            headers::keep_parts(&mut attributes, text);
            named_mark(&attributes).map(str::to_owned)
        };
        let id = "0123456789abcdef0123456789abcdef";
        assert_eq!(named(&format!("@{id}")).as_deref(), Some(id));
        for other in ["5,3", "@", "@../../x", &format!("@{id}0"), id] {
            assert_eq!(named(other), None, "{other}");
        }
    }
}
