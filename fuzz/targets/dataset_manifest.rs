//! Any text as the manifest of a dataset: what is accepted is written as it was read, and its records follow each other.

#![no_main]

mod edits;

use std::sync::LazyLock;

use dataset::manifest::{Manifest, ShardEntry, shard_file};
use libfuzzer_sys::fuzz_target;
use shard::record::{Format, Schema};

static SEED: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut manifest = Manifest::new(Schema::new(Format::JsonLines));
    manifest.id = "0123456789abcdef".to_owned();
    for (number, first_id) in [(1, 0), (2, 10)] {
        manifest.shards.push(ShardEntry {
            file: shard_file(number),
            first_id,
            records: 10,
            input_bytes: 100,
            file_bytes: 60,
            gone: u64::from(number == 2),
            gaps: (number == 2).then_some(20..21).into_iter().collect(),
        });
    }
    manifest.deleted = vec![3, 20];
    manifest.encode().expect("a manifest")
});

/// The text with the checksum that it should have, if it is a manifest.
fn mended(text: &[u8]) -> Option<Vec<u8>> {
    let why = format!("{:#}", Manifest::parse(text).err()?);
    let (_, rest) = why.split_once("checksum mismatch: ")?;
    let (right, stored) = rest.split_once(" computed, ")?;
    let stored = stored.strip_suffix(" stored")?;
    let text = std::str::from_utf8(text).ok()?;
    let (before, after) = text.rsplit_once(stored).filter(|_| !stored.is_empty())?;
    Some(format!("{before}{right}{after}").into_bytes())
}

fuzz_target!(|data: &[u8]| {
    let text = edits::edited(&[&SEED], data);
    let mended = mended(&text);
    for text in [Some(text), mended].into_iter().flatten() {
        let Ok(manifest) = Manifest::parse(&text) else { continue };
        let again = Manifest::parse(&manifest.encode().expect("what was accepted is written"));
        assert_eq!(again.expect("what was written"), manifest);
        let all: u64 = manifest.shards.iter().map(|shard| shard.records + shard.gone).sum();
        assert_eq!(manifest.end_id(), all);
        assert!(manifest.deleted.iter().all(|id| *id < all));
        assert!(manifest.shards.iter().all(|shard| !shard.file.contains('/')));
    }
});
