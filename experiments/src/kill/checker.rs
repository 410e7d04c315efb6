//! Checks a history: whether each read returned a version that the consistency guarantee allows.
//!
//! Each key has one writer, which numbers its versions. After a PUT or DELETE of version `v` is
//! acknowledged, a read that begins later, through any gateway, must not return a version before
//! `v`. A returned version must have been written, and its write must have begun before the read
//! ended. A write that was refused or interrupted may take effect at any time before the key's next
//! acknowledged write, or never. A read that returned no bytes, or no object, is matched with the
//! most favourable of the versions that are empty, or deletions.
//!
//! Cost: O(n log n) in the number of operations.

use std::collections::BTreeMap;

use ground::window::Nanos;
use serde::Serialize;

use super::history::{Action, Content, Operation, Place, Read, ReadResult, Written};

/// A kind of violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Bytes that are not a version of the key.
    WrongBytes,
    /// A version that was not written yet, or a missing object although none was deleted.
    NeverWritten,
    /// An acknowledged version, older than one that was acknowledged before the read began.
    Stale,
    /// Likewise, but the write of the returned version was never acknowledged: it took effect too
    /// late, or a copy of it was kept.
    Resurfaced,
    /// The origin alone returned a version older than the last acknowledged one.
    Lost,
}

/// A read whose result violates the guarantee.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The kind of violation.
    pub kind: Kind,
    /// Index of the operation in the history.
    pub operation: usize,
    /// The oldest version that the read was allowed to return.
    pub floor: u32,
}

/// The result of checking a history.
#[derive(Debug, Default)]
pub struct Verdict {
    /// All violations.
    pub violations: Vec<Violation>,
    /// Number of reads with a result, all of which were checked.
    pub reads: u64,
    /// Acknowledged writes.
    pub acknowledged: u64,
    /// Those of them that were checked: a read that began after the acknowledgement was answered before
    /// the key's next write began, or is of the last write.
    pub checked: u64,
    /// Reads that showed an older version than an earlier read had, though no acknowledgement lay
    /// between: allowed while a write is under way, and counted.
    pub regressions: u64,
}

/// A write of the key.
struct Write {
    began: Nanos,
    content: Content,
    acknowledged: bool,
}

/// The writes of a key: index `v − 1` is version `v`.
#[derive(Default)]
struct Writes {
    all: Vec<Write>,
    /// Ends of acknowledged writes in order, with the highest version acknowledged by then.
    acknowledged: Vec<(Nanos, u32)>,
}

/// Checks a history. Its operations may be in any order.
///
/// # Errors
/// If the history is invalid: the versions of a key are not 1, 2, 3 …
pub fn judge(history: &[Operation]) -> Result<Verdict, String> {
    let mut keys: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (index, operation) in history.iter().enumerate() {
        keys.entry(operation.key).or_default().push(index);
    }
    let mut verdict = Verdict::default();
    for (key, indices) in keys {
        let writes = Writes::from_operations(indices.iter().filter_map(|i| history.get(*i)))
            .map_err(|what| format!("key {key}: {what}"))?;
        let (acknowledged, checked) = writes.checked(&indices, history);
        verdict.acknowledged += acknowledged;
        verdict.checked += checked;
        let mut judged: Vec<(Nanos, Nanos, u32)> = Vec::new();
        for &index in &indices {
            let Some(operation) = history.get(index) else { continue };
            let Action::Read(read) = operation.action else { continue };
            let seen = match read {
                Read::Saw(seen) => seen,
                Read::Wrong => {
                    let violation =
                        Violation { kind: Kind::WrongBytes, operation: index, floor: 0 };
                    verdict.violations.push(violation);
                    verdict.reads += 1;
                    continue;
                }
                Read::Refused(_) | Read::Failed => continue,
            };
            verdict.reads += 1;
            let floor = writes.floor(operation.began);
            let newest = writes.newest(seen, operation.ended);
            if let Some(kind) = writes.fault(newest, floor, operation.place) {
                verdict.violations.push(Violation { kind, operation: index, floor });
            }
            if let ReadResult::Version(version) = seen {
                judged.push((operation.began, operation.ended, version));
            }
        }
        verdict.regressions += regressions(&judged);
    }
    Ok(verdict)
}

