//! A gateway before nodes: real ones, and sockets that misbehave.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use configuration::Config;
use serve::Server;
use tempfile::TempDir;

use crate::serve_client::{Client, Reply, bytes, free, start, until};

/// Members `a`, `b` … and what belongs to all processes of a cluster.
fn cluster(folder: &Path, members: &[SocketAddr], more: &str) -> String {
    let mut text = format!("[origin]\npath = \"{}/origin\"\n", folder.display());
    text.push_str("[cluster]\nreplicas = 3\n@NAME@\n");
    text.push_str(more);
    for (index, address) in members.iter().enumerate() {
        let name = char::from(b'a' + index as u8);
        text.push_str(&format!("[[member]]\nname = \"{name}\"\naddress = \"{address}\"\n"));
    }
    text
}

fn gateway_of(text: &str) -> Server {
    let set = ["serve.role=gateway", "serve.listen=127.0.0.1:0", "serve.drain_s=1"];
    let set: Vec<String> = set.iter().map(|&text| text.to_owned()).collect();
    Server::start(Config::parse(&text.replace("@NAME@", ""), "test", &set).unwrap(), None).unwrap()
}

fn node_of(folder: &Path, text: &str, name: &str) -> Server {
    let set = vec![
        "serve.role=node".to_owned(),
        "serve.drain_s=0.2".to_owned(),
        format!("device.0.path={}/device-{name}", folder.display()),
    ];
    let text = text.replace("@NAME@", &format!("name = \"{name}\""));
    Server::start(Config::parse(&text, "test", &set).unwrap(), None).unwrap()
}

struct Cluster {
    folder: TempDir,
    nodes: Vec<Option<Server>>,
    gateway: Server,
    text: String,
}

/// Three real nodes and a gateway.
fn three(more: &str) -> Cluster {
    three_on(tempfile::tempdir().unwrap(), more)
}

/// The same before an origin that may have objects.
fn three_on(folder: TempDir, more: &str) -> Cluster {
    let members: Vec<SocketAddr> = (0..3).map(|_| free()).collect();
    let text = cluster(folder.path(), &members, more);
    let nodes = ["a", "b", "c"].map(|name| Some(node_of(folder.path(), &text, name)));
    let gateway = gateway_of(&text);
    Cluster { folder, nodes: nodes.into(), gateway, text }
}

impl Cluster {
    fn client(&self) -> Client {
        Client::connect(self.gateway.address())
    }

    fn stop(self) {
        self.gateway.stop();
        self.nodes.into_iter().flatten().for_each(Server::stop);
    }
}

fn status(gateway: &Server) -> serde_json::Value {
    let reply = Client::connect(gateway.address()).get("/admin/status");
    serde_json::from_slice(&reply.body).unwrap()
}

/// No repetition helps: a client that waits and asks again is told so, as by a node.
#[test]
fn a_damaged_object_is_said_to_be_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &[]);
    let mut client = Client::connect(server.address());
    assert_eq!(client.put("/objects/small", &bytes(3, 5_000)).status, 200);
    server.stop();
    let name = format!("{:.2}", blake3::hash(b"small").to_hex());
    let path = folder.path().join("origin").join(name).join("small");
    let mut stored = std::fs::read(&path).unwrap();
    stored[100] ^= 1;
    std::fs::write(&path, &stored).unwrap();
    let cluster = three_on(folder, "");
    let mut client = cluster.client();
    for method in ["GET", "HEAD"] {
        let reply = client.send(method, "/objects/small", &[], None).unwrap();
        assert_eq!((reply.status, reply.header("retry-after")), (502, None), "{method}: {reply:?}");
    }
    let reply = client.get("/objects/small");
    assert!(reply.text().contains("checksum"), "{reply:?}");
    // Another one is served as ever, by the same nodes.
    assert_eq!(client.put("/objects/other", b"other").status, 200);
    assert_eq!(client.get("/objects/other").body, b"other");
    cluster.stop();
}

