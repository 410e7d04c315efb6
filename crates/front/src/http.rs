//! HTTP on a connection: who may ask, for how much, and the end in order. What is answered is a [`Service`]'s.

mod authorization;

use std::convert::Infallible;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{CONNECTION, EXPECT, HeaderValue, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode};
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use record::clock;
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::connection::{Connection, Terms};
use super::quick::{Flight, Quick, Slot};
use super::socket::Stream;
use super::{Front, Protocol};
pub use authorization::{admit, authorize};
use wire::body::ReplyBody;
use wire::connections::{Activity, Seat};
use wire::framing;
use wire::inherited;
use wire::lane::ThreadRecorder;
use wire::limits::{Client, Limits, Unproven};
use wire::pace::Pace;
use wire::problem::Problem;
use wire::refusal;
use wire::refusal::Phase;

/// How long a connection past the limits may take to send its head.
const SPARE_SILENT_MAX: Duration = Duration::from_secs(1);

/// A server that speaks HTTP: a node, or a gateway.
pub trait Service: Quick + Deref<Target = Front> {
    /// Answers a request.
    fn answer(
        self: &Arc<Self>,
        lane: &Arc<ThreadRecorder>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<ReplyBody>> + Send;

    /// The work that the end of the process waits for, beside connections.
    fn under_way(&self) -> usize;

    /// The client whose limits the request counts for, by what it says of itself. Whether that is so is found out by the answer.
    fn client(&self, from: IpAddr, _request: &Request<Incoming>) -> Client {
        Client::from_address(from)
    }

    /// The reply to a client that has had too much, with the seconds after which it may come again.
    fn slow_down(&self, wait_s: u64) -> Response<ReplyBody> {
        let what = format!(
            "too many requests or bytes of one client (serve.client_requests_per_s, \
             serve.client_bytes_per_s): come again in {wait_s} s"
        );
        let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, &what);
        problem.with(RETRY_AFTER, HeaderValue::from(wait_s)).response()
    }
}

impl<S: Service> Protocol for S {
    fn too_many() -> Vec<u8> {
        let mut reply = S::refused(StatusCode::SERVICE_UNAVAILABLE, "too many connections");
        reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        refusal::written(&reply)
    }

    async fn connection(
        self: Arc<S>,
        lane: Arc<ThreadRecorder>,
        stream: TcpStream,
        activity: Arc<Activity>,
        stop: watch::Receiver<bool>,
    ) {
        connection(self, lane, stream, activity, stop).await;
    }

    fn under_way(&self) -> usize {
        Service::under_way(self)
    }
}

/// What a plain read left that goes on the usual way, as an extension of its request. (Extensions are
/// values that can be cloned.)
struct Resumed<S: Quick>(Arc<Mutex<Option<<S::Flight as Flight>::Resumed>>>);

impl<S: Quick> Clone for Resumed<S> {
    fn clone(&self) -> Resumed<S> {
        Resumed(self.0.clone())
    }
}

impl<S: Quick> Resumed<S> {
    fn new(resumed: <S::Flight as Flight>::Resumed) -> Resumed<S> {
        Resumed(Arc::new(Mutex::new(Some(resumed))))
    }
}

