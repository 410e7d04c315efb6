//! Real batches of keys, as traces for the load generator: which keys are asked for together, and
//! which of them are stored.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use super::config::Config;

/// Batches, ready to be asked for.
pub(super) struct Batches {
    /// The trace of gets; beside it, with the ending `stored.csv`, that of the keys to store.
    pub trace: PathBuf,
    /// Mean number of keys of a get.
    pub keys: f64,
}

/// A line of the file.
#[derive(Deserialize)]
struct Line {
    hash_ids: Vec<u64>,
}

/// Reads the first rows of the file and writes the traces; `None` if there is no such file. Of the
/// distinct keys the share `filled_share` is to be stored, the same number of every hundred.
pub(super) fn prepare(
    source: &Path,
    config: &Config,
    scratch: &Path,
) -> anyhow::Result<Option<Batches>> {
    if !source.is_file() {
        return Ok(None);
    }
    let file = std::fs::File::open(source)?;
    let lines = BufReader::new(record::zst::Decoder::new(file)).lines();
    let batches = read(lines, config.batch_rows)
        .with_context(|| format!("{} is not as expected", source.display()))?;
    let (gets, stored, keys) = traces(&batches, config.filled_share);
    let trace = scratch.join("batches.csv");
    std::fs::write(&trace, gets)?;
    std::fs::write(trace.with_extension("stored.csv"), stored)?;
    Ok(Some(Batches { trace, keys }))
}

fn read(
    lines: impl Iterator<Item = std::io::Result<String>>,
    rows: usize,
) -> anyhow::Result<Vec<Vec<u64>>> {
    let mut batches = Vec::new();
    for line in lines {
        let line: Line = serde_json::from_str(&line?)?;
        if !line.hash_ids.is_empty() {
            batches.push(line.hash_ids);
        }
        if batches.len() == rows {
            break;
        }
    }
    ensure!(!batches.is_empty(), "no batches");
    Ok(batches)
}

/// The trace of gets, that of stored keys, and the mean number of keys.
fn traces(batches: &[Vec<u64>], share: f64) -> (String, String, f64) {
    let head = "time_ms,key,size,op\n";
    let (mut gets, mut stored) = (head.to_owned(), head.to_owned());
    let (mut seen, mut count) = (HashSet::new(), 0);
    for batch in batches {
        let keys: Vec<String> = batch.iter().map(|id| format!("b{id}")).collect();
        let _ = writeln!(gets, ",{},,get", keys.join(" "));
        count += keys.len();
        for (id, key) in batch.iter().zip(keys) {
            let before = seen.len() as f64 * share;
            if seen.insert(*id) && (seen.len() as f64 * share).floor() > before.floor() {
                let _ = writeln!(stored, ",{key},,get");
            }
        }
    }
    (gets, stored, count as f64 / batches.len().max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_become_traces_and_most_keys_are_stored() {
        let text = "{\"hash_ids\": [1, 2, 3]}\n{\"hash_ids\": []}\n{\"hash_ids\": [1, 9]}\n";
        let lines = || text.lines().map(|line| Ok(line.to_owned()));
        let batches = read(lines(), 10).unwrap();
        assert_eq!(read(lines(), 1).unwrap().len(), 1);
        let (gets, stored, keys) = traces(&batches, 1.0);
        assert_eq!(gets, "time_ms,key,size,op\n,b1 b2 b3,,get\n,b1 b9,,get\n");
        assert_eq!(stored.lines().count(), 1 + 4);
        assert_eq!(keys, 2.5);
        let many: Vec<Vec<u64>> = (0..100).map(|i| (i * 10..i * 10 + 10).collect()).collect();
        assert_eq!(traces(&many, 0.99).1.lines().count(), 1 + 990);
        assert!(read(std::iter::empty(), 5).is_err());
        assert!(read(std::iter::once(Ok("{}".to_owned())), 5).is_err());
    }
}
