//! The open connections of a front: how many there are, from whom, and which of them wait for their clients.
//!
//! When there are as many as there may be, a further one takes the place of the one that has waited longest for a
//! request. A client whose idle connection is closed connects anew; one whose connection is refused has nothing to fall
//! back on. Such a choice looks at all connections (some microseconds for 4096), which happens at the limit alone.

use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ground::window::Nanos;
use record::clock;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::descriptors::Allowance;
use configuration::Serve;

/// A connection that waits for less than this is not closed for another's sake: its client's request is on its way,
/// for all that is known (a round trip between continents takes as long).
const IDLE_MIN: Nanos = 100_000_000;
/// How long a further connection waits for the place of the idle one. That one's thread is only to be woken.
const EVICTION_MAX: Duration = Duration::from_millis(50);

/// What a connection was taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seat {
    /// Any request.
    Regular,
    /// One request for health or administration, since the limits are reached.
    Spare,
}

/// Whether a connection waits for its client's next request.
pub struct Activity {
    seat: Seat,
    /// On the monotonic clock; 0 while a request is carried out.
    idle_since: AtomicU64,
    opened: Nanos,
    evicted: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Default for Activity {
    fn default() -> Activity {
        Activity::new(Seat::Regular, clock::now())
    }
}

impl Activity {
    fn new(seat: Seat, now: Nanos) -> Activity {
        Activity {
            seat,
            idle_since: AtomicU64::new(now),
            opened: now,
            evicted: AtomicBool::new(false),
            waker: Mutex::new(None),
        }
    }

    /// What the connection was taken for.
    pub fn seat(&self) -> Seat {
        self.seat
    }

    /// Bytes of a request are read, or it is carried out.
    pub fn begin(&self) {
        self.idle_since.store(0, Ordering::Relaxed);
    }

    /// The client has no request here; the last one was answered at a time (0: there was none).
    pub fn wait(&self, answered: Nanos) {
        self.idle_since.store(answered.max(self.opened), Ordering::Relaxed);
    }

    fn idle_since(&self) -> Option<Nanos> {
        let since = self.idle_since.load(Ordering::Relaxed);
        (since > 0 && !self.evicted.load(Ordering::Relaxed)).then_some(since)
    }

    fn evict(&self) {
        self.evicted.store(true, Ordering::Release);
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether the connection is to end now. Its own thread asks, after it has read what there is: a request that
    /// came in the meantime is answered, and then the connection stays.
    fn is_to_end(&self) -> bool {
        self.evicted.load(Ordering::Acquire)
            && (self.idle_since.load(Ordering::Relaxed) > 0
                || !self.evicted.swap(false, Ordering::Relaxed))
    }
}

/// A connection's work, which ends early if another connection takes its place.
pub struct Evictable<F> {
    work: F,
    activity: Arc<Activity>,
    registered: bool,
}

impl<F> Evictable<F> {
    /// Wraps the work of a connection.
    pub fn new(work: F, activity: Arc<Activity>) -> Evictable<F> {
        Evictable { work, activity, registered: false }
    }
}

impl<F: Future<Output = ()> + Unpin> Future for Evictable<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if Pin::new(&mut self.work).poll(context).is_ready() {
            return Poll::Ready(());
        }
        // A task's waker stays the same; to register it at every request would cost a lock each.
        if !self.registered {
            self.registered = true;
            let mut waker = self.activity.waker.lock().unwrap_or_else(PoisonError::into_inner);
            *waker = Some(context.waker().clone());
        }
        if self.activity.is_to_end() { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Those that are open.
#[derive(Default)]
struct Open {
    by_address: HashMap<IpAddr, u32>,
    activities: HashMap<u64, Arc<Activity>>,
    next: u64,
}

/// The connections of a front.
pub struct Connections {
    regular: AtomicUsize,
    spare: AtomicUsize,
    regular_max: usize,
    spare_max: usize,
    open: Mutex<Open>,
    freed: Notify,
}

/// A place of one connection among the others; `leave` gives it back.
pub struct Place {
    /// Its activity.
    pub activity: Arc<Activity>,
    number: u64,
    from: IpAddr,
}

/// Why there is no place for a further connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    /// Of all clients.
    Front,
    /// Of this client's address.
    Address,
}

impl Connections {
    /// None yet.
    pub fn new(allowance: &Allowance) -> Connections {
        Connections {
            regular: AtomicUsize::new(0),
            spare: AtomicUsize::new(0),
            regular_max: allowance.connections,
            spare_max: allowance.spare,
            open: Mutex::default(),
            freed: Notify::new(),
        }
    }

    /// Number of open ones, without those for health and administration.
    pub fn count(&self) -> usize {
        self.regular.load(Ordering::Relaxed)
    }

    /// Maximum number of open ones, which may be fewer than configured where the limit of open files is low.
    pub fn max(&self) -> usize {
        self.regular_max
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a further connection; `None` if there is none even for health.
    pub async fn place(&self, from: IpAddr, serve: &Serve) -> Option<Place> {
        let of_one = serve.connections_of_one(from, self.regular_max);
        let full = match self.regular(from, of_one) {
            Ok(place) => return Some(place),
            Err(full) => full,
        };
        if full == Full::Front
            && self.evict(Seat::Regular, clock::now())
            && let Some(place) = self.freed(|| self.regular(from, of_one).ok()).await
        {
            return Some(place);
        }
        if let Some(place) = self.spare(from) {
            return Some(place);
        }
        // Those that hold a spare place and ask nothing.
        if !self.evict(Seat::Spare, clock::now()) {
            return None;
        }
        self.freed(|| self.spare(from)).await
    }

    /// Tries again whenever a connection has closed, for a short time.
    async fn freed(&self, attempt: impl Fn() -> Option<Place>) -> Option<Place> {
        let until = Instant::now() + EVICTION_MAX;
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            freed.as_mut().enable();
            if let Some(place) = attempt() {
                return Some(place);
            }
            timeout_at(until, freed).await.ok()?;
        }
    }

