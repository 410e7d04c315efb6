//! Uploads in parts.
//!
//! Parts are objects of the origin whose keys begin with [`HIDDEN`]; they pass by all caches. Completing an
//! upload writes their concatenation as one PUT through the node or gateway behind, so that it is ordered
//! and seen as any other write, and then removes them. So any origin will do, any process may take any part,
//! and nothing is lost with a process; the price is that the bytes pass twice. Parts of uploads that are
//! neither completed nor aborted stay: `ListMultipartUploads` shows them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use ground::Key;
use http::header::{CONTENT_RANGE, CONTENT_TYPE, HOST};
use origin::{Attributes, BoxFuture, Chunks, Error, Listed, Metadata, Origin, SingleChunk};
use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, Checksum, CompleteMultipartUploadInput,
    CompleteMultipartUploadOutput, CompletedPart, CopyPartResult, CreateMultipartUploadInput,
    CreateMultipartUploadOutput, ETag, ListPartsInput, ListPartsOutput, Part, StorageClass,
    UploadPartCopyInput, UploadPartCopyOutput, UploadPartInput, UploadPartOutput,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use serde::{Deserialize, Serialize};

use super::asked::copied_range;
use super::completed::{Stated, Verified};
use super::errors::of_origin;
use super::listing::{max_of, not_negative, time};
use super::messages::{
    INVALID_PART, MALFORMED_XML, NO_SUCH_UPLOAD, PART_NUMBER, PART_ORDER, TOO_SMALL, error,
};
use super::objects::{Sent, Upload, lane_of, plain_write};
use super::tags::Tags;
use super::{Inner, headers, repeated};
use device::object::META_PREFIX;
use wire::body;
use wire::body::{Budget, RequestBody};
use wire::lane::ThreadRecorder;
use wire::pace::Pace;

/// How the keys of parts begin. S3's clients neither see nor reach such keys.
pub const HIDDEN: &[u8] = b"!s3/";
/// How the key of an upload begins.
pub const BEGUN: &str = "!s3/begun/";
/// How the keys of its parts begin.
pub const PARTS: &str = "!s3/parts/";
/// The highest number of a part.
const PARTS_MAX: i32 = 10_000;
/// The least bytes of a part that is not the last.
const PART_BYTES_MIN: u64 = 5 << 20;
/// Requests to the origin at a time, while parts are removed.
const PARALLEL: usize = 16;
/// The largest description of an upload.
const BEGUN_BYTES_MAX: usize = 64 << 10;

/// Whether a key is one of a part's.
pub fn is_hidden(key: &[u8]) -> bool {
    key.starts_with(HIDDEN)
}

/// What an upload will make.
#[derive(Serialize, Deserialize)]
struct UploadDescription {
    bucket: String,
    key: String,
    /// Type and metadata.
    headers: Vec<(String, String)>,
}

fn no_such_upload() -> S3Error {
    S3Error::with_message(S3ErrorCode::NoSuchUpload, NO_SUCH_UPLOAD)
}

fn part_key(upload: &str, number: i32) -> Key {
    Key::from(format!("{PARTS}{upload}/{number:05}").into_bytes())
}

fn begun_key(upload: &str) -> S3Result<Key> {
    let plain = upload.len() == 32
        && upload.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if !plain {
        return Err(no_such_upload());
    }
    Ok(Key::from(format!("{BEGUN}{upload}").into_bytes()))
}

fn number_of(listed: &Listed) -> Option<i32> {
    std::str::from_utf8(&listed.key).ok()?.rsplit('/').next()?.parse().ok()
}

fn etag_of(metadata: &Metadata) -> ETag {
    ETag::Strong(headers::etag(&metadata.etag))
}

