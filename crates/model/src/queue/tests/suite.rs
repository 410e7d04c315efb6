//! One behaviour suite for every queue, and the gold numbers of the open queues.

use super::*;

/// Moments by integrating what a CDF leaves, by Simpson's rule over intervals that grow, from an
/// inner scale.
fn moments(cdf: &dyn Fn(f64) -> f64, scale: f64) -> (f64, f64) {
    let (mut first, mut second) = (0.0, 0.0);
    let (mut low, mut high) = (0.0, scale * 1e-3);
    let mut a = 1.0 - cdf(low);
    while high < 1e6 * scale && a > 1e-12 {
        let step = (high - low) / 12.0;
        for i in 0..12 {
            let at = |part: f64| low + (f64::from(i) + part) * step;
            let (b, c) = (1.0 - cdf(at(0.5)), 1.0 - cdf(at(1.0)));
            first += step / 6.0 * (a + 4.0 * b + c);
            second += 2.0 * step / 6.0 * (at(0.0) * a + 4.0 * at(0.5) * b + at(1.0) * c);
            a = c;
        }
        (low, high) = (high, 1.5 * high);
    }
    (first, second - first * first)
}

/// What every queue must do, with its CDFs good to `error`.
pub(super) fn behaves(name: &str, queue: &dyn Queue, error: f64) {
    let (mean, deviation) = (queue.response_mean(), queue.response_variance().sqrt());
    assert!(mean > 0.0 && deviation > 0.0, "{name}");
    assert!((0.0..=1.0).contains(&queue.utilisation()), "{name}");
    assert!((0.0..=1.0).contains(&queue.blocking()), "{name}");
    assert!((queue.number_mean() / queue.throughput() / mean - 1.0).abs() < 1e-12);
    for t in [-1.0, f64::NAN, f64::NEG_INFINITY] {
        assert_eq!((queue.waiting_cdf(t), queue.response_cdf(t)), (0.0, 0.0), "{name} at {t}");
    }
    for t in [f64::INFINITY, 1e300] {
        assert_eq!((queue.waiting_cdf(t), queue.response_cdf(t)), (1.0, 1.0), "{name} at {t}");
    }
    assert!(queue.response_cdf(0.0) < 1e-15, "{name}");
    let times: Vec<f64> = (0..200).map(|i| mean * 0.1 * f64::from(i)).collect();
    let together = queue.response_cdfs(&times);
    let (mut waiting, mut response) = (0.0, 0.0);
    for (t, also) in times.iter().zip(together) {
        let (w, r) = (queue.waiting_cdf(*t), queue.response_cdf(*t));
        assert!(
            w >= waiting - error && r >= response - error,
            "{name} falls at {t}: {w} {waiting}"
        );
        assert!(r <= w + error && w <= 1.0, "{name} at {t}: {r} {w}");
        assert!((r - also).abs() <= (5.0 * error).max(1e-5), "{name} at {t}: {r} {also}");
        (waiting, response) = (w, r);
    }
    let mut before = (0.0, 0.0);
    for p in [0.0, 0.1, 0.5, 0.9, 0.99, 0.999, 0.999_999, 0.999_999_99] {
        let (w, r) = (queue.waiting_quantile(p).unwrap(), queue.response_quantile(p).unwrap());
        assert!(w >= before.0 && r >= before.1, "{name}: quantiles fall at {p}");
        // From both sides, since a law may jump.
        assert!(queue.response_cdf(r * (1.0 + 1e-9)) >= p - error.max(1e-9), "{name}: {p}");
        assert!(queue.response_cdf(r * (1.0 - 1e-9)) <= p + error.max(1e-9), "{name}: {p}");
        assert!(queue.waiting_cdf(w) >= p - error.max(1e-9), "{name}: {p}");
        before = (w, r);
    }
    for p in [-0.1, 1.0, f64::NAN] {
        assert!(
            queue.waiting_quantile(p).is_err() && queue.response_quantile(p).is_err(),
            "{name}"
        );
    }
    let waits = moments(&|t| queue.waiting_cdf(t), deviation);
    let responds = moments(&|t| queue.response_cdf(t), deviation);
    for (what, found, stated) in [
        ("waiting mean", waits.0, queue.waiting_mean()),
        ("waiting deviation", waits.1.max(0.0).sqrt(), queue.waiting_variance().sqrt()),
        ("response mean", responds.0, mean),
        ("response deviation", responds.1.sqrt(), deviation),
    ] {
        let off = (found - stated).abs() / deviation;
        assert!(off < (100.0 * error).max(1e-4), "{name}: {what} {found} {stated}");
    }
}

