//! Hot nodes, with real processes: two nodes with slow disks, a hot node and a gateway. The hot node takes
//! most of the reads, what is written is seen at once, and it may die and come back.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::Value;

use crate::membership::{self, Etcd, World, json};
use crate::serve_client::{Client, Process, bytes, free, spawn, until, until_or};

const KEYS: u64 = 60;
const BYTES: usize = 4_000;
const CLIENTS: u64 = 6;

/// The processes of a cluster, and the versions of the objects that were acknowledged.
struct Cluster {
    folder: tempfile::TempDir,
    addresses: [SocketAddr; 3],
    /// Two nodes with disks, and the hot node; the last may be down.
    nodes: Vec<Option<Process>>,
    gateway: Process,
    versions: Vec<Mutex<u64>>,
}

fn members(addresses: &[SocketAddr; 3]) -> Vec<String> {
    let mut set = vec!["cluster.replicas=2".to_owned(), "cluster.lease_s=0.5".to_owned()];
    for (i, (name, address)) in ["a", "b", "h"].into_iter().zip(addresses).enumerate() {
        set.push(format!("member.{i}.name={name}"));
        set.push(format!("member.{i}.address={address}"));
    }
    set.push("member.2.class=hot".to_owned());
    set
}

fn start(folder: &Path, set: Vec<String>) -> Process {
    spawn(folder, &set.iter().map(String::as_str).collect::<Vec<_>>(), "")
}

/// A node: without memory, on a disk of 10 ms that serves one read at a time, or, the hot node, on a
/// folder as it is.
fn node(folder: &Path, addresses: &[SocketAddr; 3], name: &str) -> Process {
    let mut set = members(addresses);
    set.push("serve.role=node".to_owned());
    set.push(format!("cluster.name={name}"));
    set.push(format!("device.0.path={}/device-{name}", folder.display()));
    set.extend(
        ["node.memory_bytes=0", "device.0.bytes=64MiB", "tiers.popularity_s=5"].map(str::to_owned),
    );
    if name != "h" {
        set.push("device.0.service={kind=\"exponential\",mean_ms=10}".to_owned());
    }
    start(folder, set)
}

