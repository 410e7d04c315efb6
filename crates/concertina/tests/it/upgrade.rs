//! What the version before wrote is read by this one: configuration, objects, devices, journal, datasets, run folders and model.
//!
//! `tests/written/by-VERSION.tar.gz` was written by the program of that version: a node with a folder as its origin, two devices, 31
//! objects and a journal; a load of two steps recorded at both sides; the model that was fitted to it; a dataset with an appended and a
//! deleted record. docs/formats.md has the promise.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::data;
use crate::serve_client::{Client, Process, ServerLog};

/// The folder that a version wrote, unpacked.
fn written() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/written/by-0.1.0.tar.gz");
    let status = Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(folder.path()).status();
    assert!(status.unwrap().success(), "tar failed");
    folder
}

fn concertina(folder: &Path, args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
    let output = command.args(args).current_dir(folder).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Serves the folder with the configuration that is in it.
fn serve(folder: &Path) -> Process {
    let log = ServerLog::in_folder(folder);
    let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
    command.args(["serve", "--json", "--config", "concertina.toml"]).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log.end());
    let mut child = command.spawn().unwrap();
    let started = log.first_line(&mut child);
    Process { child, address: started["address"].as_str().unwrap().parse().unwrap() }
}

#[test]
fn a_node_of_the_version_before_is_served_on() {
    let folder = written();
    let path = folder.path();
    concertina(path, &["config", "check", "concertina.toml"]);
    let node = serve(path);
    let mut client = Client::connect(node.address);
    let reply = client.get("/objects/notes/hello.txt");
    assert_eq!((reply.status, reply.text().as_str()), (200, "hello, older version\n"));
    assert_eq!(reply.header("content-type"), Some("text/plain"));
    assert_eq!(reply.header("etag"), Some("\"b292f8df82dc9392ce4d7cf602010d3e\""));
    // What it wrote to the devices is read from there, without the origin.
    for key in 0..30 {
        let reply = client.get(&format!("/objects/k{key}"));
        assert_eq!((reply.status, reply.body.len()), (200, 2000), "k{key}");
        let outcome = reply.header("concertina-outcome");
        assert!(matches!(outcome, Some("bulk_device" | "memory")), "k{key}: {outcome:?}");
    }
    // Writes go on.
    assert_eq!(client.put("/objects/k1", b"newer").status, 200);
    assert_eq!(client.get("/objects/k1").text(), "newer");
    assert_eq!(client.send("DELETE", "/objects/k2", &[], None).unwrap().status, 204);
    // The journal's last line says that changes are made.
    let reply: Value = serde_json::from_slice(&client.get("/actions").body).unwrap();
    assert_eq!(reply["held"], false);
    node.signal("-INT");
    drop(node);
    let node = serve(path);
    let mut client = Client::connect(node.address);
    assert_eq!(client.get("/objects/k1").text(), "newer");
    assert_eq!(client.get("/objects/k2").status, 404);
}

#[test]
fn runs_and_models_of_the_version_before_are_read() {
    let folder = written();
    let path = folder.path();
    let run = fs::read_to_string(path.join("runs/load/run.toml")).unwrap();
    assert!(run.contains("version = \"0.1.0\"") && run.contains("format = 1"), "{run}");
    let text = concertina(path, &["report", "runs/load", "runs/server", "model.toml", "--json"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    let requests: Vec<_> = report["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| &step["measured"]["requests"])
        .collect();
    assert_eq!(requests, [629, 1167]);
    // The step that the model was fitted to is recognised; the other was held out.
    let fitted: Vec<_> =
        report["steps"].as_array().unwrap().iter().map(|step| &step["used_for_fit"]).collect();
    assert_eq!(fitted, [true, false]);
    let text =
        concertina(path, &["predict", "model.toml", "--rate", "300", "--within", "50ms", "--json"]);
    let predicted: Value = serde_json::from_str(&text).unwrap();
    let share = predicted["predictions"][0]["points"][0]["concertina"]["value"].as_f64().unwrap();
    assert!((0.9..=1.0).contains(&share), "{share}");
    // A fit of the old runs is the old model, but for what later versions fit better.
    concertina(
        path,
        &["fit", "runs/server", "runs/load", "--hold-out", "1", "--out", "again.toml"],
    );
    concertina(path, &["check", "runs/server", "runs/load"]);
}

#[test]
fn a_dataset_of_the_version_before_is_read_and_written() {
    let folder = written();
    let path = folder.path();
    assert_eq!(data::answer(path, &["count", "packages", "Maintainer:python"]).trim(), "199");
    let found = data::answer(path, &["search", "packages", "Package:=appended"]);
    assert!(found.contains("Description: appended later"), "{found}");
    let record = data::answer(path, &["get", "packages", "17"]);
    assert!(record.contains("Package: p18"), "{record}");
    fs::write(path.join("more.txt"), "Package: newest\nMaintainer: python\n\n").unwrap();
    data::answer(path, &["append", "packages", "more.txt"]);
    data::answer(path, &["seal", "packages"]);
    assert_eq!(data::answer(path, &["count", "packages", "Maintainer:python"]).trim(), "200");
}
