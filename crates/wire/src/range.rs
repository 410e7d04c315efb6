//! The `Range` header (RFC 9110, section 14).

use std::ops::Range;

use engine::node::Part;
use http::HeaderValue;

/// The part of an object that a `Range` header requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectedRange {
    /// The whole object: the header has no range, an invalid range, or several ranges (which a
    /// server may ignore).
    Whole,
    /// These bytes.
    Part(Range<u64>),
    /// Bytes beyond the object's end: status 416.
    Unsatisfiable,
}

/// An end past all objects. Some stores read the numbers of a range as signed.
const END: u64 = i64::MAX as u64;

/// A range of bytes as a client names it, before the size is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteRange {
    /// From one byte to another, or to the end.
    From {
        /// Offset of the first byte.
        first: u64,
        /// Offset of the last byte.
        last: Option<u64>,
    },
    /// The last bytes.
    Last(u64),
}

impl ByteRange {
    /// Reads a `Range` header; `None` if it is one that a server passes over. The grammar has no blanks around the numbers: a
    /// header with blanks is invalid, as any other that the grammar does not have.
    pub fn parse(header: &str) -> Option<ByteRange> {
        let (unit, spec) = header.split_once('=')?;
        if !unit.eq_ignore_ascii_case("bytes") || spec.contains(',') {
            return None;
        }
        let (first, last) = spec.split_once('-')?;
        match (number(first), number(last)) {
            (Number::None, Number::Some(count)) => Some(ByteRange::Last(count)),
            (Number::Some(first), Number::None) => Some(ByteRange::From { first, last: None }),
            (Number::Some(first), Number::Some(last)) if first <= last => {
                Some(ByteRange::From { first, last: Some(last) })
            }
            _ => None,
        }
    }

    /// The bytes that it names of an object of a size.
    pub fn of_size(self, size: u64) -> SelectedRange {
        match self {
            ByteRange::Last(0) => SelectedRange::Unsatisfiable,
            // The last bytes of nothing are the whole of it.
            ByteRange::Last(_) if size == 0 => SelectedRange::Whole,
            ByteRange::Last(count) => SelectedRange::Part(size.saturating_sub(count)..size),
            ByteRange::From { first, last } if first < size => SelectedRange::Part(
                first..last.map_or(size, |last| last.saturating_add(1).min(size)),
            ),
            ByteRange::From { .. } => SelectedRange::Unsatisfiable,
        }
    }

    /// What the engine is asked for.
    pub fn part(self) -> Part {
        match self {
            // No object has such bytes: the reply needs the size alone.
            ByteRange::Last(0) | ByteRange::From { first: u64::MAX, .. } => Part::Metadata,
            ByteRange::Last(count) => Part::Last(count),
            ByteRange::From { first, last } => Part::Bytes { first, last },
        }
    }

    /// The bytes to ask an origin for, if that needs no size. The origin cuts them at the end of the object.
    pub fn bounds(self) -> Option<Range<u64>> {
        match self {
            ByteRange::Last(_) => None,
            ByteRange::From { first, last } => {
                let end = last.map_or(END, |last| last.saturating_add(1).min(END));
                Some(first..end).filter(|range| range.start < range.end)
            }
        }
    }

    /// The header that [`ByteRange::parse`] reads.
    pub fn header(self) -> Option<HeaderValue> {
        let text = match self {
            ByteRange::Last(count) => format!("bytes=-{count}"),
            ByteRange::From { first, last: None } => format!("bytes={first}-"),
            ByteRange::From { first, last: Some(last) } => format!("bytes={first}-{last}"),
        };
        HeaderValue::try_from(text).ok()
    }
}

enum Number {
    None,
    Some(u64),
    Broken,
}

