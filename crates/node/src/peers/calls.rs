//! Requests to other nodes. Each has a time limit, a multiple or fraction of the lease's length: a
//! later reply would be useless, or another way is faster.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::node::{Action, Event, Failure, PeerReply, ReadsTold};
use engine::route::NodeId;
use ground::Key;
use ground::window::Nanos;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use super::connections::{OFFERS_MAX, Peers, count};
use crate::drive::Drive;
use device::object::Object;
use peer::{Fault, Outgoing, Reply};
use record::clock;
use wire::headers;
use wire::traces::TraceParent;

/// The characters that are percent-encoded in a path.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Upper bound of the metadata block of a stored object, in bytes.
const BLOCK_BYTES_MAX: usize = 256 << 10;

/// Maximum bytes read of a refusal's text, or of a reply whose body is not needed.
const REASON_BYTES_MAX: usize = 4 << 10;

/// From how many bytes on a peer's object is hashed by a thread that may compute: 256 KiB take a serving thread 0.1 to 0.2 ms,
/// in which it answers nobody; a further thread costs some 10 µs.
const HASHED_APART_BYTES_MIN: usize = 256 << 10;

/// An object of another node, if its bytes are those of its etag.
async fn verified(payload: Object) -> Option<Object> {
    if payload.bytes_held().len() < HASHED_APART_BYTES_MIN {
        return payload.is_its_etags().then_some(payload);
    }
    let hashed = tokio::task::spawn_blocking(move || payload.is_its_etags().then_some(payload));
    // A task fails only by a panic, of which the log has told.
    hashed.await.ok().flatten()
}

impl Drive {
    /// Carries out an action that sends a request to another node, as a part of a trace if it is for one request that has spans.
    /// Does nothing without a cluster.
    pub fn call(self: &Arc<Self>, action: Action<Object>, trace: Option<TraceParent>) {
        let Some(peers) = self.peers().cloned() else { return };
        let drive = self.clone();
        match action {
            Action::Ask { peer, key, job } => self.spawn(async move {
                let result = peers.fill(peer, &key, trace).await;
                drive.tell(clock::now(), Event::Answered { job, result });
            }),
            Action::AskLease { peer, asked, epoch } => self.spawn(async move {
                match peers.ask_lease(peer, epoch).await {
                    Some(term) => {
                        drive.tell(clock::now(), Event::LeaseGranted { peer, asked, term });
                    }
                    None => count(&peers.counts.leases_refused),
                }
            }),
            Action::Invalidate { peer, key, request } => self.spawn(async move {
                let done = peers.invalidate(peer, &key).await;
                drive.tell(clock::now(), Event::Invalidated { request, peer, done });
            }),
            Action::TakeBack { peer } => self.spawn(async move {
                // The limit leaves time to ask again before the lease ends.
                let within = peers.lease / 4;
                let done = peers.post(peer, "/cluster/return", within).await;
                let done = done == Some(StatusCode::NO_CONTENT);
                drive.tell(clock::now(), Event::Returned { peer, done });
            }),
            Action::Offer { peer, key } => {
                if peers.offers.fetch_add(1, Ordering::Relaxed) >= OFFERS_MAX {
                    peers.offers.fetch_sub(1, Ordering::Relaxed);
                    return count(&peers.counts.offers_dropped);
                }
                self.spawn(async move {
                    peers.offer(peer, &key).await;
                    peers.offers.fetch_sub(1, Ordering::Relaxed);
                });
            }
            Action::TellReads { peer, told } => {
                self.spawn(async move { peers.tell_reads(peer, &told).await });
            }
            _ => {}
        }
    }
}

fn path_of(endpoint: &str, key: &Key) -> String {
    format!("{endpoint}{}", percent_encode(key, ENCODED))
}

