//! Operations on one object: requests of HTTP's form, carried out by the node or gateway behind.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use ground::Key;
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH,
    CONTENT_RANGE, CONTENT_TYPE, ETAG, EXPIRES, HeaderMap, HeaderValue, IF_MATCH,
};
use http::{Extensions, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use origin::{BoxFuture, Chunks, Error, Whole};
use s3s::dto::{
    Checksum, ChecksumType, CopyObjectInput, CopyObjectOutput, CopyObjectResult, CopySource,
    DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput, DeleteObjectsOutput, DeletedObject,
    ETag, GetObjectInput, GetObjectOutput, HeadObjectInput, HeadObjectOutput, MetadataDirective,
    StreamingBlob, TaggingDirective, Timestamp,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result, TrailingHeaders};

use super::checksums::{ALGORITHMS, Checked, Claims, value};
use super::errors::{of_problem, of_status, unsupported};
use super::guard::denied;
use super::keys::Level;
use super::messages::COPY_TO_ITSELF;
use super::parameters;
use super::shortcut::Plain;
use super::tags::Tags;
use super::{Inner, Ready, headers};
use crate::list::escaped;
use wire::body::{Arriving, ReplyBody};
use wire::hex::unhex;
use wire::lane::Lane;

/// Objects of a multi-delete that are deleted at a time.
const DELETES: usize = 16;
/// The most objects of a multi-delete.
const DELETED_MAX: usize = 1000;

/// The thread's record, which the connection put into the request.
pub fn lane_of(extensions: &Extensions) -> S3Result<Arc<Lane>> {
    extensions.get::<Arc<Lane>>().cloned().ok_or_else(|| S3Error::new(S3ErrorCode::InternalError))
}

/// A body whose end is known.
pub enum Sent {
    /// All bytes.
    Whole(Bytes),
    /// Bytes as they come.
    Stream(Box<dyn Chunks>, u64),
}

impl Sent {
    fn length(&self) -> u64 {
        match self {
            Sent::Whole(bytes) => bytes.len() as u64,
            Sent::Stream(_, length) => *length,
        }
    }

    fn arriving(self) -> Arriving {
        Arriving::Stream(match self {
            Sent::Whole(bytes) => Box::new(Whole::new(bytes)),
            Sent::Stream(chunks, _) => chunks,
        })
    }
}

/// The body of a reply, read here.
pub struct Replied(Pin<Box<ReplyBody>>, u64);

impl Chunks for Replied {
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, Error>>> {
        Box::pin(async move {
            let frame = self.0.frame().await?;
            let piece = frame.map(|frame| frame.into_data().unwrap_or_default());
            if let Ok(piece) = &piece {
                self.1 = self.1.saturating_sub(piece.len() as u64);
            }
            Some(piece)
        })
    }
    fn bytes_left(&self) -> Option<u64> {
        Some(self.1)
    }
}

/// What a client says of the body that it sends.
pub struct Upload {
    pub body: Option<StreamingBlob>,
    pub length: Option<i64>,
    pub md5: Option<String>,
    pub checksum: Checksum,
    pub trailers: Option<TrailingHeaders>,
    /// Whether `s3s` verifies the hash that the signature covers.
    pub is_verified: bool,
}

impl Upload {
    /// The body with its checks.
    pub fn checked(self, headers: &HeaderMap) -> S3Result<(Checked, u64)> {
        // Of chunks that are signed or have trailers, the length is that of the bytes in them.
        let decoded = headers.get("x-amz-decoded-content-length");
        let decoded = decoded.and_then(|value| value.to_str().ok()?.parse().ok());
        let length = decoded.or(self.length.and_then(|length| u64::try_from(length).ok()));
        let missing = || S3Error::new(S3ErrorCode::MissingContentLength);
        let length = length.or(self.body.is_none().then_some(0)).ok_or_else(missing)?;
        let trailer = headers.get("x-amz-trailer").and_then(|value| value.to_str().ok());
        let trailer = trailer.map(str::to_owned);
        let (md5, checksum, trailers) = (self.md5, self.checksum, self.trailers);
        let sha256 = headers.get("x-amz-content-sha256").and_then(|value| value.to_str().ok());
        let sha256 = sha256.and_then(unhex);
        let is_verified = self.is_verified;
        let claims = Claims { length, sha256, is_verified, md5, checksum, trailer, trailers };
        Ok((Checked::new(self.body, claims), length))
    }
}

pub type Answer = Response<ReplyBody>;

impl Inner {
    /// Carries out a request for one object.
    ///
    /// # Errors
    ///
    /// Unless it succeeds, or (304) the client's copy is current.
    pub async fn ask(
        &self,
        lane: &Arc<Lane>,
        method: Method,
        key: &Key,
        headers: HeaderMap,
        body: Option<Sent>,
    ) -> S3Result<Answer> {
        let mut request = Request::new(match body {
            Some(body) => body.arriving(),
            None => Sent::Whole(Bytes::new()).arriving(),
        });
        let path = format!("/objects/{}", escaped(key));
        *request.uri_mut() = path.parse().map_err(|_| S3Error::new(S3ErrorCode::InvalidURI))?;
        *request.method_mut() = method;
        *request.headers_mut() = headers;
        match self.behind.object(lane, key.clone(), request).await {
            Err(problem) => Err(of_problem(&problem)),
            Ok(answer) if answer.status().is_success() => Ok(answer),
            Ok(answer) if answer.status() == StatusCode::NOT_MODIFIED => Ok(answer),
            Ok(answer) => Err(refusal(answer).await),
        }
    }

    /// Writes an object; returns its etag as clients see it.
    ///
    /// # Errors
    ///
    /// As [`Inner::ask`].
    pub async fn write(
        &self,
        lane: &Arc<Lane>,
        key: &Key,
        mut headers: HeaderMap,
        body: Sent,
    ) -> S3Result<Option<ETag>> {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.length()));
        let answer = self.ask(lane, Method::PUT, key, headers, Some(body)).await?;
        Ok(etag_of(answer.headers()))
    }

    /// Whether the client that made a request may read a bucket.
    pub fn may_read<T>(&self, request: &S3Request<T>, bucket: &str) -> bool {
        let shown = request.credentials.as_ref();
        let key = shown.and_then(|shown| self.keys.get(&shown.access_key));
        key.is_some_and(|key| key.allows(bucket, Level::Read))
    }

    /// The source of a copy, as it is now.
    ///
    /// # Errors
    ///
    /// `AccessDenied` if the client may not read it, and as [`Inner::ask`].
    pub async fn source<T>(
        &self,
        request: &S3Request<T>,
        source: &CopySource,
        range: Option<&str>,
    ) -> S3Result<Answer> {
        let CopySource::Bucket { bucket, key, version_id } = source else {
            return Err(S3Error::with_message(S3ErrorCode::NotImplemented, "copy from BUCKET/KEY"));
        };
        only_version(version_id.as_deref())?;
        if !self.may_read(request, bucket) {
            return Err(denied());
        }
        let key = self.key(bucket, key)?;
        let lane = lane_of(&request.extensions)?;
        let mut wanted = headers::conditions(&request.headers, "x-amz-copy-source-");
        // Only UploadPartCopy has a range, which is the argument; CopyObject copies the whole object.
        wanted.remove(http::header::RANGE);
        if let Some(range) = range {
            let value = HeaderValue::from_str(range);
            let value = value.map_err(|_| S3Error::new(S3ErrorCode::InvalidArgument))?;
            wanted.insert(http::header::RANGE, value);
        }
        let answer = self.ask(&lane, Method::GET, &key, wanted, None).await?;
        if answer.status() == StatusCode::NOT_MODIFIED {
            return Err(S3Error::new(S3ErrorCode::PreconditionFailed));
        }
        Ok(answer)
    }

    pub(super) async fn get(
        &self,
        request: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let input = &request.input;
        only_version(input.version_id.as_deref())?;
        unsupported(input.sse_customer_key.is_some(), "encryption with keys of the client")?;
        parameters::part(input.part_number)?;
        if input.part_number.is_some() && input.range.is_some() {
            let what = "Cannot specify both Range header and partNumber query parameter";
            return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, what));
        }
        let key = self.key(&input.bucket, &input.key)?;
        let lane = lane_of(&request.extensions)?;
        let wanted = headers::conditions(&request.headers, "");
        let mut answer = self.ask(&lane, Method::GET, &key, wanted, None).await?;
        let whole = answer.status() == StatusCode::OK;
        let checksum = whole && input.checksum_mode.is_some();
        let mut given = headers::reply(answer.headers(), checksum);
        if input.part_number.is_some() {
            parameters::as_part(&mut answer, &mut given);
        }
        for (overridden, name) in [
            (input.response_content_type.is_some(), CONTENT_TYPE),
            (input.response_content_language.is_some(), CONTENT_LANGUAGE),
            (input.response_expires.is_some(), EXPIRES),
            (input.response_cache_control.is_some(), CACHE_CONTROL),
            (input.response_content_disposition.is_some(), CONTENT_DISPOSITION),
            (input.response_content_encoding.is_some(), CONTENT_ENCODING),
        ] {
            if overridden {
                given.remove(name);
            }
        }
        Ok(respond(GetObjectOutput::default(), answer, given))
    }

    /// Answers a plain read that is allowed.
    pub(super) async fn read<B>(
        &self,
        lane: &Arc<Lane>,
        plain: &Plain<'_>,
        request: &Request<B>,
    ) -> Answer {
        let given = request.headers();
        let answered = async {
            let key = self.key(plain.bucket, plain.key)?;
            let wanted = headers::conditions(given, "");
            self.ask(lane, request.method().clone(), &key, wanted, None).await
        };
        match answered.await {
            Ok(mut answer) => {
                let whole = answer.status() == StatusCode::OK;
                let checksum = whole && given.contains_key("x-amz-checksum-mode");
                *answer.headers_mut() = headers::reply(answer.headers(), checksum);
                answer
            }
            Err(error) => {
                let mut response = super::response_of(error.to_http_response().unwrap_or_default());
                if request.method() == Method::HEAD {
                    *response.body_mut() = ReplyBody::empty(None);
                }
                response
            }
        }
    }

    pub(super) async fn head(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let input = &request.input;
        only_version(input.version_id.as_deref())?;
        unsupported(input.sse_customer_key.is_some(), "encryption with keys of the client")?;
        parameters::part(input.part_number)?;
        let key = self.key(&input.bucket, &input.key)?;
        let lane = lane_of(&request.extensions)?;
        let wanted = headers::conditions(&request.headers, "");
        let mut answer = self.ask(&lane, Method::HEAD, &key, wanted, None).await?;
        let mut given = headers::reply(answer.headers(), input.checksum_mode.is_some());
        if input.part_number.is_some() {
            parameters::as_part(&mut answer, &mut given);
        }
        given.extend(parameters::overrides(request.uri.query()));
        Ok(respond(HeadObjectOutput::default(), answer, given))
    }

    pub(super) async fn copy(
        &self,
        request: S3Request<CopyObjectInput>,
    ) -> S3Result<S3Response<CopyObjectOutput>> {
        let input = &request.input;
        let acl = input.acl.as_ref().is_some_and(|acl| acl.as_str() != "private");
        plain_write(&request.headers, acl)?;
        let replaces = is_replaced(
            "metadata",
            input.metadata_directive.as_ref().map(MetadataDirective::as_str),
        )?;
        let directive = input.tagging_directive.as_ref().map(TaggingDirective::as_str);
        let tags = match is_replaced("tagging", directive)? {
            true => Some(Tags::of_request(&request.headers)?),
            false => None,
        };
        let key = self.key(&input.bucket, &input.key)?;
        let lane = lane_of(&request.extensions)?;
        if !replaces
            && let CopySource::Bucket { bucket, key: from, .. } = &input.copy_source
            && self.key(bucket, from).is_ok_and(|from| from == key)
        {
            return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, COPY_TO_ITSELF));
        }
        let conditions = headers::write_conditions(&request.headers)?;
        let answer = self.source(&request, &input.copy_source, None).await?;
        // The bytes stay the same, and with them the checksums.
        let checksum = headers::checksums(answer.headers());
        let mut wanted = match replaces {
            true => headers::kept(&request.headers)?,
            false => headers::of_copy(answer.headers()),
        };
        if replaces {
            headers::keep_checksum(&mut wanted, &checksum);
        }
        let tags = tags.unwrap_or_else(|| Tags::of_object(answer.headers()));
        headers::keep_tags(&mut wanted, &tags);
        wanted.extend(conditions);
        let e_tag = self.write(&lane, &key, wanted, sent_of(answer)?).await?;
        let result = CopyObjectResult {
            e_tag,
            last_modified: Some(Timestamp::from(std::time::SystemTime::now())),
            checksum_type: type_of(&checksum),
            checksum_crc32: checksum.checksum_crc32,
            checksum_crc32c: checksum.checksum_crc32c,
            checksum_crc64nvme: checksum.checksum_crc64nvme,
            checksum_sha1: checksum.checksum_sha1,
            checksum_sha256: checksum.checksum_sha256,
        };
        Ok(S3Response::new(CopyObjectOutput {
            copy_object_result: Some(result),
            ..CopyObjectOutput::default()
        }))
    }

    async fn remove(&self, lane: &Arc<Lane>, key: &Key, wanted: HeaderMap) -> S3Result<()> {
        match self.ask(lane, Method::DELETE, key, wanted, None).await {
            Err(error) if *error.code() != S3ErrorCode::NoSuchKey => Err(error),
            _ => Ok(()),
        }
    }

    pub(super) async fn delete(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        let input = &request.input;
        only_version(input.version_id.as_deref())?;
        let key = self.key(&input.bucket, &input.key)?;
        let lane = lane_of(&request.extensions)?;
        self.remove(&lane, &key, headers::conditions(&request.headers, "")).await?;
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    pub(super) async fn delete_several(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let input = request.input;
        self.bucket(&input.bucket)?;
        let quiet = input.delete.quiet.unwrap_or(false);
        if input.delete.objects.len() > DELETED_MAX {
            let what = "at most 1000 objects are deleted at once";
            return Err(S3Error::with_message(S3ErrorCode::MalformedXML, what));
        }
        let lane = &lane_of(&request.extensions)?;
        let bucket = input.bucket.as_str();
        let one = async |object: s3s::dto::ObjectIdentifier| {
            let removed = async {
                only_version(object.version_id.as_deref())?;
                let conditions = object.size.is_some() || object.last_modified_time.is_some();
                unsupported(conditions, "a condition on size or time")?;
                let key = self.key(bucket, &object.key)?;
                let mut wanted = HeaderMap::new();
                if let Some(etag) = &object.e_tag {
                    let ours = format!("\"{}\"", headers::our_etag(etag.value()));
                    let ours = HeaderValue::from_str(&ours);
                    let ours = ours.map_err(|_| S3Error::new(S3ErrorCode::InvalidArgument))?;
                    wanted.insert(IF_MATCH, ours);
                }
                self.remove(lane, &key, wanted).await
            };
            let removed: S3Result<()> = removed.await;
            (object.key, removed)
        };
        let mut all = Vec::new();
        let mut each = stream::iter(input.delete.objects.into_iter().map(one)).buffered(DELETES);
        while let Some(done) = each.next().await {
            all.push(done);
        }
        drop(each);
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        for (key, removed) in all {
            match removed {
                Ok(()) if quiet => {}
                Ok(()) => {
                    deleted.push(DeletedObject { key: Some(key), ..DeletedObject::default() })
                }
                Err(error) => errors.push(s3s::dto::Error {
                    code: Some(error.code().as_str().to_owned()),
                    key: Some(key),
                    message: error.message().map(str::to_owned),
                    version_id: None,
                }),
            }
        }
        Ok(S3Response::new(DeleteObjectsOutput {
            deleted: Some(deleted),
            errors: Some(errors),
            ..DeleteObjectsOutput::default()
        }))
    }
}

