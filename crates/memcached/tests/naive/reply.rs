//! Replies.

use memcached::{Answer, Expect, Limits, Reply, Scanned, Scanner};

use super::{Cuts, digits, words};

/// What the beginning of a stream of a server's bytes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstReply {
    /// A whole reply.
    Reply(Reply),
    /// Not a reply of the expected kind.
    Nonsense,
    /// The stream ends in the middle of it.
    Unfinished,
}

/// The first reply, read with the whole stream at hand.
pub fn first_reply(stream: &[u8], expect: Expect, limits: &Limits) -> FirstReply {
    let (mut at, mut hits) = (0, 0);
    loop {
        let line_max = 2048 + limits.key_bytes_max;
        let rest = &stream[at..];
        let Some(end) = rest.iter().take(line_max).position(|byte| *byte == b'\n') else {
            return if rest.len() >= line_max {
                FirstReply::Nonsense
            } else {
                FirstReply::Unfinished
            };
        };
        let Some(line) = rest[..end].strip_suffix(b"\r") else { return FirstReply::Nonsense };
        let bytes = at + end + 1;
        let reply = |answer, hits| FirstReply::Reply(Reply { bytes, answer, hits });
        let meta = matches!(expect, Expect::Meta { .. });
        let so_far = if meta { 0 } else { hits };
        let first = line.split(|byte| *byte == b' ').next().unwrap_or_default();
        match first {
            b"ERROR" | b"CLIENT_ERROR" => return reply(Answer::Refused, so_far),
            b"SERVER_ERROR" | b"SERVER_ERROR:" => return reply(Answer::Error, so_far),
            _ => {}
        }
        match expect {
            Expect::Values => {
                if line == b"END" {
                    let answer = if hits > 0 { Answer::Hit } else { Answer::Miss };
                    return reply(answer, hits);
                }
                let Some(length) = length_of_value(line, limits) else {
                    return FirstReply::Nonsense;
                };
                if hits as usize >= limits.keys_max {
                    return FirstReply::Nonsense;
                }
                match value(&stream[bytes..], length) {
                    Ok(length) => (at, hits) = (bytes + length, hits + 1),
                    Err(reply) => return reply,
                }
            }
            Expect::Meta { get } => return meta_reply(stream, bytes, line, get, limits),
            Expect::Lines => match first {
                b"END" | b"RESET" | b"OK" => return reply(Answer::Done, 0),
                b"STAT" | b"ITEM" | b"PREFIX" => at = bytes,
                _ => return FirstReply::Nonsense,
            },
            Expect::Line => {
                return answer_of_line(line)
                    .map_or(FirstReply::Nonsense, |answer| reply(answer, 0));
            }
        }
    }
}

/// The bytes that a line `VALUE` announces, if it is one and they may be so many.
fn length_of_value(line: &[u8], limits: &Limits) -> Option<usize> {
    let words = words(line);
    let number = |at: usize| words.get(at).and_then(|word| digits(word, 20, u64::MAX.into()));
    let valid = line.split(|byte| *byte == b' ').next() == Some(b"VALUE")
        && (words.len() == 4 || words.len() == 5 && number(4).is_some())
        && number(2).is_some();
    let length = number(3).filter(|_| valid)?;
    (length <= limits.value_bytes_max as u128).then_some(length as usize)
}

/// The reply to a meta command, whose first line ends before `bytes`.
fn meta_reply(stream: &[u8], bytes: usize, line: &[u8], get: bool, limits: &Limits) -> FirstReply {
    let reply = |answer, hits| FirstReply::Reply(Reply { bytes, answer, hits });
    let there = if get { (Answer::Hit, 1) } else { (Answer::Done, 0) };
    match line.split(|byte| *byte == b' ').next().unwrap_or_default() {
        b"HD" | b"ME" => reply(there.0, there.1),
        b"EN" => reply(Answer::Miss, 0),
        b"NS" | b"EX" | b"NF" => reply(Answer::Unchanged, 0),
        b"MN" => reply(Answer::Done, 0),
        b"VA" => {
            let length = words(line).get(1).and_then(|word| digits(word, 20, u128::MAX));
            let length = length.filter(|n| *n <= limits.value_bytes_max as u128);
            let Some(length) = length else { return FirstReply::Nonsense };
            match value(&stream[bytes..], length as usize) {
                Ok(length) => {
                    let bytes = bytes + length;
                    FirstReply::Reply(Reply { bytes, answer: there.0, hits: there.1 })
                }
                Err(reply) => reply,
            }
        }
        _ => FirstReply::Nonsense,
    }
}

/// What a reply of one line says.
fn answer_of_line(line: &[u8]) -> Option<Answer> {
    let first = line.split(|byte| *byte == b' ').next().unwrap_or_default();
    let text = String::from_utf8_lossy(line);
    let number = text.trim_end_matches(' ').as_bytes();
    match &*text {
        "STORED" | "DELETED" | "TOUCHED" | "OK" => Some(Answer::Done),
        "NOT_STORED" | "EXISTS" | "NOT_FOUND" => Some(Answer::Unchanged),
        _ if first == b"VERSION" => Some(Answer::Done),
        _ if digits(number, 20, u128::from(u64::MAX)).is_some() => Some(Answer::Done),
        _ => None,
    }
}

/// The bytes of a value with its end.
fn value(rest: &[u8], length: usize) -> Result<usize, FirstReply> {
    match rest.get(length..length + 2) {
        Some(b"\r\n") => Ok(length + 2),
        Some(_) => Err(FirstReply::Nonsense),
        None => Err(FirstReply::Unfinished),
    }
}

/// What a [`Scanner`] finds in a stream that arrives in chunks.
///
/// # Panics
/// If `needed` was more than a reply had.
pub fn first_reply_in_chunks(
    stream: &[u8],
    expect: Expect,
    cuts: &[usize],
    limits: &Limits,
) -> FirstReply {
    let (mut scanner, mut cuts) = (Scanner::new(expect, limits), Cuts::new(cuts));
    let (mut arrived, mut least) = (0usize, 0);
    while arrived < stream.len() {
        arrived = arrived.saturating_add(cuts.next()).min(stream.len());
        match scanner.advance(&stream[..arrived]) {
            Scanned::Incomplete { needed } => {
                assert!(needed == 0 || needed > arrived, "{needed} {arrived}");
                least = needed;
            }
            Scanned::Complete(reply) => {
                assert!(reply.bytes >= least, "{least} {reply:?}");
                assert_eq!(scanner.advance(&stream[..arrived]), Scanned::Complete(reply));
                return FirstReply::Reply(reply);
            }
            Scanned::Malformed(_) => return FirstReply::Nonsense,
        }
    }
    FirstReply::Unfinished
}
