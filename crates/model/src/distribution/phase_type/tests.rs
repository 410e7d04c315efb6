use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand_distr::{Distribution as _, Gamma as GammaDraw};

use super::*;
use crate::distribution::{Exponential, Gamma, Hyperexponential, inversion};
use crate::window::Histogram;

/// A cyclic chain: retries between two phases.
fn cyclic() -> PhaseType {
    PhaseType::new(
        &[0.7, 0.2, 0.1],
        &[vec![-5.0, 3.0, 1.0], vec![2.0, -4.0, 0.5], vec![0.0, 1.0, -1.0]],
    )
    .unwrap()
}

#[test]
fn known_laws_are_reproduced() {
    let erlang = Erlang::new(5, 2.0).unwrap();
    let h2 = Hyperexponential::balanced(2.0, 7.0).unwrap();
    let cases: [(PhaseType, &dyn ServiceTime); 4] = [
        (PhaseType::new(&[1.0], &[vec![-0.5]]).unwrap(), &Exponential::new(2.0).unwrap()),
        (erlang.phase_type().unwrap(), &erlang),
        (PhaseType::try_from(&h2).unwrap(), &h2),
        (PhaseType::from_two_moments(2.0, 0.2).unwrap(), &erlang),
    ];
    for (i, (phases, law)) in cases.iter().enumerate() {
        assert!((phases.mean() / law.mean() - 1.0).abs() < 1e-12, "{i}");
        assert!(
            (phases.scv() / law.scv() - 1.0).abs() < 1e-9,
            "{i}: {} {}",
            phases.scv(),
            law.scv()
        );
        for t in [0.01, 0.3, 1.0, 2.0, 5.0, 20.0, 1e300] {
            let off = (phases.cdf(t) - law.cdf(t)).abs();
            assert!(off < 1e-12, "{i} at {t}: {off:e}");
            let s = Complex64::new(1.0 / t, 2.0 / t);
            assert!((phases.transform(s) - law.transform(s)).norm() < 1e-12, "{i} at {s}");
        }
    }
}

#[test]
fn a_cyclic_chain_agrees_with_its_transform_and_moments() {
    let law = cyclic();
    // By hand: (−T)m = 1.
    let m = [law.moment(1), law.moment(2), law.moment(3)];
    let (mean, scv) = crate::distribution::moments(law.mean(), |t| law.cdf(t)).unwrap();
    assert!((mean / m[0] - 1.0).abs() < 1e-8 && (scv / law.scv() - 1.0).abs() < 1e-6);
    // e^(−sX) to third order.
    let s = 1e-3 / m[0];
    let series = 1.0 - s * m[0] + s * s * m[1] / 2.0 - s.powi(3) * m[2] / 6.0;
    assert!((law.transform(Complex64::new(s, 0.0)).re - series).abs() < 1e-10);
    for t in [0.05, 0.5, 2.0, 10.0] {
        let off = law.cdf(t) - inversion::cdf(|s| law.transform(s), t);
        assert!(off.abs() < 1e-9, "{t}: {off:e}");
    }
    let again = PhaseType::new(law.initial(), &law.generator()).unwrap();
    assert!((again.mean() / law.mean() - 1.0).abs() < 1e-12);
}

#[test]
fn stiff_chains_keep_their_digits() {
    // A phase of 1e9 /s beside one of 1e-3 /s: 20,000 steps are not enough, powers are squared.
    let law = PhaseType::new(&[1.0, 0.0], &[vec![-1e9, 1e-1], vec![0.0, -1e-3]]).unwrap();
    let slow = 1e-10;
    assert!((law.mean() / (1e-9 + slow * 1e3) - 1.0).abs() < 1e-12);
    for t in [1e-9f64, 1.0, 1e3] {
        let exact = (1.0 - slow) * (-1e9 * t).exp() + slow * (-1e-3 * t).exp();
        assert!((1.0 - law.cdf(t) - exact).abs() < 1e-12, "{t}");
    }
    let h2 = Hyperexponential::new(&[(0.999, 1e-4), (0.001, 1.0)]).unwrap();
    let law = PhaseType::try_from(&h2).unwrap();
    for t in [1e-4, 0.1, 3.0, 10.0] {
        assert!((law.cdf(t) - h2.cdf(t)).abs() < 1e-10, "{t}");
    }
}

#[test]
fn an_atom_at_zero_is_what_is_missing() {
    let law = PhaseType::chain(&[0.25], &[2.0]).unwrap();
    assert_eq!(law.atoms(), vec![Atom { at: 0.0, share: 0.75 }]);
    assert!((law.cdf(0.0) - 0.75).abs() < 1e-15 && (law.mean() - 0.125).abs() < 1e-15);
    assert!((law.transform(Complex64::new(2.0, 0.0)).re - 0.875).abs() < 1e-15);
}

