//! The miss-ratio curve, computed from reuse distances.

use crate::error::{Error, check, not_negative, positive};
use crate::statistics::student_95;
use crate::storage::hit_law::{HitLaw, Popularity};

use super::recency::PARTS;

/// Distances are stored exactly up to 256, and to 1/128 of their value above.
const BITS: u32 = 7;

/// The bucket of a distance.
pub(super) fn bucket(distance: u64) -> usize {
    let shift = (63 - BITS).saturating_sub(distance.leading_zeros());
    ((shift as usize) << BITS) + (distance >> shift) as usize
}

/// The first distance of a bucket, and the number of its distances.
pub(super) fn range(bucket: usize) -> (u64, u64) {
    let shift = (bucket >> BITS).saturating_sub(1);
    (((bucket - (shift << BITS)) as u64) << shift, 1 << shift)
}

/// Requests and bytes by reuse distance, as represented by the sampled requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// By bucket: requests, bytes.
    near: Vec<[f64; 2]>,
    /// First requests for a key, which miss in any memory.
    first: [f64; 2],
}

impl Tally {
    /// Adds a request; a `distance` of `None` is the first request for its key.
    pub fn add(&mut self, distance: Option<f64>, bytes: f64, weight: f64) {
        let cell = match distance {
            None => &mut self.first,
            Some(distance) => {
                // Above 2⁶⁴ the conversion saturates.
                let bucket = bucket(distance.round() as u64);
                if bucket >= self.near.len() {
                    self.near.resize(bucket + 1, [0.0; 2]);
                }
                &mut self.near[bucket]
            }
        };
        cell[0] += weight;
        cell[1] += weight * bytes;
    }

    /// Lets everything weigh `kept` of what it weighed.
    pub fn fade(&mut self, kept: f64) {
        for cell in self.near.iter_mut().chain([&mut self.first]) {
            *cell = cell.map(|sum| sum * kept);
        }
    }

    /// Misses by bucket. Distances below a bucket's first distance do not miss, so `[i]` counts
    /// from bucket i on; the last entry counts the requests that always miss.
    pub fn misses(&self) -> Vec<[f64; 2]> {
        let mut sums = vec![self.first; self.near.len() + 1];
        for (i, cell) in self.near.iter().enumerate().rev() {
            sums[i] = [sums[i + 1][0] + cell[0], sums[i + 1][1] + cell[1]];
        }
        sums
    }
}

/// 1 − misses / `total`, from the misses by bucket; `of`: 0 requests, 1 bytes.
pub(super) fn hits(misses: &[[f64; 2]], total: f64, memory: u64, of: usize) -> f64 {
    let Some(always) = misses.last() else { return 0.0 };
    let at = bucket(memory);
    let missed = match (misses.get(at), misses.get(at + 1)) {
        (Some(from), Some(beyond)) => {
            let (low, width) = range(at);
            let further = (width - 1 - (memory - low)) as f64 / width as f64;
            beyond[of] + (from[of] - beyond[of]) * further
        }
        _ => always[of],
    };
    if total > 0.0 { 1.0 - missed / total } else { 0.0 }
}

/// A share with its 95 % interval, on a [`Curve`], by the jackknife of [`super::Shards`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// The estimate.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// A point of a [`Curve`], returned by [`Curve::point`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// Bytes of memory (objects, if each was pushed with 1 byte).
    pub memory_bytes: f64,
    /// Share of the requests that it would have answered.
    pub hit_ratio: Share,
    /// Share of the requested bytes.
    pub byte_hit_ratio: Share,
}

/// Hit ratio against memory for the stream pushed into [`super::Shards`]: least-recently-used
/// memory, empty at the start. Distances are stored to 0.8 % of their value; within a bucket the
/// curve is a line. [`super::Shards`] documents source, interval, cost and limits.
///
/// ```
/// use model::cache::Shards;
/// let mut every = Shards::exact();
/// // Ten objects of a byte in turn, ten times: all or nothing.
/// (0..100u64).for_each(|i| every.push(i % 10, 1));
/// let curve = every.curve()?;
/// assert_eq!(curve.point(9.0)?.hit_ratio.value, 0.0);
/// assert!((curve.point(10.0)?.hit_ratio.value - 0.9).abs() < 1e-12);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Misses by bucket, of all sampled keys and of all but one part.
    all: Vec<[f64; 2]>,
    without: Vec<Vec<[f64; 2]>>,
    totals: Option<[f64; 2]>,
    rate: f64,
    keys: usize,
    student: f64,
}

impl Curve {
    pub(super) fn new(
        all: &Tally,
        without: &[Tally; PARTS],
        totals: Option<[f64; 2]>,
        rate: f64,
        keys: usize,
    ) -> Self {
        Curve {
            all: all.misses(),
            without: without.iter().map(Tally::misses).collect(),
            totals,
            rate,
            keys,
            student: student_95(PARTS - 1),
        }
    }

