//! Beside twemproxy itself: a file of its configuration translated, and every key on the server where it puts it.

use std::fmt::Write as _;
use std::net::TcpStream;
use std::process::{Command, Stdio};

use configuration::{Config, nutcracker};
use engine::pool::Hash;

use super::talk;
use crate::left_out::left_out;
use crate::measure::Running;
use crate::measure_protocols::memcached;
use crate::serve_client::{free, until};

const KEYS: usize = 60;

/// Servers as two pools list them: names of several lengths in no order, weights, the default port's rule is `engine`'s test.
fn servers(addresses: &[String], named: bool) -> String {
    let names = ["s9", "s10", "gamma", "b"];
    let line = |(at, address): (usize, &String)| match named {
        true => format!("   - {address}:{} {}\n", 1 + at % 3, names[at]),
        false => format!("   - {address}:1\n"),
    };
    addresses.iter().enumerate().map(line).collect()
}

#[test]
fn keys_are_where_twemproxy_puts_them() {
    const TEST: &str = "memcached_proxy::nutcracker::keys_are_where_twemproxy_puts_them";
    if Command::new("nutcracker").arg("-V").output().is_err() {
        return left_out(TEST, "nutcracker cannot be run (apt-get install nutcracker)");
    }
    let memcacheds: Option<Vec<_>> = (0..4).map(|_| memcached(TEST)).collect();
    let Some(memcacheds) = memcacheds else { return };
    let addresses: Vec<String> = memcacheds.iter().map(|(_, address)| address.clone()).collect();
    let mut pools = Vec::new();
    for hash in Hash::ALL {
        for distribution in ["ketama", "modula"] {
            pools.push((hash.as_str(), distribution));
        }
    }
    let ports: Vec<u16> = (0..=pools.len()).map(|_| free().port()).collect();
    let mut yaml = String::new();
    for (at, (hash, distribution)) in pools.iter().enumerate() {
        let tag = if at % 3 == 0 { "  hash_tag: \"{}\"\n" } else { "" };
        let _ = write!(
            yaml,
            "p{at}:\n  listen: 127.0.0.1:{}\n  hash: {hash}\n  distribution: {distribution}\n  timeout: 5000\n{tag}  servers:\n{}",
            ports[at],
            servers(&addresses, at % 4 < 2)
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nutcracker.yml");
    std::fs::write(&file, &yaml).unwrap();
    let stats = ports[pools.len()].to_string();
    let child = Command::new("nutcracker")
        .arg("-c")
        .arg(&file)
        .args(["-s", &stats, "-o"])
        .arg(folder.path().join("log"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _twemproxy = Running(child);
    for (at, (hash, distribution)) in pools.iter().enumerate() {
        let port = ports[at];
        until("twemproxy", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        let translation = nutcracker::translate(&yaml, Some(&format!("p{at}"))).unwrap();
        let config = Config::parse(&translation.text, "the translation", &[]).unwrap();
        let settings = config.proxy(Default::default(), 1).unwrap();
        let ring = &settings.pools.pools[0].ring;
        let keys: Vec<String> =
            (0..KEYS).map(|key| format!("p{at}:{{t{}}}:{key}", key % 7)).collect();
        let sets: String = keys.iter().map(|key| format!("set {key} 0 0 1\r\nx\r\n")).collect();
        let said = talk(&format!("127.0.0.1:{port}"), (sets + "quit\r\n").as_bytes(), 1 << 20);
        assert_eq!(said, "STORED\r\n".repeat(KEYS), "{hash}, {distribution}");
        let get = format!("get {}\r\nquit\r\n", keys.join(" "));
        for (server, address) in addresses.iter().enumerate() {
            let found = talk(address, get.as_bytes(), 1 << 20);
            for key in &keys {
                let there = found.contains(&format!("VALUE {key} "));
                let expected = ring.server(ring.position(key.as_bytes())) == server;
                assert_eq!(there, expected, "{hash}, {distribution}: {key} at {server}");
            }
        }
    }
}
