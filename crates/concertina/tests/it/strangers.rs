//! Files that this project did not make, beside those that it did: they survive whatever removes, renames and overwrites
//! (docs/decisions/0014-what-is-removed.md).

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use configuration::Config;
use serve::Server;

use crate::data::{answer, refused, run};
use crate::serve_client::{Client, overrides, start, until};

/// Puts files that nobody but their owner may change.
struct Strangers(Vec<PathBuf>);

impl Strangers {
    fn put(folder: &Path, paths: &[&str]) -> Strangers {
        let mut strangers = Strangers(Vec::new());
        strangers.add(folder, paths);
        strangers
    }

    fn add(&mut self, folder: &Path, paths: &[&str]) {
        for path in paths {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, path.display().to_string()).unwrap();
            self.0.push(path);
        }
    }

    fn survive(&self) {
        for path in &self.0 {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            assert_eq!(text, path.display().to_string());
        }
    }
}

/// What a server says that does not start.
fn refused_start(folder: &Path, more: &[&str]) -> String {
    let config = Config::load(None, &overrides(folder, more)).unwrap();
    format!("{:#}", Server::start(config, None).err().expect("it does not start"))
}

fn import(folder: &Path, name: &str, more: &[&str]) -> Output {
    let args = [&["import", "-", "--name", name, "--format", "lines"], more].concat();
    run(folder, &args, "one\ntwo\nthree\n")
}

/// The folder of the version of a dataset that a node has copied.
fn version(copies: &Path, name: &str) -> Option<PathBuf> {
    let mut folders = std::fs::read_dir(copies.join(name)).ok()?.flatten().map(|it| it.path());
    folders.find(|it| it.join(".concertina").exists() && it.join("000001.shard").exists())
}

/// Pushing a dataset removed every other folder of its name below `datasets.path`.
#[test]
fn a_dataset_that_is_pushed_removes_nothing_else_in_the_folder_of_copies() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let copies = folder.join("copies");
    let path = format!("datasets.path={}", copies.display());
    let more = [&*path, "datasets.refresh_s=0.1"];
    let server = start(folder, &more);
    let url = &format!("http://{}", server.address());
    let mut strangers = Strangers::put(
        &copies,
        &[
            "photos/2024/a.jpg",
            "photos/b.jpg",
            "photos/0123456789abcdef/000001.shard",
            "photos/fedcba9876543210/c.jpg",
            ".sealing-0123456789abcdef/d.jpg",
            "other/e.jpg",
        ],
    );
    assert!(import(folder, "photos", &[]).status.success());
    answer(folder, &["push", "photos", "--server", url]);
    until("it is copied", || version(&copies, "photos").is_some());
    let first = version(&copies, "photos").unwrap();
    strangers.add(&first, &["f.jpg", "deep/000001.shard", "1.shard"]);
    // Another version takes its place.
    assert!(import(folder, "photos", &["--replace"]).status.success());
    run(folder, &["append", "photos", "-"], "four\n");
    answer(folder, &["push", "photos", "--server", url, "--replace"]);
    until("the first version is gone", || !first.join("000001.shard").exists());
    let count = ["count", "photos", "four", "--server", url];
    until("the second version is served", || run(folder, &count, "").stdout == b"1\n");
    strangers.survive();
    // Appends and seals work beside them, and so does the next start.
    assert!(run(folder, &["append", "photos", "-", "--server", url], "five\n").status.success());
    answer(folder, &["seal", "photos", "--server", url]);
    assert_eq!(answer(folder, &["count", "photos", "five", "--server", url]), "1\n");
    server.stop();
    let server = start(folder, &more);
    let mut client = Client::connect(server.address());
    until("it is served", || client.get("/datasets/photos").text().contains("000002"));
    server.stop();
    strangers.survive();
}

/// With `datasets.path` around the origin, a client that pushed a dataset named `origin` had all objects removed.
#[test]
fn a_folder_with_other_things_in_it_is_not_taken_for_copies() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let strangers = Strangers::put(folder, &["share/photos/2024/a.jpg", "share/photos/2025/b.jpg"]);
    let error = refused_start(folder, &[&format!("datasets.path={}/share", folder.display())]);
    assert!(error.contains("datasets.path") && error.contains("\"photos\""), "{error}");
    // The origin and devices are in it.
    let server = start(folder, &[]);
    let mut client = Client::connect(server.address());
    assert_eq!(client.put("/objects/k", b"v").status, 200);
    server.stop();
    std::fs::create_dir_all(folder.join("state")).unwrap();
    let around = format!("datasets.path={}", folder.display());
    let config = Config::load(None, &overrides(folder, &[&around]));
    let refused = config.is_err() || Server::start(config.unwrap(), None).is_err();
    assert!(refused, "{around}");
    let server = start(folder, &[]);
    assert_eq!(Client::connect(server.address()).get("/objects/k").body, b"v");
    server.stop();
    strangers.survive();
}