#[test]
fn objects_come_and_go_through_a_gateway() {
    let cluster = three("");
    let mut client = cluster.client();
    for (size, name) in [(0, "empty"), (10, "small"), (80_000, "song"), (5_000_000, "film")] {
        let path = format!("/objects/dir/{name}%20x");
        let body = bytes(size as u64, size);
        let headers = [("content-type", "audio/x"), ("concertina-meta-tag", "value")];
        let put = client.send("PUT", &path, &headers, Some(&body)).unwrap();
        assert_eq!(put.status, 200, "{}", put.text());
        let get = client.get(&path);
        assert_eq!((get.status, get.body == body), (200, true), "{name}");
        assert_eq!(get.header("content-type"), Some("audio/x"));
        assert_eq!(get.header("concertina-meta-tag"), Some("value"));
        assert!(["a", "b", "c"].contains(&get.header("concertina-node").unwrap()));
        assert!(get.header("concertina-outcome").is_some());
        assert_eq!(get.header("etag"), put.header("etag"));
        let head = client.send("HEAD", &path, &[], None).unwrap();
        assert_eq!(head.header("content-length"), Some(size.to_string().as_str()));
        let etag = get.header("etag").unwrap().to_owned();
        let same = client.send("GET", &path, &[("if-none-match", &etag)], None).unwrap();
        assert_eq!((same.status, same.body.len()), (304, 0));
        let other = client.send("GET", &path, &[("if-match", "\"x\"")], None).unwrap();
        assert_eq!(other.status, 412);
        if size > 0 {
            let part = client.send("GET", &path, &[("range", "bytes=3-7")], None).unwrap();
            assert_eq!((part.status, &part.body[..]), (206, &body[3..8]));
            assert_eq!(part.header("content-range"), Some(&*format!("bytes 3-7/{size}")));
        }
    }
    let staged = client.send("GET", "/objects/dir/song%20x", &[("concertina-stages", "")], None);
    let staged = staged.unwrap();
    assert!(staged.header("concertina-stages").unwrap().contains("served_ns="));
    assert!(staged.header("concertina-node-stages").unwrap().contains("served_ns="));
    let list = client.get("/objects?prefix=dir/");
    let list: serde_json::Value = serde_json::from_slice(&list.body).unwrap();
    assert_eq!(list["objects"].as_array().unwrap().len(), 4);
    let delete = client.send("DELETE", "/objects/dir/song%20x", &[], None).unwrap();
    assert_eq!(delete.status, 204);
    let gone = client.get("/objects/dir/song%20x");
    assert_eq!(gone.status, 404);
    assert!(gone.text().contains("no object of this key"));
    assert_eq!(client.get("/objects/").status, 400);
    assert_eq!(client.get("/nothing").status, 404);
    assert_eq!(client.get("/readyz").status, 200);
    let metrics = client.get("/metrics").text();
    assert!(metrics.contains("concertina_gateway_node_state{node=\"a\",state=\"healthy\"} 1"));
    cluster.stop();
}

#[test]
fn an_upload_in_chunks_is_passed_on() {
    let cluster = three("");
    let mut client = cluster.client();
    client
        .stream
        .write_all(
            b"PUT /objects/k HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n\
              3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n",
        )
        .unwrap();
    assert_eq!(client.read(false).unwrap().status, 200);
    assert_eq!(client.get("/objects/k").text(), "abcdefg");
    client.stream.write_all(b"PUT /objects/k HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    assert_eq!(client.read(false).unwrap().status, 411);
    cluster.stop();
}

/// Reads in some threads while `during` runs; counts what was not answered with the right bytes.
fn reads_while(address: SocketAddr, during: impl FnOnce()) -> (usize, Vec<String>) {
    let stop = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                let (mut client, mut done, mut wrong) = (Client::connect(address), 0, Vec::new());
                while !stop.load(Ordering::Relaxed) {
                    let number = (done + thread * 7) % 20;
                    let reply = client.get(&format!("/objects/k{number}"));
                    if reply.status != 200 || reply.body != bytes(number as u64, 30_000) {
                        wrong.push(format!("{}: {}", reply.status, reply.text()));
                    }
                    done += 1;
                }
                (done, wrong)
            })
        })
        .collect();
    during();
    stop.store(true, Ordering::Relaxed);
    let mut all = (0, Vec::new());
    for thread in threads {
        let (done, wrong) = thread.join().unwrap();
        all.0 += done;
        all.1.extend(wrong);
    }
    all
}

fn fill(cluster: &Cluster) {
    let mut client = cluster.client();
    for number in 0..20 {
        let put = client.put(&format!("/objects/k{number}"), &bytes(number, 30_000));
        assert_eq!(put.status, 200, "{}", put.text());
    }
}

