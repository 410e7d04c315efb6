//! Judges histories: after an acknowledged write no later read returns an older version.

use std::collections::HashMap;

/// What a read answered: a version, or that the key does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    Version(u64),
    Nothing,
}

/// One key's writes as the origin ordered them, and what was acknowledged when.
#[derive(Default)]
struct Writes {
    /// Whether the version of this number (from 1) deletes.
    deletes: Vec<bool>,
    /// Times of acknowledgement in order, with the highest version acknowledged by then.
    acknowledged: Vec<(u64, u64)>,
}

/// Collects a history and judges each read as it ends.
#[derive(Default)]
pub struct Checker {
    keys: HashMap<u32, Writes>,
    pub reads: u64,
}

impl Checker {
    /// The origin took a write; gives its version.
    pub fn written(&mut self, key: u32, delete: bool) -> u64 {
        let writes = self.keys.entry(key).or_default();
        writes.deletes.push(delete);
        writes.deletes.len() as u64
    }

    pub fn acknowledged(&mut self, key: u32, version: u64, at: u64) {
        let acknowledged = &mut self.keys.entry(key).or_default().acknowledged;
        let highest = acknowledged.last().map_or(version, |(_, before)| version.max(*before));
        acknowledged.push((at, highest));
    }

    /// Judges a read that began at `began`.
    pub fn read(&mut self, key: u32, began: u64, seen: Seen) -> Result<(), String> {
        self.reads += 1;
        let none = Writes::default();
        let writes = self.keys.get(&key).unwrap_or(&none);
        let before = writes.acknowledged.partition_point(|(at, _)| *at <= began);
        let floor = before.checked_sub(1).map_or(0, |last| writes.acknowledged[last].1);
        let allowed = match seen {
            Seen::Version(version) => {
                version >= floor.max(1)
                    && writes.deletes.get(version as usize - 1).is_some_and(|deletes| !deletes)
            }
            Seen::Nothing => {
                floor == 0
                    || (floor..=writes.deletes.len() as u64)
                        .any(|version| writes.deletes[version as usize - 1])
            }
        };
        if allowed {
            return Ok(());
        }
        Err(format!(
            "key {key}: a read that began at {began} saw {seen:?}, but version {floor} was acknowledged before"
        ))
    }
}
