//! The codec beside its naive twin, over well-formed, mutated and arbitrary streams in any chunking.

mod naive;

use memcached::{Expect, Limits, Parsed, parse};
use naive::{Item, SMALL, first_reply, first_reply_in_chunks, in_chunks, items};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// Bounds are met exactly in few cases, and a case takes microseconds.
fn config() -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig { cases: usual.cases.max(5000), ..usual }
}

/// A word of a request: valid ones, and those that come close.
fn word() -> impl Strategy<Value = Vec<u8>> {
    let keys = ["k", "key", "a:b", "noreply", "q", "YWI=", "YWJj", "YR==", "====", "HTTP/1.1"];
    let numbers = [
        "0",
        "1",
        "2",
        "5",
        "40",
        "41",
        "-1",
        "-0",
        "+1",
        "1x",
        "007",
        "2147483647",
        "2147483648",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "-9223372036854775809",
        "-2147483649",
        "4294967295",
        "4294967296",
        "18446744073709551615",
        "18446744073709551616",
        "99999999999999999999999",
    ];
    let flags = ["b", "v", "q", "k", "T0", "MS", "MA", "Ox", "C3", "I", "x", "E7", "N0", "1", "-"];
    prop_oneof![
        4 => select(keys.to_vec()).prop_map(|word| word.as_bytes().to_vec()),
        4 => select(numbers.to_vec()).prop_map(|word| word.as_bytes().to_vec()),
        3 => select(flags.to_vec()).prop_map(|word| word.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..20),
        1 => (0usize..30).prop_map(|n| vec![b'k'; n]),
        1 => (11usize..15).prop_map(|n| vec![b'k'; n]),
    ]
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    let names = "get gets gat gats set add replace append prepend cas incr decr delete touch flush_all \
                 version verbosity stats quit mg ms md ma mn me GET gett m \u{80}";
    let names: Vec<Vec<u8>> = names.split(' ').map(|name| name.as_bytes().to_vec()).collect();
    select(names)
}

/// A line that may be anything, and what may be a value behind it.
fn loose() -> impl Strategy<Value = Vec<u8>> {
    let end = select(vec![&b"\r\n"[..], b"\n", b"\r\r\n", b" \r\n", b""]);
    let gap = select(vec![&b" "[..], b"  ", b"\t"]);
    (name(), vec((gap, word()), 0..8), end, vec(any::<u8>(), 0..45), any::<bool>()).prop_map(
        |(name, words, end, value, has_value)| {
            let mut line = name;
            for (gap, word) in words {
                line.extend_from_slice(gap);
                line.extend_from_slice(&word);
            }
            line.extend_from_slice(end);
            if has_value {
                line.extend_from_slice(&value);
                line.extend_from_slice(b"\r\n");
            }
            line
        },
    )
}

/// A meta request with many flags.
fn flagged() -> impl Strategy<Value = Vec<u8>> {
    let name = select(vec!["mg k", "md k", "ma k", "me k", "ms k 0"]);
    (name, 12usize..20).prop_map(|(name, count)| {
        let letters = ('a'..='z').filter(|letter| *letter != 'b').take(count);
        let flags: String = letters.map(|letter| format!(" {letter}")).collect();
        format!("{name}{flags}\r\n\r\n").into_bytes()
    })
}

/// A value that ends as it should not, or is as large as it may be.
fn valued() -> impl Strategy<Value = Vec<u8>> {
    let end = select(vec![&b"\r\n"[..], b" \n", b"\r\r", b"xx"]);
    (38usize..43, end, select(vec!["set k 0 0", "ms k"])).prop_map(|(length, end, head)| {
        [format!("{head} {length}\r\n").as_bytes(), &vec![b'v'; length], end].concat()
    })
}

