//! memcached's text protocol (`doc/protocol.txt` of its sources): commands, and the parser of their replies;
//! bytes in, events out, no socket.
//!
//! Of the protocol what reading caches needs: `get` of one key or of several, `set`, `delete`. Replies are told
//! in the words of the HTTP client, as a status: 200 for a value, `STORED` and `DELETED`; 404 where a key is
//! missing, be it one of several; 500 for an error, whose words are kept. Lines and lengths are bounded, a value
//! must be of a key that was asked for, and no reply may hold more values than keys were asked for.
//! Nothing is allocated for a request once a connection is warm.

use model::window::{Operation, key_hash};

use super::Body;
use super::reply::{NO_REPLY, Reply, ReplyError, number};

/// Where memcached listens.
pub(super) const PORT: u16 = 11211;
/// The longest line of a reply: the longest key is 250 bytes, and an error's words are few.
const LINE_MAX: usize = 2048;
/// The longest value that is accepted, as of the load generator's objects.
const VALUE_MAX: u64 = 1 << 34;
/// How many characters of an error's words are kept.
const WORDS_MAX: usize = 120;
/// What follows the bytes of a value.
pub(super) const END: &[u8] = b"\r\n";

/// Appends a command, and of a put all but the value and the [`END`] behind it.
///
/// A key of a trace may hold what a memcached key cannot, control characters and spaces: those and `%` are sent
/// in percent form. Where `several`, `key` is one key or more with a space between them, and sent as it is.
pub(super) fn write_command(
    out: &mut Vec<u8>,
    operation: Operation,
    key: &[u8],
    several: bool,
    size: u64,
) {
    let command: &[u8] = match operation {
        Operation::Put | Operation::Append => b"set ",
        Operation::Delete => b"delete ",
        // There is no other way to ask whether a key is there; and what is no question of a key is not asked.
        _ => b"get ",
    };
    out.extend_from_slice(command);
    if several {
        out.extend_from_slice(key);
    } else {
        encode_key(out, key);
    }
    if operation == Operation::Put {
        out.extend_from_slice(b" 0 0 ");
        out.extend_from_slice(size.to_string().as_bytes());
    }
    out.extend_from_slice(END);
}

fn encode_key(out: &mut Vec<u8>, key: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in key {
        if byte > b' ' && byte != 0x7f && byte != b'%' {
            out.push(byte);
        } else {
            let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
            out.extend_from_slice(&[b'%', HEX[high], HEX[low]]);
        }
    }
}

/// Where a reply is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// At a line, or within it.
    Line,
    /// Within a value.
    Value {
        left: u64,
    },
    /// Before the line's end behind a value.
    ValueEnd {
        carriage: bool,
    },
    Done,
}

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Get,
    Set,
    Delete,
}

/// Reads one reply after another from a stream of bytes.
#[derive(Debug)]
pub(super) struct Replies {
    state: State,
    asked: Asked,
    /// The keys of a get as sent, a space between them, and how many they are.
    keys: Vec<u8>,
    count: u64,
    /// Where the next value's key is looked for first: they mostly come in the order asked.
    next: usize,
    /// The hash of the key where one was asked for: it may have been sent in another form.
    hash: Option<u64>,
    /// Whether values are compared with those that their keys say.
    check: bool,
    value: Body,
    seen: u64,
    wrong: bool,
    found: u64,
    /// A line that is not whole yet.
    line: Vec<u8>,
    begun: bool,
    words: String,
    reply: Reply,
}

impl Default for Replies {
    fn default() -> Self {
        Replies {
            state: State::Done,
            asked: Asked::Get,
            keys: Vec::new(),
            count: 0,
            next: 0,
            hash: None,
            check: false,
            value: Body { key: 0, size: 0 },
            seen: 0,
            wrong: false,
            found: 0,
            line: Vec::new(),
            begun: false,
            words: String::new(),
            reply: NO_REPLY,
        }
    }
}

impl Replies {
    /// Makes ready for the reply to a command as it was sent. `hash` is that of its key, before it was put
    /// into the form that is sent; with `check` values are compared with those that [`Body`] says.
    pub fn start(&mut self, command: &[u8], hash: u64, check: bool) {
        let line = command.strip_suffix(END).unwrap_or(command);
        self.keys.clear();
        self.asked = match line.strip_prefix(b"get ") {
            Some(keys) => {
                self.keys.extend_from_slice(keys);
                Asked::Get
            }
            None if line.starts_with(b"set ") => Asked::Set,
            None => Asked::Delete,
        };
        self.count = 1 + self.keys.iter().filter(|&&b| b == b' ').count() as u64;
        self.hash = (self.count == 1).then_some(hash);
        (self.state, self.next, self.check) = (State::Line, 0, check);
        (self.seen, self.found) = (0, 0);
        (self.wrong, self.begun) = (false, false);
        self.line.clear();
        self.words.clear();
        self.reply = NO_REPLY;
    }

    /// The reply as far as it is known. Its length is that of the values.
    pub fn reply(&self) -> &Reply {
        &self.reply
    }

    /// The words of an error.
    pub fn words(&self) -> Option<&str> {
        Some(&*self.words).filter(|words| !words.is_empty())
    }

    /// Whether a value is not the one that its key says.
    pub fn is_wrong(&self) -> bool {
        self.wrong
    }

    /// Whether no byte of the reply has come yet.
    pub fn untouched(&self) -> bool {
        !self.begun && self.state == State::Line
    }

