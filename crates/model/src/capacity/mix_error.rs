//! How far measured mixes are from the law, and what that says of further ones.

use serde::{Deserialize, Serialize};

use super::mix::MixPart;
use crate::error::{Error, check, positive};
use crate::regression::Estimated;
use crate::statistics::student;

/// Standard deviation of ln(measured over predicted) that mixes of several sizes of an unknown
/// store have in common.
const COMMON: f64 = 0.07;
/// Standard deviation of a single mix about that, and the number of mixes that this is worth.
const SPREAD: f64 = 0.03;
const SPREAD_DEGREES: f64 = 6.0;
/// Rounds of the iteration between the common deviation and the spread; it converges in three.
const ROUNDS: usize = 8;

/// A measured mix beside the prediction of the law alone, an input of [`MixError::from_mixes`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JudgedMix {
    /// Whether it has several sizes ([`MixError::has_several`]).
    pub several: bool,
    /// Measured throughput.
    pub measured: f64,
    /// Throughput by the law.
    pub law: f64,
    /// Relative standard deviation of the two that is known: of the fitted points and the
    /// measurement.
    pub deviation: f64,
}

/// The error of the law itself for mixes that were not fitted: with ε the known deviation,
///
///   ln(measured / law) = β·\[several sizes\] + u + ε,   u ~ N(0, τ²).
///
/// β is systematic: requests of several sizes disturb each other (small ones wait behind large
/// ones, caches and buffers suit one size), which conservation of capacity ignores. u is another for
/// each mix. Mixes that were measured estimate both, starting from a prior: β ~ N(0, 0.07²), and
/// τ = 0.03 as if 6 mixes had said so. The prior is what the mixes of `experiments/att` on two stores had (β
/// −0.06 and −0.07, τ 0.02 and 0.05); without measured mixes it is all that is known.
///
/// Method: β by least squares with weights 1/(τ² + variance of ε) and the prior's; τ² by the excess of the
/// mean square over the known variance (R. DerSimonian, N. Laird, Controlled Clinical Trials 7,
/// 1986), pooled with the prior's by degrees of freedom. Wrong if β differs between mixes in a way
/// that further mixes do not share with the judged ones (much larger sizes, say). Cost: linear in the mixes.
///
/// ```
/// use model::capacity::{JudgedMix, MixError};
/// use model::regression::Estimated;
/// let judged = |several, measured| JudgedMix { several, measured, law: 100.0, deviation: 0.01 };
/// let mixes = [judged(true, 90.0), judged(true, 91.0), judged(true, 92.0), judged(false, 100.0)];
/// let error = MixError::from_mixes(&mixes)?;
/// // Further mixes of several sizes are predicted 9 % lower, of one size as the law says.
/// let law = Estimated::around(200.0, Some(4.0));
/// let several = error.expected(law, true, (0.01, 12.0), 0.95)?;
/// assert!((181.0..184.0).contains(&several.value), "{several:?}");
/// assert_eq!(error.expected(law, false, (0.01, 12.0), 0.95)?.value, 200.0);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MixError {
    /// β, and its standard deviation.
    pub common: f64,
    /// The same.
    pub common_deviation: f64,
    /// τ.
    pub spread: f64,
    /// Degrees of freedom of both.
    pub degrees: f64,
    /// Mixes that were judged.
    pub mixes: usize,
}

impl MixError {
    /// What is known without a measured mix.
    pub fn prior() -> MixError {
        MixError {
            common: 0.0,
            common_deviation: COMMON,
            spread: SPREAD,
            degrees: SPREAD_DEGREES,
            mixes: 0,
        }
    }

    /// What measured mixes say.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a throughput that is not positive, or a deviation outside of 0 to 1e3.
    pub fn from_mixes(judged: &[JudgedMix]) -> Result<MixError, Error> {
        let mut each = Vec::new();
        for mix in judged {
            positive("the throughput of a mix", mix.measured)?;
            positive("the predicted throughput of a mix", mix.law)?;
            check("the deviation of a mix", mix.deviation, 0.0..=1e3, "0 to 1,000")?;
            each.push((mix.several, (mix.measured / mix.law).ln(), mix.deviation.powi(2)));
        }
        let mut found = MixError { mixes: each.len(), ..MixError::prior() };
        let several = each.iter().any(|mix| mix.0);
        let own = each.len() as f64 - f64::from(u8::from(several));
        for _ in 0..ROUNDS {
            let variance = found.spread.powi(2);
            let (mut weight, mut sum) = (COMMON.powi(-2), 0.0);
            for (_, log, known) in each.iter().filter(|mix| mix.0) {
                let w = 1.0 / (variance + known).max(1e-12);
                (weight, sum) = (weight + w, sum + w * log);
            }
            (found.common, found.common_deviation) = (sum / weight, weight.powf(-0.5));
            if own > 0.0 {
                let off = |(several, log, _): &(bool, f64, f64)| {
                    log - if *several { found.common } else { 0.0 }
                };
                let square: f64 = each.iter().map(|mix| off(mix).powi(2)).sum();
                let known = each.iter().map(|mix| mix.2).sum::<f64>() / each.len() as f64;
                let excess = (square / own - known).max(0.0);
                found.degrees = SPREAD_DEGREES + own;
                let pooled = SPREAD_DEGREES * SPREAD.powi(2) + own * excess;
                found.spread = (pooled / found.degrees).sqrt();
            }
        }
        Ok(found)
    }

    /// Whether a mix has several sizes: then β applies.
    pub fn has_several(parts: &[MixPart]) -> bool {
        let mut sizes = parts.iter().filter(|part| part.share > 0.0).map(|part| part.size_bytes);
        let first = sizes.next();
        sizes.any(|size| Some(size) != first)
    }

