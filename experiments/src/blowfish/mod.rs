//! BlowFish's experiments (NSDI 2016) with this system's layers, in virtual time: `experiments/blowfish-gradual`,
//! `blowfish-scheduling`, `blowfish-replication`, `blowfish-recovery` and, of the same parts, `loop`.

mod curve;
pub mod gradual;
pub mod looped;
mod plot;
pub mod recovery;
pub mod replication;
pub mod scheduling;
mod world;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use engine::layers::Settings;
use serde::Deserialize;

use curve::{Curve, Learning};

/// The records that say how fast a shard is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SpeedRecords {
    /// `curve.json` of `experiments/shard-curve`, from the experiment's folder.
    curve: PathBuf,
    /// `measurements.json` of `experiments/shard-layers`.
    layers: PathBuf,
}

impl SpeedRecords {
    fn curve(&self, folder: &Path, text: &str) -> anyhow::Result<Curve> {
        Curve::read(&folder.join(&self.curve), text)
    }

    fn learning(&self, folder: &Path, text: &str) -> anyhow::Result<Learning> {
        Learning::read(&folder.join(&self.layers), text)
    }
}

/// The rounds of an experiment whose loads follow each other.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    rounds: u64,
    /// How long each load lasts, seconds.
    hold_s: f64,
}

/// The settings of layers that a node has where nothing is configured, with another budget.
fn layers(budget_bytes: u64) -> Settings {
    Settings { budget_bytes, ..Settings::default() }
}

/// Runs each case, two at a time; results are in the order of the cases.
///
/// # Errors
/// The first that a case had.
fn each<T: Sync, R: Send>(
    cases: &[T],
    run: impl Fn(&T) -> anyhow::Result<R> + Sync,
) -> anyhow::Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let found: Mutex<Vec<(usize, anyhow::Result<R>)>> = Mutex::new(Vec::new());
    let work = || {
        while let Some((at, case)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            cases.get(at).map(|case| (at, case))
        } {
            let result = run(case);
            if let Ok(mut found) = found.lock() {
                found.push((at, result));
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
    let mut found = found.into_inner().ok().context("a case's thread ended early")?;
    found.sort_by_key(|(at, _)| *at);
    anyhow::ensure!(found.len() == cases.len(), "a case has no result");
    found.into_iter().map(|(_, result)| result).collect()
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}

fn write(folder: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let path = folder.join(name);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_case_is_run_once_and_stays_in_its_place() {
        let cases: Vec<u64> = (0..50).collect();
        let squares = super::each(&cases, |n| Ok(n * n)).unwrap();
        assert_eq!(squares, cases.iter().map(|n| n * n).collect::<Vec<_>>());
        assert!(
            super::each(&cases, |n| {
                anyhow::ensure!(*n != 7, "seven");
                Ok(())
            })
            .is_err()
        );
    }
}
