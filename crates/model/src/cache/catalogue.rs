//! The objects of a service: their popularity and their sizes.

use std::collections::BTreeMap;

use crate::error::{Error, check, positive};

/// Largest relative difference of popularities (and sizes) within a group. Replacing objects by
/// their group's mean changes a sum by this squared over 12: 1e-7.
const ALIKE: f64 = 1e-3;

/// Ranks below this are summed one by one, beyond it by Euler's and Maclaurin's formula.
const SUMMED: f64 = 64.0;

/// Objects of nearly equal popularity and size. Sums over a [`Catalogue`] are sums over its groups.
///
/// ```
/// use model::cache::Catalogue;
/// // Three requests of four are for one object.
/// let objects = Catalogue::from_counts([3, 1])?;
/// assert!((objects.groups()[0].popularity - 0.75).abs() < 1e-12);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// Number of objects. Not an integer if objects were split by size or by level.
    pub objects: f64,
    /// Share of all requests that each of them receives.
    pub popularity: f64,
    /// Bytes of each.
    pub bytes: f64,
}

/// Objects with their popularity and size, most popular first, in groups of similar objects. 10⁷
/// objects of a Zipf law make about 10,000 groups, so a sum over the objects costs about 10,000
/// operations.
///
/// A request is for the object of rank k with probability k^(−s)/Σⱼ j^(−s) (Zipf). Source: L.
/// Breslau, P. Cao, L. Fan, G. Phillips, S. Shenker, "Web caching and Zipf-like distributions",
/// INFOCOM 1999. Sums have a relative error of 1e-7. Popularities that change over time are not
/// described.
///
/// ```
/// use model::cache::Catalogue;
/// let tracks = Catalogue::zipf(10_000_000, 0.8)?.with_bytes(5e6)?;
/// assert_eq!(tracks.objects().round(), 1e7);
/// assert!(tracks.groups().len() < 12_000);
/// // The 1 % most popular tracks have 38 % of the requests.
/// assert!((tracks.share_of_top(100_000.0) - 0.376).abs() < 0.001);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Catalogue {
    groups: Vec<Group>,
}

impl Catalogue {
    /// `objects` objects of 1 byte each, with popularities proportional to k^(−s), s = `exponent`
    /// from 0 (equal popularities) to 20. The literature gives s between 0.6 and 1.2 for web
    /// objects and media. Cost: about 1,000·s·ln(objects) groups.
    pub fn zipf(objects: u64, exponent: f64) -> Result<Self, Error> {
        Self::zipf_mandelbrot(objects, exponent, 0.0)
    }

    /// [`Catalogue::zipf`] with (k + q)^(−s), q = `shift` ≥ 0 (Mandelbrot's generalisation of
    /// Zipf's law): flatter among the first q objects, as many measured popularities are.
    pub(crate) fn zipf_mandelbrot(objects: u64, exponent: f64, shift: f64) -> Result<Self, Error> {
        check("the number of objects", objects as f64, 1.0..=1e15, "1 to 1e15")?;
        check("the exponent of popularity", exponent, 0.0..=20.0, "0 to 20")?;
        check("the shift of popularity", shift, 0.0..=1e15, "0 to 1e15")?;
        let law = Ranks { exponent, shift };
        // Ranks further apart than this factor differ by more than `ALIKE`. Beyond s = 4 the ranks
        // that are put together have next to nothing of the requests.
        let ratio = (ALIKE / exponent.min(4.0)).exp_m1();
        let mut groups = Vec::new();
        let mut first = 1u64;
        while first <= objects {
            let more = ((first as f64 + shift) * ratio).min(objects as f64) as u64;
            let last = first.saturating_add(more).min(objects);
            let count = (last - first + 1) as f64;
            let popularity = law.sum(first, last) / count;
            groups.push(Group { objects: count, popularity, bytes: 1.0 });
            first = last + 1;
        }
        Self::of_groups(groups)
    }

    /// Objects of 1 byte each with popularities proportional to `weights`, in any order. Objects of
    /// weight 0 are left out. Returns an error if a weight is negative or not finite, or if no
    /// weight is above 0.
    pub(crate) fn from_weights(weights: impl IntoIterator<Item = f64>) -> Result<Self, Error> {
        Self::from_objects(weights.into_iter().map(|weight| (weight, 1.0)))
    }

    /// Objects of 1 byte each with popularities proportional to request counts. The counts of a
    /// short record overstate the popularity of objects requested once and miss all others: to get
    /// the curve of the record itself use [`super::Shards`].
    pub fn from_counts(counts: impl IntoIterator<Item = u64>) -> Result<Self, Error> {
        Self::from_weights(counts.into_iter().map(|count| count as f64))
    }

    /// Objects as (weight, bytes). Cost: one look-up for each object; memory for each distinct pair
    /// (to 0.1 %) alone.
    pub fn from_objects(objects: impl IntoIterator<Item = (f64, f64)>) -> Result<Self, Error> {
        let mut cells: BTreeMap<(i64, i64), [f64; 3]> = BTreeMap::new();
        for (weight, bytes) in objects {
            check("an object's weight", weight, 0.0..=1e300, "0 to 1e300")?;
            check("an object's bytes", bytes, 1e-9..=1e18, "above 0, at most 1e18")?;
            if weight > 0.0 {
                let cell = |x: f64| (x.ln() / ALIKE).floor() as i64;
                let [n, w, b] = cells.entry((-cell(weight), cell(bytes))).or_default();
                *n += 1.0;
                // A running mean: a sum of large weights might not be finite.
                *w += (weight - *w) / *n;
                *b += (bytes - *b) / *n;
            }
        }
        let groups = cells.into_values();
        Self::of_groups(
            groups
                .map(|[objects, popularity, bytes]| Group { objects, popularity, bytes })
                .collect(),
        )
    }