#[test]
fn a_million_phases_are_nearly_a_constant() {
    let law = Erlang::new(1_000_000, 0.01).unwrap();
    assert!((law.cdf(0.01) - 0.5).abs() < 1e-3);
    assert!(law.cdf(0.00995) < 1e-6 && law.cdf(0.01005) > 1.0 - 1e-6);
    let s = Complex64::new(300.0, 400.0);
    assert!((law.transform(s) / (-s * 0.01).exp() - 1.0).norm() < 1e-4);
}

#[test]
fn bad_chains_are_errors() {
    let bad = [f64::NAN, f64::INFINITY, -1.0];
    for x in bad {
        assert!(PhaseType::new(&[x], &[vec![-1.0]]).is_err());
        assert!(PhaseType::new(&[1.0], &[vec![x.abs()]]).is_err());
        assert!(PhaseType::new(&[1.0, 0.0], &[vec![-1.0, x], vec![0.0, -1.0]]).is_err());
        assert!(PhaseType::chain(&[1.0], &[x]).is_err());
        assert!(PhaseType::from_two_moments(x, 1.0).is_err());
        assert!(PhaseType::from_two_moments(1.0, x).is_err());
        assert!(PhaseType::from_three_moments([1.0, 1.5, x]).is_err());
        assert!(PhaseType::from_three_moments([1.0, x, 4.0]).is_err());
        assert!(PhaseType::from_three_moments([x, 1.5, 4.0]).is_err());
        assert!(
            HyperErlang::fit(&[(x, 1.0)], 3).is_err() && HyperErlang::fit(&[(1.0, x)], 3).is_err()
        );
    }
    assert!(PhaseType::new(&[], &[]).is_err() && PhaseType::chain(&[], &[]).is_err());
    assert!(PhaseType::new(&[1.0], &[]).is_err() && PhaseType::new(&[1.0], &[vec![]]).is_err());
    // Rows that add to more than 0, phases without a way out.
    assert!(PhaseType::new(&[1.0, 0.0], &[vec![-1.0, 2.0], vec![0.0, -1.0]]).is_err());
    assert!(PhaseType::new(&[1.0, 0.0], &[vec![-1.0, 1.0], vec![1.0, -1.0]]).is_err());
    assert!(HyperErlang::fit(&[], 3).is_err() && HyperErlang::fit(&[(0.0, 1.0)], 3).is_err());
    assert!(
        HyperErlang::fit(&[(1.0, 1.0)], 0).is_err() && HyperErlang::fit(&[(1.0, 1.0)], 51).is_err()
    );
    assert!(HyperErlang::fit_histogram(&Histogram::default(), 3).is_err());
    assert!(Erlang::new(0, 1.0).is_err() && Erlang::new(3, f64::NAN).is_err());
    assert!(Erlang::new(100_000, 1.0).unwrap().phase_type().is_err());
    assert!(HyperErlang::new(&[]).is_err());
    // Below the bound of any law, and beyond what 200 phases reach.
    assert!(PhaseType::from_three_moments([1.0, 2.0, 3.9]).is_err());
    assert!(PhaseType::from_three_moments([1.0, 1.001, 1.01]).is_err());
}

#[test]
fn few_phases_match_three_moments() {
    // Exponential, Erlang, gamma, lognormal-like: moments and the least number of phases.
    for (moments, phases) in [
        ([1.0, 2.0, 6.0], 1),
        ([1.0, 1.25, 1.875], 4),
        ([1.0, 1.5, 3.0], 2),
        ([1.0, 5.0, 45.0], 2),
        ([1.0, 5.0, 125.0], 2),
        ([1.0, 3.0, 14.0], 2),
    ] {
        let law = PhaseType::from_three_moments(moments).unwrap();
        assert_eq!(law.initial().len(), phases, "{moments:?}");
        for (k, moment) in moments.iter().enumerate() {
            let off = law.moment(k as u32 + 1) / moment - 1.0;
            assert!(off.abs() < 1e-9, "{moments:?}: moment {} off by {off:e}", k + 1);
        }
    }
}

#[test]
fn maximum_likelihood_finds_a_law_of_the_family_again() {
    let mut random = StdRng::seed_from_u64(3);
    let (quick, slow) =
        (GammaDraw::new(6.0, 0.001 / 6.0).unwrap(), GammaDraw::new(2.0, 0.005).unwrap());
    let values: Vec<(f64, f64)> = (0..20_000)
        .map(|i| {
            (if i % 4 == 0 { slow.sample(&mut random) } else { quick.sample(&mut random) }, 1.0)
        })
        .collect();
    let fit = HyperErlang::fit(&values, 8).unwrap();
    println!("{fit:?}");
    assert!(fit.converged);
    let mean = values.iter().map(|v| v.0).sum::<f64>() / 20_000.0;
    assert!((fit.law.mean() / mean - 1.0).abs() < 1e-9);
    let mut branches = fit.law.branches().to_vec();
    branches.sort_by(|a, b| a.mean.total_cmp(&b.mean));
    assert_eq!(branches.iter().map(|b| b.phases).collect::<Vec<_>>(), [6, 2]);
    assert!(
        (branches[0].share - 0.75).abs() < 0.02 && (branches[1].mean / 0.01 - 1.0).abs() < 0.05
    );
    // The likelihood that is reported is that of the law.
    let density = |x: f64| (fit.law.cdf(x * 1.0001) - fit.law.cdf(x * 0.9999)) / (2e-4 * x);
    let direct: f64 = values.iter().map(|v| density(v.0).ln()).sum();
    assert!((fit.log_likelihood / direct - 1.0).abs() < 2e-3, "{} {direct}", fit.log_likelihood);
    // More phases are not less likely by much more than a local maximum; one is.
    assert!(HyperErlang::fit(&values, 1).unwrap().log_likelihood < fit.log_likelihood - 1_000.0);
}