/// A request that is accepted.
fn sound() -> impl Strategy<Value = Vec<u8>> {
    let key = "[a-zA-Z0-9:_é]{1,6}";
    let noreply = select(vec!["", " noreply"]);
    let bytes = || vec(any::<u8>(), 0..41);
    let line = |text: String| text.into_bytes();
    let with = |text: String, value: Vec<u8>| {
        let mut all = text.into_bytes();
        all.extend_from_slice(&value);
        all.extend_from_slice(b"\r\n");
        all
    };
    let get = select(vec!["get", "gets", "gat 0", "gats -1", "gat 100"]);
    let store = select(vec!["set", "add", "replace", "append", "prepend"]);
    let meta =
        select(vec!["mg KEY v f t", "mg KEY q k Ox", "md KEY q x", "ma KEY D5 J0 MI", "me KEY"]);
    let small =
        select(vec!["incr KEY 5", "decr KEY 1", "delete KEY", "delete KEY 0", "touch KEY 9"]);
    let flags = select(vec!["", " T0 F5", " MA q", " I C5 k", " b0 c"]);
    let other = [
        "version\r\n",
        "stats\r\n",
        "stats items\r\n",
        "flush_all\r\n",
        "flush_all 5\r\n",
        "flush_all noreply\r\n",
        "verbosity 1\r\n",
        "mn\r\n",
        "mg YWI= b v\r\n",
        "quit\r\n",
    ];
    prop_oneof![
        (get, vec(key, 1..5))
            .prop_map(move |(verb, keys)| { line(format!("{verb} {}\r\n", keys.join(" "))) }),
        (store, key, any::<u32>(), any::<i64>(), noreply.clone(), bytes()).prop_map(
            move |(verb, key, flags, time, noreply, value)| {
                let length = value.len();
                with(format!("{verb} {key} {flags} {time} {length}{noreply}\r\n"), value)
            }
        ),
        (key, any::<u64>(), bytes()).prop_map(move |(key, cas, value)| {
            with(format!("cas {key} 0 0 {} {cas}\r\n", value.len()), value)
        }),
        (key, flags, bytes()).prop_map(move |(key, flags, value)| {
            let flags = flags.replace(" b0", "");
            with(format!("ms {key} {}{flags}\r\n", value.len()), value)
        }),
        (meta, key).prop_map(move |(text, key)| line(text.replace("KEY", &key) + "\r\n")),
        (small, key, noreply).prop_map(move |(text, key, noreply)| {
            line(text.replace("KEY", &key) + noreply + "\r\n")
        }),
        select(other.to_vec()).prop_map(|text| text.as_bytes().to_vec()),
    ]
}

/// Changes of a stream: what, where, and with which byte.
type Changes = Vec<(u8, prop::sample::Index, u8)>;

fn changes() -> impl Strategy<Value = Changes> {
    let byte = prop_oneof![
        any::<u8>(),
        select(vec![b' ', b'\r', b'\n', b'0', b'9', b'-', b'q', b'=', 0, 0x7f])
    ];
    vec((0u8..4, any::<prop::sample::Index>(), byte), 0..5)
}

fn change(stream: &mut Vec<u8>, changes: &Changes) {
    for (what, at, byte) in changes {
        if stream.is_empty() {
            return;
        }
        let at = at.index(stream.len());
        match what {
            0 => stream[at] = *byte,
            1 => stream.insert(at, *byte),
            2 => drop(stream.remove(at)),
            _ => stream.truncate(at + 1),
        }
    }
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![Just(vec![1]), Just(vec![usize::MAX]), vec(1usize..20, 1..6)]
}

fn limits() -> impl Strategy<Value = Limits> {
    prop_oneof![Just(SMALL), Just(Limits::default())]
}

