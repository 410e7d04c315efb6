//! The access point: clients' requests are relayed to nodes, as `engine::gateway` decides.
//!
//! A request's tries are futures within its own task; one that is dropped closes its connection. A
//! small answer is gathered before the client's head is sent, a large one is streamed and, if it breaks
//! off, continued from another node.

mod admin;
mod attempt;
mod datasets;
mod drive;
mod ping;
mod read;
mod relay;
mod wanted;
mod write;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use engine::gateway::Refusal;
use engine::node::Stages;
use engine::route::{NodeId, Ring};
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_RANGE, DATE, HeaderMap, HeaderName,
    HeaderValue, RETRY_AFTER, TRANSFER_ENCODING,
};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use model::window::{self, Nanos, Operation, Window};

use super::body::ReplyBody;
use super::datasets::Datasets;
use super::front::{Front, Service};
use super::http::{Problem, authorize, only_get};
use super::lane::{Lane, Seen};
use super::objects::{Answered, key_of, no_length, operation_of};
use super::observe::Observed;
use super::{headers, list};
use crate::config::Config;
use crate::peer::{Limits, Pool};
use attempt::{Answer, Body};
use drive::Drive;
use origin::Origin;
use read::{Asking, Refused};
use record::clock;
use relay::Relay;
use wanted::{STAGES, Wanted};
use write::{NotWritten, Source};

/// What all threads of a gateway share.
pub struct Access {
    front: Front,
    drive: Drive,
    /// By node, in the ring's order, like all that follows.
    pools: Vec<Pool>,
    names: Vec<HeaderValue>,
    ring: Arc<Ring>,
    fingerprint: String,
    origin: Arc<dyn Origin>,
    datasets: Arc<Datasets>,
    origin_timeout: Duration,
    deadline: Duration,
    ping_timeout: Duration,
    /// How far each node's clock is ahead of this process's, nanoseconds; `i64::MIN` if not known.
    clocks: Vec<AtomicI64>,
}

impl Deref for Access {
    type Target = Front;
    fn deref(&self) -> &Front {
        &self.front
    }
}

