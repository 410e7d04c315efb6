//! A pool of connections to one address.

use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method};

use super::connection::Connection;
use super::fault::Fault;
use super::idle::IdleConnections;
use super::incoming::{Incoming, Reply};
use super::limits::Limits;
use super::reply::Head;
use super::request::{Outgoing, RequestHead};
use wire::tls::Dialer;

/// Sends requests to one address and keeps the connections. A clone shares the same pool.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    address: SocketAddr,
    /// The header lines of every request.
    common: Vec<u8>,
    /// A further line, once it is known.
    late: Arc<OnceLock<Vec<u8>>>,
    limits: Limits,
    dialer: Option<Arc<Dialer>>,
    idle: Arc<IdleConnections>,
}

impl fmt::Debug for Pool {
    // Does not show the common headers, which may contain a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({})", self.shared.address)
    }
}

fn write_line(out: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    out.extend_from_slice(name.as_str().as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value.as_bytes());
    out.extend_from_slice(b"\r\n");
}

impl Pool {
    /// A pool without connections. Every request gets the `common` headers, after `host`.
    pub fn new(address: SocketAddr, common: &[(HeaderName, HeaderValue)], limits: Limits) -> Pool {
        let head = RequestHead { common: common.to_vec(), ..RequestHead::default() };
        Pool::encrypted(address, &head, limits, None)
    }

    /// The same with connections that are encrypted, if there is a dialer.
    pub fn encrypted(
        address: SocketAddr,
        head: &RequestHead,
        limits: Limits,
        dialer: Option<Arc<Dialer>>,
    ) -> Pool {
        let mut lines = format!("host: {address}\r\n").into_bytes();
        for (name, value) in &head.common {
            write_line(&mut lines, name, value);
        }
        let (idle, late) = (Arc::new(IdleConnections::new(limits)), head.late.clone());
        Pool { shared: Arc::new(Shared { address, common: lines, late, limits, dialer, idle }) }
    }

    /// The address that requests are sent to.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// Number of idle connections of all threads.
    pub fn idle(&self) -> usize {
        self.shared.idle.count()
    }

    /// Sends a request and waits for the head of its reply.
    ///
    /// `path` must begin with `/` and be percent-encoded. `headers` must contain neither `host` nor
    /// the body's length, which are added. If a kept connection proves closed before the first byte
    /// of the reply, the request is sent once more on a new connection, provided that it may be
    /// sent twice: GET, HEAD and POST without a streamed body (all POSTs between the processes of a
    /// cluster may be repeated). Dropping the future closes the connection. Costs one write and, if
    /// the reply has arrived, one read.
    ///
    /// # Errors
    ///
    /// A [`Fault`] that tells whether the request may have been carried out.
    pub async fn send(
        &self,
        method: &Method,
        path: &str,
        headers: &[(HeaderName, HeaderValue)],
        mut body: Outgoing<'_>,
    ) -> Result<Reply, Fault> {
        let head = self.head(method, path, headers, &body)?;
        let twice = matches!(*method, Method::GET | Method::HEAD | Method::POST)
            && !matches!(body, Outgoing::Stream(_));
        if let Some(connection) = self.shared.idle.take(!twice) {
            match self.exchange(connection, method, &head, &mut body).await {
                Err(failed) if failed.unanswered && twice => self.shared.idle.forget(),
                result => return result.map_err(|failed| failed.fault),
            }
        }
        let connection = self.open().await?;
        let result = self.exchange(connection, method, &head, &mut body).await;
        result.map_err(|failed| failed.fault)
    }

    async fn open(&self) -> Result<Connection, Fault> {
        let Shared { address, limits, dialer, .. } = &*self.shared;
        Connection::open(*address, dialer.as_deref(), limits.connect).await
    }

    async fn exchange(
        &self,
        mut connection: Connection,
        method: &Method,
        head: &[u8],
        body: &mut Outgoing<'_>,
    ) -> Result<Reply, super::connection::Failed> {
        let bodiless = *method == Method::HEAD;
        let limits = &self.shared.limits;
        let (head, whole) = connection.exchange(head, body, bodiless, limits).await?;
        Ok(self.reply(connection, head, whole))
    }

    fn reply(&self, connection: Connection, head: Head, whole: bool) -> Reply {
        let idle = (whole && head.keep_alive).then(|| self.shared.idle.clone());
        let body = Incoming::new(connection, head.length, idle);
        Reply { status: head.status, headers: head.headers, body }
    }

