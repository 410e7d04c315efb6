//! Work that takes a processor longer than a thread that serves requests may be away.

use std::future::pending;
use std::panic::resume_unwind;

/// From how many bytes on work is done by a thread that may compute: to parse and hash 256 KiB takes a serving thread about a
/// millisecond, in which it answers nobody; a further thread costs some 10 µs.
const APART_BYTES_MIN: u64 = 256 << 10;

/// Does work that goes over `bytes` bytes: at once if these are few, else on a thread that may compute.
pub async fn compute<T: Send + 'static>(
    bytes: u64,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    if bytes < APART_BYTES_MIN {
        return work();
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The runtime ends, and drops the task that waits for the result.
            Err(_) => pending().await,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[tokio::test]
    async fn much_work_is_done_by_another_thread() {
        let id = || thread::current().id();
        assert_eq!(compute(1_000, id).await, id());
        assert_ne!(compute(32 << 20, id).await, id());
    }
}
