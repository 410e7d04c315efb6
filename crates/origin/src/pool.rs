//! Threads for calls that block, with a bounded queue before them.

use std::io;

use crossbeam_channel::{Sender, bounded};
use tokio::sync::oneshot;

use super::Error;

/// Calls that may wait for a thread; past it they fail at once, so that a folder that hangs does not fill
/// the memory.
const JOBS_WAITING_MAX: usize = 2048;

type Job = Box<dyn FnOnce() + Send>;

/// Threads for calls that block.
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
                    // A panic is the end of that job, which its waiter learns, not of the pool.
                    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
                }
            })?;
        }
        Ok(Pool { jobs })
    }

    pub(super) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (send, receive) = oneshot::channel();
        let job = Box::new(move || {
            // Nobody waits any more: a read that timed out.
            if !send.is_closed() {
                let _ = send.send(job());
            }
        });
        if self.jobs.try_send(job).is_err() {
            return Err(Error::Failed("too many requests wait for it; try again later".to_owned()));
        }
        receive.await.unwrap_or_else(|_| Err(Error::Failed("its worker failed".to_owned())))
    }
}
