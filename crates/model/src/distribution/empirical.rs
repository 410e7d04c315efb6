//! A measured law: uniform pieces from a histogram, with the histogram's exact moments.

use crate::error::{Error, check, not_negative, positive, time};
use ground::window::Histogram;

use num_complex::Complex64;

use super::law::{Atom, ServiceTime};

/// One piece of an [`Empirical`] law: a share `share` of the times is uniform on centre ±
/// half_width.
///
/// ```
/// use model::distribution::{Empirical, Piece, ServiceTime};
/// // Between 4 and 12 ms.
/// let law = Empirical::from_pieces(vec![Piece { centre: 0.008, half_width: 0.004, share: 1.0 }])?;
/// assert!((law.mean() - 0.008).abs() < 1e-12 && (law.cdf(0.006) - 0.25).abs() < 1e-9);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Piece {
    /// Middle in seconds.
    pub centre: f64,
    /// Half the width in seconds; 0 for an atom.
    pub half_width: f64,
    /// Probability.
    pub share: f64,
}

/// Neighbouring buckets are merged to about this many pieces.
const PIECES: f64 = 160.0;

/// The largest squared coefficient of variation that is accepted.
const SCV_MAX: f64 = 1e12;
/// The largest power that times are raised to.
const POWER_MAX: f64 = 8.0;

/// Pieces narrower than this part of t are summed by series, wider ones by differences.
const NARROW: f64 = 2e-4;

/// A mixture of uniform pieces: the law of a measured [`Histogram`].
///
/// P(T ≤ t) = Σ shareᵢ·(the part of piece i at or below t); transform Σ
/// shareᵢ·e^(−s·cᵢ)·sinh(s·hᵢ)/(s·hᵢ) with centre c and half width h in seconds; variance Σ
/// shareᵢ·((cᵢ − b)² + hᵢ²/3), b the mean. Elementary; the choice of pieces is ours.
///
/// Buckets that contribute little to the first two moments are merged; a merged piece keeps the
/// mean and variance of its buckets. The law is then shifted and stretched to the exact mean and
/// variance of the histogram, which differ from those of bucket centres: at 90 % utilisation an
/// error of 1 % in the mean shifts the response-time distribution by 3.5 points.
///
/// Cost: `cdf` is two searches, and a pass over the pieces that hold the time; `transform_line` takes about 2 ns for each
/// piece and point. Limits: the law ends at the largest observed time, so the quantile of 1 − p
/// needs far more than 1/p times. The order of the times is lost.
///
/// ```
/// use model::distribution::{Empirical, ServiceTime};
/// use ground::window::Histogram;
/// let mut times = Histogram::default();
/// for us in [3_900u64, 4_000, 4_100, 9_000] {
///     times.record(us * 1_000);
/// }
/// let law = Empirical::from_histogram(&times)?;
/// assert!((law.mean() - times.mean_s()).abs() < 1e-15);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Empirical {
    pieces: Vec<Piece>,
    reaches: Vec<Reach>,
    mean: f64,
    variance: f64,
}

/// What a piece tells of those before and behind it, so that a CDF adds those alone that hold the time. Fits of histograms spent a third of
/// their time on the others.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Reach {
    /// The share of the pieces before it.
    before: f64,
    /// The largest upper end up to it, and the smallest lower end from it on, seconds: both grow, also where pieces overlap.
    high_max: f64,
    low_min: f64,
}

impl Reach {
    /// Those of pieces, and one behind them.
    fn of_pieces(pieces: &[Piece]) -> Vec<Reach> {
        let mut all = Vec::with_capacity(pieces.len() + 1);
        let (mut before, mut high_max) = (0.0, f64::NEG_INFINITY);
        for piece in pieces {
            high_max = f64::max(high_max, piece.centre + piece.half_width);
            all.push(Reach { before, high_max, low_min: 0.0 });
            before += piece.share;
        }
        let mut low_min = f64::INFINITY;
        for (reach, piece) in all.iter_mut().zip(pieces).rev() {
            low_min = low_min.min(piece.centre - piece.half_width);
            reach.low_min = low_min;
        }
        all.push(Reach { before, high_max: f64::INFINITY, low_min: f64::INFINITY });
        all
    }
}

