//! Several nodes in this process over one folder: what is read after a write, and what happens when
//! nodes die, differ or are late.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use configuration::Config;
use engine::route::{NodeId, Ring};
use serve::Server;

use crate::serve_client::{Client, Reply, bytes, free, overrides, spawn, until};

/// Length of a lease in these tests, seconds.
const LEASE_S: f64 = 0.5;

/// A cluster's configuration, and those of its nodes that run.
struct Cluster {
    folder: tempfile::TempDir,
    members: Vec<String>,
    addresses: Vec<SocketAddr>,
    ring: Arc<Ring>,
    nodes: Vec<Option<Server>>,
}

/// What to set for node `i`.
fn settings(folder: &Path, members: &[String], node: usize, more: &[&str]) -> Vec<String> {
    let path = folder.display();
    let mut set = overrides(
        folder,
        &["serve.role=node", "serve.drain_s=0.5", "observe.window_s=0.2", "serve.threads=1"],
    );
    set.push(format!("device.0.path={path}/device-{node}"));
    set.push(format!("cluster.name=n{node}"));
    set.push(format!("cluster.lease_s={LEASE_S}"));
    set.extend(members.iter().cloned());
    set.extend(more.iter().map(|&text| text.to_owned()));
    set
}

fn start_node(folder: &Path, members: &[String], node: usize, more: &[&str]) -> Server {
    let set = settings(folder, members, node, more);
    let config = Config::load(None, &set).unwrap_or_else(|error| panic!("{error}"));
    Server::start(config, None).unwrap()
}

impl Cluster {
    fn start(count: usize) -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let addresses: Vec<SocketAddr> = (0..count).map(|_| free()).collect();
        let mut members = Vec::new();
        for (i, address) in addresses.iter().enumerate() {
            members.push(format!("member.{i}.name=n{i}"));
            members.push(format!("member.{i}.address={address}"));
        }
        let set = settings(folder.path(), &members, 0, &[]);
        let ring = Config::load(None, &set).unwrap().ring().unwrap();
        let start = |i| Some(start_node(folder.path(), &members, i, &[]));
        let nodes = (0..count).map(start).collect();
        let cluster = Cluster { folder, members, addresses, ring, nodes };
        cluster.settle();
        cluster
    }

    fn client(&self, node: NodeId) -> Client {
        Client::connect(self.addresses[node])
    }

    /// Waits until every node that runs has leases of all others that do.
    fn settle(&self) {
        let running: Vec<usize> =
            (0..self.nodes.len()).filter(|&node| self.nodes[node].is_some()).collect();
        for &node in &running {
            until("leases", || {
                let peers = &self.status(node)["cluster"]["peers"];
                let leased = |other: usize| {
                    let name = self.ring.name(other);
                    let peers = peers.as_array().unwrap().iter();
                    peers.into_iter().any(|peer| peer["name"] == name && peer["leased"] == true)
                };
                running.iter().all(|&other| other == node || leased(other))
            });
        }
    }

    fn status(&self, node: usize) -> serde_json::Value {
        let reply = self.client(node).get("/admin/status");
        serde_json::from_slice(&reply.body).unwrap()
    }

    fn stop(&mut self, node: usize) {
        self.nodes[node].take().unwrap().stop();
    }

    /// A key, its primary and a replica.
    fn key(&self, index: u64) -> (String, NodeId, NodeId) {
        let key = format!("k{index}");
        let mut nodes = self.ring.replicas(key.as_bytes()).iter();
        let (primary, replica) = (nodes.next().unwrap(), nodes.next().unwrap());
        (format!("/objects/{key}"), primary, replica)
    }

    /// A key whose primary is this node.
    fn key_of(&self, primary: NodeId) -> String {
        (0..).map(|i| self.key(i)).find(|(_, first, _)| *first == primary).unwrap().0
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in self.nodes.iter_mut().filter_map(Option::take) {
            node.stop();
        }
    }
}

fn outcome(reply: &Reply) -> &str {
    reply.header("concertina-outcome").unwrap_or("none")
}

