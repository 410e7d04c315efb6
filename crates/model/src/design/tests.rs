use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;

use super::letters::letters;
use super::*;
use crate::gold::text as gold_text;
use crate::regression::Estimated;

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

fn cells_of(file: &Value) -> Vec<Vec<f64>> {
    let row = |cell: &Value| cell.as_array().unwrap().iter().map(number).collect();
    file["y"].as_array().unwrap().iter().map(row).collect()
}

fn bounds(e: Estimated) -> (f64, f64) {
    (e.low.unwrap(), e.high.unwrap())
}

fn jain_18_1() -> Vec<Vec<f64>> {
    [[15., 18., 12.], [45., 48., 51.], [25., 28., 19.], [75., 75., 81.]]
        .map(|c| c.to_vec())
        .to_vec()
}

/// Table 27 of the ASL report: means and errors of 3 runs.
fn asl_27() -> Vec<Vec<f64>> {
    [
        [3409.86, 3348.97, 3334.07],
        [4299.05, 4317.13, 4340.53],
        [2678.67, 2692.26, 2594.66],
        [3738.69, 3690.19, 3759.92],
        [5839.29, 5815.37, 5843.73],
        [7338.98, 7299.57, 7325.34],
        [4813.49, 4767.69, 4778.02],
        [6765.6, 6779.05, 6801.35],
    ]
    .map(|c| c.to_vec())
    .to_vec()
}

#[test]
fn factorials_agree_with_gold() {
    for name in ["jain_ex18_1", "asl_table27", "asl_table27_ln"] {
        let Some(text) = gold_text(&format!("doe/{name}.json")) else { return };
        let file: Value = serde_json::from_str(&text).unwrap();
        let found = Factorial::new(&cells_of(&file), Form::Additive, 0.90).unwrap();
        let mut worst = 0.0f64;
        let mut close = |found: f64, expected: &Value, scale: f64| {
            let off = (found - number(expected)).abs() / number(expected).abs().max(scale);
            worst = worst.max(off);
            assert!(off < 1e-9, "{name}: {found} {expected}");
        };
        let q0 = number(&file["q"]["I"]).abs();
        close(found.mean.value, &file["q"]["I"], 0.0);
        close(bounds(found.mean).0, &file["ci90"]["I"][0], 0.0);
        for effect in &found.effects {
            close(effect.effect.value, &file["q"][&effect.name], 1e-4 * q0);
            let (low, high) = bounds(effect.effect);
            close(low, &file["ci90"][&effect.name][0], 1e-4 * q0);
            close(high, &file["ci90"][&effect.name][1], 1e-4 * q0);
            close(effect.fraction, &file["fraction"][&effect.name], 1e-4);
        }
        close(found.error_sum_of_squares, &file["SSE"], 0.0);
        close(found.total_sum_of_squares, &file["SST"], 0.0);
        close(found.error_fraction, &file["fraction_error"], 0.0);
        close(found.error_deviation.unwrap(), &file["s_e"], 0.0);
        println!("{name}: worst error {worst:.1e}");
    }
    // The multiplicative form takes the logarithms itself.
    let Some(text) = gold_text("doe/asl_table27_ln.json") else { return };
    let file: Value = serde_json::from_str(&text).unwrap();
    let found = Factorial::new(&asl_27(), Form::Multiplicative, 0.90).unwrap();
    for effect in &found.effects {
        assert!((effect.effect.value - number(&file["q"][&effect.name])).abs() < 1e-9);
    }
}

#[test]
fn the_reports_table_27_stands_alone() {
    // By the definition: A is half the difference of the means at its high and low level.
    let cells = asl_27();
    let found = Factorial::new(&cells, Form::Additive, 0.90).unwrap();
    let all: Vec<f64> = cells.iter().flatten().copied().collect();
    let at = |high: bool| -> f64 {
        let chosen = cells.iter().enumerate().filter(|(i, _)| (i & 1 == 1) == high);
        chosen.flat_map(|(_, c)| c).sum::<f64>() / 12.0
    };
    let a = 0.5 * (at(true) - at(false));
    assert!((found.effects[0].effect.value - a).abs() < 1e-9);
    let grand = all.iter().sum::<f64>() / 24.0;
    let total: f64 = all.iter().map(|y| (y - grand).powi(2)).sum();
    assert!((found.effects[0].fraction - 24.0 * a * a / total).abs() < 1e-12);
    // Printed 0.003 unexplained in logarithms (Table 10), by a formula with 4 for 24: it is 0.0005.
    let log = Factorial::new(&cells, Form::Multiplicative, 0.90).unwrap();
    assert!((log.error_fraction - 0.0005).abs() < 5e-5, "{}", log.error_fraction);
    let low_to_high = log.effects[0].low_to_high.value;
    assert!((low_to_high - (2.0f64 * 0.145_687).exp()).abs() < 1e-5, "{low_to_high}");
}

