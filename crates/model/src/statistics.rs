//! Means of dependent observations with intervals, quantiles, and Student's and Fisher's
//! distributions.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};
use statrs::function::beta::beta_reg;

use crate::error::{Error, check};

/// A mean with the half width of its 95 % confidence interval, returned by [`batch_means`] and
/// [`ratio_of_sums`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean, in the unit of the observations.
    pub mean: f64,
    /// Half the width of the 95 % interval, in the same unit.
    pub half_width: f64,
    /// Number of observations (batches).
    pub batches: usize,
}

/// The t quantile for a 95 % two-sided interval; 1.96 for many degrees of freedom.
///
/// ```
/// assert!((model::statistics::student_95(9) - 2.262).abs() < 1e-3);
/// ```
pub fn student_95(degrees: usize) -> f64 {
    StudentsT::new(0.0, 1.0, degrees.max(1) as f64).map_or(1.96, |t| t.inverse_cdf(0.975))
}

/// The t quantile of a two-sided interval at a confidence of 0.5 to 0.9999, for any number of
/// degrees of freedom above 0, fractions included. Cost: some iterations of the incomplete beta
/// function.
///
/// ```
/// // Jain, "The Art of Computer Systems Performance Analysis", table A.4: t[0.95; 8] = 1.860.
/// assert!((model::statistics::student(0.90, 8.0)? - 1.860).abs() < 1e-3);
/// # Ok::<(), model::Error>(())
/// ```
pub fn student(confidence: f64, degrees: f64) -> Result<f64, Error> {
    check("the confidence", confidence, 0.5..=0.9999, "from 0.5 to 0.9999")?;
    check("the degrees of freedom", degrees, 0.1..=1e15, "from 0.1 to 1e15")?;
    let p = 0.5 + 0.5 * confidence;
    if degrees < 1e4 {
        let law = StudentsT::new(0.0, 1.0, degrees).expect("the degrees are above 0");
        return Ok(law.inverse_cdf(p));
    }
    // Expansion of Cornish and Fisher about the normal law; its error is of the order of
    // 1/degrees³.
    let z = Normal::standard().inverse_cdf(p);
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * degrees * degrees);
    Ok(z + (z.powi(3) + z) / (4.0 * degrees) + second)
}

/// P(F > f) for the F distribution of `above` and `below` degrees of freedom: the probability of a
/// ratio of two mean squares at least this large if both are noise alone. Small probabilities keep
/// their digits.
///
/// ```
/// // Jain, table A.6: F[0.95; 2, 12] = 3.89.
/// assert!((model::statistics::f_exceeded(3.89, 2.0, 12.0)? - 0.05).abs() < 5e-4);
/// # Ok::<(), model::Error>(())
/// ```
pub fn f_exceeded(f: f64, above: f64, below: f64) -> Result<f64, Error> {
    check("the ratio of mean squares", f, 0.0..=f64::MAX, "a finite number, at least 0")?;
    check("the degrees of freedom", above.min(below), 0.1..=1e15, "from 0.1 to 1e15")?;
    let share = below / (above * f + below);
    Ok(beta_reg(0.5 * below, 0.5 * above, share).clamp(0.0, 1.0))
}

/// Mean and 95 % half width (Student's t) of batch means, each the mean of one batch (a run, or a
/// part of a run long enough that neighbours hardly depend on each other). `None` if there are
/// fewer than two batches, or an observation is not finite.
///
/// z̄ ± t(n − 1)·s/√n, s² = Σ(z − z̄)²/(n − 1). Source: R. Jain, "The Art of Computer Systems
/// Performance Analysis" (1991), section 25.5. Too narrow if batches are short compared with the
/// correlation time of the series (which is long near saturation: [`crate::queue::relaxation_s`]),
/// or if there are few batches far from normal.
///
/// ```
/// let e = model::statistics::batch_means(&[9.0, 10.0, 11.0]).unwrap();
/// assert_eq!(e.mean, 10.0);
/// assert!((e.half_width - 2.484).abs() < 1e-3);
/// ```
pub fn batch_means(batches: &[f64]) -> Option<Estimate> {
    let n = batches.len();
    if n < 2 || batches.iter().any(|x| !x.is_finite()) {
        return None;
    }
    let mean = batches.iter().sum::<f64>() / n as f64;
    let variance = batches.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
    let half_width = student_95(n - 1) * (variance / n as f64).sqrt();
    half_width.is_finite().then_some(Estimate { mean, half_width, batches: n })
}

