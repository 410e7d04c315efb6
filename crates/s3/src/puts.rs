//! PUT of an object, by `s3s` or past it.

use std::sync::Arc;

use ground::Key;
use http::header::{CONTENT_LENGTH, ETAG, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response};
use hyper::body::Incoming;
use s3s::dto::{Checksum, ETag, PutObjectInput, PutObjectOutput, StreamingBlob};
use s3s::{S3Request, S3Response, S3Result};

use super::checksums::{ALGORITHMS, type_of, value, with_checksums};
use super::errors::unsupported;
use super::inner::Inner;
use super::objects::{Sent, Upload, lane_of, plain_write};
use super::tags::Tags;
use super::{asked, headers};
use wire::body::ReplyBody;
use wire::lane::ThreadRecorder;
use wire::pace::Pace;

/// A body of at most this many bytes is gathered before it is sent on if its checksum follows it, so that the checksum
/// is known when the metadata is written.
const GATHERED_BYTES_MAX: u64 = 1 << 20;

impl Inner {
    pub(super) async fn put(
        &self,
        request: S3Request<PutObjectInput>,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        let input = request.input;
        let acl = input.acl.as_ref().is_some_and(|acl| acl.as_str() != "private");
        plain_write(&request.headers, acl)?;
        unsupported(input.write_offset_bytes.is_some(), "appending")?;
        let key = self.key(&input.bucket, &input.key)?;
        let lane = lane_of(&request.extensions)?;
        let upload = Upload {
            body: input.body,
            length: input.content_length,
            md5: input.content_md5,
            checksum: with_checksums!(input => Checksum {
                checksum_type: None,
            }),
            trailers: request.trailing_headers,
            is_verified: true,
            computed: None,
        };
        let (e_tag, checksum) = self.put_object(&lane, &key, &request.headers, upload).await?;
        Ok(S3Response::new(with_checksums!(checksum => PutObjectOutput {
            e_tag: Some(e_tag),
            checksum_type: type_of(&checksum),
            ..PutObjectOutput::default()
        })))
    }

    /// Writes an object as its headers state; returns its etag as clients see it, and its checksums.
    async fn put_object(
        &self,
        lane: &Arc<ThreadRecorder>,
        key: &Key,
        given: &HeaderMap,
        upload: Upload,
    ) -> S3Result<(ETag, Checksum)> {
        let mut wanted = headers::attributes_of(given)?;
        headers::keep_tags(&mut wanted, &Tags::of_request(given)?);
        let conditions = headers::write_conditions(given)?;
        let in_headers = upload.checksum.clone();
        let (checked, length) = upload.checked(given)?;
        let verdict = checked.verdict();
        // A checksum that follows the bytes is part of the metadata, which the origin needs before them.
        let follows = given.contains_key("x-amz-trailer");
        let share = Some(length).filter(|length| follows && *length <= GATHERED_BYTES_MAX);
        let share = share.and_then(|length| self.uploads.take(length));
        let body = if share.is_some() {
            let bytes =
                checked.gather(Pace::from_settings(&self.store.front().config.serve)).await?;
            headers::keep_checksum(&mut wanted, &verdict.checksum());
            Sent::Whole(bytes)
        } else {
            headers::keep_checksum(&mut wanted, &in_headers);
            Sent::Stream(Box::new(checked))
        };
        let written = self.write(lane, key, wanted, conditions, body).await;
        drop(share);
        let e_tag = written.map_err(|error| verdict.or(error))?;
        Ok((e_tag, verdict.checksum()))
    }

    /// Answers a plain write that is allowed.
    ///
    /// # Errors
    ///
    /// Whatever keeps the object from being written.
    pub(super) async fn put_plain(
        &self,
        lane: &Arc<ThreadRecorder>,
        key: S3Result<Key>,
        id: &str,
        request: Request<Incoming>,
    ) -> S3Result<Response<ReplyBody>> {
        let (parts, body) = request.into_parts();
        let given = parts.headers;
        let text = |name: &str| given.get(name)?.to_str().ok().map(str::to_owned);
        let key = key?;
        asked::check("PutObject", id, &given)?;
        let upload = Upload {
            body: Some(StreamingBlob::from(s3s::Body::from(body))),
            length: text(CONTENT_LENGTH.as_str()).and_then(|length| length.parse().ok()),
            md5: text("content-md5"),
            checksum: Checksum {
                checksum_crc32: text("x-amz-checksum-crc32"),
                ..Checksum::default()
            },
            trailers: None,
            is_verified: false,
            computed: None,
        };
        let (e_tag, checksum) = self.put_object(lane, &key, &given, upload).await?;
        Ok(written(&e_tag, &checksum))
    }
}

/// The reply to a write.
fn written(e_tag: &ETag, checksum: &Checksum) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::empty(None));
    let headers = response.headers_mut();
    headers.insert(CONTENT_LENGTH, HeaderValue::from(0));
    headers.extend(e_tag.to_http_header().ok().map(|value| (ETAG, value)));
    for algorithm in ALGORITHMS {
        let name = HeaderName::try_from(format!("x-amz-checksum-{algorithm}"));
        let value = value(checksum, algorithm).and_then(|value| HeaderValue::try_from(value).ok());
        headers.extend(name.ok().zip(value));
    }
    if let Some(kind) = type_of(checksum).and_then(|it| HeaderValue::try_from(it.as_str()).ok()) {
        headers.insert("x-amz-checksum-type", kind);
    }
    response
}
