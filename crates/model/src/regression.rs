//! Linear least squares with Student's intervals: the arithmetic behind
//! [`capacity`](crate::capacity).
//!
//! y = Xβ + ε with independent errors of equal variance σ². Householder reflections give X = QR,
//! with columns scaled to length 1 (Golub and Van Loan, "Matrix Computations", section 5.3), and β̂
//! solves Rβ = Qᵀy; s² = Σe² / (n − p); the variance of xᵀβ̂ is s²·|R⁻ᵀx|², and its interval is
//! xᵀβ̂ ± t·s·|R⁻ᵀx| (Jain, "The Art of Computer Systems Performance Analysis", chapters 14 and
//! 15). Cost: n·p² operations. Wrong if errors are correlated (successive seconds of one run) or
//! have different variances (then weight the rows). Not robust: a single outlier moves the whole
//! fit.

use serde::Serialize;

use crate::error::Error;
use crate::statistics::student;

/// An estimate with its interval at the requested confidence, for errors that are independent and
/// normal with equal variance (the module's page has the formula).
///
/// A bound is `None` if the data do not determine it: with as many parameters as observations, or
/// for a ratio whose denominator may be 0.
///
/// ```
/// use model::regression::Estimated;
/// let exact = Estimated::alone(3.0);
/// assert_eq!((exact.value, exact.low, exact.high), (3.0, None, None));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimated {
    /// The estimate.
    pub value: f64,
    /// Lower end of the interval.
    pub low: Option<f64>,
    /// Upper end of the interval.
    pub high: Option<f64>,
}

impl Estimated {
    /// An estimate without an interval.
    pub fn alone(value: f64) -> Self {
        Estimated { value, low: None, high: None }
    }

    /// An interval with this half width around a value; no interval without a half width.
    pub fn around(value: f64, half_width: Option<f64>) -> Self {
        match half_width {
            Some(half) if half.is_finite() => {
                Estimated { value, low: Some(value - half), high: Some(value + half) }
            }
            _ => Estimated::alone(value),
        }
    }

    /// The interval of 1/x from that of x, for x > 0: unbounded above if x may be 0.
    pub(crate) fn inverse(self) -> Self {
        let invert = |x: f64| (x > 0.0).then(|| 1.0 / x).filter(|y| y.is_finite());
        Estimated {
            value: 1.0 / self.value,
            low: self.high.and_then(invert),
            high: self.low.and_then(invert),
        }
    }

    /// The interval of an increasing function of the estimate.
    pub(crate) fn map(self, rising: impl Fn(f64) -> f64) -> Self {
        Estimated {
            value: rising(self.value),
            low: self.low.map(&rising),
            high: self.high.map(&rising),
        }
    }

    /// Whether the interval is known and does not contain x.
    pub fn excludes(&self, x: f64) -> bool {
        self.low.is_some_and(|low| low > x) || self.high.is_some_and(|high| high < x)
    }
}

/// A linear fit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Linear {
    pub coefficients: Vec<f64>,
    pub residuals: Vec<f64>,
    /// Upper triangle of R, by rows, for columns of length 1.
    triangle: Vec<Vec<f64>>,
    /// Lengths of the columns.
    lengths: Vec<f64>,
}

/// A unit column that adds less than this length to the others counts as their linear combination.
const DEPENDENT: f64 = 1e-9;

impl Linear {
    /// The least squares of `rows`·β − `y`; `None` if columns are linearly dependent or there are
    /// too few rows.
    pub fn fit(rows: &[Vec<f64>], y: &[f64]) -> Option<Linear> {
        let columns = rows.first()?.len();
        if rows.len() < columns || rows.len() != y.len() {
            return None;
        }
        // Relative to the largest, so that squares neither overflow nor underflow.
        let length = |j: usize| {
            let largest = rows.iter().fold(0.0f64, |m, row| m.max(row[j].abs()));
            let sum: f64 = rows.iter().map(|row| (row[j] / largest).powi(2)).sum();
            largest * sum.sqrt()
        };
        let lengths: Vec<f64> = (0..columns).map(length).collect();
        if lengths.iter().any(|l| !l.is_finite() || *l <= 0.0) {
            return None;
        }
        let scaled = |row: &Vec<f64>| row.iter().zip(&lengths).map(|(x, l)| x / l).collect();
        let mut matrix: Vec<Vec<f64>> = rows.iter().map(scaled).collect();
        let mut right = y.to_vec();
        for j in 0..columns {
            reflect(&mut matrix, &mut right, j)?;
        }
        let triangle: Vec<Vec<f64>> = matrix[..columns].to_vec();
        let mut solution = vec![0.0; columns];
        for j in (0..columns).rev() {
            let above: f64 = (j + 1..columns).map(|k| triangle[j][k] * solution[k]).sum();
            solution[j] = (right[j] - above) / triangle[j][j];
        }
        let coefficients: Vec<f64> = solution.iter().zip(&lengths).map(|(b, l)| b / l).collect();
        let fitted =
            |row: &Vec<f64>| row.iter().zip(&coefficients).map(|(x, b)| x * b).sum::<f64>();
        let residuals: Vec<f64> = rows.iter().zip(y).map(|(row, y)| y - fitted(row)).collect();
        let finite = coefficients.iter().chain(&residuals).all(|x| x.is_finite());
        finite.then_some(Linear { coefficients, residuals, triangle, lengths })
    }

