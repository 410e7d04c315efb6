//! The back end of a gateway for objects and datasets: Concertina nodes, over HTTP.

mod origin;
mod ping;
pub mod reply;

use std::io::Write as _;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ::origin::{Error, IdentityRecord, Origin};
use engine::gateway::Failed;
use engine::route::NodeId;
use ground::window::Nanos;
use http::{HeaderValue, Method, StatusCode};
use record::clock;

use super::backend::{Backend, Failure, NotSent, Pong};
use super::request::NodeRequest;
use super::upload::Source;
use super::verify;
use cluster::identity::header_line;
use cluster::{Roll, ask_headers, fingerprint};
use configuration::Config;
use membership::Membership;
use peer::{Fault, Limits, Outgoing, PendingGet, RequestHead};
use reply::{Body, NodeReply};
use wire::body::GivenAt;
use wire::headers;
use wire::tls::dialer;
use wire::traces::{TRACEPARENT, TraceParent};

/// The nodes of a cluster, with the origin behind them.
pub struct Nodes {
    /// The nodes, their connections and the ring.
    pub roll: Roll,
    /// What nodes must agree on with this gateway, in hexadecimal: [`fingerprint`].
    pub fingerprint: String,
    /// Where objects are durable.
    pub origin: Arc<dyn Origin>,
    /// Which origin that is.
    pub record: Arc<IdentityRecord>,
    /// How long one request to the origin may take.
    pub origin_timeout: Duration,
    /// How long a request may take.
    pub deadline: Duration,
    /// Whether members change.
    leased: bool,
    /// Whether replies are compared with their etags.
    pub verifies: bool,
}

impl Nodes {
    /// The members of a configuration.
    pub fn new(
        config: &Config,
        membership: &Membership,
        origin: Arc<dyn Origin>,
        record: Arc<IdentityRecord>,
    ) -> Result<Nodes, cluster::Error> {
        let known = membership.members();
        let fingerprint = format!("{:016x}", fingerprint(&known, config));
        let common = ask_headers(&known, config)?;
        let idle = Duration::from_secs_f64(config.serve.idle_s / 2.0).min(Limits::default().idle);
        let deadline = Duration::from_secs_f64(config.gateway.deadline_s);
        let limits = Limits { idle, connect: deadline, ..Limits::default() };
        let leased = membership.is_leased();
        let head = RequestHead { common, late: header_line(&record) };
        let roll = Roll::new(&known, leased, head, limits, dialer(config)?)?;
        let origin_timeout = Duration::from_secs_f64(config.origin.timeout_s);
        let verifies = config.verifies();
        Ok(Nodes { roll, fingerprint, origin, record, origin_timeout, deadline, leased, verifies })
    }

    fn failure(&self, node: NodeId, fault: &Fault) -> Failure {
        let kind = match fault {
            Fault::Connect(_) => Failed::Connect,
            _ => Failed::Broken,
        };
        Failure { kind, reason: format!("{}: {fault}", self.name(node)) }
    }

    /// Sends a read to a node on a kept connection; `None` if that does not work at once.
    pub fn send_kept(
        &self,
        node: NodeId,
        path: &str,
        avoid: Option<NodeId>,
        left: Nanos,
        trace: Option<TraceParent>,
    ) -> Option<PendingGet> {
        self.roll.pool(node)?.send_kept(path, |lines| {
            if let Some(avoid) = avoid.and_then(|node| self.roll.header(node)) {
                for part in [headers::AVOID.as_str().as_bytes(), b": ", avoid.as_bytes(), b"\r\n"] {
                    lines.extend_from_slice(part);
                }
            }
            let ms = (left / 1_000_000).max(1);
            // Writing to a vector does not fail.
            let _ = write!(lines, "{}: {ms}\r\n", headers::DEADLINE_MS);
            if let Some(trace) = trace {
                let _ = write!(lines, "{TRACEPARENT}: {trace}\r\n");
            }
        })
    }

    /// The end of a read that was sent on a kept connection.
    pub async fn ended(&self, node: NodeId, kept: PendingGet) -> Result<NodeReply, Failure> {
        let failed = |fault: Fault| self.failure(node, &fault);
        let reply = NodeReply::receive(node, kept.reply().await.map_err(failed)?).await;
        self.verified(reply, true).map_err(failed)
    }

    /// A reply to a read, unless it is not the object that it says it is.
    fn verified(&self, reply: Result<NodeReply, Fault>, is_get: bool) -> Result<NodeReply, Fault> {
        let reply = reply?;
        let whole = match &reply.body {
            Body::Whole(bytes) => Some(bytes),
            _ => None,
        };
        let judged = self.verifies && is_get && reply.status == StatusCode::OK;
        match whole.filter(|_| judged) {
            Some(bytes) if !verify::holds(&reply.headers, bytes) => {
                Err(Fault::Malformed("its bytes are not those of its etag".to_owned()))
            }
            _ => Ok(reply),
        }
    }

