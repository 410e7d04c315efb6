//! Where a server's reply ends, and what it says.

use memchr::memchr;

use crate::limits::{Limits, VALUE_BYTES_MAX};
use crate::token::{Tokens, number_u64, split_word, trim_end};
use crate::verb::Verb;

/// How a server's reply to what was sent ends. A line that begins with `ERROR`, `CLIENT_ERROR` or
/// `SERVER_ERROR` ends a reply of any kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// `get`, `gets`, `gat`, `gats`: `VALUE` lines, each with a value, then `END`.
    Values,
    /// One line: `STORED`, a number, `OK`, `VERSION` and others.
    Line,
    /// A meta command: one line, with a value after `VA`.
    Meta {
        /// Whether `HD` and `VA` say that there is an item (`mg`, `me`) or that something was done.
        get: bool,
    },
    /// `stats`: lines until `END`, or one line (`RESET`, `OK`).
    Lines,
}

/// What a reply says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// At least one of the requested items is there.
    Hit,
    /// None of the requested items is there.
    Miss,
    /// What was requested was done.
    Done,
    /// What was requested was not done, for the state of the item: `NOT_STORED`, `EXISTS`,
    /// `NOT_FOUND`, `NS`, `EX`, `NF`.
    Unchanged,
    /// The server does not accept the request: `ERROR`, `CLIENT_ERROR`.
    Refused,
    /// The server failed: `SERVER_ERROR`. So does it reply to a value that is too large for it.
    Error,
}

/// A whole reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The bytes of the reply, with its line end.
    pub bytes: usize,
    /// What it says.
    pub answer: Answer,
    /// The number of items in it.
    pub hits: u32,
}

/// What is known of a reply so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scanned {
    /// More bytes are needed.
    Incomplete {
        /// A number of bytes that the reply has at least, counted from its beginning; 0 while
        /// unknown. Before so many have arrived it is not worth calling again.
        needed: usize,
    },
    /// The reply has ended.
    Complete(Reply),
    /// The bytes are not a reply of the expected kind: the connection is out of step, close it. With
    /// what is wrong, for a log.
    Malformed(&'static str),
}

/// The longest line of a reply without the keys in it: memcached writes lines into a buffer of 1024
/// bytes (`WRITE_BUFFER_SIZE`), statistics into one that is not much larger.
const LINE_BYTES_MAX: usize = 2048;

/// Finds the end of a reply as its bytes arrive.
///
/// It remembers how far it has looked, so the cost of all calls together is linear in the bytes of
/// the reply's lines; the bytes of values are not looked at. Lines, values, and the number of values
/// are bounded by the [`Limits`]; the sum of the values is not, the caller bounds its buffer.
#[derive(Clone, Debug)]
pub struct Scanner {
    expect: Expect,
    line_bytes_max: usize,
    value_bytes_max: u64,
    keys_max: u32,
    /// Where the line starts that is looked at: what precedes it is known.
    start: usize,
    /// The line's end is not before this.
    looked: usize,
    /// The end of the value that is arriving, with its line end.
    value: Option<usize>,
    hits: u32,
}

impl Scanner {
    /// A scanner for one reply.
    pub fn new(expect: Expect, limits: &Limits) -> Scanner {
        Scanner {
            expect,
            line_bytes_max: LINE_BYTES_MAX.saturating_add(limits.key_bytes_max),
            value_bytes_max: VALUE_BYTES_MAX.min(limits.value_bytes_max as u64),
            keys_max: u32::try_from(limits.keys_max).unwrap_or(u32::MAX),
            start: 0,
            looked: 0,
            value: None,
            hits: 0,
        }
    }

