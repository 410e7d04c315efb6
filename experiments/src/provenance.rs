//! Where a record comes from: `run.json` beside `claims.json`, and the list of all runs beside the
//! record's folder.
//!
//! `run.json` is written when a run begins and again after every round, so that a run that failed
//! or was killed leaves behind what it had done. `runs.jsonl` gets a line when a run begins and
//! another when it ends: a run with the first line only was killed. Records are never overwritten.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use record::Machine;
use serde::{Deserialize, Serialize};

/// Most folders of one day and machine.
const FOLDERS_MAX: u32 = 1000;

/// One round, attempt or block of slices of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Name of the step that it measured.
    pub step: String,
    /// Its number among the attempts at the step, from 1.
    pub attempt: u32,
    /// Whether its measurements count.
    pub accepted: bool,
    /// Why they do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Requests/s of the ceiling in the round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_per_s: Option<f64>,
    /// Further figures by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, f64>,
}

impl Round {
    /// A round.
    pub fn new(step: &str, attempt: u32, accepted: bool) -> Round {
        Round { step: step.to_owned(), attempt, accepted, ..Round::default() }
    }

    /// The round with further figures.
    pub fn with<'a>(mut self, facts: impl IntoIterator<Item = (&'a str, f64)>) -> Round {
        self.facts.extend(facts.into_iter().map(|(name, value)| (name.to_owned(), value)));
        self
    }
}

/// `run.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunFile {
    /// Name of the experiment.
    pub experiment: String,
    /// The commit that was checked out; `None` outside a repository.
    pub commit: Option<String>,
    /// Whether files other than records differed from it.
    pub dirty: Option<bool>,
    /// Hashes (BLAKE3) of the programs that ran, by their names.
    pub programs: BTreeMap<String, String>,
    /// Hash (BLAKE3) of `config.toml`.
    pub config_hash: String,
    /// Whether fewer points were measured (`--short`).
    pub short: bool,
    /// `seed` of `config.toml`, if it has one.
    pub seed: Option<u64>,
    /// When the run began, UTC.
    pub start: String,
    /// When it ended; `None` while it runs, and for a run that was killed.
    pub end: Option<String>,
    /// The machine.
    pub machine: Machine,
    /// Versions of the peers by their names.
    pub peers: BTreeMap<String, String>,
    /// Rounds that were measured, rejected ones included.
    pub attempts: u64,
    /// Rounds that were rejected.
    pub rejected: u64,
    /// Every round, in order.
    pub rounds: Vec<Round>,
    /// How the run ended: the worst verdict of its claims, `too small`, or the error.
    pub outcome: Option<String>,
}

/// One line of `runs.jsonl`.
#[derive(Debug, Serialize)]
struct Line<'a> {
    folder: &'a str,
    event: &'a str,
    at: &'a str,
    commit: &'a Option<String>,
    dirty: Option<bool>,
    short: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'a str>,
}

/// The provenance of the run under way.
pub struct Provenance {
    out: PathBuf,
    file: Mutex<RunFile>,
}

impl Provenance {
    /// Begins a run of the experiment in `folder` whose results go to `out`: writes `run.json` and
    /// the first line in the list of runs.
    ///
    /// # Errors
    /// If a file cannot be read or written.
    pub fn begin(folder: &Path, name: &str, out: &Path, short: bool) -> anyhow::Result<Provenance> {
        let path = folder.join("config.toml");
        let config =
            std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let (commit, dirty) = commit(folder);
        let file = RunFile {
            experiment: name.to_owned(),
            commit,
            dirty,
            programs: programs(),
            config_hash: blake3::hash(&config).to_hex().to_string(),
            short,
            seed: seed(&config),
            start: utc_now(),
            machine: Machine::describe(),
            ..RunFile::default()
        };
        let provenance = Provenance { out: out.to_owned(), file: Mutex::new(file) };
        provenance.write(&provenance.locked())?;
        provenance.list("begin", &provenance.locked())?;
        Ok(provenance)
    }

    fn locked(&self) -> MutexGuard<'_, RunFile> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a round, accepted or not.
    ///
    /// # Errors
    /// If `run.json` cannot be written.
    pub fn round(&self, round: Round) -> anyhow::Result<()> {
        let mut file = self.locked();
        file.attempts += 1;
        file.rejected += u64::from(!round.accepted);
        file.rounds.push(round);
        self.write(&file)
    }

