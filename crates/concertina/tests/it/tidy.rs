//! The tree's own rules, so that there is no second truth: lengths of files, walls between parts,
//! licences and reasons of dependencies.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::serve_client::ServerLog;

/// Lines of a source file, its tests in a sibling file not counted with it. The limit only ever goes
/// down.
const LINES_MAX: usize = 600;

/// Licences that a dependency may have; an expression passes if one of its alternatives is here.
const LICENCES: [&str; 13] = [
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "0BSD",
    "CC0-1.0",
    "Unlicense",
    "Unicode-3.0",
    "MIT-0",
    // As BSD-3-Clause without its last clause: of `libbz2-rs-sys`, which reads bzip2.
    "bzip2-1.0.6",
];

/// Which crates of the workspace each crate may depend on, tests included. Cargo refuses circles; that
/// `load` cannot reach `serve`, nor `serve` a report or the generator, is a line here.
const EDGES: [(&str, &str); 28] = [
    ("ground", ""),
    ("shard", ""),
    ("model", "ground"),
    ("memcached", ""),
    ("engine", "ground model"),
    ("record", "ground"),
    ("load", "ground model record"),
    ("origin", "ground"),
    ("dataset", "engine ground origin record shard"),
    ("proxy", "engine ground memcached record"),
    ("configuration", "engine ground model origin proxy record"),
    ("wire", "configuration engine ground origin record"),
    ("device", "configuration engine ground origin record wire"),
    ("peer", "engine origin wire"),
    ("membership", "configuration engine ground peer record wire"),
    ("live", "configuration engine ground model origin record wire"),
    ("front", "configuration device engine ground live membership origin record wire"),
    ("datasets", "configuration dataset engine ground live membership origin record shard wire"),
    ("store", "device engine front ground origin wire"),
    ("cluster", "configuration device engine ground membership origin peer record wire"),
    ("objects", "cluster device engine ground origin record store wire"),
    (
        "node",
        "cluster configuration datasets device engine front ground live membership objects origin peer record store wire",
    ),
    (
        "gateway",
        "cluster configuration dataset datasets device engine front ground live membership objects origin peer record store wire",
    ),
    ("s3", "configuration device front ground origin record store wire"),
    ("memcached_front", "front ground memcached origin record store wire"),
    (
        "serve",
        "cluster configuration datasets device engine front gateway ground live membership memcached_front node origin peer proxy record s3 store wire",
    ),
    ("report", "engine ground model record"),
    (
        "concertina",
        "configuration dataset device engine ground load model node origin peer record report s3 serve shard",
    ),
];

/// The manifest of a crate.
fn manifest_of(name: &str) -> PathBuf {
    root().join(format!("crates/{name}/Cargo.toml"))
}

/// The source files of the workspace that rules hold for.
pub fn all_sources() -> Vec<PathBuf> {
    ["crates", "experiments", "python/src"]
        .iter()
        .flat_map(|folder| sources(&root().join(folder)))
        .collect()
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

pub fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

pub fn relative_name(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

#[test]
fn no_source_file_is_too_long() {
    let long: Vec<String> = all_sources()
        .iter()
        .filter_map(|path| {
            let lines = fs::read_to_string(path).unwrap().lines().count();
            (lines > LINES_MAX).then(|| format!("{} has {lines} lines", relative_name(path)))
        })
        .collect();
    assert!(long.is_empty(), "split by noun, or move tests to a sibling: {long:#?}");
}

#[test]
fn every_source_file_says_what_it_is_for() {
    let silent: Vec<String> = all_sources()
        .iter()
        .filter(|path| !fs::read_to_string(path).unwrap().starts_with("//!"))
        .filter(|path| path.file_name().is_some_and(|name| name != "tests.rs"))
        .map(|path| relative_name(path))
        .collect();
    assert!(silent.is_empty(), "these do not open with what they are for: {silent:#?}");
}

fn metadata() -> serde_json::Value {
    // What is built here: dependencies of other platforms are not downloaded.
    let rustc = Command::new("rustc").arg("-vV").output().expect("rustc runs");
    let rustc = String::from_utf8_lossy(&rustc.stdout).into_owned();
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: ")).expect("a host");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .args(["--filter-platform", host])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn walls_between_crates_hold() {
    let edges = EDGES.map(|(name, allowed)| (name, allowed.split_whitespace().collect::<Vec<_>>()));
    let metadata = metadata();
    let ours: BTreeSet<&str> = edges.iter().map(|(name, _)| *name).collect();
    for (name, allowed) in &edges {
        let package = metadata["packages"].as_array().unwrap().iter();
        let package = package.into_iter().find(|p| p["name"] == *name).unwrap();
        for dependency in package["dependencies"].as_array().unwrap() {
            let on = dependency["name"].as_str().unwrap();
            assert!(!ours.contains(on) || allowed.contains(&on), "{name} may not depend on {on}");
        }
    }
    let runtime = ["tokio", "mio", "socket2", "rustix", "libc"];
    for name in ["ground", "shard", "model", "memcached", "engine"] {
        let manifest = fs::read_to_string(manifest_of(name)).unwrap();
        for forbidden in runtime {
            let named = manifest.lines().any(|line| line.starts_with(forbidden));
            assert!(!named, "{name} has no runtime, clock or socket, but names {forbidden}");
        }
    }
}

#[test]
fn licences_of_dependencies_are_known() {
    let metadata = metadata();
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        let licence = package["license"].as_str().unwrap_or("");
        let passes = licence.replace('/', " OR ").split(" OR ").any(|alternative| {
            alternative
                .split(" AND ")
                .all(|part| LICENCES.contains(&part.trim_matches(&['(', ')', ' '][..])))
        });
        let conjunction = licence.split(" AND ").all(|part| {
            part.split(" OR ").any(|one| LICENCES.contains(&one.trim_matches(&['(', ')', ' '][..])))
        });
        assert!(passes || conjunction, "{name} has the licence {licence:?}");
    }
}

/// What stands in the root of the project, the first page that a reader sees.
const ROOT: [&str; 20] = [
    ".ci",
    ".dockerignore",
    ".git",
    ".gitignore",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "Makefile",
    "README.md",
    "crates",
    "deploy",
    "docs",
    "experiments",
    "fuzz",
    "python",
    "rustfmt.toml",
    "web",
];

#[test]
fn nothing_else_stands_in_the_root() {
    let ignored = fs::read_to_string(root().join(".gitignore")).unwrap();
    let ignored: Vec<&str> = ignored.lines().map(|line| line.trim_end_matches('/')).collect();
    for entry in fs::read_dir(root()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            ROOT.contains(&&*name) || ignored.contains(&&*name),
            "{name} is not a part of the project; move or remove it, or list it here"
        );
    }
}