impl Cluster {
    fn start() -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let addresses = [free(), free(), free()];
        let nodes = ["a", "b", "h"].map(|name| Some(node(folder.path(), &addresses, name)));
        let mut set = members(&addresses);
        set.push("serve.role=gateway".to_owned());
        let gateway = start(folder.path(), set);
        let versions = (0..KEYS).map(|_| Mutex::new(0)).collect();
        let cluster = Cluster { folder, addresses, nodes: nodes.into(), gateway, versions };
        cluster.settle();
        for key in 0..KEYS {
            cluster.write(&mut Client::connect(cluster.gateway.address), key);
        }
        cluster
    }

    /// Waits until the hot node has leases.
    fn settle(&self) {
        until("leases of the hot node", || {
            let status = self.get_json(2, "/admin/status");
            let peers = status["cluster"]["peers"].as_array().unwrap().clone();
            peers.iter().filter(|peer| peer["leased"] == true).count() == 2
        });
    }

    fn get_json(&self, node: usize, path: &str) -> Value {
        let reply = Client::connect(self.addresses[node]).get(path);
        assert_eq!(reply.status, 200, "{}", reply.text());
        serde_json::from_slice(&reply.body).unwrap()
    }

    /// Writes the next version of an object. No reader of this test looks at it meanwhile.
    fn write(&self, client: &mut Client, key: u64) {
        let mut version = self.versions[key as usize].lock().unwrap();
        let put = client.put(&format!("/objects/{key}"), &bytes(key << 32 | (*version + 1), BYTES));
        assert_eq!(put.status, 200, "{}", put.text());
        *version += 1;
    }

    /// Reads an object, and fails if it is not the version that was acknowledged last.
    fn read(&self, client: &mut Client, key: u64) {
        let version = self.versions[key as usize].lock().unwrap();
        let got = client.get(&format!("/objects/{key}"));
        assert_eq!(got.status, 200, "{}", got.text());
        assert!(
            got.body == bytes(key << 32 | *version, BYTES),
            "object {key} is not version {version}"
        );
    }

    /// Reads with Zipf's law, and writes now and then, until told to stop. Returns the number of reads.
    fn load(&self, seed: u64, over: &AtomicBool, reads: &AtomicU64) {
        let mut client = Client::connect(self.gateway.address);
        let weights: Vec<f64> = (0..KEYS).map(|key| 1.0 / (key + 1) as f64).collect();
        let all: f64 = weights.iter().sum();
        let mut state = seed + 1;
        while !over.load(Ordering::Relaxed) {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let mut left = (state >> 11) as f64 / (1_u64 << 53) as f64 * all;
            let key = weights.iter().position(|weight| {
                left -= weight;
                left <= 0.0
            });
            let key = key.unwrap_or(0) as u64;
            if state >> 5 & 127 == 0 {
                self.write(&mut client, key);
            }
            self.read(&mut client, key);
            reads.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Reads that the hot node answered so far.
    fn hot_reads(&self) -> u64 {
        let status = Client::connect(self.gateway.address).get("/admin/status");
        let status: Value = serde_json::from_slice(&status.body).unwrap();
        status["gateway"]["counts"]["hot_reads"].as_u64().unwrap()
    }

    /// Waits until the hot node answers more than half of the reads of half a second.
    fn until_most_are_hot(&self, reads: &AtomicU64) {
        let last = Mutex::new(String::new());
        let share = || {
            let before = (self.hot_reads(), reads.load(Ordering::Relaxed));
            std::thread::sleep(std::time::Duration::from_millis(500));
            let after = (self.hot_reads(), reads.load(Ordering::Relaxed));
            let (hot, all) = (after.0 - before.0, after.1 - before.1);
            *last.lock().unwrap() = format!("{hot} of {all}");
            all > 20 && hot * 2 > all
        };
        until_or("most reads are the hot node's", || last.lock().unwrap().clone(), share);
        println!("hot reads in half a second: {}", last.lock().unwrap());
    }
}

fn status_of(address: SocketAddr) -> String {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_concertina"))
        .args(["status", "--server", &format!("http://{address}")])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_hot_node_serves_most_reads_sees_writes_at_once_and_dies_without_a_failed_read() {
    let mut cluster = Cluster::start();
    let (over, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    let hot = Mutex::new(cluster.nodes[2].take());
    let cluster = &cluster;
    std::thread::scope(|scope| {
        let (over, reads) = (&over, &reads);
        // A failed check ends the others too.
        struct Over<'a>(&'a AtomicBool);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let end = Over(over);
        let load = |seed| scope.spawn(move || cluster.load(seed, over, reads));
        let clients: Vec<_> = (0..CLIENTS).map(load).collect();
        cluster.until_most_are_hot(reads);

        let metrics = Client::connect(cluster.gateway.address).get("/metrics").text();
        assert!(!metrics.contains("concertina_gateway_hot_reads_total 0\n"), "{metrics}");
        let told =
            || [0, 1].map(|node| cluster.get_json(node, "/admin/tiers")["hot_nodes"].clone());
        // What hot nodes served is told once a second.
        until("nodes know what hot nodes served", || {
            told().iter().all(|told| told["bought"]["device_s"].as_f64().unwrap() > 0.0)
        });
        let tiers = told();
        for told in &tiers {
            assert!(told["keys"].as_u64().unwrap() > 0, "{told}");
            assert_eq!(told["hottest"][0]["nodes"], serde_json::json!(["h"]), "{told}");
            assert!(told["bought"]["device_s"].as_f64().unwrap() > 0.0, "{told}");
            assert!(told["last_minute"]["named"].as_u64().unwrap() > 0, "{told}");
        }
        let metrics = Client::connect(cluster.addresses[2]).get("/metrics").text();
        assert!(!metrics.contains("concertina_hot_node_served_total 0\n"), "{metrics}");
        assert!(status_of(cluster.addresses[0]).contains("hot nodes: "));
        assert!(status_of(cluster.addresses[2]).contains("hot node: served "));
        let told = status_of(cluster.gateway.address);
        assert!(told.contains("live, hot node") && told.contains("hot nodes: known for"), "{told}");

        // What is written is seen at once, through the gateway and at the hot node itself.
        let mut at_the_hot_node = Client::connect(cluster.addresses[2]);
        let mut client = Client::connect(cluster.gateway.address);
        for _ in 0..20 {
            cluster.write(&mut client, 0);
            cluster.read(&mut at_the_hot_node, 0);
            cluster.read(&mut client, 0);
        }
        let mut put = Client::connect(cluster.addresses[2]);
        assert_eq!(put.put("/objects/0", b"a hot node orders no writes").status, 421);

        // Killed, then back: no read fails meanwhile.
        drop(hot.lock().unwrap().take());
        let before = reads.load(Ordering::Relaxed);
        until("reads without the hot node", || reads.load(Ordering::Relaxed) > before + 100);
        *hot.lock().unwrap() = Some(node(cluster.folder.path(), &cluster.addresses, "h"));
        cluster.until_most_are_hot(reads);
        drop(end);
        clients.into_iter().for_each(|client| client.join().unwrap());
    });
}

#[test]
fn what_is_told_of_reads_is_checked_and_directories_are_fetched_by_version() {
    let folder = tempfile::tempdir().unwrap();
    let addresses = [free(), free(), free()];
    let _node = node(folder.path(), &addresses, "a");
    let mut set = members(&addresses);
    set.push("cluster.name=a".to_owned());
    let ring = configuration::Config::load(None, &set).unwrap().ring().unwrap();
    let ring = format!("{:016x}", ring.fingerprint());
    let mut client = Client::connect(addresses[0]);
    let mut told = |from: &str, body: &[u8]| {
        let headers = [
            ("concertina-protocol", "1"),
            ("concertina-ring", ring.as_str()),
            ("concertina-from", from),
        ];
        client.send("POST", "/cluster/reads", &headers, Some(body)).unwrap()
    };
    let good = br#"{"bytes_max":1000000,"reads":[[12345,7]]}"#;
    assert_eq!((told("h", good).status, told("b", good).status), (204, 204));
    let most = br#"{"bytes_max":18446744073709551615,"reads":[[18446744073709551615,4294967295]]}"#;
    assert_eq!(told("h", most).status, 204);
    assert_eq!((told("gateway", good).status, told("nobody", good).status), (400, 400));
    for bad in [
        &b""[..],
        b"{",
        b"[]",
        br#"{"bytes_max":-1,"reads":[]}"#,
        br#"{"bytes_max":1,"reads":[[1]]}"#,
    ] {
        let refused = told("h", bad);
        assert!(
            refused.status == 400 && refused.text().contains("does not say"),
            "{}",
            refused.text()
        );
    }
    let plain = Client::connect(addresses[0]).send("POST", "/cluster/reads", &[], Some(good));
    assert_eq!(plain.unwrap().status, 400);
    let mut long = Client::connect(addresses[0]);
    let headers = [
        ("concertina-protocol", "1"),
        ("concertina-ring", ring.as_str()),
        ("concertina-from", "h"),
    ];
    let refused = long.send("POST", "/cluster/reads", &headers, Some(&[b' '; 100_000])).unwrap();
    assert!(refused.status == 400 && refused.text().contains("too long"), "{}", refused.text());

    let ping = |version: &str| {
        let headers = [
            ("concertina-protocol", "1"),
            ("concertina-ring", ring.as_str()),
            ("concertina-from", "gateway"),
            ("concertina-hot-version", version),
        ];
        let mut client = Client::connect(addresses[0]);
        client.send("GET", "/cluster/ping", &headers, None).unwrap()
    };
    let first = ping("0");
    let directory: Value = serde_json::from_slice(&first.body).unwrap();
    assert_eq!((first.status, &directory["keys"]), (200, &serde_json::json!([])));
    for known in [directory["version"].to_string().as_str(), "no number"] {
        let same = ping(known);
        assert!(same.status == 200 && same.body.is_empty(), "{known}: {}", same.text());
    }
}

#[test]
fn a_hot_node_enters_the_list_in_etcd_and_is_drained() {
    let folder = tempfile::tempdir().unwrap();
    let Some(etcd) = Etcd::start(folder.path()) else { return };
    let mut world = World::new(folder, etcd, &[]);
    let slow = [
        "node.memory_bytes=0",
        "tiers.popularity_s=5",
        "device.0.service={kind=\"exponential\",mean_ms=5}",
    ];
    let _keyed = ["a", "b"].map(|name| world.node_with(name, &slow));
    let _hot = world.node_with("h", &["membership.class=hot", "tiers.popularity_s=5"]);
    let gateway = world.gateway();
    let at = gateway.address();
    until("three members", || membership::members(at).iter().filter(|it| it.2).count() == 3);
    let mut client = Client::connect(at);
    for key in 0..8 {
        // A write may wait until the order of its key is settled.
        until("a write", || {
            client.put(&format!("/objects/{key}"), &bytes(key, BYTES)).status == 200
        });
    }
    let hot_reads =
        || json(at, "/admin/status")["gateway"]["counts"]["hot_reads"].as_u64().unwrap();
    let mut read_all = || {
        for key in 0..8 {
            let got = client.get(&format!("/objects/{key}"));
            assert!(got.status == 200 && got.body == bytes(key, BYTES), "{}", got.text());
        }
    };
    until("reads of the hot node", || {
        read_all();
        hot_reads() > 50
    });
    let status = json(at, "/admin/status");
    let of = |name: &str| {
        let members = status["members"].as_array().unwrap().clone();
        members.into_iter().find(|member| member["name"] == name).unwrap()
    };
    assert_eq!((&of("h")["hot"], &of("h")["share"]), (&true.into(), &0.0.into()), "{status}");
    assert_eq!(of("a")["hot"], false);
    // Drained, it is no key's hot node any more, and takes none.
    let drained = std::process::Command::new(env!("CARGO_BIN_EXE_concertina"))
        .args(["drain", "h", "--server", &format!("http://{at}")])
        .output()
        .unwrap();
    assert!(drained.status.success(), "{}", String::from_utf8_lossy(&drained.stderr));
    let there = world.addresses["h"];
    until("the hot node to refuse keys", || Client::connect(there).get("/objects/0").status == 421);
    until("no more reads of the hot node", || {
        let before = hot_reads();
        (0..10).for_each(|_| read_all());
        hot_reads() == before
    });
    gateway.stop();
}

#[test]
fn a_cluster_of_hot_nodes_alone_is_refused_by_name() {
    let set = [
        "cluster.name=h",
        "member.0.name=h",
        "member.0.address=127.0.0.1:7071",
        "member.0.class=hot",
    ];
    let set = set.map(str::to_owned);
    let told = configuration::Config::load(None, &set).unwrap_err().to_string();
    assert!(told.contains("at least one must have keys"), "{told}");
}
