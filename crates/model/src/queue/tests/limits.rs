//! Limits, identities and bad input of the queues with several servers and of other arrivals.

use super::*;
use crate::error::Error;

#[test]
fn erlang_b_agrees_with_its_definition_and_holds_for_millions() {
    for (m, a) in [(1u32, 0.5f64), (3, 2.0), (10, 12.0), (40, 30.0)] {
        let terms: Vec<f64> = (0..=m)
            .scan(1.0, |t, k| {
                if k > 0 {
                    *t *= a / f64::from(k)
                };
                Some(*t)
            })
            .collect();
        let naive = terms[m as usize] / terms.iter().sum::<f64>();
        assert!((erlang_b(m, a) / naive - 1.0).abs() < 1e-13);
    }
    // Sharply loaded: B ≈ √(2/(πm)).
    let m = 4_000_000;
    let b = erlang_b(m, f64::from(m));
    assert!((b * (std::f64::consts::PI * f64::from(m) / 2.0).sqrt() - 1.0).abs() < 1e-3, "{b}");
    let many = Mmm::new(9_950.0, 1.0, 10_000).unwrap();
    let total: f64 = (9_000..20_000).map(|n| many.number_probability(n)).sum();
    assert!((total - 1.0).abs() < 1e-10, "{total}");
    for (offered, expected) in [(f64::NAN, 1.0), (f64::INFINITY, 1.0), (-3.0, 0.0), (0.0, 0.0)] {
        assert_eq!(erlang_b(5, offered), expected);
    }
    assert_eq!(Mmm::new(1.0, 1e3, 1_000).unwrap().waiting_probability(), 0.0);
    assert!(
        (Mmm::new(1.0, 1.0, 1_000).unwrap().number_probability(1) - (-1.0f64).exp()).abs() < 1e-12
    );
}

#[test]
fn one_server_is_m_m_1() {
    let (one, naive) = (Mmm::new(80.0, 100.0, 1).unwrap(), Mm1::new(80.0, 100.0).unwrap());
    for t in [0.0, 0.001, 0.02, 0.1, 0.4] {
        assert!((one.response_cdf(t) - naive.response_cdf(t)).abs() < 1e-13);
    }
    for n in [0, 1, 7] {
        assert!((one.number_probability(n) - naive.number_probability(n)).abs() < 1e-14);
    }
}

#[test]
fn gi_m_1_agrees_with_closed_forms() {
    let poisson = Gim1::new(&Exponential::new(0.0125).unwrap(), 100.0).unwrap();
    assert!((poisson.waiting_probability() - 0.8).abs() < 1e-11);
    // E2/M/1: σ solves a quadratic.
    let (rho, regular) = (0.8f64, Gim1::new(&Gamma::new(0.0125, 0.5).unwrap(), 100.0).unwrap());
    let sigma = 0.5 * (1.0 + 4.0 * rho - (1.0 + 8.0 * rho).sqrt());
    assert!((regular.waiting_probability() - sigma).abs() < 1e-11, "{sigma}");
    // D/M/1 at 0.999: 1 − σ ≈ 2(1 − ρ), less by the next term of the series.
    let clock = Gim1::new(&Deterministic::new(1.0).unwrap(), 1.0 / 0.999).unwrap();
    assert!((1.0 - clock.waiting_probability() - 2e-3).abs() < 5e-6);
    for law in
        [&Exponential::new(1.0).unwrap() as &dyn ServiceTime, &Deterministic::new(1.0).unwrap()]
    {
        for rate in [1.0, 0.5, 1.0 + 1e-15, f64::NAN, 0.0] {
            assert!(Gim1::new(law, rate).is_err(), "{rate}");
        }
        for rate in [1.0 + 1e-9, 1e12] {
            let queue = Gim1::new(law, rate).unwrap();
            assert!(queue.response_mean() > 0.0 && queue.waiting_mean().is_finite());
        }
    }
}

#[test]
fn gi_m_1_agrees_with_simulation() {
    let mut random = StdRng::seed_from_u64(3);
    for (scv, rho) in [(0.1, 0.3), (0.1, 0.95), (4.0, 0.3), (4.0, 0.7), (2.0, 0.9)] {
        let queue = Gim1::new(&Gamma::new(1.0, scv).unwrap(), 1.0 / rho).unwrap();
        let (gaps, service) =
            (GammaDraw::new(1.0 / scv, scv).unwrap(), Exp::new(1.0 / rho).unwrap());
        const JOBS: usize = 1_000_000;
        let mut waiting = 0.0f64;
        let mut times = Vec::with_capacity(JOBS);
        for i in 0..JOBS + JOBS / 10 {
            let time: f64 = service.sample(&mut random);
            if i >= JOBS / 10 {
                times.push(waiting + time);
            }
            let gap: f64 = gaps.sample(&mut random);
            waiting = (waiting + time - gap).max(0.0);
        }
        for part in [0.2, 0.7, 1.5, 3.0] {
            let t = part * queue.response_mean();
            let share = |b: &[f64]| b.iter().filter(|x| **x <= t).count() as f64 / b.len() as f64;
            let batches: Vec<f64> = times.chunks(JOBS / 25).map(share).collect();
            let simulated = batch_means(&batches).unwrap();
            let off = (queue.response_cdf(t) - simulated.mean).abs();
            assert!(off < 2.0 * simulated.half_width + 5e-4, "{scv} {rho} {t}: {off}");
        }
    }
}