#[test]
fn a_node_that_dies_costs_no_read() {
    let mut cluster = three("");
    fill(&cluster);
    let victim = cluster.nodes[1].take().unwrap();
    let (done, wrong) = reads_while(cluster.gateway.address(), || {
        std::thread::sleep(Duration::from_millis(300));
        victim.stop();
        std::thread::sleep(Duration::from_millis(700));
    });
    assert!(wrong.is_empty() && done > 20, "{done}: {wrong:?}");
    until("b is suspected", || {
        status(&cluster.gateway)["gateway"]["nodes"][1]["state"] == "suspect"
    });
    cluster.nodes[1] = Some(node_of(cluster.folder.path(), &cluster.text, "b"));
    until("b is back", || status(&cluster.gateway)["gateway"]["nodes"][1]["state"] != "suspect");
    cluster.stop();
}

#[test]
fn a_node_that_hangs_costs_no_read() {
    let folder = tempfile::tempdir().unwrap();
    // It accepts and never answers: the kernel does, here.
    let hung = TcpListener::bind("127.0.0.1:0").unwrap();
    let members = [free(), hung.local_addr().unwrap(), free()];
    let more = "[gateway]\nattempt_timeout_max_s = 0.3\n";
    let text = cluster(folder.path(), &members, more);
    let nodes = [("a", 0), ("c", 2)].map(|(name, _)| Some(node_of(folder.path(), &text, name)));
    let gateway = gateway_of(&text);
    let mut client = Client::connect(nodes[0].as_ref().unwrap().address());
    for number in 0..20 {
        let put = client.put(&format!("/objects/k{number}"), &bytes(number, 30_000));
        // A key of the node's that hangs is not this one's to write.
        assert!([200, 421].contains(&put.status), "{}", put.text());
    }
    drop(client);
    let mut client = Client::connect(nodes[1].as_ref().unwrap().address());
    for number in 0..20 {
        client.put(&format!("/objects/k{number}"), &bytes(number, 30_000));
    }
    let mut client = Client::connect(gateway.address());
    let start = Instant::now();
    for number in 0..20 {
        let reply = client.get(&format!("/objects/k{number}"));
        assert!([200, 404].contains(&reply.status), "{}", reply.text());
    }
    assert!(start.elapsed() < Duration::from_secs(40), "{:?}", start.elapsed());
    until("b is suspected", || status(&gateway)["gateway"]["nodes"][1]["state"] == "suspect");
    gateway.stop();
    nodes.into_iter().flatten().for_each(Server::stop);
}

/// What a fake node sends for a request's head, and whether it goes on.
type Script = Box<dyn Fn(&str) -> (Vec<u8>, bool) + Send + Sync>;

/// A socket that answers pings as a node of the ring does, and all else as `answer` says: given the
/// request's head, the bytes to send, and whether to go on.
fn fake(
    listener: TcpListener,
    ring: String,
    answer: impl Fn(&str) -> (Vec<u8>, bool) + Send + Sync + 'static,
) {
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(mut stream), ring, answer) = (stream, ring.clone(), answer.clone()) else {
                return;
            };
            std::thread::spawn(move || {
                while let Some(head) = read_head(&mut stream) {
                    let (reply, more) = if head.starts_with("GET /cluster/ping ") {
                        let pong = format!(
                            "HTTP/1.1 200 OK\r\nconcertina-protocol: 1\r\nconcertina-ring: {ring}\r\n\
                             concertina-node-length: 0\r\ncontent-length: 0\r\n\r\n"
                        );
                        (pong.into_bytes(), true)
                    } else if head.starts_with("GET /cluster/about ") {
                        (b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec(), true)
                    } else {
                        answer(&head)
                    };
                    if stream.write_all(&reply).is_err() || !more {
                        return;
                    }
                }
            });
        }
    });
}

fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        (stream.read(&mut byte).ok()? == 1).then_some(())?;
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

