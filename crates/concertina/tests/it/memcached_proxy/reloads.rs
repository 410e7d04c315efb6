//! What a proxy knows of its servers and of its keys goes on when its pools are read again.

use std::process::Command;

use super::outages::{Proxy, write};
use super::talk;
use crate::measure::Running;
use crate::measure_protocols::memcached;
use crate::serve_client::{free, until};

/// A memcached at a port where one was before.
fn again(address: &str) -> Running {
    let port = address.rsplit(':').next().unwrap();
    let arguments = ["-l", "127.0.0.1", "-p", port, "-U", "0", "-u", "root"];
    Running(Command::new("memcached").args(arguments).spawn().unwrap())
}

/// Has the proxy read its configuration again, and waits until it has.
fn reload(proxy: &Proxy) {
    let count = || proxy.log().matches("are in use now").count();
    let before = count();
    proxy.hang_up();
    until("the reload", || count() > before);
}

/// Stores a value for each key, however long it takes until the proxy knows which servers are there.
fn set_all(proxy: &Proxy, keys: &[String], value: &str) {
    for key in keys {
        let set = format!("set {key} 0 0 {}\r\n{value}\r\n", value.len());
        until("a write", || proxy.ask(&set) == "STORED\r\n");
    }
}

/// A server fails, its keys move, and it comes back; the configuration is read again, with or without a change of the servers, and
/// it fails again. What was left at the other server used to be read then, although newer values were acknowledged.
#[test]
fn values_that_a_failure_left_are_not_read_after_a_reload() {
    const TEST: &str =
        "memcached_proxy::reloads::values_that_a_failure_left_are_not_read_after_a_reload";
    for grows in [false, true] {
        let servers: Option<Vec<_>> = (0..3).map(|_| memcached(TEST)).collect();
        let Some(mut servers) = servers else { return };
        let names: Vec<String> = servers.iter().map(|(_, address)| address.clone()).collect();
        let pool = |count: usize| {
            let listed = ["a", "b", "c"].iter().zip(&names).take(count);
            let listed: Vec<String> =
                listed.map(|(name, at)| format!("\"{at} name={name}\"")).collect();
            format!("[[pool]]\non_failure = \"move\"\nservers = [{}]\n", listed.join(", "))
        };
        let proxy = Proxy::start(&pool(2));
        let keys: Vec<String> = (0..40).map(|i| format!("k{i}")).collect();
        set_all(&proxy, &keys, "first");
        let is_at = |at: usize, key: &str| {
            talk(&names[at], format!("get {key}\r\nquit\r\n").as_bytes(), 1000) != "END\r\n"
        };
        let keys: Vec<String> = keys.into_iter().filter(|key| is_at(0, key)).collect();
        assert!(keys.len() > 5, "{keys:?}");
        // The first server fails, and its keys move to the second.
        drop(servers.remove(0));
        set_all(&proxy, &keys, "old");
        assert!(keys.iter().all(|key| is_at(1, key)));
        let mut first = again(&names[0]);
        until("its return", || proxy.ask("stats\r\n").contains("STAT server.a.state healthy\r\n"));
        if grows {
            write(&proxy.folder, &pool(3));
        }
        reload(&proxy);
        set_all(&proxy, &keys, "new");
        assert!(keys.iter().any(|key| is_at(0, key)), "some are at the first again");
        assert!(!keys.iter().any(|key| is_at(1, key)), "what was left is deleted");
        // It fails again.
        first.0.kill().unwrap();
        for key in &keys {
            let mut reply = String::new();
            until("a read", || {
                reply = proxy.ask(&format!("get {key}\r\n"));
                !reply.starts_with("SERVER_ERROR")
            });
            assert!(!reply.contains("old"), "{key}: {reply}");
        }
    }
}

/// A server that fails is not taken for well since the configuration was read again, and counts go on.
#[test]
fn outages_and_counts_go_on_after_a_reload() {
    const TEST: &str = "memcached_proxy::reloads::outages_and_counts_go_on_after_a_reload";
    let servers: Option<Vec<_>> = (0..2).map(|_| memcached(TEST)).collect();
    let Some(mut servers) = servers else { return };
    let names: Vec<String> = servers.iter().map(|(_, address)| address.clone()).collect();
    let proxy = Proxy::start(&format!(
        "[[pool]]\nservers = [\"{} name=a\", \"{} name=b\"]\nrouting = \"replicated\"\n",
        names[0], names[1]
    ));
    assert_eq!(
        proxy.ask("set k 0 0 1\r\nx\r\ndelete k\r\ntouch k 1\r\nget k\r\n").lines().count(),
        4
    );
    // Nobody asks it anything before it is found out.
    drop(servers.pop());
    until("the failure", || {
        proxy.ask("set k 0 0 1\r\ny\r\n");
        proxy.log().contains("the server b failed: ")
    });
    let stat = |name: &str| {
        let stats = proxy.ask("stats\r\n");
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        line.unwrap_or_else(|| panic!("{name}: {stats}")).parse::<u64>().unwrap()
    };
    let counted = ["cmd_get", "cmd_set", "get_misses", "delete_hits", "touch_misses", "cmd_touch"];
    let before: Vec<u64> = counted.map(stat).to_vec();
    assert_eq!((before[0], before[3], before[4]), (1, 1, 1));
    reload(&proxy);
    let (status, text) = proxy.ready();
    assert!(status == 200 && text.contains("1 of 2 servers of the pool main fail (b: "), "{text}");
    assert_eq!(counted.map(stat).to_vec(), before);
    let _again = again(&names[1]);
    until("its end", || proxy.log().contains("the server b answers again after "));
    assert_eq!(proxy.log().matches("the server b failed: ").count(), 1, "{}", proxy.log());
}

/// Servers that are not there at the start are found out although no client asks for anything.
#[test]
fn a_proxy_without_servers_is_not_ready() {
    let proxy = Proxy::start(&format!("[[pool]]\nservers = [\"{} name=a\"]\n", free()));
    until("503", || proxy.ready().0 == 503);
    assert!(proxy.ready().1.contains("1 of 1 servers of the pool main fail (a: "));
    until("its line", || proxy.log().contains("the server a failed: "));
}
