//! Any bytes to the HTTP listeners of a server in this process: of a node alone with a dataset, of a gateway, and of
//! that gateway's node by a sender who has the cluster's token and says that it is another member. Every connection ends,
//! and nothing is answered by 500.

#![no_main]

mod edits;
mod servers;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::LazyLock;

use dataset::manifest::{Manifest, ShardEntry, shard_file};
use dataset::remote::{key_of_file, key_of_manifest};
use libfuzzer_sys::fuzz_target;
use serve::Server;
use servers::Client;
use shard::Shard;
use shard::index::Options;
use shard::record::Schema;

const CLIENTS: [&[u8]; 9] = [
    b"PUT /objects/k HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 5\r\ncontent-type: a/b\r\nx-meta-a: b\r\nif-none-match: *\r\n\r\nabcdeGET /objects/k HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
    b"GET /objects/k HTTP/1.1\r\nhost: 127.0.0.1\r\nrange: bytes=1-2\r\nif-range: \"a\"\r\n\r\nHEAD /objects/k HTTP/1.1\r\nhost: 127.0.0.1\r\nif-modified-since: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n",
    b"PUT /objects/a%2Fb HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nDELETE /objects/a%2Fb HTTP/1.1\r\nhost: 127.0.0.1\r\nif-match: \"a\", \"b\"\r\n\r\n",
    b"GET /objects?prefix=a&limit=3&after=b HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
    b"GET /datasets/lines/records?query=name%3Aed%20AND%20size%3A1..9&limit=5&after=1&sorted=true HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\nGET /datasets/lines/count?bytes=ed HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
    b"GET /datasets/lines/extract?offset=3&len=9 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\nGET /datasets/lines/export?from=0&to=2 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\nGET /datasets/lines/records/1 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
    b"GET /datasets/lines/records?pattern=a.%2Bb&partial=true HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\nPOST /datasets/lines/records HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 10\r\n\r\n{\"name\":1}DELETE /datasets/lines/records/0 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
    b"GET /datasets/lines/parts/000001/records?query=ed HTTP/1.1\r\nhost: 127.0.0.1\r\nconcertina-view: a\r\nconcertina-chunk: 0\r\n\r\nGET /datasets/lines/parts/log/export HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
    b"GET /admin/status HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\nGET /actions HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\nGET /model?rate=5 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
];
/// `HEADERS` stands for those of a member.
const MEMBERS: [&[u8]; 6] = [
    b"GET /objects/k HTTP/1.1\r\nHEADERSconcertina-fill: 1\r\n\r\n",
    b"PUT /objects/k HTTP/1.1\r\nHEADERScontent-length: 3\r\nconcertina-epoch: 0\r\nconcertina-deadline-ms: 100\r\nconcertina-not-after-ns: 18446744073709551615\r\nconcertina-sha256: ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\r\n\r\nabc",
    b"POST /cluster/lease HTTP/1.1\r\nHEADERSconcertina-epoch: 0\r\ncontent-length: 0\r\n\r\n",
    b"POST /cluster/invalidate/k HTTP/1.1\r\nHEADERScontent-length: 0\r\n\r\nPOST /cluster/offer/k HTTP/1.1\r\nHEADERScontent-length: 0\r\n\r\n",
    b"POST /cluster/reads HTTP/1.1\r\nHEADERScontent-length: 40\r\n\r\n{\"bytes_max\":9,\"reads\":[[1,2],[3,4]]}   ",
    b"GET /cluster/ping HTTP/1.1\r\nHEADERSconcertina-hot-version: 3\r\n\r\nPOST /cluster/return HTTP/1.1\r\nHEADERScontent-length: 0\r\n\r\nGET /cluster/windows HTTP/1.1\r\nHEADERS\r\n\r\n",
];

struct Running {
    _servers: [Server; 2],
    alone: SocketAddr,
    gateway: SocketAddr,
    node: SocketAddr,
    headers: Vec<u8>,
}

fn put(client: &mut Client, to: SocketAddr, key: &[u8], body: &[u8]) {
    let head = format!(
        "PUT /objects/{} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {}\r\n\r\n",
        String::from_utf8_lossy(key),
        body.len()
    );
    let reply = client.ask(to, &[head.as_bytes(), body].concat());
    assert!(reply.status < 300, "{}", String::from_utf8_lossy(&reply.body));
}

