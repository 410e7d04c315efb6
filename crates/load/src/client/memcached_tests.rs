//! memcached replies split at any byte, malformed replies, and a naive parser of whole replies to
//! compare with.

use proptest::prelude::*;

use super::*;

/// Feeds a reply in pieces that end at the given cuts.
fn read(command: &[u8], stream: &[u8], cuts: &[usize]) -> Result<(bool, Replies), ReplyError> {
    let mut replies = Replies::default();
    replies.start(command, key_hash(b"a"), true);
    let (mut done, mut from) = (false, 0);
    for &cut in cuts.iter().chain([&stream.len()]) {
        let cut = cut.clamp(from, stream.len());
        done = replies.feed(&stream[from..cut])?;
        from = cut;
    }
    Ok((done, replies))
}

fn value(key: &str, size: u64) -> Vec<u8> {
    let body = Body { key: key_hash(key.as_bytes()), size }.bytes();
    [format!("VALUE {key} 0 {size}\r\n").as_bytes(), &body, END].concat()
}

/// Parses a whole reply to a get line by line. Returns its status, the bytes of its values and
/// whether any is wrong; `None` if it is malformed.
fn naive(keys: &[&str], stream: &[u8]) -> Option<(u16, u64, bool)> {
    let (mut rest, mut found, mut bytes, mut wrong) = (stream, 0, 0, false);
    loop {
        let end = rest.windows(2).position(|w| w == END)?;
        let line = std::str::from_utf8(&rest[..end]).ok()?;
        rest = &rest[end + 2..];
        if line == "END" {
            let status = if found == keys.len() { 200 } else { 404 };
            return rest.is_empty().then_some((status, bytes, wrong));
        }
        let fields: Vec<&str> = line.split(' ').collect();
        let [word, key, _, size] = fields[..] else { return None };
        let size: usize = size.parse().ok()?;
        found += 1;
        if word != "VALUE" || !keys.contains(&key) || found > keys.len() {
            return None;
        }
        let body = rest.get(..size)?;
        wrong |= Body { key: key_hash(key.as_bytes()), size: size as u64 }.bytes() != body;
        bytes += size as u64;
        rest = rest.get(size..)?.strip_prefix(END)?;
    }
}

#[test]
fn commands_follow_the_protocol() {
    let of = |operation, key: &[u8], several| {
        let mut out = Vec::new();
        write_command(&mut out, operation, key, several, 12);
        String::from_utf8(out).unwrap()
    };
    assert_eq!(of(Operation::Get, b"a", false), "get a\r\n");
    assert_eq!(of(Operation::Get, b"a b", true), "get a b\r\n");
    assert_eq!(of(Operation::Get, b"a b\r\n%\x7f", false), "get a%20b%0D%0A%25%7F\r\n");
    assert_eq!(of(Operation::Put, b"a", false), "set a 0 0 12\r\n");
    assert_eq!(of(Operation::Delete, b"a", false), "delete a\r\n");
}

#[test]
fn replies_may_be_cut_at_every_byte() {
    let hit = [value("a", 9), b"END\r\n".to_vec()].concat();
    let two = [value("b", 0), value("a", 5), b"END\r\n".to_vec()].concat();
    let rows: &[(&[u8], &[u8], u16, u64)] = &[
        (b"get a\r\n", &hit, 200, 9),
        (b"get a\r\n", b"END\r\n", 404, 0),
        (b"get a b\r\n", &two, 200, 5),
        (b"get a b a\r\n", &two, 404, 5),
        (b"set a 0 0 3\r\n", b"STORED\r\n", 200, 0),
        (b"set a 0 0 3\r\n", b"SERVER_ERROR object too large for cache\r\n", 500, 0),
        (b"delete a\r\n", b"NOT_FOUND\r\n", 404, 0),
        (b"get a\r\n", b"CLIENT_ERROR bad\x01command\r\n", 500, 0),
    ];
    for (command, stream, status, bytes) in rows {
        for cut in 0..=stream.len() {
            let (done, replies) = read(command, stream, &[cut]).unwrap();
            let reply = replies.reply();
            assert!(done && !replies.is_wrong(), "cut at {cut}: {replies:?}");
            assert_eq!((reply.status, reply.body_bytes), (*status, *bytes), "cut at {cut}");
            assert_eq!(replies.error_text().is_some(), *status == 500);
        }
        let every: Vec<usize> = (0..stream.len()).collect();
        assert!(read(command, stream, &every).unwrap().0);
        for end in 0..stream.len() {
            let (done, replies) = read(command, &stream[..end], &[]).unwrap();
            assert!(!done && matches!(replies.end_of_stream(), Err(ReplyError::Closed(_))));
            assert_eq!(replies.untouched(), end == 0);
        }
    }
    let refused = |line: &[u8]| read(b"set a 0 0 3\r\n", line, &[]).unwrap().1;
    assert!(refused(b"SERVER_ERROR out of memory\r\n").reply().keep_alive);
    assert!(!refused(b"CLIENT_ERROR bad data chunk\r\n").reply().keep_alive);
    assert_eq!(refused(b"CLIENT_ERROR a\x1bb\r\n").error_text(), Some("CLIENT_ERROR a?b"));
}

