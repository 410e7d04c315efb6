//! Which layer a shard gets next, and which it drops first: what saves most, or least, of the work that queries
//! were lately, for each byte ([`engine::layers::mix`]); and which regions of the text a text layer holds: those that queries
//! read most ([`engine::layers::regions`]).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use engine::layers::ShardId;
use engine::layers::mix::{Layer, Mix, Work};
use engine::layers::regions::{Chosen, Heat};
use ground::window::Nanos;
use shard::Text;
use shard::index::{self, Index};
use shard::layers::{Array, Footprint, LayerFootprint, Layers, Rates, Regions};

use configuration::Fill;
use dataset::part::Part;

/// Expected size of a text layer as a fraction of the text (`shard::layers` has the measurements),
/// and the factor by which the actual size may exceed it. If the text needs more, the regions that are read least are left
/// out.
const TEXT_SHARE: f64 = 0.3;
const TEXT_EXCESS: f64 = 1.3;

/// The least bytes of a text layer: with few tokens a text takes more than its share.
const LAYER_BYTES_MIN: u64 = 64 << 10;

/// A smaller shard gets no text layer: reading its records is fast enough without one.
const TEXT_BYTES_MIN: usize = 256 << 10;

/// One step by which a shard's layers grow.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Further layers of the arrays.
    Arrays(Rates),
    /// The text layer.
    Text(Regional),
}

/// A text layer of regions of the text.
#[derive(Clone, Debug, Default)]
pub(super) struct Regional {
    /// The most bytes of the layer.
    pub bytes_max: u64,
    /// The regions, the most important first.
    pub order: Vec<u32>,
    /// The share of all regions that these are.
    pub part: f64,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Text(Regional { part, .. }) if *part < 1.0 => {
                write!(f, "text, {:.1} % of it", 100.0 * part)
            }
            Step::Text(_) => f.write_str("text"),
            Step::Arrays(Rates { sa, isa }) => {
                let of = |name: &str, rates: &[u32]| {
                    rates.iter().map(|rate| format!("{name} rate {rate}")).collect::<Vec<_>>()
                };
                f.write_str(&[of("SA", sa), of("ISA", isa)].concat().join(", "))
            }
        }
    }
}

/// What queries asked of a shard lately.
#[derive(Debug, Default)]
pub(super) struct Demand {
    mix: Mix,
    /// Which regions of the text they read, and what the index had counted of each at the last look.
    heat: Heat,
    reads: Vec<u64>,
    /// Whether a layer was being made at the last look.
    building: bool,
    /// What the index had counted at the last look.
    before: Option<index::Work>,
    /// Numbers of layers of the arrays, and bytes of the text layer, at the last look.
    shape: (usize, usize, usize),
}

impl Demand {
    /// Counts the work since the last look. With other layers it begins anew. Where the text is read to make a layer of it
    /// (`building`), regions are not counted.
    pub(super) fn look(&mut self, now: Nanos, index: &Index, building: bool) {
        let reads = index.reads();
        let before = std::mem::replace(&mut self.reads, reads);
        // A build that has ended since the last look read, too.
        let read_by_build = std::mem::replace(&mut self.building, building) || building;
        if !read_by_build && before.len() == self.reads.len() {
            let pairs = self.reads.iter().zip(&before);
            let more: Vec<u64> = pairs.map(|(now, before)| now.saturating_sub(*before)).collect();
            self.heat.add(now, &more);
        }
        let (work, held) = (index.work(), index.layers().footprint());
        let before = self.before.replace(work);
        let shape = (held.sa.len(), held.isa.len(), held.text_bytes);
        let same = std::mem::replace(&mut self.shape, shape) == shape;
        let Some(before) = before.filter(|_| same) else { return self.mix.clear() };
        let less = |now: u64, before: u64| now.saturating_sub(before) as f64;
        self.mix.add(
            now,
            &Work {
                located: less(work.located, before.located),
                located_steps: less(work.located_steps, before.located_steps),
                ranges: less(work.ranges, before.ranges),
                skipped_steps: less(work.skipped_steps, before.skipped_steps),
                walked_bytes: less(work.walked_bytes, before.walked_bytes),
                decoded_ranges: less(work.decoded_ranges, before.decoded_ranges),
                decoded_bytes: less(work.decoded_bytes, before.decoded_bytes),
            },
        );
    }

