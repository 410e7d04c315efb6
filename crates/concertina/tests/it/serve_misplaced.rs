//! Processes that are started while their origin is missing, emptied or another one: alone, among others, with their disks and
//! without.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use configuration::Config;
use serde_json::Value;
use serve::Server;

use crate::membership::{Etcd, World};
use crate::serve_client::{Client, free, overrides, until};

/// What is at the place of the origin, which is a link, when a process starts.
#[derive(Clone, Copy, Debug)]
enum Place {
    Missing,
    Empty,
    Strangers,
    Another,
}

const PLACES: [Place; 4] = [Place::Missing, Place::Empty, Place::Strangers, Place::Another];

/// Points a link to a folder, as a file system is mounted.
fn point(link: &Path, folder: &Path) {
    let _ = fs::remove_file(link);
    std::os::unix::fs::symlink(folder, link).unwrap();
}

/// Makes a place, and points the link to it.
fn misplace(link: &Path, place: Place) -> PathBuf {
    let folder = link.with_file_name(format!("{place:?}"));
    match place {
        Place::Missing => {}
        Place::Empty => fs::create_dir_all(&folder).unwrap(),
        Place::Strangers => {
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("photo.jpg"), "precious").unwrap();
        }
        Place::Another => {
            drop(origin::Folder::open(&folder, 1, origin::Sharing::Alone).unwrap());
        }
    }
    point(link, &folder);
    folder
}

fn names(folder: &Path) -> Vec<std::ffi::OsString> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    names
}

fn start(folder: &Path, more: &[&str]) -> Server {
    let config = Config::load(None, &overrides(folder, more)).unwrap();
    Server::start(config, None).unwrap()
}

fn status(address: SocketAddr) -> Value {
    serde_json::from_str(&Client::connect(address).get("/admin/status").text()).unwrap()
}

/// Nothing is served from what is at the place, and nothing is written to it.
fn refuses(address: SocketAddr, place: Place, folder: &Path) {
    let before = names(folder);
    let mut client = Client::connect(address);
    let ready = client.get("/readyz");
    assert_eq!(ready.status, 503, "{place:?}: {}", ready.text());
    assert!(ready.text().contains("the origin is not there"), "{}", ready.text());
    assert_eq!(client.get("/healthz").status, 200);
    for path in ["/objects/k", "/objects/never"] {
        let reply = client.get(path);
        assert!(matches!(reply.status, 502..=504), "{place:?}: {path} {}", reply.text());
    }
    for reply in [
        client.put("/objects/k", b"new"),
        client.put("/objects/j", b"new"),
        client.send("DELETE", "/objects/k", &[], None).unwrap(),
        client.get("/objects?prefix="),
    ] {
        assert!(matches!(reply.status, 502..=504), "{place:?}: {}", reply.text());
    }
    assert!(!status(address)["origin"]["lost"].is_null(), "{}", status(address));
    assert_eq!(names(folder), before, "{place:?}: nothing was made there");
}

/// A node alone, whose device, state folder or copies of datasets remember.
#[test]
fn a_node_alone_waits_for_the_origin_that_it_served() {
    for keeper in ["device.0.path", "node.state_path", "datasets.path"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let (link, right) = (path.join("origin"), path.join("right"));
        let keeps = format!("{keeper}={}", path.join("keeper").display());
        // Objects are in the origin alone.
        let more = ["device=[]", "node.memory_bytes=64KiB", "node.revalidate_s=0.001", &keeps];
        let more = if keeper == "device.0.path" { &more[1..] } else { &more[..] };
        fs::create_dir(&right).unwrap();
        point(&link, &right);
        let server = start(path, more);
        assert_eq!(Client::connect(server.address()).put("/objects/k", b"old").status, 200);
        let id = status(server.address())["origin"]["id"].clone();
        server.stop();
        for place in PLACES {
            let wrong = misplace(&link, place);
            let server = start(path, more);
            if keeper == "device.0.path" {
                // The copy on the device is compared with the origin first.
                assert_ne!(Client::connect(server.address()).get("/objects/k").status, 404);
            } else {
                refuses(server.address(), place, &wrong);
            }
            assert_eq!(Client::connect(server.address()).put("/objects/j", b"x").status, 503);
            point(&link, &right);
            let mut client = Client::connect(server.address());
            until("the right origin is served", || client.get("/readyz").status == 200);
            assert_eq!(client.get("/objects/k").body, b"old", "{place:?}");
            assert_eq!(client.get("/objects/j").status, 404);
            assert_eq!(client.put("/objects/l", b"new").status, 200);
            assert_eq!(status(server.address())["origin"]["id"], id);
            server.stop();
        }
    }
}

