//! The findings of a run: its claims, and the files that are recorded with them.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use anyhow::Context as _;
use ground::window::Nanos;
use serde::Serialize;

use super::checker::{self, Kind, Verdict, Violation};
use super::cluster::Strays;
use super::history::{self, Action, Operation, Place, Written};
use super::load::Log;
use super::service::{self, Effect, Reads, Struck};
use crate::claims::{Claim, Goal};
use crate::context::Context;

/// Largest number of violations whose surrounding history is recorded.
const SHOWN_MAX: usize = 20;
/// Number of operations on the key that are recorded before and after each.
const AROUND: usize = 40;
/// Largest number of notes that are recorded.
const NOTES_MAX: usize = 1000;

/// The plan of a run, and its cluster.
pub struct Plan<'a> {
    /// The kind of origin.
    pub store: &'static str,
    /// What nodes did that came up without their origin.
    pub strays: Strays,
    /// Number of faults that were planned.
    pub faults: usize,
    /// Number of gateways.
    pub gateways: u8,
    /// The primary of each key.
    pub primaries: &'a [usize],
    /// When the load began.
    pub start: Nanos,
    /// Beginning and end of the time without faults.
    pub quiet: (Nanos, Nanos),
}

/// Everything derived from a history.
#[derive(Serialize)]
pub struct Findings<'a> {
    store: &'static str,
    reads: u64,
    failed_reads: u64,
    /// Failed reads that needed the gateway or the origin that was struck.
    excused_reads: u64,
    writes_checked: u64,
    writes_acknowledged: u64,
    writes_refused: u64,
    regressions: u64,
    violations: u64,
    strays: Strays,
    quiet: Vec<Reads>,
    faults: Vec<Effect>,
    #[serde(skip)]
    log: &'a Log,
    #[serde(skip)]
    start: Nanos,
    #[serde(skip)]
    planned: usize,
    #[serde(skip)]
    verdict: Verdict,
    #[serde(skip)]
    origin_reads: u64,
}

