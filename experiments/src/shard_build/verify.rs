//! What was imported, compared with the input: by export, and by a scan for some patterns.
//!
//! The scan knows nothing of shards: it goes through the input's lines. It holds a buffer and the hits.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::import::Import;

/// Records of a search that are compared at most; patterns with more are counted alone.
const RECORDS_MAX: usize = 5000;
/// Bytes of a pattern, at least and at most.
const PATTERN_BYTES: (usize, usize) = (5, 12);

/// How it compares.
#[derive(Debug, Default)]
pub struct Compared {
    /// Whether the exported bytes are not those of the input: 0 or 1.
    pub differing: f64,
    /// Patterns whose count is not that of the scan.
    pub wrong_counts: f64,
    /// Patterns whose records are not those of the scan.
    pub wrong_searches: f64,
    /// Occurrences of all patterns.
    pub occurrences: u64,
    /// Records that were compared.
    pub records: u64,
}

/// A pattern and what the scan found of it.
struct Scanned {
    pattern: String,
    occurrences: u64,
    /// Numbers of the lines that hold it, one more than are compared at most.
    lines: Vec<u64>,
}

/// Compares a dataset of lines with its input.
///
/// # Errors
///
/// If either cannot be read, or a command fails.
pub fn compare(import: &Import, text: &Path, patterns: usize) -> anyhow::Result<Compared> {
    let mut compared = Compared::default();
    let file = File::open(text).with_context(|| format!("cannot read {}", text.display()))?;
    let expected = hash(file)?;
    let mut export = import.command("export")?.stdout(Stdio::piped()).spawn()?;
    let exported = hash(export.stdout.take().context("an export without output")?)?;
    ensure!(export.wait()?.success(), "the export failed");
    compared.differing = f64::from(u8::from(exported != expected));
    for Scanned { pattern, occurrences, lines } in scan(text, draw(text, patterns)?)? {
        let args = ["--json", "--bytes", &pattern];
        let count = answer(import, "count", &args)?["count"].as_u64();
        compared.wrong_counts += f64::from(u8::from(count != Some(occurrences)));
        compared.occurrences += occurrences;
        if lines.len() > RECORDS_MAX {
            continue;
        }
        let limit = (RECORDS_MAX + 1).to_string();
        let query = format!("\"{pattern}\"");
        let found = answer(import, "search", &["--json", "--limit", &limit, &query])?;
        let records = found["records"].as_array().context("a search without records")?;
        let ids: Vec<u64> = records.iter().filter_map(|record| record["id"].as_u64()).collect();
        let hold = records
            .iter()
            .all(|record| record["record"].as_str().is_some_and(|text| text.contains(&pattern)));
        compared.wrong_searches += f64::from(u8::from(ids != lines || !hold));
        compared.records += lines.len() as u64;
    }
    ensure!(compared.records > 0, "no pattern is rare enough to compare what a search finds");
    Ok(compared)
}

/// The hash of all bytes.
fn hash(mut bytes: impl Read) -> anyhow::Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    std::io::copy(&mut bytes, &mut hasher).context("cannot read what is compared")?;
    Ok(hasher.finalize())
}

fn answer(import: &Import, command: &str, args: &[&str]) -> anyhow::Result<Value> {
    let output = import.command(command)?.args(args).stderr(Stdio::inherit()).output()?;
    // A search that finds nothing ends as grep does.
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("`data {command}` ended with {}", output.status))
}

/// Pieces of words and numbers of lines all over the text, the same ones each time.
fn draw(text: &Path, count: usize) -> anyhow::Result<Vec<String>> {
    use std::io::{Seek as _, SeekFrom};
    let mut file = File::open(text)?;
    let len = file.metadata()?.len();
    let mut patterns = Vec::new();
    for number in 0..count as u64 {
        let mut bytes = vec![0; 4096.min(usize::try_from(len)?)];
        file.seek(SeekFrom::Start((len - bytes.len() as u64) / count as u64 * number))?;
        file.read_exact(&mut bytes)?;
        let words = bytes.split(|byte| !byte.is_ascii_alphanumeric());
        let (least, most) = PATTERN_BYTES;
        let mut long = words.filter(|word| word.len() >= least);
        let word = long.nth(number as usize % 20).context("a text without words")?;
        let piece = word.get(..most.min(word.len())).unwrap_or(word);
        patterns.push(String::from_utf8_lossy(piece).into_owned());
    }
    patterns.sort();
    patterns.dedup();
    Ok(patterns)
}

/// Every occurrence of each pattern in a text's lines.
fn scan(text: &Path, patterns: Vec<String>) -> anyhow::Result<Vec<Scanned>> {
    let of = |pattern: String| Scanned { pattern, occurrences: 0, lines: Vec::new() };
    let mut all: Vec<Scanned> = patterns.into_iter().map(of).collect();
    let finders: Vec<_> =
        all.iter().map(|one| memchr::memmem::Finder::new(&one.pattern).into_owned()).collect();
    let mut reader = BufReader::with_capacity(1 << 20, File::open(text)?);
    let (mut line, mut number) = (Vec::new(), 0);
    while reader.read_until(b'\n', &mut line)? > 0 {
        for (one, finder) in all.iter_mut().zip(&finders) {
            let (mut from, before) = (0, one.occurrences);
            while let Some(at) = line.get(from..).and_then(|rest| finder.find(rest)) {
                one.occurrences += 1;
                // Overlapping ones count.
                from += at + 1;
            }
            if one.occurrences > before && one.lines.len() <= RECORDS_MAX {
                one.lines.push(number);
            }
        }
        line.clear();
        number += 1;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_finds_overlapping_occurrences_and_their_lines() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("text");
        std::fs::write(&text, "aaaaaa\nb\naaaaa b\n").unwrap();
        let scanned = scan(&text, vec!["aaaaa".to_owned(), "none".to_owned()]).unwrap();
        assert_eq!((scanned[0].occurrences, &scanned[0].lines[..]), (3, &[0, 2][..]));
        assert_eq!((scanned[1].occurrences, scanned[1].lines.len()), (0, 0));
    }

    #[test]
    fn patterns_are_pieces_of_the_text() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("text");
        let line = |i: usize| format!("{}|word{i}|someverylongwordindeed|x\n", 100_000 + i);
        let whole: String = (0..1000).map(line).collect();
        std::fs::write(&text, &whole).unwrap();
        let patterns = draw(&text, 8).unwrap();
        assert!(patterns.len() > 2, "{patterns:?}");
        for pattern in patterns {
            assert!(whole.contains(&pattern) && (5..=12).contains(&pattern.len()), "{pattern}");
        }
    }
}
