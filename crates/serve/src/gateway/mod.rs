//! The gateway: relays clients' requests to nodes, as `engine::gateway` decides.
//!
//! [`router`] drives the engine for any [`backend`]; [`nodes`] is the back end for objects and
//! datasets. This file is the front end: HTTP requests in, HTTP replies and refusals out. A small
//! reply is read completely before the client is sent its head. A large one is streamed and, if it
//! breaks off, continued from another node.

mod admin;
mod backend;
mod copies;
mod drive;
mod knobs;
mod nodes;
mod pending;
mod questions;
mod quick;
mod relay;
mod request;
mod router;
mod upload;
mod verify;

pub use copies::Picture;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use engine::gateway::{self, Refusal};
use engine::invariant::Invariants;
use engine::node::Stages;
use ground::Key;
use ground::window::{self, Nanos, Operation, QueueName, Window};
use http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_RANGE, DATE, HeaderMap, HeaderName, HeaderValue,
    RETRY_AFTER, TRANSFER_ENCODING,
};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use origin::{IdentityRecord, Origin};
use record::clock;

use super::list;
use super::objects::{Answered, key_of, no_length, operation_of, refuse_reserved};
use crate::cluster::members;
use backend::Reply as _;
use configuration::Config;
use datasets::Datasets;
use front::Front;
use front::http::{Service, admit, resumed};
use front::observe::Observed;
use live::LiveModel;
use membership::Membership;
use nodes::Nodes;
use nodes::reply::{Body, NodeReply};
use pending::Pending;
use relay::Relay;
use request::{NodeRequest, STAGES};
use router::{NotWritten, Refused, Router};
use upload::Source;
use wire::body::{Arriving, Budget, ReplyBody};
use wire::condition;
use wire::headers;
use wire::lane::{Lane, Seen};
use wire::pace::Pace;
use wire::problem::{Problem, only_get};

/// Maximum duration of a streamed upload. Its pieces and the node have shorter limits of their own.
const UPLOAD_MAX: Nanos = 24 * 3600 * 1_000_000_000;

/// The state that all threads of an HTTP gateway share.
pub struct Access {
    front: Front,
    router: Arc<Router<Nodes>>,
    datasets: Arc<Datasets>,
    membership: Arc<Membership>,
    /// Memory for uploads that may be sent again.
    uploads: Arc<Budget>,
}

impl Deref for Access {
    type Target = Front;
    fn deref(&self) -> &Front {
        &self.front
    }
}

impl Access {
    /// The gateway of a configuration that has members.
    ///
    /// # Errors
    ///
    /// If a name or the token is not a valid header value, or the settings of layers are invalid.
    pub fn new(
        config: &Config,
        membership: Arc<Membership>,
        windows: window::Settings,
        origin: Arc<dyn Origin>,
        record: Arc<IdentityRecord>,
        live: &Arc<LiveModel>,
        now: Nanos,
    ) -> anyhow::Result<Access> {
        let nodes = Nodes::new(config, &membership, origin.clone(), record)?;
        let ring = membership.known().ring.clone();
        let settings = gateway::Settings {
            behind_listener: true,
            view_lag: membership.lag(),
            ..config.gateway.settings(ring, windows.clone(), now)
        };
        let ping_timeout = Duration::from_secs_f64(config.gateway.ping_timeout_s);
        Ok(Access {
            front: Front::new(config, QueueName::Gateway, windows.clone(), live, now),
            router: Arc::new(Router::new(settings, nodes, ping_timeout, now)),
            datasets: Datasets::without_shards(config, origin, windows, live, now)?,
            membership,
            uploads: Budget::new(config.serve.uploads_bytes_max.0),
        })
    }

    /// Where objects are durable.
    pub(crate) fn origin(&self) -> &Arc<dyn Origin> {
        &self.router.backend.origin
    }