    /// Records the version of a peer.
    ///
    /// # Errors
    /// If `run.json` cannot be written.
    pub fn peer(&self, name: &str, version: &str) -> anyhow::Result<()> {
        let mut file = self.locked();
        file.peers.insert(name.to_owned(), version.trim().to_owned());
        self.write(&file)
    }

    /// Ends the run.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn end(&self, outcome: &str) -> anyhow::Result<()> {
        let mut file = self.locked();
        file.end = Some(utc_now());
        file.outcome = Some(outcome.to_owned());
        self.write(&file)?;
        self.list("end", &file)
    }

    fn write(&self, file: &RunFile) -> anyhow::Result<()> {
        let path = self.out.join("run.json");
        std::fs::write(&path, serde_json::to_string_pretty(file)? + "\n")
            .with_context(|| format!("cannot write {}", path.display()))
    }

    fn list(&self, event: &str, file: &RunFile) -> anyhow::Result<()> {
        let folder = self.out.file_name().map(|name| name.to_string_lossy().into_owned());
        let line = Line {
            folder: folder.as_deref().unwrap_or_default(),
            event,
            at: file.end.as_deref().unwrap_or(&file.start),
            commit: &file.commit,
            dirty: file.dirty,
            short: file.short,
            outcome: file.outcome.as_deref(),
        };
        let path = self.out.with_file_name("runs.jsonl");
        let text = serde_json::to_string(&line)? + "\n";
        let file = OpenOptions::new().create(true).append(true).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Makes the folder of a new record: `DATE-MACHINE`, with `-short` for a short run and a number for
/// a further run of the same day.
///
/// # Errors
/// If it cannot be made.
pub fn new_folder(records: &Path, short: bool) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(records)
        .with_context(|| format!("cannot make {}", records.display()))?;
    let name = format!("{}{}", record_name(), if short { "-short" } else { "" });
    for number in 1..=FOLDERS_MAX {
        let name = if number == 1 { name.clone() } else { format!("{name}-{number}") };
        let folder = records.join(name);
        match std::fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot make {}", folder.display()));
            }
        }
    }
    bail!("{} has {FOLDERS_MAX} records of today already", records.display())
}

/// Makes a folder of the caller's choice, which must be empty.
///
/// # Errors
/// If it has files, or cannot be made.
pub fn chosen_folder(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut entries = std::fs::read_dir(folder)?;
    if entries.next().is_some() {
        bail!(
            "{} is not empty: records are never overwritten; name another folder",
            folder.display()
        );
    }
    Ok(())
}

/// `DATE-MACHINE`: the day in UTC, and the machine's processor and cores.
fn record_name() -> String {
    let machine = Machine::describe();
    let processor: String = machine
        .processor
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let processor = processor.trim_matches('-');
    format!("{}-{processor}-{}-cores", &utc_now()[..10], machine.cores)
}

/// The time in UTC, as `2026-11-23T21:04:01Z`.
fn utc_now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or_default();
    let time = chrono::DateTime::from_timestamp(seconds, 0).unwrap_or_default();
    time.format("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The commit that is checked out around a folder, and whether files other than records differ from
/// it.
fn commit(folder: &Path) -> (Option<String>, Option<bool>) {
    let git = |arguments: &[&str]| -> Option<String> {
        let output = Command::new("git").arg("-C").arg(folder).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "HEAD"]);
    let outside = ":(top,exclude,glob)experiments/*/record/**";
    let changed = git(&["status", "--porcelain", "--untracked-files=all", "--", ":/", outside]);
    (commit, changed.map(|changed| !changed.is_empty()))
}

/// Hashes of this program and of the server and load generator beside it.
fn programs() -> BTreeMap<String, String> {
    let paths = [std::env::current_exe().ok(), concertina::lab::program().ok()];
    let hash = |path: PathBuf| {
        let name = path.file_name()?.to_string_lossy().into_owned();
        let mut hasher = blake3::Hasher::new();
        std::io::copy(&mut std::fs::File::open(&path).ok()?, &mut hasher).ok()?;
        Some((name, hasher.finalize().to_hex().to_string()))
    };
    paths.into_iter().flatten().filter_map(hash).collect()
}