    fn no_such_node(&self) -> Failure {
        Failure { kind: Failed::Connect, reason: "there is no such node".to_owned() }
    }

    /// The time on a node's clock after which nobody waits for a reply that is due within `left`: a
    /// little early rather than late, as the rates of clocks differ. `None` before the node's first
    /// pong.
    fn not_after(&self, node: NodeId, left: Nanos) -> Option<Nanos> {
        let ahead = self.roll.ahead(node)?;
        let at = clock::now().saturating_add(left - left / 64);
        Some(at.saturating_add_signed(ahead))
    }
}

impl Backend for Nodes {
    type Request = NodeRequest;
    type Reply = NodeReply;
    type Body = Source;
    type BodyError = store::Error;

    fn name(&self, node: NodeId) -> &str {
        self.roll.name(node)
    }

    async fn read(
        &self,
        node: NodeId,
        request: &NodeRequest,
        avoid: Option<NodeId>,
        deadline: Nanos,
    ) -> Result<NodeReply, Failure> {
        let failed = |fault: Fault| self.failure(node, &fault);
        let pool = self.roll.pool(node).ok_or_else(|| self.no_such_node())?;
        let left = deadline.saturating_sub(clock::now());
        let headers = request.headers(avoid.and_then(|node| self.roll.header(node)), Some(left));
        let body = request.body.clone().map_or(Outgoing::Empty, Outgoing::Bytes);
        let sent = pool.send(&request.method, &request.path, &headers, body).await;
        let reply = NodeReply::receive(node, sent.map_err(failed)?).await;
        let is_get = request.read.as_ref().is_some_and(|read| !read.is_head);
        self.verified(reply, is_get).map_err(failed)
    }

    async fn read_origin(&self, request: &NodeRequest) -> Result<NodeReply, Failure> {
        origin::read(&self.origin, self.origin_timeout, request).await
    }

    async fn write(
        &self,
        node: NodeId,
        request: &NodeRequest,
        source: &mut Source,
        left: Option<Nanos>,
        epoch: u64,
    ) -> Result<NodeReply, NotSent<store::Error>> {
        let pool = self.roll.pool(node).ok_or_else(|| NotSent::Failed(self.no_such_node()))?;
        let mut headers = request.headers(None, left);
        // What the network or a node that stands still holds back must not happen after later
        // writes.
        let not_after = left.and_then(|left| self.not_after(node, left));
        headers.extend(not_after.map(|at| (headers::NOT_AFTER_NS.clone(), HeaderValue::from(at))));
        // With static members there is no other view.
        let said = self.leased.then(|| (headers::EPOCH.clone(), HeaderValue::from(epoch)));
        headers.extend(said);
        let given_at = match source {
            Source::Stream(streamed) => Some(streamed.given_at.clone()),
            Source::Whole(_) => None,
        };
        let sent = {
            let body = match source {
                Source::Whole(_) if request.method == Method::DELETE => Outgoing::Empty,
                Source::Whole(bytes) => Outgoing::Bytes(bytes.clone()),
                Source::Stream(streamed) => {
                    streamed.rewind();
                    Outgoing::Stream(streamed.as_mut())
                }
            };
            let sending = pin!(async {
                let reply = pool.send(&request.method, &request.path, &headers, body).await?;
                NodeReply::receive(node, reply).await
            });
            unless_stalled(sending, given_at, self.deadline).await
        };
        match sent {
            Ok(reply) => Ok(reply),
            Err(Fault::Request(what)) => {
                let failed = match source {
                    Source::Stream(streamed) => streamed.failed.take(),
                    Source::Whole(_) => None,
                };
                let error = failed.unwrap_or(Error::Upload(what));
                Err(NotSent::Body(error.into()))
            }
            Err(fault) => Err(NotSent::Failed(self.failure(node, &fault))),
        }
    }

    async fn ping(&self, node: NodeId, hot_version: u64) -> Result<Pong, String> {
        self.ping_node(node, hot_version).await
    }
}

/// Waits for the reply to an upload. However slow the client is, the node must take each piece, and
/// reply to the last, within `timeout`.
async fn unless_stalled(
    mut sending: Pin<&mut impl Future<Output = Result<NodeReply, Fault>>>,
    given_at: Option<GivenAt>,
    timeout: Duration,
) -> Result<NodeReply, Fault> {
    let Some(given_at) = given_at else { return sending.await };
    loop {
        if let Ok(result) = tokio::time::timeout(timeout, &mut sending).await {
            return result;
        }
        let given = given_at.load(Ordering::Relaxed);
        let stalled = clock::now().saturating_sub(given);
        if given > 0 && u128::from(stalled) >= timeout.as_nanos() {
            return Err(Fault::Broken(std::io::ErrorKind::TimedOut.into()));
        }
    }
}
