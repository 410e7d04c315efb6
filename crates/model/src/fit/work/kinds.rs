//! Works by what a request did and how large its object is.

use serde::{Deserialize, Serialize};

use crate::statistics::student_95;
use crate::window::Operation;

use super::search::Search;

/// A class of sizes has a factor of so much.
const FACTOR: f64 = 4.0;
/// The fewest requests of a kind that is listed, and the most kinds.
const REQUESTS: f64 = 50.0;
const KINDS: usize = 24;

/// The works of the requests of one operation and class of sizes, under the likeliest hypothesis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkKind {
    /// What they did.
    pub operation: Operation,
    /// The smallest and the largest object, bytes; 0 if sizes are not known.
    pub bytes: (u64, u64),
    /// How many.
    pub requests: u64,
    /// Their share of all.
    pub share: f64,
    /// Mean work, seconds.
    pub mean_s: f64,
    /// Half of its 95 % interval.
    pub half_width_s: f64,
    /// Its SCV.
    pub scv: f64,
}

#[derive(Clone, Copy, Debug)]
struct Sums {
    low: u64,
    high: u64,
    n: f64,
    work: f64,
    square: f64,
}

/// The kinds, the most requests first.
pub(super) fn kinds(found: &Search) -> Vec<WorkKind> {
    let class = |bytes: u64| ((bytes.max(1) as f64).ln() / FACTOR.ln()).floor() as u32;
    let mut all: std::collections::BTreeMap<(&'static str, u32), (Operation, Sums)> =
        std::collections::BTreeMap::new();
    let mut total = 0.0;
    for line in &found.lines {
        let works = line.works(found.best.kind, found.best.outside);
        for ((work, what), _) in works.iter().zip(&line.what).zip(&line.counted).filter(|r| *r.1) {
            let (operation, bytes) = *what;
            let none = Sums { low: bytes, high: bytes, n: 0.0, work: 0.0, square: 0.0 };
            let of = all.entry((operation.as_str(), class(bytes))).or_insert((operation, none));
            let sums = &mut of.1;
            (sums.low, sums.high) = (sums.low.min(bytes), sums.high.max(bytes));
            (sums.n, sums.work) = (sums.n + 1.0, sums.work + work);
            sums.square += work * work;
            total += 1.0;
        }
    }
    let of = |(operation, s): (Operation, Sums)| {
        let mean_s = s.work / s.n;
        let variance = (s.square / s.n - mean_s * mean_s).max(0.0);
        WorkKind {
            operation,
            bytes: (s.low, s.high),
            requests: s.n as u64,
            share: s.n / f64::max(total, 1.0),
            mean_s,
            half_width_s: student_95(s.n as usize - 1) * (variance / s.n).sqrt(),
            scv: variance / (mean_s * mean_s).max(f64::MIN_POSITIVE),
        }
    };
    let mut kinds: Vec<WorkKind> =
        all.into_values().filter(|(_, s)| s.n >= REQUESTS).map(of).collect();
    kinds.sort_by_key(|kind| std::cmp::Reverse(kind.requests));
    kinds.truncate(KINDS);
    kinds
}

/// The kinds whose works differ most, in a sentence, if they do by more than a half and chance.
pub(super) fn warning(kinds: &[WorkKind]) -> Option<String> {
    let by = |a: &&WorkKind, b: &&WorkKind| a.mean_s.total_cmp(&b.mean_s);
    let (least, most) = (kinds.iter().min_by(by)?, kinds.iter().max_by(by)?);
    let apart = most.mean_s - least.mean_s - most.half_width_s - least.half_width_s;
    let common = least.share.min(most.share) >= 0.02;
    (common && apart > 0.5 * least.mean_s).then(|| {
        format!(
            "The work depends on what is asked: {} {:.3} ms, {} {:.3} ms in the mean. Predictions are of the \
             same mix.",
            least.title(),
            1e3 * least.mean_s,
            most.title(),
            1e3 * most.mean_s
        )
    })
}

impl WorkKind {
    /// In words: `get of 2048 to 8191 bytes`.
    pub fn title(&self) -> String {
        match self.bytes {
            (0, 0) => self.operation.as_str().to_owned(),
            (low, high) => format!("{} of {low} to {high} bytes", self.operation.as_str()),
        }
    }
}
