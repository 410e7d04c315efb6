use proptest::prelude::*;

use ground::window::Histogram;

use super::*;

fn laws(mean: f64) -> Vec<(&'static str, Box<dyn ServiceTime>)> {
    vec![
        ("exponential", Box::new(Exponential::new(mean).unwrap())),
        ("gamma 0.25", Box::new(Gamma::new(mean, 0.25).unwrap())),
        ("gamma 2", Box::new(Gamma::new(mean, 2.0).unwrap())),
        ("hyperexponential 4", Box::new(Hyperexponential::balanced(mean, 4.0).unwrap())),
        ("lognormal 4", Box::new(Lognormal::new(mean, 4.0).unwrap())),
        ("disk", Box::new(UniformPlusExponential::new(mean, mean * 0.1, mean * 0.4).unwrap())),
        ("constant", Box::new(Deterministic::new(mean).unwrap())),
    ]
}

/// Mean and SCV by integrating 1 − CDF on a grid: the naive twin of the formulas.
fn moments(law: &dyn ServiceTime) -> (f64, f64) {
    let (mut first, mut second) = (0.0, 0.0);
    let step = law.mean() / 2_000.0;
    for i in 0..400_000 {
        let t = (i as f64 + 0.5) * step;
        let above = 1.0 - law.cdf(t);
        first += above * step;
        second += 2.0 * t * above * step;
    }
    (first, second / (first * first) - 1.0)
}

#[test]
fn moments_agree_with_the_cdf_and_the_transform() {
    for (name, law) in laws(0.01) {
        let (mean, scv) = moments(law.as_ref());
        assert!((mean / law.mean() - 1.0).abs() < 1e-3, "{name}: mean {mean}");
        assert!((scv - law.scv()).abs() < 2e-2 * (1.0 + scv), "{name}: scv {scv}");
        let s = 1e-3 / law.mean();
        let b = law.transform(Complex64::new(s, 0.0)).re;
        assert!(((1.0 - b) / s / law.mean() - 1.0).abs() < 3e-3, "{name}: transform {b}");
    }
}

#[test]
fn inversion_gives_the_cdf_back() {
    for (name, law) in laws(0.01).into_iter().filter(|l| l.0 != "constant") {
        let worst = match name {
            "disk" => 1e-4,
            "lognormal 4" => 2e-4,
            _ => 1e-9,
        };
        for k in [0.3, 0.5, 0.9, 1.3, 2.0, 4.0, 9.0] {
            let t = law.mean() * k;
            let inverted = inversion::cdf(|s| law.transform(s), t);
            let error = (inverted - law.cdf(t)).abs();
            assert!(error < worst, "{name} at {k} means: off by {error:e}");
        }
    }
}

#[test]
fn a_line_of_transforms_is_the_transforms() {
    for (name, law) in laws(0.01) {
        for t in [1e-5, 0.01, 3.0] {
            let (re, step) = inversion::line(t);
            let mut line = [Complex64::ZERO; inversion::TERMS];
            law.transform_line(re, step, &mut line);
            for (k, value) in line.iter().enumerate() {
                let one = law.transform(Complex64::new(re, step * k as f64));
                assert!((one - value).norm() < 1e-12, "{name} at {t}, {k}: {one} {value}");
            }
        }
    }
}

#[test]
fn bad_parameters_are_errors() {
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(Exponential::new(bad).is_err());
        assert!(Deterministic::new(bad).is_err());
        assert!(Gamma::new(bad, 1.0).is_err() && Gamma::new(1.0, bad).is_err());
        assert!(Lognormal::new(bad, 1.0).is_err() && Lognormal::new(1.0, bad).is_err());
        assert!(UniformPlusExponential::new(bad, 1.0, 1.0).is_err());
        assert!(Hyperexponential::new(&[(1.0, bad)]).is_err());
    }
    assert!(Hyperexponential::new(&[(0.5, 1.0)]).is_err());
    assert!(Empirical::from_pieces(vec![]).is_err());
    assert!(Empirical::from_histogram(&Histogram::default()).is_err());
    let mut zeros = Histogram::default();
    zeros.record(0);
    assert!(Empirical::from_histogram(&zeros).is_err());
}

