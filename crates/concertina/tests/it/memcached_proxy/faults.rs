//! Real memcached servers that are killed, paused, cut off or slow, under load. A checker judges
//! what every client was told.
//!
//! Each key has one writer, whose values are numbers that rise. A read may return a miss, the last
//! number that was acknowledged before the read began, or a later one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{proxy, signal};
use crate::measure::Running;
use crate::measure_protocols::memcached;
use crate::serve_client::LONGEST;

const KEYS: usize = 40;

/// What a relay does with bytes.
const PASS: u8 = 0;
const CUT: u8 = 1;
const SLOW: u8 = 2;

/// A relay before a server that forwards bytes, keeps them back, or is slow.
struct Relay {
    address: String,
    mode: Arc<AtomicU8>,
}

impl Relay {
    fn new(server: &str) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mode = Arc::new(AtomicU8::new(PASS));
        let (server, shared) = (server.to_owned(), mode.clone());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(&server)) else {
                    continue;
                };
                let pairs =
                    [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)];
                for (from, to) in pairs {
                    let mode = shared.clone();
                    std::thread::spawn(move || forward(from, to, &mode));
                }
            }
        });
        Relay { address, mode }
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, mode: &AtomicU8) {
    let _ = to.set_nodelay(true);
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        match mode.load(Ordering::Relaxed) {
            CUT => {
                // As a cable that is pulled: neither bytes nor an end arrive.
                while mode.load(Ordering::Relaxed) == CUT {
                    std::thread::sleep(Duration::from_millis(5));
                }
                // What was on its way is lost, and so is the connection.
                break;
            }
            SLOW => std::thread::sleep(Duration::from_millis(20)),
            _ => {}
        }
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(std::net::Shutdown::Both);
    let _ = to.shutdown(std::net::Shutdown::Both);
}

/// What writers were told, and what everybody counts.
#[derive(Default)]
struct History {
    acknowledged: Vec<AtomicU64>,
    stop: AtomicBool,
    reads: AtomicU64,
    hits: AtomicU64,
    writes: AtomicU64,
    refusals: AtomicU64,
}

/// A client's connection.
struct Client {
    reader: BufReader<TcpStream>,
}

impl Client {
    fn new(address: &str) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Client { reader: BufReader::new(stream) }
    }

    fn send(&mut self, command: &str) {
        self.reader.get_mut().write_all(command.as_bytes()).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        assert!(line.ends_with("\r\n"), "the proxy closed the connection: {line:?}");
        line.truncate(line.len() - 2);
        line
    }

    /// The numbers that a get finds; `None` if it is refused.
    fn get(&mut self, keys: &[usize]) -> Option<Vec<(usize, u64)>> {
        let names: String = keys.iter().map(|key| format!(" key{key}")).collect();
        self.send(&format!("get{names}\r\n"));
        let mut found = Vec::new();
        loop {
            let line = self.line();
            if line == "END" {
                return Some(found);
            } else if line.starts_with("SERVER_ERROR") {
                return None;
            }
            let mut words = line.split(' ');
            assert_eq!(words.next(), Some("VALUE"), "{line}");
            let key = words.next().unwrap().strip_prefix("key").unwrap().parse().unwrap();
            assert!(keys.contains(&key), "{line}");
            found.push((key, self.line().parse().unwrap()));
        }
    }
}