#[test]
fn what_is_not_memcached_is_an_error() {
    let endless = vec![b'x'; LINE_MAX + 1];
    let stored = b"set a 0 0 1\r\n";
    let rows: &[(&[u8], &[u8], &str)] = &[
        (b"get a\r\n", b"HTTP/1.1 400 Bad Request\r\n", "unexpected reply"),
        (b"get a\r\n", b"STORED\r\n", "unexpected reply"),
        (stored, b"END\r\n", "unexpected reply"),
        (stored, b"STORED\n", "does not end with \\r\\n"),
        (stored, b"STORED\r\nSTORED\r\n", "bytes after the end"),
        (b"get a\r\n", b"VALUE b 0 1\r\n", "not requested"),
        (b"get a\r\n", b"VALUE a 0 1\r\nxx", "longer than its announced"),
        (b"get a\r\n", b"VALUE a 0 0\r\n\r\nVALUE a 0 0\r\n\r\nEND\r\n", "not requested"),
        (b"get a\r\n", b"VALUE a 0\r\n", "lacks"),
        (b"get a\r\n", b"VALUE a x 1\r\n", "lacks"),
        (b"get a\r\n", b"VALUE a 0 -1\r\n", "invalid length"),
        (b"get a\r\n", b"VALUE a 0 99999999999999999999\r\n", "invalid length"),
        (b"get a\r\n", b"VALUE a 0 17179869185\r\n", "invalid length"),
        (b"get a\r\n", &endless, "longer than 2048"),
    ];
    for (command, stream, words) in rows {
        let error = read(command, stream, &[]).unwrap_err().to_string();
        assert!(error.contains(words), "{}: {error}", String::from_utf8_lossy(stream));
    }
}

#[test]
fn wrong_bytes_are_seen_wherever_they_are() {
    let good = [value("a", 40), b"END\r\n".to_vec()].concat();
    let from = good.iter().position(|&b| b == b'\n').unwrap() + 1;
    for at in from..from + 40 {
        let mut bad = good.clone();
        bad[at] ^= 1;
        assert!(read(b"get a\r\n", &bad, &[at]).unwrap().1.is_wrong(), "at {at}");
    }
    // A key that was encoded is checked by its original hash.
    let mut replies = Replies::default();
    replies.start(b"get x%20y\r\n", key_hash(b"x y"), true);
    let body = Body { key: key_hash(b"x y"), size: 8 }.bytes();
    let stream = [&b"VALUE x%20y 0 8\r\n"[..], &body, b"\r\nEND\r\n"].concat();
    assert_eq!(replies.feed(&stream), Ok(true));
    assert!(!replies.is_wrong() && replies.reply().status == 200);
}

proptest! {
    #[test]
    fn the_parser_agrees_with_its_naive_twin(
        values in prop::collection::vec((0usize..4, 0u64..60), 0..5), end in any::<bool>(),
        change in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
        cuts in prop::collection::vec(0usize..300, 0..4),
    ) {
        let keys = ["a", "bb", "a", "k3"];
        let mut stream = Vec::new();
        values.iter().for_each(|&(key, size)| stream.extend(value(keys[key], size)));
        if end {
            stream.extend_from_slice(b"END\r\n");
        }
        if let (Some((at, byte)), false) = (change, stream.is_empty()) {
            let at = at.index(stream.len());
            stream[at] = byte;
        }
        let mut cuts = cuts;
        cuts.sort_unstable();
        let found = match read(b"get a bb a k3\r\n", &stream, &cuts) {
            Ok((true, replies)) if replies.error_text().is_none() => {
                let reply = replies.reply();
                Some((reply.status, reply.body_bytes, replies.is_wrong()))
            }
            _ => None,
        };
        match (naive(&keys, &stream), found) {
            // Only the naive parser accepts invalid flags, and lengths such as `+5`.
            (Some(_), None) => prop_assert!(change.is_some()),
            (expected, found) => prop_assert_eq!(found, expected),
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_are_not_kept(
        bytes in prop::collection::vec(any::<u8>(), 0..5000), which in 0usize..3,
    ) {
        let command: &[u8] = [&b"get a b\r\n"[..], b"set a 0 0 1\r\n", b"delete a\r\n"][which];
        let mut replies = Replies::default();
        replies.start(command, 0, true);
        for piece in bytes.chunks(7) {
            if replies.feed(piece).is_err() {
                break;
            }
            prop_assert!(replies.line.len() <= LINE_MAX);
        }
    }
}
