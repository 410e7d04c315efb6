//! Any text as a fitted model: what is accepted is written as it was read, and gives predictions or says why not.

#![no_main]

mod edits;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use model::Model;

static SEEDS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let whole = include_str!("../model.toml");
    let model = Model::from_toml(whole).expect("the repository's model");
    let mut bare = model.clone();
    bare.replicates = Default::default();
    let bare = bare.to_toml().map(String::into_bytes).unwrap_or_default();
    vec![bare, whole.as_bytes().to_vec()]
});

fuzz_target!(|data: &[u8]| {
    let seeds: Vec<&[u8]> = SEEDS.iter().map(Vec::as_slice).collect();
    let Ok(text) = String::from_utf8(edits::edited(&seeds, data)) else { return };
    let Ok(model) = Model::from_toml(&text) else { return };
    let written = model.to_toml().expect("what was accepted is written");
    let again = Model::from_toml(&written).unwrap_or_else(|error| panic!("{error}: {written}"));
    assert_eq!(again, model);
    // Cheap ones: intervals come from all replicates.
    let (Ok(node), Ok(trust)) = (model.node(), model.trust()) else { return };
    let _ = (node, trust, model.limits());
    // Rarely, because they take milliseconds.
    let rates = if data.len() % 8 == 5 { &[1e-9, 50.0, 1e9][..] } else { &[] };
    for &rate in rates {
        if let Ok(shares) = model.cdf(rate, &[0.0, 0.01, 10.0]) {
            assert!(shares.iter().all(|share| (-1e-6..=1.0 + 1e-6).contains(share)), "{shares:?}");
        }
    }
});
