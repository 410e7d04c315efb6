//! Caches that, like the hot class, do not know what comes: LRU, S3-FIFO and W-TinyLFU over bytes. They
//! write each miss, or each that they admit, at once and in place, which a log of segments cannot; so they
//! say what could be served, not at which wear. Objects are numbers here, and have no overhead.

use std::collections::{HashMap, VecDeque};

/// The share of requests (object, its bytes) that a cache serves, which is empty at first.
pub fn share(requests: impl Iterator<Item = (u32, u64)>, cache: &mut dyn Cache) -> f64 {
    let (mut hits, mut count) = (0u64, 0u64);
    for (object, bytes) in requests {
        hits += u64::from(cache.read(object, bytes));
        count += 1;
    }
    hits as f64 / count.max(1) as f64
}

/// A cache.
pub trait Cache {
    /// A read: whether the cache has the object; takes it if it does not.
    fn read(&mut self, object: u32, bytes: u64) -> bool;
}

/// Objects in order, those at the back last put there.
#[derive(Default)]
struct Queue {
    order: VecDeque<(u32, u64)>,
    /// By object: which of its entries is valid, and bytes.
    held: HashMap<u32, (u64, u64)>,
    bytes: u64,
    next: u64,
}

impl Queue {
    fn put(&mut self, object: u32, bytes: u64) {
        self.remove(object);
        self.next += 1;
        self.order.push_back((object, self.next));
        self.held.insert(object, (self.next, bytes));
        self.bytes += bytes;
    }

    fn remove(&mut self, object: u32) -> Option<u64> {
        let (_, bytes) = self.held.remove(&object)?;
        self.bytes -= bytes;
        Some(bytes)
    }

    /// The first, which stays.
    fn front(&mut self) -> Option<u32> {
        while let Some(&(object, valid)) = self.order.front() {
            if self.held.get(&object).is_some_and(|held| held.0 == valid) {
                return Some(object);
            }
            self.order.pop_front();
        }
        None
    }

    fn pop(&mut self) -> Option<(u32, u64)> {
        let object = self.front()?;
        Some((object, self.remove(object)?))
    }

    fn has(&self, object: u32) -> bool {
        self.held.contains_key(&object)
    }
}

/// The least recently read goes.
pub struct Lru {
    queue: Queue,
    bytes_max: u64,
}

impl Lru {
    pub fn new(bytes_max: u64) -> Lru {
        Lru { queue: Queue::default(), bytes_max }
    }
}

impl Cache for Lru {
    fn read(&mut self, object: u32, bytes: u64) -> bool {
        let there = self.queue.has(object);
        if bytes <= self.bytes_max {
            self.queue.put(object, bytes);
        }
        while self.queue.bytes > self.bytes_max && self.queue.pop().is_some() {}
        there
    }
}

/// Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023: a tenth of the bytes for new
/// objects, a list of those that left it.
pub struct S3Fifo {
    small: Queue,
    main: Queue,
    ghost: Queue,
    reads: HashMap<u32, u8>,
    bytes_max: u64,
}

impl S3Fifo {
    pub fn new(bytes_max: u64) -> S3Fifo {
        let (small, main, ghost) = (Queue::default(), Queue::default(), Queue::default());
        S3Fifo { small, main, ghost, reads: HashMap::new(), bytes_max }
    }

    fn evict(&mut self) {
        if self.small.bytes > self.bytes_max / 10 || self.main.bytes == 0 {
            let Some((object, bytes)) = self.small.pop() else { return };
            if self.reads.remove(&object).unwrap_or(0) > 1 {
                self.main.put(object, bytes);
            } else {
                self.ghost.put(object, bytes);
                while self.ghost.bytes > self.bytes_max * 9 / 10 && self.ghost.pop().is_some() {}
            }
            return;
        }
        let Some((object, bytes)) = self.main.pop() else { return };
        match self.reads.remove(&object).unwrap_or(0) {
            0 => {}
            reads => {
                self.reads.insert(object, reads - 1);
                self.main.put(object, bytes);
            }
        }
    }
}

impl Cache for S3Fifo {
    fn read(&mut self, object: u32, bytes: u64) -> bool {
        if self.small.has(object) || self.main.has(object) {
            let reads = self.reads.entry(object).or_default();
            *reads = (*reads + 1).min(3);
            return true;
        }
        if bytes > self.bytes_max {
            return false;
        }
        match self.ghost.remove(object) {
            Some(_) => self.main.put(object, bytes),
            None => self.small.put(object, bytes),
        }
        while self.small.bytes + self.main.bytes > self.bytes_max {
            self.evict();
        }
        false
    }
}