/// Fake nodes and a gateway.
fn faked<const N: usize>(more: &str, answers: [Script; N]) -> (TempDir, Server) {
    let folder = tempfile::tempdir().unwrap();
    let listeners: Vec<TcpListener> =
        (0..N).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let members: Vec<SocketAddr> = listeners.iter().map(|l| l.local_addr().unwrap()).collect();
    let text = cluster(folder.path(), &members, more);
    let set = ["serve.role=gateway".to_owned()];
    let config = Config::parse(&text.replace("@NAME@", ""), "test", &set).unwrap();
    let ring = format!("{:016x}", config.ring().unwrap().fingerprint());
    for (listener, answer) in listeners.into_iter().zip(answers) {
        fake(listener, ring.clone(), answer);
    }
    (folder, gateway_of(&text))
}

fn object(head: &str, body: &[u8], sent: usize) -> (Vec<u8>, bool) {
    let range = head.lines().find_map(|line| line.strip_prefix("range: bytes="));
    let (from, to) = match range.and_then(|range| range.split_once('-')) {
        Some((from, to)) => (from.parse().unwrap(), to.parse::<usize>().unwrap() + 1),
        None => (0, body.len()),
    };
    let whole = from == 0 && to == body.len();
    let mut reply = format!(
        "HTTP/1.1 {}\r\netag: \"v1\"\r\nconcertina-outcome: memory\r\ncontent-length: {}\r\n",
        if whole { "200 OK" } else { "206 Partial Content" },
        to - from
    );
    if !whole {
        reply.push_str(&format!("content-range: bytes {from}-{}/{}\r\n", to - 1, body.len()));
    }
    let mut reply = (reply + "\r\n").into_bytes();
    reply.extend_from_slice(&body[from..to.min(from + sent)]);
    (reply, to - from <= sent)
}

#[test]
fn a_large_body_that_breaks_off_is_continued_by_another() {
    let body: &'static [u8] = bytes(1, 3_000_000).leak();
    // Each node sends a million bytes of what it is asked for, and breaks off.
    let (_folder, gateway) = faked(
        "",
        [
            Box::new(|head: &str| object(head, body, 1_000_000)),
            Box::new(|head: &str| object(head, body, 1_000_000)),
            Box::new(|head: &str| object(head, body, 1_000_000)),
        ],
    );
    let reply = Client::connect(gateway.address()).get("/objects/film");
    assert_eq!((reply.status, reply.body == body), (200, true));
    gateway.stop();
}

#[test]
fn a_large_body_that_another_version_cannot_continue_breaks_off() {
    let body: &'static [u8] = bytes(1, 3_000_000).leak();
    let asked: &'static AtomicUsize = Box::leak(Box::default());
    let answer = || {
        Box::new(move |head: &str| {
            if asked.fetch_add(1, Ordering::Relaxed) == 0 {
                return object(head, body, 1_000_000);
            }
            assert!(head.contains("if-match: \"v1\""), "{head}");
            let failed = "HTTP/1.1 412 Precondition Failed\r\nconcertina-outcome: memory\r\n\
                          content-length: 0\r\n\r\n";
            (failed.as_bytes().to_vec(), true)
        }) as Script
    };
    let (_folder, gateway) = faked("", [answer(), answer(), answer()]);
    let mut client = Client::connect(gateway.address());
    assert!(client.send("GET", "/objects/film", &[], None).is_err());
    gateway.stop();
}

