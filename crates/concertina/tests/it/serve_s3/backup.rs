//! Programs that keep backups and compare trees: restic and rclone, none of them changed. What they check is theirs: that each byte
//! is back, and that what they wrote is listed.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::clients::{client, gateway_before_a_store, installed, python, script, succeed};
use super::{ADMIN, Front};
use crate::left_out::left_out;
use crate::serve_client::bytes;
use crate::steady::{in_time, steady};

fn is_installed(program: &str) -> bool {
    Command::new(program).arg("version").output().is_ok_and(|it| it.status.success())
}

/// A tree with what trees have: names of all kinds, empty and large files, folders in folders.
fn tree(root: &Path) {
    for folder in ["tree/deep/deeper", "tree/with blank", "tree/\u{fc}nic\u{f6}de"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for (at, name) in [
        "tree/empty",
        "tree/deep/one",
        "tree/deep/deeper/two.tar.gz",
        "tree/with blank/a+b&c=d?.txt",
        "tree/\u{fc}nic\u{f6}de/\u{65e5}\u{672c}",
        "tree/deep/100%",
    ]
    .into_iter()
    .enumerate()
    {
        fs::write(root.join(name), bytes(at as u64, at * 30_000)).unwrap();
    }
    fs::write(root.join("tree/large"), bytes(77, 12 << 20)).unwrap();
}

/// Whether two trees are the same.
fn same(one: &Path, other: &Path) -> bool {
    let diff = Command::new("diff").args(["-r", "-q"]).arg(one).arg(other).output().unwrap();
    assert!(diff.stderr.is_empty(), "{diff:?}");
    diff.status.success()
}

#[test]
fn restic_backs_up_checks_and_restores() {
    const TEST: &str = "serve_s3::backup::restic_backs_up_checks_and_restores";
    if !is_installed("restic") {
        return left_out(TEST, "restic is not installed (apt install restic)");
    }
    let Some((front, _store)) = gateway_before_a_store(TEST) else { return };
    let folder = front.folder.path();
    tree(folder);
    let restic = |args: &[&str]| {
        let mut command = client("restic".into(), ADMIN, folder);
        command
            .env("RESTIC_REPOSITORY", format!("s3:http://{}/objects/backup", front.address))
            .env("RESTIC_PASSWORD", "of the backup")
            .env("RESTIC_CACHE_DIR", folder.join("cache"));
        succeed(command.args(args).current_dir(folder), &front)
    };
    restic(&["init"]);
    restic(&["backup", "tree"]);
    // A second backup of a changed tree has the rest of the first.
    fs::write(folder.join("tree/deep/one"), b"changed").unwrap();
    fs::remove_file(folder.join("tree/empty")).unwrap();
    restic(&["backup", "tree"]);
    let checked = restic(&["check", "--read-data"]);
    assert!(checked.contains("no errors were found"), "{checked}");
    restic(&["restore", "latest", "--target", "restored", "--verify"]);
    assert!(same(&folder.join("tree"), &folder.join("restored/tree")));
    let listed: serde_json::Value =
        serde_json::from_str(&restic(&["snapshots", "--json"])).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 2);
    // It removes what the first alone needs, and the second is whole.
    restic(&["forget", "--keep-last", "1", "--prune"]);
    restic(&["check", "--read-data"]);
    // No process holds a lock.
    assert_eq!(restic(&["list", "locks", "--no-lock"]).trim(), "");
}

/// rclone before a front.
fn rclone(front: &Front, args: &[&str]) -> String {
    let folder = front.folder.path();
    let mut command = client("rclone".into(), ADMIN, folder);
    // Its library refuses to start where this is set.
    command.env_remove("AWS_CA_BUNDLE");
    command.args(["--config", "/dev/null", "--s3-provider", "Other", "--s3-env-auth"]);
    command.args(["--s3-endpoint", &format!("http://{}", front.address)]);
    command.args(["--s3-upload-cutoff", "6M", "--s3-chunk-size", "5M"]);
    succeed(command.args(args).current_dir(folder), front)
}

