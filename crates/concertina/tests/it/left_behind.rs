//! Commands that start servers and are ended, alone or with their group: nothing that they started stays.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::measure::{self, Running};
use crate::serve_client::until;

/// How long what was started may take to end in order.
const END_MAX: Duration = Duration::from_secs(90);

/// The processes whose command line names a folder.
fn processes(folder: &Path) -> BTreeSet<u32> {
    let name = folder.display().to_string();
    let all = fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let named = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&name)
    };
    pids.filter(named).collect()
}

fn start(folder: &Path, args: &[&str]) -> Child {
    let said = fs::File::create(folder.join("said")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
    command.spawn().unwrap()
}

/// Sends a signal to one process alone, and returns its exit code once it has ended.
fn end(child: &mut Child, signal: &str) -> Option<i32> {
    let done = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(done.success());
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        assert!(start.elapsed() < 2 * END_MAX, "{signal} does not end it");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn nothing_stays(folder: &Path, what: &str) {
    let start = Instant::now();
    while !processes(folder).is_empty() {
        assert!(start.elapsed() < END_MAX, "{what}: {:?} still run", processes(folder));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_demo_that_is_ended_alone_leaves_no_server_and_no_load_generator() {
    // At the server's start, and while it is loaded.
    let cases = [("-INT", Some(130), 2), ("-TERM", Some(143), 1), ("-KILL", None, 2)];
    for (signal, code, children) in cases {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("demo");
        let mut demo =
            Running(start(folder.path(), &["demo", "--quiet", "--dir", dir.to_str().unwrap()]));
        until("a process that the demo started", || processes(&dir).len() > children);
        let what = format!("{signal} with {children} processes");
        assert_eq!(end(&mut demo.0, signal), code, "{what}");
        nothing_stays(&dir, &what);
        assert!(dir.join("trace.csv").exists(), "{what}: what was written stays");
        let said = fs::read_to_string(folder.path().join("said")).unwrap();
        if code.is_some() {
            assert!(said.contains("the processes it started have ended"), "{what}: {said}");
            assert_eq!(said.lines().count(), 1, "{what}: {said}");
        }
    }
}

#[test]
fn a_load_or_a_measurement_that_is_ended_has_the_code_of_its_signal() {
    let (url, _) = measure::serve(Duration::from_millis(1));
    let target = format!("{url}/{{key}}");
    for (signal, code) in [("-INT", Some(130)), ("-TERM", Some(143)), ("-KILL", None)] {
        for command in ["measure", "load"] {
            let folder = tempfile::tempdir().unwrap();
            let out = folder.path().join("out");
            let mut args = vec![command, &target, "--quiet", "--out", out.to_str().unwrap()];
            args.extend(match command {
                "measure" => ["--rates", "50", "--duration", "30s"],
                _ => ["--rate", "50", "--duration", "60s"],
            });
            let mut child = Running(start(folder.path(), &args));
            until("the run folder", || out.join("run.toml").exists());
            assert_eq!(end(&mut child.0, signal), code, "{command}");
            nothing_stays(&out, command);
            assert!(out.join("run.toml").exists());
        }
    }
}

/// The parent may end before the process has begun to look.
#[test]
fn a_process_whose_parent_is_gone_at_its_start_ends() {
    let folder = tempfile::tempdir().unwrap();
    let sets = crate::serve_client::overrides(folder.path(), &[]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
    command.args(["serve", "--with-parent"]).args(sets.iter().flat_map(|set| ["--set", set]));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = Running(command.spawn().unwrap());
    let start = Instant::now();
    while child.0.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < END_MAX, "it stays");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(child.0.try_wait().unwrap().unwrap().code(), Some(0), "in order");
}
