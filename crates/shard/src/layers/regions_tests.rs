//! Text layers of regions, against the text itself.

use proptest::prelude::*;

use super::tests::Plain;
use super::*;

/// Builds a layer of regions; `None` if not one fits. Publishes what is finished after each `every` steps.
fn layers(
    text: &Plain,
    options: TextOptions,
    order: &[u32],
    step: usize,
    every: usize,
) -> Option<Layers> {
    let layers = Layers::new(text.0.len() + 1);
    let mut build = TextBuild::of_regions(text, options, order.to_vec()).unwrap();
    let mut steps = 0;
    while !build.step(text, step).unwrap().is_finished() {
        steps += 1;
        if every > 0 && steps % every == 0 {
            let before = layers.view();
            let more = layers.publish_text_so_far(&mut build).unwrap();
            assert!(layers.view().text_len() > before.text_len() || !more);
            // The blocks that both have are counted once, though the earlier layer is still read.
            let footprint = layers.footprint();
            let places = size_of::<u32>() * Regions::for_text(text.0.len()).count();
            assert!(footprint.dropped_bytes <= places, "{footprint:?}");
            check(&layers, text, options, order);
        }
    }
    layers.publish_text(build).ok()?;
    Some(layers)
}

/// What is published is the first regions of the order, and reads as the text.
fn check(layers: &Layers, text: &Plain, options: TextOptions, order: &[u32]) {
    let view = layers.view();
    let Some(held) = view.text_regions() else { return };
    let mut first = order[..held.len()].to_vec();
    first.sort_unstable();
    assert_eq!(held, first);
    assert!(layers.footprint().text_bytes <= options.bytes_max);
    let regions = Regions::for_text(text.0.len());
    for region in held {
        let (range, mut read) = (regions.range(region as usize), Vec::new());
        assert!(view.text(range.start, range.len(), &mut read));
        assert_eq!(read, text.0[range]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The naive twin is the text, and the list of regions.
    #[test]
    fn a_layer_of_regions_reads_as_the_text_does(
        piece in prop::collection::vec(any::<u8>(), 1..2000),
        times in 1usize..60,
        noise in prop::collection::vec(any::<u8>(), 0..5000),
        block_log2 in 6u32..13,
        (step, every) in (1usize..50, 0usize..4),
        bytes_max in prop::sample::select(vec![usize::MAX, 0, 5000, 12_000, 40_000]),
        hot_bytes in prop::sample::select(vec![0usize, 20_000]),
        (seed, taken) in (any::<u64>(), 0usize..40),
        ranges in prop::collection::vec((any::<prop::sample::Index>(), 0usize..6000), 1..40),
    ) {
        let mut bytes = piece.repeat(times);
        bytes.extend_from_slice(&noise);
        let text = Plain(bytes);
        let regions = Regions::for_text(text.0.len());
        // Some of the regions, in some order.
        let mut order: Vec<u32> = (0..regions.count() as u32).collect();
        order.sort_by_key(|region| u64::from(region + 1).wrapping_mul(seed | 1).rotate_left(17));
        order.truncate(taken);
        let options = TextOptions { block_bytes: 1 << block_log2, bytes_max, ..TextOptions::default() };
        let Some(layers) = layers(&text, options, &order, step, every) else {
            prop_assert!(bytes_max < usize::MAX);
            return Ok(());
        };
        drop(layers.set_hot(hot_bytes).unwrap());
        let view = layers.view();
        let held = view.text_regions().unwrap();
        prop_assert!(held.is_sorted());
        prop_assert!(layers.footprint().text_bytes <= bytes_max);
        // The first of the order, all of them if nothing limits the bytes.
        let mut first = order[..held.len()].to_vec();
        first.sort_unstable();
        prop_assert_eq!(&held, &first);
        prop_assert!(bytes_max < usize::MAX || held.len() == order.len());
        let bytes: usize = held.iter().map(|region| regions.range(*region as usize).len()).sum();
        prop_assert_eq!(view.text_len(), bytes);
        for (start, len) in ranges {
            let start = start.index(text.0.len() + 1);
            let end = start + len;
            let within = end <= text.0.len()
                && (start..end).step_by(64).chain(end.checked_sub(1).filter(|_| len > 0)).all(|position| {
                    held.binary_search(&(regions.region_of(position) as u32)).is_ok()
                });
            let mut read = b"-".to_vec();
            prop_assert_eq!(view.text(start, len, &mut read), within);
            let expected = if within { &text.0[start..end] } else { &[] };
            prop_assert_eq!(&read[1..], expected);
        }
        prop_assert!(!view.text(usize::MAX, 2, &mut Vec::new()));
    }
}

#[test]
fn wrong_regions_are_refused() {
    let text = Plain(vec![b'a'; 20_000]);
    for (order, block_bytes) in [(vec![0, 3, 0], 1024), (vec![5], 1024), (vec![1], 8192)] {
        let options = TextOptions { block_bytes, ..TextOptions::default() };
        let error = TextBuild::of_regions(&text, options, order).unwrap_err();
        assert!(matches!(error, Error::Layers(_)), "{error}");
    }
    // A layer of nothing answers nothing.
    let layers = layers(&text, TextOptions::default(), &[], 1, 1);
    let view = layers.as_ref().map(Layers::view);
    assert!(view.is_none_or(|view| view.text_len() == 0 && !view.text(0, 1, &mut Vec::new())));
}