/// A reply whose etag is that of other bytes.
fn lie(body: &[u8]) -> (Vec<u8>, bool) {
    let mut hasher = origin::VersionHasher::default();
    hasher.update(b"the truth");
    let etag = hasher.finish(&origin::Attributes::default());
    let head = format!(
        "HTTP/1.1 200 OK\r\netag: \"{etag}\"\r\nconcertina-outcome: memory\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    ([head.as_bytes(), body].concat(), true)
}

#[test]
fn a_lying_node_is_not_believed() {
    for size in [9, 100_000, 3_000_000] {
        let body: &'static [u8] = bytes(7, size).leak();
        let liar = || Box::new(|_: &str| lie(body)) as Script;
        // One of the three tells the truth; nobody gets anything else.
        let honest = Box::new(|_: &str| lie(b"the truth")) as Script;
        let verify = "[gateway]\nverify = \"always\"\n";
        let (_folder, gateway) = faked(verify, [liar(), honest, liar()]);
        let mut truths = 0;
        for _ in 0..20 {
            // With a head for hyper, and without: both ways are verified. Of a large lie the last piece is
            // missing.
            for headers in [&[][..], &[("if-none-match", "\"x\"")]] {
                let reply =
                    Client::connect(gateway.address()).send("GET", "/objects/k", headers, None);
                let found = reply.ok().filter(|reply| reply.status == 200);
                assert!(found.as_ref().is_none_or(|reply| reply.body == b"the truth"));
                truths += u32::from(found.is_some());
            }
        }
        // A large lie is found out at its end, too late to ask another.
        assert!(truths > 0 || size > 1_000_000, "nobody was told the truth");
        gateway.stop();
    }
}

#[test]
fn the_token_of_clients_is_worth_nothing_between_processes() {
    let cluster = three("token = \"between\"\n[serve]\ntoken = \"of-clients\"\n");
    let clients = ("authorization", "Bearer of-clients");
    let mut gateway = cluster.client();
    assert_eq!(gateway.send("PUT", "/objects/k", &[clients], Some(b"v")).unwrap().status, 200);
    assert_eq!(gateway.send("GET", "/objects/k", &[clients], None).unwrap().body, b"v");
    assert_eq!(gateway.send("GET", "/objects/k", &[], None).unwrap().status, 401);
    let between = ("authorization", "Bearer between");
    assert_eq!(gateway.send("GET", "/objects/k", &[between], None).unwrap().status, 401);
    let node = cluster.nodes[0].as_ref().unwrap().address();
    let process = [("concertina-protocol", "1"), ("concertina-from", "b")];
    for (method, path) in [
        ("POST", "/cluster/lease"),
        ("POST", "/cluster/invalidate/k"),
        ("POST", "/cluster/offer/k"),
        ("GET", "/objects/k"),
    ] {
        for (shown, refused) in [(Some(clients), true), (None, true), (Some(between), false)] {
            let mut headers = process.to_vec();
            headers.extend(shown);
            let body = (method == "POST").then_some(&b""[..]);
            let reply = Client::connect(node).send(method, path, &headers, body).unwrap();
            assert_eq!(reply.status == 401, refused, "{path} {shown:?}: {reply:?}");
        }
        // Without saying that it is a process, a client is one.
        if method == "POST" {
            let reply = Client::connect(node).send(method, path, &[clients], Some(b"")).unwrap();
            assert_eq!(reply.status, 400, "{reply:?}");
        }
    }
    cluster.stop();
}

#[test]
fn a_small_body_that_breaks_off_costs_another_try() {
    let body: &'static [u8] = bytes(1, 80_000).leak();
    let asked: &'static AtomicUsize = Box::leak(Box::default());
    let answer = || {
        Box::new(move |head: &str| {
            let first = asked.fetch_add(1, Ordering::Relaxed) == 0;
            object(head, body, if first { 40_000 } else { 80_000 })
        }) as Script
    };
    let (_folder, gateway) = faked("", [answer(), answer(), answer()]);
    let reply = Client::connect(gateway.address()).get("/objects/song");
    assert_eq!((reply.status, reply.body == body), (200, true));
    assert_eq!(status(&gateway)["gateway"]["counts"]["retries"], 1);
    gateway.stop();
}

/// It is not the client's credentials that a node refuses so.
#[test]
fn a_401_of_a_node_is_not_the_clients() {
    let body: &'static [u8] = bytes(1, 100).leak();
    let asked: &'static AtomicUsize = Box::leak(Box::default());
    let answer = || {
        Box::new(move |head: &str| {
            if head.starts_with("PUT ") || asked.fetch_add(1, Ordering::Relaxed) == 0 {
                let refused = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n";
                return (refused.as_bytes().to_vec(), false);
            }
            object(head, body, 100)
        }) as Script
    };
    let (_folder, gateway) = faked("", [answer(), answer(), answer()]);
    let mut client = Client::connect(gateway.address());
    let reply = client.get("/objects/song");
    assert_eq!((reply.status, reply.body == body), (200, true), "another node is asked");
    let reply = client.put("/objects/song", b"new");
    assert!(matches!(reply.status, 502..=504), "{} {}", reply.status, reply.text());
    gateway.stop();
}

fn refused(reply: &Reply, status: u16, words: &str) {
    assert_eq!(reply.status, status, "{}", reply.text());
    assert!(reply.text().contains(words), "{}", reply.text());
    assert_eq!(reply.header("retry-after"), Some("1"));
}

#[test]
fn busy_nodes_are_told_of() {
    let busy = "HTTP/1.1 503 Service Unavailable\r\nconcertina-outcome: error\r\n\
        concertina-busy: device/0\r\ncontent-length: 40\r\n\r\n{\"error\":\"the queue `device/0` is full\"} ";
    let answer = || Box::new(|_: &str| (busy.as_bytes().to_vec(), true)) as Box<_>;
    let (_folder, gateway) = faked("", [answer(), answer()]);
    let mut client = Client::connect(gateway.address());
    refused(&client.get("/objects/k"), 503, "device/0");
    refused(&client.put("/objects/k", b"x"), 503, "busy");
    gateway.stop();
}

#[test]
fn a_deadline_is_kept() {
    let answer = || {
        Box::new(|_: &str| {
            std::thread::sleep(Duration::from_secs(60));
            (Vec::new(), false)
        }) as Box<_>
    };
    let (_folder, gateway) = faked("", [answer(), answer()]);
    let mut client = Client::connect(gateway.address());
    let start = Instant::now();
    let late = [("concertina-deadline-ms", "200")];
    refused(&client.send("GET", "/objects/k", &late, None).unwrap(), 504, "200 ms");
    refused(&client.send("PUT", "/objects/k", &late, Some(b"x")).unwrap(), 504, "not known");
    assert!(start.elapsed() < Duration::from_secs(50), "{:?}", start.elapsed());
    until("nothing is left of them", || status(&gateway)["mailboxes"] == 0);
    let wrong = [("concertina-deadline-ms", "soon")];
    assert_eq!(client.send("GET", "/objects/k", &wrong, None).unwrap().status, 400);
    gateway.stop();
}

#[test]
fn requests_past_the_bound_are_refused_at_once() {
    let hung: Script = Box::new(|_: &str| {
        std::thread::sleep(Duration::from_secs(10));
        (Vec::new(), false)
    });
    let (_folder, gateway) = faked("[gateway]\nrequests_max = 1\n", [hung]);
    let mut first = Client::connect(gateway.address());
    first.stream.write_all(b"GET /objects/k HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    until("the first is under way", || status(&gateway)["gateway"]["requests"] == 1);
    refused(&Client::connect(gateway.address()).get("/objects/k"), 503, "requests_max");
    // A client that leaves makes room.
    drop(first);
    until("the first is over", || status(&gateway)["gateway"]["requests"] == 0);
    gateway.stop();
}

#[test]
fn nodes_of_another_ring_are_named_and_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let members = [free(), free()];
    let text = cluster(folder.path(), &members, "");
    let other = text.replace("replicas = 3", "replicas = 1");
    let nodes = [node_of(folder.path(), &text, "a"), node_of(folder.path(), &other, "b")];
    let gateway = gateway_of(&text);
    until("b is unfit", || status(&gateway)["gateway"]["nodes"][1]["state"] == "unfit");
    let told = status(&gateway);
    assert_eq!(told["mismatches"][0]["name"], "b");
    assert!(told["mismatches"][0]["why"].as_str().unwrap().contains("the ring"), "{told}");
    let mut client = Client::connect(gateway.address());
    for number in 0..10 {
        let reply = client.get(&format!("/objects/k{number}"));
        assert_eq!(reply.status, 404);
        assert_ne!(reply.header("concertina-node"), Some("b"));
    }
    gateway.stop();
    nodes.into_iter().for_each(Server::stop);
}

#[test]
fn without_nodes_the_origin_answers_reads() {
    let mut cluster = three("");
    fill(&cluster);
    cluster.nodes.iter_mut().for_each(|node| node.take().unwrap().stop());
    let mut client = cluster.client();
    let reply = client.get("/objects/k3");
    assert_eq!((reply.status, reply.body == bytes(3, 30_000)), (200, true), "{}", reply.text());
    assert_eq!(reply.header("concertina-node"), Some("origin"));
    let part = client.send("GET", "/objects/k3", &[("range", "bytes=5-9")], None).unwrap();
    assert_eq!((part.status, part.body.len()), (206, 5));
    let head = client.send("HEAD", "/objects/k3", &[], None).unwrap();
    assert_eq!(head.header("content-length"), Some("30000"));
    assert_eq!(client.get("/objects/none").status, 404);
    refused(&client.put("/objects/k3", b"x"), 503, "cannot be reached");
    cluster.stop();
}
