//! The head of a request, looked at once: is it a plain read of an object, and where does it end?
//!
//! No socket here, so that it can be tested byte by byte. What is not plain is hyper's to read; then
//! only its length counts, so that whatever follows is looked at again.

use http::Version;
use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HeaderMap, HeaderName, HeaderValue, IF_MATCH,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE, TRANSFER_ENCODING,
    UPGRADE,
};
use origin::KEY_BYTES_MAX;

use crate::framing;
use crate::framing::Refusal;

/// Header lines of a request that are read here; hyper reads those that have more.
const HEADERS_MAX: usize = 100;

/// The characters of a key that stand for themselves in a path, whoever reads it.
static PLAIN: [bool; 256] = plain_characters();

const fn plain_characters() -> [bool; 256] {
    let others = b"-._~!$&'()*+,;=:@/";
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut at = 0;
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
}

/// The first line of a plain read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Whether only the head of the reply is asked for.
    pub is_head: bool,
    /// The path, with the key in it as it is.
    pub path: &'a str,
    /// The key.
    pub key: &'a [u8],
    /// The bytes of the line, its end included.
    length: usize,
}

/// The lines of headers that were approved last on a connection, with what they say. Clients send the
/// same lines with each request, so that comparing bytes replaces parsing. (A token among them is
/// compared with what this very client has shown.)
#[derive(Debug, Default)]
pub struct Approved<F> {
    lines: Vec<u8>,
    facts: Option<F>,
}

/// What stands at the front of some bytes.
#[derive(Debug, PartialEq)]
pub enum Front<'a, F> {
    /// A part of a head.
    Part,
    /// A plain read.
    Plain {
        /// Its first line.
        line: Line<'a>,
        /// What its headers say.
        facts: F,
        /// Bytes of its head.
        length: usize,
    },
    /// Another request.
    Other {
        /// Bytes of its head and its body.
        length: u64,
    },
    /// Something whose end is not known: hyper reads this connection from here on.
    Unknown,
    /// A request that gives its end more than once: others on its way may have read another end.
    Ambiguous,
    /// A request that breaks a rule of HTTP.
    Refused(Refusal),
}

/// Looks at the front of some bytes. `approve` judges headers that were not seen before, `signed` a read with
/// another path: whether it is of the head alone, its path, its headers.
pub fn front<'a, F: Copy>(
    bytes: &'a [u8],
    approved: &mut Approved<F>,
    bytes_max: usize,
    approve: impl FnOnce(&HeaderMap) -> Option<F>,
    signed: impl FnOnce(bool, &'a str, &HeaderMap) -> Option<(&'a [u8], F)>,
) -> Front<'a, F> {
    let line = line(bytes);
    if let (Some(line), Some(facts)) = (line, approved.facts)
        && bytes[line.length..].starts_with(&approved.lines)
    {
        let length = line.length + approved.lines.len();
        return Front::Plain { line, facts, length };
    }
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) if length <= bytes_max => length,
        Ok(httparse::Status::Partial) if bytes.len() < bytes_max => return Front::Part,
        _ => return Front::Unknown,
    };
    let Some(headers) = map_of(request.headers) else { return Front::Unknown };
    let version = if request.version == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 };
    if let Err(refusal) = framing::check(version, &headers) {
        return Front::Refused(refusal);
    }
    let lengths = headers.get_all(CONTENT_LENGTH).iter().count();
    if lengths + headers.get_all(TRANSFER_ENCODING).iter().count() > 1 {
        return Front::Ambiguous;
    }
    if let Some(line) = line.filter(|_| is_plain(&headers))
        && let Some(facts) = approve(&headers)
    {
        approved.lines.clear();
        approved.lines.extend_from_slice(&bytes[line.length..length]);
        approved.facts = Some(facts);
        return Front::Plain { line, facts, length };
    }
    let is_head = request.method == Some("HEAD");
    // A bucket may be called "objects", so that the path may look like one of HTTP's.
    if (is_head || request.method == Some("GET"))
        && request.version == Some(1)
        && is_plain(&headers)
        && let Some(path) = request.path.filter(|path| framing::has_valid_escapes(path))
        && let Some((key, facts)) = signed(is_head, path, &headers)
    {
        let line = Line { is_head, path, key, length: 0 };
        return Front::Plain { line, facts, length };
    }
    let ends = request.version == Some(1) && request.method != Some("CONNECT");
    match body_of(&headers).filter(|_| ends) {
        Some(body) => Front::Other { length: (length as u64).saturating_add(body) },
        None => Front::Unknown,
    }
}