#[test]
fn bad_queues_are_named() {
    let law = Exponential::new(1.0).unwrap();
    for rate in [2.0, 1e300] {
        assert!(matches!(Mmm::new(rate, 1.0, 2), Err(Error::Unstable { .. })));
        assert!(matches!(Mgm::new(rate, 2, law), Err(Error::Unstable { .. })));
        assert!(matches!(Mphm::new(rate, 2, &[1.0], &[&[-1.0]]), Err(Error::Unstable { .. })));
    }
    for bad in [f64::NAN, f64::INFINITY, -1.0] {
        assert!(Mmm::new(bad, 1.0, 2).is_err() && Mmm::new(1.0, bad, 2).is_err());
        assert!(Gim1::new(&law, bad).is_err() && Mgm::new(bad, 2, law).is_err());
        assert!(Mphm::new(bad, 2, &[1.0], &[&[-1.0]]).is_err());
        assert!(Mphm::new(1.0, 2, &[bad], &[&[-1.0]]).is_err());
        assert!(Mphm::new(1.0, 2, &[1.0], &[&[-bad]]).is_err());
    }
    assert!(Mmm::new(1.0, 1.0, 0).is_err());
    // Phases that never end, too many states, shapes that do not fit.
    assert!(Mphm::new(1.0, 2, &[1.0, 0.0], &[&[-1.0, 1.0], &[1.0, -1.0]]).is_err());
    assert!(Mphm::new(1.0, 600, &[0.5, 0.5], &[&[-1.0, 0.0], &[0.0, -1.0]]).is_err());
    assert!(Mphm::new(1.0, 2, &[0.5, 0.5], &[&[-1.0, 0.0]]).is_err());
    assert!(Mphm::new(1.0, 2, &[0.5, 0.4], &[&[-1.0, 0.0], &[0.0, -1.0]]).is_err());
    assert!(Mphm::new(0.5, 2, &[], &[]).is_err());
    let idle = Mphm::new(0.0, 2, &[1.0], &[&[-1.0]]).unwrap();
    assert!(
        idle.waiting_mean() == 0.0
            && (idle.response_cdf(1.0) - 1.0 + (-1.0f64).exp()).abs() < 1e-12
    );
    assert!(Mgm::new(0.0, 3, law).unwrap().waiting_mean() == 0.0);
}

#[test]
fn quantiles_of_next_to_nothing_end() {
    let queue = Mmm::new(1.0, 2.0, 3).unwrap();
    for p in [5e-324, 1e-300, 1e-30, 1e-12] {
        let t = queue.response_quantile(p).unwrap();
        assert!((0.0..=1.0).contains(&t) && queue.response_cdf(t) >= p, "{p:e}: {t:e}");
    }
}

proptest! {
    #[test]
    fn a_random_queue_never_answers_nan(
        rate in any::<f64>(), service in any::<f64>(), t in any::<f64>(), m in 0u32..50,
        p in any::<f64>(),
    ) {
        let mut queues: Vec<Box<dyn Queue>> = Vec::new();
        if let Ok(q) = Mmm::new(rate, service, m) { queues.push(Box::new(q)); }
        for queue in queues {
            prop_assert!((0.0..=1.0).contains(&queue.response_cdf(t)));
            prop_assert!((0.0..=1.0).contains(&queue.waiting_cdf(t)));
            let numbers = [queue.utilisation(), queue.blocking(), queue.number_mean(),
                queue.waiting_number_mean(), queue.waiting_variance(), queue.response_variance()];
            prop_assert!(numbers.iter().all(|x| *x >= 0.0), "{numbers:?}");
            if let Ok(t) = queue.response_quantile(p) { prop_assert!(t >= 0.0); }
        }
    }

}

/// Within a millionth of saturation the transform is a difference of nearly equal numbers; the 99th percentile came out below the mean.
#[test]
fn waits_next_to_saturation_are_exponential() {
    let service = Exponential::new(0.0062).unwrap();
    for left in [1e-4, 4e-5, 1e-5, 1e-6, 1e-8, 1e-11] {
        let rate = (1.0 - left) / 0.0062;
        let queue = Mg1::new(rate, service).unwrap();
        let mean = queue.response_mean();
        for p in [0.1f64, 0.5, 0.99] {
            let time = -(1.0 - p).ln() * mean;
            for found in [
                queue.response_cdf(time),
                queue.waiting_cdf(time),
                Evaluated::new(&service, 1, time).response_cdf(rate),
                Evaluated::new(&service, 4, time / 4.0).response_cdf(4.0 * rate),
            ] {
                assert!((found - p).abs() < 1e-3, "{left} {p} {found}");
            }
        }
        assert!((queue.response_quantile(0.99).unwrap() / mean - 4.605).abs() < 0.05, "{left}");
    }
}
