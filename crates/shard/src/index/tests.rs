//! The index against its naive twin, over texts that are hard on it, damaged bytes, and a golden
//! file.

use proptest::prelude::*;

use super::shape::SAMPLING_MAX;
use super::*;
use crate::layers::{Array, LayerFootprint, Rates, TextBuild, TextOptions, Walk};
use crate::naive;

const RATES: [u32; 8] = [1, 2, 3, 4, 7, 8, 32, 200];

fn built(text: &[u8], sa_sampling: u32, isa_sampling: u32) -> Vec<u8> {
    let mut file = Vec::new();
    build(text, &Options { sa_sampling, isa_sampling }, &mut file).unwrap();
    file
}

fn fibonacci(len: usize) -> Vec<u8> {
    let (mut a, mut b) = (b"a".to_vec(), b"ab".to_vec());
    while b.len() < len {
        let next = [&b[..], &a].concat();
        (a, b) = (b, next);
    }
    b.truncate(len);
    b
}

/// Numbers that look random, the same ones each time.
fn noise(len: usize, symbols: u64) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % symbols) as u8
    };
    (0..len).map(next).collect()
}

fn stanzas(count: usize) -> Vec<u8> {
    let one = |n: usize| {
        let (version, size) = (n % 7, n * 37 % 1000);
        format!("Package: lib{n}\nVersion: 1.{version}\nSection: libs\nSize: {size}\n\n")
    };
    (0..count).map(one).collect::<String>().into_bytes()
}

fn texts() -> Vec<Vec<u8>> {
    let all: Vec<u8> = (0..=255).collect();
    let runs = |n: usize| -> Vec<u8> {
        (0..n).flat_map(|run| vec![b'a' + (run % 3) as u8; run % 17 + 1]).collect()
    };
    vec![
        Vec::new(),
        b"a".to_vec(),
        vec![0],
        vec![255; 127],
        vec![7; 700],
        all.clone(),
        all.iter().rev().copied().chain(all.clone()).chain(vec![0; 5]).collect(),
        all.repeat(4),
        runs(90),
        fibonacci(1000),
        noise(1500, 2),
        noise(1100, 4),
        noise(1000, 256),
        [noise(300, 2), vec![255; 200], vec![0; 200]].concat(),
        stanzas(40),
    ]
}

/// Parts of the text, some with one byte changed, and patterns that may be nowhere.
fn patterns(text: &[u8]) -> Vec<Vec<u8>> {
    let mut patterns: Vec<Vec<u8>> =
        [&b""[..], b"zz\xfe", b"\0", b"\xff", b"\0\0"].map(<[u8]>::to_vec).to_vec();
    for len in [1, 2, 3, 4, 5, 9, 40] {
        let windows =
            text.windows(len).step_by(text.len() / 12 + 1).chain(text.windows(len).last());
        for window in windows {
            patterns.push(window.to_vec());
            let mut changed = window.to_vec();
            changed[len / 2] ^= 1;
            patterns.push(changed);
        }
    }
    patterns
}

fn check_rows(index: &Index, twin: &naive::Text, text: &[u8]) {
    let patterns = patterns(text);
    let borrowed: Vec<&[u8]> = patterns.iter().map(Vec::as_slice).collect();
    let together = index.rows_of_all(&borrowed);
    for (pattern, rows) in borrowed.iter().zip(together) {
        let expected = twin.rows(pattern);
        assert_eq!(index.rows(pattern), rows, "{pattern:?}");
        assert_eq!(rows.len(), expected.len(), "{pattern:?}");
        if !rows.is_empty() {
            assert_eq!(rows, expected, "{pattern:?}");
        }
    }
}

fn check_offsets(index: &Index, twin: &naive::Text) {
    let rows = index.len() + 1;
    let (mut all, mut expected) = (vec![9], vec![9]);
    index.locate(0..rows, &mut all);
    twin.locate(0..rows, &mut expected);
    assert_eq!(all, expected);
    let ranges = [rows / 3..rows / 2, 0..1, rows..rows, rows - 1..rows, rows / 4..rows / 4 + 1];
    let (mut some, mut expected) = (Vec::new(), Vec::new());
    index.locate_all(&ranges, &mut some);
    for range in ranges {
        twin.locate(range, &mut expected);
    }
    assert_eq!(some, expected);
}

