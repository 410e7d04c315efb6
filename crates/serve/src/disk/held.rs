//! Reads of held devices that have time: done by threads that look for them, rather than woken for each.
//!
//! Waking a thread costs more than most of what a read does (some 10 µs on a virtual machine), and with a
//! hundred profiled devices there would be ten thousand of that a second. A read that is held for some
//! milliseconds need not begin at once, so these threads nap between looks and take what has come. Not
//! for reads that are waited for.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Threads that look.
pub const HELD_READERS: usize = 3;
/// Time between looks.
const NAP: Duration = Duration::from_micros(300);
/// Looks in vain, after which a thread sleeps until it is woken.
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

/// What waits for a look.
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

    /// Adds something. Wakes a thread only if none will look by itself, or they fall behind.
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

    /// Hands what comes to `each`, until it is stopped.
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
                // One looks; the others sleep until it falls behind.
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

    /// Ends the threads when nothing waits.
    pub fn stop(&self) {
        self.lock().stopped = true;
        self.wake.notify_all();
    }
}
