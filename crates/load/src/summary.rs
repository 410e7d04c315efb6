//! The result of a load, derived from the windows of each step and the generator's own counters.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use ground::window::{Histogram, Outcome, Window};
use serde::Serialize;

use super::listed::{self, ListedSummary};
use super::phase::Account;
use super::quantiles::{Quantiles, time};
use record::{Generator, Step};

/// The generator complains if 1 % of the requests were sent later than this.
const LATENESS_US_MAX: f64 = 500.0;
/// The generator complains if it used more than this share of a core for each of its threads.
const CPU_MAX: f64 = 0.9;

/// The result of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// The run folder.
    pub dir: PathBuf,
    /// The fill, if there was one.
    pub fill: Option<Fill>,
    /// The completed steps.
    pub steps: Vec<StepSummary>,
    /// Malformed lines of the trace that were skipped.
    pub broken_lines: u64,
    /// Whether the run was interrupted.
    pub interrupted: bool,
}

/// The result of a fill.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Fill {
    /// The number of distinct keys.
    pub keys: u64,
    /// Keys whose put succeeded.
    pub stored: u64,
    /// Duration in seconds.
    pub seconds: f64,
    /// Errors by message, of puts that failed after all retries.
    pub faults: BTreeMap<String, u64>,
}

/// The result of a step. Times are those of successful requests.
#[derive(Clone, Debug, Serialize)]
pub struct StepSummary {
    /// The step as recorded.
    pub step: Step,
    /// Seconds of arrivals.
    pub seconds: f64,
    /// Intended requests, including dropped ones.
    pub arrivals: u64,
    /// Replies and timeouts.
    pub completions: u64,
    /// Completions that were errors of any kind.
    pub errors: u64,
    /// Completions with status 503 or 429 ("busy").
    pub refusals: u64,
    /// Successful replies per second.
    pub rate: f64,
    /// Bytes of reply bodies.
    pub bytes: u64,
    /// Response time, from the intended send time.
    pub response_ms: Quantiles,
    /// Service time, from the actual send time.
    pub service_ms: Quantiles,
    /// For each objective in ms, the share of arrivals that completed within it without an error:
    /// errors, timeouts and dropped arrivals are late. Not a number (`null` in JSON) without arrivals.
    pub within: Vec<(f64, f64)>,
    /// The share of completions with each outcome that occurred.
    pub outcomes: BTreeMap<&'static str, f64>,
    /// Replies with wrong bytes.
    pub mismatches: u64,
    /// Requests retried because their connection had been closed.
    pub retries: u64,
    /// The generator's processor time per request, microseconds.
    pub cpu_us_per_request: f64,
    /// Errors by message.
    pub faults: BTreeMap<String, u64>,
    /// Each request of a list with several, of the whole step.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<ListedSummary>,
}

/// What may be wrong where a service refuses to store objects.
pub(super) fn fill_hint(why: &str) -> &'static str {
    match why {
        "status 401" | "status 403" => "it may want credentials, or a token",
        "status 405" | "status 501" => "the service takes no PUT there",
        full if full.contains("os error 28") => "its disk is full: free some room, or write less",
        _ => "is the path right?",
    }
}

/// Merges the accounts of all threads.
pub(super) fn join(accounts: &[Account]) -> Account {
    let mut all = Account::default();
    for account in accounts {
        all.start = account.start;
        all.end = all.end.max(account.end);
        all.cut |= account.cut;
        all.dropped += account.dropped;
        all.backlogged += account.backlogged;
        all.outstanding_max += account.outstanding_max;
        all.cpu_ns += account.cpu_ns;
        all.mismatches += account.mismatches;
        all.retries += account.retries;
        all.listed.merge(&account.listed);
        for (reason, count) in &account.faults {
            *all.faults.entry(reason.clone()).or_insert(0) += count;
        }
    }
    all
}

