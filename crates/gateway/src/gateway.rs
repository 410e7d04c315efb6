//! A gateway as a store of objects: reads, writes and removals through the nodes, and the errors of those that were refused.
//!
//! A small reply is read completely before the client is sent its head. A large one is streamed and, if it breaks off, continued from
//! another node.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::gateway::{self, Refusal};
use engine::invariant::Invariants;
use engine::node::{Failure, FailureKind, Stages};
use ground::window::{self, Nanos, Outcome, QueueName, Window};
use ground::{Etag, Key};
use http::header::HeaderValue;
use origin::{BoxFuture, IdentityRecord, Origin};
use record::clock;

use super::attempts::{NotWritten, Refused};
use super::backend::Reply as _;
use super::error::StartError;
use super::nodes::Nodes;
use super::nodes::reply::{Body as NodeBody, NodeReply};
use super::pending::Pending;
use super::relay::Relay;
use super::replies;
use super::request::NodeRequest;
use super::router::Router;
use super::upload::Source;
use configuration::Config;
use datasets::Datasets;
use device::object::{etag_of, metadata_of};
use front::Front;
use front::observe::Observed;
use live::LiveModel;
use membership::Membership;
use store::noted;
use store::origin_reads;
use store::{
    Body, DeleteRequest, Error, FoundObject, Freshness, PutRequest, ReadRequest, Store, WriteTerms,
};
use wire::body::Budget;
use wire::headers;
use wire::lane::{Replier, RequestRecord};
use wire::pace::Pace;

/// Maximum duration of a streamed upload. Its pieces and the node have shorter limits of their own.
const UPLOAD_MAX: Nanos = 24 * 3600 * 1_000_000_000;

/// The state that all threads of an HTTP gateway share.
pub struct Gateway {
    pub(super) front: Front,
    pub(super) router: Arc<Router<Nodes>>,
    pub(super) datasets: Arc<Datasets>,
    pub(super) membership: Arc<Membership>,
    /// Memory for uploads that may be sent again.
    pub(super) uploads: Arc<Budget>,
}

impl Deref for Gateway {
    type Target = Front;
    fn deref(&self) -> &Front {
        &self.front
    }
}

