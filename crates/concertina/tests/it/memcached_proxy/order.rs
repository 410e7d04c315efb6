//! What one server orders, before several: compare-and-swap numbers, stale and win tokens, `flush_all`.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use super::{proxy, talk};
use crate::measure_protocols::{memcached, memcached_with};

const ROUTINGS: [&str; 2] = ["pool.0.routing=replicated", "pool.0.routing=hash_replicas"];

/// A connection whose replies are read up to that of an `mn`.
struct Session(TcpStream);

impl Session {
    fn connect(address: &str) -> Session {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Session(stream)
    }

    fn ask(&mut self, commands: &str) -> String {
        self.0.write_all(format!("{commands}mn\r\n").as_bytes()).unwrap();
        let (mut reply, mut piece) = (Vec::new(), [0; 4096]);
        while !reply.ends_with(b"MN\r\n") {
            let count = self.0.read(&mut piece).unwrap();
            assert!(count > 0, "closed after {}", String::from_utf8_lossy(&reply));
            reply.extend_from_slice(&piece[..count]);
        }
        String::from_utf8(reply).unwrap()
    }

    /// Carries out a step. `#` in it is the key's number, which is read first by `read`.
    fn step(&mut self, step: &str, read: &str) -> String {
        if !step.contains('#') {
            return without_numbers(&self.ask(step));
        }
        let reply = self.ask(read);
        let words = || reply.lines().next().unwrap_or_default().split(' ');
        let number = match read.starts_with("mg") {
            true => words().find_map(|word| word.strip_prefix('c')).map(str::to_owned),
            false => words().nth(4).map(str::to_owned),
        };
        let number = number.unwrap_or_else(|| "999999999".to_owned());
        without_numbers(&reply) + &without_numbers(&self.ask(&step.replace('#', &number)))
    }
}

/// Replies with `N` for each compare-and-swap number, which are a server's own.
fn without_numbers(reply: &str) -> String {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let line = |line: &str| {
        let value = line.starts_with("VALUE ");
        let meta = line.starts_with("HD") || line.starts_with("VA ");
        let word = |(at, word): (usize, &str)| match word.strip_prefix('c') {
            Some(number) if meta && is_number(number) => "cN".to_owned(),
            _ if value && at == 4 => "N".to_owned(),
            _ => word.to_owned(),
        };
        line.split(' ').enumerate().map(word).collect::<Vec<String>>().join(" ")
    };
    reply.lines().map(line).collect::<Vec<String>>().join("|")
}

/// Commands that return a number or a token, or take one, in both protocols, and those that change what they say. `K` and
/// `L` are keys.
const STEPS: [&str; 26] = [
    "set K 5 0 2\r\nab\r\n",
    "set K 5 100 1\r\n7\r\n",
    "gets K\r\n",
    "gets K L M\r\n",
    "gats 100 K L\r\n",
    "gat 100 L M\r\ngets L M\r\n",
    "gats 100 M\r\n",
    "mg K c v f s\r\n",
    "mg K v k O77\r\n",
    "mg K k c q\r\n",
    "mg K v N30\r\n",
    "mg K v R30\r\n",
    "mg K v T100 c\r\n",
    "md K I T30\r\n",
    "md K q\r\n",
    "md K C#\r\n",
    "ms K 2 c\r\nxy\r\n",
    "ms K 1 T10\r\n9\r\n",
    "ms K 2 C#\r\nzz\r\n",
    "ms K 2 C# I\r\nww\r\n",
    "ms K 1 ME\r\n1\r\n",
    "cas K 1 0 2 #\r\nCC\r\n",
    "cas K 1 0 2 # noreply\r\nDD\r\n",
    "incr K 1\r\n",
    "ma K N0 J5 c v\r\n",
    "add K 0 0 1\r\n3\r\ndelete L\r\n",
];

