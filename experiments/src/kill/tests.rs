//! The checker must catch what it is there for: violations made by hand, a recorded history with one
//! read's version lowered, and a store that breaks its word.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::checker::{Kind, judge};
use super::fault::Target;
use super::history::{Action, Content, Operation, Place, Read, ReadResult, Written};
use super::load::{Load, Settings};
use super::service;

fn operation(began: u64, ended: u64, action: Action) -> Operation {
    Operation { began, ended, key: 1, place: Place::Gateway(0), action }
}

fn saw(began: u64, ended: u64, seen: ReadResult) -> Operation {
    operation(began, ended, Action::Read(Read::Saw(seen)))
}

fn put(began: u64, ended: u64, version: u32, written: Written) -> Operation {
    operation(began, ended, Action::Write(version, Content::Bytes, written))
}

fn kinds(history: &[Operation]) -> Vec<Kind> {
    judge(history).unwrap().violations.iter().map(|violation| violation.kind).collect()
}

use ReadResult::{Empty, Nothing, Version};
use Written::{Acknowledged, Refused, Unknown};

/// Versions 1 (0 to 10), 2 (20 to 30, refused), 3 (40 to 50), 4: deleted (60 to 70), 5: empty (80 to 90,
/// broken off).
fn writes() -> Vec<Operation> {
    vec![
        put(0, 10, 1, Acknowledged),
        put(20, 30, 2, Refused(503)),
        put(40, 50, 3, Acknowledged),
        operation(60, 70, Action::Write(4, Content::Deleted, Acknowledged)),
        operation(80, 90, Action::Write(5, Content::Empty, Unknown)),
    ]
}

#[test]
fn reads_are_judged_by_what_was_acknowledged_before_them() {
    let check = |began: u64, ended: u64, seen: ReadResult, expected: Option<Kind>| {
        let mut history = writes();
        history.push(saw(began, ended, seen));
        let found = kinds(&history);
        assert_eq!(found.first().copied(), expected, "{began} to {ended}: {seen:?}");
        assert!(found.len() <= 1);
    };
    // Before and while the first write is under way.
    check(1, 9, Nothing, None);
    check(1, 9, Version(1), None);
    check(1, 9, Version(2), Some(Kind::NeverWritten));
    check(10, 12, Nothing, None);
    check(11, 12, Nothing, Some(Kind::Stale));
    check(11, 12, Empty, Some(Kind::NeverWritten));
    check(11, 12, Version(9), Some(Kind::NeverWritten));
    // A refused write may have taken effect, at any time up to the next acknowledged one.
    check(31, 32, Version(1), None);
    check(31, 32, Version(2), None);
    check(45, 48, Version(2), None);
    check(45, 48, Version(3), None);
    check(51, 55, Version(2), Some(Kind::Resurfaced));
    check(51, 55, Version(1), Some(Kind::Stale));
    // A read that began before the acknowledgement may be of either side.
    check(49, 99, Version(3), None);
    check(49, 99, Version(2), None);
    check(49, 99, Nothing, None);
    // Deleted, and perhaps empty.
    check(71, 75, Nothing, None);
    check(71, 75, Version(3), Some(Kind::Stale));
    check(71, 75, Version(4), Some(Kind::NeverWritten));
    check(85, 86, Empty, None);
    check(95, 96, Nothing, None);
    check(95, 96, Version(5), Some(Kind::NeverWritten));
}

#[test]
fn wrong_bytes_and_lost_writes_are_told_apart() {
    let mut history = writes();
    history.push(operation(2, 3, Action::Read(Read::Wrong)));
    assert_eq!(kinds(&history), [Kind::WrongBytes]);

    let mut history = writes();
    let last = Operation { place: Place::Origin, ..saw(99, 100, Version(3)) };
    history.push(last);
    assert_eq!(kinds(&history), [Kind::Lost]);

    let twice = [put(0, 1, 1, Acknowledged), put(2, 3, 1, Acknowledged)];
    assert!(judge(&twice).is_err());
    assert!(judge(&[put(0, 1, 2, Acknowledged)]).is_err(), "a history that is not whole");
}

#[test]
fn reads_that_go_back_without_a_write_between_are_counted() {
    let history = [
        put(0, 10, 1, Acknowledged),
        put(20, 90, 2, Acknowledged),
        saw(30, 40, Version(2)),
        saw(41, 50, Version(1)),
    ];
    let verdict = judge(&history).unwrap();
    assert!(verdict.violations.is_empty());
    assert_eq!((verdict.regressions, verdict.reads), (1, 2));
}

