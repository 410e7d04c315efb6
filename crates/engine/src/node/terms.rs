//! Since when a node has its part in the order of keys, for each slot of the ring.
//!
//! A change of the view costs what it costs to note it, however many slots there are: what it means for a slot is
//! worked out when the slot is asked for, and for all slots in turn, some in each tick ([`Terms::sweep`]). Changes
//! that all slots have gone through are forgotten.

use std::sync::Arc;

use ground::window::Nanos;

use crate::mutant::{self, Mutant};
use crate::route::{NodeId, Ring, View};

/// Terms that are kept apart; with the next one all slots get that one, so that their number is bounded.
const TERMS_MAX: usize = 1 << 16;

/// Changes of the view that are kept until all slots went through them; with the next one all slots get a new term.
const CHANGES_MAX: usize = 256;

/// Sweeps go through all slots in so many ticks.
const SWEEP_TICKS: usize = 256;

/// Since when this node has the part in a key's order that it has now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Term {
    /// The epoch of the view that gave it.
    pub epoch: u64,
    /// The time from which no other node acts on an earlier view.
    pub settled_from: Nanos,
}

/// A change of the view, with the rings before and after it.
pub(super) struct Change {
    pub me: NodeId,
    pub old: Arc<Ring>,
    pub before: View,
    pub ring: Arc<Ring>,
    pub view: View,
}

impl Change {
    /// `None` if nodes of the slot have the parts that they had; otherwise whether the former primary handed over
    /// to those that have them now.
    fn of_slot(&self, slot: usize) -> Option<bool> {
        let Change { me, old, before, ring, view } = self;
        let same_live = before.live == view.live;
        if same_live && mutant::is(Mutant::WeightsTrusted) {
            let same_keyed = |node: NodeId| old.has_keys(node) == ring.has_keys(node);
            if (0..ring.members().len()).all(same_keyed) {
                return None;
            }
        }
        let same_rows = Arc::ptr_eq(old, ring)
            || old.hot_row(slot) == ring.hot_row(slot) && old.row(slot) == ring.row(slot);
        if same_live && same_rows {
            return None;
        }
        let primary = |view: &View, ring: &Ring| {
            ring.row(slot).iter().map(|&node| NodeId::from(node)).find(|&node| view.is_live(node))
        };
        let trusted = mutant::is(Mutant::NewReplicaTrusted)
            || mutant::is(Mutant::NewHotNodeTrusted) && ring.is_hot(*me);
        let joins = !same_rows && !old.may_hold(slot, *me) && ring.may_hold(slot, *me) && !trusted;
        let former = primary(before, old);
        let left = former.is_some_and(|former| view.has_handed_over(former));
        (former != primary(view, ring) || joins).then_some(left && !joins)
    }
}

/// A change that not all slots went through yet.
struct Step {
    change: Change,
    now: Nanos,
    /// The place of its term in [`Terms::begun`].
    place: u32,
}

/// The term of each slot of the ring.
pub(super) struct Terms {
    /// Of all slots, if `each` is empty. Otherwise of the last view that concerned all.
    pub all: Term,
    /// Of each slot: its place in `begun`, after the first `swept.1` of `steps` for slots below `swept.0`, and before
    /// any of `steps` for the others.
    each: Vec<u32>,
    swept: (usize, usize),
    steps: Vec<Step>,
    /// Those that began since: two for each view, which is as often as members change.
    begun: Vec<Term>,
}

impl Terms {
    /// One of all slots.
    pub fn new(all: Term) -> Terms {
        Terms { all, each: Vec::new(), swept: (0, 0), steps: Vec::new(), begun: Vec::new() }
    }

    /// The term of a slot.
    pub fn term_of(&self, slot: usize) -> Term {
        let Some(&place) = self.each.get(slot) else { return self.all };
        let from = if slot < self.swept.0 { self.swept.1 } else { 0 };
        let place =
            self.steps[from..].iter().fold(place, |place, step| self.after(step, slot, place));
        self.begun[place as usize]
    }

    /// The place of a slot's term after a step, from that before it.
    fn after(&self, step: &Step, slot: usize, place: u32) -> u32 {
        let Some(handed_over) = step.change.of_slot(slot) else { return place };
        let before = self.begun[place as usize].settled_from;
        let settled = before <= step.now || mutant::is(Mutant::HandoverHidesEarlier);
        step.place + u32::from(handed_over && settled)
    }

    /// A term begins for those slots whose nodes' parts changed: `now` for those whose former primary handed over,
    /// unless others may still act on the view before. For all, if there are too many to be told apart.
    pub fn begin(&mut self, term: Term, now: Nanos, change: Change) {
        if self.begun.len() >= TERMS_MAX || self.steps.len() >= CHANGES_MAX {
            *self = Terms::new(term);
            return;
        }
        if self.each.is_empty() {
            (self.each, self.begun) = (vec![0; change.ring.slots()], vec![self.all]);
        }
        let place = self.begun.len() as u32;
        self.begun.extend([term, Term { settled_from: now, ..term }]);
        self.steps.push(Step { change, now, place });
    }

