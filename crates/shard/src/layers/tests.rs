//! Layers against their naive twin: plain maps of what each layer knows, searched one after the
//! other.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use proptest::prelude::*;

use super::*;
use crate::{Text, naive};

/// What each rate's layer knows, and whether it is marked to learn more.
#[derive(Clone, Debug, Default)]
struct Twin {
    layers: BTreeMap<u32, (HashMap<u32, u32>, bool)>,
    /// A rate whose multiples are held by the shard itself, or 0.
    fixed: u32,
}

impl Twin {
    /// The largest rate that divides the index, if a layer has it.
    fn rate_of(&self, index: u32) -> Option<u32> {
        if self.fixed.is_power_of_two() && index.is_multiple_of(self.fixed) {
            return None;
        }
        self.layers.keys().rev().copied().find(|rate| index.is_multiple_of(*rate))
    }

    fn get(&self, index: u32) -> Option<u32> {
        self.layers[&self.rate_of(index)?].0.get(&index).copied()
    }

    fn learn(&mut self, index: u32, value: u32) {
        let layer = self.rate_of(index).and_then(|rate| self.layers.get_mut(&rate));
        if let Some((known, true)) = layer {
            known.insert(index, value);
        }
    }

    /// Adds layers below the others; with `values` whole ones.
    fn add(&mut self, rates: &[u32], values: Option<&[u32]>) {
        for &rate in rates {
            self.layers.insert(rate, (HashMap::new(), values.is_none()));
        }
        for (index, &value) in (0..).zip(values.unwrap_or_default()) {
            let rate = self.rate_of(index);
            if let Some(rate) = rate.filter(|rate| rates.contains(rate)) {
                self.layers.get_mut(&rate).unwrap().0.insert(index, value);
            }
        }
    }

    /// The lowest rate below which a layer may be added.
    fn lowest(&self) -> u32 {
        let fixed = if self.fixed.is_power_of_two() { self.fixed } else { 1 << 7 };
        self.layers.keys().next().copied().unwrap_or(fixed)
    }
}

/// A text, its suffix array and the inverse of that.
struct Arrays {
    text: naive::Text,
    sa: Vec<u32>,
    isa: Vec<u32>,
}

impl Arrays {
    fn new(bytes: Vec<u8>) -> Self {
        let text = naive::Text::new(bytes);
        let mut offsets = Vec::new();
        text.locate(0..text.len() + 1, &mut offsets);
        let mut isa = vec![0; offsets.len()];
        for (row, &offset) in offsets.iter().enumerate() {
            isa[offset] = row as u32;
        }
        Self { text, sa: offsets.into_iter().map(|offset| offset as u32).collect(), isa }
    }

    fn sweep(&self, layers: &Layers, rates: &Rates, step: usize) {
        let mut sweep = layers.sweep(rates).unwrap();
        let before = layers.footprint().total_bytes();
        while !sweep.step(&self.text, step).is_finished() {
            assert_eq!(layers.footprint().total_bytes(), before, "published before it is whole");
        }
        layers.publish(sweep).unwrap();
    }
}

#[derive(Clone, Debug)]
enum Change {
    /// A sweep of some of the rates below the lowest (a bit for each), in steps of some segments.
    Sweep(u32, u32, usize),
    Mark(u32, u32),
    /// Learn some positions.
    Learn(Vec<prop::sample::Index>),
    LearnAll,
    /// Complete what is marked.
    Finish,
    Pack,
    Drop(Array),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (0u32..128, 0u32..128, 1usize..9).prop_map(|(sa, isa, step)| Change::Sweep(sa, isa, step)),
        (0u32..128, 0u32..128).prop_map(|(sa, isa)| Change::Mark(sa, isa)),
        prop::collection::vec(any::<prop::sample::Index>(), 1..40).prop_map(Change::Learn),
        Just(Change::LearnAll),
        Just(Change::Finish),
        Just(Change::Pack),
        Just(Change::Drop(Array::Sa)),
        Just(Change::Drop(Array::Isa)),
    ]
}

/// The rates of `bits` that are below `lowest`.
fn below(bits: u32, lowest: u32) -> Vec<u32> {
    (0..7).map(|log2| 1 << log2).filter(|rate| bits & rate != 0 && *rate < lowest).collect()
}

