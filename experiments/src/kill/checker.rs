//! Judges a history: what a client may have been shown, given what was acknowledged before.
//!
//! Each key has one writer, which counts its versions. After a PUT or DELETE of version `v` was
//! acknowledged no read that begins later, through whichever gateway, may show a version before
//! `v`; what it shows must have been written, and not later than the read ended. A write that was
//! refused or broke off may take effect at any time before the key's next acknowledged one, or
//! never. A read that shows no bytes, or no object, may be of any version that is so: the most
//! favourable counts.
//!
//! Cost: O(n log n) in the number of operations.

use std::collections::BTreeMap;

use model::window::Nanos;
use serde::Serialize;

use super::history::{Action, Content, Operation, Place, Read, Seen, Written};

/// What must not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Bytes that are not a version of the key.
    WrongBytes,
    /// A version that nobody had written yet, or nothing where nothing was deleted.
    NeverWritten,
    /// An acknowledged version older than another acknowledged before.
    Stale,
    /// The same of a version whose own write was never acknowledged: it took effect too late, or
    /// was kept.
    Resurfaced,
    /// The origin alone shows something older than what was acknowledged last.
    Lost,
}

/// A read that must not have been answered so.
#[derive(Clone, Debug)]
pub struct Violation {
    /// What is wrong with it.
    pub kind: Kind,
    /// Which operation of the history it is.
    pub operation: usize,
    /// The version that had to be seen at least.
    pub floor: u32,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Verdict {
    /// All that must not be.
    pub violations: Vec<Violation>,
    /// Reads with an answer that were judged.
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

/// Judges a history, in whatever order.
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
        let writes = Writes::of(indices.iter().filter_map(|i| history.get(*i)))
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
            if let Seen::Version(version) = seen {
                judged.push((operation.began, operation.ended, version));
            }
        }
        verdict.regressions += regressions(&judged);
    }
    Ok(verdict)
}

impl Writes {
    fn of<'a>(operations: impl Iterator<Item = &'a Operation>) -> Result<Writes, String> {
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

    /// The version that a read must show at least that began then.
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

    /// The newest version that can have been seen by a read that ended then; 0 is the key before
    /// all.
    fn newest(&self, seen: Seen, ended: Nanos) -> Option<u32> {
        let latest = |content: Content| {
            let is_so = |write: &Write| write.content == content && write.began < ended;
            self.all.iter().rposition(is_so).map(|index| index as u32 + 1)
        };
        match seen {
            Seen::Version(version) => self
                .version(version)
                .filter(|write| write.content == Content::Bytes && write.began < ended)
                .map(|_| version),
            Seen::Empty => latest(Content::Empty),
            Seen::Nothing => Some(latest(Content::Deleted).unwrap_or(0)),
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

/// Reads (began, ended, version) of a key that show less than one that had ended before.
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
