//! A store that has any text as a name, as those of the clouds do, in memory: objects, conditions, listings by the protocol's
//! second version, no signatures and no uploads in parts.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use percent_encoding::percent_decode_str;

use super::script::coded;

/// An object and the headers that came with it.
#[derive(Clone)]
struct Object {
    etag: String,
    headers: String,
    body: Vec<u8>,
}

/// See the module.
#[derive(Clone)]
pub struct TextStore {
    pub address: String,
    objects: Arc<Mutex<BTreeMap<String, Object>>>,
    is_read_only: Arc<AtomicBool>,
}

/// A request.
struct Request {
    method: String,
    name: String,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8().unwrap().into_owned()
}

fn read_request(stream: &mut TcpStream) -> Option<Request> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 1 << 16]);
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut lines = head.lines();
    let mut line = lines.next().unwrap().split(' ');
    let (method, target) = (line.next().unwrap().to_owned(), line.next().unwrap().to_owned());
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.get("content-length").map_or(0, |text| text.parse().unwrap());
    let mut body = bytes[end + 4..].to_vec();
    while body.len() < length {
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return None,
            Ok(count) => body.extend_from_slice(&piece[..count]),
        }
    }
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let name = path.strip_prefix("/objects").unwrap();
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    Some(Request {
        method,
        name: decoded(name.strip_prefix('/').unwrap_or("")),
        query: pairs.map(|(name, value)| (decoded(name), decoded(value))).collect(),
        headers,
        body,
    })
}

impl TextStore {
    /// Starts one with the bucket `objects`, which ends with the test's process.
    pub fn start() -> TextStore {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let store = TextStore { address, objects: Arc::default(), is_read_only: Arc::default() };
        let served = store.clone();
        std::thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                let served = served.clone();
                std::thread::spawn(move || {
                    while let Some(request) = read_request(&mut client) {
                        let _ = client.write_all(&served.reply(&request));
                    }
                });
            }
        });
        store
    }

    /// Puts an object as another tool does.
    pub fn put(&self, name: &str, body: &[u8]) {
        let etag = format!("\"{:032x}\"", rand::random::<u128>());
        let object = Object { etag, headers: String::new(), body: body.to_vec() };
        self.objects.lock().unwrap().insert(name.to_owned(), object);
    }

    /// Gives an object another name.
    pub fn rename(&self, from: &str, to: &str) {
        let mut objects = self.objects.lock().unwrap();
        let object = objects.remove(from).unwrap_or_else(|| panic!("no object {from}"));
        objects.insert(to.to_owned(), object);
    }

    /// Denies all writes from now on.
    pub fn refuse_writes(&self) {
        self.is_read_only.store(true, Ordering::Relaxed);
    }

    /// All names.
    pub fn names(&self) -> Vec<String> {
        self.objects.lock().unwrap().keys().cloned().collect()
    }

    fn reply(&self, request: &Request) -> Vec<u8> {
        let mut objects = self.objects.lock().unwrap();
        let found = objects.get(&request.name).cloned();
        let header = |name: &str| request.headers.get(name);
        let is_other = header("if-match")
            .is_some_and(|etag| found.as_ref().is_none_or(|object| object.etag != *etag));
        if is_other || (header("if-none-match").is_some() && found.is_some()) {
            return coded_reply("412 Precondition Failed", "PreconditionFailed");
        }
        match (&*request.method, found) {
            ("GET", _) if request.name.is_empty() => page(&objects, &request.query),
            ("GET" | "HEAD", Some(object)) => object.reply(request),
            ("HEAD", None) => reply("404 Not Found", "", b""),
            ("GET", None) => coded_reply("404 Not Found", "NoSuchKey"),
            ("PUT" | "DELETE", _) if self.is_read_only.load(Ordering::Relaxed) => {
                coded_reply("403 Forbidden", "AccessDenied")
            }
            ("PUT", _) => {
                let etag = format!("\"{:032x}\"", rand::random::<u128>());
                let headers = request
                    .headers
                    .iter()
                    .filter(|(name, _)| name.starts_with("x-amz-meta-") || *name == "content-type");
                let headers = headers.map(|(name, value)| format!("{name}: {value}\r\n")).collect();
                let object = Object { etag: etag.clone(), headers, body: request.body.clone() };
                objects.insert(request.name.clone(), object);
                reply("200 OK", &format!("etag: {etag}\r\n"), b"")
            }
            ("DELETE", _) => {
                objects.remove(&request.name);
                reply("204 No Content", "", b"")
            }
            (method, _) => panic!("{method} {}", request.name),
        }
    }
}

