//! Laws made of laws: a constant added, a choice between laws and atoms, a sum of independent times.
//!
//! Each keeps account of its atoms (the times that have a probability of their own), because a CDF
//! that jumps cannot be inverted near the jump: see [`super::inversion`] for the rule.

use crate::error::{Error, check, not_negative, time};

use super::{AnyLaw, Atom, Complex64, ServiceTime, inversion};

/// A constant and a law: the time of a request that first takes `by` seconds whatever it meets, for
/// example the network's delay.
///
/// P(T ≤ t) = F(t − by); transform e^(−s·by)·f(s); the variance is the law's. Exact; elementary. Wrong where
/// the constant is none: a delay that queues is a part of a [`Sum`]. Cost: the law's.
///
/// ```
/// use model::distribution::{Exponential, ServiceTime, Shifted};
/// let seen = Shifted::new(0.002, Exponential::new(0.004)?)?;
/// assert!((seen.mean() - 0.006).abs() < 1e-15);
/// assert_eq!(seen.cdf(0.001), 0.0);
/// assert!((seen.cdf(0.006) - (1.0 - (-1.0f64).exp())).abs() < 1e-12);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Shifted<L> {
    by: f64,
    law: L,
}

impl<L: ServiceTime> Shifted<L> {
    /// A law behind a constant of `by` seconds, at least 0.
    pub fn new(by: f64, law: L) -> Result<Self, Error> {
        check("the constant part of a law", by, 0.0..=1e12, "a time in seconds from 0 to 1e12")?;
        Ok(Shifted { by, law })
    }
}

impl<L: ServiceTime> ServiceTime for Shifted<L> {
    fn mean(&self) -> f64 {
        self.by + self.law.mean()
    }
    fn scv(&self) -> f64 {
        self.law.scv() * (self.law.mean() / self.mean()).powi(2)
    }
    fn transform(&self, s: Complex64) -> Complex64 {
        (-s * self.by).exp() * self.law.transform(s)
    }
    fn cdf(&self, t: f64) -> f64 {
        if t < self.by { 0.0 } else { self.law.cdf(t - self.by) }
    }
    fn atoms(&self) -> Vec<Atom> {
        let moved = |a: Atom| Atom { at: a.at + self.by, ..a };
        self.law.atoms().into_iter().map(moved).collect()
    }
    fn transform_line(&self, re: f64, step: f64, out: &mut [Complex64]) {
        self.law.transform_line(re, step, out);
        for (k, value) in out.iter_mut().enumerate() {
            *value *= (-Complex64::new(re, step * k as f64) * self.by).exp();
        }
    }
}

/// A choice between laws and atoms: a hit in memory at a constant time, a miss with its law.
///
/// Moments, CDF and transform are the weighted ones of the parts, so nothing is approximated: the CDF
/// is the parts' own and jumps where an atom is: P(T ≤ t) = Σ pᵢFᵢ(t), E\[T²\] = Σ pᵢE\[Tᵢ²\]. Elementary. Each
/// time is drawn from its part independently of those before: wrong where kinds come in runs, and where shares
/// move with the load. Cost: that of all parts.
///
/// ```
/// use model::distribution::{Atom, Exponential, Mixture, ServiceTime};
/// use std::sync::Arc;
/// // Nine of ten are hits of 0.1 ms; the others wait 10 ms at the mean.
/// let disk = Arc::new(Exponential::new(0.010)?);
/// let node = Mixture::new(vec![(0.1, disk)], &[Atom { at: 1e-4, share: 0.9 }])?;
/// assert!((node.mean() - 0.00109).abs() < 1e-15);
/// assert_eq!(node.cdf(0.99e-4), 0.1 * -(-0.0099f64).exp_m1());
/// assert!(node.cdf(1e-4) > 0.9);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone)]
pub struct Mixture {
    laws: Vec<(f64, AnyLaw)>,
    atoms: Vec<Atom>,
    mean: f64,
    scv: f64,
}