fn number(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

fn failed<P>(reason: String) -> PeerReply<P> {
    PeerReply::Failed(Failure::unavailable(reason))
}

impl Peers {
    /// Sends a request and returns the reply, whose head has arrived.
    ///
    /// # Errors
    ///
    /// Those of the pool, or a refusal because the peer's configuration or version differs; such a
    /// mismatch is also noted.
    async fn send(
        &self,
        peer: NodeId,
        method: &Method,
        path: &str,
        headers: &[(HeaderName, HeaderValue)],
        body: Outgoing<'_>,
    ) -> Result<Reply, Fault> {
        let pool = self.roll.pool(peer);
        let pool = pool.ok_or_else(|| Fault::Request("unknown member".to_owned()))?;
        let reply = pool.send(method, path, headers, body).await?;
        match reply.status {
            StatusCode::CONFLICT | StatusCode::UNAUTHORIZED => {
                let status = reply.status;
                let text = reply.body.gather(REASON_BYTES_MAX).await.unwrap_or_default();
                let text = String::from_utf8_lossy(&text);
                let what = format!("refuses this node's requests with {status}: {text}");
                self.mismatches.note(self.roll.name(peer), &what);
                Err(Fault::Request(what))
            }
            StatusCode::NOT_FOUND if path.starts_with("/cluster/") => {
                let what = "is not a node of a cluster, or runs another version of Concertina";
                self.mismatches.note(self.roll.name(peer), what);
                Err(Fault::Request(what.to_owned()))
            }
            _ => Ok(reply),
        }
    }

    /// Requests an object from a peer, for at most half the length of a lease. A peer that takes
    /// longer is stuck or has long queues, and the origin is asked instead.
    async fn fill(&self, peer: NodeId, key: &Key, trace: Option<TraceParent>) -> PeerReply<Object> {
        let limit = self.lease / 2;
        let answered = tokio::time::timeout(limit, self.fill_untimed(peer, key, trace)).await;
        let answered = answered
            .unwrap_or_else(|_| failed(format!("no answer within {} s", limit.as_secs_f64())));
        count(match &answered {
            PeerReply::Found { .. } => &self.counts.fills_found,
            PeerReply::NotHere => &self.counts.fills_not_here,
            PeerReply::Failed(_) => &self.counts.fills_failed,
        });
        answered
    }

    async fn fill_untimed(
        &self,
        peer: NodeId,
        key: &Key,
        trace: Option<TraceParent>,
    ) -> PeerReply<Object> {
        let path = path_of("/objects/", key);
        let mut fill = vec![(headers::FILL.clone(), HeaderValue::from_static("1"))];
        fill.extend(trace.and_then(|trace| trace.header()));
        let reply = match self.send(peer, &Method::GET, &path, &fill, Outgoing::Empty).await {
            Ok(reply) => reply,
            Err(fault) => return failed(fault.to_string()),
        };
        let status = reply.status;
        let age = number(&reply.headers, &headers::AGE_NS);
        let max = self.object_bytes_max.saturating_add(BLOCK_BYTES_MAX as u64);
        match reply.body.gather(usize::try_from(max).unwrap_or(usize::MAX)).await {
            Err(fault) => failed(fault.to_string()),
            Ok(stored) => match (status, age) {
                (StatusCode::OK, Some(age)) => match Object::decode(&stored) {
                    Some(payload) => match verified(payload).await {
                        Some(payload) => PeerReply::Found { payload, age },
                        None => failed("the peer's bytes are not those of their etag".to_owned()),
                    },
                    None => failed("the peer's reply is not a valid object".to_owned()),
                },
                (StatusCode::NOT_FOUND, _) => PeerReply::NotHere,
                _ => failed(format!("the peer replied {status}")),
            },
        }
    }

    /// Requests a lease from a peer; returns its term in nanoseconds if the peer grants it in time.
    ///
    /// Nodes send each other such requests all the time, so that these tell also who fails.
    async fn ask_lease(&self, peer: NodeId, epoch: u64) -> Option<Nanos> {
        let sent = clock::now();
        let ask = async {
            let path = "/cluster/lease";
            let epoch = [(headers::EPOCH.clone(), HeaderValue::from(epoch))];
            let reply = self.send(peer, &Method::POST, path, &epoch, Outgoing::Empty).await?;
            let term = number(&reply.headers, &headers::TERM_NS);
            let granted = reply.status == StatusCode::OK;
            let _ = reply.body.gather(REASON_BYTES_MAX).await;
            Ok(term.filter(|_| granted))
        };
        let answered: Result<Result<Option<Nanos>, Fault>, _> =
            tokio::time::timeout(self.lease, ask).await;
        let failure = match &answered {
            Ok(Ok(_)) => None,
            // One whose configuration differs is there; `mismatches` says so.
            Ok(Err(Fault::Request(_))) => return None,
            Ok(Err(fault)) => Some(fault.to_string()),
            Err(_) => Some(format!("no answer within {} s", self.lease.as_secs_f64())),
        };
        self.outages.note(peer, self.roll.name(peer), sent, clock::now(), failure);
        answered.ok()?.ok()?
    }

    /// Tells a peer to drop its copies of a key; returns whether the peer confirmed it. The limit
    /// of a quarter of a lease leaves time to repeat the request before the lease ends.
    async fn invalidate(&self, peer: NodeId, key: &Key) -> bool {
        count(&self.counts.invalidations);
        let path = path_of("/cluster/invalidate/", key);
        let done = self.post(peer, &path, self.lease / 4).await == Some(StatusCode::NO_CONTENT);
        if !done {
            count(&self.counts.invalidations_failed);
        }
        done
    }

    async fn offer(&self, peer: NodeId, key: &Key) {
        let path = path_of("/cluster/offer/", key);
        let taken = self.post(peer, &path, self.lease).await == Some(StatusCode::ACCEPTED);
        count(if taken { &self.counts.offers } else { &self.counts.offers_dropped });
    }

    /// Tells a peer what was served of its keys. What is lost makes them seem a little colder.
    async fn tell_reads(&self, peer: NodeId, told: &ReadsTold) {
        let Ok(body) = serde_json::to_vec(told) else { return };
        let tell = async {
            let body = Outgoing::Bytes(body.into());
            if let Ok(reply) = self.send(peer, &Method::POST, "/cluster/reads", &[], body).await {
                let _ = reply.body.gather(REASON_BYTES_MAX).await;
            }
        };
        let _ = tokio::time::timeout(self.lease, tell).await;
    }

    /// Sends a POST request; returns the status of the reply if it comes in time.
    async fn post(&self, peer: NodeId, path: &str, within: Duration) -> Option<StatusCode> {
        let tell = async {
            let reply = self.send(peer, &Method::POST, path, &[], Outgoing::Empty).await.ok()?;
            let status = reply.status;
            let _ = reply.body.gather(REASON_BYTES_MAX).await;
            Some(status)
        };
        tokio::time::timeout(within, tell).await.ok().flatten()
    }
}
