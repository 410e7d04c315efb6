//! Spans of sampled requests at a collector: one that takes them, one that hangs, one that is not there.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use ground::window::{is_sampled, key_hash};
use serde_json::Value;

use crate::serve_client::{Client, Process, free, spawn, until, until_or};

/// What a collector does with an export.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Manner {
    Takes,
    /// Never replies, until its manner changes: then it closes the connection.
    Hangs,
    /// Says that it is overloaded.
    Busy,
    Refuses,
}

struct Exports {
    manner: Manner,
    bodies: Vec<Value>,
    /// Exports that were sent, whatever became of them.
    sent: usize,
    tokens: Vec<Option<String>>,
}

/// A collector of spans: OTLP over HTTP in JSON.
struct Collector {
    address: SocketAddr,
    exports: Arc<Mutex<Exports>>,
}

impl Collector {
    fn start(manner: Manner) -> Collector {
        Collector::on(TcpListener::bind("127.0.0.1:0").unwrap(), manner)
    }

    fn on(listener: TcpListener, manner: Manner) -> Collector {
        let exports = Exports { manner, bodies: Vec::new(), sent: 0, tokens: Vec::new() };
        let exports = Arc::new(Mutex::new(exports));
        let address = listener.local_addr().unwrap();
        let of = exports.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let of = of.clone();
                std::thread::spawn(move || serve(stream.unwrap(), &of));
            }
        });
        Collector { address, exports }
    }

    fn become_one_that(&self, manner: Manner) {
        self.exports.lock().unwrap().manner = manner;
    }

    fn sent(&self) -> usize {
        self.exports.lock().unwrap().sent
    }

    fn spans(&self) -> Vec<Span> {
        let bodies = self.exports.lock().unwrap().bodies.clone();
        let mut all = Vec::new();
        for body in &bodies {
            for of in body["resourceSpans"].as_array().unwrap() {
                let about = attributes(&of["resource"]);
                for scope in of["scopeSpans"].as_array().unwrap() {
                    let spans = scope["spans"].as_array().unwrap().iter();
                    all.extend(spans.map(|span| Span::read(span, &about)));
                }
            }
        }
        all
    }

    fn endpoint(&self) -> String {
        format!("traces.endpoint=http://{}", self.address)
    }
}

/// Reads exports on a connection until it ends.
fn serve(mut stream: TcpStream, of: &Mutex<Exports>) {
    let mut buffer = Vec::new();
    while let Ok((head, body)) = request(&mut stream, &mut buffer) {
        assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
        let line = |name: &str| {
            let mut lines = head.lines().filter_map(|line| line.split_once(": "));
            lines.find(|(of, _)| *of == name).map(|(_, value)| value.to_owned())
        };
        assert_eq!(line("content-type").as_deref(), Some("application/json"));
        let manner = {
            let mut of = of.lock().unwrap();
            of.sent += 1;
            of.tokens.push(line("x-key"));
            of.manner
        };
        let status = match manner {
            Manner::Takes => {
                of.lock().unwrap().bodies.push(serde_json::from_slice(&body).unwrap());
                "200 OK"
            }
            Manner::Busy => "503 Service Unavailable",
            Manner::Refuses => "401 Unauthorized",
            Manner::Hangs => {
                while of.lock().unwrap().manner == Manner::Hangs {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                return;
            }
        };
        let reply = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}"
        );
        if stream.write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}

/// The next request: its head and its body.
fn request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<(String, Vec<u8>)> {
    let mut piece = [0; 4096];
    loop {
        if let Some(end) = buffer.windows(4).position(|part| part == b"\r\n\r\n") {
            let head = String::from_utf8(buffer[..end + 2].to_vec()).unwrap();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let whole = end + 4 + length.unwrap().parse::<usize>().unwrap();
            if buffer.len() >= whole {
                let body = buffer[end + 4..whole].to_vec();
                buffer.drain(..whole);
                return Ok((head, body));
            }
        }
        match stream.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => buffer.extend_from_slice(&piece[..count]),
        }
    }
}

