//! Any text as `Range`, `If-Match`, `If-None-Match`, `If-Range` and the dates: parts lie within the object, and what is
//! not understood is refused, not passed over.

#![no_main]

use std::ops::Range;

use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, HeaderValue};
use libfuzzer_sys::fuzz_target;
use origin::{Attributes, Metadata};
use serve::fuzzing::{Asked, Verdict, check, judge, part, range, range_holds};

fn is_within(part: &Range<u64>, size: u64) -> bool {
    part.start < part.end && part.end <= size
}

// Input: `[name, size]`, then the value.
fuzz_target!(|data: &[u8]| {
    let [which, size, value @ ..] = data else { return };
    let size = u64::from(*size);
    if let Ok(text) = std::str::from_utf8(value) {
        let asked = range(text, size);
        match &asked {
            Asked::Part(part) => assert!(is_within(part, size), "{text} of {size}: {part:?}"),
            Asked::Whole | Asked::Unsatisfiable => {}
        }
        // What is known without the size agrees with what is known with it.
        assert_eq!(part(text).is_none(), range(text, u64::MAX) == Asked::Whole, "{text}");
        assert!(part(text).is_some() || asked == Asked::Whole, "{text}");
    }
    let Ok(value) = HeaderValue::from_bytes(value) else { return };
    let names = [IF_MATCH, IF_NONE_MATCH, IF_RANGE, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE];
    let name = &names[usize::from(*which) % names.len()];
    let mut headers = HeaderMap::new();
    headers.append(name, value.clone());
    if which & 128 != 0 {
        headers.append(name, value);
    }
    let object = Metadata {
        size,
        etag: ground::Etag::from("a"),
        modified_unix_us: 1_700_000_000_000_000,
        attributes: Attributes::default(),
    };
    let _ = range_holds(&headers, &object);
    let understood = check(&headers).is_ok();
    for read in [true, false] {
        let (there, absent) = (judge(&headers, Some(&object), read), judge(&headers, None, read));
        assert!(read || (there != Verdict::NotModified && absent != Verdict::NotModified));
        // A write only with If-Match that is not understood never goes ahead.
        assert!(understood || *name != IF_MATCH || absent == Verdict::Failed);
    }
});
