//! The proxy in front of Concertina nodes that speak memcached's protocol.

use std::path::Path;

use super::{REPLIES, Running, SCRIPT, proxy, serve, talk};
use crate::origin_s3::Store;
use crate::serve_client::until;
use crate::serve_s3::before;

const NODE: &str = "memcached.node_listen=127.0.0.1:0";

/// A node without an origin, and its address.
fn cache(folder: &Path, listen: &str) -> (Running, String) {
    let (process, _, address) = serve(folder, &[listen, "origin.kind=none"]);
    (process, address)
}

fn ask(address: &str, commands: &str) -> String {
    talk(address, format!("{commands}quit\r\n").as_bytes(), 100_000)
}

/// A pool of caches answers as one of memcached servers does.
#[test]
fn a_pool_of_caches_answers_as_memcached() {
    let folders: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let nodes: Vec<_> = folders.iter().map(|folder| cache(folder.path(), NODE)).collect();
    let names: Vec<String> = nodes.iter().map(|(_, address)| address.clone()).collect();
    for routing in ["hash", "replicated", "hash_replicas"] {
        let (_proxy, address) =
            proxy(&names, &[&format!("pool.0.routing={routing}"), "pool.0.hash=md5"]);
        for chunk in [1, 100_000] {
            assert_eq!(ask(&address, "flush_all\r\n"), "OK\r\n");
            assert_eq!(talk(&address, SCRIPT.as_bytes(), chunk), REPLIES, "{routing}, {chunk}");
        }
        // Every server is empty after a flush, and has its share of the keys afterwards.
        assert_eq!(ask(&address, "flush_all\r\nget k n m q\r\n"), "OK\r\nEND\r\n");
        let sets: String = (0..60).map(|i| format!("set k{i} 7 0 2\r\nv{}\r\n", i % 10)).collect();
        assert_eq!(ask(&address, &sets), "STORED\r\n".repeat(60));
        let gets: String = (0..60).map(|i| format!(" k{i}")).collect();
        let copies: Vec<usize> = names
            .iter()
            .map(|node| ask(node, &format!("get{gets}\r\n")).matches("VALUE ").count())
            .collect();
        let each = match routing {
            "hash" => 60,
            "replicated" => 180,
            _ => 120,
        };
        assert_eq!(copies.iter().sum::<usize>(), each, "{routing}: {copies:?}");
        assert!(copies.iter().all(|count| *count > 0), "{routing}: {copies:?}");
        assert_eq!(ask(&address, &format!("get{gets}\r\n")).matches("VALUE ").count(), 60);
    }
}