/// A name as it stands in metadata: escaped, or in base64 behind `=` where that is shorter. S3's stores take 2 KiB of metadata,
/// and a key of 1,024 bytes would be three times as long.
fn encoded(text: &str) -> String {
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

/// The parts of an upload, one after another.
struct Joined {
    origin: Arc<dyn Origin>,
    parts: VecDeque<Listed>,
    current: Option<Box<dyn Chunks>>,
    left: u64,
}

impl Joined {
    async fn piece(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            if let Some(current) = &mut self.current {
                if let Some(piece) = current.next().await.transpose()? {
                    self.left = self.left.saturating_sub(piece.len() as u64);
                    return Ok(Some(piece));
                }
                self.current = None;
            }
            let Some(part) = self.parts.pop_front() else { return Ok(None) };
            match self.origin.get(&part.key, None).await? {
                Some(found) if found.metadata.etag == part.metadata.etag => {
                    self.current = Some(found.body);
                }
                _ => return Err(Error::Failed("a part was replaced meanwhile".to_owned())),
            }
        }
    }
}

impl Chunks for Joined {
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, Error>>> {
        Box::pin(async move { self.piece().await.transpose() })
    }
    fn bytes_left(&self) -> Option<u64> {
        Some(self.left)
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
    async fn keep(
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
    async fn description_of(
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

    /// The parts of an upload after one, in order, at most `max`.
    async fn parts(&self, upload: &str, after: i32, max: usize) -> S3Result<Vec<Listed>> {
        let prefix = format!("{PARTS}{upload}/");
        let mut after = part_key(upload, after.clamp(0, 99_999)).to_vec();
        let mut all = Vec::new();
        while all.len() < max {
            let limit = (max - all.len()).min(1000);
            let listing = self.store.origin().list(prefix.as_bytes(), Some(&after), limit);
            let page = self.within_timeout(listing).await?;
            let last = page.len() < limit;
            if let Some(one) = page.last() {
                after = one.key.to_vec();
            }
            all.extend(page);
            if last {
                break;
            }
        }
        Ok(all)
    }

    pub(super) async fn create(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        let input = request.input;
        let acl = input.acl.as_ref().is_some_and(|acl| acl.as_str() != "private");
        plain_write(&request.headers, acl)?;
        self.key(&input.bucket, &input.key)?;
        let mut kept = headers::attributes_of(&request.headers)?;
        headers::keep_tags(&mut kept, &Tags::of_request(&request.headers)?);
        let begun = UploadDescription {
            bucket: input.bucket.clone(),
            key: input.key.clone(),
            headers: pairs_of(kept),
        };
        // In the order of time, in which uploads of one key are listed.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let upload = format!("{:016x}{:016x}", since.as_micros() as u64, rand::random::<u64>());
        let text = serde_json::to_vec(&begun).map_err(S3Error::internal_error)?;
        let user = vec![
            ("bucket".to_owned(), encoded(&input.bucket)),
            ("key".to_owned(), encoded(&input.key)),
        ];
        let attributes = Attributes { content_type: None, user };
        self.keep(&begun_key(&upload)?, attributes, &mut SingleChunk::new(Bytes::from(text)))
            .await?;
        Ok(S3Response::new(CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(upload),
            checksum_algorithm: input.checksum_algorithm,
            checksum_type: input.checksum_type,
            ..CreateMultipartUploadOutput::default()
        }))
    }

    async fn keep_part(
        &self,
        upload: &str,
        number: i32,
        body: Box<dyn Chunks>,
    ) -> S3Result<Metadata> {
        let pace = Pace::from_settings(&self.store.front().config.serve);
        let mut paced = body::Upload::new(RequestBody::Stream(body), pace, 0, Budget::new(0));
        self.keep(&part_key(upload, number), Attributes::default(), &mut paced).await
    }

    pub(super) async fn part(
        &self,
        request: S3Request<UploadPartInput>,
    ) -> S3Result<S3Response<UploadPartOutput>> {
        let input = request.input;
        number(input.part_number)?;
        self.key(&input.bucket, &input.key)?;
        self.description_of(&input.upload_id, &input.bucket, &input.key).await?;
        let upload = Upload {
            body: input.body,
            length: input.content_length,
            md5: input.content_md5,
            checksum: Checksum {
                checksum_crc32: input.checksum_crc32,
                checksum_crc32c: input.checksum_crc32c,
                checksum_crc64nvme: input.checksum_crc64nvme,
                checksum_sha1: input.checksum_sha1,
                checksum_sha256: input.checksum_sha256,
                checksum_type: None,
            },
            trailers: request.trailing_headers,
            is_verified: true,
        };
        let (checked, _) = upload.checked(&request.headers)?;
        let verdict = checked.verdict();
        let kept = self.keep_part(&input.upload_id, input.part_number, Box::new(checked)).await;
        let metadata = kept.map_err(|error| verdict.or(error))?;
        let checksum = verdict.checksum();
        Ok(S3Response::new(UploadPartOutput {
            e_tag: Some(etag_of(&metadata)),
            checksum_crc32: checksum.checksum_crc32,
            checksum_crc32c: checksum.checksum_crc32c,
            checksum_crc64nvme: checksum.checksum_crc64nvme,
            checksum_sha1: checksum.checksum_sha1,
            checksum_sha256: checksum.checksum_sha256,
            ..UploadPartOutput::default()
        }))
    }

    pub(super) async fn part_copy(
        &self,
        request: S3Request<UploadPartCopyInput>,
    ) -> S3Result<S3Response<UploadPartCopyOutput>> {
        let input = &request.input;
        number(input.part_number)?;
        self.key(&input.bucket, &input.key)?;
        self.description_of(&input.upload_id, &input.bucket, &input.key).await?;
        let range = input.copy_source_range.as_deref();
        let ends = range.map(copied_range).transpose()?;
        let answer = self.source(&request, &input.copy_source, range).await;
        let outside = |size: &str| {
            let what = format!("Range specified is not valid for source object of size: {size}");
            error(S3ErrorCode::InvalidArgument, what)
        };
        let answer = match answer {
            Err(error) if *error.code() == S3ErrorCode::InvalidRange => {
                let range = error.headers().and_then(|it| it.get(CONTENT_RANGE)?.to_str().ok());
                return Err(outside(
                    range.and_then(|it| it.rsplit('/').next()).unwrap_or("unknown"),
                ));
            }
            answer => answer?,
        };
        // A range that ends behind the object would be cut, and is an error at AWS.
        let length = Some(answer.length());
        if ends.is_some_and(|(first, last)| length != (last - first).checked_add(1)) {
            return Err(outside(&answer.version.size.to_string()));
        }
        let body = match answer.sent() {
            Sent::Stream(body) => body,
            Sent::Whole(bytes) => Box::new(SingleChunk::new(bytes)),
        };
        let metadata = self.keep_part(&input.upload_id, input.part_number, body).await?;
        let result = CopyPartResult {
            e_tag: Some(etag_of(&metadata)),
            last_modified: Some(time(metadata.modified_unix_us)),
            ..CopyPartResult::default()
        };
        Ok(S3Response::new(UploadPartCopyOutput {
            copy_part_result: Some(result),
            ..UploadPartCopyOutput::default()
        }))
    }

    /// The parts that a client names, as they are.
    async fn named(&self, upload: &str, named: Vec<CompletedPart>) -> S3Result<VecDeque<Listed>> {
        let invalid = || S3Error::with_message(S3ErrorCode::InvalidPart, INVALID_PART);
        if named.is_empty()
            || named.iter().any(|part| part.e_tag.is_none() || part.part_number.is_none())
        {
            return Err(S3Error::with_message(S3ErrorCode::MalformedXML, MALFORMED_XML));
        }
        for part in &named {
            number(part.part_number.unwrap_or(0))?;
        }
        if !named.is_sorted_by(|a, b| a.part_number < b.part_number) {
            return Err(S3Error::with_message(S3ErrorCode::InvalidPartOrder, PART_ORDER));
        }
        let there = self.parts(upload, 0, PARTS_MAX as usize).await?;
        let mut there = there.into_iter().filter_map(|part| Some((number_of(&part)?, part)));
        let (mut parts, last) = (VecDeque::new(), named.len() - 1);
        for (at, part) in named.into_iter().enumerate() {
            let number = part.part_number.unwrap_or(0);
            // Parts that are not named are left out.
            let found = there.find(|(of, _)| *of >= number).filter(|(of, _)| *of == number);
            let (_, found) = found.ok_or_else(invalid)?;
            let etag = part.e_tag.as_ref().map(ETag::value);
            if etag.is_some_and(|etag| headers::our_etag(etag) != &*found.metadata.etag) {
                return Err(invalid());
            }
            if at < last && found.metadata.size < PART_BYTES_MIN {
                return Err(S3Error::with_message(S3ErrorCode::EntityTooSmall, TOO_SMALL));
            }
            parts.push_back(found);
        }
        Ok(parts)
    }

    pub(super) async fn complete(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let (bucket, key) = (request.input.bucket.clone(), request.input.key.clone());
        let upload = request.input.multipart_upload.as_ref();
        let parts = upload.and_then(|upload| upload.parts.as_deref()).unwrap_or_default();
        let mark = repeated::mark(&request.input.upload_id, parts);
        let lane = lane_of(&request.extensions)?;
        let host = request.headers.get(HOST).and_then(|host| host.to_str().ok());
        let encrypted = self.store.front().config.serve.tls_certificate.is_some();
        let scheme = if encrypted { "https" } else { "http" };
        let address = host.map(|host| format!("{scheme}://{host}")).unwrap_or_default();
        let location = format!("{address}/{bucket}/{}", store::escaped(key.as_bytes()));
        let whole = self.key(&bucket, &key)?;
        let mut output = match self.complete_once(request, &lane, &whole, &mark).await {
            Ok(output) => output,
            // Another request may have completed it.
            Err(error) => match self.made_by(&lane, &whole, &mark).await {
                Some(e_tag) if *error.code() != S3ErrorCode::BadDigest => {
                    let e_tag = Some(e_tag);
                    CompleteMultipartUploadOutput { e_tag, ..Default::default() }
                }
                _ => return Err(error),
            },
        };
        output.location = Some(location);
        (output.bucket, output.key) = (Some(bucket), Some(key));
        Ok(S3Response::new(output))
    }

    async fn complete_once(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
        lane: &Arc<ThreadRecorder>,
        key: &Key,
        mark: &str,
    ) -> S3Result<CompleteMultipartUploadOutput> {
        let input = request.input;
        let begun = self.description_of(&input.upload_id, &input.bucket, &input.key).await?;
        let named = input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
        let sums: Vec<Checksum> = named.iter().map(sums_of).collect();
        let whole = Checksum {
            checksum_crc32: input.checksum_crc32,
            checksum_crc32c: input.checksum_crc32c,
            checksum_crc64nvme: input.checksum_crc64nvme,
            checksum_sha1: input.checksum_sha1,
            checksum_sha256: input.checksum_sha256,
            checksum_type: input.checksum_type,
        };
        if let Some(size) = input.mpu_object_size.filter(|size| *size < 0) {
            let what = format!("Value for x-amz-mp-object-size header is less than zero: '{size}'");
            return Err(error(S3ErrorCode::InvalidRequest, what));
        }
        let parts = self.named(&input.upload_id, named).await?;
        let left: u64 = parts.iter().map(|part| part.metadata.size).sum();
        let stated = parts.iter().map(|part| part.metadata.size).zip(sums).collect();
        let kind = whole.checksum_type.as_ref().map(|kind| kind.as_str());
        let stated = Stated::new(stated, &whole, kind)?;
        if input.mpu_object_size.is_some_and(|size| u64::try_from(size) != Ok(left)) {
            let size = input.mpu_object_size.unwrap_or(0);
            let what = format!(
                "The provided 'x-amz-mp-object-size' header value {size} does not match what was computed: {left}"
            );
            return Err(error(S3ErrorCode::InvalidRequest, what));
        }
        let mut wanted = attributes_of(begun.headers);
        let conditions = headers::conditions(&request.headers, "")?;
        headers::keep_mark(&mut wanted, mark);
        let origin = self.store.origin().clone();
        let joined = Joined { origin: origin.clone(), parts, current: None, left };
        let verified = Verified::new(Box::new(joined), stated);
        let verdict = verified.verdict();
        let body = Sent::Stream(Box::new(verified));
        let written = self.write(lane, key, wanted, conditions, body).await;
        let e_tag = written.map_err(|error| verdict.or(error))?;
        let upload = input.upload_id;
        self.within_timeout(origin.delete(&begun_key(&upload)?)).await?;
        let rest = self.parts(&upload, 0, PARTS_MAX as usize).await?;
        tokio::spawn(async move { remove(&origin, rest).await });
        Ok(CompleteMultipartUploadOutput {
            e_tag: Some(e_tag),
            checksum_crc32: whole.checksum_crc32,
            checksum_crc32c: whole.checksum_crc32c,
            checksum_crc64nvme: whole.checksum_crc64nvme,
            checksum_sha1: whole.checksum_sha1,
            checksum_sha256: whole.checksum_sha256,
            checksum_type: whole.checksum_type,
            ..CompleteMultipartUploadOutput::default()
        })
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
        let parts = self.parts(&input.upload_id, 0, PARTS_MAX as usize).await?;
        remove(&origin, parts).await;
        Ok(S3Response::new(AbortMultipartUploadOutput::default()))
    }

    pub(super) async fn parts_page(
        &self,
        request: S3Request<ListPartsInput>,
    ) -> S3Result<S3Response<ListPartsOutput>> {
        let input = request.input;
        self.description_of(&input.upload_id, &input.bucket, &input.key).await?;
        let marker = input.part_number_marker.unwrap_or(0);
        not_negative(marker)?;
        let max = max_of(input.max_parts)?;
        let mut listed = self.parts(&input.upload_id, marker, max + 1).await?;
        // A page of no parts says no more: it has no marker to go on from.
        let more = max > 0 && listed.len() > max;
        listed.truncate(max);
        let part = |listed: &Listed| Part {
            part_number: number_of(listed),
            e_tag: Some(etag_of(&listed.metadata)),
            last_modified: Some(time(listed.metadata.modified_unix_us)),
            size: Some(listed.metadata.size as i64),
            ..Part::default()
        };
        Ok(S3Response::new(ListPartsOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(input.upload_id),
            is_truncated: Some(more),
            next_part_number_marker: listed.last().and_then(number_of),
            part_number_marker: Some(marker),
            max_parts: Some(max as i32),
            parts: Some(listed.iter().map(part).collect()),
            storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
            ..ListPartsOutput::default()
        }))
    }
}

fn number(number: i32) -> S3Result<()> {
    if (1..=PARTS_MAX).contains(&number) {
        return Ok(());
    }
    Err(S3Error::with_message(S3ErrorCode::InvalidArgument, PART_NUMBER))
}

/// The checksums of a part that a completion names.
fn sums_of(part: &CompletedPart) -> Checksum {
    Checksum {
        checksum_crc32: part.checksum_crc32.clone(),
        checksum_crc32c: part.checksum_crc32c.clone(),
        checksum_crc64nvme: part.checksum_crc64nvme.clone(),
        checksum_sha1: part.checksum_sha1.clone(),
        checksum_sha256: part.checksum_sha256.clone(),
        checksum_type: None,
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
}
