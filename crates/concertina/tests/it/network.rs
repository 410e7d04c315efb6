//! `concertina network`: a description, solved, varied and judged.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn concertina(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_concertina")).arg("network").args(args).output().unwrap()
}

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/middlewares.toml")
}

fn stdout_of(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&stdout_of(concertina(&[args, &["--json"]].concat()))).unwrap()
}

/// The error of a network described by this text.
fn mistake(text: &str, args: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("n.toml");
    std::fs::write(&path, text).unwrap();
    let output = concertina(&[&[path.to_str().unwrap()], args].concat());
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn the_published_network_is_solved_and_varied() {
    let file = example();
    let file = file.to_str().unwrap();
    let text = stdout_of(concertina(&[file]));
    for part in [
        "Two middlewares",
        "Solved exactly",
        "10,852",
        "98.4",
        "Bottleneck of clients",
        "geometric",
    ] {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
    let answer = json(&[file, "--set", "class.clients.customers=288", "--customers", "1..192:50"]);
    assert_eq!(answer["exact"], true);
    let throughput = |value: &Value| value["classes"][0]["throughput"].as_f64().unwrap();
    assert!((throughput(&answer["before"]) - 10_852.0).abs() < 3.0);
    assert!(throughput(&answer) > throughput(&answer["before"]));
    let sweep = answer["sweep"].as_array().unwrap();
    assert_eq!(
        sweep.iter().map(|s| s["customers"].as_u64().unwrap()).collect::<Vec<_>>(),
        [1, 51, 101, 151, 192]
    );
    // One customer waits for nobody.
    assert!((throughput(&sweep[0]) - 1.0 / 0.013_696).abs() < 1e-6);
    assert!((throughput(&sweep[4]) - throughput(&answer["before"])).abs() < 1e-6);
    let text = stdout_of(concertina(&[file, "--set", "station.middleware-1.servers=128"]));
    assert!(text.contains("before") && text.contains("after"), "{text}");
}

#[test]
fn every_kind_of_station_and_class_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("n.toml");
    let text = "
[station.front]
servers = 4
[station.lock]
rates = [1.0, 1.5]
[station.net]
kind = 'delay'
[class.readers]
customers = 20
think_ms = 100.0
service_ms = { front = 4.0, net = 1.0 }
demand_ms = { lock = 2.0 }
visits = { front = 2.0 }
[class.batch]
rate = 10.0
service_ms = { front = 10.0 }
";
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap();
    let answer = json(&[path]);
    // Classes and stations are in the order of the file.
    let (readers, batch) = (&answer["classes"][0], &answer["classes"][1]);
    let names = answer["stations"].as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["front", "lock", "net"]);
    assert_eq!(batch["throughput"], 10.0);
    let f = |value: &Value| value.as_f64().unwrap();
    let customers = f(&readers["throughput"]) * (f(&readers["response_s"]) + 0.1);
    assert!((customers - 20.0).abs() < 1e-9, "the interactive law: {customers}");
    assert!(
        (f(&answer["stations"][0]["throughput"]) - 2.0 * f(&readers["throughput"]) - 10.0).abs()
            < 1e-9
    );
    assert!(stdout_of(concertina(&[path])).contains("load-dependent"));
    let curve = "
[station.system]
curve = [[1, 100.0], [4, 300.0]]
[class.c]
customers = 3
think_ms = 1.0
";
    std::fs::write(path, curve).unwrap();
    assert!(json(&[path])["exact"].as_bool().unwrap());
    let output = concertina(&[path, "--customers", "1..9"]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("up to 4 inside") && error.contains("with 5 customers"), "{error}");
}

