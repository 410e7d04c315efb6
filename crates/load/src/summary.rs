//! What a load came to: derived from the windows of each step, and from nothing else.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use model::window::{Histogram, Outcome, Window};
use serde::Serialize;

use super::phase::Account;
use record::{Generator, Step};

/// The generator complains when 1 % of the requests were sent later than this.
pub const LATENESS_US_MAX: f64 = 500.0;
/// And when it used more than this share of a core for each of its threads.
pub const CPU_MAX: f64 = 0.9;

/// What a run came to.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// The run folder.
    pub dir: PathBuf,
    /// The fill, if there was one.
    pub fill: Option<Fill>,
    /// The steps that were completed.
    pub steps: Vec<StepSummary>,
    /// Lines of the trace that were passed over.
    pub broken_lines: u64,
    /// Whether it was interrupted.
    pub interrupted: bool,
}

/// What a fill came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Fill {
    /// Distinct keys.
    pub keys: u64,
    /// Keys whose put succeeded.
    pub stored: u64,
    /// Seconds that it took.
    pub seconds: f64,
    /// Errors by kind, of puts that failed for good.
    pub faults: BTreeMap<String, u64>,
}

/// What a step came to. Times are those of requests that were answered without an error.
#[derive(Clone, Debug, Serialize)]
pub struct StepSummary {
    /// The step as recorded.
    pub step: Step,
    /// Seconds of arrivals.
    pub seconds: f64,
    /// Requests that were to be sent.
    pub arrivals: u64,
    /// Replies, and requests given up.
    pub completions: u64,
    /// Of these, errors of any kind.
    pub errors: u64,
    /// Of these, "busy" (503 or 429).
    pub refusals: u64,
    /// Replies without error for each second.
    pub rate: f64,
    /// Bytes of replies.
    pub bytes: u64,
    /// Response time, from the intended send time.
    pub response_ms: Quantiles,
    /// Service time, from the actual send time.
    pub service_ms: Quantiles,
    /// For each objective in ms, the share of all arrivals (of all answers, where these are more) that was answered
    /// within it, without error.
    pub within: Vec<(f64, f64)>,
    /// Share of completions for each outcome that occurred.
    pub outcomes: BTreeMap<&'static str, f64>,
    /// Replies with wrong bytes.
    pub mismatches: u64,
    /// Requests sent again because their connection had been closed.
    pub retries: u64,
    /// Processor time of the generator for each request, microseconds.
    pub cpu_us_per_request: f64,
    /// Errors by kind.
    pub faults: BTreeMap<String, u64>,
}

/// A distribution in a few figures, ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90 %.
    pub p90: f64,
    /// 99 %.
    pub p99: f64,
    /// 99.9 %.
    pub p999: f64,
    /// Largest.
    pub max: f64,
}

impl Quantiles {
    /// The figures of a histogram; zeros if it is empty.
    pub fn of(histogram: &Histogram) -> Quantiles {
        let at = |p| histogram.quantile_s(p).unwrap_or(0.0) * 1e3;
        Quantiles {
            mean: histogram.mean_s() * 1e3,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: histogram.max_s() * 1e3,
        }
    }
}

/// The accounts of all threads as one.
pub(super) fn join(accounts: &[Account]) -> Account {
    let mut all = Account::default();
    for account in accounts {
        all.start = account.start;
        all.end = account.end;
        all.cut |= account.cut;
        all.dropped += account.dropped;
        all.backlogged += account.backlogged;
        all.outstanding_max += account.outstanding_max;
        all.cpu_ns += account.cpu_ns;
        all.mismatches += account.mismatches;
        all.retries += account.retries;
        for (words, count) in &account.faults {
            *all.faults.entry(words.clone()).or_insert(0) += count;
        }
    }
    all
}

