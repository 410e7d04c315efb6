//! Sums of equal phases, and choices between such sums.

use statrs::function::gamma::gamma_lr;

use crate::error::{Error, check, time};

use super::super::{Complex64, ServiceTime};
use super::PhaseType;

/// Phases of one Erlang law at most.
const ERLANG_PHASES_MAX: u32 = 1_000_000;

/// P(Erlang of mean 1 and so many phases ≤ t).
fn erlang_cdf(phases: u32, t: f64) -> f64 {
    let x = t * f64::from(phases);
    if x.is_nan() || x <= 0.0 {
        0.0
    } else if x > 1e9 {
        1.0
    } else {
        gamma_lr(f64::from(phases), x).clamp(0.0, 1.0)
    }
}

/// (1 + s·mean/phases)^(−phases).
fn erlang_transform(phases: u32, mean: f64, s: Complex64) -> Complex64 {
    let phases = f64::from(phases);
    // By the logarithm: a million factors would lose six digits to rounding.
    (-(1.0 + s * mean / phases).ln() * phases).exp()
}

/// The Erlang law: `phases` exponential times of equal mean, one after the other. SCV 1/phases.
///
/// With k phases and the mean b in seconds: P(T ≤ t) = 1 − e^(−x)·Σ_{j<k} x^j/j!, x = k·t/b (computed as
/// the incomplete gamma function P(k, x)); transform (1 + s·b/k)^(−k). Source: L. Kleinrock, "Queueing
/// Systems" I (1975), section 4.2 (the method of stages). Exact to some 1e-14. Cost: a CDF below a
/// microsecond, whatever k; a transform some tens of nanoseconds.
///
/// It says how regular times are by one whole number. Wrong between two of them
/// ([`crate::distribution::Gamma`] takes any SCV) and for anything that varies more than the exponential;
/// a constant is its limit, not one of them.
///
/// ```
/// use model::distribution::{Erlang, ServiceTime};
/// let law = Erlang::new(4, 0.01)?;
/// assert_eq!(law.scv(), 0.25);
/// assert!((law.cdf(0.01) - 0.566_529_879).abs() < 1e-9);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Erlang {
    phases: u32,
    mean: f64,
}

impl Erlang {
    /// Of 1 to 1,000,000 phases, and with the mean of the whole in seconds.
    pub fn new(phases: u32, mean: f64) -> Result<Self, Error> {
        let most = f64::from(ERLANG_PHASES_MAX);
        check("the number of phases", f64::from(phases), 1.0..=most, "1 to 1,000,000")?;
        Ok(Erlang { phases, mean: time("the mean of an Erlang law", mean)? })
    }

    /// As a phase-type law; an error with more than 1,000 phases.
    pub fn phase_type(&self) -> Result<PhaseType, Error> {
        HyperErlang::new(&[ErlangBranch { share: 1.0, phases: self.phases, mean: self.mean }])?
            .phase_type()
    }
}

impl ServiceTime for Erlang {
    fn mean(&self) -> f64 {
        self.mean
    }
    fn scv(&self) -> f64 {
        1.0 / f64::from(self.phases)
    }
    fn transform(&self, s: Complex64) -> Complex64 {
        erlang_transform(self.phases, self.mean, s)
    }
    fn cdf(&self, t: f64) -> f64 {
        erlang_cdf(self.phases, t / self.mean)
    }
}

/// One branch of a [`HyperErlang`] law, whose page has an example: an Erlang law with its probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ErlangBranch {
    /// Its probability.
    pub share: f64,
    /// How many exponential phases.
    pub phases: u32,
    /// Mean of the whole branch in seconds.
    pub mean: f64,
}

