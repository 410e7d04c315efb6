//! The gateway's driver: carries out what `engine::gateway` decides, whatever protocol clients and
//! servers speak.
//!
//! All attempts of a request are futures within the request's own task; dropping one closes its
//! connection.

use std::sync::Arc;
use std::time::Duration;

use engine::gateway::{Event, Settings};
use engine::node;
use engine::route::{NodeId, View};
use ground::window::Nanos;
use record::clock;
use tokio::runtime::Handle;
use tracing::{info, warn};

use super::backend::{Backend, Reply as _};
use super::drive::Drive;
use super::outages::OutageNews;

/// Routes requests to the servers of a back end.
pub struct Router<B> {
    /// The engine behind its mutex.
    pub drive: Drive,
    /// The servers.
    pub backend: B,
    ping_timeout: Duration,
}

impl<B: Backend> Router<B> {
    /// A router whose engine has not ticked yet.
    pub fn new(settings: Settings, backend: B, ping_timeout: Duration, now: Nanos) -> Router<B> {
        Router { drive: Drive::new(settings, now), backend, ping_timeout }
    }

    /// Pings the servers and tells the engine the time, for ever.
    pub async fn run(self: Arc<Self>) {
        loop {
            let decided = self.drive.tick().await;
            self.ping_all(decided.pings);
            self.tell_outages();
        }
    }

    /// Logs which servers failed and which answer again.
    fn tell_outages(&self) {
        for (node, news) in self.drive.outage_news(clock::now()) {
            let name = self.backend.name(node);
            match news {
                OutageNews::Failed(reason, start) => {
                    warn!("the node {name} failed: {reason}{start}")
                }
                OutageNews::Answers(seconds) => {
                    info!("the node {name} answers again after {seconds:.1} s");
                }
            }
        }
    }

    /// Tells the engine who its servers are now: `nodes` of them, by number.
    pub fn follow(self: &Arc<Self>, view: View, nodes: usize) {
        self.drive.grow(nodes);
        let decided = self.drive.tell(None, Event::View(view));
        self.ping_all(decided.pings);
    }

    /// The name of a server, or of the origin.
    pub fn name(&self, node: Option<NodeId>) -> &str {
        node.map_or("the origin", |node| self.backend.name(node))
    }

    /// The failure that a reply reports, with the name of its server.
    pub(super) fn named_failure(
        &self,
        node: Option<NodeId>,
        reply: &B::Reply,
    ) -> Option<node::Failure> {
        let kind = reply.failure_kind();
        // A reply to HEAD has no body, so its header alone speaks.
        let silent = || kind.is_final().then(|| "no repetition helps".to_owned());
        let reason = reply.reason().or_else(silent)?;
        Some(node::Failure { kind, reason: format!("{}: {reason}", self.name(node)) })
    }

    /// Pings servers, each in a task of its own.
    pub fn ping_all(self: &Arc<Self>, nodes: Vec<NodeId>) {
        if nodes.is_empty() {
            return;
        }
        // At the end of the process there is no runtime left, and nobody to use the result.
        let Ok(runtime) = Handle::try_current() else { return };
        for node in nodes {
            let router = self.clone();
            runtime.spawn(async move {
                for event in router.ping(node).await {
                    let decided = router.drive.tell(None, event);
                    router.ping_all(decided.pings);
                }
            });
        }
    }

    async fn ping(&self, node: NodeId) -> Vec<Event> {
        let ping = self.backend.ping(node, self.drive.hot_version(node));
        let pong = tokio::time::timeout(self.ping_timeout, ping).await;
        let seconds = self.ping_timeout.as_secs_f64();
        let late = |_| Err(format!("no reply to a ping within {seconds} s"));
        let pong = match pong.unwrap_or_else(late) {
            Ok(pong) => pong,
            Err(why) => {
                self.drive.note_failure(node, why);
                return vec![Event::PingFailed { node }];
            }
        };
        let fits = pong.misfit.is_none();
        if self.drive.note(node, pong.misfit.clone()) {
            match pong.misfit {
                Some(why) => warn!("{} is not used: {why}", self.backend.name(node)),
                None => info!("{} fits again", self.backend.name(node)),
            }
        }
        let mut events = vec![Event::Ponged { node, load: pong.load, fits }];
        let hot = pong.hot.map(|hot| Event::HotKeys { node, directory: Arc::new(hot) });
        events.extend(hot);
        events
    }
}