impl Empirical {
    /// Creates the law of a histogram's times. Returns an error if the histogram is empty or all
    /// its times are 0.
    pub fn from_histogram(times: &Histogram) -> Result<Self, Error> {
        let mean = time("the mean of a histogram", times.mean_s())?;
        let n = times.count() as f64;
        let importance = |low: f64, high: f64, count: u64| {
            let x = 0.5 * (low + high) / mean;
            count as f64 / n * (1.0 + x + x * x)
        };
        let total: f64 = times.buckets().map(|(l, h, c)| importance(l, h, c)).sum();
        let mut pieces: Vec<Piece> = Vec::new();
        let (mut mass, mut first, mut second, mut weight) = (0.0, 0.0, 0.0, 0.0);
        let mut flush = |mass: &mut f64, first: &mut f64, second: &mut f64| {
            if *mass > 0.0 {
                let centre = *first / *mass;
                let variance = (*second / *mass - centre * centre).max(0.0);
                let half_width = (3.0 * variance).sqrt().min(centre);
                pieces.push(Piece { centre, half_width, share: *mass });
            }
            (*mass, *first, *second) = (0.0, 0.0, 0.0);
        };
        for (low, high, count) in times.buckets() {
            if weight > 0.0 && weight + importance(low, high, count) > total / PIECES {
                flush(&mut mass, &mut first, &mut second);
                weight = 0.0;
            }
            let (p, x, h) = (count as f64 / n, 0.5 * (low + high), 0.5 * (high - low));
            mass += p;
            first += p * x;
            second += p * (x * x + h * h / 3.0);
            weight += importance(low, high, count);
        }
        flush(&mut mass, &mut first, &mut second);
        let law = Self::from_pieces(pieces)?;
        // Of the observed times themselves, which is a little less than their estimate for the law.
        let scv = times.variance_s2() * (n - 1.0) / n / (mean * mean);
        law.with_moments(mean, if times.count() < 2 { law.scv() } else { scv })
    }

    /// Creates a law from pieces, whose shares are scaled to add to 1. Returns an error if a number
    /// is negative or not finite, if `pieces` is empty, or if there are more than 100,000 pieces.
    pub fn from_pieces(mut pieces: Vec<Piece>) -> Result<Self, Error> {
        check("the number of pieces", pieces.len() as f64, 1.0..=1e5, "1 to 100,000")?;
        let mut total = 0.0;
        for piece in &pieces {
            not_negative("the centre of a piece", piece.centre)?;
            not_negative("the half width of a piece", piece.half_width)?;
            total += not_negative("the share of a piece", piece.share)?;
        }
        positive("the sum of the shares", total)?;
        pieces.iter_mut().for_each(|p| p.share /= total);
        let mut law = Empirical { pieces, reaches: Vec::new(), mean: 0.0, variance: 0.0 };
        law.measure();
        time("the mean of the pieces", law.mean)?;
        check("the SCV of the pieces", law.scv(), 0.0..=SCV_MAX, "0 to 1e12")?;
        Ok(law)
    }

    fn measure(&mut self) {
        self.reaches = Reach::of_pieces(&self.pieces);
        self.mean = self.pieces.iter().map(|p| p.share * p.centre).sum();
        let mean = self.mean;
        let square =
            |p: &Piece| p.share * ((p.centre - mean).powi(2) + p.half_width * p.half_width / 3.0);
        self.variance = self.pieces.iter().map(square).sum();
    }

    /// The same shape with another mean (seconds) and squared coefficient of variation. The law is
    /// scaled to the mean and then stretched about it. Where the stretch would take times below 0,
    /// they are raised to a power instead, at most [`POWER_MAX`]: an SCV that needs a larger one is
    /// not reached. Cost: a pass over the pieces; some 30 for a power.
    pub fn with_moments(&self, mean: f64, scv: f64) -> Result<Self, Error> {
        time("the mean of a law", mean)?;
        check("the SCV of a law", scv, 0.0..=SCV_MAX, "0 to 1e12")?;
        let lowest =
            self.pieces.iter().map(|p| p.centre - p.half_width).fold(f64::INFINITY, f64::min);
        let wanted = if self.variance > 0.0 { (scv / self.scv()).sqrt() } else { 1.0 };
        let room = if lowest < self.mean { self.mean / (self.mean - lowest) } else { f64::MAX };
        if wanted > room.max(1.0) {
            return Ok(self.raised(scv).scaled(mean));
        }
        let factor = mean / self.mean;
        let pieces = self.pieces.iter().map(|p| Piece {
            centre: (mean + (p.centre - self.mean) * wanted * factor).max(0.0),
            half_width: p.half_width * wanted * factor,
            share: p.share,
        });
        let (pieces, reaches) = (pieces.collect(), Vec::new());
        let mut law = Empirical { pieces, reaches, mean, variance: self.variance };
        law.measure();
        Ok(law)
    }

