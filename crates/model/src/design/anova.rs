//! Analysis of variance of full factorial designs: any number of factors and levels, r runs of each
//! combination. [`Anova`] has the formulas.

use serde::Serialize;

use super::form::Form;
use super::letters::{FACTORS_MAX, letter, letters};
use super::variation::{CELLS_MAX, is_rounding, mean, prepared, total_variation};
use crate::error::{Error, check};
use crate::regression::Estimated;
use crate::statistics::{f_exceeded, student};

/// The effect of one combination of levels of a term's factors, in [`Term::effects`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LevelEffect {
    /// The level of each of the term's factors, by its index.
    pub levels: Vec<usize>,
    /// The deviation of these levels from the prediction of the lower terms, in the units of the
    /// form.
    pub effect: Estimated,
}

/// A factor or an interaction, in [`Anova::terms`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Term {
    /// Letters of its factors.
    pub name: String,
    /// The factors, one bit for each.
    pub factors: u32,
    /// SS: the variation that it explains.
    pub sum_of_squares: f64,
    /// SS/SST: the explained part of the variation.
    pub fraction: f64,
    /// Degrees of freedom.
    pub degrees: usize,
    /// Mean square: SS over degrees of freedom.
    pub mean_square: f64,
    /// MS/MSE; `None` if there is no noise.
    pub f: Option<f64>,
    /// The probability of an F at least this large if the term has no effect.
    pub p: Option<f64>,
    /// The effects, the first factor's level changing fastest.
    pub effects: Vec<LevelEffect>,
}

/// The analysis of variance of a balanced full factorial design.
///
/// Source: Jain, "The Art of Computer Systems Performance Analysis" (1991), chapters 20 (one
/// factor), 21 (two, without replications), 22 (two, with) and 23 (any number). Each cell's mean is
/// the sum of the grand mean and one effect for every set S of factors, that sums to 0 over the
/// levels of each factor of S; with N observations in all
///
///   SS_S = N/Π levels(S) · Σ effect²; degrees Π(levels − 1); F = MS_S/MSE; MSE = SSE/(cells·(r
///   − 1)); an effect's interval: ± t·√(MSE·Π(levels − 1)/N).
///
/// With one run for each cell the interaction of all factors is taken as the error (chapter 21):
/// the F tests then assume that this interaction is 0. The effects are computed by splitting the
/// table along one factor after the other into mean and deviation, Π(levels + 1) numbers in total.
///
/// It assumes independent runs and normal noise of equal variance ([`super::Residuals`] tests
/// both). Levels are categories: their numeric values are not used. Of many terms tested at 5 %,
/// one in 20 is significant by chance.
///
/// ```
/// use model::design::{Anova, Form};
/// // Jain, example 20.1: code size on three processors, five programs each.
/// let cells = [
///     vec![144., 120., 176., 288., 144.],
///     vec![101., 144., 211., 288., 72.],
///     vec![130., 180., 141., 374., 302.],
/// ];
/// let found = Anova::new(&[3], &cells, Form::Additive, 0.90)?;
/// let processor = &found.terms[0];
/// assert!((processor.fraction - 0.104).abs() < 1e-3);
/// assert!(processor.p.unwrap() > 0.4, "programs differ more than processors");
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Anova {
    /// Number of levels of each factor.
    pub levels: Vec<usize>,
    /// r: number of replications.
    pub replications: usize,
    /// Whether effects add or multiply.
    pub form: Form,
    /// Confidence of the intervals.
    pub confidence: f64,
    /// The grand mean, in the units of the form.
    pub mean: Estimated,
    /// Factors, then interactions of two, and so on.
    pub terms: Vec<Term>,
    /// SST: variation about the mean.
    pub total_sum_of_squares: f64,
    /// SSE: variation between replications, or the interaction of all factors.
    pub error_sum_of_squares: f64,
    /// SSE/SST.
    pub error_fraction: f64,
    /// Degrees of freedom of the error.
    pub error_degrees: usize,
    /// √MSE: standard deviation of the error.
    pub error_deviation: f64,
    /// The fitted value of each cell, in the units of the form.
    pub fitted: Vec<f64>,
    /// The deviation of each observation from the fitted value.
    pub residuals: Vec<Vec<f64>>,
    /// Warnings about the validity of the results.
    pub warnings: Vec<String>,
}

