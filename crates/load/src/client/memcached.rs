//! memcached's text protocol (`doc/protocol.txt` of its sources): the encoding of commands and the
//! parser of their replies; bytes in, events out, no socket.
//!
//! Supported are `get` of one or several keys, `set` and `delete`. Replies are translated into HTTP
//! status codes: 200 for a value, `STORED` and `DELETED`; 404 if any of the keys is missing; 500
//! for an error, whose text is kept. Lines and lengths are bounded, a value's key must be one of
//! the requested keys, and a reply may not hold more values than keys were requested. Once a
//! connection is warm, a request allocates nothing.

use ground::hex;
use ground::window::{Operation, key_hash};

use super::body::Body;
use super::reply::{NO_REPLY, Reply, ReplyError, number};

/// The default port of memcached.
pub(super) const PORT: u16 = 11211;
/// The longest key, bytes.
pub(crate) const KEY_MAX: usize = 250;
/// The longest line of a reply: keys have at most 250 bytes, and error texts are short.
const LINE_MAX: usize = 2048;
/// The longest value that is accepted; the limit of the load generator's objects.
const VALUE_MAX: u64 = 1 << 34;
/// The number of characters kept of an error text.
const ERROR_TEXT_MAX: usize = 120;
/// The end of a line, and of a value.
pub(super) const END: &[u8] = b"\r\n";

/// Appends a command; for a put, all but the value and the [`END`] after it.
///
/// Keys of a trace may contain control characters and spaces, which memcached does not allow: those
/// and `%` are percent-encoded. With `several`, `key` is one or more keys separated by spaces, sent
/// unchanged.
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
        // memcached has no `head`. The operations on several objects or datasets are never sent.
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
    for &byte in key {
        if byte > b' ' && byte != 0x7f && byte != b'%' {
            out.push(byte);
        } else {
            hex::push_percent(byte, out);
        }
    }
}

/// The position of the parser in a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// At the start of a line, or within it.
    Line,
    /// Within a value.
    Value {
        left: u64,
    },
    /// Before the line end after a value.
    ValueEnd {
        carriage: bool,
    },
    Done,
}

/// The command that a reply answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Get,
    Set,
    Delete,
}

/// Parses one reply after another from a stream of bytes.
#[derive(Debug)]
pub(super) struct Replies {
    state: State,
    command: Command,
    /// The keys of a get as sent, separated by spaces, and their number.
    keys: Vec<u8>,
    count: u64,
    /// The offset in `keys` where the search for the next value's key starts: values mostly come in
    /// the requested order.
    next: usize,
    /// The hash of the key if there is only one: its encoded form may have another hash.
    hash: Option<u64>,
    /// Whether values are compared with the generated objects of their keys.
    check: bool,
    value: Body,
    seen: u64,
    wrong: bool,
    found: u64,
    /// An incomplete line; at most [`LINE_MAX`] bytes.
    line: Vec<u8>,
    begun: bool,
    error_text: String,
    reply: Reply,
}

impl Default for Replies {
    fn default() -> Self {
        Replies {
            state: State::Done,
            command: Command::Get,
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
            error_text: String::new(),
            reply: NO_REPLY,
        }
    }
}

impl Replies {
    /// Prepares for the reply to `command`, given as it was sent. `hash` is the hash of its key
    /// before encoding. With `check`, values are compared with the generated [`Body`] of their
    /// keys.
    pub fn start(&mut self, command: &[u8], hash: u64, check: bool) {
        let line = command.strip_suffix(END).unwrap_or(command);
        self.keys.clear();
        self.command = match line.strip_prefix(b"get ") {
            Some(keys) => {
                self.keys.extend_from_slice(keys);
                Command::Get
            }
            None if line.starts_with(b"set ") => Command::Set,
            None => Command::Delete,
        };
        self.count = 1 + self.keys.iter().filter(|&&b| b == b' ').count() as u64;
        self.hash = (self.count == 1).then_some(hash);
        (self.state, self.next, self.check) = (State::Line, 0, check);
        (self.seen, self.found) = (0, 0);
        (self.wrong, self.begun) = (false, false);
        self.line.clear();
        self.error_text.clear();
        self.reply = NO_REPLY;
    }

    /// The reply as far as it has been parsed. Its length is the sum of all values.
    pub fn reply(&self) -> &Reply {
        &self.reply
    }

    /// The text of an error reply.
    pub fn error_text(&self) -> Option<&str> {
        Some(&*self.error_text).filter(|text| !text.is_empty())
    }

    /// Whether a value differs from the generated object of its key.
    pub fn is_wrong(&self) -> bool {
        self.wrong
    }

    /// Whether no byte of the reply has arrived.
    pub fn untouched(&self) -> bool {
        !self.begun && self.state == State::Line
    }

    /// Parses bytes of the stream. Returns whether the reply is complete.
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
                        _ => {
                            return Err(ReplyError::Memcached(
                                "a value is longer than its announced length",
                            ));
                        }
                    };
                    1
                }
                State::Done => return Err(ReplyError::Extra),
            };
            bytes = bytes.get(taken..).unwrap_or_default();
        }
        Ok(self.state == State::Done)
    }

    /// The number of following bytes that are certain to be an unchecked value, and may be
    /// discarded unread.
    pub fn skippable(&self) -> u64 {
        match self.state {
            State::Value { left } if !self.check => left,
            _ => 0,
        }
    }

    /// Records that `count` bytes of a value were consumed. Never completes a reply: its last line
    /// is still to come.
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

    /// Records the end of the stream, which is an error within a reply.
    pub fn end_of_stream(&self) -> Result<(), ReplyError> {
        match self.state {
            State::Done => Ok(()),
            State::Line if !self.begun => Err(ReplyError::Closed("before a reply")),
            _ => Err(ReplyError::Closed("within a reply")),
        }
    }

    /// Parses bytes of a line. Returns how many belong to it.
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
        let line = line
            .strip_suffix(END)
            .ok_or(ReplyError::Memcached("a line does not end with \\r\\n"))?;
        let status = match (self.command, line) {
            (Command::Get, b"END") if self.found == self.count => 200,
            (Command::Get, b"END") | (Command::Delete, b"NOT_FOUND") => 404,
            (Command::Set, b"STORED") | (Command::Delete, b"DELETED") => 200,
            (Command::Get, line) if line.starts_with(b"VALUE ") => return self.value(line),
            (_, line) if is_error(line) => {
                let text: String =
                    String::from_utf8_lossy(line).chars().take(ERROR_TEXT_MAX).collect();
                self.error_text = text.replace(char::is_control, "?");
                // After other errors the server may not have consumed the value of a `set`, so the
                // connection may be out of step.
                self.reply.keep_alive = line.starts_with(b"SERVER_ERROR");
                500
            }
            _ => return Err(ReplyError::Memcached("unexpected reply to the command")),
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
            return Err(ReplyError::Memcached("a VALUE line lacks its key, flags or length"));
        };
        let size = number(bytes).filter(|&size| size <= VALUE_MAX);
        let size = size.ok_or(ReplyError::Memcached("invalid length, or a length above 16 GiB"))?;
        self.found += 1;
        if self.found > self.count || !self.was_requested(key) {
            return Err(ReplyError::Memcached("a value that was not requested"));
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

    /// Whether a key is among those of the command. Searches from the last match on, then from the
    /// start.
    fn was_requested(&mut self, key: &[u8]) -> bool {
        for from in [self.next, 0] {
            let mut at = from;
            for requested in self.keys.get(from..).unwrap_or_default().split(|&b| b == b' ') {
                at += requested.len() + 1;
                if requested == key {
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