#[test]
fn numbers_and_tokens_are_as_one_server_gives_them() {
    const TEST: &str = "memcached_proxy::order::numbers_and_tokens_are_as_one_server_gives_them";
    let servers: Option<Vec<_>> = (0..4).map(|_| memcached(TEST)).collect();
    let Some(servers) = servers else { return };
    let names: Vec<String> = servers.iter().map(|(_, address)| address.clone()).collect();
    // Each server has counted otherwise, as after any restart.
    for (at, name) in names.iter().enumerate() {
        Session::connect(name).ask(&"set other 0 0 1 noreply\r\na\r\n".repeat(7 * at));
    }
    for routing in ROUTINGS {
        let (_proxy, address) = proxy(&names[1..], &[routing]);
        for seed in 0..40u64 {
            Session::connect(&names[0]).ask("flush_all\r\n");
            Session::connect(&address).ask("flush_all\r\n");
            let (mut one, mut several) = (Session::connect(&names[0]), Session::connect(&address));
            let (mut random, mut history) = (seed.wrapping_mul(2) + 1, String::new());
            for _ in 0..30 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                let drawn = (random >> 33) as usize;
                let key = |name: char| format!("k{}", (drawn / 26 + name as usize) % 4);
                let named = |text: &str| {
                    ['K', 'L', 'M'].iter().fold(text.to_owned(), |text, name| {
                        text.replace(&format!(" {name}"), &format!(" {}", key(*name)))
                    })
                };
                let step = named(STEPS[drawn % STEPS.len()]);
                let read = named(if drawn.is_multiple_of(2) { "gets K\r\n" } else { "mg K c\r\n" });
                let (expected, found) = (one.step(&step, &read), several.step(&step, &read));
                history += &format!("{step:?} -> {expected}\n");
                assert_eq!(found, expected, "{routing}, seed {seed}, after\n{history}");
            }
        }
    }
}

#[test]
fn a_flush_is_in_order_with_the_commands_of_its_connection() {
    const TEST: &str =
        "memcached_proxy::order::a_flush_is_in_order_with_the_commands_of_its_connection";
    let servers: Option<Vec<_>> = (0..4).map(|_| memcached(TEST)).collect();
    let Some(servers) = servers else { return };
    let names: Vec<String> = servers.iter().map(|(_, address)| address.clone()).collect();
    let pipelines = [
        "set v 0 0 1\r\na\r\nappend v 0 0 1\r\nb\r\nflush_all\r\nget v\r\n",
        "set v 0 0 1\r\n1\r\nincr v 1\r\nincr v 1\r\nflush_all\r\nincr v 1\r\nget v\r\n",
        "add v 0 0 1\r\nb\r\nget v\r\nreplace v 0 0 1\r\nc\r\nflush_all\r\nreplace v 0 0 1\r\nd\r\n",
        "set v 0 0 1\r\n1\r\nincr v 1 noreply\r\nincr v 1 noreply\r\nflush_all noreply\r\nget v\r\n",
        "ms v 1\r\n1\r\nma v\r\nflush_all\r\nadd v 0 0 1\r\n2\r\nma v v\r\nmg v v\r\nflush_all\r\n",
        "set v 0 0 1\r\na\r\nflush_all\r\nset v 0 0 1\r\nb\r\nappend v 0 0 1\r\nc\r\nget v\r\nflush_all\r\n",
    ];
    for routing in ROUTINGS {
        let (_proxy, address) = proxy(&names[1..], &[routing]);
        for pipeline in pipelines {
            for at in 0..20 {
                let commands = pipeline.replace(" v", &format!(" v{at}"));
                let expected = Session::connect(&names[0]).ask(&commands);
                assert_eq!(Session::connect(&address).ask(&commands), expected, "{routing}");
                for name in &names[1..] {
                    let left = talk(name, format!("get v{at}\r\nquit\r\n").as_bytes(), 1000);
                    assert_eq!(left, "END\r\n", "{routing}: {commands:?} left it at {name}");
                }
            }
        }
    }
}

