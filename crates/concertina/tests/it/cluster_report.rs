//! Clusters of simulated nodes: fitted, compared, asked what if, and predicted through the binary.

use std::path::Path;
use std::process::Command;

use ground::window::{Finished, Nanos, Operation, Outcome, SECOND};
use model::ClusterModel;
use model::storage::{Change, Popularity};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use record::{Generator, Run, RunFolder, RunWriter, Step};
use report::cluster::{ClusterRuns, compare, fit};
use report::{Selection, cluster_file, table::cluster_table};

use crate::report::{Event, START_US, exponential, machine, nanos, windows};

const DEVICES: usize = 4;
const SERVICE_S: f64 = 0.006;
/// What the simulated gateway adds.
const DELAY_S: f64 = 0.0003;
const STEP_S: u64 = 24;

/// A simulated node: its name, its share of the requests, its hit ratio, its devices' speed.
#[derive(Clone)]
struct Simulated {
    name: &'static str,
    share: f64,
    hits: f64,
    speed: f64,
}

fn run(kind: &str, name: usize) -> Run {
    Run {
        format: 1,
        version: "0.1.0".into(),
        kind: kind.into(),
        // Processes do not start at the same microsecond.
        start_unix_us: START_US + name as u64,
        laboratory: (kind == "serve").then(|| "simulated nodes".to_owned()),
        machine: machine(),
        asked: toml::Table::new(),
    }
}

type Events = Vec<(Nanos, Event)>;

/// One request in the events of a queue.
fn put(into: &mut Events, outcome: Outcome, arrived: Nanos, started: Nanos, done: Nanos) {
    let finished = Finished {
        operation: Operation::Get,
        outcome,
        waiting: started - arrived,
        service: done - started,
        response: done - arrived,
        bytes: 1000,
    };
    into.push((arrived, Event::Arrive));
    into.push((started, Event::Start));
    into.push((done, Event::Finish(finished)));
}

/// Runs a cluster at some rates, Poisson arrivals; the clients' run and each node's.
fn measure(dir: &Path, state: &str, nodes: &[Simulated], rates: &[f64], seed: u64) -> ClusterRuns {
    let folder = |name: &str| dir.join(format!("{state}-{name}"));
    let mut load = RunWriter::create(&folder("load"), &run("load", 0)).unwrap();
    let mut writers: Vec<RunWriter> = nodes
        .iter()
        .enumerate()
        .map(|(i, n)| RunWriter::create(&folder(n.name), &run("serve", i)).unwrap())
        .collect();
    let mut random = StdRng::seed_from_u64(seed);
    for (index, &rate) in rates.iter().enumerate() {
        let from = (seed * 1000 + index as u64 * (STEP_S + 10) + 2) * SECOND;
        let queues = || -> Vec<Events> { nodes.iter().map(|_| Events::new()).collect() };
        let (mut client, mut http) = (Events::new(), queues());
        let mut devices: Vec<Vec<Events>> =
            nodes.iter().map(|_| (0..DEVICES).map(|_| Events::new()).collect()).collect();
        let mut free = vec![[0.0f64; DEVICES]; nodes.len()];
        let mut at = from as f64 * 1e-9;
        let end = at + STEP_S as f64 + 2.0;
        while at < end {
            at += exponential(&mut random, 1.0 / rate);
            let mut part = random.random::<f64>();
            let mut node = 0;
            while node + 1 < nodes.len() && part > nodes[node].share {
                part -= nodes[node].share;
                node += 1;
            }
            let arrived = nanos(at + DELAY_S);
            let (outcome, done) = if random.random::<f64>() < nodes[node].hits {
                (Outcome::Memory, nanos(at + DELAY_S + 0.0001))
            } else {
                let device = random.random_range(0..DEVICES);
                let start = (at + DELAY_S).max(free[node][device]);
                let service = exponential(&mut random, SERVICE_S / nodes[node].speed);
                free[node][device] = start + service;
                let done = nanos(start + service);
                put(&mut devices[node][device], Outcome::BulkDevice, arrived, nanos(start), done);
                (Outcome::BulkDevice, done)
            };
            put(&mut http[node], outcome, arrived, arrived, done);
            put(&mut client, outcome, nanos(at), nanos(at), done);
        }
        load.windows(&windows("load", 0, from, client)).unwrap();
        for ((writer, http), devices) in writers.iter_mut().zip(http).zip(devices) {
            writer.windows(&windows("gateway", 0, from, http)).unwrap();
            for (i, events) in devices.into_iter().enumerate() {
                writer.windows(&windows(&format!("device/{i}"), 1, from, events)).unwrap();
            }
        }
        let unix_us = |ns: Nanos| START_US + ns / 1000;
        load.step(&Step {
            index,
            rate: Some(rate),
            clients: None,
            start_unix_us: unix_us(from + 2 * SECOND),
            end_unix_us: unix_us(from + (STEP_S + 2) * SECOND),
            generator: Generator::default(),
        })
        .unwrap();
    }
    load.flush().unwrap();
    writers.iter_mut().for_each(|w| w.flush().unwrap());
    let read = |name: &str| RunFolder::read(&folder(name)).unwrap();
    ClusterRuns {
        load: vec![read("load")],
        nodes: nodes.iter().map(|n| (n.name.to_owned(), read(n.name))).collect(),
    }
}

