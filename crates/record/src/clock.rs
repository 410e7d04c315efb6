//! The clocks of the process, and settings that make its timers precise.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ground::window::Nanos;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// The present time in nanoseconds of `CLOCK_MONOTONIC`, which is the same in every process of the
/// machine.
pub fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The offset to add to [`now`] to get nanoseconds since 1970-01-01 UTC.
pub fn unix_offset_ns() -> i128 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    unix.as_nanos() as i128 - i128::from(now())
}

/// Seconds of processors that this process has used.
pub fn process_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Seconds of processors that this thread has used.
pub fn thread_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Converts a monotonic time to the kernel's structure.
pub fn timespec(time: Nanos) -> Timespec {
    Timespec { tv_sec: (time / 1_000_000_000) as i64, tv_nsec: (time % 1_000_000_000) as i64 }
}

/// Sleeps until a monotonic time. After [`precise_thread`], the thread wakes within some tens of
/// microseconds of it.
pub fn sleep_until(time: Nanos) {
    while now() < time {
        // The loop resumes an interrupted sleep.
        let _ = clock_nanosleep_absolute(ClockId::Monotonic, &timespec(time));
    }
}

/// Sets this thread's timer slack to the minimum; by default the kernel delays timers by up to 50
/// µs. Returns whether it succeeded.
pub fn precise_thread() -> bool {
    rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1)).is_ok()
}

/// Raises the priority of this thread as far as permitted, so that the processes it measures do not
/// delay it: to the real-time class, else to a nice value of −10. Returns whether it succeeded.
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