/// A ratio of sums Σa/Σb over successive windows, with the 95 % half width of a ratio estimator.
/// The windows are cut into `count` batches of equal size (the oldest remaining windows count for
/// the ratio only), and the residuals a − (Σa/Σb)·b of the batches vary as the ratio does (Law:
/// "Simulation Modeling and Analysis", 5th ed., section 9.5; Cochran: "Sampling Techniques",
/// chapter 6). More accurate than the mean of the batches' own ratios if their denominators differ.
/// `None` if there are fewer than two batches, Σb is not above 0, or a number is not finite.
///
/// ```
/// use model::statistics::ratio_of_sums;
/// let windows = [(1.0, 10.0), (3.0, 10.0), (2.0, 20.0), (6.0, 20.0)];
/// let e = ratio_of_sums(&windows, 4).unwrap();
/// assert_eq!((e.mean, e.batches), (0.2, 4));
/// // Residuals −1, 1, −2, 2 about a mean denominator of 15.
/// assert!((e.half_width - 3.182 * (10.0f64 / 12.0).sqrt() / 15.0).abs() < 1e-4);
/// ```
pub fn ratio_of_sums(windows: &[(f64, f64)], count: usize) -> Option<Estimate> {
    let size = windows.len().checked_div(count).filter(|&size| size > 0 && count > 1)?;
    let sum = |w: &[(f64, f64)]| w.iter().fold((0.0, 0.0), |s, x| (s.0 + x.0, s.1 + x.1));
    let (a, b) = sum(windows);
    let ratio = a / b;
    let used = &windows[windows.len() - size * count..];
    let batches: Vec<(f64, f64)> = used.chunks_exact(size).map(sum).collect();
    let denominator = batches.iter().map(|x| x.1).sum::<f64>() / count as f64;
    let squares = batches.iter().map(|x| (x.0 - ratio * x.1).powi(2)).sum::<f64>();
    let deviation = (squares / (count * (count - 1)) as f64).sqrt();
    let half_width = student_95(count - 1) * deviation / denominator;
    let fine = b > 0.0 && denominator > 0.0 && ratio.is_finite() && half_width.is_finite();
    fine.then_some(Estimate { mean: ratio, half_width, batches: count })
}

/// The p-quantile of values, interpolated between order statistics; `None` if there are none. NaNs
/// are ignored; `p` is clamped to 0 to 1.
///
/// The value at rank 1 + p(n − 1): type 7 of R. Hyndman, Y. Fan, "Sample quantiles in statistical
/// packages", The American Statistician 50 (1996). Few values say little about a tail: the largest
/// of n is at p = 1, although one more value exceeds it with probability 1/(n + 1). Cost: a sort.
///
/// ```
/// assert_eq!(model::statistics::quantile(&[3.0, 1.0, 2.0, 4.0], 0.5), Some(2.5));
/// ```
pub fn quantile(values: &[f64], p: f64) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| !v.is_nan()).collect();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let at = p.clamp(0.0, 1.0) * last as f64;
    let (low, part) = (at.floor() as usize, at.fract());
    let high = (low + 1).min(last);
    // An infinite neighbour with weight 0 is ignored.
    if part == 0.0 || sorted[low] == sorted[high] {
        return Some(sorted[low]);
    }
    Some(sorted[low] * (1.0 - part) + sorted[high] * part)
}

/// The p-quantile of values below which one more value lies with probability p, as far as n values can tell: the value at rank
/// p(n + 1), type 6 of Hyndman and Fan, from the smallest to the largest. Between 2.5 and 97.5 % of 60 replicates by
/// [`quantile`] lies one more with a probability of 91.9 %, by this of 95 %.
pub(crate) fn quantile_beyond(values: &[f64], p: f64) -> Option<f64> {
    let n = values.iter().filter(|v| !v.is_nan()).count() as f64;
    quantile(values, (p * (n + 1.0) - 1.0) / (n - 1.0).max(1.0))
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn one_more_value_is_beyond_with_the_probability_of_the_quantile() {
        let mut random = StdRng::seed_from_u64(7);
        let (mut plain, mut beyond, trials) = (0u32, 0u32, 20_000);
        for _ in 0..trials {
            let values: Vec<f64> = (0..60).map(|_| random.random::<f64>()).collect();
            let next = random.random::<f64>();
            let within = |of: fn(&[f64], f64) -> Option<f64>| {
                let at = |p| of(&values, p).unwrap();
                u32::from((at(0.025)..=at(0.975)).contains(&next))
            };
            plain += within(quantile);
            beyond += within(quantile_beyond);
        }
        let share = |count: u32| f64::from(count) / f64::from(trials);
        assert!((share(beyond) - 0.95).abs() < 0.006, "{}", share(beyond));
        assert!((share(plain) - 0.919).abs() < 0.007, "{}", share(plain));
        assert_eq!(quantile_beyond(&[3.0], 0.025), Some(3.0));
        assert_eq!(quantile_beyond(&[], 0.5), None);
        assert_eq!(quantile_beyond(&[1.0, 2.0, 3.0], 0.025), Some(1.0));
        assert_eq!(quantile_beyond(&[1.0, f64::INFINITY], 0.5), Some(f64::INFINITY));
    }
}
