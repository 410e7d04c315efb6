//! Headers of S3's that a presigned URL has in its query.
//!
//! Presigners put `x-amz-meta-…`, checksums, ACLs and the like there, since who uses the URL sends no headers of theirs. They are
//! signed with the query, and mean what the headers mean: kept, verified, or refused. But for the checksum of an empty body:
//! the AWS SDK for JavaScript signs it where it knows no body yet, and AWS passes it by.

use ground::hex;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::query;

const PREFIX: &str = "x-amz-";
/// Parameters of the signature itself.
const OF_SIGNATURE: [&str; 7] = [
    "x-amz-algorithm",
    "x-amz-credential",
    "x-amz-date",
    "x-amz-expires",
    "x-amz-signedheaders",
    "x-amz-signature",
    "x-amz-security-token",
];
/// The hash of the body, which is verified as one in the header is; the signature is that of an unsigned body.
const PAYLOAD: &str = "x-amz-content-sha256";
/// The checksums of an empty body, and the parameter that names the algorithm of a checksum.
const OF_EMPTY_BODY: [(&str, &str); 5] = [
    ("x-amz-checksum-crc32", "AAAAAA=="),
    ("x-amz-checksum-crc32c", "AAAAAA=="),
    ("x-amz-checksum-crc64nvme", "AAAAAAAAAAA="),
    ("x-amz-checksum-sha1", "2jmj7l5rSw0yVb/vlWAYkK/YBwk="),
    ("x-amz-checksum-sha256", "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="),
];
const CHECKSUM_ALGORITHM: &str = "x-amz-sdk-checksum-algorithm";

/// Adds what a signed query says as headers.
///
/// # Errors
///
/// `InvalidArgument` for what cannot be a header, and where a query says something twice, or something else than a header.
pub fn apply(query: Option<&str>, headers: &mut HeaderMap) -> S3Result<()> {
    if !query::has(query, "X-Amz-Signature") {
        return Ok(());
    }
    let mut added = Vec::new();
    for one in query::parameters(query) {
        let name = String::from_utf8_lossy(&one.name).to_ascii_lowercase();
        if !name.starts_with(PREFIX) || OF_SIGNATURE.contains(&&*name) {
            continue;
        }
        let wrong = |what: &str| {
            let what = format!("the parameter {name} of the signed URL {what}");
            S3Error::with_message(S3ErrorCode::InvalidArgument, what)
        };
        let value = one.value();
        let is_placeholder =
            |(checksum, of_empty): &(&str, &str)| name == *checksum && value == of_empty.as_bytes();
        // The algorithm alone says nothing: a checksum that comes with it has its own name.
        if name == CHECKSUM_ALGORITHM || OF_EMPTY_BODY.iter().any(is_placeholder) {
            continue;
        }
        let is_plain = value == b"UNSIGNED-PAYLOAD"
            || std::str::from_utf8(&value).is_ok_and(|text| hex::decode_hash(text).is_some());
        if name == PAYLOAD && !is_plain {
            return Err(wrong("is neither UNSIGNED-PAYLOAD nor the SHA-256 of a body"));
        }
        let header =
            HeaderName::try_from(&*name).map_err(|_| wrong("is not the name of a header"))?;
        let value = HeaderValue::from_bytes(&value).map_err(|_| wrong("cannot be a header"))?;
        if added.contains(&header) {
            return Err(wrong("is there twice"));
        }
        match headers.get(&header) {
            Some(other) if *other != value => return Err(wrong("differs from the header")),
            Some(_) => {}
            None => {
                headers.insert(header.clone(), value);
            }
        }
        added.push(header);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(
        query: &str,
        given: &[(&'static str, &'static str)],
    ) -> Result<Vec<(String, String)>, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        apply(Some(query), &mut headers).map_err(|error| error.code().as_str().to_owned())?;
        let text = |(name, value): (&HeaderName, &HeaderValue)| {
            (name.to_string(), value.to_str().unwrap().to_owned())
        };
        Ok(headers.iter().map(text).collect())
    }

    #[test]
    fn a_signed_query_says_what_headers_say() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let query = "X-Amz-Signature=f&X-Amz-Date=d&x-amz-meta-a=b%20c&x-id=PutObject&X-Amz-Acl=public-read";
        let headers = applied(query, &[]).unwrap();
        assert_eq!(headers, [pair("x-amz-meta-a", "b c"), pair("x-amz-acl", "public-read")]);
        // However their names are written.
        let escaped = query.replace("Signature", "%53ignature").replace("-meta", "%2Dmeta");
        assert_eq!(applied(&escaped, &[]).unwrap(), headers);
        // Without a signature in it, a query is not what is signed.
        assert_eq!(applied("x-amz-meta-a=b", &[]).unwrap(), []);
        assert_eq!(applied(query, &[("x-amz-acl", "public-read")]).unwrap().len(), 2);
        for (query, given) in [
            ("X-Amz-Signature=f&x-amz-acl=private", &[("x-amz-acl", "public-read")][..]),
            ("X-Amz-Signature=f&x-amz-acl=a&x-amz-acl=a", &[]),
            ("X-Amz-Signature=f&x-amz-meta-a=%0a", &[]),
            ("X-Amz-Signature=f&x-amz-meta-(=1", &[]),
            ("X-Amz-Signature=f&X-Amz-Content-Sha256=STREAMING-UNSIGNED-PAYLOAD-TRAILER", &[]),
        ] {
            assert_eq!(applied(query, given), Err("InvalidArgument".to_owned()), "{query}");
        }
    }

    #[test]
    fn checksums_of_a_body_that_nobody_knew_are_passed_by() {
        let query = "X-Amz-Signature=f&x-amz-checksum-crc32=AAAAAA%3D%3D&x-amz-sdk-checksum-algorithm=CRC32";
        assert_eq!(applied(query, &[]).unwrap(), []);
        let query = "X-Amz-Signature=f&x-amz-checksum-crc32=ZS0jFg%3D%3D&x-amz-sdk-checksum-algorithm=CRC32";
        let headers = applied(query, &[]).unwrap();
        assert_eq!(headers, [("x-amz-checksum-crc32".to_owned(), "ZS0jFg==".to_owned())]);
    }

    #[test]
    fn the_hash_of_a_body_is_one_also_in_a_query() {
        for value in ["UNSIGNED-PAYLOAD", &"0a".repeat(32)] {
            let headers = applied(&format!("X-Amz-Signature=f&X-Amz-Content-Sha256={value}"), &[]);
            assert_eq!(headers.unwrap(), [(PAYLOAD.to_owned(), value.to_owned())]);
        }
    }

    proptest::proptest! {
        #[test]
        fn any_query_is_applied_or_refused(query in ".{0,80}") {
            let _ = apply(Some(&format!("X-Amz-Signature=1&{query}")), &mut HeaderMap::new());
        }
    }
}
