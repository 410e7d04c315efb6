//! The memory tier: keeps objects within a byte budget.
//!
//! S3-FIFO is the policy unless the settings say otherwise, because on recorded requests it missed
//! less than LRU at nearly every size (`docs/decisions/0008-memory-tier.md` has the table). LRU is
//! the policy that the curves of reuse distances and Che's approximation describe.
//!
//! A further policy is a file that implements [`Policy`], with its naive twin, and a line in
//! `policies!` below; the suite in `tests.rs` then compares both.

mod ghosts;
mod keyed;
mod lru;
mod policy;
mod s3_fifo;
mod slots;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use ground::Key;
pub use keyed::{Keyed, WithKey};
use lru::Lru;
use policy::{Policy, ReadIf};
use s3_fifo::S3Fifo;

/// Bytes of an entry in addition to its key and object: its place in the table and the order, counters, metadata.
pub(crate) const ENTRY_OVERHEAD_BYTES: u64 = 72;

/// Makes the settings' enum, the tier and its choice of a policy from one list. A `match` finds the policy, not a
/// `Box<dyn Policy>`, so that a hit is a direct call; everything rarer goes by the trait object.
macro_rules! policies {
    ($($(#[$doc:meta])* $policy:ident,)*) => {
        /// Which objects leave the memory tier first.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Eviction {
            $($(#[$doc])* $policy,)*
        }

        #[cfg(test)]
        const POLICIES: &[Eviction] = &[$(Eviction::$policy),*];

        #[expect(clippy::large_enum_variant, reason = "a node has one; a box would cost each hit a look")]
        enum AnyPolicy<V> {
            $($policy($policy<V>),)*
        }

        impl<V: Keyed> AnyPolicy<V> {
            fn new(eviction: Eviction, bytes_max: u64) -> AnyPolicy<V> {
                match eviction {
                    $(Eviction::$policy => AnyPolicy::$policy($policy::new(bytes_max)),)*
                }
            }

            fn get_if(&mut self, key: &[u8], is: impl FnOnce(&V) -> bool) -> Option<&mut V> {
                match self {
                    $(AnyPolicy::$policy(policy) => policy.get_if(key, is),)*
                }
            }

            fn policy(&self) -> &dyn Policy<V> {
                match self {
                    $(AnyPolicy::$policy(policy) => policy,)*
                }
            }

            fn policy_mut(&mut self) -> &mut dyn Policy<V> {
                match self {
                    $(AnyPolicy::$policy(policy) => policy,)*
                }
            }
        }
    };
}

policies! {
    /// Those that were not read again soon after they came, and then those not read since they were
    /// last looked at: a scan passes through a tenth of the memory.
    #[default]
    S3Fifo,
    /// The least recently used.
    Lru,
}

/// Values by key. Some are evicted when the bytes exceed the budget. Each operation costs one or
/// two hash look-ups.
pub struct Memory<V>(AnyPolicy<V>);

impl<V: Keyed> Memory<V> {
    /// An empty tier of `bytes_max` bytes; 0 holds nothing.
    pub fn new(eviction: Eviction, bytes_max: u64) -> Memory<V> {
        Memory(AnyPolicy::new(eviction, bytes_max))
    }

    /// Bytes held, overhead included.
    pub fn bytes(&self) -> u64 {
        self.0.policy().bytes()
    }

    /// Objects held.
    pub fn len(&self) -> usize {
        self.0.policy().len()
    }

    /// Whether the tier is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a key, which counts as read.
    pub fn get(&mut self, key: &[u8]) -> Option<&mut V> {
        self.0.get_if(key, |_| true)
    }

    /// The value of a key if `is` holds for it; it then counts as read. One look-up, where [`Memory::peek`] and
    /// [`Memory::get`] take two.
    pub fn get_if(&mut self, key: &[u8], is: impl FnOnce(&V) -> bool) -> Option<&mut V> {
        self.0.get_if(key, is)
    }

    /// The value of a key, which does not count as read.
    pub fn peek(&mut self, key: &[u8]) -> Option<&mut V> {
        self.0.policy_mut().peek(key)
    }

    /// Inserts a value that takes `bytes` bytes beside its key, in place of the key's earlier one; returns the values that were
    /// evicted for it, the first first. A value larger than the budget is returned itself.
    pub fn insert(&mut self, value: V, bytes: u64) -> Vec<V> {
        let policy = self.0.policy_mut();
        let bytes = bytes + value.key().len() as u64 + ENTRY_OVERHEAD_BYTES;
        if bytes > policy.bytes_max() {
            // The key's earlier value would be an old one.
            policy.remove(value.key());
            return vec![value];
        }
        let left = policy.insert(value, bytes);
        assert!(policy.bytes() <= policy.bytes_max(), "the memory tier's budget is exceeded");
        left
    }

    /// Maximum bytes.
    pub fn bytes_max(&self) -> u64 {
        self.0.policy().bytes_max()
    }

    /// Changes the maximum bytes; returns the values that were evicted for it, the first first. Cost: that
    /// of their evictions.
    pub fn set_bytes_max(&mut self, bytes_max: u64) -> Vec<V> {
        self.0.policy_mut().set_bytes_max(bytes_max)
    }

    /// Keys in about the order in which they are read most, from a place in this order on, each with its class: 0 for those
    /// that are read more. Looks at `count` elements, of which some may be of keys that have left; the second value says
    /// whether these were the last. Cost: O(`count`), and of LRU O(`from`) more.
    pub fn hottest(&self, from: usize, count: usize) -> (Vec<(Key, u8)>, bool) {
        self.0.policy().hottest(from, count)
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        self.0.policy_mut().clear();
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &[u8]) -> Option<V> {
        self.0.policy_mut().remove(key)
    }
}
