//! How requests to the store are sent: on a thread of their own, each answer within the timeout.
//!
//! A slow or dead store, TLS and long bodies thus hold up no thread that serves hits. `object_store` has
//! such a sender (`SpawnService`), but its queue between the threads has no bound.

use std::error::Error as _;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::Context as _;
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

/// Pieces of a body that wait for who reads it.
const PIECES_MAX: usize = 4;
/// Longest page of a listing: a thousand names of 1024 bytes, with all that XML needs.
const LIST_BYTES_MAX: usize = 16 << 20;

tokio::task_local! {
    /// A header for the requests of a task that `object_store` has no way to ask for: the condition of
    /// the end of an upload in parts. The signature does not cover it, nor does it need to.
    pub static EXTRA: (HeaderName, HeaderValue);
}

/// The thread and its runtime; dropped, it ends, and what is under way with it.
pub struct Thread {
    handle: Handle,
    _stop: oneshot::Sender<()>,
}

impl Thread {
    /// Starts the thread.
    pub fn start() -> anyhow::Result<Thread> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        std::thread::Builder::new().name("origin/s3".to_owned()).spawn(move || {
            let _ = runtime.block_on(stopped);
            runtime.shutdown_background();
        })?;
        Ok(Thread { handle, _stop: stop })
    }

    /// Its runtime.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Runs a request there with what it computes, such as the hash of a body that is signed: 8 MiB of
    /// that on a thread that serves would be felt by hits. Dropped, the request ends.
    pub async fn run<T: Send + 'static>(
        &self,
        request: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> object_store::Result<T> {
        let (send, receive) = oneshot::channel();
        let _worker = Worker(self.handle.spawn(async move {
            let _ = send.send(request.await);
        }));
        let closed = "the origin is being closed".into();
        receive.await.unwrap_or(Err(object_store::Error::Generic { store: "S3", source: closed }))
    }
}

/// Makes the sender for `object_store`.
#[derive(Debug)]
pub struct Connector(Sender);

#[derive(Clone, Debug)]
struct Sender {
    client: reqwest::Client,
    runtime: Handle,
    timeout: Duration,
}

impl Connector {
    /// A sender on `runtime` whose answers come within `timeout`, each piece of a body also.
    pub fn new(runtime: Handle, timeout: Duration, allow_http: bool) -> anyhow::Result<Connector> {
        // An error only says that it was chosen before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            // Environment variables are looked up in one place, and proxies are not among them.
            .no_proxy()
            .http1_only()
            .https_only(!allow_http)
            // The signature names the host: what is elsewhere is told, not followed.
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(timeout)
            .build()
            .context("cannot start a client for HTTP and TLS")?;
        Ok(Connector(Sender { client, runtime, timeout }))
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.0.clone()))
    }
}

/// The page of a listing as the store sent it; `object_store` sees an empty one.
#[derive(Clone)]
pub struct Page(pub Bytes);

/// An answer did not come in time.
#[derive(Debug)]
struct Late(Duration);

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no answer within {} s", self.0.as_secs_f64())
    }
}

impl std::error::Error for Late {}

fn failed(kind: HttpErrorKind, what: &str) -> HttpError {
    HttpError::new(kind, std::io::Error::other(what.to_owned()))
}

type Sent<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

impl HttpService for Sender {
    fn call<'s, 'a>(&'s self, mut request: HttpRequest) -> Sent<'a>
    where
        's: 'a,
        Self: 'a,
    {
        Box::pin(async move {
            let _ = EXTRA.try_with(|(name, value)| {
                request.headers_mut().insert(name.clone(), value.clone());
            });
            let (send, receive) = oneshot::channel();
            let sender = self.clone();
            let worker =
                Worker(self.runtime.spawn(async move { sender.send(request, send).await }));
            let ended = |_| Err(failed(HttpErrorKind::Interrupted, "the origin is being closed"));
            let (parts, pieces) = receive.await.unwrap_or_else(ended)?;
            let body = HttpResponseBody::new(Pieces { pieces, _worker: worker });
            Ok(HttpResponse::from_parts(parts, body))
        })
    }
}

type Piece = Result<Frame<Bytes>, HttpError>;
type Answer = Result<(http::response::Parts, mpsc::Receiver<Piece>), HttpError>;

impl Sender {
    /// On the thread: sends the request, gives the head of the answer, then the body piece by piece.
    async fn send(self, request: HttpRequest, answer: oneshot::Sender<Answer>) {
        let late = || HttpError::new(HttpErrorKind::Timeout, Late(self.timeout));
        let listing = request.method() == Method::GET
            && request.uri().query().is_some_and(|query| query.contains("list-type=2"));
        let call = tokio::time::timeout(self.timeout, self.client.call(request));
        let response = match call.await.unwrap_or_else(|_| Err(late())) {
            Ok(response) => response,
            Err(error) => return drop(answer.send(Err(error))),
        };
        let (mut parts, mut body) = response.into_parts();
        remove_unreadable(&mut parts.headers);
        let (send, pieces) = mpsc::channel(PIECES_MAX);
        if listing && parts.status == StatusCode::OK {
            let page = tokio::time::timeout(self.timeout, whole(body)).await;
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
        if answer.send(Ok((parts, pieces))).is_err() {
            return;
        }
        loop {
            // Only the store is timed: who reads may be slow.
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

async fn whole(body: HttpResponseBody) -> Result<Bytes, HttpError> {
    let page = Limited::new(body, LIST_BYTES_MAX).collect().await;
    page.map(|page| page.to_bytes()).map_err(|error| {
        let kind = error.downcast_ref::<HttpError>().map_or(HttpErrorKind::Decode, HttpError::kind);
        HttpError::new(kind, std::io::Error::other(error.to_string()))
    })
}

/// Takes out headers that are not ASCII: `object_store` would refuse an object for one that another tool
/// gave it.
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

/// What goes on for a request on the thread ends when nobody waits for it.
struct Worker(JoinHandle<()>);

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

/// The kind of an error of HTTP at the bottom of an error of the store, if that is what it is.
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
