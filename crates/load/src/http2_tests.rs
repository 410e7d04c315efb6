//! Loads of HTTP/2 against servers of `h2` in this process: what they are sent, and how they end
//! streams and connections.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use h2::server::{Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::{Request, Response};
use tokio::net::{TcpListener, TcpStream};

use crate::client::{Body, Header, HttpRequest, HttpSettings, RequestBody};
use crate::{Arrivals, Keys, Length, Load, Plan, Popularity, Size, Summary, Think, run};

type Served = Connection<TcpStream, Bytes>;

/// What a server does with a request; the numbers are those of the connection and of the request on it.
type Behaviour = fn(Arrived, &mut Served);

/// A request as it arrived, and the way back.
struct Arrived {
    connection: usize,
    number: usize,
    request: Request<RecvStream>,
    reply: SendResponse<Bytes>,
}

/// A server of HTTP/2 with prior knowledge, on a thread that ends with the process.
fn serve(behaviour: Behaviour) -> (SocketAddr, Arc<AtomicUsize>) {
    let connections = Arc::new(AtomicUsize::new(0));
    let (sender, receiver) = std::sync::mpsc::channel();
    let counter = connections.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let tasks = tokio::task::LocalSet::new();
        tasks.block_on(&runtime, async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            sender.send(listener.local_addr().unwrap()).unwrap();
            while let Ok((socket, _)) = listener.accept().await {
                let connection = counter.fetch_add(1, Ordering::Relaxed);
                tokio::task::spawn_local(converse(socket, connection, behaviour));
            }
        });
    });
    (receiver.recv().unwrap(), connections)
}

async fn converse(socket: TcpStream, connection: usize, behaviour: Behaviour) {
    socket.set_nodelay(true).unwrap();
    // The check before a load hangs up after its first words.
    let mut builder = h2::server::Builder::new();
    // Small windows: a body has to wait for them.
    builder.initial_window_size(20_000).initial_connection_window_size(70_000);
    let Ok(mut served) = builder.max_concurrent_streams(5).handshake(socket).await else { return };
    for number in 0.. {
        let Some(Ok((request, reply))) = served.accept().await else { return };
        behaviour(Arrived { connection, number, request, reply }, &mut served);
    }
}

fn answer(reply: &mut SendResponse<Bytes>, status: u16, body: Bytes) {
    let head = Response::builder().status(status).body(()).unwrap();
    // The client may be gone.
    if let Ok(mut stream) = reply.send_response(head, body.is_empty())
        && !body.is_empty()
    {
        let _ = stream.send_data(body, true);
    }
}

fn plan(address: SocketAddr, dir: &Path, load: Load) -> Plan {
    let keys = Keys::Synthetic {
        popularity: Popularity::Uniform,
        count: 20,
        size: Size::fixed(100_000),
        format: "k{i}".to_owned(),
        read_share: 1.0,
    };
    let http = HttpSettings { http2: true, ..HttpSettings::default() };
    Plan {
        warmup: None,
        length: Some(Length::Requests(60)),
        window_s: 0.2,
        connections: 2,
        http,
        ..Plan::new(&format!("http://{address}"), load, keys, dir.join("run"))
    }
}

fn open(rate: f64) -> Load {
    Load::Open { rates: vec![rate], arrivals: Arrivals::Constant }
}

fn measure(plan: &Plan) -> Summary {
    run(plan, &Arc::new(AtomicBool::new(false)), &mut |_| {}).unwrap()
}

#[test]
fn bodies_pass_both_ways_through_flow_control() {
    static STORED: Mutex<usize> = Mutex::new(0);
    let (address, connections) = serve(|arrived, _| {
        let Arrived { request, mut reply, .. } = arrived;
        tokio::task::spawn_local(async move {
            let (head, mut body) = request.into_parts();
            let mut received = Vec::new();
            while let Some(Ok(piece)) = body.data().await {
                received.extend_from_slice(&piece);
                let _ = body.flow_control().release_capacity(piece.len());
            }
            let key = head.uri.path().strip_prefix("/objects/").unwrap();
            let key = ground::window::key_hash(key.as_bytes());
            let object = Body { key, size: 100_000 }.bytes();
            if head.method == "PUT" {
                assert_eq!(head.headers["content-length"], "100000");
                assert!(received == object, "the object came whole");
                *STORED.lock().unwrap() += 1;
                return answer(&mut reply, 201, Bytes::new());
            }
            answer(&mut reply, 200, object.into());
        });
    });
    let dir = tempfile::tempdir().unwrap();
    let closed = Load::Closed { clients: vec![8], think_ms: 0.0, think: Think::Constant };
    let verified = Plan { fill: Some(2), verify: true, ..plan(address, dir.path(), closed) };
    let summary = measure(&verified);
    assert_eq!(*STORED.lock().unwrap(), 20);
    let step = &summary.steps[0];
    assert_eq!((step.completions, step.errors, step.mismatches), (60, 0, 0), "{:?}", step.faults);
    assert_eq!(step.bytes, 60 * 100_000);
    // One is of the check before the load.
    assert_eq!(connections.load(Ordering::Relaxed), 3);
}

