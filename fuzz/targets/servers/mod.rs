//! A server in this process, and its clients: the bytes of an input go over a socket, as a stranger's do.

#![allow(dead_code, reason = "not every target uses everything")]

pub mod fake;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use configuration::Config;
use serve::Server;

/// Time within which a server must answer, or end a connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// A folder for a server's files, in memory where there is such a place. Those of processes that are gone are removed.
pub fn folder(name: &str) -> std::path::PathBuf {
    let shm = std::path::Path::new("/dev/shm");
    let place = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    let prefix = format!("concertina-fuzz-{name}-");
    for entry in std::fs::read_dir(&place).expect("a folder for files").flatten() {
        let of = entry.file_name();
        let process = of.to_str().and_then(|of| of.strip_prefix(&prefix));
        if process.is_some_and(|id| !std::path::Path::new("/proc").join(id).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    let folder = place.join(format!("{prefix}{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Starts a server; it runs as long as the process does.
pub fn start(folder: &std::path::Path, more: &[&str]) -> Server {
    let mut sets = vec![
        "serve.listen=127.0.0.1:0".to_owned(),
        "serve.threads=1".to_owned(),
        "node.memory_bytes=64MiB".to_owned(),
        "device=[]".to_owned(),
        format!("origin.path={}/origin", folder.display()),
    ];
    sets.extend(more.iter().map(|&set| set.to_owned()));
    let config = Config::parse("", "here", &sets).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    Server::start(config, None).expect("a server")
}

/// A reply.
pub struct Reply {
    pub status: u16,
    pub head: Vec<u8>,
    pub body: Vec<u8>,
}

/// The length of a head, its status and the length of its body (`None`: until the end); `None` if the head is not whole.
fn head(bytes: &[u8]) -> Option<(usize, u16, Option<usize>)> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut reply = httparse::Response::new(&mut headers);
    let Ok(httparse::Status::Complete(length)) = reply.parse(bytes) else { return None };
    let of = reply.headers.iter().find(|it| it.name.eq_ignore_ascii_case("content-length"));
    let body = of.map(|it| std::str::from_utf8(it.value).ok().and_then(|it| it.parse().ok()));
    let body = body.map(|it| it.unwrap_or_else(|| panic!("no length: {}", bytes.escape_ascii())));
    Some((length, reply.code.expect("a status"), body))
}

fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    stream.set_write_timeout(Some(PATIENCE)).expect("a limit");
    stream.set_nodelay(true).expect("no delay");
    stream
}

/// Sends any bytes on a connection of their own, and all that comes back until the server ends it, which it must.
pub fn send(to: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = connect(to);
    // The server may have ended it already, of a request that it refuses.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut came = Vec::new();
    match stream.read_to_end(&mut came) {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            panic!("no end within {PATIENCE:?} of: {}", bytes.escape_ascii());
        }
        _ => came,
    }
}

/// The replies in what came back. Bodies without a length end with the connection.
pub fn statuses(mut came: &[u8]) -> Vec<u16> {
    let mut all = Vec::new();
    while !came.is_empty() {
        let Some((length, status, body)) = head(came) else { break };
        all.push(status);
        // Whether it answers a HEAD, whose body is not there, is not known here.
        let rest = &came[length..];
        let body = body.filter(|_| !rest.starts_with(b"HTTP/1.1 ")).unwrap_or(0);
        came = rest.get(body..).unwrap_or_default();
        if !came.starts_with(b"HTTP/1.1 ") {
            break;
        }
    }
    all
}

/// A client that keeps its connection.
#[derive(Default)]
pub struct Client(Option<TcpStream>);

impl Client {
    /// The reply to a request, which must come.
    pub fn ask(&mut self, to: SocketAddr, request: &[u8]) -> Reply {
        // The server may have ended the connection since; a new one it must answer.
        for fresh in [self.0.is_none(), true] {
            if self.0.is_none() {
                self.0 = Some(connect(to));
            }
            let stream = self.0.as_mut().expect("a connection");
            match exchange(stream, request) {
                Ok((reply, stays)) => {
                    if !stays {
                        self.0 = None;
                    }
                    return reply;
                }
                Err(error) if fresh => panic!("{error}: {}", request.escape_ascii()),
                Err(_) => self.0 = None,
            }
        }
        unreachable!("the second attempt is fresh")
    }

    /// The reply to a request; `None` if the connection ends within it, as one does whose body breaks off.
    pub fn ask_or_end(&mut self, to: SocketAddr, request: &[u8]) -> Option<Reply> {
        let mut stream = self.0.take().unwrap_or_else(|| connect(to));
        match exchange(&mut stream, request) {
            Ok((reply, stays)) => {
                self.0 = stays.then_some(stream);
                Some(reply)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("{error}: {}", request.escape_ascii());
            }
            Err(_) => None,
        }
    }
}

fn exchange(stream: &mut TcpStream, request: &[u8]) -> std::io::Result<(Reply, bool)> {
    let written = stream.write_all(request);
    let (mut came, mut piece) = (Vec::new(), [0; 16 << 10]);
    let is_head = request.starts_with(b"HEAD ");
    loop {
        if let Some((length, status, body)) = head(&came).filter(|it| it.1 != 100) {
            let bodiless = is_head || matches!(status, 204 | 304);
            let end = if bodiless { Some(length) } else { body.map(|body| length + body) };
            if end.is_some_and(|end| came.len() >= end) {
                let body = came.split_off(length);
                // A refusal of a body that was not read ends the connection.
                let text = came.to_ascii_lowercase();
                let closes = text.windows(17).any(|it| it == b"connection: close");
                return Ok((Reply { status, head: came, body }, !closes && written.is_ok()));
            }
        }
        match stream.read(&mut piece)? {
            0 => {
                let Some((length, status, None)) = head(&came).filter(|_| !came.is_empty()) else {
                    return Err(ErrorKind::UnexpectedEof.into());
                };
                let body = came.split_off(length);
                return Ok((Reply { status, head: came, body }, false));
            }
            count => came.extend_from_slice(&piece[..count]),
        }
        // A reply that says "go on" is followed by the one that counts.
        if came.starts_with(b"HTTP/1.1 100 ")
            && let Some((length, ..)) = head(&came)
        {
            came.drain(..length);
        }
    }
}