/// A cache that stopped is empty when it is back; the pool of replicas goes on meanwhile.
#[test]
fn a_pool_of_caches_outlives_one_of_them() {
    let folders: Vec<_> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
    let mut nodes: Vec<_> = folders.iter().map(|folder| Some(cache(folder.path(), NODE))).collect();
    let names: Vec<String> = nodes.iter().flatten().map(|(_, address)| address.clone()).collect();
    let sets = ["pool.0.routing=replicated", "memcached.ping_s=0.05"];
    let (_proxy, address) = proxy(&names, &sets);
    assert_eq!(ask(&address, "set k 0 0 3\r\nold\r\n"), "STORED\r\n");
    drop(nodes[0].take());
    let start = std::time::Instant::now();
    // The write that meets the failure says where it failed; later ones go to the other node.
    while ask(&address, "set k 0 0 3\r\nnew\r\n") != "STORED\r\n" {
        assert!(start.elapsed().as_secs() < 60);
    }
    assert_eq!(ask(&address, "get k\r\n"), "VALUE k 0 3\r\nnew\r\nEND\r\n");
    // Its device has a file of the old value, which it does not serve.
    nodes[0] = Some(cache(folders[0].path(), &format!("memcached.node_listen={}", names[0])));
    let own = ask(&names[0], "get k\r\n");
    assert!(!own.contains("old"), "{own}");
    let up = format!("STAT server.{}.state healthy", names[0]);
    while !ask(&address, "stats\r\n").contains(&up) {
        assert!(start.elapsed().as_secs() < 60, "{}", ask(&address, "stats\r\n"));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    for _ in 0..50 {
        let reply = ask(&address, "get k\r\n");
        assert!(reply == "END\r\n" || reply.contains("\r\nnew\r\n"), "{reply}");
    }
}

/// Nodes with origins of their own: what was acknowledged by way of the proxy survives their end.
#[test]
fn a_pool_of_durable_nodes_keeps_what_it_acknowledged() {
    let folders: Vec<_> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
    let start = |listen: &[String]| -> Vec<(Running, String)> {
        let nodes = folders.iter().enumerate().map(|(i, folder)| {
            let listen = listen.get(i).map(|at| format!("memcached.node_listen={at}"));
            let (process, _, address) = serve(folder.path(), &[listen.as_deref().unwrap_or(NODE)]);
            (process, address)
        });
        nodes.collect()
    };
    let nodes = start(&[]);
    let names: Vec<String> = nodes.iter().map(|(_, address)| address.clone()).collect();
    let sets = ["pool.0.flush_on_return=false", "memcached.ping_s=0.05"];
    let (_proxy, address) = proxy(&names, &sets);
    let sets: String = (0..20).map(|i| format!("set k{i} 3 0 1\r\n{}\r\n", i % 10)).collect();
    assert_eq!(ask(&address, &sets), "STORED\r\n".repeat(20));
    drop(nodes);
    let _nodes = start(&names);
    let gets: String = (0..20).map(|i| format!(" k{i}")).collect();
    let begun = std::time::Instant::now();
    loop {
        let reply = ask(&address, &format!("get{gets}\r\n"));
        if !reply.starts_with("SERVER_ERROR") {
            assert_eq!(reply.matches("VALUE ").count(), 20, "{reply}");
            break;
        }
        assert!(begun.elapsed().as_secs() < 60, "{reply}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Nodes that share a bucket: when one is lost, the other has its keys, and after its return nothing older than
/// what was acknowledged is read.
#[test]
fn a_pool_of_nodes_before_one_bucket_never_goes_back() {
    const TEST: &str = "memcached_proxy::nodes::a_pool_of_nodes_before_one_bucket_never_goes_back";
    const KEYS: usize = 20;
    let Some(store) = Store::start(TEST) else { return };
    let folders: Vec<_> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
    let node = |folder: &Path, listen: &str| {
        let mut sets = before(&store);
        sets.extend([listen.to_owned(), format!("device.0.path={}/device", folder.display())]);
        let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
        let (process, _, address) = serve(folder, &sets);
        (process, address)
    };
    let mut nodes: Vec<_> = folders.iter().map(|it| Some(node(it.path(), NODE))).collect();
    let names: Vec<String> = nodes.iter().flatten().map(|(_, address)| address.clone()).collect();
    let more = ["pool.0.on_failure=move", "pool.0.timeout_s=5.0", "memcached.ping_s=0.05"];
    let (_proxy, address) = proxy(&names, &more);
    // Writes each key until that is acknowledged.
    let write = |value: &str| {
        for key in 0..KEYS {
            let set = format!("set k{key} 0 0 {}\r\n{value}\r\n", value.len());
            until("a write", || ask(&address, &set) == "STORED\r\n");
        }
    };
    // Reads each key; `None` where the server failed.
    let read = || -> Vec<Option<String>> {
        let value = |key: usize| {
            let reply = ask(&address, &format!("get k{key}\r\n"));
            assert!(reply != "END\r\n", "k{key} is lost");
            reply.starts_with("VALUE").then(|| reply.lines().nth(1).unwrap().to_owned())
        };
        (0..KEYS).map(value).collect()
    };
    let all = |value: &str| read().iter().all(|read| read.as_deref() == Some(value));
    write("first");
    assert!(all("first"));
    for (value, lost) in [("second", 0), ("third", 1)] {
        drop(nodes[lost].take());
        write(value);
        until("reads without it", || {
            let read = read();
            let old = read.iter().flatten().find(|read| *read != value);
            assert_eq!(old, None, "after {value} was acknowledged");
            read.iter().all(Option::is_some)
        });
        nodes[lost] =
            Some(node(folders[lost].path(), &format!("memcached.node_listen={}", names[lost])));
        let up = format!("STAT server.{}.state healthy", names[lost]);
        until("its return", || {
            let old = read().into_iter().flatten().find(|read| read != value);
            assert_eq!(old, None, "after {value} was acknowledged");
            ask(&address, "stats\r\n").contains(&up)
        });
        until("reads with it", || all(value));
    }
}
