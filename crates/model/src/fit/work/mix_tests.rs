//! A service fitted under one mix of requests predicts another one.

use ground::window::Operation;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp, LogNormal};

use super::tests::{in_line, step};
use super::*;
use crate::{Error, MixShare, Model, Parameter};

const SMALL: u64 = 2_000;
const LARGE: u64 = 100_000;
const GET_MEAN: f64 = 0.003;
const PUT_MEAN: f64 = 0.012;

/// Arrivals and departures of gets of [`SMALL`] bytes (exponential) and puts of [`LARGE`] (lognormal), and which are puts.
fn served(
    servers: usize,
    rate: f64,
    n: usize,
    puts: f64,
    seed: u64,
) -> (Vec<(f64, f64)>, Vec<bool>) {
    let mut random = StdRng::seed_from_u64(seed);
    let get = Exp::new(1.0 / GET_MEAN).unwrap();
    // Of SCV 0.5.
    let sigma = 1.5f64.ln().sqrt();
    let put = LogNormal::new(PUT_MEAN.ln() - 0.5 * sigma * sigma, sigma).unwrap();
    let mut kinds = Vec::with_capacity(n);
    let mut law = |random: &mut StdRng| {
        let is_put = random.random::<f64>() < puts;
        kinds.push(is_put);
        if is_put { put.sample(random) } else { get.sample(random) }
    };
    let all = in_line(servers, rate, n, &mut law, &mut random);
    (all, kinds)
}

fn steps(servers: usize, rates: &[f64], puts: f64) -> Vec<Step> {
    let of = |(i, rate): (usize, &f64)| {
        let (all, kinds) = served(servers, *rate, 9_000, puts, 20 + i as u64);
        let mut made = step("", &all);
        let requests = &mut made.times.as_mut().unwrap().requests;
        for (request, put) in requests.iter_mut().zip(kinds) {
            request.bytes = if put { LARGE } else { SMALL };
            request.operation = if put { Operation::Put } else { Operation::Get };
        }
        made
    };
    rates.iter().enumerate().map(of).collect()
}

fn mix_shares(gets: f64) -> [MixShare; 2] {
    let get = MixShare { operation: Operation::Get, bytes: Some(2 << 10), share: gets };
    [get, MixShare { operation: Operation::Put, bytes: None, share: 1.0 - gets }]
}

/// Fitted with 20 % puts at up to 60 % of saturation, judged with 60 % puts at 70 and 80 %.
#[test]
fn a_mix_that_was_not_measured_is_predicted() {
    let (mut rows, mut inside) = (0, 0);
    for servers in [1usize, 2] {
        let m = servers as f64;
        let before = m / (0.8 * GET_MEAN + 0.2 * PUT_MEAN);
        let rates = [0.3, 0.45, 0.6].map(|x| x * before);
        let fitted = work(&steps(servers, &rates, 0.2), None, &Options::default()).unwrap();
        let model = Model::from_toml(&fitted.model.to_toml().unwrap()).unwrap();
        assert_eq!(model, fitted.model);
        let mixed = model.with_mix(&mix_shares(0.4)).unwrap();
        let mean = 0.4 * GET_MEAN + 0.6 * PUT_MEAN;
        let found = &mixed.classes[0].service.mean;
        assert!((found.value / mean - 1.0).abs() < 0.04, "{found:?}, not {mean}");
        // E[S²] of both kinds over the squared mean.
        let square = 0.4 * 2.0 * GET_MEAN.powi(2) + 0.6 * 1.5 * PUT_MEAN.powi(2);
        let scv = mixed.classes[0].service.scv.value;
        assert!((scv / (square / (mean * mean) - 1.0) - 1.0).abs() < 0.12, "{scv}");
        for busy in [0.7, 0.8] {
            let rate = busy * m / mean;
            let (judged, _) = served(servers, rate, 200_000, 0.6, 77);
            for t in [0.01, 0.02, 0.04, 0.08] {
                let share = judged.iter().filter(|r| r.1 - r.0 <= t).count() as f64 / 200_000.0;
                let p = mixed.within(rate, t).unwrap();
                println!(
                    "{servers} {busy} {t}: {share:.3} {:.3} [{:.3}, {:.3}]",
                    p.value, p.low, p.high
                );
                assert!((p.value - share).abs() < 0.03, "{servers} {busy} {t}: {share} {p:?}");
                rows += 1;
                inside += u32::from((p.low..=p.high).contains(&share));
            }
            // At the same load the measured mix leaves the servers less busy.
            let (measured, asked) =
                (model.within(rate, 0.01).unwrap(), mixed.within(rate, 0.01).unwrap());
            assert!(measured.value > asked.value + 0.1, "{measured:?} {asked:?}");
        }
        let says = |w: &str| mixed.warnings.iter().any(|of| of.contains(w));
        assert!(
            says("Of another mix than was measured") && !says("Predictions are of the same mix")
        );
        // The measured mix itself changes nothing.
        let gets = model.kinds.iter().find(|k| k.operation == Operation::Get).unwrap().share;
        let same = model.with_mix(&mix_shares(gets)).unwrap();
        let rate = 0.6 * before;
        let (a, b) = (model.within(rate, 0.02).unwrap(), same.within(rate, 0.02).unwrap());
        assert!((a.value - b.value).abs() < 0.003 && (a.low - b.low).abs() < 0.01, "{a:?} {b:?}");
    }
    assert!(inside * 10 >= rows * 9, "{inside} of {rows} inside");
}

