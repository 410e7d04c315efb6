use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::error::Error;
use crate::gold::json as gold;

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(number).collect()
}

fn close(found: f64, expected: f64, within: f64) {
    assert!((found - expected).abs() <= within * expected.abs().max(1e-300), "{found} {expected}");
}

fn point(size_bytes: f64, read_share: f64, throughput: f64) -> IoPoint {
    IoPoint { size_bytes, read_share, throughput }
}

/// A system of one size with these pure throughputs.
fn pure(reads: f64, writes: f64) -> IoCapacity {
    IoCapacity::fit(&[point(4096.0, 1.0, reads), point(4096.0, 0.0, writes)], 0.95).unwrap()
}

#[test]
fn identities_of_the_slides_hold() {
    let Some(file) = gold("seeds/att_identities.json") else { return };
    for row in file["rows"].as_array().unwrap() {
        let get = |key: &str| number(&row[key]);
        let system = pure(get("T100r"), get("T100w"));
        close(system.sizes()[0].write_cost.value, get("f_rw"), 1e-12);
        close(system.sizes()[0].capacity.value, get("C"), 1e-12);
        let at = system.throughput(4096.0, get("R_read") / 100.0).unwrap();
        close(at.total.value, get("T_total"), 1e-12);
        close(at.total.value / 100.0, get("k"), 1e-12);
        assert!(
            (at.reads - get("T_read")).abs() < 1e-9 && (at.writes - get("T_write")).abs() < 1e-9
        );
        close(at.reads + at.writes * get("f_rw"), get("C"), 1e-12);
        assert!(at.extrapolated.is_empty() && at.total.low.is_none());
    }
    for row in file["mixed_sizes"].as_array().unwrap() {
        let (shares, totals) = (numbers(&row["P"]), numbers(&row["T_pure"]));
        let read_share = number(&row["R_read"]) / 100.0;
        // Two sizes with those throughputs at that share of reads; writes thrice as dear.
        let mut points = Vec::new();
        for (size, total) in [4e3, 1e6].into_iter().zip(&totals) {
            let read_s = 1.0 / total / (read_share + 3.0 * (1.0 - read_share));
            points.extend([point(size, 1.0, 1.0 / read_s), point(size, 0.0, 1.0 / read_s / 3.0)]);
        }
        let system = IoCapacity::fit(&points, 0.95).unwrap();
        let part = |(size_bytes, &share)| MixPart { size_bytes, read_share, share };
        let parts: Vec<MixPart> = [4e3, 1e6].into_iter().zip(&shares).map(part).collect();
        let by = |by| system.mix(&parts, by).unwrap();
        let arithmetic = number(&row["slides_arithmetic_if_P_is_capacity_share"]);
        let harmonic = number(&row["capacity_consistent_harmonic_if_P_is_IO_share"]);
        close(by(Shares::Capacity).total.value, arithmetic, 1e-12);
        close(by(Shares::Ios).total.value, harmonic, 1e-12);
        assert_eq!(by(Shares::Capacity).by, Some(Shares::Capacity));
    }
}

#[test]
fn the_law_of_two_points_stands_alone() {
    // A disk that reads 200/s and writes 100/s: half of each, a pair takes 5 + 10 ms.
    let at = pure(200.0, 100.0).throughput(4096.0, 0.5).unwrap();
    close(at.total.value, 2.0 / 0.015, 1e-12);
    // Two points need not be the pure ones.
    let between = |share: f64| 1.0 / (share / 200.0 + (1.0 - share) / 100.0);
    let points = [point(8.0, 0.7, between(0.7)), point(8.0, 0.4, between(0.4))];
    let system = IoCapacity::fit(&points, 0.95).unwrap();
    close(system.sizes()[0].capacity.value, 200.0, 1e-12);
    close(system.sizes()[0].write_throughput.value, 100.0, 1e-12);
    assert_eq!(system.throughput(8.0, 1.0).unwrap().extrapolated.len(), 1, "marked");
    assert_eq!(system.throughput(8.0, 0.5).unwrap().extrapolated.len(), 0);
}

/// Sixteen numbers without order.
const OFF: [f64; 16] =
    [0.3, -0.9, 0.6, -0.2, -0.5, 0.8, -0.7, 0.4, 0.9, -0.1, 0.2, -0.8, -0.6, 0.1, -0.3, 0.7];

/// Points of a system with affine cost, off by up to this much in a fixed pattern without order.
fn affine_points(noise: f64) -> Vec<IoPoint> {
    let mut points = Vec::new();
    for (i, size) in [512.0, 4096.0, 16_384.0, 65_536.0].into_iter().enumerate() {
        for (j, read) in [0.0, 0.3, 0.7, 1.0].into_iter().enumerate() {
            let seconds = read * (1e-4 + 2e-9 * size) + (1.0 - read) * (3e-4 + 5e-9 * size);
            let off = noise * OFF[4 * i + j];
            points.push(point(size, read, (1.0 + off) / seconds));
        }
    }
    points
}

