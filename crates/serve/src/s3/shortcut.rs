//! Plain reads with a signature in the header, checked without `s3s`.
//!
//! This takes less than all that `s3s` takes: GET and HEAD of a key of unreserved characters, no query, no body,
//! each signed header once. For these the canonical request is the request itself, and one SHA-256 and one HMAC
//! with a key that is kept decide. Whatever is different, or does not match, goes to `s3s`, which refuses it or
//! finds it right.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{AUTHORIZATION, CONTENT_LENGTH, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use http::{Method, Request};
use ring::{digest, hmac};

use super::SKEW_S;
use super::keys::{AccessKey, Keys, Level};

/// The SHA-256 of nothing.
const EMPTY: &[u8] = b"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const UNSIGNED: &[u8] = b"UNSIGNED-PAYLOAD";
/// The headers of S3's that a plain read may have.
const KNOWN: [&str; 4] =
    ["x-amz-date", "x-amz-content-sha256", "x-amz-checksum-mode", "x-amz-user-agent"];

/// A read that its client may make.
#[derive(Debug, PartialEq, Eq)]
pub struct Plain<'a> {
    /// The bucket.
    pub bucket: &'a str,
    /// The key in it.
    pub key: &'a str,
}

/// The parts of a header with a signature.
struct Shown<'a> {
    id: &'a str,
    /// `DAY/REGION/s3/aws4_request`.
    scope: &'a str,
    signed: &'a str,
    signature: &'a str,
}

fn shown(text: &str) -> Option<Shown<'_>> {
    let mut parts = text.strip_prefix("AWS4-HMAC-SHA256 ")?.split(',').map(str::trim);
    let (credential, signed) = (parts.next()?, parts.next()?);
    let signature = parts.next()?.strip_prefix("Signature=")?;
    let (id, scope) = credential.strip_prefix("Credential=")?.split_once('/')?;
    let signed = signed.strip_prefix("SignedHeaders=")?;
    parts.next().is_none().then_some(Shown { id, scope, signed, signature })
}

/// The time of a header `x-amz-date`.
fn time_of(date: &str) -> Option<SystemTime> {
    let (day, rest) = date.split_at_checked(8)?;
    let clock = rest.strip_prefix('T')?.strip_suffix('Z').filter(|clock| clock.len() == 6)?;
    if !day.bytes().chain(clock.bytes()).all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = |text: &str| text.parse::<u64>().ok();
    let (year, month, of_month) = (number(&day[..4])?, number(&day[4..6])?, number(&day[6..])?);
    let (hour, minute, second) =
        (number(&clock[..2])?, number(&clock[2..4])?, number(&clock[4..])?);
    let plausible = (1970..10_000).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&of_month)
        && hour < 24
        && minute < 60
        && second < 60;
    if !plausible {
        return None;
    }
    // Days since 1970-01-01 of the Gregorian calendar, with years that begin in March.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + of_month;
    let seconds = (days - 719_469) * 86_400 + hour * 3600 + minute * 60 + second;
    Some(UNIX_EPOCH + Duration::from_secs(seconds))
}

/// A text whose form is its canonical form.
fn plain(value: &HeaderValue) -> Option<&str> {
    let text = value.to_str().ok()?;
    (text.trim() == text && !text.contains("  ") && !text.contains('\t')).then_some(text)
}

fn single<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = plain(values.next()?)?;
    values.next().is_none().then_some(value)
}

fn hmac_of(key: &[u8], text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
}

/// The key that signs in a scope.
pub fn signing_key(secret: &str, scope: &str) -> Option<hmac::Key> {
    let mut parts = scope.split('/');
    let (day, region) = (parts.next()?, parts.next()?);
    let day = hmac_of(format!("AWS4{secret}").as_bytes(), day);
    let region = hmac_of(day.as_ref(), region);
    let service = hmac_of(region.as_ref(), "s3");
    let key = hmac_of(service.as_ref(), "aws4_request");
    Some(hmac::Key::new(hmac::HMAC_SHA256, key.as_ref()))
}

fn push_hex(bytes: &[u8], to: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        to.push(DIGITS[usize::from(byte >> 4)]);
        to.push(DIGITS[usize::from(byte & 15)]);
    }
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

/// Whether the request is one that is read here, signed by a key that allows it. `None`: `s3s` decides.
pub fn allowed<'a, B>(keys: &Keys, request: &'a Request<B>, now: SystemTime) -> Option<Plain<'a>> {
    let (headers, uri) = (request.headers(), request.uri());
    if uri.query().is_some() || uri.authority().is_some() {
        return None;
    }
    allowed_path(keys, request.method(), uri.path(), headers, now)
}

/// The same of a request's parts.
pub fn allowed_path<'a>(
    keys: &Keys,
    method: &Method,
    path: &'a str,
    headers: &HeaderMap,
    now: SystemTime,
) -> Option<Plain<'a>> {
    let unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte);
    if !matches!(*method, Method::GET | Method::HEAD)
        || !path.bytes().all(unreserved)
        || headers.contains_key(TRANSFER_ENCODING)
        || headers.get(CONTENT_LENGTH).is_some_and(|value| value.as_bytes() != b"0")
    {
        return None;
    }
    let (bucket, key) = path.strip_prefix('/')?.split_once('/')?;
    if bucket.is_empty() || key.is_empty() {
        return None;
    }
    let shown = shown(single(headers, AUTHORIZATION.as_str())?)?;
    let payload = single(headers, "x-amz-content-sha256")?;
    if payload.as_bytes() != EMPTY && payload.as_bytes() != UNSIGNED {
        return None;
    }
    let date = single(headers, "x-amz-date")?;
    let at = time_of(date)?;
    let apart = now.duration_since(at).or_else(|_| at.duration_since(now)).ok()?;
    let (day, rest) = shown.scope.split_once('/')?;
    let (region, rest) = rest.split_once('/')?;
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if apart > Duration::from_secs(u64::from(SKEW_S))
        || day != &date[..8]
        || rest != "s3/aws4_request"
        || region.is_empty()
        || !region.bytes().all(word)
    {
        return None;
    }
    let access = keys.get(shown.id)?;
    if !is_signed(&access, method, path, headers, &shown, date, payload)? {
        return None;
    }
    access.allows(bucket, Level::Read).then_some(Plain { bucket, key })
}

