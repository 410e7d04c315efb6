//! `concertina data import` as a process: what memory it takes, and what it leaves behind.

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

fn import(folder: &Path, args: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_concertina"))
        .args(["data", "import", "--name", "d", "--json"])
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The most memory that a process has taken so far; none once it has ended.
fn peak_bytes(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// Imports a text, and holds the process to what it said.
fn check(text: &[u8], args: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("input"), text).unwrap();
    let mut child = import(folder.path(), &[&["input"], args].concat());
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        peak = peak_bytes(child.id()).unwrap_or(0).max(peak);
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let made: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let said = made["memory_bytes_max"].as_u64().unwrap();
    assert!(peak <= said, "{peak} B of memory, and {said} B were said");
    // The suffix array alone takes four times the text: less was not looked at.
    assert!(peak > 4 * text.len() as u64, "{peak} B for a text of {} B", text.len());
}

#[test]
fn an_import_takes_no_more_memory_than_it_says() {
    let mut state = 1_u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state >> 33
    };
    let mut numbers = String::new();
    while numbers.len() < 12 << 20 {
        numbers.push_str(&format!("{},{},{}\n", random() % 1000, random() % 10, random()));
    }
    check(numbers.as_bytes(), &["--format", "csv", "--jobs", "1"]);
    // Records of two bytes: where they start takes more than the text.
    check("a\n".repeat(4 << 20).as_bytes(), &["--format", "lines"]);
}

#[test]
fn an_import_that_is_interrupted_leaves_nothing() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let folder = tempfile::tempdir().unwrap();
        let mut child = import(folder.path(), &["-", "--format", "lines"]);
        // It waits for more than this.
        child.stdin.as_mut().unwrap().write_all(b"a line\n").unwrap();
        let unfinished = folder.path().join("datasets/.importing-d/lock");
        let deadline = Instant::now() + Duration::from_secs(60);
        while !unfinished.exists() {
            assert!(Instant::now() < deadline && child.try_wait().unwrap().is_none());
            std::thread::sleep(Duration::from_millis(5));
        }
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code));
        let left = std::fs::read_dir(folder.path().join("datasets")).unwrap();
        assert_eq!(left.count(), 0, "after {signal:?}");
    }
}
