//! Datasets through a gateway: its answers are those of a scan, whatever is in shards or in the log, and while
//! nodes go.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use configuration::Config;
use dataset::manifest::Manifest;
use serde_json::Value;
use serve::Server;
use shard::record::{Format, Schema};

use crate::membership::{Etcd, World};
use crate::serve_client::{Client, Reply, free, overrides, until};

/// The id of the dataset: keys of shards hold it. By this one, of the shards that are made here some have the
/// last of three nodes among their two, and some have not.
const ID: u64 = 1;

struct Cluster {
    /// The configuration of all processes.
    text: String,
    _folder: tempfile::TempDir,
    nodes: Vec<Option<Server>>,
    gateways: Vec<Server>,
    /// What the dataset should be.
    twin: BTreeMap<u64, String>,
}

fn start(nodes: usize, replicas: usize) -> Cluster {
    start_with(nodes, replicas, "")
}

/// A cluster with more configuration.
fn start_with(nodes: usize, replicas: usize, more: &str) -> Cluster {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display();
    let mut text = format!(
        "device = []\n[origin]\npath = \"{path}/origin\"\n[cluster]\nreplicas = {replicas}\n@NAME@\n\
         [datasets]\nrefresh_s = 0.1\npath = \"{path}/copies-@NODE@\"\n[gateway]\ndeadline_s = 5.0\n{more}"
    );
    for node in 0..nodes {
        text.push_str(&format!("[[member]]\nname = \"n{node}\"\naddress = \"{}\"\n", free()));
    }
    let nodes = (0..nodes).map(|node| Some(start_node(&text, node))).collect();
    let gateway = || {
        let set = ["serve.role=gateway", "serve.listen=127.0.0.1:0", "serve.drain_s=0.2"];
        start_one(&text, "", "none", &set)
    };
    let gateways = vec![gateway(), gateway()];
    let cluster = Cluster { text, _folder: folder, nodes, gateways, twin: BTreeMap::new() };
    let mut manifest = Manifest::new(Schema::new(Format::Lines));
    manifest.id = format!("{ID:016x}");
    let manifest = manifest.encode().unwrap();
    let put = cluster.client(0).put("/objects/datasets/lines/dataset.json", &manifest);
    assert_eq!(put.status, 200, "{}", put.text());
    cluster
}

fn start_one(text: &str, name: &str, node: &str, set: &[&str]) -> Server {
    let text = text.replace("@NAME@", name).replace("@NODE@", node);
    let set: Vec<String> = set.iter().map(|&text| text.to_owned()).collect();
    Server::start(Config::parse(&text, "test", &set).unwrap(), None).unwrap()
}

fn start_node(text: &str, node: usize) -> Server {
    let (name, set) = (format!("name = \"n{node}\""), ["serve.role=node", "serve.drain_s=0.2"]);
    start_one(text, &name, &node.to_string(), &set)
}

fn json(reply: &Reply) -> Value {
    assert_eq!(reply.status, 200, "{}", reply.text());
    serde_json::from_slice(&reply.body).unwrap()
}

impl Cluster {
    fn client(&self, gateway: usize) -> Client {
        Client::connect(self.gateways[gateway].address())
    }

    fn send(&self, method: &str, path: &str, body: &[u8]) -> Value {
        let path = format!("/datasets/lines/{path}");
        json(&self.client(0).send(method, &path, &[], Some(body)).unwrap())
    }

    fn append(&mut self, lines: std::ops::Range<u64>) {
        let line = |i: u64| format!("number {i} is {}\n", ["red", "green", "blue"][i as usize % 3]);
        let text: String = lines.clone().map(line).collect();
        let done = self.send("POST", "records", text.as_bytes());
        assert_eq!(done["records"], lines.end - lines.start);
        let first = done["first_id"].as_u64().unwrap();
        self.twin.extend(lines.clone().map(|i| (first + i - lines.start, line(i))));
    }

    fn delete(&mut self, ids: &[u64]) {
        let text: Vec<String> = ids.iter().map(u64::to_string).collect();
        let done = self.send("DELETE", &format!("records?ids={}", text.join(",")), b"");
        assert_eq!(done["deleted"], ids.len());
        ids.iter().for_each(|id| drop(self.twin.remove(id)));
    }

    fn seal(&self) {
        assert_eq!(self.send("POST", "seal", b"")["sealed"], true);
    }

