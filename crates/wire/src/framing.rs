//! The rules of HTTP on where a request ends and whom it is for, wherever a wrong answer could differ from another program's
//! on the request's way (RFC 9112, sections 3.2, 6.1 and 6.3).
//!
//! hyper accepts more: any coding before `chunked`, requests without `Host` or with several. Plain reads never reach hyper,
//! and after a chunked body only hyper knows where requests begin. So both look here: `wire::head` at each head
//! that it reads, and `front::http` at each request of hyper's.

use http::header::{CONTENT_LENGTH, HOST, HeaderMap, TRANSFER_ENCODING};
use http::{StatusCode, Uri, Version};
use origin::OBJECT_BYTES_MAX;

/// Why a request cannot be read. The connection ends after it, because where the next request begins is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status of the reply.
    pub status: StatusCode,
    /// What is wrong, and what to send. Without characters that JSON escapes.
    pub text: &'static str,
}

const fn bad(text: &'static str) -> Refusal {
    Refusal { status: StatusCode::BAD_REQUEST, text }
}

/// Judges the headers of a request.
///
/// # Errors
///
/// The first rule that is broken.
pub fn check(version: Version, headers: &HeaderMap) -> Result<(), Refusal> {
    check_host(version, headers)?;
    check_coding(version, headers)?;
    check_length(headers)
}

fn check_host(version: Version, headers: &HeaderMap) -> Result<(), Refusal> {
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (_, Some(_)) => Err(bad("the request has several Host headers; send one")),
        (Some(host), None) if !is_host(host.as_bytes()) => Err(bad(
            "invalid Host header; send a host name or an address, and a port from 0 to 65535 if any",
        )),
        (None, None) if version == Version::HTTP_11 => {
            Err(bad("the Host header is missing; send one"))
        }
        _ => Ok(()),
    }
}

/// Whether a text is a host with an optional port. An empty host is none: RFC 9110, section 4.2.1.
fn is_host(text: &[u8]) -> bool {
    let end = match text.first() {
        Some(b'[') => text.iter().position(|byte| *byte == b']').map_or(0, |at| at + 1),
        _ => text.iter().position(|byte| *byte == b':').unwrap_or(text.len()),
    };
    let (host, port) = text.split_at(end);
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(byte);
    let is_address = |byte: &u8| byte.is_ascii_hexdigit() || b":.".contains(byte);
    let named = match host {
        [b'[', address @ .., b']'] => !address.is_empty() && address.iter().all(is_address),
        name => !name.is_empty() && name.iter().all(is_name),
    };
    named && (port.is_empty() || port.strip_prefix(b":").is_some_and(is_port))
}

fn is_port(text: &[u8]) -> bool {
    // An empty port is the scheme's own.
    let digits = text.iter().all(u8::is_ascii_digit);
    digits
        && text.iter().fold(0u32, |n, byte| (n * 10 + u32::from(byte - b'0')).min(65_536)) < 65_536
}

/// The codings of a body: `chunked` alone is understood.
fn check_coding(version: Version, headers: &HeaderMap) -> Result<(), Refusal> {
    let lines: Vec<&[u8]> =
        headers.get_all(TRANSFER_ENCODING).iter().map(|line| line.as_bytes()).collect();
    if lines.is_empty() {
        return Ok(());
    }
    if version < Version::HTTP_11 {
        return Err(bad("Transfer-Encoding is not a part of HTTP/1.0; send Content-Length"));
    }
    let codings = lines.iter().flat_map(|line| line.split(|byte| *byte == b','));
    let codings: Vec<&[u8]> =
        codings.map(<[u8]>::trim_ascii).filter(|coding| !coding.is_empty()).collect();
    let is_chunked = |coding: &&[u8]| coding.eq_ignore_ascii_case(b"chunked");
    let Some((last, before)) = codings.split_last() else {
        return Err(bad("the Transfer-Encoding is empty; send chunked, or Content-Length"));
    };
    if !is_chunked(last) || before.iter().any(is_chunked) {
        return Err(bad("the Transfer-Encoding must be chunked, once and last"));
    }
    if !before.is_empty() {
        return Err(Refusal {
            status: StatusCode::NOT_IMPLEMENTED,
            text: "of transfer codings only chunked is understood; send the body without another",
        });
    }
    Ok(())
}

/// A length that no body has. One that is no number is hyper's to refuse.
fn check_length(headers: &HeaderMap) -> Result<(), Refusal> {
    let is_too_long = |text: &[u8]| {
        let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
        let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<u64>().ok());
        is_number && number.is_none_or(|length| length > OBJECT_BYTES_MAX)
    };
    if headers.get_all(CONTENT_LENGTH).iter().any(|line| is_too_long(line.as_bytes())) {
        return Err(Refusal {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            text: "the Content-Length is larger than any object can be (5 TiB)",
        });
    }
    Ok(())
}