#[test]
fn service_is_the_longest_wait_of_a_read_or_for_one() {
    let ms = |at: u64| at * 1_000_000;
    let reads = [(0, 5), (10, 110), (120, 420), (425, 430), (600, 605)];
    let mut history: Vec<Operation> =
        reads.iter().map(|(began, ended)| saw(ms(*began), ms(*ended), Version(1))).collect();
    let met = service::reads(&history, 0, ms(100), ms(500));
    assert_eq!((met.answered, met.failed), (3, 0));
    assert!((met.slowest_s - 0.3).abs() < 1e-9, "the third");
    assert!((met.gap_s - 0.31).abs() < 1e-9, "between the ends of the second and the third");
    assert_eq!(service::reads(&history, 1, ms(100), ms(500)).answered, 0, "another gateway");
    assert!((service::reads(&history, 1, ms(100), ms(500)).gap_s - 0.4).abs() < 1e-9);
    history.push(operation(ms(490), ms(900), Action::Read(Read::Refused(503))));
    assert_eq!(service::reads(&history, 0, ms(100), ms(500)).failed, 1, "begun in time");
}

/// A store in this process that answers like a gateway.
struct Store {
    address: SocketAddr,
}

impl Store {
    /// Every so many of its reads shows what the key held before; 0: none.
    fn start(stale_one_in: u64) -> Store {
        type Values = HashMap<String, (Option<Vec<u8>>, Option<Vec<u8>>)>;
        let values = Arc::new(Mutex::new(Values::new()));
        let reads = Arc::new(AtomicU64::new(0));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (values, reads) = (Arc::clone(&values), Arc::clone(&reads));
                std::thread::spawn(move || {
                    answer(stream.unwrap(), |method, path, body| {
                        let mut values = values.lock().unwrap();
                        let (now, before) = values.entry(path.to_owned()).or_default();
                        if method == "GET" {
                            let number = reads.fetch_add(1, Ordering::Relaxed) + 1;
                            let stale = stale_one_in > 0 && number.is_multiple_of(stale_one_in);
                            return if stale { before.clone() } else { now.clone() };
                        }
                        *before = std::mem::replace(now, (method == "PUT").then_some(body));
                        Some(Vec::new())
                    });
                });
            }
        });
        Store { address }
    }
}

fn answer(stream: TcpStream, mut reply: impl FnMut(&str, &str, Vec<u8>) -> Option<Vec<u8>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    loop {
        let mut first = String::new();
        if reader.read_line(&mut first).unwrap_or(0) == 0 {
            return;
        }
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let mut words = first.split(' ');
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        let found = reply(method, path, body);
        let status = if found.is_some() { "200 OK" } else { "404 Not Found" };
        let body = found.unwrap_or_default();
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(&[head.as_bytes(), &body].concat()).unwrap();
    }
}

/// The load on a store for a moment: what it recorded.
fn history(store: &Store) -> Vec<Operation> {
    let settings = Settings {
        keys: 20,
        readers: 2,
        read_pause_ms: 0.2,
        writers: 3,
        write_pause_ms: 0.5,
        delete_share: 0.2,
        once_share: 0.1,
        once_keys: 1000,
        write_deadline_ms: 1000,
    };
    let gateways = [store.address; 2];
    let load = Load::start(&settings, &gateways, "token", vec![0; 1020], 1).unwrap();
    let began = record::clock::now();
    let until = began + 20_000_000_000;
    while !(load.is_filled() && load.writes_work(Target::Node(0), began))
        && record::clock::now() < until
    {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(500));
    load.stop().unwrap().operations
}

#[test]
fn a_store_that_keeps_its_word_passes_and_a_lowered_read_does_not() {
    let mut history = history(&Store::start(0));
    let verdict = judge(&history).unwrap();
    assert!(verdict.violations.is_empty(), "{:?}", verdict.violations);
    // Nine in ten acknowledged writes are read again within half a second. On a busy machine four in five were.
    assert!(verdict.checked * 2 >= verdict.acknowledged, "{verdict:?}");
    assert!(verdict.reads > 50, "{} reads", verdict.reads);
    assert!(!history.iter().any(Operation::is_failed_read));

    // One read of a version whose predecessor was acknowledged too, shown that one instead.
    let began_after = |read: &Operation, version: u32| {
        history.iter().any(|write| {
            write.key == read.key
                && write.ended < read.began
                && matches!(write.action, Action::Write(v, _, Acknowledged) if v == version)
        })
    };
    let lowered = history.iter().position(|read| match read.action {
        Action::Read(Read::Saw(Version(version))) => version > 1 && began_after(read, version),
        _ => false,
    });
    let lowered = lowered.expect("a read of a second version");
    if let Action::Read(Read::Saw(Version(version))) = &mut history[lowered].action {
        *version -= 1;
    }
    let violations = judge(&history).unwrap().violations;
    assert_eq!(violations.len(), 1, "{violations:?}");
    assert_eq!(violations[0].operation, lowered);
}

#[test]
fn a_store_that_serves_what_a_key_held_before_is_caught() {
    let history = history(&Store::start(10));
    let violations = judge(&history).unwrap().violations;
    assert!(!violations.is_empty());
    let expected = [Kind::Stale, Kind::NeverWritten];
    assert!(violations.iter().all(|v| expected.contains(&v.kind)), "{violations:?}");
}