impl Object {
    fn reply(&self, request: &Request) -> Vec<u8> {
        let Object { etag, headers, body } = self;
        let length = body.len();
        let modified = "last-modified: Tue, 24 Nov 2026 08:00:00 GMT\r\n";
        let head = format!("etag: {etag}\r\n{modified}{headers}");
        if request.method == "HEAD" {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n{head}\r\n");
            return head.into_bytes();
        }
        let Some(range) = request.headers.get("range") else { return reply("200 OK", &head, body) };
        let (from, to) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
        let (from, to): (usize, usize) = (from.parse().unwrap(), to.parse().unwrap());
        if from >= length {
            return coded_reply("416 Range Not Satisfiable", "InvalidRange");
        }
        let to = to.min(length - 1);
        let head = format!("{head}content-range: bytes {from}-{to}/{length}\r\n");
        reply("206 Partial Content", &head, &body[from..=to])
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn coded_reply(status: &str, code: &str) -> Vec<u8> {
    coded(status, code).replace("connection: close\r\n", "").into_bytes()
}

fn reply(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = if status.starts_with("204") {
        String::new()
    } else {
        format!("content-length: {}\r\n", body.len())
    };
    let mut all = format!("HTTP/1.1 {status}\r\n{length}{headers}\r\n").into_bytes();
    all.extend_from_slice(body);
    all
}

fn page(objects: &BTreeMap<String, Object>, query: &BTreeMap<String, String>) -> Vec<u8> {
    let of = |name: &str| query.get(name).map_or("", String::as_str);
    let (prefix, delimiter) = (of("prefix"), of("delimiter"));
    let after = query.get("continuation-token").map_or(of("start-after"), String::as_str);
    let max: usize = of("max-keys").parse().unwrap();
    let (mut text, mut count, mut group) = (String::new(), 0, None::<String>);
    let mut last = "";
    let from = if after.is_empty() { Unbounded } else { Excluded(after) };
    for (name, object) in objects.range::<str, _>((from, Unbounded)) {
        if !name.starts_with(prefix) || group.as_ref().is_some_and(|group| name.starts_with(group))
        {
            // A page that ends in a group goes on behind it.
            if group.is_some() {
                last = name;
            }
            continue;
        }
        if count == max {
            let token = escape(last);
            text += &format!("<NextContinuationToken>{token}</NextContinuationToken>");
            break;
        }
        (count, last) = (count + 1, name);
        let at = Some(delimiter).filter(|it| !it.is_empty());
        let at = at.and_then(|it| Some(name[prefix.len()..].find(it)? + it.len()));
        match at {
            Some(at) => {
                let key = &name[..prefix.len() + at];
                group = Some(key.to_owned());
                text +=
                    &format!("<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>", escape(key));
            }
            None => {
                let (key, etag, size) = (escape(name), escape(&object.etag), object.body.len());
                text += &format!(
                    "<Contents><Key>{key}</Key><LastModified>2026-11-24T08:00:00.000Z</LastModified>\
                     <ETag>{etag}</ETag><Size>{size}</Size></Contents>"
                );
            }
        }
    }
    let text = format!("<ListBucketResult>{text}</ListBucketResult>");
    reply("200 OK", "content-type: application/xml\r\n", text.as_bytes())
}