fn attributes(of: &Value) -> BTreeMap<String, String> {
    let list = of["attributes"].as_array().cloned().unwrap_or_default();
    let pair = |it: &Value| {
        let value = it["value"].as_object().unwrap();
        assert_eq!(value.len(), 1, "{it}");
        let (kind, text) = value.iter().next().unwrap();
        assert!(["stringValue", "intValue"].contains(&kind.as_str()), "{it}");
        (it["key"].as_str().unwrap().to_owned(), text.as_str().unwrap().to_owned())
    };
    list.iter().map(pair).collect()
}

#[derive(Clone, Debug)]
struct Span {
    trace: String,
    id: String,
    parent: String,
    name: String,
    kind: u64,
    start_ns: u64,
    end_ns: u64,
    attributes: BTreeMap<String, String>,
    instance: String,
    is_error: bool,
}

impl Span {
    fn read(span: &Value, about: &BTreeMap<String, String>) -> Span {
        let text = |name: &str| span[name].as_str().unwrap_or_default().to_owned();
        let is_hex = |text: &str, length| {
            text.len() == length && text.bytes().all(|b| b.is_ascii_hexdigit())
        };
        assert_eq!(about["service.name"], "concertina");
        let (trace, id) = (text("traceId"), text("spanId"));
        assert!(is_hex(&trace, 32) && is_hex(&id, 16), "{span}");
        let time = |name: &str| text(name).parse::<u64>().unwrap();
        let (start_ns, end_ns) = (time("startTimeUnixNano"), time("endTimeUnixNano"));
        assert!(start_ns <= end_ns && start_ns > 1_700_000_000_000_000_000, "{span}");
        Span {
            trace,
            id,
            parent: text("parentSpanId"),
            name: text("name"),
            kind: span["kind"].as_u64().unwrap(),
            start_ns,
            end_ns,
            attributes: attributes(span),
            instance: about["service.instance.id"].clone(),
            is_error: span["status"]["code"] == 2,
        }
    }

    /// Whether it is of a whole request.
    fn is_request(&self) -> bool {
        self.kind == 2
    }
}

/// Checks that stages are within their requests and follow each other.
fn check_stages(spans: &[Span]) {
    let requests: BTreeMap<&str, &Span> =
        spans.iter().filter(|it| it.is_request()).map(|it| (it.id.as_str(), it)).collect();
    let mut ends: BTreeMap<&str, u64> = BTreeMap::new();
    for stage in spans.iter().filter(|it| !it.is_request()) {
        let of = requests.get(stage.parent.as_str()).unwrap_or_else(|| panic!("{stage:?}"));
        assert!(["accept", "wait", "serve", "reply"].contains(&&*stage.name), "{stage:?}");
        assert_eq!((&of.trace, &of.instance), (&stage.trace, &stage.instance));
        let end = ends.entry(&of.id).or_insert(of.start_ns);
        assert_eq!(*end, stage.start_ns, "{stage:?}");
        *end = stage.end_ns;
    }
    for (id, of) in &requests {
        assert_eq!(ends.get(id).copied().unwrap_or(of.start_ns), of.end_ns, "{of:?}");
    }
}

fn metric(client: &mut Client, name: &str) -> u64 {
    let text = client.get("/metrics").text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

fn log(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("servers.log")).unwrap()
}

/// Ends a process in order.
fn end(mut process: Process) {
    process.signal("-TERM");
    let mut status = None;
    until("the end of the process", || {
        status = process.child.try_wait().unwrap();
        status.is_some()
    });
    assert!(status.unwrap().success(), "{status:?}");
}

/// Requests for one object with the statuses of their replies. The first of each is on a new connection between gateway and node, the
/// others on a kept one, where plain reads take a way of their own.
const METHODS: [(&str, u16); 7] = [
    ("PUT", 200),
    ("GET", 200),
    ("GET", 200),
    ("GET", 200),
    ("HEAD", 200),
    ("DELETE", 204),
    ("GET", 404),
];

/// The trace and the span of a client's request.
fn caller(number: usize) -> (String, String) {
    (format!("{:032x}", 0xabc0_0001 + number), format!("{:016x}", 0xf001 + number))
}

