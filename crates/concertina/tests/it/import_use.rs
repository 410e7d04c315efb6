//! What is done with a log after it was read: steps, checks of sense, reports without a model, and the way from a log
//! to a plan, through the binary.

use std::path::Path;
use std::process::{Command, Output};

use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::Value;

use crate::report::exponential;

const START_S: f64 = 1_795_320_900.0;

fn concertina(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_concertina")).args(args).current_dir(dir).output().unwrap()
}

fn succeeds(dir: &Path, args: &[&str]) -> String {
    let output = concertina(dir, args);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(dir: &Path, args: &[&str]) -> Value {
    serde_json::from_str(&succeeds(dir, args)).unwrap()
}

fn fails(dir: &Path, args: &[&str], words: &[&str]) {
    let output = concertina(dir, args);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && !error.contains("panicked"), "{args:?}: {error}");
    for word in words {
        assert!(error.contains(word), "{args:?}: {error:?} does not say {word:?}");
    }
}

/// Requests of two servers, 10 ms each at the mean, that get one load after the other for `each_s`: (arrival, end) in
/// seconds from the start, in the order of their ends.
fn served(seed: u64, loads: &[f64], each_s: f64) -> Vec<(f64, f64)> {
    let mut random = StdRng::seed_from_u64(seed);
    let (mut free, mut all) = ([0.0f64; 2], Vec::new());
    for (i, rate) in loads.iter().enumerate() {
        let mut at = each_s * i as f64;
        loop {
            at += exponential(&mut random, 1.0 / rate);
            if at > each_s * (i + 1) as f64 {
                break;
            }
            free.sort_by(f64::total_cmp);
            free[0] = at.max(free[0]) + exponential(&mut random, 0.01);
            all.push((at, free[0]));
        }
    }
    all.sort_by(|a, b| a.1.total_cmp(&b.1));
    all
}

const FORMAT: &str = "$remote_addr - - [$msec] \"$request\" $status $body_bytes_sent $request_time";

fn line(arrival: f64, end: f64, unit: f64) -> String {
    format!(
        "10.0.0.7 - - [{:.6}] \"GET /x HTTP/1.1\" 200 512 {:.6}\n",
        START_S + end,
        (end - arrival) * unit
    )
}

fn log(all: &[(f64, f64)]) -> String {
    all.iter().map(|(arrival, end)| line(*arrival, *end, 1.0)).collect()
}

fn import<'a>(file: &'a str, out: &'a str) -> Vec<&'a str> {
    vec!["import", "--access-log", file, "--log-format", FORMAT, "--out", out]
}

/// The way of docs/planner.md: five commands, from the log of a service to a plan and a page that one can show.
#[test]
fn five_commands_lead_from_a_log_to_a_plan_and_a_report() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    std::fs::write(path.join("access.log"), log(&served(1, &[60.0, 100.0, 140.0], 100.0))).unwrap();
    let text = succeeds(path, &import("access.log", "log"));
    // The loads are found, and all requests are in them.
    let rows: Vec<&str> = text.lines().filter(|line| line.contains("2026-11-22")).collect();
    assert_eq!(rows.len(), 3, "{text}");
    assert!(text.contains("from (UTC)") && !text.contains("in no step"), "{text}");
    let fit = ["fit", "log", "--servers", "auto", "--hold-out", "2", "--out", "model.toml"];
    let text = succeeds(path, &fit);
    assert!(text.contains("Servers: 2 "), "{text}");
    let text = succeeds(path, &["predict", "model.toml", "--rate", "170", "--within", "50ms"]);
    assert!(text.contains("170"), "{text}");
    std::fs::write(
        path.join("choices.toml"),
        "[servers]\ncounts = { from = 1, to = 9 }\nprice = 200\n",
    )
    .unwrap();
    let plan = ["plan", "model.toml", "--choices", "choices.toml", "--rate", "400"];
    let text = succeeds(path, &[&plan[..], &["--objective", "95% within 50ms"]].concat());
    assert!(text.contains("servers"), "{text}");
    let text =
        succeeds(path, &["report", "log", "model.toml", "--no-what-if", "--out", "report.html"]);
    // The held-out load is compared, with its prediction.
    assert!(text.contains("held-out measurements fell inside"), "{text}");
    let page = std::fs::read_to_string(path.join("report.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("--servers auto"), "{}", page.len());
}

/// Loads of one service, a file each, with stamps of whole seconds: the last second of one is the first of the next.
#[test]
fn logs_that_follow_each_other_in_seconds_are_of_one_service() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let all = served(4, &[60.0, 100.0, 140.0], 40.5);
    for (number, part) in
        all.chunk_by(|a, b| (a.0 / 40.5) as u32 == (b.0 / 40.5) as u32).enumerate()
    {
        let line = |r: &(f64, f64)| format!("{} 200 {:.3}\n", (START_S + r.1).floor(), r.1 - r.0);
        let (file, out) = (format!("{number}.log"), format!("{number}"));
        std::fs::write(path.join(&file), part.iter().map(line).collect::<String>()).unwrap();
        let format = "$msec $status $request_time";
        succeeds(path, &["import", "--access-log", &file, "--log-format", format, "--out", &out]);
    }
    succeeds(path, &["fit", "0", "1", "2", "--servers", "auto", "--out", "model.toml"]);
    // Logs of the same time are of two servers.
    fails(path, &["fit", "0", "0", "--servers", "auto", "--out", "model.toml"], &["0"]);
}

