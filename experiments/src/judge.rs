//! Judges records again: reads `claims.json` of any age, applies the one rule of [`crate::claims`],
//! and keeps the table in `docs/benchmarks.md`. Records themselves are never rewritten.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde::Deserialize;

use crate::claims::{Claim, Verdict};
use crate::covered::{self, Covered};
use crate::marks::{Complaint, Mark};

/// Where the table begins in the document.
const BEGIN: &str = "<!-- judged records: written by `experiments judge` -->";
/// Where it ends.
const END: &str = "<!-- end of judged records -->";

/// A claim as `claims.json` has it, of this format or of the one before.
#[derive(Deserialize)]
struct Stored {
    #[serde(flatten)]
    claim: Claim,
    /// The verdict of the earlier rule; only in the earlier format.
    holds: Option<bool>,
}

/// Names of figures that the earlier format wrote with an interval of no width although they were
/// measured once.
const MEASURED_ONCE: [&str; 3] = ["CPU time of building", "memory while it answers", "most memory"];

/// The largest drift of the ceiling within a round that the earlier `serve-objects` accepted
/// without another attempt.
const DRIFT_MAX: f64 = 0.02;

/// One record, judged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judged {
    /// Name of the experiment.
    pub experiment: String,
    /// Name of the record's folder.
    pub record: String,
    /// Claims that hold.
    pub hold: usize,
    /// Claims that are not shown.
    pub not_shown: usize,
    /// Claims that fail.
    pub fail: usize,
    /// Claims that rest on a marked step.
    pub marked: usize,
    /// Claims that held by the earlier rule; `None` for a record of this format.
    pub held_before: Option<usize>,
    /// The commit that was measured, by `run.json`; `None` where the record has none.
    pub commit: Option<String>,
    /// The claims that have a goal, with their verdicts.
    pub claims: Vec<Claim>,
    /// The figures without a goal, which have no verdict.
    pub shown: Vec<Claim>,
    /// Held-out measurements and their intervals.
    pub covered: Covered,
}

