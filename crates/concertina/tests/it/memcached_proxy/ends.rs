//! What the end of a proxy leaves of its clients' requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{proxy, signal};

/// A server that has nothing, and answers reads once the gate is open.
fn server_behind(gate: Arc<AtomicBool>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let gate = gate.clone();
            std::thread::spawn(move || answer(&stream, &gate));
        }
    });
    address
}

fn answer(mut stream: &TcpStream, gate: &AtomicBool) {
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { return };
        let reply: &[u8] = match line.split(' ').next() {
            Some("get") => b"END\r\n",
            Some("version") => b"VERSION 1.6\r\n",
            Some("mn") => b"MN\r\n",
            _ => b"ERROR\r\n",
        };
        while line.starts_with("get") && !gate.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        if stream.write_all(reply).is_err() {
            return;
        }
    }
}

/// A proxy with requests under way and more that it has not read, which is told to end; the client's connection.
fn ending(requests: usize, gate: &Arc<AtomicBool>) -> (crate::measure::Running, TcpStream) {
    let server = server_behind(gate.clone());
    let (process, address) = proxy(&[server], &["pool.0.timeout_s=60.0", "serve.drain_s=60.0"]);
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all("get k\r\n".repeat(requests).as_bytes()).unwrap();
    signal("-TERM", process.0.id());
    // It has begun to end when nobody listens any more.
    while TcpStream::connect(&address).is_ok() {
        std::thread::sleep(Duration::from_millis(5));
    }
    (process, stream)
}

/// The proxy closed the connection when the requests that it had read were answered, although thousands lay unread: the
/// connection was reset, with the replies that the client had not read.
#[test]
fn a_proxy_that_ends_answers_what_has_come() {
    for requests in [1, 20_000] {
        let gate = Arc::new(AtomicBool::new(false));
        let (mut process, mut stream) = ending(requests, &gate);
        gate.store(true, Ordering::Relaxed);
        let mut replies = String::new();
        stream.read_to_string(&mut replies).unwrap();
        assert!(replies == "END\r\n".repeat(requests), "{} bytes", replies.len());
        stream.shutdown(Shutdown::Both).unwrap();
        assert!(process.0.wait().unwrap().success());
    }
}

#[test]
fn a_client_that_keeps_its_connection_does_not_keep_the_proxy() {
    let gate = Arc::new(AtomicBool::new(true));
    let (mut process, mut stream) = ending(1, &gate);
    let mut reply = [0; 5];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"END\r\n");
    // Half a request more, which nobody finishes, on a connection that was told that nothing follows.
    let _ = stream.write_all(b"get ");
    assert!(process.0.wait().unwrap().success());
}
