//! `concertina capacity`: from a table of throughputs to what lies between them.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::serve_client::spawn;

fn concertina(dir: &Path, args: &[&str]) -> Output {
    let output =
        Command::new(env!("CARGO_BIN_EXE_concertina")).args(args).current_dir(dir).output();
    output.unwrap()
}

fn json(dir: &Path, args: &[&str]) -> serde_json::Value {
    let output = concertina(dir, args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn text(dir: &Path, args: &[&str]) -> String {
    let output = concertina(dir, args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What a command that fails says, which must hold some words.
fn fails(dir: &Path, args: &[&str], words: &str) {
    let output = concertina(dir, args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(words), "{args:?}: {said}");
}

const DISK: &str = "\
size_bytes,read_share,throughput,note
4000,1,10000,warm
4000,0,2500,
1000000,1,120,
1000000,0,80,
";

#[test]
fn a_storage_system_is_predicted_between_its_points() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("disk.csv"), DISK).unwrap();
    let args = ["capacity", "disk.csv", "--at", "0.7,4000", "--at", "0.5,500000", "--json"];
    let said = json(dir.path(), &args);
    assert_eq!(said["sizes"][0]["write_cost"]["value"], 4.0);
    let total = |i: usize| said["predictions"][i]["total"]["value"].as_f64().unwrap();
    assert!((total(0) - 5_263.157_894_7).abs() < 1e-6);
    assert_eq!(said["predictions"][0]["basis"], "size");
    assert_eq!(said["predictions"][1]["basis"], "affine");
    // Halfway in bytes, halfway in seconds.
    let cost = |reads: f64, writes: f64| 0.5 / reads + 0.5 / writes;
    let between = cost(1e4, 2.5e3) + (5e5 - 4e3) / 996e3 * (cost(120., 80.) - cost(1e4, 2.5e3));
    assert!((total(1) * between - 1.0).abs() < 1e-9);

    let mix = ["capacity", "disk.csv", "--mix", "1,4kB:0.5,1MB:0.5", "--by"];
    let ios = json(dir.path(), &[&mix[..], &["ios", "--json"]].concat());
    assert!((ios["predictions"][0]["total"]["value"].as_f64().unwrap() - 237.154_150).abs() < 1e-5);
    assert_eq!(ios["predictions"][0]["by"], "ios");
    let capacity = text(dir.path(), &[&mix[..], &["capacity"]].concat());
    assert!(capacity.contains("5,060") && capacity.contains("arithmetic mean"), "{capacity}");
    let far = text(dir.path(), &["capacity", "disk.csv", "--at", "0.5,4MiB"]);
    assert!(far.contains("> extrapolated: 4194304 bytes is outside"), "{far}");
    assert!(far.contains("no intervals"), "{far}");

    // Two points for each of two sizes: the interval holds the law's error alone, and says so, or what is stated.
    let narrow = text(dir.path(), &[&mix[..], &["ios"]].concat());
    assert!(narrow.contains("too narrow") && narrow.contains("--point-error"), "{narrow}");
    let stated = [&mix[..], &["ios", "--point-error", "5%", "--json"]].concat();
    let stated = json(dir.path(), &stated);
    let width = |said: &serde_json::Value| {
        let total = &said["predictions"][0]["total"];
        total["high"].as_f64().unwrap() - total["low"].as_f64().unwrap()
    };
    assert!(width(&stated) > 1.2 * width(&ios), "{stated}");
    // A third size tells how far the points are from one affine cost.
    let third = DISK.to_owned() + "64000,1,1500,\n64000,0,760,\n";
    std::fs::write(dir.path().join("disk.csv"), third).unwrap();
    let three = text(dir.path(), &[&mix[..], &["ios"]].concat());
    assert!(three.contains("2 degrees of freedom"), "{three}");

    // With intervals, a mix of several sizes has the error that the law itself may have.
    let more = DISK.to_owned() + "4000,0.5,4010,\n1000000,0.5,95.9,\n";
    std::fs::write(dir.path().join("disk.csv"), more).unwrap();
    let width = |mix: &str| {
        let said =
            json(dir.path(), &["capacity", "disk.csv", "--mix", mix, "--by", "ios", "--json"]);
        let total = &said["predictions"][0]["total"];
        let of = |end: &str| total[end].as_f64().unwrap();
        (of("high") - of("low")) / of("value")
    };
    let (one, several) = (width("1,4kB:1"), width("1,4kB:0.5,1MB:0.5"));
    assert!(one < 0.1 && (0.3..0.5).contains(&several), "{one} {several}");
}

#[test]
fn a_scaling_system_has_its_peak() {
    let dir = tempfile::tempdir().unwrap();
    let points = "# Gunther's ray tracer\nconcurrency,throughput\n1,20\n4,78\n8,130\n12,170\n16,190\n20,200\n";
    std::fs::write(dir.path().join("usl.csv"), points).unwrap();
    let said = json(dir.path(), &["capacity", "usl.csv", "--at", "64", "--json"]);
    assert!((said["alpha"]["value"].as_f64().unwrap() - 0.024_444).abs() < 1e-6);
    assert!((said["peak"]["concurrency"]["value"].as_f64().unwrap() - 24.488).abs() < 1e-3);
    assert_eq!(said["predictions"][0]["extrapolated"], true);
    let shown = text(dir.path(), &["capacity", "usl.csv", "--at", "10", "--confidence", "90%"]);
    assert!(shown.contains("intervals of 90 %") && shown.contains("Peak: "), "{shown}");
    assert!(shown.contains("past the largest measured concurrency"), "{shown}");
}

#[test]
fn bad_tables_are_named_with_their_line() {
    let dir = tempfile::tempdir().unwrap();
    let write = |text: &str| std::fs::write(dir.path().join("t.csv"), text).unwrap();
    let check = |table: &str, words: &str| {
        write(table);
        fails(dir.path(), &["capacity", "t.csv"], words);
    };
    check("", "t.csv is empty");
    check("size_bytes,read_share,throughput\n", "no rows");
    check("a,b\n1,2\n", "name the columns size_bytes,read_share,throughput or concurrency");
    check(
        "size_bytes,read_share\n1,1\n",
        "no column \"throughput\"; it has size_bytes, read_share",
    );
    let head = "size_bytes,read_share,throughput";
    check(
        &format!("{head}\n4096,1,10\n4096,70,5\n"),
        "t.csv:3: read_share is 70, but must lie between 0 and 1",
    );
    check(
        &format!("{head}\n\n# c\n4096,1,fast\n"),
        "t.csv:4: throughput is not a number: \"fast\"",
    );
    check(&format!("{head}\n4096,1\n"), "t.csv:2: 2 fields, but the first line has 3");
    check(&format!("{head}\n4096,,7\n"), "t.csv:2: read_share is empty");
    check(&format!("{head}\n4096,1,NaN\n"), "t.csv:2: throughput is NaN");
    check(&format!("{head}\n4096,1,10\n4096,1,11\n"), "another share of reads");
    check(&format!("{head}\n4096,0.9,5\n4096,0.8,500\n"), "contradict each other");
    check("concurrency,throughput\n1,1\n2,2\n", "2 of the 3 that are needed");
    check("concurrency,throughput\n1,1\n0,2\n", "t.csv:3: concurrency is 0");
    check("throughput,throughput\n1,1\n", "two columns are named");
    std::fs::write(dir.path().join("t.csv"), b"concurrency,throughput\n1,\xff\n").unwrap();
    fails(dir.path(), &["capacity", "t.csv"], "t.csv:2: this is not UTF-8");
    fails(dir.path(), &["capacity", "none.csv"], "cannot read none.csv");

    write(&format!("{head}\n4096,1,10\n4096,0,5\n"));
    let with = |args: &[&str], words: &str| {
        fails(dir.path(), &[&["capacity", "t.csv"], args].concat(), words);
    };
    with(&["--at", "0.5"], "write READ_SHARE,SIZE like `0.7,4KiB`");
    with(&["--at", "0.5,8192"], "8192 bytes were not measured (measured: 4096)");
    with(&["--mix", "0.5,4096:1"], "--by");
    with(&["--mix", "0.5,4096:0.9", "--by", "ios"], "sum to 0.9, not to 1");
    with(&["--confidence", "1"], "between 0.5 and 0.9999");
}

/// A store is measured, the law fitted, and judged on mixes that the fit has not seen; one that takes no puts
/// is said to.
#[test]
fn the_capacity_of_a_store_is_measured_and_judged() {
    let dir = tempfile::tempdir().unwrap();
    let node = spawn(dir.path(), &[], "");
    let url = format!("http://{}", node.address);
    let few = ["--repeat", "2", "--duration", "60ms", "--warmup", "10ms", "--clients-max", "2"];
    let sizes = ["--sizes", "4KiB,64KiB", "--judge", "3", "--mix", "0.5,4KiB:0.5,64KiB:0.5"];
    let args = [&["capacity", &url][..], &few, &sizes].concat();
    let found = json(dir.path(), &[&args[..], &["--json", "--out", "first"]].concat());
    let judged = found["judged"].as_array().unwrap();
    assert_eq!((judged.len(), found["points"].as_array().unwrap().len()), (3, 4));
    for mix in judged {
        let measured = mix["measured"]["throughput"].as_f64().unwrap();
        assert!(measured > 0.0 && mix["predicted"].as_f64().unwrap() > 0.0, "{mix}");
        assert!(mix["law"].as_f64().unwrap() > 0.0, "{mix}");
        assert_eq!(mix["measured"]["repetitions"].as_array().unwrap().len(), 2);
    }
    assert_eq!(found["sizes"][0]["size_bytes"], 4096.0);
    assert_eq!(found["mix_error"]["mixes"], 3);
    // The text of as little as is possible. Steps of 1 ms hold no reply, and are measured again, longer.
    let less = [
        "--duration",
        "1ms",
        "--warmup",
        "1ms",
        "--clients-max",
        "2",
        "--repeat",
        "1",
        "--judge",
        "1",
        "--sizes",
        "4KiB,64KiB",
        "--mix",
        "0.5,4KiB:0.5,64KiB:0.5",
    ];
    let less = [&["capacity", &url][..], &less, &["--out", "second"]].concat();
    let said = text(dir.path(), &less);
    for words in ["f_rw", "Judged on 1", "50 % 4 KiB + 50 % 64 KiB, 50 % reads"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    fails(dir.path(), &[&args[..], &["--by", "capacity"]].concat(), "leave --by out");
}

/// A cache that does not keep what is put answers misses, whose speed is not a capacity.
#[test]
fn the_speed_of_misses_is_no_capacity() {
    let dir = tempfile::tempdir().unwrap();
    let sets = ["origin.kind=none", "device=[]", "node.memory_bytes=64KiB"];
    let node = spawn(dir.path(), &sets, "");
    let url = format!("http://{}", node.address);
    let few = ["--repeat", "1", "--duration", "60ms", "--warmup", "10ms", "--clients-max", "2"];
    let args = [&["capacity", &url][..], &few, &["--sizes", "4KiB,64KiB", "--out", "run"]].concat();
    fails(dir.path(), &args, "does not keep what is put");
}

/// A file system is measured by files of its own, which are gone in the end; a file in the place of a device is
/// only read, unless it may be overwritten.
#[test]
fn the_capacity_of_a_folder_and_of_a_file_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("place");
    std::fs::create_dir(&place).unwrap();
    let few = ["--repeat", "2", "--duration", "60ms", "--warmup", "10ms", "--clients-max", "2"];
    let sizes = ["--sizes", "4KiB,10000", "--judge", "2"];
    let folder = format!("file://{}", place.display());
    let args = [&["capacity", &folder][..], &few, &sizes, &["--json", "--out", "first"]].concat();
    let found = json(dir.path(), &args);
    for point in found["points"].as_array().unwrap() {
        assert!(point["throughput"].as_f64().unwrap() > 0.0 && point["errors"] == 0.0, "{point}");
    }
    assert_eq!(found["judged"].as_array().unwrap().len(), 2);
    assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0, "files are left");

    let device = dir.path().join("device");
    std::fs::write(&device, vec![7; 4 << 20]).unwrap();
    let whole = format!("file://{}", device.display());
    let args = [&["capacity", &whole][..], &few, &sizes].concat();
    let said = text(dir.path(), &[&args[..], &["--out", "second"]].concat());
    assert!(said.contains("Only reads: --destroy overwrites it"), "{said}");
    assert_eq!(std::fs::read(&device).unwrap(), vec![7; 4 << 20]);
    let with = [&args[..], &["--out", "third", "--destroy"]].concat();
    assert!(text(dir.path(), &with).contains("Judged on 2"));
    assert_ne!(std::fs::read(&device).unwrap(), vec![7; 4 << 20]);

    let with = |url: &str, more: &[&str], words: &str| {
        fails(dir.path(), &[&["capacity", url][..], &few, more].concat(), words);
    };
    with("file:///nowhere/at/all", &[], "cannot use /nowhere/at/all");
    with("file://relative", &[], "cannot use relative");
    with(&folder, &["--destroy"], "not for a folder");
    with("http://127.0.0.1:1", &["--destroy"], "--destroy is for file:///PATH");
    with(&whole, &["--mix", "0.5,4KiB:1"], "only read");
    let huge = ["--sizes", "1GiB,1073741823,1073741822,1073741821"];
    let room = rustix::fs::statvfs(dir.path()).unwrap();
    if room.f_bavail * room.f_frsize < 16 << 30 {
        with(&folder, &huge, "MiB are free");
    }
    with("file:///proc", &["--sizes", "4KiB"], "proc");
    with(
        &whole,
        &["--sizes", "4KiB,8MiB"],
        "fewer than an object of 8388608: give smaller --sizes",
    );
    assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0, "files are left");
}

