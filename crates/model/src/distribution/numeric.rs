//! Moments and pieces of a law, from its CDF alone.
//!
//! E\[T\] = ∫(1 − F) and E\[T²\] = ∫2t(1 − F), by adaptive Gauss–Kronrod rules of 7 and 15 points
//! (W. Kahaner, C. Moler, S. Nash, "Numerical Methods and Software", 1989). An interval is halved
//! until its mean error is below [`TOLERANCE`]. The tolerance is larger than the noise of an
//! inverted transform, because noise cannot be refined away. A jump costs about 30 halvings. The
//! integral ends where 1 − F falls to [`TAIL`]; the rest of the tail is neglected.

use crate::error::{Error, check, time};

use super::empirical::{Empirical, Piece};
use super::law::Atom;

/// Accepted mean error of the integrand.
const TOLERANCE: f64 = 1e-9;
/// 1 − F at which a law is taken to end; the noise of Euler's inversion is a tenth of it.
const TAIL: f64 = 2e-10;
/// Largest number of evaluations of a CDF for one integral.
const VALUES_MAX: usize = 400_000;

/// Nodes of the Kronrod rule on (−1, 1), the positive ones and 0, outermost first; the second,
/// fourth, sixth and last are Gauss's.
const NODES: [f64; 8] = [
    0.991_455_371_120_812_6,
    0.949_107_912_342_758_5,
    0.864_864_423_359_769_1,
    0.741_531_185_599_394_4,
    0.586_087_235_467_691_1,
    0.405_845_151_377_397_2,
    0.207_784_955_007_898_5,
    0.0,
];
const KRONROD: [f64; 8] = [
    0.022_935_322_010_529_22,
    0.063_092_092_629_978_55,
    0.104_790_010_322_250_2,
    0.140_653_259_715_525_9,
    0.169_004_726_639_267_9,
    0.190_350_578_064_785_4,
    0.204_432_940_075_298_9,
    0.209_482_141_084_727_8,
];
const GAUSS: [f64; 4] = [
    0.129_484_966_168_869_7,
    0.279_705_391_489_276_7,
    0.381_830_050_505_118_9,
    0.417_959_183_673_469_4,
];

/// Nodes and weights of the 15-point rule on an interval.
pub(crate) fn kronrod(low: f64, high: f64) -> impl Iterator<Item = (f64, f64)> {
    let (middle, half) = (0.5 * (low + high), 0.5 * (high - low));
    // Ascending: the negative nodes, 0, the positive ones.
    (-7i32..=7).map(move |i| {
        let at = 7 - i.unsigned_abs() as usize;
        (middle + f64::from(i.signum()) * NODES[at] * half, KRONROD[at] * half)
    })
}

/// ∫ above and ∫ 2t·above over an interval, and the first one's error.
fn rule(above: &impl Fn(f64) -> f64, low: f64, high: f64) -> (f64, f64, f64) {
    let (mut first, mut second, mut gauss) = (0.0, 0.0, 0.0);
    for (i, (t, weight)) in kronrod(low, high).enumerate() {
        let value = above(t);
        first += weight * value;
        second += weight * value * 2.0 * t;
        if i % 2 == 1 {
            let at = 7 - 7usize.abs_diff(i);
            gauss += 0.5 * (high - low) * GAUSS[at / 2] * value;
        }
    }
    (first, second, (first - gauss).abs())
}

