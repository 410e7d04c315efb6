//! A socket with the request that it sends and the reply that it reads.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use model::window::Operation;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send, socket_with,
    sockopt,
};

use super::memcached::{self, Replies};
use super::tls::Session;
use super::{Body, Reply, ReplyError, ReplyReader, Target};

/// Bytes of a generated body that are made at a time: about 10 µs of work, so that a large upload
/// does not hold up the clock of the thread that makes it.
const PIECE: usize = 64 * 1024;
/// How often one call reads before others get their turn.
const READS_MAX: usize = 8;

/// Why an exchange failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The connection could not be made.
    #[error("cannot connect: {0}")]
    Connect(Errno),
    /// The socket failed.
    #[error("the connection failed: {0}")]
    Socket(Errno),
    /// TLS was not agreed upon, or was broken.
    #[error("TLS: {0}")]
    Tls(String),
    /// What came is not a reply.
    #[error("{0}")]
    Reply(#[from] ReplyError),
}

/// How far an exchange is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More is to come when the socket is ready.
    Pending,
    /// The reply is complete.
    Complete,
}

/// A connection: at most one request is on its way.
pub struct Connection {
    socket: OwnedFd,
    connected: bool,
    session: Option<Session>,
    out: Vec<u8>,
    sent: usize,
    upload: Option<Upload>,
    reader: Reader,
    exchanges: u64,
}

/// What understands the replies.
enum Reader {
    Http(ReplyReader, Option<Check>),
    Memcached(Box<Replies>),
}

/// A body on its way out.
struct Upload {
    body: Body,
    made: u64,
    /// What follows it.
    end: &'static [u8],
}

/// A body that is compared as it comes in.
struct Check {
    body: Body,
    seen: u64,
    wrong: bool,
}

impl Connection {
    /// Begins to connect; the socket is ready for writing when that is over. All requests over this connection
    /// are to the target.
    pub fn open(target: &Target) -> Result<Connection, Fault> {
        let address = &target.address;
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket =
            socket_with(family, SocketType::STREAM, flags, None).map_err(Fault::Connect)?;
        sockopt::set_tcp_nodelay(&socket, true).map_err(Fault::Connect)?;
        let connected = match connect(&socket, address) {
            Ok(()) => true,
            Err(Errno::INPROGRESS | Errno::INTR) => false,
            Err(error) => return Err(Fault::Connect(error)),
        };
        Ok(Connection {
            socket,
            connected,
            session: target.secure.as_ref().map(|secure| secure.session()).transpose()?,
            out: Vec::new(),
            sent: 0,
            upload: None,
            reader: match target.is_memcached() {
                true => Reader::Memcached(Box::default()),
                false => Reader::Http(ReplyReader::default(), None),
            },
            exchanges: 0,
        })
    }

    /// The socket, to be watched.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether a reply has come over this connection before.
    pub fn is_used(&self) -> bool {
        self.exchanges > 0
    }

    /// Whether no byte of the present reply has come.
    pub fn is_unanswered(&self) -> bool {
        match &self.reader {
            Reader::Http(reader, _) => reader.untouched(),
            Reader::Memcached(replies) => replies.untouched(),
        }
    }

    /// Whether something waits for the socket to be ready for writing.
    pub fn wants_write(&self) -> bool {
        let unsent = self.sent < self.out.len() || self.upload.is_some();
        !self.connected
            || match &self.session {
                None => unsent,
                // What is to be sent before both sides agree waits for the other's bytes.
                Some(session) => session.wants_write() || unsent && !session.is_handshaking(),
            }
    }

    /// Begins a request. `body` is what a put uploads, and with `check` what the reply to a get must
    /// hold (of whatever length; the caller knows which is right).
    pub fn begin(
        &mut self,
        target: &Target,
        operation: Operation,
        key: &[u8],
        body: Body,
        check: bool,
    ) {
        self.out.clear();
        self.sent = 0;
        target.write_head(&mut self.out, operation, key, body.size);
        let end = match &mut self.reader {
            Reader::Http(reader, checked) => {
                let get = check && operation == Operation::Get;
                *checked = get.then_some(Check { body, seen: 0, wrong: false });
                reader.start(operation == Operation::Head);
                &b""[..]
            }
            Reader::Memcached(replies) => {
                replies.start(&self.out, body.key, check);
                memcached::END
            }
        };
        let put = operation == Operation::Put && body.size + end.len() as u64 > 0;
        self.upload = put.then_some(Upload { body, made: 0, end });
    }

    /// Sends as much of the request as the socket takes.
    pub fn write(&mut self) -> Result<(), Fault> {
        if !self.connected {
            match sockopt::socket_error(&self.socket).map_err(Fault::Connect)? {
                Ok(()) => self.connected = true,
                Err(error) => return Err(Fault::Connect(error)),
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

    /// Reads what has come. `scratch` is room for it; bodies that need no look are dropped in the
    /// kernel, without being copied.
    pub fn read(&mut self, scratch: &mut [u8]) -> Result<Progress, Fault> {
        for _ in 0..READS_MAX {
            let skippable = match &self.reader {
                Reader::Http(_, Some(_)) => 0,
                Reader::Http(reader, None) => reader.skippable(),
                Reader::Memcached(replies) => replies.skippable(),
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
                        // What came may be the other side's word that the request can be sent.
                        self.write()?;
                        return Ok(Progress::Pending);
                    }
                },
            };
            if count == 0 {
                match &mut self.reader {
                    Reader::Http(reader, _) => reader.end_of_stream()?,
                    Reader::Memcached(replies) => replies.end_of_stream()?,
                }
                return Ok(self.complete());
            }
            let bytes = &room[..count];
            let done = match &mut self.reader {
                Reader::Http(reader, _) if skip => reader.skipped(count as u64),
                Reader::Http(reader, check) => reader.feed(bytes, &mut |piece| {
                    if let Some(check) = check {
                        check.wrong |= !check.body.matches(check.seen, piece);
                        check.seen += piece.len() as u64;
                    }
                })?,
                Reader::Memcached(replies) if skip => {
                    replies.skipped(count as u64);
                    false
                }
                Reader::Memcached(replies) => replies.feed(bytes)?,
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

    /// The reply, complete or as far as it came.
    pub fn reply(&self) -> &Reply {
        match &self.reader {
            Reader::Http(reader, _) => reader.reply(),
            Reader::Memcached(replies) => replies.reply(),
        }
    }

    /// What the service says is wrong, in its own words, where the protocol has any.
    pub fn words(&self) -> Option<&str> {
        match &self.reader {
            Reader::Http(..) => None,
            Reader::Memcached(replies) => replies.words(),
        }
    }

    /// Whether bytes came that are not those of the checked body. What comes with an error is no body.
    pub fn is_wrong(&self) -> bool {
        match &self.reader {
            Reader::Http(reader, check) => {
                reader.reply().status == 200 && check.as_ref().is_some_and(|check| check.wrong)
            }
            Reader::Memcached(replies) => replies.is_wrong(),
        }
    }

    /// Whether the connection can take another request: the last was sent whole and its reply allows.
    pub fn is_reusable(&self) -> bool {
        self.reply().keep_alive && !self.wants_write()
    }
}
