//! Parts of a study: its runs dealt out to processes, each of which writes a file, and the files joined.
//!
//! A study is a list of units, each of which is simulated by itself: a seed and a load of `concertina simulate`, a run of a candidate of
//! `concertina plan --simulate`. The part `I` of `N` has the units `I`, `I + N`, `I + 2·N` …, so that each part has some of every
//! load. What starts the parts is not ours: Ray, an indexed job of Kubernetes, a shell's loop (docs/simulate.md).
//!
//! The join is asked the same question as the parts, and refuses files of another one. Its result is that of one process that
//! simulates all units, to the last digit, because both put the same numbers together in the same order.

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, bail, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The most parts.
const PARTS_MAX: usize = 100_000;
/// Parts that a message names.
const NAMED_MAX: usize = 10;

/// One of the parts of a study.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StudyPart {
    /// Its number, from 0.
    pub part: usize,
    /// The number of all parts.
    pub parts: usize,
}

impl FromStr for StudyPart {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('/').and_then(|(part, parts)| {
            Some(StudyPart { part: part.parse().ok()?, parts: parts.parse().ok()? })
        });
        parsed.filter(|of| of.part < of.parts && of.parts <= PARTS_MAX).ok_or_else(|| {
            format!(
                "invalid part `{text}`: I/N expected, with I from 0 to N − 1 and N at most {PARTS_MAX}, e.g. 0/8"
            )
        })
    }
}

impl StudyPart {
    /// Its units among `count`.
    pub fn units(self, count: usize) -> impl Iterator<Item = usize> {
        (self.part..count).step_by(self.parts)
    }

    /// Its file in the folder of the parts.
    pub fn file(self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.json", self.name()))
    }

    /// The name of its file without an extension.
    pub fn name(self) -> String {
        format!("part-{}-of-{}", self.part, self.parts)
    }

    /// The part from the name of its file.
    fn from_name(name: &str) -> Option<StudyPart> {
        let numbers = name.strip_prefix("part-")?.strip_suffix(".json")?;
        let part: StudyPart = numbers.replacen("-of-", "/", 1).parse().ok()?;
        (part.file(Path::new("")).to_str() == Some(name)).then_some(part)
    }
}

/// Where the parts of a study are.
#[derive(Clone, Copy, Debug)]
pub struct StudyPlace<'a> {
    /// The folder of their files.
    pub folder: &'a Path,
    /// The name of the study: see [`study_id`].
    pub id: &'a str,
}

/// A short name of a study: the same for the same question and version of the program.
pub fn study_id(question: &dyn Debug) -> String {
    struct Hashed(blake3::Hasher);
    impl fmt::Write for Hashed {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.update(text.as_bytes());
            Ok(())
        }
    }
    let mut hashed = Hashed(blake3::Hasher::new());
    // Does not fail: the hasher takes everything.
    let _ = write!(hashed, "{} {question:?}", env!("CARGO_PKG_VERSION"));
    hashed.0.finalize().to_hex().chars().take(32).collect()
}

/// What a part's file has.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PartFile<T> {
    /// See [`study_id`].
    study: String,
    part: usize,
    parts: usize,
    /// The results of its units, by their place in the study.
    units: BTreeMap<usize, T>,
}

/// Whether the file of a part is there, of the same study.
pub fn is_done(folder: &Path, part: StudyPart, study: &str) -> bool {
    read::<serde::de::IgnoredAny>(folder, part, study).is_ok()
}

/// Writes the file of a part, whole or not at all. One of the same part is replaced.
///
/// # Errors
/// If it cannot be written, or another kind of file is in its place.
pub fn write_part<T: Serialize>(
    folder: &Path,
    part: StudyPart,
    study: &str,
    units: BTreeMap<usize, T>,
) -> anyhow::Result<()> {
    let shown = folder.display();
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {shown}"))?;
    let file = PartFile { study: study.to_owned(), part: part.part, parts: part.parts, units };
    let text = serde_json::to_string(&file)?;
    let is_part = |text: &str| text.starts_with("{\"study\":");
    Ok(report::write_whole(&part.file(folder), &text, is_part)?)
}

