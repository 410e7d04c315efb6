//! A smoke run of an experiment: it starts, loads, fits, predicts and writes its claims. Whether they
//! hold is not judged here: that takes minutes on a quiet machine.

use std::path::Path;
use std::process::Command;

use crate::left_out::left_out;
use crate::steady::steady;

const CONFIG: &str = r#"
objects = 400
object_bytes = 512
fit_utilisations = [0.2, 0.4]
fit_s = 2.0
held_out_utilisations = [0.3]
half_width_points = 50.0
half_width_points_high = 50.0
measure_s_min = 2.0
measure_s_max = 2.0
relaxation_times = 0.1
warmup_s_min = 0.2
scale_min = 0.1

[again]
stolen_max = 1.0
times_max = 0

[[server]]
name = "tiny"
mu_per_s = 200.0
disks = 2
servers = 2
hit_ratio = 0.5

[[profile]]
name = "disk-like"
kind = "gamma"
scv = 0.2

[[case]]
server = "tiny"
profile = "disk-like"

[short]
server = "tiny"
profile = "disk-like"
fit_utilisations = [0.2, 0.4]
held_out_utilisations = [0.3]
"#;

fn run(folder: &Path, out: &Path, short: bool) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_experiments"));
    command.arg("run").arg(folder).args(["--json", "--quiet", "--out"]).arg(out);
    if short {
        command.arg("--short");
    }
    command.output().unwrap()
}

/// The exit code that claims must give.
fn exit_code(claims: &serde_json::Value) -> i32 {
    let verdicts: Vec<&str> =
        claims.as_array().unwrap().iter().filter_map(|claim| claim["verdict"].as_str()).collect();
    match (verdicts.contains(&"fails"), verdicts.contains(&"not shown")) {
        (true, _) => 1,
        (false, true) => 2,
        (false, false) => 0,
    }
}

#[test]
fn an_experiment_runs_and_writes_its_claims() {
    steady(|| {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("spotify-single");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("config.toml"), CONFIG).unwrap();
        let out = dir.path().join("out");
        let output = run(&folder, &out, true);
        let errors = String::from_utf8_lossy(&output.stderr);
        let claims: serde_json::Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {errors}"));
        // Up to the published limit, and past it: on a busy machine the limit that is found may be below the only load
        // that is held out.
        let count = claims.as_array().unwrap().len();
        assert!((1..=2).contains(&count), "{count} claims: {errors}");
        for claim in claims.as_array().unwrap() {
            assert!(claim["value"].as_f64().unwrap() < 50.0, "{claim}");
            assert!(claim["samples"].as_u64().unwrap() > 0, "{claim}");
            assert!(claim["peer"]["name"].as_str().unwrap().starts_with("Spotify model"));
        }
        assert_eq!(output.status.code(), Some(exit_code(&claims)), "{claims:#}");
        for file in ["claims.json", "run.json", "tiny-disk-like.json", "tiny-disk-like.html"] {
            assert!(out.join(file).exists(), "{file}");
        }
        let run = std::fs::read_to_string(out.join("run.json")).unwrap();
        let run: serde_json::Value = serde_json::from_str(&run).unwrap();
        // What a request costs, two fitted loads and one that is held out.
        assert_eq!((run["rounds"].as_array().unwrap().len(), &run["short"]), (4, &true.into()));
        assert!(run["end"].is_string() && run["machine"]["cores"].as_u64() > Some(0), "{run:#}");
    });
}

#[test]
fn what_is_wrong_with_an_experiment_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let outs = std::cell::Cell::new(0);
    let said = |folder: &Path, word: &str| {
        outs.set(outs.get() + 1);
        let output = run(folder, &dir.path().join(format!("out-{}", outs.get())), false);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{word}: {errors}");
        assert!(errors.contains(word), "{word}: {errors}");
    };
    said(&dir.path().join("none"), "there is no experiment folder");
    let unknown = dir.path().join("unknown");
    std::fs::create_dir(&unknown).unwrap();
    said(&unknown, "spotify-single");
    let broken = dir.path().join("spotify-single");
    std::fs::create_dir(&broken).unwrap();
    said(&broken, "config.toml");
    std::fs::write(broken.join("config.toml"), CONFIG.replace("fit_s", "fits")).unwrap();
    said(&broken, "config.toml");
    // The run that failed is listed, and its folder is not used again.
    let list = std::fs::read_to_string(dir.path().join("runs.jsonl")).unwrap();
    assert!(list.lines().count() == 2 && list.contains("error: "), "{list}");
    let again = run(&broken, &dir.path().join("out-4"), false);
    let errors = String::from_utf8_lossy(&again.stderr);
    assert!(again.status.code() == Some(4) && errors.contains("never overwritten"), "{errors}");
}

#[test]
fn a_machine_that_is_too_small_gives_no_verdict() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("spotify-single");
    std::fs::create_dir(&folder).unwrap();
    // Two disks that would serve a million reads/s.
    let config = CONFIG.replace("mu_per_s = 200.0", "mu_per_s = 1000000.0");
    std::fs::write(
        folder.join("config.toml"),
        config.replace("scale_min = 0.1", "scale_min = 1.0"),
    )
    .unwrap();
    let output = run(&folder, &dir.path().join("out"), true);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert!(errors.contains("this machine is too small for this experiment: needs"), "{errors}");
    assert!(!dir.path().join("out/claims.json").exists());
    let list = std::fs::read_to_string(dir.path().join("runs.jsonl")).unwrap();
    assert!(list.contains("too small: "), "{list}");
}

