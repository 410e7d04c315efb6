//! `concertina check`, on run folders that keep the laws and on some that do not.

use std::path::Path;
use std::process::{Command, Output};

use ground::window::{Finished, Operation, Outcome, SECOND, Window};
use record::{Generator, Run, RunWriter, Step};
use serde_json::Value;

use crate::report::{Event, START_US, machine, nanos, windows};

const CLIENTS: u64 = 8;
const THINK_S: f64 = 0.050;
/// Every request takes so long, at one of the device's two servers.
const SERVICE_S: f64 = 0.010;
const SECONDS: u64 = 20;

fn run(kind: &str) -> Run {
    Run {
        format: 1,
        version: "0.1.0".into(),
        kind: kind.into(),
        start_unix_us: START_US,
        laboratory: None,
        machine: machine(),
        asked: format!("[load.closed]\nthink_ms = {}", THINK_S * 1e3).parse().unwrap(),
    }
}

/// The windows of a closed loop, of what clients and the one device with two servers see. Each client goes
/// round in 60 ms, offset from the others, so that four share a server without meeting.
fn closed_loop() -> (Vec<Window>, Vec<Window>) {
    let (mut client_events, mut device_events) = (Vec::new(), Vec::new());
    for client in 0..CLIENTS {
        // The first of a server's four begins when the last before is done.
        let mut at = 0.012 * (client / 2) as f64;
        while at < SECONDS as f64 + 1.0 {
            let (came, done) = (nanos(at), nanos(at + SERVICE_S));
            let finished = Finished {
                operation: Operation::Get,
                outcome: Outcome::BulkDevice,
                waiting: 0,
                service: done - came,
                response: done - came,
                bytes: 1,
            };
            for events in [&mut client_events, &mut device_events] {
                events.push((came, Event::Arrive));
                events.push((came, Event::Start));
                events.push((done, Event::Finish(finished)));
            }
            at += SERVICE_S + THINK_S;
        }
    }
    (windows("load", 0, 0, client_events), windows("device/0", 2, 0, device_events))
}

fn write(dir: &Path, kind: &str, windows: &[Window], clients: Option<usize>) {
    let mut writer = RunWriter::create(dir, &run(kind)).unwrap();
    writer.windows(windows).unwrap();
    if clients.is_some() {
        let step = Step {
            index: 0,
            rate: None,
            clients,
            start_unix_us: START_US,
            end_unix_us: START_US + SECONDS * SECOND / 1000,
            generator: Generator::default(),
        };
        writer.step(&step).unwrap();
    }
    writer.flush().unwrap();
}

fn check(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
    command.arg("check").args(args).current_dir(dir).output().unwrap()
}

fn json(output: &Output) -> Value {
    let error = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {error}"))
}

/// The law at the queue, of the first step.
fn law<'a>(checked: &'a Value, law: &str, queue: &str) -> &'a Value {
    let laws = checked["steps"][0]["laws"].as_array().unwrap();
    let found = laws.iter().find(|l| l["law"] == law && l["queue"] == queue);
    found.unwrap_or_else(|| panic!("{law} at {queue} in {checked:#}"))
}

#[test]
fn laws_that_hold_are_found_to_hold() {
    let dir = tempfile::tempdir().unwrap();
    let (load, device) = closed_loop();
    write(&dir.path().join("load"), "load", &load, Some(CLIENTS as usize));
    write(&dir.path().join("server"), "serve", &device, None);
    let output = check(dir.path(), &["load", "server", "--json"]);
    let checked = json(&output);
    assert_eq!(
        (output.status.code(), &checked["holds"]),
        (Some(0), &Value::Bool(true)),
        "{checked:#}"
    );
    // X = 8 / 0.06 s; L = X·R; the device's two servers are busy X·S/2 each.
    let x = CLIENTS as f64 / (SERVICE_S + THINK_S);
    for (name, queue, expected) in [
        ("little", "load", x * SERVICE_S),
        ("little", "device/0", x * SERVICE_S),
        ("utilisation", "device/0", x * SERVICE_S / 2.0),
        ("interactive", "load", SERVICE_S),
        ("demand_bound", "device/0", 2.0 / SERVICE_S),
    ] {
        let law = law(&checked, name, queue);
        let side = law["expected"].as_f64().unwrap();
        assert!((side / expected - 1.0).abs() < 0.01, "{law}");
        assert!(law["half_width_percent"].as_f64().is_some() && law["batches"] == 20, "{law}");
        assert!(law["advice"].is_null());
    }
    assert_eq!(checked["steps"][0]["clients"], 8);

    let text = check(dir.path(), &["load", "server"]);
    let text = String::from_utf8(text.stdout).unwrap();
    for word in ["8 clients", "R = N/X − Z", "device/0", "checks hold"] {
        assert!(text.contains(word), "{word} is missing in\n{text}");
    }
    // A server's run alone, and clients alone.
    assert_eq!(check(dir.path(), &["server"]).status.code(), Some(0));
    assert_eq!(check(dir.path(), &["load"]).status.code(), Some(0));
}

