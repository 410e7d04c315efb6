//! `concertina data`, as a user types it.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

pub const STANZAS: &str = "\
Package: ed
Section: editors
Installed-Size: 90
Maintainer: Debian Python Team

Package: nano
Section: editors
Installed-Size: 2900
Maintainer: Jordi

Package: libc6
Section: libs
Installed-Size: 13000
Maintainer: GNU Libc Maintainers
";

pub fn run(folder: &Path, args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_concertina"))
        .arg("data")
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that reads nothing may be gone already.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

pub fn answer(folder: &Path, args: &[&str]) -> String {
    let output = run(folder, args, "");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

pub fn refused(folder: &Path, args: &[&str], input: &str, says: &str) {
    let output = run(folder, args, input);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{args:?}");
    assert!(errors.contains(says), "{args:?}: {errors}");
    assert!(!errors.contains("panicked"), "{args:?}: {errors}");
}

#[test]
fn records_come_in_are_found_changed_and_come_out() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let output = run(folder, &["import", "-", "--name", "packages", "--json"], STANZAS);
    let made: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((made["records"].as_u64(), made["bad"].as_u64()), (Some(3), Some(0)), "{made}");

    let found = answer(folder, &["search", "packages", "Maintainer:Python"]);
    assert!(found.starts_with("Package: ed\n"), "{found}");
    let page = ["search", "packages", "Section:=editors", "--limit", "1", "--json"];
    let page: serde_json::Value = serde_json::from_str(&answer(folder, &page)).unwrap();
    assert_eq!((page["records"][0]["id"].as_u64(), page["next"].as_u64()), (Some(0), Some(0)));
    let rest = ["search", "packages", "Section:=editors", "--after", "0"];
    assert!(answer(folder, &rest).starts_with("Package: nano\n"));
    assert!(answer(folder, &["get", "packages", "--key", "libc6"]).contains("13000"));
    assert_eq!(answer(folder, &["count", "packages", "Installed-Size:1000..20000"]), "2\n");
    assert_eq!(answer(folder, &["count", "packages", "--bytes", "Package"]), "3\n");
    assert!(answer(folder, &["grep", "packages", "^Package: lib.*6$"]).contains("GNU"));
    assert_eq!(answer(folder, &["extract", "packages", "9", "2"]), "ed");
    assert_eq!(answer(folder, &["export", "packages"]), STANZAS);

    let appended = run(folder, &["append", "packages", "-"], "Package: vim\nSection: editors\n");
    assert!(appended.status.success());
    answer(folder, &["delete", "packages", "1"]);
    for sealed in [false, true] {
        let names = answer(folder, &["search", "packages", "Section:=editors"]);
        assert!(names.contains("vim") && !names.contains("nano"), "sealed {sealed}: {names}");
        answer(folder, &["seal", "packages"]);
    }
    assert!(answer(folder, &["info", "packages"]).contains("records     3"));
    assert!(answer(folder, &["list"]).starts_with("packages\t3 records"));
    let shard = "datasets/packages/000001.shard";
    assert_eq!(answer(folder, &["count", shard, "Section:=editors"]), "2\n");
}

#[test]
fn what_cannot_be_is_refused_with_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    assert!(run(folder, &["import", "-", "--name", "packages"], STANZAS).status.success());
    refused(folder, &["info", "nothing"], "", "there is no dataset nothing");
    refused(folder, &["import", "-", "--name", "packages"], STANZAS, "--replace");
    refused(folder, &["import", "-", "--name", "a/b"], STANZAS, "invalid dataset name");
    refused(folder, &["import", "missing.csv", "--name", "x"], "", "missing.csv");
    refused(folder, &["import", "-", "--name", "x", "--format", "xml"], "", "no format");
    refused(folder, &["search", "packages", "(a"], "", "the query");
    refused(folder, &["grep", "packages", "a("], "", "regular expression");
    refused(folder, &["get", "packages", "3"], "", "no record 3");
    refused(folder, &["get", "packages", "--key", "vi"], "", "no record has the key");
    refused(folder, &["extract", "packages", "0", "99999"], "", "not within");
    refused(folder, &["delete", "packages", "3"], "", "no record 3");
    refused(folder, &["append", "packages", "-"], "no name here\n", "nothing was appended");
    // Nothing is found: as grep says it.
    let nothing = run(folder, &["search", "packages", "Section:=games"], "");
    assert_eq!((nothing.status.code(), nothing.stdout.len()), (Some(1), 0));
    let shard = folder.join("datasets/packages/000001.shard");
    let mut bytes = std::fs::read(&shard).unwrap();
    bytes[500] ^= 1;
    std::fs::write(&shard, bytes).unwrap();
    refused(folder, &["search", "packages", "ed"], "", "000001.shard");
}
