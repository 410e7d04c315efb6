//! Operations on one object, as requests to the store.

use std::pin::Pin;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use ground::Key;
use ground::hex;
use ground::window::{Operation, Outcome};
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH,
    CONTENT_RANGE, CONTENT_TYPE, EXPIRES, HeaderMap, HeaderValue,
};
use http::{Extensions, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use origin::{Attributes, BoxFuture, Chunks, Error, SingleChunk};
use s3s::dto::{
    Checksum, CopyObjectInput, CopyObjectOutput, CopyObjectResult, CopySource, ETag,
    GetObjectInput, GetObjectOutput, HeadObjectInput, HeadObjectOutput, MetadataDirective,
    StreamingBlob, TaggingDirective, Timestamp,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result, TrailingHeaders};

use super::asked::{NOT_PRIVATE, has_grants};
use super::checksums::{Checked, Claims, with_checksums};
use super::errors::{of_error, unsupported};
use super::guard::denied;
use super::headers;
use super::inner::Inner;
use super::keys::Level;
use super::messages::COPY_TO_ITSELF;
use super::parameters;
use super::tags::Tags;
use super::traced::received;
use store::{self, FoundObject, PutRequest, ReadRequest, Version, WriteTerms, check_attributes};
use wire::body::{ReplyBody, RequestBody};
use wire::condition::Conditions;
use wire::headers::OUTCOME;
use wire::lane::ThreadRecorder;
use wire::range::ByteRange;

/// The thread's record, which the connection put into the request.
pub fn lane_of(extensions: &Extensions) -> S3Result<Arc<ThreadRecorder>> {
    extensions
        .get::<Arc<ThreadRecorder>>()
        .cloned()
        .ok_or_else(|| S3Error::new(S3ErrorCode::InternalError))
}

/// A body whose end is known.
pub enum Sent {
    /// All bytes.
    Whole(Bytes),
    /// Bytes as they come.
    Stream(Box<dyn Chunks>),
}

impl Sent {
    fn into_request_body(self) -> RequestBody {
        RequestBody::Stream(match self {
            Sent::Whole(bytes) => Box::new(SingleChunk::new(bytes)),
            Sent::Stream(chunks) => chunks,
        })
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
    /// An algorithm whose checksum is computed whether or not the client states it.
    pub computed: Option<&'static str>,
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
        let sha256 = sha256.and_then(hex::decode_hash);
        let (is_verified, computed) = (self.is_verified, self.computed);
        let claims =
            Claims { length, sha256, is_verified, md5, checksum, trailer, trailers, computed };
        Ok((Checked::new(self.body, claims), length))
    }
}

/// A reply about an object: the object, a part of it, or (304) that the client's copy is current.
pub struct Answer {
    pub status: StatusCode,
    pub version: Version,
    /// The bytes that it has, if they are not all.
    pub range: Option<std::ops::Range<u64>>,
    outcome: Outcome,
    body: ReplyBody,
}

impl Answer {
    /// Its headers, with the object's checksums if they are wanted.
    pub fn headers(&self, checksum: bool) -> HeaderMap {
        let mut headers = headers::reply(&self.version, checksum);
        headers.insert(OUTCOME.clone(), HeaderValue::from_static(self.outcome.as_str()));
        if let Some(range) = &self.range {
            let text = format!("bytes {}-{}/{}", range.start, range.end - 1, self.version.size);
            headers.extend(HeaderValue::try_from(text).ok().map(|value| (CONTENT_RANGE, value)));
        }
        if self.status != StatusCode::NOT_MODIFIED {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(self.length()));
        }
        headers
    }

    /// The number of bytes that it has, or that of a HEAD would have.
    pub fn length(&self) -> u64 {
        self.range.as_ref().map_or(self.version.size, |range| range.end - range.start)
    }

    /// Its body, to be written again.
    pub fn sent(self) -> Sent {
        let length = self.length();
        Sent::Stream(Box::new(Replied(Box::pin(self.body), length)))
    }

    /// The version of the object as clients see it.
    pub fn e_tag(&self) -> ETag {
        ETag::Strong(headers::etag(&self.version.etag))
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

/// The reply of an operation that brings its own body.
#[derive(Clone)]
pub struct Ready(pub(super) Arc<Mutex<Option<(StatusCode, ReplyBody)>>>);

impl Ready {
    pub fn new(status: StatusCode, body: ReplyBody) -> Ready {
        Ready(Arc::new(Mutex::new(Some((status, body)))))
    }
}

impl Inner {
    /// Reads an object, or what is known of it.
    ///
    /// # Errors
    ///
    /// Unless it succeeds, or (304) the client's copy is current.
    pub async fn read(&self, lane: &Arc<ThreadRecorder>, read: &ReadRequest) -> S3Result<Answer> {
        let operation = if read.is_head { Operation::Head } else { Operation::Get };
        let mut record = received(lane, operation, &read.key);
        let found = self.store.get(read, &mut record).await;
        let outcome = record.outcome;
        match found {
            Ok(FoundObject { version, range, body, .. }) => {
                let status = match range {
                    Some(_) => StatusCode::PARTIAL_CONTENT,
                    None => StatusCode::OK,
                };
                Ok(Answer { status, version, range, outcome, body: body.into_reply(record) })
            }
            Err(store::Error::NotModified(version)) => {
                let (status, body) = (StatusCode::NOT_MODIFIED, ReplyBody::empty(Some(record)));
                Ok(Answer { status, version, range: None, outcome, body })
            }
            // S3 has no object whose etag could differ; HTTP has a condition that fails.
            Err(store::Error::PreconditionFailed(None)) => Err(of_error(&store::Error::NotFound)),
            Err(error) => Err(of_error(&error)),
        }
    }

    /// What is known of an object.
    ///
    /// # Errors
    ///
    /// As [`Inner::read`].
    pub async fn look(&self, lane: &Arc<ThreadRecorder>, key: &Key) -> S3Result<Answer> {
        self.read(lane, &ReadRequest::head(key.clone())).await
    }

    /// Writes an object; returns its etag as clients see it.
    ///
    /// # Errors
    ///
    /// Whatever keeps it from being written: `NoSuchKey` if an object is to be there and is not.
    pub async fn write(
        &self,
        lane: &Arc<ThreadRecorder>,
        key: &Key,
        mut attributes: Attributes,
        conditions: Conditions,
        body: Sent,
    ) -> S3Result<ETag> {
        // As they are hashed into the version.
        attributes.user.sort();
        check_attributes(&attributes).map_err(|error| of_error(&error))?;
        let mut record = received(lane, Operation::Put, key);
        let replaces = conditions.has_if_match();
        let terms = WriteTerms { conditions, ..WriteTerms::default() };
        let body = body.into_request_body();
        let put = PutRequest { key: key.clone(), attributes, body, sha256: None, terms };
        match self.store.put(put, &mut record).await {
            Ok(etag) => Ok(ETag::Strong(headers::etag(&etag))),
            // What is not there is told by another error.
            Err(error @ store::Error::PreconditionFailed(_)) if replaces => {
                drop(record);
                self.look(lane, key).await?;
                Err(of_error(&error))
            }
            Err(error) => Err(of_error(&error)),
        }
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
    /// `AccessDenied` if the client may not read it, and as [`Inner::read`].
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
        let mut read = headers::read(key, &request.headers, "x-amz-copy-source-")?;
        // Only UploadPartCopy has a range, which is the argument; CopyObject copies the whole object.
        read.range = range.and_then(ByteRange::parse);
        let answer = self.read(&lane, &read).await?;
        if answer.status == StatusCode::NOT_MODIFIED {
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
        parameters::part(input.part_number, input.range.is_some())?;
        let key = self.key(&input.bucket, &input.key)?;
        let lane = lane_of(&request.extensions)?;
        let read = headers::read(key, &request.headers, "")?;
        let is_summed = input.checksum_mode.is_some();
        let (answer, mut given) = match input.part_number {
            Some(number) => self.read_part(&lane, read, number, is_summed).await?,
            None => {
                let answer = self.read(&lane, &read).await?;
                let given = answer.headers(is_summed && answer.status == StatusCode::OK);
                (answer, given)
            }
        };
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
    ///
    /// # Errors
    ///
    /// As [`Inner::read`].
    pub(super) async fn read_plain<B>(
        &self,
        lane: &Arc<ThreadRecorder>,
        key: S3Result<Key>,
        request: &Request<B>,
    ) -> S3Result<Response<ReplyBody>> {
        let given = request.headers();
        let is_head = request.method() == Method::HEAD;
        let read = headers::read(key?, given, "")?;
        let answer = self.read(lane, &ReadRequest { is_head, ..read }).await?;
        let whole = answer.status == StatusCode::OK;
        let headers = answer.headers(whole && given.contains_key("x-amz-checksum-mode"));
        let mut response = Response::new(answer.body);
        (*response.status_mut(), *response.headers_mut()) = (answer.status, headers);
        Ok(response)
    }

    pub(super) async fn head(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let input = &request.input;
        only_version(input.version_id.as_deref())?;
        unsupported(input.sse_customer_key.is_some(), "encryption with keys of the client")?;
        parameters::part(input.part_number, input.range.is_some())?;
        let key = self.key(&input.bucket, &input.key)?;
        let lane = lane_of(&request.extensions)?;
        let read = headers::read(key, &request.headers, "")?;
        let read = ReadRequest { is_head: true, ..read };
        let is_summed = input.checksum_mode.is_some();
        let (answer, mut given) = match input.part_number {
            Some(number) => self.read_part(&lane, read, number, is_summed).await?,
            None => {
                let answer = self.read(&lane, &read).await?;
                let given = answer.headers(is_summed);
                (answer, given)
            }
        };
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
        let checksum = self.checksum_of_copy(&answer.version).await?;
        let mut wanted = match replaces {
            true => headers::attributes_of(&request.headers)?,
            false => headers::of_copy(&answer.version.attributes),
        };
        headers::keep_checksum(&mut wanted, &checksum);
        let tags = tags.unwrap_or_else(|| Tags::of_object(&answer.version.attributes));
        headers::keep_tags(&mut wanted, &tags);
        let e_tag = self.write(&lane, &key, wanted, conditions, answer.sent()).await?;
        let result = with_checksums!(checksum => CopyObjectResult {
            e_tag: Some(e_tag),
            last_modified: Some(Timestamp::from(std::time::SystemTime::now())),
            checksum_type: checksum.checksum_type,
        });
        Ok(S3Response::new(CopyObjectOutput {
            copy_object_result: Some(result),
            ..CopyObjectOutput::default()
        }))
    }
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
    let mut response = S3Response::with_headers(output, given);
    response.extensions.insert(Ready::new(answer.status, answer.body));
    response
}

/// The id of the only version of an object, as at AWS where a bucket's versions are not kept.
pub const NULL_VERSION: &str = "null";

/// Refuses versions: there is one of each object.
pub fn only_version(version: Option<&str>) -> S3Result<()> {
    match version {
        None | Some(NULL_VERSION | "") => Ok(()),
        _ => {
            Err(S3Error::with_message(S3ErrorCode::NoSuchVersion, "objects have no versions here"))
        }
    }
}

/// Refuses what a write would have to do beside keeping bytes, type and metadata: to leave it out silently
/// would break a promise that the client relies on.
pub fn plain_write(given: &HeaderMap, acl: bool) -> S3Result<()> {
    unsupported(acl, NOT_PRIVATE)?;
    for (name, what) in [
        ("x-amz-server-side-encryption", "encryption on request"),
        ("x-amz-server-side-encryption-customer-key", "encryption with keys of the client"),
        ("x-amz-website-redirect-location", "redirection"),
        ("x-amz-object-lock-mode", "locking"),
        ("x-amz-object-lock-legal-hold", "locking"),
        ("x-amz-object-lock-retain-until-date", "locking"),
    ] {
        unsupported(given.contains_key(name), what)?;
    }
    unsupported(has_grants(given), NOT_PRIVATE)?;
    let class = given.get("x-amz-storage-class").map(HeaderValue::as_bytes);
    unsupported(class.is_some_and(|class| class != b"STANDARD"), "a storage class")
}
