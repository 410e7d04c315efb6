//! The queue of one part of a dataset: requests wait, are served one at a time, and windows record
//! them.
//!
//! The work runs on a thread of the runtime's blocking pool. That thread continues with the next
//! request as long as one waits, so that at most one thread is busy per server of each part.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use configuration::Overload;
use engine::node::Stages;
use engine::queue::{Queue, Started};
use ground::window::{Finished, Nanos, Operation, Outcome, Settings, Window};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use record::clock;

/// Requests served concurrently. One, because a query on a shard is pure computation: a second one
/// beside it would slow it down as much as it gains itself.
const SERVERS: u32 = 1;

/// The work of a request: returns the bytes of the answer and the function that delivers it. `None`
/// if the caller no longer waits.
type Work = Box<dyn FnOnce() -> Option<(u64, Tell)> + Send>;
/// Delivers the answer once the service is recorded. Arguments: when the service started and ended,
/// and the length of the queue after it.
type Tell = Box<dyn FnOnce(Nanos, Nanos, u32) + Send>;

/// The bound of a queue, and what happens past it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Maximum number of requests waiting and in service.
    pub length_max: u32,
    /// What happens to further ones.
    pub overload: Overload,
}

struct Job {
    operation: Operation,
    work: Work,
    /// Its place in a queue for which clients wait.
    place: Option<OwnedSemaphorePermit>,
}

/// A queue before a shard, or before the log.
pub struct Station {
    /// `shard/NAME/PART`.
    name: String,
    queue: Mutex<Queue<Job>>,
    /// Services since they were last taken, and the time that they took.
    served: AtomicU64,
    busy_ns: AtomicU64,
    lengths: Mutex<Lengths>,
    /// The places that are free, where clients wait for one.
    places: Option<Arc<Semaphore>>,
}

/// The length of a queue over time, since it was last asked for.
#[derive(Clone, Copy, Debug, Default)]
struct Lengths {
    since: Nanos,
    counted: Nanos,
    /// Length times nanoseconds.
    area: f64,
}

impl Lengths {
    fn count(&mut self, now: Nanos, length: u32) {
        self.area += f64::from(length) * now.saturating_sub(self.counted) as f64;
        self.counted = self.counted.max(now);
    }
}

/// The queue is full.
#[derive(Debug)]
pub struct Busy {
    /// Requests in the queue, waiting or in service.
    pub length: u32,
}

/// An answer with its stage times.
pub struct Served<T> {
    /// The answer; `None` if the work panicked, which is a defect.
    pub answer: Option<T>,
    /// Times and queue lengths of the request's stages.
    pub stages: Stages,
}

impl Station {
    /// An empty queue.
    pub fn new(name: String, bound: Bound, windows: Settings, now: Nanos) -> Arc<Station> {
        let queue = Mutex::new(Queue::new(&name, SERVERS, bound.length_max, windows, now));
        let (served, busy_ns) = (AtomicU64::new(0), AtomicU64::new(0));
        let places = bound.length_max.max(SERVERS) as usize;
        let places = match bound.overload {
            Overload::Shed => None,
            Overload::Block => Some(Arc::new(Semaphore::new(places))),
        };
        let lengths = Mutex::new(Lengths { since: now, counted: now, area: 0.0 });
        Arc::new(Station { name, queue, served, busy_ns, lengths, places })
    }

    /// `shard/NAME/PART`.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn lock(&self) -> MutexGuard<'_, Queue<Job>> {
        // Only a panic in the recorder poisons this; its counts may then be off by one request.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests waiting and in service.
    pub fn length(&self) -> u32 {
        self.lock().length()
    }

    fn count(&self, now: Nanos, length: u32) {
        self.lengths.lock().unwrap_or_else(PoisonError::into_inner).count(now, length);
    }

    /// Mean number of requests waiting and in service since the last call.
    pub fn take_length(&self, now: Nanos) -> f64 {
        let length = self.length();
        let mut lengths = self.lengths.lock().unwrap_or_else(PoisonError::into_inner);
        lengths.count(now, length);
        let over = now.saturating_sub(lengths.since) as f64;
        let mean = if over > 0.0 { lengths.area / over } else { f64::from(length) };
        *lengths = Lengths { since: now, counted: now, area: 0.0 };
        mean
    }

