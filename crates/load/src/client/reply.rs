//! The parser of HTTP replies: bytes in, events out, no socket.
//!
//! Heads are parsed by httparse. Bodies are delimited by their length, by chunks or by the end of
//! the stream, and are passed on without being copied or stored. Every length is bounded; malformed
//! replies are errors.

use ground::window::Outcome;

/// The reply header with the outcome of the request; its values are those of `Outcome::as_str`.
pub(super) const OUTCOME_HEADER: &str = "concertina-outcome";
/// The reply header with the length of the queue that the request met.
pub(super) const QUEUE_LENGTH_HEADER: &str = "concertina-queue-length";

/// The longest head that is accepted: as browsers do. It alone bounds the number of header lines.
const HEAD_MAX: usize = 256 * 1024;
/// The most bytes of chunk extensions and trailers in a reply, besides a share of its body's
/// length.
const EXTRA_MAX: usize = 8 * 1024;
/// Header lines for which there is room without an allocation.
const HEADERS: usize = 64;

/// Why a reply cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// The head is too long.
    #[error("the reply's head is longer than {HEAD_MAX} bytes")]
    HeadTooLong,
    /// The head is not HTTP.
    #[error("malformed HTTP head: {0}")]
    Head(httparse::Error),
    /// The content length is not a number, or two differ.
    #[error("invalid or contradictory content-length")]
    Length,
    /// The transfer encoding is not `chunked`.
    #[error("unsupported transfer-encoding (only `chunked` is)")]
    Coding,
    /// A chunk is malformed.
    #[error("malformed chunk")]
    Chunk,
    /// The reply violates memcached's text protocol.
    #[error("malformed memcached reply: {0}")]
    Memcached(&'static str),
    /// A line of a memcached reply is too long.
    #[error("a line of the reply is longer than 2048 bytes")]
    LineTooLong,
    /// Bytes follow the end of the reply, although only one request is sent at a time.
    #[error("bytes after the end of the reply")]
    Extra,
    /// The stream ended within a reply.
    #[error("the connection was closed {0}")]
    Closed(&'static str),
}

/// The head of a reply and the length of its body so far. Replies of memcached are translated into
/// HTTP status codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// The outcome reported by the service, if any.
    pub outcome: Option<Outcome>,
    /// The queue length that the request met, if the service reports it.
    pub queue_length: Option<u32>,
    /// The length announced by the head.
    pub content_length: Option<u64>,
    /// Bytes of the body received so far.
    pub body_bytes: u64,
    /// Whether the connection may be reused.
    pub keep_alive: bool,
}

pub(super) const NO_REPLY: Reply = Reply {
    status: 0,
    outcome: None,
    queue_length: None,
    content_length: None,
    body_bytes: 0,
    keep_alive: true,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    Sized { left: u64 },
    UntilClose,
    ChunkSize { size: u64, digits: u32 },
    ChunkExtension { size: u64 },
    ChunkSizeEnd { size: u64 },
    ChunkData { left: u64 },
    ChunkDataEnd { carriage: bool },
    Trailer { line: usize, carriage: bool },
    Done,
}

/// Parses one reply after another from a stream of bytes.
#[derive(Debug)]
pub struct ReplyReader {
    state: State,
    /// Whether the request was a HEAD, whose reply has no body whatever its headers announce.
    head_only: bool,
    partial: Vec<u8>,
    extra: usize,
    reply: Reply,
}

impl Default for ReplyReader {
    fn default() -> Self {
        ReplyReader {
            state: State::Done,
            head_only: false,
            partial: Vec::new(),
            extra: 0,
            reply: NO_REPLY,
        }
    }
}

impl ReplyReader {
    /// Prepares for the reply to the next request. `head_only`: the request is a HEAD.
    pub fn start(&mut self, head_only: bool) {
        self.state = State::Head;
        self.head_only = head_only;
        self.partial.clear();
        self.extra = 0;
        self.reply = NO_REPLY;
    }

    /// The reply as far as it has been parsed.
    pub fn reply(&self) -> &Reply {
        &self.reply
    }

    /// Whether no byte of the reply has arrived.
    pub fn untouched(&self) -> bool {
        self.state == State::Head && self.partial.is_empty()
    }

