//! Counted assertions: states that a correct engine and a correct driver never reach.
//!
//! A release build survives such a state: it does nothing with the event, counts the place in the
//! source, and goes on, because a node that stops takes its healthy requests with it. The count is
//! readable from outside ([`crate::node::Node::invariants`],
//! [`crate::gateway::Gateway::invariants`]), so that the process can export it; the simulator
//! treats any count as a failure of the seed. States that leave wrong data behind (a budget
//! exceeded, two flights for one key) are panics instead.
//!
//! Cost: nothing until an invariant breaks; then a scan of the places that broke before.

use std::fmt;
use std::panic::Location;

/// Invariants that broke, by the place in the source that noticed.
///
/// At most one entry for each call of `broken` in this crate, so it cannot grow without bound.
#[derive(Clone, Debug, Default)]
pub struct Invariants {
    broken: Vec<(&'static Location<'static>, u64)>,
}

impl Invariants {
    /// Counts a broken invariant at the caller's place.
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

    /// How often any invariant broke; 0 unless the engine or its driver is wrong.
    pub fn count(&self) -> u64 {
        self.broken.iter().map(|(_, count)| count).sum()
    }

    /// The places that noticed, as `file:line:column`, with how often each did.
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