proptest! {
    #[test]
    fn empirical_laws_keep_the_histogram(
        values in prop::collection::vec(10_000u64..5_000_000_000, 2..400),
        at in 0.001f64..6.0,
    ) {
        let mut times = Histogram::default();
        values.iter().for_each(|&v| times.record(v));
        let law = Empirical::from_histogram(&times).unwrap();
        prop_assert!((law.mean() / times.mean_s() - 1.0).abs() < 1e-6);
        let n = values.len() as f64;
        let scv = times.variance_s2() * (n - 1.0) / n / times.mean_s().powi(2);
        prop_assert!((law.scv() - scv).abs() < 1e-3 + 0.03 * scv, "{} {scv}", law.scv());
        let t = law.mean() * at;
        let (low, high) = (law.cdf(t), law.cdf(t * 1.01));
        prop_assert!((0.0..=1.0).contains(&low) && low <= high && high <= 1.0);
        let b = law.transform(Complex64::new(1.0 / t, 2.0 / t));
        prop_assert!(b.norm() <= 1.0 + 1e-9, "{b}");
    }

    #[test]
    fn hostile_pieces_are_errors_or_laws(
        pieces in prop::collection::vec((any::<f64>(), any::<f64>(), any::<f64>()), 0..5),
        mean in any::<f64>(), scv in any::<f64>(),
    ) {
        let pieces = pieces.into_iter()
            .map(|(centre, half_width, share)| Piece { centre, half_width, share }).collect();
        if let Ok(law) = Empirical::from_pieces(pieces) {
            prop_assert!(law.mean() > 0.0 && !law.cdf(law.mean()).is_nan());
            if let Ok(law) = law.with_moments(mean, scv) {
                prop_assert!(law.mean() >= 0.0 && !law.scv().is_nan());
            }
        }
    }
}

#[test]
fn large_histograms_become_few_pieces() {
    let mut times = Histogram::default();
    let law = Exponential::new(0.005).unwrap();
    for i in 0..200_000u32 {
        let u = (f64::from(i) + 0.5) / 200_000.0;
        times.record((-(1.0 - u).ln() * law.mean() * 1e9) as u64);
    }
    let measured = Empirical::from_histogram(&times).unwrap();
    assert!(measured.pieces().len() < 260, "{}", measured.pieces().len());
    for k in 1..60 {
        let t = law.mean() * 0.1 * f64::from(k);
        assert!((measured.cdf(t) - law.cdf(t)).abs() < 2e-3);
    }
}

/// The atoms of [`jumpy_cdf`].
const JUMPS: [Atom; 2] = [Atom { at: 0.0, share: 0.1 }, Atom { at: 0.004, share: 0.4 }];

/// The CDF of a mixture: 10 % at 0, 40 % at 4 ms, 30 % gamma (10 ms, SCV 0.5), 20 % exponential (2
/// ms) after a constant 1 ms. Its mean is 5.2 ms and its second moment 54 ms².
fn jumpy_cdf(t: f64) -> f64 {
    let disk = Gamma::new(0.010, 0.5).unwrap();
    let net = Exponential::new(0.002).unwrap();
    let jumps: f64 = JUMPS.iter().filter(|jump| jump.at <= t).map(|jump| jump.share).sum();
    jumps + 0.3 * disk.cdf(t) + 0.2 * net.cdf(t - 0.001)
}

/// [`jumpy_cdf`] as a law of pieces.
fn jumpy() -> Empirical {
    Empirical::from_cdf(0.0052, &JUMPS, jumpy_cdf).unwrap()
}

#[test]
fn laws_of_cdfs_keep_moments_and_atoms() {
    let cut = jumpy();
    assert!((cut.mean() / 0.0052 - 1.0).abs() < 1e-6, "{}", cut.mean());
    let scv = 54e-6 / (0.0052 * 0.0052) - 1.0;
    assert!((cut.scv() / scv - 1.0).abs() < 1e-3, "{} {scv}", cut.scv());
    // The law is stretched to the exact moments, and its atoms with it.
    let atoms = cut.atoms();
    assert_eq!(atoms.len(), JUMPS.len());
    for (found, jump) in atoms.iter().zip(JUMPS) {
        assert!((found.at - jump.at).abs() < 1e-6, "{found:?} {jump:?}");
        assert!((found.share - jump.share).abs() < 1e-12, "{found:?} {jump:?}");
    }
    for k in 1..60 {
        let t = 0.00101 * f64::from(k);
        assert!((cut.cdf(t) - jumpy_cdf(t)).abs() < 2e-3, "{t}: {} {}", cut.cdf(t), jumpy_cdf(t));
    }
    assert!(Empirical::from_cdf(f64::NAN, &[], |_| 0.5).is_err());
    assert!(Empirical::from_cdf(1.0, &[], |_| 0.5).is_err());
    assert!(Empirical::from_cdf(1.0, &[], |_| f64::NAN).is_err());
}

