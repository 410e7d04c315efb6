//! Requests from gateways and other nodes: identifies the sender, and serves `/cluster/`.

use std::sync::Arc;
use std::time::Duration;

use engine::node::{Asker, Event, ReadsTold};
use engine::route::NodeId;
use http::header::ALLOW;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;

use super::connections::Peers;
use crate::state::Node;
use cluster::identity;
use record::clock;
use store::key_of;
use wire::body::ReplyBody;
use wire::headers;
use wire::problem::{Problem, json};

/// Maximum bytes of what a node tells of its reads.
const READS_BYTES_MAX: usize = 64 << 10;

/// The sender of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// A client, without a gateway in between.
    Client,
    /// A gateway.
    Gateway,
    /// Another node.
    Peer(NodeId),
}

fn header_text(value: Option<&HeaderValue>) -> String {
    let text = value.map(|value| String::from_utf8_lossy(value.as_bytes()));
    text.map_or("none".to_owned(), |text| text.chars().take(64).collect())
}

/// The 409 reply to a process whose version or configuration differs; also notes the mismatch.
fn unfit(shared: &Node, from: &str, what: &str, both: [String; 2], remedy: &str) -> Problem {
    let [theirs, ours] = both;
    let text = format!("the {what} of {from} is {theirs}, this node's is {ours}; {remedy}");
    shared.mismatches.note(from, &text);
    Problem::new(StatusCode::CONFLICT, &text)
}

/// Identifies the sender of a request from its headers. Costs one header look-up for a client's
/// request.
///
/// # Errors
///
/// 409 if the sender's version or configuration differs from this node's; 400 if its name is
/// unknown.
pub fn sender(shared: &Node, headers: &HeaderMap) -> Result<Sender, Problem> {
    let Some(protocol) = headers.get(&headers::PROTOCOL) else { return Ok(Sender::Client) };
    let from = header_text(headers.get(&headers::FROM));
    let ours = headers::PROTOCOL_VERSION;
    if protocol.as_bytes() != ours.as_bytes() {
        let both = [header_text(Some(protocol)), ours.to_owned()];
        let remedy = "run the same version of Concertina everywhere";
        return Err(unfit(shared, &from, "protocol", both, remedy));
    }
    let ring = headers.get(&headers::RING);
    let Some(peers) = shared.drive.peers() else {
        let both = [header_text(ring), "none".to_owned()];
        let remedy = "start this node with the same [[member]] tables as the others";
        return Err(unfit(shared, &from, "ring", both, remedy));
    };
    let identity = &peers.identity;
    if ring != Some(&identity.ring) {
        let both = [header_text(ring), header_text(Some(&identity.ring))];
        let remedy = "give both the same members, weights and cluster.replicas";
        return Err(unfit(shared, &from, "ring", both, remedy));
    }
    let members = headers.get(&headers::MEMBERS);
    if members.is_some_and(|members| *members != identity.members) {
        let both = [header_text(members), header_text(Some(&identity.members))];
        let remedy = "give both the same member addresses";
        return Err(unfit(shared, &from, "list of addresses", both, remedy));
    }
    let origin = headers.get(&headers::ORIGIN);
    if origin.is_some_and(|origin| *origin != identity.origin) {
        let both = [header_text(origin), header_text(Some(&identity.origin))];
        let remedy = "give both the same origin: kind, bucket and prefix";
        return Err(unfit(shared, &from, "origin", both, remedy));
    }
    let (ours, theirs) = (peers.record.id(), identity::id_in(headers));
    if let Some((ours, theirs)) = ours.zip(theirs)
        && !peers.record.compare(Some(theirs))
    {
        let remedy =
            "one of them is the wrong folder or bucket; mount or configure the right one for both";
        let both = [theirs.to_string(), ours.to_string()];
        return Err(unfit(shared, &from, "origin's identity", both, remedy));
    }
    if from == "gateway" {
        return Ok(Sender::Gateway);
    }
    match peers.roll.ring().find(&from).filter(|peer| *peer != peers.me) {
        Some(peer) => Ok(Sender::Peer(peer)),
        None => {
            let name = peers.roll.name(peers.me);
            let what = format!(
                "invalid header {}: {from:?} is neither \"gateway\" nor a member other than \
                 {name:?}",
                headers::FROM
            );
            Err(Problem::new(StatusCode::BAD_REQUEST, &what))
        }
    }
}

/// The role of a read's sender for the engine. The headers of a direct client are ignored.
pub fn asker(shared: &Node, sender: Sender, headers: &HeaderMap) -> Asker {
    let peers = match (sender, shared.drive.peers()) {
        (Sender::Gateway | Sender::Peer(_), Some(peers)) => peers,
        _ => return Asker::Client { avoid: None },
    };
    if headers.contains_key(&headers::FILL) {
        return Asker::Peer;
    }
    let avoid = headers.get(&headers::AVOID).and_then(|value| value.to_str().ok());
    Asker::Client { avoid: avoid.and_then(|name| peers.roll.ring().find(name)) }
}

