//! Suites that are not ours: memcached's own test scripts, and the tests of its clients in Python, against memcached itself,
//! the proxy before one server and before three, and a node. How much of each passes is what docs/memcached.md says.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::left_out::left_out;
use crate::measure::Running;
use crate::measure_protocols::start_memcached;
use crate::memcached_proxy::clients::{installed, output_text, sources};
use crate::memcached_proxy::{serve, talk};

/// The columns of the table in docs/memcached.md: what is tested.
pub const FACES: [&str; 5] = ["memcached", "one server", "`hash`", "`hash_replicas`", "node"];
/// Seconds after which a script hangs. The longest takes two, and sleeps up to five.
const SCRIPT_S: &str = "120";

/// A program that answers memcached's clients, with what is behind it.
pub struct Face {
    _processes: Vec<Running>,
    pub address: String,
    /// The working folder of a node.
    _folder: tempfile::TempDir,
}

impl Face {
    pub fn start(name: &str, memcached: &Path) -> Face {
        let folder = tempfile::tempdir().unwrap();
        let (servers, routing) = match name {
            "memcached" => (1, None),
            "one server" => (1, Some("hash")),
            "`hash`" => (3, Some("hash")),
            "`hash_replicas`" => (3, Some("hash_replicas")),
            _ => (0, None),
        };
        let (mut processes, mut names) = (Vec::new(), Vec::new());
        for at in 0..servers {
            let (process, address) = start_memcached(memcached, &[]);
            processes.push(process);
            // By their names, keys are on the same servers in each run.
            names.push(if routing.is_some() { format!("{address} name=s{at}") } else { address });
        }
        // A script gets 65,000 keys at once.
        let many = "memcached.keys_max=65535";
        let address = if let Some(routing) = routing {
            let (servers, routing) =
                (format!("pool.0.servers={names:?}"), format!("pool.0.routing={routing}"));
            let sets = [
                "serve.role=proxy",
                "memcached.listen=127.0.0.1:0",
                many,
                &servers,
                &routing,
                // A server that gets no processor for a second has not failed: it would be emptied when it is back.
                "pool.0.timeout_s=60",
                "memcached.ping_timeout_s=60",
                "memcached.deadline_s=60",
            ];
            let (process, _, address) = serve(folder.path(), &sets);
            processes.push(process);
            address
        } else if servers == 1 {
            names.remove(0)
        } else {
            let sets = [
                "origin.kind=none",
                "memcached.node_listen=127.0.0.1:0",
                many,
                "node.memory_bytes=64MiB",
                "device=[]",
            ];
            let (process, _, address) = serve(folder.path(), &sets);
            processes.push(process);
            address
        };
        Face { _processes: processes, address, _folder: folder }
    }

    pub fn empty(&self) {
        assert_eq!(talk(&self.address, b"flush_all\r\nquit\r\n", 100), "OK\r\n");
    }
}

/// What a suite, or a script of one, says: how many checks pass, and what the others said.
#[derive(Debug, Default)]
struct Results {
    passed: usize,
    failures: Vec<String>,
}

/// The tables of the section about suites in docs/memcached.md.
struct Documented {
    /// By suite: how many checks pass at each face.
    passed: BTreeMap<String, Vec<usize>>,
    /// The suites of which something fails somewhere, with the reason.
    explained: BTreeSet<String>,
}

/// The rows of the table under a heading, split into cells.
fn rows<'t>(text: &'t str, heading: &str) -> impl Iterator<Item = Vec<&'t str>> {
    let section = text.split(heading).nth(1).unwrap_or_else(|| panic!("no {heading}"));
    let section = section.split("\n#").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect())
}

fn documented() -> Documented {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/memcached.md");
    let text = std::fs::read_to_string(path).unwrap();
    let passed = rows(&text, "## Suites").map(|row| {
        let counts: Vec<usize> =
            row[1..].iter().map(|cell| cell.replace(',', "").parse().unwrap()).collect();
        assert_eq!(counts.len(), FACES.len(), "{row:?}");
        (row[0].trim_matches('`').to_owned(), counts)
    });
    let explained = rows(&text, "### What does not pass")
        .map(|row| row[0].trim_matches('`').to_owned())
        .collect();
    Documented { passed: passed.collect(), explained }
}

