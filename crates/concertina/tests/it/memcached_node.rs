//! `concertina serve` with memcached's protocol in front of a node.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use crate::measure::Running;
use crate::memcached_proxy::{serve, talk};
use crate::serve_client::{Client, until};

/// A node on a folder, its HTTP address and that of memcached's protocol.
fn node(folder: &Path) -> (Running, String, String) {
    let listen = "memcached.node_listen=127.0.0.1:0";
    serve(folder, &[listen, "memcached.value_bytes_max=1000", "memcached.stall_s=1.0"])
}

pub fn ask(address: &str, commands: &str) -> String {
    talk(address, format!("{commands}quit\r\n").as_bytes(), 100_000)
}

/// The reply to an HTTP request.
fn http(address: &str, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let request = format!(
        "{head} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

const SCRIPT: &str = "set k 5 0 2\r\nhi\r\nget k\r\nget none k none2\r\nadd k 0 0 1\r\nx\r\n\
    add new 1 0 3\r\nabc\r\nreplace none 0 0 1\r\nx\r\nreplace k 7 0 3\r\nhey\r\nget k\r\n\
    set gone 0 -1 1\r\nx\r\nget gone\r\nadd gone 0 0 1\r\ny\r\nget gone\r\n\
    set later 9 1000 1\r\nz\r\nget later\r\nms m 3 F4 T0 k Oq\r\nabc\r\nmg m v f t s k\r\n\
    mg none v\r\nmg none v q\r\nms m 1 ME\r\nx\r\nms YWI= 2 b q\r\nok\r\nmg ab v\r\nmn\r\n\
    append k 0 0 1\r\n!\r\nincr k 1\r\ntouch k 5\r\nflush_all\r\nma k\r\nmg k N5\r\n\
    delete k\r\ndelete k\r\nmd m q\r\nmd m\r\nset q 0 0 1 noreply\r\nq\r\nget q\r\n\
    bogus\r\nset big 0 0 1001\r\n";

const NOT_NUMBER: &str = "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";

/// What the objects of a node, or of a cluster, answer to memcached's clients; `flushed` to `flush_all`. Values have at most
/// 1,000 bytes there, and a client may be silent for a second.
pub fn check_behaviour(cache: &str, flushed: &str) {
    let replies = format!(
        "STORED\r\nVALUE k 5 2\r\nhi\r\nEND\r\nVALUE k 5 2\r\nhi\r\nEND\r\nNOT_STORED\r\n\
         STORED\r\nNOT_STORED\r\nSTORED\r\nVALUE k 7 3\r\nhey\r\nEND\r\n\
         STORED\r\nEND\r\nSTORED\r\nVALUE gone 0 1\r\ny\r\nEND\r\n\
         STORED\r\nVALUE later 9 1\r\nz\r\nEND\r\nHD km Oq\r\nVA 3 f4 t-1 s3 km\r\nabc\r\n\
         EN\r\nNS\r\nVA 2\r\nok\r\nMN\r\n\
         STORED\r\n{NOT_NUMBER}TOUCHED\r\n{flushed}{NOT_NUMBER}HD\r\n\
         DELETED\r\nNOT_FOUND\r\nNF\r\nVALUE q 0 1\r\nq\r\nEND\r\nERROR\r\n\
         SERVER_ERROR object too large for cache\r\n"
    );
    let script = format!("{SCRIPT}{}\r\nquit\r\n", "v".repeat(1001));
    for chunk in [1, 13, 100_000] {
        ask(
            cache,
            "delete k\r\ndelete new\r\ndelete gone\r\ndelete later\r\ndelete m\r\ndelete ab\r\n",
        );
        assert_eq!(talk(cache, script.as_bytes(), chunk), replies, "{chunk}");
    }

    // The number for cas changes with the value.
    let number = |reply: &str| -> String {
        reply.split_whitespace().nth(4).unwrap_or_else(|| panic!("{reply}")).to_owned()
    };
    let first = number(&ask(cache, "set c 0 0 1\r\na\r\ngets c\r\n").replacen("STORED\r\n", "", 1));
    let cas =
        |number: &str, value: &str| ask(cache, &format!("cas c 0 0 1 {number}\r\n{value}\r\n"));
    assert_eq!(cas(&first, "b"), "STORED\r\n");
    assert_eq!(cas(&first, "d"), "EXISTS\r\n");
    let second = number(&ask(cache, "gets c\r\n"));
    assert_ne!(first, second);
    assert_eq!(
        ask(cache, &format!("ms c 1 C{second}\r\ne\r\nms c 1 C{second}\r\nf\r\n")),
        "HD\r\nEX\r\n"
    );
    assert_eq!(ask(cache, "cas none 0 0 1 7\r\nx\r\n"), "NOT_FOUND\r\n");

    // Blanks behind a number, or before it, are not a part of it.
    let padded = format!("set n 0 0 22\r\n 1{}\r\nincr n 1\r\n", " ".repeat(20));
    assert_eq!(ask(cache, &padded), "STORED\r\n2\r\n");

    // A client that never ends its line is let go.
    let mut slow = TcpStream::connect(cache).unwrap();
    slow.set_read_timeout(Some(std::time::Duration::from_secs(120))).unwrap();
    slow.write_all(b"get k").unwrap();
    assert!(matches!(slow.read(&mut [0; 10]), Ok(0)));
}

#[test]
fn a_node_answers_memcacheds_protocol() {
    let folder = tempfile::tempdir().unwrap();
    let (process, address, cache) = node(folder.path());
    check_behaviour(&cache, "OK\r\n");

    // The same objects by HTTP.
    let reply = http(&address, "GET /objects/later", "");
    assert!(reply.contains("concertina-meta-memcached-flags: 9\r\n"), "{reply}");
    assert!(reply.ends_with("\r\n\r\nz"), "{reply}");
    assert!(http(&address, "PUT /objects/web", "from HTTP").starts_with("HTTP/1.1 200"));
    assert_eq!(ask(&cache, "get web\r\n"), "VALUE web 0 9\r\nfrom HTTP\r\nEND\r\n");
    http(&address, "DELETE /objects/web", "");
    assert_eq!(ask(&cache, "get web\r\n"), "END\r\n");

    // What was acknowledged is durable.
    drop(process);
    let (_process, _, cache) = node(folder.path());
    assert_eq!(
        ask(&cache, "get c later\r\n"),
        "VALUE c 0 1\r\ne\r\nVALUE later 9 1\r\nz\r\nEND\r\n"
    );
}

/// The counts of `stats` add up and begin anew, and `flush_all` comes when it was announced.
#[test]
fn a_cache_counts_what_it_does_and_is_emptied_later() {
    let folder = tempfile::tempdir().unwrap();
    let sets = ["memcached.node_listen=127.0.0.1:0", "origin.kind=none", "device=[]"];
    let (_process, _, cache) = serve(folder.path(), &sets);
    let stats = || {
        let reply = ask(&cache, "stats\r\n");
        let lines = reply.lines().filter_map(|line| line.strip_prefix("STAT ")?.split_once(' '));
        let stats: BTreeMap<String, String> =
            lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        move |name: &str| stats[name].parse::<u64>().unwrap()
    };
    let script = "set k 0 0 1\r\na\r\nget k none k\r\ndelete k\r\ndelete k\r\nset n 0 0 1\r\n1\r\n\
        incr n 1\r\ndecr none 1\r\ncas n 0 0 1 1\r\n2\r\ntouch n 0\r\ngat 0 n none\r\nmg n v\r\nmg none v q\r\n";
    ask(&cache, script);
    let counts = stats();
    for (name, count) in [
        ("get_hits", 4),
        ("get_misses", 3),
        ("cmd_get", 7),
        ("cmd_set", 3),
        ("cmd_touch", 3),
        ("touch_hits", 2),
        ("touch_misses", 1),
        ("delete_hits", 1),
        ("delete_misses", 1),
        ("incr_hits", 1),
        ("decr_misses", 1),
        ("cas_badval", 1),
        ("cas_hits", 0),
        ("cmd_meta", 2),
        ("failed_requests", 0),
        ("curr_items", 1),
        ("total_connections", 2),
    ] {
        assert_eq!(counts(name), count, "{name}");
    }
    assert!(counts("bytes_read") >= script.len() as u64 && counts("bytes_written") > 0);
    assert_eq!(
        ask(&cache, "stats reset\r\nstats items\r\nstats slabs\r\n"),
        "RESET\r\nEND\r\nEND\r\n"
    );
    assert_eq!(stats()("cmd_get"), 0);

    // Of two that are to come the later one counts; a value is there until then.
    let found = "VALUE v 0 1\r\na\r\nEND\r\n";
    assert_eq!(
        ask(&cache, "set v 0 0 1\r\na\r\nflush_all 100000\r\nget v\r\nflush_all 1\r\n"),
        format!("STORED\r\nOK\r\n{found}OK\r\n")
    );
    until("a later flush", || ask(&cache, "get v\r\n") == "END\r\n");
    // memcached keeps times in 32 bits, so that a date in 2100 is a date in the past. A node does the same.
    let later = ask(&cache, "set v 0 4102444800 1\r\na\r\nget v\r\n");
    assert_eq!(later, "STORED\r\nEND\r\n");
}

/// Without an origin, what the tiers hold is the object: a write whose condition does not hold, or which has no room, must not remove it.
/// Updates by memcached's protocol are conditional writes, of which one of two at a time is made again.
#[test]
fn a_write_that_a_cache_refuses_leaves_what_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let sets = [
        "memcached.node_listen=127.0.0.1:0",
        "origin.kind=none",
        "device=[]",
        "node.object_bytes_max=1MiB",
        "memcached.value_bytes_max=4MiB",
    ];
    let (_process, address, cache) = serve(folder.path(), &sets);
    let mut client = Client::connect(address.parse().unwrap());
    assert!((200..300).contains(&client.put("/objects/h", b"one").status));
    let other = ("if-match", "\"cac5be035da3fc8d59c5968e0fd9ebcf\"");
    let large = vec![b'x'; 2 << 20];
    for (method, condition, body, status) in [
        ("PUT", Some(("if-none-match", "*")), &b"two"[..], 412),
        ("DELETE", Some(other), b"", 412),
        ("PUT", None, &large, 413),
    ] {
        let headers: Vec<(&str, &str)> = condition.into_iter().collect();
        let mut client = Client::connect(address.parse().unwrap());
        let refused = client.send(method, "/objects/h", &headers, Some(body)).unwrap();
        assert_eq!(refused.status, status, "{method} {headers:?}: {}", refused.text());
        assert_eq!(client.get("/objects/h").body, b"one", "{method} {headers:?}");
    }
    assert_eq!(ask(&cache, "set n 0 0 1\r\n0\r\n"), "STORED\r\n");
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let replies = ask(&cache, &"incr n 1\r\n".repeat(300));
                assert!(!replies.contains("NOT_FOUND"), "{replies}");
            });
        }
    });
    assert_eq!(ask(&cache, "get n\r\n"), "VALUE n 0 3\r\n600\r\nEND\r\n");
    // By memcached's protocol a set that has no room removes what it was to replace.
    let set = format!("set n 0 0 {}\r\n{}\r\nget n\r\n", 2 << 20, "x".repeat(2 << 20));
    let replies = ask(&cache, &set);
    assert!(replies.starts_with("SERVER_ERROR ") && replies.ends_with("\nEND\r\n"), "{replies}");
}