/// Parses digits. A number above 2⁶⁴ − 1 counts as that.
fn number(text: &str) -> Number {
    if text.is_empty() {
        Number::None
    } else if text.bytes().all(|byte| byte.is_ascii_digit()) {
        Number::Some(text.parse().unwrap_or(u64::MAX))
    } else {
        Number::Broken
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part(header: &str) -> Option<Part> {
        ByteRange::parse(header).map(ByteRange::part)
    }

    fn parse(header: &str, size: u64) -> SelectedRange {
        let range = ByteRange::parse(header);
        let again = range.and_then(|range| range.header());
        let again = again.and_then(|header| ByteRange::parse(header.to_str().unwrap()));
        assert_eq!(again, range, "{header}");
        range.map_or(SelectedRange::Whole, |range| range.of_size(size))
    }

    /// The naive twin: tests each byte of the object.
    fn naive(first: Option<u64>, last: Option<u64>, size: u64) -> Vec<u64> {
        let wanted = |i: &u64| match (first, last) {
            (Some(first), Some(last)) => *i >= first && *i <= last,
            (Some(first), None) => *i >= first,
            (None, Some(n)) => *i + n >= size,
            (None, None) => true,
        };
        (0..size).filter(wanted).collect()
    }

    #[test]
    fn rows() {
        let rows: &[(&str, u64, SelectedRange)] = &[
            ("bytes=0-0", 10, SelectedRange::Part(0..1)),
            ("Bytes=2-", 10, SelectedRange::Part(2..10)),
            ("bytes=00-01", 10, SelectedRange::Part(0..2)),
            ("bytes=-3", 10, SelectedRange::Part(7..10)),
            ("bytes=-30", 10, SelectedRange::Part(0..10)),
            ("bytes=-0", 10, SelectedRange::Unsatisfiable),
            ("bytes=0-", 0, SelectedRange::Unsatisfiable),
            ("bytes=10-", 10, SelectedRange::Unsatisfiable),
            ("bytes=9-99999999999999999999999", 10, SelectedRange::Part(9..10)),
            ("bytes=99999999999999999999999-", 10, SelectedRange::Unsatisfiable),
            ("bytes=5-4", 10, SelectedRange::Whole),
            ("bytes=0-1,3-4", 10, SelectedRange::Whole),
            ("lines=0-1", 10, SelectedRange::Whole),
            ("bytes=-", 10, SelectedRange::Whole),
            ("bytes=a-b", 10, SelectedRange::Whole),
            ("bytes=+1-2", 10, SelectedRange::Whole),
            ("bytes", 10, SelectedRange::Whole),
            ("bytes =1-2", 10, SelectedRange::Whole),
            ("bytes= -1", 10, SelectedRange::Whole),
            ("bytes=0 -1", 10, SelectedRange::Whole),
            ("bytes=1-2 ", 10, SelectedRange::Whole),
            ("bytes=--1", 10, SelectedRange::Whole),
            ("bytes=0--1", 10, SelectedRange::Whole),
            ("bytes=,", 10, SelectedRange::Whole),
        ];
        assert_eq!(parse("bytes=-1", 0), SelectedRange::Whole);
        assert!(part("bytes=-1").is_some_and(|part| part.range_in(0).is_empty()));
        for (header, size, expected) in rows {
            assert_eq!(parse(header, *size), *expected, "{header} of {size}");
            let part = part(header).map(|part| part.range_in(*size));
            match expected {
                SelectedRange::Whole => assert_eq!(part, None, "{header}"),
                SelectedRange::Part(expected) => {
                    assert_eq!(part.as_ref(), Some(expected), "{header}")
                }
                SelectedRange::Unsatisfiable => {
                    assert!(part.is_some_and(|p| p.is_empty()), "{header}")
                }
            }
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_naive_twin(
            first in proptest::option::of(0u64..30),
            last in proptest::option::of(0u64..30),
            size in 0u64..20,
        ) {
            prop_assume!(first.is_some() || last.is_some());
            let show = |n: Option<u64>| n.map_or(String::new(), |n| n.to_string());
            let header = format!("bytes={}-{}", show(first), show(last));
            let expected = naive(first, last, size);
            if let Some(part) = part(&header) {
                prop_assert_eq!(part.range_in(size).collect::<Vec<_>>(), expected.clone());
            }
            match parse(&header, size) {
                SelectedRange::Part(range) => prop_assert_eq!(range.collect::<Vec<_>>(), expected),
                SelectedRange::Unsatisfiable => prop_assert!(expected.is_empty()),
                SelectedRange::Whole => prop_assert!(
                    (first > last && last.is_some()) || (first.is_none() && size == 0)
                ),
            }
        }

        #[test]
        fn any_header_is_read_without_panic(header in ".*", size: u64) {
            if let SelectedRange::Part(range) = parse(&header, size) {
                prop_assert!(range.start < range.end && range.end <= size);
            }
        }
    }
}