    /// Pings the nodes, sends the engine its ticks, and keeps datasets current; never returns.
    pub async fn run(self: Arc<Self>) {
        tokio::spawn(self.datasets.clone().keep_current());
        if self.membership.is_leased() {
            tokio::spawn(self.clone().follow());
        }
        tokio::spawn(self.clone().bound());
        tokio::spawn(self.clone().copy_shards());
        if self.config.model.live && !self.config.is_node() {
            tokio::spawn(self.clone().hear());
        }
        self.router.clone().run().await;
    }

    /// Tells the engine each change of the members.
    async fn follow(self: Arc<Self>) {
        let mut seen = self.membership.subscribe();
        seen.mark_changed();
        let mut epoch = 0;
        while seen.changed().await.is_ok() {
            let now = seen.borrow_and_update().clone();
            if now.known.epoch > epoch {
                epoch = now.known.epoch;
                // The engine may name new members at once.
                self.router.backend.roll.follow(&now.known);
                self.router.follow(now.of_gateway(), now.known.live.len());
            }
        }
    }

    async fn route(
        self: &Arc<Self>,
        lane: &Arc<Lane>,
        request: Request<Incoming>,
    ) -> Result<Response<ReplyBody>, Problem> {
        let path = request.uri().path();
        if path == "/healthz" || path == "/readyz" {
            only_get(&request)?;
            return Ok(match path {
                "/readyz" => front::health::ready(&self.front, &self.router.backend.origin).await,
                _ => front::health::alive(),
            });
        }
        admit(&self.front, request.uri(), request.headers())?;
        if let Some(encoded) = path.strip_prefix("/objects/") {
            let key = key_of(encoded)?;
            refuse_reserved(request.method(), &key, true)?;
            return self.object(lane, key, request.map(Arriving::Http)).await;
        }
        if datasets::http::is_below(path) {
            return self.dataset(request).await;
        }
        if let Some(answer) = live::http::answer(&self.front.live, request.method(), path) {
            return answer;
        }
        let of = self.front.membership();
        if let Some(answer) = membership::answer(of, request.method(), path).await {
            return answer;
        }
        if path == "/admin/cluster" {
            return membership::configure(of.and_then(Membership::follower), request).await;
        }
        only_get(&request)?;
        match path {
            "/objects" => {
                let query = request.uri().query().unwrap_or("").to_owned();
                let nodes = &self.router.backend;
                list::list(&nodes.origin, nodes.origin_timeout, lane, &query).await
            }
            "/metrics" => Ok(admin::metrics(self)),
            "/admin/status" => Ok(admin::status(self).await),
            "/admin/members" => {
                let known = self.membership.known();
                Ok(members(&self.router.backend.roll, &known, None).await)
            }
            _ => Err(Problem::nothing_here()),
        }
    }

    /// Answers a request for one object.
    pub(crate) async fn object(
        self: &Arc<Self>,
        lane: &Arc<Lane>,
        key: Key,
        mut request: Request<Arriving>,
    ) -> Answered {
        if let Some(resumed) = resumed::<Access, _>(&mut request) {
            return self.go_on(resumed, key, request).await;
        }
        let operation = operation_of(&request)?;
        let seen = lane.received(operation, &key);
        if let Err(what) = condition::check(request.headers()) {
            return Err(Problem::new(StatusCode::BAD_REQUEST, &what).of(seen));
        }
        let max = self.router.backend.deadline.as_nanos() as Nanos;
        let (patience, limited) = match request::patience(request.headers(), max) {
            Ok(patience) => patience,
            Err(problem) => return Err(problem.of(seen)),
        };
        let (parts, body) = request.into_parts();
        let mut wanted = NodeRequest::new(parts.method, key, parts.uri.path(), &parts.headers);
        wanted.expect(body.sha256());
        if matches!(operation, Operation::Get | Operation::Head) {
            let deadline = seen.received.saturating_add(patience);
            return match self.router.read(&wanted.key, &wanted, deadline, &[]).await {
                Ok((reply, pending, _)) => Ok(self.reply(seen, &wanted, reply, pending)),
                Err(refused) => Err(self.problem(refused, &wanted.key, patience).of(seen)),
            };
        }
        if operation == Operation::Put
            && let Some(problem) = no_length(&parts.headers)
        {
            return Err(problem.of(seen));
        }
        let pace = Pace::of(&self.config.serve);
        let source = match operation {
            Operation::Put => Source::of(body, pace, &self.uploads).await,
            _ => Ok(Source::Whole(Default::default())),
        };
        let source = match source {
            Ok(source) => source,
            Err(problem) => return Err(problem.of(seen)),
        };
        match self.write(&wanted, source, patience, limited).await {
            Ok(reply) => Ok(self.reply(seen, &wanted, reply, None)),
            Err(problem) => Err(problem.of(seen)),
        }
    }

