//! What headers ask for beyond the operation, judged before it begins: the owner of a bucket, conditions that are
//! not kept here, checksums.
//!
//! A header that is not understood and passed by would break a promise that the client relies on.

use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use http::{HeaderMap, HeaderName};
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::messages::error;

/// Checksums by their names in headers, with the bytes of each.
const SUMS: [(&str, usize); 5] =
    [("crc32", 4), ("crc32c", 4), ("crc64nvme", 8), ("sha1", 20), ("sha256", 32)];
/// The bytes of a checksum.
pub fn sum_bytes(algorithm: &str) -> Option<usize> {
    SUMS.iter().find(|(of, _)| *of == algorithm).map(|(_, bytes)| *bytes)
}

/// What begins as a checksum does, and is none.
const NOT_SUMS: [&str; 3] = ["type", "mode", "algorithm"];
/// Conditions that S3 has for one operation each.
const CONDITIONS: [(&str, Option<&str>); 3] = [
    ("x-amz-if-match-size", Some("DeleteObject")),
    ("x-amz-if-match-last-modified-time", Some("DeleteObject")),
    // Of AbortMultipartUpload, which does not keep it here.
    ("x-amz-if-match-initiated-time", None),
];
/// What [`has_grants`] and lists of access are refused for.
pub const NOT_PRIVATE: &str = "an ACL other than `private`";
/// The headers that let others in.
const GRANTS: [&str; 5] = [
    "x-amz-grant-full-control",
    "x-amz-grant-read",
    "x-amz-grant-read-acp",
    "x-amz-grant-write",
    "x-amz-grant-write-acp",
];

/// Whether headers grant something to somebody.
pub fn has_grants(headers: &HeaderMap) -> bool {
    GRANTS.iter().any(|name| headers.contains_key(*name))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
}

fn invalid(name: &str) -> S3Error {
    error(S3ErrorCode::InvalidRequest, format!("Value for {name} header is invalid."))
}

/// Judges the headers of a request for an operation that an access key has signed.
///
/// # Errors
///
/// `AccessDenied` if the bucket is to have another owner, `NotImplemented` for conditions and algorithms that there are
/// not, `InvalidRequest` for checksums that are malformed, more than one, or not of the algorithm that is named.
pub fn check(operation: &str, id: &str, headers: &HeaderMap) -> S3Result<()> {
    // The only name that anybody has here is that of the access key.
    for name in ["x-amz-expected-bucket-owner", "x-amz-source-expected-bucket-owner"] {
        if headers.contains_key(name) && text(headers, name) != id {
            return Err(S3Error::with_message(S3ErrorCode::AccessDenied, "Access Denied."));
        }
    }
    let passed_by =
        |(name, of): &&(&str, Option<&str>)| headers.contains_key(*name) && *of != Some(operation);
    if let Some((name, _)) = CONDITIONS.iter().find(passed_by) {
        let what = format!("the condition {name} is not supported here");
        return Err(error(S3ErrorCode::NotImplemented, what));
    }
    let md5 = headers.get("content-md5").map(|md5| BASE64.decode(md5).unwrap_or_default());
    if md5.is_some_and(|md5| md5.len() != 16) {
        let what = "The Content-MD5 you specified is not valid.";
        return Err(S3Error::with_message(S3ErrorCode::InvalidDigest, what));
    }
    checksums(headers)
}

/// The checksum that a header has.
fn sum_of(name: &HeaderName) -> Option<&str> {
    let short = name.as_str().strip_prefix("x-amz-checksum-")?;
    (!NOT_SUMS.contains(&short)).then_some(short)
}