    /// The throughput of a further mix with the interval in which a measurement is expected, from
    /// the law's own prediction and interval. `scatter`: the relative standard deviation of the
    /// measurement, and the degrees of freedom by which it is known.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a confidence outside of 0.5 to 0.9999.
    pub fn expected(
        &self,
        law: Estimated,
        several: bool,
        scatter: (f64, f64),
        confidence: f64,
    ) -> Result<Estimated, Error> {
        let common = if several { (self.common, self.common_deviation) } else { (0.0, 0.0) };
        let own = student(confidence, self.degrees)? * self.spread.hypot(common.1);
        let noise = student(confidence, scatter.1.max(1.0))? * scatter.0;
        // Logarithmic, so that the lower end is not negative however wide the interval is.
        let end = |end: Option<f64>, sign: f64| {
            let of_law = end.filter(|e| *e > 0.0).map_or(0.0, |e| (e / law.value).ln());
            law.value * (common.0 + sign * of_law.hypot(own).hypot(noise)).exp()
        };
        Ok(Estimated {
            value: law.value * common.0.exp(),
            low: Some(end(law.low, -1.0)),
            high: Some(end(law.high, 1.0)),
        })
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_distr::{Distribution, Normal};

    use super::*;

    fn mix(several: bool, log: f64, deviation: f64) -> JudgedMix {
        JudgedMix { several, measured: 1e3 * log.exp(), law: 1e3, deviation }
    }

    #[test]
    fn without_mixes_the_prior_is_known_and_many_mixes_outweigh_it() {
        assert_eq!(MixError::from_mixes(&[]).unwrap(), MixError::prior());
        let many: Vec<JudgedMix> =
            (0..400).map(|i| mix(i % 4 > 0, if i % 4 > 0 { -0.2 } else { 0.0 }, 0.0)).collect();
        let found = MixError::from_mixes(&many).unwrap();
        assert!((found.common + 0.2).abs() < 0.001 && found.spread < 0.005, "{found:?}");
        // Mixes of one size alone tell the spread and leave β as it was.
        let one: Vec<JudgedMix> =
            (0..40).map(|i| mix(false, if i % 2 == 0 { 0.1 } else { -0.1 }, 0.0)).collect();
        let found = MixError::from_mixes(&one).unwrap();
        assert!((found.spread - 0.1).abs() < 0.01, "{found:?}");
        assert_eq!((found.common, found.common_deviation), (0.0, COMMON));
    }

    #[test]
    fn scatter_that_is_known_is_not_taken_for_the_laws() {
        let noise = |i: usize| if i.is_multiple_of(2) { 0.05 } else { -0.05 };
        let found = |deviation: f64| {
            let all: Vec<JudgedMix> =
                (0..60).map(|i| mix(true, noise(i) - 0.06, deviation)).collect();
            MixError::from_mixes(&all).unwrap()
        };
        assert!(found(0.05).spread < 0.012, "{:?}", found(0.05));
        assert!(found(0.0).spread > 0.045);
    }

    /// Mixes that the estimate did not use are inside as often as the interval says, whatever the store.
    #[test]
    fn further_mixes_are_inside() {
        let mut random = rand::rngs::StdRng::seed_from_u64(5);
        let mut normal = |deviation: f64| Normal::new(0.0, deviation).unwrap().sample(&mut random);
        let (mut inside, mut all) = ([0; 2], 0);
        for store in 0..300 {
            let common = normal(COMMON);
            let spread = [0.01, 0.03, 0.05][store % 3];
            let each: Vec<JudgedMix> = (0..12)
                .map(|i| {
                    let several = i % 3 > 0;
                    let shift = if several { common } else { 0.0 };
                    mix(several, shift + normal(spread) + normal(0.02), 0.02)
                })
                .collect();
            for (i, held_out) in each.iter().enumerate() {
                let others: Vec<JudgedMix> =
                    each.iter().enumerate().filter(|e| e.0 != i).map(|e| *e.1).collect();
                for (k, error) in [MixError::from_mixes(&others).unwrap(), MixError::prior()]
                    .into_iter()
                    .enumerate()
                {
                    let law = Estimated::alone(held_out.law);
                    let found = error.expected(law, held_out.several, (0.02, 30.0), 0.95).unwrap();
                    let holds = found.low.unwrap()..=found.high.unwrap();
                    inside[k] += usize::from(holds.contains(&held_out.measured));
                }
                all += 1;
            }
        }
        let share = inside.map(|n| n as f64 / all as f64);
        assert!((0.935..0.985).contains(&share[0]), "{share:?}");
        // The prior does not know how disturbed this store is.
        assert!((0.90..0.99).contains(&share[1]), "{share:?}");
    }

    #[test]
    fn sizes_are_several_only_where_requests_have_them() {
        let part = |size_bytes, share| MixPart { size_bytes, read_share: 0.5, share };
        assert!(MixError::has_several(&[part(1.0, 0.5), part(2.0, 0.5)]));
        assert!(!MixError::has_several(&[part(1.0, 0.5), part(1.0, 0.5)]));
        assert!(!MixError::has_several(&[part(1.0, 1.0), part(2.0, 0.0)]));
        assert!(!MixError::has_several(&[]));
    }

    #[test]
    fn bad_mixes_are_named() {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let wrong = JudgedMix { measured: bad, ..mix(true, 0.0, 0.0) };
            assert!(MixError::from_mixes(&[wrong]).is_err(), "{bad}");
        }
        assert!(MixError::from_mixes(&[mix(true, 0.0, f64::NAN)]).is_err());
        let law = Estimated::alone(1.0);
        assert!(MixError::prior().expected(law, true, (0.0, 1.0), 2.0).is_err());
    }
}