#[test]
fn the_table_of_records_in_the_docs_is_that_of_the_records() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let records = experiments::judge::records(&[project.join("experiments")]).unwrap();
    let judged: Vec<_> =
        records.iter().map(|record| experiments::judge::judge(record).unwrap()).collect();
    assert!(judged.len() >= 26, "{} records", judged.len());
    let document = std::fs::read_to_string(project.join("docs/benchmarks.md")).unwrap();
    let table = experiments::judge::table(&judged);
    let written = experiments::judge::in_document(&document, &table).unwrap();
    assert!(written == document, "run `experiments judge` and commit docs/benchmarks.md");
}

const LAWS: &str = r#"
grid_points = 12
half_width_points = 5.0
batches_min = 12
seed = 1

[full]
utilisations = [0.5]
servers = [1]
customers_max = 300000
law = [{ family = "gamma", scv = 0.5 }]

[short]
utilisations = [0.3, 0.5]
servers = [1, 2]
customers_max = 300000
law = [{ family = "gamma", scv = 0.5 }, { family = "hyperexponential", scv = 2.0 }]
"#;

#[test]
fn laws_are_compared_with_simulation() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("queue-laws");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("config.toml"), LAWS).unwrap();
    let out = dir.path().join("out");
    let output = run(&folder, &out, true);
    let errors = String::from_utf8_lossy(&output.stderr);
    let claims: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {errors}"));
    let claims = claims.as_array().unwrap();
    // One server, two, and other arrivals.
    assert_eq!(claims.len(), 3, "{errors}");
    for claim in claims {
        assert!(claim["value"].as_f64().unwrap() < 5.0, "{claim}");
        assert!(claim["samples"].as_u64().unwrap() > 100_000, "{claim}");
        assert!(claim["low"].as_f64() < claim["value"].as_f64(), "it has an interval: {claim}");
    }
    let rows = std::fs::read_to_string(out.join("laws.csv")).unwrap();
    assert_eq!(rows.lines().count(), 1 + 3 * 2 * 2, "{rows}");
    assert!(std::fs::read_to_string(out.join("laws.txt")).unwrap().contains("GI/M/1"));
}

const CLUSTER: &str = r#"
objects = 600
object_bytes = 512
replicas = 2
fit_utilisations = [0.2, 0.4]
fit_s = 2.0
held_out_utilisations = [0.15]
changed_utilisations = [0.15]
half_width_points = 50.0
half_width_points_high = 50.0
measure_s_min = 2.0
measure_s_max = 2.0
relaxation_times = 0.1
warmup_s_min = 0.2
scale_min = 0.1

[again]
stolen_max = 1.0
times_max = 0

[gateway]
spread = "primary"

[[cluster]]
name = "tiny"
nodes = 3
mu_per_s = 200.0
kind = "gamma"
scv = 0.2
disks = 1
hit_ratio = 0.5

[short]
cluster = "tiny"
fit_utilisations = [0.2, 0.4]
held_out_utilisations = [0.15]
changed_utilisations = [0.15]
"#;

#[test]
fn a_cluster_is_measured_whole_with_a_node_lost_and_with_a_slow_one() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("spotify-cluster");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("config.toml"), CLUSTER).unwrap();
    let out = dir.path().join("out");
    let output = run(&folder, &out, true);
    let errors = String::from_utf8_lossy(&output.stderr);
    let claims: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {errors}"));
    let claims = claims.as_array().unwrap();
    // Three states, each up to the published limit, up to 0.9, and beside the simulation.
    assert_eq!(claims.len(), 9, "{errors}");
    for claim in claims {
        // How near it comes, and how many replies are left when seconds with stolen time are cut, is for the record:
        // this machine may be busy with other tests.
        assert!((0.0..=100.0).contains(&claim["value"].as_f64().unwrap()), "{claim}");
        assert!(claim["samples"].as_u64().unwrap() > 0, "{claim}");
    }
    for file in ["tiny.json", "tiny-one-node-lost.json", "tiny.cluster.toml"] {
        assert!(out.join(file).exists(), "{file}");
    }
    let mut predict = Command::new(concertina::lab::program().unwrap());
    predict.args(["predict", "--cluster"]).arg(out.join("tiny.cluster.toml"));
    assert!(predict.output().unwrap().status.success());
}

#[test]
fn the_tables_of_the_middleware_study_come_out() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    if !project.join("../shared/gold/seeds").exists() {
        return left_out("asl-tables", "../shared/gold is not here");
    }
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let output = run(&project.join("experiments/asl-tables"), &out, false);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let claims: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let claims = claims.as_array().unwrap();
    assert!(
        claims.len() > 15 && claims.iter().all(|c| c["goal"].is_null() || c["verdict"] == "holds"),
        "{claims:#?}"
    );
    let text = std::fs::read_to_string(out.join("tables.txt")).unwrap();
    for named in [
        "Table 6, wt8, Throughput (Derived from MW response time): printed 3459.6",
        "Table 13, 192 clients, rho: printed 0.979",
        "Table 16, 48 clients, E_n",
        "Table 21, 192 clients, model_tp: printed 4787.6",
        "Table 22, 24 clients, meas_qlen: measured 1.5, λ·W gives 1.65",
        "Table II of the Spotify study",
    ] {
        assert!(text.contains(named), "{named}");
    }
    let index = std::fs::read_to_string(project.join("../shared/gold/seeds/index.json")).unwrap();
    let index: serde_json::Value = serde_json::from_str(&index).unwrap();
    for table in index.as_object().unwrap().keys() {
        let Some(rest) = table.strip_prefix("asl_table") else { continue };
        let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
        let head = format!("Table {}: ", number.trim_start_matches('0'));
        assert!(text.contains(&head), "{table} is not named");
    }
}