fn apply(change: &Change, arrays: &Arrays, layers: &Layers, sa: &mut Twin, isa: &mut Twin) {
    match change {
        &Change::Sweep(sa_bits, isa_bits, step) => {
            let rates =
                Rates { sa: below(sa_bits, sa.lowest()), isa: below(isa_bits, isa.lowest()) };
            arrays.sweep(layers, &rates, step);
            sa.add(&rates.sa, Some(&arrays.sa));
            isa.add(&rates.isa, Some(&arrays.isa));
        }
        &Change::Mark(sa_bits, isa_bits) => {
            let rates =
                Rates { sa: below(sa_bits, sa.lowest()), isa: below(isa_bits, isa.lowest()) };
            layers.mark(&rates).unwrap();
            sa.add(&rates.sa, None);
            isa.add(&rates.isa, None);
        }
        Change::Learn(positions) => {
            let view = layers.view();
            for position in positions {
                let position = position.index(arrays.isa.len()) as u32;
                let row = arrays.isa[position as usize];
                view.learn(position, row);
                sa.learn(row, position);
                isa.learn(position, row);
            }
        }
        Change::LearnAll => {
            let view = layers.view();
            for (position, &row) in (0..).zip(&arrays.isa) {
                view.learn(position, row);
                sa.learn(row, position);
                isa.learn(position, row);
            }
        }
        Change::Finish => {
            let marked = |twin: &Twin| {
                let marked = twin.layers.iter().filter(|(_, (_, marked))| *marked);
                marked.map(|(&rate, _)| rate).collect::<Vec<_>>()
            };
            let rates = Rates { sa: marked(sa), isa: marked(isa) };
            arrays.sweep(layers, &rates, 3);
            sa.add(&rates.sa, Some(&arrays.sa));
            isa.add(&rates.isa, Some(&arrays.isa));
        }
        Change::Pack => {
            let mut full = 0;
            for (twin, values) in [(&mut *sa, &arrays.sa), (&mut *isa, &arrays.isa)] {
                let mut whole = twin.clone();
                let rates: Vec<u32> = twin.layers.keys().copied().collect();
                whole.add(&rates, Some(values));
                for (rate, (known, marked)) in &mut twin.layers {
                    if *marked && known.len() == whole.layers[rate].0.len() {
                        *marked = false;
                        full += 1;
                    }
                }
            }
            assert_eq!(layers.pack().unwrap(), full);
        }
        Change::Drop(array) => {
            let twin = if *array == Array::Sa { sa } else { isa };
            let dropped = layers.drop_lowest(*array);
            assert_eq!(dropped.is_some(), twin.layers.pop_first().is_some());
            assert!(dropped.is_none_or(|dropped| !dropped.is_read()));
        }
    }
}

fn check_against(arrays: &Arrays, layers: &Layers, sa: &Twin, isa: &Twin) {
    let view = layers.view();
    for row in 0..arrays.sa.len() as u32 + 3 {
        assert_eq!(view.offset(row), sa.get(row), "row {row}");
    }
    for position in 0..arrays.isa.len() as u32 {
        for after in [0, position / 2, position.saturating_sub(5)] {
            let mut before = (after + 1..=position).rev();
            let known = before.find_map(|p| isa.get(p).map(|row| (p, row)));
            assert_eq!(view.row_before(position, after), known, "{after}..={position}");
        }
    }
    let footprint = layers.footprint();
    let width = (usize::BITS - arrays.text.len().leading_zeros()).max(1) as usize;
    for (of_layers, twin) in [(&footprint.sa, sa), (&footprint.isa, isa)] {
        assert!(of_layers.iter().map(|layer| layer.rate).eq(twin.layers.keys().rev().copied()));
        for layer in of_layers {
            let (known, marked) = &twin.layers[&layer.rate];
            assert_eq!(layer.known, known.len());
            let bytes =
                if *marked { 4 * layer.values } else { (layer.values * width).div_ceil(8) + 8 };
            assert_eq!(layer.bytes, bytes);
        }
    }
    assert_eq!(footprint.dropped_bytes, 0);
}