#[test]
fn requests_are_sent_as_they_are_described() {
    static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let (address, _) = serve(|arrived, _| {
        let Arrived { request, mut reply, .. } = arrived;
        tokio::task::spawn_local(async move {
            let (head, mut body) = request.into_parts();
            let mut received = Vec::new();
            while let Some(Ok(piece)) = body.data().await {
                received.extend_from_slice(&piece);
            }
            let header = |name: &str| {
                head.headers.get(name).map_or("-", |value| value.to_str().unwrap()).to_owned()
            };
            SEEN.lock().unwrap().push(format!(
                "{} {} {} {} {} {}",
                head.method,
                head.uri,
                header("authorization"),
                header("content-type"),
                header("x-tenant"),
                String::from_utf8(received).unwrap(),
            ));
            answer(&mut reply, 200, Bytes::from_static(b"{}"));
        });
    });
    let dir = tempfile::tempdir().unwrap();
    let body = RequestBody { text: br#"{"id": "{key}"}"#.to_vec(), file: None, is_public: true };
    let mut posted = plan(address, dir.path(), open(400.0));
    posted.url = format!("http://{address}/v1/{{key}}?a=b");
    posted.token = Some("sesame".to_owned());
    posted.http.host = Some("shop.example".to_owned());
    posted.http.headers = vec![Header::new("X-Tenant", "of {key}", false).unwrap()];
    posted.http.requests = vec![HttpRequest::new("POST", Some(body))];
    let summary = measure(&posted);
    assert_eq!((summary.steps[0].completions, summary.steps[0].errors), (60, 0));
    let seen = SEEN.lock().unwrap();
    assert_eq!(seen.len(), 60);
    for line in seen.iter() {
        let key = line.split("/v1/").nth(1).unwrap().split('?').next().unwrap();
        let expected = format!(
            "POST http://shop.example/v1/{key}?a=b Bearer sesame application/json of {key} \
             {{\"id\": \"{key}\"}}"
        );
        assert_eq!(*line, expected);
    }
}

#[test]
fn refused_and_reset_requests_are_errors_of_their_kind() {
    let (address, _) = serve(|arrived, _| {
        let Arrived { number, mut reply, .. } = arrived;
        match number % 3 {
            0 => reply.send_reset(Reason::REFUSED_STREAM),
            1 => reply.send_reset(Reason::INTERNAL_ERROR),
            _ => answer(&mut reply, 204, Bytes::new()),
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let one = Plan { connections: 1, ..plan(address, dir.path(), open(300.0)) };
    let summary = measure(&one);
    let step = &summary.steps[0];
    let count = |words: &str| -> u64 {
        let of = step.faults.iter().filter(|(fault, _)| fault.contains(words));
        of.map(|(_, count)| count).sum()
    };
    // Those that were refused before the service had told its limit were sent again.
    let (refused, reset) = (count("REFUSED_STREAM"), count("INTERNAL_ERROR"));
    assert!(refused >= 10 && reset >= 10, "{:?}", step.faults);
    assert_eq!((step.completions, step.errors), (60, refused + reset), "{:?}", step.faults);
    let folder = record::RunFolder::read(&one.out).unwrap();
    assert_eq!(folder.windows.iter().map(|window| window.refusals).sum::<u64>(), refused);
}

#[test]
fn a_connection_that_ends_in_order_is_replaced_without_an_error() {
    let (address, connections) = serve(|arrived, served| {
        let Arrived { number, mut reply, .. } = arrived;
        answer(&mut reply, 200, Bytes::from_static(b"x"));
        if number == 9 {
            served.graceful_shutdown();
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let one = Plan { connections: 1, ..plan(address, dir.path(), open(300.0)) };
    let summary = measure(&one);
    let step = &summary.steps[0];
    assert_eq!((step.completions, step.errors), (60, 0), "{:?}", step.faults);
    assert!(connections.load(Ordering::Relaxed) >= 6, "each takes some ten requests");
}

#[test]
fn a_connection_that_ends_by_an_error_fails_what_is_on_it() {
    let (address, _) = serve(|arrived, served| {
        let Arrived { connection, number, mut reply, .. } = arrived;
        // The first connection is of the check before the load.
        if connection == 1 && number == 5 {
            return served.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        }
        answer(&mut reply, 200, Bytes::from_static(b"x"));
    });
    let dir = tempfile::tempdir().unwrap();
    let one = Plan { connections: 1, ..plan(address, dir.path(), open(300.0)) };
    let step = &measure(&one).steps[0];
    assert!(step.errors >= 1 && step.errors < step.completions, "{:?}", step.faults);
    assert!(
        step.faults.keys().any(|fault| fault.contains("ENHANCE_YOUR_CALM")),
        "{:?}",
        step.faults
    );
}

#[test]
fn a_stalled_stream_times_out_alone() {
    let (address, connections) = serve(|arrived, _| {
        let Arrived { number, mut reply, .. } = arrived;
        if number == 3 {
            // Never answered; the reply is kept so that the stream is not reset.
            std::mem::forget(reply);
            return;
        }
        answer(&mut reply, 200, Bytes::from_static(b"x"));
    });
    let dir = tempfile::tempdir().unwrap();
    let one = Plan { connections: 1, timeout_s: 1.0, ..plan(address, dir.path(), open(300.0)) };
    let step = &measure(&one).steps[0];
    assert_eq!((step.completions, step.errors), (60, 1), "{:?}", step.faults);
    assert!(step.faults.contains_key("no reply within 1 s"), "{:?}", step.faults);
    assert_eq!(connections.load(Ordering::Relaxed), 2, "the connection goes on");
}

#[test]
fn what_does_not_speak_http_2_is_told_before_the_load() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let bad = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
            let _ = std::io::Write::write_all(&mut stream, bad);
            let _ = std::io::Read::read(&mut stream, &mut [0; 100]);
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let one = plan(address, dir.path(), open(1.0));
    let error = run(&one, &Arc::new(AtomicBool::new(false)), &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("replied in HTTP/1") && error.contains("leave out --http2"), "{error}");
    assert!(!one.out.exists());
}