/// Einziger, Friedman, Manes, "TinyLFU", ACM TOS 2017: 1 % of the bytes by recency; what leaves it is
/// admitted if it was read more often than what would go. Counts are exact, and halved once in ten times as
/// many reads as objects are held.
pub struct TinyLfu {
    window: Queue,
    probation: Queue,
    protected: Queue,
    counts: HashMap<u32, u32>,
    counted: u64,
    bytes_max: u64,
}

impl TinyLfu {
    pub fn new(bytes_max: u64) -> TinyLfu {
        TinyLfu {
            window: Queue::default(),
            probation: Queue::default(),
            protected: Queue::default(),
            counts: HashMap::new(),
            counted: 0,
            bytes_max,
        }
    }

    fn count(&mut self, object: u32) {
        *self.counts.entry(object).or_default() += 1;
        self.counted += 1;
        let held = [&self.window, &self.probation, &self.protected].map(|queue| queue.held.len());
        if self.counted >= 10 * held.iter().sum::<usize>().max(100) as u64 {
            self.counts.retain(|_, count| {
                *count /= 2;
                *count > 0
            });
            self.counted /= 2;
        }
    }

    /// What left the window takes the place of others if it was read more often than each of them.
    fn admit(&mut self, object: u32, bytes: u64) {
        let main_max = self.bytes_max - self.bytes_max / 100;
        let frequency = |counts: &HashMap<u32, u32>, of| counts.get(&of).copied().unwrap_or(0);
        while self.probation.bytes + self.protected.bytes + bytes > main_max {
            let from =
                if self.probation.bytes > 0 { &mut self.probation } else { &mut self.protected };
            let Some(victim) = from.front() else { return };
            if frequency(&self.counts, victim) >= frequency(&self.counts, object) {
                return;
            }
            from.pop();
        }
        self.probation.put(object, bytes);
    }
}

impl Cache for TinyLfu {
    fn read(&mut self, object: u32, bytes: u64) -> bool {
        self.count(object);
        if self.window.has(object) {
            self.window.put(object, bytes);
            return true;
        }
        if self.protected.has(object) || self.probation.remove(object).is_some() {
            self.protected.put(object, bytes);
            let protected_max = (self.bytes_max - self.bytes_max / 100) / 5 * 4;
            while self.protected.bytes > protected_max {
                let Some((object, bytes)) = self.protected.pop() else { break };
                self.probation.put(object, bytes);
            }
            return true;
        }
        if bytes > self.bytes_max {
            return false;
        }
        self.window.put(object, bytes);
        while self.window.bytes > self.bytes_max / 100 {
            let Some((object, bytes)) = self.window.pop() else { break };
            self.admit(object, bytes);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(requests: &[(u32, u64)], bytes: u64) -> [f64; 3] {
        let of = |cache: &mut dyn Cache| share(requests.iter().copied(), cache);
        [of(&mut Lru::new(bytes)), of(&mut S3Fifo::new(bytes)), of(&mut TinyLfu::new(bytes))]
    }

    #[test]
    fn what_fits_is_served_after_its_first_read() {
        let requests: Vec<(u32, u64)> = (0..1000).map(|i| (i % 10, 10)).collect();
        for share in shares(&requests, 2_000) {
            assert_eq!(share, 0.99);
        }
    }

    /// Half of the requests are of objects that come once: LRU keeps them, the others the four that come back.
    #[test]
    fn a_scan_puts_nothing_out_but_of_an_lru() {
        let requests: Vec<(u32, u64)> =
            (0..8000).map(|i| if i % 2 == 0 { (i / 2 % 40, 10) } else { (1000 + i, 10) }).collect();
        let [lru, s3, tiny] = shares(&requests, 600);
        assert!(lru == 0.0 && s3 > 0.4 && tiny > 0.4, "{lru} {s3} {tiny}");
    }

    /// Never more bytes than there are, whatever the sizes.
    #[test]
    fn the_bytes_hold() {
        let mut caches = (Lru::new(500), S3Fifo::new(500), TinyLfu::new(500));
        for i in 0..5000u32 {
            let object = i * i % 101;
            let bytes = u64::from(object * 7 % 600) + 1;
            caches.0.read(object, bytes);
            caches.1.read(object, bytes);
            caches.2.read(object, bytes);
            let (lru, s3, tiny) = &caches;
            let of_tiny = tiny.window.bytes + tiny.probation.bytes + tiny.protected.bytes;
            assert!(lru.queue.bytes <= 500 && of_tiny <= 500, "{of_tiny}");
            assert!(s3.small.bytes + s3.main.bytes <= 500);
        }
    }
}
