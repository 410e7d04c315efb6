//! Arbitrary queries: each is either rejected with an error, or survives formatting and parsing,
//! and the index finds the same records as a scan.

#![no_main]

mod datasets;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use shard::Shard;
use shard::query::{Page, Query};
use shard::record::Schema;

static SHARDS: LazyLock<Vec<Shard>> = LazyLock::new(|| {
    let shard = |text: &&[u8]| {
        Shard::open(datasets::build(text, Schema::detect(text))).expect("what was built")
    };
    datasets::TEXTS.iter().map(shard).collect()
});

// Input: `[dataset]`, then the query.
fuzz_target!(|data: &[u8]| {
    let [which, text @ ..] = data else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let Ok(query) = text.parse::<Query>() else { return };
    let shown = query.to_string();
    let again: Query = shown.parse().unwrap_or_else(|error| panic!("{shown}: {error}"));
    assert_eq!(again.to_string(), shown);

    let shard = &SHARDS[usize::from(*which) % SHARDS.len()];
    let searcher = shard.searcher().expect("what was built");
    let matches = |&record: &usize| {
        let bytes = searcher.get(record).expect("what was built");
        query.matches(shard.records().schema(), &bytes)
    };
    let expected: Vec<usize> = (0..shard.records().len()).filter(matches).collect();
    let page = Page { limit: usize::MAX, ..Page::default() };
    let Ok(answer) = searcher.search(&query, &page) else { return };
    assert_eq!(answer.records, expected, "{query}");
    if let Ok(count) = searcher.count(&query) {
        assert_eq!(count, expected.len(), "{query}");
    }
});