#[test]
fn an_operator_may_order_to_take_another_origin() {
    let folder = tempfile::tempdir().unwrap();
    let (path, link) = (folder.path(), folder.path().join("origin"));
    let config = || Config::load(None, &overrides(path, &[])).unwrap();
    let server = Server::start(config(), None).unwrap();
    assert_eq!(Client::connect(server.address()).put("/objects/k", b"old").status, 200);
    server.stop();
    fs::rename(&link, path.join("away")).unwrap();
    let server = Server::start_with(config(), None, true).unwrap();
    let mut client = Client::connect(server.address());
    assert_eq!(client.put("/objects/j", b"new").status, 200);
    let id = status(server.address())["origin"]["id"].clone();
    server.stop();
    // From then on, that one is remembered.
    let server = start(path, &[]);
    assert_eq!(status(server.address())["origin"]["id"], id);
    assert_eq!(Client::connect(server.address()).get("/objects/j").body, b"new");
    server.stop();
    fs::rename(&link, path.join("other")).unwrap();
    fs::rename(path.join("away"), &link).unwrap();
    let server = start(path, &[]);
    assert_eq!(Client::connect(server.address()).get("/readyz").status, 503);
    server.stop();
    // A stranger's folder is not made an origin, not even by order.
    fs::rename(&link, path.join("away")).unwrap();
    fs::create_dir(&link).unwrap();
    fs::write(link.join("photo.jpg"), "precious").unwrap();
    let server = Server::start_with(config(), None, true).unwrap();
    assert_eq!(Client::connect(server.address()).get("/readyz").status, 503);
    server.stop();
    assert_eq!(names(&link), ["photo.jpg"]);
}

#[test]
fn folders_that_remember_different_origins_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    start(&path.join("a"), &[]).stop();
    start(&path.join("b"), &[]).stop();
    let state = format!("datasets.path={}/b/device", path.display());
    let both = |more: &[&str]| {
        let config = Config::load(None, &overrides(&path.join("a"), more)).unwrap();
        Server::start(config, None).err().map(|error| format!("{error:#}")).unwrap_or_default()
    };
    let error = both(&[&state]);
    assert!(error.contains("remembers the origin") && error.contains("b/device"), "{error}");
}

/// Three nodes with static members, each with a link of its own to the one origin, and a gateway.
struct Three {
    folder: tempfile::TempDir,
    members: Vec<SocketAddr>,
    nodes: Vec<Option<Server>>,
    gateway: Option<Server>,
}