#[test]
fn cost_between_sizes_is_affine() {
    let system = IoCapacity::fit(&affine_points(0.0), 0.95).unwrap();
    let affine = system.affine().unwrap();
    close(affine.read_fixed_s.value, 1e-4, 1e-9);
    close(affine.write_byte_s.value, 5e-9, 1e-9);
    let at = system.throughput(8192.0, 0.5).unwrap();
    close(
        at.total.value,
        1.0 / (0.5 * (1e-4 + 2e-9 * 8192.0) + 0.5 * (3e-4 + 5e-9 * 8192.0)),
        1e-9,
    );
    assert_eq!((at.basis, at.extrapolated.len()), (Basis::Affine, 0));
    let far = system.throughput(1e6, 0.5).unwrap();
    assert_eq!(far.extrapolated.len(), 1, "{:?}", far.extrapolated);
    assert_eq!(system.throughput(512.0, 0.5).unwrap().basis, Basis::Size);

    let system = IoCapacity::fit(&affine_points(0.05), 0.95).unwrap();
    let affine = system.affine().unwrap();
    let fixed = affine.write_fixed_s;
    assert!(fixed.low.unwrap() < 3e-4 && fixed.high.unwrap() > 3e-4, "{fixed:?}");
    assert!(affine.lack_of_fit.unwrap() > 0.05, "{affine:?}");
    assert!((0.01..0.06).contains(&system.scatter().unwrap()));
    let cost = system.sizes()[0].write_cost;
    assert!(cost.low.unwrap() < cost.value && cost.value < cost.high.unwrap());
    let total = system.throughput(8192.0, 0.5).unwrap().total;
    assert!(total.low.unwrap() < total.value && total.value < total.high.unwrap());
}

#[test]
fn a_step_in_cost_is_noticed() {
    let mut points = affine_points(0.002);
    points.iter_mut().filter(|p| p.size_bytes == 16_384.0).for_each(|p| p.throughput *= 0.6);
    let system = IoCapacity::fit(&points, 0.95).unwrap();
    assert!(system.affine().unwrap().lack_of_fit.unwrap() < 1e-3);
    assert!(system.warnings().iter().any(|w| w.contains("not affine")), "{:?}", system.warnings());
}

#[test]
fn intervals_hold_what_they_should() {
    use rand::SeedableRng;
    use rand_distr::{Distribution, Normal};
    let mut random = rand::rngs::StdRng::seed_from_u64(7);
    let noise = Normal::new(1.0, 0.03).unwrap();
    let (mut held, mut held_cost, mut held_mix) = (0, 0, 0);
    let mix = |size_bytes, share| MixPart { size_bytes, read_share: 0.5, share };
    const TRIES: usize = 400;
    for _ in 0..TRIES {
        let mut points = affine_points(0.0);
        points.iter_mut().for_each(|p| p.throughput *= noise.sample(&mut random));
        let system = IoCapacity::fit(&points, 0.9).unwrap();
        let inside = |e: crate::regression::Estimated, truth: f64| {
            usize::from(e.low.unwrap() <= truth && truth <= e.high.unwrap())
        };
        let seconds = |size: f64| 0.5 * (4e-4 + 7e-9 * size);
        held += inside(system.throughput(8192.0, 0.5).unwrap().total, 1.0 / seconds(8192.0));
        let size = &system.sizes()[1];
        held_cost += inside(size.write_cost, (3e-4 + 5e-9 * 4096.0) / (1e-4 + 2e-9 * 4096.0));
        let parts = [mix(512.0, 0.25), mix(65_536.0, 0.75)];
        let truth = 0.25 / seconds(512.0) + 0.75 / seconds(65_536.0);
        held_mix += inside(system.mix(&parts, Shares::Capacity).unwrap().total, truth);
    }
    for held in [held, held_cost, held_mix] {
        // 90 % ± 3 standard deviations of 400 tries.
        assert!((342..=378).contains(&held), "{held} of {TRIES}");
    }
}

