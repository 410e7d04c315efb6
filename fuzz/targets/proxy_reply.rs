//! Any bytes as what a memcached server replies to the proxy: the client's connection ends.

#![no_main]

mod edits;
mod servers;

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use serve::Server;
use servers::fake::{self, Replies};

const REPLIES: [&[u8]; 8] = [
    b"VALUE a 7 5 9\r\nhello\r\nEND\r\n",
    b"VALUE a 0 1\r\nx\r\nVALUE b 0 1\r\ny\r\nEND\r\n",
    b"VA 5 f7 s5 t-1 c9 O1\r\nhello\r\n",
    b"HD c9 b ka\r\n",
    b"EN\r\n",
    b"STORED\r\n",
    b"SERVER_ERROR out of memory storing object\r\n",
    b"STAT pid 1\r\nSTAT uptime 5\r\nEND\r\n",
];
const REQUESTS: [&[u8]; 8] = [
    b"get a\r\n",
    b"get a b c\r\n",
    b"gets a b\r\n",
    b"mg a v f t c k s O7\r\nmn\r\n",
    b"set a 7 0 5\r\nhello\r\n",
    b"ms a 2 T0 c\r\nxy\r\nmd b q\r\nmn\r\n",
    b"gat 60 a b\r\nincr a 5\r\n",
    b"cas a 1 0 2 9\r\nxy\r\ndelete a\r\nstats\r\n",
];

struct Running {
    _proxy: Server,
    address: SocketAddr,
    replies: Arc<Replies>,
}

/// The length of what came, if it is whole lines, and the reply to a server's pings.
fn usual(came: &[u8]) -> Option<(usize, Option<Vec<u8>>)> {
    came.ends_with(b"\r\n").then_some(())?;
    let ping = came.starts_with(b"version");
    Some((came.len(), ping.then(|| b"VERSION 1.6.18\r\n".to_vec())))
}

static RUNNING: LazyLock<Running> = LazyLock::new(|| {
    let replies = Arc::new(Replies::default());
    let servers: Vec<SocketAddr> = (0..3).map(|_| fake::start(&replies, usual)).collect();
    let list = servers.iter().map(|it| format!("\"{it}\"")).collect::<Vec<_>>().join(",");
    let sets = [
        "serve.role=proxy".to_owned(),
        "memcached.listen=127.0.0.1:0".to_owned(),
        "memcached.threads=1".to_owned(),
        "memcached.ping_s=0.005".to_owned(),
        "memcached.deadline_s=0.3".to_owned(),
        format!("pool.0.servers=[{list}]"),
        "pool.0.routing=hash_replicas".to_owned(),
        "pool.0.timeout_s=0.05".to_owned(),
        "pool.0.multi_get=sharded".to_owned(),
        "pool.0.flush_on_return=false".to_owned(),
    ];
    let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
    let proxy = servers::start(&servers::folder("proxy"), &sets);
    let address = proxy.memcached().expect("memcached's front").parse().expect("an address");
    Running { _proxy: proxy, address, replies }
});

// Input: what is asked, then a server's reply as edits of one of the above, or any bytes.
fuzz_target!(|data: &[u8]| {
    let [which, data @ ..] = data else { return };
    let running = &*RUNNING;
    running.replies.set(edits::edited(&REPLIES, data));
    let request = REQUESTS[usize::from(*which) % REQUESTS.len()];
    let came = servers::send(running.address, request);
    assert!(!came.is_empty(), "no reply to {}", request.escape_ascii());
});
