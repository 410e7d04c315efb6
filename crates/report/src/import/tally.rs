//! What of a log is not imported or is short of something, counted by kind with the first of each, so that nothing
//! vanishes without a note.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::filter::Verdict;
use super::split::Fault;

/// Kinds that are told apart; more are counted together.
const KINDS_MAX: usize = 20;

/// The first line of a kind.
#[derive(Clone, Debug, PartialEq)]
struct Place {
    path: PathBuf,
    line: u64,
    detail: String,
    count: u64,
}

/// What is counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Lines that could not be read, by what is wrong with them.
    kinds: BTreeMap<&'static str, Place>,
    /// Headers, comments, other metrics.
    pub other: u64,
    /// Connections that were upgraded (101).
    pub upgraded: u64,
    /// Requests that were not asked for.
    pub filtered: BTreeMap<Verdict, u64>,
    /// Requests that the service refused (503, 429).
    pub refused: u64,
    /// Requests to which no reply came.
    pub unanswered: u64,
    /// Requests that were answered, without a duration.
    pub untimed: u64,
    /// Requests whose size is no number.
    pub of_unknown_size: u64,
}

impl Tally {
    /// Counts a line that could not be read.
    pub fn broken(&mut self, path: &Path, line: u64, fault: &Fault) {
        let is_new = !self.kinds.contains_key(fault.kind);
        let kind =
            if is_new && self.kinds.len() >= KINDS_MAX { "of other kinds" } else { fault.kind };
        let place = self.kinds.entry(kind).or_insert_with(|| Place {
            path: path.to_owned(),
            line,
            detail: fault.detail.clone(),
            count: 0,
        });
        place.count += 1;
    }

    /// The first line of a file that could not be read, and what is wrong with it.
    pub fn first_of(&self, path: &Path) -> Option<(u64, String)> {
        let places = self.kinds.values().filter(|place| place.path == path);
        places.min_by_key(|place| place.line).map(|place| (place.line, place.detail.clone()))
    }

    /// What a log lacks of whose requests none counts.
    pub fn lacking(&self) -> Option<&'static str> {
        if self.untimed > 0 {
            Some(
                "durations: no request has one; name the value that is the duration with --fields response=NAME:ms",
            )
        } else if self.unanswered > 0 {
            Some(
                "answered requests: the status of each says that no reply came. If it is none, name the other values: --fields end=NAME,response=NAME:ms",
            )
        } else {
            None
        }
    }

    /// A sentence for each thing that was left out, of `lines` lines.
    pub fn notes(&self, lines: u64) -> Vec<String> {
        let mut notes = Vec::new();
        let share = |count: u64| count as f64 / lines.max(1) as f64 * 100.0;
        for (kind, place) in &self.kinds {
            let Place { path, line, detail, count } = place;
            notes.push(format!(
                "{count} of {lines} lines could not be parsed and are left out ({:.3} %), {kind}; the first is line \
                 {line} of {}: {detail}",
                share(*count),
                path.display()
            ));
        }
        if self.kinds.contains_key("an invalid duration") {
            notes.push(
                "Lines whose duration cannot be read may be those of slow requests: responses are then predicted too short."
                    .to_owned(),
            );
        }
        let mut count = |count: u64, what: &str| {
            if count > 0 {
                notes.push(format!("{count} of {lines} {what} ({:.2} %).", share(count)));
            }
        };
        for (verdict, text) in [
            (Verdict::Earlier, "requests ended before --from and are left out"),
            (Verdict::Later, "requests ended after --to and are left out"),
            (
                Verdict::OtherPath,
                "requests are of other paths than --path and are left out: if they load the same \
                servers, a fit takes the service for slower than it is",
            ),
            (
                Verdict::OtherStatus,
                "requests have another status than --status and are left out: if they load the same \
                servers, a fit takes the service for slower than it is",
            ),
        ] {
            count(self.filtered.get(&verdict).copied().unwrap_or(0), text);
        }
        count(self.refused, "requests were refused (503, 429) and count without a response time");
        count(
            self.unanswered,
            "requests have no status, because no reply came: they count as refused, without a response time",
        );
        count(
            self.untimed,
            "requests have no duration: they count as refused, without a response time",
        );
        count(
            self.of_unknown_size,
            "requests have a size that is no whole number: they count with 0 bytes",
        );
        if self.upgraded > 0 {
            notes.push(format!(
                "{} (status 101, as of web sockets): left out, because the time of such a line is not that of a request.",
                super::shown::count(self.upgraded, "upgraded connection")
            ));
        }
        if self.other > 0 {
            let (lines, are) = (
                super::shown::count(self.other, "further line"),
                if self.other == 1 { "is" } else { "are" },
            );
            notes
                .push(format!("{lines} {are} not of requests (headers, comments, other metrics, events without a duration \
                 or a status)."));
        }
        notes
    }
}