/// Runs a suite at each face at the same time, and compares what passes with the documentation.
fn check_suites(
    names: &[&str],
    memcached: &Path,
    run: impl Fn(&str, &Face) -> Results + Send + Sync,
) {
    let run = &run;
    let results: Vec<Vec<Results>> = std::thread::scope(|scope| {
        let faces = FACES.map(|name| {
            scope.spawn(move || {
                let face = Face::start(name, memcached);
                let one = |name: &&str| {
                    face.empty();
                    run(name, &face)
                };
                names.iter().map(one).collect::<Vec<_>>()
            })
        });
        faces.into_iter().map(|face| face.join().unwrap()).collect()
    });
    let documented = documented();
    let mut wrong = String::new();
    for (at, name) in names.iter().enumerate() {
        let found: Vec<usize> = results.iter().map(|face| face[at].passed).collect();
        let expected = documented.passed.get(*name);
        if expected != Some(&found) {
            let _ = writeln!(wrong, "{name}: {found:?} pass, documented are {expected:?}");
            for (face, results) in FACES.iter().zip(&results) {
                for failure in &results[at].failures {
                    let _ = writeln!(wrong, "    {face}: {failure}");
                }
            }
        }
        let (own, others) = found.split_first().unwrap();
        let differs =
            !results[0][at].failures.is_empty() || others.iter().any(|count| count != own);
        if differs != documented.explained.contains(*name) {
            let _ = writeln!(
                wrong,
                "{name}: a reason is given: {}, something fails: {differs}",
                !differs
            );
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// The folder with memcached's sources and the program built from them.
pub fn memcached_sources(test: &str) -> Option<PathBuf> {
    let folder = installed().join("memcached");
    if !folder.join("ready").exists() {
        left_out(test, "memcached's test scripts are not installed (sh .ci/setup)");
        return None;
    }
    Some(folder)
}

/// Runs a command that is ended if it hangs.
fn run_bounded(command: &Command, environment: &[(&str, &str)], folder: &Path) -> Output {
    let mut bounded = Command::new("timeout");
    bounded.arg(SCRIPT_S).arg(command.get_program()).args(command.get_args());
    bounded.envs(environment.iter().copied()).current_dir(folder).output().unwrap()
}

/// Those of memcached's scripts that are about the protocol; docs/memcached.md has the others, and why.
const SCRIPTS: [&str; 21] = [
    "bogus-commands",
    "cas",
    "expirations",
    "flags",
    "flush-all",
    "getandtouch",
    "getset",
    "incrdecr",
    "issue_108",
    "issue_152",
    "issue_192",
    "issue_3",
    "issue_41",
    "issue_68",
    "issue_70",
    "malicious-commands",
    "metaget",
    "multiversioning",
    "noreply",
    "quit",
    "touch",
];

#[test]
fn memcacheds_own_scripts_pass_but_for_what_is_documented() {
    const TEST: &str = "memcached_suites::memcacheds_own_scripts_pass_but_for_what_is_documented";
    let Some(folder) = memcached_sources(TEST) else { return };
    check_suites(&SCRIPTS, &folder.join("memcached"), |script, face| {
        let mut command = Command::new("perl");
        command.arg(format!("t/{script}.t"));
        let output = run_bounded(&command, &[("T_MEMD_USE_DAEMON", &face.address)], &folder);
        // The Test Anything Protocol: a line for each check. Those of subtests are indented.
        let text = output_text(&output);
        let failures = text.lines().filter(|line| line.starts_with("not ok "));
        let mut failures: Vec<String> = failures.map(str::to_owned).collect();
        if !output.status.success() {
            failures.push(format!("{}: {}", output.status, last_lines(&text)));
        }
        let passed = text.lines().filter(|line| line.starts_with("ok ")).count();
        Results { passed, failures }
    });
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(8)..].join("\n        ")
}

#[test]
fn tests_of_clients_in_python_pass_but_for_what_is_documented() {
    const TEST: &str =
        "memcached_suites::tests_of_clients_in_python_pass_but_for_what_is_documented";
    let Some(folder) = memcached_sources(TEST) else { return };
    let suites = installed().join("memcached-suites");
    if !suites.join("ready").exists() {
        return left_out(TEST, "the tests of clients in Python are not installed (sh .ci/setup)");
    }
    let names = ["pymemcache", "pylibmc", "python-memcached"];
    check_suites(&names, &folder.join("memcached"), |suite, face| {
        let mut command = Command::new(suites.join("bin/python"));
        command.arg(sources().join("memcached_suite.py")).arg(&suites).arg(suite);
        command.arg(face.address.rsplit(':').next().unwrap());
        let output = run_bounded(&command, &[], suites.as_path());
        let tests: Result<BTreeMap<String, Option<String>>, _> =
            serde_json::from_slice(&output.stdout);
        let Ok(tests) = tests else {
            return Results { passed: 0, failures: vec![output_text(&output)] };
        };
        let failed =
            tests.iter().filter_map(|(name, why)| Some(format!("{name}: {}", why.as_ref()?)));
        let failures: Vec<String> = failed.collect();
        Results { passed: tests.len() - failures.len(), failures }
    });
}
