//! A connection: a socket, the request being sent and the reply being read.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};

use super::body::Body;
use super::fault::Fault;
use super::files::Answers;
use super::memcached::{self, Replies};
use super::parts::{Check, RequestParts};
use super::reply::{Reply, ReplyError, ReplyReader};
use super::target::Target;
use super::tls::Session;
use super::wire::connect_to;

/// Bytes of a generated body produced at a time: about 10 µs of work, so that a large upload does
/// not delay the other connections of the thread.
const PIECE: usize = 64 * 1024;
/// The most reads in one call, so that other connections get their turn.
const READS_MAX: usize = 8;

/// The progress of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Incomplete: continue when the socket is ready.
    Pending,
    /// The reply is complete.
    Complete,
}

/// A connection with at most one request in flight.
pub struct Connection {
    socket: OwnedFd,
    /// The address of the peer; `None` of files.
    address: Option<SocketAddr>,
    connected: bool,
    session: Option<Session>,
    out: Vec<u8>,
    sent: usize,
    upload: Option<Upload>,
    reader: Reader,
    exchanges: u64,
}

/// The parser of the replies.
enum Reader {
    Http(ReplyReader, Option<Check>),
    Memcached(Box<Replies>),
    Files(Answers),
}

/// A body being sent.
struct Upload {
    body: Body,
    made: u64,
    /// Bytes that follow the body.
    end: &'static [u8],
}

impl Connection {
    /// Begins to connect to `target`; the socket becomes writable when the connection is
    /// established or has failed.
    pub fn open(target: &Target) -> Result<Connection, Fault> {
        if let Some(files) = target.files() {
            let raw = |e: std::io::Error| Errno::from_io_error(&e).unwrap_or(Errno::IO);
            let socket = files.connect().map_err(|e| Fault::Files(raw(e)))?;
            return Ok(Connection::with_socket(
                socket,
                true,
                None,
                Reader::Files(Answers::default()),
            ));
        }
        let address = target.addresses.current();
        let (socket, connected) = connect_to(address)?;
        let session = target.secure.as_ref().map(|secure| secure.session()).transpose()?;
        let reader = match target.is_memcached() {
            true => Reader::Memcached(Box::default()),
            false => Reader::Http(ReplyReader::default(), None),
        };
        let connection = Connection::with_socket(socket, connected, session, reader);
        Ok(Connection { address: Some(address), ..connection })
    }

    fn with_socket(
        socket: OwnedFd,
        connected: bool,
        session: Option<Session>,
        reader: Reader,
    ) -> Connection {
        let (out, sent, upload, exchanges, address) = (Vec::new(), 0, None, 0, None);
        Connection { socket, address, connected, session, out, sent, upload, reader, exchanges }
    }

    /// The socket, for polling.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether this connection has completed an exchange.
    pub fn is_used(&self) -> bool {
        self.exchanges > 0
    }

    /// Whether no byte of the current reply has arrived.
    pub fn is_unanswered(&self) -> bool {
        match &self.reader {
            Reader::Http(reader, _) => reader.untouched(),
            Reader::Memcached(replies) => replies.untouched(),
            Reader::Files(answers) => answers.untouched(),
        }
    }

    /// Whether bytes, or the connection itself, wait for the socket to become writable.
    pub fn wants_write(&self) -> bool {
        let unsent = self.sent < self.out.len() || self.upload.is_some();
        !self.connected
            || match &self.session {
                None => unsent,
                // During the handshake, the request waits for the peer's bytes, not for the socket.
                Some(session) => session.wants_write() || unsent && !session.is_handshaking(),
            }
    }

    /// Begins a request. A put of a key uploads its generated object.
    pub fn begin(&mut self, target: &Target, parts: &RequestParts<'_>) {
        self.out.clear();
        self.sent = 0;
        target.write_request(&mut self.out, parts);
        let end = match &mut self.reader {
            Reader::Http(reader, checked) => {
                *checked = parts.check();
                reader.start(target.is_head(parts));
                &b""[..]
            }
            Reader::Memcached(replies) => {
                replies.start(&self.out, parts.body.key, parts.verify);
                memcached::END
            }
            Reader::Files(answers) => {
                // The bytes of an object are made where they are written.
                answers.start();
                self.upload = None;
                return;
            }
        };
        let upload = parts.upload().filter(|body| body.size + end.len() as u64 > 0);
        self.upload = upload.map(|body| Upload { body, made: 0, end });
    }