    /// The step that a shard lacks and that saves most, and its bytes.
    pub(super) fn next(&self, index: &Index, fill: Fill) -> Option<(Step, u64)> {
        let layers = index.layers();
        let mut steps = Vec::new();
        for array in [Array::Sa, Array::Isa] {
            let Some((rate, packed)) = layers.next_layer(array) else { continue };
            // A marked layer has four bytes for each value; a whole one the bits of a row.
            let marked =
                packed.saturating_mul(32).div_ceil(index.len().max(1).ilog2() as usize + 1);
            let bytes = match fill {
                Fill::Sweep => packed,
                Fill::Queries => marked,
                Fill::Both => marked.saturating_add(packed),
            };
            steps.push((layer_of(array, rate), bytes as u64));
        }
        let text = self.text(index);
        if let Some((regional, covered)) = &text {
            steps.push((
                Layer::Text { isa: isa_rate(index), covered: *covered },
                regional.bytes_max,
            ));
        }
        let (layer, bytes) = *steps.get(self.mix.best(&steps)?)?;
        let rates = |sa: &[u32], isa: &[u32]| Rates { sa: sa.to_vec(), isa: isa.to_vec() };
        let step = match layer {
            Layer::Sa(rate) => Step::Arrays(rates(&[rate], &[])),
            Layer::Isa(rate) => Step::Arrays(rates(&[], &[rate])),
            Layer::Text { .. } => Step::Text(text?.0),
        };
        Some((step, bytes))
    }

    /// The text layer that the shard lacks, and the share of what is walked now that it would answer: one of the regions that
    /// are read most, also in place of a layer that holds others.
    fn text(&self, index: &Index) -> Option<(Regional, f64)> {
        let guess = text_guess(index)?;
        let view = index.layers().view();
        let held = match (view.text_len(), view.text_regions()) {
            (0, _) => None,
            (_, Some(held)) => Some(held),
            // A beginning of the text.
            (len, None) => {
                Some((0..Regions::for_text(index.len()).region_of(len) as u32).collect())
            }
        };
        let bytes_max = |chosen: &Chosen| {
            ((guess as f64 * chosen.part * TEXT_EXCESS) as u64).max(LAYER_BYTES_MIN)
        };
        let (chosen, answered) = match &held {
            None => (self.heat.choose()?, 0.0),
            Some(held) => {
                let each = index.layers().footprint().text_bytes / held.len().max(1);
                let fits = |chosen: &Chosen| bytes_max(chosen) as usize / each.max(1);
                (self.heat.replace(held, fits)?, self.heat.share(held))
            }
        };
        let bytes_max = bytes_max(&chosen);
        let covered = (chosen.covered - answered) / (1.0 - answered).max(f64::MIN_POSITIVE);
        let Chosen { order, part, .. } = chosen;
        Some((Regional { bytes_max, order, part }, covered.clamp(0.0, 1.0)))
    }

    /// A text layer of at most so many bytes, whatever the mix: the regions that are read most, and then the others.
    pub(super) fn all_text(&self, index: &Index, bytes_max: u64) -> Regional {
        let (order, count) = (self.heat.order(), Regions::for_text(index.len()).count());
        let order = if order.len() == count { order } else { (0..count as u32).collect() };
        Regional { bytes_max, order, part: 1.0 }
    }

    /// The layer that saves least, and its bytes; `None` if there is none.
    pub(super) fn first_dropped(&self, index: &Index, fill: Fill) -> Option<(Layer, u64)> {
        let held = index.layers().footprint();
        let lowest = |array, layers: &[LayerFootprint]| {
            let bytes = |layer: &LayerFootprint| layer.bytes as u64 + packing_bytes(layer, fill);
            layers.last().map(|layer| (layer_of(array, layer.rate), bytes(layer)))
        };
        let of_text = || Layer::Text { isa: isa_rate(index), covered: 1.0 };
        let text = (held.text_bytes > 0).then(|| (of_text(), held.text_bytes as u64));
        let lowest: Vec<_> = [lowest(Array::Sa, &held.sa), lowest(Array::Isa, &held.isa), text]
            .into_iter()
            .flatten()
            .collect();
        lowest.get(self.mix.least(&lowest)?).copied()
    }
}

/// The most bytes that these layers take until the next step. A marked layer that is whole is packed: until the last query that
/// reads it has ended, both it and its copy are held. If only the one were counted, the layers would exceed their budget then,
/// because nobody asks for the bytes of the copy.
pub(super) fn held_bytes(held: &Footprint, fill: Fill) -> u64 {
    let layers = held.sa.iter().chain(&held.isa);
    held.total_bytes() as u64 + layers.map(|layer| packing_bytes(layer, fill)).sum::<u64>()
}

/// Layers that queries alone fill stay as they are.
fn packing_bytes(layer: &LayerFootprint, fill: Fill) -> u64 {
    if fill == Fill::Both { layer.packing_bytes as u64 } else { 0 }
}

fn layer_of(array: Array, rate: u32) -> Layer {
    match array {
        Array::Sa => Layer::Sa(rate),
        Array::Isa => Layer::Isa(rate),
    }
}

