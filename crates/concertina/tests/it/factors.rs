//! `concertina factors`: from a table of runs to what mattered.

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Output};

fn concertina(dir: &Path, args: &[&str]) -> Output {
    let output =
        Command::new(env!("CARGO_BIN_EXE_concertina")).args(args).current_dir(dir).output();
    output.unwrap()
}

fn stdout_of(dir: &Path, args: &[&str]) -> String {
    let output = concertina(dir, args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(dir: &Path, args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&stdout_of(dir, &[args, &["--json"]].concat())).unwrap()
}

/// Table 27 of the ASL report, as runs: middlewares, servers, threads and the throughput of writes.
fn asl() -> String {
    let cells = [
        (1, 1, 8, [3409.86, 3348.97, 3334.07]),
        (2, 1, 8, [4299.05, 4317.13, 4340.53]),
        (1, 3, 8, [2678.67, 2692.26, 2594.66]),
        (2, 3, 8, [3738.69, 3690.19, 3759.92]),
        (1, 1, 32, [5839.29, 5815.37, 5843.73]),
        (2, 1, 32, [7338.98, 7299.57, 7325.34]),
        (1, 3, 32, [4813.49, 4767.69, 4778.02]),
        (2, 3, 32, [6765.6, 6779.05, 6801.35]),
    ];
    let mut text = "middlewares,servers,threads,throughput\n".to_owned();
    // Repetition by repetition, as they were run.
    for i in 0..3 {
        for (middlewares, servers, threads, y) in cells {
            let _ = writeln!(text, "{middlewares},{servers},{threads},{}", y[i]);
        }
    }
    text
}

#[test]
fn the_reports_factors_are_found() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("runs.csv"), asl()).unwrap();
    let base = ["factors", "runs.csv", "--response", "throughput"];
    let found = json(dir.path(), &[&base[..], &["--confidence", "0.9"]].concat());
    let effects = found["analysis"]["effects"].as_array().unwrap();
    let effect = |name: &str| effects.iter().find(|e| e["name"] == name).unwrap();
    let value = |e: &serde_json::Value| e["effect"]["value"].as_f64().unwrap();
    assert!((value(effect("A")) - 689.138_333).abs() < 1e-5);
    assert!((value(effect("ABC")) - 48.4125).abs() < 1e-5);
    assert!((effect("C")["effect"]["low"].as_f64().unwrap() - 1_320.788_878).abs() < 1e-5);
    let error = found["analysis"]["error_fraction"].as_f64().unwrap();
    assert!((error - 0.000_263).abs() < 1e-6);
    assert_eq!(found["factors"][2]["levels"], serde_json::json!(["8", "32"]));

    let log = json(dir.path(), &[&base[..], &["--model", "multiplicative"]].concat());
    let error = log["analysis"]["error_fraction"].as_f64().unwrap();
    assert!((error - 0.0005).abs() < 5e-5, "printed 0.003: {error}");
    let text = stdout_of(dir.path(), &[&base[..], &["--bootstrap", "2000"]].concat());
    for words in
        ["2^3·3", "A = middlewares: 1, 2", "(advised)", "variation %", "bootstrap", "Residuals"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    // Another order of factors, another order of letters; one left out makes its levels replications.
    let two = json(dir.path(), &[&base[..], &["--factors", "threads,middlewares"]].concat());
    assert_eq!(
        (&two["factors"][0]["name"], &two["analysis"]["replications"]),
        (&"threads".into(), &6.into())
    );
}

