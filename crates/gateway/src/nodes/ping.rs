//! Checks whether a node is healthy and belongs to this gateway's cluster.

use engine::route::{LoadReport, NodeId};
use ground::window::Nanos;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use record::clock;

use super::super::backend::{Pong, Reply as _};
use super::Nodes;
use super::reply::{Body, NodeReply};
use cluster::identity;
use peer::Outgoing;
use wire::headers;

impl Nodes {
    /// Pings a node.
    ///
    /// # Errors
    ///
    /// Why it does not reply, or the server error that it replies with.
    pub(super) async fn ping_node(&self, node: NodeId, hot_version: u64) -> Result<Pong, String> {
        let pool = self.roll.pool(node).ok_or_else(|| "unknown node".to_owned())?;
        let known = [(headers::HOT_VERSION.clone(), HeaderValue::from(hot_version))];
        // Where there are no hot nodes, there is nothing to know.
        let known = if self.roll.ring().hot_count() > 0 { &known[..] } else { &[] };
        let reply = pool.send(&Method::GET, "/cluster/ping", known, Outgoing::Empty).await;
        let reply = reply.map_err(|fault| fault.to_string())?;
        let reply = NodeReply::receive(node, reply).await.map_err(|fault| fault.to_string())?;
        if reply.status.is_server_error() {
            let reason = reply.reason().unwrap_or_default();
            return Err(format!("it replies to a ping with {}: {reason}", reply.status));
        }
        self.note_clock(node, &reply.headers, clock::now());
        let misfit = self.misfit(&reply);
        let hot = match &reply.body {
            Body::Whole(bytes) if misfit.is_none() && !bytes.is_empty() => {
                // Without a list that can be read, this node's hot keys are asked of their own nodes.
                serde_json::from_slice(bytes).ok()
            }
            _ => None,
        };
        let told = reply.headers.get(&headers::RESPONSE_PER_LENGTH_NS);
        let response_per_length =
            told.and_then(|value| value.to_str().ok()).and_then(|text| text.parse().ok());
        let load = LoadReport { length: reply.head().node_length, response_per_length };
        Ok(Pong { load, misfit, hot })
    }

    /// Notes how far a node's clock is ahead of ours. The node read it at `now` or before.
    fn note_clock(&self, node: NodeId, given: &HeaderMap, now: Nanos) {
        let theirs = given.get(&headers::CLOCK_NS).and_then(|value| value.to_str().ok());
        let theirs = theirs.and_then(|text| text.parse::<i64>().ok());
        if let Some(theirs) = theirs {
            self.roll.set_ahead(node, theirs.saturating_sub_unsigned(now));
        }
    }

    /// Why this gateway must not use a node that replied to a ping.
    fn misfit(&self, reply: &NodeReply) -> Option<String> {
        let reason = || reply.reason().unwrap_or_default();
        match reply.status {
            StatusCode::OK => {
                differs(&reply.headers, &headers::PROTOCOL, headers::PROTOCOL_VERSION)
                    .or_else(|| differs(&reply.headers, &headers::RING, &self.fingerprint))
                    .or_else(|| self.other_origin(&reply.headers))
            }
            StatusCode::UNAUTHORIZED => {
                Some("it rejects our token; give all processes the same cluster.token".to_owned())
            }
            StatusCode::NOT_FOUND => Some(
                "it has no /cluster/ping: it runs another version, or was started without members"
                    .to_owned(),
            ),
            StatusCode::CONFLICT => Some(format!("it refuses this gateway: {}", reason())),
            status => Some(format!("it replies to a ping with {status}: {}", reason())),
        }
    }

    /// Why the origin of a node that replied is not this gateway's.
    fn other_origin(&self, given: &HeaderMap) -> Option<String> {
        let (ours, theirs) = (self.record.id(), identity::id_in(given));
        let both = ours.zip(theirs).filter(|_| !self.record.compare(theirs));
        both.map(|(ours, theirs)| {
            format!(
                "its origin is {theirs}, this gateway's is {ours}: one of them is the wrong folder or bucket; mount or \
                 configure the right one for both"
            )
        })
    }
}

fn differs(given: &HeaderMap, name: &HeaderName, ours: &str) -> Option<String> {
    let theirs = given.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()));
    match theirs {
        Some(theirs) if theirs == ours => None,
        theirs => {
            let theirs = theirs.as_deref().unwrap_or("nothing").to_owned();
            Some(format!(
                "its {name} is {theirs}, this gateway's is {ours}; give all processes the same \
                 members, replicas and version"
            ))
        }
    }
}