/// What the generator says of itself in a step.
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
    let mut complain = |words: String| made.complaints.push(words);
    if account.dropped > 0 {
        complain(format!(
            "{} arrivals were dropped: connections and backlog were full",
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
        complain(format!("1 % of requests were sent {:.0} µs late or more", made.lateness_us_p99));
    }
    if made.cpu > CPU_MAX * threads as f64 {
        complain(format!("it used {:.0} % of a core with {threads} thread(s)", made.cpu * 100.0));
    }
    made
}

/// A step in figures. `total` is all its windows merged.
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
    // A simulation's windows hold answers to what arrived before them, and lack others.
    let asked = total.arrivals.max(total.completions).max(1) as f64;
    StepSummary {
        step,
        seconds: total.length_s,
        arrivals: total.arrivals,
        completions: total.completions,
        errors: total.errors,
        refusals: total.refusals,
        rate: if total.length_s > 0.0 { good as f64 / total.length_s } else { 0.0 },
        bytes: total.bytes,
        response_ms: Quantiles::of(&response),
        service_ms: Quantiles::of(&service),
        within: total
            .objectives_ms
            .iter()
            .zip(&within)
            .map(|(&ms, &n)| (ms, n as f64 / asked))
            .collect(),
        outcomes,
        mismatches: account.mismatches,
        retries: account.retries,
        cpu_us_per_request: account.cpu_ns as f64 * 1e-3 / arrivals,
        faults: account.faults,
    }
}

/// A step that was simulated: no generator was in its way.
pub fn simulated_step(step: Step, total: &Window) -> StepSummary {
    step_summary(step, total, Account::default())
}

impl Summary {
    /// Whether any reply had wrong bytes.
    pub fn is_wrong(&self) -> bool {
        self.steps.iter().any(|step| step.mismatches > 0)
    }

    /// Whether steps were measured and nothing but errors came.
    pub fn is_all_errors(&self) -> bool {
        !self.steps.is_empty() && self.steps.iter().all(|s| s.errors == s.completions)
    }

    /// The result as a table for people.
    pub fn table(&self) -> String {
        let mut out = String::new();
        if let Some(fill) = &self.fill {
            let Fill { keys, stored, seconds, .. } = fill;
            let _ = writeln!(out, "filled: {stored} of {keys} keys in {seconds:.1} s");
        }
        if self.broken_lines > 0 {
            let _ = writeln!(out, "broken lines of the trace passed over: {}", self.broken_lines);
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
            ["asked", "got/s", "done", "errors", "mean", "p50", "p90", "p99", "p99.9", "max"]
                .map(str::to_owned)
                .to_vec(),
        ];
        let objectives = self.steps.first().map(|s| s.within.clone()).unwrap_or_default();
        rows[0].extend(objectives.iter().map(|(ms, _)| format!("≤{ms} ms")));
        rows[0].extend(["service".to_owned(), "late p99".to_owned()]);
        for s in &self.steps {
            let asked = match (s.step.rate, s.step.clients) {
                (Some(rate), _) => format!("{rate:.1}/s"),
                (None, Some(clients)) => format!("{clients} clients"),
                (None, None) => String::new(),
            };
            let r = &s.response_ms;
            let mut row = vec![
                asked,
                format!("{:.1}", s.rate),
                s.completions.to_string(),
                s.errors.to_string(),
            ];
            let times = [r.mean, r.p50, r.p90, r.p99, r.p999, r.max].map(|ms| format!("{ms:.3}"));
            row.extend(times);
            row.extend(s.within.iter().map(|(_, share)| format!("{:.2} %", share * 100.0)));
            row.push(format!("{:.3}", s.service_ms.mean));
            row.push(format!("{:.0} µs", s.step.generator.lateness_us_p99));
            rows.push(row);
        }
        let columns = rows[0].len();
        let width = |c: usize| rows.iter().map(|r| r[c].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut out = String::from("response times in ms from the intended send time:\n");
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
        for words in &g.complaints {
            let _ = writeln!(out, "step {index}: the generator was in the way: {words}");
        }
        for (words, count) in &self.faults {
            let _ = writeln!(out, "step {index}: error ({count} times): {words}");
        }
        if self.mismatches > 0 {
            let _ = writeln!(out, "step {index}: WRONG BYTES in {} replies", self.mismatches);
        }
    }
}