/// The printed tables of effects: of each the name, the mean estimate and the fraction.
fn printed(name: &str) -> Option<Vec<(String, f64, f64)>> {
    let text = gold_text(&format!("seeds/{name}.csv"))?;
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        (cells[0][1..].to_owned(), cells[1].parse().unwrap(), cells[2].parse().unwrap())
    };
    Some(text.lines().skip(1).filter(|l| !l.is_empty()).map(row).collect())
}

#[test]
fn printed_effects_of_the_report_reproduce() {
    let cases = [
        ("asl_table28_2k_write_additive_throughput", Form::Additive, 0.03),
        ("asl_table10_2k_write_multiplicative_throughput", Form::Multiplicative, 6e-5),
    ];
    for (name, form, within) in cases {
        let Some(rows) = printed(name) else { return };
        let found = Factorial::new(&asl_27(), form, 0.90).unwrap();
        for (effect, q, fraction) in rows {
            let ours = found.effects.iter().find(|e| e.name == effect).unwrap();
            assert!((ours.effect.value - q).abs() < within, "{name} {effect}");
            // The printed fractions have 4·q² against an SSE in full: explained parts shrink a
            // little.
            let wrong = 4.0 * ours.effect.value.powi(2);
            let explained: f64 = found.effects.iter().map(|e| 4.0 * e.effect.value.powi(2)).sum();
            let share = wrong / (explained + found.error_sum_of_squares);
            assert!((share - fraction).abs() < 6e-4, "{name} {effect}: {share} {fraction}");
        }
    }
    // All eight tables: from the printed unexplained part to the right one, u/6 / (1 − u + u/6).
    let texts = [("asl_table11_2k_write_multiplicative_latency", 0.108, 0.0198)];
    for (name, unexplained, right) in texts {
        let Some(rows) = printed(name) else { return };
        let sum: f64 = rows.iter().map(|row| row.2).sum();
        assert!((1.0 - sum - unexplained).abs() < 4e-3, "{name}");
        let sixth: f64 = unexplained / 6.0;
        assert!((sixth / (1.0 - unexplained + sixth) - right).abs() < 1e-4);
    }
}

#[test]
fn one_replication_says_what_it_can() {
    // Jain, table 17.2: performance in MIPS by memory and cache; q = 40, 20, 10, 5.
    let cells = [15., 45., 25., 75.].map(|y| vec![y]);
    let found = Factorial::new(&cells, Form::Additive, 0.95).unwrap();
    let q: Vec<f64> = found.effects.iter().map(|e| e.effect.value).collect();
    assert_eq!((found.mean.value, &q[..]), (40.0, &[20.0, 10.0, 5.0][..]));
    assert!((found.effects[0].fraction - 0.76).abs() < 0.005, "76 % by memory");
    assert_eq!(found.intervals, IntervalBasis::Lenth);
    assert!(found.warnings[0].contains("repeat"), "{:?}", found.warnings);
    let two = Factorial::new(&[vec![1.0], vec![2.0]], Form::Additive, 0.95).unwrap();
    assert_eq!((two.intervals, two.effects[0].effect.low), (IntervalBasis::None, None));
    // Lenth by hand: of 15 effects one is large; 14 are ±1, so 1.5 times their median is the error.
    let mut q = [1.0; 16];
    (q[0], q[3]) = (100.0, 50.0);
    let y = |run: usize| -> f64 {
        (0..16)
            .map(|m: usize| if (m & !run).count_ones().is_multiple_of(2) { q[m] } else { -q[m] })
            .sum()
    };
    let cells: Vec<Vec<f64>> = (0..16).map(|run| vec![y(run)]).collect();
    let found = Factorial::new(&cells, Form::Additive, 0.95).unwrap();
    let t = crate::statistics::student(0.95, 5.0).unwrap();
    let (low, high) = bounds(found.effect(3).unwrap().effect);
    assert!((low - (50.0 - 1.5 * t)).abs() < 1e-9 && (high - (50.0 + 1.5 * t)).abs() < 1e-9);
}