impl Three {
    fn new() -> Three {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("right")).unwrap();
        let members: Vec<SocketAddr> = (0..3).map(|_| free()).collect();
        let mut it = Three { folder, members, nodes: Vec::new(), gateway: None };
        for node in 0..4 {
            point(&it.link(node), &it.folder.path().join("right"));
        }
        it.nodes = (0..3).map(|node| Some(it.node(node))).collect();
        it.gateway = Some(it.gateway_now());
        it
    }

    /// The fourth is the gateway's.
    fn link(&self, node: usize) -> PathBuf {
        let folder = self.folder.path().join(node.to_string());
        fs::create_dir_all(&folder).unwrap();
        folder.join("origin")
    }

    fn config(&self, node: usize, more: &[String]) -> Config {
        let mut text = "[cluster]\nreplicas = 3\nlease_s = 0.5\n".to_owned();
        if node < 3 {
            text.push_str(&format!("name = \"n{node}\"\n"));
        }
        for (index, address) in self.members.iter().enumerate() {
            text.push_str(&format!("[[member]]\nname = \"n{index}\"\naddress = \"{address}\"\n"));
        }
        let mut set = vec![
            format!("origin.path={}", self.link(node).display()),
            format!("device.0.path={}", self.link(node).with_file_name("device").display()),
            "serve.drain_s=0.2".to_owned(),
            "serve.listen=127.0.0.1:0".to_owned(),
            "node.revalidate_s=0.001".to_owned(),
        ];
        set.extend_from_slice(more);
        Config::parse(&text, "test", &set).unwrap()
    }

    fn node(&self, node: usize) -> Server {
        Server::start(self.config(node, &["serve.role=node".to_owned()]), None).unwrap()
    }

    fn gateway_now(&self) -> Server {
        Server::start(self.config(3, &["serve.role=gateway".to_owned()]), None).unwrap()
    }

    fn stop(mut self) {
        self.gateway.take().unwrap().stop();
        self.nodes.into_iter().flatten().for_each(Server::stop);
    }
}

/// Writes and reads through a gateway: nothing older than what was acknowledged, and no key that is absent.
fn exercise(client: &mut Client, acknowledged: &mut [u32], rounds: u32) {
    for round in 0..rounds {
        for (key, newest) in acknowledged.iter_mut().enumerate() {
            let path = format!("/objects/k{key}");
            let value = *newest + 1 + round;
            if client.put(&path, value.to_string().as_bytes()).status == 200 {
                *newest = value;
            }
            let reply = client.get(&path);
            if reply.status == 200 {
                let found: u32 = reply.text().parse().unwrap();
                assert!(found >= *newest, "{path}: {found} was read, {newest} was acknowledged");
            } else {
                assert!(reply.status >= 500, "{path}: {} {}", reply.status, reply.text());
            }
        }
    }
}

#[test]
fn a_member_on_a_wrong_origin_serves_nothing_and_is_shown() {
    let mut three = Three::new();
    let gateway = three.gateway.as_ref().unwrap().address();
    let mut client = Client::connect(gateway);
    let mut acknowledged = [0; 12];
    exercise(&mut client, &mut acknowledged, 2);
    for (round, place) in PLACES.into_iter().cycle().take(8).enumerate() {
        let (node, wiped) = (round % 3, round >= 4);
        three.nodes[node].take().unwrap().stop();
        let link = three.link(node);
        misplace(&link, place);
        if wiped {
            // New disks: the node remembers nothing, and the others say which origin is theirs.
            fs::remove_dir_all(link.with_file_name("device")).unwrap();
        }
        let server = three.node(node);
        let mut direct = Client::connect(server.address());
        assert_eq!(direct.get("/readyz").status, 503, "{place:?}, wiped: {wiped}");
        for key in 0..12 {
            let status = direct.get(&format!("/objects/k{key}")).status;
            assert_ne!(status, 404, "{place:?}, wiped: {wiped}");
        }
        exercise(&mut client, &mut acknowledged, 3);
        point(&link, &three.folder.path().join("right"));
        until("it serves again", || direct.get("/readyz").status == 200);
        exercise(&mut client, &mut acknowledged, 2);
        three.nodes[node] = Some(server);
    }
    for (key, newest) in acknowledged.iter().enumerate() {
        let path = format!("/objects/k{key}");
        until("every key is read", || client.get(&path).text() == newest.to_string());
    }
    three.stop();
}