/// Ctrl-C and SIGTERM end a survey cleanly: the folder goes, and what was measured is said.
#[test]
fn an_interrupted_survey_leaves_no_file_and_says_what_it_learnt() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("place");
    std::fs::create_dir(&place).unwrap();
    let folder = format!("file://{}", place.display());
    for (signal, code, out) in [(Signal::INT, 130, "first"), (Signal::TERM, 143, "second")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
        command.current_dir(dir.path()).args(["capacity", &folder, "--quiet", "--out", out]);
        command.args(["--sizes", "4KiB", "--duration", "100ms", "--warmup", "10ms"]);
        let long = ["--clients-max", "2", "--repeat", "1000", "--judge", "0"];
        let child = command.args(long).stderr(Stdio::piped()).stdout(Stdio::null()).spawn();
        let child = child.unwrap();
        // The second repetition of the points has begun, so that each was measured once.
        let begun = Instant::now();
        while !dir.path().join(out).join("point-0-1").exists() {
            assert!(begun.elapsed() < Duration::from_secs(60), "no point was measured");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(std::fs::read_dir(&place).unwrap().count(), 1);
        kill_process(Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{error}");
        assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0, "files are left");
        for words in ["interrupted", "4 KiB 100 % reads", "4 KiB 0 % reads", "/s", out] {
            assert!(error.contains(words), "{words}: {error}");
        }
    }
}
