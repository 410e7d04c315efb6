//! A timer that the kernel reports like a socket, exact to microseconds: `epoll_wait` itself
//! counts in milliseconds, and a hedge is due earlier.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use ground::window::Nanos;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// A timer of a thread.
pub(crate) struct Timer {
    descriptor: OwnedFd,
    /// When it fires; `MAX` if it is not set.
    armed: Nanos,
    /// When its owner wants to be woken.
    due: Nanos,
}

impl Timer {
    pub(crate) fn new() -> io::Result<Timer> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let descriptor = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Timer { descriptor, armed: Nanos::MAX, due: Nanos::MAX })
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }

    /// Notes that it fired.
    pub(crate) fn acknowledge(&mut self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.descriptor, &mut count);
        self.armed = Nanos::MAX;
    }

    /// Whether its owner wanted to be woken by `now`.
    pub(crate) fn is_due(&self, now: Nanos) -> bool {
        self.due <= now
    }

    /// Has it fire at `due` (`None`: not at all). A time later than the one set before is only
    /// noted: setting costs a system call, and waking too early nothing much.
    pub(crate) fn set(&mut self, due: Option<Nanos>, now: Nanos) {
        self.due = due.unwrap_or(Nanos::MAX);
        if self.due >= self.armed {
            return;
        }
        // A time of zero would switch it off.
        let at = self.due.max(now + 1);
        let value =
            Timespec { tv_sec: (at / 1_000_000_000) as i64, tv_nsec: (at % 1_000_000_000) as i64 };
        let interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let time = Itimerspec { it_interval: interval, it_value: value };
        if timerfd_settime(&self.descriptor, TimerfdTimerFlags::ABSTIME, &time).is_ok() {
            self.armed = self.due;
        }
    }
}
