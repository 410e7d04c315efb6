//! Levels of storage, one behind the other: the share of the requests that each level answers.

use crate::bisection::bisect;
use crate::error::{Error, not_negative};

use super::catalogue::{Catalogue, Group};
use super::che::{Eviction, characteristic};

/// The smallest rate that counts.
const RATE_MIN: f64 = 1e-290;

/// The objects that a level holds. [`hierarchy()`] has an example of both kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// The objects that were requested from it and not yet evicted.
    Evicting(Eviction),
    /// The most popular of all, as many as fit, whatever the levels above hold: a hot class that
    /// follows popularity (Last.fm's most played tracks on SSD).
    MostPopular,
}

/// A level of storage, as [`hierarchy`] takes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// Its bytes; [`f64::INFINITY`] for a level that holds everything.
    pub bytes: f64,
    /// The objects in it.
    pub keeps: Keeps,
}

/// The shares that a level answers, returned by [`hierarchy()`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LevelShares {
    /// Share of all requests.
    pub share: f64,
    /// Share of all requested bytes.
    pub byte_share: f64,
}

/// The shares that each of `levels` answers, in the order in which they are tried, followed by the
/// share of the origin, which answers the rest.
///
/// A level receives the requests that the levels above it missed. A level that keeps the most
/// popular objects holds them whatever memory keeps. For an evicting level below another one,
/// requests for one object are at least the upper level's characteristic time apart, because that
/// level holds the object for that long. They are modelled as a renewal process: each gap is that
/// time plus an exponential time, with the mean gap of the misses. Che's approximation (see
/// [`super::Cache`]) for such arrivals gives the level's hits; there are none if its own
/// characteristic time is not longer. Martina, Garetto and Leonardi (INFOCOM 2014) note the minimum
/// gap for networks of caches in which every level keeps a copy; the exponential rest is ours.
/// Simulations of two levels with sizes from 1 : 1 to 1 : 15 agree within a point. Cost: as
/// [`super::Cache::with_memory`] for the first level, about 100 sums over the groups for each evicting level
/// below.
///
/// ```
/// use model::cache::{Catalogue, Eviction, Keeps, Level, hierarchy};
/// let tracks = Catalogue::zipf(1_000_000, 0.9)?.with_bytes(5e6)?;
/// let memory = Level { bytes: 32e9, keeps: Keeps::Evicting(Eviction::Lru) };
/// let ssd = Level { bytes: 500e9, keeps: Keeps::MostPopular };
/// let disks = Level { bytes: f64::INFINITY, keeps: Keeps::Evicting(Eviction::Fifo) };
/// let shares = hierarchy(&tracks, &[memory, ssd, disks])?;
/// assert!(shares[0].share > 0.2 && shares[1].share > 0.25 && shares[2].share < 0.45);
/// assert_eq!(shares[3].share, 0.0); // the origin
/// # Ok::<(), model::Error>(())
/// ```
pub fn hierarchy(catalogue: &Catalogue, levels: &[Level]) -> Result<Vec<LevelShares>, Error> {
    // Popularity here is the rate that reaches a level. The order stays that of the clients'
    // requests.
    let mut groups: Vec<Group> = catalogue.groups().to_vec();
    let mut answered = Vec::with_capacity(levels.len() + 1);
    // For how long an object is not asked for again once it was.
    let mut quiet = 0.0;
    for level in levels {
        if level.bytes != f64::INFINITY {
            not_negative("the bytes of a level", level.bytes)?;
        }
        let before = reaching(&groups);
        match level.keeps {
            Keeps::Evicting(eviction) => quiet = evict(&mut groups, eviction, level.bytes, quiet),
            Keeps::MostPopular => keep_first(&mut groups, level.bytes),
        }
        let after = reaching(&groups);
        answered.push([before[0] - after[0], before[1] - after[1]]);
    }
    answered.push(reaching(&groups));
    let total = catalogue.request_bytes();
    let share = |[share, bytes]: [f64; 2]| LevelShares {
        share: share.clamp(0.0, 1.0),
        byte_share: (bytes / total).clamp(0.0, 1.0),
    };
    Ok(answered.into_iter().map(share).collect())
}

/// Requests and bytes that are still unanswered, for each request.
fn reaching(groups: &[Group]) -> [f64; 2] {
    groups.iter().fold([0.0, 0.0], |[requests, bytes], g| {
        let rate = g.objects * g.popularity;
        [requests + rate, bytes + rate * g.bytes]
    })
}

/// Subtracts the level's hits from the rates. Returns the time, after a request that the level
/// passed on, for which it passes on no other request for the same object.
fn evict(groups: &mut [Group], eviction: Eviction, bytes: f64, quiet: f64) -> f64 {
    let first = characteristic(groups, eviction, bytes);
    let time = if quiet == 0.0 || first == 0.0 || first.is_infinite() {
        first
    } else {
        let filled = |time: f64| -> f64 {
            groups
                .iter()
                .map(|g| g.objects * g.bytes * resident_share(eviction, g.popularity, time, quiet))
                .sum()
        };
        // In the logarithm: from no time to one that keeps all but what is never asked for.
        let (low, high) = (1e-3f64.ln(), 1e280f64.ln());
        (low + bisect(high - low, |x| filled((low + x).exp()) < bytes)).exp()
    };
    for group in groups.iter_mut().filter(|g| g.popularity > 0.0) {
        let found = hit_share(eviction, group.popularity, time, quiet);
        group.popularity *= (1.0 - found).max(0.0);
    }
    quiet.max(time)
}

/// The share of the requests for an object that finds it: of requests at `rate`, each at least
/// `quiet` after the one before.
fn hit_share(eviction: Eviction, rate: f64, time: f64, quiet: f64) -> f64 {
    if time.is_infinite() {
        return 1.0;
    }
    let longer = (time - quiet).max(0.0);
    // Rates so small that their inverse is not finite are of objects that are never there.
    if longer == 0.0 || rate < RATE_MIN {
        return 0.0;
    }
    match eviction {
        // The exponential part of the gap has what of its mean is not `quiet`.
        Eviction::Lru => Eviction::Lru.resident_share(longer / (1.0 / rate - quiet).max(0.0)),
        Eviction::Fifo => Eviction::Fifo.resident_share(longer * rate),
    }
}

/// The share of time that the object is there.
fn resident_share(eviction: Eviction, rate: f64, time: f64, quiet: f64) -> f64 {
    if rate < RATE_MIN {
        return 0.0;
    }
    match eviction {
        // The mean of the smaller of the gap and the time, over that of the gap.
        Eviction::Lru => {
            let rest = (1.0 / rate - quiet).max(0.0);
            let beyond = if time > quiet {
                rest * Eviction::Lru.resident_share((time - quiet) / rest)
            } else {
                0.0
            };
            rate * (time.min(quiet) + beyond)
        }
        // As long as each entry, and entries are what was not found.
        Eviction::Fifo => rate * time / (1.0 + rate * (time - quiet).max(0.0)),
    }
    .min(1.0)
}

/// Groups are in the order of their popularity with the clients, which levels above do not change.
fn keep_first(groups: &mut Vec<Group>, bytes: f64) {
    let mut left = bytes;
    for i in 0..groups.len() {
        let group = groups[i];
        let size = group.objects * group.bytes;
        if size <= left {
            left -= size;
            groups[i].popularity = 0.0;
            continue;
        }
        // As many of the group as fit; the others stay as they are.
        let kept = left / group.bytes;
        groups[i].objects -= kept;
        groups.insert(i, Group { objects: kept, popularity: 0.0, ..group });
        break;
    }
}