/// The generator's report on its own performance in a step.
pub(super) fn generator(total: &Window, account: &Account, threads: usize) -> Generator {
    let mut lateness = Histogram::default();
    total.times.iter().for_each(|times| lateness.merge(&times.waiting));
    let seconds = account.end.saturating_sub(account.start).max(1) as f64 * 1e-9;
    let mut made = Generator {
        lateness_us_mean: lateness.mean_s() * 1e6,
        lateness_us_p99: lateness.quantile_s(0.99).unwrap_or(0.0) * 1e6,
        lateness_us_max: lateness.max_s() * 1e6,
        dropped: account.dropped,
        outstanding_max: account.outstanding_max,
        cpu: account.cpu_ns as f64 * 1e-9 / seconds,
        complaints: Vec::new(),
    };
    let mut complain = |complaint: String| made.complaints.push(complaint);
    if account.dropped > 0 {
        complain(format!(
            "{} arrivals were dropped unsent: all connections were in use, and the backlog full or the timeout over",
            account.dropped
        ));
    }
    if account.backlogged > 0 {
        complain(format!(
            "{} arrivals waited for a connection: all were in use",
            account.backlogged
        ));
    }
    if made.lateness_us_p99 > LATENESS_US_MAX {
        complain(format!("1 % of requests were sent at least {:.0} µs late", made.lateness_us_p99));
    }
    if made.cpu > CPU_MAX * threads as f64 {
        complain(format!(
            "the generator used {:.0} % of a core with {threads} thread(s)",
            made.cpu * 100.0
        ));
    }
    made
}

/// Summarises a step. `total` is the merge of all its windows.
pub(super) fn step_summary(step: Step, total: &Window, account: Account) -> StepSummary {
    let (mut response, mut service) = (Histogram::default(), Histogram::default());
    let mut within = vec![0u64; total.objectives_ms.len()];
    let mut outcomes = BTreeMap::new();
    for times in &total.times {
        let share = times.response.count() as f64 / total.completions.max(1) as f64;
        *outcomes.entry(times.outcome.as_str()).or_insert(0.0) += share;
        if times.outcome != Outcome::Error {
            response.merge(&times.response);
            service.merge(&times.service);
            within.iter_mut().zip(&times.within).for_each(|(sum, n)| *sum += n);
        }
    }
    let arrivals = total.arrivals.max(1) as f64;
    let good = total.completions.saturating_sub(total.errors);
    StepSummary {
        step,
        seconds: total.length_s,
        arrivals: total.arrivals,
        completions: total.completions,
        errors: total.errors,
        refusals: total.refusals,
        rate: if total.length_s > 0.0 { good as f64 / total.length_s } else { 0.0 },
        bytes: total.bytes,
        response_ms: Quantiles::from_histogram(&response),
        service_ms: Quantiles::from_histogram(&service),
        within: total
            .objectives_ms
            .iter()
            .zip(&within)
            // The windows of a simulation may hold completions of requests that arrived before them.
            .map(|(&ms, &n)| match total.arrivals {
                0 => (ms, f64::NAN),
                _ => (ms, (n as f64 / arrivals).min(1.0)),
            })
            .collect(),
        outcomes,
        mismatches: account.mismatches,
        retries: account.retries,
        cpu_us_per_request: account.cpu_ns as f64 * 1e-3 / arrivals,
        requests: account.listed.summaries(),
        faults: account.faults,
    }
}

/// Summarises a simulated step, which has no load generator.
pub fn simulated_step(step: Step, total: &Window) -> StepSummary {
    step_summary(step, total, Account::default())
}

impl Summary {
    /// Whether any reply had wrong bytes.
    pub fn is_wrong(&self) -> bool {
        self.steps.iter().any(|step| step.mismatches > 0)
    }

    /// Whether there were replies, and each said that there is no such key (404): a wrong path, or
    /// keys that nobody stored.
    ///
    /// A get of several keys is a miss if one of them is missing; if it brought any value, its keys are not all wrong.
    pub fn is_all_missing(&self, multi_get: usize) -> bool {
        let missing = |step: &StepSummary| {
            step.completions == 0
                || step.outcomes.get("miss").is_some_and(|share| *share > 1.0 - 1e-9)
                    && (multi_get <= 1 || step.bytes == 0)
        };
        self.steps.iter().any(|step| step.completions > 0) && self.steps.iter().all(missing)
    }

    /// Whether steps were measured and every request failed.
    pub fn is_all_errors(&self) -> bool {
        !self.steps.is_empty() && self.steps.iter().all(|s| s.errors == s.completions)
    }

    /// Formats the result as a text table.
    pub fn table(&self) -> String {
        let mut out = String::new();
        if let Some(fill) = &self.fill {
            let Fill { keys, stored, seconds, .. } = fill;
            let _ = writeln!(out, "filled: {stored} of {keys} keys in {seconds:.1} s");
        }
        if self.broken_lines > 0 {
            let _ = writeln!(out, "malformed lines of the trace skipped: {}", self.broken_lines);
        }
        if !self.steps.is_empty() {
            out.push_str(&self.rows());
        }
        for summary in &self.steps {
            summary.notes(&mut out);
        }
        let _ = writeln!(out, "run folder: {}", self.dir.display());
        out
    }

