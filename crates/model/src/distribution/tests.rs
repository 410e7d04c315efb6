use proptest::prelude::*;

use crate::gold::json as gold;
use crate::window::Histogram;

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

/// Atoms at 0, at a constant and in a law, beside smooth laws.
fn jumpy() -> Mixture {
    let disk: AnyLaw = Arc::new(Gamma::new(0.010, 0.5).unwrap());
    let net: AnyLaw = Arc::new(Shifted::new(0.001, Exponential::new(0.002).unwrap()).unwrap());
    Mixture::new(
        vec![(0.3, disk), (0.2, net)],
        &[Atom { at: 0.0, share: 0.1 }, Atom { at: 0.004, share: 0.4 }],
    )
    .unwrap()
}

#[test]
fn mixtures_shifts_and_sums_have_the_moments_of_their_cdfs() {
    let jumpy = jumpy();
    let shifted = Shifted::new(0.003, jumpy.clone()).unwrap();
    let parts: Vec<AnyLaw> =
        vec![Arc::new(jumpy.clone()), Arc::new(Gamma::new(0.005, 0.3).unwrap())];
    let sum = Sum::new(parts).unwrap();
    for (name, law) in
        [("mixture", &jumpy as &dyn ServiceTime), ("shifted", &shifted), ("sum", &sum)]
    {
        let (mean, scv) = crate::distribution::moments(law.mean(), |t| law.cdf(t)).unwrap();
        assert!((mean / law.mean() - 1.0).abs() < 1e-5, "{name}: {mean} {}", law.mean());
        assert!((scv / law.scv() - 1.0).abs() < 1e-4, "{name}: {scv} {}", law.scv());
        let s = 1e-3 / law.mean();
        let b = law.transform(Complex64::new(s, 0.0)).re;
        assert!(((1.0 - b) / s / law.mean() - 1.0).abs() < 3e-3, "{name}: transform {b}");
        let (mut line, re, step) = ([Complex64::ZERO; 30], 50.0, 300.0);
        law.transform_line(re, step, &mut line);
        for (k, value) in line.iter().enumerate() {
            let one = law.transform(Complex64::new(re, step * k as f64));
            assert!((one - value).norm() < 1e-12, "{name}, {k}: {one} {value}");
        }
    }
}

#[test]
fn inversion_beside_atoms_is_exact_at_them() {
    let law = jumpy();
    let atoms = law.atoms();
    for t in [1e-4, 0.0039999, 0.004, 0.0040001, 0.0041, 0.01, 0.05] {
        let found =
            inversion::beside_atoms(t, &atoms, |re, step, out| law.transform_line(re, step, out));
        // The shifted exponential's density jumps at 1 ms: Euler's kink error.
        assert!((found - law.cdf(t)).abs() < 1e-5, "{t}: {found} {}", law.cdf(t));
    }
    assert!((inversion::beside_atoms(0.0, &atoms, |_, _, _| ()) - 0.1).abs() < 1e-15);
}

#[test]
fn concentrated_kernels_smear_a_jump_and_never_overshoot() {
    let scv = inversion::cme::kernel_scv();
    println!("kernel: SCV {scv:.4e}");
    assert!((1e-4..1.1e-4).contains(&scv), "{scv}");
    let atom = Atom { at: 1.0, share: 1.0 };
    let mut before = 0.0;
    for i in 0..=4_000 {
        let t = 0.5 + f64::from(i) * 2.5e-4;
        let found = inversion::cme::cdf(|s| (-s).exp(), t);
        assert!((0.0..=1.0).contains(&found) && found >= before - 1e-9, "{t}: {found} {before}");
        let off = (found - f64::from(t >= 1.0)).abs();
        assert!((off - inversion::cme::jump_error(t, atom)).abs() < 1e-9, "{t}");
        before = found;
    }
    // How fast it falls: 10 % at 1.2 σ, 0.1 % within 4 %.
    for (t, most) in
        [(0.98, 0.05), (0.96, 2e-3), (0.9, 5e-4), (1.02, 0.05), (1.04, 2e-3), (1.1, 5e-4)]
    {
        let error = inversion::cme::jump_error(t, atom);
        println!("{t}: {error:.2e}");
        assert!(error < most, "{t}: {error}");
    }
}