#[test]
fn an_approximation_says_how_far_it_may_be_off() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("n.toml");
    for (customers, says) in
        [(3_000, "APPROXIMATE (linearizer)"), (100_000, "APPROXIMATE (Bard-Schweitzer)")]
    {
        let class = |name: &str, a: f64, b: f64| {
            format!(
                "[class.{name}]\ncustomers = {customers}\nthink_ms = 500.0\n\
                 service_ms = {{ a = {a:?}, b = {b:?} }}\n"
            )
        };
        let stations = "[station.a]\nservers = 16\n[station.b]\n";
        let text = [stations, &class("x", 100.0, 4.0), &class("y", 50.0, 8.0)].concat();
        std::fs::write(&path, text).unwrap();
        let text = stdout_of(concertina(&[path.to_str().unwrap()]));
        assert!(text.contains(says) && text.contains("less than 10 %"), "{text}");
        assert_eq!(text.contains("less than 2 %"), customers < 10_000, "{text}");
    }
}

#[test]
fn mistakes_say_where_and_what_to_do() {
    let good = "[station.a]\n[class.c]\ncustomers = 5\nthink_ms = 1.0\nservice_ms = { a = 1.0 }\n";
    for (text, args, parts) in [
        ("", &[][..], &["n.toml", "[station.disk]"][..]),
        ("[station.a]\n", &[], &["no classes"]),
        ("[station.a", &[], &["n.toml", "line 1"]),
        ("[station.a]\nservrs = 4\n[class.c]\n", &[], &["servrs", "servers"]),
        ("[station.a]\nservers = 0\n[class.c]\n", &[], &["station.a", "servers is 0"]),
        (
            "[station.a]\nservers = 2\nrates = [1.0]\n[class.c]\n",
            &[],
            &["station.a", "several kinds"],
        ),
        (
            "[station.a]\n[class.c]\ncustomers = 5\n",
            &[],
            &["class.c", "no demand and no think time"],
        ),
        (
            "[station.a]\n[class.c]\nservice_ms = { b = 1.0 }\n",
            &[],
            &["service_ms.b", "there are: a"],
        ),
        (
            "[station.a]\n[class.c]\nservice_ms = { a = 1.0 }\n",
            &[],
            &["class.c", "customers", "rate"],
        ),
        (
            "[station.a]\n[class.c]\nrate = 1.0\nvisits = { a = 1.0 }\n",
            &[],
            &["visits.a", "service_ms.a"],
        ),
        (
            "[station.a]\n[class.c]\nrate = 2000.0\nservice_ms = { a = 1.0 }\n",
            &[],
            &["without bound"],
        ),
        (
            "[station.a]\n[class.c]\nrate = nan\nservice_ms = { a = 1.0 }\n",
            &[],
            &["class.c", "not a number"],
        ),
        (good, &["--set", "station.b.servers=2"], &["no station `b`", "there are: a"]),
        (good, &["--set", "station.a.servers"], &["missing `=`"]),
        (
            good,
            &["--set", "station.a.servers=2", "--set", "station.a.servers =3"],
            &["--set station.a.servers is given twice"],
        ),
        (good, &["--set", "customers=2"], &["class.NAME.customers=100"]),
        (good, &["--set", "station.a.servers=-1"], &["--set station.a.servers=-1"]),
        (good, &["--customers", "9..1"], &["first is above the last"]),
        (good, &["--customers", "1..x"], &["like `12`, `10,20,50`, `1..100`"]),
        (good, &["--customers", "1..4000000000:1"], &["larger steps"]),
        (good, &["--customers", "1", "--class", "d"], &["the closed classes are: c"]),
    ] {
        let error = mistake(text, args);
        for part in parts {
            assert!(error.contains(part), "{text:?} {args:?}: {part:?} is not in {error}");
        }
        assert!(!error.contains("panicked"), "{error}");
    }
    let error = String::from_utf8(concertina(&["/nowhere.toml"]).stderr).unwrap();
    assert!(error.contains("/nowhere.toml") && error.contains("No such file"), "{error}");
}