/// The records of folders: of an experiment, of a record, or of all experiments. Sorted by name.
///
/// # Errors
/// If a folder has no record.
pub fn records(folders: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for folder in folders {
        let before = found.len();
        collect(folder, &mut found)?;
        if found.len() == before {
            bail!("{} has no record: no claims.json below it", folder.display());
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// Goes down to `record/NAME/claims.json`: three folders at most.
fn collect(folder: &Path, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if folder.join("claims.json").is_file() {
        found.push(folder.to_owned());
        return Ok(());
    }
    let inner = folder.join("record");
    let below = if inner.is_dir() { inner } else { folder.to_owned() };
    let entries = std::fs::read_dir(&below)
        .with_context(|| format!("cannot read the folder {}", below.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.join("claims.json").is_file() || path.join("record").is_dir() {
            collect(&path, found)?;
        }
    }
    Ok(())
}

/// Judges one record.
///
/// # Errors
/// If its files cannot be read.
pub fn judge(record: &Path) -> anyhow::Result<Judged> {
    let path = record.join("claims.json");
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let stored: Vec<Stored> = serde_json::from_str(&text)
        .with_context(|| format!("{} is not a list of claims", path.display()))?;
    let exhausted = exhausted(record)?;
    let name = |path: Option<&Path>| {
        let name = path.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        name.unwrap_or_default()
    };
    let real = record.canonicalize()?;
    let mut judged = Judged {
        experiment: name(real.ancestors().nth(2)),
        record: name(Some(&real)),
        commit: commit(record),
        covered: covered::of_record(record)?,
        ..Judged::default()
    };
    for Stored { mut claim, holds } in stored {
        if claim.goal.is_none() {
            judged.shown.push(claim);
            continue;
        }
        if let Some(held) = holds {
            judged.held_before = Some(judged.held_before.unwrap_or(0) + usize::from(held));
            let once = MEASURED_ONCE.iter().any(|name| claim.name.contains(name));
            if once && claim.samples == 1 && claim.low == claim.high {
                (claim.low, claim.high) = (f64::NAN, f64::NAN);
            }
            claim.marks.extend(exhausted.clone());
        }
        let claim = claim.judged();
        match claim.verdict {
            Some(Verdict::Holds) => judged.hold += 1,
            Some(Verdict::Fails) => judged.fail += 1,
            Some(Verdict::NotShown) | None => judged.not_shown += 1,
        }
        judged.marked += usize::from(!claim.marks.is_empty());
        judged.claims.push(claim);
    }
    Ok(judged)
}

/// One row of the `rounds.json` that `serve-objects` wrote before slices.
#[derive(Deserialize)]
struct OldRow {
    round: usize,
    system: String,
    requests_per_s: f64,
}

/// A mark on a record whose permitted attempts ran out: rounds were kept although the ceiling had
/// drifted.
fn exhausted(record: &Path) -> anyhow::Result<Option<Mark>> {
    let Ok(text) = std::fs::read_to_string(record.join("rounds.json")) else { return Ok(None) };
    let rows: Vec<OldRow> = serde_json::from_str(&text)
        .with_context(|| format!("{}: rounds.json is malformed", record.display()))?;
    let of = |round: usize, system: &str| {
        rows.iter().find(|row| row.round == round && row.system == system)
    };
    let rounds: usize = rows.iter().map(|row| row.round).max().unwrap_or(0);
    let drifted =
        (1..=rounds).filter(|&round| match (of(round, "ceiling"), of(round, "ceiling after")) {
            (Some(a), Some(b)) => (b.requests_per_s / a.requests_per_s - 1.0).abs() > DRIFT_MAX,
            _ => false,
        });
    let drifted = drifted.count();
    let detail =
        format!("the ceiling drifted by more than 2 % in {drifted} of {rounds} rounds kept");
    Ok((drifted > 0).then(|| Mark::new("rounds", Complaint::AttemptsExhausted, detail)))
}

/// The commit of a record, with `+` if files differed from it.
fn commit(record: &Path) -> Option<String> {
    let text = std::fs::read_to_string(record.join("run.json")).ok()?;
    let run: crate::provenance::RunFile = serde_json::from_str(&text).ok()?;
    let changed = if run.dirty == Some(true) { "+" } else { "" };
    run.commit.map(|commit| format!("{}{changed}", commit.get(..9).unwrap_or(&commit)))
}

/// The table, in Markdown, with a line of sums.
pub fn table(judged: &[Judged]) -> String {
    let mut text = String::from(
        "| experiment | record | claims | hold | not shown | fail | marked | held by the earlier rule | commit |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    let mut row = |one: &Judged| {
        let before = one.held_before.map_or("–".to_owned(), |held| held.to_string());
        let commit = one.commit.as_deref().unwrap_or("–");
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {before} | {commit} |",
            one.experiment,
            one.record,
            one.claims.len(),
            one.hold,
            one.not_shown,
            one.fail,
            one.marked
        );
    };
    let mut sum = Judged { experiment: "all".to_owned(), ..Judged::default() };
    for one in judged {
        row(one);
        sum.hold += one.hold;
        sum.not_shown += one.not_shown;
        sum.fail += one.fail;
        sum.marked += one.marked;
        sum.claims.extend(one.claims.clone());
        if let Some(held) = one.held_before {
            sum.held_before = Some(sum.held_before.unwrap_or(0) + held);
        }
    }
    row(&sum);
    text.push('\n');
    text.push_str(&covered::table(
        judged.iter().map(|one| (one.experiment.as_str(), &one.covered)),
    ));
    text
}

/// The document with the table between its markers.
///
/// # Errors
/// If the document does not have both markers, once each and in order.
pub fn in_document(document: &str, table: &str) -> anyhow::Result<String> {
    let found = document.split_once(BEGIN).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(END)?;
        Some((before, after))
    });
    let Some((before, after)) = found else {
        bail!("the document does not have the lines {BEGIN:?} and {END:?}");
    };
    Ok(format!("{before}{BEGIN}\n\n{table}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(claims: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("tiny/record/2026-11-22-here");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("claims.json"), claims).unwrap();
        (dir, folder)
    }

    /// As the program wrote claims before verdicts.
    fn old(name: &str, value: &str, low: &str, high: &str, goal: &str, holds: bool) -> String {
        format!(
            r#"{{"name": "{name}", "value": {value}, "low": {low}, "high": {high}, "unit": "×",
                "samples": 1, "width_max": 0.1, "published": null, "goal": {goal},
                "peer": null, "holds": {holds}}}"#
        )
    }

    #[test]
    fn claims_of_the_earlier_format_are_judged_by_the_rule() {
        let least = r#"{"at_least": 2.0}"#;
        let most = r#"{"at_most": 2.0}"#;
        let claims = [
            // Too wide for the earlier rule, although all of it meets the goal.
            old("fast", "9.0", "3.0", "15.0", least, false),
            // Narrow enough for the earlier rule, although it reaches past the goal.
            old("nearly", "2.05", "1.95", "2.15", least, true),
            old("slow", "1.0", "0.5", "1.5", least, false),
            old("missing", "null", "null", "null", least, false),
            old("shard over trigram, CPU time of building", "0.2", "0.2", "0.2", most, true),
            old("size on disk", "0.6", "0.6", "0.6", most, true),
            old("shown", "1.0", "1.0", "1.0", "null", true),
        ];
        let (_dir, folder) = record(&format!("[{}]", claims.join(",")));
        let judged = judge(&folder).unwrap();
        let counts = (judged.hold, judged.not_shown, judged.fail, judged.held_before);
        assert_eq!(counts, (2, 3, 1, Some(3)), "{:?}", judged.claims);
        assert_eq!((&*judged.experiment, &*judged.record), ("tiny", "2026-11-22-here"));
    }

    #[test]
    fn a_record_whose_attempts_ran_out_shows_nothing() {
        let claim = old("fast", "9.0", "8.0", "10.0", r#"{"at_least": 2.0}"#, true);
        let (_dir, folder) = record(&format!("[{claim}]"));
        let rounds = |after: f64| {
            let row = |system: &str, rate: f64| {
                format!(r#"{{"round": 1, "system": "{system}", "requests_per_s": {rate}}}"#)
            };
            let text = format!("[{}, {}]", row("ceiling", 100.0), row("ceiling after", after));
            std::fs::write(folder.join("rounds.json"), text).unwrap();
        };
        rounds(101.0);
        assert_eq!(judge(&folder).unwrap().hold, 1);
        rounds(110.0);
        let judged = judge(&folder).unwrap();
        assert_eq!((judged.not_shown, judged.marked), (1, 1));
        assert!(judged.claims[0].marks[0].detail.contains("1 of 1 rounds"));
    }

    #[test]
    fn claims_of_this_format_keep_their_verdicts() {
        let claims: Vec<Claim> = vec![
            Claim::new("a", 1.0, 0.5, "s", 9).with_goal(crate::claims::Goal::AtMost(2.0)).judged(),
            Claim::new("b", 1.0, 1.5, "s", 9).with_goal(crate::claims::Goal::AtMost(2.0)).judged(),
            Claim::new("c", 1.0, 1.5, "s", 9).judged(),
        ];
        let (_dir, folder) = record(&serde_json::to_string(&claims).unwrap());
        let judged = judge(&folder).unwrap();
        assert_eq!((judged.hold, judged.not_shown, judged.held_before), (1, 1, None));
        let verdicts: Vec<_> = judged.claims.iter().map(|claim| claim.verdict).collect();
        assert_eq!(verdicts, [claims[0].verdict, claims[1].verdict]);
    }

    #[test]
    fn records_are_found_from_every_folder_above() {
        let (dir, folder) = record("[]");
        for from in [dir.path(), &dir.path().join("tiny"), &dir.path().join("tiny/record"), &folder]
        {
            let found = records(&[from.to_owned()]).unwrap();
            assert_eq!(found, std::slice::from_ref(&folder), "{}", from.display());
        }
        let empty = tempfile::tempdir().unwrap();
        let error = records(&[empty.path().to_owned()]).unwrap_err().to_string();
        assert!(error.contains("no claims.json"), "{error}");
    }

    #[test]
    fn a_document_gets_the_table_between_its_markers() {
        let document = format!("# Head\n\n{BEGIN}\nold\n{END}\n\nrest\n");
        let table = table(&[]);
        let written = in_document(&document, &table).unwrap();
        assert!(written.starts_with("# Head\n") && written.ends_with("\n\nrest\n"));
        assert!(written.contains(&table) && !written.contains("old\n"));
        assert_eq!(
            in_document(&written, &table).unwrap(),
            written,
            "a second time changes nothing"
        );
        assert!(in_document("# Head\n", &table).is_err());
    }
}