/// All others are away, so that nobody says which origin is right: the newcomer makes its own, and nobody relies on it.
#[test]
fn a_newcomer_with_an_origin_of_its_own_is_not_relied_on() {
    let mut three = Three::new();
    let gateway = three.gateway.as_ref().unwrap().address();
    let mut client = Client::connect(gateway);
    let mut acknowledged = [0; 8];
    exercise(&mut client, &mut acknowledged, 2);
    three.nodes.iter_mut().for_each(|node| node.take().unwrap().stop());
    let link = three.link(1);
    misplace(&link, Place::Empty);
    fs::remove_dir_all(link.with_file_name("device")).unwrap();
    let newcomer = three.node(1);
    // The gateway serves the right origin, and so refuses the newcomer; it reads the origin itself.
    exercise(&mut client, &mut acknowledged, 2);
    three.nodes[0] = Some(three.node(0));
    three.nodes[2] = Some(three.node(2));
    until("it hears of the others", || {
        Client::connect(newcomer.address()).get("/readyz").status == 503
    });
    let ready = Client::connect(newcomer.address()).get("/readyz");
    assert!(ready.text().contains("the other members serve another one"), "{}", ready.text());
    exercise(&mut client, &mut acknowledged, 3);
    until("the gateway shows it", || {
        let mismatches = status(gateway)["mismatches"].to_string();
        mismatches.contains("n1") && mismatches.contains("origin")
    });
    for node in [0, 2] {
        let address = three.nodes[node].as_ref().unwrap().address();
        assert_eq!(Client::connect(address).get("/readyz").status, 200, "they do not yield");
    }
    newcomer.stop();
    three.stop();
}

/// A gateway makes no origin, and does not read one that is not that of the nodes.
#[test]
fn a_gateway_on_a_wrong_origin_reads_nothing_from_it() {
    let mut three = Three::new();
    let mut client = Client::connect(three.gateway.as_ref().unwrap().address());
    let mut acknowledged = [0; 4];
    exercise(&mut client, &mut acknowledged, 2);
    for place in [Place::Missing, Place::Empty, Place::Another] {
        three.gateway.take().unwrap().stop();
        let wrong = misplace(&three.link(3), place);
        let before = names(&wrong);
        let gateway = three.gateway_now();
        let mut client = Client::connect(gateway.address());
        assert_eq!(client.get("/readyz").status, 503, "{place:?}");
        assert!(client.get("/objects?prefix=").status >= 500, "{place:?}");
        exercise(&mut client, &mut acknowledged, 1);
        let nodes: Vec<Server> = three.nodes.iter_mut().map(|node| node.take().unwrap()).collect();
        nodes.into_iter().for_each(Server::stop);
        assert!(client.get("/objects/k0").status >= 500, "{place:?}");
        assert_eq!(names(&wrong), before, "{place:?}");
        three.nodes = (0..3).map(|node| Some(three.node(node))).collect();
        three.gateway = Some(gateway);
    }
    three.stop();
}

/// etcd remembers the origin for nodes that have lost their disks, before any of the others is there.
#[test]
fn etcd_remembers_the_origin_of_a_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let Some(etcd) = Etcd::start(folder.path()) else { return };
    let mut world = World::new(folder, etcd, &[]);
    let path = world.folder.path().to_owned();
    let node = world.node("a");
    let mut client = Client::connect(node.address);
    until("a serves", || client.put("/objects/k", b"old").status == 200);
    let id = status(node.address)["origin"]["id"].clone();
    drop(node);
    fs::rename(path.join("origin"), path.join("away")).unwrap();
    fs::remove_dir_all(path.join("device-a")).unwrap();
    let node = world.node("a");
    let mut client = Client::connect(node.address);
    let ready = client.get("/readyz");
    assert_eq!(ready.status, 503, "{}", ready.text());
    assert!(ready.text().contains("etcd"), "{}", ready.text());
    assert!(!path.join("origin").exists());
    fs::rename(path.join("away"), path.join("origin")).unwrap();
    until("a serves again", || client.get("/objects/k").body == b"old");
    assert_eq!(status(node.address)["origin"]["id"], id);
    drop(node);
}