fn check_bytes(index: &Index, text: &[u8]) {
    let (n, mut bytes) = (text.len(), b"-".to_vec());
    index.extract(0, n, &mut bytes).unwrap();
    assert_eq!(&bytes[1..], text);
    let ranges = [n / 2..n, 0..n / 3, n..n, n / 5..(n / 5 + 1).min(n), n / 7..n / 6, 0..0];
    let expected: Vec<u8> = ranges.iter().flat_map(|range| text[range.clone()].to_vec()).collect();
    bytes.clear();
    index.extract_all(&ranges, &mut bytes).unwrap();
    assert_eq!(bytes, expected);
    for (offset, len) in [(n, 1), (n + 1, 0), (0, n + 1), (usize::MAX, 2)] {
        let error = index.extract(offset, len, &mut bytes).unwrap_err();
        assert!(matches!(error, Error::OutOfRange { .. }), "{error}");
    }
    assert_eq!(bytes, expected, "an error appends nothing");
}

fn check_walk(index: &Index, twin: &naive::Text) {
    let mut offsets = Vec::new();
    twin.locate(0..index.len() + 1, &mut offsets);
    let mut visited: Vec<(u32, u32)> = Vec::new();
    let segments = Walk::segments(index);
    Walk::walk(index, 0..segments / 2, &mut |position, row| visited.push((row, position)));
    Walk::walk(index, segments / 2..segments, &mut |position, row| visited.push((row, position)));
    visited.sort_unstable();
    let expected: Vec<(u32, u32)> =
        offsets.iter().enumerate().skip(1).map(|(row, &at)| (row as u32, at as u32)).collect();
    assert_eq!(visited, expected);
}

#[test]
fn long_ranges_are_read_as_whole_segments_and_their_ends() {
    let text: Vec<u8> = (0..9_000u32).map(|at| (at * at / 7 % 61) as u8 + b' ').collect();
    for rate in [1, 5, 32] {
        let file = built(&text, 32, rate);
        for index in [Index::open(file.clone()).unwrap(), Index::open(file).unwrap().portable()] {
            let ranges = [0..9_000, 1..8_999, 3..4, 31..4_997, 32..8_992, 8_000..9_000, 40..4_136];
            let expected: Vec<u8> =
                ranges.iter().flat_map(|range| text[range.clone()].to_vec()).collect();
            let mut bytes = Vec::new();
            index.extract_all(&ranges, &mut bytes).unwrap();
            assert!(bytes == expected, "rate {rate}");
        }
    }
}

fn check(text: &[u8], sa_sampling: u32, isa_sampling: u32) {
    let twin = naive::Text::new(text.to_vec());
    let file = built(text, sa_sampling, isa_sampling);
    for index in [Index::open(file.clone()).unwrap(), Index::open(file).unwrap().portable()] {
        assert_eq!(index.len(), text.len());
        check_rows(&index, &twin, text);
        check_offsets(&index, &twin);
        check_bytes(&index, text);
        check_walk(&index, &twin);
    }
}

#[test]
fn every_text_is_answered_as_by_the_twin() {
    for (number, text) in texts().iter().enumerate() {
        check(text, RATES[number % 8], RATES[(number / 2 + 3) % 8]);
    }
}

#[test]
fn every_rate_is_answered_as_by_the_twin() {
    for rate in RATES {
        check(&stanzas(12), rate, 300 / rate);
    }
}

