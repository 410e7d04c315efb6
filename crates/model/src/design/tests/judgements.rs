//! Tables, advice, residuals and the bootstrap.

use super::*;
use crate::error::Error;

fn run(levels: &[&str], response: f64) -> Run {
    Run { levels: levels.iter().map(|l| (*l).to_owned()).collect(), response }
}

fn names(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("f{i}")).collect()
}

#[test]
fn tables_are_in_standard_order() {
    let mut runs = Vec::new();
    for (b, a, y) in [("yes", "10", 4.0), ("no", "9", 1.0), ("no", "10", 2.0), ("yes", "9", 3.0)] {
        runs.push(run(&[a, b], y));
    }
    let table = Table::new(&names(2), &runs).unwrap();
    assert_eq!(table.factors()[0].levels, ["9", "10"], "as numbers");
    assert_eq!(table.factors()[1].levels, ["yes", "no"], "as they come");
    let found: Vec<f64> = table.responses().concat();
    assert_eq!(found, [3.0, 4.0, 1.0, 2.0]);
    assert_eq!(table.places().concat(), [3, 0, 1, 2]);
    assert!(table.complete().is_ok() && table.balanced().is_ok() && table.two_levels());
    assert_eq!(table.fraction().unwrap().generated(), 0);
}

#[test]
fn bad_tables_are_named() {
    let error = |runs: &[Run]| match Table::new(&names(2), runs) {
        Err(error) => error.to_string(),
        Ok(table) => table.complete().and(table.balanced()).unwrap_err().to_string(),
    };
    assert!(error(&[]).contains("no run"));
    let three = [run(&["1", "a"], 1.0), run(&["2", "a"], 1.0), run(&["2", "b"], 1.0)];
    assert!(
        error(&three).contains("1 of the 4 combinations")
            && error(&three).contains("f0 = 1, f1 = b")
    );
    let constant = [run(&["1", "a"], 1.0), run(&["2", "a"], 1.0)];
    assert!(error(&constant).contains("factor f1: it is a in every run"));
    let mut uneven: Vec<Run> = three.to_vec();
    uneven.extend([run(&["1", "b"], 1.0), run(&["1", "b"], 2.0)]);
    assert!(error(&uneven).contains("f0 = 1, f1 = b has 2 runs"), "{}", error(&uneven));
    assert!(error(&[run(&["1", "a"], f64::NAN)]).contains("response"));
    assert!(error(&[run(&["1"], 1.0)]).contains("1 levels for 2 factors"));
    assert!(error(&[run(&["1", "a"], 1.0), run(&["1.0", "b"], 1.0)]).contains("one number"));
    assert!(Table::new(&[], &[]).is_err());
    assert!(Table::new(&names(17), &[]).is_err());

    let cells = |n: usize| vec![vec![1.0, 2.0]; n];
    assert!(matches!(Factorial::new(&cells(3), Form::Additive, 0.9), Err(Error::Design { .. })));
    assert!(matches!(
        Anova::new(&[2, 2], &cells(3), Form::Additive, 0.9),
        Err(Error::Design { .. })
    ));
    assert!(Anova::new(&[1], &cells(1), Form::Additive, 0.9).is_err());
    let equal = vec![vec![5.0, 5.0]; 4];
    assert!(matches!(Factorial::new(&equal, Form::Additive, 0.9), Err(Error::NoVariation { .. })));
    // They differ, but their squares are 0: they were called equal.
    let tiny: Vec<Vec<f64>> = (1..=4).map(|i| vec![1e-300 * f64::from(i); 2]).collect();
    let refused = Factorial::new(&tiny, Form::Additive, 0.9).unwrap_err().to_string();
    assert!(refused.contains("4e-300") && refused.contains("unit"), "{refused}");
    let small: Vec<Vec<f64>> = (1..=4).map(|i| vec![1e-130 * f64::from(i); 2]).collect();
    assert!(Factorial::new(&small, Form::Additive, 0.9).is_ok());
    let mut uneven = cells(4);
    uneven[2].push(3.0);
    let result = Factorial::new(&uneven, Form::Additive, 0.9);
    assert!(matches!(result, Err(Error::Unbalanced { got: 3, .. })));
    let mut negative = cells(4);
    negative[0][0] = -1.0;
    assert!(Factorial::new(&negative, Form::Multiplicative, 0.9).is_err());
    assert!(Factorial::new(&negative, Form::Additive, 0.9).is_ok());
    for confidence in [f64::NAN, 0.0, 1.0] {
        assert!(Factorial::new(&cells(4), Form::Additive, confidence).is_err());
    }
    assert!(matches!(
        Anova::new(&[3], &[vec![1.0], vec![2.0], vec![3.0]], Form::Additive, 0.9),
        Err(Error::TooFew { .. })
    ));
    // Replications that are copies: no noise, no F, no NaN.
    let copies = [vec![1.0, 1.0], vec![2.0, 2.0], vec![4.0, 4.0]];
    let found = Anova::new(&[3], &copies, Form::Additive, 0.9).unwrap();
    assert_eq!((found.terms[0].f, found.error_fraction), (None, 0.0));
    assert!(found.warnings[0].contains("copies"));
}