#[test]
fn every_queue_behaves() {
    let gamma = Gamma::new(0.01, 0.4).unwrap();
    let h2 = Hyperexponential::balanced(0.01, 4.0).unwrap();
    let h2_rows: [&[f64]; 2] = [&[-200.0, 0.0], &[0.0, -1.0 / 0.055]];
    let queues: Vec<(&str, Box<dyn Queue + '_>, f64)> = vec![
        ("M/M/1", Box::new(Mm1::new(80.0, 100.0).unwrap()), 1e-12),
        ("M/M/3", Box::new(Mmm::new(240.0, 100.0, 3).unwrap()), 1e-12),
        ("M/M/2, equal rates", Box::new(Mmm::new(50.0, 50.0, 2).unwrap()), 1e-12),
        ("M/M/2000", Box::new(Mmm::new(1_980.0, 1.0, 2_000).unwrap()), 1e-12),
        ("GI/M/1", Box::new(Gim1::new(&gamma, 130.0).unwrap()), 1e-12),
        ("M/D/1", Box::new(Md1::new(80.0, 0.01).unwrap()), 1e-5),
        ("M/G/1", Box::new(Mg1::new(80.0, gamma).unwrap()), 1e-8),
        ("M/H2/1", Box::new(Mg1::new(80.0, h2.clone()).unwrap()), 1e-8),
        ("M/G/3", Box::new(Mgm::new(240.0, 3, gamma).unwrap()), 1e-5),
        ("M/H2/2", Box::new(Mgm::new(150.0, 2, h2.clone()).unwrap()), 1e-5),
        ("M/PH/2", Box::new(Mphm::new(150.0, 2, &[0.9, 0.1], &h2_rows).unwrap()), 1e-11),
    ];
    for (name, queue, error) in queues {
        behaves(name, queue.as_ref(), error);
    }
}

#[test]
fn m_m_m_agrees_with_gold() {
    for name in ["mmm_a", "mmm_b", "mmm_c", "mmm_degenerate"] {
        let Some(file) = gold(&format!("sojourn/{name}.json")) else { return };
        let m = file["m"].as_u64().unwrap() as u32;
        let queue = Mmm::new(number(&file["lam"]), number(&file["mu"]), m).unwrap();
        check_sojourn(name, queue.response_mean(), |t| queue.response_cdf(t));
    }
}

/// Checks means against octave's.
fn check_octave(name: &str, queue: impl Fn(&[serde_json::Value]) -> (Box<dyn Queue>, f64)) {
    let Some(file) = gold(&format!("octave/{name}.json")) else { return };
    let (queue, idle) = queue(file["args"].as_array().unwrap());
    let out = |key: &str| number(&file["out"][key]);
    for (what, found, expected) in [
        ("U", queue.utilisation(), out("U")),
        ("R", queue.response_mean(), out("R")),
        ("Q", queue.number_mean(), out("Q")),
        ("X", queue.throughput(), out("X")),
        ("p0", idle, out("p0")),
    ] {
        let off = (found / expected - 1.0).abs();
        assert!(off < 1e-11, "{name}: {what} {found} {expected}");
    }
}

#[test]
fn open_queues_agree_with_octave() {
    for name in ["mmm_a", "mmm_b", "mmm_c"] {
        check_octave(name, |args| {
            let m = args[2].as_u64().unwrap() as u32;
            let queue = Mmm::new(number(&args[0]), number(&args[1]), m).unwrap();
            (Box::new(queue), queue.number_probability(0))
        });
    }
    if let Some(file) = gold("octave/erlb_a.json") {
        let expected = number(&file["out"]["B"]);
        assert!((erlang_b(25, 20.0) / expected - 1.0).abs() < 1e-14);
    }
    if let Some(file) = gold("octave/erlc_a.json") {
        let (offered, m) = (number(&file["args"][0]), file["args"][1].as_u64().unwrap() as u32);
        let found = erlang_c(m, offered / f64::from(m));
        assert!((found / number(&file["out"]["C"]) - 1.0).abs() < 1e-13);
    }
}

