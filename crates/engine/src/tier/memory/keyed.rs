//! Values that know their keys.

use ground::Key;

/// A value that has its key, so that the tier keeps no copy of it.
pub trait Keyed {
    /// The key, which stays the same.
    fn key(&self) -> &[u8];
}

/// A value of any type beside its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithKey<V> {
    /// The key.
    pub key: Key,
    /// The value.
    pub value: V,
}

impl<V> Keyed for WithKey<V> {
    fn key(&self) -> &[u8] {
        &self.key
    }
}