    /// Parses bytes of the stream and passes pieces of the body to `body`. Returns whether the
    /// reply is complete.
    pub fn feed(
        &mut self,
        mut bytes: &[u8],
        body: &mut impl FnMut(&[u8]),
    ) -> Result<bool, ReplyError> {
        while !bytes.is_empty() {
            let taken = match self.state {
                State::Head => self.head(bytes)?,
                State::Sized { left } | State::ChunkData { left } => {
                    let take = left.min(bytes.len() as u64) as usize;
                    body(bytes.get(..take).unwrap_or_default());
                    self.skipped(take as u64);
                    take
                }
                State::UntilClose => {
                    body(bytes);
                    self.reply.body_bytes += bytes.len() as u64;
                    bytes.len()
                }
                State::Done => return Err(ReplyError::Extra),
                _ => {
                    self.chunk_byte(bytes[0])?;
                    1
                }
            };
            bytes = bytes.get(taken..).unwrap_or_default();
        }
        Ok(self.state == State::Done)
    }

    /// The number of following bytes that are certain to be body, and may be discarded unread.
    pub fn skippable(&self) -> u64 {
        match self.state {
            State::Sized { left } | State::ChunkData { left } => left,
            _ => 0,
        }
    }

    /// Records that `count` body bytes (at most [`ReplyReader::skippable`]) were discarded. Returns
    /// whether the reply is complete.
    pub fn skipped(&mut self, count: u64) -> bool {
        self.reply.body_bytes += count;
        match &mut self.state {
            State::Sized { left } => {
                *left = left.saturating_sub(count);
                if *left == 0 {
                    self.state = State::Done;
                }
            }
            State::ChunkData { left } => {
                *left = left.saturating_sub(count);
                if *left == 0 {
                    self.state = State::ChunkDataEnd { carriage: false };
                }
            }
            _ => {}
        }
        self.state == State::Done
    }

    /// Records the end of the stream, which is an error unless it delimits the body.
    pub fn end_of_stream(&mut self) -> Result<(), ReplyError> {
        match self.state {
            State::UntilClose | State::Done => {
                self.state = State::Done;
                self.reply.keep_alive = false;
                Ok(())
            }
            State::Head if self.partial.is_empty() => Err(ReplyError::Closed("before a reply")),
            State::Head => Err(ReplyError::Closed("within the reply's head")),
            _ => Err(ReplyError::Closed("within the reply's body")),
        }
    }

    /// Parses bytes of a head. Returns how many belong to it.
    fn head(&mut self, bytes: &[u8]) -> Result<usize, ReplyError> {
        let before = self.partial.len();
        let length = if before == 0 {
            let length = parse_head(bytes, &mut self.reply)?;
            if length.is_none() {
                self.partial.extend_from_slice(bytes);
            }
            length
        } else {
            self.partial.extend_from_slice(bytes);
            parse_head(&self.partial, &mut self.reply)?
        };
        let Some((length, coding)) = length else {
            let long = self.partial.len() > HEAD_MAX;
            return if long { Err(ReplyError::HeadTooLong) } else { Ok(bytes.len()) };
        };
        self.partial.clear();
        self.state = self.after_head(coding);
        // The earlier bytes were an incomplete head, so the head ends within the new ones.
        Ok(length.saturating_sub(before).min(bytes.len()))
    }

    fn after_head(&mut self, chunked: bool) -> State {
        let status = self.reply.status;
        if status == 101 {
            // The last of HTTP on this connection: whatever follows is another protocol.
            self.reply.keep_alive = false;
            self.reply.content_length = None;
            return State::Done;
        }
        if (100..200).contains(&status) {
            // An interim reply: the final one follows.
            self.reply = NO_REPLY;
            return State::Head;
        }
        if self.head_only || status == 204 || status == 304 {
            return State::Done;
        }
        if chunked {
            return State::ChunkSize { size: 0, digits: 0 };
        }
        match self.reply.content_length {
            Some(0) => State::Done,
            Some(left) => State::Sized { left },
            None => {
                self.reply.keep_alive = false;
                State::UntilClose
            }
        }
    }