/// Serves a request below `/cluster/`. `None` if the path does not exist.
pub fn answer(
    shared: &Arc<Node>,
    peers: &Peers,
    method: &Method,
    given: &HeaderMap,
    path: &str,
    sender: Sender,
) -> Option<Result<Response<ReplyBody>, Problem>> {
    let (endpoint, encoded) = path.split_once('/').unwrap_or((path, ""));
    let allowed = match (endpoint, encoded.is_empty()) {
        ("ping" | "windows" | "about", true) => &Method::GET,
        ("lease" | "return", true) | ("invalidate" | "offer", false) => &Method::POST,
        _ => return None,
    };
    if method != allowed {
        let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this takes another method");
        let allowed = HeaderValue::from_str(allowed.as_str()).ok()?;
        return Some(Err(problem.with(ALLOW, allowed)));
    }
    if endpoint == "ping" {
        return Some(Ok(ping(shared, peers, given)));
    }
    if endpoint == "windows" {
        return Some(Ok(json(StatusCode::OK, &shared.live.device_windows(), None)));
    }
    if endpoint == "about" {
        return Some(Ok(json(StatusCode::OK, &peers.report(shared.drive.warmed()), None)));
    }
    let Sender::Peer(peer) = sender else {
        let what = "this is for the other nodes of the cluster";
        return Some(Err(Problem::new(StatusCode::BAD_REQUEST, what)));
    };
    if endpoint == "lease" {
        return Some(cluster::epoch(given).and_then(|epoch| lease(shared, peer, epoch)));
    }
    if endpoint == "return" {
        shared.drive.tell(clock::now(), Event::Return { peer });
        return Some(Ok(empty(StatusCode::NO_CONTENT)));
    }
    let told = key_of(encoded).map(|key| {
        let (event, status) = match endpoint {
            "invalidate" => (Event::Invalidate { key }, StatusCode::NO_CONTENT),
            _ => (Event::Offered { key }, StatusCode::ACCEPTED),
        };
        shared.drive.tell(clock::now(), event);
        empty(status)
    });
    Some(told)
}

fn empty(status: StatusCode) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::empty(None));
    *response.status_mut() = status;
    response
}

/// What another node served of keys that this one orders, as the body of a request that is complete
/// within a second.
///
/// # Errors
///
/// 400 unless it is from another node and well formed, 408 if it does not come.
pub async fn reads_told(
    shared: &Arc<Node>,
    sender: Sender,
    body: Incoming,
) -> Result<Response<ReplyBody>, Problem> {
    let bad = |what: &str| Problem::new(StatusCode::BAD_REQUEST, what);
    let Sender::Peer(peer) = sender else {
        return Err(bad("this is for the other nodes of the cluster"));
    };
    let body = Limited::new(body, READS_BYTES_MAX).collect();
    let late = |_| Problem::new(StatusCode::REQUEST_TIMEOUT, "the body does not come");
    let body = tokio::time::timeout(Duration::from_secs(1), body).await.map_err(late)?;
    let body = body.map_err(|_| bad("the body broke off, or is too long"))?.to_bytes();
    let told: ReadsTold = serde_json::from_slice(&body)
        .map_err(|error| bad(&format!("the body does not say what was read: {error}")))?;
    shared.drive.tell(clock::now(), Event::ReadsTold { peer, told });
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Replies with this node's identity, load and clock, and with its directory of hot keys if the gateway
/// has another version of it; 503 while the node is stopping.
fn ping(shared: &Arc<Node>, peers: &Peers, given: &HeaderMap) -> Response<ReplyBody> {
    let known = given.get(&headers::HOT_VERSION).and_then(|value| value.to_str().ok());
    let known: Option<u64> = known.and_then(|text| text.parse().ok());
    let directory = known.and_then(|known| {
        shared.drive.hot_directory().filter(|directory| directory.version != known)
    });
    let mut response = match (shared.is_stopping(), directory) {
        (true, _) => empty(StatusCode::SERVICE_UNAVAILABLE),
        (false, Some(directory)) => json(StatusCode::OK, &*directory, None),
        (false, None) => empty(StatusCode::OK),
    };
    let to = response.headers_mut();
    to.insert(headers::PROTOCOL.clone(), HeaderValue::from_static(headers::PROTOCOL_VERSION));
    to.insert(headers::RING.clone(), peers.identity.ring.clone());
    let origin = peers.record.id().and_then(|id| HeaderValue::from_str(&id.to_string()).ok());
    if let Some(origin) = origin {
        to.insert(headers::ORIGIN_ID.clone(), origin);
    }
    let load = shared.drive.load(clock::now());
    to.insert(headers::NODE_LENGTH.clone(), HeaderValue::from(load.length));
    if let Some(response) = load.response_per_length {
        to.insert(headers::RESPONSE_PER_LENGTH_NS.clone(), HeaderValue::from(response));
    }
    to.insert(headers::CLOCK_NS.clone(), HeaderValue::from(clock::now()));
    response
}

/// Grants a lease to `peer`, or replies 503.
fn lease(
    shared: &Arc<Node>,
    peer: NodeId,
    epoch: Option<u64>,
) -> Result<Response<ReplyBody>, Problem> {
    match shared.drive.lease_asked(clock::now(), peer, epoch) {
        Some(term) => {
            let mut response = empty(StatusCode::OK);
            response.headers_mut().insert(headers::TERM_NS.clone(), HeaderValue::from(term));
            Ok(response)
        }
        None => {
            let what = "cannot grant a lease now: an invalidation is unconfirmed, or this node is \
                not in the current membership";
            Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, what))
        }
    }
}