    /// Sends a write. A streamed body has a time limit only if the client gave one (`limited`).
    async fn write(
        &self,
        wanted: &NodeRequest,
        mut source: Source,
        patience: Nanos,
        limited: bool,
    ) -> Result<NodeReply, Problem> {
        let streamed = matches!(source, Source::Stream(_)) && !limited;
        let deadline = clock::now().saturating_add(if streamed { UPLOAD_MAX } else { patience });
        let written = self.router.write(&wanted.key, wanted, &mut source, deadline, streamed).await;
        let problem = match written {
            Ok((reply, _)) => return Ok(reply),
            Err(NotWritten::Refused(refused)) => self.problem(refused, &wanted.key, patience),
            Err(NotWritten::Body(problem)) => problem,
            Err(NotWritten::Moved) => moved(),
        };
        source.discard().await;
        Err(problem)
    }

    /// Makes the reply to the client from a node's or the origin's.
    fn reply(
        self: &Arc<Self>,
        mut seen: Seen,
        wanted: &NodeRequest,
        mut answer: NodeReply,
        pending: Option<Pending<Nodes>>,
    ) -> Response<ReplyBody> {
        let served = clock::now();
        let head = answer.head();
        let mut given = std::mem::take(&mut answer.headers);
        for name in [&CONNECTION, &TRANSFER_ENCODING, &DATE, &headers::NODE_LENGTH, &headers::WARM]
        {
            given.remove(name);
        }
        let node = match answer.node.and_then(|node| self.router.backend.roll.header(node)) {
            Some(name) => name.clone(),
            None => HeaderValue::from_static("origin"),
        };
        given.insert(NODE.clone(), node);
        seen.outcome = head.outcome;
        seen.stages = Some(Stages {
            received: seen.received,
            queued: seen.received,
            started: seen.received,
            served,
            ..Stages::default()
        });
        if wanted.headers.iter().any(|(name, _)| name.as_str() == STAGES) {
            stages(&seen, &mut given);
        }
        seen.size = size_of(&given);
        let mut response = Response::new(ReplyBody::empty(None));
        *response.status_mut() = answer.status;
        seen.bytes = match wanted.method {
            Method::HEAD => 0,
            _ => answer.length(),
        };
        let body = match std::mem::replace(&mut answer.body, Body::Whole(Default::default())) {
            _ if wanted.method == Method::HEAD => ReplyBody::empty(Some(seen)),
            Body::Whole(bytes) => ReplyBody::bytes(bytes, Some(seen)),
            body => {
                answer.body = body;
                answer.headers = given;
                let left = answer.length();
                let stall = Duration::from_secs_f64(self.config.gateway.attempt_timeout_max_s);
                let relay = Relay::new(&self.router, wanted, &mut answer, stall, pending);
                given = std::mem::take(&mut answer.headers);
                let patience = relay.patience();
                ReplyBody::stream(Box::new(relay), left, patience, seen)
            }
        };
        *response.headers_mut() = given;
        *response.body_mut() = body;
        response
    }

