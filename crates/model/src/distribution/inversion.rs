//! From the Laplace transform of a CDF back to the CDF: Euler's algorithm.
//!
//! Source: J. Abate and W. Whitt, "Numerical inversion of Laplace transforms of probability
//! distributions", ORSA Journal on Computing 7 (1995): the Fourier-series method, its alternating series
//! summed by Euler's binomial averages. The discretisation error is at most exp(−A) ≈ 4e-11 for a CDF;
//! rounding adds about exp(A/2)·1e-16 ≈ 2e-11; what the truncated series leaves is below 1e-9 where the
//! CDF is smooth on (0, 2t).
//!
//! When *not* to use it: at or near an atom of the law, or a jump of its density: there the Fourier
//! series rings (Gibbs), and errors reach 1e-5 at a kink and 5 % at a jump. Which way is taken when:
//!
//! 1. A law that has a CDF of its own is asked for it, and nothing is inverted.
//! 2. Without atoms: Euler, [`cdf`] and [`sum`].
//! 3. With atoms that are known: they are taken out of the transform and added exactly, and the rest
//!    is Euler's: [`beside_atoms`]. The queues of this crate do that with a request that does not wait.
//! 4. With atoms that are not known, or too many to list: [`cme`], which never overshoots. It smears a
//!    jump over some percent of its time, and says how far ([`cme::jump_error`]).
//!
//! Cost: [`TERMS`] values of the transform for each `t`.

use std::sync::OnceLock;

use super::{Atom, Complex64};

pub mod cme;

/// Twice the real part of the line times t: exp(−A) is the discretisation error.
const A: f64 = 24.0;
/// Terms summed as they are.
const DIRECT: usize = 60;
/// Terms averaged with binomial weights.
const AVERAGED: usize = 20;
/// How many values of the transform an inversion takes: 60 terms and the 21 of 20 binomial averages.
pub const TERMS: usize = DIRECT + AVERAGED + 1;

/// The line `re + i·k·step`, k < [`TERMS`], at whose points [`sum`] wants the transform for the time `t`
/// seconds: re = A/(2t) with A = 24, step = π/t (Abate and Whitt 1995; the module's page).
///
/// ```
/// use model::distribution::{Complex64, inversion};
/// // An exponential time of mean 1, at t = 2, by hand: what `inversion::cdf` does.
/// let (re, step) = inversion::line(2.0);
/// let transform = |k: usize| 1.0 / (1.0 + Complex64::new(re, step * k as f64));
/// assert!((inversion::sum(transform, 2.0) - (1.0 - (-2.0f64).exp())).abs() < 1e-9);
/// ```
pub fn line(t: f64) -> (f64, f64) {
    (A / (2.0 * t), std::f64::consts::PI / t)
}

/// The signed weights of the terms: (−1)^k, halved at 0, tapered by the binomial CDF at the end.
fn weights() -> &'static [f64; TERMS] {
    static WEIGHTS: OnceLock<[f64; TERMS]> = OnceLock::new();
    WEIGHTS.get_or_init(|| {
        let mut weights = [1.0; TERMS];
        // Share of the averaged partial sums that contain term DIRECT + j: 1 − P(Binomial(m, ½) < j).
        let mut binomial = 0.5f64.powi(AVERAGED as i32);
        let mut missing = 0.0;
        for j in 0..=AVERAGED {
            weights[DIRECT + j] = 1.0 - missing;
            missing += binomial;
            binomial *= (AVERAGED - j) as f64 / (j + 1) as f64;
        }
        weights[0] = 0.5;
        let scale = (A / 2.0).exp();
        for (k, weight) in weights.iter_mut().enumerate() {
            *weight *= if k % 2 == 0 { scale } else { -scale };
        }
        weights
    })
}

