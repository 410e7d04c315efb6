//! Requests on which something before memcached, or in its place, is easily caught: answered as memcached answers them, byte
//! for byte but for the values of compare-and-swap numbers and of remaining times.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::memcached_proxy::talk;
use crate::memcached_suites::{FACES, Face, memcached_sources};

/// Pipelines. Each begins with an empty cache. What follows a zero byte is sent when all before it is answered: where a write of
/// the same key follows, a proxy with replicas asks no second server for an `mg` that the first one that it asked misses.
const PIPELINES: [&str; 30] = [
    // What is missing: `k` and `O` in the order in which they are asked for.
    "mg miss v k O9\r\nmg miss O1 s k t\r\nmg miss v k O9 q\r\nmd miss O4 k\r\nma miss k O3\r\nms miss 1 MR O2 k\r\nx\r\nmn\r\n",
    "mg a v O1\r\nms b 1 O2\r\nx\r\nmg b v O3\r\nmd c O4\r\nms b 1 ME k O5 c\r\ny\r\n",
    "ms k 2 F7 T100 c k O55 s\r\nhi\r\nmg k f t v\r\nmg k t s k O1 f c v\r\nms k 2 C1 c k O2\r\nyo\r\n",
    // Encoded keys.
    "ms Zm9v 3 b\r\nabc\r\nmg Zm9v b v k\r\nmg Ym9v b v k\r\nmg Zm9v v\r\nget foo\r\nms Zm9v 3 b k O1\r\nabc\r\nmd Zm9v b k\r\n",
    "mg !!! b v\r\nms !!! 2 b\r\nhi\r\nmg a=b b v\r\nmn\r\n",
    // Values that have expired are not there.
    "set v 0 -1 1\r\n1\r\nget v\r\ndelete v\r\nset v 0 -1 1\r\n1\r\nmd v\r\nset v 0 -1 1\r\n1\r\nreplace v 0 0 1\r\n2\r\nappend v 0 0 1\r\n3\r\nincr v 1\r\ntouch v 100\r\nadd v 0 0 1\r\n4\r\nget v\r\ndelete v\r\n",
    // Control characters are in keys as others are.
    "set k\x01\x7fz 0 0 1\r\na\r\nget k\x01\x7fz\r\nset k\tz 0 0 1\r\nb\r\nget k\tz\r\nset k\rz 0 0 1\r\nc\r\nget k\rz k\tz\r\ndelete k\rz\r\n",
    // Numbers with blanks and zeros.
    "set n 0 0 3\r\n 41\r\nincr n 1\r\nget n\r\nset n 0 0 25\r\n0000000000000000000000041\r\nincr n 1\r\nget n\r\nset n 0 0 3\r\n1 2\r\nincr n 1\r\nset n 0 0 2\r\n1x\r\nincr n 1\r\nset n 0 0 0\r\n\r\nincr n 1\r\n",
    "set n 0 0 20\r\n18446744073709551615\r\nincr n 1\r\nget n\r\nset n 0 0 2\r\n10\r\ndecr n 1\r\nget n\r\ndecr n 18446744073709551615\r\nincr n 18446744073709551616\r\n",
    "set n 42 500 1\r\n9\r\nincr n 1\r\nmg n f t v s\r\nappend n 7 7 1\r\n0\r\nmg n f t v s\r\nprepend n 7 7 1\r\n1\r\nmg n f t v s\r\n",
    // Arithmetic.
    "ma n\r\nma n N0 J13 v\r\nma n v\r\nma n D5 v k O1\r\nma n MD D100 v\r\nma n MI v\r\nma n M+ v\r\nma n M- v\r\nma n Mfoo v\r\nma n MX\r\nma n T100 t v\r\nset s 0 0 1\r\na\r\nma s\r\nma n N90 J5 v t\r\nma q q\r\nma n q\r\nmn\r\n",
    "ma n N0 J5 c v\r\nma n C1 v\r\nma n C1 E7700007 v c\r\nma n E7700009 v c k\r\nmg n c v\r\n",
    // Modes of `ms`.
    "ms k 1 ME\r\na\r\nms k 1 ME\r\nb\r\nmg k v\r\nms k 1 MR\r\nc\r\nms no 1 MR\r\nc\r\nms k 1 MA\r\nd\r\nmg k v\r\nms k 1 MP s\r\ne\r\nmg k v\r\nms no 1 MA\r\nx\r\nms no 1 MA N60 c\r\nx\r\nmg no v t\r\nms k 1 MS\r\nf\r\nms k 1 MX\r\nf\r\nms k 1 Mset\r\nz\r\nmg k v\r\nmn\r\n",
    "ms k 1 q\r\na\r\nms k 1 ME q\r\nb\r\nms k 1 MR q\r\nc\r\nmg k v q\r\nmg no v q\r\nmd k q\r\nmd k q\r\nmd k\r\nma n q\r\nma n N0\r\nma n q\r\nmg n v\r\nmn\r\n",
    "ms k 2 E7701234\r\nhi\r\nmg k c\r\nmg k v E7700099\r\nmg k c\r\nms k 1 C7701234 E7700005 c\r\nx\r\ngets k\r\ncas k 0 0 1 7700005\r\ny\r\ncas k 0 0 1 7700005\r\nz\r\nget k\r\n",
    "ms k 1 C999999\r\nb\r\nms no 1 C999\r\nb\r\nms k 1 MA C5\r\nb\r\nms k 1\r\na\r\nms k 1 MA C5 c\r\nb\r\nms k 1 C5 q\r\nb\r\nms k 1 ME C5\r\nc\r\nmn\r\n",
    // The size of what was not stored.
    "ms k 3 MA s O1\r\nabc\r\nms k 2 s\r\nhi\r\nms k 3 ME s k\r\nabc\r\nms k 1 C1 s\r\na\r\nms k 4 MA C1 s\r\nabcd\r\nms no 5 C9 s\r\nabcde\r\nms no 6 MR s\r\nabcdef\r\nms k 7 MP s\r\nabcdefg\r\nmg k s\r\nmn\r\n",
    // Values that are stale, that are to be replaced, and that are made on a miss.
    "ms v 2 T100\r\nhi\r\nmd v I T30\r\nmg v v t\r\nmg v v t\r\nmg v v t\r\n\0ms v 2 T90\r\nyo\r\nmg v v t\r\n",
    "mg viv s v N30 t\r\nmg viv s v N30 t\r\nmg viv s v t\r\n\0ms viv 2 T100\r\nhi\r\nmg viv s v N30\r\nmg other N30 E7700077 c k O1\r\nmg other c\r\n",
    "set k 0 100 2\r\nhi\r\nmg k v t R200\r\nmg k v R200\r\nmg k v R30\r\nmg k v t T500\r\nmg k t T50 t\r\nmg k T0 t\r\nmg k t\r\n",
    "ms k 1 T100 E7701000\r\na\r\nmd k I T30 E7703000\r\nmg k t v\r\nmg k v\r\n\0ms k 1 I C7700500 E7702000 c\r\nb\r\nmg k v c s t\r\nms k 1 C7702000\r\nc\r\nmg k v t\r\n",
    "set k 5 0 3\r\nabc\r\nmd k x\r\nmg k s f v\r\nset k 5 0 3\r\nabc\r\nmd k x I\r\nmg k s f v\r\nmg k s f v\r\n\0md k C99999\r\nmd k k O9\r\nmd k k O9\r\n",
    "ms k 1 E7700077\r\na\r\nmd k C7700078\r\nmd k C7700077 O1\r\nmg k v\r\nmd k Cx\r\nmd k Z\r\nmn\r\n",
    // The longest opaque text, and one that is longer.
    "mg k Oaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\nmg k Oaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\nms k 1 T\r\na\r\nms k 1 Tx\r\na\r\nms k 1 T-1\r\na\r\nmg k v\r\nmg k Z\r\nmn\r\n",
    // Of a time its low 32 bits count, with a sign.
    "set v 0 2147483648 1\r\na\r\nget v\r\nset w 0 4294967296 1\r\na\r\nmg w t\r\nset x 0 4294967396 1\r\na\r\nmg x t\r\ntouch x -2147483648\r\nget x\r\nms y 1 T9223372036854775807\r\na\r\nmg y v\r\nmn\r\n",
    // Spaces before a command.
    " get a\r\n  set a 0 0 1\r\nx\r\nget a  \r\nget   a\r\n mg a v\r\n  delete a\r\n   mn\r\n",
    // Too few words, or too many, for a command.
    "get\r\nget \r\ngets\r\ngat\r\nmg\r\nms\r\nmd\r\nma\r\nset\r\nset a\r\nset a 0\r\nset a 0 0\r\nincr\r\nincr a\r\ndecr a 1 2 3\r\ntouch\r\ntouch a\r\ntouch a 1 2 3\r\ndelete\r\ndelete a 0 noreply x\r\nverbosity\r\nflush_all 1 2 3\r\nmn\r\n",
    // No keys, and kinds of `stats` that there are not.
    "gat 10\r\ngats -1\r\ngat x\r\ngats x a\r\nset a 0 0 1\r\n5\r\ngat 0 a b\r\nstats nope\r\nstats nope x\r\nmn\r\n",
    // A word where `noreply` may stand.
    "set a 0 0 1 bogus\r\n5\r\nget a\r\nincr a 1 bogus\r\ntouch a 100 bogus\r\nmg a t v\r\ndelete a bogus\r\nset a 0 0 1 noreply extra\r\nget a\r\nmn\r\n",
    // `flush_all` at once, in all its forms.
    "set v 0 0 1\r\na\r\nflush_all 0\r\nget v\r\nset v 0 0 1\r\na\r\nflush_all -1\r\nget v\r\nflush_all x\r\nset v 0 0 1\r\na\r\nflush_all noreply\r\nget v\r\nadd v 0 0 1\r\nb\r\nget v\r\nmn\r\n",
];

