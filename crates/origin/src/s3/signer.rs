//! Signs requests by AWS Signature Version 4 in their header `authorization` (AWS: "Authenticating Requests: Using the
//! Authorization Header"). All headers are signed but the body's length, conditions among them, and the body by its SHA-256.
//!
//! It does no I/O and knows no time: a caller gives both the request and the time of its signature. The key is derived once a day.

use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, Datelike, Timelike, Utc};
use ground::hex;
use http::Method;
use http::header::{
    AUTHORIZATION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, InvalidHeaderValue,
};
use ring::{digest, hmac};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const BODY_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");
/// Digits of a day, `20130524`, before those of the time.
const DAY_LENGTH: usize = 8;

/// A SHA-256.
pub type Sha256 = [u8; 32];

/// The SHA-256 of a sequence of pieces.
pub fn sha256<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Sha256 {
    let mut hasher = digest::Context::new(&digest::SHA256);
    pieces.into_iter().for_each(|piece| hasher.update(piece));
    let mut hash = [0; 32];
    hash.copy_from_slice(hasher.finish().as_ref());
    hash
}

/// Signs requests with one access key for one region.
pub struct Signer {
    access_key_id: String,
    /// `AWS4` and the secret.
    secret: String,
    /// The token of temporary credentials.
    token: Option<HeaderValue>,
    region: String,
    /// That of the last signature.
    day: Mutex<Option<Arc<DayKey>>>,
}

/// The key of one day.
struct DayKey {
    /// The day, the region and the service.
    scope: String,
    key: hmac::Key,
}

/// What of a request is signed beside its headers.
pub struct RequestLine<'a> {
    pub method: &'a Method,
    /// The path, and after a `?` the parameters in the order of their names. Both are escaped but for
    /// the characters that AWS calls unreserved.
    pub target: &'a str,
}

impl Signer {
    /// A signer with an access key.
    ///
    /// # Errors
    ///
    /// If the token is no value of a header.
    pub fn new(
        region: &str,
        access_key_id: &str,
        secret_access_key: &str,
        session_token: Option<&str>,
    ) -> Result<Signer, InvalidHeaderValue> {
        let token = session_token.map(HeaderValue::from_str).transpose()?.map(hidden);
        Ok(Signer {
            access_key_id: access_key_id.to_owned(),
            secret: format!("AWS4{secret_access_key}"),
            token,
            region: region.to_owned(),
            day: Mutex::default(),
        })
    }

    fn day_key(&self, day: &str) -> Arc<DayKey> {
        let mut last = self.day.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = last.as_ref().filter(|key| key.scope.starts_with(day)) {
            return key.clone();
        }
        let mut key = hmac::Key::new(hmac::HMAC_SHA256, self.secret.as_bytes());
        for part in [day, &self.region, "s3", "aws4_request"] {
            key = hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&key, part.as_bytes()).as_ref());
        }
        let scope = format!("{day}/{}/s3/aws4_request", self.region);
        last.insert(Arc::new(DayKey { scope, key })).clone()
    }

    /// Adds the time, the body's hash, the token and the signature to the headers of a request. They must hold `host`
    /// already; what is added to them later is not signed.
    ///
    /// # Errors
    ///
    /// If the access key or the region cannot stand in a header.
    pub fn sign(
        &self,
        line: &RequestLine<'_>,
        headers: &mut HeaderMap,
        body: &Sha256,
        now: DateTime<Utc>,
    ) -> Result<(), InvalidHeaderValue> {
        let time = stamp(now);
        let day = self.day_key(&time[..DAY_LENGTH]);
        let body = hex::encode(body);
        headers.insert(DATE, HeaderValue::from_str(&time)?);
        headers.insert(BODY_SHA256, HeaderValue::from_str(&body)?);
        if let Some(token) = &self.token {
            headers.insert(TOKEN, token.clone());
        }
        let mut request = digest::Context::new(&digest::SHA256);
        let (path, query) = line.target.split_once('?').unwrap_or((line.target, ""));
        for part in [line.method.as_str(), "\n", path, "\n", query, "\n"] {
            request.update(part.as_bytes());
        }
        let signed = canonical_headers(headers, &mut request);
        for part in ["\n", &signed, "\n", &body] {
            request.update(part.as_bytes());
        }
        let mut signature = hmac::Context::with_key(&day.key);
        let request = hex::encode(request.finish().as_ref());
        for part in [ALGORITHM, "\n", &time, "\n", &day.scope, "\n", &request] {
            signature.update(part.as_bytes());
        }
        let signature = hex::encode(signature.sign().as_ref());
        let (id, scope) = (&self.access_key_id, &day.scope);
        let authorization = format!(
            "{ALGORITHM} Credential={id}/{scope}, SignedHeaders={signed}, Signature={signature}"
        );
        headers.insert(AUTHORIZATION, hidden(HeaderValue::try_from(authorization)?));
        Ok(())
    }
}

