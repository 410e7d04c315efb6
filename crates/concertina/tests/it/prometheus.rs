//! `deploy/prometheus` and `deploy/grafana`: rules that promtool accepts, and a real Prometheus that scrapes a loaded node, evaluates
//! them, and has an answer to what the dashboard asks.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::left_out::left_out;
use crate::measure::Running;
use crate::memcached_proxy::clients::output_text;
use crate::serve_client::{Client, free, start, until_or};
use crate::tidy::root;

/// The dashboard.
fn dashboard() -> Value {
    let path = root().join("deploy/grafana/concertina.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Panels of the dashboard with what each asks.
fn panels(dashboard: &Value) -> Vec<(String, Vec<String>)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let all = dashboard["panels"].as_array().unwrap().iter();
    let drawn = all.filter(|panel| panel["type"] != "row");
    let asked = |panel: &Value| {
        let targets = panel["targets"].as_array().unwrap();
        targets.iter().map(|target| text(&target["expr"])).collect()
    };
    drawn.map(|panel| (text(&panel["title"]), asked(panel))).collect()
}

/// Names of metrics in a text: those of a process, and those that rules record.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    let of =
        words.filter(|word| word.starts_with("concertina_") || word.starts_with("concertina:"));
    of.map(|word| {
        let stem = ["_bucket", "_sum", "_count"].iter().find_map(|end| word.strip_suffix(end));
        stem.unwrap_or(word).to_owned()
    })
    .collect()
}

#[test]
fn rules_and_dashboard_ask_for_metrics_that_exist() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let rules = read("deploy/prometheus/rules.yml");
    let mut known = names(&read("docs/metrics.md"));
    let recorded = rules.lines().filter_map(|line| line.trim().strip_prefix("- record: "));
    known.extend(recorded.map(str::to_owned));
    let groups =
        ["concertina_objective", "concertina_queues", "concertina_ahead", "concertina_parts"];
    let asked = [rules, read("deploy/prometheus/alerts.yml"), dashboard().to_string()].concat();
    let unknown: Vec<String> = names(&asked)
        .into_iter()
        .filter(|name| !known.contains(name) && !groups.contains(&name.as_str()))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?} are neither metrics nor recorded");
    let ids: Vec<Value> =
        dashboard()["panels"].as_array().unwrap().iter().map(|p| p["id"].clone()).collect();
    let distinct: BTreeSet<String> = ids.iter().map(Value::to_string).collect();
    assert_eq!(ids.len(), distinct.len());
}

fn promtool(arguments: &[&str]) -> Option<String> {
    let folder = root().join("deploy/prometheus");
    let output = Command::new("promtool").args(arguments).current_dir(folder).output().ok()?;
    assert!(output.status.success(), "promtool {arguments:?}: {}", output_text(&output));
    Some(output_text(&output))
}

#[test]
fn promtool_accepts_the_rules_and_their_tests() {
    const TEST: &str = "prometheus::promtool_accepts_the_rules_and_their_tests";
    if promtool(&["check", "config", "prometheus.yml"]).is_none() {
        return left_out(TEST, "promtool cannot be run (apt-get install prometheus)");
    }
    promtool(&["check", "rules", "rules.yml", "alerts.yml"]).unwrap();
    promtool(&["test", "rules", "tests.yml"]).unwrap();
}

/// A Prometheus with our rules that scrapes a process each second.
fn prometheus(folder: &Path, target: SocketAddr) -> Option<(Running, SocketAddr)> {
    let example = root().join("deploy/prometheus/prometheus.yml");
    let example = std::fs::read_to_string(example).unwrap();
    let configuration = example
        .replace("127.0.0.1:7070", &target.to_string())
        .replace("scrape_interval: 10s", "scrape_interval: 1s")
        .replace("evaluation_interval: 30s", "evaluation_interval: 1s");
    assert_ne!(configuration, example);
    std::fs::write(folder.join("prometheus.yml"), configuration).unwrap();
    for rules in ["rules.yml", "alerts.yml"] {
        std::fs::copy(root().join("deploy/prometheus").join(rules), folder.join(rules)).unwrap();
    }
    let address = free();
    let process = Command::new("prometheus")
        .arg(format!("--config.file={}", folder.join("prometheus.yml").display()))
        .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
        .arg(format!("--web.listen-address={address}"))
        .stdout(Stdio::null())
        .stderr(File::create(folder.join("log")).unwrap())
        .spawn()
        .ok()?;
    Some((Running(process), address))
}