    fn scaled(mut self, mean: f64) -> Self {
        let factor = mean / self.mean;
        for piece in &mut self.pieces {
            (piece.centre, piece.half_width) = (piece.centre * factor, piece.half_width * factor);
        }
        self.measure();
        self
    }

    /// Times over the mean raised to the power with which the law has a larger SCV. A stretch about the mean moves most what is least
    /// certain, the short times; a law of works from 0 on has no room for it at all, so that replicates had the variance of the sample
    /// or less, and intervals knew nothing of a heavier tail.
    fn raised(&self, scv: f64) -> Self {
        let ends = |p: &Piece| [(p.centre - p.half_width).max(0.0), p.centre + p.half_width];
        let logs: Vec<[f64; 2]> =
            self.pieces.iter().map(|p| ends(p).map(|end| (end / self.mean).ln())).collect();
        let of = |power: f64| {
            let each = self.pieces.iter().zip(&logs).map(|(p, logs)| {
                // The logarithm of 0 is infinite, and stays 0.
                let [low, high] = logs.map(|log| (power * log).exp());
                Piece { centre: 0.5 * (low + high), half_width: 0.5 * (high - low), share: p.share }
            });
            let (pieces, reaches) = (each.collect(), Vec::new());
            let mut law = Empirical { pieces, reaches, mean: 0.0, variance: 0.0 };
            law.measure();
            law
        };
        let (mut low, mut high) = (1.0, 1.0);
        while high < POWER_MAX && of(high).scv() < scv {
            (low, high) = (high, (1.25 * high).min(POWER_MAX));
        }
        for _ in 0..24 {
            let middle = f64::midpoint(low, high);
            (low, high) = if of(middle).scv() < scv { (middle, high) } else { (low, middle) };
        }
        of(high)
    }

    /// The pieces, in ascending order of their centres where they came from a histogram.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }
}

impl ServiceTime for Empirical {
    fn mean(&self) -> f64 {
        self.mean
    }

    fn scv(&self) -> f64 {
        self.variance / (self.mean * self.mean)
    }

    fn transform(&self, s: Complex64) -> Complex64 {
        let mut value = [Complex64::ZERO];
        if s.im == 0.0 {
            self.transform_line(s.re, 1.0 / self.mean, &mut value);
            return value[0];
        }
        self.pieces
            .iter()
            .map(|p| {
                let z = s * p.half_width;
                let value = if z.norm() < 0.1 {
                    (-s * p.centre).exp() * series(z)
                } else {
                    ((z - s * p.centre).exp() - (-z - s * p.centre).exp()) / (2.0 * z)
                };
                value * p.share
            })
            .sum()
    }

    fn third_moment(&self) -> Option<f64> {
        let of = |p: &Piece| match p.centre - p.half_width {
            // Below 0 there is no time: the CDF counts that part of the piece as 0.
            low if low < 0.0 => (p.centre + p.half_width).powi(4) / (8.0 * p.half_width),
            _ => p.centre * (p.centre * p.centre + p.half_width * p.half_width),
        };
        Some(self.pieces.iter().map(|p| p.share * of(p)).sum())
    }

    fn atoms(&self) -> Vec<Atom> {
        let constant = self.pieces.iter().filter(|p| p.half_width == 0.0);
        constant.map(|p| Atom { at: p.centre, share: p.share }).collect()
    }

    fn cdf(&self, t: f64) -> f64 {
        let below = |p: &Piece| {
            let (low, high) = (p.centre - p.half_width, p.centre + p.half_width);
            if t >= high {
                p.share
            } else if t > low {
                p.share * (t - low) / (high - low)
            } else {
                0.0
            }
        };
        if t.is_nan() || t < 0.0 {
            return 0.0;
        }
        // An infinite time is behind all pieces, but not behind what stands behind them.
        let t = t.min(f64::MAX);
        let first = self.reaches.partition_point(|reach| reach.high_max <= t);
        let last = self.reaches.partition_point(|reach| reach.low_min <= t).max(first);
        let within = self.pieces[first..last].iter().map(below);
        within.fold(self.reaches[first].before, |sum, share| sum + share).clamp(0.0, 1.0)
    }

