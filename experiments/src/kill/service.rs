//! Whether the cluster kept serving: what each fault did to reads through each gateway, and to writes.

use ground::window::Nanos;
use serde::Serialize;

use super::fault::{Fault, Target};
use super::history::{Action, Operation, Place, Written};

/// A fault, and when what happened.
#[derive(Clone, Copy, Debug)]
pub struct Struck {
    /// What was done.
    pub fault: Fault,
    /// To whom.
    pub target: Target,
    /// When it was begun.
    pub began: Nanos,
    /// When it was ended.
    pub healed: Nanos,
    /// When the node itself answered again.
    pub answered: Nanos,
    /// When writes to its keys had been acknowledged through every gateway.
    pub back: Nanos,
    /// When the next could begin.
    pub ended: Nanos,
}

impl Struck {
    /// Whether the origin was left alone.
    pub fn concerns_nodes_only(&self) -> bool {
        matches!(self.target, Target::Node(_) | Target::Gateway(_))
    }

    /// Whether it was this gateway.
    pub fn is_gateway(&self, gateway: u8) -> bool {
        self.target == Target::Gateway(usize::from(gateway))
    }

    /// Whether a read could not be answered for this reason: it was under way through the struck gateway,
    /// or while the origin was struck.
    pub fn excuses(&self, read: &Operation) -> bool {
        let needed = match read.place {
            Place::Gateway(gateway) if self.is_gateway(gateway) => true,
            // A node without its origin answers what needs it 503, and nobody else may have the object.
            _ => !self.concerns_nodes_only() || self.fault.is_of_view(),
        };
        needed && read.ended >= self.began && read.began <= self.back
    }
}

/// What reads through one gateway met while a fault lasted and after.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Reads {
    /// With an answer.
    pub answered: u64,
    /// With none.
    pub failed: u64,
    /// The longest that was answered, seconds.
    pub slowest_s: f64,
    /// The longest time in which none was, seconds.
    pub gap_s: f64,
}

/// What a fault did.
#[derive(Clone, Debug, Serialize)]
pub struct Effect {
    /// From 1.
    pub number: usize,
    /// What was done.
    pub fault: Fault,
    /// To whom.
    pub target: Target,
    /// When, in seconds since the load began.
    pub began_s: f64,
    /// How long it lasted, seconds.
    pub lasted_s: f64,
    /// From its end to the node's first answer, seconds.
    pub answered_after_s: f64,
    /// From its end to acknowledged writes of its keys through every gateway, seconds.
    pub writes_again_after_s: f64,
    /// Reads through each gateway.
    pub reads: Vec<Reads>,
    /// The longest time in which reads through some gateway that was not struck itself, or one read,
    /// waited: seconds. None if the origin was struck, without which most objects cannot be read.
    pub without_service_s: Option<f64>,
    /// Acknowledged writes.
    pub writes: u64,
    /// Writes that were not and that needed who was struck: to keys of the node, through the gateway,
    /// or all if it was the origin.
    pub writes_refused_of_node: u64,
    /// Other writes that were not.
    pub writes_refused_of_others: u64,
    /// The slowest acknowledged write to keys of other nodes, seconds.
    pub slowest_write_of_others_s: f64,
}

fn seconds(from: Nanos, to: Nanos) -> f64 {
    to.saturating_sub(from) as f64 / 1e9
}

/// What reads through a gateway met between two times. `history` is in the order of ends.
pub fn reads(history: &[Operation], gateway: u8, from: Nanos, to: Nanos) -> Reads {
    let mut met = Reads::default();
    let mut last = from;
    // A read that was under way at the end counts whole, so it is looked for after it.
    let first = history.partition_point(|operation| operation.ended < from);
    for operation in history.iter().skip(first) {
        if operation.place != Place::Gateway(gateway) || operation.began > to {
            continue;
        }
        if operation.is_failed_read() {
            met.failed += 1;
        } else if operation.is_answered_read() {
            met.answered += 1;
            met.slowest_s = met.slowest_s.max(seconds(operation.began, operation.ended));
            met.gap_s = met.gap_s.max(seconds(last, operation.ended.min(to)));
            last = operation.ended;
        }
    }
    met.gap_s = met.gap_s.max(seconds(last, to));
    met
}

/// What a fault did. `history` is in the order of ends, `primaries` the node of each key.
pub fn effect(
    number: usize,
    struck: &Struck,
    history: &[Operation],
    start: Nanos,
    gateways: u8,
    primaries: &[usize],
) -> Effect {
    let (from, to) = (struck.began, struck.ended);
    let reads: Vec<Reads> = (0..gateways).map(|g| reads(history, g, from, to)).collect();
    let longest = |met: &Reads| met.slowest_s.max(met.gap_s);
    let mut effect = Effect {
        number,
        fault: struck.fault,
        target: struck.target,
        began_s: seconds(start, from),
        lasted_s: seconds(from, struck.healed),
        answered_after_s: seconds(struck.healed, struck.answered),
        writes_again_after_s: seconds(struck.healed, struck.back),
        without_service_s: (struck.concerns_nodes_only() && !struck.fault.is_of_view()).then(
            || {
                let others = reads.iter().enumerate().filter(|(g, _)| !struck.is_gateway(*g as u8));
                others.map(|(_, met)| longest(met)).fold(0.0, f64::max)
            },
        ),
        reads,
        writes: 0,
        writes_refused_of_node: 0,
        writes_refused_of_others: 0,
        slowest_write_of_others_s: 0.0,
    };
    let first = history.partition_point(|operation| operation.ended < from);
    // A write under way at the end is the next fault's, which may be why it is refused.
    for operation in history.iter().skip(first).take_while(|operation| operation.ended <= to) {
        let Action::Write(_, _, written) = operation.action else { continue };
        let primary = primaries.get(operation.key as usize);
        let of_node = primary.is_some_and(|node| struck.target == Target::Node(*node))
            || !struck.concerns_nodes_only()
            || matches!(operation.place, Place::Gateway(g) if struck.is_gateway(g));
        match written {
            Written::Acknowledged => {
                effect.writes += 1;
                if !of_node {
                    let took = seconds(operation.began, operation.ended);
                    effect.slowest_write_of_others_s = effect.slowest_write_of_others_s.max(took);
                }
            }
            _ if of_node => effect.writes_refused_of_node += 1,
            _ => effect.writes_refused_of_others += 1,
        }
    }
    effect
}
