//! Plain reads with a signature in the header or in the URL, and plain writes with one in the header, checked without `s3s`.
//!
//! This takes less than all that `s3s` takes: GET and HEAD of a key of unreserved characters, no body, no query but a
//! signature and the name of the operation (`x-id`, which SDKs send), each signed header once. For these the canonical request is the request itself, and one SHA-256 and one HMAC
//! with a key that is kept decide. Whatever is different, or does not match, goes to `s3s`, which refuses it or
//! finds it right.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chrono::NaiveDate;
use ground::hex;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use http::{Method, Request};
use ring::{digest, hmac};

use super::guard::{EXPIRES_S_MAX, SKEW_S, claimed_by};
use super::keys::{AccessKey, Keys, Level};

/// The SHA-256 of nothing.
const EMPTY: &[u8] = b"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const UNSIGNED: &[u8] = b"UNSIGNED-PAYLOAD";
/// How far a signature's time and this clock may lie apart.
const SKEW: Duration = Duration::from_secs(SKEW_S as u64);
/// The headers of S3's that a plain read may have.
const KNOWN: [&str; 4] =
    ["x-amz-date", "x-amz-content-sha256", "x-amz-checksum-mode", "x-amz-user-agent"];
/// Those that a plain write may have, beside user metadata.
const KNOWN_OF_WRITES: [&str; 5] = [
    "x-amz-date",
    "x-amz-content-sha256",
    "x-amz-user-agent",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-checksum-crc32",
];

/// A read that its client may make.
#[derive(Debug, PartialEq, Eq)]
pub struct Plain<'a> {
    /// The bucket.
    pub bucket: &'a str,
    /// The key in it.
    pub key: &'a str,
}

/// A write that its client may make, of a body that is sent as it is.
#[derive(Debug, PartialEq, Eq)]
pub struct PlainWrite<'a> {
    /// The bucket.
    pub bucket: &'a str,
    /// The key in it.
    pub key: &'a str,
    /// The id of the access key.
    pub id: String,
}

/// The parts of a header with a signature.
pub struct Credentials<'a> {
    /// The id of the access key.
    pub id: &'a str,
    /// `DAY/REGION/s3/aws4_request`.
    pub scope: &'a str,
    /// The names of the signed headers.
    pub signed: &'a str,
    /// In hexadecimal digits.
    pub signature: &'a str,
}

/// Reads such a header, in the form that nearly all clients write.
pub fn credentials_in(text: &str) -> Option<Credentials<'_>> {
    let mut parts = text.strip_prefix("AWS4-HMAC-SHA256 ")?.split(',').map(str::trim);
    let (credential, signed) = (parts.next()?, parts.next()?);
    let signature = parts.next()?.strip_prefix("Signature=")?;
    let (id, scope) = credential.strip_prefix("Credential=")?.split_once('/')?;
    let signed = signed.strip_prefix("SignedHeaders=")?;
    parts.next().is_none().then_some(Credentials { id, scope, signed, signature })
}

/// The time of a header `x-amz-date`.
fn time_of(date: &str) -> Option<SystemTime> {
    let (day, rest) = date.split_at_checked(8)?;
    let clock = rest.strip_prefix('T')?.strip_suffix('Z').filter(|clock| clock.len() == 6)?;
    if !day.bytes().chain(clock.bytes()).all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // Field by field: a parser of formats takes several times as long, for each signed read.
    let number = |text: &str| text.parse::<u32>().ok();
    let day =
        NaiveDate::from_ymd_opt(day[..4].parse().ok()?, number(&day[4..6])?, number(&day[6..])?)?;
    let time =
        day.and_hms_opt(number(&clock[..2])?, number(&clock[2..4])?, number(&clock[4..])?)?;
    let seconds = u64::try_from(time.and_utc().timestamp()).ok()?;
    Some(UNIX_EPOCH + Duration::from_secs(seconds))
}

/// A text whose form is its canonical form.
fn plain(value: &HeaderValue) -> Option<&str> {
    let text = value.to_str().ok()?;
    (text.trim() == text && !text.contains("  ") && !text.contains('\t')).then_some(text)
}

/// The value of a header that is there once, and whose form is its canonical form.
pub fn single<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = plain(values.next()?)?;
    values.next().is_none().then_some(value)
}

/// Whether the request is one that is read here, signed by a key that allows it. `None`: `s3s` decides.
pub fn allowed<'a, B>(keys: &Keys, request: &'a Request<B>, now: SystemTime) -> Option<Plain<'a>> {
    let (headers, uri) = (request.headers(), request.uri());
    if uri.authority().is_some() {
        return None;
    }
    allowed_path(keys, request.method(), uri.path_and_query()?.as_str(), headers, now)
}

