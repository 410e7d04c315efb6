//! Shards of a faulty or hostile writer: sections are changed, but their checksums are correct.
//!
//! Such a shard is either rejected, or gives answers (possibly wrong ones) in bounded time and
//! memory; nothing panics.

#![no_main]

mod datasets;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use shard::format::{Reader, Writer};
use shard::query::{Limits, Page, Query};
use shard::record::Schema;
use shard::{Shard, Text as _};

static SHARDS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    datasets::TEXTS.iter().map(|text| datasets::build(text, Schema::detect(text))).collect()
});
static QUERIES: LazyLock<Vec<Query>> = LazyLock::new(|| {
    ["a", "name:ed", "size:1..3000", "line^a", "line~a.*b", "NOT b", "Depends:libc6 OR Version=9"]
        .map(|query| query.parse().expect("a query"))
        .into()
});

// Input: `[dataset, section]`, then changes: position (two bytes), kind (0: set, 1: insert,
// 2: remove), and a byte.
fuzz_target!(|data: &[u8]| {
    let [which, section, changes @ ..] = data else { return };
    let reader = Reader::open(SHARDS[usize::from(*which) % SHARDS.len()].clone()).expect("a shard");
    let forged = usize::from(*section) % reader.sections().len();
    let mut writer = Writer::new(Vec::new()).expect("memory is written");
    for (number, section) in reader.sections().iter().enumerate() {
        let mut bytes = reader.section(&section.name).expect("it is there").to_vec();
        if number == forged {
            changes.chunks_exact(4).for_each(|change| apply(&mut bytes, change));
        }
        writer.section(&section.name, &bytes).expect("memory is written");
    }
    if let Ok(shard) = Shard::open(writer.finish().expect("memory is written")) {
        ask(&shard);
    }
});

fn apply(bytes: &mut Vec<u8>, change: &[u8]) {
    let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % (bytes.len() + 1);
    match (change[2] % 3, bytes.get_mut(at)) {
        (0, Some(byte)) => *byte = change[3],
        (2, Some(_)) => drop(bytes.drain(at..bytes.len().min(at + usize::from(change[3])))),
        _ => bytes.insert(at, change[3]),
    }
}

fn ask(shard: &Shard) {
    let index = shard.index();
    let mut bytes = Vec::new();
    let _ = index.extract(0, index.len().min(1000), &mut bytes);
    for pattern in [&b"a"[..], b"ed", b"libc6", b"\n"] {
        let _ = index.count(pattern);
    }
    let Ok(searcher) = shard.searcher() else { return };
    let searcher = searcher.with_limits(Limits { verified_max: 100, ..Limits::default() });
    for query in QUERIES.iter() {
        let _ = searcher.count(query);
        if let Ok(found) = searcher.search(query, &Page::default()) {
            let _ = searcher.get_all(&found.records);
        }
    }
    let _ = searcher.get_by_key(b"ed");
}