#[test]
fn fractions_and_several_levels_are_recognised() {
    let dir = tempfile::tempdir().unwrap();
    // D = ABC; y = 10 + 2a − d, twice.
    let mut text = "a,b,c,d,y\n".to_owned();
    for run in 0..8 {
        let x = |bit: i32| if run >> bit & 1 == 1 { 1 } else { -1 };
        let d = x(0) * x(1) * x(2);
        for off in [-0.1, 0.1] {
            let y = 10.0 + 2.0 * f64::from(x(0)) - f64::from(d) + off;
            let _ = writeln!(text, "{},{},{},{d},{y}", x(0), x(1), x(2));
        }
    }
    std::fs::write(dir.path().join("f.csv"), text).unwrap();
    let found = json(dir.path(), &["factors", "f.csv", "--response", "y"]);
    assert_eq!(found["fraction"]["generators"], serde_json::json!(["D=ABC"]));
    assert_eq!(found["fraction"]["resolution"], 4);
    let effects = found["analysis"]["effects"].as_array().unwrap();
    let d = effects.iter().find(|e| e["name"] == "D").unwrap();
    assert!((d["effect"]["value"].as_f64().unwrap() + 1.0).abs() < 1e-9);
    assert_eq!(d["aliases"], serde_json::json!(["ABC"]));
    let text = stdout_of(dir.path(), &["factors", "f.csv", "--response", "y"]);
    assert!(text.contains("resolution IV") && text.contains("I = ABCD"), "{text}");

    // Jain, example 21.1: caches against workloads, one run each.
    let rows = [
        ("two", [54, 60, 43, 49, 49]),
        ("one", [55, 60, 43, 52, 50]),
        ("none", [106, 123, 120, 111, 108]),
    ];
    let mut text = "cache,workload,ms\n".to_owned();
    for (cache, times) in rows {
        for (workload, ms) in ["asm", "tecst", "dhrystone", "sieve", "sort"].iter().zip(times) {
            let _ = writeln!(text, "{cache},{workload},{ms}");
        }
    }
    std::fs::write(dir.path().join("cache.csv"), text).unwrap();
    let args = ["factors", "cache.csv", "--response", "ms", "--model", "additive"];
    let found = json(dir.path(), &args);
    let f = found["analysis"]["terms"][0]["f"].as_f64().unwrap();
    assert!((f - 217.2).abs() < 0.1, "{f}");
    let text = stdout_of(dir.path(), &args);
    assert!(text.contains("3 × 5, 1 run of each") && text.contains("repeat the runs"), "{text}");
}

#[test]
fn bad_designs_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let check = |table: &str, more: &[&str], words: &str| {
        std::fs::write(dir.path().join("t.csv"), table).unwrap();
        let output =
            concertina(dir.path(), &[&["factors", "t.csv", "--response", "y"], more].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(words), "{said}");
    };
    let most = "a,b,y\n1,1,5\n2,1,6\n1,2,7\n";
    check(most, &[], "the first being a = 2, b = 2");
    check(most, &[], "name them with --factors");
    check(
        &format!("{most}2,2,8\n2,2,9\n"),
        &[],
        "a = 2, b = 2 has 2 runs where a = 1, b = 1 has 1",
    );
    check("a,y\n1,5\n1,6\n", &[], "factor a: it is 1 in every run");
    check("a,y\n1,5\n2,5\n", &[], "no variation to explain");
    check("a,y\n1,5\n2,x\n", &[], "t.csv:3: y is not a number: \"x\"");
    check("a,y\n1,5\n2,-1\n", &["--model", "multiplicative"], "t.csv:3: y is -1");
    check("a,y\n1,5\n,6\n", &[], "t.csv:3: a is empty");
    check("a,z\n1,5\n2,6\n", &[], "no column \"y\"");
    check("a,y\n1,5\n2,6\n", &["--factors", "y"], "is the response");
    check("a,y\n1,5\n2,6\n", &["--factors", "b"], "no column \"b\"");
    check("a,y\n1,5\n2,6\n", &["--factors", "a,a"], "named twice");
    check("a,y\n1,5\n2,6\n", &["--bootstrap", "1000"], "one run for each cell");
    check("a,y\n1,5\n2,6\n3,6\n", &[], "repeat the runs");
}
