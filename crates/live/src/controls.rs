//! What a node lets be changed while it serves.

use std::sync::Arc;

use engine::node::{MemoryUse, Tiers};
use ground::window::Nanos;

/// The knobs of a node, and what decisions about them need to know of it. Its driver implements this, so that the model and
/// the node know each other by these calls alone.
pub trait Controls: Send + Sync {
    /// The bound of a device's queue now, and the one of the configuration; `None` if there is no such device.
    fn bound(&self, device: usize) -> Option<(u32, u32)>;
    /// Sets the bound of a device's queue.
    fn set_bound(self: Arc<Self>, device: usize, length_max: u32);
    /// What is hot, why, what moved, and what it bought.
    fn tiers(&self, now: Nanos) -> Tiers;
    /// Sets whether objects are copied to hot devices.
    fn set_copying(self: Arc<Self>, on: bool);
    /// Begins to sample what the memory tier would be worth with other bytes.
    fn sample_reuse(&self);
    /// What the memory tier is used for, and would be with each of `sizes` bytes; `None` if that is not sampled.
    fn memory_use(&self, sizes: &[u64]) -> Option<MemoryUse>;
    /// Sets the bytes of the memory tier. One that holds more gives up objects before this returns.
    fn set_memory_bytes(self: Arc<Self>, bytes: u64);
}