#[test]
fn tables_spare_steps_without_changing_answers() {
    // Large enough for pairs and triples; for pairs alone.
    for (text, tables) in [(noise(7000, 3), true), (noise(12_000, 13), false)] {
        let index = Index::open(built(&text, 64, 64)).unwrap();
        let listed = index.reader().section("triples.symbols").unwrap();
        assert_eq!(listed.is_empty(), !tables, "{} bytes", text.len());
        assert!(!index.reader().section("pairs.rows").unwrap().is_empty());
        for pattern in patterns(&text) {
            let found = text.windows(pattern.len().max(1)).filter(|window| *window == pattern);
            let expected = if pattern.is_empty() { text.len() + 1 } else { found.count() };
            assert_eq!(index.count(&pattern), expected, "{pattern:?}");
        }
    }
}

/// Asks for every offset and every byte after each change of the layers.
fn check_layers(text: &[u8]) {
    let twin = naive::Text::new(text.to_vec());
    let index = Index::open(built(text, 64, 64)).unwrap();
    let layers = index.layers();
    let all = || {
        check_offsets(&index, &twin);
        check_bytes(&index, text);
    };
    layers.mark(&Rates { sa: vec![8], isa: vec![16] }).unwrap();
    all();
    let footprint = index.footprint();
    // A short text's rows are few, and those that its samples know are not learnt.
    let known = |layer: &LayerFootprint| layer.known > 0 || text.len() < 300;
    assert!(known(&footprint.layers.sa[0]) && known(&footprint.layers.isa[0]));
    all();
    let rates = Rates { sa: vec![4, 1], isa: vec![4] };
    let mut sweep = layers.sweep(&rates).unwrap();
    while !sweep.step(&index, 3).is_finished() {}
    layers.publish(sweep).unwrap();
    all();
    assert!(index.footprint().total_bytes() > footprint.total_bytes());
    // The whole text, and where it is long enough the beginning of it.
    for bytes_max in [usize::MAX, 2048 + text.len() / 2] {
        let options = TextOptions { block_bytes: 64, bytes_max, ..TextOptions::default() };
        let mut build = TextBuild::new(&index, options).unwrap();
        while !build.step(&index, 5).unwrap().is_finished() {}
        if layers.publish_text(build).is_ok() {
            drop(layers.set_hot(1000).unwrap());
            all();
            all();
        }
    }
    drop(layers.drop_text().unwrap());
    for array in [Array::Sa, Array::Isa, Array::Sa, Array::Isa, Array::Sa] {
        drop(layers.drop_lowest(array).unwrap());
        all();
    }
}

#[test]
fn a_text_layer_of_the_beginning_is_read_where_it_has_all() {
    let text = stanzas(600);
    let index = Index::open(built(&text, 64, 64)).unwrap();
    let bytes_max = text.len() / 5;
    let options = TextOptions { block_bytes: 64, bytes_max, ..TextOptions::default() };
    let mut build = TextBuild::new(&index, options).unwrap();
    while !build.step(&index, 1).unwrap().is_finished() {}
    index.layers().publish_text(build).unwrap();
    let held = index.layers().view().text_len();
    assert!((1000..text.len() - 1000).contains(&held), "{held} bytes of {}", text.len());
    assert!(index.layers().footprint().text_bytes <= bytes_max);
    check_bytes(&index, &text);
    // Before it, behind it, up to its end, one byte past that, in any order.
    let around = [held - 9..held, held - 9..held + 1, held..held + 9, 0..9, 0..text.len(), 3..3];
    for turn in 0..around.len() {
        let ranges = [&around[turn..], &around[..turn]].concat();
        let mut bytes = b"-".to_vec();
        index.extract_all(&ranges, &mut bytes).unwrap();
        let expected: Vec<&[u8]> = ranges.iter().map(|range| &text[range.clone()]).collect();
        assert_eq!(bytes[1..], expected.concat());
    }
}

