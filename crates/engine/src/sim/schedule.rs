//! The schedule of events: a heap of small entries, with the events in a separate table.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use ground::window::Nanos;

/// Happenings in order of time; those at the same time in the order in which they were scheduled.
pub(crate) struct Schedule<T> {
    /// Time, serial number and place, most significant first: one comparison of integers.
    heap: BinaryHeap<Reverse<u128>>,
    places: Vec<Option<T>>,
    free: Vec<u32>,
    serial: u32,
    /// Happenings at the current time, handled after those that the heap has for it.
    at_once: VecDeque<T>,
    now: Nanos,
}

impl<T> Default for Schedule<T> {
    fn default() -> Schedule<T> {
        Schedule {
            heap: BinaryHeap::new(),
            places: Vec::new(),
            free: Vec::new(),
            serial: 0,
            at_once: VecDeque::new(),
            now: 0,
        }
    }
}

impl<T> Schedule<T> {
    /// Schedules a happening. One scheduled for a past time happens now.
    pub fn push(&mut self, at: Nanos, what: T) {
        if at <= self.now {
            self.at_once.push_back(what);
            return;
        }
        let place = match self.free.pop() {
            Some(place) => {
                self.places[place as usize] = Some(what);
                place
            }
            None => {
                self.places.push(Some(what));
                (self.places.len() - 1) as u32
            }
        };
        self.serial = self.serial.wrapping_add(1);
        let order = u64::from(self.serial) << 32 | u64::from(place);
        self.heap.push(Reverse(u128::from(at) << 64 | u128::from(order)));
    }

    /// The next happening up to `end`, with its time.
    pub fn pop(&mut self, end: Nanos) -> Option<(Nanos, T)> {
        if let Some(&Reverse(next)) = self.heap.peek() {
            let at = (next >> 64) as Nanos;
            if at <= self.now || self.at_once.is_empty() {
                if at > end {
                    return None;
                }
                self.heap.pop();
                self.now = self.now.max(at);
                let place = next as u32;
                self.free.push(place);
                return Some((self.now, self.places[place as usize].take()?));
            }
        }
        Some((self.now, self.at_once.pop_front()?))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The naive twin is a stable sort.
        #[test]
        fn agrees_with_a_stable_sort(times in prop::collection::vec(1u64..30, 0..200)) {
            let mut schedule = Schedule::default();
            for (i, &at) in times.iter().enumerate() {
                schedule.push(at, i);
            }
            let mut naive: Vec<(u64, usize)> = times.into_iter().zip(0..).collect();
            naive.sort();
            let popped: Vec<_> = std::iter::from_fn(|| schedule.pop(20)).collect();
            naive.retain(|(at, _)| *at <= 20);
            prop_assert_eq!(popped, naive);
        }
    }

    #[test]
    fn what_is_planned_for_now_comes_after_what_was_planned_before() {
        let mut schedule = Schedule::default();
        schedule.push(5, 'a');
        schedule.push(5, 'b');
        schedule.push(6, 'd');
        assert_eq!(schedule.pop(9), Some((5, 'a')));
        schedule.push(5, 'c');
        assert_eq!(schedule.pop(9), Some((5, 'b')));
        assert_eq!(schedule.pop(9), Some((5, 'c')));
        assert_eq!(schedule.pop(9), Some((6, 'd')));
        assert_eq!(schedule.pop(9), None);
    }
}
