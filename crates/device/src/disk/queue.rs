//! The queue of reads that begin at once, and those of writes.
//!
//! A thread that finds it empty sleeps. A channel's receivers look several times before they do, and yield
//! between: with a thread for each read that the devices serve at once, that took 7 % of a processor that
//! was full.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

struct State<T> {
    waiting: VecDeque<T>,
    sleeping: usize,
    stopped: bool,
}

/// Items for which an empty queue keeps room: what a flood took beyond is given back.
const ROOM_KEPT: usize = 1024;

/// A queue from which many threads take.
pub struct Queue<T> {
    state: Mutex<State<T>>,
    wake: Condvar,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        let state = State { waiting: VecDeque::new(), sleeping: 0, stopped: false };
        Queue { state: Mutex::new(state), wake: Condvar::new() }
    }
}

impl<T> Queue<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an item, and wakes a thread for it if one sleeps.
    pub fn push(&self, item: T) {
        let mut state = self.lock();
        state.waiting.push_back(item);
        let wake = state.sleeping > 0;
        drop(state);
        if wake {
            self.wake.notify_one();
        }
    }

    /// The oldest item, once there is one; `None` once the queue is stopped and empty.
    pub fn next(&self) -> Option<T> {
        let mut state = self.lock();
        loop {
            if let Some(item) = state.waiting.pop_front() {
                if state.waiting.is_empty() && state.waiting.capacity() > ROOM_KEPT {
                    state.waiting.shrink_to(ROOM_KEPT);
                }
                return Some(item);
            }
            if state.stopped {
                return None;
            }
            state.sleeping += 1;
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.sleeping -= 1;
        }
    }

    /// As [`Queue::next`] for a queue with one thread: once it has slept it lets `pause` pass, so that items that follow one
    /// another closely wake it once and not each.
    pub fn next_after(&self, pause: Duration) -> Option<T> {
        if self.lock().waiting.is_empty() {
            let first = self.next()?;
            std::thread::sleep(pause);
            // In order: what came meanwhile is behind it.
            return Some(first);
        }
        self.next()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.lock().waiting.is_empty()
    }

    /// Drops the waiting items for which `keep` is false, and returns how many these were.
    pub fn retain(&self, keep: impl FnMut(&T) -> bool) -> usize {
        let mut state = self.lock();
        let before = state.waiting.len();
        state.waiting.retain(keep);
        before - state.waiting.len()
    }

    /// Ends the threads once the queue is empty.
    pub fn stop(&self) {
        self.lock().stopped = true;
        self.wake.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn items_that_are_left_out_come_no_more() {
        let queue = Queue::default();
        (0..10_000).for_each(|item| queue.push(item));
        assert_eq!(queue.retain(|item| item % 100 == 0), 9_900);
        queue.stop();
        let taken: Vec<u32> = std::iter::from_fn(|| queue.next()).collect();
        assert!(taken.into_iter().eq((0..10_000).step_by(100)));
        assert!(queue.is_empty() && queue.lock().waiting.capacity() < 2 * ROOM_KEPT);
    }

    #[test]
    fn items_that_are_gathered_come_in_order() {
        let queue = Queue::default();
        let taken = std::thread::scope(|scope| {
            let taken = scope.spawn(|| {
                let next = || queue.next_after(Duration::from_micros(200));
                std::iter::from_fn(next).collect::<Vec<_>>()
            });
            for item in 0..2_000 {
                queue.push(item);
                if item % 100 == 0 {
                    std::thread::sleep(Duration::from_micros(500));
                }
            }
            queue.stop();
            taken.join().unwrap()
        });
        assert_eq!(taken, (0..2_000).collect::<Vec<_>>());
    }

    #[test]
    fn every_item_is_taken_once_and_then_the_threads_end() {
        let (queue, sum) = (Queue::default(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while let Some(item) = queue.next() {
                        sum.fetch_add(item, Ordering::Relaxed);
                    }
                });
            }
            for item in 1..=10_000 {
                queue.push(item);
                if item % 1_000 == 0 {
                    // So that they sleep in between.
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            queue.stop();
        });
        assert_eq!(sum.into_inner(), 10_000 * 10_001 / 2);
    }
}
