//! The law of service for which the model's responses at the lightest load match the measured ones.

use crate::distribution::{Empirical, Piece, ServiceTime};
use crate::error::Error;
use crate::queue::MgmLoads;
use ground::window::Histogram;

/// Number of quantiles at which laws are compared.
const GRID: usize = 48;
/// Largest number of rounds of fitting a law.
const ROUNDS: usize = 8;
/// Largest utilisation at the lightest load with the initial law.
const START_MAX: f64 = 0.8;

/// The law, if it is served by `m` servers at the lightest load, which is `rate`.
pub(super) fn at_lightest(measured: &Histogram, m: u32, rate: f64) -> Result<Empirical, Error> {
    let law = start(Empirical::from_histogram(measured)?, m, rate)?;
    settled(&law, m, rate, measured)
}

/// Shares at which quantiles of `n` responses are compared: even in the middle, and denser towards
/// the ends, which contribute much of a law's mean and variance.
fn levels(n: f64) -> impl Iterator<Item = f64> {
    let even = 0.5 / GRID as f64;
    let middle = (0..GRID).map(move |i| (2 * i + 1) as f64 * even);
    let rest = std::iter::successors(Some(0.5 * even), |p| Some(0.5 * p));
    let rest = rest.take_while(move |p| *p >= 0.5 / n).take(30);
    middle.chain(rest.flat_map(|p| [p, 1.0 - p]))
}

/// The initial law: that of the responses, with a mean for which the queue is stable.
fn start(law: Empirical, m: u32, rate: f64) -> Result<Empirical, Error> {
    let most = START_MAX * f64::from(m) / rate;
    if law.mean() <= most { Ok(law) } else { law.with_moments(most, law.scv()) }
}

/// The law after the round whose responses are nearest to the measured ones. Rounds undo a
/// convolution, and each amplifies the noise in the quantiles, so rounds that come no nearer fit
/// noise. A round may end with a law that cannot carry the load; then the one before stays.
fn settled(law: &Empirical, m: u32, rate: f64, measured: &Histogram) -> Result<Empirical, Error> {
    let (mut distance, mut next) = settle(law, m, rate, measured)?;
    let mut best = law.clone();
    for _ in 1..ROUNDS {
        match settle(&next, m, rate, measured) {
            Ok((nearer, after)) if nearer < distance => {
                (distance, best, next) = (nearer, next, after);
            }
            Ok(_) | Err(Error::Unstable { .. }) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(best)
}

/// One round: multiplies each of the law's pieces by the ratio of the measured to the model's
/// response quantile at the piece's share. Also returns the largest difference of the model's share
/// from the measured one before the round.
fn settle(
    law: &Empirical,
    m: u32,
    rate: f64,
    measured: &Histogram,
) -> Result<(f64, Empirical), Error> {
    let n = measured.count() as f64;
    let mut times: Vec<f64> = levels(n).filter_map(|p| measured.quantile_s(p)).collect();
    let last = measured.quantile_s(1.0).unwrap_or(law.mean()).max(law.mean());
    // An initial law that is too long gives responses past the measured ones.
    times.extend([1.0, 2.0, 4.0].map(|f| f * last));
    times.sort_by(f64::total_cmp);
    times.dedup_by(|a, b| *a <= *b * (1.0 + 1e-6));
    let found = within(law, m, &[rate], &times)?.pop().unwrap_or_default();
    let apart = |(t, share): (&f64, &f64)| Some((measured.share_within(*t)? - share).abs());
    let distance = times.iter().zip(&found).filter_map(apart).fold(0.0, f64::max);
    let quantile = |p: f64| -> f64 {
        let at = found.partition_point(|share| *share < p);
        let point = |i: usize| match i.checked_sub(1) {
            None => (0.0, 0.0),
            Some(i) => (found[i.min(found.len() - 1)], times[i.min(times.len() - 1)]),
        };
        let ((low, a), (high, b)) = (point(at), point(at + 1));
        if high > low { a + (b - a) * ((p - low) / (high - low)).clamp(0.0, 1.0) } else { b }
    };
    let mut pieces = Vec::with_capacity(law.pieces().len());
    let mut below = 0.0;
    for piece in law.pieces() {
        let p = (below + 0.5 * piece.share).clamp(0.5 / n, 1.0 - 0.5 / n);
        below += piece.share;
        let (seen, model) = (measured.quantile_s(p).unwrap_or(piece.centre), quantile(p));
        let factor = if model > 0.0 && seen > 0.0 { (seen / model).clamp(0.5, 2.0) } else { 1.0 };
        let (centre, half_width) = (piece.centre * factor, piece.half_width * factor);
        pieces.push(Piece { centre, half_width, share: piece.share });
    }
    Ok((distance, Empirical::from_pieces(pieces)?))
}

/// P(T ≤ edge) at each load. [`Error::Unstable`] if one is too large.
pub(super) fn within(
    law: &Empirical,
    m: u32,
    rates: &[f64],
    edges: &[f64],
) -> Result<Vec<Vec<f64>>, Error> {
    let saturation = f64::from(m) / law.mean();
    let utilisations: Vec<f64> = rates.iter().map(|r| r / saturation).collect();
    let most = rates.iter().copied().fold(0.0, f64::max);
    if most >= saturation {
        return Err(Error::Unstable { rate: most, saturation });
    }
    let queues = MgmLoads::new(m, law.clone(), &utilisations)?;
    let mut all = vec![Vec::with_capacity(edges.len()); rates.len()];
    for t in edges {
        let at = queues.response_cdfs_at(*t);
        all.iter_mut().zip(at).for_each(|(of, share)| of.push(share));
    }
    Ok(all)
}
