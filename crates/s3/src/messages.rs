//! The words of AWS for errors that are its own: some clients and suites of tests compare them.

use s3s::{S3Error, S3ErrorCode};

/// `NoSuchBucket`.
pub const NO_SUCH_BUCKET: &str = "The specified bucket does not exist.";
/// `NoSuchKey`.
pub const NO_SUCH_KEY: &str = "The specified key does not exist.";
/// `PreconditionFailed`.
pub const PRECONDITION_FAILED: &str =
    "At least one of the pre-conditions you specified did not hold.";
/// `InvalidRange`.
pub const INVALID_RANGE: &str = "The requested range is not satisfiable";
/// `NoSuchUpload`.
pub const NO_SUCH_UPLOAD: &str = "The specified multipart upload does not exist. The upload ID may be invalid, or the \
     upload may have been aborted or completed.";
/// `InvalidAccessKeyId`.
pub const NO_SUCH_ACCESS_KEY: &str =
    "The AWS Access Key Id you provided does not exist in our records.";
/// `AccessDenied`.
pub const UNSIGNED_HEADERS: &str =
    "There were headers present in the request which were not signed";
/// `AccessDenied`. Not AWS's, which still takes these URLs in some regions.
pub const OLD_SIGNATURE: &str = "the URL is signed with signature version 2, which is not supported: sign it with version 4 (boto3: \
     Config(signature_version=\"s3v4\"))";
/// `IncompleteBody`.
pub const INCOMPLETE_BODY: &str =
    "You did not provide the number of bytes specified by the Content-Length HTTP header.";
/// `InvalidPart`. (Two blanks, as at AWS.)
pub const INVALID_PART: &str = "One or more of the specified parts could not be found.  The part may not have been \
     uploaded, or the specified entity tag may not match the part's entity tag.";
/// `InvalidPartOrder`.
pub const PART_ORDER: &str =
    "The list of parts was not in ascending order. Parts must be ordered by part number.";
/// `EntityTooSmall`.
pub const TOO_SMALL: &str = "Your proposed upload is smaller than the minimum allowed size";
/// `InvalidArgument`.
pub const PART_NUMBER: &str = "Part number must be an integer between 1 and 10000, inclusive.";
/// `InvalidArgument`.
pub const NO_VERSION: &str = "This operation does not accept a version-id.";
/// `InvalidArgument`.
pub const NOT_OF_A_PART: &str =
    "This operation does not accept partNumber or uploadId; a part of an upload has both.";
/// `InvalidArgument`, as at AWS for the source of a copy.
pub const EMPTY_KEY: &str = "Invalid object key: it is empty";
/// `MalformedXML`.
pub const NO_CDATA: &str = "CDATA sections are not supported in this XML: escape the characters";
/// `InvalidPartNumber`.
pub const NO_SUCH_PART: &str = "The requested partnumber is not satisfiable";
/// `MetadataTooLarge`.
pub const METADATA_TOO_LARGE: &str =
    "Your metadata headers exceed the maximum allowed metadata size";
/// `MalformedXML`.
pub const MALFORMED_XML: &str =
    "The XML you provided was not well-formed or did not validate against our published schema.";
/// `InvalidRequest`.
pub const COPY_TO_ITSELF: &str = "This copy request is illegal because it is trying to copy an object to itself without \
     changing the object's metadata, storage class, website redirect location or encryption attributes.";

/// `InvalidRequest`.
pub const NO_ATTRIBUTES: &str = "The x-amz-object-attributes header specifying the attributes to be retrieved is either \
     missing or empty";
/// `InvalidArgument`.
pub const TAGGING_ENCODED: &str = "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters \
     without tag name duplicates.";
/// `XAmzContentSHA256Mismatch`, which `s3s` does not have.
pub const SHA256_MISMATCH: &str =
    "The provided 'x-amz-content-sha256' header does not match what was computed.";

/// The code of a body whose SHA-256 is not the one that is signed.
pub fn sha256_mismatch() -> S3ErrorCode {
    S3ErrorCode::Custom("XAmzContentSHA256Mismatch".into())
}

/// An error with words of its own.
pub fn error(code: S3ErrorCode, what: impl Into<std::borrow::Cow<'static, str>>) -> S3Error {
    let own = matches!(code, S3ErrorCode::Custom(_));
    let mut error = S3Error::with_message(code, what);
    if own {
        error.set_status_code(http::StatusCode::BAD_REQUEST);
    }
    error
}