    /// Takes bytes of the stream. True when the reply is complete.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<bool, ReplyError> {
        while !bytes.is_empty() {
            self.begun = true;
            let taken = match self.state {
                State::Line => self.line(bytes)?,
                State::Value { left } => {
                    let take = left.min(bytes.len() as u64) as usize;
                    let piece = bytes.get(..take).unwrap_or_default();
                    if self.check {
                        self.wrong |= !self.value.matches(self.seen, piece);
                    }
                    self.skipped(take as u64);
                    take
                }
                State::ValueEnd { carriage } => {
                    self.state = match (carriage, bytes.first()) {
                        (false, Some(b'\r')) => State::ValueEnd { carriage: true },
                        (true, Some(b'\n')) => State::Line,
                        _ => return Err(ReplyError::Memcached("a value is longer than it says")),
                    };
                    1
                }
                State::Done => return Err(ReplyError::Extra),
            };
            bytes = bytes.get(taken..).unwrap_or_default();
        }
        Ok(self.state == State::Done)
    }

    /// How many bytes from here on are a value for certain that nobody compares.
    pub fn skippable(&self) -> u64 {
        match self.state {
            State::Value { left } if !self.check => left,
            _ => 0,
        }
    }

    /// Bytes of a value went by. Never completes a reply: its last line is still to come.
    pub fn skipped(&mut self, count: u64) {
        self.reply.body_bytes += count;
        self.seen += count;
        if let State::Value { left } = &mut self.state {
            *left = left.saturating_sub(count);
            if *left == 0 {
                self.state = State::ValueEnd { carriage: false };
            }
        }
    }

    /// The stream ended, which no reply does by itself.
    pub fn end_of_stream(&self) -> Result<(), ReplyError> {
        match self.state {
            State::Done => Ok(()),
            State::Line if !self.begun => Err(ReplyError::Closed("before a reply")),
            _ => Err(ReplyError::Closed("within a reply")),
        }
    }

    /// Takes bytes of a line; how many of them belonged to it.
    fn line(&mut self, bytes: &[u8]) -> Result<usize, ReplyError> {
        let end = bytes.iter().position(|&b| b == b'\n');
        let taken = end.map_or(bytes.len(), |end| end + 1);
        if self.line.len() + taken > LINE_MAX {
            return Err(ReplyError::LineTooLong);
        }
        let piece = bytes.get(..taken).unwrap_or_default();
        if end.is_some() && self.line.is_empty() {
            self.whole_line(piece)?;
        } else {
            self.line.extend_from_slice(piece);
            if end.is_some() {
                let line = std::mem::take(&mut self.line);
                self.whole_line(&line)?;
                self.line = line;
                self.line.clear();
            }
        }
        Ok(taken)
    }

    fn whole_line(&mut self, line: &[u8]) -> Result<(), ReplyError> {
        let line =
            line.strip_suffix(END).ok_or(ReplyError::Memcached("a line ends in no \\r\\n"))?;
        let status = match (self.asked, line) {
            (Asked::Get, b"END") if self.found == self.count => 200,
            (Asked::Get, b"END") | (Asked::Delete, b"NOT_FOUND") => 404,
            (Asked::Set, b"STORED") | (Asked::Delete, b"DELETED") => 200,
            (Asked::Get, line) if line.starts_with(b"VALUE ") => return self.value(line),
            (_, line) if is_error(line) => {
                let words: String = String::from_utf8_lossy(line).chars().take(WORDS_MAX).collect();
                self.words = words.replace(char::is_control, "?");
                // After the others, and a value that nobody took, the two may be out of step.
                self.reply.keep_alive = line.starts_with(b"SERVER_ERROR");
                500
            }
            _ => return Err(ReplyError::Memcached("what came is no answer to what was asked")),
        };
        self.reply.status = status;
        self.state = State::Done;
        Ok(())
    }

    /// `VALUE key flags bytes [cas]`.
    fn value(&mut self, line: &[u8]) -> Result<(), ReplyError> {
        let mut fields = line.split(|&b| b == b' ').skip(1);
        let (key, flags, bytes) = (fields.next(), fields.next(), fields.next());
        let (Some(key), Some(_), Some(bytes)) = (key, flags.and_then(number), bytes) else {
            return Err(ReplyError::Memcached("a VALUE lacks its key, flags or length"));
        };
        let size = number(bytes).filter(|&size| size <= VALUE_MAX);
        let size = size.ok_or(ReplyError::Memcached("a length is none, or above 16 GiB"))?;
        self.found += 1;
        if self.found > self.count || !self.was_asked(key) {
            return Err(ReplyError::Memcached("a value that was not asked for"));
        }
        self.value = Body { key: self.hash.unwrap_or_else(|| key_hash(key)), size };
        self.seen = 0;
        *self.reply.content_length.get_or_insert(0) += size;
        self.state = match size {
            0 => State::ValueEnd { carriage: false },
            left => State::Value { left },
        };
        Ok(())
    }

    /// Whether a key is among those of the command. Looks from the last one on, then from the first.
    fn was_asked(&mut self, key: &[u8]) -> bool {
        for from in [self.next, 0] {
            let mut at = from;
            for asked in self.keys.get(from..).unwrap_or_default().split(|&b| b == b' ') {
                at += asked.len() + 1;
                if asked == key {
                    self.next = at.min(self.keys.len());
                    return true;
                }
            }
        }
        false
    }
}

fn is_error(line: &[u8]) -> bool {
    let starts = |word: &[u8]| line.starts_with(word);
    line == b"ERROR"
        || starts(b"ERROR ")
        || starts(b"CLIENT_ERROR")
        || starts(b"SERVER_ERROR")
        || [&b"NOT_STORED"[..], b"EXISTS", b"NOT_FOUND"].contains(&line)
}

#[cfg(test)]
#[path = "memcached_tests.rs"]
mod tests;
