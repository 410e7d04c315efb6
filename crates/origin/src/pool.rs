//! A pool of threads for blocking calls, with a bounded queue.

use std::io;

use crossbeam_channel::{Sender, bounded};
use tokio::sync::oneshot;

use super::error::Error;

/// The most calls waiting for a thread. Further calls fail at once, so that a hanging folder does
/// not exhaust the memory.
const JOBS_WAITING_MAX: usize = 2048;

type Job = Box<dyn FnOnce() + Send>;

/// A pool of threads for blocking calls.
#[derive(Clone)]
pub(super) struct Pool {
    jobs: Sender<Job>,
}

impl Pool {
    pub(super) fn start(threads: u32) -> io::Result<Pool> {
        let (jobs, queue) = bounded::<Job>(JOBS_WAITING_MAX);
        for index in 0..threads {
            let queue = queue.clone();
            std::thread::Builder::new().name(format!("origin/{index}")).spawn(move || {
                for job in queue {
                    // A panic ends the job, and its caller gets an error; the thread goes on.
                    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
                }
            })?;
        }
        Ok(Pool { jobs })
    }

    /// Drops a value, which may take a disk some time, on a thread of the pool; here if too many calls wait for one.
    pub(super) fn discard<T: Send + 'static>(&self, value: T) {
        drop(self.jobs.try_send(Box::new(move || drop(value))));
    }

    pub(super) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (send, receive) = oneshot::channel();
        let job = Box::new(move || {
            // Skip the job if its caller has gone, as after a timeout.
            if !send.is_closed() {
                let _ = send.send(job());
            }
        });
        if self.jobs.try_send(job).is_err() {
            return Err(Error::Failed(
                "too many requests are waiting for the folder; try again later".to_owned(),
            ));
        }
        receive
            .await
            .unwrap_or_else(|_| Err(Error::Failed("the worker thread panicked".to_owned())))
    }
}
