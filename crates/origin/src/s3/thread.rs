//! The thread on which requests to the store are made.
//!
//! A slow or dead store, TLS and long bodies therefore do not delay the threads that serve hits. An operation crosses over once,
//! with all of its requests and computations. Small writes without TLS do not cross over (`upload`).

use std::future::Future;
use std::io;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::error::Error;

/// The thread and its runtime. Dropping it stops the thread and cancels the requests under way.
pub struct Thread {
    handle: Handle,
    _stop: oneshot::Sender<()>,
}

impl Thread {
    /// Starts the thread.
    pub fn start() -> io::Result<Thread> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        std::thread::Builder::new().name("origin/s3".to_owned()).spawn(move || {
            let _ = runtime.block_on(stopped);
            runtime.shutdown_background();
        })?;
        Ok(Thread { handle, _stop: stop })
    }

    /// The handle of its runtime.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Runs an operation on the thread. Dropping the future cancels it.
    pub async fn run<T: Send + 'static>(
        &self,
        operation: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let (send, receive) = oneshot::channel();
        let _worker = Worker(self.handle.spawn(async move {
            let _ = send.send(operation.await);
        }));
        let closed = || Err(Error::Failed("the origin is closing".to_owned()));
        receive.await.unwrap_or_else(|_| closed())
    }
}

/// A task on the thread; aborted on drop.
pub struct Worker(pub JoinHandle<()>);

impl Drop for Worker {
    fn drop(&mut self) {
        self.0.abort();
    }
}
