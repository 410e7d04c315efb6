//! memcached's protocol in front of a cluster: three nodes and two gateways as processes, with the members in etcd.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::measure::Running;
use crate::membership::{Etcd, World, members};
use crate::memcached_node::{ask, check_behaviour};
use crate::memcached_proxy::clients::{output_text, programs};
use crate::memcached_proxy::serve;
use crate::serve_client::{Client, Process, until, until_or};

/// What a gateway answers to `flush_all`.
const NOT_EMPTIED: &str = "CLIENT_ERROR a cluster cannot be emptied through a gateway\r\n";

struct Cluster {
    world: World,
    nodes: Vec<Option<Process>>,
    gateways: Vec<(Running, String, String)>,
}

impl Cluster {
    /// `None` without etcd.
    fn start(more: &[&str]) -> Option<Cluster> {
        let folder = tempfile::tempdir().unwrap();
        let etcd = Etcd::start(folder.path())?;
        let mut world = World::new(folder, etcd, &[]);
        let nodes = ["a", "b", "c"].map(|name| Some(world.node(name))).into();
        let mut set = world.common();
        set.push(format!("origin.path={}/origin", world.folder.path().display()));
        set.push("serve.role=gateway".to_owned());
        set.push("memcached.node_listen=127.0.0.1:0".to_owned());
        set.extend(more.iter().map(|&text| text.to_owned()));
        let set: Vec<&str> = set.iter().map(String::as_str).collect();
        let gateways = (0..2).map(|_| serve(world.folder.path(), &set)).collect();
        let cluster = Cluster { world, nodes, gateways };
        for (_, http, _) in &cluster.gateways {
            let live = || members(http.parse().unwrap()).iter().filter(|(.., live)| *live).count();
            until("three members", || live() == 3);
        }
        Some(cluster)
    }

    /// Where memcached's clients connect to a gateway.
    fn cache(&self, gateway: usize) -> &str {
        &self.gateways[gateway].2
    }
}

#[test]
fn a_cluster_answers_as_a_node_alone_does() {
    let Some(cluster) =
        Cluster::start(&["memcached.value_bytes_max=1000", "memcached.stall_s=1.0"])
    else {
        return;
    };
    check_behaviour(cluster.cache(0), NOT_EMPTIED);

    // The same objects by HTTP, through the other gateway.
    let mut client = Client::connect(cluster.gateways[1].1.parse().unwrap());
    let reply = client.get("/objects/later");
    assert_eq!(reply.header("concertina-meta-memcached-flags"), Some("9"));
    assert_eq!(reply.text(), "z");
    assert_eq!(client.put("/objects/web", b"from HTTP").status, 200);
    assert_eq!(ask(cluster.cache(0), "get web\r\n"), "VALUE web 0 9\r\nfrom HTTP\r\nEND\r\n");
    assert_eq!(ask(cluster.cache(0), "delete web\r\n"), "DELETED\r\n");
    assert_eq!(client.get("/objects/web").status, 404);

    // A get of many keys, which several nodes have.
    let (mut sets, mut gets, mut values) = (String::new(), "get".to_owned(), String::new());
    for i in 0..100 {
        sets += &format!("set many:{i} {i} 0 3\r\n{i:03}\r\n");
        gets += &format!(" many:{i} none:{i}");
        values += &format!("VALUE many:{i} {i} 3\r\n{i:03}\r\n");
    }
    assert_eq!(ask(cluster.cache(0), &sets), "STORED\r\n".repeat(100));
    assert_eq!(ask(cluster.cache(1), &format!("{gets}\r\n")), values + "END\r\n");
}

/// Clients that know nothing of Concertina: pymemcache, pylibmc, gomemcache; then the same while a node is killed.
#[test]
fn clients_in_python_and_go_need_no_change_before_a_cluster() {
    const TEST: &str =
        "memcached_cluster::clients_in_python_and_go_need_no_change_before_a_cluster";
    let programs = programs(TEST);
    if programs.is_empty() {
        return;
    }
    let Some(mut cluster) = Cluster::start(&[]) else { return };
    let port = cluster.cache(0).rsplit(':').next().unwrap().to_owned();
    let run = |program: &Command, mode: &str| {
        let mut again = Command::new(program.get_program());
        again.args(program.get_args()).args([&port, mode]);
        again
    };
    for program in &programs {
        let output = run(program, "cluster").output().unwrap();
        assert!(output.status.success(), "{program:?}: {}", output_text(&output));
    }
    let running: Vec<_> = programs
        .iter()
        .map(|program| {
            let mut child =
                run(program, "kept").stdout(std::process::Stdio::piped()).spawn().unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap());
            // It says so when it has written all its keys.
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            assert_eq!(line, "written\n", "{program:?}");
            (child, lines)
        })
        .collect();
    // By SIGKILL.
    drop(cluster.nodes[1].take());
    for (mut child, mut lines) in running {
        let mut told = String::new();
        lines.read_to_string(&mut told).unwrap();
        assert!(child.wait().unwrap().success(), "{told}");
    }
}