/// The headers of a gateway that fits.
fn gateway(ring: &Ring) -> Vec<(&'static str, String)> {
    vec![
        ("concertina-protocol", "1".to_owned()),
        ("concertina-ring", format!("{:016x}", ring.fingerprint())),
        ("concertina-from", "gateway".to_owned()),
    ]
}

fn send(client: &mut Client, method: &str, path: &str, headers: &[(&str, String)]) -> Reply {
    let headers: Vec<(&str, &str)> = headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
    client.send(method, path, &headers, None).unwrap()
}

#[test]
fn copies_come_from_the_primary_and_offers_make_replicas_warm() {
    let cluster = Cluster::start(3);
    let (path, primary, replica) = cluster.key(0);
    let third = 3 - primary - replica;
    let body = bytes(7, 100_000);
    assert_eq!(cluster.client(primary).put(&path, &body).status, 200);
    let got = cluster.client(replica).get(&path);
    assert_eq!((got.status, outcome(&got)), (200, "replica"), "{}", got.text());
    assert_eq!(got.body, body);
    assert_eq!(outcome(&cluster.client(replica).get(&path)), "memory");
    // The second read at the primary offers it to both others.
    let mut client = cluster.client(primary);
    let asked = gateway(&cluster.ring);
    send(&mut client, "GET", &path, &asked);
    let second = send(&mut client, "GET", &path, &asked);
    assert_eq!(second.body, body);
    assert!(second.header("concertina-node-length").is_some());
    until("copy", || {
        let warm = send(&mut client, "GET", &path, &asked);
        let metrics = cluster.client(third).get("/metrics").text();
        warm.header("concertina-warm").is_some()
            && metrics.contains("concertina_peer_fills_total{result=\"found\"} 1")
    });
    until("warm replica", || {
        let got = cluster.client(third).get(&path);
        got.body == body && matches!(outcome(&got), "bulk_device" | "memory")
    });
    assert_eq!(cluster.client(primary).get("/admin/status").status, 200);
    // What a client says of itself is not believed.
    let plain = cluster.client(primary).get(&path);
    assert_eq!(plain.header("concertina-node-length"), None);
}

#[test]
fn what_belongs_to_another_node_is_misdirected() {
    let cluster = Cluster::start(4);
    let (path, _, replica) = cluster.key(0);
    let nodes: Vec<NodeId> = cluster.ring.replicas(b"k0").iter().collect();
    let none = (0..4).find(|node| !nodes.contains(node)).unwrap();
    assert_eq!(cluster.client(none).get(&path).status, 421);
    assert_eq!(cluster.client(none).put(&path, b"x").status, 421);
    assert_eq!(cluster.client(replica).put(&path, b"x").status, 421);
    let refused = cluster.client(replica).send("DELETE", &path, &[], None).unwrap();
    assert_eq!(refused.status, 421);
    assert_eq!(cluster.client(nodes[0]).put(&path, b"x").status, 200);
    assert_eq!(cluster.client(replica).get(&path).body, b"x");
    // A peer's read is answered from the tiers alone.
    let mut asked = gateway(&cluster.ring);
    asked.push(("concertina-fill", "1".to_owned()));
    let absent = send(&mut cluster.client(nodes[0]), "GET", "/objects/k0", &asked);
    assert_eq!(absent.status, 200);
    assert!(absent.header("concertina-age-ns").is_some());
    assert!(absent.body.len() > 1);
}

