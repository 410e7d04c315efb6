use proptest::prelude::*;

use super::*;

/// Solves the normal equations by elimination: the naive twin.
fn normal_equations(rows: &[Vec<f64>], y: &[f64]) -> Vec<f64> {
    let p = rows[0].len();
    let mut a: Vec<Vec<f64>> = (0..p)
        .map(|i| {
            let mut row: Vec<f64> =
                (0..p).map(|j| rows.iter().map(|r| r[i] * r[j]).sum()).collect();
            row.push(rows.iter().zip(y).map(|(r, y)| r[i] * y).sum());
            row
        })
        .collect();
    for i in 0..p {
        let pivot = (i..p).max_by(|&j, &k| a[j][i].abs().total_cmp(&a[k][i].abs())).unwrap();
        a.swap(i, pivot);
        for j in 0..p {
            if j != i {
                let by = a[j][i] / a[i][i];
                let pivot = a[i].clone();
                a[j].iter_mut().zip(pivot).for_each(|(x, above)| *x -= by * above);
            }
        }
    }
    (0..p).map(|i| a[i][p] / a[i][i]).collect()
}

#[test]
fn a_line_agrees_with_jain() {
    // Jain, example 14.1: disk I/Os and processor times of seven programs; b0 = −0.0083, b1
    // = 0.2438, SSE = 5.87; example 14.4: 90 % intervals (−1.6830, 1.6663) and (0.2062, 0.2814).
    let x = [14.0, 16.0, 27.0, 42.0, 39.0, 50.0, 83.0];
    let y = [2.0, 5.0, 7.0, 9.0, 10.0, 13.0, 20.0];
    let rows: Vec<Vec<f64>> = x.iter().map(|&x| vec![1.0, x]).collect();
    let fit = Linear::fit(&rows, &y).unwrap();
    assert!((fit.coefficients[0] + 0.0083).abs() < 5e-5, "{fit:?}");
    assert!((fit.coefficients[1] - 0.2438).abs() < 5e-5, "{fit:?}");
    assert!((fit.sse() - 5.87).abs() < 5e-3);
    let noise = Noise::new(fit.sse(), fit.degrees(), 0.9).unwrap().unwrap();
    for (j, half) in [(0, 0.5 * (1.6663 + 1.6830)), (1, 0.5 * (0.2814 - 0.2062))] {
        let unit: Vec<f64> = (0..2).map(|k| f64::from(u8::from(k == j))).collect();
        let found = noise.half_width(&fit.factor(&unit));
        assert!((found - half).abs() < 6e-3 * half, "{j}: {found} {half}");
    }
}

#[test]
fn columns_that_depend_are_found() {
    let rows: Vec<Vec<f64>> = (0..5).map(|i| vec![1.0, f64::from(i), 2.0 * f64::from(i)]).collect();
    assert_eq!(Linear::fit(&rows, &[1.0; 5]), None);
    assert_eq!(Linear::fit(&[vec![0.0]], &[1.0]), None);
    assert_eq!(Linear::fit(&[vec![1.0, 2.0]], &[1.0]), None);
    assert_eq!(Linear::fit(&[], &[]), None);
    assert_eq!(Linear::fit(&[vec![f64::NAN]], &[1.0]), None);
}

#[test]
fn a_ratio_with_a_vague_denominator_has_no_interval() {
    let noise = Noise { variance: 1.0, t: 2.0 };
    let vague = ratio((4.0, &[1.0, 0.0]), (1.0, &[0.0, 1.0]), Some(noise));
    assert_eq!(vague, Estimated::alone(4.0));
    let sharp = ratio((400.0, &[1.0, 0.0]), (100.0, &[0.0, 1.0]), Some(noise));
    // By the delta method ±t·√(1 + 16)/100.
    assert!((sharp.high.unwrap() - sharp.low.unwrap() - 4.0 * 17f64.sqrt() / 100.0).abs() < 1e-3);
    assert!(sharp.low.unwrap() < 4.0 && sharp.high.unwrap() > 4.0);
    assert_eq!(sharp.inverse().value, 0.25);
}

proptest! {
    #[test]
    fn fits_agree_with_the_normal_equations(
        data in prop::collection::vec((-10.0f64..10.0, -10.0f64..10.0, -100.0f64..100.0), 5..30),
    ) {
        let rows: Vec<Vec<f64>> = data.iter().map(|&(a, b, _)| vec![1.0, a, b]).collect();
        let y: Vec<f64> = data.iter().map(|&(_, _, y)| y).collect();
        let Some(fit) = Linear::fit(&rows, &y) else { return Ok(()) };
        let naive = normal_equations(&rows, &y);
        for (found, naive) in fit.coefficients.iter().zip(naive) {
            // The naive twin loses the square of the condition.
            prop_assert!((found - naive).abs() < 1e-5 * (1.0 + naive.abs()), "{found} {naive}");
        }
        for j in 0..3 {
            let column: f64 = rows.iter().zip(&fit.residuals).map(|(r, e)| r[j] * e).sum();
            prop_assert!(column.abs() < 1e-7, "residuals are orthogonal to column {j}: {column}");
        }
    }
}
