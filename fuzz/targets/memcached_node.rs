//! Any bytes to a node that speaks memcached's protocol, which keeps what it is told in memory: the connection ends.

#![no_main]

mod edits;
mod servers;

use std::net::SocketAddr;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use serve::Server;

const SEEDS: [&[u8]; 6] = [
    b"set k 7 0 5\r\nabcde\r\nget k\r\ngets k other\r\ncas k 1 0 2 9\r\nab\r\n",
    b"add k 0 1 1 noreply\r\na\r\nreplace k 0 -1 1\r\nb\r\nappend k 0 0 1\r\nc\r\nprepend k 0 0 1\r\nd\r\n",
    b"set n 0 0 2\r\n99\r\nincr n 1\r\ndecr n 200\r\ntouch n 60\r\ngat 0 n\r\ngats 5 n k\r\ndelete n\r\n",
    b"ms k 5 T0 F7 I\r\nabcde\r\nmg k v t f c k s\r\nmd k q\r\nmn\r\n",
    b"ma n N0 J5 D2 v\r\nms k 2 MA b\r\nab\r\nmg aw b v\r\nme k\r\n",
    b"stats\r\nversion\r\nverbosity 1\r\nflush_all 0\r\nquit\r\n",
];

struct Running {
    _server: Server,
    address: SocketAddr,
}

static RUNNING: LazyLock<Running> = LazyLock::new(|| {
    let folder = servers::folder("memcached");
    let sets = ["memcached.node_listen=127.0.0.1:0", "origin.kind=none"];
    let server = servers::start(&folder, &sets);
    let address = server.memcached().expect("memcached's front").parse().expect("an address");
    Running { _server: server, address }
});

fuzz_target!(|data: &[u8]| {
    let bytes = edits::edited(&SEEDS, data);
    let came = servers::send(RUNNING.address, &bytes);
    assert!(!came.starts_with(b"SERVER_ERROR internal"), "{}", came.escape_ascii());
});
