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

/// A key is distinct at the start of an input, and need not be after it.
#[test]
fn all_records_with_a_key_are_printed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let rows: String = (0..1500).map(|id| format!("{id},x{id}\n")).collect();
    let text = format!("id,v\n{rows}5,second\n");
    assert!(run(folder, &["import", "-", "--name", "keys"], &text).status.success());
    assert!(run(folder, &["append", "keys", "-"], "5,third\n").status.success());
    let get = |args: &[&str]| answer(folder, &[&["get", "keys", "--key", "5"], args].concat());
    assert_eq!(get(&[]), "5,x5\n5,second\n5,third\n");
    let found: serde_json::Value = serde_json::from_str(&get(&["--json"])).unwrap();
    let ids: Vec<u64> = found["records"]
        .as_array()
        .unwrap()
        .iter()
        .map(|record| record["id"].as_u64().unwrap())
        .collect();
    assert_eq!(ids, [5, 1500, 1501]);
    answer(folder, &["delete", "keys", "5"]);
    assert_eq!(get(&[]), "5,second\n5,third\n");
    // More than a page of them.
    let same = "7,again\n".repeat(500);
    assert!(run(folder, &["append", "keys", "-"], &same).status.success());
    assert_eq!(answer(folder, &["get", "keys", "--key", "7"]), format!("7,x7\n{same}"));
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

/// The records of an import whose file lacks its last separator, and of an append, are the same after an export.
#[test]
fn an_export_of_appended_records_is_imported_again() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (name, format, import, append) in [
        ("json", "json", "{\"a\":1}", "{\"a\":2}\n"),
        ("rows", "csv", "a,b\n1,x\n2,y", "3,z\n"),
        ("stanzas", "stanzas", "A: 1\nB: x\n\nA: 2\nB: y\n", "A: 3\nB: z\n"),
    ] {
        let imported = run(folder, &["import", "-", "--name", name, "--format", format], import);
        assert!(imported.status.success());
        assert!(run(folder, &["append", name, "-"], append).status.success());
        let count = answer(folder, &["count", name]);
        for _ in 0..2 {
            let exported = answer(folder, &["export", name]);
            let again = ["import", "-", "--name", "again", "--format", format, "--replace"];
            assert!(run(folder, &again, &exported).status.success());
            assert_eq!(answer(folder, &["count", "again"]), count, "{exported}");
            answer(folder, &["seal", name]);
        }
    }
}

#[test]
fn an_import_says_what_it_took_and_refuses_to_guess() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let import = |args: &[&str], input: &str| {
        let args = [&["import", "-", "--name", "d", "--replace"], args].concat();
        let output = run(folder, &args, input);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{}", text(&output.stderr));
        (text(&output.stdout), text(&output.stderr))
    };
    let (said, _) = import(&[], "id,price (USD)\n1,2\n3,4\n");
    assert!(said.contains("each of the first 3 rows has 2 fields; header: "), "{said}");
    assert_eq!(answer(folder, &["count", "d", "\"price (USD)\":>2"]), "1\n");
    let (said, _) = import(&["--format", "csv"], "ann,31\nbob,22\n");
    assert!(said.contains("2 records") && said.contains("no header"), "{said}");
    import(&["--header", "no", "--columns", "who,where"], "ann,london\nbob,paris\n");
    assert_eq!(answer(folder, &["search", "d", "who:=ann"]), "ann,london\n");
    let (_, warned) = import(&[], "one, two\nthree\n");
    assert!(
        warned.contains("warning: imported as lines") && warned.contains("--format csv"),
        "{warned}"
    );
    import(&[], "\u{feff}{\"id\":1}\n{\"id\":2}\n");
    assert_eq!(answer(folder, &["count", "d", "id:=1"]), "1\n");
    assert_eq!(answer(folder, &["export", "d"]), "\u{feff}{\"id\":1}\n{\"id\":2}\n");
    let bad = ["import", "-", "--name", "x"];
    refused(folder, &bad, "{\"id\":1}\n{\"id\":2}\noops\n", "the one at line 3 is not");
    refused(folder, &bad, "a\0b", "not text");
    refused(folder, &bad, "PAR1\0\0", "Parquet");
    refused(folder, &bad, "a,b\r1,2\r", "carriage return");
    let (_, warned) = import(&[], "[{\"id\":1},\n{\"id\":2}]\n");
    assert!(warned.contains("jq -c '.[]'"), "{warned}");
    refused(folder, &[&bad[..], &["--header", "maybe"]].concat(), "a,b\n", "yes or no");
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    std::fs::write(
        folder.join("a.zst"),
        ruzstd::encoding::compress_to_vec(&b"a,b\n1,2\n"[..], level),
    )
    .unwrap();
    answer(folder, &["import", "a.zst", "--name", "z"]);
    assert_eq!(answer(folder, &["count", "z", "a:=1"]), "1\n");
}

