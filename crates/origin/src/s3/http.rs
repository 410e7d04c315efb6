//! Sends requests to the store on a separate thread, with a timeout for each reply.
//!
//! A slow or dead store, TLS and long bodies therefore do not delay the threads that serve hits.
//! `object_store` has such a service (`SpawnService`), but its queue between the threads is
//! unbounded.

use std::cell::Cell;
use std::error::Error as _;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Frame};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::reply::Expected;
use super::sending::{self, BODY};

/// The most pieces of a body that are buffered for its reader.
const PIECES_MAX: usize = 4;
/// The longest page of a listing: a thousand names of 1024 bytes in XML.
const LIST_BYTES_MAX: usize = 16 << 20;
/// How long a store may take to say that a change was made, as long as bytes come.
const WORDS_MAX: Duration = Duration::from_secs(900);
/// The largest reply that is neither an object nor a listing, bytes.
const WORDS_BYTES_MAX: usize = 1 << 20;

tokio::task_local! {
    /// An additional header for the requests of a task: the condition on completing an upload in
    /// parts, which `object_store` has no option for. The signature need not cover it.
    pub static EXTRA: (HeaderName, HeaderValue);
}

/// The thread and its runtime. Dropping it stops the thread and cancels the requests under way.
pub struct Thread {
    handle: Handle,
    _stop: oneshot::Sender<()>,
}

impl Thread {
    /// Starts the thread.
    pub fn start() -> io::Result<Thread> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        std::thread::Builder::new().name("origin/s3".to_owned()).spawn(move || {
            let _ = runtime.block_on(stopped);
            runtime.shutdown_background();
        })?;
        Ok(Thread { handle, _stop: stop })
    }

    /// The handle of its runtime.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Runs a request on the thread, together with its computations such as the hash of a signed
    /// body: hashing 8 MiB on a serving thread would delay hits. Dropping the future cancels the
    /// request.
    pub async fn run<T: Send + 'static>(
        &self,
        request: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> object_store::Result<T> {
        let (send, receive) = oneshot::channel();
        let _worker = Worker(self.handle.spawn(async move {
            let _ = send.send(request.await);
        }));
        let closed = "the origin is closing".into();
        receive.await.unwrap_or(Err(object_store::Error::Generic { store: "S3", source: closed }))
    }
}

/// Creates the HTTP client of `object_store`.
#[derive(Debug)]
pub struct Connector(Sender);

#[derive(Clone, Debug)]
struct Sender {
    client: reqwest::Client,
    runtime: Handle,
    timeout: Duration,
}

impl Connector {
    /// Creates a connector whose requests run on `runtime`. `timeout` applies to each reply and to
    /// each piece of its body.
    pub fn new(runtime: Handle, timeout: Duration, allow_http: bool) -> reqwest::Result<Connector> {
        // Fails only if a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            // Environment variables are read in one place only, and proxies are not supported.
            .no_proxy()
            .http1_only()
            .https_only(!allow_http)
            // The signature covers the host, so redirects are reported rather than followed.
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(timeout)
            .build()?;
        Ok(Connector(Sender { client, runtime, timeout }))
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.0.clone()))
    }
}

/// A page of a listing as the store sent it. `object_store` itself is given an empty page.
#[derive(Clone)]
pub struct Page(pub Bytes);

/// The error of a reply that did not arrive in time.
#[derive(Debug)]
pub struct Late(pub Duration);

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no reply within {} s", self.0.as_secs_f64())
    }
}

impl std::error::Error for Late {}

/// An error of our own.
pub fn failed(kind: HttpErrorKind, what: &str) -> HttpError {
    HttpError::new(kind, io::Error::other(what.to_owned()))
}

type Sent<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