    /// Sends as much of the request as the socket accepts.
    pub fn write(&mut self) -> Result<(), Fault> {
        if !self.connected {
            match (sockopt::socket_error(&self.socket), self.address) {
                (Ok(Ok(())), _) => self.connected = true,
                (Err(error) | Ok(Err(error)), Some(address)) => {
                    return Err(Fault::Connect { address, error });
                }
                (Err(error) | Ok(Err(error)), None) => return Err(Fault::Socket(error)),
            }
        }
        loop {
            if let Some(upload) = &mut self.upload {
                let kept = self.out.len() - self.sent;
                if kept < PIECE / 2 {
                    self.out.drain(..self.sent);
                    self.sent = 0;
                    let more = (upload.body.size - upload.made).min((PIECE - kept) as u64);
                    self.out.resize(kept + more as usize, 0);
                    upload.body.fill(upload.made, &mut self.out[kept..]);
                    upload.made += more;
                    if upload.made == upload.body.size {
                        self.out.extend_from_slice(upload.end);
                        self.upload = None;
                    }
                }
            }
            let rest = &self.out[self.sent..];
            let count = match &mut self.session {
                Some(session) if rest.is_empty() => return session.flush(&self.socket),
                Some(session) => session.send(&self.socket, rest)?,
                None if rest.is_empty() => return Ok(()),
                None => match send(&self.socket, rest, SendFlags::NOSIGNAL) {
                    Ok(count) => count,
                    Err(Errno::AGAIN | Errno::INTR | Errno::NOTCONN) => 0,
                    Err(error) => return Err(Fault::Socket(error)),
                },
            };
            if count == 0 {
                return Ok(());
            }
            self.sent += count;
        }
    }

    /// Reads the available bytes into `scratch` and parses them. Bodies that are not checked are
    /// discarded in the kernel (`MSG_TRUNC`), without a copy.
    pub fn read(&mut self, scratch: &mut [u8]) -> Result<Progress, Fault> {
        for _ in 0..READS_MAX {
            let skippable = match &self.reader {
                Reader::Http(_, Some(_)) => 0,
                Reader::Http(reader, None) => reader.skippable(),
                Reader::Memcached(replies) => replies.skippable(),
                Reader::Files(_) => 0,
            };
            let skip = skippable >= 4096 && self.session.is_none();
            let (room, flags) = if skip {
                (skippable.min(scratch.len() as u64) as usize, RecvFlags::TRUNC)
            } else {
                (scratch.len().min(PIECE), RecvFlags::empty())
            };
            let room = &mut scratch[..room];
            let count = match &mut self.session {
                None => match recv(&self.socket, &mut *room, flags) {
                    Ok((count, _)) => count,
                    Err(Errno::AGAIN | Errno::INTR) => return Ok(Progress::Pending),
                    Err(error) => return Err(Fault::Socket(error)),
                },
                Some(session) => match session.receive(&self.socket, &mut *room)? {
                    Some(count) => count,
                    None => {
                        // The handshake may have just completed: send the request.
                        self.write()?;
                        return Ok(Progress::Pending);
                    }
                },
            };
            if count == 0 {
                match &mut self.reader {
                    Reader::Http(reader, _) => reader.end_of_stream()?,
                    Reader::Memcached(replies) => replies.end_of_stream()?,
                    Reader::Files(_) => return Err(ReplyError::Closed("before its reply").into()),
                }
                return Ok(self.complete());
            }
            let bytes = &room[..count];
            let done = match &mut self.reader {
                Reader::Http(reader, _) if skip => reader.skipped(count as u64),
                Reader::Http(reader, check) => reader.feed(bytes, &mut |piece| {
                    if let Some(check) = check {
                        check.add(piece);
                    }
                })?,
                Reader::Memcached(replies) if skip => {
                    replies.skipped(count as u64);
                    false
                }
                Reader::Memcached(replies) => replies.feed(bytes)?,
                Reader::Files(answers) => answers.feed(bytes)?,
            };
            if done {
                return Ok(self.complete());
            }
            if count < room.len() && self.session.is_none() {
                return Ok(Progress::Pending);
            }
        }
        Ok(Progress::Pending)
    }

    fn complete(&mut self) -> Progress {
        self.exchanges += 1;
        Progress::Complete
    }

    /// The reply as far as it has arrived.
    pub fn reply(&self) -> &Reply {
        match &self.reader {
            Reader::Http(reader, _) => reader.reply(),
            Reader::Memcached(replies) => replies.reply(),
            Reader::Files(answers) => answers.reply(),
        }
    }

    /// The service's error message, if the protocol has one.
    pub fn error_text(&self) -> Option<&str> {
        match &self.reader {
            Reader::Http(..) => None,
            Reader::Memcached(replies) => replies.error_text(),
            Reader::Files(answers) => answers.error_text(),
        }
    }

    /// Whether the reply's bytes differ from the expected body. The body of an error reply is not
    /// compared.
    pub fn is_wrong(&self) -> bool {
        match &self.reader {
            Reader::Http(reader, check) => {
                reader.reply().status == 200 && check.as_ref().is_some_and(Check::is_wrong)
            }
            Reader::Memcached(replies) => replies.is_wrong(),
            Reader::Files(_) => false,
        }
    }

    /// Whether the connection can carry another request: the last was sent completely and its reply
    /// allows reuse.
    pub fn is_reusable(&self) -> bool {
        self.reply().keep_alive && !self.wants_write()
    }
}
