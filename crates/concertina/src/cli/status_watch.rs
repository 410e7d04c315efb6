//! `concertina status --watch`: a queue each second, of a running server or of a run folder: its length, arrivals and replies,
//! misses and errors, and the mean times of waiting and of service.
//!
//! The server's figures are differences between two pages of `/metrics`, divided by the time that these sums cover
//! (`concertina_queue_observed_seconds_total`) and not by the time between the pages: windows end when they end.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{bail, ensure};
use ground::window::{Outcome, Window};
use record::RunFolder;
use serde_json::json;

use super::figures::{number, percent, seconds};
use super::live::Endpoint;
use super::output::output;

/// The time between two looks at a server.
const EVERY: Duration = Duration::from_secs(1);
/// The time between two looks where the first brought nothing new: windows and looks are out of step.
const AGAIN: Duration = Duration::from_millis(100);

/// Sums over the requests of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct QueueSums {
    observed_s: f64,
    arrivals: f64,
    completions: f64,
    errors: f64,
    refusals: f64,
    length_s: f64,
    waiting_s: f64,
    service_s: f64,
    misses: f64,
}

/// A sample of a page of metrics.
#[derive(Debug, PartialEq)]
struct MetricSample<'a> {
    name: &'a str,
    labels: Vec<(&'a str, String)>,
    value: f64,
}

/// Reads a line of a page of metrics; `None` for comments and what is malformed.
fn sample(line: &str) -> Option<MetricSample<'_>> {
    let (head, value) = line.rsplit_once(' ').filter(|_| !line.starts_with('#'))?;
    let value = value.parse().ok()?;
    let Some((name, mut rest)) = head.split_once('{') else {
        return Some(MetricSample { name: head, labels: Vec::new(), value });
    };
    let mut labels = Vec::new();
    while let Some((label, text)) = rest.split_once("=\"") {
        let (mut plain, mut end, mut escaped) = (String::new(), None, false);
        for (at, c) in text.char_indices() {
            match (escaped, c) {
                (true, 'n') => plain.push('\n'),
                (true, c) => plain.push(c),
                (false, '\\') => {}
                (false, '"') => {
                    end = Some(at);
                    break;
                }
                (false, c) => plain.push(c),
            }
            escaped = !escaped && c == '\\';
        }
        labels.push((label.trim_start_matches(','), plain));
        rest = text.get(end? + 1..)?;
    }
    Some(MetricSample { name, labels, value })
}

impl QueueSums {
    /// The sums of a queue in a page of metrics; `None` if the page does not have it.
    fn from_page(page: &str, queue: &str) -> Option<QueueSums> {
        let mut sums = QueueSums::default();
        let mut is_there = false;
        for MetricSample { name, labels, value } in page.lines().filter_map(sample) {
            let has =
                |label: &str, text: &str| labels.iter().any(|(l, t)| *l == label && t == text);
            if !has("queue", queue) {
                continue;
            }
            let sum = match name {
                "concertina_queue_observed_seconds_total" => &mut sums.observed_s,
                "concertina_queue_arrivals_total" => &mut sums.arrivals,
                "concertina_queue_completions_total" => &mut sums.completions,
                "concertina_queue_errors_total" => &mut sums.errors,
                "concertina_queue_refusals_total" => &mut sums.refusals,
                "concertina_queue_length_seconds_total" => &mut sums.length_s,
                "concertina_queue_waiting_seconds_total" => &mut sums.waiting_s,
                "concertina_queue_service_seconds_total" => &mut sums.service_s,
                "concertina_response_seconds_count" if has("outcome", Outcome::Miss.as_str()) => {
                    &mut sums.misses
                }
                _ => continue,
            };
            *sum += value;
            is_there = true;
        }
        is_there.then_some(sums)
    }

    fn from_window(window: &Window) -> QueueSums {
        let misses = window.times.iter().filter(|times| times.outcome == Outcome::Miss);
        QueueSums {
            observed_s: window.length_s,
            arrivals: window.arrivals as f64,
            completions: window.completions as f64,
            errors: window.errors as f64,
            refusals: window.refusals as f64,
            length_s: window.length_integral_s,
            waiting_s: window.times.iter().map(|times| times.waiting.sum_s()).sum(),
            service_s: window.times.iter().map(|times| times.service.sum_s()).sum(),
            misses: misses.map(|times| times.response.count() as f64).sum(),
        }
    }