    /// Looks at the bytes that have arrived since the last call.
    ///
    /// `buffer` begins with the reply and has at least the bytes of the last call; it may go on past
    /// the reply's end. After [`Scanned::Complete`] and [`Scanned::Malformed`] further calls return
    /// the same: the next reply takes a new scanner.
    pub fn advance(&mut self, buffer: &[u8]) -> Scanned {
        loop {
            if let Some(end) = self.value {
                match buffer.get(end - 2..end) {
                    None => {
                        // Behind a value of several there is at least `END`.
                        let tail = if self.expect == Expect::Values { b"END\r\n".len() } else { 0 };
                        return Scanned::Incomplete { needed: end + tail };
                    }
                    Some(b"\r\n") => {}
                    Some(_) => return Scanned::Malformed("a value without a line end"),
                }
                if let Expect::Meta { get } = self.expect {
                    return self.complete(end, if get { Answer::Hit } else { Answer::Done });
                }
                self.value = None;
                self.start = end;
                self.looked = end;
            }
            let limit = self.start.saturating_add(self.line_bytes_max).min(buffer.len());
            let unseen = buffer.get(self.looked..limit).unwrap_or_default();
            let Some(length) = memchr(b'\n', unseen) else {
                if limit - self.start.min(limit) >= self.line_bytes_max {
                    return Scanned::Malformed("a line that is too long");
                }
                self.looked = self.looked.max(limit);
                return Scanned::Incomplete { needed: 0 };
            };
            let end = self.looked + length;
            let line = buffer.get(self.start..end).unwrap_or_default();
            let Some(line) = line.strip_suffix(b"\r") else {
                return Scanned::Malformed("a line that does not end in CR LF");
            };
            match read_line(line, self.expect) {
                Line::Answer(answer) => return self.complete(end + 1, answer),
                Line::Value(bytes) if bytes > self.value_bytes_max => {
                    return Scanned::Malformed("a value that is too large");
                }
                Line::Value(_) if self.hits >= self.keys_max => {
                    return Scanned::Malformed("more values than keys");
                }
                Line::Value(bytes) => {
                    self.hits += 1;
                    self.value = Some(end + 1 + bytes as usize + 2);
                }
                Line::More => {
                    self.start = end + 1;
                    self.looked = end + 1;
                }
                Line::Malformed(what) => return Scanned::Malformed(what),
            }
        }
    }

    fn complete(&self, bytes: usize, answer: Answer) -> Scanned {
        let is_meta = matches!(self.expect, Expect::Meta { .. });
        let (answer, hits) = match answer {
            Answer::Miss if self.hits > 0 => (Answer::Hit, self.hits),
            Answer::Hit => (answer, 1),
            _ if is_meta => (answer, 0),
            _ => (answer, self.hits),
        };
        Scanned::Complete(Reply { bytes, answer, hits })
    }
}

/// What a line of a reply says.
enum Line {
    /// It is the last one.
    Answer(Answer),
    /// A value of so many bytes follows.
    Value(u64),
    /// Lines follow.
    More,
    Malformed(&'static str),
}

const UNEXPECTED: Line = Line::Malformed("an unexpected line");

fn read_line(line: &[u8], expect: Expect) -> Line {
    if let (Expect::Values, [b'V', ..]) = (expect, line) {
        // The lines that are most frequent.
        return read_value_line(line).map_or(UNEXPECTED, |value| Line::Value(value.bytes));
    }
    let (word, _) = split_word(line);
    match word {
        b"ERROR" | b"CLIENT_ERROR" => return Line::Answer(Answer::Refused),
        // With a colon in `SERVER_ERROR: shutdown not enabled`.
        b"SERVER_ERROR" | b"SERVER_ERROR:" => return Line::Answer(Answer::Error),
        _ => {}
    }
    match expect {
        Expect::Values if line == b"END" => Line::Answer(Answer::Miss),
        Expect::Values => UNEXPECTED,
        Expect::Meta { get } => match word {
            b"HD" | b"ME" => Line::Answer(if get { Answer::Hit } else { Answer::Done }),
            b"VA" => match read_va_line(line) {
                Some((bytes, _)) => Line::Value(bytes),
                None => UNEXPECTED,
            },
            b"EN" => Line::Answer(Answer::Miss),
            b"NS" | b"EX" | b"NF" => Line::Answer(Answer::Unchanged),
            b"MN" => Line::Answer(Answer::Done),
            _ => UNEXPECTED,
        },
        Expect::Lines => match word {
            b"END" | b"RESET" | b"OK" => Line::Answer(Answer::Done),
            b"STAT" | b"ITEM" | b"PREFIX" => Line::More,
            _ => UNEXPECTED,
        },
        Expect::Line => match line {
            b"STORED" | b"DELETED" | b"TOUCHED" | b"OK" => Line::Answer(Answer::Done),
            b"NOT_STORED" | b"EXISTS" | b"NOT_FOUND" => Line::Answer(Answer::Unchanged),
            _ if word == b"VERSION" => Line::Answer(Answer::Done),
            // The new number of `incr` and `decr`, which may have spaces behind it.
            _ if number_u64(trim_end(line)).is_some() => Line::Answer(Answer::Done),
            _ => UNEXPECTED,
        },
    }
}

/// Whether the reply to an `mg` says that its reader has won the right to replace the item (`W`).
pub fn is_won(reply: &[u8]) -> bool {
    let Some((line, _)) = split_line(reply) else { return false };
    let starts = line.starts_with(b"VA ") || line.starts_with(b"HD ") || line.starts_with(b"EN ");
    starts && Tokens(line).any(|word| word == b"W")
}

/// A line `VALUE KEY FLAGS BYTES [CAS]`.
struct ValueLine<'a> {
    key: &'a [u8],
    flags: u64,
    bytes: u64,
    cas: Option<u64>,
}

