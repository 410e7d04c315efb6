//! Keys in separate lines.

use std::collections::HashMap;

/// Keys in lines.
#[derive(Clone, Debug, Default)]
pub(super) struct Partition {
    pub lines: u32,
    pub(super) of: HashMap<u32, u32>,
}

impl Partition {
    /// The line of a key; one that never came is anywhere.
    pub fn line(&self, key: u32) -> u32 {
        self.of.get(&key).copied().unwrap_or(key % self.lines.max(1))
    }

    /// Each key with its line.
    pub fn keys(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.of.iter().map(|(key, line)| (*key, *line))
    }
}
