//! [`ServiceTime`]: what every law of times tells, and laws behind pointers.

use std::sync::Arc;

use num_complex::Complex64;

use crate::bisection::quantile;
use crate::error::Error;

/// A single time with a positive probability, where the CDF jumps by `share`.
///
/// Its transform is share·e^(−s·at). [`super::inversion`] is inaccurate near a jump, so laws list their
/// atoms and the queues treat them apart.
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

/// A shared law of any type. Cloning it copies a pointer.
///
/// ```
/// use model::distribution::{AnyLaw, Exponential, ServiceTime};
/// let hop: AnyLaw = std::sync::Arc::new(Exponential::new(0.002)?);
/// assert_eq!(hop.clone().mean(), 0.002);
/// # Ok::<(), model::Error>(())
/// ```
pub type AnyLaw = Arc<dyn ServiceTime + Send + Sync>;

/// The law of a time T ≥ 0 in seconds.
///
/// Notation: mean b = E\[T\], SCV = Var\[T\]/b², B(s) = E\[e^(−sT)\], F(t) = P(T ≤ t), as in L.
/// Kleinrock, "Queueing Systems" I (1975). The methods of an implementation must agree with each
/// other: the queues take means from `mean` and `scv` and distributions from `transform`, and do
/// not compare them.
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

    /// E\[T³\] in s³, where the law has it in closed form; `None` by default: it is then integrated from the CDF.
    fn third_moment(&self) -> Option<f64> {
        None
    }

    /// The atoms of the law, where its CDF jumps. Empty by default.
    fn atoms(&self) -> Vec<Atom> {
        Vec::new()
    }

    /// The smallest t in seconds with P(T ≤ t) ≥ `p`, for `p` from 0 to below 1, to 1e-12 of
    /// itself. Cost: about 60 evaluations of the CDF.
    fn quantile(&self, p: f64) -> Result<f64, Error> {
        quantile(p, self.mean(), |t| self.cdf(t))
    }

    /// Writes the transform at `re + i·k·step` to `out[k]`: the points that an inversion needs.
    /// Laws with many pieces compute the whole line much faster than its points one by one.
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
            fn third_moment(&self) -> Option<f64> {
                (**self).third_moment()
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
