//! Routes: keys moved from another pool, copies of requests, TLS to servers.

use std::path::Path;
use std::time::{Duration, Instant};

use super::{REPLIES, SCRIPT, proxy, signal, talk};
use crate::measure_protocols::{memcached, memcached_with};
use crate::serve_client::until;

/// Sends commands to a proxy or a server, and returns the replies.
fn ask(address: &str, commands: &str) -> String {
    talk(address, format!("{commands}quit\r\n").as_bytes(), 100_000)
}

#[test]
fn keys_are_moved_from_the_pool_that_had_them() {
    const TEST: &str = "memcached_proxy::routes::keys_are_moved_from_the_pool_that_had_them";
    let servers: Option<Vec<_>> = (0..3).map(|_| memcached(TEST)).collect();
    let Some(servers) = servers else { return };
    let names: Vec<String> = servers.iter().map(|(_, address)| address.clone()).collect();
    let (new, old) = (&names[..2], &names[2]);
    for routing in ["hash", "replicated"] {
        for name in &names {
            ask(name, "flush_all\r\n");
        }
        let fill = "set k 7 100 3\r\nold\r\nset n 0 0 1\r\n5\r\nset d 0 0 1\r\nx\r\n\
            set m1 1 0 2\r\nm1\r\nset m2 2 50 2\r\nm2\r\nset s 0 0 3\r\nold\r\n";
        ask(old, fill);
        let (_proxy, address) = proxy(
            new,
            &[
                &format!("pool.0.routing={routing}"),
                "pool.1.name=old",
                &format!("pool.1.servers=[{old:?}]"),
                "route.0.pool=main",
                "route.0.warm_from=old",
            ],
        );
        // A value comes with its flags, and is there afterwards with its time to live.
        assert_eq!(ask(&address, "get k\r\n"), "VALUE k 7 3\r\nold\r\nEND\r\n");
        let moved: Vec<String> = new.iter().map(|name| ask(name, "mg k t f v\r\n")).collect();
        let there: Vec<&String> = moved.iter().filter(|reply| reply.starts_with("VA ")).collect();
        assert_eq!(there.len(), if routing == "hash" { 1 } else { 2 }, "{moved:?}");
        for reply in there {
            let ttl = reply.split(' ').find_map(|word| word.strip_prefix('t')).unwrap();
            assert!((90..=100).contains(&ttl.parse::<u32>().unwrap()), "{reply}");
        }
        // Keys of one get are moved one by one; what is nowhere is not found.
        assert_eq!(
            ask(&address, "get m1 none m2 k\r\n"),
            "VALUE m1 1 2\r\nm1\r\nVALUE m2 2 2\r\nm2\r\nVALUE k 7 3\r\nold\r\nEND\r\n"
        );
        // An update finds the value, and the old one is gone.
        assert_eq!(ask(&address, "incr n 3\r\nget n\r\n"), "8\r\nVALUE n 0 1\r\n8\r\nEND\r\n");
        assert_eq!(ask(old, "get n\r\n"), "END\r\n");
        // A value that was deleted, or replaced, does not come back.
        assert_eq!(ask(&address, "delete d\r\nget d\r\n"), "NOT_FOUND\r\nEND\r\n");
        assert_eq!(ask(old, "get d\r\n"), "END\r\n");
        assert_eq!(
            ask(&address, "set s 0 0 3\r\nnew\r\ndelete s\r\nget s\r\n"),
            "STORED\r\nDELETED\r\nEND\r\n"
        );
        // A read that is quiet on a miss, and a key in base64 (`k`).
        assert_eq!(ask(&address, "mg none v q\r\nmn\r\nmg aw== b v\r\n"), "MN\r\nVA 3\r\nold\r\n");
        assert_eq!(ask(&address, SCRIPT), REPLIES);
    }
}

/// A copy of the second write is sent while the write itself waits for the first one of its key.
#[test]
fn large_writes_of_a_key_are_sent_whole_beside_their_copies() {
    const TEST: &str =
        "memcached_proxy::routes::large_writes_of_a_key_are_sent_whole_beside_their_copies";
    let servers: Option<Vec<_>> = (0..3).map(|_| memcached(TEST)).collect();
    let Some(servers) = servers else { return };
    let names: Vec<String> = servers.iter().map(|(_, address)| address.clone()).collect();
    let sets = [
        "pool.0.routing=replicated",
        "pool.1.name=trial",
        &format!("pool.1.servers=[{:?}]", names[2]),
        "route.0.pool=main",
        "route.0.copy_to=trial",
    ];
    let (_proxy, address) = proxy(&names[..2], &sets);
    let value = |i: usize| format!("{i:0>4000}");
    let writes: String = (0..50).map(|i| format!("set k 0 0 4000\r\n{}\r\n", value(i))).collect();
    let got = format!("VALUE k 0 4000\r\n{}\r\nEND\r\n", value(49));
    assert_eq!(ask(&address, &format!("{writes}get k\r\n")), "STORED\r\n".repeat(50) + &got);
    for name in &names {
        until("the last value is there", || ask(name, "get k\r\n") == got);
    }
}

