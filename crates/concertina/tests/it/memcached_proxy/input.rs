//! Bad input: malformed commands, clients that are slow, leave early or do nothing.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::{proxy, talk};
use crate::measure::Running;
use crate::measure_protocols::memcached;

/// Lines that are wrong, and the reply to each.
const WRONG: &[(&str, &str)] = &[
    ("", "ERROR"),
    ("bogus", "ERROR"),
    (" GET k", "ERROR"),
    ("GET k", "ERROR"),
    ("get", "ERROR"),
    ("gets ", "ERROR"),
    ("gat k", "CLIENT_ERROR invalid exptime argument"),
    ("gat 10", "END"),
    ("gat x k", "CLIENT_ERROR invalid exptime argument"),
    ("set", "ERROR"),
    ("set k 0 0", "ERROR"),
    ("set k 0 0 -1", "CLIENT_ERROR bad command line format"),
    ("set k 0 0 99999999999999999999", "CLIENT_ERROR bad command line format"),
    ("set k 0 0 x", "CLIENT_ERROR bad command line format"),
    ("set k -1 0 1\r\nx", "CLIENT_ERROR bad command line format"),
    ("set k 4294967296 0 1\r\nx", "CLIENT_ERROR bad command line format"),
    ("set k 0 x 1\r\nx", "CLIENT_ERROR bad command line format"),
    ("set k 0 0 1 2 3\r\nx", "ERROR\r\nERROR"),
    ("set k 0 0 1\r\nxyz", "CLIENT_ERROR bad data chunk\r\nERROR"),
    ("cas k 0 0 1\r\nx", "ERROR\r\nERROR"),
    ("cas k 0 0 1 x\r\nx", "CLIENT_ERROR bad command line format"),
    ("incr k", "ERROR"),
    ("incr k -1", "CLIENT_ERROR invalid numeric delta argument"),
    ("incr k 18446744073709551616", "CLIENT_ERROR invalid numeric delta argument"),
    ("touch k", "ERROR"),
    ("touch k soon", "CLIENT_ERROR invalid exptime argument"),
    ("delete", "ERROR"),
    ("delete k 5", "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]"),
    ("flush_all x", "CLIENT_ERROR invalid exptime argument"),
    ("verbosity", "ERROR"),
    ("verbosity x", "CLIENT_ERROR bad command line format"),
    ("mg", "ERROR"),
    ("mg k v v", "CLIENT_ERROR duplicate flag"),
    ("mg k 1", "CLIENT_ERROR invalid flag"),
    ("mg k= b v", "CLIENT_ERROR error decoding key"),
    ("mg k a c d e f g h i j k l m n o p q r s t", "CLIENT_ERROR options flags are too long"),
    ("ms k", "CLIENT_ERROR bad command line format"),
    ("ms k -2", "CLIENT_ERROR bad command line format"),
    ("ms k S1\r\nx", "CLIENT_ERROR bad command line format\r\nERROR"),
    ("slabs reassign 1 2", "ERROR"),
    ("cache_memlimit 1", "ERROR"),
    ("shutdown", "ERROR"),
    ("watch", "ERROR"),
    ("stats slabs\r\nstats conns\r\nstats nope", "END\r\nEND\r\nERROR"),
];

/// A proxy over one server, with its process.
fn proxy_of_one_server(test: &str, sets: &[&str]) -> Option<(Running, Running, String)> {
    let (server, name) = memcached(test)?;
    let (process, address) = proxy(&[name], sets);
    Some((server, process, address))
}

#[test]
fn every_malformed_command_gets_its_error_and_the_connection_goes_on() {
    const TEST: &str =
        "memcached_proxy::input::every_malformed_command_gets_its_error_and_the_connection_goes_on";
    let Some((_server, _proxy, address)) =
        proxy_of_one_server(TEST, &["memcached.value_bytes_max=1000"])
    else {
        return;
    };
    let long = "k".repeat(251);
    let key = "CLIENT_ERROR bad command line format";
    let large = format!("set k 0 0 1001\r\n{}", "v".repeat(1001));
    let more = [
        (format!("get {long}"), key),
        (format!("get k {long}"), key),
        (format!("set {long} 0 0 1\r\nx"), key),
        (format!("delete {long}"), key),
        (format!("mg {long} v"), key),
        ("get a\0b".to_owned(), key),
        ("set a\0b 0 0 1\r\nx".to_owned(), key),
        (large.clone(), "SERVER_ERROR object too large for cache"),
    ];
    let wrong = WRONG.iter().map(|(line, reply)| ((*line).to_owned(), *reply)).chain(more);
    let (mut script, mut expected) = (String::new(), String::new());
    for (line, reply) in wrong {
        // What follows is not taken for a part of it.
        script += &format!("{line}\r\nmn\r\n");
        expected += &format!("{reply}\r\nMN\r\n");
    }
    for chunk in [3, 100_000] {
        assert_eq!(talk(&address, format!("{script}quit\r\n").as_bytes(), chunk), expected);
    }
    // Of a value that is too large the old one is dropped too.
    let script = format!("set k 0 0 1\r\nx\r\n{large}\r\nget k\r\nquit\r\n");
    let expected = "STORED\r\nSERVER_ERROR object too large for cache\r\nEND\r\n";
    assert_eq!(talk(&address, script.as_bytes(), 100_000), expected);
    // What cannot be told from requests ends the connection.
    let endless = "x".repeat(3000);
    assert_eq!(talk(&address, endless.as_bytes(), usize::MAX), "CLIENT_ERROR line too long\r\n");
    let keys = " k".repeat(70_000);
    assert!(
        talk(&address, format!("get{keys}\r\nquit\r\n").as_bytes(), usize::MAX)
            .starts_with("CLIENT_ERROR")
    );
    // A client of the binary protocol shows the text that comes with its refusal.
    let mut binary = TcpStream::connect(&address).unwrap();
    binary.write_all(b"\x80\x0b\x00\x00").unwrap();
    let mut reply = Vec::new();
    binary.read_to_end(&mut reply).unwrap();
    assert!(reply.starts_with(b"\x81\x0b") && reply.ends_with(b"text protocol"), "{reply:?}");
    assert_eq!(talk(&address, b"POST /?get HTTP/1.1\r\nHost: x\r\n\r\nset k 0 0 1\r\n", 100), "");
}