#[test]
fn a_histogram_is_fitted_with_its_mean() {
    let mut times = Histogram::default();
    let law = Gamma::new(0.004, 0.3).unwrap();
    for i in 0..5_000 {
        let t = law.quantile((f64::from(i) + 0.5) / 5_000.0).unwrap();
        times.record((t * 1e9) as u64);
    }
    let fit = HyperErlang::fit_histogram(&times, 10).unwrap();
    assert!((fit.law.mean() / times.mean_s() - 1.0).abs() < 1e-12);
    for k in 1..40 {
        let t = 0.0004 * f64::from(k);
        assert!((fit.law.cdf(t) - law.cdf(t)).abs() < 0.01, "{t}");
    }
    let phases = fit.law.phase_type().unwrap();
    assert!((phases.cdf(0.004) - fit.law.cdf(0.004)).abs() < 1e-10);
    // One value, over and over: the narrowest Erlang there is, and no spike.
    let fit = HyperErlang::fit(&[(0.002, 7.0)], 5).unwrap();
    assert!(
        (fit.law.mean() - 0.002).abs() < 1e-12 && (fit.law.scv() - 0.2).abs() < 1e-3,
        "{fit:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn two_moments_are_matched(mean in 1e-6f64..1e6, log_scv in -3.0f64..5.0) {
        let scv = 10f64.powf(log_scv).max(1e-3);
        let law = PhaseType::from_two_moments(mean, scv).unwrap();
        prop_assert!((law.mean() / mean - 1.0).abs() < 1e-11);
        prop_assert!((law.scv() / scv - 1.0).abs() < 1e-8, "{} {scv}", law.scv());
    }

    #[test]
    fn three_moments_of_phases_are_matched(
        rates in prop::collection::vec(0.05f64..20.0, 2..5), p in 0.05f64..1.0,
    ) {
        let mut initial = vec![0.0; rates.len()];
        initial[0] = p;
        initial[1] = 1.0 - p;
        let law = PhaseType::chain(&initial, &rates).unwrap();
        let moments = [law.moment(1), law.moment(2), law.moment(3)];
        let fitted = PhaseType::from_three_moments(moments).map_err(|e| TestCaseError::fail(format!("{e}: {moments:?}")))?;
        // An acyclic law of n phases is matched by one of at most n.
        prop_assert!(fitted.initial().len() <= rates.len(), "{} > {}", fitted.initial().len(), rates.len());
        for (k, moment) in moments.iter().enumerate() {
            let off = fitted.moment(k as u32 + 1) / moment - 1.0;
            prop_assert!(off.abs() < 1e-8, "moment {} off by {off:e}", k + 1);
        }
    }

    #[test]
    fn cdfs_rise_and_quantiles_invert(t in 0.0f64..20.0, dt in 0.0f64..2.0, p in 0.0f64..0.9999) {
        let law = cyclic();
        let (low, high) = (law.cdf(t), law.cdf(t + dt));
        prop_assert!((0.0..=1.0).contains(&low) && low <= high + 1e-13 && high <= 1.0);
        prop_assert!((law.cdf(law.quantile(p).unwrap()) - p).abs() < 1e-9);
    }

    #[test]
    fn hostile_chains_never_make_a_nan(a in any::<f64>(), b in any::<f64>(), c in any::<f64>(), t in any::<f64>()) {
        if let Ok(law) = PhaseType::new(&[1.0, 0.0], &[vec![-a, b], vec![c, -a]]) {
            prop_assert!(law.mean() > 0.0 && !law.scv().is_nan());
            prop_assert!((0.0..=1.0).contains(&law.cdf(t)));
        }
        if let Ok(law) = PhaseType::from_three_moments([a.abs(), b.abs(), c.abs()]) {
            prop_assert!((law.mean() / a.abs() - 1.0).abs() < 1e-6);
        }
        if let Ok(law) = PhaseType::from_two_moments(a, b) {
            prop_assert!((0.0..=1.0).contains(&law.cdf(a)));
        }
    }
}