/// The same of a request's parts; `target` is its path with the query.
pub fn allowed_path<'a>(
    keys: &Keys,
    method: &Method,
    target: &'a str,
    headers: &HeaderMap,
    now: SystemTime,
) -> Option<Plain<'a>> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if !matches!(*method, Method::GET | Method::HEAD)
        || headers.contains_key(TRANSFER_ENCODING)
        || headers.get(CONTENT_LENGTH).is_some_and(|value| value.as_bytes() != b"0")
    {
        return None;
    }
    let (bucket, key) = object_of(path)?;
    let id = match headers.get(AUTHORIZATION) {
        Some(_) => by_headers(keys, method, path, query, headers, now)?,
        None => by_query(keys, method, path, query, headers, now)?,
    };
    id.allows(bucket, Level::Read).then_some(Plain { bucket, key })
}

/// Bucket and key of a path of unreserved characters.
fn object_of(path: &str) -> Option<(&str, &str)> {
    let unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte);
    let (bucket, key) = path.strip_prefix('/')?.split_once('/')?;
    let named = !bucket.is_empty() && !key.is_empty() && path.bytes().all(unreserved);
    named.then_some((bucket, key))
}

/// Whether the request is a PUT of an object that is taken here, signed by a key that allows it. `None`: `s3s` decides.
/// Whether the body has the SHA-256 that the signature covers is left to its reader.
pub fn allowed_write<'a, B>(
    keys: &Keys,
    request: &'a Request<B>,
    now: SystemTime,
) -> Option<PlainWrite<'a>> {
    let (headers, uri, method) = (request.headers(), request.uri(), request.method());
    let length = single(headers, CONTENT_LENGTH.as_str())?;
    if *method != Method::PUT
        || uri.authority().is_some()
        || headers.contains_key(TRANSFER_ENCODING)
        || !length.bytes().all(|byte| byte.is_ascii_digit())
    {
        return None;
    }
    let (bucket, key) = object_of(uri.path())?;
    let payload = single(headers, "x-amz-content-sha256")?;
    if payload.as_bytes() != UNSIGNED {
        hex::decode_hash(payload)?;
    }
    let query = uri.query().unwrap_or("");
    let access = by_headers(keys, method, uri.path(), query, headers, now)?;
    let id = claimed_by(headers, None)?.to_owned();
    access.allows(bucket, Level::Write).then_some(PlainWrite { bucket, key, id })
}

/// The parameter that SDKs add to a plain request, which says nothing.
fn is_name_of(method: &Method, pair: &str) -> bool {
    pair == match *method {
        Method::HEAD => "x-id=HeadObject",
        Method::PUT => "x-id=PutObject",
        _ => "x-id=GetObject",
    }
}

/// Whether a scope is one of S3's on a day. Regions of other stores have more than AWS's letters: `RegionOne`, the name of a host.
fn is_scope(scope: &str, of: &str) -> Option<bool> {
    let (day, rest) = scope.split_once('/')?;
    let (region, rest) = rest.split_once('/')?;
    let word = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let named = !region.is_empty() && region.bytes().all(word);
    Some(day == of && rest == "s3/aws4_request" && named)
}

/// The access key with whose signature in the header a request may be carried out.
fn by_headers(
    keys: &Keys,
    method: &Method,
    path: &str,
    query: &str,
    headers: &HeaderMap,
    now: SystemTime,
) -> Option<Arc<AccessKey>> {
    if !query.is_empty() && !is_name_of(method, query) {
        return None;
    }
    let shown = credentials_in(single(headers, AUTHORIZATION.as_str())?)?;
    let payload = single(headers, "x-amz-content-sha256")?;
    // The body of a read is not looked at.
    if *method != Method::PUT && payload.as_bytes() != EMPTY && payload.as_bytes() != UNSIGNED {
        return None;
    }
    let date = single(headers, "x-amz-date")?;
    let asked = SignedRequest { method, path, query, date, payload };
    signed_by(keys, &asked, headers, &shown, |at| {
        let apart = now.duration_since(at).or_else(|_| at.duration_since(now));
        apart.is_ok_and(|apart| apart <= SKEW)
    })
}

