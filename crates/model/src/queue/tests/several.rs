//! Several servers: the approximation of M/G/m against the exact M/PH/m, and that against other truths.

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

#[test]
#[ignore = "prints a table"]
fn table_of_distances() {
    for scv in [0.1, 0.25, 0.5, 2.0, 4.0] {
        for servers in [2, 3, 4, 8, 16, 32] {
            if scv < 0.5 && servers > if scv < 0.2 { 2 } else { 6 } {
                continue;
            }
            for rho in [0.3, 0.5, 0.7, 0.8, 0.9, 0.95] {
                let (worst, plain) = distance(servers, rho, scv);
                println!(
                    "{scv} {servers} {rho}: {:.3} plain {:.3} points",
                    worst * 100.0,
                    plain * 100.0
                );
            }
        }
    }
}