    fn regular(&self, from: IpAddr, of_one: u32) -> Result<Place, Full> {
        let mut open = self.open();
        if self.regular.load(Ordering::Relaxed) >= self.regular_max {
            return Err(Full::Front);
        }
        let of_address = open.by_address.entry(from).or_default();
        if *of_address >= of_one {
            return Err(Full::Address);
        }
        *of_address += 1;
        self.regular.fetch_add(1, Ordering::Relaxed);
        Ok(open.add(Seat::Regular, from))
    }

    fn spare(&self, from: IpAddr) -> Option<Place> {
        let mut open = self.open();
        if self.spare.load(Ordering::Relaxed) >= self.spare_max {
            return None;
        }
        self.spare.fetch_add(1, Ordering::Relaxed);
        Some(open.add(Seat::Spare, from))
    }

    /// Has the connection closed that has waited longest for a request; returns whether there is one.
    fn evict(&self, seat: Seat, now: Nanos) -> bool {
        let open = self.open();
        let idle = open.activities.values().filter(|activity| activity.seat == seat);
        let idle = idle.filter_map(|activity| Some((activity.idle_since()?, activity)));
        match idle.min_by_key(|(since, _)| *since) {
            Some((since, activity)) if now.saturating_sub(since) >= IDLE_MIN => {
                activity.evict();
                true
            }
            _ => false,
        }
    }

    /// Has the longest idle connection of all closed, since the process is out of files.
    pub fn make_room(&self) {
        let now = clock::now();
        let _ = self.evict(Seat::Spare, now) || self.evict(Seat::Regular, now);
    }

    /// Gives a place back. Its socket is closed by then.
    pub fn leave(&self, place: &Place) {
        {
            let mut open = self.open();
            open.activities.remove(&place.number);
            match place.activity.seat {
                Seat::Spare => _ = self.spare.fetch_sub(1, Ordering::Relaxed),
                Seat::Regular => {
                    self.regular.fetch_sub(1, Ordering::Relaxed);
                    if let Some(count) = open.by_address.get_mut(&place.from) {
                        *count -= 1;
                        if *count == 0 {
                            open.by_address.remove(&place.from);
                        }
                    }
                }
            }
        }
        self.freed.notify_waiters();
    }
}

impl Open {
    fn add(&mut self, seat: Seat, from: IpAddr) -> Place {
        let number = self.next;
        self.next += 1;
        let activity = Arc::new(Activity::new(seat, clock::now()));
        self.activities.insert(number, activity.clone());
        Place { activity, number, from }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn connections(max: usize) -> Connections {
        let allowance = Allowance { limit: 64, own: 0, connections: max, spare: 1, proxied: 0 };
        Connections::new(&allowance)
    }

    #[test]
    fn the_one_that_waited_longest_is_chosen_and_none_at_work() {
        let open = connections(3);
        let places: Vec<Place> = (0..3).map(|_| open.regular(HERE, 9).ok().unwrap()).collect();
        assert_eq!(open.regular(HERE, 9).err(), Some(Full::Front));
        let now = clock::now() + 10 * IDLE_MIN;
        places[0].activity.begin();
        places[1].activity.wait(now - 2 * IDLE_MIN);
        places[2].activity.wait(now - 5 * IDLE_MIN);
        assert!(open.evict(Seat::Regular, now));
        assert!(places[2].activity.is_to_end() && !places[1].activity.is_to_end());
        assert!(open.evict(Seat::Regular, now), "another one");
        // Its request came before its thread was woken.
        places[1].activity.begin();
        assert!(!places[1].activity.is_to_end());
        places[1].activity.wait(now);
        assert!(!places[1].activity.is_to_end(), "that was forgotten");
        assert!(!open.evict(Seat::Regular, now), "its next request is on its way");
        open.leave(&places[2]);
        assert!(open.regular(HERE, 2).is_err_and(|full| full == Full::Address));
        assert!(open.regular(HERE, 3).is_ok());
        assert_eq!(open.count(), 3);
    }

    #[tokio::test]
    async fn a_further_connection_gets_the_place_of_an_idle_one() {
        let open = Arc::new(connections(1));
        let serve = Serve::default();
        let first = open.place(HERE, &serve).await.unwrap();
        first.activity.wait(1);
        let spare = open.place(HERE, &serve).await.unwrap();
        assert_eq!(spare.activity.seat(), Seat::Spare, "the first one is too young");
        assert!(open.place(HERE, &serve).await.is_none());
        tokio::time::sleep(Duration::from_nanos(IDLE_MIN)).await;
        let (activity, closing) = (first.activity.clone(), open.clone());
        tokio::spawn(async move {
            Evictable::new(std::future::pending(), activity).await;
            closing.leave(&first);
        });
        tokio::task::yield_now().await;
        let next = open.place(HERE, &serve).await.unwrap();
        assert_eq!(next.activity.seat(), Seat::Regular);
        assert_eq!(open.count(), 1);
    }
}
