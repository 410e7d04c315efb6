//! Decides whether effects add or multiply ([`Advice`] has the method).

use ground::number::digits;
use serde::Serialize;

use super::anova::Anova;
use super::form::Form;
use super::residuals::Residuals;
use crate::error::Error;

/// The variation left unexplained by a form, in [`Advice`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FormFigures {
    /// Part of the variation that is noise.
    pub error_fraction: f64,
    /// Part of the variation that interactions explain.
    pub interaction_fraction: f64,
    /// Tests of the residuals; `None` if there are too few, or one run for each cell.
    pub residuals: Option<Residuals>,
}

/// Advice on whether effects add or multiply: a choice of [`Form`] with its reasons.
///
/// Source: Jain, "The Art of Computer Systems Performance Analysis" (1991), section 18.8
/// (multiplicative models). Effects that are factors (a processor twice as fast, work twice as
/// large) multiply. Signs of it in the data are a large ratio of the largest to the smallest
/// observation, and residuals that grow with the response. If neither sign decides, the form with
/// less interaction describes the system more simply. Cost: two analyses.
///
/// Knowledge of the system takes precedence: times on one path add, however large their ratio.
///
/// ```
/// use model::design::{Advice, Form};
/// // Every factor doubles or trebles: 1, 2, 3, 6 hundred.
/// let once = [98., 101., 101.];
/// let cells = [1., 2., 3., 6.].map(|factor| once.map(|y| factor * y).to_vec());
/// let advice = Advice::new(&[2, 2], &cells)?;
/// assert_eq!(advice.form, Form::Multiplicative);
/// assert!(advice.reasons[0].contains("spread rises") && advice.reasons[1].contains("interactions"));
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The recommended form.
    pub form: Form,
    /// The reasons, the deciding one first.
    pub reasons: Vec<String>,
    /// y_max / y_min; `None` if an observation is not above 0.
    pub ratio: Option<f64>,
    /// Figures of the additive form.
    pub additive: FormFigures,
    /// Figures of the multiplicative form; `None` if an observation is not above 0.
    pub multiplicative: Option<FormFigures>,
}

/// The ratio of the largest to the smallest observation from which it decides: an order of
/// magnitude.
const RATIO_LARGE: f64 = 10.0;

impl Advice {
    /// Compares the forms on a balanced full factorial table (cells as [`Anova::new`] takes them).
    pub fn new(levels: &[usize], cells: &[Vec<f64>]) -> Result<Self, Error> {
        let additive = figures(levels, cells, Form::Additive)?;
        let all = || cells.iter().flatten().copied();
        let smallest = all().fold(f64::INFINITY, f64::min);
        if smallest <= 0.0 {
            let reasons =
                vec![format!("an observation is {smallest}: logarithms need numbers above 0")];
            let (ratio, multiplicative) = (None, None);
            return Ok(Advice { form: Form::Additive, reasons, ratio, additive, multiplicative });
        }
        let ratio = (all().fold(0.0f64, f64::max) / smallest).min(f64::MAX);
        let multiplicative = figures(levels, cells, Form::Multiplicative)?;
        let (form, reasons) = decide(ratio, &additive, &multiplicative);
        Ok(Advice {
            form,
            reasons,
            ratio: Some(ratio),
            additive,
            multiplicative: Some(multiplicative),
        })
    }
}

fn figures(levels: &[usize], cells: &[Vec<f64>], form: Form) -> Result<FormFigures, Error> {
    let found = Anova::new(levels, cells, form, 0.95)?;
    let residuals = match found.replications {
        1 => None,
        _ => Residuals::new(&found.fitted, &found.residuals, None)?,
    };
    let interaction_fraction = found.interaction_fraction();
    Ok(FormFigures { error_fraction: found.error_fraction, interaction_fraction, residuals })
}

fn decide(ratio: f64, additive: &FormFigures, log: &FormFigures) -> (Form, Vec<String>) {
    let mut votes: Vec<(Form, String)> = Vec::new();
    if ratio >= RATIO_LARGE {
        let words = "sums describe orders of magnitude badly";
        votes.push((
            Form::Multiplicative,
            format!("the largest observation is {} times the smallest: {words}", digits(ratio, 3)),
        ));
    }
    let spread = |figures: &FormFigures| figures.residuals.as_ref().and_then(|r| r.spread);
    if let (Some(plain), Some(logged)) = (spread(additive), spread(log)) {
        if plain.correlation > 0.0 && plain.p < 0.05 && logged.p > plain.p {
            votes.push((
                Form::Multiplicative,
                format!("the residuals' spread rises with the response (chance {:.1e})", plain.p),
            ));
        }
        if logged.correlation < 0.0 && logged.p < 0.05 && plain.p > logged.p {
            votes.push((
                Form::Additive,
                format!("in logarithms the residuals' spread falls (chance {:.1e})", logged.p),
            ));
        }
    }
    let simpler = |form, less: &FormFigures, more: &FormFigures| {
        let left = |f: &FormFigures| f.interaction_fraction + f.error_fraction;
        let worth = left(more) > 0.01 && left(less) < 0.5 * left(more);
        worth.then(|| {
            let [few, many] = [left(less), left(more)].map(|x| 100.0 * x);
            let words = format!(
                "interactions and noise are {few:.2} % of the variation, in the other form {many:.2} %"
            );
            (form, words)
        })
    };
    votes.extend(simpler(Form::Additive, additive, log));
    votes.extend(simpler(Form::Multiplicative, log, additive));
    let Some(form) = votes.first().map(|(form, _)| *form) else {
        let words = format!(
            "observations differ by a factor of {} and residuals do not decide: both forms \
             describe them, and sums are simpler",
            digits(ratio, 3)
        );
        return (Form::Additive, vec![words]);
    };
    let words = |(vote, why): (Form, String)| {
        if vote == form { why } else { format!("against it: {why}") }
    };
    (form, votes.into_iter().map(words).collect())
}
