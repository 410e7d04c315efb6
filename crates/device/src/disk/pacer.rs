//! Delivers items at exact times: a thread with a heap of deadlines.
//!
//! A runtime's timers have a resolution of milliseconds; the emulated service times need a fraction
//! of that. This thread sleeps until an absolute time, with the kernel's timer slack off and, if
//! permitted, a raised priority, and records how late it was. Cost: one wake-up per deadline, some
//! 5 µs.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use engine::status::Lateness;
use ground::window::{Histogram, Nanos};

use record::clock;

struct Due<T> {
    at: Nanos,
    number: u64,
    what: T,
}

impl<T> PartialEq for Due<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl<T> Eq for Due<T> {}
impl<T> PartialOrd for Due<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Due<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

struct State<T> {
    heap: BinaryHeap<Reverse<Due<T>>>,
    number: u64,
    lateness: Histogram,
    stopped: bool,
}

/// Delivers items at exact times.
pub struct Pacer<T> {
    shared: Arc<(Mutex<State<T>>, Condvar)>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

fn locked<T>(state: &Mutex<State<T>>) -> MutexGuard<'_, State<T>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: Send + 'static> Pacer<T> {
    /// Starts the thread, which calls `deliver` with each item and its time, never before that
    /// time.
    ///
    /// # Errors
    ///
    /// If the thread cannot be started.
    pub fn start(deliver: impl FnMut(Nanos, T) + Send + 'static) -> std::io::Result<Pacer<T>> {
        let state = State {
            heap: BinaryHeap::new(),
            number: 0,
            lateness: Histogram::default(),
            stopped: false,
        };
        let shared = Arc::new((Mutex::new(state), Condvar::new()));
        let for_thread = shared.clone();
        let thread = std::thread::Builder::new()
            .name("pacer".to_owned())
            .spawn(move || run(&for_thread, deliver))?;
        Ok(Pacer { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Schedules `what` for the time `at`; if that has passed, for now.
    pub fn schedule(&self, at: Nanos, what: T) {
        let (state, wake) = &*self.shared;
        let mut state = locked(state);
        let earliest = state.heap.peek().is_none_or(|Reverse(due)| at < due.at);
        state.number += 1;
        let number = state.number;
        state.heap.push(Reverse(Due { at, number, what }));
        drop(state);
        if earliest {
            wake.notify_one();
        }
    }

    /// Counts an item that was due at `at` and is delivered otherwise, after that.
    pub fn missed(&self, at: Nanos) {
        locked(&self.shared.0).lateness.record(clock::now().saturating_sub(at));
    }

    /// The lateness of the deliveries since the previous call.
    pub fn lateness(&self) -> Lateness {
        let times = std::mem::take(&mut locked(&self.shared.0).lateness);
        Lateness {
            count: times.count(),
            mean_us: times.mean_s() * 1e6,
            p99_us: times.quantile_s(0.99).unwrap_or(0.0) * 1e6,
            max_us: times.max_s() * 1e6,
        }
    }

    /// Stops the thread; drops the items that are not due yet.
    pub fn stop(&self) {
        locked(&self.shared.0).stopped = true;
        self.shared.1.notify_one();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread.filter(|t| t.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
    }
}

fn run<T>(shared: &(Mutex<State<T>>, Condvar), mut deliver: impl FnMut(Nanos, T)) {
    clock::precise_thread();
    clock::raise_thread();
    let (mutex, wake) = shared;
    let mut state = locked(mutex);
    while !state.stopped {
        let now = clock::now();
        match state.heap.peek().map(|Reverse(due)| due.at) {
            None => state = wake.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(at) if at > now => {
                let timeout = Duration::from_nanos(at - now);
                let waited = wake.wait_timeout(state, timeout);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            Some(at) => {
                state.lateness.record(now - at);
                let Some(Reverse(due)) = state.heap.pop() else { continue };
                drop(state);
                deliver(at, due.what);
                state = locked(mutex);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn items_arrive_in_order_and_never_early() {
        let (send, receive) = mpsc::channel();
        let pacer = Pacer::start(move |at, what: u32| {
            let _ = send.send((at, clock::now(), what));
        })
        .unwrap();
        let start = clock::now();
        for (ms, what) in [(30, 3), (10, 1), (20, 2), (0, 0)] {
            pacer.schedule(start + ms * 1_000_000, what);
        }
        for expected in 0..4 {
            let (at, now, what) = receive.recv().unwrap();
            assert_eq!(what, expected);
            assert!(now >= at);
        }
        assert_eq!(pacer.lateness().count, 4);
        pacer.stop();
    }
}