#[test]
fn queries_say_what_is_wrong_with_them() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let lines: String = (0..300).map(|n| format!("{{\"m\":{n},\"t\":\"Word{n}\"}}\n")).collect();
    assert!(run(folder, &["import", "-", "--name", "n"], &lines).status.success());
    refused(folder, &["count", "n", "m:>10O"], "", "10O is not a number");
    refused(folder, &["count", "n", "m:>1e309"], "", "beyond the largest number");
    let warned = run(folder, &["count", "n", "mm:=1"], "");
    assert_eq!(warned.stdout, b"0\n");
    assert!(String::from_utf8_lossy(&warned.stderr).contains("no record has the attribute \"mm\""));
    assert_eq!(run(folder, &["count", "n", "m:=1"], "").stderr, b"");
    for command in ["count", "search"] {
        let warned = run(folder, &[command, "n", "m:=1 or m:=2"], "");
        assert!(
            String::from_utf8_lossy(&warned.stderr).contains("\"or\" is searched as a word; OR")
        );
    }
    assert_eq!(run(folder, &["count", "n", "m:=1 OR \"or\""], "").stderr, b"");
    for command in ["count", "search"] {
        let warned = run(folder, &[command, "n", "t: Word7"], "");
        assert!(String::from_utf8_lossy(&warned.stderr).contains("warning: t: and Word7 are two"));
    }
    assert_eq!(answer(folder, &["count", "n", "t:i\"word1\""]), "111\n");
    assert_eq!(answer(folder, &["count", "n", "iw\"word1\""]), "1\n");
    assert_eq!(answer(folder, &["count", "n"]), "300\n");
    // All of a result, as lines.
    let all = answer(folder, &["search", "n", "NOT m:=7", "--all", "--json"]);
    let ids: Vec<u64> = all
        .lines()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].as_u64().unwrap()
        })
        .collect();
    assert_eq!(ids, (0..300).filter(|id| *id != 7).collect::<Vec<_>>());
    // A limit ends a page with a place to go on from, and refuses a count.
    let page = ["search", "n", "NOT m:>5", "--read-max", "1KiB", "--limit", "300", "--json"];
    let page: serde_json::Value = serde_json::from_str(&answer(folder, &page)).unwrap();
    assert!(page["next"].as_u64().unwrap() < 100 && page["has_more"] == true, "{page}");
    refused(
        folder,
        &["count", "n", "NOT m:>5", "--read-max", "1KiB"],
        "",
        "bytes of records to read",
    );
    // Records of several lines that end with CRLF.
    let stanzas = "Package: a-dev\r\nSection: x\r\n\r\nPackage: b\r\nSection: y\r\n";
    assert!(run(folder, &["import", "-", "--name", "s"], stanzas).status.success());
    assert!(answer(folder, &["grep", "s", "^Package.*-dev$"]).starts_with("Package: a-dev\r\n"));
}

#[test]
fn a_dataset_is_dropped_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for name in ["one", "two"] {
        assert!(run(folder, &["import", "-", "--name", name], STANZAS).status.success());
    }
    let precious = folder.join("datasets/two/precious.txt");
    std::fs::write(&precious, "mine").unwrap();
    refused(folder, &["drop", "two"], "", "precious.txt");
    refused(folder, &["drop", "three"], "", "there is no dataset three");
    refused(folder, &["drop", "../datasets/one"], "", "there is no dataset");
    assert_eq!(answer(folder, &["drop", "one"]), "one dropped\n");
    assert!(answer(folder, &["list"]).starts_with("two\t3 records"));
    let left = std::fs::read_dir(folder.join("datasets")).unwrap();
    assert_eq!((left.count(), std::fs::read(&precious).unwrap()), (1, b"mine".to_vec()));
}