#[test]
fn concentrated_kernels_are_near_smooth_laws() {
    for (name, law) in laws(0.01).into_iter().filter(|l| l.0 != "constant") {
        let mut worst = 0.0f64;
        for k in 1..80 {
            let t = law.mean() * 0.1 * f64::from(k);
            let found =
                inversion::cme::cdf_of_line(t, |re, step, out| law.transform_line(re, step, out));
            worst = worst.max((found - law.cdf(t)).abs());
        }
        println!("{name}: {worst:.1e}");
        assert!(worst < 3e-4, "{name}: {worst:e}");
    }
}

#[test]
fn sums_agree_with_known_laws() {
    let stage: AnyLaw = Arc::new(Exponential::new(0.5).unwrap());
    let sum = Sum::new(vec![stage; 6]).unwrap();
    let erlang = Erlang::new(6, 3.0).unwrap();
    assert!((sum.mean() - 3.0).abs() < 1e-12 && (sum.scv() - 1.0 / 6.0).abs() < 1e-12);
    for t in [0.1, 1.0, 3.0, 5.0, 12.0] {
        assert!((sum.cdf(t) - erlang.cdf(t)).abs() < 1e-9, "{t}");
    }
    // Two constants, a coin each of them: four atoms.
    let coin = |a: f64, b: f64| -> AnyLaw {
        let atoms = [Atom { at: a, share: 0.5 }, Atom { at: b, share: 0.5 }];
        Arc::new(Mixture::new(vec![], &atoms).unwrap())
    };
    let sum = Sum::new(vec![coin(0.0, 1.0), coin(0.0, 3.0)]).unwrap();
    for (t, expected) in [(0.0, 0.25), (0.99, 0.25), (1.0, 0.5), (3.0, 0.75), (4.0, 1.0)] {
        assert_eq!(sum.cdf(t), expected, "{t}");
    }
    // Twelve coins are 4,096 atoms: binomial, smeared.
    let many = Sum::new((0..12).map(|i| coin(1.0, 2.0 + 1e-9 * f64::from(i))).collect()).unwrap();
    assert!(many.atoms().is_empty());
    let mut before = 0.0;
    for i in 0..200 {
        let now = many.cdf(11.0 + 0.07 * f64::from(i));
        assert!((0.0..=1.0).contains(&now) && now >= before - 1e-9);
        before = now;
    }
    assert!((many.cdf(18.5) - 0.612_792_968_75).abs() < 0.01, "{}", many.cdf(18.5));
}

#[test]
fn laws_of_cdfs_keep_moments_and_atoms() {
    let law = jumpy();
    let cut = Empirical::from_cdf(law.mean(), &law.atoms(), |t| law.cdf(t)).unwrap();
    assert!((cut.mean() / law.mean() - 1.0).abs() < 1e-6, "{} {}", cut.mean(), law.mean());
    assert!((cut.scv() / law.scv() - 1.0).abs() < 1e-3);
    for k in 1..60 {
        let t = 0.00101 * f64::from(k);
        assert!((cut.cdf(t) - law.cdf(t)).abs() < 2e-3, "{t}: {} {}", cut.cdf(t), law.cdf(t));
    }
    assert!(Empirical::from_cdf(f64::NAN, &[], |_| 0.5).is_err());
    assert!(Empirical::from_cdf(1.0, &[], |_| 0.5).is_err());
    assert!(Empirical::from_cdf(1.0, &[], |_| f64::NAN).is_err());
}

#[test]
fn bad_parts_are_errors() {
    let law: AnyLaw = Arc::new(Exponential::new(1.0).unwrap());
    for bad in [f64::NAN, f64::INFINITY, -1.0] {
        assert!(Shifted::new(bad, law.clone()).is_err());
        assert!(Mixture::new(vec![(bad, law.clone())], &[]).is_err());
        assert!(Mixture::new(vec![(0.5, law.clone())], &[Atom { at: bad, share: 0.5 }]).is_err());
    }
    assert!(Sum::new(vec![]).is_err() && Mixture::new(vec![], &[]).is_err());
    assert!(Mixture::new(vec![], &[Atom { at: 0.0, share: 1.0 }]).is_err());
    assert!(Mixture::new(vec![(0.5, law.clone())], &[]).is_err());
    assert!(law.quantile(1.0).is_err() && law.quantile(f64::NAN).is_err());
}

