//! Outages that can be seen, of nodes behind a gateway; and a queue that is watched.

use std::process::{Command, Output};

use crate::serve_client::{Client, Process, free, spawn, until_or};

/// A node of a cluster of two, or their gateway, in a process and a folder of its own.
struct Member {
    process: Option<Process>,
    folder: tempfile::TempDir,
    sets: Vec<String>,
}

impl Member {
    fn start(sets: Vec<String>) -> Member {
        let mut member = Member { process: None, folder: tempfile::tempdir().unwrap(), sets };
        member.run();
        member
    }

    fn run(&mut self) {
        let sets: Vec<&str> = self.sets.iter().map(String::as_str).collect();
        self.process = Some(spawn(self.folder.path(), &sets, ""));
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("servers.log")).unwrap()
    }

    fn client(&self) -> Client {
        Client::connect(self.process.as_ref().unwrap().address)
    }
}

/// Runs `concertina status` at a member.
fn status(member: &Member, more: &[&str]) -> Output {
    let server = format!("http://{}", member.process.as_ref().unwrap().address);
    let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
    command.args(["status", "--server", &server]).args(more).output().unwrap()
}

#[test]
fn a_node_that_fails_and_returns_is_told_once_with_its_end() {
    let shared = tempfile::tempdir().unwrap();
    let addresses = [free(), free()];
    let common = |more: &[&str]| {
        let mut sets = vec![
            format!("origin.path={}/origin", shared.path().display()),
            "cluster.replicas=2".to_owned(),
            "gateway.ping_s=0.1".to_owned(),
        ];
        for (index, name) in ["a", "b"].into_iter().enumerate() {
            sets.push(format!(
                "member.{index}={{name=\"{name}\",address=\"{}\"}}",
                addresses[index]
            ));
        }
        sets.extend(more.iter().map(|&text| text.to_owned()));
        sets
    };
    let node =
        |name: &str| Member::start(common(&["serve.role=node", &format!("cluster.name={name}")]));
    let a = node("a");
    let mut b = node("b");
    let gateway = Member::start(common(&["serve.role=gateway"]));
    let mut client = gateway.client();
    until_or("both nodes", || gateway.log(), || client.put("/objects/k", b"kept").status == 200);
    assert!(!client.get("/readyz").text().contains("nodes fail"));

    drop(b.process.take());
    until_or("the failure", || gateway.log(), || gateway.log().contains("the node b failed: "));
    // The other node asks it for leases.
    until_or("the failure at a", || a.log(), || a.log().contains("the node b failed: "));
    let ready = client.get("/readyz");
    let text = ready.text();
    assert!(ready.status == 200 && text.contains("1 of 2 nodes fail (b: "), "{text}");
    let text = String::from_utf8(status(&gateway, &[]).stdout).unwrap();
    let line = text.lines().find(|line| line.starts_with("node b "));
    assert!(line.is_some_and(|line| line.contains("; failed: ")), "{text}");
    assert!(text.contains("node a "), "{text}");

    b.run();
    until_or(
        "its return",
        || gateway.log(),
        || gateway.log().contains("the node b answers again after "),
    );
    until_or("its return at a", || a.log(), || a.log().contains("the node b answers again after "));
    for told in [gateway.log(), a.log()] {
        assert_eq!(told.matches("the node b failed: ").count(), 1, "{told}");
    }
    assert!(!gateway.log().contains("the node a"), "{}", gateway.log());
    until_or(
        "a ready gateway",
        || gateway.log(),
        || !client.get("/readyz").text().contains("nodes fail"),
    );
}

#[test]
fn a_queue_is_watched_at_a_server_and_in_a_run_folder() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let mut node = Member::start(vec![
        format!("observe.run_dir={}", run.display()),
        "observe.window_s=0.2".into(),
    ]);
    let address = node.process.as_ref().unwrap().address;
    assert_eq!(Client::connect(address).put("/objects/k", b"kept").status, 200);
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let load = std::thread::spawn(move || {
        let mut client = Client::connect(address);
        while stopped.try_recv().is_err() {
            assert_eq!(client.get("/objects/k").status, 200);
            assert_eq!(client.get("/objects/missing").status, 404);
        }
    });
    let watched = status(&node, &["--watch", "--lines", "2", "--json"]);
    let unknown = status(&node, &["--watch", "--queue", "kettle", "--lines", "1"]);
    stop.send(()).unwrap();
    load.join().unwrap();
    let text = String::from_utf8(watched.stdout).unwrap();
    assert_eq!(text.lines().count(), 2, "{text}{}", String::from_utf8_lossy(&watched.stderr));
    for line in text.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let figure = |name: &str| line[name].as_f64().unwrap();
        assert!(figure("replies_per_s") > 1.0, "{line}");
        assert!((figure("misses") - 0.5).abs() < 0.1, "{line}");
        assert!(figure("length") > 0.0 && figure("service_s") > 0.0, "{line}");
        assert_eq!(figure("failures"), 0.0, "{line}");
    }
    let text = String::from_utf8(unknown.stderr).unwrap();
    assert!(!unknown.status.success() && text.contains("no queue `kettle`; it has "), "{text}");
    // Failures are not within an objective; buckets resolve what memory answers.
    let metrics = node.client().get("/metrics").text();
    for part in [
        "concertina_within_objective_total{queue=\"gateway\",objective=\"0.02\"}",
        "le=\"0.00001\"",
        "le=\"0.0005\"",
    ] {
        assert!(metrics.contains(part), "{part}: {metrics}");
    }
    node.process.as_ref().unwrap().signal("-TERM");
    let _ = node.process.as_mut().unwrap().child.wait();
    let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
    command.args(["status", "--watch", "--run"]).arg(&run);
    let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert!(text.starts_with("time ") && text.lines().count() > 2, "{text}");
    assert!(text.contains(" 50.00 %") || text.contains(" 49.") || text.contains(" 50."), "{text}");
    let first = command.args(["--lines", "2"]).output().unwrap();
    let of_the_text: Vec<&str> = text.lines().take(3).collect();
    let first = String::from_utf8(first.stdout).unwrap();
    assert_eq!(first.lines().collect::<Vec<_>>(), of_the_text, "a head and two lines");
}