fn line(bytes: &[u8]) -> Option<Line<'_>> {
    const OBJECTS: &[u8] = b"/objects/";
    let (is_head, start) = match bytes {
        [b'G', b'E', b'T', b' ', ..] => (false, 4),
        [b'H', b'E', b'A', b'D', b' ', ..] => (true, 5),
        _ => return None,
    };
    let rest = bytes[start..].strip_prefix(OBJECTS)?;
    let end = rest.iter().position(|&byte| !PLAIN[usize::from(byte)])?;
    if end == 0 || end > KEY_BYTES_MAX || !rest[end..].starts_with(b" HTTP/1.1\r\n") {
        return None;
    }
    let from = start + OBJECTS.len();
    let path = std::str::from_utf8(&bytes[start..from + end]).ok()?;
    let length = from + end + b" HTTP/1.1\r\n".len();
    Some(Line { is_head, path, key: &rest[..end], length })
}

fn map_of(lines: &[httparse::Header<'_>]) -> Option<HeaderMap> {
    let mut headers = HeaderMap::with_capacity(lines.len());
    for line in lines {
        let name = HeaderName::from_bytes(line.name.as_bytes()).ok()?;
        headers.append(name, HeaderValue::from_bytes(line.value).ok()?);
    }
    Some(headers)
}

/// Whether nothing in the headers makes a read anything but plain: no part, no condition, no body, and
/// a connection that stays.
fn is_plain(headers: &HeaderMap) -> bool {
    const OTHERWISE: [HeaderName; 10] = [
        RANGE,
        IF_MATCH,
        IF_NONE_MATCH,
        IF_MODIFIED_SINCE,
        IF_UNMODIFIED_SINCE,
        IF_RANGE,
        CONTENT_LENGTH,
        TRANSFER_ENCODING,
        EXPECT,
        UPGRADE,
    ];
    stays(headers) && !headers.keys().any(|name| OTHERWISE.contains(name))
}

/// Whether the client keeps the connection.
fn stays(headers: &HeaderMap) -> bool {
    let keeps = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"keep-alive");
    headers.get_all(CONNECTION).iter().all(keeps)
}

