//! Clients that take everything and give nothing: replies that are never read, uploads that drip,
//! connections that are only held.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use crate::serve_client::{Client, LONGEST, bytes, spawn, start, until};

/// The number of open connections, this one included; `None` if the server refuses this one.
fn connections(address: SocketAddr) -> Option<u64> {
    let reply = Client::connect(address).get("/admin/status");
    let status: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
    (reply.status != 503).then(|| status["connections"].as_u64().unwrap())
}

/// Waits until the asking connection alone is left.
fn all_closed(address: SocketAddr) {
    let start = Instant::now();
    while connections(address).is_none_or(|n| n > 1) {
        assert!(start.elapsed() < Duration::from_secs(90), "stalled connections are kept");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn replies_that_are_never_read_are_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let more = ["serve.stall_s=0.5", "node.memory_bytes=100MB", "node.object_bytes_max=50MB"];
    let server = start(folder.path(), &more);
    let address = server.address();
    // From memory, and streamed from the origin; more than the kernel keeps for a socket.
    for (path, size) in [("/objects/kept", 40_000_000), ("/objects/streamed", 60_000_000)] {
        assert_eq!(Client::connect(address).put(path, &bytes(1, size)).status, 200);
        let mut silent = Vec::new();
        for _ in 0..5 {
            let mut stream = TcpStream::connect(address).unwrap();
            write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
            silent.push(stream);
        }
        all_closed(address);
        // Who reads slowly, but reads, gets all of it.
        let mut slow = Client::connect(address);
        write!(slow.stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut start = vec![0; 100_000];
        for _ in 0..20 {
            slow.stream.read_exact(&mut start).unwrap();
            std::thread::sleep(Duration::from_millis(50));
        }
        let mut rest = 0;
        while rest < size - 2_000_000 {
            let count = slow.stream.read(&mut start).unwrap();
            assert!(count > 0, "a slow reader was cut off");
            rest += count;
        }
        drop(silent);
    }
    server.stop();
}

#[test]
fn bodies_that_drip_are_given_up() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("origin")).unwrap();
    let server = start(folder.path(), &["serve.stall_s=0.5"]);
    let address = server.address();
    let mut client = Client::connect(address);
    let head = "PUT /objects/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\n";
    client.stream.write_all(head.as_bytes()).unwrap();
    let mut stream = client.stream.try_clone().unwrap();
    let dripping = std::thread::spawn(move || {
        // Until the server closes the connection.
        for _ in 0..2000 {
            if stream.write_all(b"x").is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("a byte now and then keeps the connection");
    });
    let told = client.read(false).unwrap();
    assert_eq!(told.status, 400);
    assert!(told.text().contains("serve.rate_bytes_min"), "{}", told.text());
    drop(client);
    dripping.join().unwrap();
    all_closed(address);
    assert_eq!(Client::connect(address).get("/objects/a").status, 404);
    server.stop();
}

#[test]
fn health_is_answered_when_all_connections_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &["serve.connections_max=3"]);
    let address = server.address();
    // At work: idle ones would make room.
    let head = "PUT /objects/b HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n";
    let held: Vec<Client> = (0..3)
        .map(|_| {
            let mut client = Client::connect(address);
            assert_eq!(client.get("/healthz").status, 200);
            client.stream.write_all(head.as_bytes()).unwrap();
            client
        })
        .collect();
    // Until the server has read their heads, one of them would make room.
    std::thread::sleep(Duration::from_secs(1));
    let refused = Client::connect(address).get("/objects/a");
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    let told: serde_json::Value = serde_json::from_slice(&refused.body).unwrap();
    assert!(told["error"].as_str().unwrap().contains("serve.connections_max is 3"), "{told}");
    for path in ["/healthz", "/readyz", "/metrics", "/admin/status"] {
        assert_eq!(Client::connect(address).get(path).status, 200, "{path}");
    }
    // Those for health cannot be held either.
    let silent: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(address).unwrap()).collect();
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(Client::connect(address).get("/healthz").status, 200);
    drop((held, silent));
    all_closed(address);
    server.stop();
}

#[test]
fn a_connection_that_waits_longest_makes_room_for_another() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &["serve.connections_max=3"]);
    let address = server.address();
    let mut held: Vec<Client> = (0..3).map(|_| Client::connect(address)).collect();
    for client in &mut held {
        assert_eq!(client.put("/objects/a", b"a").status, 200);
    }
    // hyper keeps a connection on which a body came in chunks.
    let chunked =
        "PUT /objects/a HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
    let body = "1\r\na\r\n0\r\n\r\n";
    held[2].stream.write_all([chunked, body].concat().as_bytes()).unwrap();
    assert_eq!(held[2].read(false).unwrap().status, 200);
    // An incomplete head is not a request.
    held[1].stream.write_all(b"GET /objects/a HT").unwrap();
    std::thread::sleep(Duration::from_millis(150));
    assert_eq!(held[0].get("/objects/a").status, 200);
    for _ in 0..2 {
        let mut other = Client::connect(address);
        assert_eq!(other.get("/objects/a").status, 200, "refused though others are idle");
        held.push(other);
    }
    assert_eq!(held[0].get("/objects/a").status, 200, "it was used last");
    for (index, closed) in [(1, true), (2, true), (3, false), (4, false)] {
        let sent = held[index].send("GET", "/objects/a", &[], None);
        assert_eq!(sent.is_err(), closed, "connection {index}");
    }
    server.stop();
}

#[test]
fn one_address_cannot_take_all_connections() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &["serve.connections_per_address_max=2"]);
    let address = server.address();
    let mut held: Vec<Client> = (0..2).map(|_| Client::connect(address)).collect();
    for client in &mut held {
        assert_eq!(client.get("/objects/a").status, 404);
    }
    let refused = Client::connect(address).get("/objects/a");
    assert!(refused.text().contains("connections_per_address_max"), "{}", refused.text());
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::from(([127, 0, 0, 2], 0))).unwrap();
    connect(&socket, &address).unwrap();
    let mut other = TcpStream::from(socket);
    other
        .write_all(b"GET /objects/a HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut reply = String::new();
    other.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 404 "), "{reply}");
    held.pop();
    until("a place is free", || Client::connect(address).get("/objects/a").status == 404);
    server.stop();
}

fn resident_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}

#[test]
fn memory_is_given_back_when_many_uploads_have_ended() {
    let folder = tempfile::tempdir().unwrap();
    let process = spawn(folder.path(), &[], "ulimit -n 4096;");
    let before = resident_bytes(process.child.id());
    let head = "PUT /objects/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n";
    let begun = [head.as_bytes(), &bytes(1, 150_000)].concat();
    let held: Vec<TcpStream> = (0..400)
        .map(|_| {
            let mut stream = TcpStream::connect(process.address).unwrap();
            stream.write_all(&begun).unwrap();
            stream
        })
        .collect();
    std::thread::sleep(Duration::from_secs(1));
    let peak = resident_bytes(process.child.id());
    drop(held);
    all_closed(process.address);
    let start = Instant::now();
    loop {
        let after = resident_bytes(process.child.id());
        if after < before + (peak - before) / 3 {
            break;
        }
        assert!(start.elapsed() < LONGEST, "{before} {peak} {after} bytes");
        std::thread::sleep(Duration::from_millis(100));
    }
}