    /// Parses one byte of chunk framing.
    fn chunk_byte(&mut self, byte: u8) -> Result<(), ReplyError> {
        if !matches!(self.state, State::ChunkSize { .. }) {
            self.extra += 1;
        }
        self.state = match (self.state, byte) {
            (State::ChunkSize { size, digits }, _) if byte.is_ascii_hexdigit() && digits < 15 => {
                let digit = (byte as char).to_digit(16).unwrap_or_default();
                State::ChunkSize { size: size << 4 | u64::from(digit), digits: digits + 1 }
            }
            (State::ChunkSize { digits: 0, .. }, _) => return Err(ReplyError::Chunk),
            (State::ChunkSize { size, .. }, b';' | b' ' | b'\t') => State::ChunkExtension { size },
            (State::ChunkSize { size, .. } | State::ChunkExtension { size }, b'\r') => {
                State::ChunkSizeEnd { size }
            }
            (State::ChunkExtension { size }, _) if byte != b'\n' => State::ChunkExtension { size },
            (State::ChunkSizeEnd { size: 0 }, b'\n') => State::Trailer { line: 0, carriage: false },
            (State::ChunkSizeEnd { size }, b'\n') => State::ChunkData { left: size },
            (State::ChunkDataEnd { carriage: false }, b'\r') => {
                State::ChunkDataEnd { carriage: true }
            }
            (State::ChunkDataEnd { carriage: true }, b'\n') => {
                State::ChunkSize { size: 0, digits: 0 }
            }
            (State::Trailer { line: 0, carriage: true }, b'\n') => State::Done,
            (State::Trailer { carriage: true, .. }, b'\n') => {
                State::Trailer { line: 0, carriage: false }
            }
            (State::Trailer { line, carriage: false }, b'\r') => {
                State::Trailer { line, carriage: true }
            }
            (State::Trailer { line, carriage: false }, _) if byte != b'\n' => {
                State::Trailer { line: line + 1, carriage: false }
            }
            _ => return Err(ReplyError::Chunk),
        };
        // Regular chunks have little framing: two bytes each besides their sizes. Bounds endless
        // extensions and trailers.
        let frames = self.reply.body_bytes / 16;
        if self.extra as u64 > EXTRA_MAX as u64 + 4 * frames {
            return Err(ReplyError::Chunk);
        }
        Ok(())
    }
}

/// Parses a head. Returns its length and whether the body is chunked; `None` if it is incomplete.
fn parse_head(bytes: &[u8], reply: &mut Reply) -> Result<Option<(usize, bool)>, ReplyError> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    match parse_lines(bytes, &mut headers, reply) {
        Err(ReplyError::Head(httparse::Error::TooManyHeaders)) => {}
        parsed => return parsed,
    }
    // No more lines than `a:\n` fit in the bytes.
    let mut headers = vec![httparse::EMPTY_HEADER; bytes.len().min(HEAD_MAX) / 3 + 1];
    parse_lines(bytes, &mut headers, reply)
}

/// Parses a head into the given room for header lines.
fn parse_lines<'b>(
    bytes: &'b [u8],
    headers: &mut [httparse::Header<'b>],
    reply: &mut Reply,
) -> Result<Option<(usize, bool)>, ReplyError> {
    let mut response = httparse::Response::new(headers);
    let length = match response.parse(bytes).map_err(ReplyError::Head)? {
        httparse::Status::Partial => return Ok(None),
        httparse::Status::Complete(length) => length,
    };
    *reply = NO_REPLY;
    reply.status = response.code.unwrap_or_default();
    reply.keep_alive = response.version != Some(0);
    let mut chunked = false;
    for header in response.headers.iter() {
        let name = header.name;
        if name.eq_ignore_ascii_case("content-length") {
            let value = number(header.value).ok_or(ReplyError::Length)?;
            if reply.content_length.is_some_and(|other| other != value) {
                return Err(ReplyError::Length);
            }
            reply.content_length = Some(value);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            if !header.value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                return Err(ReplyError::Coding);
            }
            chunked = true;
        } else if name.eq_ignore_ascii_case("connection") {
            for word in header.value.split(|&b| b == b',').map(<[u8]>::trim_ascii) {
                if word.eq_ignore_ascii_case(b"close") {
                    reply.keep_alive = false;
                } else if word.eq_ignore_ascii_case(b"keep-alive") {
                    reply.keep_alive = true;
                }
            }
        } else if name.eq_ignore_ascii_case(OUTCOME_HEADER) {
            reply.outcome = std::str::from_utf8(header.value).ok().and_then(Outcome::parse);
        } else if name.eq_ignore_ascii_case(QUEUE_LENGTH_HEADER) {
            reply.queue_length = number(header.value).and_then(|n| u32::try_from(n).ok());
        }
    }
    if chunked {
        reply.content_length = None;
    }
    Ok(Some((length, chunked)))
}

/// Parses a decimal number of at most 18 digits.
pub(super) fn number(value: &[u8]) -> Option<u64> {
    let value = value.trim_ascii();
    if value.is_empty() || value.len() > 18 || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(value.iter().fold(0, |n, &digit| n * 10 + u64::from(digit - b'0')))
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
