//! What `s3s` makes of requests that are signed in a way of their client's.

use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};

use http::Request;
use http::header::CONTENT_DISPOSITION;
use s3s::dto::{PutObjectInput, PutObjectOutput};
use s3s::service::S3ServiceBuilder;
use s3s::{S3Request, S3Response, S3Result};

use super::*;
use crate::guard::{self, Guard};
use crate::headers::attributes_of;
use crate::keys::{Files, signing_key};

const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const NAMES: &str = "content-disposition;host;x-amz-content-sha256;x-amz-date;x-amz-meta-a";

fn keys() -> Arc<Keys> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    let text = format!("[[key]]\nid = \"AK\"\nsecret = \"{SECRET}\"\nscopes = [\"*:write\"]\n");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    Keys::open(Files { keys: path, master: None }).unwrap()
}

/// Keeps the attributes of what is written.
#[derive(Clone, Default)]
struct Probe(Arc<Mutex<Vec<(String, String)>>>);

#[async_trait::async_trait]
impl s3s::S3 for Probe {
    async fn put_object(
        &self,
        request: S3Request<PutObjectInput>,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        *self.0.lock().unwrap() = attributes_of(&request.headers)?.user;
        Ok(S3Response::new(PutObjectOutput::default()))
    }
}

/// A PUT of nothing that a client signed which folds these blanks.
fn signed(disposition: &str, meta: &str, is_blank: fn(char) -> bool) -> Request<s3s::Body> {
    signed_for("us-east-1", disposition, meta, is_blank)
}