proptest! {
    #[test]
    fn layers_know_what_their_twin_knows(
        bytes in prop::collection::vec(0u8..3, 0..150),
        isa_rate in prop::sample::select(vec![0u32, 12, 16, 64]),
        changes in prop::collection::vec(change(), 1..16),
    ) {
        let arrays = Arrays::new(bytes);
        let layers = Layers::over(arrays.sa.len(), Base { sa_rate: 0, isa_rate });
        let (mut sa, mut isa) = (Twin::default(), Twin { fixed: isa_rate, ..Twin::default() });
        for change in &changes {
            apply(change, &arrays, &layers, &mut sa, &mut isa);
            check_against(&arrays, &layers, &sa, &isa);
        }
    }

    #[test]
    fn a_budget_is_kept_and_used_by_half_at_least(
        rows in 2_000usize..100_000,
        budgets in prop::collection::vec((0usize..100_000, 0usize..100_000), 1..6),
    ) {
        let layers = Layers::new(rows);
        for (sa_bytes, isa_bytes) in budgets {
            let budget = Budget { sa_bytes, isa_bytes, text_bytes: 0 };
            let changes = layers.changes(&budget);
            for _ in 0..changes.drop_sa {
                prop_assert!(layers.drop_lowest(Array::Sa).is_some());
            }
            for _ in 0..changes.drop_isa {
                prop_assert!(layers.drop_lowest(Array::Isa).is_some());
            }
            let mut sweep = layers.sweep(&changes.add).unwrap();
            sweep.step(&Identity(rows), usize::MAX);
            layers.publish(sweep).unwrap();
            let footprint = layers.footprint();
            for (of_layers, bytes_max) in [(&footprint.sa, sa_bytes), (&footprint.isa, isa_bytes)] {
                let bytes: usize = of_layers.iter().map(|layer| layer.bytes).sum();
                prop_assert!(bytes <= bytes_max);
                let lowest = of_layers.last().map_or(2048, |layer| layer.rate);
                // The next layer would double the bytes, give or take a word for each layer.
                let next = rows.div_ceil((lowest as usize / 2).max(1)) * 17 / 8 + 100;
                prop_assert!(lowest == 1 || next > bytes_max, "{lowest} {bytes} {bytes_max}");
            }
            prop_assert!(layers.changes(&budget).is_empty());
        }
    }
}

/// A walk of a text whose rows are in the order of its positions, but for the end.
struct Identity(usize);

impl Walk for Identity {
    fn segments(&self) -> usize {
        1
    }

    fn walk(&self, _: Range<usize>, visit: &mut dyn FnMut(u32, u32)) {
        (0..self.0 as u32 - 1).for_each(|position| visit(position, position + 1));
    }
}

#[test]
fn layers_that_do_not_fit_are_refused() {
    let layers = Layers::over(1000, Base { sa_rate: 32, isa_rate: 64 });
    let rates = |sa: &[u32], isa: &[u32]| Rates { sa: sa.to_vec(), isa: isa.to_vec() };
    for wrong in [&[3][..], &[0], &[4, 4]] {
        assert!(layers.mark(&rates(wrong, &[])).is_err(), "{wrong:?}");
        assert!(layers.sweep(&rates(&[], wrong)).is_err(), "{wrong:?}");
    }
    assert!(layers.mark(&rates(&[], &[64])).is_err(), "the shard's own samples");
    assert!(layers.mark(&rates(&[], &[128])).is_err());
    layers.mark(&rates(&[8], &[16, 4])).unwrap();
    let error = layers.mark(&rates(&[8], &[])).unwrap_err().to_string();
    assert!(error.contains("rate 8 would not be below"), "{error}");
    assert!(layers.sweep(&rates(&[16], &[])).is_err());
    assert!(layers.sweep(&rates(&[], &[8])).is_err(), "between two");
    assert!(layers.sweep(&rates(&[8, 2], &[16])).is_ok(), "marked ones may be made whole");
}