    /// The point at `memory_bytes`. Past [`Curve::memory_max`] the curve is constant, because the
    /// first request for a key misses in any memory. Cost: a microsecond.
    pub fn point(&self, memory_bytes: f64) -> Result<CurvePoint, Error> {
        not_negative("the bytes of memory", memory_bytes)?;
        let [hit_ratio, byte_hit_ratio] = [0, 1].map(|of| self.share(memory_bytes, of));
        Ok(CurvePoint { memory_bytes, hit_ratio, byte_hit_ratio })
    }

    /// `of`: 0 requests, 1 bytes.
    fn share(&self, memory: f64, of: usize) -> Share {
        let value = self.hits(&self.all, memory, of);
        let mut half_width = 0.0;
        if self.rate < 1.0 {
            let parts: Vec<f64> = self.without.iter().map(|m| self.hits(m, memory, of)).collect();
            let mean = parts.iter().sum::<f64>() / PARTS as f64;
            let squares: f64 = parts.iter().map(|x| (x - mean).powi(2)).sum();
            // The jackknife variance, with the correction for sampling from a finite number of
            // keys.
            let variance = squares * (PARTS - 1) as f64 / PARTS as f64 * (1.0 - self.rate);
            half_width = self.student * variance.sqrt();
        }
        let within = |x: f64| x.clamp(0.0, 1.0);
        Share {
            value: within(value),
            low: within(value - half_width),
            high: within(value + half_width),
        }
    }

    /// 1 − misses / all; not clamped, because a sample may represent more misses than there were
    /// requests.
    fn hits(&self, misses: &[[f64; 2]], memory: f64, of: usize) -> f64 {
        let total = self.totals.map_or(misses[0][of], |totals| totals[of]);
        hits(misses, total, memory.min(u64::MAX as f64) as u64, of)
    }

    /// The memory in bytes past which no further request is answered.
    pub fn memory_max(&self) -> f64 {
        match self.all.len() {
            0 | 1 => 0.0,
            n => {
                let (low, width) = range(n - 2);
                low as f64 + (width - 1) as f64
            }
        }
    }

    /// The curve at `count` sizes (2 to 10,000) from the smallest with a hit to
    /// [`Curve::memory_max`], at equal logarithmic distances.
    pub fn points(&self, count: usize) -> Result<Vec<CurvePoint>, Error> {
        check("the number of points", count as f64, 2.0..=1e4, "2 to 10,000")?;
        let all = self.all.first().map_or(0.0, |m| m[0]);
        let first = self.all.iter().skip(1).position(|m| m[0] < all).unwrap_or(0);
        let (low, high) = ((range(first).0 as f64).max(1.0), self.memory_max().max(1.0));
        let at = |i: usize| low * (high / low).powf(i as f64 / (count - 1) as f64);
        (0..count).map(|i| self.point(if i + 1 == count { high } else { at(i) })).collect()
    }

    /// The popularity law between a memory of `memory_bytes` and `factor` times that, for changes
    /// of a [`crate::storage::Cluster`] (see [`crate::cache::Cache::popularity`]). For factors
    /// within 5 % of 1, the slope over 5 %. An error if that memory answers nothing.
    pub fn popularity(&self, memory_bytes: f64, factor: f64) -> Result<Popularity, Error> {
        positive("the bytes of memory", memory_bytes)?;
        check("the factor of the memory", factor, 1e-6..=1e6, "0.000001 to 1,000,000")?;
        let factor = if (factor - 1.0).abs() < 0.05 { 1.05 } else { factor };
        let hits =
            |memory: f64| positive("the hit ratio of a memory", self.hits(&self.all, memory, 0));
        let (before, after) = (hits(memory_bytes)?, hits(memory_bytes * factor)?);
        Popularity::new(((after / before).ln() / factor.ln()).clamp(0.0, 1.0))
    }

    /// The smallest memory in bytes that would have answered a share `hit_ratio` of the requests.
    /// [`Error::HitRatio`] if none would.
    pub fn memory_for(&self, hit_ratio: f64) -> Result<f64, Error> {
        check("the hit ratio", hit_ratio, 0.0..=1.0, "0 to 1")?;
        let reached = |memory: u64| self.hits(&self.all, memory as f64, 0).max(0.0) >= hit_ratio;
        let (mut low, mut high) = (0u64, self.memory_max() as u64);
        if reached(low) {
            return Ok(0.0);
        }
        if !reached(high) {
            let best = self.hits(&self.all, high as f64, 0).clamp(0.0, 1.0);
            return Err(Error::HitRatio { hit_ratio, best });
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if reached(middle) {
                high = middle;
            } else {
                low = middle;
            }
        }
        Ok(high as f64)
    }
}

/// The stream's own curve. A hit ratio above the curve's largest (first requests always miss) is
/// taken as that of a memory that holds everything.
impl HitLaw for Curve {
    fn change(&self, now: f64, factor: f64) -> f64 {
        let memory = self.memory_for(now.clamp(0.0, 1.0)).unwrap_or_else(|_| self.memory_max());
        let hits = |memory: f64| self.hits(&self.all, memory, 0).clamp(0.0, 1.0);
        let change = hits(memory * factor) / hits(memory);
        if change.is_finite() { change } else { 1.0 }
    }
}
