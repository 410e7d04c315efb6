//! The head of a reply with an object: what the store keeps beside the bytes.

use std::ops::Range;

use chrono::DateTime;
use http::StatusCode;
use http::header::{AsHeaderName, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, LAST_MODIFIED};
use http::response::Parts;

use super::failure::{Failure, FailureKind};

/// See the module.
#[derive(Clone, Debug)]
pub struct StoredHead {
    /// The bytes of the whole object.
    pub size: u64,
    /// The store's own, with its quotes.
    pub etag: Option<String>,
    /// When the store says that it was written; 0 if it does not.
    pub modified_unix_us: u64,
    /// All headers, which are text in UTF-8.
    pub headers: HeaderMap,
}

/// A part of an object, or the whole.
pub struct StoredPart {
    pub head: StoredHead,
    /// Which bytes follow the head.
    pub range: Range<u64>,
}

fn odd(what: String) -> Failure {
    Failure::new(FailureKind::Malformed, what)
}

/// The text of a header.
pub fn text<K: AsHeaderName>(headers: &HeaderMap, name: K) -> Option<&str> {
    std::str::from_utf8(headers.get(name)?.as_bytes()).ok()
}

impl StoredHead {
    /// The head in a reply to a request for the whole object.
    ///
    /// # Errors
    ///
    /// If the store says no length, or a time that is none.
    pub fn parse(parts: Parts) -> Result<StoredHead, Failure> {
        let headers = parts.headers;
        let length = text(&headers, CONTENT_LENGTH);
        let length = length.ok_or_else(|| odd("the reply does not say its length".to_owned()))?;
        let size = length.parse().map_err(|_| odd(format!("{length:?} is no length")))?;
        let modified_unix_us = match text(&headers, LAST_MODIFIED) {
            None => 0,
            Some(time) => {
                let parsed = DateTime::parse_from_rfc2822(time);
                let parsed =
                    parsed.map_err(|error| odd(format!("last-modified {time:?}: {error}")))?;
                u64::try_from(parsed.timestamp_micros()).unwrap_or(0)
            }
        };
        let etag = text(&headers, ETAG).map(str::to_owned);
        Ok(StoredHead { size, etag, modified_unix_us, headers })
    }
}

impl StoredPart {
    /// What follows in a reply to a request for this range of an object, or for all of it. The range may end after the object.
    ///
    /// # Errors
    ///
    /// If it is another range.
    pub fn parse(parts: Parts, wanted: Option<&Range<u64>>) -> Result<StoredPart, Failure> {
        let status = parts.status;
        let mut head = StoredHead::parse(parts)?;
        let Some(wanted) = wanted else {
            let range = 0..head.size;
            return Ok(StoredPart { head, range });
        };
        if status != StatusCode::PARTIAL_CONTENT {
            return Err(odd("the store sends the whole object and not the range".to_owned()));
        }
        let told = text(&head.headers, CONTENT_RANGE).unwrap_or_default();
        let found = parse_range(told).ok_or_else(|| odd(format!("{told:?} is no range")))?;
        head.size = found.size;
        let expected = wanted.start..wanted.end.min(found.size);
        if found.range != expected {
            return Err(odd(format!("the store sends the range {told:?} and not {expected:?}")));
        }
        Ok(StoredPart { head, range: found.range })
    }
}

struct ContentRange {
    range: Range<u64>,
    size: u64,
}

/// Parses `bytes 0-4/10`.
fn parse_range(text: &str) -> Option<ContentRange> {
    let (range, size) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let end = last.parse::<u64>().ok()?.checked_add(1)?;
    Some(ContentRange { range: first.parse().ok()?..end, size: size.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(status: u16, headers: &[(&str, &str)]) -> Parts {
        let mut reply = http::Response::builder().status(status);
        for (name, value) in headers {
            reply = reply.header(*name, *value);
        }
        reply.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_head_is_read_or_is_an_error() {
        let length = ("content-length", "5");
        let time = ("last-modified", "Tue, 24 Nov 2026 08:00:00 GMT");
        let head = StoredHead::parse(parts(200, &[length, time, ("etag", "\"e\"")])).unwrap();
        assert_eq!((head.size, head.etag.as_deref()), (5, Some("\"e\"")));
        assert_eq!(head.modified_unix_us, 1_795_507_200_000_000);
        let head = StoredHead::parse(parts(200, &[length])).unwrap();
        assert_eq!((head.etag, head.modified_unix_us), (None, 0));
        for odd in [vec![], vec![("content-length", "-1")], vec![length, ("last-modified", "x")]] {
            assert!(StoredHead::parse(parts(200, &odd)).is_err(), "{odd:?}");
        }
    }

    #[test]
    fn a_part_is_the_one_that_was_asked_for() {
        let part = |status, range: &str, wanted: Range<u64>| {
            let headers = [("content-length", "5"), ("content-range", range)];
            StoredPart::parse(parts(status, &headers), Some(&wanted)).ok()
        };
        let whole = StoredPart::parse(parts(200, &[("content-length", "5")]), None).unwrap();
        assert_eq!(whole.range, 0..5);
        let found = part(206, "bytes 2-6/10", 2..7).unwrap();
        assert_eq!((found.range, found.head.size), (2..7, 10));
        // The range ends after the object.
        let found = part(206, "bytes 2-6/7", 2..100).unwrap();
        assert_eq!((found.range, found.head.size), (2..7, 7));
        assert!(part(200, "bytes 2-6/10", 2..7).is_none());
        let others = ["bytes 1-5/10", "bytes 2-5/10", "bytes 2-6/*", "bytes 2-/10", "", "2-6/10"];
        let last = format!("bytes 2-{}/10", u64::MAX);
        for other in others.into_iter().chain([&*last]) {
            assert!(part(206, other, 2..7).is_none(), "{other}");
        }
    }
}
