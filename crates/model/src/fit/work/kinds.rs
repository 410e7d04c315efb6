//! Works by what a request did and how large its object is.

use std::collections::BTreeMap;

use crate::distribution::{Empirical, ServiceTime};
use crate::model_file::{Law, Parameter, RequestKind, SAME_MIX, size_class};
use crate::statistics::student_95;
use ground::window::{Histogram, Operation};

use super::search::Search;

/// The fewest requests of a kind that is listed, and the most kinds.
const REQUESTS: u64 = 50;
const KINDS: usize = 24;

#[derive(Clone, Debug)]
struct Works {
    operation: Operation,
    low: u64,
    high: u64,
    times: Histogram,
}

/// The kinds under the likeliest hypothesis, the most requests first. `blur` is the variance of works that is not the
/// service's (s²), `shift` the factor of all means.
pub(super) fn kinds(found: &Search, blur: f64, shift: f64) -> Vec<RequestKind> {
    let mut all: BTreeMap<(&'static str, u32), Works> = BTreeMap::new();
    for line in &found.lines {
        let works = line.works(found.best.kind, found.best.outside);
        for ((work, what), _) in works.iter().zip(&line.what).zip(&line.counted).filter(|r| *r.1) {
            let (operation, bytes) = *what;
            let none = Works { operation, low: bytes, high: bytes, times: Histogram::default() };
            let of = all.entry((operation.as_str(), size_class(bytes))).or_insert(none);
            (of.low, of.high) = (of.low.min(bytes), of.high.max(bytes));
            of.times.record(((work * 1e9) as u64).max(1));
        }
    }
    let mut all: Vec<Works> = all.into_values().filter(|of| of.times.count() >= REQUESTS).collect();
    all.sort_by_key(|of| std::cmp::Reverse(of.times.count()));
    all.truncate(KINDS);
    let total: u64 = all.iter().map(|of| of.times.count()).sum();
    let kinds: Vec<RequestKind> = all.iter().filter_map(|of| of.kind(total, blur, shift)).collect();
    // One kind alone has the law of all.
    if kinds.len() > 1 { kinds } else { Vec::new() }
}

impl Works {
    /// `None` if all works are 0.
    fn kind(&self, total: u64, blur: f64, shift: f64) -> Option<RequestKind> {
        let law = Empirical::from_histogram(&self.times).ok()?;
        let (n, mean) = (self.times.count(), law.mean());
        let variance = law.scv() * mean * mean;
        let scv = (variance - blur).max(0.0) / (mean * mean);
        let half = shift * student_95(n as usize - 1) * (variance / n as f64).sqrt();
        let value = shift * mean;
        let about =
            Parameter { value, low: value - half, high: value + half, unit: "s".to_owned() };
        let law = law.with_moments(mean, scv).ok()?;
        Some(RequestKind {
            operation: self.operation,
            bytes: [self.low, self.high],
            share: n as f64 / total as f64,
            work: Law::new(&law, about, Parameter::exact(law.scv(), "1")),
        })
    }
}

/// The kinds whose works differ most, in a sentence, if they do by more than a half and chance.
pub(super) fn warning(kinds: &[RequestKind]) -> Option<String> {
    let mean = |kind: &RequestKind| kind.work.mean.value;
    let by = |a: &&RequestKind, b: &&RequestKind| mean(a).total_cmp(&mean(b));
    let (least, most) = (kinds.iter().min_by(by)?, kinds.iter().max_by(by)?);
    let apart = most.work.mean.low - least.work.mean.high;
    let common = least.share.min(most.share) >= 0.02;
    (common && apart > 0.5 * mean(least)).then(|| {
        format!(
            "The work depends on what is asked: {} {:.3} ms, {} {:.3} ms in the mean. {SAME_MIX}; `predict --mix` predicts \
             another one.",
            least.title(),
            1e3 * mean(least),
            most.title(),
            1e3 * mean(most)
        )
    })
}