fn cluster() -> Vec<Simulated> {
    let node = |name, share, hits| Simulated { name, share, hits, speed: 1.0 };
    vec![node("a", 0.4, 0.5), node("b", 0.3, 0.6), node("c", 0.3, 0.6)]
}

/// Rates at which the busiest device of the whole cluster is so busy.
fn rate(utilisation: f64) -> f64 {
    utilisation * DEVICES as f64 / SERVICE_S / (0.4 * 0.5)
}

fn worst(comparison: &report::cluster::ClusterComparison) -> f64 {
    let errors = comparison.rows.iter().map(|row| row.concertina_error_points.unwrap().abs());
    errors.fold(0.0, f64::max)
}

#[test]
fn a_cluster_is_predicted_from_its_nodes_before_and_after_changes() {
    let dir = tempfile::tempdir().unwrap();
    let all = Selection::default();
    let fit_runs = measure(dir.path(), "fit", &cluster(), &[rate(0.35), rate(0.6)], 1);
    let fitted = fit(&fit_runs, &all, "test").unwrap();
    assert!((fitted.delay.value - DELAY_S).abs() < 1e-6, "{:?}", fitted.delay);
    for (node, simulated) in fitted.nodes.iter().zip(cluster()) {
        assert!((node.share - simulated.share).abs() < 0.01, "{}: {}", node.name, node.share);
        let q0 = &node.model.requests.q0;
        assert!((q0.value - simulated.hits).abs() < 0.02, "{}: {q0:?}", node.name);
    }
    let model = fitted.model().unwrap();
    let within = [0.020, 0.050];
    let own = compare(&fit_runs, &all, &model, &fitted, &within).unwrap();
    assert!(own.rows.iter().all(|row| row.used_for_fit));
    assert!(worst(&own) < 1.0, "{}", worst(&own));

    let held_out = measure(dir.path(), "held-out", &cluster(), &[rate(0.2), rate(0.75)], 2);
    let comparison = compare(&held_out, &all, &model, &fitted, &within).unwrap();
    assert!(comparison.rows.iter().all(|row| !row.used_for_fit));
    assert!(worst(&comparison) < 2.0, "{}", cluster_table(&comparison));
    assert!(comparison.rows[2].beyond_limit && !comparison.rows[0].beyond_limit);
    assert_eq!(comparison.laboratory, ["simulated nodes"]);
    let table = cluster_table(&comparison);
    assert!(table.contains("Confidence limit") && table.contains("EMULATED"), "{table}");

    // c is lost: its part of the catalogue is divided, and memory holds less of each.
    let node = |name, share, hits| Simulated { name, share, hits, speed: 1.0 };
    let left = [node("a", 0.55, 0.5 * 0.4 / 0.55), node("b", 0.45, 0.6 * 0.3 / 0.45)];
    let change = Change::Without { name: "c".to_owned(), shares_after: vec![0.55, 0.45] };
    let after = model.changed(&change, Popularity::EQUAL).unwrap();
    let lost = measure(dir.path(), "lost", &left, &[rate(0.2), rate(0.4)], 3);
    let comparison = compare(&lost, &all, &after, &fitted, &within).unwrap();
    assert!(worst(&comparison) < 2.0, "{}", cluster_table(&comparison));

    let mut slow = cluster();
    slow[1].speed = 0.5;
    let change = Change::Speed { name: "b".to_owned(), factor: 0.5 };
    let after = model.changed(&change, Popularity::EQUAL).unwrap();
    let runs = measure(dir.path(), "slow", &slow, &[rate(0.3)], 4);
    let comparison = compare(&runs, &all, &after, &fitted, &within).unwrap();
    assert!(worst(&comparison) < 2.0, "{}", cluster_table(&comparison));
    predict_by_file(dir.path(), &fitted, &model);
}