/// A line of a process's status in /proc, bytes.
fn memory_of(process: &Running, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.0.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// What a node counts for small objects is what they take: `node.memory_bytes` bounds the process, whatever their size.
#[test]
fn small_objects_take_the_memory_that_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let listen = "memcached.node_listen=127.0.0.1:0";
    let sets = [listen, "origin.kind=none", "device=[]", "node.memory_bytes=1GiB"];
    let (process, address, cache) = serve(folder.path(), &sets);
    let set = |from: usize, to: usize| {
        let value = "v".repeat(203);
        let one = |key: usize| format!("set key-{key:016} 0 0 203 noreply\r\n{value}\r\n");
        assert_eq!(ask(&cache, &((from..to).map(one).collect::<String>() + "mn\r\n")), "MN\r\n");
    };
    let counted = || {
        let metrics = http(&address, "GET /metrics", "");
        let line = metrics.lines().find_map(|line| line.strip_prefix("concertina_memory_bytes "));
        line.unwrap().parse::<u64>().unwrap()
    };
    // Threads, buffers and whatever else is there once.
    set(0, 5_000);
    let before = (counted(), memory_of(&process, "VmRSS"));
    set(5_000, 65_000);
    let counted = counted() - before.0;
    assert!((60_000 * 223..60_000 * 500).contains(&counted), "{counted}");
    let taken = memory_of(&process, "VmRSS") - before.1;
    // It was 2.6 times as much. The rest of a quarter is the allocator's.
    assert!(taken < counted + counted / 4, "{taken} bytes are taken, {counted} are counted");
}

/// A get of many large values is sent as it is read.
#[test]
fn a_reply_may_be_larger_than_the_memory_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let (process, _, cache) = serve(folder.path(), &["memcached.node_listen=127.0.0.1:0"]);
    let most = || memory_of(&process, "VmHWM");
    let value = "v".repeat(1 << 20);
    assert_eq!(ask(&cache, &format!("set big 7 0 {}\r\n{value}\r\n", value.len())), "STORED\r\n");
    let one = format!("VALUE big 7 {}\r\n{value}\r\n", value.len());
    let before = most();
    for command in ["get", "gats 0"] {
        let count = if command == "get" { 200 } else { 100 };
        let reply = ask(&cache, &format!("{command}{}\r\n", " big".repeat(count)));
        assert!(reply.ends_with("END\r\n"), "{command}");
        if command == "get" {
            assert!(reply == one.repeat(count) + "END\r\n");
        }
    }
    let more = most() - before;
    assert!(more < 64 << 20, "{more} bytes for a reply");
}
