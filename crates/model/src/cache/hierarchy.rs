//! Levels of storage one behind the other: what share of the requests each answers.

use crate::error::{Error, not_negative};

use super::che::characteristic;
use super::{Catalogue, Eviction, Group};

/// Which objects a level holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// Those that reached it and were not yet evicted.
    Evicting(Eviction),
    /// The most popular of all, as many as fit, whatever the levels above hold: a hot class that follows
    /// popularity (Last.fm's most played tracks on SSD).
    MostPopular,
}

/// A level of storage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// Its bytes; [`f64::INFINITY`] for a level that holds everything.
    pub bytes: f64,
    /// What is in it.
    pub keeps: Keeps,
}

/// What a level answers.
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
/// memory keeps; an evicting level below another is Che's approximation (see [`super::Cache`]) over the misses
/// that reach it, taken as independent (Che, section IV). They are not: a level of like size right below
/// a least-recently-used one has fewer hits than this says, by some points; with ten times the size the
/// difference is small. Cost: as [`super::Cache::at`], for each level.
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
    // Popularity here is the rate that reaches a level; `held` the first one's, for the order.
    let mut groups: Vec<Group> = catalogue.groups().to_vec();
    let mut answered = Vec::with_capacity(levels.len() + 1);
    for level in levels {
        if level.bytes != f64::INFINITY {
            not_negative("the bytes of a level", level.bytes)?;
        }
        let before = reaching(&groups);
        match level.keeps {
            Keeps::Evicting(eviction) => evict(&mut groups, eviction, level.bytes),
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

fn evict(groups: &mut [Group], eviction: Eviction, bytes: f64) {
    let time = characteristic(groups, eviction, bytes);
    for group in groups.iter_mut().filter(|g| g.popularity > 0.0) {
        group.popularity *= (1.0 - eviction.kept(group.popularity * time)).max(0.0);
    }
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