/// The same with the signature in the URL: the parameters of the signature, each once, and none that changes the reply.
fn by_query(
    keys: &Keys,
    method: &Method,
    path: &str,
    query: &str,
    headers: &HeaderMap,
    now: SystemTime,
) -> Option<Arc<AccessKey>> {
    // In the order in which they are signed.
    const NAMES: [&str; 6] = [
        "X-Amz-Algorithm",
        "X-Amz-Credential",
        "X-Amz-Date",
        "X-Amz-Expires",
        "X-Amz-SignedHeaders",
        "X-Amz-Signature",
    ];
    let (mut values, mut name) = ([""; 6], None);
    for pair in query.split('&') {
        match pair.split_once('=') {
            Some(_) if is_name_of(method, pair) && name.is_none() => name = Some(pair),
            Some((of, value)) if !value.is_empty() => {
                let at = NAMES.iter().position(|name| *name == of)?;
                if !std::mem::replace(&mut values[at], value).is_empty() {
                    return None;
                }
            }
            _ => return None,
        }
    }
    let [algorithm, credential, date, expires, signed, signature] = values;
    if algorithm != "AWS4-HMAC-SHA256" || headers.contains_key("x-amz-content-sha256") {
        return None;
    }
    // Encoded as it is signed, and nothing else.
    let decoded = |text: &str, mark: &str, is: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
        let text = text.split(mark);
        let parts: Vec<&str> = text.collect();
        parts.iter().all(|part| part.bytes().all(plain)).then(|| parts.join(is))
    };
    let credential_is = decoded(credential, "%2F", "/")?;
    let signed_are = decoded(signed, "%3B", ";")?;
    let (id, scope) = credential_is.split_once('/')?;
    let lasts = expires.parse::<u32>().ok().filter(|_| expires.bytes().all(|b| b.is_ascii_digit()));
    let lasts = lasts.filter(|lasts| *lasts <= EXPIRES_S_MAX)?;
    let mut canonical = String::with_capacity(query.len());
    for (name, value) in NAMES.iter().zip(values).take(5) {
        let before = if canonical.is_empty() { "" } else { "&" };
        for part in [before, name, "=", value] {
            canonical.push_str(part);
        }
    }
    if let Some(name) = name {
        canonical.push('&');
        canonical.push_str(name);
    }
    let payload = "UNSIGNED-PAYLOAD";
    let asked = SignedRequest { method, path, query: &canonical, date, payload };
    let shown = Credentials { id, scope, signed: &signed_are, signature };
    signed_by(keys, &asked, headers, &shown, |at| match now.duration_since(at) {
        Ok(age) => age <= Duration::from_secs(u64::from(lasts)),
        Err(ahead) => ahead.duration() <= SKEW,
    })
}

/// What is signed of a request beside its headers.
struct SignedRequest<'a> {
    method: &'a Method,
    path: &'a str,
    /// In its canonical form.
    query: &'a str,
    date: &'a str,
    payload: &'a str,
}

/// The access key whose signature is shown, if the signature's time is one that counts and its scope is of that day.
fn signed_by(
    keys: &Keys,
    asked: &SignedRequest<'_>,
    headers: &HeaderMap,
    shown: &Credentials<'_>,
    counts: impl FnOnce(SystemTime) -> bool,
) -> Option<Arc<AccessKey>> {
    if !counts(time_of(asked.date)?) || !is_scope(shown.scope, &asked.date[..8])? {
        return None;
    }
    let access = keys.get(shown.id)?;
    // A test counts these lines: no read may be verified twice.
    tracing::trace!(path = asked.path, "a signature is verified");
    is_signed(&access, asked, headers, shown)?.then_some(access)
}

/// Whether the signature is that of the request.
fn is_signed(
    access: &AccessKey,
    asked: &SignedRequest<'_>,
    headers: &HeaderMap,
    shown: &Credentials<'_>,
) -> Option<bool> {
    let SignedRequest { method, path, query, date, payload } = asked;
    let mut canonical = Vec::with_capacity(768);
    for part in [method.as_str(), "\n", path, "\n", query, "\n"] {
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
    let is_write = **method == Method::PUT;
    let is_known = |name: &str| match is_write {
        true => KNOWN_OF_WRITES.contains(&name) || name.starts_with("x-amz-meta-"),
        false => KNOWN.contains(&name),
    };
    let mut there = 0;
    for name in headers.keys().map(|name| name.as_str()).filter(|name| name.starts_with("x-amz-")) {
        there += 1;
        if !is_known(name) {
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
    hex::push(digest::digest(&digest::SHA256, &canonical).as_ref(), &mut text);
    let signature = hex::decode_hash(shown.signature)?;
    let key = access.signing_key(shown.scope)?;
    Some(hmac::verify(&key, &text, &signature).is_ok())
}

#[cfg(test)]
mod tests;