/// Judges the address that a request names: every `%`, in the path and in each parameter, begins an escape.
///
/// # Errors
///
/// What is wrong with it.
pub fn check_target(uri: &Uri) -> Result<(), Refusal> {
    if uri.authority().is_some_and(|authority| !is_host(authority.as_str().as_bytes())) {
        return Err(bad("the address names an invalid host; send a host name or an address"));
    }
    match uri.path_and_query() {
        Some(target) if !has_valid_escapes(target.as_str()) => Err(bad(
            "the address has a % that is not followed by two hexadecimal digits; write % itself as %25",
        )),
        _ => Ok(()),
    }
}

/// Whether each `%` is followed by two hexadecimal digits.
pub fn has_valid_escapes(text: &str) -> bool {
    let mut parts = text.as_bytes().split(|byte| *byte == b'%');
    parts.next();
    parts.all(|part| part.len() >= 2 && part[..2].iter().all(u8::is_ascii_hexdigit))
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(name: HeaderName, lines: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("x"));
        headers.remove(&name);
        for line in lines {
            headers.append(name.clone(), HeaderValue::from_bytes(line.as_bytes()).unwrap());
        }
        headers
    }

    fn status(version: Version, headers: &HeaderMap) -> u16 {
        check(version, headers).map_or_else(|refusal| refusal.status.as_u16(), |()| 200)
    }

    #[test]
    fn a_request_has_one_valid_host() {
        let rows: &[(&[&str], u16, u16)] = &[
            (&[], 400, 200),
            (&["a", "a"], 400, 400),
            (&["a", "b"], 400, 400),
            (&[""], 400, 400),
            (&["a"], 200, 200),
            (&["a:1"], 200, 200),
            (&["a:"], 200, 200),
            (&["127.0.0.1:65535"], 200, 200),
            (&["a:65536"], 400, 400),
            (&["a:99999999999999999999"], 400, 400),
            (&["a:x"], 400, 400),
            (&["a:1:2"], 400, 400),
            (&["[::1]:70"], 200, 200),
            (&["[::1"], 400, 400),
            (&["[]"], 400, 400),
            (&["[::1]x"], 400, 400),
            (&["::1"], 400, 400),
            (&[":80"], 400, 400),
            (&["a b"], 400, 400),
            (&["a/b"], 400, 400),
            (&["user@a"], 400, 400),
            (&["a,b@"], 400, 400),
            (&["http://a"], 400, 400),
            (&["\u{fc}"], 400, 400),
        ];
        for (lines, new, old) in rows {
            let headers = headers(HOST, lines);
            assert_eq!(status(Version::HTTP_11, &headers), *new, "{lines:?}");
            assert_eq!(status(Version::HTTP_10, &headers), *old, "{lines:?} in HTTP/1.0");
        }
    }

    #[test]
    fn of_codings_only_chunked_is_taken() {
        let rows: &[(&[&str], u16)] = &[
            (&["chunked"], 200),
            (&["Chunked"], 200),
            (&[", chunked ,"], 200),
            (&["chunked, chunked"], 400),
            (&["chunked", "chunked"], 400),
            (&["chunked, gzip"], 400),
            (&["chunked, identity"], 400),
            (&["gzip"], 400),
            (&["identity"], 400),
            (&["x"], 400),
            (&[""], 400),
            (&[","], 400),
            (&["xchunked"], 400),
            (&["chunked;a=b"], 400),
            (&["gzip, chunked"], 501),
            (&["gzip", "chunked"], 501),
            (&["identity, chunked"], 501),
            (&["x;q=1, chunked"], 501),
        ];
        for (lines, expected) in rows {
            let headers = headers(TRANSFER_ENCODING, lines);
            assert_eq!(status(Version::HTTP_11, &headers), *expected, "{lines:?}");
            assert_eq!(status(Version::HTTP_10, &headers), 400, "{lines:?} in HTTP/1.0");
        }
    }

    #[test]
    fn a_length_is_one_that_a_body_can_have() {
        for (line, expected) in [
            ("0", 200),
            ("5497558138880", 200),
            ("5497558138881", 413),
            ("9223372036854775807", 413),
            ("9223372036854775808", 413),
            ("18446744073709551614", 413),
            ("18446744073709551615", 413),
            ("18446744073709551616", 413),
            ("99999999999999999999999999", 413),
            // hyper refuses these.
            ("+5", 200),
            ("-1", 200),
            ("0x10", 200),
            ("5, 5", 200),
            ("1e3", 200),
            ("", 200),
        ] {
            let headers = headers(CONTENT_LENGTH, &[line]);
            assert_eq!(status(Version::HTTP_11, &headers), expected, "{line:?}");
        }
    }

    #[test]
    fn each_escape_is_whole() {
        for (target, holds) in [
            ("/objects/a", true),
            ("/objects/%20?prefix=%zz", false),
            ("/objects?prefix=%4", false),
            ("/objects?prefix=%", false),
            ("/objects?pre%gfix=a", false),
            ("/objects/%c3%BC?a=%25", true),
            ("/objects/%2", false),
            ("http://a/objects/%2", false),
            ("http://a:80/objects/a", true),
            ("http://user@a/objects/a", false),
        ] {
            let uri: Uri = target.parse().unwrap();
            assert_eq!(check_target(&uri).is_ok(), holds, "{target}");
        }
    }
}