fn checksums(headers: &HeaderMap) -> S3Result<()> {
    if headers.iter().filter(|(name, _)| sum_of(name).is_some()).count() > 1 {
        let what =
            "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.";
        return Err(error(S3ErrorCode::InvalidRequest, what));
    }
    let mut there = None;
    for (name, value) in headers {
        let Some(short) = sum_of(name) else { continue };
        let Some((_, bytes)) = SUMS.iter().find(|(of, _)| *of == short) else {
            let what = format!("the checksum {short} is not supported here");
            return Err(error(S3ErrorCode::NotImplemented, what));
        };
        if !is_sum(value.to_str().unwrap_or(""), *bytes) {
            return Err(invalid(name.as_str()));
        }
        there = Some(short);
    }
    let trailer = text(headers, "x-amz-trailer").to_ascii_lowercase();
    let mut trailers = trailer.split(',').map(str::trim).filter(|name| !name.is_empty());
    let after = trailers.next().map(|name| name.strip_prefix("x-amz-checksum-"));
    if after == Some(None) || trailers.next().is_some() {
        // One checksum, as at AWS; what else stands there would be passed by.
        let what = "The value specified in the x-amz-trailer header is not supported";
        return Err(error(S3ErrorCode::InvalidRequest, what));
    }
    let after = after.flatten();
    if let Some(short) = after.filter(|short| SUMS.iter().all(|(of, _)| of != short)) {
        let what = format!("the checksum {short} is not supported here");
        return Err(error(S3ErrorCode::NotImplemented, what));
    }
    if there.is_some() && after.is_some() {
        let what = "Expecting a single x-amz-checksum- header";
        return Err(error(S3ErrorCode::InvalidRequest, what));
    }
    let named = text(headers, "x-amz-sdk-checksum-algorithm").to_ascii_lowercase();
    match there.or(after) {
        Some(is) if !named.is_empty() && named != is => {
            Err(invalid("x-amz-sdk-checksum-algorithm"))
        }
        // (MD5 is sent as Content-MD5.)
        None if !(named.is_empty() || named == "md5" && headers.contains_key("content-md5")) => {
            let what = "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or x-amz-trailer \
                headers were found.";
            Err(error(S3ErrorCode::InvalidRequest, what))
        }
        _ => Ok(()),
    }
}

/// Whether a text is a checksum of a length. That of an upload in parts may end in the number of its parts.
fn is_sum(text: &str, bytes: usize) -> bool {
    let (sum, parts) = text.split_once('-').unwrap_or((text, "1"));
    let number = (1..=5).contains(&parts.len()) && parts.bytes().all(|b| b.is_ascii_digit());
    number && BASE64.decode(sum).is_ok_and(|sum| sum.len() == bytes)
}

