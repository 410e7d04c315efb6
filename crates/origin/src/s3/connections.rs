//! Connections to the store, kept while they are idle.
//!
//! They belong to the runtime of the thread on which they were made, and are used by that thread alone: a request on another's
//! would cross between the two, and back with its reply. A connection takes one request at a time: it is kept again
//! when the reply has been read to its end, and closed if the reply is given up.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use rustix::net::sockopt;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::body::RequestBody;
use super::endpoint::Endpoint;
use super::failure::{Failure, FailureKind};

/// How long a connection is kept that nothing uses.
const IDLE_MAX: Duration = Duration::from_secs(90);
/// How long one address of the store is tried before the next one is tried beside it (RFC 8305 has 250 ms).
const HEAD_START: Duration = Duration::from_millis(300);
/// After how long without bytes a peer is asked whether it is still there, and between such questions.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// How many such questions may remain without an answer.
const KEEPALIVES_MAX: u32 = 3;
/// How long bytes that were sent may remain without an acknowledgement, milliseconds.
const UNACKNOWLEDGED_MAX_MS: u32 = 30_000;

/// The most header lines of a reply. Each pair of an object's user metadata is one, and a store accepts 2 KB of them: some 700 of three
/// bytes each. (hyper takes 100 unless told otherwise, and bounds the bytes of all.)
const HEADERS_MAX: usize = 2048;

/// Connections to one store.
pub struct Connections {
    host: String,
    port: u16,
    tls: Option<Tls>,
    /// The longest time until one is open.
    timeout: Duration,
    idle: Mutex<IdleConnections>,
}

/// By thread, most recently used last.
type IdleConnections = HashMap<ThreadId, Vec<IdleConnection>>;

struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

struct IdleConnection {
    sender: SendRequest<RequestBody>,
    since: Instant,
}

impl Tls {
    /// TLS to a host whose certificate one of these roots has signed.
    fn new(host: &str, roots: RootCertStore) -> Result<Tls, rustls::Error> {
        if roots.is_empty() {
            let what =
                "the system has no root certificates (SSL_CERT_FILE may name a file of them)";
            return Err(rustls::Error::General(what.to_owned()));
        }
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| rustls::Error::General(format!("{host:?}: {error}")))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Tls { connector: TlsConnector::from(Arc::new(config)), name })
    }
}

fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    // Systems have some roots of kinds that rustls does not support: those are skipped.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

