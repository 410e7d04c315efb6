//! Says in the log when another node of the cluster fails and when it answers again, by the lease requests that this node sends
//! to each node that orders writes.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use engine::route::NodeId;
use ground::outage::OutageLine;
use ground::window::{Nanos, SECOND};
use tracing::{info, warn};

/// For so long a node that has never answered is taken for one that starts: the processes of a cluster start one after the other.
const START: Nanos = 10 * SECOND;

/// What the log says of one node.
#[derive(Default)]
struct NodeLine {
    outage: OutageLine,
    /// Whether it has answered since this process began to ask it.
    has_answered: bool,
    /// When it was first asked.
    asked: Option<Nanos>,
}

/// The log of the outages of all other nodes: each once with its end, of one node at most one every ten seconds.
#[derive(Default)]
pub(super) struct OutageLog(Mutex<HashMap<NodeId, NodeLine>>);

impl OutageLog {
    /// Notes at `now` how a request ended that was sent at `sent`: answered, whatever the answer says, or failed for a reason.
    pub(super) fn note(
        &self,
        node: NodeId,
        name: &str,
        sent: Nanos,
        now: Nanos,
        failure: Option<String>,
    ) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let line = lines.entry(node).or_default();
        let asked = *line.asked.get_or_insert(sent);
        let Some(reason) = failure else {
            line.has_answered = true;
            if let Some(seconds) = line.outage.answer(sent, now) {
                info!("the node {name} answers again after {seconds:.1} s");
            }
            return;
        };
        let may_start = !line.has_answered && now.saturating_sub(asked) < START;
        if !may_start && let Some(start) = line.outage.fail(now) {
            warn!("the node {name} failed: {reason}{start}");
        }
    }
}
