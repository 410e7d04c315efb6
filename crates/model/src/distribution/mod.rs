//! Laws of service times: what a queue's formulas need to know of them.
//!
//! A law gives its mean, its squared coefficient of variation, its CDF and its Laplace–Stieltjes
//! transform E[exp(−sT)]. [`Empirical`] is the measured one; the others are for checks, what-if
//! questions and published models. Sums of independent times are products of transforms, which is why
//! waiting times are computed there and brought back by [`inversion`].

mod analytic;
mod empirical;
pub mod inversion;

pub use analytic::{
    Deterministic, Exponential, Gamma, Hyperexponential, Lognormal, UniformPlusExponential,
};
pub use empirical::{Empirical, Piece};
pub use num_complex::Complex64;

/// The law of a service time in seconds.
///
/// ```
/// use model::distribution::{Exponential, ServiceTime, Complex64};
/// let law = Exponential::new(0.01)?;
/// assert_eq!(law.scv(), 1.0);
/// assert!((law.transform(Complex64::new(100.0, 0.0)).re - 0.5).abs() < 1e-12);
/// # Ok::<(), model::Error>(())
/// ```
pub trait ServiceTime {
    /// Mean in seconds, above 0.
    fn mean(&self) -> f64;

    /// Squared coefficient of variation: variance / mean². 0 for a constant, 1 for the exponential.
    fn scv(&self) -> f64;

    /// The Laplace–Stieltjes transform E[exp(−sT)] for Re s ≥ 0.
    fn transform(&self, s: Complex64) -> Complex64;

    /// P(T ≤ t), `t` in seconds; 0 below 0.
    fn cdf(&self, t: f64) -> f64;

    /// The transform at `re + i·k·step`, k = 0, 1 …: the line that an inversion needs. A law made of
    /// many pieces answers this much faster than one point at a time.
    fn transform_line(&self, re: f64, step: f64, out: &mut [Complex64]) {
        for (k, value) in out.iter_mut().enumerate() {
            *value = self.transform(Complex64::new(re, step * k as f64));
        }
    }
}

#[cfg(test)]
mod tests;