/// The smallest rate of samples of the inverse.
fn isa_rate(index: &Index) -> u32 {
    let held = index.layers().footprint();
    held.isa.last().map_or(index.isa_sampling(), |layer| layer.rate.min(index.isa_sampling()))
}

/// Estimated bytes of a shard's text layer; `None` if the shard is too small for one.
pub(super) fn text_guess(index: &Index) -> Option<u64> {
    let len = index.len();
    (len >= TEXT_BYTES_MIN).then_some((len as f64 * TEXT_SHARE) as u64)
}

/// Drops a layer, the lowest of its kind.
pub(super) fn drop_layer(layers: &Layers, layer: Layer) {
    drop(match layer {
        Layer::Sa(_) => layers.drop_lowest(Array::Sa),
        Layer::Isa(_) => layers.drop_lowest(Array::Isa),
        Layer::Text { .. } => layers.drop_text(),
    });
}

/// A step for the worker to build.
pub(super) struct Order {
    pub id: ShardId,
    pub name: String,
    pub part: Arc<Part>,
    pub step: Step,
    pub cancelled: Arc<AtomicBool>,
}

#[cfg(test)]
mod tests {
    use ground::window::SECOND;
    use shard::index::Options;
    use shard::layers::{Completion, TextBuild, TextOptions};

    use super::*;