impl Anova {
    /// Analyses a cell for every combination of levels, the first factor's level changing fastest,
    /// all with the same number of observations. Cost: Π(levels + 1).
    pub fn new(
        levels: &[usize],
        cells: &[Vec<f64>],
        form: Form,
        confidence: f64,
    ) -> Result<Self, Error> {
        check("the confidence", confidence, 0.5..=0.9999, "from 0.5 to 0.9999")?;
        check_shape(levels, cells.len())?;
        let (values, replications) = prepared(cells, form)?;
        let total = total_variation(&values)?;
        let mut fitted: Vec<f64> = values.iter().map(|cell| mean(cell)).collect();
        let mut split = Vec::new();
        decompose(&fitted, levels, 0, 1, 0, &mut split);
        split.sort_by_key(|(mask, _): &(u32, Vec<f64>)| (mask.count_ones(), *mask));
        let mut warnings = Vec::new();
        let whole = (1u32 << levels.len()) - 1;
        if replications == 1 {
            if levels.len() == 1 {
                return Err(Error::TooFew {
                    what: "runs of each level of the only factor".to_owned(),
                    got: 1,
                    need: 2,
                    todo: "noise cannot be told from the factor: repeat the runs",
                });
            }
            let highest = split.pop().map(|(_, effects)| effects).unwrap_or_default();
            fitted.iter_mut().zip(&highest).for_each(|(fitted, e)| *fitted -= e);
            warnings.push(format!(
                "one run for each cell: the interaction {} is taken for noise; repeat the runs to know",
                letters(whole)
            ));
        }
        let off = |(cell, centre): (&Vec<f64>, &f64)| cell.iter().map(|y| y - centre).collect();
        let residuals: Vec<Vec<f64>> = values.iter().zip(&fitted).map(off).collect();
        let mut error: f64 = residuals.iter().flatten().map(|e| e * e).sum();
        if is_rounding(error, &values) {
            error = 0.0;
            warnings.push(
                "no noise was measured, so no F tests: are runs copies of others?".to_owned(),
            );
        }
        let error_degrees = match replications {
            1 => levels.iter().map(|l| l - 1).product(),
            r => cells.len() * (r - 1),
        };
        let noise = Noise {
            mean_square: error / error_degrees as f64,
            degrees: error_degrees,
            t: student(confidence, error_degrees as f64)?,
            observations: (cells.len() * replications) as f64,
        };
        let grand = split.remove(0).1[0];
        let terms =
            split.into_iter().map(|(mask, effects)| term(mask, &effects, levels, total, &noise));
        Ok(Anova {
            levels: levels.to_vec(),
            replications,
            form,
            confidence,
            mean: Estimated::around(grand, Some(noise.half_width(1))),
            terms: terms.collect::<Result<_, _>>()?,
            total_sum_of_squares: total,
            error_sum_of_squares: error,
            error_fraction: error / total,
            error_degrees,
            error_deviation: noise.mean_square.sqrt(),
            fitted,
            residuals,
            warnings,
        })
    }

    /// The term of a set of factors, one bit for each.
    pub fn term(&self, factors: u32) -> Option<&Term> {
        self.terms.iter().find(|t| t.factors == factors)
    }

    /// The part of the variation that interactions explain.
    pub(crate) fn interaction_fraction(&self) -> f64 {
        let several = self.terms.iter().filter(|t| t.factors.count_ones() > 1);
        several.map(|t| t.fraction).sum()
    }
}