    /// Degrees of freedom: observations less parameters.
    pub fn degrees(&self) -> usize {
        self.residuals.len() - self.coefficients.len()
    }

    /// Sum of squared residuals.
    pub fn sse(&self) -> f64 {
        self.residuals.iter().map(|e| e * e).sum()
    }

    /// z = R⁻ᵀx: variances and covariances of combinations x of the coefficients are σ²·z·z.
    pub fn factor(&self, x: &[f64]) -> Vec<f64> {
        let mut z: Vec<f64> = Vec::with_capacity(x.len());
        for (j, x) in x.iter().enumerate() {
            let before: f64 = (0..j).map(|k| self.triangle[k][j] * z[k]).sum();
            z.push((x / self.lengths[j] - before) / self.triangle[j][j]);
        }
        z
    }

    /// The value of a combination of the coefficients.
    pub fn value(&self, x: &[f64]) -> f64 {
        x.iter().zip(&self.coefficients).map(|(x, b)| x * b).sum()
    }
}

/// One Householder reflection: zeros below the diagonal of column j. `None` if that column depends
/// on the previous ones.
fn reflect(matrix: &mut [Vec<f64>], right: &mut [f64], j: usize) -> Option<()> {
    let norm = matrix[j..].iter().map(|row| row[j] * row[j]).sum::<f64>().sqrt();
    if norm < DEPENDENT {
        return None;
    }
    let diagonal = if matrix[j][j] > 0.0 { -norm } else { norm };
    let mut mirror: Vec<f64> = matrix[j..].iter().map(|row| row[j]).collect();
    mirror[0] -= diagonal;
    let square: f64 = mirror.iter().map(|v| v * v).sum();
    for k in j..matrix[j].len() {
        let dot: f64 = matrix[j..].iter().zip(&mirror).map(|(row, v)| row[k] * v).sum();
        let by = 2.0 * dot / square;
        matrix[j..].iter_mut().zip(&mirror).for_each(|(row, v)| row[k] -= by * v);
    }
    let dot: f64 = right[j..].iter().zip(&mirror).map(|(y, v)| y * v).sum();
    let by = 2.0 * dot / square;
    right[j..].iter_mut().zip(&mirror).for_each(|(y, v)| *y -= by * v);
    Some(())
}

/// The noise of a fit: variance, and the t quantile of its degrees of freedom.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Noise {
    pub variance: f64,
    pub t: f64,
}

impl Noise {
    /// `None` without degrees of freedom.
    pub fn new(sse: f64, degrees: usize, confidence: f64) -> Result<Option<Noise>, Error> {
        // The confidence is checked even if no interval can be computed.
        let t = student(confidence, degrees.max(1) as f64)?;
        Ok((degrees > 0).then(|| Noise { variance: sse / degrees as f64, t }))
    }

    /// Half the width of the interval of a combination with factor z.
    pub fn half_width(&self, z: &[f64]) -> f64 {
        self.t * (self.variance * dot(z, z)).sqrt()
    }
}

/// The sum of products.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The interval of a ratio of two estimates by Fieller's theorem (1954): exact for normal errors.
/// No interval if that of the denominator contains 0. `above` and `below` are values with their
/// factors.
pub(crate) fn ratio(above: (f64, &[f64]), below: (f64, &[f64]), noise: Option<Noise>) -> Estimated {
    let value = above.0 / below.0;
    let Some(noise) = noise else { return Estimated::alone(value) };
    let of = |a: &[f64], b: &[f64]| noise.variance * dot(a, b);
    let (aa, ab, bb) = (of(above.1, above.1), of(above.1, below.1), of(below.1, below.1));
    let g = noise.t * noise.t * bb / (below.0 * below.0);
    if bb <= 0.0 || g >= 1.0 {
        return Estimated::around(value, (bb <= 0.0).then_some(0.0));
    }
    let inside = aa - 2.0 * value * ab + value * value * bb - g * (aa - ab * ab / bb);
    let half = noise.t / below.0.abs() / (1.0 - g) * inside.max(0.0).sqrt();
    let centre = (value - g * ab / bb) / (1.0 - g);
    Estimated {
        value,
        low: Some((centre - half).min(value)),
        high: Some((centre + half).max(value)),
    }
}

#[cfg(test)]
mod tests;
