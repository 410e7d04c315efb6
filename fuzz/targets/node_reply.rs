//! Any bytes as what a node replies to a gateway: to reads and writes of objects, and of parts of them.
//! Every client is answered, and no object that differs from its etag is passed on.

#![no_main]

mod edits;
mod servers;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use origin::{Attributes, VersionHasher};
use serve::Server;
use servers::Client;
use servers::fake::{self, Replies};

/// The etag of `hello` of the type `a/b`, and the replies with it.
static KNOWN: LazyLock<(String, Vec<Vec<u8>>)> = LazyLock::new(|| {
    let mut hasher = VersionHasher::default();
    hasher.update(b"hello");
    let attributes = Attributes { content_type: Some("a/b".to_owned()), user: Vec::new() };
    let etag = hasher.finish(&attributes).to_string();
    let with = |reply: &&str| reply.replace("ETAG", &etag).into_bytes();
    let replies = REPLIES.iter().map(with).collect();
    (etag, replies)
});
const REPLIES: [&str; 8] = [
    "HTTP/1.1 200 OK\r\netag: \"ETAG\"\r\nconcertina-outcome: memory\r\nconcertina-queue-length: 3\r\nconcertina-node-length: 2\r\nconcertina-warm: 1\r\nlast-modified: Tue, 24 Nov 2026 08:00:00 GMT\r\ncontent-type: a/b\r\ncontent-length: 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\netag: \"ETAG\"\r\ncontent-length: 300000\r\n\r\nhello",
    "HTTP/1.1 206 Partial Content\r\netag: \"e\"\r\ncontent-range: bytes 1-3/5\r\ncontent-length: 3\r\n\r\nell",
    "HTTP/1.1 200 OK\r\netag: \"e\"\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "HTTP/1.1 421 Misdirected Request\r\ncontent-length: 15\r\n\r\n{\"error\":\"none\"}",
    "HTTP/1.1 503 Service Unavailable\r\nconcertina-busy: 1\r\nretry-after: 1\r\ncontent-length: 15\r\n\r\n{\"error\":\"busy\"}",
    "HTTP/1.1 304 Not Modified\r\netag: \"ETAG\"\r\n\r\n",
    "HTTP/1.1 404 Not Found\r\nconcertina-outcome: origin\r\ncontent-length: 15\r\n\r\n{\"error\":\"none\"}",
];
const REQUESTS: [&str; 6] = [
    "GET /objects/k HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
    "GET /objects/k HTTP/1.1\r\nhost: 127.0.0.1\r\nconcertina-deadline-ms: 200\r\n\r\n",
    "GET /objects/k HTTP/1.1\r\nhost: 127.0.0.1\r\nrange: bytes=1-3\r\n\r\n",
    "HEAD /objects/k HTTP/1.1\r\nhost: 127.0.0.1\r\nif-none-match: \"e\"\r\n\r\n",
    "PUT /objects/k HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 5\r\n\r\nhello",
    "DELETE /objects/k HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
];

struct Running {
    _gateway: Server,
    address: std::net::SocketAddr,
    replies: Arc<Replies>,
}

/// The length of a request, and the reply to a ping.
fn usual(came: &[u8]) -> Option<(usize, Option<Vec<u8>>)> {
    let head = came.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&came[..head]);
    let of = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        let value = lines.find(|(found, _)| found.eq_ignore_ascii_case(name));
        value.map(|(_, value)| value.trim().to_owned())
    };
    let body = of("content-length").and_then(|it| it.parse().ok()).unwrap_or(0);
    let length = head + body;
    if came.len() < length {
        return None;
    }
    let reply = match text.starts_with("GET /cluster/") {
        true if text.starts_with("GET /cluster/ping") => {
            let value = |name| of(name).unwrap_or_default();
            let (protocol, ring) = (value("concertina-protocol"), value("concertina-ring"));
            Some(format!(
                "HTTP/1.1 200 OK\r\nconcertina-protocol: {protocol}\r\nconcertina-ring: {ring}\r\ncontent-length: 0\r\n\r\n"
            ))
        }
        true => Some("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned()),
        false => None,
    };
    Some((length, reply.map(String::into_bytes)))
}

static RUNNING: LazyLock<Running> = LazyLock::new(|| {
    let replies = Arc::new(Replies::default());
    let node = fake::start(&replies, usual);
    let sets = [
        "serve.role=gateway".to_owned(),
        "gateway.deadline_s=0.3".to_owned(),
        "gateway.attempt_timeout_min_s=0.05".to_owned(),
        "gateway.attempt_timeout_max_s=0.1".to_owned(),
        "gateway.ping_s=0.005".to_owned(),
        "gateway.retry_share=1".to_owned(),
        "gateway.verify=always".to_owned(),
        "cluster.replicas=1".to_owned(),
        "member.0.name=a".to_owned(),
        format!("member.0.address={node}"),
    ];
    let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
    let gateway = servers::start(&servers::folder("node"), &sets);
    let address = gateway.address();
    Running { _gateway: gateway, address, replies }
});

// Input: what is asked, then the node's reply as edits of one of the above, or any bytes.
fuzz_target!(|data: &[u8]| {
    let [which, data @ ..] = data else { return };
    let running = &*RUNNING;
    let (etag, replies) = &*KNOWN;
    let replies: Vec<&[u8]> = replies.iter().map(Vec::as_slice).collect();
    running.replies.set(edits::edited(&replies, data));
    let request = REQUESTS[usize::from(*which) % REQUESTS.len()];
    let mut client = Client::default();
    // A node that failed is asked again as soon as it has answered a ping.
    for _ in 0..8 {
        let before = running.replies.asked();
        let reply = client.ask_or_end(running.address, request.as_bytes());
        let Some(reply) = reply else { return };
        let whole = request.starts_with("GET") && reply.status == 200;
        let is_hello = reply.head.windows(etag.len()).any(|it| it == etag.as_bytes());
        assert!(!(whole && is_hello) || reply.body == b"hello", "{}", reply.body.escape_ascii());
        if running.replies.asked() > before {
            return;
        }
        std::thread::sleep(Duration::from_millis(4));
    }
});
