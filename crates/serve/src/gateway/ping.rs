//! Whether nodes are well, and of this gateway's cluster.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::gateway::Event;
use engine::route::NodeId;
use http::{HeaderMap, HeaderName, Method, StatusCode};
use model::window::Nanos;
use tokio::runtime::Handle;
use tracing::{info, warn};

use super::super::headers;
use super::Access;
use super::attempt::Answer;
use crate::peer::{Fault, Outgoing};
use record::clock;

impl Access {
    /// Pings nodes, each in a task of its own.
    pub fn ping_all(self: &Arc<Self>, nodes: Vec<NodeId>) {
        if nodes.is_empty() {
            return;
        }
        // At the end of the process there is no runtime, and nobody who wants to know.
        let Ok(runtime) = Handle::try_current() else { return };
        for node in nodes {
            let access = self.clone();
            runtime.spawn(async move {
                let event = access.ping(node).await;
                let decided = access.drive.tell(None, event);
                access.ping_all(decided.pings);
            });
        }
    }

    async fn ping(self: &Arc<Self>, node: NodeId) -> Event {
        let answered = tokio::time::timeout(self.ping_timeout, self.ask(node)).await;
        let Ok(Ok(answer)) = answered else { return Event::PingFailed { node } };
        if answer.status.is_server_error() {
            return Event::PingFailed { node };
        }
        self.note_clock(node, &answer.headers, clock::now());
        let misfit = self.misfit(&answer);
        let fits = misfit.is_none();
        let news = misfit.clone();
        if self.drive.note(node, misfit) {
            match news {
                Some(why) => warn!("{} is not used: {why}", self.name(node)),
                None => info!("{} fits again", self.name(node)),
            }
        }
        Event::Ponged { node, node_length: answer.head().node_length, fits }
    }

    /// Remembers a node's clock, read at `now` at the latest.
    fn note_clock(&self, node: NodeId, given: &HeaderMap, now: Nanos) {
        let theirs = given.get(&headers::CLOCK_NS).and_then(|value| value.to_str().ok());
        let theirs = theirs.and_then(|text| text.parse::<i64>().ok());
        if let (Some(theirs), Some(ahead)) = (theirs, self.clocks.get(node)) {
            ahead.store(theirs.saturating_sub_unsigned(now), Ordering::Relaxed);
        }
    }

    /// When, on a node's clock, nobody waits any more for what is answered within `left`: a little
    /// early rather than late, as clocks' rates differ. `None` before its first ping was answered.
    pub fn not_after(&self, node: NodeId, left: Nanos) -> Option<Nanos> {
        let ahead = self.clocks.get(node)?.load(Ordering::Relaxed);
        let at = clock::now().saturating_add(left - left / 64);
        (ahead != i64::MIN).then(|| at.saturating_add_signed(ahead))
    }

    async fn ask(&self, node: NodeId) -> Result<Answer, Fault> {
        let Some(pool) = self.pools.get(node) else {
            return Err(Fault::Request("there is no such node".to_owned()));
        };
        let reply = pool.send(&Method::GET, "/cluster/ping", &[], Outgoing::Empty).await?;
        Answer::of(node, reply).await
    }

    /// Why a node that answers a ping is not one of this gateway's.
    fn misfit(&self, answer: &Answer) -> Option<String> {
        let words = || answer.words().unwrap_or_default();
        match answer.status {
            StatusCode::OK => {
                differs(&answer.headers, &headers::PROTOCOL, headers::PROTOCOL_VERSION)
                    .or_else(|| differs(&answer.headers, &headers::RING, &self.fingerprint))
            }
            StatusCode::UNAUTHORIZED => {
                Some("it wants another token: serve.token must be the same for all".to_owned())
            }
            StatusCode::NOT_FOUND => Some(
                "it knows no /cluster/ping: it is of another version, or was started without members"
                    .to_owned(),
            ),
            StatusCode::CONFLICT => Some(format!("it says: {}", words())),
            status => Some(format!("it answers a ping with {status}: {}", words())),
        }
    }
}

fn differs(given: &HeaderMap, name: &HeaderName, ours: &str) -> Option<String> {
    let theirs = given.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()));
    match theirs {
        Some(theirs) if theirs == ours => None,
        theirs => {
            let theirs = theirs.as_deref().unwrap_or("nothing").to_owned();
            Some(format!(
                "its {name} is {theirs}, this gateway's {ours}: give all processes the same members, \
                 replicas and version"
            ))
        }
    }
}