/// What one client has written of its keys, and what it read.
#[derive(Default)]
struct History {
    stop: AtomicBool,
    /// Acknowledged writes of each key.
    written: [AtomicU64; KEYS],
    wrong: Mutex<Vec<String>>,
    refused: Mutex<String>,
}

const KEYS: usize = 8;

/// A connection that sends a command and reads the reply up to its last line.
struct Session(TcpStream);

impl Session {
    fn connect(address: &str) -> Session {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Session(stream)
    }

    fn ask(&mut self, command: &str) -> String {
        self.0.write_all(command.as_bytes()).unwrap();
        let mut reply = Vec::new();
        let mut piece = [0; 4096];
        loop {
            let count = self.0.read(&mut piece).unwrap();
            assert!(count > 0, "the gateway closed the connection");
            reply.extend_from_slice(&piece[..count]);
            let text = String::from_utf8_lossy(&reply).into_owned();
            let is_value = text.starts_with("VALUE ");
            if text.ends_with("END\r\n") || (!is_value && text.ends_with("\r\n")) {
                return text;
            }
        }
    }
}

/// Writes ascending numbers to one key through one gateway, and reads them through another. Numbers come by `set`, then by
/// `cas`, then by `incr`.
fn write_and_read(history: &History, key: usize, to: &str, from: &str) {
    let (mut writer, mut reader) = (Session::connect(to), Session::connect(from));
    let (mut value, mut acknowledged, mut tried) = (0u64, 0u64, 0u64);
    while !history.stop.load(Ordering::Relaxed) {
        let next = tried + 1;
        let reply = match next % 3 {
            0 => writer.ask(&format!("set k{key} 0 0 8\r\n{next:08}\r\n")),
            1 => {
                let read = writer.ask(&format!("gets k{key}\r\n"));
                match read.lines().next().and_then(|line| line.split(' ').nth(4)) {
                    Some(number) => {
                        writer.ask(&format!("cas k{key} 0 0 8 {number}\r\n{next:08}\r\n"))
                    }
                    None => writer.ask(&format!("add k{key} 0 0 8\r\n{next:08}\r\n")),
                }
            }
            _ => {
                let step = next - value;
                let reply = writer.ask(&format!("incr k{key} {step}\r\n"));
                match reply.trim_end().parse::<u64>() {
                    Ok(number) if number == next => "STORED\r\n".to_owned(),
                    // One that was not acknowledged before was carried out after all.
                    Ok(number) => {
                        tried = tried.max(number);
                        (value, acknowledged) = (number, number);
                        "STORED\r\n".to_owned()
                    }
                    Err(_) => reply,
                }
            }
        };
        tried = tried.max(next);
        if reply == "STORED\r\n" {
            acknowledged = acknowledged.max(next);
            value = acknowledged;
            history.written[key].fetch_add(1, Ordering::Relaxed);
        } else {
            *history.refused.lock().unwrap() = reply;
        }
        let reply = reader.ask(&format!("get k{key}\r\n"));
        let read = reply.lines().nth(1).and_then(|line| line.trim().parse::<u64>().ok());
        match read {
            Some(read) if (acknowledged..=tried).contains(&read) => value = read,
            None if reply.starts_with("SERVER_ERROR") => {}
            _ if acknowledged == 0 => {}
            _ => {
                let what = format!("k{key}: {reply:?}, {acknowledged} of {tried} acknowledged");
                history.wrong.lock().unwrap().push(what);
            }
        }
    }
}

#[test]
fn no_value_is_lost_or_old_while_a_node_is_killed() {
    let Some(mut cluster) = Cluster::start(&[]) else { return };
    let history = Arc::new(History::default());
    let threads: Vec<_> = (0..KEYS)
        .map(|key| {
            let (to, from) =
                (cluster.cache(key % 2).to_owned(), cluster.cache((key + 1) % 2).to_owned());
            let history = history.clone();
            std::thread::spawn(move || write_and_read(&history, key, &to, &from))
        })
        .collect();
    let all_written = |what: &str| {
        let count = |key: usize| history.written[key].load(Ordering::Relaxed);
        let before: Vec<u64> = (0..KEYS).map(count).collect();
        let why = || history.refused.lock().unwrap().clone();
        until_or(what, why, || (0..KEYS).all(|key| count(key) > before[key] + 6));
    };
    all_written("the first writes");
    for (node, name) in [(1, "b"), (2, "c")] {
        // By SIGKILL.
        drop(cluster.nodes[node].take());
        all_written("writes after a node was killed");
        cluster.nodes[node] = Some(cluster.world.node(name));
        all_written("writes after it came back");
    }
    history.stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
    let wrong = history.wrong.lock().unwrap();
    assert!(wrong.is_empty(), "{wrong:?}");
}
