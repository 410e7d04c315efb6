//! Parses the head of a reply: bytes in, a head or a fault out, no socket.

use bytes::BytesMut;
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::fault::Fault;
use super::limits::Limits;

/// Maximum header lines of a reply. Each pair of an object's user metadata is one line, and other
/// tools store many pairs.
pub const HEADERS_MAX: usize = 2048;

/// Header lines of a usual reply. Up to this number, parsing needs no heap memory for them.
const HEADERS_FEW: usize = 64;

/// A parsed head.
#[derive(Debug)]
pub struct Head {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// Bytes of the body that follows.
    pub length: u64,
    /// Whether the connection may be reused.
    pub keep_alive: bool,
}

fn malformed<T>(what: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Malformed(what.into()))
}

/// Removes a head from the front of `buffer`; `None` if it is not complete yet. With `bodiless`,
/// the reply has no body whatever its head says, because the request was a HEAD.
pub fn parse(
    buffer: &mut BytesMut,
    bodiless: bool,
    limits: &Limits,
) -> Result<Option<Head>, Fault> {
    let within = buffer.get(..limits.head_bytes_max).unwrap_or(&buffer[..]);
    let (mut few, mut many) = ([httparse::EMPTY_HEADER; HEADERS_FEW], Vec::new());
    let mut response = httparse::Response::new(&mut few);
    let mut parsed = response.parse(within);
    if matches!(parsed, Err(httparse::Error::TooManyHeaders)) {
        many.resize(HEADERS_MAX, httparse::EMPTY_HEADER);
        response = httparse::Response::new(&mut many);
        parsed = response.parse(within);
    }
    let length = match parsed {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if within.len() < limits.head_bytes_max => return Ok(None),
        Ok(httparse::Status::Partial) => {
            return malformed(format!("head longer than {} bytes", limits.head_bytes_max));
        }
        Err(error) => return malformed(error.to_string()),
    };
    let status = StatusCode::from_u16(response.code.unwrap_or_default());
    let Ok(status) = status else { return malformed("malformed status line") };
    let keep_alive = response.version == Some(1);
    let start = within.as_ptr() as usize;
    let mut places = Vec::with_capacity(response.headers.len());
    for line in response.headers.iter() {
        let Ok(name) = HeaderName::from_bytes(line.name.as_bytes()) else {
            return malformed("invalid header name");
        };
        let from = (line.value.as_ptr() as usize).saturating_sub(start);
        places.push((name, from, from + line.value.len()));
    }
    // The values share the head's memory instead of copying it.
    let bytes = buffer.split_to(length).freeze();
    let mut headers = HeaderMap::with_capacity(places.len());
    for (name, from, to) in places {
        // The slice of an empty value may point outside the head, so it is not used.
        let value =
            if from < to && to <= length { bytes.slice(from..to) } else { Default::default() };
        let Ok(value) = HeaderValue::from_maybe_shared(value) else {
            return malformed(format!("invalid value of header {name}"));
        };
        headers.append(name, value);
    }
    framed(status, headers, keep_alive, bodiless, limits).map(Some)
}

fn framed(
    status: StatusCode,
    mut headers: HeaderMap,
    keep_alive: bool,
    bodiless: bool,
    limits: &Limits,
) -> Result<Head, Fault> {
    let closes = |value: &HeaderValue| {
        value
            .as_bytes()
            .split(|byte| *byte == b',')
            .any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
    };
    let keep_alive = keep_alive && !headers.get_all(CONNECTION).iter().any(closes);
    let without = status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    // Of a reply to HEAD too: it is passed on.
    let mut length = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        let Some(said) = number(value.as_bytes()) else {
            return malformed("the content-length is not a number");
        };
        if length.is_some_and(|length| length != said) {
            return malformed("two different content-lengths");
        }
        length = Some(said);
    }
    if let Some(length) = length.filter(|_| headers.get_all(CONTENT_LENGTH).iter().nth(1).is_some())
    {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    if bodiless || without {
        return Ok(Head { status, headers, length: 0, keep_alive });
    }
    if headers.contains_key(TRANSFER_ENCODING) {
        return malformed("unsupported transfer-encoding; a reply must have a content-length");
    }
    let Some(length) = length else { return malformed("missing content-length") };
    if length > limits.body_bytes_max {
        let max = limits.body_bytes_max;
        return malformed(format!("the body has {length} bytes; at most {max} are accepted"));
    }
    Ok(Head { status, headers, length, keep_alive })
}

/// Parses a number of 1 to 19 digits without a sign (RFC 9110).
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 19 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}
