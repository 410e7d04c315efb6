//! Long calls: without the interpreter's lock, and ended by Ctrl-C.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::bail;
use pyo3::prelude::*;

use crate::error::exception;

/// Time between two looks for Ctrl-C: a person does not notice it, and it costs nothing.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// Whether the caller still waits for a result.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Ends work that nobody waits for. To be called between two parts of it.
    ///
    /// # Errors
    /// If the caller was interrupted.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.0.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        Ok(())
    }
}

/// Runs `work` on a thread of its own, while this one releases the interpreter's lock and looks for signals.
///
/// A thread, because signals are delivered to Python's main thread, which would not look while it computes. After Ctrl-C the
/// call returns at once; work ends at its next [`Cancel::check`], and one indivisible computation when it is complete.
///
/// # Errors
/// Those of `work` as exceptions, and what a signal raises.
pub fn unlocked<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&Cancel) -> anyhow::Result<T> + Send + 'static,
) -> PyResult<T> {
    let cancel = Cancel::default();
    let (sender, receiver) = sync_channel(1);
    // `detach` takes what may be seen by several threads.
    let receiver = Mutex::new(receiver);
    let seen = cancel.clone();
    let thread = std::thread::spawn(move || {
        // Nobody receives after an interrupt.
        let _ = sender.send(work(&seen));
    });
    loop {
        match py.detach(|| wait(&receiver)) {
            Ok(found) => return found.map_err(|error| exception(py, error)),
            Err(RecvTimeoutError::Timeout) => py.check_signals().inspect_err(|_| {
                cancel.0.store(true, Ordering::Relaxed);
            })?,
            // The thread ended without a result: a panic, which PyO3 turns into an exception.
            Err(RecvTimeoutError::Disconnected) => match thread.join() {
                Err(panic) => resume_unwind(panic),
                Ok(()) => {
                    return Err(crate::error::invalid("the computation ended without a result"));
                }
            },
        }
    }
}

fn wait<T>(receiver: &Mutex<Receiver<T>>) -> Result<T, RecvTimeoutError> {
    receiver.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(SIGNALS_EVERY)
}