#[test]
fn anova_of_one_factor_agrees_with_jain() {
    // Example 20.1: µ = 187.7, effects −13.3, −24.5, 37.7; SSA = 10,992, SSE = 94,365; F = 0.7.
    let cells = [
        vec![144., 120., 176., 288., 144.],
        vec![101., 144., 211., 288., 72.],
        vec![130., 180., 141., 374., 302.],
    ];
    let found = Anova::new(&[3], &cells, Form::Additive, 0.90).unwrap();
    let near = |x: f64, y: f64, within: f64| assert!((x - y).abs() <= within, "{x} {y}");
    near(found.mean.value, 187.7, 0.05);
    let term = &found.terms[0];
    for (effect, expected) in term.effects.iter().zip([-13.3, -24.5, 37.7]) {
        near(effect.effect.value, expected, 0.05);
    }
    near(term.sum_of_squares, 10_992.0, 1.0);
    near(found.error_sum_of_squares, 94_365.0, 1.0);
    near(term.f.unwrap(), 0.7, 0.005);
    near(found.error_deviation, 88.7, 0.05);
    // Standard deviations: of µ s_e/√15 = 22.9, of an effect s_e·√(2/15) = 32.4.
    let t = crate::statistics::student(0.90, 12.0).unwrap();
    let (low, high) = bounds(found.mean);
    near((high - low) / (2.0 * t), 22.9, 0.05);
    let (low, high) = bounds(term.effects[0].effect);
    near((high - low) / (2.0 * t), 32.4, 0.05);
}

#[test]
fn anova_without_replications_agrees_with_jain() {
    // Example 21.1: caches against workloads, ms. Jain, table 21.2.
    let [two, one, none] = [
        [54.0, 60.0, 43.0, 49.0, 49.0],
        [55.0, 60.0, 43.0, 52.0, 50.0],
        [106.0, 123.0, 120.0, 111.0, 108.0],
    ];
    let cells: Vec<Vec<f64>> =
        (0..5).flat_map(|w| [vec![two[w]], vec![one[w]], vec![none[w]]]).collect();
    let found = Anova::new(&[3, 5], &cells, Form::Additive, 0.90).unwrap();
    assert!((found.mean.value - 72.2).abs() < 0.05);
    let a: Vec<f64> = found.terms[0].effects.iter().map(|e| e.effect.value).collect();
    for (found, expected) in a.iter().zip([-21.2, -20.2, 41.4]) {
        assert!((found - expected).abs() < 0.05, "{found} {expected}");
    }
    // SSA = 12,857.20, SSB = 308.40, SSE = 236.80; F = 217.2 and 2.6.
    let near = |x: f64, y: f64, within: f64| assert!((x - y).abs() <= within, "{x} {y}");
    near(found.terms[0].sum_of_squares, 12_857.2, 0.05);
    near(found.terms[1].sum_of_squares, 308.4, 0.05);
    near(found.error_sum_of_squares, 236.8, 0.05);
    near(found.terms[0].f.unwrap(), 217.2, 0.1);
    near(found.terms[1].f.unwrap(), 2.6, 0.05);
    assert_eq!(found.error_degrees, 8);
    assert!(found.warnings[0].contains("AB is taken for noise"), "{:?}", found.warnings);
}

/// Effects by inclusion and exclusion of the means over cells: the naive twin.
fn naive_effect(levels: &[usize], means: &[f64], mask: u32, at: &[usize]) -> f64 {
    let index_levels = |mut i: usize| -> Vec<usize> {
        let mut out = Vec::new();
        for l in levels {
            out.push(i % l);
            i /= l;
        }
        out
    };
    let marginal = |subset: u32| -> f64 {
        let chosen: Vec<f64> = means
            .iter()
            .enumerate()
            .filter(|(i, _)| {
                let own = index_levels(*i);
                (0..levels.len()).all(|f| subset >> f & 1 == 0 || own[f] == at[f])
            })
            .map(|(_, y)| *y)
            .collect();
        chosen.iter().sum::<f64>() / chosen.len() as f64
    };
    (0..=mask)
        .filter(|subset| subset & !mask == 0)
        .map(|subset| {
            let sign = if (mask & !subset).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
            sign * marginal(subset)
        })
        .sum()
}