fn read_value_line(line: &[u8]) -> Option<ValueLine<'_>> {
    let mut words = Tokens(line.strip_prefix(b"VALUE ")?);
    let key = words.next()?;
    let flags = number_u64(words.next()?)?;
    let bytes = number_u64(words.next()?)?;
    let cas = words.next().map(|cas| number_u64(cas).ok_or(())).transpose().ok()?;
    words.next().is_none().then_some(ValueLine { key, flags, bytes, cas })
}

/// A line `VA BYTES FLAG*`: the bytes, and the flags.
pub(crate) fn read_va_line(line: &[u8]) -> Option<(u64, Tokens<'_>)> {
    let mut words = Tokens(line.strip_prefix(b"VA ")?);
    Some((number_u64(words.next()?)?, words))
}

/// Splits a buffer after its first line, whose end is dropped.
pub(crate) fn split_line(buffer: &[u8]) -> Option<(&[u8], &[u8])> {
    let (line, rest) = buffer.split_at_checked(memchr(b'\n', buffer)? + 1)?;
    Some((line.strip_suffix(b"\r\n")?, rest))
}

/// Splits a buffer after a value of so many bytes, whose line end is dropped.
pub(crate) fn split_value(buffer: &[u8], bytes: u64) -> Option<(&[u8], &[u8])> {
    let (value, rest) = buffer.split_at_checked(usize::try_from(bytes).ok()?)?;
    Some((value, rest.strip_prefix(b"\r\n")?))
}

/// Whether a reply that a server has sent is kept from the client, since the client has said so:
/// with `noreply` every reply, also an error; with the flag `q` of a meta command the nominal one:
/// of `mg` a miss (`EN`), of `ms`, `md` and `ma` success (`HD`, `VA`). Not `NF` of `md`:
/// `doc/protocol.txt` names only success, and so do all releases of 1.6.
///
/// `quiet` and `noreply` are those of the [`Request`](crate::Request).
pub fn is_suppressed(verb: Verb, quiet: bool, noreply: bool, reply: &[u8]) -> bool {
    let code = reply.get(..2).unwrap_or_default();
    // Also what precedes the line end: `ENx` is not a code.
    let ends = matches!(reply.get(2), Some(b' ' | b'\r'));
    noreply
        || quiet
            && ends
            && match verb {
                Verb::MetaGet => code == b"EN",
                Verb::MetaSet | Verb::MetaDelete | Verb::MetaArithmetic => {
                    code == b"HD" || code == b"VA"
                }
                _ => false,
            }
}

/// An item in the reply to a get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value<'a> {
    /// The key as it was requested.
    pub key: &'a [u8],
    /// The number that the client stored with the value.
    pub flags: u64,
    /// The compare-and-swap number, in a reply to `gets` and `gats`.
    pub cas: Option<u64>,
    /// The value.
    pub data: &'a [u8],
    /// The bytes of the item in the reply: the `VALUE` line, the value, and their ends.
    pub whole: &'a [u8],
}

/// The items of a whole reply to `get`, `gets`, `gat` or `gats`, in the server's order, up to the
/// first line that is not one's.
pub fn values(reply: &[u8]) -> impl Iterator<Item = Value<'_>> + Clone {
    let mut rest = reply;
    std::iter::from_fn(move || {
        let (line, after) = split_line(rest)?;
        let ValueLine { key, flags, bytes, cas } = read_value_line(line)?;
        let (data, after) = split_value(after, bytes)?;
        let whole = rest.get(..rest.len() - after.len())?;
        rest = after;
        Some(Value { key, flags, cas, data, whole })
    })
}
