//! Logs whose clock differs from the client's, and logs that miss lines.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output};

use rand::SeedableRng;
use rand::rngs::StdRng;
use record::RunFolder;
use serde_json::Value;

use crate::report::exponential;

fn concertina(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_concertina")).args(args).current_dir(dir).output().unwrap()
}

/// A log of one server, exponential of 8 ms, in microseconds.
fn log(rate: f64, count: usize, seed: u64) -> Vec<(f64, String)> {
    let mut random = StdRng::seed_from_u64(seed);
    let (mut at, mut free, mut all) = (1_795_320_900.0f64, 0.0f64, Vec::new());
    for _ in 0..count {
        at += exponential(&mut random, 1.0 / rate);
        free = at.max(free) + exponential(&mut random, 0.008);
        all.push((free, format!("{free:.6} 200 {:.6} 512", free - at)));
    }
    all
}

fn import(dir: &Path, lines: impl Iterator<Item = String>, out: &str) {
    let mut text = String::new();
    lines.for_each(|line| writeln!(text, "{line}").unwrap());
    std::fs::write(dir.join("a.log"), text).unwrap();
    let format = "$msec $status $request_time $body_bytes_sent";
    let output =
        concertina(dir, &["import", "--access-log", "a.log", "--log-format", format, "--out", out]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Half a minute of the log is gone: it is said, and the rest is fitted.
#[test]
fn a_log_that_misses_lines_is_said_to() {
    let dir = tempfile::tempdir().unwrap();
    let all = log(60.0, 6_000, 1);
    let (from, to) = (all[2_000].0, all[2_300].0);
    let kept = all.into_iter().filter(|l| !(from..to).contains(&l.0)).map(|l| l.1);
    import(dir.path(), kept, "r");
    let output = concertina(dir.path(), &["fit", "r", "--servers", "auto", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let fitted: Value = serde_json::from_slice(&output.stdout).unwrap();
    let said = fitted["warnings"].to_string();
    assert!(said.contains("Nothing came for") && said.contains("lines of the log"), "{said}");
    assert_eq!(fitted["hypotheses"][0]["servers"], 1, "{fitted:#}");
}

/// If a server's clock is an hour ahead of the client's, none of its windows lies within a step. The error says
/// so, and by how much the clocks differ.
#[test]
fn clocks_that_differ_are_said_to() {
    let dir = tempfile::tempdir().unwrap();
    import(dir.path(), log(60.0, 1_500, 2).into_iter().map(|l| l.1), "client");
    // The same, as a server without steps of its own, an hour later.
    let folder = dir.path().join("client");
    let read = RunFolder::read(&folder).unwrap();
    let mut run = read.run.clone();
    (run.kind, run.start_unix_us) = ("serve".to_owned(), run.start_unix_us + 3_600_000_000);
    let mut writer = record::RunWriter::create(&dir.path().join("server"), &run).unwrap();
    let mut windows = read.windows.clone();
    for window in &mut windows {
        window.queue = "node".to_owned();
        window.start_unix_us += 3_600_000_000;
    }
    writer.windows(&windows).unwrap();
    writer.flush().unwrap();
    let fit = ["fit", "client", "server", "--servers", "auto"];
    let output = concertina(dir.path(), &fit);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{error}");
    for words in ["server", "3600 s later", "clocks"] {
        assert!(error.contains(words), "{words}: {error}");
    }
}
