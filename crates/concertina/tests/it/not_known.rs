//! What the planner's commands do not know, or have no use for, they say: a model that fits nothing, effects that runs do not tell apart,
//! options that change nothing.

use std::path::Path;
use std::process::{Command, Output};

use super::plan::model_text;

fn concertina(dir: &Path, args: &[&str]) -> Output {
    let run = Command::new(env!("CARGO_BIN_EXE_concertina")).args(args).current_dir(dir).output();
    run.unwrap()
}

/// What a command prints, whether it succeeds or not.
fn output_text(dir: &Path, args: &[&str]) -> String {
    let output = concertina(dir, args);
    [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat()
}

fn refused(dir: &Path, args: &[&str]) -> String {
    let output = concertina(dir, args);
    assert!(!output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
}

/// A model of which nothing is known past 400 requests/s of a server, and choices of up to 12 servers.
fn fits_nothing(dir: &Path) {
    let text = model_text();
    let (before, rest) = text.split_once("[[held_out]]").unwrap();
    let (_, replicates) = rest.split_once("[replicates]").unwrap();
    let text = format!("unknown_beyond = 400.0\n{before}[replicates]{replicates}");
    std::fs::write(dir.join("m.toml"), text).unwrap();
    std::fs::write(dir.join("c.toml"), "[servers]\ncounts = { from = 1, to = 12 }\nprice = 1\n")
        .unwrap();
}

#[test]
fn a_model_that_fits_nothing_recommends_no_load_that_was_not_measured() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fits_nothing(dir);
    let plan = |rate: &str| {
        let asked = ["--choices", "c.toml", "--objective", "50% within 1s", "--rate", rate];
        output_text(dir, &[&["plan", "m.toml"], &asked[..]].concat())
    };
    let found = plan("2000");
    has(&found, &["5 servers: nothing is known past 2,000 requests/s", "12 servers"]);
    assert!(!found.contains("4 servers:") && !found.contains("[0.00, 100.00]"), "{found}");
    has(&plan("9000"), &["NONE of the choices", "of which nothing is known at that load", "4,800"]);
    let predicted = output_text(
        dir,
        &["predict", "m.toml", "--rate", "300,9000", "--fan-out", "3", "--within", "50ms"],
    );
    // A row of the single request, one of a part, one of all parts.
    assert_eq!(predicted.matches("[0.00, 100.00]").count(), 3, "{predicted}");
    let hedged = output_text(
        dir,
        &["predict", "m.toml", "--rate", "900", "--hedge", "9ms", "--within", "1s"],
    );
    has(&hedged, &["without bound"]);
    let largest =
        output_text(dir, &["predict", "m.toml", "--rate", "300", "--objective", "90% within 50ms"]);
    has(&largest, &["[400, not known]", "Nothing is known past 400 requests/s"]);
}

#[test]
fn effects_that_runs_do_not_tell_apart_are_named_together() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let write = |text: &str| std::fs::write(dir.join("r.csv"), text).unwrap();
    let answer = || output_text(dir, &["factors", "r.csv", "--response", "y"]);
    write("cache,disk,y\n1,1,5\n2,2,6\n1,1,5.1\n2,2,6.2\n");
    has(&answer(), &["Or disk: the runs do not tell them apart.", "Run the combinations"]);
    write(
        "a,b,c,y\n1,1,2,5\n2,1,1,6\n1,2,1,9\n2,2,2,15\n1,1,2,5.1\n2,1,1,6.1\n1,2,1,9.1\n2,2,2,15.2\n",
    );
    has(&answer(), &["Or a and c: the runs do not tell them apart."]);
    write("a,b,y\n1,1,5\n2,1,6\n1,2,9\n2,2,15\n1,1,5.1\n2,1,6.1\n1,2,9.1\n2,2,15.2\n");
    assert!(!answer().contains("tell them apart"));
}

#[test]
fn options_without_a_use_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let queue = ["network", "--queue", "M/M/1", "--rate", "10"];
    let with = |more: &[&'static str]| refused(dir, &[&queue[..], more].concat());
    has(&with(&["--service", "5ms", "--set", "station.a.servers=2"]), &["--set"]);
    has(&with(&["--service", "exp:5..6ms"]), &["a queue has no intervals"]);
    has(&refused(dir, &["network", "n.toml", "--rate", "5"]), &["--rate", "[FILE]"]);
    let measure = ["measure", "http://127.0.0.1:9"];
    let refused_by = |more: &[&'static str]| refused(dir, &[&measure[..], more].concat());
    has(&refused_by(&["--rates", "10", "--think-ms", "50"]), &["--rates", "--think-ms"]);
    has(&refused_by(&["--clients", "2", "--arrivals", "constant"]), &["--clients", "--arrivals"]);
    std::fs::write(dir.join("t.csv"), "concurrency,throughput\n1,10\n2,19\n3,27\n4,34\n").unwrap();
    has(&refused(dir, &["capacity", "t.csv", "--judge", "3"]), &["--judge is for a store"]);
    has(&refused(dir, &["capacity", "t.csv", "--destroy"]), &["--destroy is for a store"]);
    assert!(concertina(dir, &["capacity", "t.csv"]).status.success());
    for bad in ["nan", "0", "1e300", "-1"] {
        let given = format!("--bulk-ms={bad}");
        let args = ["tiers", "x.csv", "--memory", "1MB", "--hot", "1MB", &given];
        has(&refused(dir, &args), &["invalid number"]);
    }
    std::fs::write(dir.join("p.csv"), "time_ms,key,size,op\n5,a,10,put\n6,a,10,put\n").unwrap();
    let puts = refused(dir, &["tiers", "p.csv", "--memory", "1MB", "--hot", "1MB"]);
    has(&puts, &["has no reads"]);
    std::fs::write(dir.join("p.csv"), "time_ms,key,size,op\n5,a,10,get\n6,a,10,get\n").unwrap();
    has(
        &output_text(dir, &["tiers", "p.csv", "--memory", "1MB", "--hot", "1MB"]),
        &["So few requests"],
    );
}

/// Stated numbers were called checked, and a load at saturation ended the whole command.
#[test]
fn stated_numbers_are_not_called_checked() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let made = ["model", "--service", "exp:6.2ms", "--servers", "4", "--out", "s.toml"];
    assert!(concertina(dir, &made).status.success());
    let found =
        output_text(dir, &["predict", "s.toml", "--rate", "100,645.16129,645.161290322580645"]);
    has(&found, &["Not checked: no measured load was compared", "645.2"]);
    assert!(!found.contains("Checked up to") && !found.contains("[0 ms"), "{found}");
    let memory = output_text(dir, &["predict", "s.toml", "--rate", "100", "--memory", "2"]);
    has(&memory, &["--memory changes nothing"]);
    let exponent =
        refused(dir, &["predict", "s.toml", "--rate", "100", "--memory-exponent", "0.5"]);
    has(&exponent, &["add --memory"]);
    std::fs::write(
        dir.join("n.toml"),
        "[station.a]\n[class.x]\nrate = 0.0\nservice_ms = { a = 1.0 }\n",
    )
    .unwrap();
    let idle = output_text(dir, &["network", "n.toml"]);
    assert!(!idle.contains("  0 ms") && idle.contains("1 ms"), "{idle}");
}
