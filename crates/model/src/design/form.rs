//! How the effects of factors combine.

use serde::Serialize;

use crate::error::{Error, check, positive};

/// How the effects of factors combine. [`super::Advice`] chooses a form.
///
/// Source: Jain, "The Art of Computer Systems Performance Analysis" (1991), section 18.8.
///
/// ```
/// use model::design::{Factorial, Form};
/// // One factor, low 10 and 10.1, high 20 and 20.2: it doubles.
/// let cells = [vec![10.0, 10.1], vec![20.0, 20.2]];
/// let found = Factorial::new(&cells, Form::Multiplicative, 0.95)?;
/// assert!((found.effects[0].low_to_high.value - 2.0).abs() < 1e-9);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// y = q₀ + q_A·x_A + …: each factor adds a term.
    Additive,
    /// ln y = q₀ + q_A·x_A + …: each factor multiplies. The analysis takes the natural logarithm of
    /// each observation, not of their means.
    Multiplicative,
}

impl Form {
    /// An observation in the units of the analysis.
    pub(super) fn apply(self, y: f64) -> Result<f64, Error> {
        match self {
            Form::Additive => check("an observation", y, -1e100..=1e100, "from -1e100 to 1e100"),
            Form::Multiplicative => {
                positive("an observation of the multiplicative model", y)?;
                Ok(y.ln())
            }
        }
    }
}