#[test]
fn what_is_broken_is_named_with_what_it_usually_means() {
    let dir = tempfile::tempdir().unwrap();
    let (mut load, device) = closed_loop();
    // The run says twelve clients, and a quarter of the queue's length was lost.
    for window in &mut load {
        window.length_integral_s *= 0.75;
    }
    write(&dir.path().join("load"), "load", &load, Some(12));
    write(&dir.path().join("server"), "serve", &device, None);
    let output = check(dir.path(), &["load", "server", "--json"]);
    let checked = json(&output);
    assert_eq!((output.status.code(), &checked["broken"]), (Some(1), &2.into()), "{checked:#}");
    let little = law(&checked, "little", "load");
    assert!((little["deviation_percent"].as_f64().unwrap() + 25.0).abs() < 0.5, "{little}");
    assert_eq!(little["verdict"], "broken");
    let interactive = law(&checked, "interactive", "load");
    assert!(interactive["advice"].as_str().unwrap().contains("fewer of them than configured"));
    assert_eq!(law(&checked, "utilisation", "device/0")["verdict"], "holds");
    // A tolerance above the deviations.
    let loose = check(dir.path(), &["load", "server", "--tolerance", "90%"]);
    assert_eq!(loose.status.code(), Some(0), "{}", String::from_utf8_lossy(&loose.stdout));

    let text = String::from_utf8(check(dir.path(), &["load", "server"]).stdout).unwrap();
    assert!(text.contains("BROKEN") && text.contains("2 of "), "{text}");
    for (args, words) in [
        (&["nothing"][..], "nothing is not a run folder: it does not exist"),
        (&["load", "load"][..], "list each run once"),
        (&["load", "--steps", "7"][..], "there is no step 7"),
        (&["load", "--tolerance=-1"][..], "invalid share"),
        (&["load", "--tolerance", "200%"][..], "invalid share"),
    ] {
        let failed = check(dir.path(), args);
        let error = String::from_utf8_lossy(&failed.stderr).into_owned();
        assert!(!failed.status.success() && error.contains(words), "{args:?}: {error}");
    }
}

#[test]
fn the_queues_of_several_servers_are_kept_apart() {
    let dir = tempfile::tempdir().unwrap();
    let (load, device) = closed_loop();
    write(&dir.path().join("load"), "load", &load, Some(CLIENTS as usize));
    write(&dir.path().join("a"), "serve", &device, None);
    let other: Vec<Window> =
        device.into_iter().map(|w| Window { busy_s: w.busy_s * 1.5, ..w }).collect();
    let mut server = run("serve");
    server.start_unix_us += 1;
    let mut writer = RunWriter::create(&dir.path().join("b"), &server).unwrap();
    writer.windows(&other).unwrap();
    writer.flush().unwrap();
    let output = check(dir.path(), &["load", "a", "b", "--json"]);
    let checked = json(&output);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(law(&checked, "utilisation", "a: device/0")["verdict"], "holds");
    assert_eq!(law(&checked, "utilisation", "b: device/0")["verdict"], "broken");
}

