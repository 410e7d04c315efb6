//! The clocks of the process, and what makes its timers precise.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use model::window::Nanos;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Now, in nanoseconds of `CLOCK_MONOTONIC`: the same clock in every process of the machine.
pub fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What to add to [`now`] to get nanoseconds since 1970-01-01 UTC.
pub fn unix_offset_ns() -> i128 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    unix.as_nanos() as i128 - i128::from(now())
}

/// A monotonic time as the kernel's structure.
pub fn timespec(time: Nanos) -> Timespec {
    Timespec { tv_sec: (time / 1_000_000_000) as i64, tv_nsec: (time % 1_000_000_000) as i64 }
}

/// Sleeps until a monotonic time. With [`precise_thread`], it wakes within some tens of microseconds.
pub fn sleep_until(time: Nanos) {
    while now() < time {
        // An interrupted sleep is gone back to.
        let _ = clock_nanosleep_absolute(ClockId::Monotonic, &timespec(time));
    }
}

/// Makes the timers of this thread precise: the kernel may otherwise be 50 µs late on purpose.
/// Returns whether it could.
pub fn precise_thread() -> bool {
    rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1)).is_ok()
}

/// Raises the priority of this thread as far as it is allowed to, so that what it measures does not
/// hold it up: to the real-time class, else to a nice value of −10. Returns whether it could.
pub fn raise_thread() -> bool {
    use thread_priority::{
        RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
        set_thread_priority_and_policy, thread_native_id,
    };
    let lowest = 1u8.try_into().map(ThreadPriority::Crossplatform);
    let real_time = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    let raised = lowest.is_ok_and(|priority| {
        set_thread_priority_and_policy(thread_native_id(), priority, real_time).is_ok()
    });
    let thread = Some(rustix::thread::gettid());
    raised || rustix::process::setpriority_process(thread, -10).is_ok()
}