    /// Orders groups and scales their popularities so that all have one request together.
    fn of_groups(mut groups: Vec<Group>) -> Result<Self, Error> {
        let largest = groups.iter().map(|g| g.popularity).fold(0.0, f64::max);
        positive("the largest weight of an object", largest)?;
        // Relative to the largest first, so that the sum is finite.
        let total: f64 = groups.iter().map(|g| g.objects * (g.popularity / largest)).sum();
        groups.iter_mut().for_each(|g| g.popularity = g.popularity / largest / total);
        groups.retain(|g| g.popularity > 0.0);
        groups.sort_by(|a, b| b.popularity.total_cmp(&a.popularity));
        Ok(Catalogue { groups })
    }

    /// The same popularities, all objects of `bytes` bytes.
    pub fn with_bytes(mut self, bytes: f64) -> Result<Self, Error> {
        check("an object's bytes", bytes, 1e-9..=1e18, "above 0, at most 1e18")?;
        self.groups.iter_mut().for_each(|g| g.bytes = bytes);
        Ok(self)
    }

    /// The same popularities with sizes (bytes, share of the objects), each object's drawn without
    /// regard to its popularity. Shares are scaled to add to 1. Cost: as many groups as groups
    /// times sizes; 1,000 sizes at most.
    pub fn with_sizes(self, sizes: &[(f64, f64)]) -> Result<Self, Error> {
        check("the number of sizes", sizes.len() as f64, 1.0..=1e3, "1 to 1,000")?;
        let mut total = 0.0;
        for &(bytes, share) in sizes {
            check("an object's bytes", bytes, 1e-9..=1e18, "above 0, at most 1e18")?;
            total += check("the share of a size", share, 0.0..=1e300, "0 to 1e300")?;
        }
        positive("the sum of the shares of sizes", total)?;
        let split = |g: Group| {
            let sizes = sizes.iter().filter(|(_, share)| *share > 0.0);
            sizes.map(move |&(bytes, share)| {
                let objects = g.objects * (share / total);
                Group { objects, bytes, ..g }
            })
        };
        Ok(Catalogue { groups: self.groups.into_iter().flat_map(split).collect() })
    }

    /// The groups, most popular first.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Number of objects.
    pub fn objects(&self) -> f64 {
        self.groups.iter().map(|g| g.objects).sum()
    }

    /// Bytes of all objects.
    pub fn bytes(&self) -> f64 {
        self.groups.iter().map(|g| g.objects * g.bytes).sum()
    }

    /// Mean bytes of the object of a request, which differ from the mean bytes of an object.
    pub(crate) fn request_bytes(&self) -> f64 {
        self.groups.iter().map(|g| g.objects * g.popularity * g.bytes).sum()
    }

    /// The effective number of objects 1/Σw²: as many equally popular ones would spread as evenly.
    pub fn effective_objects(&self) -> f64 {
        let squares: f64 =
            self.groups.iter().map(|g| g.objects * g.popularity * g.popularity).sum();
        1.0 / squares
    }

    /// The share of the requests that is for the `objects` most popular ones.
    pub fn share_of_top(&self, objects: f64) -> f64 {
        let mut left = objects;
        let mut share = 0.0;
        for group in &self.groups {
            let taken = left.clamp(0.0, group.objects);
            share += taken * group.popularity;
            left -= taken;
        }
        share.min(1.0)
    }

    /// The share of the requests that is for the object of this rank, 1 the most popular; 0 beyond
    /// the last. Within 0.1 % of the object's own.
    pub fn popularity_of_rank(&self, rank: u64) -> f64 {
        let mut before = 0.0;
        for group in &self.groups {
            before += group.objects;
            if rank as f64 <= before + 1e-6 {
                return if rank == 0 { 0.0 } else { group.popularity };
            }
        }
        0.0
    }
}

/// f(k) = ((k + q)/(1 + q))^(−s).
struct Ranks {
    exponent: f64,
    shift: f64,
}

impl Ranks {
    fn popularity(&self, k: f64) -> f64 {
        ((k + self.shift) / (1.0 + self.shift)).powf(-self.exponent)
    }

    /// Σ f(k), k = first … last. Error below 1e-9 of it.
    fn sum(&self, first: u64, last: u64) -> f64 {
        let mut sum = 0.0;
        let mut a = first;
        // What is short, or where f still bends much, one by one.
        while a <= last && ((a as f64) + self.shift < SUMMED || last - a < 16) {
            sum += self.popularity(a as f64);
            a += 1;
        }
        if a > last {
            return sum;
        }
        let (low, high) = (a as f64, last as f64);
        let (f_low, f_high) = (self.popularity(low), self.popularity(high));
        let (x_low, x_high) = (low + self.shift, high + self.shift);
        let log = ((high - low) / x_low).ln_1p();
        let power = 1.0 - self.exponent;
        let integral =
            f_low * x_low * if power == 0.0 { log } else { (power * log).exp_m1() / power };
        let slopes = self.exponent * (f_low / x_low - f_high / x_high);
        sum + integral + 0.5 * (f_low + f_high) + slopes / 12.0
    }
}