impl Mixture {
    /// Of laws with their shares, and of atoms (at 0 too). Shares must add to 1 within 1e-9, and the
    /// mean must be above 0.
    pub fn new(laws: Vec<(f64, AnyLaw)>, atoms: &[Atom]) -> Result<Self, Error> {
        let mut total = 0.0;
        for share in laws.iter().map(|l| l.0).chain(atoms.iter().map(|a| a.share)) {
            total += check("the share of a part of a mixture", share, 0.0..=1.0, "0 to 1")?;
        }
        check("the sum of a mixture's shares", total, 1.0 - 1e-9..=1.0 + 1e-9, "1")?;
        for atom in atoms {
            check("an atom", atom.at, 0.0..=1e12, "a time in seconds from 0 to 1e12")?;
        }
        let mean = laws.iter().map(|(p, l)| p * l.mean()).sum::<f64>()
            + atoms.iter().map(|a| a.share * a.at).sum::<f64>();
        time("the mean of a mixture", mean)?;
        // About the mean, so that a small variance is not the difference of large numbers.
        let spread = |m: f64| (m - mean).powi(2);
        let variance = laws
            .iter()
            .map(|(p, l)| p * (l.scv() * l.mean().powi(2) + spread(l.mean())))
            .sum::<f64>()
            + atoms.iter().map(|a| a.share * spread(a.at)).sum::<f64>();
        let scv = not_negative("the SCV of a mixture", variance / (mean * mean))?;
        Ok(Mixture { laws, atoms: atoms.to_vec(), mean, scv })
    }
}

impl ServiceTime for Mixture {
    fn mean(&self) -> f64 {
        self.mean
    }
    fn scv(&self) -> f64 {
        self.scv
    }
    fn transform(&self, s: Complex64) -> Complex64 {
        self.laws.iter().map(|(p, l)| l.transform(s) * p).sum::<Complex64>()
            + self.atoms.iter().map(|a| (-s * a.at).exp() * a.share).sum::<Complex64>()
    }
    fn cdf(&self, t: f64) -> f64 {
        if t.is_nan() || t < 0.0 {
            return 0.0;
        }
        let laws: f64 = self.laws.iter().map(|(p, l)| p * l.cdf(t)).sum();
        let atoms: f64 = self.atoms.iter().filter(|a| a.at <= t).map(|a| a.share).sum();
        (laws + atoms).clamp(0.0, 1.0)
    }
    fn atoms(&self) -> Vec<Atom> {
        let inner = self.laws.iter().flat_map(|(p, l)| {
            l.atoms().into_iter().map(move |a| Atom { share: a.share * p, ..a })
        });
        self.atoms.iter().copied().chain(inner).collect()
    }
    fn transform_line(&self, re: f64, step: f64, out: &mut [Complex64]) {
        let mut part = vec![Complex64::ZERO; out.len()];
        out.fill(Complex64::ZERO);
        for (p, law) in &self.laws {
            law.transform_line(re, step, &mut part);
            out.iter_mut().zip(&part).for_each(|(o, x)| *o += x * p);
        }
        inversion::add_atoms(&self.atoms, 1.0, re, step, out);
    }
}

/// Sums with more atoms than this are inverted by concentrated kernels instead.
const ATOMS_MAX: usize = 256;

/// A sum of independent times: a request through several stations.
///
/// Means and variances add; transforms multiply (elementary). The CDF is inverted: the atoms of the sum (sums of
/// the parts' atoms) are exact, the rest is Euler's ([`inversion::beside_atoms`]), good to 1e-9 where
/// it is smooth and some 1e-5 near a jump of the density, which is where one part's atom meets another
/// part's start. A sum of more than 256 atoms is inverted by [`inversion::cme`] as a whole.
/// Weak spot: times that are nearly an atom (an [`super::Empirical`] law a thousandth as wide as its time
/// is long) ring as one that is not known; [`inversion::cme::cdf`] of the sum's transform does not.
/// Wrong where the stations are dependent: in a tandem of M/M/1 queues response times are
/// independent, in most other networks nearly so.
/// Cost of a CDF: [`inversion::TERMS`] transforms of every part.
///
/// ```
/// use model::distribution::{Deterministic, Exponential, ServiceTime, Sum};
/// use std::sync::Arc;
/// let stage = Arc::new(Exponential::new(0.5)?);
/// let both = Sum::new(vec![stage.clone(), stage, Arc::new(Deterministic::new(1.0)?)])?;
/// assert!((both.mean() - 2.0).abs() < 1e-12 && (both.scv() - 0.125).abs() < 1e-12);
/// // Erlang of two stages, a second later.
/// assert!((both.cdf(2.0) - (1.0 - 3.0 * (-2.0f64).exp())).abs() < 1e-9);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone)]
pub struct Sum {
    parts: Vec<AnyLaw>,
    /// What every sum takes at least, of the parts that are constants.
    constant: f64,
    atoms: Vec<Atom>,
    many_atoms: bool,
}

