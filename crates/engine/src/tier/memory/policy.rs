//! What a policy of eviction is: values by key, and the order in which they leave.

use ground::Key;

/// The reads of a policy, apart from [`Policy`], of which there are trait objects.
pub(super) trait ReadIf<V> {
    /// The value of a key if `is` holds for it; it then counts as read.
    fn get_if(&mut self, key: &[u8], is: impl FnOnce(&V) -> bool) -> Option<&mut V>;
}

/// Values by key, and the order in which they leave. The policy keeps to its budget itself, as it alone knows what a change
/// of the budget means for what it remembers of keys that have left.
pub(super) trait Policy<V> {
    /// Bytes of all entries, as [`Policy::insert`] was told them.
    fn bytes(&self) -> u64;
    fn bytes_max(&self) -> u64;
    /// Number of entries.
    fn len(&self) -> usize;
    /// The value of a key, which does not count as read.
    fn peek(&mut self, key: &[u8]) -> Option<&mut V>;
    /// Inserts a value in place of its key's earlier one; `bytes` is at most the budget. Returns the evicted values in order.
    fn insert(&mut self, value: V, bytes: u64) -> Vec<V>;
    fn remove(&mut self, key: &[u8]) -> Option<V>;
    /// Evicts the value that is next; `None` if there are none.
    fn evict(&mut self) -> Option<V>;
    /// Changes the budget; returns the evicted values in order.
    fn set_bytes_max(&mut self, bytes_max: u64) -> Vec<V>;
    /// [`super::Memory::hottest`].
    fn hottest(&self, from: usize, count: usize) -> (Vec<(Key, u8)>, bool);
    /// Removes all entries, and forgets the evicted ones.
    fn clear(&mut self);

    /// Evicts until `bytes` more fit.
    fn make_room(&mut self, bytes: u64) -> Vec<V> {
        let mut left = Vec::new();
        while self.bytes() + bytes > self.bytes_max() {
            let Some(evicted) = self.evict() else { break };
            left.push(evicted);
        }
        left
    }
}