impl Gateway {
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
    ) -> Result<Gateway, StartError> {
        let nodes = Nodes::new(config, &membership, origin.clone(), record)?;
        let ring = membership.members().ring.clone();
        let settings = gateway::Settings {
            behind_listener: true,
            view_lag: membership.lag(),
            ..config.gateway.settings(ring, windows.clone(), now)
        };
        let ping_timeout = Duration::from_secs_f64(config.gateway.ping_timeout_s);
        Ok(Gateway {
            front: Front::new(config, QueueName::Gateway, windows.clone(), live, now),
            router: Arc::new(Router::new(settings, nodes, ping_timeout, now)),
            datasets: Datasets::without_shards(config, origin, windows, live, now)
                .map_err(|error| StartError::Datasets(error.into()))?,
            membership,
            uploads: Budget::new(config.serve.uploads_bytes_max.0),
        })
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

    /// Reads an object from its nodes, or from the origin where they cannot be reached.
    pub(crate) async fn read(
        &self,
        read: &ReadRequest,
        record: &mut RequestRecord,
    ) -> Result<FoundObject, Error> {
        if read.freshness == Freshness::Origin {
            let nodes = &self.router.backend;
            let name = HeaderValue::from_static("origin");
            record.replier = Some(Box::new(Replier { name, stages: None }));
            record.outcome = Outcome::Origin;
            let found = origin_reads::read(&nodes.origin, nodes.origin_timeout, read, None).await;
            return noted(found, read, record);
        }
        let wanted = NodeRequest::read(read).within(record.passed_on());
        let (patience, _) = self.patience(read.deadline, record);
        let deadline = record.received.saturating_add(patience);
        match self.router.read(&wanted.key, &wanted, deadline, &[]).await {
            Ok((reply, pending)) => self.result_of_read(reply, pending, &wanted, read, record),
            Err(refused) => Err(self.error(refused, &read.key, patience)),
        }
    }

    /// The result of a read that a node or the origin has answered.
    pub(super) fn result_of_read(
        &self,
        mut reply: NodeReply,
        pending: Option<Pending<Nodes>>,
        wanted: &NodeRequest,
        read: &ReadRequest,
        record: &mut RequestRecord,
    ) -> Result<FoundObject, Error> {
        self.note(&mut reply, read.is_timed, record);
        if !reply.status.is_success() {
            return noted(Err(replies::error_of(&reply)), read, record);
        }
        let malformed = || {
            let who = self.router.name(reply.node);
            Error::Unavailable(format!("{who} sent a reply without the version of the object"))
        };
        let version = metadata_of(&reply.headers).ok_or_else(malformed)?.into();
        let range = replies::range_of(&reply);
        let body = match std::mem::replace(&mut reply.body, NodeBody::empty()) {
            _ if read.is_head => Body::Bytes(Bytes::new()),
            NodeBody::Whole(bytes) => Body::Bytes(bytes),
            body => {
                reply.body = body;
                let stall = Duration::from_secs_f64(self.config.gateway.attempt_timeout_max_s);
                let relay = Relay::new(&self.router, wanted, &mut reply, stall, pending);
                let patience = relay.patience();
                Body::Stream(Box::new(relay), patience)
            }
        };
        noted(Ok(FoundObject { version, range, body, age: None }), read, record)
    }

    /// Notes in a request's record where its reply came from.
    fn note(&self, reply: &mut NodeReply, is_timed: bool, record: &mut RequestRecord) {
        let node = reply.node.and_then(|node| self.router.backend.roll.header(node));
        let name = node.cloned().unwrap_or(HeaderValue::from_static("origin"));
        let stages = reply.headers.remove(&headers::STAGES).filter(|_| is_timed);
        record.replier = Some(Box::new(Replier { name, stages }));
        record.outcome = reply.head().outcome;
        record.stages = Some(Stages {
            received: record.received,
            queued: record.received,
            started: record.received,
            served: clock::now(),
            length_left: replies::queue_length_of(&reply.headers),
            ..Stages::default()
        });
    }

    /// How long a client waits at most, in nanoseconds, and whether it has limited that itself.
    pub(super) fn patience(
        &self,
        deadline: Option<Nanos>,
        record: &RequestRecord,
    ) -> (Nanos, bool) {
        let max = self.router.backend.deadline.as_nanos() as Nanos;
        let own = deadline.map(|deadline| deadline.saturating_sub(record.received));
        (own.unwrap_or(max).min(max), own.is_some())
    }

    /// Has the key's primary write an object.
    async fn write(&self, put: PutRequest, record: &mut RequestRecord) -> Result<Etag, Error> {
        let mut wanted = NodeRequest::put(&put).within(record.passed_on());
        wanted.expect(put.body.sha256());
        let pace = Pace::from_settings(&self.config.serve);
        let source = Source::receive(put.body, pace, &self.uploads).await?;
        let reply = self.send(&wanted, source, &put.terms, record).await?;
        match etag_of(&reply.headers) {
            Some(etag) => Ok(etag.into()),
            None => {
                let who = self.router.name(reply.node);
                Err(Error::Unavailable(format!("{who} sent a reply without the new version")))
            }
        }
    }

    /// Has the key's primary remove an object.
    async fn remove(
        &self,
        delete: DeleteRequest,
        record: &mut RequestRecord,
    ) -> Result<bool, Error> {
        let wanted = NodeRequest::delete(&delete).within(record.passed_on());
        let source = Source::Whole(Bytes::new());
        self.send(&wanted, source, &delete.terms, record).await?;
        Ok(record.outcome != Outcome::Miss)
    }

    /// Sends a write. A streamed body has a time limit only if the client gave one.
    async fn send(
        &self,
        wanted: &NodeRequest,
        mut source: Source,
        terms: &WriteTerms,
        record: &mut RequestRecord,
    ) -> Result<NodeReply, Error> {
        let (patience, is_limited) = self.patience(terms.deadline, record);
        let is_streamed = matches!(source, Source::Stream(_)) && !is_limited;
        let deadline = clock::now().saturating_add(if is_streamed { UPLOAD_MAX } else { patience });
        let written =
            self.router.write(&wanted.key, wanted, &mut source, deadline, is_streamed).await;
        let error = match written {
            Ok((mut reply, _)) => {
                self.note(&mut reply, terms.is_timed, record);
                return match reply.status.is_success() {
                    true => Ok(reply),
                    false => Err(replies::error_of(&reply)),
                };
            }
            Err(NotWritten::Refused(refused)) => self.error(refused, &wanted.key, patience),
            Err(NotWritten::Body(error)) => error,
            Err(NotWritten::Moved) => Error::Unavailable(MOVED.to_owned()),
        };
        source.discard().await;
        Err(error)
    }

    /// The error of a refused request: the reason, and what to do.
    pub(super) fn error(&self, refused: Refused, key: &Key, patience: Nanos) -> Error {
        let Refused { why, failure, tried } = refused;
        let failure = match failure {
            // Whoever is asked, it is the same origin.
            Some(Failure { kind: FailureKind::Damaged, reason }) if why == Refusal::Unavailable => {
                return Error::Damaged(reason);
            }
            Some(Failure { kind: FailureKind::Denied, reason }) if why == Refusal::Unavailable => {
                return Error::Unreadable(reason);
            }
            other => other,
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
        if let Some(failure) = failure {
            what.push_str(" (");
            what.push_str(&failure.reason);
            what.push(')');
        }
        match why {
            Refusal::TooLate | Refusal::Unknown => Error::TimedOut(what),
            Refusal::Busy => Error::Busy(None, what),
            Refusal::NoPrimary | Refusal::Unavailable => Error::Unavailable(what),
        }
    }
}

/// The error of a write that another node came to order while its body was being sent.
const MOVED: &str = "another node began to order the key's writes while this one was being sent; \
    nothing was written; send it again";

impl Store for Gateway {
    fn front(&self) -> &Front {
        &self.front
    }

    fn origin(&self) -> &Arc<dyn Origin> {
        &self.router.backend.origin
    }

    fn get<'a>(
        &'a self,
        read: &'a ReadRequest,
        record: &'a mut RequestRecord,
    ) -> BoxFuture<'a, Result<FoundObject, Error>> {
        Box::pin(self.read(read, record))
    }

    fn put<'a>(
        &'a self,
        put: PutRequest,
        record: &'a mut RequestRecord,
    ) -> BoxFuture<'a, Result<Etag, Error>> {
        Box::pin(self.write(put, record))
    }

    fn delete<'a>(
        &'a self,
        delete: DeleteRequest,
        record: &'a mut RequestRecord,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(self.remove(delete, record))
    }

    fn clear(&self) -> Result<(), Error> {
        Err(Error::Unsupported("a cluster cannot be emptied through a gateway"))
    }
}

impl Observed for Gateway {
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
