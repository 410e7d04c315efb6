//! What became of each request of a list: how many, how fast, how many failed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ground::window::{Finished, Histogram, Outcome};
use serde::Serialize;

use super::quantiles::{Quantiles, time};

/// The most requests of a list that are counted each; the others together. A histogram is some kilobytes.
const LISTED_MAX: usize = 200;
/// What the others are called.
const OTHERS: &str = "other requests";

/// The accounts of listed requests, by their number in the list.
#[derive(Clone, Debug, Default)]
pub(super) struct ListedAccounts {
    each: BTreeMap<u32, ListedAccount>,
}

#[derive(Clone, Debug, Default)]
struct ListedAccount {
    label: String,
    completions: u64,
    errors: u64,
    /// Response times of replies without an error.
    response: Histogram,
}

impl ListedAccounts {
    /// Counts a reply, or an error, of the request with this number.
    pub fn add(&mut self, number: u32, label: &str, finished: &Finished) {
        let (number, label) = match number as usize >= LISTED_MAX {
            true => (LISTED_MAX as u32, OTHERS),
            false => (number, label),
        };
        let account = self.each.entry(number).or_insert_with(|| ListedAccount {
            label: label.to_owned(),
            ..ListedAccount::default()
        });
        account.completions += 1;
        match finished.outcome {
            Outcome::Error => account.errors += 1,
            _ => account.response.record(finished.response),
        }
    }

    /// Adds what another thread counted.
    pub fn merge(&mut self, other: &ListedAccounts) {
        for (number, theirs) in &other.each {
            let ours = self.each.entry(*number).or_default();
            ours.label.clone_from(&theirs.label);
            ours.completions += theirs.completions;
            ours.errors += theirs.errors;
            ours.response.merge(&theirs.response);
        }
    }

    /// In the order of the list.
    pub fn summaries(&self) -> Vec<ListedSummary> {
        let one = |account: &ListedAccount| ListedSummary {
            request: account.label.clone(),
            completions: account.completions,
            errors: account.errors,
            response_ms: Quantiles::from_histogram(&account.response),
        };
        self.each.values().map(one).collect()
    }
}

/// The result of one request of a list in a step ([`super::StepSummary::requests`]).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListedSummary {
    /// Its name, or its method and path.
    pub request: String,
    /// Replies and timeouts.
    pub completions: u64,
    /// Completions that were errors of any kind.
    pub errors: u64,
    /// Response time of the others, from the intended send time.
    pub response_ms: Quantiles,
}

/// The requests of a step as a table, the text of messages about it.
pub(super) fn table(step: usize, all: &[ListedSummary]) -> String {
    let mut out = String::new();
    let width = all.iter().map(|one| one.request.chars().count()).max().unwrap_or(0).max(7);
    let head = ["done", "errors", "mean", "p50", "p99"];
    let head = head.map(|name| format!("{name:>10}")).concat();
    let _ = writeln!(out, "step {step}, by request (ms):\n  {:<width$}{head}", "");
    for one in all {
        let ListedSummary { request, completions, errors, response_ms } = one;
        let times = [response_ms.mean, response_ms.p50, response_ms.p99];
        let times = times.map(|ms| format!("{:>10}", time(ms))).concat();
        let _ = writeln!(out, "  {request:<width$}{completions:>10}{errors:>10}{times}");
    }
    out
}

#[cfg(test)]
mod tests {
    use ground::window::Operation;

    use super::*;

    fn finished(ms: u64, outcome: Outcome) -> Finished {
        let (waiting, service, response) = (0, ms * 1_000_000, ms * 1_000_000);
        Finished { operation: Operation::Get, outcome, waiting, service, response, bytes: 1 }
    }

    #[test]
    fn each_request_is_counted_and_the_rest_together() {
        let (mut one, mut other) = (ListedAccounts::default(), ListedAccounts::default());
        for ms in 1..=100 {
            one.add(0, "GET /a", &finished(ms, Outcome::Unknown));
        }
        one.add(1, "POST /b", &finished(5, Outcome::Error));
        other.add(1, "POST /b", &finished(7, Outcome::Unknown));
        (0..3u32).for_each(|more| other.add(5_000 + more, "GET /c", &finished(9, Outcome::Miss)));
        one.merge(&other);
        let all = one.summaries();
        let counts: Vec<(&str, u64, u64)> =
            all.iter().map(|s| (s.request.as_str(), s.completions, s.errors)).collect();
        assert_eq!(counts, [("GET /a", 100, 0), ("POST /b", 2, 1), (OTHERS, 3, 0)]);
        assert!(
            (all[0].response_ms.p50 - 50.0).abs() < 1.0
                && (all[0].response_ms.p99 - 99.0).abs() < 1.0
        );
        assert!((all[1].response_ms.mean - 7.0).abs() < 0.1, "errors have no time here");
        let text = table(2, &all);
        assert!(text.starts_with("step 2, by request") && text.lines().count() == 5, "{text}");
    }
}