#[test]
fn a_cluster_is_fitted_through_the_binary() {
    let dir = tempfile::tempdir().unwrap();
    measure(dir.path(), "fit", &cluster(), &[rate(0.3), rate(0.6)], 5);
    let concertina = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
        let output = command.args(arguments).current_dir(dir.path()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), String::from_utf8(output.stdout).unwrap(), errors)
    };
    let nodes = ["--node", "a=fit-a", "--node", "b=fit-b", "--node", "c=fit-c"];
    let fit = |rest: &[&str]| concertina(&[&["fit", "fit-load"], &nodes[..], rest].concat());
    let (succeeded, text, errors) = fit(&["--out", "cluster.toml"]);
    assert!(succeeded && text.contains("Gateway and network add 300 µs"), "{text} {errors}");
    let (succeeded, text, errors) = fit(&["--out", "cluster.toml", "--json"]);
    assert!(succeeded && text.contains("\"share\""), "{errors}");
    // Without samples nothing is known of popularity; with them the cluster file says where it is.
    let file = || std::fs::read_to_string(dir.path().join("cluster.toml")).unwrap();
    assert!(!file().contains("popularity"), "{}", file());
    let sample = |i: u64| {
        // Some keys often, most seldom.
        let (key, at) = ((i * i * 7919 % 4_001).isqrt(), START_US + 1000 * i);
        format!(
            "{{\"key\":{key},\"size\":100,\"operation\":\"get\",\"outcome\":\"memory\",\
             \"received_unix_us\":{at},\"queued_ns\":0,\"started_ns\":0,\"served_ns\":1,\
             \"replied_ns\":1,\"length_met\":0}}\n"
        )
    };
    let samples: String = (0..6_000).map(sample).collect();
    std::fs::write(dir.path().join("fit-load/samples"), samples).unwrap();
    let (succeeded, text, errors) = fit(&["--out", "cluster.toml"]);
    assert!(succeeded && text.contains("from the samples of ./fit-load"), "{text} {errors}");
    assert!(file().contains("popularity = \"./fit-load\""), "{}", file());
    for file in ["a.model.toml", "b.model.toml", "c.model.toml", "cluster.toml"] {
        assert!(dir.path().join(file).exists(), "{file}");
    }
    let (succeeded, text, errors) =
        concertina(&["predict", "--cluster", "cluster.toml", "--without", "b"]);
    assert!(succeeded && text.contains("What if: without b"), "{errors}");
    for (arguments, word) in [
        (&["fit", "fit-load", "--node", "a"][..], "a=runs/a"),
        (&["fit", "fit-load", "--node", "../a=fit-a"], "a=runs/a"),
        (&["fit", "fit-load", "--node", "a=none"], "none"),
        (&["fit", "fit-load", "--node", "a=fit-a", "--node", "a=fit-b"], "two servers"),
    ] {
        let (succeeded, _, errors) = concertina(arguments);
        assert!(!succeeded && errors.contains(word), "{arguments:?}: {errors}");
    }
}