    /// What came since other sums; `None` if nothing was observed since, or the server began anew.
    fn since(&self, before: &QueueSums) -> Option<QueueSums> {
        let new = QueueSums {
            observed_s: self.observed_s - before.observed_s,
            arrivals: self.arrivals - before.arrivals,
            completions: self.completions - before.completions,
            errors: self.errors - before.errors,
            refusals: self.refusals - before.refusals,
            length_s: self.length_s - before.length_s,
            waiting_s: self.waiting_s - before.waiting_s,
            service_s: self.service_s - before.service_s,
            misses: self.misses - before.misses,
        };
        (new.observed_s > 0.0 && new.arrivals >= 0.0 && new.completions >= 0.0).then_some(new)
    }

    fn ratio(sum: f64, of_all: f64) -> Option<f64> {
        (of_all > 0.0).then(|| sum / of_all)
    }

    /// A line of the table.
    fn row(&self, time: &str) -> String {
        let a_second = |sum: f64| number(QueueSums::ratio(sum, self.observed_s));
        let share = |sum: f64| percent(QueueSums::ratio(sum, self.completions));
        let mean = |sum: f64| seconds(QueueSums::ratio(sum, self.completions));
        let failed =
            QueueSums::ratio(self.errors + self.refusals, self.completions + self.refusals);
        format!(
            "{time:<9}{:>9}{:>12}{:>12}{:>10}{:>10}{:>13}{:>13}",
            a_second(self.length_s),
            a_second(self.arrivals),
            a_second(self.completions),
            share(self.misses),
            percent(failed),
            mean(self.waiting_s),
            mean(self.service_s),
        )
    }

    fn json(&self, unix_us: u64) -> serde_json::Value {
        let a_second = |sum: f64| QueueSums::ratio(sum, self.observed_s);
        let share = |sum: f64| QueueSums::ratio(sum, self.completions);
        json!({
            "end_unix_us": unix_us,
            "seconds": self.observed_s,
            "length": a_second(self.length_s),
            "arrivals_per_s": a_second(self.arrivals),
            "replies_per_s": a_second(self.completions),
            "misses": share(self.misses),
            "failures": QueueSums::ratio(self.errors + self.refusals, self.completions + self.refusals),
            "waiting_s": share(self.waiting_s),
            "service_s": share(self.service_s),
        })
    }
}

/// The heading of the table.
fn heading() -> String {
    format!(
        "{:<9}{:>9}{:>12}{:>12}{:>10}{:>10}{:>13}{:>13}",
        "time", "queue", "arrivals/s", "replies/s", "misses", "failures", "waiting", "service"
    )
}