#[test]
fn advice_follows_the_data() {
    let advice = |cells: &[Vec<f64>]| Advice::new(&[2, 2], cells).unwrap();
    // Sums: 10, 20, 35, 45.
    let sums = [vec![9.9, 10.1], vec![20.1, 19.9], vec![35.1, 34.9], vec![44.9, 45.1]];
    assert_eq!(advice(&sums).form, Form::Additive);
    // Orders of magnitude.
    let wide = [vec![1.0, 1.1], vec![10.0, 11.0], vec![105.0, 100.0], vec![1000.0, 1090.0]];
    let found = advice(&wide);
    assert_eq!(found.form, Form::Multiplicative);
    assert!(found.reasons[0].contains("1,090 times"), "{:?}", found.reasons);
    // A zero has no logarithm.
    let zero = [vec![0.0, 1.1], vec![10.0, 11.0], vec![105.0, 100.0], vec![1000.0, 1090.0]];
    let found = advice(&zero);
    assert_eq!((found.form, found.ratio), (Form::Additive, None));
    // The report's write throughput differs by a factor of 2.8. Its scatter is the same everywhere,
    // so it falls in logarithms; against that, these need 0.8 % of interactions where sums need 1.8
    // %.
    let found = Advice::new(&[2, 2, 2], &asl_27()).unwrap();
    assert!((found.ratio.unwrap() - 7338.98 / 2594.66).abs() < 1e-9);
    assert_eq!(found.form, Form::Additive, "{:?}", found.reasons);
    assert!(found.reasons[0].contains("in logarithms"), "{:?}", found.reasons);
    assert!(found.reasons[1].starts_with("against it: "), "{:?}", found.reasons);
}

#[test]
fn residuals_of_noise_pass_and_of_faults_do_not() {
    let mut random = StdRng::seed_from_u64(5);
    let mut draw = || {
        // Nearly normal: twelve uniform numbers.
        (0..12).map(|_| random.random_range(-0.5..0.5)).sum::<f64>()
    };
    const TRIES: usize = 300;
    let fitted: Vec<f64> = (0..10).map(f64::from).collect();
    let places: Vec<Vec<usize>> = (0..10).map(|i| vec![i, i + 10, i + 20]).collect();
    let mut flagged = [0; 3];
    for _ in 0..TRIES {
        let noise: Vec<Vec<f64>> = (0..10).map(|_| (0..3).map(|_| draw()).collect()).collect();
        let found = Residuals::new(&fitted, &noise, Some(&places)).unwrap().unwrap();
        flagged[0] += usize::from(found.normal < found.normal_critical);
        flagged[1] += usize::from(found.spread.unwrap().p < 0.05);
        flagged[2] += usize::from(found.trend.unwrap().p < 0.05);
    }
    // 5 % ± 4 standard deviations.
    assert!(flagged.iter().all(|f| (1..=30).contains(f)), "{flagged:?} of {TRIES}");
    let drift: Vec<Vec<f64>> = places
        .iter()
        .map(|p| p.iter().map(|p| *p as f64 - 14.5 + 3.0 * draw()).collect())
        .collect();
    let found = Residuals::new(&fitted, &drift, Some(&places)).unwrap().unwrap();
    assert!(found.warnings(Form::Additive).iter().any(|w| w.contains("drift")), "{found:?}");
    let mut wild: Vec<Vec<f64>> = vec![vec![0.1, -0.2, 0.1]; 10];
    wild[3][1] = 50.0;
    let found = Residuals::new(&fitted, &wild, None).unwrap().unwrap();
    assert!(found.warnings(Form::Additive).iter().any(|w| w.contains("not normal")), "{found:?}");
    assert_eq!(Residuals::new(&[1.0], &[vec![0.0; 9]], None), Ok(None));
    assert_eq!(Residuals::new(&[1.0], &[vec![1.0, -1.0]], None), Ok(None));
}

