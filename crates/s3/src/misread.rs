//! Requests that `s3s` 0.14 misreads, signed again in a form that it reads.
//!
//! In the values of signed headers `s3s` folds blanks of all kinds, as minio's client for Go and JavaScript do; most others fold
//! spaces alone, as the definition of signature version 4 has it. And it refuses a `Content-Disposition` and the like that is not
//! ASCII, which S3 keeps. It also refuses regions with capitals, dots and underscores, which clients of other stores sign for
//! (`RegionOne`, the name of a host). The signature of such a request is verified here, by each rule. Then the headers that `s3s`
//! refuses get other names ([`set_aside`]), and the request a signature that covers its `Host` alone, for a region that `s3s`
//! reads: by then [`guard`](super::guard) has seen that all headers of S3's were signed. A signed URL is signed again as a whole.
//!
//! Left to `s3s` are bodies whose chunks are signed, since the first of their signatures continues the head's.

use ground::hex;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Request, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use ring::{digest, hmac};

use super::headers::set_aside;
use super::keys::{AccessKey, Keys};
use super::query;
use super::shortcut::{credentials_in, single};

/// What is escaped in the parameters that are signed.
const IN_QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// What is escaped in the path that is signed.
const IN_PATH: &AsciiSet = &IN_QUERY.remove(b'/');

/// Which characters clients fold to one space in what they sign.
const BLANKS: [fn(char) -> bool; 3] =
    [|c| c == ' ', |c| c.is_ascii_whitespace(), char::is_whitespace];

/// A region that `s3s` reads.
const REGION: &str = "us-east-1";

/// Signs a request again that `s3s` would misread, if its signature is right.
pub fn apply<B>(keys: &Keys, request: &mut Request<B>) {
    let (method, uri, headers) = (request.method(), request.uri(), request.headers());
    let is_odd = |byte: &u8| *byte == b'\t' || !byte.is_ascii();
    let has_odd = headers.values().any(|value| value.as_bytes().iter().any(is_odd));
    let shown = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    match shown {
        Some(shown) => {
            let scope = credentials_in(shown).map(|shown| readable(shown.scope));
            let is_misread = has_odd || scope.is_some_and(|scope| scope.is_some());
            let again = is_misread.then(|| signed_again(keys, method, uri, headers)).flatten();
            if let Some(authorization) = again {
                set_aside(request.headers_mut());
                request.headers_mut().insert(AUTHORIZATION, authorization);
            }
        }
        None => {
            if let Some(again) = address_signed_again(keys, method, uri, headers) {
                *request.uri_mut() = again;
            }
        }
    }
}

/// The same scope with a region that `s3s` reads; `None` if it reads this one. An empty region it passes by.
fn readable(scope: &str) -> Option<String> {
    let (day, rest) = scope.split_once('/')?;
    let (region, rest) = rest.split_once('/')?;
    let is_read = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (!region.bytes().all(is_read)).then(|| format!("{day}/{REGION}/{rest}"))
}

/// What is signed of a request, beside its path and its headers.
struct Signing<'a> {
    method: &'a Method,
    date: &'a str,
    payload: &'a str,
    /// The names of the signed headers.
    names: &'a str,
}

impl Signing<'_> {
    /// The text that is signed in a scope.
    fn text(&self, scope: &str, path: &str, query: &str, lines: &str) -> String {
        let Signing { method, date, payload, names } = self;
        let canonical = format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{payload}");
        let hash = digest::digest(&digest::SHA256, canonical.as_bytes());
        format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hex::encode(hash.as_ref()))
    }

    /// The signature in a scope, as it is written.
    fn sign(&self, access: &AccessKey, scope: &str, parts: [&str; 3]) -> Option<String> {
        let [path, query, lines] = parts;
        let tag = hmac::sign(
            &access.signing_key(scope)?,
            self.text(scope, path, query, lines).as_bytes(),
        );
        Some(hex::encode(tag.as_ref()))
    }
}

