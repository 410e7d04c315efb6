//! A plain blocking HTTP/1.1 client, a server in this process, and one in a process of its own.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use configuration::Config;
use origin::Origin;
use serve::Server;

/// An address on the loopback that nobody has, and that no later connection is given: the port is below
/// those that the kernel hands out by itself (32,768 and up), and each caller gets another.
pub fn free() -> SocketAddr {
    const FIRST: u16 = 15_000;
    const PORTS: u16 = 15_000;
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    let start = (std::process::id() % u32::from(PORTS)) as u16;
    loop {
        let next = TAKEN.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + (start + next) % PORTS;
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return listener.local_addr().unwrap();
        }
    }
}

/// How long tests wait for what comes at once on a machine without other work: several minutes were seen beside compilers.
pub const LONGEST: Duration = Duration::from_secs(240);

/// Waits until `holds`; a test in which it never does ends with `what`, after a time that no machine needs.
pub fn until(what: &str, holds: impl FnMut() -> bool) {
    until_or(what, String::new, holds);
}

/// The same, with more to say where it never does.
pub fn until_or(what: &str, why: impl Fn() -> String, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LONGEST, "waited {LONGEST:?}: {what} {}", why());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A reply.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// One connection.
pub struct Client {
    pub stream: TcpStream,
    address: SocketAddr,
    buffer: Vec<u8>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Client { stream, address, buffer: Vec::new() }
    }

    pub fn get(&mut self, path: &str) -> Reply {
        self.send("GET", path, &[], None).unwrap()
    }

    pub fn put(&mut self, path: &str, body: &[u8]) -> Reply {
        self.send("PUT", path, &[], Some(body)).unwrap()
    }

    pub fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&[u8]>,
    ) -> io::Result<Reply> {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\n", self.address);
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = body {
            head.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        let mut request = (head + "\r\n").into_bytes();
        request.extend_from_slice(body.unwrap_or_default());
        self.stream.write_all(&request)?;
        self.read(method == "HEAD")
    }

    pub fn read(&mut self, head_only: bool) -> io::Result<Reply> {
        let (status, headers, start) = loop {
            let mut space = [httparse::EMPTY_HEADER; 64];
            let mut response = httparse::Response::new(&mut space);
            match response.parse(&self.buffer).map_err(io::Error::other)? {
                httparse::Status::Complete(start) => {
                    let text = |v: &[u8]| String::from_utf8_lossy(v).into_owned();
                    let headers: Vec<_> = response
                        .headers
                        .iter()
                        .map(|h| (h.name.to_lowercase(), text(h.value)))
                        .collect();
                    break (response.code.unwrap(), headers, start);
                }
                httparse::Status::Partial => self.fill()?,
            }
        };
        self.buffer.drain(..start);
        let length = headers.iter().find(|(name, _)| name == "content-length");
        let length = length.map_or(0, |(_, value)| value.parse::<usize>().unwrap());
        let length = if head_only { 0 } else { length };
        while self.buffer.len() < length {
            self.fill()?;
        }
        let body = self.buffer.drain(..length).collect();
        Ok(Reply { status, headers, body })
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut piece = vec![0; 1 << 16];
        match self.stream.read(&mut piece)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            n => {
                self.buffer.extend_from_slice(&piece[..n]);
                Ok(())
            }
        }
    }
}

/// Overrides that put everything below one folder, on a port that the kernel chooses.
pub fn overrides(folder: &Path, more: &[&str]) -> Vec<String> {
    let path = folder.display();
    let mut all = vec![
        "serve.listen=127.0.0.1:0".to_owned(),
        "serve.drain_s=5".to_owned(),
        // [`until`] may wait for longer than an idle connection of a client's is kept by default.
        "serve.idle_s=600".to_owned(),
        format!("origin.path={path}/origin"),
        format!("device.0.path={path}/device"),
    ];
    all.extend(more.iter().map(|&text| text.to_owned()));
    all
}

/// A server in this process.
pub fn start(folder: &Path, more: &[&str]) -> Server {
    start_on(folder, more, None)
}

/// A server in this process with an origin of the test's.
pub fn start_on(folder: &Path, more: &[&str], origin: Option<Arc<dyn Origin>>) -> Server {
    let config = Config::load(None, &overrides(folder, more)).unwrap();
    Server::start(config, origin).unwrap()
}

/// A server in a process of its own.
pub struct Process {
    pub child: Child,
    pub address: SocketAddr,
}

/// Starts a process; `before` is what the shell does first.
pub fn spawn(folder: &Path, more: &[&str], before: &str) -> Process {
    spawn_of(env!("CARGO_BIN_EXE_concertina").as_ref(), folder, more, before)
}

/// Starts a process of another version.
pub fn spawn_of(binary: &Path, folder: &Path, more: &[&str], before: &str) -> Process {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("{before} exec \"$0\" \"$@\""));
    command.arg(binary).args(["serve", "--json"]);
    for text in overrides(folder, more) {
        command.args(["--set", &text]);
    }
    let log = ServerLog::in_folder(folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log.end());
    let mut child = command.spawn().unwrap();
    let started = log.first_line(&mut child);
    Process { child, address: started["address"].as_str().unwrap().parse().unwrap() }
}

/// Where servers that a test starts write what they log.
pub struct ServerLog(PathBuf);

impl ServerLog {
    pub fn in_folder(folder: &Path) -> ServerLog {
        ServerLog(folder.join("servers.log"))
    }

    /// For a process's standard error: appends.
    pub fn end(&self) -> File {
        File::options().append(true).create(true).open(&self.0).unwrap()
    }

    /// The line by which a server says that it serves; a panic with the end of the log if it died instead.
    pub fn first_line(&self, child: &mut Child) -> serde_json::Value {
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| {
            let log = std::fs::read(&self.0).unwrap_or_default();
            let end = String::from_utf8_lossy(&log[log.len().saturating_sub(4000)..]);
            panic!("a server did not start ({error}): {line:?} {:?}\n{end}", child.try_wait());
        })
    }
}

impl Process {
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        Command::new("kill").args([name, &pid]).status().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Bytes that differ from seed to seed.
pub fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(next).collect()
}

/// A key as it stands in an address.
pub fn path_of(key: &[u8]) -> String {
    let hex: String = key.iter().map(|byte| format!("%{byte:02X}")).collect();
    format!("/objects/{hex}")
}