/// Whether the signature is that of the request.
fn is_signed(
    access: &AccessKey,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    shown: &Shown<'_>,
    date: &str,
    payload: &str,
) -> Option<bool> {
    let mut canonical = Vec::with_capacity(512);
    for part in [method.as_str(), "\n", path, "\n\n"] {
        canonical.extend_from_slice(part.as_bytes());
    }
    let (mut before, mut own, mut host) = ("", 0, false);
    for name in shown.signed.split(';') {
        // In order, each once, in lower case: as they are signed.
        if name <= before || name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return None;
        }
        before = name;
        host |= name == "host";
        own += usize::from(name.starts_with("x-amz-"));
        let value = single(headers, name)?;
        for part in [name, ":", value, "\n"] {
            canonical.extend_from_slice(part.as_bytes());
        }
    }
    // No header of S3's is there that was not signed, and none that is not known here.
    let mut there = 0;
    for name in headers.keys().map(|name| name.as_str()).filter(|name| name.starts_with("x-amz-")) {
        there += 1;
        if !KNOWN.contains(&name) {
            return None;
        }
    }
    if !host || own != there {
        return None;
    }
    for part in ["\n", shown.signed, "\n", payload] {
        canonical.extend_from_slice(part.as_bytes());
    }
    let mut text = Vec::with_capacity(192);
    for part in ["AWS4-HMAC-SHA256\n", date, "\n", shown.scope, "\n"] {
        text.extend_from_slice(part.as_bytes());
    }
    push_hex(digest::digest(&digest::SHA256, &canonical).as_ref(), &mut text);
    let signature = unhex(shown.signature)?;
    let key = access.signing_key(shown.scope)?;
    Some(hmac::verify(&key, &text, &signature).is_ok())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;

    use super::super::keys::Files;
    use super::*;

    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

    fn keys() -> Arc<Keys> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let text = format!(
            "[[key]]\nid = \"AKIAIOSFODNN7EXAMPLE\"\nsecret = \"{SECRET}\"\nscopes = [\"examplebucket:read\"]\n"
        );
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        Keys::open(Files { keys: path, master: None }).unwrap()
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
        let mut canonical = format!("{}\n{}\n\n", request.method(), request.uri().path());
        for name in names.split(';') {
            let value = request.headers()[name].to_str().unwrap();
            canonical += &format!("{name}:{value}\n");
        }
        let payload = request.headers()["x-amz-content-sha256"].to_str().unwrap();
        canonical += &format!("\n{names}\n{payload}");
        let mut hash = Vec::new();
        push_hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref(), &mut hash);
        let scope = "20130524/us-east-1/s3/aws4_request";
        let date = request.headers()["x-amz-date"].to_str().unwrap();
        let text =
            format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", String::from_utf8(hash).unwrap());
        let tag = hmac::sign(&signing_key(SECRET, scope).unwrap(), text.as_bytes());
        let mut signature = Vec::new();
        push_hex(tag.as_ref(), &mut signature);
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
        check("query", |r| *r.uri_mut() = "/examplebucket/test.txt?acl".parse().unwrap(), false);
        check(
            "a signed header",
            |r| drop(r.headers_mut().insert("range", value("bytes=0-8"))),
            false,
        );
        check(
            "a second one",
            |r| assert!(r.headers_mut().append("range", value("bytes=0-9"))),
            false,
        );
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
    fn the_signature_is_the_one_of_the_documentation() {
        // "Signature Calculations for the Authorization Header", the example GET of an object.
        let canonical = "GET\n/test.txt\n\nhost:examplebucket.s3.amazonaws.com\nrange:bytes=0-9\n\
            x-amz-content-sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n\
            x-amz-date:20130524T000000Z\n\nhost;range;x-amz-content-sha256;x-amz-date\n\
            e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let mut hash = Vec::new();
        push_hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref(), &mut hash);
        let hash = String::from_utf8(hash).unwrap();
        assert_eq!(hash, "7344ae5b7ee6c3e7e6b0fe0640412a37625d1fbfff95c48bbb2dc43964946972");
        let scope = "20130524/us-east-1/s3/aws4_request";
        let text = format!("AWS4-HMAC-SHA256\n20130524T000000Z\n{scope}\n{hash}");
        let tag = hmac::sign(&signing_key(SECRET, scope).unwrap(), text.as_bytes());
        let mut signature = Vec::new();
        push_hex(tag.as_ref(), &mut signature);
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
                let _ = super::super::guard::claimed(&request);
                let _ = super::super::guard::check(&request);
            }
        }

        #[test]
        fn any_text_is_no_time_or_one(text in ".{0,20}") {
            let _ = (time_of(&text), shown(&text));
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
}