#[test]
fn a_sweep_is_published_whole_and_in_its_place_or_not_at_all() {
    let arrays =
        Arrays::new(b"a sweep is published whole and in its place or not at all".repeat(3));
    let layers = Layers::new(arrays.sa.len());
    let rates = Rates { sa: vec![4], isa: vec![2] };
    let mut sweep = layers.sweep(&rates).unwrap();
    let progress = sweep.step(&arrays.text, 4);
    assert_eq!(progress, Progress { done: 4, all: 11 });
    assert!(layers.publish(sweep).is_err(), "not finished");
    assert_eq!(layers.footprint(), Footprint::default());

    let mut sweep = layers.sweep(&rates).unwrap();
    let bytes = sweep.bytes();
    layers.mark(&Rates { sa: vec![8], isa: vec![] }).unwrap();
    assert!(sweep.step(&arrays.text, usize::MAX).is_finished());
    assert!(layers.publish(sweep).is_err(), "it has no place for the multiples of 8");
    assert!(layers.drop_lowest(Array::Sa).is_some());
    assert_eq!(layers.footprint(), Footprint::default());

    arrays.sweep(&layers, &rates, 1);
    assert_eq!(layers.footprint().total_bytes(), bytes);
}

#[test]
fn what_is_dropped_is_counted_until_the_last_view_of_it_is_gone() {
    let arrays = Arrays::new(b"she sells sea shells on the sea shore".to_vec());
    let layers = Layers::new(arrays.sa.len());
    arrays.sweep(&layers, &Rates { sa: vec![4, 2], isa: vec![2] }, 1);
    let before = layers.footprint();
    let view = layers.view();
    let dropped = layers.drop_lowest(Array::Sa).unwrap();
    assert_eq!(dropped.bytes(), before.sa[1].bytes);
    assert_eq!(layers.footprint().dropped_bytes, dropped.bytes());
    assert_eq!(layers.footprint().total_bytes(), before.total_bytes());
    assert!(dropped.is_read());
    assert_eq!(view.offset(2), Some(arrays.sa[2]));
    assert_eq!(layers.view().offset(2), None);
    drop(view);
    assert!(!dropped.is_read());
    assert_eq!(layers.footprint().dropped_bytes, dropped.bytes(), "not freed yet");
    drop(dropped);
    assert_eq!(layers.footprint().dropped_bytes, 0);
    assert_eq!(layers.view().offset(4), Some(arrays.sa[4]), "the layer above stays");
}

/// Whatever a view knows of a row is right.
fn reads_right(view: &View, arrays: &Arrays, text: &[u8], at: usize) {
    let row = at as u32;
    if let Some(offset) = view.offset(row) {
        assert_eq!(offset, arrays.sa[at]);
    }
    if let Some((position, row)) = view.row_before(at as u32, 0) {
        assert_eq!(row, arrays.isa[position as usize]);
    }
    view.learn(arrays.sa[at], row);
    if view.is_learning() && at.is_multiple_of(2) {
        assert_eq!(view.offset(row), Some(arrays.sa[at]), "learnt, not known");
    }
    let len = 100.min(text.len() - at.min(text.len()));
    let mut bytes = Vec::new();
    if view.text(at, len, &mut bytes) {
        assert_eq!(bytes, text[at..at + len]);
    }
}

#[test]
fn readers_never_see_a_wrong_value_while_layers_come_and_go() {
    let mut state = 1u32;
    let bytes = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        b"acgt"[(state >> 30) as usize]
    });
    // Miri sees every access, slowly, and none of what the C libraries do.
    let (len, rounds) = if cfg!(miri) { (150, 6) } else { (3000, 60usize) };
    let arrays = Arrays::new(bytes.take(len).collect());
    let text: Vec<u8> = {
        let mut bytes = Vec::new();
        arrays.text.extract(0, arrays.text.len(), &mut bytes).unwrap();
        bytes
    };
    let layers = Layers::over(arrays.sa.len(), Base { sa_rate: 64, isa_rate: 64 });
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..3usize {
            let (arrays, layers, stop, text) = (&arrays, &layers, &stop, &text);
            scope.spawn(move || {
                let mut at = reader * 1000;
                while !stop.load(Relaxed) {
                    let view = layers.view();
                    for _ in 0..20 {
                        at = (at + 769) % arrays.sa.len();
                        reads_right(&view, arrays, text, at);
                    }
                }
            });
        }
        for round in 0..rounds {
            // While a layer is marked there is one for every even row, which the readers count on.
            layers.mark(&Rates { sa: vec![2], isa: vec![8] }).unwrap();
            layers.pack().unwrap();
            if round.is_multiple_of(3) {
                let sa = layers.footprint().sa;
                let sa = sa.iter().filter(|layer| layer.known < layer.values);
                let rates = Rates { sa: sa.map(|layer| layer.rate).collect(), isa: vec![4] };
                let mut sweep = layers.sweep(&rates).unwrap();
                while !sweep.step(&arrays.text, 40).is_finished() {}
                layers.publish(sweep).unwrap();
                drop(layers.drop_lowest(Array::Isa));
            }
            if round.is_multiple_of(4) && !cfg!(miri) {
                let options = TextOptions { block_bytes: 64, ..TextOptions::default() };
                let mut build = TextBuild::new(&arrays.text, options).unwrap();
                while !build.step(&arrays.text, 20).unwrap().is_finished() {}
                layers.publish_text(build).unwrap();
                drop(layers.set_hot(2000).unwrap());
            }
            // In this order, so that no view has a marked layer but none of the even rows.
            let isa = layers.drop_lowest(Array::Isa).unwrap();
            let sa = layers.drop_lowest(Array::Sa).unwrap();
            if round.is_multiple_of(2) {
                while sa.is_read() || isa.is_read() {
                    std::hint::spin_loop();
                }
                drop(layers.drop_text());
            }
        }
        stop.store(true, Relaxed);
    });
    drop(layers.drop_text());
    assert_eq!(layers.footprint(), Footprint::default());
}

