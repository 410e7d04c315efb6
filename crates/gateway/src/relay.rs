//! The body of a large reply: streamed, and continued from another node if it breaks off.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::route::NodeId;
use http::StatusCode;
use http::header::{CONTENT_RANGE, HeaderMap};
use tracing::{info, warn};

use super::nodes::Nodes;
use super::nodes::reply::{Body, NodeReply};
use super::pending::Pending;
use super::request::NodeRequest;
use super::router::Router;
use super::verify::Verifier;
use device::object::etag_of;
use origin::{BoxFuture, Chunks, Error};
use record::clock;
use store::ReadRequest;
use wire::condition::Conditions;
use wire::range::ByteRange;

/// Maximum continuations of one body.
const CONTINUED_MAX: usize = 4;

/// A body on its way to the client.
pub struct Relay {
    router: Arc<Router<Nodes>>,
    body: Body,
    node: Option<NodeId>,
    /// The request in the engine, held until the body ends.
    pending: Option<Pending<Nodes>>,
    /// What a continuation needs; `None` if the body cannot be continued.
    rest: Option<Continuation>,
    left: u64,
    broke: Vec<NodeId>,
    /// How often it was continued.
    continued: usize,
    /// The hash of what was passed on of a whole object, if it is compared with its etag.
    verifier: Option<Verifier>,
    /// Time without a piece after which the body is continued from another node.
    stall: Duration,
}

/// The object version of a body, and the offset after the body's last byte.
struct Continuation {
    key: ground::Key,
    etag: String,
    end: u64,
}

impl Relay {
    /// Takes the body out of `answer`, the reply to `request`. A piece that takes longer than
    /// `stall` is read from another node.
    pub fn new(
        router: &Arc<Router<Nodes>>,
        request: &NodeRequest,
        answer: &mut NodeReply,
        stall: Duration,
        pending: Option<Pending<Nodes>>,
    ) -> Relay {
        let left = answer.length();
        let start = start_of(answer.status, &answer.headers);
        let rest = start.zip(etag_of(&answer.headers)).map(|(start, etag)| Continuation {
            key: request.key.clone(),
            etag: etag.to_owned(),
            end: start.saturating_add(left),
        });
        let body = std::mem::replace(&mut answer.body, Body::Whole(Bytes::new()));
        let node = answer.node;
        let whole = answer.status == StatusCode::OK && node.is_some();
        let verifies = router.backend.verifies && whole && request.read.is_some();
        let verifier = verifies.then(|| Verifier::new(&answer.headers)).flatten();
        let (broke, continued) = (Vec::new(), 0);
        let router = router.clone();
        Relay { router, body, node, pending, rest, left, broke, continued, verifier, stall }
    }

    /// Upper bound of the time until one piece: it stalls, and is then requested from other nodes.
    pub fn patience(&self) -> Duration {
        self.stall + self.router.backend.deadline * 2
    }

    async fn piece(&mut self) -> Result<Option<Bytes>, String> {
        let next = async {
            match &mut self.body {
                Body::Whole(bytes) => {
                    let bytes = std::mem::take(bytes);
                    Ok(Some(bytes).filter(|bytes| !bytes.is_empty()))
                }
                Body::Node(body) => body.next().await.transpose().map_err(|e| e.to_string()),
                Body::Origin(body, _) => body.next().await.transpose().map_err(|e| e.to_string()),
            }
        };
        let stalled = |_| Err(format!("no data for {} s", self.stall.as_secs_f64()));
        tokio::time::timeout(self.stall, next).await.unwrap_or_else(stalled)
    }

    async fn next_piece(&mut self) -> Option<Result<Bytes, Error>> {
        while self.left > 0 {
            let why = match self.piece().await {
                Ok(Some(piece)) if piece.len() as u64 <= self.left => {
                    self.left -= piece.len() as u64;
                    if let Some(verifier) = &mut self.verifier {
                        verifier.update(&piece);
                    }
                    if self.left == 0 && !self.verifier.take().is_none_or(Verifier::holds) {
                        // The client has most of it: without the last piece it knows that it is not whole.
                        self.pending = None;
                        let what = format!(
                            "the bytes of {} are not those of their etag",
                            self.router.name(self.node)
                        );
                        return Some(Err(Error::Damaged(what)));
                    }
                    if self.left == 0 {
                        self.pending = None;
                    }
                    return Some(Ok(piece));
                }
                Ok(_) => "the body's length differs from its content-length".to_owned(),
                Err(why) => why,
            };
            if let Err(what) = self.go_on(&why).await {
                self.left = 0;
                self.pending = None;
                return Some(Err(Error::Failed(what)));
            }
        }
        None
    }

    /// Requests the missing bytes from another node.
    async fn go_on(&mut self, why: &str) -> Result<(), String> {
        let who = self.router.name(self.node);
        self.pending = None;
        self.body = Body::Whole(Bytes::new());
        let Some(rest) = &self.rest else { return Err(format!("{who} broke off: {why}")) };
        // Bodies of the origin count too, which is no node.
        if self.continued >= CONTINUED_MAX {
            return Err(format!("{who} broke off, like {CONTINUED_MAX} others before it: {why}"));
        }
        self.continued += 1;
        self.broke.extend(self.node);
        let from = rest.end - self.left;
        let request = NodeRequest::read(&ReadRequest {
            range: Some(ByteRange::From { first: from, last: Some(rest.end - 1) }),
            conditions: Conditions::is_version(&rest.etag),
            ..ReadRequest::get(rest.key.clone())
        });
        let deadline = clock::now().saturating_add(self.router.backend.deadline.as_nanos() as u64);
        let continued = self.router.read(&rest.key, &request, deadline, &self.broke).await;
        let (answer, pending) = continued.map_err(|refused| {
            format!("{who} broke off ({why}), and no other node could continue: {:?}", refused.why)
        })?;
        let other = self.router.name(answer.node);
        let fits = answer.status == StatusCode::PARTIAL_CONTENT
            && etag_of(&answer.headers) == Some(&*rest.etag)
            && start_of(answer.status, &answer.headers) == Some(from)
            && answer.length() == self.left;
        if !fits {
            let status = answer.status;
            let what = "has another version, or cannot continue";
            return Err(format!("{who} broke off ({why}), and {other} {what} ({status})"));
        }
        info!("the reply of {who} broke off ({why}); {other} continues it");
        (self.body, self.node, self.pending) = (answer.body, answer.node, pending);
        Ok(())
    }
}

impl Chunks for Relay {
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, Error>>> {
        Box::pin(async move {
            let next = self.next_piece().await;
            if let Some(Err(error)) = &next {
                warn!("cannot continue a reply: {error}");
            }
            next
        })
    }

    fn bytes_left(&self) -> Option<u64> {
        Some(self.left)
    }
}

/// The offset of the body's first byte in the object; `None` if the headers do not give it.
fn start_of(status: StatusCode, headers: &HeaderMap) -> Option<u64> {
    match status {
        StatusCode::OK => Some(0),
        StatusCode::PARTIAL_CONTENT => {
            let text = headers.get(CONTENT_RANGE)?.to_str().ok()?;
            text.strip_prefix("bytes ")?.split('-').next()?.parse().ok()
        }
        _ => None,
    }
}
