//! A small client that waits: one connection, one request at a time, the reply's body kept.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use load::client::ReplyReader;

/// How long it waits for a connection, for room to send and for the next bytes of a reply. Longer
/// than a gateway's deadline, so that it is the gateway that gives up.
const PATIENCE: Duration = Duration::from_secs(15);
/// Longest reply.
const REPLY_BYTES_MAX: usize = 1 << 20;

/// A request.
#[derive(Clone, Copy)]
pub struct Ask<'a> {
    /// `GET`, `PUT` or `DELETE`.
    pub method: &'a str,
    /// The path.
    pub path: &'a str,
    /// What a PUT uploads.
    pub upload: &'a [u8],
    /// How long the answer may take.
    pub deadline_ms: Option<u64>,
}

impl<'a> Ask<'a> {
    /// A GET.
    pub fn get(path: &'a str) -> Ask<'a> {
        Ask { method: "GET", path, upload: &[], deadline_ms: None }
    }
}

/// A client of one address.
pub struct Client {
    address: SocketAddr,
    token: String,
    patience: Duration,
    stream: Option<TcpStream>,
    reader: ReplyReader,
    scratch: Vec<u8>,
    /// The last reply's body.
    pub body: Vec<u8>,
}

impl Client {
    /// Connects with the first request.
    pub fn new(address: SocketAddr, token: &str) -> Client {
        Client {
            address,
            token: token.to_owned(),
            patience: PATIENCE,
            stream: None,
            reader: ReplyReader::default(),
            scratch: vec![0; 64 << 10],
            body: Vec::new(),
        }
    }

    /// The same, but it waits no longer than this for anything.
    pub fn impatient(mut self, patience: Duration) -> Client {
        self.patience = patience;
        self
    }

    /// Sends a request and waits for its reply: the status. A GET on a connection that the other
    /// side closed meanwhile is sent again on a new one.
    ///
    /// # Errors
    /// If the connection fails or breaks, or the reply is malformed.
    pub fn ask(&mut self, ask: Ask) -> io::Result<u16> {
        let reused = self.stream.is_some();
        let result = self.exchange(ask);
        if result.is_err() {
            self.stream = None;
            if reused && ask.method == "GET" && self.reader.untouched() {
                return self.exchange(ask).inspect_err(|_| self.stream = None);
            }
        }
        result
    }

    fn exchange(&mut self, ask: Ask) -> io::Result<u16> {
        self.reader.start(false);
        self.body.clear();
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect_timeout(&self.address, self.patience)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(self.patience))?;
                stream.set_write_timeout(Some(self.patience))?;
                self.stream.insert(stream)
            }
        };
        let mut head = format!(
            "{} {} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n",
            ask.method, ask.path, self.address, self.token
        );
        if let Some(ms) = ask.deadline_ms {
            head.push_str(&format!("concertina-deadline-ms: {ms}\r\n"));
        }
        if ask.method == "PUT" {
            head.push_str(&format!("content-length: {}\r\n", ask.upload.len()));
        }
        head.push_str("\r\n");
        // A server may answer before it took the whole body, and close: its answer counts.
        let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(ask.upload));
        loop {
            let count = match stream.read(&mut self.scratch) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(sent.err().unwrap_or(error)),
            };
            let body = &mut self.body;
            let piece = self.scratch.get(..count).unwrap_or_default();
            let complete = if count == 0 {
                self.reader.end_of_stream().map(|()| true)
            } else {
                self.reader.feed(piece, &mut |piece| body.extend_from_slice(piece))
            };
            let invalid = |what: String| io::Error::new(ErrorKind::InvalidData, what);
            let complete = complete.map_err(|error| invalid(error.to_string()))?;
            if self.body.len() > REPLY_BYTES_MAX {
                return Err(invalid(format!("a reply of more than {REPLY_BYTES_MAX} bytes")));
            }
            if complete {
                break;
            }
        }
        let reply = self.reader.reply();
        let status = reply.status;
        if !reply.keep_alive || sent.is_err() {
            self.stream = None;
        }
        Ok(status)
    }
}