    fn rows(&self) -> String {
        let mut rows = vec![
            ["load", "replies/s", "done", "errors", "mean", "p50", "p90", "p99", "p99.9", "max"]
                .map(str::to_owned)
                .to_vec(),
        ];
        let objectives = self.steps.first().map(|s| s.within.clone()).unwrap_or_default();
        rows[0].extend(objectives.iter().map(|(ms, _)| format!("≤{ms} ms")));
        rows[0].extend(["service".to_owned(), "late p99".to_owned()]);
        for s in &self.steps {
            let load = match (s.step.rate, s.step.clients) {
                (Some(rate), _) => format!("{rate:.1}/s"),
                (None, Some(clients)) => format!("{clients} clients"),
                (None, None) => String::new(),
            };
            let r = &s.response_ms;
            let mut row = vec![
                load,
                format!("{:.1}", s.rate),
                s.completions.to_string(),
                s.errors.to_string(),
            ];
            let times = [r.mean, r.p50, r.p90, r.p99, r.p999, r.max].map(time);
            row.extend(times);
            row.extend(s.within.iter().map(|(_, share)| match share.is_nan() {
                true => "–".to_owned(),
                false => format!("{:.2} %", share * 100.0),
            }));
            row.push(time(s.service_ms.mean));
            row.push(format!("{:.0} µs", s.step.generator.lateness_us_p99));
            rows.push(row);
        }
        let columns = rows[0].len();
        let width = |c: usize| rows.iter().map(|r| r[c].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let which = match self.steps.iter().any(|s| s.errors > 0) {
            true => "response times of replies without an error",
            false => "response times",
        };
        let mut out = format!("{which} in ms from the intended send time:\n");
        for row in &rows {
            let cells = row.iter().zip(&widths).map(|(cell, &w)| format!("{cell:>w$}"));
            let _ = writeln!(out, "{}", cells.collect::<Vec<_>>().join("  "));
        }
        out
    }
}

impl StepSummary {
    fn notes(&self, out: &mut String) {
        let index = self.step.index;
        let shares = self.outcomes.iter().map(|(o, share)| format!("{o} {:.2} %", share * 100.0));
        let shares = shares.collect::<Vec<_>>().join(", ");
        let g = &self.step.generator;
        let _ = writeln!(
            out,
            "step {index}: {shares}; generator {:.0} % of a core, {:.1} µs a request, at most {} \
             outstanding",
            g.cpu * 100.0,
            self.cpu_us_per_request,
            g.outstanding_max
        );
        if !self.requests.is_empty() {
            *out += &listed::table(index, &self.requests);
        }
        for complaint in &g.complaints {
            // Of the generator, of a load that never became steady, or of a run that was interrupted: each names what it is of.
            let _ = writeln!(out, "step {index}: {complaint}");
        }
        for (reason, count) in &self.faults {
            let _ = writeln!(out, "step {index}: error ({count} times): {reason}");
        }
        if self.mismatches > 0 {
            let _ = writeln!(out, "step {index}: WRONG BYTES in {} replies", self.mismatches);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ground::window::{Operation, Times};

    #[test]
    fn errors_and_what_was_never_answered_are_late() {
        let mut total = Window::new("load", 0, 0, &[50.0]);
        (total.arrivals, total.completions, total.errors) = (100, 80, 20);
        for (outcome, count) in [(Outcome::Memory, 60), (Outcome::Error, 20)] {
            let mut times = Times::new(Operation::Get, outcome, 1);
            (0..count).for_each(|_| times.response.record(1_000_000));
            times.within = vec![count];
            total.times.push(times);
        }
        let step = Step {
            index: 0,
            rate: Some(100.0),
            clients: None,
            start_unix_us: 0,
            end_unix_us: 1_000_000,
            generator: Generator::default(),
        };
        let summary = simulated_step(step.clone(), &total);
        assert_eq!(summary.within, [(50.0, 0.6)]);
        // Replies to requests that arrived before a simulation's windows are not more than all.
        (total.arrivals, total.completions) = (50, 80);
        assert_eq!(simulated_step(step.clone(), &total).within, [(50.0, 1.0)]);
        // Of no requests no share is late.
        let none = simulated_step(step, &Window::new("load", 0, 0, &[50.0]));
        assert!(none.within[0].1.is_nan());
        let summary = Summary { steps: vec![none], ..Summary::default() };
        assert!(!summary.table().contains("NaN"), "{}", summary.table());
    }
}