impl Findings<'_> {
    /// Finds violations and the effects of faults in a run.
    ///
    /// # Errors
    /// If the history is invalid.
    pub fn new<'a>(log: &'a Log, struck: &[Struck], plan: &Plan) -> anyhow::Result<Findings<'a>> {
        let history = log.operations.as_slice();
        let verdict = checker::judge(history).map_err(anyhow::Error::msg)?;
        let effect = |(index, struck)| {
            service::effect(index + 1, struck, history, plan.start, plan.gateways, plan.primaries)
        };
        let count = |is: fn(&Operation) -> bool| history.iter().filter(|o| is(o)).count() as u64;
        let is_acknowledged =
            |o: &Operation| matches!(o.action, Action::Write(_, _, Written::Acknowledged));
        let writes = count(|o| !o.is_read());
        let acknowledged = count(is_acknowledged);
        let (from, to) = plan.quiet;
        let failed = history.iter().filter(|operation| operation.is_failed_read());
        let excused = failed.filter(|read| struck.iter().any(|struck| struck.excuses(read)));
        let excused = excused.count() as u64;
        Ok(Findings {
            store: plan.store,
            reads: count(Operation::is_read),
            failed_reads: count(Operation::is_failed_read) - excused,
            excused_reads: excused,
            writes_checked: verdict.checked,
            writes_acknowledged: acknowledged,
            writes_refused: writes - acknowledged,
            regressions: verdict.regressions,
            violations: verdict.violations.len() as u64,
            strays: plan.strays,
            quiet: (0..plan.gateways).map(|g| service::reads(history, g, from, to)).collect(),
            faults: struck.iter().enumerate().map(effect).collect(),
            log,
            start: plan.start,
            planned: plan.faults,
            verdict,
            origin_reads: count(|o| o.place == Place::Origin),
        })
    }

    fn of_kinds(&self, kinds: &[Kind]) -> f64 {
        self.verdict.violations.iter().filter(|v| kinds.contains(&v.kind)).count() as f64
    }

    /// The claims.
    pub fn claims(&self) -> Vec<Claim> {
        let faults = self.faults.len() as u64;
        let longest = |of: fn(&Effect) -> f64| self.faults.iter().map(of).fold(0.0, f64::max);
        let sum = |of: fn(&Effect) -> u64| self.faults.iter().map(of).sum::<u64>() as f64;
        let least = Some(Goal::AtLeast(self.planned as f64));
        let none = Some(Goal::AtMost(0.0));
        let wrong = self.of_kinds(&[Kind::WrongBytes, Kind::NeverWritten]);
        let against_order = self.of_kinds(&[Kind::Stale, Kind::Resurfaced]);
        let lost = self.of_kinds(&[Kind::Lost]);
        let (reads, keys) = (self.reads, self.origin_reads);
        let without_service = longest(|effect| effect.without_service_s.unwrap_or(0.0));
        let served = self.faults.iter().filter(|effect| effect.without_service_s.is_some());
        let served = served.count() as u64;
        let checked = self.writes_checked as f64 / self.writes_acknowledged.max(1) as f64;
        let excused = self.excused_reads as f64;
        let quiet = self.quiet.iter().map(|r| r.slowest_s.max(r.gap_s)).fold(0.0, f64::max);
        let again = longest(|effect| effect.writes_again_after_s);
        let slowest_write = longest(|effect| effect.slowest_write_of_others_s);
        let of_node = sum(|effect| effect.writes_refused_of_node);
        let of_others = sum(|effect| effect.writes_refused_of_others);
        let writes = self.writes_acknowledged;
        let mut claims = vec![
            claim("faults", faults as f64, "", faults, least),
            claim("reads of wrong bytes", wrong, "", reads, none),
            claim("keys whose acknowledged write is lost", lost, "", keys, none),
            claim("reads older than what was acknowledged", against_order, "", reads, none),
            claim("failed reads", self.failed_reads as f64, "", reads, none),
            claim("reads failed, their gateway or the origin away", excused, "", reads, None),
            claim("share of acknowledged writes read again", checked, "", writes, None),
            claim("longest without service", without_service, "s", served, Some(Goal::AtMost(1.0))),
            claim("the same while all was well", quiet, "s", 1, None),
            claim("writes refused that needed who was away", of_node, "", writes, None),
            claim("writes refused, another process away", of_others, "", writes, None),
            claim("slowest write, another node away", slowest_write, "s", faults, None),
            claim("longest until writes work again", again, "s", faults, None),
            claim("older reads, no write between", self.regressions as f64, "", reads, None),
        ];
        let Strays { times, ready, ended, restarted, written } = self.strays;
        if times > 0 {
            let stray = |name, value: u64, goal| claim(name, value as f64, "", times, goal);
            claims.extend([
                stray("nodes that came up without their origin", times, None),
                stray("those that said to be ready", ready, none),
                stray("those that had ended", ended, none),
                stray("those that did not serve again by themselves", restarted, none),
                stray("files that they wrote where their origin was not", written, none),
            ]);
        }
        let named =
            |claim: Claim| Claim { name: format!("{}: {}", self.store, claim.name), ..claim };
        claims.into_iter().map(named).collect()
    }

    /// Writes the files that are recorded with the claims: the faults, the replies of failed requests,
    /// and the history around each violation.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn record(&self, context: &Context) -> anyhow::Result<()> {
        let write = |name: &str, text: String| {
            let path = context.out.join(name);
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        let name = |what: &str| format!("{}-{what}", self.store);
        write(&name("faults.json"), serde_json::to_string_pretty(self)? + "\n")?;
        let mut notes = String::new();
        for (at, note) in self.log.notes.iter().take(NOTES_MAX) {
            let at_s = at.saturating_sub(self.start) as f64 / 1e9;
            let _ = writeln!(notes, "{at_s:.3} s: {note}");
        }
        write(&name("refusals.txt"), notes)?;
        self.keep_history(&context.scratch.join(name("history.csv")))?;
        let mut lines = String::new();
        for (number, violation) in self.verdict.violations.iter().enumerate() {
            let line = self.describe(violation);
            if number < SHOWN_MAX {
                context.say(format!("VIOLATION {line}"));
                write(&name(&format!("violation-{}.csv", number + 1)), self.around(violation))?;
            }
            let _ = writeln!(lines, "{line}");
        }
        if !lines.is_empty() {
            write(&name("violations.txt"), lines)?;
        }
        Ok(())
    }

    /// Writes the whole history, about 60 bytes for each operation; it is not part of the record.
    fn keep_history(&self, path: &Path) -> anyhow::Result<()> {
        let file =
            File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        let mut file = BufWriter::new(file);
        file.write_all(history::COLUMNS.as_bytes())?;
        for operation in &self.log.operations {
            file.write_all(history::row(operation, self.start).as_bytes())?;
        }
        file.flush().with_context(|| format!("cannot write {}", path.display()))
    }

    fn describe(&self, violation: &Violation) -> String {
        let operation = self.log.operations.get(violation.operation);
        let row = operation.map(|o| history::row(o, self.start)).unwrap_or_default();
        let (kind, floor) = (violation.kind, violation.floor);
        format!("{kind:?}: {} (version {floor} was acknowledged before it began)", row.trim())
    }

    /// The operations on the key before and after a violation.
    fn around(&self, violation: &Violation) -> String {
        let history = &self.log.operations;
        let Some(read) = history.get(violation.operation) else { return String::new() };
        let of_key = |operation: &&Operation| operation.key == read.key;
        let (earlier, later) = history.split_at(violation.operation);
        let mut rows: Vec<&Operation> = earlier.iter().rev().filter(of_key).take(AROUND).collect();
        rows.reverse();
        rows.extend(later.iter().filter(of_key).take(AROUND));
        let rows = rows.iter().map(|operation| history::row(operation, self.start));
        history::COLUMNS.to_owned() + &rows.collect::<String>()
    }
}

/// A figure that was counted in this run.
fn claim(name: &str, value: f64, unit: &str, samples: u64, goal: Option<Goal>) -> Claim {
    Claim { goal, ..Claim::counted(name, value, unit, samples) }
}
