//! Laws of times: what a queue's formulas need to know of them.
//!
//! A law gives its mean, its squared coefficient of variation, its CDF, its quantiles and its
//! Laplace–Stieltjes transform E[exp(−sT)]. In the order of reading:
//!
//! - by a formula: [`Deterministic`], [`Exponential`], [`Erlang`], [`Gamma`], [`Hyperexponential`],
//!   [`Lognormal`], [`UniformPlusExponential`];
//! - measured: [`Empirical`], of a histogram or of any CDF;
//! - fitted: [`PhaseType`] by two or three moments, [`HyperErlang`] by maximum likelihood;
//! - expected by somebody: [`Gamma::from_interval`];
//! - made of others: [`Shifted`], [`Mixture`] (with atoms), [`Sum`] (a request through several
//!   stations). The slowest of several is [`crate::fork_join::OrderStatistic`].
//!
//! Sums of independent times are products of transforms, which is why waiting times and sums are
//! computed there and brought back by [`inversion`], whose page says which way back is taken when.

mod analytic;
mod compose;
mod empirical;
mod interval;
pub mod inversion;
mod numeric;
mod phase_type;

use std::sync::Arc;

use crate::error::Error;

pub use analytic::{
    Deterministic, Exponential, Gamma, Hyperexponential, Lognormal, UniformPlusExponential,
};
pub use compose::{Mixture, Shifted, Sum};
pub use empirical::{Empirical, Piece};
pub use num_complex::Complex64;
pub(crate) use numeric::{kronrod, moments};
pub use phase_type::{Erlang, ErlangBranch, HyperErlang, HyperErlangFit, PhaseType};

/// A time that has a probability of its own: the CDF jumps there, by `share`; its transform is
/// share·e^(−s·at). Nothing near a jump can be inverted well ([`inversion`]), which is why laws list them.
///
/// ```
/// use model::distribution::{Atom, Deterministic, ServiceTime};
/// assert_eq!(Deterministic::new(0.004)?.atoms(), [Atom { at: 0.004, share: 1.0 }]);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Atom {
    /// The time in seconds.
    pub at: f64,
    /// Its probability.
    pub share: f64,
}

/// Any law, shared: what laws made of laws are made of. A clone is a pointer.
///
/// ```
/// use model::distribution::{AnyLaw, Exponential, ServiceTime, Sum};
/// let hop: AnyLaw = std::sync::Arc::new(Exponential::new(0.002)?);
/// assert!((Sum::new(vec![hop.clone(), hop])?.mean() - 0.004).abs() < 1e-12);
/// # Ok::<(), model::Error>(())
/// ```
pub type AnyLaw = Arc<dyn ServiceTime + Send + Sync>;

/// The law of a service time T ≥ 0 in seconds: what queues, sums and inversions ask of it.
///
/// Mean b = E\[T\], SCV = Var\[T\]/b², B(s) = E\[e^(−sT)\], F(t) = P(T ≤ t). Source of the notation: L.
/// Kleinrock, "Queueing Systems" I (1975). One that implements it must keep them consistent: the queues
/// take means from `mean` and `scv`, and laws from `transform`, and do not compare.
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

    /// The times that have a probability of their own: where the CDF jumps. None by default.
    fn atoms(&self) -> Vec<Atom> {
        Vec::new()
    }

    /// The smallest t in seconds with P(T ≤ t) ≥ `p`, for `p` from 0 to below 1, to 1e-12 of itself.
    /// Cost: some 60 CDFs.
    fn quantile(&self, p: f64) -> Result<f64, Error> {
        crate::queue::quantile(p, self.mean(), |t| self.cdf(t))
    }

    /// The transform at `re + i·k·step`, k = 0, 1 …: the line that an inversion needs. A law made of
    /// many pieces answers this much faster than one point at a time.
    fn transform_line(&self, re: f64, step: f64, out: &mut [Complex64]) {
        for (k, value) in out.iter_mut().enumerate() {
            *value = self.transform(Complex64::new(re, step * k as f64));
        }
    }
}

macro_rules! forward {
    ($($pointer:ty),*) => {$(
        impl<L: ServiceTime + ?Sized> ServiceTime for $pointer {
            fn mean(&self) -> f64 {
                (**self).mean()
            }
            fn scv(&self) -> f64 {
                (**self).scv()
            }
            fn transform(&self, s: Complex64) -> Complex64 {
                (**self).transform(s)
            }
            fn cdf(&self, t: f64) -> f64 {
                (**self).cdf(t)
            }
            fn atoms(&self) -> Vec<Atom> {
                (**self).atoms()
            }
            fn quantile(&self, p: f64) -> Result<f64, Error> {
                (**self).quantile(p)
            }
            fn transform_line(&self, re: f64, step: f64, out: &mut [Complex64]) {
                (**self).transform_line(re, step, out);
            }
        }
    )*};
}
forward!(&L, Arc<L>, Box<L>);

#[cfg(test)]
mod tests;
