//! Bootstrap intervals of a 2^k·r design ([`Bootstrap`] has the method).

use rand::{Rng, RngExt};
use serde::Serialize;

use super::factorial::{Factorial, contrasts};
use crate::error::Error;

/// The interval of one effect, in [`Bootstrap::effects`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BootstrapInterval {
    /// Letters of the factors.
    pub name: String,
    /// Lower and upper end of the interval of q.
    pub effect: [f64; 2],
    /// Lower and upper end of the interval of SS/SST.
    pub fraction: [f64; 2],
}

/// Bootstrap intervals of a factorial design.
///
/// Each sample is the fitted cells plus residuals drawn from all of them with replacement,
/// multiplied by √(r/(r − 1)) because residuals about a mean of r observations are too small by
/// that factor (Davison and Hinkley, "Bootstrap Methods and their Application", section 6.2.3). The
/// effects and the allocation of variation are recomputed, and intervals lie between quantiles of
/// the samples. It does not assume normal errors, and gives intervals that have no formula, such as
/// that of an explained fraction. Cost: 2^k·(r + k) operations for each sample; 10⁵ samples of 2³·3
/// in some 50 ms. Wrong if the noise differs between cells, or with few runs in total (8 residuals
/// have few distinct values).
///
/// ```
/// use model::design::{Bootstrap, Factorial, Form};
/// use rand::SeedableRng;
/// let cells = [[15., 18., 12.], [45., 48., 51.], [25., 28., 19.], [75., 75., 81.]];
/// let cells: Vec<Vec<f64>> = cells.iter().map(|c| c.to_vec()).collect();
/// let found = Factorial::new(&cells, Form::Additive, 0.90)?;
/// let mut random = rand::rngs::StdRng::seed_from_u64(1);
/// let again = Bootstrap::new(&found, 2_000, &mut random)?;
/// let [low, high] = again.effects[0].fraction;
/// assert!(low < found.effects[0].fraction && found.effects[0].fraction < high);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bootstrap {
    /// Number of samples drawn.
    pub samples: usize,
    /// The interval of each effect, in the order of the design's effects.
    pub effects: Vec<BootstrapInterval>,
    /// Lower and upper end of the interval of SSE/SST.
    pub error_fraction: [f64; 2],
}

/// Largest number of values held: 256 MB.
const NUMBERS_MAX: usize = 1 << 25;

impl Bootstrap {
    /// Draws samples (at least 100) for intervals at the design's confidence.
    pub fn new(design: &Factorial, samples: usize, random: &mut impl Rng) -> Result<Self, Error> {
        let (cells, r) = (design.fitted.len(), design.replications);
        let wrong = |why: String| Error::Design { what: "the bootstrap".to_owned(), why };
        if r < 2 {
            return Err(wrong(
                "one run for each cell leaves no residuals; repeat the runs".to_owned(),
            ));
        }
        if samples < 100 || samples.saturating_mul(2 * cells) > NUMBERS_MAX {
            let most = NUMBERS_MAX / (2 * cells);
            return Err(wrong(format!("{samples} samples where 100 to {most} can be drawn")));
        }
        let widen = (r as f64 / (r as f64 - 1.0)).sqrt();
        let residuals: Vec<f64> = design.residuals.iter().flatten().map(|e| e * widen).collect();
        let observations = (cells * r) as f64;
        // One row for each result: the unexplained part, the effects, and from `cells` on (the
        // first of these is unused) their fractions.
        let mut drawn = vec![0.0; 2 * cells * samples];
        let mut q = vec![0.0; cells];
        for sample in 0..samples {
            let mut error = 0.0;
            for (mean, fitted) in q.iter_mut().zip(&design.fitted) {
                let (mut sum, mut square) = (0.0, 0.0);
                for _ in 0..r {
                    let e = residuals[random.random_range(0..residuals.len())];
                    sum += e;
                    square += e * e;
                }
                error += (square - sum * sum / r as f64).max(0.0);
                *mean = fitted + sum / r as f64;
            }
            contrasts(&mut q);
            let explained: f64 = q[1..].iter().map(|q| observations * q * q).sum();
            let total = (explained + error).max(f64::MIN_POSITIVE);
            drawn[sample] = error / total;
            for (mask, q) in q.iter().enumerate().skip(1) {
                drawn[mask * samples + sample] = *q;
                drawn[(cells + mask) * samples + sample] = observations * q * q / total;
            }
        }
        let ends: Vec<[f64; 2]> = drawn
            .chunks_exact_mut(samples)
            .map(|row| {
                [0.5 - 0.5 * design.confidence, 0.5 + 0.5 * design.confidence].map(|p| nth(row, p))
            })
            .collect();
        let effects = design.effects.iter().map(|effect| {
            let (mask, turned) = effect.contrast;
            let [low, high] = ends[mask];
            BootstrapInterval {
                name: effect.name.clone(),
                effect: if turned { [-high, -low] } else { [low, high] },
                fraction: ends[cells + mask],
            }
        });
        Ok(Bootstrap { samples, effects: effects.collect(), error_fraction: ends[0] })
    }
}

/// The p-quantile of values at the nearest rank; reorders the values.
fn nth(values: &mut [f64], p: f64) -> f64 {
    let at = (p * (values.len() - 1) as f64).round() as usize;
    *values.select_nth_unstable_by(at, f64::total_cmp).1
}