#[test]
fn an_import_neither_replaces_nor_clears_what_is_not_a_datasets() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    assert!(import(folder, "d", &[]).status.success());
    for path in ["d/notes.txt", ".importing-d/notes.txt", ".replaced-d/notes.txt"] {
        let strangers = Strangers::put(&folder.join("datasets"), &[path]);
        let output = import(folder, "d", &["--replace"]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains("notes.txt"), "{path}: {errors}");
        strangers.survive();
        std::fs::remove_file(&strangers.0[0]).unwrap();
    }
    assert!(import(folder, "d", &["--replace"]).status.success());
    assert_eq!(answer(folder, &["count", "d", "two"]), "1\n");
    let strangers = Strangers::put(folder, &["photos/000000000001.log", "photos/000001.shard"]);
    refused(folder, &["append", "photos", "-", "--folder", "."], "x\n", "photos");
    assert!(!folder.join("photos/lock").exists());
    strangers.survive();
}

/// Runs the program; what it says on standard error, and whether it succeeded.
fn concertina(folder: &Path, args: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
    let output = command.args(args).current_dir(folder).output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn no_command_writes_over_another_kind_of_file() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let strangers = Strangers::put(
        folder,
        &[
            "out.toml",
            "plot.svg",
            "demo/notes.txt",
            "run/windows",
            "survey/requests.csv",
            "journal",
            "objects/k0.jpg",
        ],
    );
    let rows: String = (0..200).map(|i| format!("{i},k{},100,get\n", i % 20)).collect();
    std::fs::write(folder.join("trace.csv"), format!("time_ms,key,size,op\n{rows}")).unwrap();
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/model.toml");
    let objects = format!("file://{}/objects", folder.display());
    let whole = format!("file://{}/journal", folder.display());
    let steps = ["--duration", "100ms", "--warmup", "10ms", "--quiet"];
    let cases: [(&[&str], &str); 7] = [
        (
            &["tiers", "trace.csv", "--memory", "1KiB", "--hot", "1KiB", "--curves", "out.toml"],
            "out.toml",
        ),
        (&["predict", model, "--plot", "plot.svg"], "plot.svg"),
        (&["demo", "--dir", "demo", "--quiet"], "notes.txt"),
        (&["load", &objects, "--rate", "10", "--out", "run"], "windows"),
        (&["capacity", &objects, "--sizes", "4KiB", "--out", "survey"], "requests.csv"),
        (&["load", &objects, "--rate", "10", "--fill", "--out", "a"], "k0.jpg"),
        (&["load", &whole, "--rate", "10", "--out", "b"], "b"),
    ];
    for (args, part) in cases {
        let steps: &[&str] = if matches!(args[0], "load" | "capacity") { &steps } else { &[] };
        let (is_done, errors) = concertina(folder, &[args, steps].concat());
        assert!(!is_done && errors.contains(part), "{args:?}: {errors}");
        strangers.survive();
    }
    assert_eq!(std::fs::read_dir(folder.join("objects")).unwrap().count(), 1);
    let journal = format!("act.journal={}/journal", folder.display());
    let error = refused_start(folder, &[&journal]);
    assert!(error.contains("is not a journal"), "{error}");
    strangers.survive();
}

/// `concertina load` of a folder writes a file for each key.
#[test]
fn a_load_writes_files_only_where_loads_did() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::create_dir(folder.join("objects")).unwrap();
    let url = format!("file://{}/objects", folder.display());
    let load = |out: &str, more: &[&str]| {
        let args = ["load", &url, "--rate", "100", "--count", "5", "--out", out, "--quiet"];
        concertina(folder, &[&args, &["--duration", "200ms", "--warmup", "0s"][..], more].concat())
    };
    let (is_done, errors) = load("a", &["--fill"]);
    assert!(is_done, "{errors}");
    assert!(folder.join("objects/.concertina").exists());
    let strangers = Strangers::put(&folder.join("objects"), &["a.jpg"]);
    assert!(load("b", &["--fill"]).0, "in a folder of its own, whatever was put there");
    strangers.survive();
    // Reads of another's files need no marker, and leave none.
    std::fs::remove_file(folder.join("objects/.concertina")).unwrap();
    let before = std::fs::read_dir(folder.join("objects")).unwrap().count();
    assert!(load("c", &[]).0);
    assert_eq!(std::fs::read_dir(folder.join("objects")).unwrap().count(), before);
    strangers.survive();
}
