//! Replaces a law that varies more than an exponential one by a mixture of exponential branches,
//! for which the queue of several servers is solved exactly.
//!
//! The effect of a service law on several servers depends on the *residual* times of the services
//! in progress, P(> t) = ∫ₜ(1 − F)/b. Among the mixtures with the law's mean and SCV, the one whose
//! residual law is nearest to the law's is chosen: least mean squared difference, weighted by the
//! law's own density of residual times (Cramér–von Mises distance). A. Feldmann and W. Whitt,
//! "Fitting mixtures of exponentials to long-tail distributions to analyze network performance
//! models", Performance Evaluation 31 (1998), show that a few branches approximate a long tail over
//! the relevant times; they fit from the tail downwards. Matching higher moments instead would fit
//! the part of the tail that is too rare to matter.
//!
//! Cost: one or two milliseconds. The result is poor if no mixture of exponential laws is near, for
//! example if all long services take the same time.

use crate::distribution::{Empirical, Piece};

/// Probability and mean of each branch.
pub(super) type Branches = Vec<(f64, f64)>;

/// Root of the mean squared difference below which two branches with the law's third moment count
/// as equal to the law.
const SAME: f64 = 2e-5;

/// Approximate number of times at which residual laws are compared.
const POINTS: f64 = 64.0;

/// Means of the first search are powers of this, within [`MEANS`]; their upper end is in halves of
/// the second moment.
const RATIO: f64 = 2.0;
const MEANS: [f64; 2] = [0.01, 10.0];

/// Log-ratio of means below which a search ends.
const STEP_MIN: f64 = 2e-3;

/// Branches of mean 1 that replace a law.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fitted {
    /// The best two.
    pub(super) two: Branches,
    /// The best three, unless two equal the law or three are no nearer.
    pub(super) three: Option<Branches>,
}

/// For a law with this SCV (above 1), third moment (in cubed means), mean (seconds) and residual
/// law.
pub(super) fn fit(scv: f64, third: f64, mean: f64, residual: &Empirical) -> Fitted {
    let points = Points::new(residual.pieces(), mean);
    let second = 0.5 * (1.0 + scv);
    if let Some(same) = by_third_moment(second, third)
        && points.distance(&same).sqrt() < SAME
    {
        return Fitted { two: same, three: None };
    }
    let means: Vec<f64> =
        (-6..40).map(|k| RATIO.powi(k)).filter(|x| *x < MEANS[1] * second).collect();
    let bounded = |x: &[f64]| x.iter().all(|x| (MEANS[0]..=MEANS[1] * second).contains(x));
    let two = |x: &[f64; 1]| pair(second, x[0]).filter(|_| bounded(x));
    let three = |x: &[f64; 3]| triple(second, *x).filter(|_| bounded(x));
    // The mean for an SCV so near to 1 that no power fits.
    let near = [[1.5 * second]].into_iter();
    let two = points.nearest(means.iter().map(|x| [*x]).chain(near), two);
    let two = two.unwrap_or_else(|| vec![(1.0, 1.0)]);
    let three = points.nearest(triples(&means), three);
    let three = three.filter(|three| points.distance(three) < points.distance(&two));
    Fitted { two, three }
}

/// All choices of three, the largest first.
fn triples(means: &[f64]) -> impl Iterator<Item = [f64; 3]> {
    let below = |i: usize| (0..i).flat_map(move |j| (0..j).map(move |k| (j, k)));
    (0..means.len()).flat_map(move |i| below(i).map(move |(j, k)| [means[i], means[j], means[k]]))
}

/// The target residual law: times in means, P(> t) there, weights.
struct Points(Vec<(f64, f64, f64)>);

impl Points {
    fn new(pieces: &[Piece], mean: f64) -> Self {
        let (mut left, mut weight) = (1.0, 0.0);
        let mut points = Vec::new();
        for piece in pieces {
            left -= piece.share;
            weight += piece.share;
            if weight >= 1.0 / POINTS {
                points.push(((piece.centre + piece.half_width) / mean, left.max(0.0), weight));
                weight = 0.0;
            }
        }
        Points(points)
    }

    fn distance(&self, branches: &[(f64, f64)]) -> f64 {
        let off = |(t, left, weight): &(f64, f64, f64)| {
            let tail: f64 = branches.iter().map(|(p, x)| p * x * (-t / x).exp()).sum();
            weight * (tail - left).powi(2)
        };
        self.0.iter().map(off).sum()
    }

    /// The branches nearest to the law among those that `make` creates from means: the best of
    /// several initial choices, then steps, halved until none improves.
    fn nearest<const N: usize>(
        &self,
        first: impl Iterator<Item = [f64; N]>,
        make: impl Fn(&[f64; N]) -> Option<Branches>,
    ) -> Option<Branches> {
        let look = |x: [f64; N]| make(&x).map(|branches| (self.distance(&branches), x, branches));
        let mut best = first.filter_map(look).min_by(|a, b| a.0.total_cmp(&b.0))?;
        let mut step = 0.5 * RATIO.ln();
        while step > STEP_MIN {
            let mut better = false;
            // Each mean one step down, unchanged, or one step up, because valleys are not parallel
            // to the axes.
            for direction in 0..3i32.pow(N as u32) {
                let mut x = best.1;
                for (place, x) in x.iter_mut().enumerate() {
                    let turn = direction / 3i32.pow(place as u32) % 3 - 1;
                    *x *= (f64::from(turn) * step).exp();
                }
                if let Some(next) = look(x).filter(|next| next.0 < best.0) {
                    (best, better) = (next, true);
                }
            }
            step *= if better { 1.0 } else { 0.5 };
        }
        Some(best.2)
    }
}