/// Takes what a plain read left for its request.
pub fn resumed<S: Quick, B>(request: &mut Request<B>) -> Option<<S::Flight as Flight>::Resumed> {
    let Resumed(left) = request.extensions_mut().remove::<Resumed<S>>()?;
    left.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Answers a request if its head is not too long, and its connection may ask for it.
async fn admitted<S: Service>(
    shared: &Arc<S>,
    lane: &Arc<ThreadRecorder>,
    seat: Seat,
    from: Option<IpAddr>,
    request: Request<Incoming>,
) -> Response<ReplyBody> {
    let framed = framing::check(request.version(), request.headers());
    if let Err(refusal) = framed.and_then(|()| framing::check_target(request.uri())) {
        let mut response = refused::<S>(refusal.status, refusal.text);
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        return response;
    }
    let max = shared.config.serve.header_bytes_max.0 as usize;
    let bytes = head_bytes(&request);
    if bytes > max {
        return head_too_long::<S>(bytes, max);
    }
    if seat == Seat::Spare && !is_administration(request.uri().path()) {
        return too_many(shared);
    }
    let limits = shared.limits.get().filter(|_| !is_health(request.uri().path()));
    match limits.zip(from) {
        Some((limits, from)) => limited(shared, lane, request, limits, from).await,
        None => shared.answer(lane, request).await,
    }
}

/// Answers a request if its client has something left, and takes it.
async fn limited<S: Service>(
    shared: &Arc<S>,
    lane: &Arc<ThreadRecorder>,
    request: Request<Incoming>,
    limits: &Limits,
    from: IpAddr,
) -> Response<ReplyBody> {
    let client = shared.client(from, &request);
    // A plain read that began before was admitted then.
    let began = request.extensions().get::<Resumed<S>>().is_some();
    if !began && let Err(wait_s) = limits.admit(&client, clock::now()) {
        return shared.slow_down(wait_s);
    }
    let received = request.body().size_hint();
    if limits.counts_bytes() && received.exact().is_none() {
        let what =
            "send Content-Length: the bytes of a client are limited (serve.client_bytes_per_s)";
        return refused::<S>(StatusCode::LENGTH_REQUIRED, what);
    }
    let has_body = matches!(*request.method(), Method::PUT | Method::POST);
    let mut response = shared.answer(lane, request).await;
    let unproven = response.extensions_mut().remove::<Unproven>().is_some();
    if unproven || !matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        let sent = response.body().size_hint().lower();
        // The client may have stated a length without sending that many bytes. One second's worth is the most it then pays.
        let taken = match has_body && response.status().is_success() {
            true => received.lower(),
            false => received.lower().min(limits.second_bytes()),
        };
        let client = if unproven { Client::from_address(from) } else { client };
        limits.pay(client, taken.saturating_add(sent), clock::now());
    }
    response
}

/// Bytes of a request's head, as it is sent without needless spaces. hyper bounds its buffer only, which
/// takes what a read brings, up to several times the limit.
fn head_bytes(request: &Request<Incoming>) -> usize {
    let uri = request.uri();
    let authority = uri.authority().map_or(0, |authority| authority.as_str().len());
    let target = authority + uri.path_and_query().map_or(0, |path| path.as_str().len());
    let line = request.method().as_str().len() + target + " HTTP/1.1\r\n".len() + 1;
    let fields =
        request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    line + fields.sum::<usize>() + 2
}

/// The reply to a request that its service is not to have.
pub fn refused<S: Quick>(status: StatusCode, text: &str) -> Response<ReplyBody> {
    S::refused(status, text).map(|body| ReplyBody::bytes(body, None))
}

fn head_too_long<S: Quick>(bytes: usize, max: usize) -> Response<ReplyBody> {
    let what = format!(
        "the request's head has {bytes} bytes; serve.header_bytes_max allows {max}: send less, or raise it"
    );
    refused::<S>(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, &what)
}

/// Whether a path is one that needs no token.
pub fn is_health(path: &str) -> bool {
    path == "/healthz" || path == "/readyz"
}

/// Whether a path is answered where the limits of connections are reached: whoever fills them must not keep an operator
/// from seeing it.
fn is_administration(path: &str) -> bool {
    is_health(path) || path == "/metrics" || path.starts_with("/admin/")
}