    /// Services that ended since the last call, and the seconds that they took together.
    pub fn take_served(&self) -> (u64, f64) {
        let busy_ns = self.busy_ns.swap(0, Ordering::Relaxed);
        (self.served.swap(0, Ordering::Relaxed), busy_ns as f64 * 1e-9)
    }

    /// The windows that ended by `now`; with `flush`, the current one too.
    pub fn windows(&self, now: Nanos, flush: bool) -> Vec<Window> {
        let mut queue = self.lock();
        if flush { queue.flush(now) } else { queue.windows(now) }
    }

    /// Waits in the queue, then runs `work`, which returns an answer and its size in bytes. If the
    /// future is dropped before its turn, the request is skipped.
    ///
    /// # Errors
    ///
    /// [`Busy`] at once if the queue is full, unless clients wait for a place ([`Overload::Block`]).
    pub async fn serve<T: Send + 'static>(
        self: &Arc<Station>,
        operation: Operation,
        work: impl FnOnce() -> (T, u64) + Send + 'static,
    ) -> Result<Served<T>, Busy> {
        let received = clock::now();
        // The semaphore is never closed.
        let place = match &self.places {
            Some(places) => places.clone().acquire_owned().await.ok(),
            None => None,
        };
        let queued = if place.is_some() { clock::now() } else { received };
        let (sender, receiver) = oneshot::channel();
        let work: Work = Box::new(move || {
            if sender.is_closed() {
                return None;
            }
            let (answer, bytes) = work();
            let tell: Tell = Box::new(move |started, served, length_left| {
                let _ = sender.send((answer, started, served, length_left));
            });
            Some((bytes, tell))
        });
        let length_met = {
            let mut queue = self.lock();
            let length_met = queue.length();
            if queue.push(Job { operation, work, place }, queued).is_err() {
                return Err(Busy { length: length_met });
            }
            self.count(queued, length_met);
            if let Some(started) = queue.start(queued) {
                let station = self.clone();
                tokio::task::spawn_blocking(move || station.work(started));
            }
            length_met
        };
        let (answer, started, served, length_left) = match receiver.await {
            Ok((answer, started, served, left)) => (Some(answer), started, served, left),
            Err(_) => (None, clock::now(), clock::now(), self.length()),
        };
        let stages = Stages {
            received,
            queued,
            started,
            served,
            length_met,
            length_left,
            node_length: length_left,
        };
        Ok(Served { answer, stages })
    }

    fn work(&self, mut started: Started<Job>) {
        loop {
            let Started { job, queued, start } = started;
            let work = std::panic::AssertUnwindSafe(job.work);
            // A panic closes the caller's channel, which tells the caller; later requests are
            // served.
            let done = std::panic::catch_unwind(work).unwrap_or(None);
            let now = clock::now();
            let finished = Finished {
                operation: job.operation,
                outcome: if done.is_some() { Outcome::Shard } else { Outcome::Error },
                waiting: start.saturating_sub(queued),
                service: now.saturating_sub(start),
                response: now.saturating_sub(queued),
                bytes: done.as_ref().map_or(0, |(bytes, _)| *bytes),
            };
            self.served.fetch_add(1, Ordering::Relaxed);
            self.busy_ns.fetch_add(finished.service, Ordering::Relaxed);
            let (next, length) = {
                let mut queue = self.lock();
                self.count(now, queue.length());
                queue.finish(now, &finished);
                let length = queue.length();
                (queue.start(now), length)
            };
            // After the queue has room: whoever gets the place finds it.
            drop(job.place);
            if let Some((_, tell)) = done {
                tell(start, now, length);
            }
            match next {
                Some(next) => started = next,
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn station(length_max: u32) -> Arc<Station> {
        bounded(length_max, Overload::Shed)
    }

    fn bounded(length_max: u32, overload: Overload) -> Arc<Station> {
        let bound = Bound { length_max, overload };
        Station::new("shard/a/000001".to_owned(), bound, Settings::default(), clock::now())
    }

    #[tokio::test]
    async fn past_the_bound_clients_wait_if_they_are_to() {
        let station = bounded(2, Overload::Block);
        let (go, wait) = mpsc::channel::<()>();
        let held = station.serve(Operation::Search, move || (wait.recv().is_ok(), 0));
        let mut held = Box::pin(held);
        assert!(futures_util::poll!(held.as_mut()).is_pending());
        let mut others: Vec<_> = (0..8)
            .map(|n| {
                let station = station.clone();
                Box::pin(async move { station.serve(Operation::Count, move || (n, 0)).await })
            })
            .collect();
        for other in &mut others {
            assert!(futures_util::poll!(other.as_mut()).is_pending());
        }
        assert_eq!(station.length(), 2, "six wait outside");
        // One that gives up leaves its place to the next.
        drop(others.remove(3));
        go.send(()).unwrap();
        assert!(held.await.unwrap().unwrap_answer());
        let answers = futures_util::future::join_all(others).await;
        let answers: Vec<i32> = answers.into_iter().map(|a| a.unwrap().unwrap_answer()).collect();
        assert_eq!(answers, [0, 1, 2, 4, 5, 6, 7]);
        assert_eq!(station.places.as_ref().map(|places| places.available_permits()), Some(2));
    }

    impl<T> Served<T> {
        fn unwrap_answer(self) -> T {
            self.answer.unwrap()
        }
    }

    #[tokio::test]
    async fn requests_are_served_in_turn_and_refused_past_the_bound() {
        let station = station(2);
        let (go, wait) = mpsc::channel::<()>();
        let first = {
            let station = station.clone();
            tokio::spawn(async move {
                station.serve(Operation::Search, move || (wait.recv().is_ok(), 3)).await
            })
        };
        while station.length() < 1 {
            tokio::task::yield_now().await;
        }
        let second = {
            let station = station.clone();
            tokio::spawn(async move { station.serve(Operation::Count, || (7, 1)).await })
        };
        while station.length() < 2 {
            tokio::task::yield_now().await;
        }
        let third = station.serve(Operation::Search, || ((), 0)).await;
        assert_eq!(third.err().unwrap().length, 2);
        go.send(()).unwrap();
        assert_eq!(first.await.unwrap().unwrap().answer, Some(true));
        let second = second.await.unwrap().unwrap();
        assert_eq!((second.answer, second.stages.length_met), (Some(7), 1));
        let windows = station.windows(clock::now() + 10_000_000_000, true);
        let sum = |f: fn(&Window) -> u64| windows.iter().map(f).sum::<u64>();
        assert_eq!((sum(|w| w.completions), sum(|w| w.refusals)), (2, 1));
        // Two were there for a while, and one for a while longer; the test knows no times.
        let length = station.take_length(clock::now());
        assert!(length > 0.0 && length <= 2.0, "{length}");
        assert_eq!(station.take_length(clock::now() + 1_000_000_000), 0.0);
    }

    #[tokio::test]
    async fn a_panic_is_reported_and_does_not_block_the_queue() {
        let station = station(10);
        let panicked = station.serve(Operation::Search, || -> ((), u64) { panic!("a test") }).await;
        assert!(panicked.unwrap().answer.is_none());
        assert_eq!(station.serve(Operation::Count, || (1, 0)).await.unwrap().answer, Some(1));
    }

    #[tokio::test]
    async fn a_request_dropped_before_its_turn_is_skipped() {
        let station = station(10);
        let (go, wait) = mpsc::channel::<()>();
        let (told, tell) = mpsc::channel::<()>();
        let held = station.serve(Operation::Search, move || (wait.recv().is_ok(), 0));
        let mut held = Box::pin(held);
        assert!(futures_util::poll!(held.as_mut()).is_pending());
        let left = station.serve(Operation::Search, move || (told.send(()).is_ok(), 0));
        let mut left = Box::pin(left);
        assert!(futures_util::poll!(left.as_mut()).is_pending());
        drop(left);
        go.send(()).unwrap();
        assert_eq!(held.await.unwrap().answer, Some(true));
        assert_eq!(station.serve(Operation::Count, || (1, 0)).await.unwrap().answer, Some(1));
        assert!(tell.recv().is_err(), "the work was dropped without running");
    }
}
