//! From a cold start: the hit ratio against time.

use crate::error::{Error, check, not_negative};

use super::{Catalogue, Eviction};

/// A memory that was empty at the start, after some requests.
///
/// An object is found after u requests if it was asked for before: with probability 1 − exp(−pu), as long as
/// nothing has left memory, which is until it is full, and that is after the characteristic time T (of
/// least-recently-used memory, whatever evicts). From then on a least-recently-used memory has its final hit
/// ratio, for what an object's last T requests were is no longer cut off by the start. What is in memory
/// after FIFO or random eviction began goes on changing; it is not modelled, and is an error.
///
/// Source: Che's approximation (see [`super::Cache`]) with the time since the start for T where it is
/// shorter. Assumes independent requests. In the first requests it takes their number for Poisson: it is
/// off by p² for each object, nothing for many objects. Cost: one sum over the groups of the catalogue.
///
/// ```
/// use model::cache::{Cache, Catalogue, Eviction};
/// let cache = Cache::new(Catalogue::zipf(1_000_000, 0.9)?.with_bytes(20e3)?, Eviction::Lru);
/// let warming = cache.warming(1e9)?;
/// let settled = cache.at(1e9)?.hit_ratio;
/// assert!(warming.hit_ratio(10_000.0)? < settled);
/// assert_eq!(warming.hit_ratio(1e9)?, settled);
/// // At 500 requests/s, seconds until it has nine tenths of it.
/// let seconds = warming.requests_for(0.9 * settled)? / 500.0;
/// assert!((60.0..120.0).contains(&seconds), "{seconds}");
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Warming<'a> {
    catalogue: &'a Catalogue,
    eviction: Eviction,
    full: f64,
}

impl<'a> Warming<'a> {
    pub(super) fn new(catalogue: &'a Catalogue, eviction: Eviction, full: f64) -> Self {
        Warming { catalogue, eviction, full }
    }

    /// Requests until memory is full; infinite if all objects fit.
    pub fn full_after_requests(&self) -> f64 {
        self.full
    }

    fn known(&self, requests: f64) -> Result<f64, Error> {
        not_negative("the requests since a cold start", requests)?;
        if self.eviction == Eviction::Fifo && requests > self.full {
            return Err(Error::Invalid {
                what: "the requests since a cold start of a first-in-first-out memory",
                value: requests,
                must: "before it is full; what follows is modelled for least-recently-used memory only",
            });
        }
        Ok(requests.min(self.full))
    }

    fn sum(&self, of: impl Fn(f64) -> f64) -> f64 {
        let groups = self.catalogue.groups().iter();
        groups.map(|g| g.objects * g.popularity * of(g.popularity)).sum::<f64>().clamp(0.0, 1.0)
    }

    /// The share of the requests that memory answers just after `requests` of them.
    pub fn hit_ratio(&self, requests: f64) -> Result<f64, Error> {
        let u = self.known(requests)?;
        Ok(self.sum(|p| Eviction::Lru.kept(p * u)))
    }

    /// The share of the first `requests` requests that memory answers: what a measurement of them shows.
    pub fn mean_hit_ratio(&self, requests: f64) -> Result<f64, Error> {
        let u = self.known(requests)?;
        if requests == 0.0 {
            return Ok(0.0);
        }
        // The mean of 1 − exp(−x) from 0 to x is 1 − (1 − exp(−x))/x.
        let mean = |x: f64| {
            if x < 1e-4 { x / 2.0 - x * x / 6.0 } else { 1.0 - Eviction::Lru.kept(x) / x }
        };
        let warming = self.sum(|p| mean(p * u));
        if requests <= u {
            return Ok(warming);
        }
        Ok((warming * u + self.hit_ratio(u)? * (requests - u)) / requests)
    }

    /// Requests until memory answers a share `hit_ratio` of them. [`Error::HitRatio`] if it never does.
    pub fn requests_for(&self, hit_ratio: f64) -> Result<f64, Error> {
        check("the hit ratio", hit_ratio, 0.0..=1.0, "0 to 1")?;
        let at = |u: f64| self.sum(|p| Eviction::Lru.kept(p * u));
        let best = at(self.full);
        if hit_ratio > best {
            return Err(Error::HitRatio { hit_ratio, best });
        }
        let mut high = 1.0f64;
        while high < self.full && at(high) < hit_ratio {
            high *= 4.0;
        }
        high = high.min(self.full);
        if at(high) < hit_ratio || high.is_infinite() {
            return Ok(high);
        }
        Ok(crate::queue::bisect(high, |u| at(u) < hit_ratio))
    }
}
