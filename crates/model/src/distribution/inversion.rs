//! Numerical inversion of the Laplace transform of a CDF by Euler's algorithm.
//!
//! Source: J. Abate and W. Whitt, "Numerical inversion of Laplace transforms of probability
//! distributions", ORSA Journal on Computing 7 (1995): the Fourier-series method, whose alternating
//! series is summed by Euler's binomial averages. For a CDF the discretisation error is at most
//! exp(−A) ≈ 4e-11 and the rounding error about exp(A/2)·1e-16 ≈ 2e-11. The truncation error is
//! below 1e-9 where the CDF is smooth on (0, 2t).
//!
//! Do *not* invert at or near an atom of the law or a jump of its density. The Fourier series rings
//! there (Gibbs), with errors of 1e-5 at a jump of the density and 5 % at an atom. Therefore:
//!
//! 1. If a law has its own CDF, use that.
//! 2. If it has no atoms, use [`cdf`] or [`sum`].
//! 3. If its atoms are known, subtract them from the transform, invert the rest, and add them
//!    exactly. The queues of this crate do so for requests that do not wait.
//!
//! Cost: [`TERMS`] evaluations of the transform for each `t`.

use std::sync::OnceLock;

use num_complex::Complex64;

/// 2t times the real part of the points of [`line()`]; exp(−A) bounds the discretisation error.
const A: f64 = 24.0;
/// Terms of the series with weight 1.
const DIRECT: usize = 60;
/// Terms whose weights are averaged over binomial partial sums.
const AVERAGED: usize = 20;
/// Number of evaluations of the transform in one inversion: 60 terms, and 21 for the 20 averages.
pub const TERMS: usize = DIRECT + AVERAGED + 1;

/// `(re, step)` of the points `re + i·k·step`, k < [`TERMS`], at which [`sum`] needs the transform
/// for the time `t` in seconds: re = A/(2t) with A = 24, step = π/t (Abate and Whitt 1995).
///
/// ```
/// use model::distribution::{Complex64, inversion};
/// // The steps of `inversion::cdf`, for an exponential time of mean 1 at t = 2.
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
        // Share of the averaged partial sums that contain term DIRECT + j: 1 − P(Binomial(m, ½) <
        // j).
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

/// The CDF at `t` from `value(k)` = the Laplace–Stieltjes transform at the k-th point of
/// [`line()`].
///
/// It is (e^(A/2)/t)·Σ ±Re(f(sₖ)/sₖ), the first term halved, the last 21 tapered by the binomial
/// CDF. The result is not clamped, because only the caller knows its bounds. It is never NaN for
/// finite values. The module's page states the accuracy; [`line()`] has an example.
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
/// Beyond `t` of about 1e150 the arithmetic underflows and the result may be NaN.
///
/// The law must have no atoms and be smooth near `t` (see the module's page). Cost: [`TERMS`]
/// evaluations.
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