/// The replies, with numbers that differ from one server to another made the same.
fn normalised(replies: &str) -> String {
    let mut text = String::new();
    for line in replies.split_inclusive("\r\n") {
        let words: Vec<&str> = line.trim_end().split(' ').collect();
        let is_value = words[0] == "VALUE" && words.len() == 5;
        let word = |(at, word): (usize, &&str)| {
            // Those that a pipeline chooses begin with 77 and have seven digits; 0 is none.
            let is_chosen = |text: &str| text == "0" || (text.len() == 7 && text.starts_with("77"));
            let is_number = |text: &str| text.parse::<u64>().is_ok() && !is_chosen(text);
            match word.split_at_checked(1) {
                _ if is_value && at == 4 => "NUMBER".to_owned(),
                Some(("c", number)) if at > 0 && is_number(number) => "cNUMBER".to_owned(),
                Some(("t", seconds)) if at > 0 && seconds.parse::<u32>().is_ok() => {
                    // The clock may have gone on by a second.
                    let seconds: u32 = seconds.parse().unwrap();
                    format!("t{}", seconds.div_ceil(10) * 10)
                }
                _ => (*word).to_owned(),
            }
        };
        let words: Vec<String> = words.iter().enumerate().map(word).collect();
        text += &(words.join(" ") + "\r\n");
    }
    text
}

