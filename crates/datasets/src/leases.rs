//! The leases of a node's copies of shards: which are held, by whom, and until when.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::act::replicas::Leases;
use ground::window::Nanos;

/// A copy: the dataset's name and the shard's file.
pub(super) type Copy = (String, String);

/// What a gateway asks for when it leases a copy.
pub struct Lease {
    /// The hash of the shard's key.
    pub shard: u64,
    /// The dataset's name.
    pub dataset: String,
    /// The shard's file.
    pub file: String,
    /// The gateway, by a number that it chose at its start.
    pub by: u64,
    /// Bytes of the shard's file.
    pub bytes: u64,
    /// How long it holds without being renewed.
    pub lasts: Nanos,
}

/// The copies of a node.
#[derive(Default)]
pub struct Copies {
    pub(super) leases: Mutex<Leases>,
    /// What is leased, by the hash of the shard's key.
    names: Mutex<BTreeMap<u64, Copy>>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Copies {
    /// Whether a shard is leased, by the hash of its key.
    pub fn holds(&self, shard: u64) -> bool {
        lock(&self.leases).holds(shard)
    }

    /// Bytes of all copies.
    pub fn bytes(&self) -> u64 {
        lock(&self.leases).bytes()
    }

    /// Drops copies that nobody leases, and those beyond `bytes_max`; returns them.
    pub(super) fn expire(&self, now: Nanos, bytes_max: u64) -> Vec<Copy> {
        let mut leases = lock(&self.leases);
        let mut gone = leases.expire(now);
        gone.extend(leases.shrink(bytes_max));
        let mut names = lock(&self.names);
        gone.iter().filter_map(|shard| names.remove(shard)).collect()
    }

    /// Grants a lease. [`None`] if there is no room; otherwise whether the copy is new.
    pub fn grant(&self, now: Nanos, lease: Lease, room_bytes: u64) -> Option<bool> {
        let Lease { shard, dataset, file, by, bytes, lasts } = lease;
        let mut leases = lock(&self.leases);
        let new = !leases.holds(shard);
        if !leases.grant(now, shard, by, bytes, lasts, room_bytes) {
            return None;
        }
        lock(&self.names).insert(shard, (dataset, file));
        Some(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_named_when_they_are_given_up() {
        let copies = Copies::default();
        let copy = |file: &str| ("d".to_owned(), file.to_owned());
        let second = 1_000_000_000;
        let lease = |shard, file: &str| {
            let (dataset, file) = copy(file);
            Lease { shard, dataset, file, by: 1, bytes: 100, lasts: second }
        };
        let grant = |shard, file| copies.grant(0, lease(shard, file), 150);
        assert_eq!((grant(7, "a"), grant(7, "a")), (Some(true), Some(false)));
        assert_eq!((copies.holds(7), copies.bytes()), (true, 100));
        assert_eq!(copies.grant(0, lease(8, "b"), 50), None);
        assert_eq!(copies.expire(0, 1000), []);
        assert_eq!(copies.expire(0, 99), [copy("a")], "the budget has become smaller");
        grant(7, "a");
        assert_eq!(copies.expire(second, 1000), [copy("a")]);
    }
}
