//! Judges histories: after an acknowledged write no later read returns an older version, the bytes
//! that a read returns were written for that key, and acknowledged writes are in the origin.
//!
//! Writes are numbered by their clients, per key in the order in which they began, and never by the
//! origin: a write whose client gave up and which lands after a later write was acknowledged must
//! not count as the newer one. A read (or the origin at the end) may show a write `v` only if both
//! rules hold for every write `w` that was acknowledged before the read began:
//!
//! - **Clients' order.** The client of `v` did not stop waiting for `v` before `w` began. So a
//!   client that gave up on a write and wrote again never sees the older write come back.
//! - **The origin's order.** `v` landed in the origin no earlier than `w`. This orders overlapping
//!   writes, for which the clients' order says nothing.
//!
//! Otherwise a write whose client got no result may have happened or not. Reads that overlap a
//! write may return either version. Times are those of one clock that all clients share.

use std::collections::HashMap;
use std::fmt;

use ground::window::Nanos;

/// A key's number.
pub type KeyNumber = u32;

/// Number of a write of a key, from 1 in the order in which clients began them.
pub type Version = u32;

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadResult {
    /// The object of a version, as written for a key.
    Version {
        /// The key for which the bytes were written.
        key: KeyNumber,
        /// The version.
        version: Version,
        /// The number of bytes.
        bytes: u64,
    },
    /// The key does not exist.
    Nothing,
}

/// A promise that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes that are not a version of the key.
    WrongBytes,
    /// A version that the origin never had, or nothing although nothing was deleted.
    NeverWritten,
    /// A version older than one acknowledged before the read.
    Stale,
    /// As [`Kind::Stale`], but the returned version was never acknowledged: it landed after its
    /// client had given up and written again.
    Resurfaced,
    /// The origin holds neither the version acknowledged last nor a newer one.
    Lost,
}

/// A read, an acknowledgement or a final state of the origin that breaks a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The promise.
    pub kind: Kind,
    /// The key.
    pub key: KeyNumber,
    /// When the read began or the write was acknowledged.
    pub began: Nanos,
    /// When it ended.
    pub ended: Nanos,
    /// A description.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { kind, key, began, ended, what } = self;
        write!(f, "{kind:?}: key {key}, from {began} to {ended}: {what}")
    }
}

/// One write of a key.
#[derive(Clone, Copy)]
struct Write {
    /// Bytes of the object; `None` for a deletion.
    bytes: Option<u64>,
    began: Nanos,
    /// When its client stopped waiting, with or without an acknowledgement.
    ended: Option<Nanos>,
    acknowledged: bool,
    /// Positions of its first and last landing in the origin's order, from 1; 0 if it has not
    /// landed.
    landed: (u32, u32),
}

/// The requirements on later reads of the writes acknowledged by a time: the maximum of each.
#[derive(Clone, Copy, Default)]
struct Floor {
    acknowledged: Nanos,
    /// When the last of them began.
    began: Nanos,
    /// Position of the last of them in the origin's order.
    landed: u32,
    /// The version that set one of the two values, for messages.
    version: Version,
}

/// One key's writes.
#[derive(Default)]
struct Writes {
    all: Vec<Write>,
    landings: u32,
    deletions: Vec<Version>,
    /// In the order of the acknowledgements' times.
    floors: Vec<Floor>,
}

impl Writes {
    fn get(&self, version: Version) -> Option<&Write> {
        self.all.get((version as usize).checked_sub(1)?)
    }

    fn get_mut(&mut self, version: Version) -> Option<&mut Write> {
        self.all.get_mut((version as usize).checked_sub(1)?)
    }

    /// The requirements on a read that began at a time.
    fn floor(&self, began: Nanos) -> Floor {
        let before = self.floors.partition_point(|floor| floor.acknowledged < began);
        before.checked_sub(1).map_or(Floor::default(), |last| self.floors[last])
    }
}

impl Write {
    /// Whether a read may return this write. The module's head has the two rules.
    fn is_allowed(&self, floor: &Floor) -> bool {
        let given_up_before = self.ended.is_some_and(|ended| ended < floor.began);
        !given_up_before && self.landed.1 >= floor.landed
    }
}

/// Receives a history as it happens and judges each read as it ends. Events must be passed in order
/// of time. A read costs a binary search.
#[derive(Default)]
pub struct Checker {
    keys: HashMap<KeyNumber, Writes>,
    /// Reads judged.
    pub reads: u64,
    /// Writes acknowledged.
    pub acknowledgements: u64,
}

impl Checker {
    /// A client begins to write a number of bytes, or (`None`) to delete; returns the write's
    /// version.
    pub fn begin(&mut self, key: KeyNumber, bytes: Option<u64>, at: Nanos) -> Version {
        let writes = self.keys.entry(key).or_default();
        let write = Write { bytes, began: at, ended: None, acknowledged: false, landed: (0, 0) };
        writes.all.push(write);
        let version = writes.all.len() as Version;
        if bytes.is_none() {
            writes.deletions.push(version);
        }
        version
    }