/// A report of every kind of run, with and without a model.
#[test]
fn every_run_has_a_report() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    std::fs::write(path.join("a.log"), log(&served(2, &[60.0, 120.0], 60.0))).unwrap();
    succeeds(path, &import("a.log", "r"));
    let text = succeeds(path, &["report", "r", "--out", "r.html"]);
    assert!(text.contains("Measured only") && text.contains("≤ 50 ms %"), "{text}");
    let page = std::fs::read_to_string(path.join("r.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("Fraction served within"), "{}", page.len());
    let measured = json(path, &["report", "r", "--json", "--within", "20ms"]);
    let steps = measured["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 2, "{measured}");
    assert!(steps[0]["measured"]["within"][0]["share"]["value"].as_f64() > Some(0.5), "{measured}");
    // A model that lies in the run's folder is used.
    let fit = ["fit", "r", "--servers", "2", "--out", "r/model.toml"];
    succeeds(path, &fit);
    let text = succeeds(path, &["report", "r", "--out", "r.html"]);
    assert!(text.contains("Concertina %") && !text.contains("Measured only"), "{text}");
    // A run that nobody divided into steps (a server's) is one.
    let run = record::RunFolder::read(&path.join("r")).unwrap();
    let server = record::Run { kind: "serve".to_owned(), ..run.run.clone() };
    let mut writer = record::RunWriter::create(&path.join("s"), &server).unwrap();
    writer.windows(&run.windows).unwrap();
    writer.flush().unwrap();
    let measured = json(path, &["report", "s", "--json", "--out", "s.html"]);
    assert_eq!(measured["steps"].as_array().map(Vec::len), Some(1), "{measured}");
    let mut writer = record::RunWriter::create(&path.join("empty"), &server).unwrap();
    writer.flush().unwrap();
    fails(path, &["report", "empty"], &["has no windows"]);
    fails(path, &["fit", "s"], &["steps"]);
}

/// Records that cannot be true are refused, with the reason, unless the import is lenient.
#[test]
fn records_that_cannot_be_true_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let all = served(3, &[80.0], 60.0);
    let case = |name: &str, text: &str, words: &[&str]| {
        std::fs::write(path.join(name), text).unwrap();
        let out = format!("run-{name}");
        fails(path, &import(name, &out), &[words, &["--lenient"]].concat());
        assert!(!path.join(&out).exists(), "a failed import leaves no run");
        let lenient = json(path, &[&import(name, &out)[..], &["--lenient", "--json"]].concat());
        let notes = lenient["imported"]["notes"].to_string();
        assert!(notes.contains("Warning: ") && notes.contains(words[0]), "{notes}");
    };
    let micros: String = all.iter().map(|(a, e)| line(*a, *e, 1e6)).collect();
    case("micros", &micros, &["longer than the whole log", "unit"]);
    case(
        "zeros",
        &all.iter().map(|(a, e)| line(*a, *e, 0.0)).collect::<String>(),
        &["Every duration is 0"],
    );
    let once = log(&all);
    case("twice", &(once.clone() + &once), &["more than once", "50 %"]);
    let hour = |i: usize| if i.is_multiple_of(2) { 3_600.0 } else { 0.0 };
    let zones: String =
        all.iter().enumerate().map(|(i, (a, e))| line(a + hour(i), e + hour(i), 1.0)).collect();
    case("zones", &zones, &["two zones"]);
    // A sound log says nothing of the kind; a cut one does.
    std::fs::write(path.join("sound"), &once).unwrap();
    let sound = json(path, &[&import("sound", "s")[..], &["--json"]].concat());
    assert_eq!(sound["warnings"], Value::Array(Vec::new()), "{sound}");
    std::fs::write(path.join("cut"), &once[..once.len() - 20]).unwrap();
    let cut = json(path, &[&import("cut", "c")[..], &["--json"]].concat());
    assert!(cut["imported"]["notes"].to_string().contains("ends within a line"), "{cut}");
}

/// Little, again, long, silent: each has a sensible answer.
#[test]
fn unusual_logs_have_sensible_answers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let all = served(4, &[50.0], 30.0);
    let write = |name: &str, text: &str| std::fs::write(path.join(name), text).unwrap();
    write("empty", "");
    fails(path, &import("empty", "e"), &["has no lines"]);
    for n in [1, 3] {
        let name = format!("only-{n}");
        write(&name, &log(&all[..n]));
        let out = format!("r{n}");
        let text = succeeds(path, &import(&name, &out));
        assert!(text.contains("too few for a fit") && text.contains("500"), "{text}");
        fails(path, &["fit", &out, "--servers", "auto"], &["too few for a fit", "500"]);
        succeeds(path, &["report", &out, "--out", &format!("{out}.html")]);
    }
    // One load; and the same folder again.
    write("one", &log(&all));
    let text = succeeds(path, &import("one", "r"));
    assert!(text.contains("One load was found"), "{text}");
    fails(path, &import("one", "r"), &["holds a run already"]);
    // A month, a request each ten seconds, and twice as many later.
    let mut text = String::new();
    let mut at = 0.0;
    while at < 30.0 * 86_400.0 {
        at += if at < 15.0 * 86_400.0 { 10.0 } else { 5.0 };
        text += &line(at, at + 0.004 + (at % 7.0) * 1e-3, 1.0);
    }
    write("month", &text);
    let summary = json(path, &[&import("month", "m")[..], &["--json"]].concat());
    assert_eq!(summary["steps"].as_array().map(Vec::len), Some(2), "{}", summary["steps"]);
    assert!(
        summary["imported"]["notes"].to_string().contains("Windows are 32 s long"),
        "{}",
        summary["imported"]
    );
    // A rest of half a step is a step; less is left out and counted, with its share.
    let steps = |length: &str, out: &str| {
        succeeds(path, &[&import("one", out)[..], &["--steps", length]].concat())
    };
    let text = steps("18s", "x");
    assert!(!text.contains("in no step"), "{text}");
    let text = steps("13s", "y");
    assert!(text.contains("are in no step") && text.contains(" %)"), "{text}");
}
