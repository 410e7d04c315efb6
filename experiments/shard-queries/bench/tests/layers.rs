//! Layers of a small index are measured: every answer is right, whatever they are.

use std::path::Path;

use shard_queries_bench::engine::Query;
use shard_queries_bench::layers::{Config, IndexUnderTest};

/// Records with fields, of which some values are frequent and some are not.
fn text() -> Vec<u8> {
    let record =
        |i: usize| format!("id={i} town={} week={}\n", ["Łódź", "Kyiv"][i % 2], i * i % 53);
    (0..400).map(record).collect::<String>().into_bytes()
}

fn config() -> Config {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shard-layers");
    let mut config = Config::read(&folder.join("config.toml")).unwrap();
    (config.extracts, config.patterns, config.block) = (100, 64, 16);
    (config.hits_max, config.hits_mean) = (200, 20);
    (config.alone_s, config.window_s) = (0.01, 0.01);
    (config.windows_before, config.windows_after) = (2, 3);
    config
}

#[test]
fn the_experiments_own_configuration_is_read() {
    let config = config().shortened().unwrap();
    assert_eq!(config.dataset.len(), 1);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    std::fs::write(&path, "rounds = 1\n").unwrap();
    assert!(Config::read(&path).is_err());
}

#[test]
fn a_pair_is_added_and_dropped_while_queries_are_right() {
    let (config, text) = (config(), text());
    let measured = IndexUnderTest::new(&config, &text).unwrap();
    let alone = measured.change(1.0, 100, true).unwrap();
    let (meanwhile, times) = measured.disturbed(1).unwrap();
    for changed in [alone, meanwhile] {
        // A sixteenth of the rows and of the positions less a fourth that the shard has, 14 bits each.
        let values = text.len() / 16 + text.len() / 16 * 3 / 4;
        assert!(changed.bytes.abs_diff((values * 14 / 8) as u64) < 64, "{changed:?}");
        // So little work may be less than a tick of a clock.
        assert!(changed.cpu_s >= 0.0 && changed.unpublish_us >= 0.0);
    }
    assert_eq!(times.len(), 3);
    assert!(times.iter().all(|times| times.count > 0 && times.us_p50 <= times.us_p99));
}

#[test]
fn queries_fill_a_marked_pair() {
    let (config, text) = (config(), text());
    let measured = IndexUnderTest::new(&config, &text).unwrap();
    for query in [Query::Search, Query::Extract64] {
        let curve = measured.curve(query).unwrap();
        assert_eq!((curve.before_per_s.len(), curve.whole_per_s.len()), (2, 2));
        let known: Vec<f64> = curve.after.iter().map(|window| window.known_sa).collect();
        assert!(known.is_sorted() && known[2] > 0.0 && known[2] <= 1.0, "{known:?}");
        assert!(curve.after.iter().any(|window| window.per_s > 0.0));
    }
}
