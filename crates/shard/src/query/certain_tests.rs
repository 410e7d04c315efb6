//! That the records that the index decides are not read, and are right.

use super::tests::{build_ordered, check, query};
use super::{Page, Searcher};
use crate::naive;
use crate::record::{Format, Schema};

/// What the index decides is not read; what only looks like it is.
#[test]
fn certain_records_are_not_read() {
    let good = "A: x\nB: y\n\nB: y\nA: x\n\nA:x\n\nA: x y\nN: 7\n\n";
    let folded = "B: z\nA: x\n more\n\n";
    let bad = "oops\nA: x\n\n";
    let rows = [
        // The first record has no line before it, so it is always read; of the last the value goes
        // on.
        (good.to_owned(), "A:=x", 3, 2),
        (good.to_owned(), "A:^x", 4, 1),
        (good.to_owned(), "A:^\"x \"", 1, 1),
        // Where a value occurs less often than its line is asked for, that is looked up, and is not
        // certain.
        (good.to_owned(), "A:=x OR A:=\"x y\"", 4, 2),
        (good.to_owned(), "x y", 3, 0),
        (good.to_owned(), "x B:=y", 2, 0),
        (good.to_owned(), "x NOT B:=y", 2, 4),
        (good.to_owned(), "A:\"x\"..\"y\"", 4, 4),
        (good.to_owned(), "A:x", 4, 0),
        (good.to_owned(), "N:7..8", 1, 0),
        // One occurrence of the line is folded, and those records are read.
        ([good, folded].concat(), "A:=x", 3, 3),
        // A bad record has no attributes, whatever its lines say.
        ([good, bad].concat(), "A:=x", 3, 5),
        ([good, bad].concat(), "x", 5, 0),
    ];
    for (text, source, matching, read) in rows {
        let schema = Schema::new(Format::Stanzas);
        let records = build_ordered(schema, text.as_bytes(), 1 << 20, &["N"]);
        let index = naive::Text::new(text.clone().into_bytes());
        let (found, verified) = check(&query(source), text.as_bytes(), &index, &records);
        assert_eq!((found.len(), verified), (matching, read), "{source} in {text:?}");
    }
}

#[test]
fn the_line_before_a_word_says_whose_value_it_is_in() {
    // So many that the word is rarer than the names.
    let others = "AA: x\nB: x\n\n".repeat(20);
    let far = format!("A: {}\n", "much, ".repeat(30));
    let good = format!(
        "A: cat\n\nB: cat\nA: dog\n\nB: dog\n and\n\ta cat\nA:\n cat\n\ncat: cat\nAA: cat:cat\n\n\
         {far} cat\n\n{far}B: cat\n\nA: x\nA: y cat\n\n{others}"
    );
    // A stanza that is none makes every line doubtful.
    let bad = format!("{good}A :cat\n\n");
    let rows = [
        // Of one cat the field begins too far before it: that record is read.
        (&good, "A:cat", 4, 1),
        (&good, "B:cat", 3, 1),
        (&good, "cat:cat", 1, 1),
        (&good, "AA:\"cat:cat\"", 1, 0),
        (&good, "A:\"y cat\"", 1, 0),
        (&good, "A:\"cat \"", 0, 0),
        (&good, "A:cat B:dog", 1, 1),
        (&good, "NOT A:cat", 23, 27),
        (&bad, "A:cat", 4, 7),
    ];
    for (text, source, matching, read) in rows {
        let schema = Schema::new(Format::Stanzas);
        let records = build_ordered(schema, text.as_bytes(), 1 << 20, &[]);
        let index = naive::Text::new(text.clone().into_bytes());
        let (found, verified) = check(&query(source), text.as_bytes(), &index, &records);
        assert_eq!((found.len(), verified), (matching, read), "{source} in {text:?}");
    }
}

/// A small page is read for where most of a word's records match, and else is as it would be
/// otherwise.
#[test]
fn a_small_page_of_a_frequent_word_reads_few_records() {
    let record = |number: usize| {
        let late = if number >= 290 { "C: cat\n" } else { "C: dog\n" };
        format!("A: cat\nB: {}\n dog\n{late}\n", "a line that goes on ".repeat(9))
    };
    let text: String = (0..300).map(record).collect();
    let records = build_ordered(Schema::new(Format::Stanzas), text.as_bytes(), 1 << 20, &[]);
    let index = naive::Text::new(text.clone().into_bytes());
    let searcher = Searcher::new(&index, &records).unwrap();
    let page = |after| Page { limit: 3, after, sorted: true };
    let found = |source: &str, after| searcher.search(&query(source), &page(after)).unwrap();
    for (source, matching) in [("A:cat", 300), ("B:cat", 0), ("C:cat", 10), ("B:dog", 300)] {
        let (all, _) = check(&query(source), text.as_bytes(), &index, &records);
        assert_eq!(all.len(), matching, "{source}");
        let first = found(source, None);
        assert_eq!(first.records, all[..matching.min(3)], "{source}");
        let next = found(source, first.next.or(Some(299)));
        assert_eq!(next.records, all[matching.min(3)..matching.min(6)], "{source}");
    }
    let (many, few) = (found("A:cat", Some(100)), found("C:cat", None));
    assert_eq!((many.records, many.verified), (vec![101, 102, 103], 4));
    assert_eq!((few.records, few.verified), (vec![290, 291, 292], 0));
}

#[test]
fn whole_words_are_decided_by_the_bytes_beside_them() {
    let text = "cat\nconcat\na cat, cats\ncat_\n(cat)\nécat\ncat é\ncaté\nÿcat\ncat cat\n";
    let rows = [
        // Beside three there is a byte of another character than ASCII.
        (r#"~"\bcat\b""#, 3),
        (r#"~"(?-u)\bcat\b""#, 0),
        (r#"~"\bcat\b" ~"\ba\b""#, 0),
        (r#"~"\bcat\b" OR ~"\bcats\b""#, 3),
        (r#"NOT ~"\bcat\b""#, 10),
    ];
    let records = build_ordered(Schema::new(Format::Lines), text.as_bytes(), 1 << 20, &[]);
    let index = naive::Text::new(text.as_bytes().to_vec());
    for (source, read) in rows {
        let (_, verified) = check(&query(source), text.as_bytes(), &index, &records);
        assert_eq!(verified, read, "{source}");
    }
    let (found, _) = check(&query(r#"~"\bcat\b""#), text.as_bytes(), &index, &records);
    assert_eq!(found, [0, 2, 4, 6, 9]);
}
