//! The commands of docs/simulations.md run, each in a short form: the same options with smaller numbers.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::tidy::root;

/// The commands of the page, as words. A backslash at the end of a line goes on in the next.
fn commands(page: &str) -> Vec<Vec<String>> {
    let joined = page.replace("\\\n", " ");
    let lines = joined.lines().filter_map(|line| line.strip_prefix("    concertina "));
    let words = |line: &str| line.split_whitespace().map(|word| word.replace('\'', "")).collect();
    lines.map(words).collect()
}

/// Smaller numbers for the same options; `dir` gets what is written.
fn shortened(words: &[String], dir: &Path, number: usize) -> Vec<String> {
    let days = words.iter().any(|word| word == "--daily");
    let mut short: Vec<String> = Vec::new();
    for word in words {
        let value = match short.last().map(String::as_str) {
            Some("--duration") if days => "3d".to_owned(),
            Some("--warmup") if days => "1h".to_owned(),
            Some("--duration") => "4s".to_owned(),
            Some("--warmup") => "1s".to_owned(),
            Some("--rate") if !days => "100".to_owned(),
            Some("--keys") if word != "drawn" => "1000".to_owned(),
            Some("--nodes") => word.parse::<u32>().unwrap().min(20).to_string(),
            Some("--fault") => match word.split_once('@') {
                Some((fault, when)) if when.contains('+') => format!("{fault}@1s+1s"),
                Some((fault, _)) => format!("{fault}@1s"),
                None => word.clone(),
            },
            Some("--burst") => {
                let (factor, _) = word.split_once('@').unwrap();
                format!("{factor}@1s+1s")
            }
            Some("--config") => root().join(word).display().to_string(),
            Some("--picture") => dir.join(format!("{number}.svg")).display().to_string(),
            Some("--out") => dir.join(format!("run-{number}")).display().to_string(),
            _ => word.clone(),
        };
        short.push(value);
    }
    short.push("--json".to_owned());
    short
}

#[test]
fn the_simulations_of_the_guide_run() {
    let page = std::fs::read_to_string(root().join("docs/simulations.md")).unwrap();
    let found = commands(&page);
    assert!(found.len() >= 4, "{found:?}");
    let dir = tempfile::tempdir().unwrap();
    for (number, words) in found.iter().enumerate() {
        let short = shortened(words, dir.path(), number);
        let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
        let output = command.args(&short).current_dir(dir.path()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{short:?}: {error}");
        let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(outcome["steps"][0]["completions"].as_u64().unwrap() > 100, "{short:?}: {outcome}");
        if words.iter().any(|word| word == "--picture") {
            let picture =
                std::fs::read_to_string(dir.path().join(format!("{number}.svg"))).unwrap();
            assert!(picture.contains("answered in time"), "{picture}");
        }
    }
    let pictures = page.matches("](images/").count();
    assert!(pictures >= 4, "a picture for each: {pictures}");
}
