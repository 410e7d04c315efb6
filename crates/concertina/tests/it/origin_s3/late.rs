//! A request to the store that outlives the process that sent it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use configuration as config;
use origin::{Attributes, Origin, S3};

use super::{Store, config_of};
use crate::origin::{key, read, run, staged, write};

/// Passes connections on to the store, and holds the first PUT of an object until it is released.
struct Holding {
    endpoint: String,
    held: std::sync::mpsc::Receiver<()>,
    release: std::sync::mpsc::Sender<()>,
    /// The status line of the store's reply to the PUT that was held.
    late: std::sync::mpsc::Receiver<String>,
}

impl Holding {
    fn before(store: &Store, what: &'static str) -> Holding {
        use std::sync::mpsc::channel;
        use std::sync::{Arc, Mutex};
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let address = store.address.clone();
        let (hold, held) = channel();
        let (release, released) = channel();
        let (tell, late) = channel();
        let once = Arc::new(Mutex::new(Some((hold, released, tell))));
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let (address, once) = (address.clone(), once.clone());
                std::thread::spawn(move || {
                    let mut client = std::io::BufReader::new(client);
                    if let Some(request) = request(&mut client) {
                        let is_held = request.starts_with(what.as_bytes());
                        let holder = is_held.then(|| once.lock().unwrap().take()).flatten();
                        if let Some((hold, released, _)) = &holder {
                            hold.send(()).unwrap();
                            let _ = released.recv();
                        }
                        let reply = exchange(&address, &request);
                        if let Some((_, _, tell)) = holder {
                            let line = reply.split(|byte| *byte == b'\r').next().unwrap();
                            let _ = tell.send(String::from_utf8_lossy(line).into_owned());
                        }
                        // The store closed its end, so this end cannot be used again.
                        let _ = client.get_mut().write_all(&reply);
                    }
                });
            }
        });
        Holding { endpoint, held, release, late }
    }
}

/// A request with its body, as it came; `None` at the end.
fn request(from: &mut impl std::io::BufRead) -> Option<Vec<u8>> {
    let (mut all, mut length) = (Vec::new(), 0);
    loop {
        let start = all.len();
        if from.read_until(b'\n', &mut all).ok()? == 0 {
            return None;
        }
        let line = String::from_utf8_lossy(&all[start..]).to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            let head = all.len();
            all.resize(head + length, 0);
            from.read_exact(&mut all[head..]).ok()?;
            return Some(all);
        }
    }
}

/// Sends a request on a connection of its own, and returns the whole reply.
fn exchange(address: &str, request: &[u8]) -> Vec<u8> {
    let mut store = TcpStream::connect(address).unwrap();
    let line = request.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    store.write_all(&request[..line]).unwrap();
    store.write_all(b"connection: close\r\n").unwrap();
    store.write_all(&request[line..]).unwrap();
    let mut reply = Vec::new();
    let _ = store.read_to_end(&mut reply);
    reply
}

/// A request of a node that died is still under way when its successor's write is acknowledged.
#[test]
fn a_request_that_outlives_its_node_does_not_undo_a_later_write() {
    const TEST: &str =
        "origin_s3::late::a_request_that_outlives_its_node_does_not_undo_a_later_write";
    let Some(store) = Store::start(TEST) else { return };
    let next = store.open();
    let dying = |what| {
        let held = Holding::before(&store, what);
        let config = config::Origin { timeout_s: 30.0, ..config_of(&held.endpoint) };
        (S3::open(&config).unwrap(), held)
    };
    for before in [None, Some(&b"before"[..])] {
        if let Some(before) = before {
            run(write(&next, "k", before, Attributes::default()));
        }
        let (first, held) = dying("PUT /objects/k");
        run(async {
            let put = staged(&first, "k", b"late").await.commit(None);
            // The node ends while its request is on its way.
            let ended = tokio::time::timeout(Duration::from_millis(1500), put).await;
            assert!(ended.is_err(), "the PUT was not held: {ended:?}");
        });
        held.held.recv().unwrap();
        drop(first);
        run(write(&next, "k", b"acknowledged", Attributes::default()));
        held.release.send(()).unwrap();
        let status = held.late.recv().unwrap();
        assert_eq!(run(read(&next, "k", None)), b"acknowledged", "{status}");
        assert!(status.contains(" 412 "), "{status}");
        run(next.delete(&key("k"))).unwrap();
    }
}