impl HttpService for Sender {
    fn call<'s, 'a>(&'s self, mut request: HttpRequest) -> Sent<'a>
    where
        's: 'a,
        Self: 'a,
    {
        Box::pin(async move {
            let growing = match BODY.try_with(Cell::take) {
                Err(_) => None,
                Ok(Some(body)) => Some(body),
                Ok(None) => {
                    return Err(failed(HttpErrorKind::Unknown, "the body was sent already"));
                }
            };
            if let Some(body) = growing {
                // Such a task is on the thread already.
                return sending::send(&self.client, request, body, self.timeout).await;
            }
            let _ = EXTRA.try_with(|(name, value)| {
                request.headers_mut().insert(name.clone(), value.clone());
            });
            let (send, receive) = oneshot::channel();
            let sender = self.clone();
            let worker =
                Worker(self.runtime.spawn(async move { sender.send(request, send).await }));
            let ended = |_| Err(failed(HttpErrorKind::Interrupted, "the origin is closing"));
            let (parts, pieces) = receive.await.unwrap_or_else(ended)?;
            let body = HttpResponseBody::new(Pieces { pieces, _worker: worker });
            Ok(HttpResponse::from_parts(parts, body))
        })
    }
}

type Piece = Result<Frame<Bytes>, HttpError>;
type Answer = Result<(http::response::Parts, mpsc::Receiver<Piece>), HttpError>;

impl Sender {
    /// Runs on the thread: sends the request, then passes on the head of the reply and the pieces
    /// of its body.
    async fn send(self, request: HttpRequest, answer: oneshot::Sender<Answer>) {
        let late = || HttpError::new(HttpErrorKind::Timeout, Late(self.timeout));
        let gets = request.method() == Method::GET;
        let listing =
            gets && request.uri().query().is_some_and(|query| query.contains("list-type=2"));
        let expected = Expected::from_request(&request);
        let call = tokio::time::timeout(self.timeout, self.client.call(request));
        let response = match call.await.unwrap_or_else(|_| Err(late())) {
            Ok(response) => response,
            Err(error) => return drop(answer.send(Err(error))),
        };
        let (mut parts, mut body) = response.into_parts();
        remove_unreadable(&mut parts.headers);
        if let Err(error) = expected.check(&parts) {
            return drop(answer.send(Err(error)));
        }
        let (send, pieces) = mpsc::channel(PIECES_MAX);
        if listing && parts.status == StatusCode::OK {
            let page = tokio::time::timeout(self.timeout, read_page(body)).await;
            match page.unwrap_or_else(|_| Err(late())) {
                Ok(page) => {
                    parts.extensions.insert(Page(page));
                    parts.headers.remove(CONTENT_LENGTH);
                    let empty = Bytes::from_static(b"<ListBucketResult/>");
                    let _ = send.try_send(Ok(Frame::data(empty)));
                    let _ = answer.send(Ok((parts, pieces)));
                }
                Err(error) => drop(answer.send(Err(error))),
            }
            return;
        }
        if !(gets && parts.status.is_success()) {
            // No object, but a few words: `object_store` would wait for them as long as some come, and keep all. A store that
            // completes an upload in parts sends blanks until it has, for minutes.
            let most = if parts.status.is_success() { WORDS_MAX } else { self.timeout };
            let words = tokio::time::timeout(most, words(body, self.timeout)).await;
            let _ = answer.send(words.unwrap_or_else(|_| Err(late())).map(|words| {
                let _ = send.try_send(Ok(Frame::data(words)));
                (parts, pieces)
            }));
            return;
        }
        if answer.send(Ok((parts, pieces))).is_err() {
            return;
        }
        loop {
            // The timeout applies to the store only: the reader may be slow.
            let piece = match tokio::time::timeout(self.timeout, body.frame()).await {
                Ok(Some(piece)) => piece,
                Ok(None) => return,
                Err(_) => Err(late()),
            };
            let last = piece.is_err();
            if send.send(piece).await.is_err() || last {
                return;
            }
        }
    }
}

async fn read_page(body: HttpResponseBody) -> Result<Bytes, HttpError> {
    let page = Limited::new(body, LIST_BYTES_MAX).collect().await;
    page.map(|page| page.to_bytes()).map_err(|error| {
        let kind = error.downcast_ref::<HttpError>().map_or(HttpErrorKind::Decode, HttpError::kind);
        HttpError::new(kind, io::Error::other(error.to_string()))
    })
}

/// Gathers a reply that is neither an object nor a listing. Each piece of it must come within `patience`.
async fn words(mut body: HttpResponseBody, patience: Duration) -> Result<Bytes, HttpError> {
    let mut all = Vec::new();
    loop {
        let late = |_| HttpError::new(HttpErrorKind::Timeout, Late(patience));
        let frame = tokio::time::timeout(patience, body.frame()).await.map_err(late)?;
        let Some(frame) = frame.transpose()? else { return Ok(all.into()) };
        all.extend_from_slice(frame.data_ref().map_or(&[][..], |piece| piece));
        if all.len() > WORDS_BYTES_MAX {
            return Err(failed(HttpErrorKind::Decode, "the reply is too long"));
        }
    }
}

/// Removes headers that are not ASCII, for which `object_store` would reject an object of another
/// tool.
fn remove_unreadable(headers: &mut HeaderMap) {
    let unreadable: Vec<HeaderName> = headers
        .iter()
        .filter(|(_, value)| value.to_str().is_err())
        .map(|(name, _)| name.clone())
        .collect();
    for name in unreadable {
        headers.remove(name);
    }
}

/// A task on the thread; aborted on drop.
pub struct Worker(pub JoinHandle<()>);

impl Drop for Worker {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Pieces {
    pieces: mpsc::Receiver<Piece>,
    _worker: Worker,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        self.pieces.poll_recv(cx)
    }
}

/// The kind of the HTTP error that caused an error of the store, if there is one.
pub fn kind_of(error: &object_store::Error) -> Option<HttpErrorKind> {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<HttpError>() {
            return Some(error.kind());
        }
        source = error.source();
    }
    None
}