/// The cluster file that a fit makes gives the same predictions through the binary.
fn predict_by_file(dir: &Path, fitted: &report::cluster::FittedCluster, model: &ClusterModel) {
    for node in &fitted.nodes {
        let path = dir.join(format!("{}.model.toml", node.name));
        std::fs::write(path, node.model.to_toml().unwrap()).unwrap();
    }
    let text = cluster_file::text(fitted, |name| format!("{name}.model.toml").into()).unwrap();
    std::fs::write(dir.join("cluster.toml"), &text).unwrap();
    let predict = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
        command.args(["predict", "--within", "20ms"]).args(arguments).current_dir(dir);
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), String::from_utf8(output.stdout).unwrap(), errors)
    };
    let value = |arguments: &[&str]| {
        let (succeeded, text, errors) = predict(&[arguments, &["--json"]].concat());
        assert!(succeeded, "{errors}");
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        json["predictions"][0]["points"][0]["concertina"]["value"].as_f64().unwrap()
    };
    let load = ["--cluster", "cluster.toml", "--rate", "800"];
    let own = model.predict(800.0, &[0.020]).unwrap().points[0].concertina.value;
    let now = value(&load);
    assert!((now - own).abs() < 1e-6, "{now} {own}");
    let slow = value(&[&load[..], &["--speed", "a=0.5"]].concat());
    let lost = value(&[&load[..], &["--without", "a"]].concat());
    let more = value(&[&load[..], &["--memory", "a=2"]].concat());
    assert!(slow < now && lost < now && more > now, "{slow} {lost} {now} {more}");
    // Popular objects: half of the memory for each costs less than half of the hits.
    let zipf = ["--popularity", "zipf:0.9:20000"];
    let skewed = value(&[&load[..], &["--without", "a"], &zipf].concat());
    let exponent = value(&[&load[..], &["--without", "a", "--memory-exponent", "0.3"]].concat());
    assert!(lost < skewed && skewed < now && lost < exponent, "{lost} {skewed} {now} {exponent}");
    let with_law = format!("popularity = \"zipf:0.9:20000\"\n{text}");
    std::fs::write(dir.join("skewed.toml"), with_law).unwrap();
    let by_file = ["--cluster", "skewed.toml", "--rate", "800", "--without", "a"];
    assert_eq!(value(&by_file), skewed);
    let (_, said, _) = predict(&by_file);
    assert!(
        said.contains("The hit ratio of each object depends on memory by Che's approximation"),
        "{said}"
    );
    // Without a ring the others' shares grow in proportion.
    let said = value(&[&load[..], &["--without", "a", "--shares", "0.5,0.5"]].concat());
    assert!((said - lost).abs() < 2e-3, "{said} {lost}");

    let (succeeded, text, _) =
        predict(&[&load[..], &["--without", "a", "--objective", "95% within 50ms"]].concat());
    assert!(succeeded && text.contains("What if: without a") && text.contains(" up to "), "{text}");
    for (arguments, word) in [
        (&["--cluster", "none.toml"][..], "none.toml"),
        (&["--cluster", "a.model.toml"], "cluster file"),
        (&["--node", "a.model.toml"], "a.toml:0.5"),
        (&["--node", "a.model.toml:0.5"], "shares"),
        (&["--cluster", "cluster.toml", "--without", "z"], "no server \"z\""),
        (&["--cluster", "cluster.toml", "--speed", "a=0"], "a=0"),
        (&["--cluster", "cluster.toml", "--popularity", "zipf:0.9"], "zipf:0.8:1000000"),
        (&["a.model.toml", "--without", "a"], "--cluster"),
        (&[], "MODEL"),
    ] {
        let (succeeded, _, errors) = predict(arguments);
        assert!(!succeeded && errors.contains(word), "{arguments:?}: {errors}");
    }
    // Weights instead of shares: the ring says what each has, and who takes over.
    let weights = text_with_weights(dir);
    let lost = value(&["--cluster", &weights, "--rate", "800", "--without", "a"]);
    assert!(lost < value(&["--cluster", &weights, "--rate", "800"]));
}

fn text_with_weights(dir: &Path) -> String {
    let node = |name: &str, weight: f64| {
        format!("[[node]]\nmodel = \"{name}.model.toml\"\nweight = {weight}\n")
    };
    let text = ["a", "b", "c"].map(|name| node(name, if name == "a" { 4.0 } else { 3.0 })).concat();
    std::fs::write(dir.join("weights.toml"), text).unwrap();
    "weights.toml".to_owned()
}
