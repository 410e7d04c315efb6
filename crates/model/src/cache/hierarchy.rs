//! Levels of storage one behind the other: what share of the requests each answers.

use crate::error::{Error, not_negative};
use crate::queue::bisect;

use super::che::characteristic;
use super::{Catalogue, Eviction, Group};

/// The smallest rate that counts.
const RATE_MIN: f64 = 1e-290;

/// Which objects a level holds. The page of [`hierarchy`] has an example of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// Those that reached it and were not yet evicted.
    Evicting(Eviction),
    /// The most popular of all, as many as fit, whatever the levels above hold: a hot class that follows
    /// popularity (Last.fm's most played tracks on SSD).
    MostPopular,
}

/// A level of storage, as [`hierarchy`] takes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// Its bytes; [`f64::INFINITY`] for a level that holds everything.
    pub bytes: f64,
    /// What is in it.
    pub keeps: Keeps,
}

/// What a level answers, from [`hierarchy`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answered {
    /// Share of all requests.
    pub share: f64,
    /// Share of all requested bytes.
    pub byte_share: f64,
}

/// What each level answers, first the one that is asked first; after the last level one more: what none
/// of them has, which the origin answers.
///
/// A level is asked for what those above did not have. The most popular objects are known whatever
/// memory keeps. To an evicting level below another, an object that was just asked for is not asked for
/// again within the characteristic time of the one above, which has it: what comes is a renewal process,
/// its gaps taken for that time and an exponential one, with the mean that the misses have. Che's
/// approximation (see [`super::Cache`]) with such arrivals gives the level's hits: none if its own
/// characteristic time is not longer. That the gap is at least that time is noted by Martina, Garetto and
/// Leonardi (INFOCOM 2014, on networks of caches where every level keeps a copy); the shape of the rest is
/// ours. Against simulation of two levels, from 1 : 1 to 1 : 15 in size: within a point. Cost: as [`super::Cache::at`] for the first
/// level, some 100 sums over the groups for each evicting one below.
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
pub fn hierarchy(catalogue: &Catalogue, levels: &[Level]) -> Result<Vec<Answered>, Error> {
    // Popularity here is the rate that reaches a level. The order stays that of the clients' requests.
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
    let share = |[share, bytes]: [f64; 2]| Answered {
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

/// Takes what the level answers from the rates, and says for how long after a request that it passed on it
/// passes on no other for that object.
fn evict(groups: &mut [Group], eviction: Eviction, bytes: f64, quiet: f64) -> f64 {
    let first = characteristic(groups, eviction, bytes);
    let time = if quiet == 0.0 || first == 0.0 || first.is_infinite() {
        first
    } else {
        let filled = |time: f64| -> f64 {
            groups
                .iter()
                .map(|g| g.objects * g.bytes * kept(eviction, g.popularity, time, quiet))
                .sum()
        };
        // In the logarithm: from no time to one that keeps all but what is never asked for.
        let (low, high) = (1e-3f64.ln(), 1e280f64.ln());
        (low + bisect(high - low, |x| filled((low + x).exp()) < bytes)).exp()
    };
    for group in groups.iter_mut().filter(|g| g.popularity > 0.0) {
        let found = found(eviction, group.popularity, time, quiet);
        group.popularity *= (1.0 - found).max(0.0);
    }
    quiet.max(time)
}

/// The share of the requests for an object that finds it: of requests at `rate`, each at least `quiet` after
/// the one before.
fn found(eviction: Eviction, rate: f64, time: f64, quiet: f64) -> f64 {
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
        Eviction::Lru => Eviction::Lru.kept(longer / (1.0 / rate - quiet).max(0.0)),
        Eviction::Fifo => Eviction::Fifo.kept(longer * rate),
    }
}

/// The share of time that the object is there.
fn kept(eviction: Eviction, rate: f64, time: f64, quiet: f64) -> f64 {
    if rate < RATE_MIN {
        return 0.0;
    }
    match eviction {
        // The mean of the smaller of the gap and the time, over that of the gap.
        Eviction::Lru => {
            let rest = (1.0 / rate - quiet).max(0.0);
            let beyond =
                if time > quiet { rest * Eviction::Lru.kept((time - quiet) / rest) } else { 0.0 };
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
