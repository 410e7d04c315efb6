//! Since when a node has its part in the order of keys, for each slot of the ring.

use model::window::Nanos;

use crate::mutant::{self, Mutant};

/// Terms that are kept apart; with the next one all slots get that one, so that their number is bounded.
pub(super) const TERMS_MAX: usize = 1 << 16;

/// Since when this node has the part in a key's order that it has now.
#[derive(Clone, Copy)]
pub(super) struct Term {
    /// The epoch of the view that gave it.
    pub epoch: u64,
    /// The time from which no other node acts on an earlier view.
    pub settled_from: Nanos,
}

/// The term of each slot of the ring.
pub(super) struct Terms {
    /// Of all slots, if `each` is empty. Otherwise of the last view that concerned all.
    pub all: Term,
    /// Of each slot: its place in `begun`.
    each: Vec<u32>,
    /// Those that began since: one for each view, which is as often as members change.
    pub begun: Vec<Term>,
}

impl Terms {
    /// One of all slots.
    pub fn new(all: Term) -> Terms {
        Terms { all, each: Vec::new(), begun: Vec::new() }
    }

    pub fn of(&self, slot: usize) -> Term {
        let place = self.each.get(slot).map(|&place| place as usize);
        place.and_then(|place| self.begun.get(place)).copied().unwrap_or(self.all)
    }

    /// A term begins for those of `slots` that changed: `now` for those whose former primary handed over
    /// (`Some(true)`), unless others may still act on the view before.
    pub fn begin(
        &mut self,
        term: Term,
        slots: usize,
        now: Nanos,
        changed: impl Fn(usize) -> Option<bool>,
    ) {
        if self.each.is_empty() {
            (self.each, self.begun) = (vec![0; slots], vec![self.all]);
        }
        let place = self.begun.len() as u32;
        for (slot, of) in self.each.iter_mut().enumerate() {
            let Some(handed_over) = changed(slot) else { continue };
            let before = self.begun.get(*of as usize).map_or(Nanos::MAX, |term| term.settled_from);
            let settled = before <= now || mutant::is(Mutant::HandoverHidesEarlier);
            *of = place + u32::from(handed_over && settled);
        }
        self.begun.extend([term, Term { settled_from: now, ..term }]);
    }
}