#[test]
fn a_request_is_one_trace_through_gateway_and_node() {
    let collector = Collector::start(Manner::Takes);
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let address = free();
    let process = |folder: &Path, role: &[&str]| {
        let mut sets = vec![
            collector.endpoint(),
            "observe.sample_one_in=1".to_owned(),
            "traces.token=secret".to_owned(),
            "traces.token_header=x-key".to_owned(),
            format!("origin.path={}/origin", folders[0].path().display()),
            format!("member.0={{name=\"a\",address=\"{address}\"}}"),
        ];
        sets.extend(role.iter().map(|&text| text.to_owned()));
        let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
        spawn(folder, &sets, "")
    };
    let node = process(folders[0].path(), &["serve.role=node", "cluster.name=a"]);
    let gateway = process(folders[1].path(), &["serve.role=gateway"]);
    let mut client = Client::connect(gateway.address);
    until("a node", || client.put("/objects/first", b"x").status == 200);
    for (number, (method, expected)) in METHODS.iter().enumerate() {
        let (trace, span) = caller(number);
        let parent = format!("00-{trace}-{span}-00");
        let body = (*method == "PUT").then_some(&b"bytes"[..]);
        let reply = client.send(method, "/objects/k", &[("traceparent", &parent)], body).unwrap();
        assert_eq!(reply.status, *expected, "{method}");
    }
    end(gateway);
    end(node);

    let spans = collector.spans();
    check_stages(&spans);
    for (number, (method, _)) in METHODS.iter().enumerate() {
        let (trace, parent) = caller(number);
        let of: Vec<&Span> = spans.iter().filter(|it| it.trace == trace).collect();
        let one = |what: &str, holds: &dyn Fn(&Span) -> bool| -> Span {
            let found: Vec<&&Span> = of.iter().filter(|it| holds(it)).collect();
            assert_eq!(found.len(), 1, "{what} of {method} {number}: {of:#?}");
            (*found[0]).clone()
        };
        let at_gateway = one("the gateway's request", &|it| it.is_request() && it.parent == parent);
        let call = one("the gateway's call", &|it| it.parent == at_gateway.id && it.kind == 3);
        let at_node = one("the node's request", &|it| it.is_request() && it.parent == call.id);
        assert_eq!((&*at_node.instance, &*at_gateway.attributes["concertina.node"]), ("a", "a"));
        assert_eq!((&at_node.name, &at_gateway.name), (&method.to_lowercase(), &at_node.name));
        let hash = format!("{:016x}", key_hash(b"k"));
        assert_eq!(at_node.attributes["concertina.key_hash"], hash);
        assert!(!at_node.is_error && !at_gateway.is_error);
    }
    // What nobody named a trace for is one of its own.
    let first = format!("{:016x}", key_hash(b"first"));
    let is_first =
        |it: &&Span| it.attributes.get("concertina.key_hash") == Some(&first) && it.instance != "a";
    assert!(spans.iter().filter(is_first).any(|it| it.parent.is_empty()));
    let tokens = collector.exports.lock().unwrap().tokens.clone();
    assert!(tokens.iter().all(|token| token.as_deref() == Some("secret")), "{tokens:?}");
    let logs = folders.map(|folder| log(folder.path())).concat();
    assert!(!logs.contains("collector"), "{logs}");
}

#[test]
fn the_requests_that_have_spans_are_those_that_have_samples() {
    let collector = Collector::start(Manner::Takes);
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let run_dir = format!("observe.run_dir={}", run.display());
    let sets = [&collector.endpoint(), "observe.sample_one_in=4", &*run_dir];
    let process = spawn(folder.path(), &sets, "");
    let mut client = Client::connect(process.address);
    for key in 0..60 {
        let path = format!("/objects/key-{key}");
        assert_eq!(client.put(&path, b"value").status, 200);
        (0..3).for_each(|_| assert_eq!(client.get(&path).status, 200));
        assert_eq!(client.get(&format!("/objects/none-{key}")).status, 404);
        // What is not valid names no trace.
        let odd = [("traceparent", "00-0-0-0")];
        assert_eq!(client.send("GET", &path, &odd, None).unwrap().status, 200);
    }
    end(process);

    let spans = collector.spans();
    check_stages(&spans);
    let mut traced: Vec<(u64, String, String)> = Vec::new();
    for span in spans.iter().filter(|it| it.is_request()) {
        let hash = u64::from_str_radix(&span.attributes["concertina.key_hash"], 16).unwrap();
        assert!(is_sampled(hash, 4) && span.parent.is_empty());
        traced.push((hash, span.name.clone(), span.attributes["concertina.outcome"].clone()));
    }
    let folder = record::RunFolder::read(&run).unwrap();
    let mut sampled: Vec<(u64, String, String)> = folder
        .samples
        .iter()
        .map(|it| (it.key, it.operation.as_str().to_owned(), it.outcome.as_str().to_owned()))
        .collect();
    traced.sort();
    sampled.sort();
    assert!(sampled.len() > 30, "{}", sampled.len());
    assert_eq!(traced, sampled, "the end of the process exports what is left");
}