/// The same for a region.
fn signed_for(
    region: &str,
    disposition: &str,
    meta: &str,
    is_blank: fn(char) -> bool,
) -> Request<s3s::Body> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now = chrono::DateTime::from_timestamp(now.as_secs() as i64, 0).unwrap();
    let date = now.format("%Y%m%dT%H%M%SZ").to_string();
    let mut request =
        Request::put("/bucket/k%20%C3%BC?x-id=PutObject").body(s3s::Body::empty()).unwrap();
    let payload = hex::encode(digest::digest(&digest::SHA256, b"").as_ref());
    for (name, value) in NAMES.split(';').zip([disposition, "localhost", &payload, &date, meta]) {
        request.headers_mut().insert(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    request.headers_mut().insert("content-length", HeaderValue::from_static("0"));
    let mut canonical = "PUT\n/bucket/k%20%C3%BC\nx-id=PutObject\n".to_owned();
    for name in NAMES.split(';') {
        let value = std::str::from_utf8(request.headers()[name].as_bytes()).unwrap();
        let words: Vec<&str> = value.split(is_blank).filter(|word| !word.is_empty()).collect();
        canonical += &format!("{name}:{}\n", words.join(" "));
    }
    canonical += &format!("\n{NAMES}\n{payload}");
    let hash = hex::encode(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
    let scope = format!("{}/{region}/s3/aws4_request", &date[..8]);
    let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{hash}");
    let tag = hmac::sign(&signing_key(SECRET, &scope).unwrap(), text.as_bytes());
    let value = format!(
        "AWS4-HMAC-SHA256 Credential=AK/{scope}, SignedHeaders={NAMES}, Signature={}",
        hex::encode(tag.as_ref())
    );
    request.headers_mut().insert(AUTHORIZATION, HeaderValue::try_from(value).unwrap());
    request
}

/// The status of a request, and the values that are kept.
fn reply_of(request: Request<s3s::Body>, is_applied: bool) -> (u16, Vec<String>) {
    guard::check(&request).unwrap();
    let (keys, probe) = (keys(), Probe::default());
    let mut builder = S3ServiceBuilder::new(probe.clone());
    builder.set_auth(Guard(keys.clone()));
    builder.set_access(Guard(keys.clone()));
    let mut request = request;
    if is_applied {
        apply(&keys, &mut request);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let reply = runtime.block_on(builder.build().call(request)).unwrap();
    let kept = probe.0.lock().unwrap();
    (reply.status().as_u16(), kept.iter().map(|(_, value)| value.clone()).collect())
}

#[test]
fn what_clients_sign_is_taken_and_kept_as_it_was_sent() {
    let values = ["a  b", "a\u{3000}b", "9.41.00\u{202f}AM", "10\u{a0}km", "a\tb", "a\t\u{a0}b  c"];
    for is_blank in BLANKS {
        for meta in values {
            for disposition in ["inline", "attachment; filename=\"\u{fc}\u{3000}x\""] {
                let (status, mut kept) = reply_of(signed(disposition, meta, is_blank), true);
                kept.sort();
                let mut expected = [disposition.to_owned(), meta.to_owned()];
                expected.sort();
                assert_eq!((status, kept), (200, expected.to_vec()), "{meta:?} {disposition:?}");
            }
        }
    }
    // What this is for: `s3s` alone refuses both.
    let spaces = BLANKS[0];
    assert_eq!(reply_of(signed("inline", "a\u{3000}b", spaces), false).0, 403);
    assert_eq!(reply_of(signed("\u{fc}", "a", spaces), false).0, 400);
}

type Change = fn(&mut Request<s3s::Body>);

#[test]
fn what_was_not_signed_so_is_refused() {
    let changes: [(&str, Change); 4] = [
        ("metadata", |request| {
            let value = HeaderValue::from_bytes("a\u{3000}c".as_bytes()).unwrap();
            request.headers_mut().insert("x-amz-meta-a", value);
        }),
        ("type", |request| {
            let value = HeaderValue::from_bytes("\u{fd}".as_bytes()).unwrap();
            request.headers_mut().insert(CONTENT_DISPOSITION, value);
        }),
        ("key", |request| *request.uri_mut() = Uri::from_static("/bucket/other?x-id=PutObject")),
        ("parameters", |request| {
            *request.uri_mut() = Uri::from_static("/bucket/k%20%C3%BC?x-id=a")
        }),
    ];
    for (what, change) in changes {
        let mut request = signed("\u{fc}", "a\u{3000}b", BLANKS[0]);
        change(&mut request);
        assert_eq!(reply_of(request, true).0, 403, "{what}");
    }
}

#[test]
fn signed_chunks_and_plain_requests_are_left_alone() {
    let keys = keys();
    for (meta, payload) in
        [("a b", None), ("a\u{3000}b", Some("STREAMING-AWS4-HMAC-SHA256-PAYLOAD"))]
    {
        let mut request = signed("inline", meta, BLANKS[0]);
        if let Some(payload) = payload {
            let payload = HeaderValue::from_static(payload);
            request.headers_mut().insert("x-amz-content-sha256", payload);
        }
        let before = request.headers().clone();
        apply(&keys, &mut request);
        assert_eq!(*request.headers(), before);
    }
}

/// The URL of a PUT that is signed for a region.
fn signed_url(region: &str, more: &str) -> Request<s3s::Body> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now = chrono::DateTime::from_timestamp(now.as_secs() as i64, 0).unwrap();
    let date = now.format("%Y%m%dT%H%M%SZ").to_string();
    let scope = format!("{}/{region}/s3/aws4_request", &date[..8]);
    let query = format!(
        "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AK%2F{}&X-Amz-Date={date}&X-Amz-Expires=60\
         &X-Amz-SignedHeaders=host&x-id=PutObject",
        scope.replace('/', "%2F")
    );
    let canonical =
        format!("PUT\n/bucket/k%20%C3%BC\n{query}\nhost:localhost\n\nhost\nUNSIGNED-PAYLOAD");
    let hash = hex::encode(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
    let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{hash}");
    let tag = hmac::sign(&signing_key(SECRET, &scope).unwrap(), text.as_bytes());
    let signature = hex::encode(tag.as_ref());
    let uri = format!("/bucket/k%20%C3%BC?{query}&X-Amz-Signature={signature}{more}");
    let request = Request::put(uri).header("host", "localhost").header("content-length", "0");
    request.body(s3s::Body::empty()).unwrap()
}

/// Ceph and OpenStack call theirs `RegionOne`, and git-annex signs for the name of the store's host.
#[test]
fn any_region_is_taken() {
    for region in ["us-east-1", "RegionOne", "s3.example.com", "my_region", "EU", "127.0.0.1"] {
        let found = reply_of(signed_for(region, "inline", "a", BLANKS[0]), true);
        assert_eq!(found.0, 200, "{region}");
        assert_eq!(reply_of(signed_url(region, ""), true).0, 200, "the URL for {region}");
        let mut request = signed_for(region, "inline", "a", BLANKS[0]);
        request.headers_mut().insert("x-amz-meta-a", HeaderValue::from_static("b"));
        assert_eq!(reply_of(request, true).0, 403, "{region}");
        assert_eq!(reply_of(signed_url(region, "&acl"), true).0, 403, "the URL for {region}");
    }
    assert_eq!(reply_of(signed_for("RegionOne", "inline", "a", BLANKS[0]), false).0, 400);
    assert_eq!(reply_of(signed_url("RegionOne", ""), false).0, 400);
}