    /// An index of lines of words.
    fn opened() -> Index {
        let (mut text, mut state) = (Vec::new(), 1u64);
        while text.len() < 400_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let word =
                format!("w{:x}{}", (state >> 33) % 997, if state >> 60 == 0 { '\n' } else { ' ' });
            text.extend_from_slice(word.as_bytes());
        }
        let mut file = Vec::new();
        index::build(&text, &Options::default(), &mut file).unwrap();
        Index::open(file).unwrap()
    }

    /// Searches locate rows; gets read 100 bytes each.
    fn serve(index: &Index, searches: usize, gets: usize) -> u64 {
        let before = index.work();
        let mut offsets = Vec::new();
        for search in 0..searches {
            let rows = index.rows(format!("w{:x}", search * 7 % 997).as_bytes());
            index.locate(rows.start..rows.end.min(rows.start + 50), &mut offsets);
        }
        let mut bytes = Vec::new();
        for get in 0..gets {
            index.extract(get * 7919 % (index.len() - 100), 100, &mut bytes).unwrap();
        }
        let after = index.work();
        let decoded = (after.decoded_ranges - before.decoded_ranges) * 16;
        after.steps() - before.steps() + decoded
    }

    fn add(index: &Index, step: &Step) -> Layer {
        let layers = index.layers();
        match step {
            Step::Text(_) => {
                let mut build = TextBuild::new(index, TextOptions::default()).unwrap();
                while !build.step(index, 1024).unwrap().is_finished() {}
                layers.publish_text(build).unwrap();
                Layer::Text { isa: 0, covered: 1.0 }
            }
            Step::Arrays(rates) => {
                let mut sweep = layers.sweep(rates).unwrap();
                while !sweep.step(index, 1024).is_finished() {}
                layers.publish(sweep).unwrap();
                rates.sa.first().map_or(Layer::Isa(0), |rate| Layer::Sa(*rate))
            }
        }
    }

    /// The chosen step, and how many steps each of all possible ones saves for each byte, measured with the
    /// layer really there.
    fn chosen(index: &Index, searches: usize, gets: usize) -> (Step, Vec<(Step, f64)>) {
        let mut asked = Demand::default();
        asked.look(0, index, false);
        let before = serve(index, searches, gets);
        asked.look(SECOND, index, false);
        let (chosen, _) = asked.next(index, Fill::Sweep).unwrap();
        let (sa, isa) = (Array::Sa, Array::Isa);
        let rate = |array| index.layers().next_layer(array).unwrap();
        let mut all = vec![
            Step::Arrays(Rates { sa: vec![rate(sa).0], isa: vec![] }),
            Step::Arrays(Rates { sa: vec![], isa: vec![rate(isa).0] }),
        ];
        if index.layers().footprint().text_bytes == 0 {
            all.push(Step::Text(Regional { part: 1.0, ..Regional::default() }));
        }
        let tried = all.into_iter().map(|step| {
            let held = index.layers().footprint().total_bytes();
            let layer = add(index, &step);
            let bytes = index.layers().footprint().total_bytes() - held;
            let saved = before as f64 - serve(index, searches, gets) as f64;
            drop_layer(index.layers(), layer);
            (step, saved / bytes as f64)
        });
        (chosen, tried.collect())
    }

    #[test]
    fn the_mix_of_queries_chooses_the_layer() {
        let index = opened();
        let check = |searches: usize, gets: usize, kinds: &[&str]| {
            for step in 0..4 {
                let (chosen, tried) = chosen(&index, searches, gets);
                let shown = chosen.to_string();
                let each = |name: &str| {
                    tried.iter().find(|(step, _)| step.to_string() == name).map_or(0.0, |of| of.1)
                };
                let best = tried.iter().map(|of| of.1).fold(0.0, f64::max);
                println!("{searches} searches, {gets} gets: {shown}, {tried:?}");
                assert!(each(&shown) >= 0.8 * best, "{shown} of {tried:?}");
                // Later the other kinds may save more.
                let expected = kinds.iter().any(|kind| shown.starts_with(kind));
                assert!(step > 0 || expected, "{shown} of {tried:?}");
                add(&index, &chosen);
            }
            // What the mix does not need goes first.
            let mut asked = Demand::default();
            asked.look(0, &index, false);
            asked.look(SECOND, &index, false);
            serve(&index, searches, gets);
            asked.look(2 * SECOND, &index, false);
            while let Some((layer, _)) = asked.first_dropped(&index, Fill::Sweep) {
                drop_layer(index.layers(), layer);
            }
            assert_eq!(index.layers().footprint().total_bytes(), 0);
        };
        check(1000, 10, &["SA"]);
        check(2, 2000, &["ISA", "text"]);
    }

    #[test]
    fn without_queries_no_layer_saves_anything() {
        let index = opened();
        let mut asked = Demand::default();
        asked.look(0, &index, false);
        asked.look(SECOND, &index, false);
        assert!(asked.next(&index, Fill::Sweep).is_none());
        assert!(asked.first_dropped(&index, Fill::Sweep).is_none());
        // Counting reads no layer.
        index.rows(b"w1");
        asked.look(2 * SECOND, &index, false);
        assert!(asked.next(&index, Fill::Sweep).is_none());
    }

    #[test]
    fn a_marked_layer_takes_no_more_than_was_asked_for_even_while_it_is_packed() {
        let index = opened();
        let mut asked = Demand::default();
        asked.look(0, &index, false);
        serve(&index, 1000, 0);
        asked.look(SECOND, &index, false);
        let (step, bytes) = asked.next(&index, Fill::Both).unwrap();
        let Step::Arrays(rates) = step else { panic!("{step}") };
        let layers = index.layers();
        layers.mark(&rates).unwrap();
        let marked = held_bytes(&layers.footprint(), Fill::Both);
        assert!(marked <= bytes, "{marked} of {bytes}");
        // A query that reads the marked layer until after it was packed.
        let view = layers.view();
        let mut completion = Completion::default();
        while !completion.step(layers, &index, 1024).is_finished() {}
        assert_eq!(layers.pack().unwrap(), 1);
        let both = layers.footprint().total_bytes() as u64;
        assert!(both <= marked && both > layers.footprint().sa[0].bytes as u64, "{both}, {marked}");
        assert_eq!(held_bytes(&layers.footprint(), Fill::Both), both);
        drop(view);
        let packed = layers.footprint().sa[0].bytes as u64;
        assert_eq!(held_bytes(&layers.footprint(), Fill::Both), packed);
    }

    #[test]
    fn a_text_layer_holds_what_is_read() {
        let index = opened();
        let (mut asked, mut bytes) = (Demand::default(), Vec::new());
        let read = |around: usize, bytes: &mut Vec<u8>| {
            for get in 0..1000 {
                index.extract(around + get * 7919 % 20_000, 100, bytes).unwrap();
            }
        };
        let mut now = 0;
        let mut look = |asked: &mut Demand, building| {
            now += SECOND;
            asked.look(now, &index, building);
        };
        let build = |asked: &Demand| {
            let (step, bytes) = asked.next(&index, Fill::Sweep).unwrap();
            let Step::Text(regional) = step else { panic!("{step}") };
            assert!(bytes < 100_000 && regional.part < 0.1, "{bytes} bytes, {regional:?}");
            let options = TextOptions { bytes_max: bytes as usize, ..TextOptions::default() };
            let mut build = TextBuild::of_regions(&index, options, regional.order).unwrap();
            while !build.step(&index, 1024).unwrap().is_finished() {}
            index.layers().publish_text(build).unwrap();
        };
        let decoded = || index.work().decoded_ranges;
        look(&mut asked, false);
        read(300_000, &mut bytes);
        look(&mut asked, false);
        build(&asked);
        // What the build reads is not asked for.
        look(&mut asked, true);
        let before = decoded();
        read(300_000, &mut bytes);
        assert!(decoded() - before > 800, "{}", decoded() - before);
        // Reads move: the layer follows them, though one is held.
        look(&mut asked, false);
        let before = decoded();
        (0..30).for_each(|_| read(100_000, &mut bytes));
        assert_eq!(decoded(), before);
        look(&mut asked, false);
        build(&asked);
        let before = decoded();
        read(100_000, &mut bytes);
        assert!(decoded() - before > 800, "{}", decoded() - before);
    }
}