#[test]
fn no_read_after_an_acknowledged_write_is_older() {
    let cluster = Cluster::start(3);
    let (path, primary, _) = cluster.key(1);
    let acknowledged = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    assert_eq!(cluster.client(primary).put(&path, b"0").status, 200);
    std::thread::scope(|scope| {
        let mut readers = Vec::new();
        for node in 0..3 {
            let (cluster, path) = (&cluster, &path);
            let (acknowledged, over) = (&acknowledged, &over);
            readers.push(scope.spawn(move || {
                let mut client = cluster.client(node);
                let mut reads = 0_u64;
                while !over.load(Ordering::SeqCst) {
                    let least = acknowledged.load(Ordering::SeqCst);
                    let got = client.get(path);
                    assert_eq!(got.status, 200, "{}", got.text());
                    let version: u64 = got.text().parse().unwrap();
                    assert!(version >= least, "node {node} gave {version} after {least}");
                    reads += 1;
                }
                reads
            }));
        }
        let mut client = cluster.client(primary);
        for version in 1..=200_u64 {
            let put = client.put(&path, version.to_string().as_bytes());
            assert_eq!(put.status, 200, "{}", put.text());
            acknowledged.store(version, Ordering::SeqCst);
        }
        over.store(true, Ordering::SeqCst);
        for reader in readers {
            assert!(reader.join().unwrap() > 10);
        }
    });
    let metrics = cluster.client(primary).get("/metrics").text();
    assert!(!metrics.contains("concertina_invalidations_total{result=\"sent\"} 0\n"), "{metrics}");
}

#[test]
fn writes_wait_for_a_dead_replica_as_long_as_its_lease_and_reads_outlive_the_primary() {
    let mut cluster = Cluster::start(3);
    let (path, primary, replica) = cluster.key(2);
    let mut client = cluster.client(primary);
    assert_eq!(client.put(&path, b"1").status, 200);
    assert_eq!(cluster.client(replica).get(&path).body, b"1");
    drop(cluster.client(replica));
    cluster.stop(replica);
    let start = Instant::now();
    let put = client.put(&path, b"2");
    assert_eq!(put.status, 200, "{}", put.text());
    let waited = start.elapsed().as_secs_f64();
    // The lease, its margin, and some time of a busy machine.
    assert!(waited < LEASE_S * 1.2 + 20.0, "the write waited {waited} s");
    let metrics = client.get("/metrics").text();
    assert!(metrics.contains("concertina_writes_held_total"), "{metrics}");
    let third = 3 - primary - replica;
    assert_eq!(cluster.client(third).get(&path).body, b"2");
    // The primary goes too. Its writes wait for it; reads are compared with the origin.
    drop(client);
    cluster.stop(primary);
    std::thread::sleep(Duration::from_secs_f64(LEASE_S * 1.2));
    assert_eq!(cluster.client(third).get(&path).body, b"2");
    assert_eq!(cluster.client(third).put(&path, b"3").status, 421);
    // And comes back: a write at once waits until what its predecessor granted has ended.
    let folder = cluster.folder.path();
    cluster.nodes[primary] = Some(start_node(folder, &cluster.members, primary, &[]));
    assert_eq!(cluster.client(primary).put(&path, b"3").status, 200);
    assert_eq!(cluster.client(third).get(&path).body, b"3");
}

#[test]
fn a_node_that_was_stopped_serves_nothing_that_it_missed() {
    let addresses = [free(), free()];
    let folder = tempfile::tempdir().unwrap();
    let mut members = Vec::new();
    for (i, address) in addresses.iter().enumerate() {
        members.push(format!("member.{i}.name=n{i}"));
        members.push(format!("member.{i}.address={address}"));
    }
    let set = settings(folder.path(), &members, 1, &[]);
    let ring = Config::load(None, &set).unwrap().ring().unwrap();
    let key = (0..).map(|i| format!("k{i}"));
    let key = key.into_iter().find(|key| ring.replicas(key.as_bytes()).place(0) == Some(0));
    let path = format!("/objects/{}", key.unwrap());
    let server = start_node(folder.path(), &members, 0, &[]);
    let process = spawn(folder.path(), &set.iter().map(String::as_str).collect::<Vec<_>>(), "");
    assert_eq!(process.address, addresses[1]);
    let (mut here, mut there) = (Client::connect(addresses[0]), Client::connect(addresses[1]));
    until("lease", || {
        let status = there.get("/admin/status");
        let status: serde_json::Value = serde_json::from_slice(&status.body).unwrap();
        status["cluster"]["peers"][0]["leased"] == true
    });
    assert_eq!(here.put(&path, b"old").status, 200);
    assert_eq!(there.get(&path).body, b"old");
    assert_eq!(outcome(&there.get(&path)), "memory");
    process.signal("-STOP");
    assert_eq!(here.put(&path, b"new").status, 200);
    // Asked while it is stopped, it answers when it goes on.
    let late = std::thread::spawn(move || there.get(&path));
    std::thread::sleep(Duration::from_millis(50));
    process.signal("-CONT");
    assert_eq!(late.join().unwrap().body, b"new");
    server.stop();
}