/// Bytes that can be extracted, and nothing else.
pub(super) struct Plain(pub Vec<u8>);

impl Text for Plain {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn rows(&self, _: &[u8]) -> Range<usize> {
        0..0
    }

    fn locate(&self, _: Range<usize>, _: &mut Vec<usize>) {}

    fn extract(&self, offset: usize, len: usize, bytes: &mut Vec<u8>) -> Result<(), Error> {
        bytes.extend_from_slice(&self.0[offset..offset + len]);
        Ok(())
    }
}

fn text_layers(text: &Plain, options: TextOptions, step: usize) -> Layers {
    text_layers_within(text, options, step).expect("they may take any number of bytes")
}

/// `None` if not one block fits.
fn text_layers_within(text: &Plain, options: TextOptions, step: usize) -> Option<Layers> {
    let layers = Layers::new(text.0.len() + 1);
    let mut build = TextBuild::new(text, options).unwrap();
    while !build.step(text, step).unwrap().is_finished() {}
    layers.publish_text(build).ok()?;
    Some(layers)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_text_layer_reads_as_the_text_does(
        piece in prop::collection::vec(any::<u8>(), 1..100),
        noise in prop::collection::vec(any::<u8>(), 0..3000),
        times in 0usize..200,
        block_log2 in 6u32..12,
        step in 1usize..50,
        bytes_max in prop::sample::select(vec![usize::MAX, 0, 3000, 8000]),
        hot_bytes in prop::sample::select(vec![0usize, 3000, 100_000]),
        ranges in prop::collection::vec((any::<prop::sample::Index>(), 0usize..3000), 1..30),
    ) {
        let mut bytes = piece.repeat(times);
        bytes.extend_from_slice(&noise);
        bytes.extend_from_slice(&piece.repeat(times / 2));
        let text = Plain(bytes);
        let block_bytes = 1 << block_log2;
        let options = TextOptions { block_bytes, bytes_max, ..TextOptions::default() };
        let Some(layers) = text_layers_within(&text, options, step) else {
            prop_assert!(bytes_max < usize::MAX && !text.0.is_empty());
            return Ok(());
        };
        drop(layers.set_hot(hot_bytes).unwrap());
        let view = layers.view();
        let (held, bytes) = (view.text_len(), layers.footprint().text_bytes);
        if bytes_max < usize::MAX && held < text.0.len() {
            // Another block, stored as it is at the worst, was too much.
            prop_assert!(held.is_multiple_of(block_bytes) && held > 0);
            prop_assert!(bytes <= bytes_max && bytes + block_bytes + 4 > bytes_max);
        } else {
            prop_assert_eq!(held, text.0.len());
        }
        for (start, len) in ranges {
            let start = start.index(text.0.len() + 1);
            let mut read = b"-".to_vec();
            let within = start + len <= held;
            prop_assert_eq!(view.text(start, len, &mut read), within);
            let expected = if within { &text.0[start..start + len] } else { &[] };
            prop_assert_eq!(&read[..1], b"-");
            prop_assert_eq!(&read[1..], expected);
        }
        prop_assert!(!view.text(usize::MAX, 2, &mut Vec::new()));
        prop_assert!(layers.footprint().hot_bytes <= hot_bytes);
    }
}