fn check(stream: &[u8], cuts: &[usize], limits: &Limits) -> Result<(), TestCaseError> {
    let expected = items(stream, limits);
    prop_assert_eq!(&in_chunks(stream, cuts, limits), &expected, "{:?}", stream.escape_ascii());
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn sound_requests_are_accepted(
        requests in vec(sound(), 1..8), cuts in cuts(), limits in limits()
    ) {
        // `é` has two bytes, so that keys stay within the small bounds.
        let stream = requests.concat();
        check(&stream, &cuts, &limits)?;
        let found = items(&stream, &limits);
        for (item, request) in found.iter().zip(&requests) {
            let whole = match item {
                Item::Request { whole, .. } => whole,
                other => panic!("{other:?}: {}", request.escape_ascii()),
            };
            prop_assert_eq!(whole, request);
        }
        prop_assert_eq!(found.len(), requests.len());
    }

    #[test]
    fn damaged_pipelines_are_read_as_by_the_twin(
        requests in vec(sound(), 1..8), changes in changes(), cuts in cuts(), limits in limits()
    ) {
        let mut stream = requests.concat();
        change(&mut stream, &changes);
        check(&stream, &cuts, &limits)?;
    }

    #[test]
    fn loose_lines_are_read_as_by_the_twin(
        lines in vec(prop_oneof![6 => loose(), 1 => flagged(), 1 => valued()], 1..8), changes in changes(), cuts in cuts(), limits in limits()
    ) {
        let mut stream = lines.concat();
        change(&mut stream, &changes);
        check(&stream, &cuts, &limits)?;
    }

    #[test]
    fn arbitrary_bytes_are_read_as_by_the_twin(
        stream in vec(any::<u8>(), 0..300), cuts in cuts()
    ) {
        check(&stream, &cuts, &SMALL)?;
    }

    /// What a server is sent is the same request, to which it replies.
    #[test]
    fn a_request_that_is_answered_is_the_same(request in sound()) {
        let Parsed::Request(before) = parse(&request, &SMALL) else { panic!() };
        let mut sent = Vec::new();
        before.put_answered(&mut sent);
        let Parsed::Request(after) = parse(&sent, &SMALL) else { panic!("{sent:?}") };
        prop_assert!(!after.noreply && !after.quiet && after.whole.len() == sent.len());
        prop_assert_eq!(before.verb, after.verb);
        prop_assert_eq!(before.value(), after.value());
        prop_assert!(before.keys().eq(after.keys()));
        prop_assert!(before.flags().filter(|flag| flag[0] != b'q').eq(after.flags()));
    }

    #[test]
    fn base64_is_decoded_as_by_the_twin(
        bytes in vec(any::<u8>(), 1..40), changes in changes()
    ) {
        let mut text = naive::encoded(&bytes);
        change(&mut text, &changes);
        let mut out = b"before".to_vec();
        let valid = memcached::decode_base64(&text, &mut out);
        prop_assert_eq!(valid.then(|| out[6..].to_vec()), naive::plain(&text));
        prop_assert!(valid || out == b"before");
    }
}

/// A line of a reply, or a value, as a server may send it.
fn reply_line() -> impl Strategy<Value = Vec<u8>> {
    let lines = [
        "END",
        "STORED",
        "NOT_STORED",
        "EXISTS",
        "NOT_FOUND",
        "DELETED",
        "TOUCHED",
        "OK",
        "17",
        "17  ",
        "VERSION 1.6.18",
        "HD",
        "HD t5",
        "EN",
        "NF",
        "NS",
        "EX",
        "MN",
        "ME k a=b",
        "STAT a 5",
        "ITEM k [1 b; 0 s]",
        "RESET",
        "ERROR",
        "CLIENT_ERROR x",
        "SERVER_ERROR y",
        "SERVER_ERROR: z",
        "VALUE k 0 x",
        "VALUE k 0 41",
        "VA 99999999999999999999",
        "END x",
        "",
    ];
    let value = |head: String, value: Vec<u8>| [head.as_bytes(), &value, b"\r\n"].concat();
    prop_oneof![
        6 => select(lines.to_vec()).prop_map(|line| format!("{line}\r\n").into_bytes()),
        1 => (38usize..43, select(vec!["VALUE k 0", "VA"])).prop_map(
            move |(length, head)| value(format!("{head} {length}\r\n"), vec![b'v'; length])
        ),
        6 => (vec(any::<u8>(), 0..30), any::<u32>(), any::<bool>()).prop_map(
            move |(bytes, flags, cas)| {
                let cas = if cas { " 9" } else { "" };
                value(format!("VALUE key {flags} {}{cas}\r\n", bytes.len()), bytes)
            }
        ),
        2 => vec(any::<u8>(), 0..30).prop_map(
            move |bytes| value(format!("VA {} t5 f0\r\n", bytes.len()), bytes)
        ),
    ]
}