    /// Compares answers of a gateway with those of the twin.
    fn check(&self, gateway: usize) {
        let mut client = self.client(gateway);
        for word in ["red", "number 7", "9", "no such", "is"] {
            let has = |line: &&String| line.contains(word);
            let encoded = word.replace(' ', "%20");
            let count = json(&client.get(&format!("/datasets/lines/count?query=%22{encoded}%22")));
            assert_eq!(count["count"], self.twin.values().filter(has).count(), "{word}");
            let (mut all, mut after) = (Vec::new(), String::new());
            loop {
                let path = format!("/datasets/lines/records?query=%22{encoded}%22&limit=7{after}");
                let page = json(&client.get(&path));
                let records = page["records"].as_array().unwrap();
                assert!(records.len() <= 7);
                let record = |r: &Value| {
                    (r["id"].as_u64().unwrap(), r["record"].as_str().unwrap().to_owned())
                };
                all.extend(records.iter().map(record));
                match page["next"].as_u64() {
                    Some(next) => after = format!("&after={next}"),
                    None => break,
                }
            }
            let twin = self.twin.iter().filter(|(_, line)| line.contains(word));
            let twin: Vec<_> = twin.map(|(id, line)| (*id, line.clone())).collect();
            assert_eq!(all, twin, "{word}");
        }
        let (mut all, mut from) = (String::new(), 0);
        loop {
            let piece = client.get(&format!("/datasets/lines/export?from={from}"));
            assert_eq!(piece.status, 200, "{}", piece.text());
            all.push_str(&piece.text());
            let number = |name| piece.header(name).unwrap().parse::<u64>().unwrap();
            let (next, end) = (number("concertina-next"), number("concertina-end"));
            assert!(next > from || end == 0, "{from} {next} {end}");
            from = next;
            if from >= end {
                break;
            }
        }
        assert_eq!(all, self.twin.values().cloned().collect::<String>());
        for id in [0, 3, 17, 61, 500] {
            let reply = client.get(&format!("/datasets/lines/records/{id}"));
            match self.twin.get(&id) {
                Some(line) => assert_eq!(reply.text(), *line),
                None => assert_eq!(reply.status, 404, "{}", reply.text()),
            }
        }
    }

    /// The nodes that have a copy of the first shard.
    fn copies(&self) -> Vec<usize> {
        let file = |node: &usize| {
            let copies = self._folder.path().join(format!("copies-{node}"));
            copies.join(format!("lines/{ID:016x}/000001.shard")).exists()
        };
        (0..self.nodes.len()).filter(file).collect()
    }

    fn stop(self) {
        self.gateways.into_iter().for_each(Server::stop);
        self.nodes.into_iter().flatten().for_each(Server::stop);
    }
}

#[test]
fn a_dataset_through_gateways_is_what_a_scan_says_while_nodes_go() {
    let mut cluster = start(3, 2);
    for round in 0..5 {
        cluster.append(round * 12..round * 12 + 12);
        cluster.check(0);
        cluster.seal();
    }
    cluster.append(60..75);
    cluster.delete(&[3, 20, 61]);
    cluster.check(0);
    // The other gateway learns of what it did not do itself.
    let count = |cluster: &Cluster| {
        json(&cluster.client(1).get("/datasets/lines/count?query=number"))["count"] == 72
    };
    until("the other gateway knows", || count(&cluster));
    cluster.check(1);
    let text = cluster.client(0).get("/datasets/lines/extract?offset=5&len=300");
    let all: String =
        (0..60).map(|i| format!("number {i} is {}\n", ["red", "green", "blue"][i % 3])).collect();
    assert_eq!(text.text(), all[5..305]);
    let info = json(&cluster.client(0).get("/datasets/lines"));
    assert_eq!((&info["info"]["records"], &info["info"]["in_log"]), (&72.into(), &15.into()));
    assert_eq!(info["parts"].as_array().unwrap().len(), 6);

    // One node goes: every shard has another.
    cluster.nodes[0].take().unwrap().stop();
    cluster.check(0);
    cluster.append(75..80);
    cluster.check(0);
    // Two are gone: some shard has none, and that is said.
    cluster.nodes[1].take().unwrap().stop();
    let failed = cluster.client(0).get("/datasets/lines/count?query=number");
    assert!(matches!(failed.status, 503 | 504), "{} {}", failed.status, failed.text());
    assert!(failed.text().contains("part 00000"), "{}", failed.text());
    let partial = json(
        &cluster.client(0).get("/datasets/lines/records?query=number&limit=1000&partial=true"),
    );
    let missing = partial["missing"].as_array().unwrap();
    assert!(!missing.is_empty() && missing.len() < 6, "{missing:?}");
    for record in partial["records"].as_array().unwrap() {
        assert_eq!(
            cluster.twin[&record["id"].as_u64().unwrap()],
            record["record"].as_str().unwrap()
        );
    }
    cluster.stop();
}

/// Has the files of a folder look as if they had been written an hour ago.
fn make_old(folder: &Path) {
    let an_hour_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    for entry in std::fs::read_dir(folder).unwrap() {
        // A node may remove the file, or give a fetched one its name, at this moment.
        if let Ok(file) = std::fs::File::open(entry.unwrap().path()) {
            file.set_modified(an_hour_ago).unwrap();
        }
    }
}