/// The body of an answer, to be written again.
pub fn sent_of(answer: Answer) -> S3Result<Sent> {
    let length = answer.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let length = length.and_then(|text| text.parse().ok());
    let length = length.ok_or_else(|| S3Error::new(S3ErrorCode::InternalError))?;
    Ok(Sent::Stream(Box::new(Replied(Box::pin(answer.into_body()), length)), length))
}

/// The etag of a reply as clients see it.
pub fn etag_of(given: &HeaderMap) -> Option<ETag> {
    let text = given.get(ETAG)?.to_str().ok()?.trim_matches('"');
    Some(ETag::Strong(headers::etag(text)))
}

/// The type of checksums that are kept: they are of all bytes.
pub fn type_of(checksum: &Checksum) -> Option<ChecksumType> {
    let there = ALGORITHMS.iter().any(|of| value(checksum, of).is_some());
    there.then(|| ChecksumType::from_static(ChecksumType::FULL_OBJECT))
}

/// Whether a directive of a copy says that something is replaced.
fn is_replaced(what: &str, directive: Option<&str>) -> S3Result<bool> {
    match directive {
        None | Some("COPY") => Ok(false),
        Some("REPLACE") => Ok(true),
        Some(_) => {
            let what = format!("Unknown {what} directive.");
            Err(S3Error::with_message(S3ErrorCode::InvalidArgument, what))
        }
    }
}

