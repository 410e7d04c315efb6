//! Tests of times that a machine which stands still would spoil.

use std::any::Any;
use std::cell::Cell;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often a test is tried.
const TRIES: usize = 5;
/// Time between looks at the clock, and how much later than that one must be for the machine to have stood still.
const LOOK: Duration = Duration::from_millis(5);
const STANDSTILL: Duration = Duration::from_millis(20);

/// Repetitions of all tests of this process.
static REPEATED: AtomicU64 = AtomicU64::new(0);

/// The panic of [`in_time`].
struct Late(String);

/// Asserts something about a time or a rate. Within [`steady`], a failure while the machine stood still
/// repeats the test. Answers (counts of errors, bytes, names) are asserted by `assert!`, which never repeats.
#[track_caller]
pub fn in_time(holds: bool, what: impl std::fmt::Display) {
    if !holds {
        let at = std::panic::Location::caller();
        panic_any(Late(format!("{}:{}: not in time: {what}", at.file(), at.line())));
    }
}

/// Runs a test, and again if an assertion of [`in_time`] fails while the machine stood still (another guest
/// had the processors, or other work of this one): a measurement of a few tenths of a second shows that
/// instead. Any other failure, and one while the clock was seen to run, is final.
pub fn steady(test: impl Fn()) {
    tried(test, |test| watched(test));
}

/// `watch` returns how a test ended, and how long the machine stood still meanwhile.
fn tried<T: Fn()>(test: T, watch: impl Fn(&T) -> (Result<(), Box<dyn Any + Send>>, Duration)) {
    for left in (0..TRIES).rev() {
        let (outcome, longest) = watch(&test);
        let Err(panic) = outcome else { return };
        let late = match panic.downcast::<Late>() {
            Ok(late) => *late,
            Err(answer) => resume_unwind(answer),
        };
        if longest < STANDSTILL || left == 0 {
            panic!("{}", late.0);
        }
        let count = REPEATED.fetch_add(1, Ordering::Relaxed) + 1;
        let thread = std::thread::current();
        // The harness captures the output of macros, so that nobody would see the repetitions of a test that passes.
        let _ = writeln!(
            std::io::stderr(),
            "repeated ({count} in all): {}: the machine stood still for {longest:?}; {}",
            thread.name().unwrap_or("a test"),
            late.0
        );
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
fn only_times_are_tried_again_and_only_where_the_machine_stood_still() {
    let tries = |longest: Duration, panic: fn()| {
        let count = Cell::new(0);
        let test = || count.set(count.get() + 1);
        let outcome = catch_unwind(AssertUnwindSafe(|| tried(test, failing(longest, panic))));
        assert!(outcome.is_err(), "what always fails has failed");
        count.get()
    };
    let late: fn() = || in_time(false, "a second");
    let wrong: fn() = || panic!("another answer");
    assert_eq!((tries(Duration::ZERO, late), tries(STANDSTILL, late)), (1, TRIES));
    assert_eq!((tries(Duration::ZERO, wrong), tries(STANDSTILL, wrong)), (1, 1));
    assert!(watched(|| ()).0.is_ok() && watched(|| panic!("as it should")).0.is_err());
}

/// Runs a test and its panic, and reports that the machine stood still for this long.
fn failing<T: Fn()>(
    longest: Duration,
    panic: fn(),
) -> impl Fn(&T) -> (Result<(), Box<dyn Any + Send>>, Duration) {
    move |test| {
        test();
        (catch_unwind(panic), longest)
    }
}
