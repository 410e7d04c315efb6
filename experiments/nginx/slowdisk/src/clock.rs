//! The monotonic clock, waits that are exact, and threads that are woken at once.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ground::window::Nanos;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Now, nanoseconds of `CLOCK_MONOTONIC`.
pub fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What to add to [`now`] to get microseconds since 1970-01-01 UTC.
pub fn unix_offset_us() -> i64 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    unix.as_micros() as i64 - (now() / 1000) as i64
}

/// Sleeps until a monotonic time.
pub fn sleep_until(time: Nanos) {
    let at =
        Timespec { tv_sec: (time / 1_000_000_000) as i64, tv_nsec: (time % 1_000_000_000) as i64 };
    while now() < time {
        // An interrupted sleep is gone back to.
        let _ = clock_nanosleep_absolute(ClockId::Monotonic, &at);
    }
}

/// Turns off the timer slack of this thread and raises its priority as far as it is allowed to; threads
/// that it starts inherit both.
pub fn precise_thread() {
    use thread_priority::{
        RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
        set_thread_priority_and_policy, thread_native_id,
    };
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    let real_time = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    if let Ok(lowest) = 1u8.try_into().map(ThreadPriority::Crossplatform) {
        let _ = set_thread_priority_and_policy(thread_native_id(), lowest, real_time);
    }
}
