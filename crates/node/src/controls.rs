//! What the live model may change of a node while it serves.

use std::sync::Arc;

use engine::node::{Event, MemoryUse, Tiers};
use ground::window::Nanos;
use live::Controls;
use record::clock;

use super::drive::Drive;

impl Controls for Drive {
    fn bound(&self, device: usize) -> Option<(u32, u32)> {
        self.lock().node.bound(device)
    }

    fn set_bound(self: Arc<Self>, device: usize, length_max: u32) {
        self.tell(clock::now(), Event::Bound { device, length_max });
    }

    fn tiers(&self, now: Nanos) -> Tiers {
        self.lock().node.tiers(now)
    }

    fn set_copying(self: Arc<Self>, on: bool) {
        self.tell(clock::now(), Event::Copying(on));
    }

    fn sample_reuse(&self) {
        self.lock().node.sample_reuse();
    }

    fn memory_use(&self, sizes: &[u64]) -> Option<MemoryUse> {
        self.lock().node.memory_use(sizes)
    }

    fn set_memory_bytes(self: Arc<Self>, bytes: u64) {
        self.tell(clock::now(), Event::MemoryMax { bytes });
    }
}
