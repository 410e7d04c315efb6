//! Service more regular than exponential at several servers: how M/G/m differs from its form
//! ([`super::delay`]).
//!
//! Source: the exact M/PH/m queue ([`super::phases`]) from an SCV of 0.5, C. Crommelin's roots
//! (1932) for constant service, and a line between them. Cost: milliseconds for 32 servers. The
//! error reaches half a point if the third moment is far from that of Erlang's laws.

use crate::distribution::{Complex64, ServiceTime};
use crate::error::Error;

use super::erlang::erlang_c;
use super::first_end::first_end;
use super::moments::NEARLY;
use super::phases::Solved;

/// For an SCV up to 1: the probability that a request waits, and the factor of the mean wait of
/// those that do, over that of a first end and a geometric number of residual times.
pub(super) fn regular(servers: u32, rho: f64, scv: f64) -> Result<(f64, f64), Error> {
    if scv > 1.0 - NEARLY {
        return Ok((erlang_c(servers, rho), 1.0));
    }
    if scv >= 0.5 {
        return mixed(servers, rho, scv);
    }
    let (some, none) = (mixed(servers, rho, 0.5)?, constant(servers, rho));
    let between = |a: f64, b: f64| b + (a - b) * scv / 0.5;
    Ok((between(some.0, none.0), between(some.1, none.1)))
}

/// [`regular`] of one or two phases of one rate.
fn mixed(servers: u32, rho: f64, scv: f64) -> Result<(f64, f64), Error> {
    let law = MixedErlang::new(scv);
    let start = [1.0 - law.one, law.one];
    let rows: [&[f64]; 2] = [&[-law.rate, law.rate], &[0.0, -law.rate]];
    let rate = rho * f64::from(servers);
    let (waits, wait) = Solved::new(rate, servers, &start, &rows)?.wait_and_mean();
    Ok((waits, factor(wait / waits, rho, &law, servers)?))
}

/// A mean wait over that of the first end and a geometric number of residual times.
fn factor(wait: f64, rho: f64, law: &dyn ServiceTime, servers: u32) -> Result<f64, Error> {
    let later = rho / (1.0 - rho) * law.mean() * (1.0 + law.scv()) / (2.0 * f64::from(servers));
    let factor = wait / (first_end(law, servers)?.mean() + later);
    Ok(if factor.is_finite() { factor } else { 1.0 })
}

/// Mean 1 and an SCV from 0.5 to 1: one exponential phase with probability `one`, else two, of one
/// rate.
#[derive(Clone, Copy, Debug)]
struct MixedErlang {
    one: f64,
    rate: f64,
    scv: f64,
}

impl MixedErlang {
    fn new(scv: f64) -> Self {
        let one = (2.0 * scv - (2.0 - 2.0 * scv).max(0.0).sqrt()) / (1.0 + scv);
        MixedErlang { one, rate: 2.0 - one, scv }
    }
}

impl ServiceTime for MixedErlang {
    fn mean(&self) -> f64 {
        1.0
    }
    fn scv(&self) -> f64 {
        self.scv
    }
    fn transform(&self, s: Complex64) -> Complex64 {
        let phase = self.rate / (self.rate + s);
        phase * (self.one + (1.0 - self.one) * phase)
    }
    fn cdf(&self, t: f64) -> f64 {
        let x = self.rate * t.max(0.0);
        1.0 - (-x).exp() * (1.0 + (1.0 - self.one) * x)
    }
}

/// [`regular`] of constant service (M/D/m), exactly: C. Crommelin (1932). With the roots zₖ of zᵐ =
/// exp(mρ(z − 1)) inside the unit circle, P(no wait) = m(1 − ρ)/Π(1 − zₖ), and the mean number
/// waiting is Σ1/(1 − zₖ) + ((mρ)² − m(m − 1))/(2m(1 − ρ)).
fn constant(servers: u32, rho: f64) -> (f64, f64) {
    let m = f64::from(servers);
    let (mut product, mut sum) = (Complex64::new(1.0, 0.0), Complex64::ZERO);
    for k in 1..servers {
        let turn = Complex64::from_polar(1.0, std::f64::consts::TAU * f64::from(k) / m);
        let mut z = Complex64::ZERO;
        let value = |z: Complex64| turn * (rho * (z - 1.0)).exp();
        // A contraction, and then Newton.
        (0..8).for_each(|_| z = value(z));
        for _ in 0..8 {
            let f = value(z);
            z -= (z - f) / (1.0 - rho * f);
        }
        product *= 1.0 - z;
        sum += 1.0 / (1.0 - z);
    }
    let waits = 1.0 - m * (1.0 - rho) / product.re;
    let offered = m * rho;
    let waiting = sum.re + (offered * offered - m * (m - 1.0)) / (2.0 * m * (1.0 - rho));
    if waits < 1e-9 {
        return (waits.max(0.0), 1.0);
    }
    let later = rho / (1.0 - rho) / (2.0 * m);
    (waits.min(1.0), waiting / offered / waits / (1.0 / (m + 1.0) + later))
}
