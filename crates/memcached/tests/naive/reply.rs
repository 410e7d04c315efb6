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
                let words = words(line);
                let numbers = |at: usize, max: u64| {
                    words.get(at).and_then(|word| digits(word, 20, u128::from(max)))
                };
                let valid = first == b"VALUE"
                    && (words.len() == 4 || words.len() == 5 && numbers(4, u64::MAX).is_some())
                    && numbers(2, u64::MAX).is_some();
                let Some(length) = numbers(3, u64::MAX).filter(|_| valid) else {
                    return FirstReply::Nonsense;
                };
                if length > limits.value_bytes_max as u128 || hits as usize >= limits.keys_max {
                    return FirstReply::Nonsense;
                }
                match value(&stream[bytes..], length as usize) {
                    Ok(length) => (at, hits) = (bytes + length, hits + 1),
                    Err(reply) => return reply,
                }
            }
            Expect::Meta { get } => {
                let there = if get { (Answer::Hit, 1) } else { (Answer::Done, 0) };
                match first {
                    b"HD" | b"ME" => return reply(there.0, there.1),
                    b"EN" => return reply(Answer::Miss, 0),
                    b"NS" | b"EX" | b"NF" => return reply(Answer::Unchanged, 0),
                    b"MN" => return reply(Answer::Done, 0),
                    b"VA" => {
                        let length =
                            words(line).get(1).and_then(|word| digits(word, 20, u128::MAX));
                        let length = length.filter(|n| *n <= limits.value_bytes_max as u128);
                        let Some(length) = length else { return FirstReply::Nonsense };
                        return match value(&stream[bytes..], length as usize) {
                            Ok(length) => {
                                let bytes = bytes + length;
                                FirstReply::Reply(Reply { bytes, answer: there.0, hits: there.1 })
                            }
                            Err(reply) => reply,
                        };
                    }
                    _ => return FirstReply::Nonsense,
                }
            }
            Expect::Lines => match first {
                b"END" | b"RESET" | b"OK" => return reply(Answer::Done, 0),
                b"STAT" | b"ITEM" | b"PREFIX" => at = bytes,
                _ => return FirstReply::Nonsense,
            },
            Expect::Line => {
                let line = String::from_utf8_lossy(line);
                let number = line.trim_end_matches(' ').as_bytes();
                return match &*line {
                    "STORED" | "DELETED" | "TOUCHED" | "OK" => reply(Answer::Done, 0),
                    "NOT_STORED" | "EXISTS" | "NOT_FOUND" => reply(Answer::Unchanged, 0),
                    _ if first == b"VERSION" => reply(Answer::Done, 0),
                    _ if digits(number, 20, u128::from(u64::MAX)).is_some() => {
                        reply(Answer::Done, 0)
                    }
                    _ => FirstReply::Nonsense,
                };
            }
        }
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
