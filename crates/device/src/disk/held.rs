//! The queue of held reads that are not urgent: threads poll it instead of being woken for each
//! read.
//!
//! An emulated device holds a read until its drawn completion time. Waking a thread costs more than
//! most of the read itself (some 10 µs on a virtual machine), and a hundred emulated devices would
//! need ten thousand wake-ups a second. A read that is held for some milliseconds need not start at
//! once, so these threads sleep briefly between polls. Do not use this for reads that a request
//! waits for.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Number of polling threads.
pub const HELD_READERS: usize = 3;
/// Time between two polls.
const NAP: Duration = Duration::from_micros(300);
/// Number of empty polls in a row after which a thread sleeps until it is woken.
const LOOKS_MAX: u32 = 30;

struct State<T> {
    waiting: VecDeque<T>,
    sleeping: usize,
    napping: usize,
    stopped: bool,
}

impl<T> Default for State<T> {
    fn default() -> Self {
        State { waiting: VecDeque::new(), sleeping: 0, napping: 0, stopped: false }
    }
}

/// A queue whose readers poll.
pub struct HeldQueue<T> {
    state: Mutex<State<T>>,
    wake: Condvar,
}

impl<T> Default for HeldQueue<T> {
    fn default() -> Self {
        HeldQueue { state: Mutex::default(), wake: Condvar::new() }
    }
}

impl<T> HeldQueue<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an item. Wakes a thread only if no thread is polling, or those that are fall behind.
    pub fn push(&self, what: T) {
        let mut state = self.lock();
        state.waiting.push_back(what);
        let awake = HELD_READERS - state.sleeping;
        let wake = state.sleeping > 0 && (awake == 0 || state.waiting.len() > 16 * awake);
        drop(state);
        if wake {
            self.wake.notify_one();
        }
    }

    /// Calls `each` with every item, until the queue is stopped and empty.
    pub fn run(&self, mut each: impl FnMut(T)) {
        let mut looks = 0;
        let mut state = self.lock();
        loop {
            if let Some(what) = state.waiting.pop_front() {
                drop(state);
                looks = 0;
                each(what);
                state = self.lock();
            } else if state.stopped {
                return;
            } else if looks < LOOKS_MAX && state.napping == 0 {
                // One thread polls; the others sleep until it falls behind.
                looks += 1;
                state.napping += 1;
                drop(state);
                std::thread::sleep(NAP);
                state = self.lock();
                state.napping -= 1;
            } else {
                looks = 0;
                state.sleeping += 1;
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.sleeping -= 1;
            }
        }
    }

    /// Ends the threads once the queue is empty.
    pub fn stop(&self) {
        self.lock().stopped = true;
        self.wake.notify_all();
    }
}
