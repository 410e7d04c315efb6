//! Hands a node's keys over before it stops, as `engine::node` decides, so that no write waits for it.
//!
//! The engine is told first ([`Event::HandOver`]); when it has handed over, the list in etcd is, and so
//! the next of the keys' nodes take them. Until all who hear of etcd know, the node answers: writes that are still
//! sent to it are refused, so that gateways send them to the next node.

pub(crate) mod stage;

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::node::Event;
use record::clock;
use tracing::{info, warn};

use super::drive::Drive;
use membership::Membership;
pub use stage::Handover;
use stage::Stage;

/// A pause between two looks at whether the handover is over.
const LOOK: Duration = Duration::from_millis(1);

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