#[test]
fn a_walk_teaches_a_marked_layer_where_it_may_end() {
    let text = noise(1500, 4);
    let twin = naive::Text::new(text.clone());
    let index = Index::open(built(&text, 64, 64)).unwrap();
    index.layers().mark(&Rates { sa: vec![8], isa: vec![] }).unwrap();
    // Rows that the layer does not hold: what it learns is on their way.
    let rows: Vec<Range<usize>> = (1..1500).step_by(8).map(|row| row..row + 1).collect();
    let (mut found, mut expected) = (Vec::new(), Vec::new());
    index.locate_all(&rows, &mut found);
    rows.iter().for_each(|rows| twin.locate(rows.clone(), &mut expected));
    assert_eq!(found, expected);
    let known = || index.layers().footprint().sa[0].known;
    let learnt = known();
    assert!(learnt > rows.len() / 4, "{learnt}");
    index.locate_all(&rows, &mut Vec::new());
    assert_eq!(known(), learnt, "the same walks end at what they taught");
    check_offsets(&index, &twin);
}

#[test]
fn layers_change_no_answer_of_any_text() {
    texts().iter().for_each(|text| check_layers(text));
}

#[test]
fn the_footprint_is_that_of_the_file() {
    let file = built(&stanzas(50), 16, 16);
    let len = file.len();
    let index = Index::open(file).unwrap();
    let footprint = index.footprint();
    let stored = footprint.index_bytes() + footprint.other_bytes() + footprint.container_bytes;
    assert_eq!(stored, len);
    assert_eq!(footprint.other_bytes(), 0);
    assert!(footprint.total_bytes() > len);
}

#[test]
fn options_that_cannot_be_are_refused() {
    for (sa_sampling, isa_sampling) in [(0, 1), (1, 0), (SAMPLING_MAX + 1, 1), (1, u32::MAX)] {
        let options = Options { sa_sampling, isa_sampling };
        let error = build(b"text", &options, &mut Vec::new()).unwrap_err();
        assert!(matches!(error, Error::Options { .. }), "{error}");
    }
}

#[test]
fn other_sections_are_kept_and_progress_is_told() {
    let mut writer = crate::format::Writer::new(Vec::new()).unwrap();
    writer.section("other", b"bytes").unwrap();
    let mut told = Vec::new();
    let text = stanzas(3);
    let report =
        write_sections(&text, &Options::default(), &mut writer, &mut |part| told.push(part))
            .unwrap();
    let index = Index::open(writer.finish().unwrap()).unwrap();
    assert_eq!(index.reader().section("other"), Some(&b"bytes"[..]));
    assert_eq!(index.footprint().other_bytes(), 64);
    assert_eq!(report.text_bytes, text.len());
    let all = text.len() + 1;
    assert_eq!(
        told,
        [
            Progress::Sorting,
            Progress::Encoding { done: 0, all },
            Progress::Encoding { done: all, all },
            Progress::Writing
        ]
    );
}

/// Asks everything of an index whose bytes may be damaged; only that it ends and does not panic
/// counts.
fn ask(index: &Index) {
    let rows = index.rows_of_all(&[b"Section: libs", b"lib1", b"e", b"", b"\n\n"]);
    let mut offsets = Vec::new();
    index.locate_all(&rows, &mut offsets);
    let _ = index.extract(0, index.len(), &mut Vec::new());
    Walk::walk(index, 0..2, &mut |_, _| ());
}

#[test]
fn every_changed_byte_is_an_error_and_never_a_panic() {
    let file = built(&stanzas(9), 8, 16);
    for at in 0..file.len() {
        for change in [1, 0x80, 0xff] {
            let mut changed = file.clone();
            changed[at] ^= change;
            assert!(Index::open(changed.clone()).is_err(), "byte {at}");
            if let Ok(index) = Index::open_unchecked(changed) {
                ask(&index);
                assert!(index.reader().verify().is_err(), "byte {at}");
            }
        }
    }
    for len in 0..file.len() {
        assert!(Index::open(file[..len].to_vec()).is_err(), "{len} bytes");
    }
}

