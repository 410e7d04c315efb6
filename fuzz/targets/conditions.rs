//! Any text as `Range`, `If-Match`, `If-None-Match`, `If-Range` and the dates: parts lie within the object, and what is
//! not understood is refused, not passed over.

#![no_main]

use std::ops::Range;

use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, HeaderValue};
use libfuzzer_sys::fuzz_target;
use origin::{Attributes, Metadata};
use serve::fuzzing::{ByteRange, Conditions, SelectedRange, Verdict};

fn is_within(part: &Range<u64>, size: u64) -> bool {
    part.start < part.end && part.end <= size
}

// Input: `[name, size]`, then the value.
fuzz_target!(|data: &[u8]| {
    let [which, size, value @ ..] = data else { return };
    let size = u64::from(*size);
    if let Ok(text) = std::str::from_utf8(value) {
        let named = ByteRange::parse(text);
        let asked = named.map_or(SelectedRange::Whole, |range| range.of_size(size));
        match &asked {
            SelectedRange::Part(part) => {
                assert!(is_within(part, size), "{text} of {size}: {part:?}")
            }
            SelectedRange::Whole | SelectedRange::Unsatisfiable => {}
        }
        // A range is written as it is read.
        let again = named.and_then(ByteRange::header);
        let again = again.and_then(|header| ByteRange::parse(header.to_str().ok()?));
        assert_eq!(again, named, "{text}");
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
    // A write with If-Match that is not understood never goes ahead: it is refused.
    let Ok(conditions) = Conditions::parse(&headers) else { return };
    let _ = conditions.range_holds(&object);
    let mut written = Vec::new();
    conditions.write(&mut written);
    assert_eq!(Conditions::parse(&written.into_iter().collect()), Ok(conditions.clone()));
    for read in [true, false] {
        let (there, absent) = (conditions.judge(Some(&object), read), conditions.judge(None, read));
        assert!(read || (there != Verdict::NotModified && absent != Verdict::NotModified));
    }
});
