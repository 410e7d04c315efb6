//! What the memory tier is used for, and what it would be worth with other bytes: [`Node::memory_use`].

use ground::window::{Nanos, SECOND};
use model::cache::Shards;

use super::device::Service;
use super::reuse::Reuse;
use super::state::Node;
use crate::Payload;

/// Sampled keys.
const KEYS_MAX: usize = 8192;

/// What the memory tier is used for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryUse {
    /// Bytes held, overhead included.
    pub held_bytes: u64,
    /// Maximum bytes.
    pub bytes_max: u64,
    /// Reads of objects that memory holds or could hold, since the start.
    pub reads: u64,
    /// The mean service time of a retrieval, which a hit saves, seconds; 0 before the first.
    pub saved_s: f64,
    /// Seconds of service of all retrievals since the start.
    pub retrieved_s: f64,
    /// The share of the latest reads that memory would have answered with the bytes asked for.
    pub hit_ratios: Vec<f64>,
}

impl<P: Payload> Node<P> {
    /// Begins to sample reuse distances, for [`Node::memory_use`]. Changes no decision of the node.
    pub fn sample_reuse(&mut self) {
        // The number of keys is within the limits.
        self.reuse = Shards::fixed_size(KEYS_MAX).ok().map(|shards| Reuse {
            shards,
            reads: 0,
            faded: self.now,
            retrievals: Service::default(),
            retrieved_s: 0.0,
        });
    }

    /// What the memory tier is used for, and would be with each of `sizes` bytes; `None` if reuse distances
    /// are not sampled. Cost: some 10 µs.
    pub fn memory_use(&self, sizes: &[u64]) -> Option<MemoryUse> {
        let reuse = self.reuse.as_ref()?;
        Some(MemoryUse {
            held_bytes: self.memory.bytes(),
            bytes_max: self.memory.bytes_max(),
            reads: reuse.reads,
            saved_s: reuse.retrievals.mean_s(),
            retrieved_s: reuse.retrieved_s,
            hit_ratios: reuse.shards.hit_ratios(sizes),
        })
    }

    /// Counts a read of an object; `service` is that of its retrieval, if memory did not have it.
    pub(super) fn count_reuse(
        &mut self,
        now: Nanos,
        key: &[u8],
        payload: &P,
        service: Option<Nanos>,
    ) {
        let Some(reuse) = &mut self.reuse else { return };
        if payload.bytes() > self.settings.object_bytes_max {
            return;
        }
        let bytes = payload.stored_bytes();
        reuse.add(key, bytes, now);
        if let Some(service) = service {
            reuse.retrievals.add(bytes, service, now);
            reuse.retrieved_s += service as f64 / SECOND as f64;
        }
    }
}

#[cfg(test)]
mod tests {
    use ground::{Key, window};

    use super::super::*;
    use crate::Size;

    /// Reads `key`, whose object the origin delivers after a millisecond.
    fn read(node: &mut Node<Size>, now: &mut Nanos, key: u32) {
        let mut actions = Vec::new();
        let key: Key = key.to_le_bytes()[..].into();
        let asker = Asker::Client { avoid: None };
        node.handle(
            *now,
            Event::Get { request: *now, key, asker, deadline: None, take: Take::Whole },
            &mut actions,
        );
        *now += 1_000_000;
        for action in std::mem::take(&mut actions) {
            if let Action::Fetch { job, .. } = action {
                let payload = Size { bytes: 800, stored_bytes: 836, etag: "e".into() };
                let result = Fetched::Found(payload);
                node.handle(*now, Event::Fetched { job, result }, &mut actions);
            }
        }
    }

    fn node(eviction: crate::tier::Eviction, memory_bytes_max: u64) -> Node<Size> {
        let settings = Settings {
            memory_bytes_max,
            eviction,
            object_bytes_max: 2_000,
            revalidate: None,
            stale_if_error: 0,
            devices: Vec::new(),
            tiers: TierSettings::default(),
            origin: OriginSettings { servers: 4, queue_length_max: 8 },
            appends_bytes_max: 0,
            writes_waiting_max: 4,
            cluster: None,
            windows: window::Settings::default(),
        };
        Node::new(settings, 0)
    }

    #[test]
    fn the_curve_says_what_other_bytes_would_hit_and_a_resize_gets_it() {
        // 100 objects of 1000 bytes in turn: all or nothing.
        for eviction in [crate::tier::Eviction::S3Fifo, crate::tier::Eviction::Lru] {
            let (mut node, mut now) = (node(eviction, 50_000), 0);
            assert_eq!(node.memory_use(&[1]), None);
            node.sample_reuse();
            (0..2_000).for_each(|i| read(&mut node, &mut now, i % 100));
            let found = node.memory_use(&[50_000, 101_000]).unwrap();
            assert_eq!((found.reads, found.bytes_max), (2_000, 50_000));
            assert!(found.held_bytes <= 50_000 && (found.saved_s - 1e-3).abs() < 1e-9);
            assert!(found.hit_ratios[0] < 0.01 && found.hit_ratios[1] > 0.9, "{found:?}");
            let mut actions = Vec::new();
            node.handle(now, Event::MemoryMax { bytes: 120_000 }, &mut actions);
            (0..1_000).for_each(|i| read(&mut node, &mut now, i % 100));
            assert_eq!(node.contents().memory_objects, 100, "{eviction:?}");
            for bytes in [70_000, 500, 0, 5] {
                node.handle(now, Event::MemoryMax { bytes }, &mut actions);
                let contents = node.contents();
                assert!(contents.memory_bytes <= bytes && contents.memory_bytes_max == bytes);
                (0..10).for_each(|i| read(&mut node, &mut now, i));
            }
        }
    }
}
