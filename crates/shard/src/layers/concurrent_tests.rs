//! Layers that several threads change at random while others query: every answer is the naive
//! twin's.
//!
//! Threads run as the system has them; what is random is what each does, so a failure need not come
//! again. What runs without the C libraries (`memory`, `values`, `hot` and the readers of `tests`)
//! is written so that Miri can run it; whether it passes there has not been seen yet.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use proptest::prelude::*;

use super::index_tests::{Change, apply, change};
use super::*;
use crate::index::{self, Index, Options};
use crate::{Text, naive};

/// Numbers that look random, the same ones for the same seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end.max(1)
    }

    fn range(&mut self, end: usize, len_max: usize) -> Range<usize> {
        let start = self.below(end + 1);
        start..end.min(start + self.below(len_max))
    }
}

/// Asks one query of each kind and compares the answers with the twin's.
fn ask(index: &Index, twin: &naive::Text, bytes: &[u8], draw: &mut Draw) {
    let pattern = &bytes[draw.range(bytes.len(), 6)];
    let rows = index.rows(pattern);
    assert_eq!(rows, twin.rows(pattern), "{pattern:?}");
    let rows = [rows.start..rows.end.min(rows.start + 50), draw.range(bytes.len() + 1, 40)];
    let (mut found, mut expected) = (Vec::new(), Vec::new());
    index.locate_all(&rows, &mut found);
    rows.iter().for_each(|rows| twin.locate(rows.clone(), &mut expected));
    assert_eq!(found, expected, "rows {rows:?}");
    let ranges = [draw.range(bytes.len(), 300), draw.range(bytes.len(), 9)];
    let mut read = Vec::new();
    index.extract_all(&ranges, &mut read).unwrap();
    let expected = ranges.each_ref().map(|range| &bytes[range.clone()]).concat();
    assert_eq!(read, expected, "{ranges:?}");
}

/// Changes the layers, one change after the other, in one thread for each list, and queries in two
/// others meanwhile.
fn check(bytes: &[u8], options: &Options, lists: &[Vec<Change>], seed: u64) {
    let mut file = Vec::new();
    index::build(bytes, options, &mut file).unwrap();
    let index = Index::open(file).unwrap();
    let twin = naive::Text::new(bytes.to_vec());
    let changing = AtomicUsize::new(lists.len());
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (index, twin, changing) = (&index, &twin, &changing);
            scope.spawn(move || {
                let mut draw = Draw(seed.wrapping_add(reader));
                // The last round is asked of what the changes left.
                let mut last = false;
                while !last {
                    last = changing.load(Relaxed) == 0;
                    (0..4).for_each(|_| ask(index, twin, bytes, &mut draw));
                }
            });
        }
        for changes in lists {
            let (index, changing) = (&index, &changing);
            scope.spawn(move || {
                for change in changes {
                    match apply(index, change) {
                        // A thread that is alone is never refused; another one's change may come
                        // between.
                        Err(Error::Layers(_)) if lists.len() > 1 => {}
                        result => result.unwrap(),
                    }
                }
                changing.fetch_sub(1, Relaxed);
            });
        }
    });
    let layers = index.layers();
    drop(layers.drop_text());
    while layers.drop_lowest(Array::Sa).is_some() || layers.drop_lowest(Array::Isa).is_some() {}
    assert_eq!(layers.footprint(), Footprint::default(), "nothing is held any more");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn queries_are_right_while_layers_change(
        bytes in prop::collection::vec(0u8..4, 1..1200),
        sa_sampling in prop::sample::select(vec![1u32, 16, 64, 100]),
        isa_sampling in prop::sample::select(vec![1u32, 16, 64, 100]),
        lists in prop::collection::vec(prop::collection::vec(change(), 10..40), 1..=2),
        seed: u64,
    ) {
        check(&bytes, &Options { sa_sampling, isa_sampling }, &lists, seed);
    }
}