/// Multi-gets: a station whose visits fork, described, varied and refused.
#[test]
fn visits_that_fork_are_solved_and_marked() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/multi-gets.toml");
    let file = file.to_str().unwrap();
    let text = stdout_of(concertina(&[file]));
    for part in [
        "Multi-gets",
        "! APPROXIMATE (open queues and fork-join)",
        "fork: all of 10 parts",
        "A visit to caches",
    ] {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
    let answer = json(&[file]);
    assert_eq!((&answer["exact"], &answer["method"]), (&Value::Bool(false), &Value::from("fork")));
    let caches = answer["stations"].as_array().unwrap().iter().find(|s| s["name"] == "caches");
    let fork = &caches.unwrap()["fork"];
    let number = |key: &str| fork[key].as_f64().unwrap();
    // One part: 0.2 ms at utilisation 0.6; independent parts would take H₁₀ = 2.93 times as long.
    assert!((number("part_response_s") / 0.5e-3 - 1.0).abs() < 1e-6, "{fork}");
    assert!(number("response_s") > 1.2e-3 && number("response_s") < 2.93 * 0.5e-3, "{fork}");
    // Two parts have a known mean, and fewer needed answers come sooner.
    let set = |sets: &[&str]| {
        let sets = sets.iter().flat_map(|set| ["--set", *set]);
        let answer = json(&[&[file][..], &sets.collect::<Vec<_>>()].concat());
        let stations = answer["stations"].as_array().unwrap().clone();
        let caches = stations.into_iter().find(|s| s["name"] == "caches").unwrap();
        caches["response_s"].as_f64().unwrap()
    };
    assert!((set(&["station.caches.fork=2"]) / (11.4 / 8.0 * 0.5e-3) - 1.0).abs() < 1e-3);
    assert!(set(&["station.caches.needed=8"]) < number("response_s"));
    assert!((set(&["station.caches.servers=1"]) / 0.5e-3 - 1.0).abs() < 1e-6);
    for (sets, word) in [
        (&["station.caches.fork=0"][..], "number of parts is 0: it must be 1 to 10,000"),
        (&["station.caches.needed=11"], "must answer is 11"),
        (&["station.front.needed=2"], "give fork"),
        (&["class.multi-gets.rate=5000"], "caches"),
    ] {
        let sets = sets.iter().flat_map(|set| ["--set", *set]);
        let output = concertina(&[&[file][..], &sets.collect::<Vec<_>>()].concat());
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && errors.contains(word), "{word}: {errors}");
    }
    let closed = "[station.caches]\nfork = 4\n[class.readers]\ncustomers = 10\nservice_ms = { caches = 1.0 }\n";
    assert!(mistake(closed, &[]).contains("open classes only"));
    let twice = "[station.caches]\nfork = 4\nservers = 2\n[class.readers]\nrate = 10.0\nservice_ms = { caches = 1.0 }\n";
    assert!(mistake(twice, &[]).contains("several kinds"));
}

#[test]
fn open_classes_have_percentiles() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("n.toml");
    let text = "
[station.web]
[station.disk]
[class.reads]
rate = 50.0
service_ms = { web = 10.0, disk = 10.0 }
";
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap();
    let answer = json(&[path, "--within", "40ms"]);
    assert_eq!(answer["stations"][0]["name"], "web");
    // Two M/M/1 in a row: an Erlang law of rate 100 − 50.
    let path_time = &answer["paths"][0];
    assert_eq!(path_time["exact"], true);
    let within = path_time["within"][0].as_f64().unwrap();
    assert!((within - (1.0 - 3.0 * (-2.0f64).exp())).abs() < 1e-8, "{within}");
    let text = stdout_of(concertina(&[path, "--within", "40ms"]));
    assert!(text.contains("p99") && !text.contains("APPROXIMATE"), "{text}");
    let text = stdout_of(concertina(&[path, "--set", "class.reads.visits.disk=1.5"]));
    assert!(text.contains("APPROXIMATE for reads"), "{text}");
    let text = stdout_of(concertina(&[path, "--set", "station.disk.rates=[1.0, 1.5]"]));
    assert!(text.contains("No percentiles of reads") && text.contains("disk"), "{text}");
}