    /// Takes some further slots through the changes. Costs nothing where none is left.
    pub fn sweep(&mut self) {
        if self.steps.is_empty() {
            return;
        }
        let (from, upto) = match self.swept {
            (0, _) => (0, self.steps.len()),
            swept => swept,
        };
        let to = (from + (self.each.len() / SWEEP_TICKS).max(4)).min(self.each.len());
        for slot in from..to {
            let steps = self.steps[..upto].iter();
            self.each[slot] =
                steps.fold(self.each[slot], |place, step| self.after(step, slot, place));
        }
        self.swept = (to, upto);
        if to == self.each.len() {
            self.steps.drain(..upto);
            self.swept = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::route::Member;

    const MEMBERS: usize = 5;

    /// What happens: members' weights and who lives in the next view, who of them handed over, when it comes, and
    /// how often slots are swept until the next.
    fn happening() -> impl Strategy<Value = (Option<Vec<u8>>, Vec<bool>, Vec<bool>, Nanos, usize)> {
        let live = || proptest::collection::vec(any::<bool>(), MEMBERS);
        let weights = proptest::option::weighted(0.4, proptest::collection::vec(0u8..3, MEMBERS));
        (weights, live(), live(), 1u64..40, prop_oneof![0usize..4, Just(40)])
    }

    proptest! {
        /// The naive twin works out every slot at each change.
        #[test]
        fn terms_are_those_of_the_naive_twin(
            happenings in proptest::collection::vec(happening(), 1..12),
            me in 0..MEMBERS,
        ) {
            let ring_of = |weights: &[u8]| {
                let member = |(at, weight): (usize, &u8)| Member::new(format!("n{at}"), f64::from(*weight));
                Ring::coarse(weights.iter().enumerate().map(member).collect(), 3, 6)
            };
            let mut ring = Arc::new(ring_of(&[1; MEMBERS]).unwrap());
            let first = Term { epoch: 1, settled_from: 5 };
            let mut view = View { epoch: 1, ..View::fixed(MEMBERS) };
            let (mut terms, mut naive) = (Terms::new(first), vec![first; ring.slots()]);
            let mut now = 0;
            for (weights, live, ended, later, sweeps) in happenings {
                now += later;
                let made = weights.and_then(|weights| ring_of(&weights).ok()).map(Arc::new);
                let (old, before) = (ring.clone(), view.clone());
                ring = made.unwrap_or(ring);
                view = View { epoch: view.epoch + 1, live, handed_over: ended, ..view };
                let change = Change {
                    me, old, before, ring: ring.clone(), view: view.clone(),
                };
                let term = Term { epoch: view.epoch, settled_from: now + 20 };
                for (slot, of) in naive.iter_mut().enumerate() {
                    let primary = |view: &View, ring: &Ring| view.primary(&ring.of_slot(slot));
                    let former = primary(&change.before, &change.old);
                    let joins = !change.old.may_hold(slot, me) && ring.may_hold(slot, me);
                    if former != primary(&view, &ring) || joins {
                        let left = former.is_some_and(|former| view.has_handed_over(former));
                        let at_once = left && !joins && of.settled_from <= now;
                        *of = Term { settled_from: if at_once { now } else { now + 20 }, ..term };
                    }
                }
                terms.begin(term, now, change);
                for _ in 0..sweeps {
                    terms.sweep();
                }
                let found: Vec<Term> = (0..ring.slots()).map(|slot| terms.term_of(slot)).collect();
                prop_assert_eq!(&found, &naive);
            }
        }
    }

    #[test]
    fn changes_that_all_slots_went_through_are_forgotten_and_too_many_concern_all() {
        let members = (0..MEMBERS).map(|at| Member::new(format!("n{at}"), 1.0)).collect();
        let ring = Arc::new(Ring::coarse(members, 3, 6).unwrap());
        let view = |epoch, lives| {
            let live = (0..MEMBERS).map(|at| at != 0 || lives).collect();
            View { epoch, live, ..View::fixed(MEMBERS) }
        };
        let mut terms = Terms::new(Term { epoch: 0, settled_from: 0 });
        let begin = |terms: &mut Terms, epoch: u64| {
            let (old, ring) = (ring.clone(), ring.clone());
            let (before, view) =
                (view(epoch - 1, epoch.is_multiple_of(2)), view(epoch, !epoch.is_multiple_of(2)));
            let change = Change { me: 1, old, before, ring, view };
            terms.begin(Term { epoch, settled_from: epoch }, epoch, change);
        };
        for epoch in 1..20 {
            begin(&mut terms, epoch);
            for _ in 0..16 {
                terms.sweep();
            }
            assert!(terms.steps.is_empty());
        }
        let some = (0..64).filter(|&slot| terms.term_of(slot).epoch == 19).count();
        assert!((5..30).contains(&some), "{some}");
        for epoch in 20..=20 + CHANGES_MAX as u64 {
            begin(&mut terms, epoch);
        }
        let last = Term { epoch: 20 + CHANGES_MAX as u64, settled_from: 20 + CHANGES_MAX as u64 };
        assert!((0..64).all(|slot| terms.term_of(slot) == last));
    }
}
