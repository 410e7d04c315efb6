//! Che's approximation as a table of hit ratio against memory, for thousands of look-ups.

use crate::storage::hit_law::HitLaw;

use super::catalogue::Group;
use super::che::{Cache, Hits};

/// Points of the table.
const POINTS: usize = 400;

/// Hit ratio against memory and its inverse, as a table made by [`Cache::curve`]. Clusters use it
/// as a [`HitLaw`].
///
/// The curve is given by its parameter: for a characteristic time T memory is Σ b·h(pT) bytes, the
/// hit ratio Σ p·h(pT) (see [`Cache`], which has source and assumptions), so that a table of T
/// needs no equation solved. Between its points both are linear in ln(memory); below the first hits
/// are in proportion to memory, at the last they are 1. Against [`Cache::with_memory`] it is off by less
/// than 0.0005. Cost: some 50 ms to make for 10⁷ objects; a look-up below a microsecond.
///
/// ```
/// use model::cache::{Cache, Catalogue, Eviction};
/// let cache = Cache::new(Catalogue::zipf(100_000, 0.8)?, Eviction::Lru);
/// let curve = cache.curve();
/// assert!((curve.hit_ratio(5_000.0) - cache.with_memory(5_000.0)?.hit_ratio).abs() < 5e-4);
/// assert!((curve.hit_ratio(curve.memory_for(0.4)) - 0.4).abs() < 1e-9);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct HitCurve {
    /// Bytes of memory, hit ratio: ascending.
    points: Vec<(f64, f64)>,
}

impl Cache {
    /// The curve as a table. Cost: 400 sums over the groups of the catalogue; some 50 ms for 10⁷
    /// objects.
    pub fn curve(&self) -> HitCurve {
        let asked = || self.catalogue().groups().iter().filter(|g| g.popularity > 0.0);
        let (least, most) = asked().fold((f64::INFINITY, 0.0f64), |(least, most), g| {
            (least.min(g.popularity), most.max(g.popularity))
        });
        // From where hits are in proportion to memory to where all is in it.
        let (from, to) = (1e-3 / most, 40.0 / least);
        let whole = |f: &dyn Fn(&Group) -> f64| asked().map(f).sum::<f64>();
        let mut points: Vec<(f64, f64)> = Vec::with_capacity(POINTS + 1);
        for i in 0..POINTS {
            let part = i as f64 / (POINTS - 1) as f64;
            let hits: Hits = self.after((from.ln() + (to / from).ln() * part).exp());
            let kept = |g: &Group| g.objects * hits.of_object(g.popularity);
            let point = (whole(&|g| kept(g) * g.bytes), hits.hit_ratio);
            // Rounding aside both grow.
            if points.last().is_none_or(|last| point.0 > last.0 && point.1 > last.1) {
                points.push(point);
            }
        }
        let all = whole(&|g| g.objects * g.bytes);
        points.retain(|point| point.0 < all && point.1 < 1.0);
        points.push((all, 1.0));
        HitCurve { points }
    }
}

impl HitCurve {
    /// The hit ratio of a memory of `bytes` bytes: 0 if `bytes` is 0 or NaN, 1 if everything fits.
    pub fn hit_ratio(&self, bytes: f64) -> f64 {
        if bytes.is_nan() || bytes <= 0.0 {
            return 0.0;
        }
        let after = self.points.partition_point(|point| point.0 < bytes);
        match (after.checked_sub(1).and_then(|i| self.points.get(i)), self.points.get(after)) {
            (_, None) => 1.0,
            (None, Some(first)) => first.1 * bytes / first.0,
            (Some(low), Some(high)) => {
                low.1 + (high.1 - low.1) * (bytes / low.0).ln() / (high.0 / low.0).ln()
            }
        }
    }

    /// The bytes of memory for a hit ratio: 0 if it is at most 0, the bytes of all objects if it is
    /// at least 1.
    pub fn memory_for(&self, hit_ratio: f64) -> f64 {
        if hit_ratio.is_nan() || hit_ratio <= 0.0 {
            return 0.0;
        }
        let after = self.points.partition_point(|point| point.1 < hit_ratio);
        match (after.checked_sub(1).and_then(|i| self.points.get(i)), self.points.get(after)) {
            (last, None) => last.map_or(0.0, |last| last.0),
            (None, Some(first)) => first.0 * hit_ratio / first.1,
            (Some(low), Some(high)) => {
                let part = (hit_ratio - low.1) / (high.1 - low.1);
                low.0 * ((high.0 / low.0).ln() * part).exp()
            }
        }
    }
}

/// A hit ratio of 1 means a memory that just holds everything.
impl HitLaw for HitCurve {
    fn change(&self, now: f64, factor: f64) -> f64 {
        if now > 0.0 { self.hit_ratio(self.memory_for(now) * factor) / now.min(1.0) } else { 1.0 }
    }
}
