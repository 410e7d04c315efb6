//! How the hit ratio depends on the size of memory and on the catalogue.

use crate::error::{Error, check};

/// The hit ratio as a function of the memory for each object, as changes of a cluster need it.
///
/// The size of memory itself need not be known. The fitted hit ratio determines the server's
/// position on the law's curve, and the factor moves it from there. A server with another part of
/// the catalogue moves likewise: if keys are placed by a hash, each part is a random one, so 1/f of
/// the objects in one memory are equivalent to the whole catalogue in f memories.
///
/// [`Popularity`] is a power law, [`crate::cache::HitCurve`] is Che's approximation for any law of
/// popularity, and [`crate::cache::Curve`] is the curve of a stream of keys.
///
/// ```
/// use model::cache::{Cache, Catalogue, Eviction};
/// use model::storage::{HitLaw, Popularity};
/// let tracks = Cache::new(Catalogue::zipf(100_000, 0.8)?, Eviction::Lru);
/// let curve = tracks.curve();
/// let (now, twice) = (tracks.with_memory(5_000.0)?.hit_ratio, tracks.with_memory(10_000.0)?.hit_ratio);
/// assert!((now * curve.change(now, 2.0) - twice).abs() < 1e-3);
/// // As if all were equally popular: twice the memory, twice the hits.
/// assert_eq!(Popularity::EQUAL.change(now, 2.0), 2.0);
/// # Ok::<(), model::Error>(())
/// ```
pub trait HitLaw {
    /// The factor on the hit ratio `now` if the memory for each object is multiplied by `factor`,
    /// both above 0. Returns 1 if no change is known.
    fn change(&self, now: f64, factor: f64) -> f64;
}

impl<L: HitLaw + ?Sized> HitLaw for &L {
    fn change(&self, now: f64, factor: f64) -> f64 {
        (**self).change(now, factor)
    }
}

/// The share that memory answers as a power of memory and catalogue: q ∝ (memory /
/// catalogue)^exponent, at most 1; the whole line q₀ − αλ is scaled.
///
/// It holds for objects of similar sizes and a full memory. The exponent is 1 for equally popular
/// objects, whatever the eviction ([`Popularity::EQUAL`]). It is 1 − s for popularities that fall
/// as rank^(−s), s < 1, if memory holds the most popular objects ([`Popularity::zipf`]): the m most
/// popular of n objects then have (m/n)^(1−s) of the requests, for m not small. Least-recently-used
/// memory hits less, by a nearly constant amount, so the ratio is close. Otherwise measure two
/// sizes of memory: the exponent is the slope of log q against log size.
///
/// Source: the sum of a Zipf law, approximated by its integral. Wrong for s near or above 1, where
/// hits grow with the logarithm of memory, for changes by orders of magnitude, and near a hit ratio
/// of 1. [`crate::cache::HitCurve`] has none of these limits. Cost: a power.
///
/// ```
/// use model::storage::Popularity;
/// // Four times the memory, twice the hits.
/// assert!((Popularity::new(0.5)?.factor(4.0) - 2.0).abs() < 1e-12);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Popularity {
    exponent: f64,
}

impl Popularity {
    /// All objects equally popular: half the memory for each object, half the hits.
    pub const EQUAL: Popularity = Popularity { exponent: 1.0 };

    /// Creates a law from its exponent, from 0 (the size of memory does not matter) to 1.
    pub fn new(exponent: f64) -> Result<Self, Error> {
        check("the exponent of memory", exponent, 0.0..=1.0, "0 to 1")?;
        Ok(Popularity { exponent })
    }

    /// Popularity falling as rank^(−s), 0 ≤ s < 1.
    ///
    /// ```
    /// use model::storage::Popularity;
    /// assert_eq!(Popularity::zipf(0.0)?, Popularity::EQUAL);
    /// assert!((Popularity::zipf(0.75)?.factor(16.0) - 2.0).abs() < 1e-12);
    /// # Ok::<(), model::Error>(())
    /// ```
    pub fn zipf(s: f64) -> Result<Self, Error> {
        check("the skew of popularity", s, 0.0..=1.0 - 1e-9, "at least 0 and below 1")?;
        Ok(Popularity { exponent: 1.0 - s })
    }

    /// The factor on the hit ratio if memory for each object is multiplied by `factor`.
    pub fn factor(self, factor: f64) -> f64 {
        factor.powf(self.exponent)
    }
}

impl HitLaw for Popularity {
    fn change(&self, _: f64, factor: f64) -> f64 {
        self.factor(factor)
    }
}
