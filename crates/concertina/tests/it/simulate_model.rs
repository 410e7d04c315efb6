//! `concertina simulate --model`: nodes as a fitted model describes them.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Runs the program; the files are in `dir`.
fn concertina(dir: &Path, args: &[&str]) -> Output {
    let output =
        Command::new(env!("CARGO_BIN_EXE_concertina")).args(args).current_dir(dir).output();
    output.unwrap()
}

/// What a command prints as JSON.
fn json(dir: &Path, args: &[&str]) -> Value {
    let output = concertina(dir, &[args, &["--json"]].concat());
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Writes `m.toml` from stated numbers.
fn model(dir: &Path, args: &[&str]) {
    let output = concertina(dir, &[&["model", "--out", "m.toml"], args].concat());
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Simulates the model over several seeds, and compares its mean, 99th percentile and shares with the model's
/// prediction for `servers` servers.
///
/// The tolerance follows from the draws: twice the half width of the 95 % interval over eight seeds, 4.7 standard errors.
fn agrees(dir: &Path, rate: &str, servers: &str, out: &str) {
    let simulated = json(
        dir,
        &[
            "simulate",
            "--model",
            "m.toml",
            "--rate",
            rate,
            "--nodes",
            servers,
            "--duration",
            "1000s",
            "--runs",
            "8",
            "--set",
            "observe.objectives_ms=[10,20,50]",
            "--out",
            out,
        ],
    );
    let within = "10ms,20ms,50ms";
    let predicted =
        json(dir, &["predict", "m.toml", "--rate", rate, "--servers", servers, "--within", within]);
    let (step, at) = (&simulated["steps"][0], &predicted["predictions"][0]);
    let number = |of: &Value| of.as_f64().unwrap_or_else(|| panic!("{of}: {at} {step}"));
    let close = |what: &str, interval: &Value, exact: f64, widest: f64| {
        let (value, half) = (number(&interval["value"]), number(&interval["half"]));
        assert!(half < widest, "{what} at {rate}/s: ± {half}");
        assert!(
            (value - exact).abs() < 2.0 * half,
            "{what} at {rate}/s: {value} ± {half}, {exact}"
        );
    };
    let mean_ms = 1e3 * number(&at["response_mean"]["value"]);
    close("mean", &step["mean_ms"], mean_ms, 0.04 * mean_ms);
    for point in at["points"].as_array().unwrap() {
        let ms = 1e3 * number(&point["t_s"]);
        let shares = step["within"].as_array().unwrap();
        let share = shares.iter().find(|of| (number(&of[0]) - ms).abs() < 1e-9).unwrap();
        close("share", &share[1], number(&point["concertina"]["value"]), 0.02);
    }
    let p99_ms = 1e3 * number(&at["response_p99"]["value"]);
    close("99th percentile", &step["p99_ms"], p99_ms, 0.06 * p99_ms);
}

#[test]
fn a_simulated_queue_agrees_with_the_prediction_of_its_model() {
    let dir = tempfile::tempdir().unwrap();
    model(dir.path(), &["--service", "gamma:8ms,0.5", "--devices", "1"]);
    agrees(dir.path(), "75", "1", "alone");
}

#[test]
fn memory_answers_by_the_load_of_each_node() {
    let dir = tempfile::tempdir().unwrap();
    let memory =
        ["--memory", "0.6-0.0005/s", "--memory-time", "det:0.2ms", "--outside", "det:0.4ms"];
    model(dir.path(), &[&["--service", "exp:8ms", "--devices", "4"][..], &memory].concat());
    agrees(dir.path(), "300", "1", "light");
    // 35 % instead of 45 % are answered by memory.
    agrees(dir.path(), "500", "1", "heavy");
    // Each of four nodes sees a quarter of the load, and memory answers as it does there.
    let asked = ["simulate", "--model", "m.toml", "--rate", "1200", "--nodes", "4"];
    let said = json(dir.path(), &[&asked[..], &["--duration", "200s", "--out", "four"]].concat());
    let outcomes = &said["steps"][0]["outcomes"];
    let count = |of: &str| outcomes[of].as_f64().unwrap();
    let share = count("memory") / (count("memory") + count("bulk_device"));
    // 240,000 draws: five standard errors are 0.5 points.
    assert!((share - 0.45).abs() < 0.005, "{outcomes}");
    let run = std::fs::read_to_string(dir.path().join("four/run.toml")).unwrap();
    assert!(run.contains("model = \"Stated: exp:8ms"), "{run}");
}

#[test]
fn what_a_simulation_cannot_take_of_a_model_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    model(dir.path(), &["--service", "exp:8ms", "--devices", "4"]);
    let stated = std::fs::read_to_string(dir.path().join("m.toml")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("c.toml", "[[device]]\npath = \"d\"\ncount = 6\n");
    let service = "service = { kind = \"exponential\", mean_ms = 8.0 }";
    write("s.toml", &format!("[[device]]\npath = \"d\"\ncount = 4\n{service}\n"));
    let refused = |args: &[&str], expected: &str| {
        let asked = ["simulate", "--model", "m.toml", "--duration", "10s", "--out", "none"];
        let output = concertina(dir.path(), &[&asked[..], args].concat());
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(expected), "{args:?}: {error}");
        assert!(!dir.path().join("none").exists(), "{args:?}: nothing was simulated");
    };
    refused(&["--rate", "100", "--keys", "1000"], "leave --keys out");
    refused(&["--rate", "100", "--hit-ratio", "50%"], "--hit-ratio");
    refused(&["--rate", "100", "--config", "c.toml"], "has 6 devices, the model 4");
    refused(&["--rate", "100", "--config", "s.toml"], "both state how long a read takes");
    refused(&["--rate", "600"], "up to about 475 requests/s fit");
    write("m.toml", &stated.replace("servers = 1\n", "servers = 1\ndiscipline = \"shared\"\n"));
    refused(&["--rate", "100"], "share the servers");
    write("m.toml", &format!("{stated}\n[front]\nworkers = 8\n"));
    refused(&["--rate", "100"], "workers");
}
