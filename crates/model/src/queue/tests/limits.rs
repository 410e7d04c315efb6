//! Limits, identities and bad input of the queues with several servers, few places, few sources, other
//! arrivals, priorities.

use super::*;

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
fn one_server_and_many_places_are_m_m_1() {
    let (one, naive) = (Mmm::new(80.0, 100.0, 1).unwrap(), Mm1::new(80.0, 100.0).unwrap());
    let many = Mmmk::new(80.0, 100.0, 1, 400).unwrap();
    for t in [0.0, 0.001, 0.02, 0.1, 0.4] {
        assert!((one.response_cdf(t) - naive.response_cdf(t)).abs() < 1e-13);
        assert!((many.response_cdf(t) - naive.response_cdf(t)).abs() < 1e-12);
        assert!((many.waiting_cdf(t) - naive.waiting_cdf(t)).abs() < 1e-12);
    }
    for n in [0, 1, 7] {
        assert!((one.number_probability(n) - naive.number_probability(n)).abs() < 1e-14);
    }
    let (m, k) = (Mmm::new(350.0, 100.0, 4).unwrap(), Mmmk::new(350.0, 100.0, 4, 400).unwrap());
    for t in [0.001, 0.02, 0.1, 0.4] {
        assert!((m.response_cdf(t) - k.response_cdf(t)).abs() < 1e-12);
    }
    let lost = Mmmk::new(20.0, 1.0, 25, 25).unwrap();
    assert!((lost.blocking() / erlang_b(25, 20.0) - 1.0).abs() < 1e-12);
    assert!((lost.waiting_mean(), lost.waiting_cdf(0.0)) == (0.0, 1.0));
}

#[test]
fn a_million_places_and_any_load_are_no_trouble() {
    for rate in [0.0, 1e-300, 1e-9, 99.0, 100.0, 1e3, 1e15] {
        let queue = Mmmk::new(rate, 1.0, 100, 100_000).unwrap();
        for t in [0.0, 1.0, 50.0, 1e3, 1e9] {
            let (w, r) = (queue.waiting_cdf(t), queue.response_cdf(t));
            assert!((0.0..=1.0).contains(&r) && r <= w && w <= 1.0, "{rate} {t}: {r} {w}");
        }
        let little: f64 = (0..=100_000).map(|n| f64::from(n) * queue.number_probability(n)).sum();
        assert!((queue.number_mean() - little).abs() <= 1e-8 * little, "{rate}: {little}");
    }
}