#[test]
fn a_collector_that_hangs_costs_spans_and_nothing_else() {
    let collector = Collector::start(Manner::Hangs);
    let folder = tempfile::tempdir().unwrap();
    let sets = [
        &*collector.endpoint(),
        "observe.sample_one_in=1",
        "traces.waiting_max=8",
        "traces.timeout_s=0.3",
    ];
    let process = spawn(folder.path(), &sets, "");
    let mut client = Client::connect(process.address);
    assert_eq!(client.put("/objects/k", b"value").status, 200);
    let dropped = "concertina_trace_spans_dropped_total";
    // One export is on its way, and eight requests wait for it.
    until_or(
        "dropped spans",
        || log(folder.path()),
        || {
            assert_eq!(client.get("/objects/k").status, 200);
            let waiting = metric(&mut client, "concertina_trace_requests_waiting");
            assert!(waiting <= 8, "{waiting}");
            waiting == 8 && metric(&mut client, dropped) > 0 && collector.sent() > 0
        },
    );
    assert_eq!(metric(&mut client, "concertina_trace_spans_exported_total"), 0);
    let line = format!("the collector of traces at {}: ", collector.address);
    until_or("its line", || log(folder.path()), || log(folder.path()).contains(&line));
    assert!(log(folder.path()).contains("no reply within 0.3 s"), "{}", log(folder.path()));
    // A collector that is overloaded is asked again as well.
    collector.become_one_that(Manner::Busy);
    let sent = collector.sent();
    until("another attempt", || collector.sent() > sent + 1);
    collector.become_one_that(Manner::Takes);
    until("exported spans", || metric(&mut client, "concertina_trace_spans_exported_total") > 0);
    let ends = " takes spans again after ";
    until_or("its line", || log(folder.path()), || log(folder.path()).contains(ends));
    let told = log(folder.path());
    assert_eq!((told.matches(&line).count(), told.matches(ends).count()), (1, 1), "{told}");
    assert!(!collector.spans().is_empty());
    check_stages(&collector.spans());
    // One that refuses is told of, and what it refused is counted.
    collector.become_one_that(Manner::Refuses);
    let before = metric(&mut client, dropped);
    assert_eq!(client.get("/objects/k").status, 200);
    until("refused spans", || metric(&mut client, dropped) > before);
    // The end of the process does not wait for one that hangs.
    collector.become_one_that(Manner::Hangs);
    let sent = collector.sent();
    assert_eq!(client.get("/objects/k").status, 200);
    until("an attempt", || collector.sent() > sent);
    end(process);
    let told = log(folder.path());
    assert!(told.contains("did not take the last "), "{told}");
}

#[test]
fn a_collector_that_is_not_there_is_told_of_once() {
    let address = free();
    let folder = tempfile::tempdir().unwrap();
    let endpoint = format!("traces.endpoint=http://{address}/v1/traces");
    let process = spawn(folder.path(), &[&endpoint, "observe.sample_one_in=1"], "");
    let mut client = Client::connect(process.address);
    assert_eq!(client.put("/objects/k", b"value").status, 200);
    let line = format!("the collector of traces at {address}: cannot connect");
    until_or("its line", || log(folder.path()), || log(folder.path()).contains(&line));
    (0..20).for_each(|_| assert_eq!(client.get("/objects/k").status, 200));
    // It comes, and gets what waited.
    let collector = Collector::on(TcpListener::bind(address).unwrap(), Manner::Takes);
    until("all spans", || collector.spans().iter().filter(|it| it.is_request()).count() >= 21);
    assert_eq!(metric(&mut client, "concertina_trace_spans_dropped_total"), 0);
    assert_eq!(log(folder.path()).matches(&line).count(), 1);
    end(process);
    assert_eq!(collector.spans().iter().filter(|it| it.is_request()).count(), 21);
}
