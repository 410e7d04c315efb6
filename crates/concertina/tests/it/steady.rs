//! Tests of figures that a machine which stands still would spoil.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a test is tried.
const TRIES: usize = 5;
/// Time between looks at the clock, and how much later than that one must be for the machine to have stood still.
const LOOK: Duration = Duration::from_millis(5);
const STANDSTILL: Duration = Duration::from_millis(20);

/// Runs a test, and again if it fails while the machine stood still (another guest had the processors, or
/// this one's other work): what a few tenths of a second measure then is that. A test that fails while the clock
/// was seen to run has failed.
pub fn steady(test: impl Fn()) {
    tried(test, |test| watched(test));
}

/// `watch` says how a test ended, and how long the machine stood still meanwhile.
fn tried<T: Fn()>(test: T, watch: impl Fn(&T) -> (Result<(), Box<dyn Any + Send>>, Duration)) {
    for left in (0..TRIES).rev() {
        let (outcome, longest) = watch(&test);
        match outcome {
            Ok(()) => return,
            Err(panic) if longest < STANDSTILL || left == 0 => resume_unwind(panic),
            Err(_) => eprintln!("the machine stood still for {longest:?}: once more"),
        }
    }
}

/// How a test ended, and the longest that a thread which should have run did not, meanwhile.
fn watched(test: impl Fn()) -> (Result<(), Box<dyn Any + Send>>, Duration) {
    let (over, begun) = (AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let (mut last, mut longest) = (begun, Duration::ZERO);
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(LOOK);
                longest = longest.max(last.elapsed().saturating_sub(LOOK));
                last = Instant::now();
            }
            longest
        });
        let outcome = catch_unwind(AssertUnwindSafe(test));
        over.store(true, Ordering::Relaxed);
        (outcome, watch.join().unwrap())
    })
}

#[test]
fn a_test_that_fails_is_tried_again_only_where_the_machine_stood_still() {
    let tries = |longest: Duration| {
        let count = Cell::new(0);
        let test = || count.set(count.get() + 1);
        let outcome = catch_unwind(AssertUnwindSafe(|| tried(test, failing(longest))));
        assert!(outcome.is_err(), "what always fails has failed");
        count.get()
    };
    assert_eq!((tries(Duration::ZERO), tries(STANDSTILL)), (1, TRIES));
    assert!(watched(|| ()).0.is_ok() && watched(|| panic!("as it should")).0.is_err());
}

/// Runs a test, says that it failed, and that the machine stood still for so long.
fn failing<T: Fn()>(
    longest: Duration,
) -> impl Fn(&T) -> (Result<(), Box<dyn Any + Send>>, Duration) {
    move |test| {
        test();
        (Err(Box::new("it failed")), longest)
    }
}