    /// A write took effect in the origin, perhaps repeatedly, since a put may be sent more than
    /// once.
    pub fn landed(&mut self, key: KeyNumber, version: Version) {
        let writes = self.keys.entry(key).or_default();
        writes.landings += 1;
        let place = writes.landings;
        if let Some(write) = writes.get_mut(version) {
            let first = if write.landed.0 == 0 { place } else { write.landed.0 };
            write.landed = (first, place);
        }
    }

    /// A client's write was reported as failed, or the client stopped waiting.
    pub fn given_up(&mut self, key: KeyNumber, version: Version, at: Nanos) {
        if let Some(write) = self.keys.entry(key).or_default().get_mut(version) {
            write.ended.get_or_insert(at);
        }
    }

    /// A client's write was acknowledged.
    ///
    /// # Errors
    /// If the origin never had that version.
    pub fn acknowledged(
        &mut self,
        key: KeyNumber,
        version: Version,
        at: Nanos,
    ) -> Result<(), Violation> {
        self.acknowledgements += 1;
        let writes = self.keys.entry(key).or_default();
        let last = writes.floors.last().copied().unwrap_or_default();
        let Some(write) = writes.get_mut(version).filter(|write| write.landed.0 > 0) else {
            let what = format!("version {version} was acknowledged, which the origin never had");
            return Err(Violation { kind: Kind::Lost, key, began: at, ended: at, what });
        };
        write.ended.get_or_insert(at);
        write.acknowledged = true;
        let raises = write.began > last.began || write.landed.0 > last.landed;
        let floor = Floor {
            acknowledged: at,
            began: last.began.max(write.began),
            landed: last.landed.max(write.landed.0),
            version: if raises { version } else { last.version },
        };
        writes.floors.push(floor);
        Ok(())
    }

    /// The last version before a given one that is not a deletion, with its number of bytes: what a
    /// stale peer would send.
    pub(super) fn before(
        &self,
        key: KeyNumber,
        version: Version,
    ) -> Option<(KeyNumber, Version, u64)> {
        let writes = self.keys.get(&key)?;
        (1..version).rev().find_map(|older| {
            let write = writes.get(older).filter(|write| write.landed.0 > 0)?;
            Some((key, older, write.bytes?))
        })
    }

    /// Judges a read that began at `began` and ended now.
    ///
    /// # Errors
    /// If the read must not return this result.
    pub fn read(
        &mut self,
        key: KeyNumber,
        began: Nanos,
        ended: Nanos,
        seen: ReadResult,
    ) -> Result<(), Violation> {
        self.reads += 1;
        match self.fault(key, began, seen) {
            Some((kind, what)) => Err(Violation { kind, key, began, ended, what }),
            None => Ok(()),
        }
    }

    /// The promise that a read breaks which began at a time and returned this result, with a
    /// description; `None` if it breaks none.
    fn fault(&self, key: KeyNumber, began: Nanos, seen: ReadResult) -> Option<(Kind, String)> {
        let none = Writes::default();
        let writes = self.keys.get(&key).unwrap_or(&none);
        let floor = writes.floor(began);
        let (version, write) = match seen {
            ReadResult::Version { key: of, .. } if of != key => {
                return Some((Kind::WrongBytes, format!("the bytes are those of key {of}")));
            }
            ReadResult::Version { version, bytes, .. } => match writes.get(version) {
                Some(write) if write.bytes != Some(bytes) => {
                    let written = write.bytes;
                    let what =
                        format!("version {version} has {bytes} bytes, written were {written:?}");
                    return Some((Kind::WrongBytes, what));
                }
                Some(write) if write.landed.0 > 0 => (version, write),
                Some(_) | None => {
                    let what = format!("version {version} was never in the origin");
                    return Some((Kind::NeverWritten, what));
                }
            },
            // Any deletion explains the result: takes the last allowed deletion, or else the one
            // that landed last, which the origin shows.
            ReadResult::Nothing => {
                let landed = |version: &Version| {
                    let write = writes.get(*version).filter(|write| write.landed.0 > 0);
                    write.map(|write| (*version, write))
                };
                let mut deletions = writes.deletions.iter().rev().filter_map(landed);
                let last = deletions.clone().max_by_key(|(_, write)| write.landed.1);
                match deletions.find(|(_, write)| write.is_allowed(&floor)).or(last) {
                    Some(found) => found,
                    None if writes.landings == 0 => return None,
                    None => {
                        let what = "nothing was found, but nothing was deleted".to_owned();
                        return Some((Kind::NeverWritten, what));
                    }
                }
            }
        };
        if write.is_allowed(&floor) {
            return None;
        }
        let kind = if write.acknowledged { Kind::Stale } else { Kind::Resurfaced };
        let floor = floor.version;
        let what =
            format!("{seen:?} was read, of write {version}; {floor} was acknowledged before");
        Some((kind, what))
    }

    /// Judges the origin's final content of a key as a read that begins now.
    ///
    /// # Errors
    /// If it is older than the version acknowledged last.
    pub fn at_the_end(
        &self,
        key: KeyNumber,
        now: Nanos,
        holds: ReadResult,
    ) -> Result<(), Violation> {
        let Some((found, what)) = self.fault(key, now, holds) else { return Ok(()) };
        let what = format!("the origin holds something older at the end ({found:?}): {what}");
        Err(Violation { kind: Kind::Lost, key, began: now, ended: now, what })
    }
}

#[cfg(test)]
mod tests;