/// Mean in seconds and squared coefficient of variation of the law with a CDF. `scale` is a time of
/// the law's order. Cost: some 300 values of a smooth CDF, some 1,000 for each jump.
pub(crate) fn moments(scale: f64, cdf: impl Fn(f64) -> f64) -> Result<(f64, f64), Error> {
    time("the scale of a law", scale)?;
    let above = |t: f64| (1.0 - cdf(t)).clamp(0.0, 1.0);
    let (mut mean, mut second, mut values) = (0.0, 0.0, 0);
    let (mut low, mut high) = (0.0, scale / 16.0);
    // The width doubles, so 120 steps pass 1e30 scales.
    for _ in 0..120 {
        let mut open = vec![(low, high)];
        while let Some((a, b)) = open.pop() {
            let (first, squares, error) = rule(&above, a, b);
            values += 15;
            let fine = error <= TOLERANCE * (b - a) || b - a <= 1e-10 * b.max(scale);
            if fine || values > VALUES_MAX {
                mean += first;
                second += squares;
            } else {
                let middle = 0.5 * (a + b);
                open.push((middle, b));
                open.push((a, middle));
            }
        }
        if above(high) <= TAIL || values > VALUES_MAX {
            break;
        }
        (low, high) = (high, 2.0 * high);
    }
    time("the mean of a law", mean)?;
    let must = "1: a CDF must reach 1 − 2e-10, and be evaluated at most 400,000 times on the way";
    check("a CDF, far out", 1.0 - above(high), 1.0 - TAIL..=1.0, must)?;
    let scv = (second / (mean * mean) - 1.0).max(0.0);
    check("the SCV of a law", scv, 0.0..=1e12, "0 to 1e12")?;
    Ok((mean, scv))
}

/// How many pieces a CDF is cut into.
const PIECES: usize = 400;

/// A law of uniform pieces, equal in the logarithm of time, from a CDF and the atoms in it.
pub(crate) fn pieces(
    scale: f64,
    atoms: &[Atom],
    cdf: impl Fn(f64) -> f64,
) -> Result<Empirical, Error> {
    let (mean, scv) = moments(scale, &cdf)?;
    let known = |t: f64| atoms.iter().filter(|a| a.at <= t).map(|a| a.share).sum::<f64>();
    let rest = |t: f64| (cdf(t) - known(t)).max(0.0);
    let (mut low, mut high) = (mean, mean);
    for _ in 0..60 {
        if rest(low) > 1e-7 {
            low *= 0.5;
        }
        if 1.0 - cdf(high) > TAIL {
            high *= 2.0;
        }
    }
    let ratio = (high / low).powf(1.0 / PIECES as f64);
    let mut parts: Vec<Piece> =
        atoms.iter().map(|a| Piece { centre: a.at, half_width: 0.0, share: a.share }).collect();
    let (mut from, mut below) = (0.0, rest(0.0));
    for i in 0..=PIECES {
        let to = low * ratio.powi(i as i32);
        let under = rest(to).max(below);
        if under > below {
            let (centre, half_width) = (0.5 * (from + to), 0.5 * (to - from));
            parts.push(Piece { centre, half_width, share: under - below });
        }
        (from, below) = (to, under);
    }
    parts.sort_by(|a, b| a.centre.total_cmp(&b.centre));
    Empirical::from_pieces(parts)?.with_moments(mean, scv)
}

impl Empirical {
    /// Creates a law of 400 pieces, of equal width in the logarithm of time, from a CDF. It gives a
    /// transform to laws without one, such as a measured curve or the slowest of several times.
    ///
    /// `atoms` are the atoms of the CDF and stay atoms. Mean and variance are integrals of the CDF.
    /// `scale` is a time of the law's order of magnitude. The CDF must reach 1 − 2e-10 and must not
    /// fall. Returns an error if the mean is not a valid time. Cost: about 1,000 evaluations of the
    /// CDF.
    ///
    /// ```
    /// use model::distribution::{Empirical, ServiceTime};
    /// // The slower of two exponential times.
    /// let slower = Empirical::from_cdf(1.0, &[], |t: f64| (-(-t).exp_m1()).powi(2))?;
    /// assert!((slower.mean() - 1.5).abs() < 1e-6 && (slower.cdf(1.5) - 0.6035).abs() < 1e-3);
    /// # Ok::<(), model::Error>(())
    /// ```
    pub fn from_cdf(scale: f64, atoms: &[Atom], cdf: impl Fn(f64) -> f64) -> Result<Self, Error> {
        pieces(scale, atoms, cdf)
    }
}