#[test]
fn a_run_that_does_not_cover_its_steps_fails_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let (load, device) = closed_loop();
    write(&dir.path().join("load"), "load", &load, Some(CLIENTS as usize));
    write(&dir.path().join("server"), "serve", &device, None);
    write(&dir.path().join("none"), "serve", &[], None);
    write(&dir.path().join("idle"), "load", &[], Some(CLIENTS as usize));
    let (seconds, part) = (SECONDS as usize, SECONDS as usize * 6 / 10);
    write(&dir.path().join("cut"), "serve", &device[..part], None);
    write(&dir.path().join("short"), "load", &load[..part], Some(CLIENTS as usize));
    write(&dir.path().join("joined"), "serve", &device[seconds - part..seconds], None);
    // A process that is killed loses the window that it was recording.
    write(&dir.path().join("killed"), "serve", &device[..seconds - 1], None);
    let before: Vec<Window> = device
        .iter()
        .map(|w| Window { start_unix_us: w.start_unix_us - 3_600_000_000, ..w.clone() })
        .collect();
    write(&dir.path().join("before"), "serve", &before, None);
    for (runs, words) in [
        (&["load", "none"][..], "none has no windows"),
        (&["none"], "none has no windows"),
        (&["idle", "server"], "idle has no windows"),
        (&["load", "cut"], "cut: its windows stop 8 s before step 0 (20 s) ends"),
        (&["short", "server"], "short: its windows stop 8 s before step 0 (20 s) ends"),
        (&["load", "joined"], "joined: its windows start 8 s after step 0 (20 s) does"),
        (&["load", "before"], "before: nothing of it is within a step of the load"),
    ] {
        let output = check(dir.path(), runs);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{runs:?}: {error}");
        assert!(error.contains(words), "{runs:?}: {error}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(!text.contains("checks hold"), "{runs:?}: {text}");
    }
    assert_eq!(check(dir.path(), &["load", "killed"]).status.code(), Some(0));
    let checked = json(&check(dir.path(), &["load", "cut", "--json"]));
    assert_eq!(checked["holds"], false);
    assert_eq!(checked["incomplete"].as_array().unwrap().len(), 1);
}

/// A model of the closed loop's device with this mean service time.
fn model(mean_s: f64) -> String {
    let number = |name: &str, value: f64, half: f64, unit: &str| {
        let (low, high) = (value - half, value + half);
        format!("{name} = {{ value = {value}, low = {low}, high = {high}, unit = \"{unit}\" }}\n")
    };
    let exact = |name: &str, value: f64, unit: &str| number(name, value, 0.0, unit);
    [
        "format = 1\n[requests]\n".to_owned(),
        exact("q0", 0.0, "1"),
        exact("alpha", 0.0, "s"),
        exact("other_share", 0.0, "1"),
        exact("front_delay", 0.0, "s"),
        exact("joining", 0.0, "1"),
        exact("joining_knee", 1e9, "reads"),
        "rate_low = 50.0\nrate_high = 150.0\n[spotify]\n".to_owned(),
        exact("q0", 0.0, "1"),
        exact("alpha", 0.0, "s"),
        exact("mu_d", 100.0, "1/s"),
        "n_d = 1\n[[classes]]\nname = \"bulk_device\"\nservers = 2\n[classes.service]\n".to_owned(),
        number("mean", mean_s, 0.01 * mean_s, "s"),
        exact("scv", 0.1, "1"),
        "shape = [[1.0, 0.5, 1.0]]\n".to_owned(),
        "[[devices]]\nclass = \"bulk_device\"\ncount = 1\nshare = 1.0\nfactor = 1.0\n".to_owned(),
    ]
    .concat()
}

#[test]
fn a_model_that_no_longer_describes_a_run_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let (load, device) = closed_loop();
    write(&dir.path().join("load"), "load", &load, Some(CLIENTS as usize));
    write(&dir.path().join("server"), "serve", &device, None);
    std::fs::write(dir.path().join("right.toml"), model(SERVICE_S)).unwrap();
    std::fs::write(dir.path().join("old.toml"), model(0.85 * SERVICE_S)).unwrap();

    let output = check(dir.path(), &["load", "server", "--model", "right.toml", "--json"]);
    let checked = json(&output);
    assert_eq!((output.status.code(), &checked["model"]["holds"]), (Some(0), &true.into()));
    assert_eq!(checked["model"]["changes"], serde_json::json!([]));
    assert_eq!(checked["model"]["intervals"], SECONDS);

    let output = check(dir.path(), &["load", "server", "--model", "old.toml", "--json"]);
    let checked = json(&output);
    assert_eq!((output.status.code(), &checked["holds"]), (Some(1), &true.into()), "{checked:#}");
    let change = &checked["model"]["changes"][0];
    assert_eq!(change["parameter"]["service_time"], "bulk_device", "{checked:#}");
    assert!((change["now"]["value"].as_f64().unwrap() / SERVICE_S - 1.0).abs() < 0.02, "{change}");
    assert_eq!(change["since_s"], 0.0);

    // A server's run alone, in words.
    let output = check(dir.path(), &["server", "--model", "old.toml"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for word in ["service time of bulk_device", "0.0085", "+17.", "0 s into server#0", "does NOT"] {
        assert!(text.contains(word), "{word} is missing in\n{text}");
    }
    let output = check(dir.path(), &["server", "--model", "right.toml"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("still describes"), "{text}");
    let missing = check(dir.path(), &["server", "--model", "none.toml"]);
    assert!(String::from_utf8_lossy(&missing.stderr).contains("cannot read the model"));
}
