//! Requests as they were signed, and changed.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::*;
use crate::keys::{Files, signing_key};

const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

fn keys() -> Arc<Keys> {
    let folder = tempfile::tempdir().unwrap();
    Keys::open(Files { keys: file_of_keys(folder.path()), master: None }).unwrap()
}

fn file_of_keys(folder: &Path) -> PathBuf {
    let path = folder.join("keys");
    let text = format!(
        "[[key]]\nid = \"AKIAIOSFODNN7EXAMPLE\"\nsecret = \"{SECRET}\"\nscopes = [\"examplebucket:write\"]\n"
    );
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// The example of AWS's documentation of signature version 4 for S3, GET of an object with a range
/// ("Authenticating Requests: Using the Authorization Header").
fn example() -> Request<()> {
    Request::builder()
        .uri("/examplebucket/test.txt")
        .header("host", "localhost")
        .header("range", "bytes=0-9")
        .header("x-amz-content-sha256", std::str::from_utf8(EMPTY).unwrap())
        .header("x-amz-date", "20130524T000000Z")
        .body(())
        .unwrap()
}

/// Signs with another implementation's words: RFC 2104 by hand over the documentation's canonical request.
fn sign(mut request: Request<()>, names: &str) -> Request<()> {
    let query = request.uri().query().unwrap_or("");
    let mut canonical = format!("{}\n{}\n{query}\n", request.method(), request.uri().path());
    for name in names.split(';') {
        let value = request.headers()[name].to_str().unwrap();
        canonical += &format!("{name}:{value}\n");
    }
    let payload = request.headers()["x-amz-content-sha256"].to_str().unwrap();
    canonical += &format!("\n{names}\n{payload}");
    let mut hash = Vec::new();
    hex::push(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref(), &mut hash);
    let date = request.headers()["x-amz-date"].to_str().unwrap();
    let scope = &format!("{}/us-east-1/s3/aws4_request", &date[..8]);
    let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", String::from_utf8(hash).unwrap());
    let tag = hmac::sign(&signing_key(SECRET, scope).unwrap(), text.as_bytes());
    let mut signature = Vec::new();
    hex::push(tag.as_ref(), &mut signature);
    let value = format!(
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/{scope}, SignedHeaders={names}, Signature={}",
        String::from_utf8(signature).unwrap()
    );
    request.headers_mut().insert(AUTHORIZATION, HeaderValue::from_str(&value).unwrap());
    request
}

const NAMES: &str = "host;range;x-amz-content-sha256;x-amz-date";

fn check(what: &str, change: impl FnOnce(&mut Request<()>), expected: bool) {
    let mut request = sign(example(), NAMES);
    change(&mut request);
    let now = time_of("20130524T001459Z").unwrap();
    assert_eq!(allowed(&keys(), &request, now).is_some(), expected, "{what}");
}

#[test]
fn a_request_is_allowed_as_it_was_signed_and_not_otherwise() {
    let value = HeaderValue::from_static;
    check("as it is", |_| {}, true);
    check("method", |r| *r.method_mut() = Method::HEAD, false);
    check("method of a write", |r| *r.method_mut() = Method::PUT, false);
    check("path", |r| *r.uri_mut() = "/examplebucket/test.tx".parse().unwrap(), false);
    for query in ["?acl", "?x-id=GetObject", "?x-id=GetObject&a", "?"] {
        let uri: http::Uri = format!("/examplebucket/test.txt{query}").parse().unwrap();
        check(query, |r| *r.uri_mut() = uri, query == "?");
    }
    check("a signed header", |r| drop(r.headers_mut().insert("range", value("bytes=0-8"))), false);
    check("a second one", |r| assert!(r.headers_mut().append("range", value("bytes=0-9"))), false);
    check("one is missing", |r| drop(r.headers_mut().remove("range")), false);
    check(
        "an unsigned one",
        |r| drop(r.headers_mut().insert("x-amz-user-agent", value("a"))),
        false,
    );
    check("another unsigned one", |r| drop(r.headers_mut().insert("accept", value("a"))), true);
    check("a body", |r| drop(r.headers_mut().insert(CONTENT_LENGTH, value("1"))), false);
    check("the host", |r| drop(r.headers_mut().insert("host", value("other"))), false);
    let other = sign(example(), "host;x-amz-content-sha256;x-amz-date");
    check("fewer signed ones", |r| *r = other, true);
    let other = sign(example(), "range;x-amz-content-sha256;x-amz-date");
    check("without the host", |r| *r = other, false);
    for (now, expected) in [
        ("20130524T001501Z", false),
        ("20130523T234500Z", true),
        ("20130523T234459Z", false),
        ("20140524T000000Z", false),
    ] {
        let request = sign(example(), NAMES);
        let found = allowed(&keys(), &request, time_of(now).unwrap());
        assert_eq!(found.is_some(), expected, "{now}");
    }
    let mut elsewhere = example();
    *elsewhere.uri_mut() = "/another/test.txt".parse().unwrap();
    let now = time_of("20130524T000000Z").unwrap();
    assert_eq!(allowed(&keys(), &sign(elsewhere, NAMES), now), None);
}

#[test]
fn the_name_of_the_operation_is_signed_and_says_nothing() {
    let now = time_of("20130524T000000Z").unwrap();
    for (method, query, expected) in [
        (Method::GET, "x-id=GetObject", true),
        (Method::HEAD, "x-id=HeadObject", true),
        (Method::HEAD, "x-id=GetObject", false),
        (Method::GET, "x-id=PutObject", false),
        (Method::GET, "acl=", false),
    ] {
        let mut request = example();
        *request.method_mut() = method;
        *request.uri_mut() = format!("/examplebucket/test.txt?{query}").parse().unwrap();
        let found = allowed(&keys(), &sign(request, NAMES), now).is_some();
        assert_eq!(found, expected, "{query}");
    }
}

/// A URL that was signed for a day, with a query in front of the signature.
fn presigned(more: &str, expires: &str, change: impl FnOnce(&str) -> String) -> Request<()> {
    let scope = "20130524/us-east-1/s3/aws4_request";
    let query = format!(
        "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F{}\
         &X-Amz-Date=20130524T000000Z&X-Amz-Expires={expires}&X-Amz-SignedHeaders=host{more}",
        scope.replace('/', "%2F")
    );
    let canonical =
        format!("GET\n/examplebucket/test.txt\n{query}\nhost:localhost\n\nhost\nUNSIGNED-PAYLOAD");
    let mut hash = Vec::new();
    hex::push(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref(), &mut hash);
    let hash = String::from_utf8(hash).unwrap();
    let text = format!("AWS4-HMAC-SHA256\n20130524T000000Z\n{scope}\n{hash}");
    let tag = hmac::sign(&signing_key(SECRET, scope).unwrap(), text.as_bytes());
    let mut signature = Vec::new();
    hex::push(tag.as_ref(), &mut signature);
    let signature = String::from_utf8(signature).unwrap();
    let query = change(&format!("{query}&X-Amz-Signature={signature}"));
    let uri = format!("/examplebucket/test.txt?{query}");
    Request::builder().uri(uri).header("host", "localhost").body(()).unwrap()
}

#[test]
fn a_url_is_allowed_as_it_was_signed_while_it_lasts() {
    let at = |now: &str| time_of(now).unwrap();
    let same = |query: &str| query.to_owned();
    let request = presigned("", "86400", same);
    for (now, expected) in [
        ("20130524T000000Z", true),
        ("20130525T000000Z", true),
        ("20130525T000001Z", false),
        ("20130523T234500Z", true),
        ("20130523T234459Z", false),
    ] {
        assert_eq!(allowed(&keys(), &request, at(now)).is_some(), expected, "{now}");
    }
    let found = |request: &Request<()>| allowed(&keys(), request, at("20130524T000100Z")).is_some();
    assert!(found(&presigned("&x-id=GetObject", "60", same)));
    let last_first = |query: &str| {
        let (rest, last) = query.rsplit_once('&').unwrap();
        format!("{last}&{rest}")
    };
    assert!(found(&presigned("", "60", last_first)), "another order");
    for (what, more, expires) in [
        ("an unknown parameter", "&versionId=x", "60"),
        ("a parameter of replies", "&response-content-type=text%2Fhtml", "60"),
        ("the other name", "&x-id=PutObject", "60"),
        ("no time at all", "", "0"),
        ("more than a week", "", "604801"),
        ("a sign", "", "%2B60"),
    ] {
        assert!(!found(&presigned(more, expires, same)), "{what}");
    }
    for (from, to) in [
        ("Expires=60", "Expires=61"),
        ("Expires=60", "Expires=060"),
        ("Date=20130524T000000Z", "Date=20130524T000001Z"),
        ("us-east-1", "us-east-2"),
        ("AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLF"),
        ("X-Amz-Expires=60", "X-Amz-Expires=60&X-Amz-Expires=60"),
        ("SignedHeaders=host", "SignedHeaders="),
        ("%2Fs3", "/s3"),
        ("AWS4-HMAC-SHA256", "AWS4-HMAC-SHA1"),
        ("X-Amz-Signature=", "X-Amz-Signature=0"),
    ] {
        let changed = |query: &str| query.replacen(from, to, 1);
        assert!(!found(&presigned("", "60", changed)), "{to}");
    }
    let mut request = presigned("", "600", same);
    request.headers_mut().insert("x-amz-acl", HeaderValue::from_static("private"));
    assert!(!found(&request), "a header that is not signed");
    let mut request = presigned("", "600", same);
    *request.method_mut() = Method::HEAD;
    assert!(!found(&request), "another method");
}

#[test]
fn the_signature_is_the_one_of_the_documentation() {
    // "Signature Calculations for the Authorization Header", the example GET of an object.
    let canonical = "GET\n/test.txt\n\nhost:examplebucket.s3.amazonaws.com\nrange:bytes=0-9\n\
        x-amz-content-sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n\
        x-amz-date:20130524T000000Z\n\nhost;range;x-amz-content-sha256;x-amz-date\n\
        e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let mut hash = Vec::new();
    hex::push(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref(), &mut hash);
    let hash = String::from_utf8(hash).unwrap();
    assert_eq!(hash, "7344ae5b7ee6c3e7e6b0fe0640412a37625d1fbfff95c48bbb2dc43964946972");
    let scope = "20130524/us-east-1/s3/aws4_request";
    let text = format!("AWS4-HMAC-SHA256\n20130524T000000Z\n{scope}\n{hash}");
    let tag = hmac::sign(&signing_key(SECRET, scope).unwrap(), text.as_bytes());
    let mut signature = Vec::new();
    hex::push(tag.as_ref(), &mut signature);
    let expected = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
    assert_eq!(String::from_utf8(signature).unwrap(), expected);
}

proptest::proptest! {
    #[test]
    fn whatever_is_changed_in_a_request_is_refused_or_means_the_same(
        at in 0usize..400, byte in proptest::prelude::any::<u8>(), which in 0usize..3,
    ) {
        let mut request = sign(example(), NAMES);
        let name = ["authorization", "x-amz-date", "x-amz-content-sha256"][which];
        let before = request.headers()[name].as_bytes().to_vec();
        let mut bytes = before.clone();
        let at = at % bytes.len();
        bytes[at] = byte;
        if let Ok(value) = HeaderValue::from_bytes(&bytes) {
            request.headers_mut().insert(name, value);
            let now = time_of("20130524T000000Z").unwrap();
            // The digits of a signature may be in either case.
            let same = bytes.eq_ignore_ascii_case(&before);
            let found = allowed(&keys(), &request, now).is_some();
            proptest::prop_assert!(!found || same, "{}", bytes.escape_ascii());
            let _ = crate::guard::claimed(&request);
            let _ = crate::guard::check(&request);
        }
    }

    #[test]
    fn any_text_is_no_time_or_one(text in ".{0,20}") {
        let _ = (time_of(&text), credentials_in(&text));
    }
}

#[test]
fn a_scope_is_of_a_day_and_of_any_region() {
    for (scope, expected) in [
        ("20130524/us-east-1/s3/aws4_request", true),
        ("20130524/RegionOne/s3/aws4_request", true),
        ("20130524/s3.example.com/s3/aws4_request", true),
        ("20130524/my_region/s3/aws4_request", true),
        ("20130525/us-east-1/s3/aws4_request", false),
        ("20130524//s3/aws4_request", false),
        ("20130524/us east/s3/aws4_request", false),
        ("20130524/us-east-1/sts/aws4_request", false),
    ] {
        assert_eq!(is_scope(scope, "20130524"), Some(expected), "{scope}");
    }
}

#[test]
fn times_are_those_of_the_calendar() {
    for (date, seconds) in [
        ("19700101T000000Z", Some(0)),
        ("20000229T235959Z", Some(951_868_799)),
        ("20130524T000000Z", Some(1_369_353_600)),
        ("20261124T124500Z", Some(1_795_524_300)),
        ("20130524T000000", None),
        ("20131324T000000Z", None),
        ("2013052400000000", None),
        ("20130524T0000+0Z", None),
    ] {
        let found = time_of(date).map(|at| at.duration_since(UNIX_EPOCH).unwrap().as_secs());
        assert_eq!(found, seconds, "{date}");
    }
}

/// A PUT of the bytes with this hash.
fn a_write(payload: &str, more: &[(&'static str, &str)]) -> Request<()> {
    let mut request = Request::builder()
        .method(Method::PUT)
        .uri("/examplebucket/test.txt")
        .header("content-length", "4")
        .header("host", "localhost")
        .header("x-amz-content-sha256", payload)
        .header("x-amz-date", "20130524T000000Z");
    for (name, value) in more {
        request = request.header(*name, *value);
    }
    let mut names: Vec<&str> = more.iter().map(|(name, _)| *name).collect();
    names.extend(["host", "x-amz-content-sha256", "x-amz-date"]);
    names.sort_unstable();
    sign(request.body(()).unwrap(), &names.join(";"))
}

#[test]
fn a_write_is_allowed_as_it_was_signed_and_not_otherwise() {
    let now = time_of("20130524T001459Z").unwrap();
    let hash = std::str::from_utf8(EMPTY).unwrap();
    let found = |request: &Request<()>| allowed_write(&keys(), request, now).is_some();
    let check = |what: &str, change: &dyn Fn(&mut Request<()>), expected: bool| {
        let mut request = a_write(hash, &[]);
        change(&mut request);
        assert_eq!(found(&request), expected, "{what}");
    };
    let value = HeaderValue::from_static;
    check("as it is", &|_| {}, true);
    check("a read", &|r| *r.method_mut() = Method::GET, false);
    check("another key", &|r| *r.uri_mut() = "/examplebucket/test.tx".parse().unwrap(), false);
    for query in ["?acl", "?tagging", "?uploadId=1&partNumber=1", "?x-id=PutObject"] {
        let uri: http::Uri = format!("/examplebucket/test.txt{query}").parse().unwrap();
        check(query, &|r| *r.uri_mut() = uri.clone(), false);
    }
    let other = "f3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    for (name, text) in [
        ("x-amz-content-sha256", other),
        ("x-amz-content-sha256", "UNSIGNED-PAYLOAD"),
        ("x-amz-meta-a", "unsigned"),
        ("x-amz-copy-source", "/b/other"),
        ("transfer-encoding", "chunked"),
        ("content-length", "x"),
    ] {
        check(name, &|r| drop(r.headers_mut().insert(name, value(text))), false);
    }
    check("no length", &|r| drop(r.headers_mut().remove("content-length")), false);
    assert!(found(&a_write(hash, &[("x-amz-meta-a", "b"), ("x-amz-checksum-crc32", "AAAAAA==")])));
    assert!(found(&a_write("UNSIGNED-PAYLOAD", &[])));
    // Signed, and for others to understand.
    for header in ["x-amz-copy-source", "x-amz-acl", "x-amz-tagging", "x-amz-trailer"] {
        assert!(!found(&a_write(hash, &[(header, "a")])), "{header}");
    }
    for payload in
        ["STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "STREAMING-UNSIGNED-PAYLOAD-TRAILER", "ab"]
    {
        assert!(!found(&a_write(payload, &[])), "{payload}");
    }
    // A key that may only read, and another bucket.
    let mut elsewhere = a_write(hash, &[]);
    *elsewhere.uri_mut() = "/another/test.txt".parse().unwrap();
    let names = "host;x-amz-content-sha256;x-amz-date";
    assert!(!found(&sign(elsewhere, names)));
    let written = allowed_write(&keys(), &a_write(hash, &[]), now).map(|write| write.id);
    assert_eq!(written.as_deref(), Some("AKIAIOSFODNN7EXAMPLE"));
}