/// Clients that update while another empties all servers: none of them finds a value at one server that is gone at another.
#[test]
fn no_copy_outlives_a_flush() {
    const TEST: &str = "memcached_proxy::order::no_copy_outlives_a_flush";
    let servers: Option<Vec<_>> = (0..3).map(|_| memcached(TEST)).collect();
    let Some(servers) = servers else { return };
    let names: Vec<String> = servers.iter().map(|(_, address)| address.clone()).collect();
    let (_proxy, address) = proxy(&names, &[ROUTINGS[0]]);
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let address = &address;
            scope.spawn(move || {
                let mut session = Session::connect(address);
                for at in 0..300 {
                    let key = format!("w{writer}:{}", at % 5);
                    session.ask(&format!("add {key} 0 0 1\r\na\r\nappend {key} 0 0 1\r\nb\r\n"));
                }
            });
        }
        let mut session = Session::connect(&address);
        for _ in 0..60 {
            assert_eq!(session.ask("flush_all\r\n"), "OK\r\nMN\r\n");
        }
    });
    for writer in 0..4 {
        for key in (0..5).map(|at| format!("w{writer}:{at}")) {
            let ask = |name: &String| talk(name, format!("get {key}\r\nquit\r\n").as_bytes(), 1000);
            let found: Vec<String> = names.iter().map(ask).collect();
            assert!(found.iter().all(|it| *it == found[0]), "{key}: {found:?}");
        }
    }
}

/// Of two replicas one has no room left. It says so, and the client hears that, not only that a server failed.
#[test]
fn a_full_replica_is_heard_by_the_client() {
    const TEST: &str = "memcached_proxy::order::a_full_replica_is_heard_by_the_client";
    // The later of two options counts.
    let Some((_full, full)) = memcached_with(TEST, &["-M", "-m", "2"]) else { return };
    let Some((_other, other)) = memcached(TEST) else { return };
    let value = "x".repeat(20_000);
    let set = |key: &str| format!("set {key} 0 0 {}\r\n{value}\r\n", value.len());
    let no_room = "SERVER_ERROR out of memory storing object\r\n";
    let fill: String = (0..400).map(|at| set(&format!("fill{at}"))).collect();
    let said = talk(&full, format!("{fill}quit\r\n").as_bytes(), 1 << 20);
    assert!(said.ends_with(no_room), "{}", &said[said.len() - 100..]);
    for servers in [[full.clone(), other.clone()], [other.clone(), full.clone()]] {
        let (_proxy, address) = proxy(&servers, &["pool.0.routing=replicated"]);
        for at in 0..3 {
            let said =
                talk(&address, format!("{}quit\r\n", set(&format!("k{at}"))).as_bytes(), 1 << 20);
            assert_eq!(said, no_room, "{servers:?}");
            // The server that has room is not to be read for what was refused before it was asked again: a later write counts.
            let said =
                talk(&address, format!("delete k{at}\r\nget k{at}\r\nquit\r\n").as_bytes(), 1000);
            assert!(said.ends_with("END\r\n") && !said.contains("VALUE"), "{said}");
        }
    }
}

/// A client that ends its side gets the replies to all that it sent, also if that is more than may be under way at once.
#[test]
fn what_came_before_a_client_ended_its_side_is_carried_out() {
    const TEST: &str =
        "memcached_proxy::order::what_came_before_a_client_ended_its_side_is_carried_out";
    let servers: Option<Vec<_>> = (0..2).map(|_| memcached(TEST)).collect();
    let Some(servers) = servers else { return };
    let addresses: Vec<String> = servers.iter().map(|(_, address)| address.clone()).collect();
    let sets = |noreply: &str| -> String {
        (0..20_000).map(|number| format!("set k{number} 0 0 1{noreply}\r\nx\r\n")).collect()
    };
    let flushes = "set k 0 0 1\r\nx\r\nflush_all\r\nget k\r\n".repeat(300);
    let cases = [
        (sets(""), "STORED\r\n".repeat(20_000)),
        (sets(" noreply") + "get k19999\r\n", "VALUE k19999 0 1\r\nx\r\nEND\r\n".to_owned()),
        (flushes, "STORED\r\nOK\r\nEND\r\n".repeat(300)),
    ];
    for routing in ["pool.0.routing=hash", ROUTINGS[0], ROUTINGS[1]] {
        let (_proxy, address) = proxy(&addresses, &[routing]);
        for (sent, expected) in &cases {
            let mut stream = TcpStream::connect(&address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            stream.write_all(sent.as_bytes()).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut reply = String::new();
            stream.read_to_string(&mut reply).unwrap();
            let lines = (reply.lines().count(), expected.lines().count());
            assert!(reply == *expected, "{routing}: {} lines, not {}", lines.0, lines.1);
        }
    }
}
