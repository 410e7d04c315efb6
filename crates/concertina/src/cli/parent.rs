//! Processes that end with whoever started them: `--with-parent` of `serve` and `load`.
//!
//! The parent holds the other end of the process's standard input and never writes to it. The kernel closes that end
//! however the parent ends, by SIGKILL too, and then the process ends in order, as after SIGTERM. A parent that ends
//! before the process looks is seen all the same: the pipe has ended by then.
//!
//! `PR_SET_PDEATHSIG` is not used: it tells of the end of the *thread* that started the process, a parent that ends
//! before the call is missed, and programs in between (`ip netns exec`) may clear it.

use std::io::Read as _;
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Signal, getpid, kill_process};

/// Time for an end in order, before the process ends in any case: twice the default of `serve.drain_s`.
const PATIENCE: Duration = Duration::from_secs(20);

/// Has the process end as after SIGTERM when its standard input ends. Call it once the handlers of signals are set up.
///
/// # Errors
///
/// If the thread that waits for it cannot be started.
pub fn end_with_parent() -> anyhow::Result<()> {
    let wait = || {
        let mut scratch = [0; 64];
        let mut input = std::io::stdin().lock();
        // An error is an end, too: a process without a parent must not stay.
        while matches!(input.read(&mut scratch), Ok(1..)) {}
        if kill_process(getpid(), Signal::TERM).is_ok() {
            std::thread::sleep(PATIENCE);
        }
        std::process::exit(143);
    };
    let thread = std::thread::Builder::new().name("parent".to_owned()).spawn(wait);
    thread.context("cannot wait for the end of the parent process")?;
    Ok(())
}
