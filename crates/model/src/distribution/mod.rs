//! Laws of times: the distributions that queues take as service times and interarrival times.
//!
//! A law gives its mean, its squared coefficient of variation (SCV), its CDF, its quantiles and its
//! Laplace–Stieltjes transform E[exp(−sT)]. There are two kinds:
//!
//! - laws with a formula: [`Deterministic`], [`Exponential`], [`Gamma`], [`Hyperexponential`],
//!   [`Lognormal`], [`UniformPlusExponential`];
//! - measured laws: [`Empirical`], made from a histogram or from any CDF.
//!
//! The law of the slowest of several independent times is [`crate::fork_join::FanOut`].
//!
//! The transform of a sum of independent times is the product of their transforms. Waiting times
//! and sums are therefore computed as transforms; [`inversion`] turns a transform back into a CDF.

mod analytic;
mod empirical;
pub mod inversion;
mod law;
mod numeric;

pub use analytic::{
    Deterministic, Exponential, Gamma, Hyperexponential, Lognormal, UniformPlusExponential,
};
pub use empirical::{Empirical, Piece};
pub use law::{AnyLaw, Atom, ServiceTime};
pub use num_complex::Complex64;
pub(crate) use numeric::kronrod;
#[cfg(test)]
pub(crate) use numeric::moments;

#[cfg(test)]
mod tests;
