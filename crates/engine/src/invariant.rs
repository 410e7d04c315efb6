//! Counted assertions: states that a correct engine with a correct driver never reaches.
//!
//! A release build survives such a state: it ignores the event, counts the place in the source, and
//! goes on, because a node that stops would fail its healthy requests too. The count is public
//! ([`crate::node::Node::invariants`], [`crate::gateway::Gateway::invariants`]), so that the
//! process can export it; the simulator treats a seed with any count as failed. States that would
//! leave wrong data behind (an exceeded budget, two flights for one key) panic instead.
//!
//! Cost: nothing until an invariant breaks; then a scan of the places already counted.

use std::fmt;
use std::panic::Location;

/// Broken invariants, counted by the place in the source that detected them.
///
/// At most one entry for each call of `broken` in this crate, so it cannot grow without bound.
#[derive(Clone, Debug, Default)]
pub struct Invariants {
    broken: Vec<(&'static Location<'static>, u64)>,
}

impl Invariants {
    /// Counts a broken invariant at the caller's location.
    #[cold]
    #[track_caller]
    pub(crate) fn broken(&mut self) {
        let place = Location::caller();
        match self.broken.iter_mut().find(|(known, _)| *known == place) {
            Some((_, count)) => *count += 1,
            None => self.broken.push((place, 1)),
        }
    }

    /// Adds the counts of another part.
    pub(crate) fn merged(mut self, other: &Invariants) -> Invariants {
        self.broken.extend(other.broken.iter().copied());
        self
    }

    /// Total number of broken invariants; 0 unless the engine or its driver has a bug.
    pub fn count(&self) -> u64 {
        self.broken.iter().map(|(_, count)| count).sum()
    }

    /// The places that detected a broken invariant, as `file:line:column`, with their counts.
    pub fn places(&self) -> impl Iterator<Item = (String, u64)> + '_ {
        self.broken.iter().map(|(place, count)| (place.to_string(), *count))
    }
}

impl fmt::Display for Invariants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} broken invariants", self.count())?;
        self.broken.iter().try_for_each(|(place, count)| write!(f, "; {place}: {count}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_invariant_is_counted_by_place() {
        let mut invariants = Invariants::default();
        assert_eq!(invariants.count(), 0);
        for _ in 0..3 {
            invariants.broken();
        }
        invariants.broken();
        assert_eq!(invariants.count(), 4);
        let places: Vec<(String, u64)> = invariants.places().collect();
        assert_eq!(places.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [3, 1]);
        assert!(places[0].0.contains("invariant.rs:"), "{places:?}");
        assert!(invariants.to_string().starts_with("4 broken invariants; "));
    }
}
