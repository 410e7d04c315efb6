//! `concertina serve --role proxy` in front of real memcached servers.

pub mod clients;
mod ends;
mod faults;
mod input;
mod nodes;
mod nutcracker;
mod order;
mod outages;
mod reloads;
mod routes;
mod strange;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::measure::Running;
use crate::measure_protocols::memcached;

/// A proxy over some servers, and its address.
fn proxy(servers: &[String], more: &[&str]) -> (Running, String) {
    let servers = format!("pool.0.servers={servers:?}");
    let sets = ["serve.role=proxy", "memcached.listen=127.0.0.1:0", &servers];
    let (process, _, address) = serve(Path::new("."), sets.iter().chain(more));
    (process, address)
}

/// A server with some settings, its HTTP address and that of memcached's protocol.
pub fn serve<'s>(
    folder: &Path,
    sets: impl IntoIterator<Item = &'s &'s str>,
) -> (Running, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_concertina"))
        .args(["serve", "--json", "--set", "serve.listen=127.0.0.1:0"])
        .args(sets.into_iter().flat_map(|set| ["--set", set]))
        .current_dir(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let json: serde_json::Value = serde_json::from_str(&line).unwrap();
    let address = |name: &str| json[name].as_str().unwrap().to_owned();
    (Running(child), address("address"), address("memcached"))
}

/// Sends some bytes in chunks of a size, and returns all that comes until the proxy closes.
pub fn talk(address: &str, bytes: &[u8], chunk: usize) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    for part in bytes.chunks(chunk) {
        stream.write_all(part).unwrap();
        if chunk < bytes.len() {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    let mut reply = String::new();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

/// Sends a signal to a process.
fn signal(name: &str, pid: u32) {
    let done = Command::new("kill").args([name, &pid.to_string()]).status().unwrap();
    assert!(done.success());
}

const SCRIPT: &str = "set k 5 0 2\r\nhi\r\nget k\r\nget k nope k2\r\nadd k 0 0 1\r\nx\r\n\
    set n 0 0 1\r\n1\r\nincr n 5\r\nget n\r\nmg n v f t\r\nms m 3\r\nabc\r\nmg m v\r\n\
    mg none v\r\nmn\r\nappend k 0 0 1\r\n!\r\nget k\r\ndelete k\r\ndelete k\r\ntouch n 100\r\n\
    bogus\r\nset big 0 0 -1\r\nverbosity 1\r\nset q 0 0 1 noreply\r\nz\r\nget q\r\nquit\r\n";

const REPLIES: &str = "STORED\r\nVALUE k 5 2\r\nhi\r\nEND\r\nVALUE k 5 2\r\nhi\r\nEND\r\nNOT_STORED\r\n\
    STORED\r\n6\r\nVALUE n 0 1\r\n6\r\nEND\r\nVA 1 f0 t-1\r\n6\r\nHD\r\nVA 3\r\nabc\r\nEN\r\nMN\r\n\
    STORED\r\nVALUE k 5 3\r\nhi!\r\nEND\r\nDELETED\r\nNOT_FOUND\r\nTOUCHED\r\nERROR\r\n\
    CLIENT_ERROR bad command line format\r\nOK\r\nVALUE q 0 1\r\nz\r\nEND\r\n";

#[test]
fn a_pipeline_is_answered_as_by_one_server_however_it_is_cut() {
    const TEST: &str = "memcached_proxy::a_pipeline_is_answered_as_by_one_server_however_it_is_cut";
    let servers: Option<Vec<_>> = (0..3).map(|_| memcached(TEST)).collect();
    let Some(servers) = servers else { return };
    let names: Vec<String> = servers.iter().map(|(_, address)| address.clone()).collect();
    for routing in ["hash", "replicated", "hash_replicas"] {
        let (_proxy, address) = proxy(&names, &[&format!("pool.0.routing={routing}")]);
        for chunk in [1, 7, 100_000] {
            assert_eq!(talk(&address, b"flush_all\r\nquit\r\n", 100), "OK\r\n");
            assert_eq!(talk(&address, SCRIPT.as_bytes(), chunk), REPLIES, "{routing}, {chunk}");
        }
    }
}

#[test]
fn a_server_that_was_away_is_emptied_before_it_is_read_again() {
    const TEST: &str = "memcached_proxy::a_server_that_was_away_is_emptied_before_it_is_read_again";
    let servers: Option<Vec<_>> = (0..2).map(|_| memcached(TEST)).collect();
    let Some(servers) = servers else { return };
    let names: Vec<String> = servers.iter().map(|(_, address)| address.clone()).collect();
    let sets = ["pool.0.routing=replicated", "pool.0.timeout_s=1.0", "memcached.ping_s=0.05"];
    let (_proxy, address) = proxy(&names, &sets);
    for i in 0..50 {
        let set = format!("set k{i} 0 0 3\r\nold\r\nquit\r\n");
        assert_eq!(talk(&address, set.as_bytes(), 1000), "STORED\r\n");
    }
    let pid = servers[0].0.0.id();
    signal("-STOP", pid);
    let start = Instant::now();
    for i in 0..50 {
        // Until the proxy knows, a write to the stopped server fails, and says where.
        let set = format!("set k{i} 0 0 3\r\nnew\r\nquit\r\n");
        loop {
            let reply = talk(&address, set.as_bytes(), 1000);
            if reply == "STORED\r\n" {
                break;
            }
            assert!(reply.starts_with("SERVER_ERROR ") && reply.contains(&names[0]), "{reply}");
            assert!(start.elapsed() < Duration::from_secs(60));
        }
    }
    signal("-CONT", pid);
    let start = Instant::now();
    let mut emptied = false;
    while !emptied && start.elapsed() < Duration::from_secs(60) {
        for i in 0..50 {
            let reply = talk(&address, format!("get k{i}\r\nquit\r\n").as_bytes(), 1000);
            assert!(!reply.contains("old"), "k{i}: {reply}");
        }
        let stats = talk(&address, b"stats\r\nquit\r\n", 1000);
        let name = format!("STAT server.{}.flushes ", names[0]);
        assert!(stats.contains(&name), "{stats}");
        emptied = !stats.contains(&format!("{name}0\r\n"));
    }
    assert!(emptied, "the server was not emptied");
}