/// A value that is not shown where headers are printed.
fn hidden(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

/// Adds the headers to the hash of a request, in the order of their names, which are returned.
fn canonical_headers(headers: &HeaderMap, request: &mut digest::Context) -> String {
    let is_signed = |name: &&HeaderName| **name != CONTENT_LENGTH && **name != AUTHORIZATION;
    let mut names: Vec<&HeaderName> = headers.keys().filter(is_signed).collect();
    names.sort_unstable_by_key(|name| name.as_str());
    let mut signed = String::with_capacity(32 * names.len());
    for name in names {
        request.update(name.as_str().as_bytes());
        let mut before: &[u8] = b":";
        for value in headers.get_all(name) {
            // Blanks around a value and between its words count as one, whatever their number.
            let words = value.as_bytes().split(u8::is_ascii_whitespace);
            for word in words.filter(|word| !word.is_empty()) {
                request.update(before);
                request.update(word);
                before = b" ";
            }
            before = b",";
        }
        if before == b":" {
            request.update(before);
        }
        request.update(b"\n");
        if !signed.is_empty() {
            signed.push(';');
        }
        signed.push_str(name.as_str());
    }
    signed
}

/// Formats a time as `20130524T000000Z`.
fn stamp(time: DateTime<Utc>) -> String {
    let (year, month, day) = (time.year(), time.month(), time.day());
    let (hour, minute, second) = (time.hour(), time.minute(), time.second());
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

    fn signature(
        token: Option<&str>,
        method: Method,
        target: &str,
        headers: &[(&'static str, &str)],
        body: &[u8],
    ) -> String {
        let signer = Signer::new("us-east-1", "AKIAIOSFODNN7EXAMPLE", SECRET, token).unwrap();
        let mut all = HeaderMap::new();
        for (name, value) in [("host", "examplebucket.s3.amazonaws.com")].iter().chain(headers) {
            all.append(*name, HeaderValue::from_str(value).unwrap());
        }
        let day = DateTime::from_timestamp(1_369_353_600, 0).unwrap();
        let line = RequestLine { method: &method, target };
        signer.sign(&line, &mut all, &sha256([body]), day).unwrap();
        all[AUTHORIZATION].to_str().unwrap().to_owned()
    }

    /// The examples of AWS ("Signature Calculations for the Authorization Header"), with the signatures that are printed there.
    #[test]
    fn signatures_are_those_of_the_published_examples() {
        let got = signature(None, Method::GET, "/test.txt", &[("range", "bytes=0-9")], b"");
        let expected = "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, \
            SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, \
            Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
        assert_eq!(got, expected);
        let headers = [
            ("date", "Fri, 24 May 2013 00:00:00 GMT"),
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
            ("content-length", "21"),
        ];
        let got =
            signature(None, Method::PUT, "/test%24file.text", &headers, b"Welcome to Amazon S3.");
        assert!(
            got.ends_with("98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"),
            "{got}"
        );
        for (target, expected) in [
            ("/?lifecycle=", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
            (
                "/?max-keys=2&prefix=J",
                "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
            ),
        ] {
            let got = signature(None, Method::GET, target, &[], b"");
            assert!(got.ends_with(expected), "{target}: {got}");
        }
    }

    #[test]
    fn all_but_blanks_and_the_length_is_signed() {
        let plain = signature(None, Method::PUT, "/a", &[("x-amz-meta-a", "b c")], b"x");
        let same = [("x-amz-meta-a", "  b   c "), ("content-length", "1")];
        assert_eq!(signature(None, Method::PUT, "/a", &same, b"x"), plain);
        let others = [
            signature(Some("token"), Method::PUT, "/a", &[("x-amz-meta-a", "b c")], b"x"),
            signature(None, Method::GET, "/a", &[("x-amz-meta-a", "b c")], b"x"),
            signature(None, Method::PUT, "/b", &[("x-amz-meta-a", "b c")], b"x"),
            signature(None, Method::PUT, "/a?b=", &[("x-amz-meta-a", "b c")], b"x"),
            signature(None, Method::PUT, "/a", &[("x-amz-meta-a", "bc")], b"x"),
            signature(None, Method::PUT, "/a", &[("x-amz-meta-a", "")], b"x"),
            signature(None, Method::PUT, "/a", &[("x-amz-meta-a", "b c"), ("if-match", "e")], b"x"),
            signature(None, Method::PUT, "/a", &[("x-amz-meta-a", "b c")], b"y"),
        ];
        for (at, one) in others.iter().enumerate() {
            assert!(*one != plain && !others[..at].contains(one), "{at}: {one}");
        }
    }

    #[test]
    fn the_key_is_that_of_the_day() {
        let signer = Signer::new("r", "id", "secret", None).unwrap();
        let line = RequestLine { method: &Method::GET, target: "/" };
        let sign = |unix_s| {
            let mut headers = HeaderMap::new();
            let now = DateTime::from_timestamp(unix_s, 0).unwrap();
            signer.sign(&line, &mut headers, &sha256([]), now).unwrap();
            headers[AUTHORIZATION].to_str().unwrap().to_owned()
        };
        let first = sign(951_782_399);
        assert!(first.contains("Credential=id/20000228/r/s3/"), "{first}");
        let next = sign(951_782_400);
        assert!(next.contains("Credential=id/20000229/r/s3/"), "{next}");
        assert_eq!(sign(951_782_399), first);
        assert!(Signer::new("r", "id", "secret", Some("a\nb")).is_err());
    }
}
