//! Che's approximation: the hit ratio of a memory of a given size, from the popularities of
//! objects.

use crate::error::{Error, check, not_negative, positive};
use crate::storage::hit_law::Popularity;

use super::catalogue::{Catalogue, Group};

/// The eviction policy of a memory.
///
/// For independent requests, first-in-first-out and random eviction have the same hit ratio: E.
/// Gelenbe, "A unified approach to the evaluation of a class of replacement algorithms", IEEE
/// Transactions on Computers 22 (1973). Least-recently-used eviction has a higher one: J. van den
/// Berg, A. Gandolfi, "LRU is better than FIFO under the independent reference model", Journal of
/// Applied Probability 29 (1992).
///
/// ```
/// use model::cache::{Cache, Catalogue, Eviction};
/// let objects = Catalogue::zipf(10_000, 0.8)?;
/// let lru = Cache::new(objects.clone(), Eviction::Lru).with_memory(500.0)?;
/// let fifo = Cache::new(objects, Eviction::Fifo).with_memory(500.0)?;
/// assert!(lru.hit_ratio > fifo.hit_ratio);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// The least recently used object is evicted.
    Lru,
    /// The object that was stored first, or a random one, is evicted: both have the same hit ratio.
    Fifo,
}

impl Eviction {
    /// The share of time that an object is in memory, of which `x` requests come within the
    /// characteristic time.
    pub(super) fn resident_share(self, x: f64) -> f64 {
        match self {
            Eviction::Lru => -(-x).exp_m1(),
            Eviction::Fifo if x.is_infinite() => 1.0,
            Eviction::Fifo => x / (1.0 + x),
        }
    }

    /// x times the derivative of [`Eviction::resident_share`].
    fn slope(self, x: f64) -> f64 {
        match self {
            Eviction::Lru => x * (-x).exp(),
            Eviction::Fifo => x / (1.0 + x) / (1.0 + x),
        }
    }
}

/// A memory that holds objects of a catalogue, with independent requests (IRM).
///
/// A memory of M bytes holds an object whose share of the requests is p with probability h = 1 −
/// exp(−pT) (least recently used) or pT/(1 + pT) (first in first out, random); the *characteristic
/// time* T, in requests, is the same for all objects and follows from Σ b·h = M, with b the
/// object's bytes: the stored objects fill the memory. The hit ratio is Σ p·h.
///
/// Sources: H. Che, Y. Tung, Z. Wang, "Hierarchical Web caching systems", IEEE JSAC 20 (2002);
/// earlier, R. Fagin, "Asymptotic miss ratios over independent references" (1977); for FIFO and
/// RANDOM, V. Martina, M. Garetto, E. Leonardi, "A unified approach to the performance analysis of
/// caching systems", INFOCOM 2014.
///
/// It assumes independent requests, and enough objects in memory that T hardly varies: simulated
/// memories of 50 to 500 objects are within 0.006 of it. Streams whose popularities change within
/// the time T have more hits than predicted. Leave out objects that are larger than the memory.
///
/// Cost: some 15 sums over the groups of the catalogue; a few milliseconds for 10⁷ objects of a
/// Zipf law.
///
/// ```
/// use model::cache::{Cache, Catalogue, Eviction};
/// let memory = Cache::new(Catalogue::zipf(10_000, 0.8)?, Eviction::Lru);
/// let hits = memory.with_memory(500.0)?; // objects of 1 byte
/// assert!((hits.hit_ratio - 0.33118623).abs() < 1e-6);
/// assert!((hits.characteristic_requests - 653.3712).abs() < 1e-2);
/// assert!((memory.memory_for(hits.hit_ratio)? - 500.0).abs() < 1e-6);
/// // Twice the memory is not twice the hits.
/// assert!(memory.with_memory(1000.0)?.hit_ratio < 1.4 * hits.hit_ratio);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Cache {
    catalogue: Catalogue,
    eviction: Eviction,
}

/// The hits of a warm memory, returned by [`Cache::with_memory`]. [`Cache`] documents the formulas.
///
/// ```
/// use model::cache::{Cache, Catalogue, Eviction};
/// let hits = Cache::new(Catalogue::zipf(10_000, 0.8)?, Eviction::Lru).with_memory(500.0)?;
/// // It is full, of objects of 1 byte, and rather of those that are asked for often.
/// assert!((hits.objects - 500.0).abs() < 1e-6);
/// assert!(hits.of_object(0.01) > hits.of_object(0.001));
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hits {
    eviction: Eviction,
    /// T: the number of requests for which an object stays in memory without a request of its own
    /// (FIFO: stays in memory at all). Infinite if everything fits.
    pub characteristic_requests: f64,
    /// Share of the requests that memory answers.
    pub hit_ratio: f64,
    /// Share of the requested bytes that memory answers.
    pub byte_hit_ratio: f64,
    /// Mean number of objects in memory.
    pub objects: f64,
}

impl Hits {
    /// The hit ratio of an object with this share of the requests (0 if that is not above 0).
    pub fn of_object(&self, popularity: f64) -> f64 {
        if popularity > 0.0 {
            self.eviction.resident_share(popularity * self.characteristic_requests)
        } else {
            0.0
        }
    }
}

