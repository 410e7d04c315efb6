//! `concertina factors --runs`: the table of runs is read off run folders.

use std::path::Path;
use std::process::{Command, Output};

use ground::window::{Operation, Outcome, Window};
use record::{FORMAT, Generator, Machine, Run, RunWriter, Step};

/// A folder to be written: a load's with the rates of its steps, or a server's.
struct Folder<'a> {
    name: &'a str,
    kind: &'a str,
    /// Seconds after the others' start.
    start_s: u64,
    asked: &'a str,
    /// Rate and response time of each step, ms.
    steps: &'a [(f64, f64)],
    cores: usize,
}

impl Default for Folder<'_> {
    fn default() -> Self {
        Folder { name: "", kind: "load", start_s: 0, asked: "", steps: &[], cores: 2 }
    }
}

const START_US: u64 = 1_700_000_000_000_000;

impl Folder<'_> {
    fn write(&self, root: &Path) {
        let start_us = START_US + self.start_s * 1_000_000;
        let (kernel, processor) = ("6.1".to_owned(), "one".to_owned());
        let run = Run {
            format: FORMAT,
            version: "0".to_owned(),
            kind: self.kind.to_owned(),
            start_unix_us: start_us,
            laboratory: None,
            machine: Machine {
                cores: self.cores,
                processor,
                memory_bytes: 1 << 30,
                kernel,
                ..Machine::default()
            },
            asked: toml::from_str(self.asked).unwrap(),
        };
        let mut writer = RunWriter::create(&root.join(self.name), &run).unwrap();
        for (index, &(rate, response_ms)) in self.steps.iter().enumerate() {
            let from = start_us + index as u64 * 10_000_000;
            let generator = Generator::default();
            let windows: Vec<Window> =
                (0..4).map(|i| window("load", from + i * 1_000_000, rate, response_ms)).collect();
            writer.windows(&windows).unwrap();
            let end_unix_us = from + 4_000_000;
            let rate = Some(rate);
            let step =
                Step { index, rate, clients: None, start_unix_us: from, end_unix_us, generator };
            writer.step(&step).unwrap();
        }
        if self.kind == "serve" {
            // It is recorded for 30 s.
            let windows = (0..30).map(|i| window("node", start_us + i * 1_000_000, 10.0, 1.0));
            writer.windows(&windows.collect::<Vec<_>>()).unwrap();
        }
        writer.flush().unwrap();
    }
}

/// A second in which all requests took the same time.
fn window(queue: &str, start_us: u64, rate: f64, response_ms: f64) -> Window {
    let mut window = Window::new(queue, start_us, 0, &[]);
    (window.length_s, window.arrivals, window.completions) = (1.0, rate as u64, rate as u64);
    let times = window.times_mut(Operation::Get, Outcome::Unknown);
    times.response.record_many((response_ms * 1e6) as u64, rate as u64);
    times.service.record_many((response_ms * 0.5e6) as u64, rate as u64);
    window
}

fn factors(root: &Path, args: &[&str]) -> Output {
    let all = [&["factors", "--runs"], args].concat();
    Command::new(env!("CARGO_BIN_EXE_concertina")).args(all).current_dir(root).output().unwrap()
}

