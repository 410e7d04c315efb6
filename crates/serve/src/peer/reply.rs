//! The head of a reply: bytes in, a head or a fault out, no socket.

use bytes::BytesMut;
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::{Fault, Limits};

/// The most header lines of a reply. Each pair of an object's user metadata is one; other tools store many.
pub const HEADERS_MAX: usize = 2048;

/// Header lines of a usual reply: room for them is on the stack.
const HEADERS_FEW: usize = 64;

/// A head that was understood.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// Bytes of the body that follows.
    pub(super) length: u64,
    /// Whether the connection may be used again.
    pub(super) keep_alive: bool,
}

fn malformed<T>(what: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Malformed(what.into()))
}

/// Takes a head off the front of `buffer`, or `None` if it is not all there. `bodiless` says that the
/// reply has no body whatever its head says: it answers a HEAD.
pub(super) fn parse(
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
            return malformed(format!("its head is longer than {} bytes", limits.head_bytes_max));
        }
        Err(error) => return malformed(error.to_string()),
    };
    let status = StatusCode::from_u16(response.code.unwrap_or_default());
    let Ok(status) = status else { return malformed("its status is no status") };
    let keep_alive = response.version == Some(1);
    let start = within.as_ptr() as usize;
    let mut places = Vec::with_capacity(response.headers.len());
    for line in response.headers.iter() {
        let Ok(name) = HeaderName::from_bytes(line.name.as_bytes()) else {
            return malformed("a header's name is none");
        };
        let from = (line.value.as_ptr() as usize).saturating_sub(start);
        places.push((name, from, from + line.value.len()));
    }
    // The values are parts of the head, not copies of it.
    let bytes = buffer.split_to(length).freeze();
    let mut headers = HeaderMap::with_capacity(places.len());
    for (name, from, to) in places {
        // An empty value may stand anywhere.
        let value =
            if from < to && to <= length { bytes.slice(from..to) } else { Default::default() };
        let Ok(value) = HeaderValue::from_maybe_shared(value) else {
            return malformed(format!("the value of {name} is none"));
        };
        headers.append(name, value);
    }
    framed(status, headers, keep_alive, bodiless, limits).map(Some)
}

fn framed(
    status: StatusCode,
    headers: HeaderMap,
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
    if bodiless || without {
        return Ok(Head { status, headers, length: 0, keep_alive });
    }
    if headers.contains_key(TRANSFER_ENCODING) {
        return malformed("it has a transfer-encoding; a reply must say its content-length");
    }
    let mut length = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        let Some(said) = number(value.as_bytes()) else {
            return malformed("its content-length is not a number");
        };
        if length.is_some_and(|length| length != said) {
            return malformed("it has two content-lengths");
        }
        length = Some(said);
    }
    let Some(length) = length else { return malformed("it does not say its content-length") };
    if length > limits.body_bytes_max {
        let max = limits.body_bytes_max;
        return malformed(format!("its body has {length} bytes; at most {max} are taken"));
    }
    Ok(Head { status, headers, length, keep_alive })
}

/// Digits alone, as RFC 9110 has them.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 19 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}
