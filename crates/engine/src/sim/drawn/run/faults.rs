//! Faults of nodes and devices that begin and end.

use ground::window::{Finished, Nanos, Operation, Outcome};

use super::super::changes::Change;
use super::super::settings::NodeFaultKind;
use super::{DrawnCluster, Job, Stage};
use crate::route::NodeId;

impl DrawnCluster {
    /// A fault begins or ends.
    pub(super) fn change(&mut self) {
        let Some(Change { begins, fault, .. }) = self.changes.pop() else { return };
        let Some(node) = self.nodes.get_mut(fault.node) else { return };
        match fault.kind {
            NodeFaultKind::Down if begins => {
                node.down += 1;
                if node.down == 1 {
                    self.leave(fault.node, |_| true);
                }
            }
            NodeFaultKind::Down => node.down -= 1,
            NodeFaultKind::Slow(factor) if begins => node.slow *= factor,
            NodeFaultKind::Slow(factor) => node.slow /= factor,
            NodeFaultKind::DeviceLost(device) => {
                let Some(lost) = node.lost.get_mut(device) else { return };
                if !begins {
                    *lost -= 1;
                    return;
                }
                *lost += 1;
                if *lost == 1 {
                    self.leave(fault.node, |stage| stage == Stage::Device(device));
                }
            }
        }
    }

    /// The requests at a node, or at a part of it, go on elsewhere: from a node that is down to the next, from a device to the
    /// origin.
    fn leave(&mut self, at: NodeId, leaves: impl Fn(Stage) -> bool) {
        let now = self.now;
        let there = |job: &Job| {
            job.node == at && !matches!(job.at, Stage::Sent | Stage::Replied) && leaves(job.at)
        };
        for number in self.jobs.numbers_of(there) {
            let Some(mut job) = self.jobs.remove(number) else { continue };
            let lost = |since: Nanos| Finished {
                operation: Operation::Get,
                outcome: Outcome::Error,
                waiting: 0,
                service: now - since,
                response: now - since,
                bytes: 0,
            };
            let stage = job.at;
            if let (true, Some(queue)) = (job.served, self.queue(at, stage)) {
                queue.finish(now, &lost(job.started));
            }
            let node = &mut self.nodes[at];
            node.length -= 1;
            let down = node.down > 0;
            if down && !job.write {
                node.recorder.finish(now, &lost(job.received));
            }
            (job.at, job.served) = (Stage::Sent, false);
            // Under a new number: the end of its service, which is under way, finds nothing.
            let number = self.jobs.insert(job);
            match down {
                true => self.fail_over(number),
                false => self.enter(number, Stage::Origin),
            }
        }
        let node = &mut self.nodes[at];
        for (device, queue) in node.devices.iter_mut().enumerate() {
            if leaves(Stage::Device(device)) {
                queue.clear_waiting(now);
            }
        }
        if leaves(Stage::Origin) {
            node.origin.clear_waiting(now);
        }
    }
}