/// The CDF at `t` from `value(k)` = the Laplace–Stieltjes transform at the k-th point of [`line()`].
///
/// It is (e^(A/2)/t)·Σ ±Re(f(sₖ)/sₖ), the first term halved, the last 21 tapered by the binomial CDF.
/// Not clamped: the caller knows the bounds of what it inverts. Never NaN for finite values. Accuracy and
/// when it is wrong: the module's page. [`line()`] has an example.
pub fn sum(mut value: impl FnMut(usize) -> Complex64, t: f64) -> f64 {
    let (re, step) = line(t);
    let mut total = 0.0;
    for (k, weight) in weights().iter().enumerate() {
        let v = value(k);
        let im = step * k as f64;
        // Re(v / s), s = re + i·im.
        total += weight * (v.re * re + v.im * im) / (re * re + im * im);
    }
    total / t
}

/// P(T ≤ t) from the Laplace–Stieltjes transform of T; 0 for `t` ≤ 0. Within [0, 1].
///
/// For a law without atoms, smooth near `t`: see the module's page. Cost: [`TERMS`] transforms.
///
/// ```
/// use model::distribution::inversion::cdf;
/// let exponential = cdf(|s| 1.0 / (1.0 + s), 2.0);
/// assert!((exponential - (1.0 - (-2.0f64).exp())).abs() < 1e-9);
/// ```
pub fn cdf(transform: impl Fn(Complex64) -> Complex64, t: f64) -> f64 {
    if t.is_nan() || t <= 0.0 {
        return 0.0;
    }
    let (re, step) = line(t);
    sum(|k| transform(Complex64::new(re, step * k as f64)), t).clamp(0.0, 1.0)
}

/// Adds factor·Σ share·exp(−s·at) at each s = `re` + i·k·`step`.
pub(crate) fn add_atoms(atoms: &[Atom], factor: f64, re: f64, step: f64, out: &mut [Complex64]) {
    for atom in atoms {
        let turn = Complex64::from_polar(1.0, -step * atom.at);
        let mut value = Complex64::from(factor * atom.share * (-re * atom.at).exp());
        for place in out.iter_mut() {
            *place += value;
            value *= turn;
        }
    }
}

/// P(T ≤ t) of a law whose atoms are known: they are exact, what is left is inverted by [`sum`].
/// `line` writes the transform of the whole law at `re + i·k·step`, as
/// [`super::ServiceTime::transform_line`] does. Within [0, 1]; 0 below 0.
///
/// ```
/// use model::distribution::{Atom, Complex64, inversion::beside_atoms};
/// // 0 with probability a quarter, 1 with a quarter, else exponential.
/// let atoms = [Atom { at: 0.0, share: 0.25 }, Atom { at: 1.0, share: 0.25 }];
/// let found = beside_atoms(1.0, &atoms, |re, step, out| {
///     for (k, value) in out.iter_mut().enumerate() {
///         let s = Complex64::new(re, step * k as f64);
///         *value = 0.25 + 0.25 * (-s).exp() + 0.5 / (1.0 + s);
///     }
/// });
/// assert!((found - (0.5 + 0.5 * (1.0 - (-1.0f64).exp()))).abs() < 1e-9);
/// ```
pub fn beside_atoms(
    t: f64,
    atoms: &[Atom],
    line_values: impl FnOnce(f64, f64, &mut [Complex64]),
) -> f64 {
    if t.is_nan() || t < 0.0 {
        return 0.0;
    }
    let whole: f64 = atoms.iter().map(|a| a.share).sum();
    let exact: f64 = atoms.iter().filter(|a| a.at <= t).map(|a| a.share).sum();
    if whole >= 1.0 - 1e-12 || t <= T_MIN {
        return exact.clamp(0.0, 1.0);
    }
    if t >= T_MAX {
        return 1.0;
    }
    let (re, step) = line(t);
    let mut values = [Complex64::ZERO; TERMS];
    line_values(re, step, &mut values);
    add_atoms(atoms, -1.0, re, step, &mut values);
    (exact + sum(|k| values[k], t).clamp(0.0, 1.0 - whole)).clamp(0.0, 1.0)
}

/// Seconds at and below which, and at and above which, a CDF is not worth inverting.
const T_MIN: f64 = 1e-18;
const T_MAX: f64 = 1e18;