#[test]
fn processes_that_differ_are_refused_by_name_and_the_rest_is_served() {
    let mut cluster = Cluster::start(3);
    cluster.stop(2);
    // One node has another weight for itself: another ring.
    let folder = cluster.folder.path();
    let other = start_node(folder, &cluster.members, 2, &["member.2.weight=2"]);
    cluster.nodes[2] = Some(other);
    until("mismatch", || {
        let named = |node: usize, other: &str| {
            let status = cluster.status(node);
            let all = status["mismatches"].as_array().unwrap().clone();
            all.iter().any(|m| m["peer"] == other && m["what"].as_str().unwrap().contains("ring"))
        };
        named(0, "n2") && named(2, "n0") && named(2, "n1") && !named(0, "n1")
    });
    let path = cluster.key_of(0);
    assert_eq!(cluster.client(0).put(&path, b"x").status, 200);
    assert_eq!(cluster.client(1).get(&path).body, b"x");

    let mut client = cluster.client(0);
    let mut headers = gateway(&cluster.ring);
    assert_eq!(send(&mut client, "GET", "/cluster/ping", &headers).status, 200);
    // Behind another bucket, the same key is another object.
    headers.push(("concertina-origin", "0000000000000001".to_owned()));
    let refused = send(&mut client, "GET", &path, &headers);
    assert!(refused.status == 409 && refused.text().contains("bucket"), "{}", refused.text());
    headers.pop();
    headers[1].1 = "0000000000000001".to_owned();
    let refused = send(&mut client, "GET", &path, &headers);
    assert_eq!(refused.status, 409);
    let (ours, text) = (format!("{:016x}", cluster.ring.fingerprint()), refused.text());
    assert!(text.contains("0000000000000001") && text.contains(&ours), "{text}");
    headers[0].1 = "2".to_owned();
    let refused = send(&mut client, "GET", &path, &headers);
    assert_eq!(refused.status, 409);
    assert!(refused.text().contains("protocol of gateway is 2"), "{}", refused.text());
    // A node's endpoints are for the other members.
    let lease = |from: &str| {
        let mut headers = gateway(&cluster.ring);
        headers[2].1 = from.to_owned();
        send(&mut cluster.client(0), "POST", "/cluster/lease", &headers).status
    };
    assert_eq!((lease("n1"), lease("gateway"), lease("n0"), lease("x")), (200, 400, 400, 400));
    assert_eq!(client.get("/cluster/lease").status, 405);
    assert_eq!(client.get("/cluster/nothing").status, 404);
    assert_eq!(client.get(&path).body, b"x");
}

#[test]
fn a_deadline_that_passes_is_answered_504() {
    let folder = tempfile::tempdir().unwrap();
    let slow = "{kind=\"exponential\",mean_ms=2000}";
    let server = crate::serve_client::start(
        folder.path(),
        &["node.memory_bytes=0", &format!("device.0.service={slow}")],
    );
    let mut client = Client::connect(server.address());
    assert_eq!(client.put("/objects/k", &bytes(1, 1000)).status, 200);
    let late = |ms: &'static str| [("concertina-deadline-ms", ms)];
    // Until the device has it, the origin gives it, and that may be in time.
    let on_device = |client: &mut Client| {
        let status = client.send("GET", "/admin/status", &[], None).unwrap();
        status.text().contains("\"device_objects\":1")
    };
    while !on_device(&mut client) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let first = client.send("GET", "/objects/k", &late("1"), None).unwrap();
    assert_eq!(first.status, 504, "{}", first.text());
    let write = client.send("PUT", "/objects/k", &late("0"), Some(b"x")).unwrap();
    assert_eq!(write.status, 504, "{}", write.text());
    assert_eq!(client.send("GET", "/objects/k", &late("soon"), None).unwrap().status, 400);
    server.stop();
}