/// `seed` of a configuration.
fn seed(config: &[u8]) -> Option<u64> {
    let table: toml::Table = toml::from_str(&String::from_utf8_lossy(config)).ok()?;
    table.get("seed")?.as_integer().and_then(|seed| u64::try_from(seed).ok())
}

/// Version of an installed Debian package; `None` if it is not installed, or the system is another.
pub fn package_version(package: &str) -> Option<String> {
    let mut command = Command::new("dpkg-query");
    let output = command.args(["-W", "-f=${Version}", package]).output().ok()?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !version.is_empty()).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("config.toml"), "seed = 7\nrounds = 3\n").unwrap();
        let out = dir.path().join("record/today");
        std::fs::create_dir_all(&out).unwrap();
        (dir, out)
    }

    fn read(out: &Path) -> RunFile {
        serde_json::from_slice(&std::fs::read(out.join("run.json")).unwrap()).unwrap()
    }

    #[test]
    fn a_run_is_recorded_from_its_beginning() {
        let (dir, out) = experiment();
        let provenance = Provenance::begin(dir.path(), "tiny", &out, true).unwrap();
        let begun = read(&out);
        assert_eq!((begun.seed, begun.short, &begun.end), (Some(7), true, &None));
        assert_eq!(begun.config_hash, blake3::hash(b"seed = 7\nrounds = 3\n").to_hex().to_string());
        assert!(!begun.programs.is_empty() && begun.start.ends_with('Z'));
        let mut rejected = Round::new("load", 1, false).with([("stolen", 0.2)]);
        rejected.why = Some("disturbed".to_owned());
        rejected.ceiling_per_s = Some(5e4);
        provenance.round(rejected.clone()).unwrap();
        provenance.round(Round::new("load", 2, true)).unwrap();
        provenance.peer("nginx", "1.26.3\n").unwrap();
        // As a run leaves it that is killed now.
        let killed = read(&out);
        assert_eq!((killed.attempts, killed.rejected, &killed.rounds[0]), (2, 1, &rejected));
        assert_eq!((killed.peers["nginx"].as_str(), &killed.end), ("1.26.3", &None));
        provenance.end("not shown").unwrap();
        assert!(read(&out).end.is_some());
        let list = std::fs::read_to_string(dir.path().join("record/runs.jsonl")).unwrap();
        let events: Vec<serde_json::Value> =
            list.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((events.len(), &events[0]["event"]), (2, &"begin".into()));
        assert_eq!(
            (&events[1]["outcome"], &events[1]["folder"]),
            (&"not shown".into(), &"today".into())
        );
    }

    #[test]
    fn a_second_run_of_a_day_has_a_folder_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let name = |short| -> String {
            let folder = new_folder(dir.path(), short).unwrap();
            folder.file_name().unwrap().to_string_lossy().into_owned()
        };
        let first = name(false);
        let second = name(false);
        assert_eq!(second, format!("{first}-2"));
        assert_eq!(name(true), format!("{first}-short"));
        assert_eq!(name(true), format!("{first}-short-2"));
        std::fs::write(dir.path().join(&first).join("claims.json"), "[]").unwrap();
        let refused = chosen_folder(&dir.path().join(&first)).unwrap_err().to_string();
        assert!(refused.contains("never overwritten"), "{refused}");
        chosen_folder(&dir.path().join(&second)).unwrap();
    }

    #[test]
    fn the_commit_and_changes_outside_records_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let git = |arguments: &[&str]| {
            let mut command = Command::new("git");
            command.arg("-C").arg(dir.path()).args(["-c", "user.name=a", "-c", "user.email=a@b"]);
            assert!(command.args(arguments).output().unwrap().status.success(), "{arguments:?}");
        };
        assert_eq!(commit(dir.path()), (None, None), "no repository");
        git(&["init", "-q"]);
        let folder = dir.path().join("experiments/tiny");
        std::fs::create_dir_all(folder.join("record/today")).unwrap();
        std::fs::write(folder.join("config.toml"), "a = 1").unwrap();
        git(&["add", "."]);
        git(&["commit", "-q", "-m", "a"]);
        std::fs::write(folder.join("record/today/claims.json"), "[]").unwrap();
        let (hash, dirty) = commit(&folder);
        assert_eq!((hash.unwrap().len(), dirty), (40, Some(false)), "records do not count");
        std::fs::write(folder.join("config.toml"), "a = 2").unwrap();
        assert_eq!(commit(&folder).1, Some(true));
    }
}