/// Probabilities of branches with these means for mean 1 and half a second moment of `second`;
/// `None` where one would be negative.
fn triple(second: f64, x: [f64; 3]) -> Option<Branches> {
    let branch = |i: usize| {
        let (a, b) = (x[(i + 1) % 3], x[(i + 2) % 3]);
        ((second - a - b + a * b) / ((x[i] - a) * (x[i] - b)), x[i])
    };
    let branches = [branch(0), branch(1), branch(2)];
    branches.iter().all(|(p, _)| (0.0..=1.0).contains(p)).then(|| branches.to_vec())
}

/// The same for two, of which one's mean is given, above `second`.
fn pair(second: f64, x: f64) -> Option<Branches> {
    let y = (x - second) / (x - 1.0);
    let p = (1.0 - y) / (x - y);
    (x > second && y > 1e-9).then(|| vec![(p, x), (1.0 - p, y)])
}

/// The same for two with a third moment; `None` if that is too small for any.
fn by_third_moment(second: f64, third: f64) -> Option<Branches> {
    // The means are the roots of x² − sum·x + sum − second.
    let sum = (third / 6.0 - second) / (second - 1.0);
    pair(second, 0.5 * (sum + (sum * sum - 4.0 * (sum - second)).max(0.0).sqrt()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::distribution::{Gamma, Hyperexponential, Lognormal, ServiceTime};

    use super::super::first_end::first_end;
    use super::super::moments::third_moment;
    use super::*;

    fn fitted(law: &dyn ServiceTime) -> (Fitted, Points) {
        let residual = first_end(law, 1).unwrap();
        let third = third_moment(law) / law.mean().powi(3);
        let points = Points::new(residual.pieces(), law.mean());
        (fit(law.scv(), third, law.mean(), &residual), points)
    }

    /// Mean and SCV of branches.
    fn moments(branches: &[(f64, f64)]) -> (f64, f64) {
        let sum = |k: i32| branches.iter().map(|(p, x)| p * x.powi(k)).sum::<f64>();
        (sum(1), 2.0 * sum(2) - 1.0)
    }

    #[test]
    fn two_branches_are_found_again_and_three_nearly() {
        let two = Hyperexponential::new(&[(0.9, 0.004), (0.1, 0.07)]).unwrap();
        let found = fitted(&two).0;
        assert_eq!(found.three, None);
        let mean = two.mean();
        assert!((found.two[0].1 - 0.07 / mean).abs() < 1e-5, "{found:?}");
        assert!((found.two[1].1 - 0.004 / mean).abs() < 1e-5, "{found:?}");
        let three = Hyperexponential::new(&[(0.6, 0.3), (0.39, 1.5), (0.01, 23.5)]).unwrap();
        let (found, points) = fitted(&three);
        let off = points.distance(&found.three.unwrap()).sqrt();
        assert!(off < 2e-4, "{off}");
    }

    #[test]
    fn branches_have_the_moments_and_three_are_nearer_than_two() {
        let laws: [Box<dyn ServiceTime>; 4] = [
            Box::new(Lognormal::new(0.01, 4.0).unwrap()),
            Box::new(Lognormal::new(3.0, 2.5).unwrap()),
            Box::new(Gamma::new(1.0, 2.0).unwrap()),
            Box::new(Gamma::new(1.0, 30.0).unwrap()),
        ];
        for law in laws {
            let (found, points) = fitted(law.as_ref());
            let three = found.three.unwrap();
            for branches in [&found.two, &three] {
                let (mean, scv) = moments(branches);
                assert!((mean - 1.0).abs() < 1e-9, "{mean}");
                assert!((scv / law.scv() - 1.0).abs() < 1e-9, "{scv}");
            }
            let off = [points.distance(&found.two).sqrt(), points.distance(&three).sqrt()];
            assert!(off[1] < off[0] && off[1] < 0.02, "{off:?}, SCV {}", law.scv());
        }
    }

    proptest! {
        #[test]
        fn shares_meet_the_moments_or_are_refused(
            second in 1.0f64..20.0, x in prop::array::uniform3(0.01f64..100.0),
        ) {
            for branches in [triple(second, x), pair(second, x[0])].into_iter().flatten() {
                let (mean, scv) = moments(&branches);
                prop_assert!((mean - 1.0).abs() < 1e-6, "{}", mean);
                prop_assert!((0.5 * (1.0 + scv) / second - 1.0).abs() < 1e-6, "{}", scv);
                prop_assert!(branches.iter().all(|(p, x)| (0.0..=1.0).contains(p) && *x > 0.0));
            }
        }
    }
}
