//! Queries under small limits: they fall back to a scan, or say which limit they met.

use super::tests::{build, query};
use super::*;
use crate::record::{Format, Schema};
use crate::{Error, naive};

#[test]
fn too_much_work_is_refused_by_name() {
    let text = b"a 1\nb 2\na 3\na 4\n".to_vec();
    let records = build(Schema::new(Format::Lines), &text, 1 << 20);
    let index = naive::Text::new(text);
    let with = |limits| Searcher::new(&index, &records).unwrap().with_limits(limits);
    let usual = Limits::default();
    let refused = |searcher: Searcher<'_, naive::Text>, text: &str| {
        matches!(searcher.count(&query(text)), Err(Error::TooMuchWork { .. }))
    };
    assert!(refused(with(Limits { scanned_max: 3, ..usual }), "line:~[^x]"));
    assert!(!refused(with(Limits { scanned_max: 4, ..usual }), "line:~[^x]"));
    // Too many occurrences to locate: the records are read, unless they are too many as well.
    assert!(refused(with(Limits { located_max: 2, scanned_max: 3, ..usual }), "a"));
    assert!(!refused(with(Limits { located_max: 3, scanned_max: 3, ..usual }), "a"));
    let scanned = with(Limits { located_max: 2, ..usual });
    let answer = scanned.search(&query("a"), &Page::default()).unwrap();
    assert_eq!((&answer.records[..], answer.located, answer.verified), (&[0, 2, 3][..], 0, 4));
    assert!(refused(with(Limits { verified_max: 2, ..usual }), "line:a"));
    assert!(!refused(with(Limits { verified_max: 3, ..usual }), "line:a"));
    // What the index alone decides reads no record, and all records need not be looked for.
    assert!(!refused(with(Limits { verified_max: 0, scanned_max: 0, ..usual }), "a"));
    assert!(!refused(with(Limits { verified_max: 0, scanned_max: 0, located_max: 0 }), ""));
}

#[test]
fn what_occurs_everywhere_is_scanned() {
    let lines = (0..5_000).map(|line| format!("a{} {line}\n", if line == 7 { "b" } else { "" }));
    let text = lines.collect::<String>().into_bytes();
    let records = build(Schema::new(Format::Lines), &text, 1 << 20);
    let index = naive::Text::new(text);
    let searcher = Searcher::new(&index, &records).unwrap();
    let answer = searcher.search(&query("~a"), &Page { limit: 3, ..Page::default() }).unwrap();
    assert_eq!((&answer.records[..], answer.located), (&[0, 1, 2][..], 0));
    assert_eq!(searcher.count(&query("~a")).unwrap(), 5_000);
    let answer = searcher.search(&query("ab"), &Page::default()).unwrap();
    assert_eq!((&answer.records[..], answer.located), (&[7][..], 1));
}