#[test]
fn engset_is_a_closed_system() {
    for (sources, servers) in [(1, 1), (10, 1), (50, 4), (300, 300), (1_000, 40)] {
        let queue = Engset::delay(sources, 0.5, 2.0, servers).unwrap();
        let interactive = f64::from(sources) / queue.throughput() - 2.0;
        assert!((queue.response_mean() / interactive - 1.0).abs() < 1e-9, "{sources} {servers}");
        assert_eq!(queue.blocking(), 0.0);
        let loss = Engset::loss(sources, 0.5, 2.0, servers).unwrap();
        // Erlang's system, with as many requests/s, refuses more.
        assert!(loss.blocking() <= erlang_b(servers, f64::from(sources) * 0.25));
        let offered = (f64::from(sources) - loss.number_mean()) * 0.5;
        assert!((loss.throughput() - offered * (1.0 - loss.blocking())).abs() < 1e-9 * offered);
    }
    // Many sources, each rarely: Erlang's.
    let many = Engset::loss(1_000_000, 2e-5, 1.0, 25).unwrap();
    assert!((many.blocking() / erlang_b(25, 20.0) - 1.0).abs() < 1e-3);
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

/// Waiting and response times of classes before one server, the longest waiting of the most urgent first.
fn simulate_classes(
    rates: &[f64],
    jobs: usize,
    mut draw: impl FnMut(usize, &mut StdRng) -> f64,
) -> Vec<Vec<f64>> {
    let mut random = StdRng::seed_from_u64(9);
    let total: f64 = rates.iter().sum();
    let gaps = Exp::new(total).unwrap();
    let mut lines: Vec<std::collections::VecDeque<f64>> = vec![Default::default(); rates.len()];
    let mut waits: Vec<Vec<f64>> = vec![Vec::new(); rates.len()];
    let (mut free, mut arrival) = (0.0f64, gaps.sample(&mut random));
    for _ in 0..jobs {
        let next = lines.iter().position(|l| !l.is_empty());
        if next.is_none() {
            free = free.max(arrival);
        }
        while arrival <= free {
            let uniform: f64 = rand_distr::StandardUniform.sample(&mut random);
            let mut at = uniform * total;
            let class = rates
                .iter()
                .position(|r| {
                    at -= r;
                    at < 0.0
                })
                .unwrap_or(0);
            lines[class].push_back(arrival);
            arrival += gaps.sample(&mut random);
        }
        let class = lines.iter().position(|l| !l.is_empty()).unwrap();
        let came = lines[class].pop_front().unwrap();
        waits[class].push(free - came);
        free += draw(class, &mut random);
    }
    waits
}

#[test]
fn priorities_agree_with_simulation_and_cobham() {
    let laws = [
        Gamma::new(1.0, 0.25).unwrap(),
        Gamma::new(0.5, 2.0).unwrap(),
        Gamma::new(2.0, 1.0).unwrap(),
    ];
    let rates = [0.25, 0.5, 0.2];
    let classes: Vec<(f64, &dyn ServiceTime)> =
        rates.iter().zip(&laws).map(|(r, l)| (*r, l as &dyn ServiceTime)).collect();
    let queue = Priorities::new(&classes).unwrap();
    let draws: Vec<_> = [(1.0, 0.25), (0.5, 2.0), (2.0, 1.0)]
        .iter()
        .map(|(mean, scv): &(f64, f64)| GammaDraw::new(1.0 / scv, mean * scv).unwrap())
        .collect();
    let waits = simulate_classes(&rates, 1_500_000, |class, random| draws[class].sample(random));
    for (k, waits) in waits.iter().enumerate() {
        let class = queue.class(k).unwrap();
        let size = waits.len() / 25;
        let batches = |of: &dyn Fn(f64) -> f64| {
            let each: Vec<f64> = waits
                .chunks_exact(size)
                .map(|c| c.iter().map(|w| of(*w)).sum::<f64>() / size as f64)
                .collect();
            batch_means(&each).unwrap()
        };
        let mean = batches(&|w| w);
        assert!(
            (mean.mean - class.waiting_mean()).abs() < 2.0 * mean.half_width,
            "class {k}: {mean:?}"
        );
        let square = batches(&|w| w * w);
        let stated = class.waiting_variance() + class.waiting_mean().powi(2);
        assert!(
            (square.mean - stated).abs() < 2.5 * square.half_width,
            "class {k}: {square:?} {stated}"
        );
        for part in [0.0, 0.3, 1.0, 2.0, 4.0] {
            let t = part * class.waiting_mean();
            let share = batches(&|w| f64::from(u8::from(w <= t)));
            let off = (class.waiting_cdf(t) - share.mean).abs();
            assert!(
                off < 2.0 * share.half_width + 5e-4,
                "class {k} at {t}: off by {off}, {share:?}"
            );
        }
    }
    // Work is conserved: Σρₖ·Wₖ does not depend on the order.
    let work: f64 =
        (0..3).map(|k| queue.class(k).unwrap()).map(|c| c.utilisation() * c.waiting_mean()).sum();
    let rho = queue.utilisation();
    let remaining: f64 =
        classes.iter().map(|(r, l)| r * l.mean().powi(2) * (1.0 + l.scv()) / 2.0).sum();
    assert!((work - rho * remaining / (1.0 - rho)).abs() < 1e-12);
}

#[test]
fn a_single_class_is_m_g_1() {
    let law = Gamma::new(0.01, 0.25).unwrap();
    let (classes, one) = (Priorities::new(&[(90.0, &law)]).unwrap(), Mg1::new(90.0, law).unwrap());
    let class = classes.class(0).unwrap();
    assert!((class.waiting_mean() / one.waiting_mean() - 1.0).abs() < 1e-12);
    assert!((class.waiting_variance() / one.waiting_variance() - 1.0).abs() < 1e-12);
    for t in [0.005, 0.02, 0.07, 0.3] {
        assert!((class.response_cdf(t) - one.response_cdf(t)).abs() < 1e-9);
        assert!((class.waiting_cdf(t) - one.waiting_cdf(t)).abs() < 1e-9);
    }
}

#[test]
fn bad_queues_are_named() {
    let law = Exponential::new(1.0).unwrap();
    for rate in [2.0, 1e300] {
        assert!(matches!(Mmm::new(rate, 1.0, 2), Err(Error::Unstable { .. })));
        assert!(matches!(Mgm::new(rate, 2, law), Err(Error::Unstable { .. })));
        assert!(matches!(Mphm::new(rate, 2, &[1.0], &[&[-1.0]]), Err(Error::Unstable { .. })));
        assert!(matches!(Priorities::new(&[(rate, &law)]), Err(Error::Unstable { .. })));
    }
    for bad in [f64::NAN, f64::INFINITY, -1.0] {
        assert!(Mmm::new(bad, 1.0, 2).is_err() && Mmm::new(1.0, bad, 2).is_err());
        assert!(Mmmk::new(bad, 1.0, 2, 3).is_err() && Mmmk::new(1.0, bad, 2, 3).is_err());
        assert!(Mminf::new(bad, 1.0).is_err() && Mminf::new(1.0, bad).is_err());
        assert!(Engset::loss(5, bad, 1.0, 2).is_err() && Engset::delay(5, 1.0, bad, 2).is_err());
        assert!(Gim1::new(&law, bad).is_err() && Mgm::new(bad, 2, law).is_err());
        assert!(Mphm::new(bad, 2, &[1.0], &[&[-1.0]]).is_err());
        assert!(Mphm::new(1.0, 2, &[bad], &[&[-1.0]]).is_err());
        assert!(Mphm::new(1.0, 2, &[1.0], &[&[-bad]]).is_err());
        assert!(Priorities::new(&[(bad, &law)]).is_err());
        assert!(square_root_staffing(bad, 1.0).is_err() && square_root_staffing(1.0, bad).is_err());
        assert!(Mmm::of_unlike_servers(1.0, &[1.0, bad]).is_err());
    }
    assert!(Mmm::new(1.0, 1.0, 0).is_err() && Mmm::of_unlike_servers(1.0, &[]).is_err());
    assert!(Mmmk::new(1.0, 1.0, 3, 2).is_err() && Mmmk::new(1.0, 1.0, 0, 0).is_err());
    assert!(Mmmk::new(1.0, 1.0, 1, u32::MAX).is_err());
    assert!(Engset::loss(0, 1.0, 1.0, 1).is_err() && Mgm::new(0.0, 0, law).is_err());
    assert!(Priorities::new(&[]).is_err() && square_root_staffing(1e300, 1.0).is_err());
    assert!(Priorities::new(&[(0.5, &law)]).unwrap().class(1).is_err());
    // Phases that never end, too many states, shapes that do not fit.
    assert!(Mphm::new(1.0, 2, &[1.0, 0.0], &[&[-1.0, 1.0], &[1.0, -1.0]]).is_err());
    assert!(Mphm::new(1.0, 600, &[0.5, 0.5], &[&[-1.0, 0.0], &[0.0, -1.0]]).is_err());
    assert!(Mphm::new(1.0, 2, &[0.5, 0.5], &[&[-1.0, 0.0]]).is_err());
    assert!(Mphm::new(1.0, 2, &[0.5, 0.4], &[&[-1.0, 0.0], &[0.0, -1.0]]).is_err());
    assert!(Mphm::new(0.5, 2, &[], &[]).is_err());
    assert!(Engset::delay(5, 0.0, 1.0, 2).unwrap().throughput() == 0.0);
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
        rate in any::<f64>(), service in any::<f64>(), t in any::<f64>(), m in 0u32..50, k in 0u32..80,
        p in any::<f64>(),
    ) {
        let mut queues: Vec<Box<dyn Queue>> = Vec::new();
        if let Ok(q) = Mmm::new(rate, service, m) { queues.push(Box::new(q)); }
        if let Ok(q) = Mminf::new(rate, service) { queues.push(Box::new(q)); }
        if let Ok(q) = Mmmk::new(rate, service, m, k) { queues.push(Box::new(q)); }
        if let Ok(q) = Engset::loss(k, rate, service, m) { queues.push(Box::new(q)); }
        if let Ok(q) = Engset::delay(k, rate, service, m) { queues.push(Box::new(q)); }
        for queue in queues {
            prop_assert!((0.0..=1.0).contains(&queue.response_cdf(t)));
            prop_assert!((0.0..=1.0).contains(&queue.waiting_cdf(t)));
            let numbers = [queue.utilisation(), queue.blocking(), queue.number_mean(),
                queue.waiting_number_mean(), queue.waiting_variance(), queue.response_variance()];
            prop_assert!(numbers.iter().all(|x| *x >= 0.0), "{numbers:?}");
            if let Ok(t) = queue.response_quantile(p) { prop_assert!(t >= 0.0); }
        }
    }

    #[test]
    fn finite_chains_agree_with_balance(rate in 0.01f64..20.0, m in 1u32..6, more in 0u32..8) {
        let k = m + more;
        let queue = Mmmk::new(rate, 1.0, m, k).unwrap();
        for n in 0..k {
            let (up, down) = (rate * queue.number_probability(n), f64::from((n + 1).min(m)) * queue.number_probability(n + 1));
            prop_assert!((up - down).abs() < 1e-12);
        }
        prop_assert!((queue.throughput() - rate * (1.0 - queue.blocking())).abs() < 1e-11);
        let number: f64 = (0..=k).map(|n| f64::from(n) * queue.number_probability(n)).sum();
        prop_assert!((queue.number_mean() - number).abs() < 1e-11);
    }
}