fn respond<T>(output: T, answer: Answer, given: HeaderMap) -> S3Response<T> {
    let status = answer.status();
    let mut response = S3Response::with_headers(output, given);
    response.extensions.insert(Ready::new(status, answer.into_body()));
    response
}

/// The error of a reply that is a refusal.
async fn refusal(answer: Answer) -> S3Error {
    let status = answer.status();
    let range = answer.headers().get(CONTENT_RANGE).cloned();
    let body = answer.into_body().collect().await;
    let bytes = body.map(|body| body.to_bytes()).unwrap_or_default();
    let value: Option<serde_json::Value> = serde_json::from_slice(&bytes).ok();
    let text = value.as_ref().and_then(|value| value.get("error")?.as_str());
    let text = text.unwrap_or(status.canonical_reason().unwrap_or("refused"));
    let mut error = of_status(status, text.to_owned());
    if let Some(range) = range {
        // The size of an object that the range lies outside of.
        error.set_headers(HeaderMap::from_iter([(CONTENT_RANGE, range)]));
    }
    error
}

/// Refuses versions: there are none.
pub fn only_version(version: Option<&str>) -> S3Result<()> {
    match version {
        None | Some("null" | "") => Ok(()),
        _ => {
            Err(S3Error::with_message(S3ErrorCode::NoSuchVersion, "objects have no versions here"))
        }
    }
}

/// Refuses what a write would have to do beside keeping bytes, type and metadata: to leave it out silently
/// would break a promise that the client relies on.
pub fn plain_write(given: &HeaderMap, acl: bool) -> S3Result<()> {
    unsupported(acl, "an ACL other than `private`")?;
    for (name, what) in [
        ("x-amz-server-side-encryption", "encryption on request"),
        ("x-amz-server-side-encryption-customer-key", "encryption with keys of the client"),
        ("x-amz-website-redirect-location", "redirection"),
        ("x-amz-object-lock-mode", "locking"),
        ("x-amz-object-lock-legal-hold", "locking"),
        ("x-amz-object-lock-retain-until-date", "locking"),
        ("x-amz-grant-read", "an ACL other than `private`"),
        ("x-amz-grant-full-control", "an ACL other than `private`"),
    ] {
        unsupported(given.contains_key(name), what)?;
    }
    let class = given.get("x-amz-storage-class").map(HeaderValue::as_bytes);
    unsupported(class.is_some_and(|class| class != b"STANDARD"), "a storage class")
}
