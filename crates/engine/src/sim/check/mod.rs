//! Judges histories: after an acknowledged write no later read returns an older version, what is read
//! was written for that key, and what was acknowledged is in the origin.
//!
//! The order of a key's writes is the origin's: version 1, 2 … as they took effect there. A write whose
//! client was not told what became of it may have happened or not, and at any time after it began.
//! Reads that overlap a write may return either; two such reads may disagree in either order as long
//! as the write is not acknowledged. Times are those of one clock that all clients share.
//!
//! The history of a simulation and one that was gathered from real clients are judged alike; of the
//! latter the caller must know the order in which the origin took the writes.

use std::collections::HashMap;
use std::fmt;

use model::window::Nanos;

/// A key's number.
pub type KeyNumber = u32;

/// Number of a version in the origin's order, from 1.
pub type Version = u32;

/// What a read answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Bytes that were written for a key as a version.
    Version {
        /// For which key.
        key: KeyNumber,
        /// Which version of it.
        version: Version,
        /// How many bytes.
        bytes: u64,
    },
    /// That the key does not exist.
    Nothing,
}

/// A read or an acknowledgement that should not have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Of which key.
    pub key: KeyNumber,
    /// When the read began or the write was acknowledged.
    pub began: Nanos,
    /// When that ended.
    pub ended: Nanos,
    /// What is wrong, in words.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { key, began, ended, what } = self;
        write!(f, "key {key}, from {began} to {ended}: {what}")
    }
}

/// One version.
#[derive(Clone, Copy)]
struct Write {
    /// Bytes of the object; `None`: it deletes.
    bytes: Option<u64>,
}

/// One key's writes as the origin ordered them, and what was acknowledged when.
#[derive(Default)]
struct Writes {
    versions: Vec<Write>,
    /// Times of acknowledgement in order, with the highest version acknowledged by then.
    acknowledged: Vec<(Nanos, Version)>,
}

impl Writes {
    fn get(&self, version: Version) -> Option<Write> {
        self.versions.get((version as usize).checked_sub(1)?).copied()
    }
}

/// Takes in a history as it happens and judges each read as it ends. Events must be told in order of
/// their times. A read costs a binary search.
#[derive(Default)]
pub struct Checker {
    keys: HashMap<KeyNumber, Writes>,
    /// Reads judged.
    pub reads: u64,
    /// Writes acknowledged.
    pub acknowledgements: u64,
}

impl Checker {
    /// The origin took a write of so many bytes, or (`None`) a deletion; gives its version.
    pub fn written(&mut self, key: KeyNumber, bytes: Option<u64>) -> Version {
        let writes = self.keys.entry(key).or_default();
        writes.versions.push(Write { bytes });
        writes.versions.len() as Version
    }

    /// A client was told that its write is done.
    ///
    /// # Errors
    /// If the origin has no such version.
    pub fn acknowledged(
        &mut self,
        key: KeyNumber,
        version: Version,
        at: Nanos,
    ) -> Result<(), Violation> {
        self.acknowledgements += 1;
        let writes = self.keys.entry(key).or_default();
        if writes.get(version).is_none() {
            let what = format!("version {version} was acknowledged, which the origin never had");
            return Err(Violation { key, began: at, ended: at, what });
        }
        let highest = writes.acknowledged.last().map_or(version, |last| last.1.max(version));
        writes.acknowledged.push((at, highest));
        Ok(())
    }

    /// The highest version of a key that was acknowledged before a time; 0 if none was.
    fn floor(writes: &Writes, began: Nanos) -> Version {
        let before = writes.acknowledged.partition_point(|(at, _)| *at < began);
        before.checked_sub(1).map_or(0, |last| writes.acknowledged[last].1)
    }

    /// Judges a read that began at `began` and ended now.
    ///
    /// # Errors
    /// If it should not have seen what it saw.
    pub fn read(
        &mut self,
        key: KeyNumber,
        began: Nanos,
        ended: Nanos,
        seen: Seen,
    ) -> Result<(), Violation> {
        self.reads += 1;
        let none = Writes::default();
        let writes = self.keys.get(&key).unwrap_or(&none);
        let floor = Checker::floor(writes, began);
        let wrong = match seen {
            Seen::Version { key: of, .. } if of != key => {
                Some(format!("the bytes are those of key {of}"))
            }
            Seen::Version { version, bytes, .. } => match writes.get(version) {
                None => Some(format!("version {version} was never written")),
                Some(Write { bytes: written }) if written != Some(bytes) => {
                    Some(format!("version {version} has {bytes} bytes, written were {written:?}"))
                }
                Some(_) if version < floor => Some(format!(
                    "version {version} was read, but version {floor} was acknowledged before"
                )),
                Some(_) => None,
            },
            Seen::Nothing => {
                let since = writes.versions.iter().skip((floor as usize).saturating_sub(1));
                let gone = floor == 0 || since.clone().any(|write| write.bytes.is_none());
                (!gone).then(|| {
                    format!("nothing was found, but version {floor} was acknowledged before")
                })
            }
        };
        match wrong {
            Some(what) => Err(Violation { key, began, ended, what }),
            None => Ok(()),
        }
    }

    /// Judges what the origin has when all is over: a key's last version, `None` if it has none.
    ///
    /// # Errors
    /// If what was acknowledged is not there and nothing came after it.
    pub fn at_the_end(
        &self,
        key: KeyNumber,
        now: Nanos,
        last: Option<Version>,
    ) -> Result<(), Violation> {
        let floor = self.keys.get(&key).map_or(0, |writes| Checker::floor(writes, Nanos::MAX));
        if last.unwrap_or(0) >= floor {
            return Ok(());
        }
        let what = format!("version {floor} was acknowledged, but the origin has {last:?}");
        Err(Violation { key, began: now, ended: now, what })
    }
}

#[cfg(test)]
mod tests;