#[test]
fn a_text_layer_of_records_is_much_smaller_than_the_text() {
    let record =
        |n: u32| format!("id: {n}\nname: person {}\ncity: Zürich\n\n", n.wrapping_mul(7919) % 1000);
    let text = Plain((0..5000).flat_map(|n| record(n).into_bytes()).collect());
    let mut build = TextBuild::new(&text, TextOptions::default()).unwrap();
    assert_eq!(build.bytes_expected(), None);
    let expected = loop {
        build.step(&text, 50).unwrap();
        if let Some(expected) = build.bytes_expected() {
            break expected;
        }
    };
    let layers = Layers::new(text.0.len() + 1);
    while !build.step(&text, 50).unwrap().is_finished() {}
    let stored = build.bytes_expected().unwrap();
    assert!(expected.abs_diff(stored) < stored / 5, "{expected} {stored}");
    layers.publish_text(build).unwrap();
    let bytes = layers.footprint().text_bytes;
    assert!(stored < text.0.len() / 3, "{stored} of {}", text.0.len());

    let dropped = layers.drop_text().unwrap();
    assert_eq!(dropped.bytes(), bytes);
    assert!(!layers.view().text(0, 1, &mut Vec::new()));
    assert!(layers.drop_text().is_none());
    drop(dropped);
    assert_eq!(layers.footprint(), Footprint::default());
}

#[test]
fn a_text_of_which_samples_are_drawn_reads_as_it_does() {
    // Samples do not show the last third, which has no byte in common with the rest.
    let record = |n: u32| format!("id: {n}\nname: person {}\n\n", n.wrapping_mul(7919) % 1000);
    let mut bytes: Vec<u8> = (0..60_000).flat_map(|n| record(n).into_bytes()).collect();
    bytes.extend((0..700_000u32).map(|n| 128 + (n.wrapping_mul(2_654_435_761) >> 25) as u8));
    let text = Plain(bytes);
    for (sample_bytes, tokens_max) in [(1280 << 10, 5000), (0, 1000), (1 << 20, 0)] {
        let options = TextOptions { sample_bytes, tokens_max, ..TextOptions::default() };
        let layers = text_layers(&text, options, usize::MAX);
        let mut read = Vec::new();
        assert!(layers.view().text(0, text.0.len(), &mut read));
        assert!(read == text.0, "{sample_bytes} bytes of samples");
        for start in (0..text.0.len() - 3000).step_by(99_991) {
            read.clear();
            assert!(layers.view().text(start, 3000, &mut read));
            assert!(read == text.0[start..start + 3000], "from {start} on");
        }
    }
}

#[test]
fn text_layers_that_do_not_fit_are_refused() {
    let text = Plain(vec![b'x'; 1000]);
    let small = TextOptions { block_bytes: 64, ..TextOptions::default() };
    for wrong in [
        TextOptions { block_bytes: 100, ..small },
        TextOptions { block_bytes: 32, ..small },
        TextOptions { block_bytes: 1 << 18, ..small },
        TextOptions { tokens_max: (1 << 17) - 255, ..small },
    ] {
        assert!(TextBuild::new(&text, wrong).is_err(), "{wrong:?}");
    }
    let layers = Layers::new(1001);
    let mut build = TextBuild::new(&text, small).unwrap();
    build.step(&text, 3).unwrap();
    assert!(layers.publish_text(build).is_err(), "not finished");
    let mut build = TextBuild::new(&text, small).unwrap();
    while build.bytes_expected().is_none() {
        build.step(&text, 3).unwrap();
    }
    assert!(layers.publish_text(build).is_err(), "3 blocks of 16");
    let mut build = TextBuild::new(&text, small).unwrap();
    while !build.step(&text, 3).unwrap().is_finished() {}
    assert!(Layers::new(1000).publish_text(build).is_err(), "of another text");
    assert_eq!(layers.footprint(), Footprint::default());
    drop(text_layers(&Plain(Vec::new()), small, 1));
}