impl Cache {
    /// Creates a memory for the objects of a catalogue.
    pub fn new(catalogue: Catalogue, eviction: Eviction) -> Self {
        Cache { catalogue, eviction }
    }

    /// The objects.
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// The eviction policy.
    pub fn eviction(&self) -> Eviction {
        self.eviction
    }

    /// The hits of a memory of `bytes` bytes.
    pub fn with_memory(&self, bytes: f64) -> Result<Hits, Error> {
        not_negative("the bytes of memory", bytes)?;
        Ok(self.after(characteristic(self.catalogue.groups(), self.eviction, bytes)))
    }

    /// The hits of a memory with the characteristic time `requests`.
    pub(super) fn after(&self, requests: f64) -> Hits {
        let mut hits = Hits {
            eviction: self.eviction,
            characteristic_requests: requests,
            hit_ratio: 0.0,
            byte_hit_ratio: 0.0,
            objects: 0.0,
        };
        let mut asked = 0.0;
        for group in self.catalogue.groups() {
            let kept = group.objects * hits.of_object(group.popularity);
            hits.objects += kept;
            hits.hit_ratio += kept * group.popularity;
            hits.byte_hit_ratio += kept * group.popularity * group.bytes;
            asked += group.objects * group.popularity * group.bytes;
        }
        hits.hit_ratio = hits.hit_ratio.min(1.0);
        hits.byte_hit_ratio = (hits.byte_hit_ratio / asked).min(1.0);
        hits
    }

    /// The bytes of memory for a hit ratio of `hit_ratio`; the bytes of all objects for 1.
    pub fn memory_for(&self, hit_ratio: f64) -> Result<f64, Error> {
        check("the hit ratio", hit_ratio, 0.0..=1.0, "0 to 1")?;
        let groups = self.catalogue.groups();
        let hits = |g: &Group| g.objects * g.popularity;
        let requests = match hit_ratio {
            0.0 => 0.0,
            1.0 => f64::INFINITY,
            _ => solve(groups, self.eviction, hits, hit_ratio),
        };
        let kept =
            |g: &Group| g.objects * g.bytes * self.eviction.resident_share(g.popularity * requests);
        Ok(groups.iter().map(kept).sum())
    }

    /// The exponent e with q(factor·m)/q(m) = factor^e for a memory of m = `bytes` bytes, as the
    /// changes of [`crate::storage::Cluster`] take it. It is exact for `factor` and approximate for
    /// other factors.
    pub fn popularity(&self, bytes: f64, factor: f64) -> Result<Popularity, Error> {
        positive("the bytes of memory", bytes)?;
        check("the factor of the memory", factor, 1e-6..=1e6, "0.000001 to 1,000,000")?;
        // At a factor of 1 the slope there.
        let factor = if (factor - 1.0).abs() < 1e-3 { 1.001 } else { factor };
        let (before, after) =
            (self.with_memory(bytes)?.hit_ratio, self.with_memory(bytes * factor)?.hit_ratio);
        Popularity::new(((after / before).ln() / factor.ln()).clamp(0.0, 1.0))
    }
}

/// T in requests for a memory of `bytes` bytes, from popularities that need not add to 1. Infinite
/// if all requested objects fit.
pub(super) fn characteristic(groups: &[Group], eviction: Eviction, bytes: f64) -> f64 {
    let asked = groups.iter().filter(|g| g.popularity > 0.0);
    if bytes <= 0.0 {
        0.0
    } else if bytes >= asked.map(|g| g.objects * g.bytes).sum() {
        f64::INFINITY
    } else {
        solve(groups, eviction, |g| g.objects * g.bytes, bytes)
    }
}

/// The T with Σ weight·kept(pT) = target: Newton's method in ln T, kept within a bracket. Infinite
/// if the target is the limit but for rounding.
fn solve(groups: &[Group], eviction: Eviction, weight: impl Fn(&Group) -> f64, target: f64) -> f64 {
    let at = |t: f64| {
        groups.iter().fold((0.0, 0.0), |(sum, slope), g| {
            let (w, x) = (weight(g), g.popularity * t);
            (sum + w * eviction.resident_share(x), slope + w * eviction.slope(x))
        })
    };
    // kept(x) ≤ x, so this is not past the solution.
    let mut low = target / groups.iter().map(|g| weight(g) * g.popularity).sum::<f64>();
    if low < 1e-250 {
        // Then kept(x) is x.
        return low;
    }
    let mut high = low * 2.0;
    while at(high).0 < target {
        low = high;
        high *= 16.0;
        if high > 1e280 {
            return f64::INFINITY;
        }
    }
    let mut t = low.sqrt() * high.sqrt();
    for _ in 0..200 {
        let (sum, slope) = at(t);
        if sum < target {
            low = t;
        } else {
            high = t;
        }
        let newton = t * ((target - sum) / slope).exp();
        // A comparison with NaN is false: then the bracket is halved.
        let next = if newton > low && newton < high { newton } else { low.sqrt() * high.sqrt() };
        if (next / t - 1.0).abs() < 1e-14 || high / low < 1.0 + 1e-14 {
            return next;
        }
        t = next;
    }
    t
}