/// The resident memory of a process, in bytes.
fn memory(process: &Running) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.0.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}

/// Waits until the proxy has closed a connection.
fn closed(mut stream: TcpStream, within: Duration) -> bool {
    stream.set_read_timeout(Some(within)).unwrap();
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn clients_that_stop_or_leave_in_the_middle_are_let_go() {
    const TEST: &str =
        "memcached_proxy::input::clients_that_stop_or_leave_in_the_middle_are_let_go";
    let Some((_server, process, address)) = proxy_of_one_server(TEST, &["memcached.stall_s=1.0"])
    else {
        return;
    };
    // Early ends: in a line, in a value, behind a request whose reply is on its way.
    for bytes in [&b"ge"[..], b"set k 0 0 100\r\nabc", b"get k\r\nget", b"set big 0 0 1000000\r\n"]
    {
        for _ in 0..200 {
            let mut stream = TcpStream::connect(&address).unwrap();
            stream.write_all(bytes).unwrap();
        }
    }
    // A value of which the rest never comes, and a line that comes byte by byte.
    let mut owing = TcpStream::connect(&address).unwrap();
    owing.write_all(b"set k 0 0 100\r\nabc").unwrap();
    let mut dripping = TcpStream::connect(&address).unwrap();
    let start = Instant::now();
    let mut dripped = true;
    while dripped && start.elapsed() < Duration::from_secs(60) {
        dripped = dripping.write_all(b"x").is_ok();
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(!dripped, "a line that never ends holds its connection");
    assert!(closed(owing, Duration::from_secs(60)));
    // A client that asks and does not read.
    let value = vec![b'v'; 500_000];
    let head = format!("set v 0 0 {}\r\n", value.len());
    let whole = [head.as_bytes(), &value, b"\r\nquit\r\n"].concat();
    assert_eq!(talk(&address, &whole, usize::MAX), "STORED\r\n");
    let before = memory(&process);
    let mut greedy = TcpStream::connect(&address).unwrap();
    greedy.write_all("get v\r\n".repeat(4000).as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(700));
    let most = memory(&process);
    assert!(most < before + (160 << 20), "{before} bytes, then {most}");
    let start = Instant::now();
    let open = || talk(&address, b"stats\r\nquit\r\n", 100).contains("STAT curr_connections 1\r\n");
    while !open() {
        assert!(start.elapsed() < Duration::from_secs(90), "connections are left");
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(greedy);
    assert_eq!(
        talk(&address, b"set k 0 0 1\r\nx\r\nget k\r\nquit\r\n", 100),
        "STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n"
    );
}

#[test]
fn ten_thousand_idle_connections_cost_little() {
    const TEST: &str = "memcached_proxy::input::ten_thousand_idle_connections_cost_little";
    use rustix::process::{Resource, getrlimit, setrlimit};
    const COUNT: usize = 10_000;
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
    if limit.maximum.is_some_and(|most| most < COUNT as u64 + 2000) {
        return crate::left_out::left_out(TEST, "a process may not open 12,000 files");
    }
    let Some((_server, process, address)) =
        proxy_of_one_server(TEST, &["memcached.connections_max=10001"])
    else {
        return;
    };
    let before = memory(&process);
    let mut idle = Vec::new();
    for i in 0..COUNT {
        let mut stream = TcpStream::connect(&address).unwrap();
        // Half of them have made a request, or begun one.
        match i % 4 {
            0 => stream.write_all(b"get k\r\n").unwrap(),
            1 => stream.write_all(b"ge").unwrap(),
            _ => {}
        }
        idle.push(stream);
    }
    let reply = talk(&address, b"set k 0 0 1\r\nx\r\nget k\r\nquit\r\n", 100);
    assert_eq!(reply, "STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n");
    let each = memory(&process).saturating_sub(before) / COUNT as u64;
    assert!(each < 8 << 10, "{each} bytes for each connection");
    // One too many gets the place of one that is idle; one that has begun a request goes on.
    idle.push(TcpStream::connect(&address).unwrap());
    for _ in 0..3 {
        let reply = talk(&address, b"get k\r\nquit\r\n", 100);
        assert_eq!(reply, "VALUE k 0 1\r\nx\r\nEND\r\n");
    }
    let mut second = &idle[1];
    second.write_all(b"t k\r\nquit\r\n").unwrap();
    let mut text = String::new();
    second.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    second.read_to_string(&mut text).unwrap();
    assert_eq!(text, "VALUE k 0 1\r\nx\r\nEND\r\n");
}
