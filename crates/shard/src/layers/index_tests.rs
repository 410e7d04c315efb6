//! Layers of a real index: whatever they are, however they were filled, its answers stay the same.

use proptest::prelude::*;

use super::*;
use crate::index::{self, Index, Options};
use crate::{Text, naive};

#[derive(Clone, Debug)]
pub(super) enum Change {
    /// Sweep for, or mark, the rates of these bits that are below the lowest, in steps of some
    /// segments.
    Sweep(u32, u32, usize),
    Mark(u32, u32),
    /// Make whole what is marked.
    Finish,
    /// Make whole in place what is marked, in steps of some segments.
    Complete(usize),
    Pack,
    Drop(Array),
    /// A text layer in blocks of 64 bytes, with so many bytes of hot ones.
    Text(usize),
    DropText,
}

pub(super) fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => (0u32..64, 0u32..64, 1usize..9).prop_map(|(sa, isa, step)| Change::Sweep(sa, isa, step)),
        3 => (0u32..64, 0u32..64).prop_map(|(sa, isa)| Change::Mark(sa, isa)),
        1 => Just(Change::Finish),
        1 => (1usize..9).prop_map(Change::Complete),
        1 => Just(Change::Pack),
        2 => Just(Change::Drop(Array::Sa)),
        2 => Just(Change::Drop(Array::Isa)),
        1 => prop::sample::select(vec![0, 2000]).prop_map(Change::Text),
        1 => Just(Change::DropText),
    ]
}

/// The rates of `bits` below those of `layers`, and below `end`.
fn below(bits: u32, layers: &[LayerFootprint], end: u32) -> Vec<u32> {
    let lowest = layers.last().map_or(end, |layer| layer.rate);
    (0..6).map(|log2| 1 << log2).filter(|rate| bits & rate != 0 && *rate < lowest).collect()
}

fn sweep(index: &Index, rates: &Rates, step: usize) -> Result<(), Error> {
    let mut sweep = index.layers().sweep(rates)?;
    while !sweep.step(index, step).is_finished() {}
    index.layers().publish(sweep)
}

pub(super) fn apply(index: &Index, change: &Change) -> Result<(), Error> {
    let layers = index.layers();
    let Footprint { sa, isa, .. } = layers.footprint();
    let isa_end = match index.isa_sampling() {
        rate if rate.is_power_of_two() => rate,
        _ => 64,
    };
    let rates = |a: u32, b: u32| Rates { sa: below(a, &sa, 64), isa: below(b, &isa, isa_end) };
    match change {
        &Change::Sweep(a, b, step) => sweep(index, &rates(a, b), step),
        &Change::Mark(a, b) => layers.mark(&rates(a, b)),
        Change::Finish => {
            // A sweep may ask for any rate whose layer is not whole.
            let partial = |layers: &[LayerFootprint]| {
                let partial = layers.iter().filter(|layer| layer.known < layer.values);
                partial.map(|layer| layer.rate).collect()
            };
            sweep(index, &Rates { sa: partial(&sa), isa: partial(&isa) }, 2)
        }
        Change::Complete(step) => {
            let mut completion = Completion::default();
            while !completion.step(layers, index, *step).is_finished() {}
            layers.pack().map(drop)
        }
        Change::Pack => layers.pack().map(drop),
        Change::Drop(array) => {
            drop(layers.drop_lowest(*array));
            Ok(())
        }
        &Change::Text(hot_bytes) => {
            let options = TextOptions { block_bytes: 64, ..TextOptions::default() };
            let mut build = TextBuild::new(index, options)?;
            while !build.step(index, 3)?.is_finished() {}
            layers.publish_text(build)?;
            drop(layers.set_hot(hot_bytes)?);
            Ok(())
        }
        Change::DropText => {
            drop(layers.drop_text());
            Ok(())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_index_answers_the_same_whatever_its_layers(
        bytes in prop::collection::vec(0u8..4, 0..400),
        sa_sampling in 1u32..70,
        isa_sampling in 1u32..70,
        changes in prop::collection::vec((change(), any::<prop::sample::Index>()), 1..12),
    ) {
        let mut file = Vec::new();
        index::build(&bytes, &Options { sa_sampling, isa_sampling }, &mut file).unwrap();
        let index = Index::open(file).unwrap();
        let twin = naive::Text::new(bytes.clone());
        let mut expected = Vec::new();
        twin.locate(0..bytes.len() + 1, &mut expected);
        for (change, at) in &changes {
            apply(&index, change).unwrap();
            let (row, mut offsets, mut read) = (at.index(bytes.len() + 1), Vec::new(), Vec::new());
            // One row and one byte first: all of them at once would tell marked layers all there
            // is.
            index.locate(row..row + 1, &mut offsets);
            prop_assert_eq!(&offsets, &expected[row..=row]);
            index.extract(row / 2, row - row / 2, &mut read).unwrap();
            prop_assert_eq!(&read, &bytes[row / 2..row]);
            if row.is_multiple_of(3) {
                offsets.clear();
                index.locate(0..bytes.len() + 1, &mut offsets);
                prop_assert_eq!(&offsets, &expected);
                read.clear();
                index.extract(0, bytes.len(), &mut read).unwrap();
                prop_assert_eq!(&read, &bytes);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn marked_layers_are_made_as_whole_as_swept_ones(
        bytes in prop::collection::vec(0u8..4, 0..400),
        sa_sampling in 1u32..70,
        sa in 0u32..64,
        isa in 0u32..64,
        step in 1usize..9,
        asked in 0usize..50,
    ) {
        let mut file = Vec::new();
        index::build(&bytes, &Options { sa_sampling, isa_sampling: 64 }, &mut file).unwrap();
        let (marked, swept) = (Index::open(file.clone()).unwrap(), Index::open(file).unwrap());
        apply(&swept, &Change::Sweep(sa, isa, 3)).unwrap();
        apply(&marked, &Change::Mark(sa, isa)).unwrap();
        // Queries know some of the values already.
        marked.locate(0..asked.min(bytes.len() + 1), &mut Vec::new());
        apply(&marked, &Change::Complete(step)).unwrap();
        prop_assert_eq!(marked.layers().footprint(), swept.layers().footprint());
        let (one, other) = (marked.layers().view(), swept.layers().view());
        for at in 0..=bytes.len() as u32 {
            prop_assert_eq!(one.offset(at), other.offset(at));
            prop_assert_eq!(one.row_before(at, 0), other.row_before(at, 0));
        }
        // Without marked layers there is nothing to do.
        prop_assert!(Completion::default().step(marked.layers(), &marked, 1).is_finished());
    }
}