impl Sum {
    /// Of one to 1,000 parts.
    pub fn new(parts: Vec<AnyLaw>) -> Result<Self, Error> {
        check("the number of parts of a sum", parts.len() as f64, 1.0..=1e3, "1 to 1,000")?;
        let (mut constant, mut varying) = (0.0, Vec::new());
        for part in parts {
            match part.atoms()[..] {
                [Atom { at, share }] if share >= 1.0 => constant += at,
                _ => varying.push(part),
            }
        }
        let mut atoms = vec![Atom { at: 0.0, share: 1.0 }];
        let mut many_atoms = false;
        for part in &varying {
            let own = part.atoms();
            many_atoms |= atoms.len() * own.len() > ATOMS_MAX;
            if many_atoms {
                break;
            }
            let pairs = atoms.iter().flat_map(|a| {
                own.iter().map(|b| Atom { at: a.at + b.at, share: a.share * b.share })
            });
            atoms = pairs.collect();
        }
        let sum = Sum { parts: varying, constant, atoms, many_atoms };
        time("the mean of a sum", sum.mean())?;
        Ok(sum)
    }

    /// The transforms' product on a line, without the constant.
    fn varying_line(&self, re: f64, step: f64, out: &mut [Complex64]) {
        let mut part = vec![Complex64::ZERO; out.len()];
        out.fill(Complex64::ONE);
        for law in &self.parts {
            law.transform_line(re, step, &mut part);
            out.iter_mut().zip(&part).for_each(|(o, x)| *o *= x);
        }
    }
}

impl ServiceTime for Sum {
    fn mean(&self) -> f64 {
        self.constant + self.parts.iter().map(|l| l.mean()).sum::<f64>()
    }
    fn scv(&self) -> f64 {
        let variance: f64 = self.parts.iter().map(|l| l.scv() * l.mean().powi(2)).sum();
        variance / self.mean().powi(2)
    }
    fn transform(&self, s: Complex64) -> Complex64 {
        let parts: Complex64 = self.parts.iter().map(|l| l.transform(s)).product();
        parts * (-s * self.constant).exp()
    }
    fn cdf(&self, t: f64) -> f64 {
        let t = t - self.constant;
        if t.is_nan() || t < 0.0 {
            return 0.0;
        }
        match &self.parts[..] {
            [] => 1.0,
            [alone] => alone.cdf(t),
            _ if self.many_atoms => {
                inversion::cme::cdf_of_line(t, |re, step, out| self.varying_line(re, step, out))
            }
            _ => inversion::beside_atoms(t, &self.atoms, |re, step, out| {
                self.varying_line(re, step, out)
            }),
        }
    }
    /// Of a sum with more than 256, those that it was inverted without: none.
    fn atoms(&self) -> Vec<Atom> {
        if self.many_atoms {
            return Vec::new();
        }
        let moved = |a: &Atom| Atom { at: a.at + self.constant, ..*a };
        self.atoms.iter().map(moved).collect()
    }
    fn transform_line(&self, re: f64, step: f64, out: &mut [Complex64]) {
        self.varying_line(re, step, out);
        for (k, value) in out.iter_mut().enumerate() {
            *value *= (-Complex64::new(re, step * k as f64) * self.constant).exp();
        }
    }
}

macro_rules! show_moments {
    ($($law:ident),*) => {$(
        impl std::fmt::Debug for $law {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let (mean, scv) = (self.mean(), self.scv());
                f.debug_struct(stringify!($law)).field("mean", &mean).field("scv", &scv).finish_non_exhaustive()
            }
        }
    )*};
}
show_moments!(Mixture, Sum);