fn read<T: DeserializeOwned>(
    folder: &Path,
    part: StudyPart,
    study: &str,
) -> anyhow::Result<BTreeMap<usize, T>> {
    let path = part.file(folder);
    let shown = path.display();
    let text = record::file::read(&path, record::file::RUN_BYTES_MAX)
        .with_context(|| format!("cannot read {shown}"))?;
    let file: PartFile<T> = serde_json::from_slice(&text).with_context(|| {
        format!("{shown} is not a part of a study; remove it and run the part again")
    })?;
    ensure!(
        file.study == study,
        "{shown} is a part of another study, or of another version: the options of all parts and of the join must be the same"
    );
    ensure!(
        (file.part, file.parts) == (part.part, part.parts),
        "{shown} is another part than its name says"
    );
    Ok(file.units)
}

/// Reads the results of all `count` units of a study from the files of its parts.
///
/// # Errors
/// If a part is missing (the message names it), is of another study, or cannot be read.
pub fn read_parts<T: DeserializeOwned>(
    folder: &Path,
    study: &str,
    count: usize,
) -> anyhow::Result<Vec<T>> {
    let shown = folder.display();
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {shown}"))?;
    let mut found = Vec::new();
    for entry in entries {
        found.extend(entry?.file_name().to_str().and_then(StudyPart::from_name));
    }
    let parts = found.iter().map(|part| part.parts).max().unwrap_or(0);
    ensure!(
        parts > 0,
        "{shown} has no part of a study: run each part with --part I/N before --join"
    );
    if let Some(other) = found.iter().find(|part| part.parts != parts) {
        bail!("{shown} has parts of {parts} and parts of {}: keep those of one", other.parts);
    }
    let there: BTreeMap<usize, StudyPart> =
        found.into_iter().map(|part| (part.part, part)).collect();
    let missing: Vec<String> =
        (0..parts).filter(|part| !there.contains_key(part)).map(|part| part.to_string()).collect();
    ensure!(
        missing.is_empty(),
        "{} of {parts} parts are missing in {shown}: {}{} (--part I/{parts})",
        missing.len(),
        missing.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", "),
        if missing.len() > NAMED_MAX { " …" } else { "" }
    );
    let mut units = BTreeMap::new();
    for part in there.into_values() {
        let own: BTreeMap<usize, T> = read(folder, part, study)?;
        let path = part.file(folder);
        ensure!(
            own.keys().copied().eq(part.units(count)),
            "{} does not have the runs of its part; run it again",
            path.display()
        );
        units.extend(own);
    }
    Ok(units.into_values().collect())
}