impl Writes {
    fn from_operations<'a>(
        operations: impl Iterator<Item = &'a Operation>,
    ) -> Result<Writes, String> {
        let mut versions = BTreeMap::new();
        let mut acknowledged = Vec::new();
        for operation in operations {
            let Action::Write(version, content, written) = operation.action else { continue };
            let is_acknowledged = written == Written::Acknowledged;
            if is_acknowledged {
                acknowledged.push((operation.ended, version));
            }
            let write = Write { began: operation.began, content, acknowledged: is_acknowledged };
            if versions.insert(version, write).is_some() {
                return Err(format!("version {version} was written twice"));
            }
        }
        if versions.keys().copied().ne(1..=versions.len() as u32) {
            return Err("its versions are not 1, 2, 3 …".to_owned());
        }
        acknowledged.sort_unstable();
        let mut highest = 0;
        for (_, version) in &mut acknowledged {
            highest = highest.max(*version);
            *version = highest;
        }
        Ok(Writes { all: versions.into_values().collect(), acknowledged })
    }

    /// The oldest version that a read which began at this time may return.
    fn floor(&self, began: Nanos) -> u32 {
        let before = self.acknowledged.partition_point(|(ended, _)| *ended < began);
        before.checked_sub(1).and_then(|last| self.acknowledged.get(last)).map_or(0, |(_, v)| *v)
    }

    /// Acknowledged writes, and how many of them a read can have found missing.
    fn checked(&self, indices: &[usize], history: &[Operation]) -> (u64, u64) {
        let mut reads: Vec<(Nanos, Nanos)> = indices
            .iter()
            .filter_map(|index| history.get(*index))
            .filter(|operation| operation.is_answered_read())
            .map(|read| (read.began, read.ended))
            .collect();
        reads.sort_unstable();
        let is_checked = |(ended, version): &&(Nanos, u32)| {
            let next = self.version(*version + 1).map_or(Nanos::MAX, |write| write.began);
            let first = reads.partition_point(|(began, _)| began <= ended);
            reads[first..]
                .iter()
                .take_while(|(began, _)| *began < next)
                .any(|(_, end)| *end <= next)
        };
        let checked = self.acknowledged.iter().filter(is_checked).count();
        (self.acknowledged.len() as u64, checked as u64)
    }

    fn version(&self, version: u32) -> Option<&Write> {
        (version as usize).checked_sub(1).and_then(|index| self.all.get(index))
    }

    /// The newest version that a read which ended at this time can have returned; 0 stands for the
    /// key before its first write.
    fn newest(&self, seen: ReadResult, ended: Nanos) -> Option<u32> {
        let latest = |content: Content| {
            let is_so = |write: &Write| write.content == content && write.began < ended;
            self.all.iter().rposition(is_so).map(|index| index as u32 + 1)
        };
        match seen {
            ReadResult::Version(version) => self
                .version(version)
                .filter(|write| write.content == Content::Bytes && write.began < ended)
                .map(|_| version),
            ReadResult::Empty => latest(Content::Empty),
            ReadResult::Nothing => Some(latest(Content::Deleted).unwrap_or(0)),
        }
    }

    fn fault(&self, newest: Option<u32>, floor: u32, place: Place) -> Option<Kind> {
        let Some(newest) = newest else { return Some(Kind::NeverWritten) };
        if newest >= floor {
            return None;
        }
        Some(match self.version(newest) {
            _ if place == Place::Origin => Kind::Lost,
            Some(write) if !write.acknowledged => Kind::Resurfaced,
            _ => Kind::Stale,
        })
    }
}

/// The number of reads (begin, end, version) of a key that returned an older version than a read
/// which had ended before they began.
fn regressions(reads: &[(Nanos, Nanos, u32)]) -> u64 {
    let mut ends: Vec<(Nanos, u32)> = reads.iter().map(|(_, ended, v)| (*ended, *v)).collect();
    ends.sort_unstable();
    let mut highest = 0;
    for (_, version) in &mut ends {
        highest = highest.max(*version);
        *version = highest;
    }
    let older = |began: Nanos, version: u32| {
        let before = ends.partition_point(|(ended, _)| *ended < began);
        before.checked_sub(1).and_then(|last| ends.get(last)).is_some_and(|(_, v)| version < *v)
    };
    reads.iter().filter(|(began, _, version)| older(*began, *version)).count() as u64
}
