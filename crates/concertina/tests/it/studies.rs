//! Parts of a study (`--part`, `--join` of `simulate` and `plan --simulate`): what is joined is what one process makes, byte for byte.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::plan::Lab;

/// One device of 10 ms, nothing in memory.
const CONFIG: &str = "
[node]
memory_bytes = \"0\"
[[device]]
path = \"device\"
service = { kind = \"exponential\", mean_ms = 10.0 }
";

const STUDY: &str = "simulate --config=c.toml --rate=40,60,80 --runs=3 --keys=500 --duration=20s --warmup=2s --popularity=uniform --check";

fn concertina(dir: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
    command.args(line.split(' ')).current_dir(dir).output().unwrap()
}

fn works(dir: &Path, line: &str) -> String {
    let output = concertina(dir, line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(dir: &Path, line: &str, words: &str) {
    let output = concertina(dir, line);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains(words), "{line}: {told}");
}

#[test]
fn a_study_in_parts_has_the_bytes_of_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    std::fs::write(dir.join("c.toml"), CONFIG).unwrap();
    let read = |of: &str| std::fs::read_to_string(dir.join(of).join("intervals.json")).unwrap();
    works(dir, &format!("{STUDY} --out=one --threads=1"));
    works(dir, &format!("{STUDY} --out=two --threads=2"));
    assert_eq!(read("one"), read("two"), "on one and on two threads");
    // Parts of one, some and no unit, which know nothing of each other.
    for parts in [1, 4, 11] {
        let out = format!("parts-{parts}");
        for part in (0..parts).rev() {
            let line =
                format!("{STUDY} --out={out} --part={part}/{parts} --threads={}", 1 + part % 2);
            let said = works(dir, &line);
            assert!(said.starts_with(&format!("part {part} of {parts}: ")), "{said}");
        }
        let said = works(dir, &format!("{STUDY} --out={out} --join"));
        assert!(said.contains("3 runs") && said.contains("no consistency violations"), "{said}");
        assert_eq!(read("one"), read(&out), "in {parts} parts");
        // Joined again, and a part again, which is there.
        works(dir, &format!("{STUDY} --out={out} --join --json"));
        let again = works(dir, &format!("{STUDY} --out={out} --part=0/{parts}"));
        assert!(again.contains("made before"), "{again}");
    }
    // Each unit's run folder is one that a report reads.
    let run = dir.join("parts-4/part-1-of-4/seed-2-load-0");
    assert!(run.join("windows").exists(), "{run:?}");
    works(dir, "fit parts-4/part-1-of-4/seed-2-load-0 --out m.toml");
    std::fs::remove_file(dir.join("parts-4/part-2-of-4.json")).unwrap();
    refused(
        dir,
        &format!("{STUDY} --out=parts-4 --join"),
        "1 of 4 parts are missing in parts-4: 2",
    );
    // An attempt that was lost leaves its run folders, and another makes its own.
    works(dir, &format!("{STUDY} --out=parts-4 --part=2/4"));
    assert!(dir.join("parts-4/part-2-of-4-attempt-2").exists());
    works(dir, &format!("{STUDY} --out=parts-4 --join"));
    refused(dir, &format!("{STUDY} --out=parts-4 --join --seed=2"), "another study");
    refused(dir, &format!("{STUDY} --out=empty --join"), "cannot read empty");
    refused(dir, &format!("{STUDY} --part=0/4"), "--out");
    refused(dir, &format!("{STUDY} --out=parts-4 --part=4/4"), "I/N expected");
    refused(dir, "simulate --config=c.toml --rate=40 --out=x --part=0/4", "--runs");
}

#[test]
fn a_part_that_is_interrupted_is_not_joined() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    std::fs::write(dir.join("c.toml"), CONFIG).unwrap();
    let long = "simulate --config=c.toml --keys=drawn --hit-ratio=50% --rate=100 --duration=300d --runs=2 --out=study --part=0/2 --threads=1";
    let mut child = Command::new(env!("CARGO_BIN_EXE_concertina"))
        .args(long.split(' '))
        .current_dir(dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let windows = dir.join("study/part-0-of-2/seed-1-load-0/windows");
    let begun = Instant::now();
    while std::fs::metadata(&windows).map_or(0, |file| file.len()) < 10_000 {
        assert!(child.try_wait().unwrap().is_none() && begun.elapsed().as_secs() < 120);
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!dir.join("study/part-0-of-2.json").exists());
    let join = long.replace(" --part=0/2 --threads=1", " --join");
    refused(dir, &join, "has no part of a study");
}

#[test]
fn a_plan_in_parts_has_the_bytes_of_one_process() {
    let lab = Lab::new();
    let asked = |more: &[&str]| {
        let base = [
            "--rate",
            "5000",
            "--simulate",
            "2",
            "--runs",
            "3",
            "--requests",
            "5000",
            "--mttf",
            "30d",
            "--mttr",
            "1d",
            "--json",
        ];
        let output = lab.asks(&[&base[..], more].concat());
        assert!(output.status.success(), "{more:?}: {output:?}");
        output.stdout
    };
    let (one, two) = (asked(&["--threads", "1"]), asked(&["--threads", "2"]));
    assert!(one == two, "on one and on two threads");
    for part in ["2/3", "0/3", "1/3"] {
        let said: serde_json::Value =
            serde_json::from_slice(&asked(&["--out", "study", "--part", part])).unwrap();
        assert_eq!(
            (&said["runs"], &said["was_done"]),
            (&6.into(), &false.into()),
            "18 runs in three parts"
        );
    }
    assert!(one == asked(&["--out", "study", "--join"]), "in three parts");
    let again = asked(&["--out", "study", "--part", "1/3"]);
    assert!(String::from_utf8_lossy(&again).contains("\"was_done\": true"));
    // Another file of choices is another study, whatever its name.
    lab.write("choices.toml", "[servers]\ncounts = [9, 10]\nprice = 1\n");
    let base =
        ["--rate", "5000", "--simulate", "2", "--runs", "3", "--requests", "5000", "--mttf", "30d"];
    let output = lab.asks(&[&base[..], &["--mttr", "1d", "--out", "study", "--join"]].concat());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("another study"), "{told}");
}
