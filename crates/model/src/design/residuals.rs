//! Tests whether the residuals of an analysis look like noise ([`Residuals`] has the method).

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, Normal};

use super::form::Form;
use super::variation::mean;
use crate::error::Error;
use crate::statistics::f_exceeded;

/// A rank correlation (Spearman) with its significance by the t approximation, in [`Residuals`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// From −1 to 1.
    pub correlation: f64,
    /// The probability of a correlation at least this strong, of either sign, in noise.
    pub p: f64,
}

/// Tests whether the residuals of an analysis look like noise.
///
/// Source: Jain, "The Art of Computer Systems Performance Analysis" (1991), sections 14.7 and 18.7:
/// errors are independent and normal, with equal variance. Three numbers replace plots, each
/// compared with its value for pure noise:
///
/// - **normal**: the correlation of the ordered residuals with normal scores Φ⁻¹((i − 3/8)/(n +
///   1/4)), against the 5 % point of Ryan and Joiner (1976), 1.0063 − 0.1288/√n − 0.6118/n +
///   1.3505/n²;
/// - **spread**: the rank correlation (Spearman) of |residual| with the fitted value. If it is
///   positive, try the multiplicative form;
/// - **trend**: the rank correlation of the residual with the order of the runs. If it is
///   significant, something drifted. The residuals of one cell sum to 0: if the runs were made in
///   rounds, differences between rounds weigh more than of independent residuals, which its
///   probability takes into account.
///
/// Limitation: as the residuals of one cell depend on each other, the two of a cell of two count once
/// in the spread; with three runs for each cell its probabilities are somewhat too small. Cost: a sort.
///
/// ```
/// use model::design::{Form, Residuals};
/// // The scatter grows with what is measured, tenfold.
/// let residuals = [vec![-1., 0.4, 0.6], vec![-10., 3., 7.], vec![-100., 45., 55.]];
/// let found = Residuals::new(&[10., 100., 1000.], &residuals, None)?.unwrap();
/// assert!(found.spread.unwrap().p < 0.01);
/// assert!(found.warnings(Form::Additive)[0].contains("multiplicative"));
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Residuals {
    /// Number of residuals.
    pub count: usize,
    /// Correlation with normal scores: 1 for the normal law.
    pub normal: f64,
    /// The 5 % point: 5 of 100 tables with normal residuals have a smaller `normal`.
    pub normal_critical: f64,
    /// |residual| against the fitted value; `None` if all fitted values are equal.
    pub spread: Option<Judged>,
    /// Residual against the order of runs, if given.
    pub trend: Option<Judged>,
}

impl Residuals {
    /// Tests the residuals of cells with these fitted values; `places` are the positions of the
    /// observations in the order of runs. `None` for fewer than four residuals, or if all are 0.
    pub fn new(
        fitted: &[f64],
        residuals: &[Vec<f64>],
        places: Option<&[Vec<usize>]>,
    ) -> Result<Option<Self>, Error> {
        let all: Vec<f64> = residuals.iter().flatten().copied().collect();
        if all.len() < 4 || all.iter().all(|e| *e == 0.0) || all.iter().any(|e| !e.is_finite()) {
            return Ok(None);
        }
        // The two residuals of a cell of two differ only in sign, and count once.
        let sizes = |cell: &[f64]| -> Vec<f64> {
            let alone = if cell.len() == 2 { &cell[..1] } else { cell };
            alone.iter().map(|e| e.abs()).collect()
        };
        let pairs = residuals.iter().zip(fitted);
        let pairs = pairs.flat_map(|(cell, f)| sizes(cell).into_iter().map(move |size| (size, *f)));
        let (sizes, fitted): (Vec<f64>, Vec<f64>) = pairs.unzip();
        let n = all.len() as f64;
        let mut sorted = all.clone();
        sorted.sort_by(f64::total_cmp);
        let normal = Normal::standard();
        let score = |i: usize| normal.inverse_cdf((i as f64 + 0.625) / (n + 0.25));
        let scores: Vec<f64> = (0..all.len()).map(score).collect();
        let trend = match places {
            Some(places) => {
                let order: Vec<f64> = places.iter().flatten().map(|p| *p as f64).collect();
                rank_correlation(&all, &order, weight_of_order(residuals, &order))?
            }
            None => None,
        };
        Ok(Some(Residuals {
            count: all.len(),
            normal: correlation(&sorted, &scores).unwrap_or(1.0),
            normal_critical: 1.0063 - 0.1288 / n.sqrt() - 0.6118 / n + 1.3505 / (n * n),
            spread: rank_correlation(&sizes, &fitted, 1.0)?,
            trend,
        }))
    }