/// The rows of a CSV file of the gold numbers, without its head.
#[allow(clippy::disallowed_methods)] // A test may read what it checks against.
fn rows(name: &str) -> Option<Vec<Vec<String>>> {
    let path = format!("{}/../../../shared/gold/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).ok()?;
    let cells = |line: &str| line.split(',').map(str::to_owned).collect();
    Some(text.lines().skip(1).map(cells).collect())
}

#[test]
fn recomputed_tables_of_the_asl_report_agree() {
    let Some(verdicts) = rows("seeds/verdict_mm1_mmm.csv") else { return };
    let tables = [
        (13, "13_mm1_wt8", 3_814.9, 1),
        (14, "14_mm1_wt16", 5_159.4, 1),
        (15, "15_mm1_wt32", 6_776.7, 1),
        (16, "16_mm1_wt64", 8_283.9, 1),
        (17, "17_mmm_wt16", 64.718, 32),
        (18, "18_mmm_wt32", 64.718, 64),
        (19, "19_mmm_wt64", 64.718, 128),
        (20, "20_mmm_wt32", 105.886, 64),
        (25, "25_mmm_wt8", 238.431, 16),
        (26, "26_mmm_wt16", 161.231, 32),
    ];
    let (mut checked, mut worst) = (0, 0.0f64);
    for (table, file, service_rate, servers) in tables {
        let inputs = rows(&format!("seeds/asl_table{file}.csv")).unwrap();
        for input in &inputs {
            let rate: f64 = input[1].parse().unwrap();
            let queue = Mmm::new(rate, service_rate, servers).unwrap();
            let mine = verdicts.iter().filter(|v| v[0] == table.to_string() && v[1] == input[0]);
            for verdict in mine {
                let found = match verdict[2].as_str() {
                    "rho" => queue.utilisation(),
                    "E_n" => queue.number_mean(),
                    "E_nq" => queue.waiting_number_mean(),
                    "E_r_ms" => queue.response_mean() * 1e3,
                    _ => queue.waiting_mean() * 1e3,
                };
                let expected: f64 = verdict[4].parse().unwrap();
                let off = (found / expected - 1.0).abs();
                assert!(off < 1e-9, "table {table}, {verdict:?}: {found}");
                (checked, worst) = (checked + 1, worst.max(off));
            }
        }
    }
    assert_eq!(checked, verdicts.len());
    println!("{checked} cells, worst {worst:.1e}");
}

/// Simulated CDFs of ciw, within three half widths.
fn check_ciw(name: &str, queue: &dyn Queue) {
    let Some(file) = gold(&format!("ciw/{name}.json")) else { return };
    let off = (queue.response_mean() - number(&file["mean"])).abs();
    let half = number(&file["mean_ci95_half"]);
    println!("{name}: mean off by {:.2} half widths", off / half);
    assert!(off < 3.0 * half, "{name}: mean {}", queue.response_mean());
    for row in file["cdf"].as_array().unwrap() {
        let (t, expected, half) = (number(&row[0]), number(&row[1]), number(&row[2]));
        let found = queue.response_cdf(t);
        println!("{name} at {t}: {:+.2} half widths", (found - expected) / half);
        assert!((found - expected).abs() < 3.0 * half, "{name} at {t}: {found} {expected}");
    }
}

#[test]
fn simulated_responses_of_ciw_agree() {
    let gamma = Gamma::new(0.01, 0.25).unwrap();
    check_ciw("md1_80", &Md1::new(80.0, 0.01).unwrap());
    check_ciw("mg1_gamma25_70", &Mg1::new(70.0, gamma).unwrap());
    check_ciw("mg3_gamma25_80", &Mgm::new(240.0, 3, gamma).unwrap());
    let lognormal = Lognormal::new(0.01, 1.5).unwrap();
    check_ciw("mg4_lognormal_75", &Mgm::new(300.0, 4, lognormal).unwrap());
    check_ciw("mm3_70", &Mmm::new(2.1, 1.0, 3).unwrap());
}
