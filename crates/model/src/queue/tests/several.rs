//! Several servers: the approximation of M/G/m against the exact M/PH/m, and that against other
//! truths.

use super::*;

/// A generator of `k` phases of one rate in a row, of mean 1: Erlang, SCV 1/k.
fn erlang(k: usize) -> (Vec<f64>, Vec<Vec<f64>>) {
    let rate = k as f64;
    let row = |i: usize| {
        (0..k)
            .map(|j| {
                if j == i {
                    -rate
                } else if j == i + 1 {
                    rate
                } else {
                    0.0
                }
            })
            .collect()
    };
    ((0..k).map(|i| f64::from(u8::from(i == 0))).collect(), (0..k).map(row).collect())
}

/// The exact queue with Erlang service (SCV 1/k) or two balanced branches, of mean 1.
fn exact(servers: u32, rho: f64, scv: f64) -> (Mphm, Box<dyn ServiceTime>) {
    let rate = rho * f64::from(servers);
    if scv > 1.0 {
        let p = 0.5 * (1.0 + ((scv - 1.0) / (scv + 1.0)).sqrt());
        let rows: [&[f64]; 2] = [&[-2.0 * p, 0.0], &[0.0, -2.0 * (1.0 - p)]];
        let law = Hyperexponential::balanced(1.0, scv).unwrap();
        return (Mphm::new(rate, servers, &[p, 1.0 - p], &rows).unwrap(), Box::new(law));
    }
    let (start, rows) = erlang((1.0 / scv).round() as usize);
    let rows: Vec<&[f64]> = rows.iter().map(Vec::as_slice).collect();
    let law = Gamma::new(1.0, scv).unwrap();
    (Mphm::new(rate, servers, &start, &rows).unwrap(), Box::new(law))
}

/// A law by reference, for [`Mgm`].
#[derive(Clone, Copy)]
struct ByRef<'a>(&'a dyn ServiceTime);

impl ServiceTime for ByRef<'_> {
    fn mean(&self) -> f64 {
        self.0.mean()
    }
    fn scv(&self) -> f64 {
        self.0.scv()
    }
    fn transform(&self, s: Complex64) -> Complex64 {
        self.0.transform(s)
    }
    fn cdf(&self, t: f64) -> f64 {
        self.0.cdf(t)
    }
    fn transform_line(&self, re: f64, step: f64, out: &mut [Complex64]) {
        self.0.transform_line(re, step, out);
    }
}

/// Largest differences of the response-time CDFs: of [`Mgm`], and of the plain [`Evaluated`].
fn distance(servers: u32, rho: f64, scv: f64) -> (f64, f64) {
    let (truth, law) = exact(servers, rho, scv);
    let queue = Mgm::new(rho * f64::from(servers), servers, ByRef(law.as_ref())).unwrap();
    let (mut worst, mut plain) = (0.0f64, 0.0f64);
    for k in 1..60 {
        let t = truth.response_mean() * 0.1 * f64::from(k);
        let expected = truth.response_cdf(t);
        worst = worst.max((queue.response_cdf(t) - expected).abs());
        let other = Evaluated::new(law.as_ref(), servers, t).response_cdf(rho * f64::from(servers));
        plain = plain.max((other - expected).abs());
    }
    (worst, plain)
}

#[test]
fn m_ph_m_is_exact() {
    // One phase is M/M/m, one server M/G/1.
    let (one, naive) =
        (Mphm::new(3.4, 4, &[1.0], &[&[-1.0]]).unwrap(), Mmm::new(3.4, 1.0, 4).unwrap());
    let h2 = Hyperexponential::balanced(1.0, 3.0).unwrap();
    let single = exact(1, 0.8, 3.0).0;
    let by_transform = Mg1::new(0.8, h2).unwrap();
    let (two, erlang) =
        (exact(1, 0.9, 0.2).0, Mg1::new(0.9, Gamma::new(1.0, 0.2).unwrap()).unwrap());
    for t in [0.0, 0.1, 0.5, 1.0, 3.0, 9.0, 30.0] {
        assert!((one.response_cdf(t) - naive.response_cdf(t)).abs() < 1e-12, "{t}");
        assert!((one.waiting_cdf(t) - naive.waiting_cdf(t)).abs() < 1e-12, "{t}");
        assert!((single.waiting_cdf(t) - by_transform.waiting_cdf(t)).abs() < 1e-9, "{t}");
        assert!((single.response_cdf(t) - by_transform.response_cdf(t)).abs() < 1e-9, "{t}");
        assert!((two.response_cdf(t) - erlang.response_cdf(t)).abs() < 1e-9, "{t}");
    }
    for (ph, other) in
        [(&one as &dyn Queue, &naive as &dyn Queue), (&single, &by_transform), (&two, &erlang)]
    {
        assert!((ph.waiting_mean() / other.waiting_mean() - 1.0).abs() < 1e-10);
        assert!((ph.waiting_variance() / other.waiting_variance() - 1.0).abs() < 1e-6);
    }
    // Two equal branches are one.
    let rows: [&[f64]; 2] = [&[-1.0, 0.0], &[0.0, -1.0]];
    let same = Mphm::new(3.4, 4, &[0.3, 0.7], &rows).unwrap();
    assert!((same.waiting_probability() / naive.waiting_probability() - 1.0).abs() < 1e-12);
    assert!((same.response_cdf(2.0) - naive.response_cdf(2.0)).abs() < 1e-12);
}