#[test]
fn copies_neither_delay_nor_fail_the_requests() {
    const TEST: &str = "memcached_proxy::routes::copies_neither_delay_nor_fail_the_requests";
    let servers: Option<Vec<_>> = (0..2).map(|_| memcached(TEST)).collect();
    let Some(mut servers) = servers else { return };
    let (own, other) = (servers[0].1.clone(), servers[1].1.clone());
    let sets = [
        "pool.1.name=trial",
        &format!("pool.1.servers=[{other:?}]"),
        "pool.1.timeout_s=0.2",
        "route.0.pool=main",
        "route.0.copy_to=trial",
        "memcached.ping_s=0.05",
    ];
    let (_proxy, address) = proxy(&[own], &sets);
    assert_eq!(ask(&address, SCRIPT), REPLIES);
    until("the copy is there", || ask(&other, "get m\r\n") == "VALUE m 0 3\r\nabc\r\nEND\r\n");

    let many: String = (0..3000).map(|i| format!("set c{i} 0 0 1\r\nx\r\nget c{i}\r\n")).collect();
    let replies = |i: usize| format!("STORED\r\nVALUE c{i} 0 1\r\nx\r\nEND\r\n");
    let expected: String = (0..3000).map(replies).collect();
    let pid = servers[1].0.0.id();
    signal("-STOP", pid);
    let start = Instant::now();
    assert_eq!(ask(&address, &many), expected);
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    signal("-CONT", pid);
    until("copies again", || {
        ask(&address, "set again 0 0 1\r\ny\r\n");
        ask(&other, "get again\r\n").starts_with("VALUE")
    });
    servers[1].0.0.kill().unwrap();
    servers[1].0.0.wait().unwrap();
    assert_eq!(ask(&address, &many), expected);
    let stats = ask(&address, "stats\r\n");
    let count = |name: &str| -> u64 {
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        line.unwrap_or_else(|| panic!("{name}: {stats}")).parse().unwrap()
    };
    assert!(count("pool.main.copies") > 10, "{stats}");
    assert_eq!(count("pool.main.refused_failed"), 0, "{stats}");
}

#[test]
fn connections_to_servers_are_encrypted() {
    const TEST: &str = "memcached_proxy::routes::connections_to_servers_are_encrypted";
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/tls");
    let path = |name: &str| folder.join(name).display().to_string();
    let chain = format!("ssl_chain_cert={}", path("server.pem"));
    let key = format!("ssl_key={}", path("server.key"));
    let more = ["-Z", "-o", &chain, "-o", &key, "-I", "2m"];
    let servers: Option<Vec<_>> = (0..2).map(|_| memcached_with(TEST, &more)).collect();
    let Some(servers) = servers else { return };
    let names: Vec<String> = servers.iter().map(|(_, address)| address.clone()).collect();
    let tls_ca = format!("pool.0.tls_ca={}", path("ca.pem"));
    let sets = ["pool.0.tls=true", &tls_ca, "pool.0.routing=replicated"];
    let (_proxy, address) = proxy(&names, &sets);
    for chunk in [7, 100_000] {
        assert_eq!(ask(&address, "flush_all\r\n"), "OK\r\n");
        assert_eq!(talk(&address, SCRIPT.as_bytes(), chunk), REPLIES);
    }
    // Larger than a buffer of the session, and many at once.
    let value = "v".repeat(900_000);
    let (set, get) = (format!("set big 0 0 900000\r\n{value}\r\n"), "get big\r\n".repeat(5));
    let reply = format!("VALUE big 0 900000\r\n{value}\r\nEND\r\n").repeat(5);
    // By themselves: memcached 1.6.18 stalls when a get is in the TLS record that ends a set's value.
    assert_eq!(ask(&address, &set), "STORED\r\n");
    assert!(ask(&address, &get) == reply);

    for (other, name) in [("other.pem", "localhost"), ("ca.pem", "elsewhere.example")] {
        let tls_ca = format!("pool.0.tls_ca={}", path(other));
        let tls_name = format!("pool.0.tls_name={name}");
        let sets = ["pool.0.tls=true", &tls_ca, &tls_name, "pool.0.timeout_s=0.5"];
        let (_proxy, address) = proxy(&names, &sets);
        let reply = ask(&address, "set k 0 0 1\r\nx\r\n");
        assert!(reply.starts_with("SERVER_ERROR "), "{other}: {reply}");
    }
    // Without TLS on this side the server understands nothing.
    let (_proxy, address) = proxy(&names, &["pool.0.timeout_s=0.5"]);
    let reply = ask(&address, "set k 0 0 1\r\nx\r\n");
    assert!(reply.starts_with("SERVER_ERROR "), "{reply}");
}