/// Nothing changes in the dataset, which is all that a node waited for once.
#[test]
fn a_node_that_joins_copies_the_shards_that_are_its_own_now() {
    let folder = tempfile::tempdir().unwrap();
    let Some(etcd) = Etcd::start(folder.path()) else { return };
    let more = &["datasets.refresh_s=0.1"];
    let mut world = World::new(folder, etcd, more);
    let copies = |name: &str, world: &World| world.folder.path().join(format!("copies-{name}"));
    let node = |name: &'static str, world: &mut World| {
        let set = format!("datasets.path={}", copies(name, world).display());
        world.node_with(name, &[&set])
    };
    let _first = [node("a", &mut world), node("b", &mut world)];
    let mut set = world.common();
    set.extend(["serve.role=gateway", "serve.listen=127.0.0.1:0"].map(str::to_owned));
    set.push(format!("datasets.path={}", copies("gateway", &world).display()));
    let set: Vec<&str> = set.iter().map(String::as_str).collect();
    let config = Config::load(None, &overrides(world.folder.path(), &set)).unwrap();
    let gateway = Server::start(config, None).unwrap();
    let mut client = Client::connect(gateway.address());
    let mut manifest = Manifest::new(Schema::new(Format::Lines));
    manifest.id = format!("{ID:016x}");
    let manifest = manifest.encode().unwrap();
    until("the dataset is there", || {
        client.put("/objects/datasets/lines/dataset.json", &manifest).status == 200
    });
    for round in 0..6 {
        let text = format!("line {round} is green\n");
        let path = "/datasets/lines/records";
        json(&client.send("POST", path, &[], Some(text.as_bytes())).unwrap());
        json(&client.send("POST", "/datasets/lines/seal", &[], Some(b"")).unwrap());
    }
    let held = |name: &str, world: &World| {
        let folder = copies(name, world).join("lines").join(format!("{ID:016x}"));
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter(|entry| entry.path().extension().is_some_and(|it| it == "shard")).count()
    };
    until("both have all shards", || held("a", &world) + held("b", &world) == 12);
    let third = node("c", &mut world);
    until("the third has shards", || held("c", &world) > 0);
    let info = json(&Client::connect(third.address).get("/datasets/lines"));
    assert_eq!(info["info"]["records"], 6, "{info}");
    let count = json(&client.get("/datasets/lines/count?query=green"));
    assert_eq!(count["count"], 6);
    // The two others remove what the third holds now, once it has lain for some time: at a refresh after they have learned of
    // the third. When that is depends on the machine, so the dataset is changed until they have, and what was copied
    // between is made old too.
    let mut rounds = 6;
    let mut last = std::time::Instant::now();
    until("two copies of each shard", || {
        if rounds < 8 || last.elapsed() > std::time::Duration::from_secs(3) {
            let text = format!("line {rounds} is green\n");
            let records = "/datasets/lines/records";
            json(&client.send("POST", records, &[], Some(text.as_bytes())).unwrap());
            json(&client.send("POST", "/datasets/lines/seal", &[], Some(b"")).unwrap());
            rounds += 1;
            last = std::time::Instant::now();
        }
        for name in ["a", "b"] {
            make_old(&copies(name, &world).join("lines").join(format!("{ID:016x}")));
        }
        held("a", &world) + held("b", &world) + held("c", &world) == 2 * rounds
    });
    let count = json(&client.get("/datasets/lines/count?query=green"));
    assert_eq!(count["count"], rounds);
    gateway.stop();
}

#[test]
fn a_hot_shard_gets_a_further_replica_for_as_long_as_it_is_hot() {
    // Without layers, so that a replica is all that helps.
    let mut cluster = start_with(3, 1, "[act]\nreplicas = \"auto\"\nlayers = \"off\"\n");
    cluster.append(0..3000);
    cluster.seal();
    until("the shard is at its node", || cluster.copies().len() == 1);
    let home = cluster.copies();
    let stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..12 {
            let (cluster, stopped) = (&cluster, &stopped);
            scope.spawn(move || {
                let mut client = cluster.client(thread % 2);
                while !stopped.load(Ordering::Relaxed) {
                    let path = "/datasets/lines/records?pattern=.*9%20is%20g.*e.*&limit=1000";
                    let reply = client.get(path);
                    assert!(matches!(reply.status, 200 | 503 | 504), "{}", reply.text());
                }
            });
        }
        until("another node has a copy", || cluster.copies().len() > 1);
        let served = |gateway: usize| {
            let status = cluster.client(gateway).get("/datasets/lines/layers");
            json(&status)["parts"].as_array().map_or(0, Vec::len) > 1
        };
        until("it serves the copy", || served(0));
        let count = json(&cluster.client(0).get("/datasets/lines/count?query=green"));
        assert_eq!(count["count"], 1000);
        stopped.store(true, Ordering::Relaxed);
    });
    let made = |gateway: usize| {
        let actions = json(&cluster.client(gateway).get("/actions"));
        let entries = actions["actions"].as_array().cloned().unwrap_or_default();
        entries.into_iter().filter(|entry| entry["knob"] == "replicas").collect::<Vec<_>>()
    };
    let all = [made(0), made(1)].concat();
    let first =
        all.iter().find(|entry| entry["status"] == "made").expect("an entry of the journal");
    assert_eq!(first["target"], "shard/lines/000001", "{first}");
    assert!(first["change"].as_str().unwrap().starts_with("one more replica"), "{first}");
    until("the copy is given up", || cluster.copies() == home);
    let count = json(&cluster.client(1).get("/datasets/lines/count?query=green"));
    assert_eq!(count["count"], 1000);
    cluster.stop();
}