/// What Prometheus answers to a path of its API, or what is wrong with it. By HTTP/1.0, in which a long answer has no chunks.
fn api(address: SocketAddr, path: &str) -> Result<Value, String> {
    let mut stream = TcpStream::connect(address).map_err(|error| error.to_string())?;
    write!(stream, "GET /api/v1/{path} HTTP/1.0\r\n\r\n").map_err(|error| error.to_string())?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).map_err(|error| error.to_string())?;
    let body = reply.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let value: Value = serde_json::from_str(body).map_err(|error| format!("{error}: {reply}"))?;
    if value["status"] == "success" { Ok(value["data"].clone()) } else { Err(reply) }
}

/// The series that a query has.
fn query(address: SocketAddr, text: &str) -> Result<Vec<Value>, String> {
    let data =
        api(address, &format!("query?query={}", utf8_percent_encode(text, NON_ALPHANUMERIC)))?;
    data["result"].as_array().cloned().ok_or_else(|| data.to_string())
}

/// What a node without gateways and hot devices, seconds after its start, has nothing to say of.
const EMPTY: [&str; 6] = [
    "Nodes as gateways see them",
    "Retries and hedges",
    "Requests in progress, and bound",
    "Servers as proxies see them",
    "Refusals of pools, by reason",
    "Requests of pools",
];

#[test]
fn a_prometheus_that_scrapes_a_loaded_node_answers_the_dashboard() {
    const TEST: &str = "prometheus::a_prometheus_that_scrapes_a_loaded_node_answers_the_dashboard";
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &["observe.window_s=0.5"]);
    let Some((_process, address)) = prometheus(folder.path(), server.address()) else {
        return left_out(TEST, "prometheus cannot be run (apt-get install prometheus)");
    };
    let mut client = Client::connect(server.address());
    let mut number = 0;
    let panels = panels(&dashboard());
    assert!(panels.len() > 20);
    let unanswered = |address| -> Vec<String> {
        let lacks = |(title, asked): &&(String, Vec<String>)| {
            let answers = asked.iter().map(|text| query(address, text));
            !EMPTY.contains(&title.as_str())
                && answers.filter_map(Result::ok).all(|series| series.is_empty())
        };
        panels.iter().filter(lacks).map(|(title, _)| title.clone()).collect()
    };
    let log = || std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
    until_or(
        "every panel has an answer",
        || format!("{:?}\n{}", unanswered(address), log()),
        || {
            for _ in 0..50 {
                number += 1;
                let path = format!("/objects/{}", number % 20);
                client.put(&path, &[7; 2_000]);
                client.get(&path);
            }
            // One that is not there.
            client.get("/objects/none");
            // Prometheus scrapes once a second; it need not be asked more often.
            std::thread::sleep(Duration::from_millis(300));
            unanswered(address).is_empty()
        },
    );
    for (title, asked) in &panels {
        for text in asked {
            query(address, text).unwrap_or_else(|why| panic!("{title}: {text}: {why}"));
        }
    }
    // Requests were answered in time, by the recorded share.
    let errors = query(address, "concertina:objective_errors:ratio_rate5m").unwrap();
    let share: f64 = errors[0]["value"][1].as_str().unwrap().parse().unwrap();
    assert!((0.0..=1.0).contains(&share), "{errors:?}");
    let rules = api(address, "rules").unwrap();
    let groups = rules["groups"].as_array().unwrap();
    let all = groups.iter().flat_map(|group| group["rules"].as_array().unwrap());
    let wrong: Vec<&Value> = all.clone().filter(|rule| rule["health"] == "err").collect();
    assert!(all.count() >= 29 && wrong.is_empty(), "{wrong:?}");
}