/// A choice between Erlang laws: as dense among the laws on (0, ∞) as phase-type laws are, with a CDF
/// by incomplete gamma functions. [`HyperErlang::fit`] finds one for samples.
///
/// P(T ≤ t) = Σ pᵢ·P(kᵢ, kᵢt/bᵢ) with shares p, phases k and means b; transform Σ pᵢ(1 + s·bᵢ/kᵢ)^(−kᵢ); mean
/// Σ pᵢbᵢ; E\[T²\] = Σ pᵢbᵢ²(1 + 1/kᵢ). Source: A. Thümmler, P. Buchholz, M. Telek, "A novel approach for
/// phase-type fitting with the EM algorithm", IEEE Transactions on Dependable and Secure Computing 3
/// (2006). Exact. Cost: an incomplete gamma function for each branch. Wrong for a tail that is heavier than
/// exponential, beyond what was observed, and for a jump, which needs very many phases: make that an atom
/// of a [`crate::distribution::Mixture`].
///
/// ```
/// use model::distribution::{ErlangBranch, HyperErlang, ServiceTime};
/// let hit = ErlangBranch { share: 0.9, phases: 8, mean: 0.001 };
/// let miss = ErlangBranch { share: 0.1, phases: 2, mean: 0.012 };
/// let law = HyperErlang::new(&[hit, miss])?;
/// assert!((law.mean() - 0.0021).abs() < 1e-15);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct HyperErlang {
    pub(super) branches: Vec<ErlangBranch>,
}

impl HyperErlang {
    /// Of branches whose shares add to 1 within 1e-9.
    pub fn new(branches: &[ErlangBranch]) -> Result<Self, Error> {
        let most = f64::from(ERLANG_PHASES_MAX);
        let mut total = 0.0;
        for branch in branches {
            total += check("the share of a branch", branch.share, 0.0..=1.0, "0 to 1")?;
            check(
                "the phases of a branch",
                f64::from(branch.phases),
                1.0..=most,
                "1 to 1,000,000",
            )?;
            time("the mean of a branch", branch.mean)?;
        }
        check("the sum of the branches' shares", total, 1.0 - 1e-9..=1.0 + 1e-9, "1")?;
        Ok(HyperErlang { branches: branches.to_vec() })
    }

    /// The branches.
    pub fn branches(&self) -> &[ErlangBranch] {
        &self.branches
    }

    /// As a phase-type law; an error with more than 1,000 phases in all.
    pub fn phase_type(&self) -> Result<PhaseType, Error> {
        let total: f64 = self.branches.iter().map(|b| f64::from(b.phases)).sum();
        check("the number of phases", total, 1.0..=super::PHASES_MAX as f64, "1 to 1,000")?;
        let (mut initial, mut moves, mut exits) = (Vec::new(), Vec::new(), Vec::new());
        for branch in &self.branches {
            let rate = f64::from(branch.phases) / branch.mean;
            for phase in 0..branch.phases {
                let last = phase + 1 == branch.phases;
                initial.push(if phase == 0 { branch.share } else { 0.0 });
                moves.push(if last { Vec::new() } else { vec![(initial.len(), rate)] });
                exits.push(if last { rate } else { 0.0 });
            }
        }
        PhaseType::from_rates(initial, moves, exits)
    }
}

impl ServiceTime for HyperErlang {
    fn mean(&self) -> f64 {
        self.branches.iter().map(|b| b.share * b.mean).sum()
    }
    fn scv(&self) -> f64 {
        let mean = self.mean();
        let about = |b: &ErlangBranch| {
            b.share * (b.mean * b.mean / f64::from(b.phases) + (b.mean - mean).powi(2))
        };
        self.branches.iter().map(about).sum::<f64>() / (mean * mean)
    }
    fn transform(&self, s: Complex64) -> Complex64 {
        self.branches.iter().map(|b| erlang_transform(b.phases, b.mean, s) * b.share).sum()
    }
    fn cdf(&self, t: f64) -> f64 {
        self.branches
            .iter()
            .map(|b| b.share * erlang_cdf(b.phases, t / b.mean))
            .sum::<f64>()
            .clamp(0.0, 1.0)
    }
}