    /// Warnings about the residuals of a form, if a test fails.
    pub fn warnings(&self, form: Form) -> Vec<String> {
        let mut words = Vec::new();
        if let Some(spread) = self.spread.filter(|s| s.p < 0.05) {
            let way = match (spread.correlation > 0.0, form) {
                (true, Form::Additive) => "rises with the response: try the multiplicative model",
                (false, Form::Multiplicative) => {
                    "falls as the response rises: try the additive model"
                }
                (true, _) => "rises with the response: intervals are too narrow where it is wide",
                (false, _) => {
                    "falls as the response rises: intervals are too narrow where it is wide"
                }
            };
            words.push(format!("the residuals' spread {way} (chance {:.1e})", spread.p));
        }
        if let Some(trend) = self.trend.filter(|t| t.p < 0.05) {
            words.push(format!(
                "the residuals drift with the order of the runs (rank correlation {:+.2}, chance {:.1e}): \
                 something changed meanwhile; run in random order",
                trend.correlation, trend.p
            ));
        }
        if self.normal < self.normal_critical {
            words.push(format!(
                "the residuals are not normal (correlation {:.3}, 5 % point {:.3}): look for outlying \
                 runs, and trust bootstrap intervals more",
                self.normal, self.normal_critical
            ));
        }
        words
    }
}

/// Pearson's correlation; `None` if one side does not vary.
fn correlation(a: &[f64], b: &[f64]) -> Option<f64> {
    // Scaled to a length of order 1, so that squares stay in range.
    let scaled = |values: &[f64]| -> Option<Vec<f64>> {
        let centre = mean(values);
        let largest = values.iter().fold(0.0f64, |m, x| m.max((x - centre).abs()));
        (largest > 0.0).then(|| values.iter().map(|x| (x - centre) / largest).collect())
    };
    let (a, b) = (scaled(a)?, scaled(b)?);
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    Some((dot(&a, &b) / (dot(&a, &a) * dot(&b, &b)).sqrt()).clamp(-1.0, 1.0))
}

/// Ranks from 0; equal values share the mean of their ranks.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut from = 0;
    while from < order.len() {
        let equal = order[from..].iter().take_while(|&&i| values[i] == values[order[from]]).count();
        let rank = from as f64 + 0.5 * (equal as f64 - 1.0);
        order[from..from + equal].iter().for_each(|&i| ranks[i] = rank);
        from += equal;
    }
    ranks
}

/// The variance of the correlation of residuals, which sum to 0 in each cell, with an order, over that of independent ones: the order's
/// variance within cells over the part of its whole variance that residuals have of the errors'.
fn weight_of_order(cells: &[Vec<f64>], order: &[f64]) -> f64 {
    let squares = |x: &[f64]| {
        let centre = mean(x);
        x.iter().map(|x| (x - centre).powi(2)).sum::<f64>()
    };
    let order = ranks(order);
    let mut rest = &order[..];
    let mut within = 0.0;
    for cell in cells {
        let Some((of, others)) = rest.split_at_checked(cell.len()) else { return 1.0 };
        within += squares(of);
        rest = others;
    }
    let kept = 1.0 - cells.len() as f64 / order.len() as f64;
    let weight = within / (kept * squares(&order));
    if weight.is_finite() && weight > 0.0 { weight } else { 1.0 }
}

/// `weight`: the variance of the correlation over that of independent values.
fn rank_correlation(a: &[f64], b: &[f64], weight: f64) -> Result<Option<Judged>, Error> {
    if a.len() != b.len() || a.len() < 4 {
        return Ok(None);
    }
    let Some(r) = correlation(&ranks(a), &ranks(b)) else { return Ok(None) };
    let degrees = (a.len() - 2) as f64;
    let f = r * r * degrees / (1.0 - r * r) / weight;
    let p = if f.is_finite() { f_exceeded(f, 1.0, degrees)? } else { 0.0 };
    // Two of n! orders are perfect, so no probability is smaller than 2/n!.
    let least = (1..=a.len().min(100)).fold(2.0, |p, i| p / i as f64);
    Ok(Some(Judged { correlation: r, p: p.max(least) }))
}