    /// Sends a GET on a kept connection, if there is one that takes it at once. `lines` writes further
    /// header lines.
    pub fn send_kept(&self, path: &str, lines: impl FnOnce(&mut Vec<u8>)) -> Option<PendingGet> {
        let mut head = Vec::with_capacity(256 + path.len() + self.shared.common.len());
        let Shared { common, late, .. } = &*self.shared;
        let late = late.get().map_or(&[][..], |line| line);
        for part in [b"GET ", path.as_bytes(), b" HTTP/1.1\r\n", common, late] {
            head.extend_from_slice(part);
        }
        lines(&mut head);
        head.extend_from_slice(b"\r\n");
        // One that has closed, or takes only a part, is dropped: the request is sent anew.
        let mut connection = self.shared.idle.take(false)?;
        let sent = connection.try_write(&head).is_ok_and(|count| count == head.len());
        sent.then(|| PendingGet { connection, head, pool: self.clone() })
    }

    fn head(
        &self,
        method: &Method,
        path: &str,
        headers: &[(HeaderName, HeaderValue)],
        body: &Outgoing<'_>,
    ) -> Result<Vec<u8>, Fault> {
        if !path.starts_with('/') || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Fault::Request("the path is not percent-encoded".to_owned()));
        }
        let mut out = Vec::with_capacity(256 + path.len() + self.shared.common.len());
        out.extend_from_slice(method.as_str().as_bytes());
        out.push(b' ');
        out.extend_from_slice(path.as_bytes());
        out.extend_from_slice(b" HTTP/1.1\r\n");
        out.extend_from_slice(&self.shared.common);
        out.extend_from_slice(self.shared.late.get().map_or(&[], |line| line));
        for (name, value) in headers {
            write_line(&mut out, name, value);
        }
        let length = match body {
            Outgoing::Empty if matches!(*method, Method::GET | Method::HEAD) => None,
            Outgoing::Empty => Some(0),
            Outgoing::Bytes(bytes) => Some(bytes.len() as u64),
            Outgoing::Stream(chunks) => match chunks.bytes_left() {
                Some(length) => Some(length),
                None => {
                    out.extend_from_slice(b"transfer-encoding: chunked\r\n");
                    None
                }
            },
        };
        if let Some(length) = length {
            // Writing to a vector does not fail.
            let _ = write!(out, "content-length: {length}\r\n");
        }
        out.extend_from_slice(b"\r\n");
        Ok(out)
    }
}

/// A GET that was sent on a kept connection.
pub struct PendingGet {
    connection: Connection,
    head: Vec<u8>,
    pool: Pool,
}

impl PendingGet {
    /// The bytes of the reply so far, in `scratch` or in the connection's buffer; none: the connection
    /// ended. [`PendingGet::keep`] must follow unless they are the whole reply.
    pub fn poll_arrived<'a>(
        &'a mut self,
        context: &mut Context<'_>,
        scratch: &'a mut [u8],
    ) -> Poll<io::Result<&'a [u8]>> {
        self.connection.poll_arrived(context, scratch)
    }

    /// Whether what arrived is in the connection's buffer.
    pub fn is_buffered(&self) -> bool {
        !self.connection.buffer.is_empty()
    }

    /// Puts a part of a reply into the connection's buffer.
    pub fn keep(&mut self, part: &[u8]) {
        self.connection.buffer.extend_from_slice(part);
    }

    /// The whole reply was read: the connection returns to its pool if it may be used again. Returns
    /// what was in its buffer.
    pub fn end(self, keep_alive: bool) -> Bytes {
        let PendingGet { mut connection, pool, .. } = self;
        let whole = connection.buffer.split().freeze();
        if keep_alive {
            pool.shared.idle.give_back(connection);
        }
        whole
    }

    /// Waits for the reply as [`Pool::send`] does.
    ///
    /// # Errors
    ///
    /// As [`Pool::send`].
    pub async fn reply(self) -> Result<Reply, Fault> {
        let PendingGet { mut connection, head, pool } = self;
        match connection.receive(false, &pool.shared.limits).await {
            Ok(head) => return Ok(pool.reply(connection, head, true)),
            Err(failed) if failed.unanswered => pool.shared.idle.forget(),
            Err(failed) => return Err(failed.fault),
        }
        let connection = pool.open().await?;
        let result = pool.exchange(connection, &Method::GET, &head, &mut Outgoing::Empty).await;
        result.map_err(|failed| failed.fault)
    }
}