fn json(root: &Path, args: &[&str]) -> serde_json::Value {
    let output = factors(root, &[args, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refusal(root: &Path, args: &[&str]) -> String {
    let output = factors(root, args);
    assert!(!output.status.success(), "{args:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn effect(found: &serde_json::Value, name: &str) -> f64 {
    let effects = found["analysis"]["effects"].as_array().unwrap();
    let effect = effects.iter().find(|e| e["name"] == name);
    effect.unwrap_or_else(|| panic!("{name}: {found:#}"))["effect"]["value"].as_f64().unwrap()
}

/// Whether two times are the same to the width of a histogram's bucket.
fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 0.01 * a.abs().max(b.abs()) + 0.05
}

/// Response = 20 + 6·a − 2·b + (1·a·b) ms with a the rate (±) and b the read share (±), twice, a folder for
/// each share and repetition, its steps the rates.
fn design(root: &Path) {
    let at = |a: f64, b: f64, off: f64| 20.0 + 6.0 * a - 2.0 * b + a * b + off;
    for (i, (share, repetition, off)) in
        [(0.5, 1, 0.1), (1.0, 1, -0.1), (0.5, 2, -0.1), (1.0, 2, 0.1)].into_iter().enumerate()
    {
        let b = if share > 0.7 { 1.0 } else { -1.0 };
        Folder {
            name: &format!("runs/share={share},x/{repetition}"),
            start_s: 100 * i as u64,
            asked: &format!("[keys.synthetic]\nread_share = {share}\ncount = 10"),
            steps: &[(100.0, at(-1.0, b, off)), (400.0, at(1.0, b, -off))],
            ..Folder::default()
        }
        .write(root);
    }
}

#[test]
fn a_factorial_design_is_read_off_folders() {
    let dir = tempfile::tempdir().unwrap();
    design(dir.path());
    let asked = ["runs", "--factors", "rate,load.keys.synthetic.read_share"];
    let additive = ["--model", "additive"];
    let args = [&asked[..], &["--response", "response_ms_p99"], &additive].concat();
    let found = json(dir.path(), &args);
    assert_eq!(found["analysis"]["replications"], 2, "{found:#}");
    assert_eq!(found["factors"][1]["levels"], serde_json::json!(["0.5", "1"]));
    assert!(close(effect(&found, "A"), 6.0) && close(effect(&found, "B"), -2.0), "{found:#}");
    assert!(close(effect(&found, "AB"), 1.0), "{found:#}");
    let runs = found["runs"].as_array().unwrap();
    assert_eq!((runs.len(), &runs[0]["step"], &runs[1]["step"]), (8, &0.into(), &1.into()));
    assert_eq!(runs[0]["levels"], serde_json::json!(["100", "0.5"]));

    // The same levels by the folders' names, and other figures.
    let named = ["runs", "--factors", "rate,share", "--response", "service_ms_mean"];
    let found = json(dir.path(), &[&named[..], &additive].concat());
    assert!(close(effect(&found, "A"), 3.0) && close(effect(&found, "B"), -1.0), "{found:#}");
    let throughput = ["runs", "--factor", "rate", "--response", "throughput_per_s"];
    let found = json(dir.path(), &[&throughput[..], &additive].concat());
    assert_eq!((effect(&found, "A"), &found["analysis"]["replications"]), (150.0, &4.into()));
    let text = factors(dir.path(), &named);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.starts_with("service_ms_mean of 8 steps in runs\n"), "{text}");
    assert!(text.contains("2^2·2") && text.contains("B = share: 0.5, 1"), "{text}");
    let chosen = ["runs", "--factors", "share", "--steps", "400/s", "--response", "error_share"];
    assert!(refusal(dir.path(), &chosen).contains("no variation to explain"));
}

#[test]
fn a_servers_settings_are_factors_of_the_loads_it_served() {
    let dir = tempfile::tempdir().unwrap();
    for (i, (memory, ms)) in [(1, 30.0), (8, 10.0), (1, 31.0), (8, 9.0)].into_iter().enumerate() {
        let start_s = 100 * i as u64;
        for (node, start_s) in [("a", start_s), ("b", start_s + 1)] {
            Folder {
                name: &format!("r{i}/server-{node}"),
                kind: "serve",
                start_s,
                asked: &format!("node = {{ memory_bytes = {memory}, name = '{node}' }}"),
                ..Folder::default()
            }
            .write(dir.path());
        }
        let (name, asked) = (format!("r{i}/load"), "url = 'http://x'");
        let steps = &[(50.0, ms)];
        Folder { name: &name, start_s: start_s + 5, asked, steps, ..Folder::default() }
            .write(dir.path());
    }
    let base = ["r0", "r1", "r2", "r3", "--response", "response_ms_mean", "--model", "additive"];
    let found = json(dir.path(), &[&base[..], &["--factors", "serve.node.memory_bytes"]].concat());
    assert!(close(effect(&found, "A"), -10.5), "{found:#}");
    let refused = |factor: &str| refusal(dir.path(), &[&base[..], &["--factors", factor]].concat());
    assert!(refused("serve.node.name").contains("name a setting that is the same"));
    assert!(refused("serve.node.memory").contains("`node` has memory_bytes, name"));
    assert!(refused("clients").contains("step 0 of r0/load was an open loop"));
    let alone = ["r0/load", "r1/load", "r1/server-a", "--response", "response_ms_mean"];
    let refused = refusal(dir.path(), &[&alone[..], &["--factors", "serve.node.name"]].concat());
    assert!(refused.contains("no run of kind `serve` was recorded during"), "{refused}");
}

#[test]
fn folders_that_are_no_design_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    design(root);
    let of = |args: &[&str]| refusal(root, &[args, &["--response", "response_ms_p50"]].concat());
    let share = ["--factors", "share"];
    let check = |said: String, words: &str| assert!(said.contains(words), "{words}: {said}");
    check(of(&["runs"]), "--factors");
    check(of(&["runs", "--factors", "shares"]), "unknown factor shares");
    check(of(&["runs", "--factors", "load.keys.zipf"]), "`keys` has synthetic");
    check(of(&[&["runs"], &share[..]].concat()), "make the load a factor");
    check(refusal(root, &["runs", "--factors", "rate", "--response", "p99"]), "response_ms_mean");
    std::fs::create_dir(root.join("empty")).unwrap();
    check(of(&[&["empty"], &share[..]].concat()), "contains none (no run.toml)");
    check(of(&[&["nowhere"], &share[..]].concat()), "cannot read nowhere");
    let copy = |from: &str, to: &str| {
        std::fs::create_dir_all(root.join(to)).unwrap();
        for file in ["run.toml", "windows", "steps"] {
            std::fs::copy(root.join(from).join(file), root.join(to).join(file)).unwrap();
        }
    };
    copy("runs/share=0.5,x/1", "copies/share=0.5");
    check(of(&[&["runs", "copies"], &share[..]].concat()), "a copy is not a replication");
    // A cell is missing, then one has a run too many.
    let all = ["runs/share=0.5,x/1", "runs/share=0.5,x/2", "runs/share=1,x/1", "odd"];
    let odd = |steps| {
        let _ = std::fs::remove_dir_all(root.join("odd"));
        let name = "odd/share=1";
        Folder { name, start_s: 999, steps, ..Folder::default() }.write(root);
    };
    let rate_share = ["--factors", "rate,share"];
    odd(&[(100.0, 5.0)]);
    check(of(&[&all[..], &rate_share].concat()), "runs where");
    odd(&[(100.0, 5.0), (800.0, 5.0)]);
    check(of(&[&all[..], &rate_share].concat()), "the first being");
    // Another machine, unless it does not matter.
    let other = ["--steps", "100/s"];
    let steps = &[(100.0, 5.0)];
    let name = "big/share=1/2";
    Folder { name, start_s: 5000, steps, cores: 64, ..Folder::default() }.write(root);
    let both = ["runs/share=0.5,x/1", "runs/share=0.5,x/2", "runs/share=1,x/1", "big"];
    let mixed = [&both[..], &share, &other].concat();
    check(of(&mixed), "different machines (2 and 64 cores)");
    let taken = [&mixed[..], &["--across-machines", "--response", "response_ms_p50"]].concat();
    assert_eq!(json(root, &taken)["analysis"]["replications"], 2);
    // A run that was interrupted in its first step.
    Folder { name: "cut/share=1", start_s: 9999, ..Folder::default() }.write(root);
    check(of(&[&["cut"], &share[..]].concat()), "cut/share=1");
}