/// The first and the last byte of a range that is copied.
///
/// # Errors
///
/// `InvalidArgument` unless it is `bytes=FIRST-LAST`.
pub fn copied_range(text: &str) -> S3Result<(u64, u64)> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse::<u64>().ok()).flatten()
    };
    let ends = text.strip_prefix("bytes=").and_then(|text| text.split_once('-'));
    let ends = ends.and_then(|(first, last)| Some((number(first)?, number(last)?)));
    ends.filter(|(first, last)| first <= last).ok_or_else(|| {
        let what = "The x-amz-copy-source-range value must be of the form bytes=first-last where first and last are \
             the zero-based offsets of the first and last bytes to copy";
        error(S3ErrorCode::InvalidArgument, what)
    })
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn judged(pairs: &[(&'static str, &'static str)]) -> Option<S3ErrorCode> {
        judged_for("PutObject", pairs)
    }

    fn judged_for(operation: &str, pairs: &[(&'static str, &'static str)]) -> Option<S3ErrorCode> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        check(operation, "me", &headers).err().map(|error| error.code().clone())
    }

    #[test]
    fn a_condition_is_kept_by_its_operation_alone() {
        let refused = Some(S3ErrorCode::NotImplemented);
        for (name, operation, expected) in [
            ("x-amz-if-match-size", "DeleteObject", None),
            ("x-amz-if-match-last-modified-time", "DeleteObject", None),
            ("x-amz-if-match-size", "CopyObject", refused.clone()),
            ("x-amz-if-match-last-modified-time", "UploadPart", refused.clone()),
            ("x-amz-if-match-initiated-time", "AbortMultipartUpload", refused.clone()),
            ("x-amz-if-match-initiated-time", "DeleteObject", refused),
        ] {
            assert_eq!(judged_for(operation, &[(name, "1")]), expected, "{operation} {name}");
        }
    }

    #[test]
    fn what_is_asked_for_and_not_done_is_refused() {
        use S3ErrorCode::{AccessDenied, InvalidRequest, NotImplemented};
        for (pairs, expected) in [
            (&[("content-type", "x")][..], None),
            (&[("x-amz-expected-bucket-owner", "me")], None),
            (&[("x-amz-expected-bucket-owner", "you")], Some(AccessDenied)),
            (&[("x-amz-source-expected-bucket-owner", "")], Some(AccessDenied)),
            (&[("x-amz-if-match-size", "1")], Some(NotImplemented)),
            (&[("x-amz-if-match-initiated-time", "x")], Some(NotImplemented)),
            (&[("x-amz-checksum-crc32", "ZS0jFg==")], None),
            (&[("x-amz-checksum-crc32", "ZS0jFg==-5")], None),
            (&[("x-amz-checksum-crc32", "ZS0jFg==-")], Some(InvalidRequest)),
            (&[("x-amz-checksum-crc32", "ZS0jFg==-x")], Some(InvalidRequest)),
            (&[("x-amz-checksum-crc32", "ZS0jFg")], Some(InvalidRequest)),
            (&[("x-amz-checksum-crc32", "")], Some(InvalidRequest)),
            (&[("x-amz-checksum-sha1", "ZS0jFg==")], Some(InvalidRequest)),
            (&[("x-amz-checksum-sha512", "ZS0jFg==")], Some(NotImplemented)),
            (&[("x-amz-trailer", "x-amz-checksum-xxhash3")], Some(NotImplemented)),
            (&[("x-amz-trailer", "x-amz-checksum-crc32")], None),
            (&[("x-amz-trailer", " X-Amz-Checksum-CRC32, ")], None),
            (&[("x-amz-trailer", "")], None),
            (&[("x-amz-trailer", "x-amz-meta-a")], Some(InvalidRequest)),
            (&[("x-amz-trailer", "x-amz-checksum-crc32,x-amz-meta-a")], Some(InvalidRequest)),
            (
                &[("x-amz-trailer", "x-amz-checksum-crc32,x-amz-checksum-sha1")],
                Some(InvalidRequest),
            ),
            (&[("x-amz-checksum-type", "FULL_OBJECT"), ("x-amz-checksum-mode", "ENABLED")], None),
            (
                &[("x-amz-checksum-crc32", "ZS0jFg=="), ("x-amz-checksum-crc32c", "ZS0jFg==")],
                Some(InvalidRequest),
            ),
            (
                &[("x-amz-checksum-crc32", "ZS0jFg=="), ("x-amz-checksum-crc32", "ZS0jFg==")],
                Some(InvalidRequest),
            ),
            (
                &[("x-amz-checksum-crc32", "ZS0jFg=="), ("x-amz-trailer", "x-amz-checksum-crc32c")],
                Some(InvalidRequest),
            ),
            (
                &[("x-amz-checksum-crc32", "ZS0jFg=="), ("x-amz-sdk-checksum-algorithm", "CRC32")],
                None,
            ),
            (
                &[("x-amz-checksum-crc32", "ZS0jFg=="), ("x-amz-sdk-checksum-algorithm", "SHA1")],
                Some(InvalidRequest),
            ),
        ] {
            assert_eq!(judged(pairs), expected, "{pairs:?}");
        }
    }

    #[test]
    fn ranges_to_copy_have_both_ends() {
        assert_eq!(copied_range("bytes=0-0").unwrap(), (0, 0));
        assert_eq!(copied_range("bytes=5-18446744073709551615").unwrap(), (5, u64::MAX));
        for wrong in [
            "",
            "bytes=",
            "bytes=1-",
            "bytes=-1",
            "bytes=2-1",
            "bytes=+1-2",
            "bytes=1-2,3-4",
            "byte=1-2",
            "bytes=1-18446744073709551616",
        ] {
            assert!(copied_range(wrong).is_err(), "{wrong}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_headers_are_judged(name in "x-amz-(checksum-|trailer|sdk-checksum-algorithm|if-match-)[a-z0-9-]{0,12}",
            value in "[ -~]{0,40}")
        {
            let mut headers = HeaderMap::new();
            headers.insert(HeaderName::try_from(name).unwrap(), HeaderValue::from_str(&value).unwrap());
            let _ = (check("DeleteObject", "me", &headers), copied_range(&value));
        }
    }
}