fn put_dataset(to: SocketAddr) {
    let text =
        b"{\"name\":\"ed\",\"size\":90}\n{\"name\":\"nano\",\"size\":2900.5}\n{\"name\":\"x\"}\n";
    let mut file = Vec::new();
    let schema = Schema::detect(text);
    let built =
        Shard::build(text, schema.clone(), &[], &Options::default(), &mut file, &mut |_| ());
    built.expect("a shard");
    let mut manifest = Manifest::new(schema);
    manifest.shards.push(ShardEntry {
        file: shard_file(1),
        first_id: 0,
        records: 3,
        input_bytes: text.len() as u64,
        file_bytes: file.len() as u64,
        gone: 0,
        gaps: Vec::new(),
    });
    manifest.next_shard = 2;
    let mut client = Client::default();
    let key = key_of_file("lines", &manifest.id, &shard_file(1));
    put(&mut client, to, &key, &file);
    put(&mut client, to, &key_of_manifest("lines"), &manifest.encode().expect("a manifest"));
    for _ in 0..200 {
        let asked = b"GET /datasets/lines/count?query=ed HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";
        if client.ask(to, asked).status == 200 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("the dataset is not served");
}

static RUNNING: LazyLock<Running> = LazyLock::new(|| {
    let folder = servers::folder("http");
    let (of_alone, of_node) = (folder.join("alone"), folder.join("node"));
    let datasets = format!("datasets.path={}", folder.join("copies").display());
    let alone = servers::start(&of_alone, &[&datasets, "datasets.refresh_s=0.1"]);
    put_dataset(alone.address());
    // The other member shows what its own requests would have: those of this one have the same.
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (node, second) = (free.local_addr(), other.local_addr());
    let (node, second) = (node.expect("its address"), second.expect("its address"));
    drop(free);
    let sets = [
        "gateway.deadline_s=0.3".to_owned(),
        "cluster.name=a".to_owned(),
        "cluster.token=a-token-between-processes".to_owned(),
        "member.0.name=a".to_owned(),
        format!("member.0.address={node}"),
        "member.1.name=b".to_owned(),
        format!("member.1.address={second}"),
    ];
    let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
    let cluster = servers::start(&of_node, &sets);
    let headers = loop {
        let (mut stream, _) = other.accept().expect("the node asks the other member");
        let mut head = Vec::new();
        let mut piece = [0; 4096];
        while !head.windows(4).any(|four| four == b"\r\n\r\n") {
            match stream.read(&mut piece) {
                Ok(count) if count > 0 => head.extend_from_slice(&piece[..count]),
                _ => break,
            }
        }
        let text = String::from_utf8_lossy(&head).into_owned();
        if text.to_ascii_lowercase().contains("concertina-members:") {
            let kept = |line: &&str| {
                let line = line.to_ascii_lowercase();
                let names = ["protocol", "ring", "members", "origin"];
                line.starts_with("authorization:")
                    || names.iter().any(|it| line.starts_with(&format!("concertina-{it}:")))
            };
            let lines: String = text.lines().filter(kept).map(|it| format!("{it}\r\n")).collect();
            break format!("host: {node}\r\nconcertina-from: b\r\n{lines}").into_bytes();
        }
    };
    // From here on the other member refuses everything.
    std::thread::spawn(move || {
        for stream in other.incoming().flatten() {
            let refusal = b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            let mut stream = stream;
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(refusal);
        }
    });
    let (gateway, of_alone) = (cluster.address(), alone.address());
    Running { _servers: [alone, cluster], alone: of_alone, gateway, node, headers }
});

// Input: which listener, then what is sent as edits of one of the above, or any bytes.
fuzz_target!(|data: &[u8]| {
    let [which, data @ ..] = data else { return };
    let running = &*RUNNING;
    let (to, bytes) = match which % 3 {
        0 => (running.alone, edits::edited(&CLIENTS, data)),
        1 => (running.gateway, edits::edited(&CLIENTS, data)),
        _ => {
            let mut bytes = edits::edited(&MEMBERS, data);
            while let Some(at) = bytes.windows(7).position(|seven| seven == b"HEADERS") {
                drop(bytes.splice(at..at + 7, running.headers.iter().copied()));
            }
            (running.node, bytes)
        }
    };
    let came = servers::send(to, &bytes);
    for status in servers::statuses(&came) {
        let seen = || format!("{} for {}", came.escape_ascii(), bytes.escape_ascii());
        assert!(status != 500, "{}", seen());
    }
});