#[test]
fn bad_tables_are_named() {
    let fit = |points: &[IoPoint]| IoCapacity::fit(points, 0.95);
    assert!(matches!(fit(&[]), Err(Error::TooFew { got: 0, .. })));
    assert!(matches!(fit(&[point(8.0, 1.0, 5.0)]), Err(Error::TooFew { .. })));
    let same = [point(8.0, 0.5, 5.0), point(8.0, 0.5, 6.0)];
    assert!(matches!(fit(&same), Err(Error::TooFew { .. })));
    let near = [point(8.0, 0.9, 5.0), point(8.0, 0.8, 500.0)];
    assert!(matches!(fit(&near), Err(Error::Contradictory { .. })));
    for bad in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e300] {
        assert!(fit(&[point(8.0, 1.0, bad), point(8.0, 0.0, 1.0)]).is_err());
        assert!(fit(&[point(bad, 1.0, 5.0), point(8.0, 0.0, 1.0)]).is_err());
        assert!(IoCapacity::fit(&[point(8.0, 1.0, 5.0), point(8.0, 0.0, 1.0)], bad).is_err());
    }
    let system = pure(10.0, 5.0);
    assert!(matches!(system.throughput(1.0, 0.5), Err(Error::SizeNotMeasured { .. })));
    assert!(system.throughput(4096.0, 1.5).is_err());
    assert!(matches!(system.mix(&[], Shares::Ios), Err(Error::TooFew { .. })));
    let half = MixPart { size_bytes: 4096.0, read_share: 0.5, share: 0.5 };
    assert!(system.mix(&[half], Shares::Ios).is_err(), "shares sum to 1");
    // A cost that falls with size is negative far out: named, not answered.
    let falling =
        [point(1e3, 1.0, 9.0), point(1e3, 0.0, 9.0), point(2e3, 1.0, 10.0), point(2e3, 0.0, 10.0)];
    let system = fit(&falling).unwrap();
    assert!(matches!(system.throughput(1e6, 0.5), Err(Error::Contradictory { .. })));
}

fn scalable(points: &[(f64, f64)]) -> Vec<ScalablePoint> {
    points
        .iter()
        .map(|&(concurrency, throughput)| ScalablePoint { concurrency, throughput })
        .collect()
}

#[test]
fn scalability_agrees_with_r() {
    for name in ["raytracer6", "specsdm91"] {
        let Some(file) = gold(&format!("usl/{name}.json")) else { return };
        let points: Vec<(f64, f64)> =
            numbers(&file["x"]).into_iter().zip(numbers(&file["y"])).collect();
        let law = Scalability::fit(&scalable(&points), 0.95).unwrap();
        let fit = &file["fit"];
        let names = ["alpha", "beta", "gamma"];
        let found = [law.contention(), law.coherency(), law.unit()];
        let t = crate::statistics::student(0.95, (points.len() - 3) as f64).unwrap();
        let mut worst = 0.0f64;
        for ((name, found), se) in names.iter().zip(found).zip(numbers(&fit["se"])) {
            worst = worst.max((found.value / number(&fit[*name]) - 1.0).abs());
            // The gold of specsdm91 is 2e-6 off its own minimum, which 40 digits of arithmetic give
            // below.
            close(found.value, number(&fit[*name]), 5e-6);
            close((found.high.unwrap() - found.low.unwrap()) / (2.0 * t), se, 2e-4);
        }
        close(law.sse(), number(&fit["rss"]), 1e-9);
        let peak = law.peak().unwrap();
        close(peak.concurrency.value, number(&fit["n_max"]), 5e-6);
        assert!(peak.concurrency.low.unwrap() < peak.concurrency.value);
        if let Some(published) = file["published"].get("peak_throughput") {
            close(peak.throughput, number(published), 1e-3);
        }
        println!("{name}: worst error {worst:.1e}");
    }
}

#[test]
fn scalability_stands_alone() {
    // R's data set specsdm91; the minimum by Gauss and Newton in 40 digits.
    let x = [1.0, 18.0, 36.0, 72.0, 108.0, 144.0, 216.0];
    let y = [64.9, 995.9, 1652.4, 1853.2, 1828.9, 1775.0, 1702.2];
    let points: Vec<(f64, f64)> = x.into_iter().zip(y).collect();
    let law = Scalability::fit(&scalable(&points), 0.95).unwrap();
    close(law.unit().value, 89.995_233_104_332_21, 1e-9);
    close(law.contention().value, 0.027_728_475_618_634_39, 1e-9);
    close(law.coherency().value, 0.000_104_365_483_844_090_88, 1e-9);
    // The curve passes 39 % over the one point at N = 1.
    assert!(law.warnings().iter().any(|w| w.contains("+39 % off at 1")), "{:?}", law.warnings());
}

