//! A store that counts its connections.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::super::pieces::Payload;
use super::*;

/// Replies that a connection gives before it is closed.
const REPLIES: usize = 2;

/// Replies to a request with its body; `None` at the end.
fn reply(stream: &mut BufReader<impl Read + Write>) -> Option<()> {
    let (mut length, mut line) = (0, String::new());
    while line != "\r\n" {
        line.clear();
        stream.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
    stream.get_mut().write_all(head.as_bytes()).ok()?;
    stream.get_mut().write_all(&body).ok()?;
    stream.get_mut().flush().ok()
}

/// A store that sends back what it gets, and the number of its connections.
fn echo(tls: Option<Arc<ServerConfig>>) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            counted.fetch_add(1, Ordering::Relaxed);
            let tls = tls.clone();
            std::thread::spawn(move || match tls {
                None => {
                    let mut stream = BufReader::new(stream);
                    (0..REPLIES).try_for_each(|_| reply(&mut stream))
                }
                Some(tls) => {
                    let session = ServerConnection::new(tls).unwrap();
                    let mut stream = BufReader::new(StreamOwned::new(session, stream));
                    (0..REPLIES).try_for_each(|_| reply(&mut stream))
                }
            });
        }
    });
    (port, count)
}

fn connections(port: u16, tls: Option<Tls>) -> Arc<Connections> {
    let (host, timeout) = ("localhost".to_owned(), Duration::from_secs(60));
    Arc::new(Connections { host, port, tls, timeout, idle: Mutex::default() })
}

async fn send(connections: &Arc<Connections>, bytes: usize) -> Result<ReplyBody, Failure> {
    let payload = Payload::from_iter([Bytes::from(vec![7; bytes])]);
    let request = Request::put("/a").header("content-length", bytes);
    let request = request.body(RequestBody::from(payload)).unwrap();
    connections.send(request).await.map(Response::into_body)
}

async fn read(mut body: ReplyBody) -> usize {
    let mut bytes = 0;
    while let Some(piece) = body.next().await.unwrap() {
        assert!(piece.iter().all(|byte| *byte == 7));
        bytes += piece.len();
    }
    bytes
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test);
}

/// The connections that are kept, of all threads.
fn idle_count(connections: &Connections) -> usize {
    connections.lock().values().map(Vec::len).sum()
}

/// Waits until connections that the store has closed are known to be closed, and whether any is kept.
async fn is_any_kept(connections: &Connections) -> bool {
    tokio::time::sleep(Duration::from_millis(1)).await;
    connections.lock().values().flatten().any(|idle| idle.sender.is_ready())
}

#[test]
fn a_connection_is_kept_and_replaced_when_the_store_closes_it() {
    let (port, count) = echo(None);
    run(async {
        let connections = connections(port, None);
        for round in 1..=3 {
            for bytes in [100, 0] {
                assert_eq!(read(send(&connections, bytes).await.unwrap()).await, bytes);
            }
            assert_eq!(count.load(Ordering::Relaxed), round);
            while is_any_kept(&connections).await {}
        }
        // Two at a time are two connections.
        let both = tokio::join!(send(&connections, 5), send(&connections, 5));
        assert_eq!(count.load(Ordering::Relaxed), 5);
        drop((both.0.unwrap(), both.1.unwrap()));
    });
}

#[test]
fn a_reply_that_is_given_up_takes_its_connection_with_it() {
    let (port, count) = echo(None);
    run(async {
        let connections = connections(port, None);
        let mut large = send(&connections, 8 << 20).await.unwrap();
        assert!(large.next().await.unwrap().is_some());
        drop(large);
        assert_eq!(idle_count(&connections), 0);
        assert_eq!(read(send(&connections, 3).await.unwrap()).await, 3);
        assert_eq!(count.load(Ordering::Relaxed), 2);
        assert_eq!(idle_count(&connections), 1);
    });
}

#[test]
fn a_store_is_believed_by_its_certificate_alone() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../concertina/tests/it/tls");
    let certificate = CertificateDer::from_pem_file(folder.join("server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(folder.join("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let (port, _) = echo(Some(Arc::new(config)));
    let tls = |root: &str, host| {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(folder.join(root)).unwrap()).unwrap();
        Tls::new(host, roots).unwrap()
    };
    run(async {
        let trusting = connections(port, Some(tls("ca.pem", "localhost")));
        for _ in 0..3 {
            assert_eq!(read(send(&trusting, 100_000).await.unwrap()).await, 100_000);
        }
        for wrong in [tls("strangers-ca.pem", "localhost"), tls("ca.pem", "elsewhere.example")] {
            let refused = send(&connections(port, Some(wrong)), 1).await.err();
            assert!(
                matches!(&refused, Some(Failure::Transport { kind: FailureKind::Connect, text }) if text.contains("certificate")),
                "{refused:?}"
            );
        }
        let none = Tls::new("localhost", RootCertStore::empty()).err();
        assert!(none.is_some_and(|error| error.to_string().contains("no root certificates")));
    });
}

/// A store that answers each connection once, with this head.
fn store_with(head: String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(head.as_bytes());
        }
    });
    port
}

#[test]
fn a_reply_may_have_as_many_lines_as_a_store_keeps_metadata() {
    let head = |lines: String| format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n{lines}\r\n");
    let pairs: String = (0..700).map(|n| format!("x-amz-meta-{n:03}: v\r\n")).collect();
    run(async {
        let sent = send(&connections(store_with(head(pairs)), None), 0).await;
        assert_eq!(read(sent.unwrap()).await, 0);
        let sent =
            send(&connections(store_with(head("x-amz-meta-a: a\u{1}b\r\n".to_owned())), None), 0)
                .await;
        let kind = sent.err().map(|failure| match failure {
            Failure::Transport { kind, .. } => kind,
            _ => FailureKind::Unknown,
        });
        assert_eq!(kind, Some(FailureKind::Unreadable));
    });
}