/// The reply where the limits of connections are reached.
fn too_many<S: Service>(front: &Arc<S>) -> Response<ReplyBody> {
    let (asked, max) = (front.config.serve.connections_max, front.connections.max());
    let files = match max < asked as usize {
        true => format!(", of which the limit of open files allows {max}"),
        false => String::new(),
    };
    let what = format!(
        "too many connections: serve.connections_max is {asked}{files}, and serve.connections_per_address_max \
         holds for each client; close some, or raise it"
    );
    let mut response = refused::<S>(StatusCode::SERVICE_UNAVAILABLE, &what);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// What hyper calls on one connection.
struct ConnectionService<S: Service> {
    server: Arc<S>,
    lane: Arc<ThreadRecorder>,
    phase: Arc<Phase>,
    slot: Slot<S::Flight>,
    seat: Seat,
    from: Option<IpAddr>,
    /// Whether another process can go on with the connection, so that its client need not make another.
    stays: bool,
}

impl<S: Service> ConnectionService<S> {
    fn reply(
        &self,
        mut request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<ReplyBody>, Infallible>> + use<S> {
        let resumed = self.slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(resumed) = resumed {
            request.extensions_mut().insert(Resumed::<S>::new(resumed));
        }
        let (server, lane, seat, from) =
            (self.server.clone(), self.lane.clone(), self.seat, self.from);
        let replying = self.phase.begin();
        let phase = self.phase.clone();
        let stays = self.stays && !phase.is_handed();
        // A client that waits for `100 Continue` sends no body after an error, so the connection ends. If the reply does
        // not say so, botocore sends its next request on it and takes this reply for the answer. So it does, up to version 1.40, after an
        // empty body, for which hyper sends no `100 Continue`: it then reads the next reply to the end of the connection.
        let waits = request.headers().contains_key(EXPECT);
        let is_upload = matches!(*request.method(), Method::PUT | Method::POST);
        let is_empty = is_upload && request.body().is_end_stream();
        async move {
            let mut response = admitted(&server, &lane, seat, from, request).await;
            let ends = waits && (is_empty || !response.status().is_success());
            if ends || server.is_stopping() && !(stays && inherited::keeps()) {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(CONNECTION, close);
            }
            if response.headers().contains_key(CONNECTION) {
                phase.hand();
            }
            response.body_mut().hold(replying);
            Ok(response)
        }
    }
}

/// Serves a connection until it ends, or the process drains.
async fn connection<S: Service>(
    server: Arc<S>,
    lane: Arc<ThreadRecorder>,
    stream: TcpStream,
    activity: Arc<Activity>,
    stopping: watch::Receiver<bool>,
) {
    let _ = stream.set_nodelay(true);
    let from = stream.peer_addr().ok().map(|from| from.ip());
    let serve = &server.config.serve;
    let seat = activity.seat();
    let pace = Pace::from_settings(serve);
    let silent_max = if seat == Seat::Spare { pace.idle.min(SPARE_SILENT_MAX) } else { pace.idle };
    let stream = match server.tls.get() {
        None => Stream::Plain(stream),
        Some(tls) => match tls.accept(stream, silent_max).await {
            Ok(stream) => Stream::Encrypted(Box::new(stream)),
            // A client that does not speak TLS, or does not trust the certificate.
            Err(_) => return,
        },
    };
    let stays = seat == Seat::Regular && !stream.is_encrypted();
    let head_bytes_max = serve.header_bytes_max.0 as usize;
    let terms = Terms { silent_max, pace, head_bytes_max, seat, from };
    let phase = Arc::new(Phase::new(activity));
    let slot: Slot<S::Flight> = Slot::<S::Flight>::default();
    let service = ConnectionService {
        server: server.clone(),
        lane: lane.clone(),
        phase: phase.clone(),
        slot: slot.clone(),
        seat,
        from,
        stays,
    };
    let service = service_fn(move |request| service.reply(request));
    let mut connection = Connection::new(server.clone(), lane, stream, phase, slot, service, terms);
    if connection.serve_until(stopping).await {
        return;
    }
    let lingers = server.lingers();
    if !lingers.is_zero() && connection.linger(lingers, stays).await {
        return;
    }
    connection.end();
    std::future::poll_fn(|context| connection.poll(context)).await;
}