proptest! {
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
    fn inversions_of_anything_are_probabilities(t in any::<f64>(), at in any::<f64>(), share in any::<f64>()) {
        let law = jumpy();
        let found = inversion::cme::cdf(|s| law.transform(s), t);
        prop_assert!((0.0..=1.0).contains(&found), "{found}");
        let found = inversion::beside_atoms(t, &law.atoms(), |re, step, out| law.transform_line(re, step, out));
        prop_assert!((0.0..=1.0).contains(&found), "{found}");
        if let Ok(law) = Shifted::new(at, law) {
            prop_assert!((0.0..=1.0).contains(&law.cdf(t)));
        }
        let atom = Atom { at, share };
        if (0.0..=1.0).contains(&share) {
            prop_assert!(!inversion::cme::jump_error(t, atom).is_nan());
        }
    }
}

/// Worst error of a CDF against a gold file of response times, which names what is allowed.
fn check_sojourn(name: &str, cdf: impl Fn(f64) -> f64) {
    let Some(file) = gold(&format!("sojourn/{name}.json")) else { return };
    let mut worst = 0.0f64;
    for row in file["cdf"].as_array().unwrap() {
        let [t, expected, error] = [0, 1, 2].map(|i| row[i].as_f64().unwrap());
        let off = (cdf(t) - expected).abs();
        worst = worst.max(off);
        assert!(off <= (10.0 * error).max(1e-9), "{name} at {t}: off by {off:e}");
    }
    println!("{name}: worst error {worst:.1e}");
}

#[test]
fn response_times_made_of_laws_agree_with_gold() {
    use crate::queue::{Mg1, erlang_c};
    let erlang = Mg1::new(90.0, Erlang::new(4, 0.01).unwrap()).unwrap();
    check_sojourn("mg1_gamma25_90", |t| erlang.response_cdf(t));
    let phases = Erlang::new(4, 0.01).unwrap().phase_type().unwrap();
    let phases = Mg1::new(90.0, phases).unwrap();
    check_sojourn("mg1_gamma25_90", |t| phases.response_cdf(t));
    let h2 = Hyperexponential::new(&[(0.8873, 1.0 / 177.46), (0.1127, 1.0 / 22.54)]).unwrap();
    let h2 = Mg1::new(80.0, PhaseType::try_from(&h2).unwrap()).unwrap();
    check_sojourn("mg1_h2_80", |t| h2.response_cdf(t));
    // M/M/1 waits not at all or as long as it responds; then it is served.
    for (name, rate) in [("mm1_a", 50.0), ("mm1_b", 90.0)] {
        let served: AnyLaw = Arc::new(Exponential::new(0.01).unwrap());
        let delayed: AnyLaw = Arc::new(Exponential::new(1.0 / (100.0 - rate)).unwrap());
        let none = Atom { at: 0.0, share: 1.0 - rate / 100.0 };
        let wait = Mixture::new(vec![(rate / 100.0, delayed)], &[none]).unwrap();
        let response = Sum::new(vec![Arc::new(wait), served]).unwrap();
        check_sojourn(name, |t| response.cdf(t));
    }
    // M/M/m waits with Erlang's probability C for an exponential time of rate mµ − λ.
    for (name, rate, servers) in [
        ("mmm_a", 135.0, 3),
        ("mmm_b", 732.8, 16),
        ("mmm_c", 6_304.0, 128),
        ("mmm_degenerate", 50.0, 2),
    ] {
        let whole = 50.0 * f64::from(servers);
        let waits = erlang_c(servers, rate / whole);
        let served: AnyLaw = Arc::new(Exponential::new(0.02).unwrap());
        let delayed: AnyLaw = Arc::new(Exponential::new(1.0 / (whole - rate)).unwrap());
        let none = Atom { at: 0.0, share: 1.0 - waits };
        let wait = Mixture::new(vec![(waits, delayed)], &[none]).unwrap();
        let response = Sum::new(vec![Arc::new(wait), served]).unwrap();
        check_sojourn(name, |t| response.cdf(t));
    }
}
