//! Any lines in the files of a run folder: windows, samples, times, the host's seconds and steps are read or refused by
//! their line, and what is read is judged without a panic.

#![no_main]

mod edits;

use std::sync::LazyLock;

use ground::window::{Histogram, Operation, Outcome, Times, Window};
use libfuzzer_sys::fuzz_target;
use record::RunFolder;

static FOLDER: LazyLock<tempfile::TempDir> =
    LazyLock::new(|| tempfile::tempdir().expect("a folder"));
static RUN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let folder = FOLDER.path().join("right");
    let run = record::Run {
        format: record::FORMAT,
        version: "0.1.0".to_owned(),
        kind: "serve".to_owned(),
        start_unix_us: 1_700_000_000_000_000,
        laboratory: None,
        machine: record::Machine::describe(),
        asked: Default::default(),
    };
    drop(record::RunWriter::create(&folder, &run).expect("a run folder"));
    std::fs::read(folder.join("run.toml")).expect("its description")
});
static WINDOW: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut times = Times::new(Operation::Get, Outcome::BulkDevice, 0);
    let mut histogram = Histogram::default();
    [1_000, 2_000_000, 30_000_000].into_iter().for_each(|ns| histogram.record(ns));
    (times.waiting, times.service, times.response) =
        (histogram.clone(), histogram.clone(), histogram);
    let mut window = Window::new("device/0", 1_700_000_000_000_000, 1, &[]);
    window.times = vec![times];
    (window.start_unix_us, window.length_s) = (1_700_000_000_000_000, 1.0);
    (window.arrivals, window.completions, window.busy_s) = (3, 3, 0.03);
    let mut line = serde_json::to_vec(&window).expect("a window");
    line.push(b'\n');
    line
});

// Input: which file, then its text as edits of a right one.
fuzz_target!(|data: &[u8]| {
    let [which, data @ ..] = data else { return };
    let files = ["run.toml", "windows", "samples", "times", "host", "steps"];
    let which = usize::from(*which) % files.len();
    let folder = FOLDER.path();
    for (at, file) in files.iter().enumerate() {
        let text = match (at, at == which) {
            (0, true) => edits::edited(&[&RUN], data),
            (0, false) => RUN.clone(),
            (1, true) => edits::edited(&[&WINDOW], data),
            (_, true) => edits::edited(&[], data),
            _ => Vec::new(),
        };
        std::fs::write(folder.join(file), text).expect("a file");
    }
    let Ok(run) = RunFolder::read(folder) else { return };
    for window in &run.windows {
        let _ = (window.queue_name(), window.end_unix_us());
        for times in &window.times {
            let of = &times.response;
            let _ = (of.count(), of.quantile_s(0.5), of.quantile_s(1.0), of.mean_s());
        }
    }
    for times in &run.times {
        let _ = (times.iter().count(), times.bytes().count(), times.keys().count());
    }
    let _ = report::import::fuzzing::steps(&run.windows, report::import::Cut::Every(1.0));
    let _ = report::import::fuzzing::steps(&run.windows, report::import::Cut::Levels);
});
