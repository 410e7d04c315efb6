//! Tests of figures that a machine which stands still would spoil.

use std::any::Any;
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
    for _ in 1..TRIES {
        let (outcome, longest) = watched(&test);
        match outcome {
            Ok(()) => return,
            Err(panic) if longest < STANDSTILL => resume_unwind(panic),
            Err(_) => eprintln!("the machine stood still for {longest:?}: once more"),
        }
    }
    test();
}

/// How a test ended, and the longest that a thread which should have run did not, meanwhile.
fn watched(test: impl Fn()) -> (Result<(), Box<dyn Any + Send>>, Duration) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
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
    use std::sync::atomic::AtomicUsize;
    let tried = AtomicUsize::new(0);
    let fails = || {
        tried.fetch_add(1, Ordering::Relaxed);
        panic!("as it should");
    };
    let (outcome, longest) = watched(fails);
    assert!(outcome.is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| steady(fails))).is_err());
    let tries = tried.load(Ordering::Relaxed) - 1;
    assert!((1..=TRIES).contains(&tries), "{tries} tries, {longest:?}");
    steady(|| ());
}