/// A node that was started without datasets does not deny those that it has not.
#[test]
fn a_node_without_datasets_is_not_believed_about_records() {
    let mut cluster = start(2, 2);
    cluster.append(0..60);
    cluster.seal();
    cluster.check(0);
    cluster.nodes[1].take().unwrap().stop();
    let path = cluster.text.lines().find(|line| line.contains("copies-@NODE@")).unwrap();
    let without = cluster.text.replace(path, "");
    cluster.nodes[1] = Some(start_node(&without, 1));
    // Whichever of the two is asked first, a gateway answers.
    until("both nodes are used again", || {
        let status = json(&cluster.client(1).get("/admin/status"));
        let nodes = status["gateway"]["nodes"].as_array().unwrap().clone();
        nodes.iter().all(|node| node["state"] == "healthy")
    });
    for _ in 0..5 {
        cluster.check(1);
    }
    cluster.stop();
}

#[test]
fn what_is_asked_wrongly_is_said() {
    let mut cluster = start(1, 1);
    cluster.append(0..3);
    cluster.seal();
    let mut client = cluster.client(0);
    for (path, status, says) in [
        ("/datasets/nothing", 404, "no dataset"),
        ("/datasets/..%2f..", 404, "no dataset"),
        ("/datasets/lines/records", 400, "query, key and pattern"),
        ("/datasets/lines/records?query=%22", 400, ""),
        ("/datasets/lines/records?query=a&limit=0", 400, "limit"),
        ("/datasets/lines/records?query=a&limit=1000000", 400, "limit"),
        ("/datasets/lines/records?query=a&sorted=false&after=1", 400, "no next page"),
        ("/datasets/lines/records?queri=a", 400, "unknown parameter"),
        ("/datasets/lines/records?query=a&query=b", 400, "given twice"),
        ("/datasets/lines/records?key=a", 400, "no key"),
        ("/datasets/lines/records?pattern=%28", 400, ""),
        ("/datasets/lines/records/x", 400, "whole number"),
        ("/datasets/lines/records/99", 404, "no record 99"),
        ("/datasets/lines/count", 400, "query and bytes"),
        ("/datasets/lines/extract?offset=0&len=99999", 400, "not within"),
        ("/datasets/lines/extract?offset=1", 400, "len is missing"),
        ("/datasets/lines/export?from=x", 400, "whole number"),
        ("/datasets/lines/export?from=2&to=1", 400, "greater"),
        ("/datasets/lines/export?after=1", 400, "unknown parameter"),
        ("/datasets/lines/what", 404, "nothing here"),
        ("/datasets/lines/parts/000001/count?query=a", 404, "nothing here"),
    ] {
        let reply = client.get(path);
        assert_eq!(reply.status, status, "{path}: {}", reply.text());
        assert!(reply.text().contains(says), "{path}: {}", reply.text());
    }
    for (method, path, body, status) in [
        ("POST", "/datasets/lines/records", &b""[..], 200),
        ("DELETE", "/datasets/lines/records?ids=99", b"", 400),
        ("DELETE", "/datasets/lines/records?ids=a", b"", 400),
        ("PUT", "/datasets/lines/records", b"", 405),
        ("PUT", "/datasets/lines/layers?bytes=much", b"", 400),
        ("GET", "/datasets/lines/seal", b"", 405),
    ] {
        let reply = client.send(method, path, &[], Some(body)).unwrap();
        assert_eq!(reply.status, status, "{method} {path}: {}", reply.text());
    }
    let layers =
        json(&client.send("PUT", "/datasets/lines/layers?bytes=4096", &[], Some(b"")).unwrap());
    assert_eq!(layers["fixed_bytes"], 4096);
    until("layers", || {
        let now = json(&cluster.client(0).get("/datasets/lines/layers"));
        now["parts"][0]["layers"]["bytes"].as_u64().unwrap() > 0
    });
    cluster.check(0);
    cluster.stop();
}
