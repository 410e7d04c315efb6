//! Requests that `s3s` 0.14 misreads, signed again in a form that it reads.
//!
//! In the values of signed headers `s3s` folds blanks of all kinds, as minio's client for Go and JavaScript do; most others fold
//! spaces alone, as the definition of signature version 4 has it. And it refuses a `Content-Disposition` and the like that is not
//! ASCII, which S3 keeps. The signature of such a request is verified here, by each rule. Then the headers that `s3s`
//! refuses get other names ([`set_aside`]), and the request a signature that covers its `Host` alone: by then
//! [`guard`](super::guard) has seen that all headers of S3's were signed.
//!
//! Left to `s3s` are bodies whose chunks are signed, since the first of their signatures continues the head's, and signed URLs.

use ground::hex;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use http::{Method, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use ring::{digest, hmac};

use super::headers::set_aside;
use super::keys::Keys;
use super::shortcut::{credentials_in, single};

/// What is escaped in the parameters that are signed.
const IN_QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// What is escaped in the path that is signed.
const IN_PATH: &AsciiSet = &IN_QUERY.remove(b'/');

/// Which characters clients fold to one space in what they sign.
const BLANKS: [fn(char) -> bool; 3] =
    [|c| c == ' ', |c| c.is_ascii_whitespace(), char::is_whitespace];

/// Signs a request again that `s3s` would misread, if its signature is right.
pub fn apply(keys: &Keys, method: &Method, uri: &Uri, headers: &mut HeaderMap) {
    let is_odd = |byte: &u8| *byte == b'\t' || !byte.is_ascii();
    if !headers.values().any(|value| value.as_bytes().iter().any(is_odd)) {
        return;
    }
    if let Some(authorization) = signed_again(keys, method, uri, headers) {
        set_aside(headers);
        headers.insert(AUTHORIZATION, authorization);
    }
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
    let key = keys.get(shown.id)?.signing_key(shown.scope)?;
    let query = canonical_query(uri.query().unwrap_or(""))?;
    let to_sign = |path: &str, lines: &str, names: &str| {
        let canonical = format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{payload}");
        let hash = digest::digest(&digest::SHA256, canonical.as_bytes());
        format!("AWS4-HMAC-SHA256\n{date}\n{}\n{}", shown.scope, hex::encode(hash.as_ref()))
    };
    let path = escaped(uri.path(), IN_PATH);
    let is_right = BLANKS.into_iter().any(|is_blank| {
        let lines = lines_of(headers, shown.signed, is_blank);
        lines.is_some_and(|lines| {
            // Some clients sign a path as it is, which `s3s` takes too.
            [&path, uri.path()].into_iter().any(|path| {
                let text = to_sign(path, &lines, shown.signed);
                hmac::verify(&key, text.as_bytes(), &signature).is_ok()
            })
        })
    });
    let lines = lines_of(headers, "host", BLANKS[0]).filter(|_| is_right)?;
    let signature = hmac::sign(&key, to_sign(&path, &lines, "host").as_bytes());
    let value = format!(
        "AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders=host, Signature={}",
        shown.id,
        shown.scope,
        hex::encode(signature.as_ref())
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
