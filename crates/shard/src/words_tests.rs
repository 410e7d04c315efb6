//! Searches with the lists of frequent words find what searches without them find.

use proptest::prelude::*;

use super::*;
use crate::query::{Page, Query};

/// Lines of words, of which a few are in most lines, and others are rare.
fn text(seed: u64, format: Format) -> Vec<u8> {
    let mut state = seed;
    let mut random = move |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut text = if matches!(format, Format::Csv { .. }) {
        "name,words\n".to_owned()
    } else {
        String::new()
    };
    for record in 0..4000 {
        let mut words = String::new();
        for _ in 0..random(6) {
            let word = match random(10) {
                0..5 => "often",
                5..8 => "oftentimes",
                8 => "rare",
                _ if random(9) == 0 => "oft\u{e9}n often\u{2014}",
                _ => "other",
            };
            words.push_str(word);
            words.push(' ');
        }
        match format {
            Format::Csv { .. } => text.push_str(&format!("n{record},{words}\n")),
            Format::Stanzas => text.push_str(&format!("name: n{record}\nwords: {words}\n\n")),
            _ => text.push_str(&format!("{words}n{record}\n")),
        }
    }
    text.into_bytes()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn lists_change_no_answer(
        seed: u64,
        limit in prop_oneof![Just(1_usize), 2..50_usize, Just(usize::MAX)],
        after in proptest::option::of(0..4000_usize),
        format in proptest::sample::select(
            &[Format::Lines, Format::Stanzas, Format::Csv { delimiter: b',', header: true }][..]
        ),
    ) {
        let text = text(seed, format);
        let mut file = Vec::new();
        let schema = Schema::detect_as(format, &text);
        Shard::build(&text, schema, &[], &Options::default(), &mut file, &mut |_| ()).unwrap();
        let shard = Shard::open(file).unwrap();
        let with = shard.searcher().unwrap();
        prop_assert!(shard.index().reader().section(words::SECTION).is_some());
        let without = Searcher::new(shard.index(), shard.records()).unwrap();
        let attribute = if format == Format::Lines { "line" } else { "words" };
        for query in [
            "often".to_owned(),
            "rare often".to_owned(),
            "often oftentimes NOT rare".to_owned(),
            "often OR rare".to_owned(),
            format!("{attribute}:often"),
            format!("{attribute}:often rare n12"),
            format!("{attribute}:=often"),
            "NOT often".to_owned(),
            "w\"often\"".to_owned(),
            "w\"oft\"".to_owned(),
            "~\"(?-u:\\b)oft(?-u:\\b)\"".to_owned(),
            "w\"n\" OR w\"1\"".to_owned(),
            "w\"often\" rare".to_owned(),
        ] {
            let query: Query = query.parse().unwrap();
            prop_assert_eq!(with.count(&query).unwrap(), without.count(&query).unwrap(), "{}", query);
            let page = Page { limit, after, sorted: true };
            let (a, b) = (with.search(&query, &page).unwrap(), without.search(&query, &page).unwrap());
            // Whether there may be more may differ: a scan does not know what it has not read.
            prop_assert_eq!(&a.records, &b.records, "{}", query);
            // Unsorted pages may differ, but hold only what matches, once each.
            let page = Page { limit, after: None, sorted: false };
            let all = Page { limit: usize::MAX, after: None, sorted: true };
            let all = without.search(&query, &all).unwrap().records;
            let mut some = with.search(&query, &page).unwrap().records;
            prop_assert_eq!(some.len(), all.len().min(limit), "{}", query);
            some.sort_unstable();
            some.dedup();
            prop_assert_eq!(some.len(), all.len().min(limit), "{}", query);
            prop_assert!(some.iter().all(|record| all.binary_search(record).is_ok()), "{}", query);
        }
    }
}

/// A count of a frequent word reads and locates nothing.
#[test]
fn a_frequent_word_is_counted_by_its_list() {
    let text = text(7, Format::Lines);
    let mut file = Vec::new();
    let schema = Schema::detect_as(Format::Lines, &text);
    Shard::build(&text, schema, &[], &Options::default(), &mut file, &mut |_| ()).unwrap();
    let shard = Shard::open(file).unwrap();
    let searcher = shard.searcher().unwrap();
    let page = Page { limit: 10, ..Page::default() };
    let answer = searcher.search(&"often".parse().unwrap(), &page).unwrap();
    let occurrences = text.windows(5).filter(|window| window == b"often").count();
    assert!(
        answer.verified == 0 && answer.located * 20 < occurrences,
        "{answer:?} of {occurrences}"
    );
}

/// Neither is that of a whole word, which is in fewer records than the word.
#[test]
fn a_whole_word_is_counted_by_what_is_stored() {
    let text = String::from_utf8(text(7, Format::Lines)).unwrap();
    let mut file = Vec::new();
    let schema = Schema::detect_as(Format::Lines, text.as_bytes());
    let none = &mut |_| ();
    Shard::build(text.as_bytes(), schema, &[], &Options::default(), &mut file, none).unwrap();
    let shard = Shard::open(file).unwrap();
    let section = shard.index().reader().section(counts::WHOLE_SECTION).unwrap();
    let stored = Counts::read(section).unwrap();
    let of = |word: &str| {
        let is_in = |line: &&str| line.split([' ', '\u{2014}']).any(|part| part == word);
        text.lines().filter(is_in).count()
    };
    assert_eq!(stored.get(b"often"), Some(of("often")));
    assert_eq!(stored.get(b"oftentimes"), Some(of("oftentimes")));
    assert!(of("often") < text.lines().filter(|line| line.contains("often")).count());
    // One byte, which is a word nowhere.
    assert_eq!(stored.get(b"o"), Some(0));
}
