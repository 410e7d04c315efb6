//! The suite of integration tests of versitygw, which is not ours, against fronts before that store: what passes and
//! what does not is what docs/s3.md says.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use super::clients::{client, python, script};
use super::{ADMIN, Front, before};
use crate::origin_s3::{Store, program};

const TEST: &str = "serve_s3::suite::the_suite_of_versitygw_passes_but_for_what_is_documented";
/// Fronts that are tested at the same time.
const FRONTS: usize = 3;
/// Buckets that a test of the suite makes at most.
const BUCKETS: usize = 40;

/// What docs/s3.md says.
struct Documented {
    groups: BTreeSet<String>,
    /// Names that are not run.
    left_out: BTreeSet<String>,
    /// Names that fail.
    exceptions: BTreeSet<String>,
    /// How many pass.
    pass: usize,
}

/// The words between backticks.
fn quoted(text: &str) -> impl Iterator<Item = String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned)
}

fn documented() -> Documented {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/s3.md");
    let text = std::fs::read_to_string(path).unwrap();
    let section = text.split("## Conformance").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let part = |from: &str| section.split(from).nth(1).unwrap().split("\n###").next().unwrap();
    let names = |from: &str| {
        let rows = part(from).lines().filter(|line| line.starts_with("| "));
        rows.flat_map(|row| quoted(row.rsplit(" | ").next().unwrap())).collect::<BTreeSet<_>>()
    };
    let groups = part("The groups that are run:").split("\n\n").next().unwrap();
    let pass = section.split(" tests pass").next().unwrap().rsplit(' ').next().unwrap();
    Documented {
        groups: quoted(groups).collect(),
        left_out: names("### Not run"),
        exceptions: names("### Exceptions"),
        pass: pass.trim_start_matches("**").parse().unwrap(),
    }
}

/// The names of the suite's tests of some groups.
fn names(program: &Path, groups: &BTreeSet<String>) -> BTreeSet<String> {
    let output = Command::new(program).args(["test", "--help"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let tests = text.lines().filter(|line| line.trim_end().ends_with("integration test"));
    let names = tests.filter_map(|line| line.split_whitespace().next());
    let of_groups =
        names.filter(|name| name.split_once('_').is_some_and(|(group, _)| groups.contains(group)));
    of_groups.map(str::to_owned).collect()
}

/// Runs tests: null, or what a test said when it failed.
fn run<'a>(
    python: &Path,
    program: &Path,
    fronts: &[Front],
    names: impl Iterator<Item = &'a String>,
) -> BTreeMap<String, Option<String>> {
    let mut command = client(python.to_owned(), ADMIN, fronts[0].folder.path());
    // The region in which the suite signs unless told.
    command.env("AWS_REGION", "us-east-1").arg(script("s3_suite.py")).arg(program);
    command.args(fronts.iter().map(|front| format!("{},{}", front.address, front.http)));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let list: String = names.map(|name| format!("{name}\n")).collect();
    child.stdin.take().unwrap().write_all(list.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_suite_of_versitygw_passes_but_for_what_is_documented() {
    let (Some(python), Some(store), Some(program)) = (python(TEST), Store::start(TEST), program())
    else {
        return;
    };
    let said = documented();
    let buckets: Vec<String> =
        (1..=BUCKETS).map(|at| format!("\"test-bucket-{at}=of-{at}/\"")).collect();
    let buckets = format!("s3.buckets=[{}]", buckets.join(","));
    let start = |at: usize| {
        let mut sets = before(&store);
        sets.extend([format!("origin.prefix=front-{at}/"), buckets.clone()]);
        Front::start(&sets.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let fronts: Vec<Front> = (0..FRONTS).map(start).collect();
    let all = names(&program, &said.groups);
    for name in said.left_out.iter().chain(&said.exceptions) {
        assert!(all.contains(name), "docs/s3.md names {name}, which the suite does not have");
    }
    let wanted: BTreeSet<String> = all.difference(&said.left_out).cloned().collect();
    let mut results = run(&python, &program, &fronts, wanted.iter());
    let failed = |results: &BTreeMap<String, Option<String>>| {
        let failed = results.iter().filter(|(_, said)| said.is_some());
        failed.map(|(name, _)| name.clone()).collect::<BTreeSet<String>>()
    };
    // A machine that does too much at once makes the suite's client give up.
    let again: Vec<String> = failed(&results).difference(&said.exceptions).cloned().collect();
    results.extend(run(&python, &program, &fronts, again.iter()));
    let failed = failed(&results);
    for name in failed.difference(&said.exceptions) {
        eprintln!(
            "fails and is no exception of docs/s3.md: {name}: {}",
            results[name].as_ref().unwrap()
        );
    }
    for name in said.exceptions.difference(&failed) {
        eprintln!("passes and is an exception of docs/s3.md: {name}");
    }
    assert!(failed == said.exceptions);
    assert_eq!(said.pass, results.len() - failed.len(), "the number that docs/s3.md says pass");
    for front in &fronts {
        assert!(!front.log().contains("panicked"), "{}", front.log());
    }
}