#[test]
fn requests_are_answered_as_memcached_answers_them() {
    const TEST: &str = "memcached_beside::requests_are_answered_as_memcached_answers_them";
    let Some(folder) = memcached_sources(TEST) else { return };
    let program = folder.join("memcached");
    let (first, others) = FACES.split_first().unwrap();
    let memcached = Face::start(first, &program);
    let faces = others.iter().map(|name| (*name, Face::start(name, &program)));
    let mut wrong = String::new();
    for (name, face) in faces {
        for pipeline in PIPELINES {
            let answer = |face: &Face| {
                face.empty();
                let talks = pipeline
                    .split('\0')
                    .map(|part| talk(&face.address, format!("{part}quit\r\n").as_bytes(), 100_000));
                normalised(&talks.collect::<String>())
            };
            let (expected, found) = (answer(&memcached), answer(&face));
            if expected != found {
                wrong += &format!(
                    "{name}: {pipeline:?}\n  memcached {expected:?}\n  answered  {found:?}\n"
                );
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// A `gat` may have as many keys as a `get`. memcached closes the connection at so long a line, unless it arrives at once.
#[test]
fn a_long_gat_is_answered_as_a_get() {
    const TEST: &str = "memcached_beside::a_long_gat_is_answered_as_a_get";
    let Some(folder) = memcached_sources(TEST) else { return };
    let program = folder.join("memcached");
    let keys: Vec<String> = (0..100).map(|n| format!("{n:0250}")).collect();
    for name in &FACES[1..] {
        let face = Face::start(name, &program);
        let sets = keys.iter().map(|key| format!("set {key} 0 0 1\r\nx\r\n")).collect::<String>();
        let stored = talk(&face.address, format!("{sets}quit\r\n").as_bytes(), 100_000);
        assert_eq!(stored, "STORED\r\n".repeat(keys.len()), "{name}");
        let values = keys.iter().map(|key| format!("VALUE {key} 0 1\r\nx\r\n")).collect::<String>();
        let all = format!("{values}END\r\nMN\r\n");
        // In pieces. A time in the past ends the values that it returns.
        for (verb, expected) in
            [("get", &*all), ("gat 100", &*all), ("gat -1", &*all), ("gats 100", "END\r\nMN\r\n")]
        {
            let line = format!("{verb} {}\r\nmn\r\nquit\r\n", keys.join(" "));
            let found = talk(&face.address, line.as_bytes(), 1000);
            assert!(found == expected, "{name}: {verb}: {found:?}");
        }
    }
}

/// Updates are read back for the other servers. memcached holds an item that is read twice for some milliseconds, and then loses
/// the time to live of an `ma`: in 37 of 40 rounds, if these reads count as uses.
#[test]
fn a_time_to_live_that_arithmetic_sets_stays_after_updates() {
    const TEST: &str = "memcached_beside::a_time_to_live_that_arithmetic_sets_stays_after_updates";
    let Some(folder) = memcached_sources(TEST) else { return };
    let face = Face::start("`hash_replicas`", &folder.join("memcached"));
    let mut client = BufReader::new(TcpStream::connect(&face.address).unwrap());
    client.get_ref().set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut ask = |command: &str, lines: usize| {
        client.get_mut().write_all(command.as_bytes()).unwrap();
        let mut reply = String::new();
        (0..lines).for_each(|_| assert!(client.read_line(&mut reply).unwrap() > 0));
        normalised(&reply)
    };
    for _ in 0..60 {
        assert_eq!(ask("set n 0 0 1\r\n1\r\n", 1), "STORED\r\n");
        for value in 2..5 {
            // By then memcached has put the item among those that go into the queue when they are read again.
            std::thread::sleep(Duration::from_millis(5));
            assert_eq!(ask("ma n v\r\n", 2), format!("VA 1\r\n{value}\r\n"));
        }
        assert_eq!(ask("ma n T100 t v\r\n", 2), "VA 1 t100\r\n5\r\n");
        assert_eq!(ask("ma n t v\r\n", 2), "VA 1 t100\r\n6\r\n");
    }
}