proptest! {
    #[test]
    fn anova_agrees_with_its_naive_twin(
        levels in prop::collection::vec(2usize..4, 1..4), r in 2usize..4, seed in any::<u64>(),
    ) {
        let mut random = StdRng::seed_from_u64(seed);
        let count: usize = levels.iter().product();
        let cells: Vec<Vec<f64>> = (0..count)
            .map(|_| (0..r).map(|_| random.random_range(-50.0..50.0)).collect())
            .collect();
        let found = Anova::new(&levels, &cells, Form::Additive, 0.95).unwrap();
        let means: Vec<f64> = cells.iter().map(|c| c.iter().sum::<f64>() / r as f64).collect();
        let mut sum = found.error_sum_of_squares;
        for term in &found.terms {
            sum += term.sum_of_squares;
            for effect in &term.effects {
                let mut own = effect.levels.iter();
                let at: Vec<usize> = (0..levels.len())
                    .map(|f| if term.factors >> f & 1 == 1 { *own.next().unwrap() } else { 0 })
                    .collect();
                let naive = naive_effect(&levels, &means, term.factors, &at);
                prop_assert!((effect.effect.value - naive).abs() < 1e-9, "{} {at:?}", term.name);
            }
            prop_assert!((0.0..=1.0).contains(&term.p.unwrap()));
        }
        prop_assert!((sum / found.total_sum_of_squares - 1.0).abs() < 1e-9);
        prop_assert_eq!(found.terms.len(), (1 << levels.len()) - 1);
    }

    #[test]
    fn two_levels_agree_with_anova(k in 1usize..5, r in 1usize..4, seed in any::<u64>()) {
        let mut random = StdRng::seed_from_u64(seed);
        let cells: Vec<Vec<f64>> = (0..1 << k)
            .map(|_| (0..r).map(|_| random.random_range(1.0..50.0)).collect())
            .collect();
        for form in [Form::Additive, Form::Multiplicative] {
            let two = Factorial::new(&cells, form, 0.95).unwrap();
            let naive = |mask: usize| -> f64 {
                two.fitted.iter().enumerate().map(|(run, y)| {
                    if (mask & !run).count_ones().is_multiple_of(2) { *y } else { -*y }
                }).sum::<f64>() / two.fitted.len() as f64
            };
            let Ok(any) = Anova::new(&vec![2; k], &cells, form, 0.95) else {
                prop_assert!(k == 1 && r == 1);
                continue;
            };
            for effect in &two.effects {
                prop_assert!((effect.effect.value - naive(effect.factors as usize)).abs() < 1e-9);
                let Some(term) = any.term(effect.factors) else { continue };
                prop_assert!((term.fraction - effect.fraction).abs() < 1e-9);
                if r > 1 {
                    let (low, high) = bounds(effect.effect);
                    let t = crate::statistics::student(0.95, two.error_degrees as f64).unwrap();
                    let ratio = effect.effect.value / ((high - low) / (2.0 * t));
                    // F is t².
                    prop_assert!((term.f.unwrap() - ratio * ratio).abs() < 1e-6 * (1.0 + ratio * ratio));
                }
            }
        }
    }

    #[test]
    fn nothing_panics_or_gives_a_nan(
        y in prop::collection::vec(prop::num::f64::ANY, 0..20), shape in 1usize..5,
    ) {
        let cells: Vec<Vec<f64>> = y.chunks(shape).map(<[f64]>::to_vec).collect();
        for form in [Form::Additive, Form::Multiplicative] {
            if let Ok(found) = Factorial::new(&cells, form, 0.95) {
                for e in &found.effects {
                    prop_assert!(e.effect.value.is_finite() && e.fraction.is_finite());
                }
                let judged = Residuals::new(&found.fitted, &found.residuals, None).unwrap();
                prop_assert!(judged.is_none_or(|r| r.normal.is_finite()));
            }
            if let Ok(found) = Anova::new(&[cells.len()], &cells, form, 0.95) {
                prop_assert!(found.terms.iter().all(|t| t.fraction.is_finite()));
                prop_assert!(found.error_fraction.is_finite() && found.mean.value.is_finite());
            }
        }
        let _ = Advice::new(&[cells.len()], &cells);
    }
}

mod fractions;
mod judgements;