fn write(address: &str, history: &History, writer: usize, writers: usize) {
    let mut client = Client::new(address);
    let mut number = 0;
    while !history.stop.load(Ordering::Relaxed) {
        for key in (writer..KEYS).step_by(writers) {
            number += 1;
            let text = number.to_string();
            client.send(&format!("set key{key} 0 0 {}\r\n{text}\r\n", text.len()));
            let line = client.line();
            if line == "STORED" {
                history.acknowledged[key].store(number, Ordering::SeqCst);
                history.writes.fetch_add(1, Ordering::Relaxed);
            } else {
                assert!(line.starts_with("SERVER_ERROR "), "{line}");
                history.refusals.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

fn read(address: &str, history: &History, reader: usize) {
    let mut client = Client::new(address);
    let mut turn = reader;
    while !history.stop.load(Ordering::Relaxed) {
        turn += 1;
        let first = turn * 7 % KEYS;
        let keys: Vec<usize> = match turn % 3 {
            0 => (0..5).map(|i| (first + i) % KEYS).collect(),
            _ => vec![first],
        };
        let least: Vec<u64> =
            (0..KEYS).map(|key| history.acknowledged[key].load(Ordering::SeqCst)).collect();
        let Some(found) = client.get(&keys) else {
            history.refusals.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        history.reads.fetch_add(keys.len() as u64, Ordering::Relaxed);
        history.hits.fetch_add(found.len() as u64, Ordering::Relaxed);
        for (key, number) in found {
            let least = least[key];
            assert!(
                number >= least,
                "key{key}: read {number}, but {least} was acknowledged before"
            );
        }
    }
}

struct Setting {
    servers: Vec<Running>,
    relays: Vec<Relay>,
    history: Arc<History>,
}

/// Runs writers and readers through a proxy with relays before three servers while `fault` does
/// something to the first; afterwards everything has to work again. Returns reads, hits and refusals.
fn under_load(test: &str, sets: &[&str], fault: impl FnOnce(&mut Setting)) -> Option<[u64; 3]> {
    let servers: Option<Vec<_>> = (0..3).map(|_| memcached(test)).collect();
    let (servers, names): (Vec<Running>, Vec<String>) = servers?.into_iter().unzip();
    let relays: Vec<Relay> = names.iter().map(|name| Relay::new(name)).collect();
    let addresses: Vec<String> = relays.iter().map(|relay| relay.address.clone()).collect();
    let usual = ["pool.0.timeout_s=0.3", "memcached.ping_s=0.05", "memcached.ping_timeout_s=0.2"];
    let (_proxy, address) = proxy(&addresses, &[&usual[..], sets].concat());
    let acknowledged = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let history = Arc::new(History { acknowledged, ..History::default() });
    let mut clients = Vec::new();
    for i in 0..3 {
        let (own, to) = (history.clone(), address.clone());
        clients.push(std::thread::spawn(move || write(&to, &own, i, 3)));
        let (own, to) = (history.clone(), address.clone());
        clients.push(std::thread::spawn(move || read(&to, &own, i)));
    }
    let mut setting = Setting { servers, relays, history: history.clone() };
    std::thread::sleep(Duration::from_millis(400));
    fault(&mut setting);
    // Until everything works, for a while without a refusal.
    let start = Instant::now();
    loop {
        let before = history.refusals.load(Ordering::Relaxed);
        let (reads, hits) =
            (history.reads.load(Ordering::Relaxed), history.hits.load(Ordering::Relaxed));
        std::thread::sleep(Duration::from_millis(500));
        let reads = history.reads.load(Ordering::Relaxed) - reads;
        let hits = history.hits.load(Ordering::Relaxed) - hits;
        if history.refusals.load(Ordering::Relaxed) == before && reads > 0 && hits * 10 > reads * 9
        {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{hits} hits of {reads}");
        assert!(clients.iter().all(|client| !client.is_finished()), "a client failed");
    }
    history.stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().expect("a client failed");
    }
    let all = [&history.reads, &history.hits, &history.refusals];
    Some(all.map(|count| count.load(Ordering::Relaxed)))
}

/// Writes acknowledged while `during` runs.
fn writes(history: &History, during: impl FnOnce()) -> u64 {
    let before = history.writes.load(Ordering::Relaxed);
    during();
    history.writes.load(Ordering::Relaxed) - before
}

/// Restarts a memcached on its port.
fn restart(setting: &mut Setting) {
    let old = &mut setting.servers[0].0;
    let line = std::fs::read(format!("/proc/{}/cmdline", old.id())).unwrap();
    let arguments: Vec<String> = line
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    old.kill().unwrap();
    old.wait().unwrap();
    let served = writes(&setting.history, || std::thread::sleep(Duration::from_millis(1200)));
    assert!(served > 0, "nothing was written while a server was down");
    let child = Command::new(&arguments[0]).args(&arguments[1..]).spawn().unwrap();
    setting.servers[0] = Running(child);
}

#[test]
fn a_killed_server() {
    const TEST: &str = "memcached_proxy::faults::a_killed_server";
    for sets in [
        &["pool.0.routing=replicated"][..],
        &["pool.0.routing=hash", "pool.0.hash=md5", "pool.0.on_failure=move"],
    ] {
        if under_load(TEST, sets, restart).is_none() {
            return;
        }
    }
}

#[test]
fn a_paused_server() {
    const TEST: &str = "memcached_proxy::faults::a_paused_server";
    under_load(TEST, &["pool.0.routing=hash_replicas", "pool.0.hash=md5"], |setting| {
        let pid = setting.servers[0].0.id();
        signal("-STOP", pid);
        let pause = || std::thread::sleep(Duration::from_millis(1500));
        let served = writes(&setting.history, pause);
        signal("-CONT", pid);
        assert!(served > 0, "nothing was written while a server was paused");
    });
}

#[test]
fn a_server_that_is_cut_off() {
    const TEST: &str = "memcached_proxy::faults::a_server_that_is_cut_off";
    under_load(TEST, &["pool.0.routing=replicated"], |setting| {
        setting.relays[0].mode.store(CUT, Ordering::Relaxed);
        let pause = || std::thread::sleep(Duration::from_millis(1500));
        let served = writes(&setting.history, pause);
        setting.relays[0].mode.store(PASS, Ordering::Relaxed);
        assert!(served > 0, "nothing was written while a server was cut off");
    });
}

#[test]
fn a_slow_server() {
    const TEST: &str = "memcached_proxy::faults::a_slow_server";
    let sets = ["pool.0.routing=replicated", "pool.0.timeout_s=2.0"];
    let counts = under_load(TEST, &sets, |setting| {
        setting.relays[0].mode.store(SLOW, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(1500));
        setting.relays[0].mode.store(PASS, Ordering::Relaxed);
    });
    if let Some([reads, hits, refusals]) = counts {
        // It is slow, not away: nothing is refused and nothing is emptied.
        assert_eq!(refusals, 0);
        assert!(hits * 10 > reads * 8, "{hits} of {reads}");
    }
}

/// A server that replies to one request with what another asked for: whoever asked is not given it, and nobody after it.
#[test]
fn values_of_other_keys_end_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let input = BufReader::new(stream.try_clone().unwrap());
                for line in input.lines().map_while(Result::ok) {
                    let reply = match line.as_str() {
                        "get a" | "get strange" => "VALUE a 0 1\r\nx\r\nEND\r\n",
                        // In an order of its own.
                        "get a b none" => "VALUE b 0 1\r\ny\r\nVALUE a 0 1\r\nx\r\nEND\r\n",
                        "get twice" => "VALUE twice 0 1\r\nx\r\nVALUE b 0 1\r\ny\r\nEND\r\n",
                        "version" => "VERSION 1.6.38\r\n",
                        _ => "END\r\n",
                    };
                    if stream.write_all(reply.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let (_process, address) = proxy(&[server], &["memcached.ping_s=0.05", "pool.0.retry_share=0"]);
    let ask = |line: &str| super::talk(&address, format!("{line}\r\nquit\r\n").as_bytes(), 1 << 10);
    let right = |line: &str, reply: &str| {
        let start = Instant::now();
        // The server is asked again once it has answered a ping.
        while ask(line) != reply {
            assert!(start.elapsed() < LONGEST, "{line}: {}", ask(line));
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    for strange in ["get strange", "get twice"] {
        right("get a", "VALUE a 0 1\r\nx\r\nEND\r\n");
        right("get a b none", "VALUE b 0 1\r\ny\r\nVALUE a 0 1\r\nx\r\nEND\r\n");
        let refused = ask(strange);
        assert!(refused.starts_with("SERVER_ERROR"), "{strange}: {refused}");
    }
}