/// A signed URL with a region that `s3s` reads; `None` if it reads this one, or the signature is not right.
fn address_signed_again(
    keys: &Keys,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Option<Uri> {
    let value = |name: &str| {
        let one = query::parameters(uri.query()).find(|one| one.is(name))?;
        String::from_utf8(one.value()).ok()
    };
    let credential = value("X-Amz-Credential")?;
    let (id, scope) = credential.split_once('/')?;
    let other = readable(scope)?;
    let signature = hex::decode_hash(&value("X-Amz-Signature")?)?;
    let (date, names) = (value("X-Amz-Date")?, value("X-Amz-SignedHeaders")?);
    let access = keys.get(id)?;
    let signing = Signing { method, date: &date, payload: "UNSIGNED-PAYLOAD", names: &names };
    let pairs = canonical_query(uri.query()?)?;
    let pairs = pairs.split('&').filter(|pair| !pair.starts_with("X-Amz-Signature="));
    let query = pairs.collect::<Vec<_>>().join("&");
    let lines = lines_of(headers, &names, BLANKS[0])?;
    let path = escaped(uri.path(), IN_PATH);
    let key = access.signing_key(scope)?;
    let is_right = [&path, uri.path()].into_iter().any(|path| {
        let text = signing.text(scope, path, &query, &lines);
        hmac::verify(&key, text.as_bytes(), &signature).is_ok()
    });
    if !is_right {
        return None;
    }
    let of =
        |scope: &str| format!("X-Amz-Credential={}", escaped(&format!("{id}/{scope}"), IN_QUERY));
    let query = query.replace(&of(scope), &of(&other));
    let signature = signing.sign(&access, &other, [&path, &query, &lines])?;
    let target = format!("{}?{query}&X-Amz-Signature={signature}", uri.path());
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(target).ok()?);
    Uri::from_parts(parts).ok()
}

/// The header with a signature of the request's `Host`; `None` if its own signature is not right, or not one that is known here.
fn signed_again(
    keys: &Keys,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Option<HeaderValue> {
    let shown = credentials_in(single(headers, AUTHORIZATION.as_str())?)?;
    let payload = single(headers, "x-amz-content-sha256")?;
    let date = single(headers, "x-amz-date")?;
    if payload.starts_with("STREAMING-AWS4-") {
        return None;
    }
    let signature = hex::decode_hash(shown.signature)?;
    let access = keys.get(shown.id)?;
    let key = access.signing_key(shown.scope)?;
    let query = canonical_query(uri.query().unwrap_or(""))?;
    let signing = Signing { method, date, payload, names: shown.signed };
    let path = escaped(uri.path(), IN_PATH);
    let is_right = BLANKS.into_iter().any(|is_blank| {
        let lines = lines_of(headers, shown.signed, is_blank);
        lines.is_some_and(|lines| {
            // Some clients sign a path as it is, which `s3s` takes too.
            [&path, uri.path()].into_iter().any(|path| {
                let text = signing.text(shown.scope, path, &query, &lines);
                hmac::verify(&key, text.as_bytes(), &signature).is_ok()
            })
        })
    });
    let lines = lines_of(headers, "host", BLANKS[0]).filter(|_| is_right)?;
    let scope = readable(shown.scope).unwrap_or_else(|| shown.scope.to_owned());
    let of_host = Signing { names: "host", ..signing };
    let signature = of_host.sign(&access, &scope, [&path, &query, &lines])?;
    let value = format!(
        "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders=host, Signature={signature}",
        shown.id
    );
    HeaderValue::try_from(value).ok()
}

/// The lines of some headers as they are signed; `None` if one is missing.
fn lines_of(headers: &HeaderMap, names: &str, is_blank: fn(char) -> bool) -> Option<String> {
    let mut lines = String::new();
    for name in names.split(';') {
        let folded = |value: &HeaderValue| {
            let text = std::str::from_utf8(value.as_bytes()).ok()?;
            let words: Vec<&str> = text.split(is_blank).filter(|word| !word.is_empty()).collect();
            Some(words.join(" "))
        };
        let values: Option<Vec<String>> = headers.get_all(name).iter().map(folded).collect();
        let values = values.filter(|values| !values.is_empty())?;
        lines += &format!("{name}:{}\n", values.join(","));
    }
    Some(lines)
}

fn escaped(text: &str, set: &'static AsciiSet) -> String {
    let decoded: Vec<u8> = percent_decode_str(text).collect();
    percent_encode(&decoded, set).to_string()
}

/// A query as it is signed; `None` with a plus, which `s3s` takes for a space.
fn canonical_query(query: &str) -> Option<String> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let mut pairs: Vec<(String, String)> = pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (escaped(name, IN_QUERY), escaped(value, IN_QUERY))
        })
        .collect();
    pairs.sort_by(|one, other| one.0.cmp(&other.0));
    let pairs: Vec<String> =
        pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    (!query.contains('+')).then(|| pairs.join("&"))
}

#[cfg(test)]
mod tests;
