//! Requests under way in slots that are reused, each with one timer.
//!
//! A slot is found without a search. Names of attempts contain the slot of their request, so a
//! reply finds its request by one index operation; a name that is over finds nothing. Timers are a
//! heap whose entries are not removed when a timer is set anew: a stale entry is dropped when it
//! comes up, or when there are several times as many entries as requests.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ground::window::Nanos;

use crate::invariant::Invariants;

/// Bits of an attempt's name that are its request's slot.
const SLOT_BITS: u32 = 20;
/// Most requests at once.
pub(crate) const SLOTS_MAX: u32 = 1 << SLOT_BITS;

/// Index of a request.
pub(crate) type Slot = u32;

/// A request with a name and a timer.
pub(crate) trait Timed {
    /// Its name, which no other request has, now or later.
    fn id(&self) -> u64;
    /// When to look at it next; `MAX` for never.
    fn due(&self) -> Nanos;
}

struct Entry<R> {
    request: R,
    /// When its timer fires; `MAX` if it is not set.
    timer: Nanos,
}

/// The requests under way. See the module.
pub(crate) struct Slots<R> {
    entries: Vec<Option<Entry<R>>>,
    free: Vec<Slot>,
    /// (when, request, slot); an entry that is not its request's timer is stale.
    timers: BinaryHeap<Reverse<(Nanos, u64, Slot)>>,
    serial: u64,
    /// Slots that were named and are empty.
    pub(crate) invariants: Invariants,
}

impl<R> Default for Slots<R> {
    fn default() -> Slots<R> {
        Slots {
            entries: Vec::new(),
            free: Vec::new(),
            timers: BinaryHeap::new(),
            serial: 0,
            invariants: Invariants::default(),
        }
    }
}

impl<R: Timed> Slots<R> {
    /// The number of requests.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(crate) fn insert(&mut self, request: R) -> Slot {
        let entry = Some(Entry { request, timer: Nanos::MAX });
        match self.free.pop() {
            Some(slot) => {
                self.entries[slot as usize] = entry;
                slot
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as Slot
            }
        }
    }

    pub(crate) fn remove(&mut self, slot: Slot) -> Option<R> {
        let entry = self.entries.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(entry.request)
    }

    pub(crate) fn get(&self, slot: Slot) -> Option<&R> {
        self.entries.get(slot as usize)?.as_ref().map(|entry| &entry.request)
    }

    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut R> {
        self.entries.get_mut(slot as usize)?.as_mut().map(|entry| &mut entry.request)
    }

    /// A name for a new attempt of a request.
    pub(crate) fn name(&mut self, slot: Slot) -> u64 {
        self.serial += 1;
        self.serial << SLOT_BITS | u64::from(slot)
    }

    /// The slot in an attempt's name. The slot may hold another request by now.
    pub(crate) fn slot_in(attempt: u64) -> Slot {
        (attempt & u64::from(SLOTS_MAX - 1)) as Slot
    }

    /// The requests, in order of their slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Slot, &R)> {
        let entries = (0..).zip(&self.entries);
        entries.filter_map(|(slot, entry)| Some((slot, &entry.as_ref()?.request)))
    }

    /// The slots of the requests of which something holds, in order of the requests' names.
    pub(crate) fn which(&self, holds: impl Fn(&R) -> bool) -> Vec<Slot> {
        let mut found: Vec<(u64, Slot)> = self
            .iter()
            .filter(|(_, request)| holds(request))
            .map(|(slot, request)| (request.id(), slot))
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(_, slot)| slot).collect()
    }

    /// Sets a request's timer to when it is next due.
    pub(crate) fn arm(&mut self, slot: Slot) {
        let Some(entry) = self.entries.get_mut(slot as usize).and_then(Option::as_mut) else {
            return self.invariants.broken();
        };
        let due = entry.request.due();
        if due == entry.timer {
            return;
        }
        entry.timer = due;
        if due < Nanos::MAX {
            self.timers.push(Reverse((due, entry.request.id(), slot)));
        }
        if self.timers.len() > 4 * self.len() + 1024 {
            let entries = &self.entries;
            self.timers.retain(|Reverse(timer)| is_set(entries, timer));
        }
    }

    /// The next request that is due by `now`; its timer is not set any more.
    pub(crate) fn pop_due(&mut self, now: Nanos) -> Option<Slot> {
        while let Some(Reverse(timer)) = self.timers.peek() {
            let set = is_set(&self.entries, timer);
            if set && timer.0 > now {
                return None;
            }
            let Reverse((_, _, slot)) = self.timers.pop()?;
            if set {
                self.entries.get_mut(slot as usize)?.as_mut()?.timer = Nanos::MAX;
                return Some(slot);
            }
        }
        None
    }

    /// When the first is due, or a little before: after [`Slots::pop_due`], exactly.
    pub(crate) fn first_due(&self) -> Option<Nanos> {
        self.timers.peek().map(|Reverse(timer)| timer.0)
    }

    /// Asserts that there are no requests.
    #[cfg(test)]
    pub(crate) fn assert_empty(&self) {
        assert!(self.entries.iter().all(Option::is_none), "requests are left");
        assert_eq!(self.free.len(), self.entries.len());
    }
}

fn is_set<R: Timed>(entries: &[Option<Entry<R>>], timer: &(Nanos, u64, Slot)) -> bool {
    let (when, id, slot) = *timer;
    let entry = entries.get(slot as usize).and_then(Option::as_ref);
    entry.is_some_and(|entry| entry.request.id() == id && entry.timer == when)
}
