//! Designs of experiments: which factors matter, how much, and with what confidence.
//!
//! Source: Jain, "The Art of Computer Systems Performance Analysis" (1991), part IV; each type
//! names its chapter. The steps of an analysis:
//!
//! 1. [`Table`] sorts runs (levels of each factor, one response) into cells, and reports missing
//!    cells.
//! 2. [`Advice`] decides whether effects add or multiply ([`Form`]), with reasons.
//! 3. [`Factorial`] analyses two levels of each factor with 2^k·r runs. [`Fraction`] describes
//!    2^(k−p)·r runs and the effects that they confound. [`Anova`] analyses any number of levels.
//! 4. [`Residuals`] tests whether the residuals look like noise. If not, intervals and F tests are
//!    invalid.
//! 5. [`Bootstrap`] computes intervals without assuming normal errors, also for the allocation of
//!    variation.
//!
//! All analyses assume that runs are independent (run them in random order, because a trend in time
//! looks like a factor), that every cell has equally many runs, and that the variance of the noise
//! is constant (in logarithms: constant in percent).

mod advice;
mod anova;
mod bootstrap;
mod factorial;
mod form;
mod fraction;
mod letters;
mod residuals;
mod table;
mod variation;

pub use advice::{Advice, FormFigures};
pub use anova::{Anova, LevelEffect, Term};
pub use bootstrap::{Bootstrap, BootstrapInterval};
pub use factorial::{Effect, Factorial, IntervalBasis};
pub use form::Form;
pub use fraction::{Fraction, Word, roman};
pub use letters::letter;
pub use residuals::{Judged, Residuals};
pub use table::{Cell, Factor, Run, Table};

#[cfg(test)]
mod tests;