impl Connections {
    /// To a store; none is opened yet. `timeout` applies to the opening of each.
    ///
    /// # Errors
    ///
    /// If TLS cannot be set up.
    pub fn new(endpoint: &Endpoint, timeout: Duration) -> Result<Connections, rustls::Error> {
        let tls = endpoint.is_encrypted.then(|| Tls::new(&endpoint.host, system_roots()));
        let tls = tls.transpose()?;
        let (host, port) = (endpoint.host.clone(), endpoint.port);
        Ok(Connections { host, port, tls, timeout, idle: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, IdleConnections> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether what is sent is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Sends a request, and waits for the head of its reply. A request that a kept connection did not take, because the store had
    /// closed it, is sent on another.
    ///
    /// # Errors
    ///
    /// If there is no reply.
    pub async fn send(
        self: &Arc<Self>,
        mut request: Request<RequestBody>,
    ) -> Result<Response<ReplyBody>, Failure> {
        let thread = std::thread::current().id();
        while let Some(mut sender) = self.take(thread) {
            match sender.try_send_request(request).await {
                Ok(reply) => return Ok(self.receive(Lease { thread, sender }, reply)),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(Failure::of_request(error.error())),
                },
            }
        }
        let opened = tokio::time::timeout(self.timeout, self.open()).await;
        let mut sender = opened.unwrap_or_else(|_| Err(Failure::late(self.timeout)))?;
        match sender.try_send_request(request).await {
            Ok(reply) => Ok(self.receive(Lease { thread, sender }, reply)),
            Err(mut error) => Err(match error.take_message() {
                Some(_) => Failure::of_cause(FailureKind::Closed, error.error()),
                None => Failure::of_request(error.error()),
            }),
        }
    }

    fn receive(self: &Arc<Self>, lease: Lease, reply: Response<Incoming>) -> Response<ReplyBody> {
        reply.map(|incoming| {
            let mut body = ReplyBody { incoming, connection: Some((self.clone(), lease)) };
            if body.incoming.is_end_stream() {
                body.end();
            }
            body
        })
    }

    /// The connection that the thread used last and that is open.
    fn take(&self, thread: ThreadId) -> Option<SendRequest<RequestBody>> {
        let mut idle = self.lock();
        let list = idle.get_mut(&thread)?;
        while let Some(IdleConnection { sender, since }) = list.pop() {
            if since.elapsed() >= IDLE_MAX {
                // The others are older.
                list.clear();
            } else if sender.is_ready() {
                return Some(sender);
            }
        }
        None
    }

    fn keep(&self, Lease { thread, sender }: Lease) {
        let mut idle = self.lock();
        // Those of threads that have ended, too.
        idle.retain(|_, list| {
            let old = list.iter().take_while(|one| one.since.elapsed() >= IDLE_MAX).count();
            list.drain(..old);
            !list.is_empty()
        });
        idle.entry(thread).or_default().push(IdleConnection { sender, since: Instant::now() });
    }

    async fn open(&self) -> Result<SendRequest<RequestBody>, Failure> {
        let failed = |error: io::Error| Failure::of_cause(FailureKind::Connect, &error);
        let stream = dial(&self.host, self.port).await.map_err(failed)?;
        prepare(&stream).map_err(failed)?;
        match &self.tls {
            None => begin(stream).await,
            Some(Tls { connector, name }) => {
                let stream = connector.connect(name.clone(), stream).await;
                begin(stream.map_err(failed)?).await
            }
        }
    }
}

/// Connects to the first address that takes the connection: the next one is tried when one fails, or has not done after a moment.
async fn dial(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut addresses = tokio::net::lookup_host((host, port)).await?;
    let mut attempts = FuturesUnordered::new();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    loop {
        let next = addresses.next();
        let is_last = next.is_none();
        attempts.extend(next.map(TcpStream::connect));
        let attempt = tokio::select! {
            attempt = attempts.next() => attempt,
            () = tokio::time::sleep(HEAD_START), if !is_last => continue,
        };
        match attempt {
            Some(Ok(stream)) => return Ok(stream),
            Some(Err(error)) => last = error,
            None => return Err(last),
        }
    }
}

/// Sets what notices a peer that vanished.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVES_MAX)?;
    sockopt::set_tcp_user_timeout(stream, UNACKNOWLEDGED_MAX_MS)?;
    Ok(())
}

async fn begin<S>(stream: S) -> Result<SendRequest<RequestBody>, Failure>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let opened = Builder::new().max_headers(HEADERS_MAX).handshake(TokioIo::new(stream)).await;
    let (sender, connection) =
        opened.map_err(|error| Failure::of_cause(FailureKind::Connect, &error))?;
    // Its errors are those of the request that is under way. It ends when the sender is dropped.
    tokio::spawn(connection);
    Ok(sender)
}

/// A connection in use, and the thread whose it is.
struct Lease {
    thread: ThreadId,
    sender: SendRequest<RequestBody>,
}

/// The body of a reply.
pub struct ReplyBody {
    incoming: Incoming,
    /// Where the connection is kept when the reply has ended.
    connection: Option<(Arc<Connections>, Lease)>,
}

impl ReplyBody {
    /// The next piece; `None` after the last.
    ///
    /// # Errors
    ///
    /// If the connection breaks off.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        while let Some(frame) = self.incoming.frame().await {
            let frame = frame.map_err(|error| Failure::of_cause(FailureKind::Malformed, &error))?;
            if self.incoming.is_end_stream() {
                self.end();
            }
            if let Ok(piece) = frame.into_data() {
                return Ok(Some(piece));
            }
        }
        self.end();
        Ok(None)
    }

    fn end(&mut self) {
        let Some((connections, mut lease)) = self.connection.take() else { return };
        if lease.sender.is_ready() {
            connections.keep(lease);
        } else if !lease.sender.is_closed() {
            // The reply may have come before the whole request was sent.
            tokio::spawn(async move {
                if lease.sender.ready().await.is_ok() {
                    connections.keep(lease);
                }
            });
        }
    }
}