/// A time of day in UTC.
fn time_of_day(unix_us: u64) -> String {
    let s = unix_us / 1_000_000 % 86_400;
    format!("{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
}

/// Prints lines as they come.
struct Lines {
    json: bool,
    printed: u64,
}

impl Lines {
    fn print(&mut self, sums: &QueueSums, unix_us: u64) -> anyhow::Result<()> {
        let mut out = output();
        if self.json {
            writeln!(out, "{}", sums.json(unix_us))?;
        } else {
            // Again after a screen, as programs that watch do.
            if self.printed.is_multiple_of(20) {
                writeln!(out, "{}", heading())?;
            }
            writeln!(out, "{}", sums.row(&time_of_day(unix_us)))?;
        }
        self.printed += 1;
        out.flush()?;
        Ok(())
    }
}

fn now_unix_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Prints a line of a running server's queue each second, until interrupted or for `lines` lines.
pub(super) fn server(
    at: &Endpoint,
    queue: &str,
    lines_max: Option<u64>,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let mut lines = Lines { json, printed: 0 };
    let mut before: Option<QueueSums> = None;
    while lines_max.is_none_or(|max| lines.printed < max) {
        let page = at.text("/metrics")?;
        let sums = QueueSums::from_page(&page, queue);
        ensure!(
            sums.is_some() || before.is_none(),
            "{} does not report the queue `{queue}` any more",
            at.server
        );
        if sums.is_none() && page.contains("concertina_queue_arrivals_total{") {
            bail!("{} has no queue `{queue}`; it has {}", at.server, queues_of(&page).join(", "));
        }
        // A server that has just started has no window yet.
        let Some(sums) = sums else {
            std::thread::sleep(AGAIN);
            continue;
        };
        match before.as_ref().map(|before| sums.since(before)) {
            Some(None) if before.is_some_and(|before| sums.arrivals >= before.arrivals) => {
                std::thread::sleep(AGAIN);
                continue;
            }
            Some(Some(new)) => lines.print(&new, now_unix_us())?,
            // The first page, or the first of a server that began anew.
            _ => {}
        }
        before = Some(sums);
        std::thread::sleep(EVERY);
    }
    Ok(ExitCode::SUCCESS)
}

/// The queues that a page of metrics has.
fn queues_of(page: &str) -> Vec<String> {
    let samples = page.lines().filter_map(sample);
    let arrivals = samples.filter(|it| it.name == "concertina_queue_arrivals_total");
    arrivals.flat_map(|it| it.labels.into_iter().map(|(_, queue)| queue)).collect()
}

/// Prints what a run folder has of a queue: a line for each of its windows, or for the first `lines_max` of them.
pub(super) fn run_folder(
    dir: &Path,
    queue: &str,
    lines_max: Option<u64>,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let run = RunFolder::read(dir)?;
    let mut lines = Lines { json, printed: 0 };
    for window in run.windows.iter().filter(|window| window.queue == queue) {
        if lines_max.is_some_and(|max| lines.printed >= max) {
            return Ok(ExitCode::SUCCESS);
        }
        lines.print(&QueueSums::from_window(window), window.end_unix_us())?;
    }
    if lines.printed == 0 {
        let mut queues: Vec<&str> = run.windows.iter().map(|window| &*window.queue).collect();
        queues.sort_unstable();
        queues.dedup();
        bail!(
            "{} has no windows of the queue `{queue}`; it has {}",
            dir.display(),
            queues.join(", ")
        );
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_and_two_make_a_line() {
        let page = |n: u32| {
            format!(
                "# HELP concertina_queue_arrivals_total Things.\n\
                 concertina_queue_observed_seconds_total{{queue=\"gateway\"}} {n}\n\
                 concertina_queue_arrivals_total{{queue=\"gateway\"}} {}\n\
                 concertina_queue_arrivals_total{{queue=\"gateway/a\\\"b\"}} 7\n\
                 concertina_queue_completions_total{{queue=\"gateway\"}} {}\n\
                 concertina_queue_length_seconds_total{{queue=\"gateway\"}} {}\n\
                 concertina_queue_waiting_seconds_total{{queue=\"gateway\"}} {}\n\
                 concertina_response_seconds_count{{queue=\"gateway\",operation=\"get\",outcome=\"miss\"}} {}\n\
                 concertina_response_seconds_count{{queue=\"gateway\",operation=\"get\",outcome=\"memory\"}} 9\n",
                100 * n,
                50 * n,
                4 * n,
                n,
                5 * n,
            )
        };
        let (one, three) = (page(1), page(3));
        let sums = |page: &str| QueueSums::from_page(page, "gateway").unwrap();
        let new = sums(&three).since(&sums(&one)).unwrap();
        let row = new.row("12:00:00");
        let figures: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(
            figures,
            ["12:00:00", "4", "100", "50", "10.00", "%", "0.00", "%", "20", "ms", "0", "ms"]
        );
        assert_eq!(heading().len(), row.len());
        // Nothing was observed since; the server began anew.
        assert_eq!(sums(&one).since(&sums(&one)), None);
        assert_eq!(sums(&one).since(&sums(&three)), None);
        assert_eq!(QueueSums::from_page(&one, "device/0"), None);
        assert_eq!(queues_of(&one), ["gateway", "gateway/a\"b"]);
        assert_eq!(time_of_day(86_399_000_000), "23:59:59");
    }

    #[test]
    fn a_page_of_anything_is_read_without_a_panic() {
        for line in [
            "",
            "{",
            "a{b=\"",
            "a{b=\"c",
            "a{b=\"c\"",
            "a{b=\"c\\",
            "a{b=\"\u{e9}\"} x",
            "a 1e9",
            "} 1",
        ] {
            let _ = sample(line);
        }
        assert_eq!(sample("a 1e9"), Some(MetricSample { name: "a", labels: vec![], value: 1e9 }));
    }
}