#[test]
fn forged_sections_are_refused_or_answered_without_panic() {
    let file = built(&stanzas(9), 8, 16);
    let reader = Reader::open(file).unwrap();
    // Sections of zeros, of ones, cut and missing, with checksums that match.
    for forged in shape::names::ALL {
        for fill in [Some(0), Some(0xff), Some(0x55), None] {
            for less in [0, 1, 4] {
                let mut writer = crate::format::Writer::new(Vec::new()).unwrap();
                for section in reader.sections() {
                    let mut bytes = reader.section(&section.name).unwrap().to_vec();
                    if section.name == forged {
                        bytes.truncate(bytes.len().saturating_sub(less));
                        match fill {
                            Some(fill) => bytes.fill(fill),
                            None => continue,
                        }
                    }
                    writer.section(&section.name, &bytes).unwrap();
                }
                if let Ok(index) = Index::open(writer.finish().unwrap()) {
                    ask(&index);
                    ask(&index.portable());
                }
            }
        }
    }
}

/// Tables of pairs and triples are there for texts of some length only.
#[test]
fn forged_tables_of_pairs_and_triples_are_answered_without_panic() {
    let text = noise(7000, 3);
    let reader = Reader::open(built(&text, 8, 16)).unwrap();
    for forged in ["pairs.rows", "triples.rows", "triples.places"] {
        assert!(!reader.section(forged).unwrap().is_empty(), "no {forged}");
        for (first, step) in [(0xFFFF_FC00, 0x1FF), (0, 0x1000_0000), (u32::MAX, 0), (6000, 500)] {
            let mut writer = crate::format::Writer::new(Vec::new()).unwrap();
            for section in reader.sections() {
                let mut bytes = reader.section(&section.name).unwrap().to_vec();
                if section.name == forged {
                    for (place, number) in bytes.chunks_exact_mut(4).zip(0u32..) {
                        let value = number.saturating_mul(step).saturating_add(first);
                        place.copy_from_slice(&value.to_le_bytes());
                    }
                }
                writer.section(&section.name, &bytes).unwrap();
            }
            let Ok(index) = Index::open(writer.finish().unwrap()) else { continue };
            for len in 1..12 {
                let patterns: Vec<&[u8]> = text.windows(len).step_by(97).collect();
                let rows = index.rows_of_all(&patterns);
                assert!(rows.iter().all(|rows| rows.end <= text.len() + 1), "of {forged}");
            }
        }
    }
}

/// The format is fixed: a change of it needs another version, and these files stay as fixtures.
/// They were written by another program, from `docs/shard-format.md` alone.
#[test]
fn golden_files_are_reproduced_and_answered() {
    let stanzas = [stanzas(30), (0..=255).collect(), vec![b'x'; 300]].concat();
    let fibonacci = fibonacci(3000);
    for (text, sa_sampling, isa_sampling, golden) in [
        (stanzas, 8, 16, &include_bytes!("../../tests/golden/stanzas-v1.shard")[..]),
        (fibonacci, 4, 300, &include_bytes!("../../tests/golden/fibonacci-v1.shard")[..]),
    ] {
        let file = built(&text, sa_sampling, isa_sampling);
        let differing = file.iter().zip(golden).position(|(found, expected)| found != expected);
        assert_eq!((differing, file.len()), (None, golden.len()), "the first byte that differs");
        let index = Index::open(golden.to_vec()).unwrap();
        let twin = naive::Text::new(text.clone());
        check_rows(&index, &twin, &text);
        check_offsets(&index, &twin);
        check_bytes(&index, &text);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_texts_are_answered_as_by_the_twin(
        symbols in prop::sample::select(vec![1u8, 2, 3, 4, 26, 255]),
        pieces in prop::collection::vec((any::<u8>(), 1..40usize), 0..60),
        runs: bool,
        sa in prop::sample::select(RATES.to_vec()),
        isa in prop::sample::select(RATES.to_vec()),
    ) {
        let text: Vec<u8> = pieces
            .iter()
            .flat_map(|&(byte, len)| (0..len).map(move |at| {
                let drift = if runs { 0 } else { (at * at % 5) as u8 };
                byte.wrapping_add(drift) % symbols
            }))
            .collect();
        check(&text, sa, isa);
    }
}
