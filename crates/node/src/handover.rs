//! Hands a node's keys over before it stops, as `engine::node` decides, so that no write waits for it.
//!
//! The engine is told first ([`Event::HandOver`]); when it has handed over, the list in etcd is, and so
//! the next of the keys' nodes take them. Until all who hear of etcd know, the node answers: writes that are still
//! sent to it are refused, so that gateways send them to the next node.

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::node::Event;
use record::clock;
use tokio::sync::watch;
use tracing::{info, warn};

use super::drive::Drive;
use membership::Membership;

/// A pause between two looks at whether the handover is over.
const LOOK: Duration = Duration::from_millis(1);

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Serves,
    HandsOver,
    HasHandedOver,
}

/// How far a node is that hands over.
pub struct Handover {
    stage: watch::Sender<Stage>,
}

impl Default for Handover {
    fn default() -> Handover {
        Handover { stage: watch::Sender::new(Stage::Serves) }
    }
}

impl Handover {
    /// Waits until the handover begins: uploads under way will not be written here. Waits for ever if it does
    /// not.
    pub async fn wait_until_begun(&self) {
        let mut stage = self.stage.subscribe();
        if stage.wait_for(|stage| *stage >= Stage::HandsOver).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The engine has handed over.
    pub fn end(&self) {
        self.stage.send_replace(Stage::HasHandedOver);
    }

    fn is_over(&self) -> bool {
        *self.stage.borrow() == Stage::HasHandedOver
    }
}

/// Hands over within a time, tells the others, and waits until they know. If a write takes longer, or a peer does
/// not give its lease back, the others wait as for a node that was lost.
pub fn hand_over(drive: &Arc<Drive>, membership: &Membership, within: Duration) {
    let begun = Instant::now();
    drive.handover.stage.send_replace(Stage::HandsOver);
    drive.tell(clock::now(), Event::HandOver);
    while !drive.handover.is_over() && begun.elapsed() < within {
        std::thread::sleep(LOOK);
    }
    let handed_over = drive.handover.is_over();
    let ms = begun.elapsed().as_millis();
    match handed_over {
        true => info!("handed over after {ms} ms"),
        false => warn!(
            "not handed over after {ms} ms: a write is under way, or a node does not give its lease back; \
             the others wait as for a node that was lost"
        ),
    }
    membership.leave(handed_over);
    std::thread::sleep(membership.valid());
}