fn expect() -> impl Strategy<Value = Expect> {
    let (get, set) = (Expect::Meta { get: true }, Expect::Meta { get: false });
    select(vec![Expect::Values, Expect::Values, Expect::Line, get, set, Expect::Lines])
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn replies_are_scanned_as_by_the_twin(
        lines in vec(reply_line(), 1..8), expect in expect(), changes in changes(), cuts in cuts(),
        limits in limits()
    ) {
        let mut stream = lines.concat();
        change(&mut stream, &changes);
        let expected = first_reply(&stream, expect, &limits);
        prop_assert_eq!(first_reply_in_chunks(&stream, expect, &cuts, &limits), expected);
    }

    /// A copy stores the value with its flags and the rest of its time.
    #[test]
    fn a_copy_says_what_was_read_back(
        value in vec(any::<u8>(), 0..40), flags: u32, ttl in -1i64..4_000_000, add: bool
    ) {
        let head = format!("VA {} f{flags} t{ttl} s{} c7\r\n", value.len(), value.len());
        let read_back = [head.as_bytes(), &value, b"\r\n"].concat();
        let mut sent = Vec::new();
        prop_assert!(memcached::put_copy(&read_back, b"key", false, add, &mut sent));
        let Parsed::Request(request) = parse(&sent, &SMALL) else { panic!("{sent:?}") };
        prop_assert_eq!(request.whole, &sent[..]);
        prop_assert_eq!((request.key(), request.value()), (&b"key"[..], &value[..]));
        let ttl = match ttl { -1 => 0, ttl => ttl.clamp(1, 2_592_000) };
        let expected = format!("T{ttl} F{flags} M{}", if add { "E" } else { "S" });
        prop_assert_eq!(request.arguments(), expected.as_bytes());
        for damage in ["EN\r\n", "HD\r\n", "SERVER_ERROR x\r\n", "VA 3 f0 t5\r\nab\r\n", ""] {
            let mut out = Vec::new();
            prop_assert!(!memcached::put_copy(damage.as_bytes(), b"key", false, add, &mut out));
            prop_assert!(out.is_empty());
        }
        let stale = format!("VA 0 f{flags} t5 W\r\n\r\n");
        prop_assert!(!memcached::put_copy(stale.as_bytes(), b"key", false, add, &mut Vec::new()));
    }
}

/// Found by the twin: a connection that began with the binary protocol's first byte was closed only
/// if its first line had not arrived at once.
#[test]
fn the_binary_protocol_is_refused_however_it_arrives() {
    for stream in [&b"\x80\x00\x00"[..], b"\x80\x0a\n\nget k\r\n"] {
        for cuts in [1, 3, 100] {
            assert_eq!(in_chunks(stream, &[cuts], &SMALL), [Item::Close(String::new())]);
        }
    }
}

/// memcached drops the old value where the new one is too large, and so does a proxy.
#[test]
fn a_value_that_is_too_large_names_the_key_whose_value_has_to_go() {
    let drops = |line: &[u8]| match parse(line, &SMALL) {
        Parsed::Invalid { drops, skip: 43, .. } => drops.map(|it| (it.key.to_vec(), it.base64)),
        other => panic!("{other:?}"),
    };
    assert_eq!(drops(b"set k 0 0 41 noreply\r\n"), Some((b"k".to_vec(), false)));
    assert_eq!(drops(b"ms YWI= 41 b T5\r\n"), Some((b"YWI=".to_vec(), true)));
    assert_eq!(drops(b"add k 0 0 41\r\n"), None);
    assert_eq!(drops(b"set k 0 x 41\r\n"), None);
}
