//! A law of service whose quantiles are multiplied by a factor that changes slowly over the law.
//!
//! The logarithm of the factor is linear between [`KNOTS`] of the law's logit ln(p/(1 − p)), and
//! constant beyond them, so that it is a mean and a few numbers for either tail.

use crate::distribution::{Empirical, Piece};
use crate::error::Error;

/// Logits between which the logarithm of the factor is linear.
const LOGITS: [f64; KNOTS] = [-3.0, -1.2, 0.0, 1.0, 2.0, 3.2, 5.0];
/// Numbers of a shape.
pub(super) const KNOTS: usize = 7;

/// The logarithms of the factor at the knots.
pub(super) type Factors = [f64; KNOTS];

/// A law as its pieces, each with the knots that it lies between.
pub(super) struct Shape {
    pieces: Vec<(Piece, usize, f64)>,
}

impl Shape {
    pub fn new(law: &Empirical) -> Shape {
        let mut below = 0.0;
        let place = |piece: &Piece| {
            let p = (below + 0.5 * piece.share).clamp(1e-9, 1.0 - 1e-9);
            below += piece.share;
            let logit = (p / (1.0 - p)).ln();
            let next = LOGITS.partition_point(|known| *known < logit).clamp(1, KNOTS - 1);
            let (low, high) = (LOGITS[next - 1], LOGITS[next]);
            (*piece, next, ((logit - low) / (high - low)).clamp(0.0, 1.0))
        };
        Shape { pieces: law.pieces().iter().map(place).collect() }
    }

    /// The law with factors.
    pub fn law(&self, factors: &Factors) -> Result<Empirical, Error> {
        let stretched = |(piece, next, part): &(Piece, usize, f64)| {
            let factor = ((1.0 - part) * factors[next - 1] + part * factors[*next]).exp();
            let (centre, half_width) = (piece.centre * factor, piece.half_width * factor);
            Piece { centre, half_width, share: piece.share }
        };
        Empirical::from_pieces(self.pieces.iter().map(stretched).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::ServiceTime;

    #[test]
    fn factors_stretch_the_whole_law_or_one_tail() {
        let piece =
            |i: u32| Piece { centre: 0.001 * f64::from(i + 1), half_width: 0.0005, share: 0.01 };
        let law = Empirical::from_pieces((0..100).map(piece).collect()).unwrap();
        let shape = Shape::new(&law);
        let all = shape.law(&[0.1; KNOTS]).unwrap();
        assert!((all.mean() / law.mean() - 0.1f64.exp()).abs() < 1e-12);
        assert!((all.scv() - law.scv()).abs() < 1e-12);
        let mut factors = [0.0; KNOTS];
        factors[KNOTS - 1] = 0.5;
        let tail = shape.law(&factors).unwrap();
        assert!((tail.cdf(0.05) - law.cdf(0.05)).abs() < 1e-12);
        assert!(tail.cdf(0.1) < law.cdf(0.1) - 0.005 && tail.scv() > law.scv());
    }
}
