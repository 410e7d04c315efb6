//! Who may do what: signatures are `s3s`'s to check, with the secrets of [`Keys`]; scopes are checked here
//! before an operation is even read.
//!
//! Beyond that, a few things that `s3s` takes are refused: the old signatures (version 2), forms (their
//! bodies are held in memory), and headers of S3's that are not signed. An unsigned `x-amz-copy-source`
//! would turn the signed URL of a PUT into a copy of another object.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::header::{
    AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, TRANSFER_ENCODING,
};
use http::{Method, Request};
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::asked;
use super::keys::{Keys, Level};
use super::messages;
use super::payload;
use super::query;
use super::subresources;

/// The largest body in XML: the 1000 keys of a multi-delete, the 10,000 parts of an upload.
pub const XML_BYTES_MAX: usize = 4 << 20;
/// Times that client and server may differ by, in seconds, as AWS has it.
pub const SKEW_S: u32 = 900;
/// The longest time that a signed URL is good for, in seconds.
pub const EXPIRES_S_MAX: u32 = 7 * 24 * 3600;

/// Whether the signature of a request was found right: only then is it the access key's that it names.
#[derive(Clone, Default)]
pub struct Authenticated(Arc<AtomicBool>);

impl Authenticated {
    /// Whether it was.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Access keys, as `s3s` asks for them.
pub struct Guard(pub Arc<Keys>);

#[async_trait::async_trait]
impl S3Auth for Guard {
    async fn get_secret_key(&self, id: &str) -> S3Result<SecretKey> {
        match self.0.get(id) {
            Some(key) => Ok(SecretKey::from(key.secret())),
            None => Err(S3Error::with_message(
                S3ErrorCode::InvalidAccessKeyId,
                messages::NO_SUCH_ACCESS_KEY,
            )),
        }
    }
}

/// What an operation needs; `None`: nothing in particular. One that is not named here needs the right to administrate: so
/// does one that is forgotten, and a test names it.
fn level_of(operation: &str) -> Option<Level> {
    Some(match operation {
        "ListBuckets" => return None,
        "GetObject"
        | "HeadObject"
        | "GetObjectAttributes"
        | "GetObjectTagging"
        | "HeadBucket"
        | "ListObjects"
        | "ListObjectsV2"
        | "ListObjectVersions"
        | "GetBucketCors"
        | "GetBucketEncryption"
        | "GetBucketLifecycleConfiguration"
        | "GetBucketLogging"
        | "GetBucketNotificationConfiguration"
        | "GetBucketPolicy"
        | "GetBucketReplication"
        | "GetBucketTagging"
        | "GetBucketWebsite"
        | "GetObjectLockConfiguration"
        | "GetPublicAccessBlock"
        | "GetBucketLocation"
        | "GetBucketVersioning" => Level::Read,
        // A list of access says that the key may do everything, which is not so for a reader's.
        "GetBucketAcl"
        | "GetObjectAcl"
        | "PutBucketAcl"
        | "PutObjectAcl"
        | "PutObject"
        | "PutObjectTagging"
        | "DeleteObjectTagging"
        | "CopyObject"
        | "DeleteObject"
        | "DeleteObjects"
        | "CreateBucket"
        | "CreateMultipartUpload"
        | "UploadPart"
        | "UploadPartCopy"
        | "CompleteMultipartUpload"
        | "AbortMultipartUpload"
        // Whoever may write may go on with any upload, complete and abort it: to see them allows nothing more, and minio-js
        // looks for one before each upload in parts.
        | "ListMultipartUploads"
        | "ListParts" => Level::Write,
        _ => Level::Admin,
    })
}

/// The error of a scope that does not suffice.
pub fn denied() -> S3Error {
    S3Error::with_message(S3ErrorCode::AccessDenied, "the access key does not allow this here")
}

/// Whether a request would change something in a bucket, and the access key that it names may only read there. `s3s` answers an
/// operation that it does not know before it asks what the key may.
pub fn is_denied_write<B>(keys: &Keys, bucket: &str, request: &Request<B>) -> bool {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    let key = claimed(request).and_then(|id| keys.get(id));
    !reads && key.is_some_and(|key| !key.allows(bucket, Level::Write))
}

#[async_trait::async_trait]
impl S3Access for Guard {
    async fn check(&self, context: &mut S3AccessContext<'_>) -> S3Result<()> {
        let key = context.credentials().and_then(|shown| self.0.get(&shown.access_key));
        let key = key.ok_or_else(denied)?;
        if let Some(known) = context.extensions_mut().get::<Authenticated>() {
            known.0.store(true, Ordering::Relaxed);
        }
        let Some(level) = level_of(context.s3_op().name()) else { return Ok(()) };
        let bucket = context.s3_path().get_bucket_name().unwrap_or("");
        if !key.allows(bucket, level) {
            return Err(denied());
        }
        let names = query::parameters(context.uri().query()).map(|one| one.name.into_owned());
        subresources::check(context.s3_op().name(), names)?;
        let id = context.credentials().map_or("", |shown| &shown.access_key);
        asked::check(context.s3_op().name(), id, context.headers())
    }
}

fn refused(code: S3ErrorCode, what: &'static str) -> S3Result<()> {
    Err(S3Error::with_message(code, what))
}

/// Whether a query has parameters of the signatures of version 2, which `s3s` would take beside those of version 4.
fn has_old_signature(query: Option<&str>) -> bool {
    ["Signature", "AWSAccessKeyId"].into_iter().any(|name| query::has(query, name))
}

/// Whether what was signed was signed for another service, whose bodies `s3s` reads before it checks the signature.
fn is_of_other_service(value: &HeaderValue) -> bool {
    let text = value.to_str().unwrap_or_default();
    let mut all = text.split("Credential=").skip(1);
    all.any(|shown| {
        let scope = shown.split(',').next().unwrap_or_default();
        scope.trim().split('/').nth(3).is_some_and(|service| service != "s3")
    })
}

/// Whether the dates of signatures have letters and digits only. `s3s` 0.14 subtracts `b'0'` from each of their bytes before it
/// checks them: a smaller byte is a panic in builds that check for overflow.
fn has_plain_dates(headers: &HeaderMap, query: Option<&str>) -> bool {
    let is_plain = |date: &[u8]| date.iter().all(u8::is_ascii_alphanumeric);
    // The date is what follows the name of the key.
    let of_credential = |shown: &[u8]| shown.split(|b| *b == b'/').nth(1).is_none_or(is_plain);
    let shown = headers.get_all(AUTHORIZATION).iter().filter_map(|value| value.to_str().ok());
    let mut credentials = shown.flat_map(|text| text.split("Credential=").skip(1));
    headers.get_all("x-amz-date").iter().all(|value| is_plain(value.as_bytes()))
        && credentials.all(|shown| of_credential(shown.as_bytes()))
        && query::parameters(query).all(|one| match &*one.name {
            b"X-Amz-Date" => is_plain(&one.value()),
            b"X-Amz-Credential" => of_credential(&one.value()),
            _ => true,
        })
}

/// Refuses a body in XML that is too long, or of an unknown length: `payload` judges one whose length is known.
fn check_length(headers: &HeaderMap) -> S3Result<()> {
    if headers.contains_key(TRANSFER_ENCODING) {
        let what = "You must provide the Content-Length HTTP header.";
        return refused(S3ErrorCode::MissingContentLength, what);
    }
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let length = length.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    if length > XML_BYTES_MAX as u64 {
        return refused(S3ErrorCode::MaxMessageLengthExceeded, "the body in XML is too long");
    }
    Ok(())
}

/// Refuses what `s3s` would take.
///
/// # Errors
///
/// `AccessDenied` without a signature of version 4 or with unsigned headers, `AuthorizationHeaderMalformed` for a date that is
/// none, `NotImplemented` for forms, `MissingContentLength` for XML without its length.
pub fn check<B>(request: &Request<B>) -> S3Result<()> {
    let headers = request.headers();
    let query = request.uri().query();
    let content_type = headers.get(CONTENT_TYPE).map(|value| value.as_bytes()).unwrap_or_default();
    let form = b"multipart/form-data";
    if content_type.len() >= form.len() && content_type[..form.len()].eq_ignore_ascii_case(form) {
        return refused(S3ErrorCode::NotImplemented, "uploads by forms are not supported here");
    }
    if payload::is_xml(request.method(), request.uri().query()) {
        check_length(headers)?;
    }
    let shown = headers.get_all(AUTHORIZATION).iter().collect::<Vec<_>>();
    if has_old_signature(query) {
        return refused(S3ErrorCode::AccessDenied, messages::OLD_SIGNATURE);
    }
    if shown.iter().any(|value| is_of_other_service(value)) {
        let what = "the signature is for another service than s3";
        return refused(S3ErrorCode::AuthorizationHeaderMalformed, what);
    }
    let in_query = signed_of_query(query);
    if !has_plain_dates(headers, query) {
        let what = "the date of a signature has the form 20260101 or 20260101T000000Z";
        return refused(S3ErrorCode::AuthorizationHeaderMalformed, what);
    }
    let mut lasting = query::parameters(query).filter(|one| one.is("X-Amz-Expires"));
    if lasting.any(|one| !one.encoded.parse::<u32>().is_ok_and(|s| s <= EXPIRES_S_MAX)) {
        let what = "a signed URL is good for seven days at most";
        return refused(S3ErrorCode::AccessDenied, what);
    }
    let signed = match (shown.as_slice(), in_query) {
        ([], Some(signed)) => signed,
        ([value], None) => {
            let text = value.to_str().ok().filter(|text| text.starts_with("AWS4-HMAC-SHA256 "));
            let list = text.and_then(|text| text.split_once("SignedHeaders="));
            match list.map(|(_, rest)| rest.split(',').next().unwrap_or("").trim()) {
                Some(signed) => signed.to_ascii_lowercase(),
                None => {
                    let what = "sign requests with signature version 4";
                    return refused(S3ErrorCode::AccessDenied, what);
                }
            }
        }
        _ => {
            let what = "sign requests with signature version 4, in one header or in the URL";
            return refused(S3ErrorCode::AccessDenied, what);
        }
    };
    let is_signed = |name: &str| signed.split(';').any(|one| one == name);
    let unsigned = headers.keys().any(|name| {
        let name = name.as_str();
        name.starts_with("x-amz-") && !is_signed(name)
    });
    if unsigned || !is_signed("host") {
        return refused(S3ErrorCode::AccessDenied, messages::UNSIGNED_HEADERS);
    }
    Ok(())
}

/// The access key that a request says it is signed with, in its header or its URL.
pub fn claimed<B>(request: &Request<B>) -> Option<&str> {
    claimed_by(request.headers(), request.uri().query())
}

/// The same of headers and a query.
pub fn claimed_by<'a>(headers: &'a HeaderMap, query: Option<&'a str>) -> Option<&'a str> {
    match headers.get(AUTHORIZATION) {
        Some(value) => claimed_in(value),
        None => {
            let shown = query::parameters(query).find(|one| one.is("X-Amz-Credential"))?.encoded;
            // A slash may be encoded; the names of keys need none.
            shown.split(['/', '%']).next()
        }
    }
}

fn claimed_in(value: &HeaderValue) -> Option<&str> {
    let (_, rest) = value.to_str().ok()?.split_once("Credential=")?;
    rest.split('/').next()
}

/// The signed headers of a presigned URL.
fn signed_of_query(query: Option<&str>) -> Option<String> {
    let value = query::parameters(query).find(|one| one.is("X-Amz-SignedHeaders"))?.value();
    Some(String::from_utf8(value).ok()?.to_ascii_lowercase())
}

/// The names of the operations in `operations.rs`.
#[cfg(test)]
pub fn supported() -> Vec<String> {
    let operations = include_str!("operations.rs");
    let names = operations.split("async fn ").skip(1).map(|rest| {
        let snake = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap();
        snake
            .split('_')
            .map(|word| match word {
                "v2" => "V2".to_owned(),
                word => word[..1].to_uppercase() + &word[1..],
            })
            .collect::<String>()
    });
    let names: Vec<String> = names.collect();
    assert!(names.iter().any(|name| name == "ListObjectsV2"), "{names:?}");
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_that_is_claimed() {
        let found = |uri: &str, header: Option<&str>| {
            let mut request = Request::builder().uri(uri);
            if let Some(value) = header {
                request = request.header("authorization", value);
            }
            claimed(&request.body(()).unwrap()).map(str::to_owned)
        };
        let header = "AWS4-HMAC-SHA256 Credential=AK/20260101/us-east-1/s3/aws4_request, x";
        assert_eq!(found("/b/k", Some(header)).as_deref(), Some("AK"));
        for slash in ["/", "%2F"] {
            let uri = format!("/b/k?x=1&X-Amz-Credential=AK{slash}2026&y");
            assert_eq!(found(&uri, None).as_deref(), Some("AK"));
        }
        assert_eq!((found("/b/k", None), found("/b/k?a", Some("Basic x"))), (None, None));
    }

    fn check_one(uri: &str, headers: &[(&str, &str)], expected: Option<S3ErrorCode>) {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let found = check(&request.body(()).unwrap()).err().map(|error| error.code().clone());
        assert_eq!(found, expected, "{uri} {headers:?}");
    }

    /// A body in XML that comes without its length could not be judged before its operation begins.
    #[test]
    fn xml_without_a_length_is_refused() {
        let refused = |method: Method| {
            let request = Request::builder().method(method).uri("/b?delete");
            let request = request.header("transfer-encoding", "chunked").body(()).unwrap();
            check(&request).err().map(|error| error.code().clone())
        };
        assert_eq!(refused(Method::POST), Some(S3ErrorCode::MissingContentLength));
        assert_eq!(refused(Method::PUT), Some(S3ErrorCode::AccessDenied), "objects may have none");
    }

    #[test]
    fn only_requests_that_are_signed_as_a_whole_are_passed_on() {
        const V4: &str = "AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/s3/aws4_request, \
            SignedHeaders=host;x-amz-date, Signature=00";
        let denied = Some(S3ErrorCode::AccessDenied);
        check_one("/b/k", &[("authorization", V4), ("x-amz-date", "x")], None);
        check_one("/b/k?X-Amz-SignedHeaders=host%3Bx-amz-acl", &[("x-amz-acl", "private")], None);
        check_one("/b/k", &[], denied.clone());
        check_one("/b/k", &[("authorization", "AWS a:b")], denied.clone());
        check_one("/b/k?AWSAccessKeyId=a&Signature=b&Expires=1", &[], denied.clone());
        let source = ("x-amz-copy-source", "/b/other");
        check_one("/b/k", &[("authorization", V4), source], denied.clone());
        check_one("/b/k?X-Amz-SignedHeaders=host", &[source], denied.clone());
        check_one("/b/k?X-Amz-SignedHeaders=x-amz-date", &[], denied.clone());
        check_one("/b/k?X-Amz-Expires=604800&X-Amz-SignedHeaders=host", &[], None);
        for wrong in ["604801", "", "-1", "99999999999999999999"] {
            let uri = format!("/b/k?X-Amz-Expires={wrong}&X-Amz-SignedHeaders=host");
            check_one(&uri, &[], denied.clone());
        }
        check_one("/b/k?X-Amz-SignedHeaders=host", &[("authorization", V4)], denied.clone());
        check_one("/b/k", &[("authorization", V4), ("authorization", V4)], denied.clone());
        let malformed = Some(S3ErrorCode::AuthorizationHeaderMalformed);
        check_one(
            "/b/k",
            &[("authorization", V4), ("x-amz-date", "2026-01-01")],
            malformed.clone(),
        );
        check_one("/b/k", &[("authorization", &V4.replace("0101", "01 1"))], malformed.clone());
        let twice = V4.replace("Credential=", "Credential=a/20260101/, Credential=");
        check_one(
            "/b/k",
            &[("authorization", &twice.replace("a/20260101/us", "a/2026!101/us"))],
            malformed.clone(),
        );
        for wrong in ["X-Amz-Date=20260101T00%2E000Z", "X-Amz-Credential=a%2F2026%2D101%2Fus"] {
            check_one(&format!("/b/k?{wrong}&X-Amz-SignedHeaders=host"), &[], malformed.clone());
        }
        // However their names are written.
        let escaped = "X-Amz-Signed%48eaders=host";
        check_one(&format!("/b/k?{escaped}"), &[], None);
        check_one(&format!("/b/k?X-Amz%2DExpires=99999999&{escaped}"), &[], denied.clone());
        check_one(&format!("/b/k?%58-Amz-Date=2026!101&{escaped}"), &[], malformed.clone());
        let tagging = format!("/b/k?{escaped}&%74agging");
        let request = Request::put(&tagging).header("transfer-encoding", "chunked");
        let found = check(&request.body(()).unwrap()).err().map(|error| error.code().clone());
        assert_eq!(found, Some(S3ErrorCode::MissingContentLength), "{tagging}");
        check_one("/b/k?a%20b=X-Amz&X-Amz-SignedHeaders=host", &[], None);
        let old = "/b/k?AWSAccessKeyId=a&Sign%61ture=b&Expires=1&X-Amz-SignedHeaders=host";
        check_one(old, &[], Some(S3ErrorCode::AccessDenied));
        let told = check(&Request::builder().uri(old).body(()).unwrap()).unwrap_err();
        assert!(told.message().is_some_and(|words| words.contains("s3v4")), "{told:?}");
        let sts = V4.replace("/s3/", "/sts/");
        check_one("/b/k", &[("authorization", &sts)], malformed.clone());
        let form = ("content-type", "Multipart/Form-Data; boundary=x");
        check_one("/b", &[("authorization", V4), form], Some(S3ErrorCode::NotImplemented));
    }

    #[test]
    fn each_operation_has_a_level_of_its_own() {
        for name in supported() {
            assert_ne!(level_of(&name), Some(Level::Admin), "level_of says nothing of {name}");
        }
        // Whose uploads there are is not a reader's to know.
        assert_eq!(level_of("ListMultipartUploads"), Some(Level::Write));
    }
}
