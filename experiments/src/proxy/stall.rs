//! A server that stands still again and again: the kernel stops its process and lets it go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Stops a process for a part of each period, until it is dropped.
pub struct Stall {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Stall {
    /// Begins. The thread keeps the processors of the caller.
    pub fn begin(process: i32, stopped: Duration, period: Duration) -> Stall {
        let ends = Arc::new(AtomicBool::new(false));
        let seen = ends.clone();
        let thread = std::thread::spawn(move || {
            let Some(process) = Pid::from_raw(process) else { return };
            let sleep_until = |at: Instant| {
                std::thread::sleep(at.saturating_duration_since(Instant::now()));
            };
            let mut next = Instant::now();
            while !seen.load(Ordering::Relaxed) {
                let _ = kill_process(process, Signal::STOP);
                sleep_until(next + stopped);
                let _ = kill_process(process, Signal::CONT);
                next += period;
                sleep_until(next);
            }
        });
        Stall { ends, thread: Some(thread) }
    }
}

impl Drop for Stall {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_stands_still_and_goes_on() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        let state = || procfs::process::Process::new(pid).unwrap().stat().unwrap().state;
        let (stopped, period) = (Duration::from_millis(150), Duration::from_millis(300));
        let stall = Stall::begin(pid, stopped, period);
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut seen = String::new();
        while !(seen.contains('T') && seen.ends_with('S')) && Instant::now() < deadline {
            seen.push(state());
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(stall);
        std::thread::sleep(Duration::from_millis(20));
        assert!(seen.contains('T') && state() == 'S', "{seen}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