#[test]
fn every_dependency_has_a_reason() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let section = manifest.split("[workspace.dependencies]").nth(1).unwrap();
    let section = section.split("\n[").next().unwrap();
    let mut explained = false;
    for line in section.lines().filter(|line| !line.trim().is_empty()) {
        if line.starts_with('#') {
            explained = true;
        } else if !line.contains("path = \"crates/") {
            // One for each: a sentence for a group does not say why the third of it is there.
            assert!(explained, "give this dependency a sentence: {line}");
            explained = false;
        }
    }
    for (name, _) in EDGES {
        let text = fs::read_to_string(manifest_of(name)).unwrap();
        let dependencies = text.split("[dependencies]").nth(1).unwrap_or_default();
        let own = dependencies.lines().find(|l| l.contains('=') && !l.contains("workspace = true"));
        assert_eq!(own, None, "crates/{name}: depend through the workspace, where reasons stand");
    }
}

/// The names that a running server gives, each with its first request behind it.
fn metrics_of_a_server(config: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("config.toml"), config).unwrap();
    let log = ServerLog::in_folder(dir.path());
    let mut server = Command::new(env!("CARGO_BIN_EXE_concertina"))
        .args([
            "serve",
            "--json",
            "--config",
            "config.toml",
            "--set",
            "serve.listen=127.0.0.1:0",
            "--set",
            "observe.window_s=0.1",
        ])
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .stderr(log.end())
        .spawn()
        .unwrap();
    let started = log.first_line(&mut server);
    let get = |path: &str| {
        let mut stream = TcpStream::connect(started["address"].as_str().unwrap()).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    };
    get("/objects/none");
    std::thread::sleep(std::time::Duration::from_millis(500));
    let reply = get("/metrics");
    server.kill().unwrap();
    server.wait().unwrap();
    reply
}

#[test]
fn metrics_in_the_documents_are_those_of_the_server() {
    let names = |text: &str| -> BTreeSet<String> {
        text.split(|c: char| !(c.is_alphanumeric() || c == '_'))
            .filter(|word| word.starts_with("concertina_"))
            .map(|word| {
                let stem = ["_bucket", "_sum", "_count"].iter().find_map(|s| word.strip_suffix(s));
                stem.unwrap_or(word).to_owned()
            })
            .collect()
    };
    let node = metrics_of_a_server("");
    let gateway =
        "[serve]\nrole = \"gateway\"\n[[member]]\nname = \"a\"\naddress = \"127.0.0.1:1\"\n";
    let proxy = "[serve]\nrole = \"proxy\"\n[memcached]\nlisten = \"127.0.0.1:0\"\n\
        [[pool]]\nservers = [\"127.0.0.1:1\"]\n";
    let served = [node, metrics_of_a_server(gateway), metrics_of_a_server(proxy)].concat();
    let served = names(&served);
    let documented = names(&fs::read_to_string(root().join("docs/metrics.md")).unwrap());
    assert!(served.len() > 5, "{served:?}");
    assert_eq!(served, documented, "left: served; right: in docs/metrics.md");
}