/// Where no hypothesis fits: a mix of more work is as busy as the heaviest fitted load at a smaller one, and a mix of less work was not seen
/// at a larger one.
#[test]
fn another_mix_makes_no_more_loads_known() {
    let fitted = work(&steps(1, &[80.0, 110.0], 0.2), None, &Options::default()).unwrap();
    let mut model = fitted.model;
    model.unknown_beyond = Some(110.0);
    let mixed = |gets: f64| model.with_mix(&mix_shares(gets)).unwrap();
    let (reads, writes) = (mixed(1.0), mixed(0.0));
    let work = |model: &Model| model.classes[0].service.mean.value;
    let (less, more) = if work(&reads) < work(&writes) { (reads, writes) } else { (writes, reads) };
    assert_eq!(less.known_to(), 110.0);
    let known = 110.0 * work(&model) / work(&more);
    assert!((more.known_to() / known - 1.0).abs() < 0.02, "{} {known}", more.known_to());
}

/// Hits that pass the servers by pass with the same probability as reads, and writes never do.
#[test]
fn hits_pass_by_in_proportion_to_reads() {
    let fitted = work(&steps(1, &[80.0, 110.0], 0.2), None, &Options::default()).unwrap();
    let mut model = fitted.model;
    // Of all requests half passed by, so of those at the servers 80 % are reads, of all 90 %.
    model.requests.q0 = Parameter::exact(0.5, "1");
    model.replicates.change("q0", |_, _| 0.5);
    let gets = model.kinds.iter().find(|k| k.operation == Operation::Get).unwrap().share;
    let passes = 0.5 / (0.5 + 0.5 * gets);
    let writes = model.with_mix(&mix_shares(0.0)).unwrap();
    assert_eq!(writes.requests.q0.value, 0.0);
    let reads = model.with_mix(&mix_shares(1.0)).unwrap();
    assert!((reads.requests.q0.value - passes).abs() < 1e-9, "{:?}", reads.requests.q0);
    assert!((reads.classes[0].service.mean.value / GET_MEAN - 1.0).abs() < 0.05);
    assert!((writes.classes[0].service.mean.value / PUT_MEAN - 1.0).abs() < 0.05);
}

#[test]
fn mixes_that_cannot_be_predicted_are_named() {
    let fitted = work(&steps(1, &[80.0, 110.0], 0.2), None, &Options::default()).unwrap();
    let model = fitted.model;
    let wrong = |mix: &[MixShare], words: &str| {
        let error = model.with_mix(mix).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    let get = mix_shares(1.0)[0];
    wrong(
        &[MixShare { bytes: Some(1 << 30), ..get }],
        "nothing is known of get of 1073741824 bytes: measured were get of 2000",
    );
    wrong(&[MixShare { operation: Operation::Delete, ..get }], "nothing is known of delete");
    wrong(&[MixShare { share: -0.1, ..get }], "a share of a mix");
    wrong(&[MixShare { share: f64::NAN, ..get }], "a share of a mix");
    wrong(&[MixShare { share: 0.0, ..get }], "the sum of the shares");
    wrong(&[], "the sum of the shares");
    let mut none = model.clone();
    none.kinds.clear();
    assert!(matches!(none.with_mix(&[get]), Err(Error::WhatIf(_))));
}