/// Residuals of a cell add to 0, so that differences between rounds of replications weigh more: a drift was seen in 10 % of tables without.
#[test]
fn rounds_without_a_drift_seldom_show_one() {
    let mut random = StdRng::seed_from_u64(71);
    const TRIES: usize = 2_000;
    const CELLS: usize = 16;
    let fitted: Vec<f64> = (0..CELLS).map(|i| i as f64).collect();
    for rounds in [2, 3, 5] {
        let places: Vec<Vec<usize>> =
            (0..CELLS).map(|i| (0..rounds).map(|round| round * CELLS + i).collect()).collect();
        let mut seen = 0;
        for _ in 0..TRIES {
            let mut cell = || {
                let noise: Vec<f64> = (0..rounds)
                    .map(|_| (0..12).map(|_| random.random_range(-0.5..0.5)).sum())
                    .collect();
                let mean = noise.iter().sum::<f64>() / rounds as f64;
                noise.iter().map(|x| x - mean).collect::<Vec<f64>>()
            };
            let residuals: Vec<Vec<f64>> = (0..CELLS).map(|_| cell()).collect();
            let found = Residuals::new(&fitted, &residuals, Some(&places)).unwrap().unwrap();
            seen += usize::from(found.trend.unwrap().p < 0.05);
        }
        // 5 % ± 4 standard deviations.
        assert!((60..=140).contains(&seen), "{seen} of {TRIES} with {rounds} rounds");
    }
}

#[test]
fn the_bootstrap_agrees_with_students_intervals() {
    let found = Factorial::new(&asl_27(), Form::Additive, 0.90).unwrap();
    let again = Bootstrap::new(&found, 20_000, &mut StdRng::seed_from_u64(1)).unwrap();
    for (effect, interval) in found.effects.iter().zip(&again.effects) {
        let (low, high) = bounds(effect.effect);
        let ratio = (interval.effect[1] - interval.effect[0]) / (high - low);
        assert!((0.85..1.05).contains(&ratio), "{}: {ratio}", effect.name);
        assert!(interval.fraction[0] <= effect.fraction && effect.fraction <= interval.fraction[1]);
    }
    let same = Bootstrap::new(&found, 20_000, &mut StdRng::seed_from_u64(1)).unwrap();
    assert_eq!(again, same, "the seed decides");
    let once = Factorial::new(&[vec![1.0], vec![2.0]], Form::Additive, 0.90).unwrap();
    assert!(Bootstrap::new(&once, 1_000, &mut StdRng::seed_from_u64(1)).is_err());
    assert!(Bootstrap::new(&found, 10, &mut StdRng::seed_from_u64(1)).is_err());
    assert!(Bootstrap::new(&found, usize::MAX, &mut StdRng::seed_from_u64(1)).is_err());
    let jain = Factorial::new(&jain_18_1(), Form::Additive, 0.90).unwrap();
    let again = Bootstrap::new(&jain, 5_000, &mut StdRng::seed_from_u64(2)).unwrap();
    let [low, high] = again.effects[0].fraction;
    assert!(low > 0.7 && high < 0.87 && low < 0.7888 && high > 0.7888, "{low} {high}");
}
