//! Reads of one part of an object, by its number; and what a copy of an object in parts keeps.

use std::sync::Arc;

use http::StatusCode;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, HeaderMap, HeaderName, HeaderValue};
use s3s::dto::Checksum;
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::checksums::{ALGORITHMS, value};
use super::headers;
use super::inner::Inner;
use super::kept_parts::KeptPart;
use super::messages::NO_SUCH_PART;
use super::objects::Answer;
use store::{ReadRequest, Version};
use wire::lane::ThreadRecorder;
use wire::range::ByteRange;

/// How often a part is looked up while others write the object.
const ATTEMPTS: usize = 5;
/// The header with the number of parts.
const PARTS_COUNT: HeaderName = HeaderName::from_static("x-amz-mp-parts-count");

fn no_such_part() -> S3Error {
    let mut error =
        S3Error::with_message(S3ErrorCode::Custom("InvalidPartNumber".into()), NO_SUCH_PART);
    error.set_status_code(StatusCode::RANGE_NOT_SATISFIABLE);
    error
}

/// Makes a whole object's reply that of its only part, as S3 does unless the object is empty.
fn as_part(status: &mut StatusCode, size: u64, given: &mut HeaderMap) {
    if *status != StatusCode::OK || size == 0 {
        return;
    }
    let range = format!("bytes 0-{}/{size}", size - 1);
    if let Ok(range) = HeaderValue::try_from(range) {
        given.insert(CONTENT_RANGE, range);
        *status = StatusCode::PARTIAL_CONTENT;
    }
}

/// Adds the checksum of a part, and the type of that of the object.
fn add_checksum(given: &mut HeaderMap, part: &Checksum, object: &Checksum) {
    for of in ALGORITHMS {
        let name = HeaderName::try_from(format!("x-amz-checksum-{of}")).ok();
        let text = value(part, of).and_then(|text| HeaderValue::try_from(text).ok());
        let Some((name, text)) = name.zip(text) else { continue };
        given.insert(name, text);
        let kind = object.checksum_type.as_ref();
        if let Some(kind) = kind.and_then(|kind| HeaderValue::try_from(kind.as_str()).ok()) {
            given.insert("x-amz-checksum-type", kind);
        }
    }
}

impl Inner {
    /// Reads a part of an object, or what is known of it. An object that was not uploaded in parts is its part 1.
    ///
    /// # Errors
    ///
    /// `InvalidPartNumber` if there is no such part, and as [`Inner::read`].
    pub(super) async fn read_part(
        &self,
        lane: &Arc<ThreadRecorder>,
        read: ReadRequest,
        number: i32,
        is_summed: bool,
    ) -> S3Result<(Answer, HeaderMap)> {
        for _ in 0..ATTEMPTS {
            let looked = self.look(lane, &read.key).await?.version;
            let Some(parts) = self.parts_of(&looked).await? else {
                if number != 1 {
                    return Err(no_such_part());
                }
                let mut answer = self.read(lane, &read).await?;
                let mut given = answer.headers(is_summed && answer.status == StatusCode::OK);
                as_part(&mut answer.status, answer.version.size, &mut given);
                return Ok((answer, given));
            };
            let part = usize::try_from(number).ok().and_then(|number| parts.part(number));
            let part = part.ok_or_else(no_such_part)?;
            let answer = match self.read(lane, &range_of(&read, &part)).await {
                // Written anew since it was looked at, and shorter.
                Err(error) if error.code() == &S3ErrorCode::InvalidRange => continue,
                answer => answer?,
            };
            if answer.version.etag != looked.etag {
                continue;
            }
            if answer.status == StatusCode::OK && !part.range.is_empty() {
                // `If-Range` has another version, so the reply is the whole object.
                let given = answer.headers(is_summed);
                return Ok((answer, given));
            }
            let mut given = answer.headers(false);
            if answer.status == StatusCode::OK {
                given.insert(CONTENT_LENGTH, HeaderValue::from(0));
            }
            given.insert(PARTS_COUNT, HeaderValue::from(parts.count()));
            if is_summed && answer.status != StatusCode::NOT_MODIFIED {
                let object = headers::checksums(&looked.attributes);
                add_checksum(&mut given, &part.checksum, &object);
            }
            return Ok((answer, given));
        }
        let what = "the object is written by others all the time: try again";
        Err(S3Error::with_message(S3ErrorCode::OperationAborted, what))
    }

    /// The checksum of a copy of an object: the object's, as far as it is of all bytes. Of an upload in parts it may follow from
    /// those of the parts; a copy has no parts.
    ///
    /// # Errors
    ///
    /// If the origin cannot be read.
    pub(super) async fn checksum_of_copy(&self, version: &Version) -> S3Result<Checksum> {
        let checksum = headers::checksums(&version.attributes);
        if checksum.checksum_type.as_ref().is_none_or(|kind| kind.as_str() == "FULL_OBJECT") {
            return Ok(checksum);
        }
        let parts = self.parts_of(version).await?;
        Ok(parts.and_then(|parts| parts.full()).unwrap_or_default())
    }
}

/// The read of a part: of no bytes, if it has none.
fn range_of(read: &ReadRequest, part: &KeptPart) -> ReadRequest {
    let mut read = read.clone();
    match part.range.is_empty() {
        true => read.is_head = true,
        false => {
            let (first, last) = (part.range.start, Some(part.range.end - 1));
            read.range = Some(ByteRange::From { first, last });
        }
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_object_is_its_part_1() {
        let reply = |status: u16, size: u64| {
            let mut status = StatusCode::from_u16(status).unwrap();
            let mut given = HeaderMap::new();
            as_part(&mut status, size, &mut given);
            let range = given.get(CONTENT_RANGE).map(|it| it.to_str().unwrap().to_owned());
            (status.as_u16(), range)
        };
        assert_eq!(reply(200, 10), (206, Some("bytes 0-9/10".to_owned())));
        assert_eq!(reply(200, 0), (200, None));
        assert_eq!(reply(304, 10), (304, None));
        let error = no_such_part();
        assert_eq!(error.code().as_str(), "InvalidPartNumber");
        assert_eq!(error.status_code().map(|it| it.as_u16()), Some(416));
    }
}
