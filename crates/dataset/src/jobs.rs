//! Shards that are built at the same time, each by a thread of its own.
//!
//! A shard's build is one thread's work, most of it in a sort that nothing can stop; so several shards use
//! the cores there are, and one that is not wanted any more is left to itself: what it writes goes to a
//! folder that is gone.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

use anyhow::Context as _;
use shard::index::Progress;

/// Work on shards of this number and that, with results of type `R`.
pub(super) struct Jobs<R> {
    running: BTreeMap<u64, Job<R>>,
    sender: Sender<(u64, Event)>,
    receiver: Receiver<(u64, Event)>,
}

struct Job<R> {
    thread: JoinHandle<R>,
    memory_bytes: usize,
}

enum Event {
    Progress(Progress),
    /// The thread ends, with its result or by a panic.
    Ended,
}

/// Says that a thread has ended, however it does.
struct Ending(u64, Sender<(u64, Event)>);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.1.send((self.0, Event::Ended));
    }
}

impl<R: Send + 'static> Jobs<R> {
    /// None yet.
    pub fn new() -> Jobs<R> {
        let (sender, receiver) = channel();
        Jobs { running: BTreeMap::new(), sender, receiver }
    }

    /// How many are being built.
    pub fn len(&self) -> usize {
        self.running.len()
    }

    /// The most memory that these take together.
    pub fn memory_bytes(&self) -> usize {
        self.running.values().map(|job| job.memory_bytes).sum()
    }

    /// Begins to build one, which takes at most so much memory.
    ///
    /// # Errors
    ///
    /// If the system gives no thread.
    pub fn start(
        &mut self,
        shard: u64,
        memory_bytes: usize,
        work: impl FnOnce(&mut dyn FnMut(Progress)) -> R + Send + 'static,
    ) -> anyhow::Result<()> {
        let sender = self.sender.clone();
        let work = move || {
            let ending = Ending(shard, sender);
            work(&mut |progress| {
                let _ = ending.1.send((shard, Event::Progress(progress)));
            })
        };
        let named = Builder::new().name(format!("shard {shard}"));
        let thread = named.spawn(work).context("cannot start a thread")?;
        self.running.insert(shard, Job { thread, memory_bytes });
        Ok(())
    }

    /// Waits until one is built, and gives its number and result; `None` if there is none.
    pub fn next(&mut self, tell: &mut dyn FnMut(u64, Progress)) -> Option<(u64, R)> {
        while !self.running.is_empty() {
            // There is a sender as long as this lives.
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
    fn a_panic_of_a_job_is_one_of_who_waits() {
        let mut jobs: Jobs<()> = Jobs::new();
        jobs.start(1, 0, |_| panic!("as a test wants it")).unwrap();
        let waiting = std::panic::AssertUnwindSafe(|| jobs.next(&mut |_, _| ()));
        assert!(std::panic::catch_unwind(waiting).is_err());
    }
}
