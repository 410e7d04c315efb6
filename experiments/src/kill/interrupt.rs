//! Ctrl-C and SIGTERM: the experiment ends early and removes everything that it created.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::signal::unix::{SignalKind, signal};

/// Whether an interrupt was received.
#[derive(Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Handles the signals from now on, until the process ends.
    ///
    /// # Errors
    /// If the thread that waits for signals cannot be started.
    pub fn listen() -> anyhow::Result<Interrupt> {
        let interrupt = Interrupt(Arc::new(AtomicBool::new(false)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (mut ended, mut asked) = {
            let _entered = runtime.enter();
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
        };
        let heard = interrupt.clone();
        let listen = move || {
            runtime.block_on(async {
                tokio::select! { _ = ended.recv() => {}, _ = asked.recv() => {} }
            });
            heard.0.store(true, Ordering::Relaxed);
        };
        let thread = std::thread::Builder::new().name("interrupt".to_owned()).spawn(listen);
        thread.context("cannot listen for signals")?;
        Ok(interrupt)
    }

    /// Fails if an interrupt was received.
    ///
    /// # Errors
    /// In that case.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.0.load(Ordering::Relaxed) {
            bail!("interrupted; processes and networks of the experiment were removed");
        }
        Ok(())
    }

    /// Sleeps, or returns early with an error after an interrupt.
    ///
    /// # Errors
    /// After an interrupt.
    pub fn sleep(&self, seconds: f64) -> anyhow::Result<()> {
        let until = record::clock::now() + (seconds * 1e9) as u64;
        while record::clock::now() < until {
            self.check()?;
            let left = until.saturating_sub(record::clock::now());
            std::thread::sleep(Duration::from_nanos(left.min(20_000_000)));
        }
        self.check()
    }
}
