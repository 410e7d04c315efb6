//! `concertina model` and what takes its files: numbers that somebody states, and the published figures from them.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::left_out::left_out;

fn concertina(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_concertina")).args(args).current_dir(dir).output().unwrap()
}

fn output_of(dir: &Path, args: &[&str]) -> String {
    let output = concertina(dir, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(dir: &Path, args: &[&str]) -> Value {
    serde_json::from_str(&output_of(dir, &[args, &["--json"]].concat())).unwrap()
}

/// What a command that fails says.
fn mistake(args: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let output = concertina(dir.path(), args);
    assert!(!output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

/// The recomputed numbers of the sources.
fn seeds() -> Option<Value> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/gold/seeds/computed.json");
    match std::fs::read_to_string(&path) {
        // JSON has no NaN; these rows are of the misprinted form and not read here.
        Ok(text) => Some(serde_json::from_str(&text.replace("NaN", "null")).unwrap()),
        Err(error) => {
            left_out("the published figures", &format!("{}: {error}", path.display()));
            None
        }
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is not a number"))
}

const TABLE_2: [&str; 3] =
    ["small=93,1,0.946,0.0137", "large=120,1,1.15,0.0058", "spotify=150,6,0.815,0.000501"];

#[test]
fn table_2_is_one_command() {
    let dir = tempfile::tempdir().unwrap();
    let args: Vec<&str> = TABLE_2.iter().flat_map(|server| ["--published", server]).collect();
    let args = [&["model"][..], &args].concat();
    let text = output_of(dir.path(), &args);
    for printed in ["56.322", "115.46", "780.92", "80.444", "157.35", "1,168.3"] {
        assert!(text.contains(printed), "{printed}: {text}");
    }
    let Some(seeds) = seeds() else { return };
    let found = json(dir.path(), &args);
    for server in found["servers"].as_array().unwrap() {
        let name = server["name"].as_str().unwrap();
        let limit = number(&seeds["spotify"]["lambda_L"][name]);
        assert!((number(&server["confidence_limit"]) / limit - 1.0).abs() < 1e-9, "{server}");
        let saturation = number(&seeds["spotify"]["saturation"][name]);
        assert!(
            (number(&server["saturation_published"]) / saturation - 1.0).abs() < 1e-9,
            "{server}"
        );
    }
}

#[test]
fn figure_9_is_one_command() {
    let dir = tempfile::tempdir().unwrap();
    let spotify = ["predict", "--published", "150,6,0.815,0.000501"];
    // 9a: the confidence limit of 12 to 52 servers, and the least of them for 12,000 requests/s.
    let found =
        json(dir.path(), &[&spotify[..], &["--servers", "12..52", "--rate", "12k/s"]].concat());
    let sizes = found["sizes"].as_array().unwrap();
    assert_eq!(sizes.len(), 41);
    assert_eq!(found["smallest_within_limit"][0]["servers"], 17);
    if let Some(seeds) = seeds() {
        for size in sizes {
            let expected = number(
                &seeds["spotify"]["cluster_limit_ln_beta2_minus"][size["servers"].to_string()],
            );
            let published = number(&size["confidence_limit_spotify"]);
            assert!((published / expected - 1.0).abs() < 1e-9, "{size}");
            // Concertina's model has the same numbers; its law of exponential service is a table of 400 pieces.
            let ours = number(&size["confidence_limit"]);
            assert!((ours / expected - 1.0).abs() < 1e-4, "{ours} {expected}");
        }
    }
    // 9b: the shares of 25 servers at 1,000 to 20,000 requests/s, as computed from the paper's equations to four digits.
    let load = ["--servers", "25", "--rate", "1000/s..20000/s", "--within", "5ms,20ms,50ms"];
    let found = json(dir.path(), &[&spotify[..], &load].concat());
    let all = found["predictions"].as_array().unwrap();
    assert_eq!(all.len(), 20);
    for (rate, shares) in [
        (1_000.0, [0.9025, 0.9895, 0.9999]),
        (6_000.0, [0.8467, 0.9806, 0.9997]),
        (12_000.0, [0.7617, 0.9582, 0.9987]),
        (18_000.0, [0.6424, 0.8993, 0.9920]),
        (20_000.0, [0.5911, 0.8609, 0.9839]),
    ] {
        let at = all.iter().find(|p| (number(&p["rate"]) - rate).abs() < 1e-6).unwrap();
        for (point, share) in at["points"].as_array().unwrap().iter().zip(shares) {
            assert!((number(&point["spotify"]["value"]) - share).abs() < 6e-5, "{rate} {point}");
            assert!(
                (number(&point["concertina"]["value"]) - share).abs() < 1.5e-3,
                "{rate} {point}"
            );
        }
        assert_eq!(at["beyond_limit"], rate > 17_904.0, "{rate}");
    }
}

#[test]
fn a_model_from_numbers_is_predicted_planned_and_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let numbers = ["model", "--service", "exp:6.2ms", "--servers", "4", "--memory", "0.6-0.0002/s"];
    let text = output_of(dir.path(), &numbers);
    assert!(text.contains("[requests]") && text.contains("stated, not fitted"), "{text}");
    let wrote = output_of(dir.path(), &[&numbers[..], &["--out", "model.toml"]].concat());
    assert!(wrote.contains("Wrote model.toml") && wrote.contains("saturation"), "{wrote}");
    assert_eq!(std::fs::read_to_string(dir.path().join("model.toml")).unwrap(), text);
    let found = json(dir.path(), &["predict", "model.toml", "--rate", "500/s", "--within", "20ms"]);
    let found = &found["predictions"][0];
    assert!((number(&found["hit_ratio"]["value"]) - 0.5).abs() < 1e-9, "{found}");
    // 250/s of 645/s.
    assert!((number(&found["utilisation_mean"]["value"]) - 250.0 * 0.0062 / 4.0).abs() < 1e-3);
    let alike =
        json(dir.path(), &["predict", "model.toml", "--rate", "30k/min", "--within", "20ms"]);
    assert_eq!(&alike["predictions"][0], found);
    let choices = "[servers]\ncounts = { from = 1, to = 40 }\nprice = 200\n";
    std::fs::write(dir.path().join("choices.toml"), choices).unwrap();
    let plan =
        ["plan", "model.toml", "--choices", "choices.toml", "--rate", "12k/s", "--objective"];
    let found = json(dir.path(), &[&plan[..], &["99% within 50ms"]].concat());
    assert_eq!(found["holds"], true);
    let also = json(dir.path(), &[&plan[..], &["p99 < 50ms"]].concat());
    assert_eq!(also["ranked"], found["ranked"]);
    // A stated interval is one of the prediction.
    let numbers = ["model", "--service", "exp:6.0..6.4ms", "--servers", "2", "--out", "model.toml"];
    output_of(dir.path(), &numbers);
    let found = json(dir.path(), &["predict", "model.toml", "--rate", "250/s", "--within", "20ms"]);
    let share = &found["predictions"][0]["points"][0]["concertina"];
    assert!(number(&share["low"]) + 0.005 < number(&share["value"]), "{share}");
    assert!(number(&share["value"]) + 0.005 < number(&share["high"]), "{share}");
}

#[test]
fn mistakes_in_numbers_say_what_to_write() {
    for (args, says) in [
        (&["model"][..], "--service"),
        (&["model", "--service", "normal:6ms"], "exp:MEAN"),
        (&["model", "--service", "exp:6"], "unit"),
        (&["model", "--service", "gamma:6ms"], "coefficient of variation"),
        (&["model", "--service", "exp:6ms", "--memory", "x"], "0.6-0.0002/s"),
        (&["model", "--service", "exp:6ms", "--origin", "5%"], "lognormal"),
        (&["model", "--service", "exp:6ms", "--devices", "0"], "number of devices"),
        (&["model", "--published", "150,6"], "150,6,0.815,0.000501"),
        (
            &["model", "--published", TABLE_2[0], "--published", TABLE_2[1], "--out", "m"],
            "one --published",
        ),
        (&["predict", "--published", "150,6,0.815,0.000501", "--rate", "5/week"], "30/min"),
        (&["predict", "--published", "150,6,0.815,0.000501", "--servers", "0"], "1000000 servers"),
        (
            &[
                "predict",
                "--published",
                "150,6,0.815,0.000501",
                "--servers",
                "1..3",
                "--objective",
                "p99<1s",
            ],
            "one number",
        ),
        (&["network", "--queue", "M/M/4"], "--service"),
        (&["network", "--queue", "M/D/1/5", "--service", "5ms", "--rate", "1"], "M/M/m/K"),
        (&["network", "--queue", "M/M/1", "--service", "det:5ms", "--rate", "1"], "exponential"),
    ] {
        let error = mistake(args);
        assert!(error.contains(says), "{args:?}: {error}");
    }
}

#[test]
fn queues_are_answered_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let row = |queue: &str, service: &str, rate: &str| {
        let args =
            ["network", "--queue", queue, "--service", service, "--rate", rate, "--within", "20ms"];
        json(dir.path(), &args)["rows"][0].clone()
    };
    // M/M/1: exponential responses of rate µ − λ.
    let found = row("M/M/1", "10ms", "80/s");
    for (p, key) in [(0.5f64, "response_p50_s"), (0.9, "response_p90_s"), (0.99, "response_p99_s")]
    {
        let expected = -(1.0 - p).ln() / 20.0;
        assert!((number(&found[key]) / expected - 1.0).abs() < 1e-9, "{found}");
    }
    assert!((number(&found["within"][0]) - (1.0 - (-0.4f64).exp())).abs() < 1e-9);
    assert!((number(&found["waits"]) - 0.8).abs() < 1e-12);
    // Erlang's C and B, as their tables have them.
    let found = row("erlang-c:128", "1s", "126.1");
    assert!((number(&found["waits"]) - 0.808_211_096_447_498).abs() < 1e-9, "{found}");
    let found = row("erlang-b:25", "lognormal:100ms,3", "200/s");
    assert!((number(&found["lost"]) - 0.050_221_777_890_794_6).abs() < 1e-12, "{found}");
    // M/M/2/6 of octave-queueing: 1.6923 of 2 are served.
    let found = row("M/M/2/6", "1s", "2");
    assert!((number(&found["throughput"]) - 1.692_307_692_307_692_3).abs() < 1e-9, "{found}");
    // Of Pollaczek and Khinchine.
    let found = row("M/G/1", "gamma:10ms,0.25", "90/s");
    assert!((number(&found["response_s"]) - 0.066_25).abs() < 1e-9, "{found}");
    let text = output_of(
        dir.path(),
        &[
            "network",
            "--queue",
            "M/G/3..4",
            "--service",
            "gamma:10ms,0.25",
            "--rate",
            "240/s,350/s",
        ],
    );
    assert!(text.contains("APPROXIMATE") && text.contains("unstable"), "{text}");
}
