//! Builds several shards concurrently, each on its own thread.
//!
//! The build of a shard uses one thread, mostly in a sort that cannot be interrupted. Several
//! builds therefore use the available cores, and a build that is no longer needed is abandoned: it
//! writes to a folder that has been removed.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use shard::index::Progress;

use super::error::{Context as _, Result};

/// The most events that wait to be received. Progress beyond that is dropped: a later event
/// replaces it.
const EVENTS_MAX: usize = 64;

/// Builds of numbered shards, with results of type `R`.
pub(super) struct Jobs<R> {
    running: BTreeMap<u64, Job<R>>,
    sender: SyncSender<(u64, Event)>,
    receiver: Receiver<(u64, Event)>,
}

struct Job<R> {
    thread: JoinHandle<R>,
    memory_bytes: usize,
}

enum Event {
    Progress(Progress),
    /// The thread is ending, with its result or by a panic.
    Ended,
}

/// Sends [`Event::Ended`] when it is dropped, also by a panic. Waits while the channel is full; the
/// thread has no other work left by then.
struct Ending(u64, SyncSender<(u64, Event)>);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.1.send((self.0, Event::Ended));
    }
}

impl<R: Send + 'static> Jobs<R> {
    /// Creates an empty set.
    pub fn new() -> Jobs<R> {
        let (sender, receiver) = sync_channel(EVENTS_MAX);
        Jobs { running: BTreeMap::new(), sender, receiver }
    }

    /// The number of builds under way.
    pub fn len(&self) -> usize {
        self.running.len()
    }

    /// The most memory that they take together.
    pub fn memory_bytes(&self) -> usize {
        self.running.values().map(|job| job.memory_bytes).sum()
    }

    /// Starts the build of a shard, which takes at most `memory_bytes`.
    ///
    /// # Errors
    ///
    /// If the thread cannot be created.
    pub fn start(
        &mut self,
        shard: u64,
        memory_bytes: usize,
        work: impl FnOnce(&mut dyn FnMut(Progress)) -> R + Send + 'static,
    ) -> Result<()> {
        let sender = self.sender.clone();
        let work = move || {
            let ending = Ending(shard, sender);
            work(&mut |progress| {
                let _ = ending.1.try_send((shard, Event::Progress(progress)));
            })
        };
        let named = Builder::new().name(format!("shard {shard}"));
        let thread = named.spawn(work).context(|| "cannot start a thread".to_owned())?;
        self.running.insert(shard, Job { thread, memory_bytes });
        Ok(())
    }

    /// Waits until a build ends and returns its number and result; `None` if no build is under way.
    /// Resumes the panic of a build that panicked.
    pub fn next(&mut self, tell: &mut dyn FnMut(u64, Progress)) -> Option<(u64, R)> {
        while !self.running.is_empty() {
            // Does not fail: `self` holds a sender.
            let (shard, event) = self.receiver.recv().ok()?;
            match event {
                Event::Progress(progress) => tell(shard, progress),
                Event::Ended => {
                    let job = self.running.remove(&shard)?;
                    match job.thread.join() {
                        Ok(result) => return Some((shard, result)),
                        Err(panic) => std::panic::resume_unwind(panic),
                    }
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_is_waited_for_once() {
        let mut jobs = Jobs::new();
        let mut told = 0;
        assert!(jobs.next(&mut |_, _| ()).is_none());
        for shard in 1..=8 {
            let work = move |progress: &mut dyn FnMut(Progress)| {
                progress(Progress::Sorting);
                shard * 10
            };
            jobs.start(shard, 5, work).unwrap();
        }
        assert_eq!((jobs.len(), jobs.memory_bytes()), (8, 40));
        let mut results = Vec::new();
        while let Some(result) = jobs.next(&mut |_, _| told += 1) {
            results.push(result);
        }
        results.sort_unstable();
        let expected: Vec<(u64, u64)> = (1..=8).map(|shard| (shard, shard * 10)).collect();
        assert_eq!((results, told, jobs.len()), (expected, 8, 0));
    }

    #[test]
    fn a_panic_of_a_job_reaches_the_waiting_thread() {
        let mut jobs: Jobs<()> = Jobs::new();
        jobs.start(1, 0, |_| panic!("as a test wants it")).unwrap();
        let waiting = std::panic::AssertUnwindSafe(|| jobs.next(&mut |_, _| ()));
        assert!(std::panic::catch_unwind(waiting).is_err());
    }
}
