//! `concertina data compact`, as a user types it, and as it is killed.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use dataset::Writer;

use crate::data::{answer, refused, run};

/// A dataset of many small shards, of whose records some are deleted.
fn make(folder: &Path, shards: usize) {
    let line = |i: usize| format!("{i} {:032x}\n", i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let text: String = (0..200).map(line).collect();
    assert!(
        run(folder, &["import", "-", "--name", "d", "--format", "lines"], &text).status.success()
    );
    grow(folder, 200, shards);
    answer(folder, &["delete", "d", "3", "7", "150", "201", "202"]);
}

/// Appends more shards to it.
fn grow(folder: &Path, from: usize, shards: usize) {
    let mut writer = Writer::open(&folder.join("datasets/d")).unwrap();
    for shard in 0..shards {
        let lines = (0..40).map(|i| format!("{} appended\n", from + 40 * shard + i));
        writer.append(lines.collect::<String>().as_bytes()).unwrap();
        writer.seal().unwrap();
    }
}

fn shards(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder.join("datasets/d")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let mut all: Vec<String> = names.filter(|name| name.ends_with(".shard")).collect();
    all.sort();
    all
}

#[test]
fn a_compacted_dataset_is_smaller_and_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    make(folder, 5);
    let export = answer(folder, &["export", "d"]);
    let found = answer(folder, &["search", "d", "appended", "--all", "--json"]);
    assert_eq!(shards(folder).len(), 6);
    refused(folder, &["compact", "d", "--deleted-share", "7"], "", "from 0 to 1");
    refused(folder, &["compact", "nothing"], "", "cannot compact dataset nothing");
    let done = answer(folder, &["compact", "d", "--json"]);
    let done: serde_json::Value = serde_json::from_str(&done).unwrap();
    assert_eq!(
        (&done["shards_before"], &done["shards"], &done["reclaimed"]),
        (&6.into(), &1.into(), &5.into())
    );
    assert!(done["shard_bytes"].as_u64() < done["shard_bytes_before"].as_u64(), "{done}");
    assert_eq!(shards(folder), ["000007.shard"]);
    assert_eq!(answer(folder, &["export", "d"]), export);
    assert_eq!(answer(folder, &["search", "d", "appended", "--all", "--json"]), found);
    refused(folder, &["get", "d", "150"], "", "record 150 was deleted");
    assert!(answer(folder, &["info", "d"]).contains("deleted     0"));
    // It goes on with the next id.
    let appended = run(folder, &["append", "d", "-", "--json"], "one more\n");
    let appended: serde_json::Value = serde_json::from_slice(&appended.stdout).unwrap();
    assert_eq!(appended["first_id"], 400);
    let again = answer(folder, &["compact", "d"]);
    assert!(
        again.contains("1 shards of") && again.contains("0 deleted records left out"),
        "{again}"
    );
    assert_eq!(answer(folder, &["get", "d", "400"]), "one more\n");
}

/// Killed at many moments, in a row: each next one goes on with what is there.
#[test]
fn a_compaction_that_is_killed_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    make(folder, 20);
    let (mut killed, mut wait) = (0, Duration::from_millis(2));
    for round in 0..30 {
        let export = answer(folder, &["export", "d"]);
        let mut child = Command::new(env!("CARGO_BIN_EXE_concertina"))
            .args(["data", "compact", "d", "--deleted-share", "0", "--quiet"])
            .current_dir(folder)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(wait);
        let has_ended = child.try_wait().unwrap().is_some();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(answer(folder, &["export", "d"]), export, "round {round}");
        if has_ended {
            // Something to do for the next one, which is killed earlier.
            grow(folder, 10_000 + 1000 * round, 6);
            answer(folder, &["delete", "d", &(10 + round).to_string()]);
            wait /= 3;
        } else {
            killed += 1;
            wait += wait / 3 + Duration::from_micros(500);
        }
    }
    assert!(killed > 5, "{killed} were killed");
    let export = answer(folder, &["export", "d"]);
    answer(folder, &["compact", "d", "--deleted-share", "0"]);
    assert_eq!(answer(folder, &["export", "d"]), export);
    assert_eq!(shards(folder).len(), 1);
}