#[test]
fn shares_outside_0_to_1_have_no_quantile() {
    let law = Exponential::new(1.0).unwrap();
    assert!(law.quantile(1.0).is_err() && law.quantile(f64::NAN).is_err());
}

proptest! {
    /// The pieces that hold a time, found by searches, give what all of them do, one after the other.
    #[test]
    fn a_measured_cdf_is_the_sum_over_its_pieces(
        drawn in proptest::collection::vec((0.0f64..1.0, prop_oneof![Just(0.0), 0.0f64..0.3], 0.01f64..1.0), 1..40),
        times in proptest::collection::vec(-0.1f64..1.4, 1..20),
        sorted in any::<bool>(),
    ) {
        let mut drawn = drawn;
        if sorted {
            drawn.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        let piece = |&(centre, half_width, share): &(f64, f64, f64)| Piece { centre, half_width, share };
        let pieces: Vec<Piece> = drawn.iter().map(piece).collect();
        let total: f64 = pieces.iter().map(|p| p.share).sum();
        let ends = pieces.iter().flat_map(|p| [p.centre - p.half_width, p.centre, p.centre + p.half_width]);
        let law = Empirical::from_pieces(pieces.clone()).unwrap();
        for t in times.iter().copied().chain(ends) {
            let below = |p: &Piece| {
                let (low, high) = (p.centre - p.half_width, p.centre + p.half_width);
                let part = if high > low { (t - low) / (high - low) } else { f64::from(t >= high) };
                p.share / total * part.clamp(0.0, 1.0)
            };
            let naive = if t < 0.0 { 0.0 } else { pieces.iter().map(below).sum::<f64>() };
            prop_assert!((law.cdf(t) - naive).abs() < 1e-12, "{}: {} {}", t, law.cdf(t), naive);
        }
    }

    #[test]
    fn quantiles_invert_cdfs(p in 0.0f64..0.9999, t in 0.0f64..0.08, dt in 0.0f64..0.02) {
        let law = jumpy();
        let at = law.quantile(p).unwrap();
        prop_assert!(law.cdf(at) >= p - 1e-12);
        prop_assert!(at == 0.0 || law.cdf(at * (1.0 - 1e-9)) <= p + 1e-9);
        prop_assert!(law.cdf(t) <= law.cdf(t + dt));
        for (_, law) in laws(0.01).iter().filter(|l| l.0 != "constant") {
            let at = law.quantile(p).unwrap();
            prop_assert!((law.cdf(at) - p).abs() < 1e-9);
        }
    }

    #[test]
    fn inversions_at_any_time_are_probabilities(exponent in -18.0f64..18.0) {
        let t = 10f64.powf(exponent);
        let law = jumpy();
        let found = inversion::cdf(|s| law.transform(s), t);
        prop_assert!((0.0..=1.0).contains(&found), "{found}");
    }
}

/// A law from 0 on has no room for a stretch about its mean: its times are raised to a power.
#[test]
fn a_law_from_0_on_reaches_a_larger_scv() {
    let exponential = Exponential::new(0.01).unwrap();
    let law = Empirical::from_cdf(0.01, &[], |t| exponential.cdf(t)).unwrap();
    for scv in [1.001, 1.2, 2.0, 5.0] {
        let heavier = law.with_moments(0.012, scv).unwrap();
        assert!((heavier.mean() / 0.012 - 1.0).abs() < 1e-9, "{}", heavier.mean());
        assert!((heavier.scv() / scv - 1.0).abs() < 1e-3, "{scv}: {}", heavier.scv());
        let rises = (1..80).all(|k| {
            let t = 0.002 * f64::from(k);
            heavier.cdf(t) <= heavier.cdf(t + 0.002)
        });
        assert!(rises);
        // More of both short and long times.
        let of = |law: &Empirical, means: f64| law.cdf(means * law.mean());
        assert!(of(&heavier, 0.1) > of(&law, 0.1) && of(&heavier, 5.0) < of(&law, 5.0));
    }
    // An SCV that no power reaches is no error.
    assert!(law.with_moments(0.01, 1e9).unwrap().scv() > 5.0);
}
