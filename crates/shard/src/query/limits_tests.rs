//! Queries under small limits: they fall back to a scan, or say which limit they met.

use super::search::BATCH_BYTES;
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
    // A record has four bytes.
    assert!(refused(with(Limits { read_bytes_max: 15, ..usual }), "line:~[^x]"));
    assert!(!refused(with(Limits { read_bytes_max: 16, ..usual }), "line:~[^x]"));
    // Too many occurrences to locate: the records are read, unless they are too many as well.
    assert!(refused(with(Limits { located_max: 2, verified_max: 3, ..usual }), "a"));
    assert!(!refused(with(Limits { located_max: 3, verified_max: 3, ..usual }), "a"));
    let scanned = with(Limits { located_max: 2, ..usual });
    let answer = scanned.search(&query("a"), &Page::default()).unwrap();
    assert_eq!((&answer.records[..], answer.located, answer.verified), (&[0, 2, 3][..], 0, 4));
    assert!(refused(with(Limits { verified_max: 2, ..usual }), "line:a"));
    assert!(!refused(with(Limits { verified_max: 3, ..usual }), "line:a"));
    // What the index alone decides reads no record, and all records need not be looked for.
    let none = Limits { verified_max: 0, read_bytes_max: 0, ..usual };
    assert!(!refused(with(none), "a"));
    assert!(!refused(with(Limits { located_max: 0, ..none }), ""));
}

/// A scan that meets its limit is a page with a place to go on from, however small the limit is.
#[test]
fn a_scan_goes_on_where_it_ended() {
    let text: Vec<u8> = (0..100).flat_map(|n| format!("{n}\n").into_bytes()).collect();
    let records = build(Schema::new(Format::Lines), &text, 1 << 20);
    let index = naive::Text::new(text);
    for read_bytes_max in [1, 10, 1000] {
        let limits = Limits { read_bytes_max, ..Limits::default() };
        let searcher = Searcher::new(&index, &records).unwrap().with_limits(limits);
        let (mut found, mut page, mut pages) = (Vec::new(), Page::default(), 0);
        loop {
            let answer = searcher.search(&query("NOT line:~[1-9]"), &page).unwrap();
            assert!(answer.read_bytes <= read_bytes_max.max(3));
            found.extend(answer.records);
            pages += 1;
            page.after = answer.next;
            if page.after.is_none() {
                break;
            }
        }
        assert_eq!((found, pages == 1), (vec![0], read_bytes_max == 1000));
    }
}

/// A record that is larger than a batch, behind others: a count was refused as too much work, and a page ended before it.
#[test]
fn a_record_larger_than_a_batch_is_read_wherever_it_stands() {
    let numbers: String = (0..BATCH_BYTES / 6).map(|n| format!("{n} ")).collect();
    assert!(numbers.len() > BATCH_BYTES);
    let text = format!("a 1\n{numbers}x\na 2\n").into_bytes();
    let records = build(Schema::new(Format::Lines), &text, 1 << 22);
    let index = naive::Text::new(text);
    let searcher = Searcher::new(&index, &records).unwrap();
    for (source, expected) in [("line:~a", vec![0, 2]), ("line:~x$", vec![1])] {
        assert_eq!(searcher.count(&query(source)).unwrap(), expected.len(), "{source}");
        for sorted in [true, false] {
            let page = Page { sorted, ..Page::default() };
            let answer = searcher.search(&query(source), &page).unwrap();
            assert_eq!((&answer.records, answer.has_more), (&expected, false), "{source}");
        }
    }
}

/// The first page of a common word reads the records that it shows and locates nothing, wherever it begins; the
/// same page by locating is its twin.
#[test]
fn pages_of_a_common_word_are_read_off() {
    let line = |n: usize| {
        format!("{} line {n}\n", if n.is_multiple_of(3) || n < 200 { "word" } else { "x" })
    };
    let text: Vec<u8> = (0..100_000).flat_map(|n| line(n).into_bytes()).collect();
    let records = build(Schema::new(Format::Lines), &text, 1 << 20);
    let index = naive::Text::new(text);
    let searcher = Searcher::new(&index, &records).unwrap();
    let twin: Vec<usize> = (0..100_000).filter(|n| n % 3 == 0 || *n < 200).collect();
    let mut page = Page { limit: 100, ..Page::default() };
    for from in (0..twin.len()).step_by(100).take(50) {
        let answer = searcher.search(&query("word"), &page).unwrap();
        assert_eq!(answer.records, twin[from..from + 100]);
        assert!(answer.located == 0 && answer.verified < 1000, "{answer:?}");
        page.after = answer.next;
    }
    // Where the word is missing it is located after all.
    let line = |n: usize| format!("{} line {n}\n", if n > 95_000 { "word" } else { "x" });
    let text: Vec<u8> = (0..100_000).flat_map(|n| line(n).into_bytes()).collect();
    let records = build(Schema::new(Format::Lines), &text, 1 << 20);
    let index = naive::Text::new(text);
    let searcher = Searcher::new(&index, &records).unwrap();
    let answer = searcher.search(&query("word"), &Page { limit: 2, ..Page::default() }).unwrap();
    assert_eq!((answer.records, answer.located), (vec![95_001, 95_002], 4_999));
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