/// The bytes of a request's body; `None` if its headers do not give them, or the connection ends.
fn body_of(headers: &HeaderMap) -> Option<u64> {
    let odd = headers.contains_key(TRANSFER_ENCODING) || headers.contains_key(UPGRADE);
    if odd || !stays(headers) {
        return None;
    }
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let Some(length) = lengths.next() else { return Some(0) };
    let text = length.to_str().ok()?;
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number && lengths.next().is_none())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAX: usize = 8 << 10;

    fn approve(headers: &HeaderMap) -> Option<u8> {
        (!headers.contains_key("no")).then_some(7)
    }

    /// Checks what a head is, with a `Host` if it has none.
    fn check(bytes: &str, expected: &str) {
        const HOST: &str = "Host: x\r\n";
        let (bytes, more) = match bytes.split_once(" HTTP/1.1\r\n") {
            Some((line, rest)) if !bytes.contains("Host") => {
                (format!("{line} HTTP/1.1\r\n{HOST}{rest}"), HOST.len())
            }
            _ => (bytes.to_owned(), 0),
        };
        let length = |text: &str| Some(text.parse::<usize>().ok()? + more);
        let expected = match expected.rsplit_once(' ').map(|(what, last)| (what, length(last))) {
            Some((what, Some(length))) if what != "refused" => format!("{what} {length}"),
            _ => expected.to_owned(),
        };
        let mut approved = Approved::default();
        for time in ["first", "again"] {
            let found = match front(bytes.as_bytes(), &mut approved, MAX, approve, |_, _, _| None) {
                Front::Part => "part".to_owned(),
                Front::Unknown => "unknown".to_owned(),
                Front::Ambiguous => "ambiguous".to_owned(),
                Front::Refused(refusal) => format!("refused {}", refusal.status.as_u16()),
                Front::Other { length } => format!("other {length}"),
                Front::Plain { line, facts, length } => {
                    assert_eq!(facts, 7);
                    let key = std::str::from_utf8(line.key).unwrap();
                    let method = if line.is_head { "HEAD" } else { "GET" };
                    format!("{method} {key} {} {length}", line.path)
                }
            };
            assert_eq!(found, expected, "{bytes:?}, {time}");
        }
    }

    #[test]
    fn rows() {
        check("GET /objects/a HTTP/1.1\r\nHost: x\r\n\r\n", "GET a /objects/a 36");
        check("GET /objects/a HTTP/1.1\r\nHost: x\r\n\r\nGET /obj", "GET a /objects/a 36");
        check("HEAD /objects/a/b@c HTTP/1.1\r\n\r\n", "HEAD a/b@c /objects/a/b@c 32");
        check("GET /objects/a HTTP/1.1\r\nConnection: Keep-Alive\r\n\r\n", "GET a /objects/a 51");
        check("GET /objects/a HTTP/1.1\r\nHost: x\r\n\r", "part");
        check("GET /obj", "part");
        check("", "part");
        for line in ["Range: bytes=0-1", "If-None-Match: *", "no: 1", "Expect: 100-continue"] {
            let text = format!("GET /objects/a HTTP/1.1\r\n{line}\r\n\r\n");
            check(&text, &format!("other {}", text.len()));
        }
        for path in ["/objects/", "/objects/a%20b", "/objects/a?b", "/objects", "/metrics"] {
            let text = format!("GET {path} HTTP/1.1\r\n\r\n");
            check(&text, &format!("other {}", text.len()));
        }
        check("PUT /objects/a HTTP/1.1\r\nContent-Length: 3\r\n\r\nab", "other 49");
        check("GET /objects/a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "other 49");
        for line in [
            "Content-Length: +3",
            "Content-Length: 3, 3",
            "Content-Length:",
            "Transfer-Encoding: chunked",
            "Connection: close",
            "Connection: keep-alive, upgrade",
            "Upgrade: h2c",
        ] {
            check(&format!("GET /objects/a HTTP/1.1\r\n{line}\r\n\r\n"), "unknown");
            check(&format!("PUT /objects/a HTTP/1.1\r\n{line}\r\n\r\n"), "unknown");
        }
        for lines in [
            "Content-Length: 3\r\nContent-Length: 3",
            "Content-Length: 3\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\nA: b\r\nTransfer-Encoding: chunked",
        ] {
            let expected = if lines.contains("A: b") { "refused 400" } else { "ambiguous" };
            check(&format!("PUT /objects/a HTTP/1.1\r\n{lines}\r\n\r\n"), expected);
        }
        for (lines, status) in [
            ("Host: x\r\nContent-Length: 99999999999999999999", 413),
            ("Host: x\r\nTransfer-Encoding: gzip, chunked", 501),
            ("Host: x\r\nHost: x", 400),
            ("Host: x y", 400),
            ("X-Host: x", 400),
        ] {
            for line in
                ["GET /objects/a", "PUT /objects/a", "GET /metrics", "PUT http://x/objects/a"]
            {
                let text = format!("{line} HTTP/1.1\r\n{lines}\r\n\r\n");
                check(&text, &format!("refused {status}"));
            }
        }
        check("GET /objects/a HTTP/1.0\r\n\r\n", "unknown");
        check("CONNECT a:1 HTTP/1.1\r\n\r\n", "unknown");
        check("GET /objects/a HTTP/1.1\r\nHost x\r\n\r\n", "unknown");
        check("\u{16}\u{3}\u{1}", "unknown");
        let long = "x".repeat(KEY_BYTES_MAX + 1);
        let text = format!("GET /objects/{long} HTTP/1.1\r\n\r\n");
        check(&text, &format!("other {}", text.len()));
        check(&format!("GET /objects/a HTTP/1.1\r\nx: {}", "x".repeat(MAX)), "unknown");
    }

    proptest! {
        /// The naive twin parses every head, and never remembers lines.
        #[test]
        fn remembered_lines_change_nothing(
            heads in prop::collection::vec(
                (0..3usize, "[a-c%]{0,3}", prop::collection::vec(0..6usize, 0..3), 0..40usize),
                1..20,
            ),
        ) {
            const LINES: [&str; 6] =
                ["B: b", "no: 1", "X: \r\n", "Range: b", "Connection: close", "A: b"];
            let mut approved = Approved::default();
            for (method, key, lines, cut) in heads {
                let method = ["GET", "HEAD", "PUT"][method];
                let mut text = format!("{method} /objects/{key} HTTP/1.1\r\nHost: x\r\n");
                for line in lines {
                    text.push_str(LINES[line]);
                    text.push_str("\r\n");
                }
                text.push_str("\r\n");
                let bytes = &text.as_bytes()[..text.len().saturating_sub(cut)];
                let found = front(bytes, &mut approved, MAX, approve, |_, _, _| None);
                prop_assert_eq!(found, front(bytes, &mut Approved::default(), MAX, approve, |_, _, _| None));
            }
        }
    }
}