fn check_shape(levels: &[usize], cells: usize) -> Result<(), Error> {
    let wrong = |what: &str, why: String| Err(Error::Design { what: what.to_owned(), why });
    if !(1..=FACTORS_MAX).contains(&levels.len()) {
        let why = format!("{} where 1 to {FACTORS_MAX} can be analysed", levels.len());
        return wrong("the number of factors", why);
    }
    if let Some(few) = levels.iter().position(|l| *l < 2) {
        let why = "it has one level; vary it, or leave it out".to_owned();
        return wrong(&format!("factor {}", letter(few)), why);
    }
    let numbers = levels.iter().fold(1usize, |n, l| n.saturating_mul(l.saturating_add(1)));
    if numbers > 64 * CELLS_MAX {
        let why = format!("{numbers} effects of all levels where {} can be held", 64 * CELLS_MAX);
        return wrong("the design", why);
    }
    let expected: usize = levels.iter().product();
    if cells != expected {
        let why = format!("{cells} where the factors' levels have {expected} combinations");
        return wrong("cells", why);
    }
    Ok(())
}

/// Splits a table along the factors from `next` on. `inner` numbers of factors kept so far change
/// fastest.
fn decompose(
    values: &[f64],
    levels: &[usize],
    next: usize,
    inner: usize,
    mask: u32,
    out: &mut Vec<(u32, Vec<f64>)>,
) {
    let Some(&count) = levels.get(next) else {
        out.push((mask, values.to_vec()));
        return;
    };
    let mut means = vec![0.0; values.len() / count];
    for (block, means) in values.chunks_exact(inner * count).zip(means.chunks_exact_mut(inner)) {
        for (i, centre) in means.iter_mut().enumerate() {
            let column: Vec<f64> = (0..count).map(|level| block[level * inner + i]).collect();
            *centre = mean(&column);
        }
    }
    let mut deviations = values.to_vec();
    let blocks = deviations.chunks_exact_mut(inner * count);
    for (block, means) in blocks.zip(means.chunks_exact(inner)) {
        for row in block.chunks_exact_mut(inner) {
            row.iter_mut().zip(means).for_each(|(y, centre)| *y -= centre);
        }
    }
    decompose(&means, levels, next + 1, inner, mask, out);
    decompose(&deviations, levels, next + 1, inner * count, mask | 1 << next, out);
}

/// The error that terms are compared with.
struct Noise {
    mean_square: f64,
    degrees: usize,
    t: f64,
    observations: f64,
}

impl Noise {
    /// Half the width of the interval of an effect with a number of degrees of freedom.
    fn half_width(&self, degrees: usize) -> f64 {
        self.t * (self.mean_square * degrees as f64 / self.observations).sqrt()
    }
}

fn term(
    mask: u32,
    effects: &[f64],
    levels: &[usize],
    total: f64,
    noise: &Noise,
) -> Result<Term, Error> {
    let own: Vec<usize> =
        levels.iter().enumerate().filter(|(i, _)| mask >> i & 1 == 1).map(|(_, l)| *l).collect();
    let degrees: usize = own.iter().map(|l| l - 1).product();
    let square: f64 = effects.iter().map(|e| e * e).sum();
    let sum_of_squares = noise.observations / effects.len() as f64 * square;
    let mean_square = sum_of_squares / degrees as f64;
    let ratio = mean_square / noise.mean_square;
    let f = ratio.is_finite().then_some(ratio);
    let p = f.map(|f| f_exceeded(f, degrees as f64, noise.degrees as f64)).transpose()?;
    let half = noise.half_width(degrees);
    let level = |(index, effect): (usize, &f64)| {
        let mut rest = index;
        let levels = own.iter().map(|count| {
            let level = rest % count;
            rest /= count;
            level
        });
        LevelEffect { levels: levels.collect(), effect: Estimated::around(*effect, Some(half)) }
    };
    Ok(Term {
        name: letters(mask),
        factors: mask,
        sum_of_squares,
        fraction: sum_of_squares / total,
        degrees,
        mean_square,
        f,
        p,
        effects: effects.iter().enumerate().map(level).collect(),
    })
}
