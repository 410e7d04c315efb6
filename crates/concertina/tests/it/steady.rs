//! Tests of times that a machine which stands still or is busy would spoil.

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
/// The share of the time in which some thread waited for a processor, from which the machine was busy. A thread that
/// sleeps and looks is woken soon also then, so that [`STANDSTILL`] does not show it. The tests of times leave most of
/// two processors idle: alone, they have shares below 0.1, beside others above 0.3.
const BUSY: f64 = 0.2;

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

/// What the machine did beside a test.
#[derive(Clone, Copy, Debug)]
struct Disturbance {
    /// The longest that a thread which should have run did not.
    longest: Duration,
    /// The share of the time in which some thread waited for a processor.
    waiting: f64,
}

impl Disturbance {
    fn spoils(self) -> bool {
        self.longest >= STANDSTILL || self.waiting >= BUSY
    }
}

type Outcome = Result<(), Box<dyn Any + Send>>;

/// Runs a test, and again if an assertion of [`in_time`] fails while the machine stood still or was busy (another
/// guest had the processors, or other work of this one): a measurement of a few tenths of a second shows that
/// instead. Any other failure, and one on a quiet machine, is final.
pub fn steady(test: impl Fn()) {
    tried(test, |test| watched(test), tell);
}

/// Tells that a test is repeated. The harness captures the output of macros, so that nobody would see the repetitions
/// of a test that passes.
fn tell(disturbance: Disturbance, late: &Late) {
    let count = REPEATED.fetch_add(1, Ordering::Relaxed) + 1;
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("a test");
    let _ = writeln!(
        std::io::stderr(),
        "repeated ({count} in all): {name}: {disturbance:?}; {}",
        late.0
    );
}

/// `watch` returns how a test ended, and what the machine did meanwhile.
fn tried<T: Fn()>(
    test: T,
    watch: impl Fn(&T) -> (Outcome, Disturbance),
    tell: impl Fn(Disturbance, &Late),
) {
    for left in (0..TRIES).rev() {
        let (outcome, disturbance) = watch(&test);
        let Err(panic) = outcome else { return };
        let late = match panic.downcast::<Late>() {
            Ok(late) => *late,
            Err(answer) => resume_unwind(answer),
        };
        if !disturbance.spoils() || left == 0 {
            panic!("{} ({disturbance:?})", late.0);
        }
        tell(disturbance, &late);
    }
}

/// How a test ended, and what the machine did meanwhile.
fn watched(test: impl Fn()) -> (Outcome, Disturbance) {
    let (over, begun, waited) = (AtomicBool::new(false), Instant::now(), waited());
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
        let longest = watch.join().unwrap();
        let waiting = self::waited().saturating_sub(waited).div_duration_f64(begun.elapsed());
        (outcome, Disturbance { longest, waiting })
    })
}

/// How long some thread of the machine has waited for a processor, since the machine started; zero where the kernel
/// does not tell.
fn waited() -> Duration {
    let pressure = std::fs::read_to_string("/proc/pressure/cpu").unwrap_or_default();
    let some = pressure.lines().find(|line| line.starts_with("some "));
    let total = some.and_then(|line| line.rsplit_once("total=")?.1.trim().parse().ok());
    Duration::from_micros(total.unwrap_or(0))
}

#[test]
fn only_times_are_tried_again_and_only_where_the_machine_was_disturbed() {
    let tries = |disturbance: Disturbance, panic: fn()| {
        let count = Cell::new(0);
        let test = || count.set(count.get() + 1);
        let tried = || tried(test, failing(disturbance, panic), |_, _| {});
        let outcome = catch_unwind(AssertUnwindSafe(tried));
        assert!(outcome.is_err(), "what always fails has failed");
        count.get()
    };
    let late: fn() = || in_time(false, "a second");
    let wrong: fn() = || panic!("another answer");
    let quiet = Disturbance { longest: Duration::ZERO, waiting: 0.0 };
    let (still, busy) =
        (Disturbance { longest: STANDSTILL, ..quiet }, Disturbance { waiting: BUSY, ..quiet });
    assert_eq!([quiet, still, busy].map(|machine| tries(machine, late)), [1, TRIES, TRIES]);
    assert_eq!([quiet, still, busy].map(|machine| tries(machine, wrong)), [1, 1, 1]);
    assert!(watched(|| ()).0.is_ok() && watched(|| panic!("as it should")).0.is_err());
}

/// Runs a test and its panic, and reports that the machine did this meanwhile.
fn failing<T: Fn()>(
    disturbance: Disturbance,
    panic: fn(),
) -> impl Fn(&T) -> (Outcome, Disturbance) {
    move |test| {
        test();
        (catch_unwind(panic), disturbance)
    }
}