#[test]
fn rclone_compares_moves_and_finds_what_differs() {
    const TEST: &str = "serve_s3::backup::rclone_compares_moves_and_finds_what_differs";
    if !is_installed("rclone") {
        return left_out(TEST, "rclone is not installed (apt install rclone)");
    }
    let Some((front, _store)) = gateway_before_a_store(TEST) else { return };
    let folder = front.folder.path();
    tree(folder);
    rclone(&front, &["sync", "tree", ":s3:objects/top"]);
    // By size and hash, and by each byte, in both directions.
    rclone(&front, &["check", "tree", ":s3:objects/top"]);
    rclone(&front, &["check", "--download", ":s3:objects/top", "tree"]);
    // Times are kept, so that a second sync sends nothing.
    let log = folder.join("rclone.log");
    let noted = ["--log-level", "INFO", "--log-file", log.to_str().unwrap()];
    rclone(&front, &[&["sync", "tree", ":s3:objects/top"][..], &noted].concat());
    let text = fs::read_to_string(&log).unwrap_or_default();
    assert!(!text.contains("Copied"), "{text}");
    // What differs is found, and mended.
    fs::write(folder.join("tree/deep/one"), b"changed").unwrap();
    let mut check = client("rclone".into(), ADMIN, folder);
    check.env_remove("AWS_CA_BUNDLE").args(["--config", "/dev/null", "--s3-provider", "Other"]);
    check.args(["--s3-env-auth", "--s3-endpoint", &format!("http://{}", front.address)]);
    check.args(["check", "tree", ":s3:objects/top"]).current_dir(folder);
    assert!(!check.output().unwrap().status.success());
    rclone(&front, &["copy", "tree", ":s3:objects/top"]);
    rclone(&front, &["check", "tree", ":s3:objects/top"]);
    // Copies and moves within the bucket, also of what was sent in parts.
    rclone(&front, &["copy", ":s3:objects/top", ":s3:objects/again"]);
    rclone(&front, &["move", ":s3:objects/again", ":s3:objects/moved"]);
    rclone(&front, &["check", "--download", "tree", ":s3:objects/moved"]);
    assert_eq!(rclone(&front, &["lsf", "-R", "--files-only", ":s3:objects/again"]).trim(), "");
    let size: serde_json::Value =
        serde_json::from_str(&rclone(&front, &["size", "--json", ":s3:objects/top"])).unwrap();
    assert_eq!(size["count"].as_u64(), Some(7));
    rclone(&front, &["purge", ":s3:objects/moved"]);
    assert_eq!(rclone(&front, &["lsf", ":s3:objects"]).trim(), "top/");
}

/// What rclone finds a store able to do: names are kept as they are, whatever Unicode calls the same.
#[test]
fn rclone_finds_names_kept_and_streams_taken() {
    const TEST: &str = "serve_s3::backup::rclone_finds_names_kept_and_streams_taken";
    if !is_installed("rclone") {
        return left_out(TEST, "rclone is not installed (apt install rclone)");
    }
    let front = Front::start(&[]);
    let told = front.folder.path().join("info.json");
    let checks =
        ["--s3-no-check-bucket", "--check-normalization", "--check-streaming", "--write-json"];
    let info = [&["test", "info"][..], &checks, &[told.to_str().unwrap(), ":s3:objects/info"]];
    rclone(&front, &info.concat());
    let text = fs::read_to_string(&told).unwrap();
    let told: serde_json::Value = serde_json::from_str(&text).unwrap();
    for (name, is_able) in [
        ("CanWriteUnnormalized", true),
        ("CanReadUnnormalized", true),
        ("CanReadRenormalized", false),
        ("CanStream", true),
    ] {
        assert_eq!(told[name].as_bool(), Some(is_able), "{name}: {text}");
    }
}

/// Tests of s3transfer's that fail here, and why. A test that is listed and passes fails the suite too.
const EXCEPTIONS: &[(&str, &str)] = &[
    (
        "test_s3transfer.TestS3Transfers.test_can_send_extra_params_on_download",
        "keys of the client (SSE-C) are not supported",
    ),
    (
        "test_s3transfer.TestS3Transfers.test_upload_file_above_threshold_with_ssec",
        "keys of the client (SSE-C) are not supported",
    ),
    (
        "test_s3transfer.TestS3Transfers.test_can_send_extra_params_on_upload",
        "ACLs other than private are not supported",
    ),
    (
        "test_s3transfer.TestS3Transfers.test_upload_file_above_threshold_with_acl",
        "ACLs other than private are not supported",
    ),
];

/// The integration tests that s3transfer runs against AWS. (Its functional tests, and boto3's, have no endpoint: they stub it.)
#[test]
fn s3transfers_own_tests_pass() {
    steady(s3transfers_own_tests);
}

fn s3transfers_own_tests() {
    const TEST: &str = "serve_s3::backup::s3transfers_own_tests_pass";
    let Some(python) = python(TEST) else { return };
    let sources = installed().join("s3/s3transfer");
    if !sources.join("tests/integration/__init__.py").exists() {
        return left_out(TEST, "s3transfer's tests are not there (sh .ci/setup)");
    }
    let front = Front::start(&[]);
    let mut command = client(python, ADMIN, front.folder.path());
    command.env("AWS_ENDPOINT_URL_S3", format!("http://{}", front.address));
    command.arg("-B").arg(script("s3transfer_suite.py")).arg(sources);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}{why}");
    let (mut passed, mut failed) = (0, Vec::new());
    for line in text.lines() {
        match line.rsplit_once(' ') {
            Some((_, "ok")) => passed += 1,
            Some((name, "failed")) => failed.push(name),
            _ => panic!("{line}"),
        }
    }
    failed.sort_unstable();
    let mut expected: Vec<&str> = EXCEPTIONS.iter().map(|(name, _)| *name).collect();
    expected.sort_unstable();
    let shown = format!("{passed} passed\n{text}{why}\n{}", front.log());
    // Its limits on the time to end after an error are seconds, which a busy machine passes.
    let is_timed = |name: &&str| name.contains("_exits_quick") && !expected.contains(name);
    in_time(!failed.iter().any(is_timed), &shown);
    assert_eq!(failed, expected, "{shown}");
    assert!(passed > 40, "{text}");
}