    /// The error reply for a refused request: the reason, and what to do.
    fn problem(&self, refused: Refused, key: &Key, patience: Nanos) -> Problem {
        let Refused { why, reason, tried } = refused;
        let status = match why {
            Refusal::TooLate | Refusal::Unknown => StatusCode::GATEWAY_TIMEOUT,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        let primary = || self.router.backend.roll.ring().replicas(key).iter().next();
        let mut what = match why {
            Refusal::Busy if !tried => format!(
                "the gateway is at a limit: {} requests in progress (gateway.requests_max), or as \
                 many reads from the origin as gateway.origin_parallel allows; try again later",
                self.config.gateway.requests_max
            ),
            Refusal::Busy => "the key's nodes are busy; try again later".to_owned(),
            Refusal::TooLate => {
                format!("no reply within {} ms; try again later", patience / 1_000_000)
            }
            Refusal::NoPrimary => format!(
                "{}, which orders the key's writes, cannot be reached; nothing was written; try \
                 again, and see /admin/status",
                self.router.name(primary())
            ),
            Refusal::Unavailable => {
                "neither a node nor the origin could answer; try again, and see /admin/status"
                    .to_owned()
            }
            Refusal::Unknown => {
                "the write was sent, but it is not known whether it was carried out; read the \
                object, and write it again if necessary"
                    .to_owned()
            }
        };
        if let Some(reason) = reason {
            what.push_str(" (");
            what.push_str(&reason);
            what.push(')');
        }
        Problem::new(status, &what).with(RETRY_AFTER, HeaderValue::from_static("1"))
    }
}

/// The error reply for a write that another node came to order while its body was being sent.
fn moved() -> Problem {
    let what = "another node began to order the key's writes while this one was being sent; \
        nothing was written; send it again";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, what)
        .with(RETRY_AFTER, HeaderValue::from_static("1"))
}

/// The reply header with the name of the node that replied, or `origin`.
static NODE: HeaderName = HeaderName::from_static("concertina-node");
/// The reply header with the stage times in the node.
static NODE_STAGES: HeaderName = HeaderName::from_static("concertina-node-stages");

/// Adds the gateway's stage times to a reply; renames the header with the node's own.
fn stages(seen: &Seen, given: &mut HeaderMap) {
    if let Some(stages) = given.remove(STAGES) {
        given.insert(NODE_STAGES.clone(), stages);
    }
    let own = seen.stages.unwrap_or_default();
    let since = |at: Nanos| at.saturating_sub(seen.received);
    let text = format!(
        "queued_ns={},started_ns={},served_ns={},replied_ns={},length_met={}",
        since(own.queued),
        since(own.started),
        since(own.served),
        since(clock::now()),
        own.length_met
    );
    if let Ok(value) = HeaderValue::from_str(&text) {
        given.insert(HeaderName::from_static(STAGES), value);
    }
}

/// The size of a reply's object in bytes, from the reply's headers; 0 if they do not give it.
fn size_of(headers: &HeaderMap) -> u64 {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let whole = text(CONTENT_RANGE).and_then(|range| range.rsplit('/').next());
    whole.or_else(|| text(CONTENT_LENGTH)).and_then(|size| size.parse().ok()).unwrap_or(0)
}

impl Service for Access {
    async fn answer(
        self: &Arc<Self>,
        lane: &Arc<Lane>,
        request: Request<Incoming>,
    ) -> Response<ReplyBody> {
        self.route(lane, request).await.unwrap_or_else(Problem::response)
    }

    fn under_way(&self) -> usize {
        0
    }
}

impl Observed for Access {
    fn front(&self) -> &Front {
        &self.front
    }

    fn windows(&self, now: Nanos, flush: bool) -> Vec<Window> {
        let mut windows = self.router.drive.windows(now, flush);
        windows.extend(self.datasets.windows(now, flush));
        windows
    }

    fn invariants(&self) -> Invariants {
        self.router.drive.invariants()
    }
}