#[test]
fn laws_of_amdahl_and_of_proportion_are_found() {
    let amdahl: Vec<(f64, f64)> = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
        .map(|n: f64| (n, 10.0 * n / (1.0 + 0.1 * (n - 1.0))))
        .to_vec();
    let law = Scalability::fit(&scalable(&amdahl), 0.95).unwrap();
    close(law.contention().value, 0.1, 1e-9);
    assert!(law.coherency().value < 1e-9);
    let proportional: Vec<(f64, f64)> = [1.0, 2.0, 4.0, 8.0].map(|n: f64| (n, 7.0 * n)).to_vec();
    let law = Scalability::fit(&scalable(&proportional), 0.95).unwrap();
    close(law.throughput(8.0).unwrap().throughput.value, 56.0, 1e-9);
    // Faster than in proportion: held at 0, and said.
    let faster = scalable(&[(1.0, 10.0), (2.0, 22.0), (4.0, 48.0), (8.0, 104.0)]);
    let law = Scalability::fit(&faster, 0.95).unwrap();
    assert_eq!((law.contention().value, law.coherency().value), (0.0, 0.0));
    assert!(law.warnings().iter().any(|w| w.contains("held at 0")), "{:?}", law.warnings());
    assert_eq!((law.peak(), law.ceiling()), (None, None));
    assert_eq!(Scalability::new(10.0, 0.1, 0.0).unwrap().ceiling(), Some(100.0));
}

#[test]
fn bad_scalability_is_named() {
    let fit = |points: &[(f64, f64)]| Scalability::fit(&scalable(points), 0.95);
    assert!(matches!(fit(&[]), Err(Error::TooFew { .. })));
    assert!(matches!(
        fit(&[(1.0, 1.0), (2.0, 2.0), (2.0, 2.1)]),
        Err(Error::TooFew { got: 2, .. })
    ));
    for bad in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e300] {
        assert!(fit(&[(1.0, bad), (2.0, 2.0), (3.0, 3.0)]).is_err());
        assert!(fit(&[(bad, 1.0), (2.0, 2.0), (3.0, 3.0)]).is_err());
        assert!(Scalability::new(bad, 0.0, 0.0).is_err());
    }
    let three = fit(&[(1.0, 1.0), (2.0, 1.8), (4.0, 3.0)]).unwrap();
    assert_eq!(three.unit().low, None);
    assert!(three.warnings().iter().any(|w| w.contains("no intervals")));
    // Throughput that falls from the start has its peak at 1.
    let law = Scalability::new(10.0, 1.5, 0.1).unwrap();
    assert_eq!(law.peak().unwrap().concurrency.value, 1.0);
}

proptest! {
    #[test]
    fn exact_points_give_their_law_back(
        unit in 0.01f64..1e6, contention in 0.0f64..0.9, coherency in 1e-7f64..0.1,
    ) {
        let truth = Scalability::new(unit, contention, coherency).unwrap();
        let points: Vec<(f64, f64)> = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]
            .map(|n| (n, truth.throughput(n).unwrap().throughput.value))
            .to_vec();
        let law = Scalability::fit(&scalable(&points), 0.95).unwrap();
        prop_assert!((law.unit().value / unit - 1.0).abs() < 1e-6);
        prop_assert!((law.contention().value - contention).abs() < 1e-6);
        prop_assert!((law.coherency().value - coherency).abs() < 1e-6);
        let (peak, twin) = (law.peak().unwrap(), truth.peak().unwrap());
        // No whole concurrency does better.
        for n in 1..200 {
            let x = truth.throughput(f64::from(n)).unwrap().throughput.value;
            prop_assert!(x <= twin.throughput * (1.0 + 1e-9));
        }
        prop_assert!(peak.throughput.is_finite());
    }

    #[test]
    fn fits_never_panic_or_give_a_nan(
        points in prop::collection::vec((1.0f64..1e4, 1e-3f64..1e6), 0..12),
    ) {
        if let Ok(law) = Scalability::fit(&scalable(&points), 0.95) {
            for e in [law.unit(), law.contention(), law.coherency()] {
                prop_assert!(e.value.is_finite() && e.value >= 0.0);
                prop_assert!(e.low.is_none_or(f64::is_finite) && e.high.is_none_or(f64::is_finite));
            }
            // A local minimum: no small step of one parameter is better.
            let cost = |p: [f64; 3]| -> f64 {
                points.iter().map(|&(n, x)| {
                    let d = 1.0 + p[1] * (n - 1.0) + p[2] * n * (n - 1.0);
                    (x - p[0] * n / d).powi(2)
                }).sum()
            };
            let at = [law.unit().value, law.contention().value, law.coherency().value];
            let least = cost(at);
            for j in 0..3 {
                for by in [0.999, 1.001] {
                    let mut other = at;
                    other[j] *= by;
                    prop_assert!(cost(other) >= least * (1.0 - 1e-6), "{at:?} {other:?}");
                }
            }
        }
        let io: Vec<IoPoint> = points
            .iter()
            .map(|&(n, x)| point(if n < 5e3 { 512.0 } else { 4096.0 }, (n * 7.3).fract(), x))
            .collect();
        if let Ok(system) = IoCapacity::fit(&io, 0.95) {
            for size in [512.0, 4096.0, 1e5] {
                if let Ok(at) = system.throughput(size, 0.4) {
                    prop_assert!(at.total.value.is_finite() && at.total.value > 0.0);
                }
            }
        }
    }
}