    /// All points of a line have the same real part and equal steps, so exponentials are powers of
    /// one rotation: a multiplication a point. The transform of a piece is density·(exp(−s·low) −
    /// exp(−s·high))/s, so those of all pieces are summed before they are divided by s.
    fn transform_line(&self, re: f64, step: f64, out: &mut [Complex64]) {
        out.fill(Complex64::ZERO);
        // With the step of `inversion::line`, π / step is its t.
        let narrow = NARROW * std::f64::consts::PI / step;
        let mut edges = Exponentials::new(re, step, out.len());
        let mut share = 0.0;
        for piece in &self.pieces {
            if piece.half_width < narrow && piece.half_width * re < 0.1 {
                add_narrow(piece, re, step, out);
            } else {
                let density = piece.share / (2.0 * piece.half_width);
                edges.add(piece.centre - piece.half_width, density);
                edges.add(piece.centre + piece.half_width, -density);
                share += piece.share;
            }
        }
        for (k, (value, sum)) in out.iter_mut().zip(edges.sums()).enumerate() {
            let s = Complex64::new(re, step * k as f64);
            *value += if s == Complex64::ZERO { Complex64::from(share) } else { sum / s };
        }
    }
}

/// Points of a line that are computed together, so that the compiler can use vector instructions.
const LANES: usize = 8;

/// Σ weight·exp(−s·at) at the points of a line.
struct Exponentials {
    re: f64,
    step: f64,
    sums: Vec<[[f64; LANES]; 2]>,
}

impl Exponentials {
    fn new(re: f64, step: f64, points: usize) -> Self {
        Exponentials { re, step, sums: vec![[[0.0; LANES]; 2]; points.div_ceil(LANES)] }
    }

    /// Adds one, at all points: the first eight by their powers, the others each from the one eight
    /// before.
    fn add(&mut self, at: f64, weight: f64) {
        let (im, re) = (-self.step * at).sin_cos();
        let one = Complex64::new(re, im);
        let start = Complex64::from(weight * (-self.re * at).exp());
        let (two, four) = (one * one, (one * one) * (one * one));
        let (first, fifth) = (start, start * four);
        let third = one * two;
        let powers = [
            first,
            first * one,
            first * two,
            first * third,
            fifth,
            fifth * one,
            fifth * two,
            fifth * third,
        ];
        let (mut x, mut y) = (powers.map(|p| p.re), powers.map(|p| p.im));
        let eight = four * four;
        for [a, b] in &mut self.sums {
            for lane in 0..LANES {
                a[lane] += x[lane];
                b[lane] += y[lane];
                let next = x[lane] * eight.re - y[lane] * eight.im;
                y[lane] = x[lane] * eight.im + y[lane] * eight.re;
                x[lane] = next;
            }
        }
    }

    fn sums(&self) -> impl Iterator<Item = Complex64> {
        self.sums.iter().flat_map(|[a, b]| a.iter().zip(b).map(|(&x, &y)| Complex64::new(x, y)))
    }
}

/// sinh(z)/z for small |z|: four terms leave |z|⁸/362,880.
fn series(z: Complex64) -> Complex64 {
    let z2 = z * z;
    1.0 + z2 / 6.0 * (1.0 + z2 / 20.0 * (1.0 + z2 / 42.0))
}

/// Adds share·exp(−sc)·sinh(sh)/(sh) at each s, by series in sh.
fn add_narrow(piece: &Piece, re: f64, step: f64, out: &mut [Complex64]) {
    let size = piece.share * (-re * piece.centre).exp();
    let (turn_im, turn_re) = (-step * piece.centre).sin_cos();
    let (mut x, mut y) = (size, 0.0);
    let h = piece.half_width;
    for (k, value) in out.iter_mut().enumerate() {
        let (a, b) = (re * h, step * h * k as f64);
        // z² and 1 + z²/6·(1 + z²/20).
        let (u, v) = (a * a - b * b, 2.0 * a * b);
        let (p, q) = (1.0 + u / 20.0, v / 20.0);
        let (f, g) = (1.0 + (u * p - v * q) / 6.0, (u * q + v * p) / 6.0);
        value.re += x * f - y * g;
        value.im += x * g + y * f;
        (x, y) = (x * turn_re - y * turn_im, x * turn_im + y * turn_re);
    }
}