/// Works on units on threads, and returns the results by the units' places. A unit without a result was interrupted, and ends it.
/// `progress` receives the number of units that ended and that of all.
///
/// # Errors
/// That of the first unit that fails.
pub(super) fn on_threads<U: Sync, R: Send>(
    units: &[U],
    threads: usize,
    stop: &AtomicBool,
    work: &(dyn Fn(&U) -> anyhow::Result<Option<R>> + Sync),
    progress: &(dyn Fn(usize, usize) + Sync),
) -> anyhow::Result<BTreeMap<usize, R>> {
    struct Shared<R> {
        next: usize,
        ended: BTreeMap<usize, R>,
        failed: Option<anyhow::Error>,
    }
    let shared = Mutex::new(Shared { next: 0, ended: BTreeMap::new(), failed: None });
    let lock = || shared.lock().unwrap_or_else(PoisonError::into_inner);
    let take = || {
        let mut shared = lock();
        let is_over = stop.load(Ordering::Relaxed) || shared.failed.is_some();
        shared.next += 1;
        let at = shared.next - 1;
        units.get(at).filter(|_| !is_over).map(|unit| (at, unit))
    };
    let thread = || {
        while let Some((at, unit)) = take() {
            match work(unit) {
                Ok(Some(result)) => {
                    let mut shared = lock();
                    shared.ended.insert(at, result);
                    progress(shared.ended.len(), units.len());
                }
                Ok(None) => return,
                Err(error) => {
                    lock().failed.get_or_insert(error);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let threads = threads.clamp(1, units.len().max(1));
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(thread)).collect();
        // A unit that panics would leave the others without their results.
        threads.into_iter().for_each(|thread| drop(thread.join()));
    });
    let Shared { ended, failed, .. } = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.map_or(Ok(ended), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(text: &str) -> StudyPart {
        text.parse().unwrap()
    }

    #[test]
    fn parts_have_every_unit_once() {
        for (parts, count) in [(1, 5), (3, 10), (8, 3), (4, 0)] {
            let all = (0..parts).flat_map(|at| StudyPart { part: at, parts }.units(count));
            let mut all: Vec<usize> = all.collect();
            all.sort_unstable();
            assert_eq!(all, (0..count).collect::<Vec<_>>(), "{parts}");
        }
        for bad in ["", "1", "1/1", "2/1", "-1/2", "a/b", "0/0", "0/100001", "0/8/9"] {
            assert!(bad.parse::<StudyPart>().is_err(), "{bad}");
        }
        assert_eq!(StudyPart::from_name("part-3-of-8.json"), Some(part("3/8")));
        for other in
            ["part-8-of-8.json", "part-03-of-8.json", "part-3-of-8.json.old", "intervals.json"]
        {
            assert_eq!(StudyPart::from_name(other), None);
        }
    }

    #[test]
    fn what_parts_wrote_is_read_in_order_or_refused() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        let write = |of: &str, study: &str| {
            let units = part(of).units(5).map(|unit| (unit, 0.1 * unit as f64)).collect();
            write_part(dir, part(of), study, units).unwrap();
        };
        let read = || read_parts::<f64>(dir, "a", 5).map_err(|error| format!("{error:#}"));
        assert!(read().unwrap_err().contains("no part of a study"));
        write("2/3", "a");
        write("0/3", "a");
        assert!(read().unwrap_err().contains("1 of 3 parts are missing"));
        write("1/3", "a");
        assert_eq!(read().unwrap(), [0.0, 0.1, 0.2, 0.1 * 3.0, 0.4]);
        assert!(is_done(dir, part("1/3"), "a") && !is_done(dir, part("1/3"), "b"));
        assert!(read_parts::<f64>(dir, "b", 5).is_err() && read_parts::<f64>(dir, "a", 6).is_err());
        write("1/3", "b");
        assert!(read().unwrap_err().contains("another study"));
        write("1/3", "a");
        write("0/2", "a");
        assert!(read().unwrap_err().contains("keep those of one"));
        let other = dir.join("part-0-of-1.json");
        std::fs::write(&other, "mine").unwrap();
        let units = BTreeMap::from([(0, 1.0)]);
        assert!(write_part(dir, part("0/1"), "a", units).is_err());
        assert_eq!(std::fs::read_to_string(other).unwrap(), "mine");
    }

    #[test]
    fn threads_work_on_every_unit_until_one_fails_or_stops() {
        let units: Vec<usize> = (0..50).collect();
        let stop = AtomicBool::new(false);
        let double = |unit: &usize| Ok(Some(2 * unit));
        let found = on_threads(&units, 3, &stop, &double, &|_, _| ()).unwrap();
        assert_eq!(
            found.into_values().collect::<Vec<_>>(),
            (0..100).step_by(2).collect::<Vec<_>>()
        );
        let fails = |unit: &usize| if *unit == 7 { bail!("seven") } else { Ok(Some(())) };
        assert!(on_threads(&units, 2, &stop, &fails, &|_, _| ()).is_err());
        let stops = |unit: &usize| Ok((*unit < 7).then_some(()));
        assert_eq!(on_threads(&units, 1, &stop, &stops, &|_, _| ()).unwrap().len(), 7);
    }
}
