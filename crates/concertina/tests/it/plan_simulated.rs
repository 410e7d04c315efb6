//! `concertina plan --simulate`: candidates in the simulator beside the formula.

use std::process::Command;

use serde_json::Value;

use crate::plan::{Lab, json, model_text, text};

/// A short simulation of the two cheapest candidates.
const SIMULATED: [&str; 6] = ["--rate", "5000", "--simulate", "2", "--runs", "3"];

#[test]
fn candidates_are_simulated_beside_the_formula() {
    let lab = Lab::new();
    let short = [&SIMULATED[..], &["--requests", "20000"]].concat();
    let found = json(&lab.asks(&[&short[..], &["--json", "--picture", "p.svg"]].concat()));
    let candidates = found["simulated"]["candidates"].as_array().unwrap();
    assert_eq!((candidates.len(), &found["simulated"]["interrupted"]), (2, &Value::Bool(false)));
    for (at, candidate) in candidates.iter().enumerate() {
        let number = |of: &Value| of.as_f64().unwrap();
        let formula = number(&candidate["formula"]);
        assert_eq!(formula, number(&found["ranked"][at]["forecast"]["within"]["value"]));
        let simulated = number(&candidate["simulated"]["value"]);
        // Exponential services in queues whose loads are equal: the formula is nearly exact.
        assert!((simulated - formula).abs() < 0.01, "{simulated} {formula}");
        let effects = candidate["effects"].as_array().unwrap();
        let sum: f64 = effects.iter().map(|effect| number(&effect["share"]["value"])).sum();
        assert!((sum - number(&candidate["difference"]["value"])).abs() < 1e-9);
        assert_eq!((effects.len(), &candidate["while_down"]), (2, &Value::Null));
        assert!(number(&candidate["requests"]) > 2.0 * 3.0 * 20_000.0);
    }
    let picture = std::fs::read_to_string(lab.dir.path().join("p.svg")).unwrap();
    assert!(picture.contains("<svg") && picture.contains("formula"), "{picture}");
    let threads = |count: &str| {
        let output = lab.asks(&[&short[..], &["--json", "--threads", count]].concat());
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    assert_eq!(threads("1"), threads("2"), "the same bytes whatever the number of threads");
}

/// Formula, simulation and measurement in one picture, whose alternative text names all three.
#[test]
fn a_picture_shows_what_was_measured() {
    let lab = Lab::new();
    for (rates, out, expected) in [
        ("5000,20", "near", "the load of all servers"),
        ("20", "far", "which is not the load of one server"),
    ] {
        let run = ["simulate", "--model", "model.toml", "--nodes", "4", "--duration", "5s"];
        let output = Command::new(env!("CARGO_BIN_EXE_concertina"))
            .args([&run[..], &["--warmup", "1s", "--rate", rates, "--out", out]].concat())
            .current_dir(lab.dir.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let short = [&SIMULATED[..], &["--requests", "20000"]].concat();
        let drawn = lab.asks(&[&short[..], &["--picture", "p.svg", "--measured", out]].concat());
        assert!(drawn.status.success(), "{drawn:?}");
        let picture = std::fs::read_to_string(lab.dir.path().join("p.svg")).unwrap();
        let (head, _) = picture.split_once("<style>").unwrap();
        for curve in
            ["role=\"img\"", "formula", "simulation, nothing down", "measurement, ", expected]
        {
            assert!(head.contains(curve), "{curve}: {head}");
        }
        let lines = picture.matches("class=\"line ").count();
        assert!(lines >= 2 && picture.contains("line measured"), "{lines} lines");
    }
    let asked = [&SIMULATED[..], &["--requests", "1000", "--picture", "p.svg"]].concat();
    let (_, error) = text(&lab.asks(&[&asked[..], &["--measured", "model.toml"]].concat()));
    assert!(error.contains("concertina import model.toml"), "{error}");
    let (_, error) = text(&lab.asks(&[&SIMULATED[..], &["--measured", "far"]].concat()));
    assert!(error.contains("--picture"), "{error}");
}

#[test]
fn failures_cost_what_the_formula_leaves_out() {
    let lab = Lab::new();
    let failing = [
        "--requests",
        "20000",
        "--mttf",
        "30d",
        "--mttr",
        "1d",
        "--disk-mttf",
        "1y",
        "--disk-mttr",
        "1d",
    ];
    let asked = [&SIMULATED[..], &failing[..]].concat();
    let found = json(&lab.asks(&[&asked[..], &["--json"]].concat()));
    let candidate = &found["simulated"]["candidates"][0];
    let number = |of: &Value| of.as_f64().unwrap();
    let configuration = &found["ranked"][0]["configuration"];
    let servers = number(&configuration["servers"]) as i32;
    let devices = servers * number(&configuration["devices"][0]["count"]) as i32;
    let up = (30.0f64 / 31.0).powi(servers) * (365.0f64 / 366.0).powi(devices);
    assert!((number(&candidate["down"]) - (1.0 - up)).abs() < 1e-9, "{candidate}");
    let (all, down) = (&candidate["simulated"]["value"], &candidate["while_down"]["value"]);
    assert!(number(down) < number(all), "{candidate}");
    assert_eq!(candidate["broke"], "no_failures");
    let (out, error) = text(&lab.asks(&asked));
    assert!(out.contains("nothing fails") && out.contains("Something is down"), "{out} {error}");
    // A server that is lost has no replica: what only it had is late.
    lab.write("choices.toml", "[servers]\ncounts = [8]\n");
    let alone = [
        "--rate",
        "5000",
        "--simulate",
        "--runs",
        "2",
        "--requests",
        "20000",
        "--mttf",
        "1d",
        "--mttr",
        "1d",
    ];
    let found = json(&lab.asks(&[&alone[..], &["--json"]].concat()));
    let down = number(&found["simulated"]["candidates"][0]["while_down"]["value"]);
    assert!((0.2..0.8).contains(&down), "about half of the servers are up: {down}");
}

#[test]
fn simulations_of_candidates_refuse_what_they_cannot_do() {
    let lab = Lab::new();
    for (args, expected) in [
        (&["--mttf", "90d", "--mttr", "4h"][..], "--simulate"),
        (&["--simulate", "--mttf", "90d"], "--mttr"),
        (&["--simulate", "--mttf", "0s", "--mttr", "4h"], "more than 0"),
        (&["--simulate", "0"], "1..=100"),
        (&["--runs", "3"], "--simulate"),
    ] {
        let output = lab.asks(&[&["--rate", "5000"][..], args].concat());
        let (_, error) = text(&output);
        assert!(!output.status.success() && error.contains(expected), "{args:?}: {error}");
    }
    let model = model_text().replace("servers = 1\n", "servers = 1\ndiscipline = \"shared\"\n");
    lab.write("model.toml", &model);
    let (_, error) = text(&lab.asks(&["--rate", "3000", "--simulate"]));
    assert!(error.contains("bulk_device") && error.contains("share"), "{error}");
}

#[test]
fn an_interrupt_keeps_the_candidates_that_were_simulated() {
    let lab = Lab::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
    command.args(["plan", "model.toml", "--choices", "choices.toml", "--objective"]);
    command.args([
        "99% within 100ms",
        "--rate",
        "5000",
        "--json",
        "--simulate",
        "2",
        "--runs",
        "2",
    ]);
    // Long enough to be interrupted wherever it is.
    command.args(["--requests", "1000000000", "--threads", "1"]).current_dir(lab.dir.path());
    command.stdout(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    // It listens for interrupts from here on: its handler is installed.
    let caught = || {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).map(str::trim);
        mask.and_then(|mask| u64::from_str_radix(mask, 16).ok()).is_some_and(|mask| mask & 2 != 0)
    };
    while !caught() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["simulated"]["interrupted"], true);
    assert!(found["simulated"]["candidates"].as_array().unwrap().is_empty());
    assert_eq!(found["holds"], true, "the plan itself is whole");
}
