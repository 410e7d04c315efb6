//! Arbitrary texts in all formats: the index and a text layer return their records byte for byte.

#![no_main]

mod datasets;

use libfuzzer_sys::fuzz_target;
use shard::layers::{TextBuild, TextOptions};
use shard::record::detect::Hints;
use shard::record::{Format, Schema};
use shard::{Shard, Text as _};

// Input: `[format, position]`, then the text.
fuzz_target!(|data: &[u8]| {
    let [format, at, text @ ..] = data else { return };
    let formats = [Format::JsonLines, Format::Stanzas, Format::Lines];
    let schema = match formats.get(usize::from(*format) % 4) {
        Some(format) => Schema::new(*format),
        None => Schema::detect(text),
    };
    // A format or a reason, of any bytes.
    let _ = Schema::detect_with(text, &Hints::default());
    let shard = Shard::open(datasets::build(text, schema)).expect("what was built");
    let searcher = shard.searcher().expect("what was built");
    let all: Vec<usize> = (0..shard.records().len()).collect();
    let header = shard.records().header();
    let whole = |shard: &Shard| {
        let mut bytes = Vec::new();
        shard.index().extract(header.start, header.len(), &mut bytes).expect("it is there");
        bytes.extend(searcher.get_all(&all).expect("they are there").concat());
        bytes
    };
    assert_eq!(whole(&shard), text);

    // A pattern from the text is counted as often as it occurs.
    let start = usize::from(*at) % (text.len() + 1);
    let pattern = &text[start..text.len().min(start + 5)];
    let count = text.windows(pattern.len().max(1)).filter(|window| window == &pattern).count();
    if !pattern.is_empty() {
        assert_eq!(shard.index().count(pattern), count);
    }

    // Rarely, because a layer takes milliseconds: choosing its tokens needs large tables.
    if text.len() % 64 != 7 {
        return;
    }
    // The whole text, or its beginning.
    let bytes_max = if at % 2 == 0 { usize::MAX } else { 1500 + 4 * usize::from(*at) };
    let options = TextOptions { block_bytes: 64, bytes_max, ..TextOptions::default() };
    let Ok(mut build) = TextBuild::new(shard.index(), options) else { return };
    while build.step(shard.index(), 8).is_ok_and(|progress| !progress.is_finished()) {}
    if shard.index().layers().publish_text(build).is_ok() {
        assert_eq!(whole(&shard), text);
    }
});