impl Access {
    /// The gateway of a configuration with members.
    pub fn new(
        config: &Config,
        ring: Arc<Ring>,
        windows: window::Settings,
        origin: Arc<dyn Origin>,
        now: Nanos,
    ) -> anyhow::Result<Access> {
        let fingerprint = format!("{:016x}", ring.fingerprint());
        let mut common = vec![
            (headers::PROTOCOL.clone(), HeaderValue::from_static(headers::PROTOCOL_VERSION)),
            (headers::RING.clone(), HeaderValue::from_str(&fingerprint)?),
            (headers::FROM.clone(), HeaderValue::from_static("gateway")),
        ];
        if let Some(token) = &config.serve.token {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}"))?;
            value.set_sensitive(true);
            common.push((AUTHORIZATION, value));
        }
        let idle = Duration::from_secs_f64(config.serve.idle_s / 2.0).min(Limits::default().idle);
        let deadline = Duration::from_secs_f64(config.gateway.deadline_s);
        let limits = Limits { idle, connect: deadline, ..Limits::default() };
        let members = ring.members().iter();
        let names = members.map(|m| HeaderValue::from_str(&m.name)).collect::<Result<_, _>>()?;
        let settings = config.gateway.settings(ring.clone(), windows.clone(), now);
        let clocks = ring.members().iter().map(|_| AtomicI64::new(i64::MIN)).collect();
        Ok(Access {
            front: Front::new(config, "gateway", windows.clone(), now),
            drive: Drive::new(settings, now),
            datasets: Datasets::without_shards(config, origin.clone(), windows.clone(), now)?,
            pools: config.addresses().iter().map(|at| Pool::new(*at, &common, limits)).collect(),
            names,
            ring,
            fingerprint,
            origin,
            origin_timeout: Duration::from_secs_f64(config.origin.timeout_s),
            deadline,
            ping_timeout: Duration::from_secs_f64(config.gateway.ping_timeout_s),
            clocks,
        })
    }

    /// Pings the nodes and tells the engine the time, for ever.
    pub async fn run(self: Arc<Self>) {
        tokio::spawn(self.datasets.clone().keep_current());
        loop {
            let decided = self.drive.tick().await;
            self.ping_all(decided.pings);
        }
    }

    fn name(&self, node: NodeId) -> &str {
        self.ring.name(node)
    }

    /// Who answered.
    fn who(&self, node: Option<NodeId>) -> &str {
        node.map_or("the origin", |node| self.name(node))
    }

    /// The words of an answer that is none, with their speaker.
    fn named_words(&self, answer: &Answer) -> Option<String> {
        answer.words().map(|words| format!("{}: {words}", self.who(answer.node)))
    }

    async fn route(
        self: &Arc<Self>,
        lane: &Arc<Lane>,
        request: Request<Incoming>,
    ) -> Result<Response<ReplyBody>, Problem> {
        let path = request.uri().path();
        if path == "/healthz" || path == "/readyz" {
            only_get(&request)?;
            return Ok(super::admin::health(&self.front, path == "/readyz"));
        }
        authorize(&self.front, request.headers())?;
        if let Some(encoded) = path.strip_prefix("/objects/") {
            let key = key_of(encoded)?;
            return self.object(lane, key, request).await;
        }
        if super::datasets::http::is_below(path) {
            return self.dataset(request).await;
        }
        only_get(&request)?;
        match path {
            "/objects" => {
                let query = request.uri().query().unwrap_or("").to_owned();
                list::list(&self.origin, self.origin_timeout, lane, &query).await
            }
            "/metrics" => Ok(admin::metrics(self)),
            "/admin/status" => Ok(admin::status(self)),
            _ => Err(Problem::nothing_here()),
        }
    }

    async fn object(
        self: &Arc<Self>,
        lane: &Arc<Lane>,
        key: engine::Key,
        request: Request<Incoming>,
    ) -> Answered {
        let operation = operation_of(&request)?;
        let seen = lane.received(operation, &key);
        let max = self.deadline.as_nanos() as Nanos;
        let (patience, said) = match wanted::patience(request.headers(), max) {
            Ok(patience) => patience,
            Err(problem) => return Err(problem.of(seen)),
        };
        let (parts, body) = request.into_parts();
        let wanted = Wanted::new(parts.method, key, parts.uri.path(), &parts.headers);
        if matches!(operation, Operation::Get | Operation::Head) {
            let deadline = seen.received.saturating_add(patience);
            return match read::read(self, &wanted, deadline, &[]).await {
                Ok((answer, asking)) => Ok(self.reply(seen, &wanted, answer, asking)),
                Err(refused) => Err(self.problem(refused, &wanted, patience).of(seen)),
            };
        }
        if operation == Operation::Put
            && let Some(problem) = no_length(&parts.headers)
        {
            return Err(problem.of(seen));
        }
        let idle = Duration::from_secs_f64(self.config.serve.idle_s);
        let source = match operation {
            Operation::Put => Source::of(body, idle).await,
            _ => Ok(Source::Whole(Default::default())),
        };
        let source = match source {
            Ok(source) => source,
            Err(problem) => return Err(problem.of(seen)),
        };
        match write::write(self, &wanted, source, patience, said).await {
            Ok(answer) => Ok(self.reply(seen, &wanted, answer, None)),
            Err(NotWritten::Refused(refused)) => {
                Err(self.problem(refused, &wanted, patience).of(seen))
            }
            Err(NotWritten::Problem(problem)) => Err(problem.of(seen)),
        }
    }

    /// The reply with an answer.
    fn reply(
        self: &Arc<Self>,
        mut seen: Seen,
        wanted: &Wanted,
        mut answer: Answer,
        asking: Option<Asking>,
    ) -> Response<ReplyBody> {
        let served = clock::now();
        let head = answer.head();
        let mut given = std::mem::take(&mut answer.headers);
        for name in [&CONNECTION, &TRANSFER_ENCODING, &DATE, &headers::NODE_LENGTH, &headers::WARM]
        {
            given.remove(name);
        }
        let node = match answer.node.and_then(|node| self.names.get(node)) {
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
                let relay = Relay::new(self, wanted, &mut answer, asking);
                given = std::mem::take(&mut answer.headers);
                let patience = relay.patience();
                ReplyBody::stream(Box::new(relay), left, patience, seen)
            }
        };
        *response.headers_mut() = given;
        *response.body_mut() = body;
        response
    }

    /// The reply to a refusal: what it is, and what to do.
    fn problem(&self, refused: Refused, wanted: &Wanted, patience: Nanos) -> Problem {
        let Refused { why, words, tried } = refused;
        let status = match why {
            Refusal::TooLate | Refusal::Unknown => StatusCode::GATEWAY_TIMEOUT,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        let primary = || self.ring.replicas(&wanted.key).iter().next();
        let mut what = match why {
            Refusal::Busy if !tried => format!(
                "the gateway has {} requests under way, as many as gateway.requests_max allows, or as \
                 many reads from the origin as gateway.origin_parallel; try again later",
                self.config.gateway.requests_max
            ),
            Refusal::Busy => "the key's nodes are busy; try again later".to_owned(),
            Refusal::TooLate => {
                format!("no answer came within {} ms; try again later", patience / 1_000_000)
            }
            Refusal::NoPrimary => format!(
                "{}, which orders the key's writes, cannot be reached; nothing was written: try again, \
                 and see /admin/status",
                self.who(primary())
            ),
            Refusal::Unavailable => {
                "neither a node nor the origin could answer; try again, and see /admin/status"
                    .to_owned()
            }
            Refusal::Unknown => {
                "the write was sent, and it is not known whether it happened: read the \
                object, and write it again if need be"
                    .to_owned()
            }
        };
        if let Some(words) = words {
            what.push_str(" (");
            what.push_str(&words);
            what.push(')');
        }
        Problem::new(status, &what).with(RETRY_AFTER, HeaderValue::from_static("1"))
    }
}

/// The reply header with who answered.
static NODE: HeaderName = HeaderName::from_static("concertina-node");
/// The reply header with the stages in the node.
static NODE_STAGES: HeaderName = HeaderName::from_static("concertina-node-stages");

/// The gateway's stages; the node's own move to another name.
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

/// The size of the object that a reply tells of.
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
        let mut windows = self.drive.windows(now, flush);
        windows.extend(self.datasets.windows(now, flush));
        for window in &mut windows {
            // Lanes record the queue `gateway`: with bytes, and up to the end of each reply.
            if window.queue == "gateway" {
                window.queue = "routing".to_owned();
            }
        }
        windows
    }
}