/// Responses with several servers, each request to the first that is free: Kiefer's and Wolfowitz's
/// vector.
fn simulate(
    rho: f64,
    servers: usize,
    jobs: usize,
    mut draw: impl FnMut(&mut StdRng) -> f64,
) -> Vec<f64> {
    let mut random = StdRng::seed_from_u64(21);
    let gaps = Exp::new(rho * servers as f64).unwrap();
    let mut work = vec![0.0f64; servers];
    let mut responses = Vec::with_capacity(jobs);
    for i in 0..jobs + jobs / 10 {
        let least = (0..servers).min_by(|&a, &b| work[a].total_cmp(&work[b])).unwrap();
        let time = draw(&mut random);
        if i >= jobs / 10 {
            responses.push(work[least] + time);
        }
        work[least] += time;
        let gap = gaps.sample(&mut random);
        work.iter_mut().for_each(|w| *w = (*w - gap).max(0.0));
    }
    responses
}

/// Largest difference from a simulation's CDF, and the half width there.
fn simulated_distance(
    law: &dyn ServiceTime,
    rho: f64,
    servers: u32,
    responses: &[f64],
) -> (f64, f64) {
    let queue = Mgm::new(rho * f64::from(servers), servers, ByRef(law)).unwrap();
    let mut worst = (0.0f64, 0.0f64);
    for k in 1..30 {
        let t = queue.response_mean() * 0.15 * f64::from(k);
        let share = |b: &[f64]| b.iter().filter(|x| **x <= t).count() as f64 / b.len() as f64;
        let batches: Vec<f64> = responses.chunks(responses.len() / 25).map(share).collect();
        let simulated = batch_means(&batches).unwrap();
        let off = (queue.response_cdf(t) - simulated.mean).abs();
        if off > worst.0 {
            worst = (off, simulated.half_width);
        }
    }
    worst
}

#[test]
fn m_g_m_is_near_the_exact_laws() {
    for (scv, servers, limit) in [
        (0.1, 2, 0.005),
        (0.25, 2, 0.004),
        (0.25, 4, 0.004),
        (0.5, 2, 0.000_2),
        (0.5, 16, 0.000_6),
        (2.0, 3, 2e-5),
        (4.0, 2, 3e-5),
        (4.0, 8, 3e-5),
        (4.0, 36, 0.001_5),
    ] {
        for rho in [0.3, 0.7, 0.9, 0.95] {
            if servers > 8 && rho != 0.9 {
                continue;
            }
            let (worst, plain) = distance(servers, rho, scv);
            assert!(worst < limit, "SCV {scv}, {servers} servers, {rho}: {worst}");
            assert!(worst <= plain, "SCV {scv}, {servers} servers, {rho}: {worst} {plain}");
        }
    }
}

#[test]
fn m_g_m_is_near_simulated_laws() {
    const JOBS: usize = 500_000;
    for (rho, servers, scv) in [(0.5, 2u32, 4.0), (0.8, 4, 1.5), (0.8, 16, 4.0)] {
        let v = f64::ln_1p(scv);
        let (gamma, heavy) =
            (GammaDraw::new(1.0 / scv, scv).unwrap(), LogNormal::new(-v / 2.0, v.sqrt()).unwrap());
        let of_gamma = simulate(rho, servers as usize, JOBS, |r| gamma.sample(r));
        let of_heavy = simulate(rho, servers as usize, JOBS, |r| heavy.sample(r));
        let laws: [(Box<dyn ServiceTime>, &[f64]); 2] = [
            (Box::new(Gamma::new(1.0, scv).unwrap()), &of_gamma),
            (Box::new(Lognormal::new(1.0, scv).unwrap()), &of_heavy),
        ];
        for (law, responses) in laws {
            let (off, half) = simulated_distance(law.as_ref(), rho, servers, responses);
            println!("SCV {scv}, {servers} servers, {rho}: {off:.4} ± {half:.4}");
            assert!(off < 0.005 + 1.5 * half, "SCV {scv}, {servers} servers, {rho}: {off} {half}");
        }
    }
}

#[test]
fn m_g_m_meets_its_limits() {
    // One server is M/G/1, exponential service M/M/m, constant service Crommelin's.
    let law = Gamma::new(1.0, 0.4).unwrap();
    let (one, exact) = (Mgm::new(0.8, 1, law).unwrap(), Mg1::new(0.8, law).unwrap());
    let exponential = Mgm::new(3.4, 4, Exponential::new(1.0).unwrap()).unwrap();
    let naive = Mmm::new(3.4, 1.0, 4).unwrap();
    for t in [0.1, 0.5, 1.0, 3.0, 9.0] {
        assert!((one.response_cdf(t) - exact.response_cdf(t)).abs() < 2e-5, "{t}");
        assert!((exponential.response_cdf(t) - naive.response_cdf(t)).abs() < 2e-5, "{t}");
    }
    // M/D/1's twin, and M/D/5 at 0.9, of Tijms's table of delay probabilities.
    let constant = Mgm::new(4.5, 5, Deterministic::new(1.0).unwrap()).unwrap();
    assert!(constant.waiting_probability() < erlang_c(5, 0.9));
    let ten_thousand = Mgm::new(9_900.0, 10_000, law).unwrap();
    assert!((0.0..1.0).contains(&ten_thousand.waiting_probability()));
    assert!(ten_thousand.response_cdf(1.0) < ten_thousand.response_cdf(2.0));
}
